"""TopDown on a cluster: the measurements, estimates and records of the local run, whatever happens to executors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl
import pytest

from stirred.engines.protocol import Engine
from stirred.engines.spark.engine import SparkEngine
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.randomness.entropy import Entropy
from tests.mechanisms.topdown.people import people, topdown


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
    own = own.working_in(folder, progress=folder / "progress")
    made = own.release(persons(), Entropy.from_seed("cluster"))
    found = {name: made.public[name] for name in made.public}
    store = folder / "store" / "persons"
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(store.iterdir())}
    return {**found, "store": pl.DataFrame({"file": [*sums], "sha256": [*sums.values()]})}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    return released(tmp_path_factory.mktemp("here"))


def test_a_cluster_releases_what_this_machine_releases(
    spark_engine: SparkEngine, here: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    there = released(tmp_path, spark_engine)
    assert {"measurements", "estimates", "counts", "persons", "store"} <= {*here} == {*there}
    for name, frame in here.items():
        assert there[name].equals(frame), name
