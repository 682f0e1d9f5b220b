"""A release of noisy tables alone: its files, what is verified of them, and its page for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.frames import read_frame, write_frame
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.invariants import sorted_cells
from stirred.release.prepared import Prepared
from stirred.release.tables import Table
from stirred.release.verify import Check, as_read, failed
from stirred.release.verify_counts import verify_invariants, verify_strata
from stirred.report.noisy import reading_noise


@dataclass(frozen=True, slots=True)
class NoisyTables:
    """Tables of the swapped file with noise, and the sizes of the strata. No record is published."""

    prepared: Prepared
    mechanism: NoisySwap

    def columns(self) -> set[str]:
        """Return the columns of households that may be in public files: those of the tables and the matched ones."""
        return {*self.mechanism.match, *(name for variables in self.mechanism.tables for name in variables)}

    def table(self, release: Release, table: Table) -> pl.DataFrame:
        """Return a table as it was drawn."""
        return release.public.frame(table.title)

    def exactness(self, table: Table) -> str:
        """Say what was done to a table."""
        swapped = self.mechanism.swaps and self.mechanism.crosses(table.variables)
        return "with noise, after swapping" if swapped else "with noise"

    def write(self, release: Release, folder: Path, *, note: Mapping[str, str]) -> None:
        """Write the sizes of the strata, all that is fixed, and keep inside what was drawn."""
        plan, public = self.prepared.plan, folder / "public"
        write_frame(strata_sizes(plan), public / "invariants.parquet", note=dict(note))
        write_frame(self._strata, public / "strata.parquet", note=dict(note))
        write_drawn(release, folder / "internal", note=note)

    def readme(self, title: str, public: Path) -> str:
        """Return the page for a reader who has only the public folder."""
        del public
        tables = {table: self.exactness(table) for table in self.prepared.tables}
        purpose = self.prepared.planned.plan.release.purpose
        return noisy_readme(title, self.mechanism, self.prepared.plan, tables, purpose=purpose)

    def verify(self, release: Release, folder: Path) -> list[Check]:
        """Compare the written tables with the counts of the swapped file and the noise that was drawn."""
        plan, homes, public = self.prepared.plan, self.prepared.data.households, folder / "public"
        return [
            *verify_noisy(plan, release, self.prepared.tables, folder),
            *verify_invariants(homes, {"match": plan.strata.match}, public),
            verify_strata(homes, plan, self._strata, public),
        ]

    @property
    def _strata(self) -> pl.DataFrame:
        """Return the strata as they are published: whether there is anything to swap in one is not fixed."""
        return self.mechanism.strata_table(self.prepared.plan.strata).drop("stratum_live")


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


def noisy_readme(title: str, mechanism: NoisySwap, plan: SwapPlan, tables: Mapping[Table, str], *, purpose: str) -> str:
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
        *(f"- `tables/{table.name}.csv`: {table.title}, {words}" for table, words in tables.items()),
        "- `invariants.parquet`: the one table published exactly, the sizes of the strata",
        "- `strata.parquet`: match values, records, rate, expected share moved",
        "- `specification.json`, `specification.md`: the promise; `report.html`: the same with figures",
        "",
        "There is no file of records: the promise is about the tables alone.",
    ]
    return "\n".join(lines) + "\n"
