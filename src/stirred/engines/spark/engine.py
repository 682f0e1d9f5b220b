"""The engine that hands bulk work to the executors of a Spark cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, ParamSpec

from stirred.engines.local import in_order
from stirred.engines.protocol import SPARK, G, R, Sources, Split, bad_engine
from stirred.engines.spark.checks import check_cluster, site_defaults
from stirred.engines.spark.failures import told_plainly, without_values
from stirred.engines.spark.session import Session, started, with_these_versions

P = ParamSpec("P")

_PER_SLOT: Final = 4  # tasks of a job, so that slow ones even out


@dataclass(slots=True, kw_only=True, eq=False)
class SparkEngine:
    """Work on the executors of ``master``; ``conf`` are further settings of Spark."""

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)
    name: str = SPARK
    scratch: Path | None = None
    running: Session | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Return master, settings, version, hosts and seconds, as the manifest keeps them."""
        found: dict[str, Any] = {"name": self.name, "master": self.master, "conf": dict(self.conf)}
        if self.running is not None:
            more = {"hosts": list(self.running.hosts), "seconds": self.running.seconds}
            found |= {"spark": self.running.version, **more}
        return found

    @property
    def session(self) -> Session:
        """Return the running application."""
        if self.running is None:
            raise bad_engine("Spark is not running", remedy="start the engine first")
        return self.running

    def check(self) -> None:
        """Raise what is wrong with packages, Java, the address and the settings; nothing is started."""
        check_cluster(self.master, self.conf)

    def start(self, scratch: Path) -> None:
        """Start the application, and compare the workers with this machine."""
        self.check()
        self.scratch, self.running = scratch, started(self.master, self.conf, scratch)

    def map_groups(self, groups: Iterable[G], kernel: Callable[[G], R]) -> Iterator[R]:
        """Yield ``kernel(group)`` for every group in their order, computed by executors, each group a task.

        A few groups for each slot are a job, so that the driver holds no more than these; two jobs are under way, so
        that no slot waits for the last task of one. What came back is kept here: nothing is computed from it twice.
        """
        context, guarded = self.session.context, _guarded(kernel)

        def job(some: Sequence[G]) -> list[R]:
            with told_plainly("computing groups"):
                return context.parallelize(some, len(some)).map(guarded).collect()

        for found in in_order(_together(groups, _PER_SLOT * self.slots), job, at_once=2, give_up=context.cancelAllJobs):
            yield from found

    @property
    def slots(self) -> int:
        """Return how many tasks run at the same time."""
        return self.session.slots

    @property
    def memory(self) -> int:
        """Return how many bytes a task may take: beside its heap an executor may take as much again.

        Unless told otherwise an executor takes all cores of its worker. How many these are is known once it runs.
        """
        conf = {"spark.executor.memory": "1g", "spark.executor.cores": "1", **site_defaults(), **self.conf}
        tasks = int(conf["spark.executor.cores"]) if self.running is None else self.running.together
        size = conf["spark.executor.memory"].lower().rstrip("b")
        number, unit = (size, "m") if size.isdigit() else (size[:-1], size[-1])
        return (int(number) << 10 * " kmgt".index(unit)) // tasks

    def share(self, value: G) -> Callable[[], G]:
        """Send a value to every executor that asks for it, once; closures are pickled too."""
        from pyspark import cloudpickle

        packed = self.session.context.broadcast(cloudpickle.dumps(value))
        return partial(_unpacked, packed)

    def exchange(
        self, groups: Sequence[G], split: Split[G], kernel: Callable[[int, list[bytes]], R], *, parts: int
    ) -> list[R]:
        """Send messages through a shuffle, which is encrypted; what a lost executor held is computed again."""

        def work(part: int, messages: Iterable[tuple[int, bytes]]) -> list[R]:
            return [kernel(part, [message for _, message in messages])]

        context = self.session.context
        with told_plainly("exchanging records"):
            sent = context.parallelize(groups, max(1, len(groups))).flatMap(_guarded(split))
            # The number of a part is its partition: a hash would leave some empty and double others.
            return sent.partitionBy(parts, int).mapPartitionsWithIndex(_guarded(work)).collect()

    def close(self) -> None:
        """Stop the application, if it was started."""
        if self.running is not None:
            self.running.close()
            self.running = None


@lru_cache(maxsize=4)
def _unpacked(packed: Any) -> Any:
    """Return a shared value; tasks that follow each other in a process unpack it once."""
    return pickle.loads(packed.value)


def _guarded(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return a kernel as it runs on an executor."""
    return without_values(with_these_versions(kernel))


def _together(groups: Iterable[G], many: int) -> Iterator[list[G]]:
    """Yield groups in lists.

    >>> [*_together("abcde", 2)]
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    left = iter(groups)
    while some := [*islice(left, many)]:
        yield some
