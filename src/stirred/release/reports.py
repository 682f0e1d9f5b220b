"""The reports of a bundle, and the accuracy against the truth that stays inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from stirred import __version__
from stirred.data.columns import select
from stirred.data.frames import write_frame
from stirred.inference.released import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.moments.class_laws import TooLargeError
from stirred.mechanisms.swapping.two_stage import TwoStageSwap
from stirred.release.contents import Contents
from stirred.release.expectation import Expectation, expectations, within_reach
from stirred.release.prepared import Prepared
from stirred.release.public_files import notes_on, title_of
from stirred.release.tables import Table, labelled, tabulate
from stirred.release.verify import Check
from stirred.report.swap import SwapReport, internal_report, public_report
from stirred.utility.error import compare_tables
from stirred.utility.measures import Accuracy, measure


def write_reports(
    folder: Path, prepared: Prepared, contents: Contents, release: Release, checks: Sequence[Check]
) -> None:
    """Write both editions of the report, and the accuracy files that only the inner one may rest on."""
    accuracy = _accuracy(prepared, contents, release)
    measures = {title: _measures(prepared, frame) for title, frame in accuracy.items()}
    expected = _expected(prepared)
    shown = {
        f"{table.title} ({contents.exactness(table)})": pl.read_csv(
            folder / "public" / "tables" / f"{table.name}.csv", infer_schema=False
        ).with_columns(pl.col("count").cast(pl.Int64))
        for table in prepared.tables
    }
    if prepared.codebook is not None:
        shown = {title: labelled(frame, prepared.codebook) for title, frame in shown.items()}
        accuracy = {title: labelled(frame, prepared.codebook) for title, frame in accuracy.items()}
    report = SwapReport(
        title=title_of(prepared),
        mechanism=prepared.mechanism,
        plan=replace(prepared.plan, specification=release.specification),
        checks=[(check.what, check.cells, check.result) for check in checks],
        tables=shown,
        records=prepared.data.households.height,
        seeded=release.specification.seeded,
        made=f"Made with stirred {__version__}.",
        accuracy=accuracy,
        measures=measures,
        expected={each.table.title: each.error for each in expected},
        corrected=_corrected(prepared, release),
        warnings=prepared.warnings,
        safes=prepared.planned.plan.safes_sheet,
    )
    (folder / "public" / "report.html").write_text(public_report(report), encoding="utf-8")
    (folder / "internal" / "report.html").write_text(internal_report(report), encoding="utf-8")
    for each in expected:
        name = folder / "internal" / "expected" / f"{each.table.name}.parquet"
        name.parent.mkdir(exist_ok=True)
        write_frame(each.error.table, name, note=notes_on(release.specification))
    if measures:
        text = json.dumps({title: asdict(found) for title, found in measures.items()}, indent=2, ensure_ascii=False)
        (folder / "internal" / "measures.json").write_text(text + "\n", encoding="utf-8")
    if accuracy:
        frames = [
            frame.select(
                pl.lit(title).alias("table"),
                pl.concat_str(pl.exclude("true", "released", "error").cast(pl.String), separator=" | ").alias("cell"),
                "true",
                "released",
                "error",
            )
            for title, frame in accuracy.items()
        ]
        write_frame(pl.concat(frames), folder / "internal" / "accuracy.parquet", note=notes_on(release.specification))


def _accuracy(prepared: Prepared, contents: Contents, release: Release) -> dict[str, pl.DataFrame]:
    accuracy = {}
    for table in prepared.tables:
        truth = tabulate(_truth(prepared, table), table.variables)
        accuracy[table.title] = compare_tables(truth, contents.table(release, table), table.variables)
    return accuracy


def _measures(prepared: Prepared, compared: pl.DataFrame) -> Accuracy:
    """Return the accuracy of one compared table; association is between the swapped area and the rest."""
    variables = [name for name in compared.columns if name not in ("true", "released", "error")]
    truth, released = (compared.select(*variables, pl.col(name).alias("count")) for name in ("true", "released"))
    level = next((name for name in variables if name in prepared.mechanism.swap), None)
    return measure(truth, released, variables=variables, level=level)


def _expected(prepared: Prepared) -> list[Expectation]:
    """Return what the closed form expected of each table, for the internal report."""
    if not within_reach(prepared.mechanism, prepared.data):
        return []
    found: list[Expectation] = []
    for table in prepared.tables:
        with suppress(TooLargeError):
            found += expectations(prepared.mechanism, [table], prepared.data, source="this-data")
    return found


def _corrected(prepared: Prepared, release: Release) -> dict[str, Accuracy]:
    """Return how far each table is from the truth after its bias was taken out, as any reader can do."""
    if not prepared.tables or not within_reach(prepared.mechanism, prepared.data):
        return {}
    match, persons = tuple(prepared.mechanism.match), prepared.data.persons is not None
    strata = prepared.mechanism.strata_table(prepared.plan.strata)
    stages = prepared.mechanism if isinstance(prepared.mechanism, TwoStageSwap) else None
    public = SwappedRelease(
        records=release.public["data"].lazy(),
        match=match,
        swap=tuple(prepared.mechanism.swap),
        strata=strata.select(*(pl.col(name).cast(pl.String) for name in match), "stratum_rate"),
        persons=release.public["persons"].lazy() if persons else None,
        key=prepared.data.hid if persons else None,
        member=prepared.mechanism.stratum_law,
        redraw_law=prepared.mechanism.known_law if isinstance(prepared.mechanism, ConditionedSwap) else None,
        fine_match=() if stages is None else tuple(stages.fine_match),
        fine_rate=None if stages is None else str(stages.fine_rate),
    )
    found = {}
    for table in prepared.tables:
        truth = tabulate(_truth(prepared, table), table.variables).with_columns(pl.col(table.variables).cast(pl.String))
        with suppress(TooLargeError):
            estimate = unswap(table.variables, public).table.select(*table.variables, count="estimate")
            found[table.title] = measure(truth, estimate, variables=table.variables)
    return found


def _truth(prepared: Prepared, table: Table) -> pl.DataFrame:
    data = prepared.data
    if not table.of_persons or data.persons is None or data.hid is None:
        return data.households
    wanted = [name for name in table.variables if name not in data.person_variables]
    own = [name for name in table.variables if name in data.person_variables]
    persons = select(data.persons, [data.hid, *own])
    return persons.join(data.households.select(data.hid, *wanted), on=data.hid, how="left")
