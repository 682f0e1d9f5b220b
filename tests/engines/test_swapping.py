"""Swap on a real cluster: the file that this machine releases, whatever happens to executors."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from examples.loopback_cluster import LoopbackCluster

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.engines.protocol import EngineError, Sources
from stirred.engines.spark.engine import SparkEngine
from stirred.mechanisms.protocol import for_sampling
from stirred.mechanisms.records import bulk
from stirred.mechanisms.records import files as files_of_swap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.randomness.entropy import Entropy
from stirred.release.ledger import Ledger
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run as release
from tests.engines.conftest import CONF, Shared
from tests.mechanisms.records.bulk_files import MEMBERS, given, released

MARK = "a text that is too long to be kept in place"  # of a confidential record


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PIECE_ROWS", 1_300)
    monkeypatch.setattr(bulk, "PART_ROWS", 1_600)


def equal(here: dict[str, pl.DataFrame], there: dict[str, pl.DataFrame]) -> bool:
    """Say whether the tables are the same, row by row and with the same types."""
    return [*here] == [*there] and all(
        frame.schema == there[name].schema and frame.equals(there[name], null_equal=True)
        for name, frame in here.items()
    )


QUICK = ("permutation by record", "mallows", "conditioned", "metric")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in MEMBERS])
def test_a_cluster_releases_what_this_machine_releases(name: str, spark_engine: SparkEngine, tmp_path: Path) -> None:
    data, spark_engine.sources = given(tmp_path, people=name != "shuffle")
    here = released(MEMBERS[name], data, name)
    assert equal(here, released(MEMBERS[name].on(spark_engine), data, name))


@dataclass(slots=True, kw_only=True, eq=False)
class Killing(SparkEngine):
    """An engine whose executors die, each time once the first part of an exchange is computed."""

    def exchange(self, groups: Any, split: Any, kernel: Callable[..., Any], *, parts: int) -> list[Any]:
        assert self.scratch is not None
        mark = str(self.scratch / f"killed-{time.monotonic_ns()}")

        def killing(part: int, messages: list[bytes]) -> Any:
            found = kernel(part, messages)
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return found
            # This process was forked by one that the executor's Java process started.
            with open(f"/proc/{os.getppid()}/stat") as stat:
                executor = int(stat.read().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
            return found

        found = SparkEngine.exchange(self, groups, split, killing, parts=parts)
        assert os.path.exists(mark)
        return found


def killing(engine: SparkEngine) -> Killing:
    return Killing(**{name: getattr(engine, name) for name in ("master", "conf", "sources", "scratch", "running")})


def test_executors_that_are_killed_change_nothing(spark_engine: SparkEngine, tmp_path: Path) -> None:
    """One dies in the exchange, one while households are written, and one while persons are."""
    data, spark_engine.sources = given(tmp_path)
    member, engine = MEMBERS["permutation"], killing(spark_engine)
    here = released(member, data, "killed")
    assert equal(here, released(member.on(engine), data, "killed"))
    assert len([*Path(engine.scratch or "").glob("killed-*")]) >= 3


def test_neither_records_nor_keys_are_in_any_log(
    spark_engine: SparkEngine, shared_cluster: Shared, tmp_path: Path
) -> None:
    data, spark_engine.sources = given(tmp_path)
    member = PermutationSwap(match=["size"], swap=["county"], rate="1/2").on(spark_engine)
    released(member, data, "logged")
    plan = for_sampling(member.plan(data, doubts=False))
    frame = pl.read_parquet(spark_engine.sources["households"][1])
    frame.drop("size").write_parquet(spark_engine.sources["households"][1])
    with pytest.raises(EngineError, match="failed on the cluster"):
        member.release(data, Entropy.from_seed("logged"), plan=plan)
    with pytest.raises(EngineError, match="failed on the cluster"):
        [*spark_engine.map_groups([MARK], lambda text: int(text) + 1)]  # what Python says about it quotes it
    key = Entropy.from_seed("logged").child("permutation swap").kept
    logs = [path.read_bytes() for path in _logs(shared_cluster.cluster.folder)]
    assert any(b"TaskFailedError" in text for text in logs)
    for secret in (MARK.encode(), key, key.hex().encode(), repr(key).encode()):
        assert not any(secret in text for text in logs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "files", "piece", "part"),
    [
        ({"spark.cores.max": "1"}, 1, 10_000, 10_000),
        ({"spark.cores.max": "1"}, 5, 400, 47),
        ({"spark.speculation": "true", "spark.speculation.multiplier": "1.01"}, 2, 400, 47),
    ],
    ids=["one worker, one part", "one worker, 64 parts", "speculation"],
)
def test_workers_files_and_parts_do_not_matter(
    conf: dict[str, str],
    files: int,
    piece: int,
    part: int,
    free_cluster: LoopbackCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = released(MEMBERS["permutation"], given(tmp_path)[0], "workers")
    monkeypatch.setattr(bulk, "PIECE_ROWS", piece)
    monkeypatch.setattr(bulk, "PART_ROWS", part)
    data, sources = given(tmp_path, files=files)
    engine = SparkEngine(master=free_cluster.master, conf={**CONF, **conf}, sources=sources)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    engine.start(scratch)
    try:
        assert equal(here, released(MEMBERS["permutation"].on(engine), data, "workers"))
    finally:
        engine.close()


@pytest.mark.slow
def test_blocks_of_a_large_file_are_exchanged_in_several_parts(spark_engine: SparkEngine, tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(2), 1_100_000
    drawn = {name: rng.integers(0, n, rows).astype(np.uint16) for name, n in (("size", 300), ("area", 900), ("x", 50))}
    pl.DataFrame(drawn).write_parquet(tmp_path / "homes.parquet")
    data = Microdata.read(tmp_path / "homes.parquet")
    spark_engine.sources = Sources(files={"households": (tmp_path / "homes.parquet",)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "PIECE_ROWS", 1 << 18)
        patch.setattr(bulk, "PART_ROWS", 1 << 18)
        patch.setattr(bulk, "EXCHANGED_ROWS", 1 << 18)
        for member in (PermutationSwap(match=["size"], swap=["area"], rate="1/9"), MEMBERS["mallows"]):
            member = member.with_settings(match=("size",), swap=("area",))
            assert equal(released(member, data, "large"), released(member.on(spark_engine), data, "large"))
    assert len([*Path(spark_engine.scratch or "").glob("codes-*.npy")]) >= 6


PLAN = """
[data]
households = "homes-3"
persons = "people-3"
hid = "hid"

