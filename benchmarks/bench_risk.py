"""Uniqueness and minimal unique combinations of a million records with ten keys, and a county reconstructed.

    python benchmarks/bench_risk.py [--records 1_000_000] [--households 41_000] [--write]

The floor of the first is one polars ``group_by`` of all keys, measured in the same process. Of the second, blocks by
size show how processor time grows: in one process, without reading or writing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl
from sections import machine, write_section

from stirred.data.synth.census import census
from stirred.data.uniqueness import uniqueness
from stirred.risk.combinations import minimal_uniques, number_of_sets
from stirred.risk.reconstruction import reconstruct
from stirred.risk.table_lists import cells_of, table_list

VALUES = (2, 5, 100, 63, 2, 12, 8, 20, 6, 3)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=lambda text: int(text.replace("_", "")), default=1_000_000)
    parser.add_argument("--households", type=lambda text: int(text.replace("_", "")), default=41_000)
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
    grown = by_size(options.households)
    lines = [f"{options.records:,} records, {len(VALUES)} keys. {machine()}, polars {pl.__version__}.", ""]
    table = [f"| {name} | {seconds:.2f} | {seconds / floor:.1f} |" for name, seconds in rows]
    text = "\n".join([*lines, "| | seconds | ratio |", "|---|---|---|", *table, "", *grown])
    print(text)
    if options.write:
        write_section("Risk", text)


def by_size(households: int) -> list[str]:
    """Return the time that blocks of a synthetic county take, by their number of persons."""
    homes, persons = census(households, seed=1)
    people = persons.join(homes.select("hid", "block"), on="hid")
    people = people.with_columns(cell=pl.Series(cells_of(people, where="persons")))
    tables, taken = table_list("sf"), []
    for part in people.partition_by("block"):
        began = time.process_time()
        found = reconstruct(tables.counts(part["cell"].to_numpy()), tables)
        taken.append((part.height, time.process_time() - began, found.outcome == "one"))
    seconds = sum(each[1] for each in taken)
    lines = [
        f"{people.height:,} persons in {len(taken):,} blocks, summary-file tables: {seconds:.0f} s of one core.",
        "",
        "| persons in block | blocks | ms, mean | ms, most | one solution |",
        "|---|---|---|---|---|",
    ]
    for low, high in pairwise((1, 5, 10, 25, 50, 100, 250, 1_000_000)):
        own = [each for each in taken if low <= each[0] < high]
        if own:
            times, ones = [1_000 * each[1] for each in own], sum(each[2] for each in own) / len(own)
            label = f"{low} to {high - 1}" if high < 1_000_000 else f"{low} and more"
            lines.append(f"| {label} | {len(own):,} | {sum(times) / len(own):.1f} | {max(times):.0f} | {ones:.0%} |")
    return lines


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
