"""Swapping on a real cluster: the file that this machine releases, whatever happens to executors."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.engines.protocol import EngineError
from stirred.engines.spark.engine import SparkEngine
from stirred.mechanisms.swapping.core import bulk
from stirred.mechanisms.swapping.permutation.mechanism import PermutationSwap
from stirred.randomness.entropy import Entropy
from tests.engines.conftest import Shared
from tests.mechanisms.swapping.bulk_files import MEMBERS, given, released

MARK = "a text that is too long to be kept in place"  # of a confidential record


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PIECE_ROWS", 900)
    monkeypatch.setattr(bulk, "PART_ROWS", 800)


def equal(here: dict[str, pl.DataFrame], there: dict[str, pl.DataFrame]) -> bool:
    """Say whether the tables are the same, row by row and with the same types."""
    return [*here] == [*there] and all(
        frame.schema == there[name].schema and frame.equals(there[name], null_equal=True)
        for name, frame in here.items()
    )


@pytest.mark.parametrize("name", [*MEMBERS])
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
    plan = member.for_sampling(member.plan(data, doubts=False))
    frame = pl.read_parquet(spark_engine.sources["households"][1])
    # A text where a number was: what polars says about it quotes the text.
    frame.with_columns(pl.col("note").alias("size")).write_parquet(spark_engine.sources["households"][1])
    with pytest.raises(EngineError, match="failed on the cluster|other records"):
        member.release(data, Entropy.from_seed("logged"), plan=plan)
    frame.drop("note").write_parquet(spark_engine.sources["households"][1])
    with pytest.raises(EngineError, match="ColumnNotFoundError in"):
        member.release(data, Entropy.from_seed("logged once more"), plan=plan)
    key = Entropy.from_seed("logged").child("permutation swap").kept
    logs = [path.read_bytes() for path in _logs(shared_cluster.cluster.folder)]
    assert any(b"TaskFailedError" in text for text in logs)
    for secret in (MARK.encode(), key, key.hex().encode(), repr(key).encode()):
        assert not any(secret in text for text in logs)


def _logs(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and (path.name in ("stdout", "stderr") or path.suffix in (".log", ".out", ".conf", ".json")):
            yield path