[mechanism]
name = "permutation-swap"
match = ["size", "region"]
swap = ["county"]
hold = ["size", "region", "tenure", "built", "flag", "age", "sex"]
rate = "1/3"

[[tables]]
name = "tenure"
variables = ["county", "tenure"]

[release]
purpose = "a test"
"""


def test_a_plan_is_released_on_a_cluster_as_on_this_machine(
    free_cluster: LoopbackCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Households are one file, as they are few; persons are the very files that the executors wrote."""
    monkeypatch.setattr(files_of_swap, "ROWS_IN_ONE_FILE", 4_000)
    given(tmp_path)
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    spark = ["--engine", "spark", "--master", free_cluster.master]
    for name, options in (("here", []), ("there", spark)):
        out = ["--out", str(tmp_path / name), "--seed", "the same", "--quiet"]
        assert run(["release", str(plan), *out, *options]) == 0, capsys.readouterr().err
    files = [path.relative_to(tmp_path / "here") for path in (tmp_path / "here" / "public").rglob("*.parquet")]
    assert {path.name for path in files} >= {"data.parquet", "persons.parquet", "invariants.parquet"}
    for path in files:
        own, other = (pl.read_parquet(tmp_path / name / path) for name in ("here", "there"))
        assert own.schema == other.schema
        assert own.equals(other, null_equal=True)
    parts = sorted((tmp_path / "there" / "public" / "persons.parquet").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    notes = [pl.read_parquet_metadata(path) for path in (tmp_path / "here" / "public" / "persons.parquet", *parts)]
    for name in ("stirred.specification", "stirred.seeded"):
        assert len({note[name] for note in notes}) == 1
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("here", "there")]
    assert [manifest["engine"]["name"] for manifest in manifests] == ["local", "spark"]
    here, there = ([check["what"] for check in manifest["checks"]] for manifest in manifests)
    assert there == [what for what in here if what != "persons of every household, record by record"]
    assert manifests[1]["engine"]["seconds"]["tasks"] > 0
    assert not [*tmp_path.rglob("*scratch*")]
    assert run(["check", str(tmp_path / "there")]) == 0


@pytest.mark.slow
def test_a_file_that_changes_after_the_plan_costs_nothing(free_cluster: LoopbackCluster, tmp_path: Path) -> None:
    given(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN + 'ledger = "homes.ledger"\n')
    ledger = Ledger.create(tmp_path / "homes.ledger", dataset="homes-3")
    planned = read_plan(tmp_path / "plan.toml", out=tmp_path / "bundle").on("spark", free_cluster.master)
    prepared = prepare(planned)
    path = tmp_path / "people-3" / "part-1.parquet"
    pl.read_parquet(path).with_columns(pl.col("age").reverse()).write_parquet(path)
    with pytest.raises(PlanError, match="the file of persons was changed since it was planned"):
        release(prepared)
    assert not [*ledger.entries()]
    assert not (tmp_path / "bundle").exists()


def _logs(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and (path.name in ("stdout", "stderr") or path.suffix in (".log", ".out", ".conf", ".json")):
            yield path
