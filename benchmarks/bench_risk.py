"""Uniqueness and minimal unique combinations of a million records with ten keys, beside counting their classes.

    python benchmarks/bench_risk.py [--records 1_000_000] [--write]

The floor is one polars ``group_by`` of all keys, measured in the same process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import polars as pl
from sections import machine, write_section

from stirred.risk.combinations import minimal_uniques, number_of_sets
from stirred.risk.uniqueness import uniqueness

VALUES = (2, 5, 100, 63, 2, 12, 8, 20, 6, 3)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=lambda text: int(text.replace("_", "")), default=1_000_000)
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    options = parser.parse_args()
    draw = np.random.default_rng(1)
    frame = pl.DataFrame({f"k{n}": draw.integers(0, m, options.records) for n, m in enumerate(VALUES)})
    floor = best(lambda: frame.group_by(frame.columns).len())
    rows = [
        ("one group_by of all keys, the floor", floor),
        ("uniqueness", best(lambda: uniqueness(frame, frame.columns))),
        (
            f"minimal unique combinations, {number_of_sets(len(VALUES), 3)} sets of up to 3 keys",
            best(lambda: minimal_uniques(frame, frame.columns)),
        ),
    ]
    lines = [f"{options.records:,} records, {len(VALUES)} keys. {machine()}, polars {pl.__version__}.", ""]
    table = [f"| {name} | {seconds:.2f} | {seconds / floor:.1f} |" for name, seconds in rows]
    text = "\n".join([*lines, "| | seconds | ratio |", "|---|---|---|", *table])
    print(text)
    if options.write:
        write_section("Risk", text)


def best(work: Callable[[], object], *, times: int = 3) -> float:
    """Return the shortest of some runs."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    main()
