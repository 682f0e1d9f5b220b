"""Targeted record swapping in sorts of the file: `python benchmarks/bench_record_swapping.py [households]`.

The unit is one stable sort and gather of the persons of the same file, measured in the same run.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import polars as pl

from stirred import Entropy
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.pairs.choices import RandomChoices
from stirred.mechanisms.records.pairs.targeted import TargetedSwap

SETTINGS = {
    "3 levels, similar size": {"similar": ["size"], "k_anonymity": 0},
    "3 levels, similar size x tenure x rooms": {"similar": ["size", "tenure", "rooms"], "k_anonymity": 0},
    "3 levels, similar size, risk by race x sex": {"similar": ["size"], "risk_variables": ["race", "sex"]},
    "the same, a fifth at risk": {"similar": ["size"], "risk_variables": ["race", "sex"], "k_anonymity": 200},
}


def census(households: int) -> Microdata:
    """Return households of 2.4 persons in blocks of about 2,700, districts of 5 and counties of 25 blocks."""
    draw = np.random.default_rng(1)
    block = draw.integers(0, max(25, households * 375 // 1_000_000), households)
    size = draw.choice(6, households, p=[0.35, 0.32, 0.13, 0.12, 0.05, 0.03]) + 1
    homes = pl.DataFrame(
        {"hid": np.arange(households), "county": block // 25, "district": block // 5, "block": block, "size": size}
    ).with_columns(tenure=draw.integers(0, 3, households), rooms=draw.integers(1, 9, households))
    house = np.repeat(np.arange(households), size)
    race = draw.choice(7, house.size, p=[0.6, 0.2, 0.1, 0.05, 0.03, 0.015, 0.005])
    people = pl.DataFrame({"hid": house, "sex": draw.integers(0, 2, house.size), "race": race})
    return Microdata(households=homes, persons=people, hid="hid")


def main() -> None:
    """Print seconds and sorts for a tenth of the households and for all."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for households in (most // 10, most):
        data = census(households)
        wide = data.lazy_persons.join(data.households.lazy(), on="hid").collect()  # type: ignore[union-attr]
        key, unit = np.random.default_rng(2).permutation(wide.height), float("inf")
        for _ in range(3):  # the first touches the columns for the first time
            begin = time.process_time()
            order = np.argsort(key, kind="stable")
            for column in wide.get_columns():
                column.to_numpy()[order]
            unit = min(unit, time.process_time() - begin)
        for name, own in SETTINGS.items():
            swap = TargetedSwap(hierarchy=["county", "district", "block"], swaprate="5%", **own)  # type: ignore[arg-type]
            spent = float("inf")
            for _ in range(3):
                begin = time.process_time()
                partner, _ = swap.pairs(data, RandomChoices(Entropy.from_os()))
                spent = min(spent, time.process_time() - begin)
            moved = int((partner != np.arange(households)).sum())
            print(f"{households:>10,}  {name:<42} {spent:6.2f} s  {spent / unit:5.2f} sorts  {moved:,} moved")


if __name__ == "__main__":
    main()
