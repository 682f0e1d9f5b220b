"""A release of noisy tables alone: its files, what is verified of them, and its page for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.frames import read_frame, write_frame
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.invariants import sorted_cells
from stirred.release.readme import exactness
from stirred.release.tables import Table
from stirred.release.verify import Check, as_read, failed
from stirred.report.noisy import reading_noise

# More values than any table may have cells.
_MOST_VALUES = 1_000_000


def declared_values(codebook: Codebook, mechanism: NoisySwap) -> dict[str, list[str | None]]:
    """Return the values that a codebook declares for variables of the tables: codes, or whole numbers in a range."""
    found: dict[str, list[str | None]] = {}
    wanted = {name for variables in mechanism.tables for name in variables}
    for name, variable in ((name, v) for name, v in codebook.of("households").items() if name in wanted):
        values: list[str | None] = []
        if variable.type == "code":
            values = [*dict.fromkeys((*variable.codes, *sorted(codebook.leaves(name))))]
        elif variable.type == "integer" and variable.min is not None and variable.max is not None:
            last = min(variable.max, variable.min + _MOST_VALUES)
            values = [str(value) for value in range(variable.min, last + 1)]
        if values:
            found[name] = [*values, None] if variable.missing else values
    return found


def strata_sizes(plan: SwapPlan) -> pl.DataFrame:
    """Return the one table that is published exactly: how many records each combination of match values has."""
    strata = plan.strata
    sizes = pl.Series("count", [stratum.records for stratum in strata.table], dtype=pl.Int64)
    frame = pl.concat([strata.coded.levels.select(strata.match), sizes.to_frame()], how="horizontal")
    return frame.select(pl.lit("match").alias("table"), pl.all())


def write_drawn(release: Release, internal: Path, *, note: Mapping[str, str]) -> None:
    """Keep what went into each table: the swapped counts and the noise, which is drawn once and never again."""
    (internal / "noise").mkdir(mode=0o700)
    for number, (title, drawn) in enumerate(release.internal["drawn"].items(), start=1):
        frame = drawn.select(pl.lit(title).alias("table"), pl.all())
        write_frame(frame, internal / "noise" / f"{number}.parquet", note=dict(note))


def verify_noisy(plan: SwapPlan, release: Release, tables: Sequence[Table], folder: Path) -> list[Check]:
    """Read the written tables back; raise if one is not the swapped counts and the noise that was drawn, cell by cell.

    Whether the drawn numbers follow their law no file can show. Totals are not adjusted, because no cell is.
    """
    public = folder / "public"
    if records := sorted([*public.glob("data.*"), *public.glob("persons.*")]):
        raise failed(f"{records[0].name} was written, and only tables may be published")
    before, after = (
        sorted_cells(plan.strata.coded.codes, codes) for codes in (plan.swap.codes, release.internal["swapped"])
    )
    if not np.array_equal(before, after):
        raise failed("the match x swap table of the swapped file differs from the input")
    checks = [Check(what="the swap: match x swap table counted anew", cells=int(before.size))]
    kept = {frame["table"][0]: frame for frame in map(read_frame, sorted((folder / "internal/noise").iterdir()))}
    for table in tables:
        drawn = kept[table.title]
        variables = list(table.variables)
        sums = drawn.select(*variables, count=pl.col("swapped") + pl.col("noise"))
        written = read_frame(public / "tables" / f"{table.name}.csv")
        if drawn["swapped"].sum() != plan.strata.coded.codes.size:
            raise failed(f"the table {table.title} does not count every record once")
        if drawn.select(variables).is_duplicated().any() or not as_read(sums, "csv", public).equals(written):
            raise failed(f"the table {table.title}, as written, is not the swapped counts with the noise drawn")
        checks.append(
            Check(
                what=f"table {table.title}: every declared cell, once",
                cells=written.height,
                result="the swapped counts with the noise drawn, not adjusted",
            )
        )
    return checks


def noisy_readme(title: str, mechanism: NoisySwap, plan: SwapPlan, tables: Sequence[Table], *, purpose: str) -> str:
    """Return the page for a reader who has only the public folder."""
    fixed = " x ".join(mechanism.match)
    lines = [f"# {title}", "", mechanism.in_words, ""]
    if purpose:
        lines += [f"Purpose: {purpose}", ""]
    lines += [
        "## What you may conclude",
        "",
        f"- The number of records{f' by {fixed}' if fixed else ''} is exact. Nothing else is.",
        *(f"- {sentence}" for sentence in reading_noise(mechanism, plan)),
        "- What is promised about confidentiality, and relative to what, is in specification.md and report.html.",
        f"- {plan.also_promised}",
        "",
        "## Files",
        "",
        *(f"- `tables/{t.name}.csv`: {t.title}, {exactness(t, mechanism, plan, persons=())}" for t in tables),
        "- `invariants.parquet`: the one table published exactly, the sizes of the strata",
        "- `strata.parquet`: match values, records, rate, expected share moved",
        "- `specification.json`, `specification.md`: the promise; `report.html`: the same with figures",
        "",
        "There is no file of records: the promise is about the tables alone.",
    ]
    return "\n".join(lines) + "\n"
