"""Read back what is published exactly, and count it once more from the values of the confidential input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stirred.data.frames import ROWS_IN_ONE_FILE, read_frame, scan_frame
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.verify import Check, as_read, failed, not_done


def verify_invariants(
    homes: pl.DataFrame, tables: dict[str, Sequence[str]], folder: Path, *, others: Sequence[str] = ()
) -> list[Check]:
    """Compare the tables of invariants.parquet, each with its variables, with those of the input.

    Its other rows must have names that begin like one of ``others``. Files too long to be counted by values again are
    held to the number of records.
    """
    # A national file has as many cells as a small one has records: they are not read as one frame.
    place = folder / "invariants.parquet"
    sums = dict(scan_frame(place).group_by("table").agg(pl.col("count").sum()).collect().iter_rows())
    named = [name or "" for name in sums]
    if strange := [name for name in named if name not in tables and not any(map(name.startswith, others))]:
        raise failed(f"invariants.parquet has a table that nothing fixes: '{strange[0]}'")
    checks = []
    for name, variables in tables.items():
        cells = scan_frame(place).filter(pl.col("table") == name).select(*variables, "count")
        what = f"invariants.parquet: {name}, counted from the values of the input"
        checks.append(_compared(homes, cells, variables, folder, total=sums.get(name, 0), what=what))
    return checks


def verify_strata(homes: pl.DataFrame, plan: SwapPlan, expected: pl.DataFrame, folder: Path) -> Check:
    """Compare strata.parquet with what should be in it, and its sizes with the input."""
    written = read_frame(folder / "strata.parquet")
    if not written.equals(as_read(expected, "parquet", folder), null_equal=True):
        raise failed("strata.parquet, as written, is not the list of strata")
    sizes = written.select(*plan.strata.match, count="stratum_records")
    what = "strata.parquet: sizes, counted from the values of the input"
    return _compared(homes, sizes.lazy(), plan.strata.match, folder, total=int(sizes["count"].sum()), what=what)


def _compared(
    homes: pl.DataFrame, written: pl.LazyFrame, variables: Sequence[str], folder: Path, *, total: int, what: str
) -> Check:
    if total != homes.height:
        raise failed(f"{what}: they do not add up to the records")
    if homes.height > ROWS_IN_ONE_FILE:
        return not_done(what, limit=ROWS_IN_ONE_FILE, of="records")
    cells = written.with_columns(pl.col("count").cast(pl.Int64)).collect()
    if variables:
        counted = as_read(homes.group_by(variables).len("count"), "parquet", folder)
        counted = counted.with_columns(pl.col("count").cast(pl.Int64))
        if not cells.sort(variables).equals(counted.sort(variables), null_equal=True):
            raise failed(f"{what}: they differ")
    return Check(what=what, cells=cells.height)
