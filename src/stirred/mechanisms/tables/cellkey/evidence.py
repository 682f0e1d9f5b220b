"""Evidence for cell keys: the files as written against what was looked up, and a bundle against its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.microdata import Microdata
from stirred.data.table_labels import with_labels
from stirred.mechanisms.protocol import Check, Release, Written, failed
from stirred.mechanisms.tables.cellkey.perturbed import sums_of
from stirred.mechanisms.tables.cells import incomplete
from stirred.mechanisms.tables.no_records import find_records, refuse_records
from stirred.spec.accepted import with_accepted_names
from stirred.spec.pull_back import pull_back

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey


def write_internal(mechanism: CellKey, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
    """Keep true counts, keys and noise inside, under the names people know."""
    (written.internal / "cells").mkdir(mode=0o700)
    for number, (title, frame) in enumerate(release.internal["cells"].items(), start=1):
        write_frame(
            frame.select(pl.lit(title).alias("table"), pl.all()),
            written.internal / "cells" / f"{number}.parquet",
            note=dict(note),
        )


def verify(mechanism: CellKey, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
    """Compare the written tables with the counts and the noise that was looked up, cell by cell."""
    refuse_records(written.public)
    checks = []
    for table in written.tables:
        cells = release.internal["cells"][table.title]
        count = pl.col("pre_sd_count") + pl.col("pvalue")
        kept = pl.when(count >= mechanism.threshold).then(count)
        sums = with_labels(cells.select(*table.variables, count=kept), written.labels)
        published = read_frame(written.public / "tables" / f"{table.name}.csv")
        if not as_read(sums, "csv", written.public).equals(published, null_equal=True):
            raise failed(f"the table {table.title}, as written, is not the counts with what was looked up")
        if cells.filter((pl.col("pre_sd_count") == 0) & (pl.col("pvalue") != 0)).height:
            raise failed(f"an empty cell of {table.title} was perturbed")
        checks.append(
            Check(what=f"table {table.title}", cells=cells.height, result="the counts with what was looked up")
        )
        if mechanism.sums is not None:
            name, wrong = sums_of(table.title), f"the sums of {table.title}, as written, are not those drawn"
            parts = (with_labels(part, written.labels, beside=("sum",)) for part in release.internal["parts"][name]())
            list(written.parts(name, parts, kind="table", wrong=wrong))
    return checks


def audit_bundle(mechanism: CellKey, bundle: BundleFiles, found: Findings) -> None:
    """Check the cells of the tables, and the promise against the settings."""
    mechanism.audit_unstated(bundle, found)
    if mechanism.inner is not None:
        found.unchecked.append("the promise of the swap: its records are not published")
        return
    own = mechanism.specification(name=bundle.specification.domain.name, stage="as-given")
    own = with_accepted_names(pull_back(own, prepared=bundle.prepared).specification, bundle.accepted)
    said, where = bundle.specification, "public/specification.json"
    for block in ("output_premetric", "budget", "theorem", "assumptions"):
        if getattr(said, block) != getattr(own, block):
            found.bad(f"its {block} is not what the perturbation table gives", where=where)
            return
    found.checks.append(f"{said.budget_text} and delta: computed anew from the perturbation table")


def audit_unstated(kind: type[CellKey], bundle: BundleFiles, found: Findings) -> None:
    """Check that only tables are published, with every cell once and no count below 0."""
    find_records(bundle, found)
    for name, place, table, variables in bundle.tables():
        column = "sum" if "sum" in table.columns else "count"
        numbers = table[column].cast(pl.Float64, strict=False) if column in table.columns else None
        if numbers is None or not variables or (column == "count" and (numbers < 0).any()):
            found.bad("it has no variables, no counts, or counts below 0", where=place)
        elif incomplete(table.select(variables)):
            found.bad("cells are missing or doubled: which of them are there may tell who exists", where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
    found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")
