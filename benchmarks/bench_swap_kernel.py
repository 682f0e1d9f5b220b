"""How long the swapping kernel takes, as a multiple of reading columns with polars.

Two yardsticks: reading the two code columns the kernel works on, and reading the four columns of a
household file they are made of (geography, size, county, block). Ratios within one run travel
between machines; seconds do not. Records are in random order, the worst case for the cache. All
tasks take turns for some rounds, so that company on the machine disturbs them alike; each figure is
the best of three rounds, after one that is not counted.

    python benchmarks/swap_kernel.py [--rows 10_000_000 50_000_000] [--strata 357 1_400_000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from stirred.mechanisms.swapping import StratumRates
from stirred.mechanisms.swapping.kernel import swap_in_place
from stirred.mechanisms.swapping.order import release_order
from stirred.randomness import Entropy

RATES = [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2), Fraction(1)]
BLOCKS, COUNTIES, SIZES = 3_000_000, 3_000, 7
ROUNDS = 3


def best_seconds(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(tasks, float("inf"))
    for turn in range(1 + ROUNDS):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def write_file(path: Path, *, rows: int, strata: int) -> None:
    rng = np.random.default_rng(1940)
    kind = np.uint16 if strata <= 1 << 16 else np.uint32
    stratum = rng.integers(0, strata, rows, dtype=kind)
    block = rng.integers(0, BLOCKS, rows, dtype=np.uint32)
    pl.DataFrame(
        {
            "stratum": stratum,
            "swap": block,
            "geography": stratum // kind(SIZES),
            "size": (stratum % kind(SIZES)).astype(np.uint8),
            "county": (block // np.uint32(BLOCKS // COUNTIES)).astype(np.uint16),
            "block": block,
        }
    ).write_parquet(path)


def run(rows: int, strata: int, *, folder: Path) -> None:
    path = folder / "records.parquet"
    write_file(path, rows=rows, strata=strata)
    frame = pl.read_parquet(path, columns=["stratum", "swap"])
    stratum, swap = frame["stratum"].to_numpy(), frame["swap"].to_numpy().copy()
    tasks: dict[str, Callable[[], object]] = {
        "read 2 columns": partial(pl.read_parquet, path, columns=["stratum", "swap"]),
        "read 4 columns": partial(pl.read_parquet, path, columns=["geography", "size", "county", "block"]),
        "release order": partial(release_order, swap, entropy=Entropy.from_os()),
    }
    for rate in RATES:
        rates = StratumRates.constant(rate, strata=strata)
        tasks[f"swap, rate {rate}"] = partial(swap_in_place, stratum, swap, rates=rates, entropy=Entropy.from_os())
    best = best_seconds(tasks)
    print(f"\n{rows:,} rows, {strata:,} strata      seconds   x 2 columns   x 4 columns")
    for name, seconds in best.items():
        two, four = (seconds / best[f"read {columns} columns"] for columns in (2, 4))
        print(f"  {name:<32}{seconds:8.3f}{two:12.2f}{four:14.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the swapping kernel against a polars read.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 50_000_000])
    parser.add_argument("--strata", type=int, nargs="+", default=[357, 1_400_000])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for rows in arguments.rows:
            for strata in arguments.strata:
                run(rows, strata, folder=Path(folder))


if __name__ == "__main__":
    main()
