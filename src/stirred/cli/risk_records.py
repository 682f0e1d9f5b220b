"""The risk of each record as a file, which `stirred risk --records` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stirred.cli.option_words import bad_plan

if TYPE_CHECKING:
    import polars as pl

    from stirred.data.uniqueness import ExactTable
    from stirred.risk.combinations import MinimalUniques
    from stirred.risk.subject import Subject

_OPTION = "--records"


def check_place(out: Path) -> None:
    """Refuse a place where nothing can be written, before anything is read."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise bad_plan(f"{out.name} is neither CSV nor Parquet", where=_OPTION, remedy="name a .csv or .parquet file")
    if out.exists():
        raise bad_plan("something is already there", where=f"{_OPTION} {out}", remedy="choose a new file")
    if not out.resolve().parent.is_dir():
        raise bad_plan("there is no such folder", where=f"{_OPTION} {out}", remedy="make it first, or choose another")
    above = out.resolve().parents
    if any(folder.name == "public" and (folder.parent / "manifest.json").exists() for folder in above):
        what = "the risk of each record must not stand among public files"
        raise bad_plan(what, where=f"{_OPTION} {out}", remedy="choose a place inside the agency")


def write_records(
    out: Path,
    subject: Subject,
    table: ExactTable,
    *,
    weight: str | None,
    population: pl.DataFrame | None,
    minimal: MinimalUniques | None,
) -> None:
    """Write the number, keys and risks of each record, for its owner alone."""
    import polars as pl

    from stirred.data.place import file_at
    from stirred.data.uniqueness import record_risks
    from stirred.risk.subject import records_and_keys

    frame, keys = records_and_keys(subject.data, table)
    found = record_risks(frame, keys, weight=weight, population=population)
    if minimal is not None:
        found = found.with_columns(pl.Series("suda", minimal.scores))
    shown = frame.select(name for name in keys if name in table.keys)
    if taken := [name for name in shown.columns if name in ("row", *found.columns)]:
        what = f"a key is called {taken[0]}, as a column of this file is"
        raise bad_plan(what, where=_OPTION, remedy="rename it in the data")
    rows = pl.concat([shown, found], how="horizontal").with_row_index("row", offset=1)
    with file_at(out, private=True) as half:
        if out.suffix.lower() == ".csv":
            rows.write_csv(half)
        else:
            rows.write_parquet(half)
