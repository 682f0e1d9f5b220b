"""SafeTab-P on a domain of the nation's size: all regions, all iterations, every empty group with its noise.

    python benchmarks/bench_safetab.py [--persons 5_000_000] [--share 1] [--write]

Areas and iterations are synthetic and as many as in 2020: 51 states, 3,143 counties, 84,400 tracts, 31,900 places, 692
AIANNH areas; 24 + 24 + 4 iterations of level 1 and 1,457 + 1,457 + 30 of level 2, of which fewer below the state.
``--share`` takes a part of the tracts and places. The floor is the drawing of the same number of numbers alone.
"""

from __future__ import annotations

import argparse
import resource
import time
from fractions import Fraction

import numpy as np
import polars as pl
from sections import machine, write_section

from stirred import Entropy
from stirred.mechanisms.tables.safetab import SafeTabP
from stirred.randomness.noise import discrete_gaussian

TRACTS, PLACES, COUNTIES, STATES, AIANNH = 84_400, 31_900, 3_143, 51, 692


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--persons", type=lambda text: int(text.replace("_", "")), default=5_000_000)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    options = parser.parse_args()
    areas = synthetic_areas(options.share)
    people = synthetic_persons(options.persons, areas.height)
    safetab = SafeTabP(blocks=areas, iterations=synthetic_iterations())
    safetab.ready(None, None)
    began = time.perf_counter()
    release = safetab.release(people, Entropy.from_os())
    seconds = time.perf_counter() - began
    groups = sum(domain_sizes(safetab))
    began = time.perf_counter()
    for _ in range(2):
        discrete_gaussian(Fraction(31), count=groups, entropy=Entropy.from_os(), purpose="floor", threads=2)
    floor = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rows = [
        ("persons", f"{options.persons:,}"),
        ("groups, empty ones included", f"{groups:,}"),
        ("rows of t1, t2", ", ".join(f"{release.public.frame(name).height:,}" for name in ("t1", "t2"))),
        ("whole release, seconds", f"{seconds:.0f}"),
        ("drawing two numbers a group alone, seconds", f"{floor:.0f}"),
        ("ratio", f"{seconds / floor:.1f}"),
        ("peak memory, GB", f"{peak:.1f}"),
    ]
    lines = [f"Reproduce with `make bench-safetab`. {machine()}, polars {pl.__version__}.", ""]
    text = "\n".join([*lines, "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    print(text)
    if options.write:
        write_section("SafeTab-P", text)


def synthetic_areas(share: float) -> pl.DataFrame:
    """Return two blocks for each tract."""
    tracts, places = int(TRACTS * share), int(PLACES * share)
    block = np.arange(2 * tracts)
    tract = block // 2
    county = tract * COUNTIES // tracts
    state = county * STATES // COUNTIES
    generator = np.random.default_rng(1)
    place = generator.integers(0, places, block.size)
    aiannh = generator.integers(0, AIANNH, block.size)

    def named(values: np.ndarray, letter: str) -> list[str]:
        return [f"{letter}{value:06d}" for value in values.tolist()]

    return pl.DataFrame(
        {
            "block": named(block, "b"),
            "state": named(state, "s"),
            "county": named(county, "c"),
            "tract": named(tract, "t"),
            "place": named(place, "p"),
            "aiannh": named(aiannh, "a"),
        }
    ).with_columns(
        pl.when(pl.int_range(pl.len()) % 4 != 3).then("place").alias("place"),
        pl.when(pl.int_range(pl.len()) % 50 == 0).then("aiannh").alias("aiannh"),
    )


def synthetic_iterations() -> pl.DataFrame:
    """Return as many iterations as in 2020; about a quarter are for nation and states alone."""
    rows: list[tuple[str, ...]] = []
    codes = [f"{n:04d}" for n in range(1457)]
    for kind, letter, coarse in (("alone", "a", 1020), ("combination", "c", 1103)):
        for region in range(24):
            only, own = str(region >= 22).lower(), " ".join(codes[region::24])
            rows.append((f"{letter}r{region:02d}", kind, "1", only, "false", own))
        for n, code in enumerate(codes):
            rows.append((f"{letter}{n:04d}", kind, "2", str(n >= coarse).lower(), "false", code))
    ethnic = [f"e{n:02d}" for n in range(30)]
    rows += [(f"er{n}", "ethnicity", "1", "false", "false", " ".join(ethnic[n::4])) for n in range(4)]
    rows += [(f"en{n:02d}", "ethnicity", "2", str(n >= 27).lower(), "false", ethnic[n]) for n in range(30)]
    names = ["iteration_code", "kind", "level", "detailed_only", "coarse_only", "codes"]
    return pl.DataFrame(rows, schema=names, orient="row")


def synthetic_persons(count: int, blocks: int) -> pl.DataFrame:
    """Return persons, one in twelve with two race codes; a few codes are common."""
    generator = np.random.default_rng(2)
    first = np.minimum(generator.geometric(0.03, count) - 1, 1456)
    second = generator.integers(0, 1457, count)
    codes = pl.Series([f"{n:04d}" for n in range(1457)])
    several = generator.random(count) < 1 / 12
    names = {"block": pl.Series([f"b{n:06d}" for n in range(blocks)]).gather(generator.integers(0, blocks, count))}
    names["race1"] = codes.gather(first)
    names["race2"] = codes.gather(second).set(pl.Series(~several), None)
    names |= {f"race{n}": pl.repeat(None, count, dtype=pl.String, eager=True) for n in range(3, 9)}
    hispanic = generator.random(count) < 0.19
    names["ethnicity"] = pl.Series([f"e{n:02d}" for n in range(30)]).gather(generator.integers(0, 30, count))
    names["ethnicity"] = names["ethnicity"].set(pl.Series(~hispanic), "")
    names["sex"] = pl.Series(["1", "2"]).gather(generator.integers(0, 2, count))
    names["age"] = pl.Series([str(n) for n in range(100)]).gather(generator.integers(0, 100, count))
    return pl.DataFrame(names)


def domain_sizes(safetab: SafeTabP) -> list[int]:
    """Return how many groups each part of the budget has."""
    blocks, groups = safetab.block_table(), safetab.groups
    found = []
    for part in safetab.parts:
        region = safetab.regions[part.region]
        many = blocks[region.column].drop_nulls().n_unique() if region.column else 1
        found.append(many * groups.of_level(part.level, coarse=region.iterations == "coarse").height)
    return found


if __name__ == "__main__":
    main()
