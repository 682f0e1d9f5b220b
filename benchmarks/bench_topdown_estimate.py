"""What estimating takes on a synthetic state, county by county, by the number of blocks.

The state has the PL 94-171 schema with all eleven queries at every level, noise of the 2020 production budget, and in
every block some kinds of group quarters that are known to be absent. Counties are made when they are needed and not
counted; both passes are, and the totals and the table of Hispanic origin by race of every area with standard errors.

    python benchmarks/bench_topdown_estimate.py [--blocks 5 50 300] [--write]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from sections import machine, write_section

from stirred.mechanisms.topdown.estimates import estimate_in_pieces
from stirred.mechanisms.topdown.hierarchy.least_squares import SubspaceModel
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema, shipped_schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Places, Tree

BLOCKS_IN_A_COUNTY: Final = 3_000
TRACTS, GROUPS = 30, 4  # in a county, in a tract
QUERIES: Final = (
    *("total", "cenrace", "hispanic", "votingage", "hhinstlevels", "hhgq", "votingage * hispanic"),
    *("hispanic * cenrace", "votingage * cenrace", "votingage * hispanic * cenrace", "detailed"),
)


def level_of(
    rng: np.random.Generator, schema: Schema, name: str, codes: list[str], parent: Places, *, total: int, zeros: bool
) -> Level:
    """Return a level of noisy answers around zero: what is estimated does not change how long it takes."""
    answers = []
    for number, query in enumerate(map(schema.query, QUERIES)):
        variance = np.full(len(codes), 2.0 + number if name != "Block" else 10.0 + 100 * (number < 10))
        noise = rng.normal(size=(len(codes), query.size)) * np.sqrt(variance[0])
        answers.append(Answers(query=query, values=np.rint(noise).astype(np.int16), variance=variance))
    known: list[Constraint] = []
    if zeros:
        query = schema.query("hhgq")
        absent = rng.random((len(codes), 8)) < 0.97
        absent[:, 0] = rng.random(len(codes)) < 0.2
        bound = np.where(absent, 0, 99_999)
        known.append(Constraint(query=query, sign="<=", values=bound, given=np.ones(len(codes), dtype=np.bool_)))
    if total:
        fixed = schema.query("total")
        values = np.full((len(codes), 1), total, dtype=np.int64)
        known.append(Constraint(query=fixed, sign="=", values=values, given=np.ones(len(codes), dtype=np.bool_)))
    return Level(name=name, geocodes=tuple(codes), parent=parent, answers=tuple(answers), known=tuple(known))


def county(schema: Schema, code: str, blocks: int) -> Tree:
    """Return a county of its own: tracts, block groups and blocks."""
    rng = np.random.default_rng(int(code))
    tracts = [f"{code}{n:04d}" for n in range(TRACTS)]
    groups = [f"{tract}{n:02d}" for tract in tracts for n in range(GROUPS)]
    inside = np.sort(rng.integers(len(groups), size=blocks))
    names = [f"{groups[group]}{n:05d}" for n, group in enumerate(inside)]
    none = np.zeros(1, dtype=np.int64)
    levels = (
        level_of(rng, schema, "County", [code], none, total=0, zeros=False),
        level_of(rng, schema, "Tract", tracts, np.zeros(TRACTS, dtype=np.int64), total=0, zeros=False),
        level_of(rng, schema, "Block_Group", groups, np.repeat(np.arange(TRACTS), GROUPS), total=0, zeros=False),
        level_of(rng, schema, "Block", names, inside, total=0, zeros=True),
    )
    return Tree(schema=schema, levels=levels)


def run(blocks: int) -> str:
    """Estimate a state, and return one row of the table."""
    schema = shipped_schema("pl94-persons")
    counties = [f"{n:03d}" for n in range(max(1, round(blocks / BLOCKS_IN_A_COUNTY)))]
    rng = np.random.default_rng(7)
    none = np.zeros(1, dtype=np.int64)
    state = level_of(rng, schema, "State", [""], none, total=12, zeros=False)
    below = Level(name="County", geocodes=tuple(counties), parent=np.zeros(len(counties), dtype=np.int64))
    making = 0.0

    def pieces() -> Iterator[Tree]:
        nonlocal making
        for code in counties:
            start = time.process_time()
            made = county(schema, code, blocks // len(counties))
            making += time.process_time() - start
            yield made

    sample = county(schema, "000", 200)
    model = SubspaceModel.of_trees([Tree(schema=schema, levels=(state, *sample.levels))])
    asked: list[MarginalQuery] = [schema.query("total"), schema.query("hispanic * cenrace")]
    start, wall = time.process_time(), time.perf_counter()
    written = 0
    squares, freedom = 0.0, 0
    for found in estimate_in_pieces(Tree(schema=schema, levels=(state, below)), pieces, model=model):
        squares, freedom = squares + found.residuals.squares, freedom + found.residuals.freedom
        for height in range(len(found.by_level)):
            for query in asked:
                written += found.of(height, query).estimate.size
    spent, wall = time.process_time() - start - making, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"| {blocks:,} | {spent:,.0f} s | {wall:,.0f} s | {peak:,.0f} MB | {written:,} | {squares / freedom:.4f} |"


def main() -> None:
    """Measure, print and write the results; each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=float, nargs="+", default=[5, 50, 300], metavar="THOUSANDS")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(run(options.one))
        return
    lines = [
        "Reproduce with `python benchmarks/bench_topdown_estimate.py --write`. All eleven queries of the PL 94-171 "
        "schema at every level; wall time includes making the counties, processor time does not.",
        f"{machine()}.",
        "",
        "| blocks | processor time | wall | peak memory | estimates | residuals per degree of freedom |",
        "|---|---|---|---|---|---|",
    ]
    for thousands in options.blocks:
        own = [sys.executable, __file__, "--one", str(round(1_000 * thousands))]
        lines.append(subprocess.run(own, check=True, capture_output=True, text=True).stdout.strip())
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section("TopDown: estimating", text)


if __name__ == "__main__":
    main()
