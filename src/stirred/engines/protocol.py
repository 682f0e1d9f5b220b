"""What a mechanism may ask of the place where its bulk work runs. No mechanism knows which place it is.

An engine computes; it decides nothing. Whatever is random is a function of the key of the draw and of addresses that
come from the input (row numbers, codes of strata, areas), which travel inside the kernel. A task that is retried, or
runs twice, repeats its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from stirred.spec.problems import Problem, StirredError

G = TypeVar("G")
R = TypeVar("R")
# Messages of a group, each with the number of the part that it is for.
Split = Callable[[G], list[tuple[int, bytes]]]

LOCAL = "local"
SPARK = "spark"


class EngineError(StirredError):
    """An engine that is not there, is not safe, or failed."""


def bad_engine(what: str, *, remedy: str, where: str = "[engine]") -> EngineError:
    """Return (not raise) the error for one problem with an engine."""
    return EngineError([Problem(what=what, where=where, remedy=remedy)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files of a plan as an engine may read them for itself: Parquet files or folders, each table by its role.

    ``unlike`` says why the records that are released are not those in the files; an engine then cannot read them.

    >>> Sources(files={"households": (Path("a.parquet"),)})["households"]
    (PosixPath('a.parquet'),)
    >>> Sources(unlike="homes.csv is not Parquet")["households"]
    Traceback (most recent call last):
    stirred.engines.protocol.EngineError: [engine]: the cluster cannot read the records: homes.csv is not Parquet. ...
    """

    files: Mapping[str, Sequence[Path]] | None = None
    unlike: str = ""

    def __getitem__(self, role: str) -> tuple[Path, ...]:
        if self.unlike or self.files is None:
            raise bad_engine(
                f"the cluster cannot read the records: {self.unlike or 'no file is named'}",
                remedy="write the records as the mechanism should see them to Parquet first, and plan with that file; "
                "or run it here: --engine local",
            )
        return tuple(self.files[role])


class Engine(Protocol):
    """Where bulk work runs. It is made from settings alone; ``start`` comes before anything is reserved."""

    @property
    def name(self) -> str:
        """Return what a plan calls it."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return what a manifest says about where a release was made."""
        ...

    @property
    def sources(self) -> Sources:
        """Return the files of the plan, for an engine that reads them itself."""
        ...

    def check(self) -> None:
        """Raise what is wrong, as far as it can be known without starting anything."""
        ...

    def start(self, scratch: Path) -> None:
        """Get ready for work. ``scratch`` is an empty folder of this run, which its caller removes."""
        ...

    def map_groups(self, groups: Iterable[G], kernel: Callable[[G], R]) -> Iterator[R]:
        """Yield ``kernel(group)`` for every group, in their order; groups are asked for as there is room for them.

        A kernel may run twice for one group: it does the same again, or under names of its own, and only what it
        returned counts. Kernel, groups and what comes back are small, or lie in files.
        """
        ...

    def close(self) -> None:
        """Stop what was started; an engine that never started has nothing to stop."""
        ...


class ClusterEngine(Engine, Protocol):
    """An engine with machines of its own, which read files for themselves and send each other records."""

    @property
    def scratch(self) -> Path:
        """Return the folder of this run, which all machines see."""
        ...

    @property
    def slots(self) -> int:
        """Return how many kernels run at the same time."""
        ...

    @property
    def memory(self) -> int:
        """Return how many bytes one of them may take."""
        ...

    def share(self, value: G) -> Callable[[], G]:
        """Return a call by which kernels get a large value, which is sent once; never the key of a draw."""
        ...

    def exchange(
        self, groups: Sequence[G], split: Split[G], kernel: Callable[[int, list[bytes]], R], *, parts: int
    ) -> list[R]:
        """Split every group into messages for parts, in any order; return ``kernel(part, messages)`` of every part."""
        ...
