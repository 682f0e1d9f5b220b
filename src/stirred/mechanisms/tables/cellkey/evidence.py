"""Evidence for cell keys: the tables as written against what was looked up, and a bundle against its settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Release, Written, failed
from stirred.mechanisms.tables.cellkey.perturbed import sums_of
from stirred.mechanisms.tables.engine import ExpectedTable, audit_promise, audit_records, table_fault

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey


def expected(
    mechanism: CellKey, data: Microdata, plan: Any, release: Release, written: Written
) -> Iterator[ExpectedTable]:
    """Yield the tables as the counts and the noise that was looked up make them, cell by cell."""
    result = "the counts with what was looked up"
    for table in written.tables:
        cells = release.internal["drawn"][table.title]
        if cells.filter((pl.col("pre_sd_count") == 0) & (pl.col("pvalue") != 0)).height:
            raise failed(f"an empty cell of {table.title} was perturbed")
        count = pl.col("pre_sd_count") + pl.col("pvalue")
        frame = cells.select(*table.variables, count=pl.when(count >= mechanism.threshold).then(count))
        wrong = f"the table {table.title}, as written, is not {result}"
        yield ExpectedTable(f"tables/{table.name}", frame, wrong, f"table {table.title}", result)
        if mechanism.sums is not None:
            name, wrong = sums_of(table.title), f"the sums of {table.title}, as written, are not those drawn"
            yield ExpectedTable(name, release.internal["sums"][name], wrong)


def audit_bundle(mechanism: CellKey, bundle: BundleFiles, found: Findings) -> None:
    """Check the cells of the tables, and the promise against the settings."""
    mechanism.audit_unstated(bundle, found)
    if mechanism.inner is not None:
        found.unchecked.append("the promise of the swap: its records are not published")
        return
    said = bundle.specification
    again = mechanism.specification(
        name=said.domain.name, stage=said.domain.stage, post_imputation=said.input_premetric.post_imputation
    )
    computed = "{} and delta: computed anew from the perturbation table"
    audit_promise(bundle, again, found, computed=computed, also=("theorem", "assumptions"))


def audit_unstated(kind: type[CellKey], bundle: BundleFiles, found: Findings) -> None:
    """Check that only tables are published, with every cell once and no count below 0."""
    audit_records(bundle, found)
    for name, place, table, variables in bundle.tables():
        column = "sum" if "sum" in table.columns else "count"
        if not variables:
            found.bad("it has no variables", where=place)
        elif fault := table_fault(table, variables, number=column, whole=False):
            found.bad(fault, where=place)
        elif column == "count" and (table[column].cast(pl.Float64, strict=False) < 0).any():
            found.bad("it has counts below 0", where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
    found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")
