"""The tables of a bundle counted anew: those of the invariants, and those that were published."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from stirred.audit.bundle_files import read_released
from stirred.audit.findings import Findings
from stirred.audit.held_digest import digest_named
from stirred.data.frames import read_frame, write_frame
from stirred.spec.invariant import Margin
from stirred.spec.specification import Specification

_INVARIANTS: Final = "public/invariants.parquet"


def audit_invariants(public: Path, specification: Specification, data: pl.DataFrame, found: Findings) -> str | None:
    """Count every table of the invariants anew; return the digest of what households hold with their persons."""
    published = read_released(public / "invariants.parquet", found, where=_INVARIANTS)
    if published is None:
        return None
    if "table" not in published.columns or "count" not in published.columns:
        found.bad("it has no columns table and count", where=_INVARIANTS)
        return None
    published = published.with_columns(pl.col("table").cast(pl.String))
    margins = [margin for margin in specification.multiverse.invariants if isinstance(margin, Margin)]
    known = {"table", "count", *(variable for margin in margins for variable in margin.variables)}
    if extra := [name for name in published.columns if name not in known]:
        found.bad(f"{', '.join(extra)} is in no table that the specification fixes", where=_INVARIANTS)
    tables = published["table"].unique(maintain_order=True).to_list()
    digests = [digest for name in tables if (digest := digest_named(name)) is not None]
    names = [name for name in tables if digest_named(name) is None]
    if len(margins) != len(names):
        found.bad(f"the specification fixes {len(margins)} tables and {len(names)} are published", where=_INVARIANTS)
    for name, margin in zip(names, margins, strict=False):
        variables = [variable for variable in margin.variables if variable in published.columns]
        left = [variable for variable in margin.variables if variable not in variables]
        missing = [variable for variable in variables if variable not in data.columns]
        if missing:
            found.bad(f"the released file has no column {', '.join(missing)}", where=f"invariant {margin}")
            continue
        if lacking := [variable for variable in left if variable in data.columns]:
            found.bad(f"it has no column {', '.join(lacking)}", where=_INVARIANTS)
        cells = published.filter(pl.col("table").eq_missing(pl.lit(name))).select(*variables, "count")
        if not same_cells(cells, data, variables):
            found.bad(f"the released file does not have the published table '{name}'", where=f"invariant {margin}")
            continue
        counted = replace(margin, variables=tuple(variables))
        found.checks.append(f"{counted}: {cells.height:,} cells, counted anew")
    return digests[0] if digests else None


def published_tables(public: Path, found: Findings) -> Iterator[tuple[str, str, pl.DataFrame, list[str]]]:
    """Yield each table that can be read, with its name, its place for messages, and its variables."""
    for path in sorted((public / "tables").glob("*.csv")):
        where = f"public/tables/{path.name}"
        table = read_released(path, found, where=where)
        if table is not None:
            yield path.stem, where, table, [name for name in table.columns if name != "count"]


def audit_tables(public: Path, data: pl.DataFrame, persons: pl.DataFrame | None, found: Findings) -> None:
    """Count the published tables anew: from households, or from persons with the variables of their household."""
    for name, place, table, variables in published_tables(public, found):
        counted = data if set(variables) <= set(data.columns) else persons
        if "count" not in table.columns or counted is None or not set(variables) <= set(counted.columns):
            found.bad("it cannot be counted anew from the released files", where=place)
        elif not same_cells(table, counted, variables):
            found.bad("it is not the table of the released file", where=place)
        else:
            found.checks.append(f"table {name}{'' if counted is data else ' of persons'}: counted anew")


def same_cells(published: pl.DataFrame, data: pl.DataFrame, variables: Sequence[str]) -> bool:
    """Say whether a published table has the counts of the data; cells of 0 may be left out."""
    counted = data.group_by(variables).len("count") if variables else pl.DataFrame({"count": [data.height]})
    both = []
    for frame in (published, counted):
        # What is no number is kept, and then differs.
        kept = frame.filter(pl.col("count").cast(pl.Int64, strict=False).ne_missing(0)).select(*variables, "count")
        kept = as_text(kept)
        both.append(kept.sort(kept.columns))
    return both[0].equals(both[1], null_equal=True)


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame as a reader of CSV gets it, so that released CSV and Parquet compare."""
    if not frame.height:
        return frame.cast(pl.String)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "as-read.csv"
        write_frame(frame, path)
        return read_frame(path)
