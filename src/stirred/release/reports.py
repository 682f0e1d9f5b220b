"""The reports of a bundle, and the accuracy against the truth that stays inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from stirred import __version__
from stirred.data.columns import select
from stirred.data.frames import read_frame, write_frame
from stirred.data.table_labels import without_labels
from stirred.inference.unswap import corrected_tables
from stirred.mechanisms.protocol import Check, Release, Table, TooLargeError
from stirred.mechanisms.registry import is_installed, package_of
from stirred.release.files import table_counts, title_of
from stirred.release.prepared import Prepared
from stirred.release.tables import Expectation, expectations, in_words, tabulate, within_reach
from stirred.report.release import ReleaseReport, internal_report, public_report
from stirred.report.transparency import transparency
from stirred.report.validity import facial_validity
from stirred.spec.specification import Specification
from stirred.utility.measures import Accuracy, compare_tables, measure


def write_reports(folder: Path, prepared: Prepared, release: Release, checks: Sequence[Check]) -> None:
    """Write both editions of the report, and the accuracy files that only the inner one may rest on."""
    accuracy = _accuracy(prepared, release)
    measures = {title: _measures(prepared, frame) for title, frame in accuracy.items()}
    expected = _expected(prepared)
    mechanism, data, plan = prepared.mechanism, prepared.data, prepared.plan
    estimates = _estimates(prepared, release)
    places = {
        f"{table.title} ({mechanism.table_in_words(table, data, plan)})": f"tables/{table.name}.csv"
        for table in prepared.tables
    }
    shown = {
        title: without_labels(read_frame(folder / "public" / place, empty=True)).with_columns(
            pl.col("count").cast(pl.Int64)
        )
        for title, place in places.items()
    }
    shown = {title: in_words(frame, prepared.labels) for title, frame in shown.items()}
    accuracy = {title: in_words(frame, prepared.labels) for title, frame in accuracy.items()}
    records = [file.name for file in prepared.files if file.kind == "records"]
    validity = facial_validity(folder / "public", type(mechanism), records=records, zeros=_impossible(prepared))
    report = replace(
        _blank(prepared, release.specification),
        checks=[(check.what, check.cells, check.result) for check in checks],
        tables=shown,
        places=places,
        accuracy=accuracy,
        measures=measures,
        expected={each.table.title: each.error for each in expected},
        corrected=_corrected(prepared, estimates),
        typical=mechanism.typical_errors(plan, estimates),
        doubts=prepared.doubts,
        accepted=[doubt.name for doubt in prepared.accepted],
        inside=mechanism.inside(plan, release),
        published=mechanism.shown(plan, release.public),
        validity=validity,
        shown=transparency(
            type(mechanism),
            prepared.settings.public(),
            release.specification,
            code=_code(mechanism.name),
            exact=plan.published_figures,
            errors=validity.errors,
        ),
    )
    (folder / "public" / "report.html").write_text(public_report(report), encoding="utf-8")
    (folder / "internal" / "report.html").write_text(internal_report(report), encoding="utf-8")
    for each in expected:
        name = folder / "internal" / "expected" / f"{each.table.name}.parquet"
        name.parent.mkdir(exist_ok=True)
        write_frame(each.error.table, name, note=release.specification.notes)
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
        write_frame(pl.concat(frames), folder / "internal" / "accuracy.parquet", note=release.specification.notes)


def _code(name: str) -> str:
    """Return the package that made the release, and the one that its mechanism comes from."""
    own = package_of(name) if is_installed(name) else "stirred"
    return f"stirred {__version__}{'' if own == 'stirred' else f' with {own}'}"


def _impossible(prepared: Prepared) -> list[Mapping[str, Sequence[str]]]:
    """Return the codes that no record has together, by the settings and by the codebook."""
    declared = () if prepared.codebook is None else prepared.codebook.structural_zeros
    return [*prepared.settings.impossible, *(zero.when for zero in declared)]


def blank_reports(prepared: Prepared, specification: Specification) -> tuple[str, str]:
    """Return both editions as far as they are known before the draw: without tables, checks and accuracy."""
    report = _blank(prepared, specification)
    return public_report(report), internal_report(report)


def _blank(prepared: Prepared, specification: Specification) -> ReleaseReport:
    return ReleaseReport(
        title=title_of(prepared),
        mechanism=prepared.mechanism,
        plan=prepared.plan.promising(specification),
        checks=(),
        tables={},
        records=_fixed_number(prepared, specification),
        seeded=specification.seeded,
        made=f"Made with stirred {__version__}.",
        safes=prepared.plan_file.safes_sheet,
        exposure=prepared.exposure,
        has_records=any(file.kind == "records" for file in prepared.files),
        # By the law alone; what the released file adds comes after the draw.
        typical=prepared.mechanism.typical_errors(prepared.plan, {}),
        not_counted="" if prepared.exposure is not None else prepared.exposed_in_words,
        labels=prepared.labels,
    )


def _fixed_number(prepared: Prepared, specification: Specification) -> int | None:
    """Return the number of records, unless the promise is about records that come or go: then it is protected."""
    bounded = specification.input_premetric.bounded
    return prepared.mechanism.number_of_records(prepared.data) if bounded else None


def _accuracy(prepared: Prepared, release: Release) -> dict[str, pl.DataFrame]:
    accuracy = {}
    for table in prepared.tables:
        truth = tabulate(_truth(prepared, table), table.variables, declared=table.declared)
        released = table_counts(prepared, release, table).select(*table.variables, "count")
        accuracy[table.title] = compare_tables(truth, released, table.variables)
    return accuracy


def _measures(prepared: Prepared, compared: pl.DataFrame) -> Accuracy:
    """Return the accuracy of one compared table; association is between the area and the rest."""
    variables = [name for name in compared.columns if name not in ("true", "released", "error")]
    truth, released = (compared.select(*variables, pl.col(name).alias("count")) for name in ("true", "released"))
    level = next((name for name in variables if name in prepared.mechanism.areas), None)
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


def _estimates(prepared: Prepared, release: Release) -> Mapping[str, pl.DataFrame]:
    """Return each table after its bias was taken out, as any reader can do from the public files."""
    if not prepared.tables or not within_reach(prepared.mechanism, prepared.data):
        return {}
    return corrected_tables(prepared.mechanism, release, prepared.data, prepared.tables)


def _corrected(prepared: Prepared, estimates: Mapping[str, pl.DataFrame]) -> dict[str, Accuracy]:
    """Return how far each table is from the truth after its bias was taken out."""
    found = {}
    for table in prepared.tables:
        if table.title not in estimates:
            continue
        truth = tabulate(_truth(prepared, table), table.variables, declared=table.declared).with_columns(
            pl.col(table.variables).cast(pl.String)
        )
        estimate = estimates[table.title].select(*table.variables, "count")
        found[table.title] = measure(truth, estimate, variables=table.variables)
    return found


def _truth(prepared: Prepared, table: Table) -> pl.DataFrame:
    data = prepared.data
    if not table.of_persons or data.persons is None or data.hid is None:
        return data.households.select(table.variables)
    wanted = [name for name in table.variables if name not in data.person_variables]
    own = [name for name in table.variables if name in data.person_variables]
    persons = select(data.persons, [data.hid, *own])
    return persons.join(data.households.select(data.hid, *wanted), on=data.hid, how="left")
