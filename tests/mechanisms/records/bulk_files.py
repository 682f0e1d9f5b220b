"""Files with columns of every kind, and the members of the family that a cluster runs, for tests of engines."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.engines.protocol import Sources
from stirred.mechanisms.protocol import for_sampling
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.randomness.entropy import Entropy

HOMES = 3_000
ROLES: dict[str, Any] = {"match": ["size", "region"], "swap": ["county", "tract"]}
ONE: dict[str, Any] = {"match": ["size", "region", "built", "flag"], "swap": ["county"]}
MEMBERS: dict[str, Swap] = {
    "permutation": PermutationSwap(**ROLES, rate="1/3"),
    "permutation, low rate": PermutationSwap(**ROLES, rate="1/40"),
    "permutation by stratum": PermutationSwap(**ROLES, rate="1/3", rates=[{"size": 2, "rate": "1/2"}]),
    "permutation by record": PermutationSwap(**ROLES, rate="1/3", rates=[{"tenure": "own", "rate": "1/2"}]),
    "nothing matched": PermutationSwap(match=[], swap=["county"], rate="1/5"),
    "shuffle": ShuffleSwap(**ROLES, rate="1/2"),
    "mallows": MallowsSwap(**ROLES, epsilon="3"),
    "conditioned": ConditionedSwap(**ROLES, rate="1/2"),
    "conditioned, declared": ConditionedSwap(**ONE, rate="1/2", redraw_law={"A": "1/2", "B": "1/4", "C": "1/4"}),
}


def households() -> pl.DataFrame:
    """Return households with columns of every type that can be released, in no order."""
    rng = np.random.default_rng(3)
    county = rng.integers(0, 3, HOMES)
    return pl.DataFrame(
        {
            "hid": rng.permutation(HOMES).astype(np.int64) + 10_000,
            "region": pl.Series(
                [["north", "south", "west"][n] for n in rng.integers(0, 3, HOMES)], dtype=pl.Categorical
            ),
            "size": rng.integers(1, 6, HOMES).astype(np.uint8),
            "county": ["ABC"[n] for n in county],
            "tract": [f"tract {n}{m}" for n, m in zip(county, rng.integers(0, 4, HOMES), strict=True)],
            "tenure": pl.Series(
                [["own", "rent"][n] for n in rng.integers(0, 2, HOMES)], dtype=pl.Enum(["own", "rent"])
            ),
            "rent": rng.choice([0.5, -0.0, float("nan"), 2.0], HOMES),
            "rooms": pl.Series(rng.integers(1, 4, HOMES)).cast(pl.Float64),
            "built": [date(1900 + int(n), 2, 1) for n in rng.integers(0, 9, HOMES)],
            "value": pl.Series([Decimal(int(n)) / 4 for n in rng.integers(0, 9, HOMES)], dtype=pl.Decimal(12, 2)),
            "empty": pl.Series([None] * HOMES, dtype=pl.Int16),
            "flag": rng.integers(0, 2, HOMES) == 1,
            "note": [f"a text that is too long to be kept in place {n}" for n in rng.integers(0, 50, HOMES)],
        }
    )


def persons(homes: pl.DataFrame) -> pl.DataFrame:
    rng = np.random.default_rng(9)
    hid = rng.choice(homes["hid"].to_numpy(), 2 * HOMES)
    return pl.DataFrame({"hid": hid, "age": rng.integers(0, 9, hid.size), "sex": rng.choice(["f", "m"], hid.size)})


def written(folder: Path, frame: pl.DataFrame, files: int) -> tuple[Path, tuple[Path, ...]]:
    """Write a table in so many files of different lengths, in order."""
    folder.mkdir()
    cuts = [0, *sorted(random.Random(files).sample(range(1, frame.height), files - 1)), frame.height]
    paths = [folder / f"part-{number}.parquet" for number in range(files)]
    for path, begin, end in zip(paths, cuts, cuts[1:], strict=False):
        frame[begin:end].write_parquet(path, row_group_size=500)
    return folder, tuple(paths)


def given(folder: Path, *, files: int = 3, people: bool = True) -> tuple[Microdata, Sources]:
    homes = households()
    place, paths = written(folder / f"homes-{files}", homes, files)
    if not people:
        return Microdata.read(place, id=["hid"]), Sources(files={"households": paths})
    others, more = written(folder / f"people-{files}", persons(homes), files)
    return Microdata.read(place, others, hid="hid"), Sources(files={"households": paths, "persons": more})


def released(mechanism: Swap, data: Microdata, seed: str) -> dict[str, pl.DataFrame]:
    plan = mechanism.plan(data, doubts=False)
    mechanism.ready(data, plan)
    release = mechanism.release(data, Entropy.from_seed(seed), plan=for_sampling(plan))
    return {name: release.public.frame(name) for name in release.public}
