"""TopDown on a cluster: the measurements, estimates and records of the local run, whatever happens to executors."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from examples.loopback_cluster import LoopbackCluster
from pyspark import cloudpickle

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.engines.protocol import Engine, EngineError
from stirred.engines.spark import engine as spark_engine_module
from stirred.engines.spark.engine import SparkEngine
from stirred.mechanisms.protocol import Workplace
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.randomness.entropy import Entropy
from stirred.release.ledger import Ledger
from tests.engines.conftest import CONF
from tests.mechanisms.topdown.people import people, topdown
from tests.mechanisms.topdown.test_topdown_records import laid_out


def mechanism() -> TopDown:
    return topdown(
        totals=["region"],
        zeros=[{"age": ["0-17"], "work": ["yes"]}],
        publish=["measurements", "estimates", "records"],
    )


def persons() -> pl.DataFrame:
    return people(3_000).filter((pl.col("age") != "0-17") | (pl.col("work") != "yes"))


def released(folder: Path, engine: Engine | None = None) -> dict[str, pl.DataFrame]:
    """All public files of a release with one seed, and the bytes of its store."""
    own = mechanism() if engine is None else mechanism().on(engine)
    place = Workplace(folder, folder / "progress")
    made = own.release(persons(), Entropy.from_seed("cluster"), workplace=place)
    found = {name: made.public[name] for name in made.public}
    store = folder / "store" / "persons"
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(store.iterdir())}
    return {**found, "store": pl.DataFrame({"file": [*sums], "sha256": [*sums.values()]})}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    return released(tmp_path_factory.mktemp("here"))


def assert_same(there: dict[str, pl.DataFrame], here: dict[str, pl.DataFrame]) -> None:
    assert {"measurements", "estimates", "counts", "persons", "store"} <= {*here} == {*there}
    for name, frame in here.items():
        assert there[name].equals(frame), name


def test_a_cluster_releases_what_this_machine_releases(
    spark_engine: SparkEngine, here: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    assert_same(released(tmp_path, spark_engine), here)


class Deadly:
    """An engine on which an executor dies in measuring and another in the last pass over areas.

    It dies when its task is done and has written its files, so that all of it is made a second time.
    """

    name = "spark"

    def __init__(self, engine: SparkEngine, notes: Path) -> None:
        self.engine, self.notes = engine, notes
        self.notes.mkdir()

    def map_groups(self, groups: Iterable[Any], kernel: Callable[[Any], Any]) -> Iterator[Any]:
        stage = getattr(kernel, "__name__", type(kernel).__name__)
        notes, deadly = str(self.notes / stage), stage in ("_Draw", "down")

        # Nested: it travels whole, since workers do not have the tests.
        def dying(group: Any) -> Any:
            import os
            import signal
            import time
            from pathlib import Path
            from uuid import uuid4

            Path(f"{notes}-attempt-{uuid4()}").touch()
            found = kernel(group)
            if deadly:
                try:
                    os.close(os.open(f"{notes}-died", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return found
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(5)  # nothing that it says would be heard
            return found

        return self.engine.map_groups(groups, dying)


def test_a_lost_executor_changes_nothing(
    spark_engine: SparkEngine, here: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    cluster = Deadly(spark_engine, tmp_path / "notes")
    assert_same(released(tmp_path / "there", cluster), here)  # type: ignore[arg-type]
    for stage in ("_Draw", "down"):
        assert (cluster.notes / f"{stage}-died").exists()
        assert len([*cluster.notes.glob(f"{stage}-attempt-*")]) > 4, "what died was done again"
    assert not [*(tmp_path / "there" / "store").rglob("*.writing")], "what a lost task wrote is not in the store"


class Twice:
    """An engine that does everything twice at the same time, and takes what the first or the second attempt says.

    Spark starts second attempts on other hosts alone, which a cluster on loopback does not have.
    """

    name = "spark"

    def __init__(self, taken: int) -> None:
        self.taken = taken

    def map_groups(self, groups: Iterable[Any], kernel: Callable[[Any], Any]) -> Iterator[Any]:
        for group in groups:
            # As a task gets them: of its own.
            attempts = [cloudpickle.loads(cloudpickle.dumps((kernel, group))) for _ in range(2)]
            with ThreadPoolExecutor(2) as pool:
                yield [*pool.map(lambda attempt: attempt[0](attempt[1]), attempts)][self.taken]


@pytest.mark.parametrize("taken", [0, 1])
def test_a_second_attempt_changes_nothing(taken: int, here: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    assert_same(released(tmp_path, Twice(taken)), here)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "per_slot"), [("1", 1), ("2", 1), ("2", 64)])
def test_neither_workers_nor_jobs_change_a_release(
    cores: str,
    per_slot: int,
    free_cluster: LoopbackCluster,
    here: dict[str, pl.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_engine_module, "_PER_SLOT", per_slot)
    engine = SparkEngine(
        master=free_cluster.master, conf={**CONF, "spark.cores.max": cores, "spark.speculation": "true"}
    )
    engine.start(Path(tempfile.mkdtemp(dir=free_cluster.folder)))
    try:
        assert len({*engine.map_groups(range(32), lambda _: (time.sleep(0.02), os.getpid())[1])}) == int(cores)  # type: ignore[func-returns-value]
        assert_same(released(tmp_path, engine), here)
    finally:
        engine.close()


class Blind:
    """An engine whose workers do not see a folder."""

    name = "spark"

    def map_groups(self, groups: Iterable[Any], kernel: Callable[[Any], Any]) -> Iterator[bool]:
        return (False for _ in groups)


def test_workers_that_do_not_see_the_bundle_are_told_before_anything_is_spent(tmp_path: Path) -> None:
    own = mechanism().on(Blind())  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"\[release\] out: workers do not see the folder .*, in which areas"):
        own.ready(None, None, Workplace(tmp_path / "internal", tmp_path))


def test_noisy_tables_are_refused_on_a_cluster_by_name() -> None:
    with pytest.raises(EngineError, match="noisy-tables does not run on spark"):
        NoisyTables.on(NoisyTables.__new__(NoisyTables), Blind())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_plan_on_a_cluster_reaches_its_ledger_and_the_website(
    free_cluster: LoopbackCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(laid_out(tmp_path))
    conf = "".join(f'"{name}" = "{value}"\n' for name, value in CONF.items())
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f'{plan.read_text()}[engine]\nname = "spark"\nmaster = "{free_cluster.master}"\n[engine.conf]\n{conf}'
    )
    assert command(["release", "plan.toml", "--quiet"]) == 0
    assert not audit_bundle(tmp_path / "out").problems
    assert command(["publish", "out", "website"]) == 0
    (entry,) = Ledger.open("a.ledger").entries()
    assert entry.state == "committed"
    assert not [*tmp_path.glob(".out.partial")]
