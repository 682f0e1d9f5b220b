"""The members of the swapping family beside permutation swapping, in one run on one machine, as ratios.

Kernels and whole releases (frame to frame, strata and order included) take turns; the best of three rounds after
one that is not counted. Records are in random order. The share of moved records is the same for all: the Mallows
swap gets the epsilon that moves about as many.

    python benchmarks/bench_family.py [--rows 50_000_000] [--results benchmarks/FAMILY.md]
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl

from stirred import Entropy, PermutationSwap
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.redraw_law import ConditionedCounting
from stirred.mechanisms.swapping.shuffle import ShuffleSwap
from stirred.mechanisms.swapping.swap import Swap

sys.path.insert(0, str(Path(__file__).parent))
from bench_swap import ROUNDS, best_seconds

ROLES = {"match": ["state", "size"], "swap": ["county"]}
RATE = Fraction(1, 10)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text.replace("_", ""))), default=50_000_000)
    parser.add_argument("--results", type=Path, default=None)
    options = parser.parse_args()
    text = "\n".join([*family(options.rows), "", *one_stratum(), ""])
    print(text)
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


def homes(rows: int) -> pl.DataFrame:
    """Households in random order: 51 states x 7 sizes = 357 strata, 3,100 counties."""
    rng = np.random.default_rng(1940)
    county = rng.integers(0, 3_100, rows, dtype=np.uint16)
    size = rng.choice(7, rows, p=[0.28, 0.34, 0.15, 0.13, 0.06, 0.025, 0.015]).astype(np.uint8)
    tenure = rng.integers(1, 5, rows, dtype=np.uint8)
    return pl.DataFrame({"state": (county % 51).astype(np.uint8), "county": county, "size": size, "tenure": tenure})


def members(data: pl.DataFrame) -> dict[str, Swap]:
    """The mechanisms at about the same share of moved records."""
    return {
        "permutation": PermutationSwap(**ROLES, rate=RATE),
        "conditioned, uniform": ConditionedSwap(**ROLES, rate=RATE),
        "conditioned, proportional": ConditionedSwap(**ROLES, rate=RATE, redraw_law="proportional"),
        "mallows": MallowsSwap(**ROLES, epsilon=round(math.log(staying(data)), 4)),
        "shuffle": ShuffleSwap(**ROLES, rate=RATE),
    }


def staying(data: pl.DataFrame) -> float:
    """Return how many records of each stratum must stay, so that a tenth of all records move: exp(epsilon)."""
    sizes = data.group_by(ROLES["match"]).len()["len"].to_numpy().astype(float)
    low, high = 0.0, sizes.max()
    for _ in range(60):
        middle = (low + high) / 2
        moved = np.maximum(sizes - middle, 0).sum() / sizes.sum()
        low, high = (middle, high) if moved > RATE else (low, middle)
    return high


def family(rows: int) -> list[str]:
    """Return a table of ratios: the exchange alone, planning alone, and the whole release."""
    data, entropy = homes(rows), Entropy.from_os()
    swaps = members(data)
    plans = {name: swap.plan(data) for name, swap in swaps.items()}
    exchange = best_seconds(
        {
            name: lambda s=swap, p=plans[name]: s._exchange(p, p.swap.codes.copy(), entropy, None)
            for name, swap in swaps.items()
        }
    )
    plan = best_seconds({name: lambda s=swap: s.plan(data) for name, swap in swaps.items()})
    whole = best_seconds(
        {
            name: lambda s=swap: [part.height for part in s.release(data, entropy).public.parts("data")]
            for name, swap in swaps.items()
        }
    )
    lines = [
        "# The swapping family beside permutation swapping",
        "",
        f"{rows:,} households, 357 strata, 3,100 counties, about 10% moved; best of {ROUNDS} rounds, taking turns. "
        f"Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, numpy "
        f"{np.__version__}. Times over those of permutation swapping.",
        "",
        "| member | exchange | plan | whole release |",
        "|---|---|---|---|",
    ]
    for name in swaps:
        ratios = [times[name] / times["permutation"] for times in (exchange, plan, whole)]
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    return lines


def one_stratum() -> list[str]:
    """Return how long the numbers to select of one large stratum take."""
    lines = ["| stratum of 264,331 | law | seconds |", "|---|---|---|"]
    rng = np.random.default_rng(3)
    words = Entropy.from_os().keystream("bench").reader(0)
    for areas in (14, 3_000):
        counts = np.maximum(rng.multinomial(264_331 - areas, rng.dirichlet([2.0] * areas)), 0) + 1
        for law in ("uniform", "proportional"):
            counting = ConditionedCounting(rate=RATE, law=law)
            counting.draw(np.arange(areas, dtype=np.uint32), counts, words)
            start = time.perf_counter()
            counting.draw(np.arange(areas, dtype=np.uint32), counts, words)
            lines.append(f"| {areas:,} areas | {law} | {time.perf_counter() - start:.4f} |")
    return lines


if __name__ == "__main__":
    main()
