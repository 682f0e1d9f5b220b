"""The members of the swapping family beside permutation swapping, in one run on one machine, as ratios.

The exchange alone, planning alone, and whole releases (frame to frame, strata and order included), tasks taking
turns; the best of three rounds after one that is not counted. Records are in random order. All members move about
a tenth of the records: the Mallows swap gets the epsilon that does.

    python benchmarks/bench_family.py [--rows 10_000_000 50_000_000] [--write]
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from sections import machine, write_section

from stirred import Entropy, PermutationSwap
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.kernels.redrawn import ConditionedCounting
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap

ROUNDS: Final = 3
ROLES = {"match": ["state", "size"], "swap": ["county"]}
RATE = Fraction(1, 10)


class Times(NamedTuple):
    """The best times of a task: on the clock, and of the processors."""

    clock: float
    processor: float

    def over(self, base: Times) -> str:
        """Return both as ratios to those of another task."""
        return f"{self.clock / base.clock:.2f} ({self.processor / base.processor:.2f})"


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [10_000_000, 50_000_000]
    parser.add_argument("--rows", type=lambda text: int(float(text.replace("_", ""))), nargs="*", default=sizes)
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    options = parser.parse_args()
    lines = [
        "Reproduce with `make bench-family`. 357 strata, 3,100 counties, records in random order; best of "
        f"{ROUNDS} rounds, taking turns.",
        f"{machine()}, numpy {np.__version__}. Times over those of permutation swapping in the same run: on the clock, "
        "and in brackets of the processors. With more load than cores the latter tell more.",
        "",
        "| households | member | share moved | exchange | plan | whole release |",
        "|---|---|---|---|---|---|",
    ]
    for rows in options.rows:
        lines += family(rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    lines += ["", f"Peak memory {peak / 1e9:.1f} GB, with the file in it.", "", *one_stratum(), ""]
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section("The swapping family", text)


def best_times(tasks: dict[str, Callable[[], object]]) -> dict[str, Times]:
    """Return the best times of each task; they take turns, and the first turn does not count."""
    best = dict.fromkeys(tasks, Times(math.inf, math.inf))
    for turn in range(1 + ROUNDS):
        for name, task in tasks.items():
            clock, processor = time.perf_counter(), time.process_time()
            task()
            taken = Times(time.perf_counter() - clock, time.process_time() - processor)
            if turn:
                best[name] = Times(*map(min, best[name], taken))
    return best


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
    """Return rows of ratios: the exchange alone, planning alone, and the whole release."""
    data, entropy = homes(rows), Entropy.from_os()
    swaps = members(data)
    plans = {name: swap.plan(data) for name, swap in swaps.items()}
    moved = {name: plan.strata.moved for name, plan in plans.items()}
    columns = [
        {
            name: lambda s=swap, p=plans[name]: s._exchange(p, p.swap.codes.copy(), entropy, None)
            for name, swap in swaps.items()
        },
        {name: lambda s=swap: s.plan(data) for name, swap in swaps.items()},
        {
            name: lambda s=swap: [part.height for part in s.release(data, Entropy.from_os()).public.parts("data")]
            for name, swap in swaps.items()
        },
    ]
    exchange = best_times(columns[0])
    del plans, columns[0]
    measured = [exchange, *map(best_times, columns)]
    return [
        f"| {rows:,} | {name} | {moved[name]:.1%} | "
        + " | ".join(times[name].over(times["permutation"]) for times in measured)
        + " |"
        for name in swaps
    ]


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
