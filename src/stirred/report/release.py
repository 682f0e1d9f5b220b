"""The report of a release, in two editions: public, and internal with accuracy against the truth.

The mechanism hands over its own sections as data; between the common pages they are the same in both editions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

import polars as pl

from stirred.data.problems import number
from stirred.data.table_labels import Labels
from stirred.data.uniqueness import Uniqueness
from stirred.mechanisms.protocol import Block, ExpectedError, Grid, Mechanism, Plan, Section, Typical
from stirred.report.charts import picture
from stirred.report.errors import error_charts
from stirred.report.facts import embedded, public_facts
from stirred.report.first_screen import first_screen, protects_nothing
from stirred.report.learned import learned_section
from stirred.report.page import bullets, folded, page, paragraph, section, table
from stirred.report.pipeline import pipeline_section
from stirred.report.safes import SafesSheet, safes_section
from stirred.report.transparency import TransparencyRow, faces_section
from stirred.report.validity import Validity
from stirred.spec.doubts import Doubt
from stirred.spec.invariant import records_of
from stirred.utility.measures import CELL_CLASSES, Accuracy, by_area_size, by_cell_size

_ROWS_SHOWN = 200
_ALL_ERRORS: Final = "internal/accuracy.parquet"
_ROWS_OPEN = 40  # longer tables open on a click
PUBLIC_STAMP = '<span class="stamp">public edition</span>'
INTERNAL_STAMP = '<span class="stamp internal">internal: computed from confidential data, never publish</span>'

# What is measured, by its name, and how it is written.
_MEASURES: Final = (
    ("mean absolute error", "mean_absolute_error", ".4g"),
    ("mean absolute percentage error, non-empty cells", "mean_absolute_percentage_error", ".2%"),
    ("root mean square error", "root_mean_square_error", ".4g"),
    ("L1 distance", "l1", ",.0f"),
    ("total variation", "total_variation", ".4g"),
    ("cells within 5% of the truth", "within_5_percent", ".1%"),
)
NOTHING: Final = "Nothing is promised about confidentiality"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseReport:
    """What a report shows. ``accuracy`` and ``doubts`` look at the confidential file and belong inside only.

    The names of ``accepted`` doubts are among the conditions of the specification, and so in both editions.
    """

    title: str
    mechanism: Mechanism
    plan: Plan
    checks: Sequence[tuple[str, int, str]]
    tables: Mapping[str, pl.DataFrame]
    records: int | None
    seeded: bool
    made: str
    accuracy: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    measures: Mapping[str, Accuracy] = field(default_factory=dict)
    expected: Mapping[str, ExpectedError] = field(default_factory=dict)
    corrected: Mapping[str, Accuracy] = field(default_factory=dict)
    doubts: Sequence[Doubt] = ()
    accepted: Sequence[str] = ()
    safes: SafesSheet | None = None
    inside: Sequence[Section] = ()
    published: Sequence[Section] = ()  # of the mechanism, about its public files
    exposure: Uniqueness | None = None
    has_records: bool = False
    not_counted: str = ""  # why there is no exposure, where records are too many
    typical: Sequence[Typical] = ()
    labels: Labels = field(default_factory=dict)
    validity: Validity | None = None
    shown: tuple[TransparencyRow, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)  # the file of each table


def public_report(report: ReleaseReport) -> str:
    """Return the edition that may be published as far as the specification says."""
    body = [
        _head(report, internal=False),
        first_screen(report),
        pipeline_section(report.plan.specification, publishes_fixed=report.plan.publishes_fixed),
        learned_section(report.plan.specification),
        _own(report),
        _checks(report),
        _tables(report),
        faces_section(report.validity, report.shown),
        _conditions(report),
        _safes(report, internal=False),
        embedded(public_facts(report)),
    ]
    return page(_title(report), body, seeded=report.seeded)


def internal_report(report: ReleaseReport) -> str:
    """Return the edition for the agency: the public one, and before and after with errors."""
    body = [
        _head(report, internal=True),
        first_screen(report),
        pipeline_section(report.plan.specification, publishes_fixed=report.plan.publishes_fixed),
        *(_section(own, report) for own in report.inside),
        learned_section(report.plan.specification),
        _doubts(report),
        _accuracy(report),
        _own(report),
        _checks(report),
        faces_section(report.validity, report.shown),
        _conditions(report),
        _safes(report, internal=True),
    ]
    return page(f"{_title(report)} (internal)", body, seeded=report.seeded)


def _title(report: ReleaseReport) -> str:
    return f"{NOTHING}: {report.title}" if protects_nothing(report.plan) else report.title


def _safes(report: ReleaseReport, *, internal: bool) -> str:
    specification = report.plan.specification
    return "" if report.safes is None else safes_section(report.safes, specification, internal=internal)


def _head(report: ReleaseReport, *, internal: bool) -> str:
    stamp = INTERNAL_STAMP if internal else PUBLIC_STAMP
    mechanism = report.mechanism
    many = "" if report.records is None else f"{number(report.records, records_of(mechanism.unit, 1))}, "
    title = mechanism.title if many else mechanism.title.capitalize()
    lead = f"{many}{title}{' of ' if mechanism.areas else ''}{', '.join(mechanism.areas)}."
    red = " class=nothing" if protects_nothing(report.plan) else ""
    return f'{stamp}<h1{red}>{escape(_title(report))}</h1><p class="lead">{escape(lead)} {escape(report.made)}</p>'


def _own(report: ReleaseReport) -> str:
    """Return the sections of the mechanism."""
    own = [*report.published, *report.mechanism.sections(report.plan)]
    return "".join(_section(each, report) for each in own)


def _section(own: Section, report: ReleaseReport) -> str:
    return section(own.title, *(_block(block, own.title, report.labels) for block in own.blocks))


def _block(block: Block, caption: str, labels: Labels) -> str:
    if isinstance(block, Grid):
        named = [labels.get(name, {}) for name in block.header]
        rows = [[own.get(str(value)) or value for value, own in zip(row, named, strict=True)] for row in block.rows]
        return _long(block.header, rows, numbers=block.numbers, caption=caption)
    return paragraph(block) if isinstance(block, str) else picture(block)


def _checks(report: ReleaseReport) -> str:
    text = "After writing, the files were read again and compared with the confidential input."
    checks = table(["what", "cells", "result"], report.checks, caption="Checks")
    return section("Verified on the files as written", paragraph(text), checks)


def _tables(report: ReleaseReport) -> str:
    if not report.tables:
        return ""
    parts = [
        f"<h3>{escape(name)}</h3>{_first_rows(frame, name, everything=report.places[name])}"
        for name, frame in report.tables.items()
    ]
    reading = [paragraph(text.replace("`", "")) for text in report.mechanism.reading_tables(report.plan)]
    return section("Tables", *reading, *parts)


def _first_rows(frame: pl.DataFrame, caption: str, *, everything: str) -> str:
    """Return a frame as a table; where it is long its first rows, and where all of them are."""
    shown = _long(frame.columns, frame.head(_ROWS_SHOWN).rows(), caption=caption)
    if frame.height <= _ROWS_SHOWN:
        return shown
    told = f"Showing the first {_ROWS_SHOWN} of {frame.height:,} rows; all are in {everything}."
    return shown + paragraph(told, note=True)


def _long(header: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = (), caption: str) -> str:
    """Return a table, folded where it is long."""
    shown = table(header, rows, numbers=numbers, caption=caption)
    return shown if len(rows) <= _ROWS_OPEN else folded(f"{len(rows)} rows", shown)


def _doubts(report: ReleaseReport) -> str:
    if not report.doubts:
        return ""
    state = dict.fromkeys(report.accepted, " (accepted)")
    return section("Doubts", bullets([f"{each.name}{state.get(each.name, '')}: {each}" for each in report.doubts]))


def _accuracy(report: ReleaseReport) -> str:
    if not report.accuracy:
        return section("Before and after", paragraph("No table was asked for, so none is compared."))
    parts = []
    for name, frame in report.accuracy.items():
        areas = [variable for variable in frame.columns if variable in report.mechanism.areas]
        parts.append(
            f"<h3>{escape(name)}</h3>"
            + _measured(report.measures[name], report.expected.get(name), report.corrected.get(name))
            + error_charts(frame, name=name, everything=_ALL_ERRORS)
            + "<p class=note>Cell by cell:</p>"
            + _first_rows(frame, f"{name}, cell by cell", everything=_ALL_ERRORS)
            + "<p class=note>By true size of the cell:</p>"
            + _by_size(by_cell_size(frame), of="cell")
        )
        if areas:
            parts.append(paragraph(f"By true size of the area ({' x '.join(areas)}):", note=True))
            parts.append(_by_size(by_area_size(frame, level=areas), of="area"))
    text = "Released counts beside the confidential truth. Publishing these errors would be a further disclosure."
    return section("Before and after", paragraph(text), *parts)


def _measured(found: Accuracy, expected: ExpectedError | None, corrected: Accuracy | None) -> str:
    after = [] if corrected is None else [corrected]
    before = [] if expected is None else [expected]
    header = [
        "measure",
        "this run",
        *(["expected before the run"] * len(before)),
        *(["after stirred unswap"] * len(after)),
    ]
    rows = [
        [words, format(getattr(found, name), form), *(_of(each, name, form) for each in before),
         *(format(getattr(each, name), form) for each in after)]
        for words, name, form in _MEASURES
    ]  # fmt: skip
    if found.association_true is not None and found.association_released is not None:
        kept = f"{found.association_released:.4f} of {found.association_true:.4f}"
        rows.append(["association with the area kept (Cramér's V)", kept, *[""] * (len(header) - 2)])
    return table(header, rows, numbers=header[1:], caption="Measures of accuracy")


def _of(expected: ExpectedError, name: str, form: str) -> str:
    if not hasattr(expected, name):
        return ""
    return "exact" if expected.exact else format(float(getattr(expected, name)), form)


def _by_size(classes: pl.DataFrame, *, of: str) -> str:
    rows = [
        [_class(row["from"]), row["cells"], f"{row['bias']:.4g}", f"{row['mean_absolute_error']:.4g}"]
        for row in classes.iter_rows(named=True)
    ]
    header = [of, "cells", "bias", "mean absolute error"]
    return table(header, rows, numbers=header[2:], caption=f"Errors by true size of the {of}")


def _class(start: int) -> str:
    end = next((larger - 1 for larger in CELL_CLASSES if larger > start), None)
    if end is None:
        return f"{start:,} and more"
    return f"{start:,}" if end == start else f"{start:,} to {end:,}"


def _conditions(report: ReleaseReport) -> str:
    specification = report.plan.specification
    lead = "What is said holds" if protects_nothing(report.plan) else "The promise holds"
    parts = []
    if specification.assumptions:
        parts += [paragraph(f"{lead} under these conditions:"), bullets(specification.assumptions)]
    if report.plan.dropped:
        parts.append(paragraph(f"Columns not released: {report.plan.dropped_in_short}."))
    if specification.theorem:
        parts.append(paragraph("The proofs are cited in specification.json, under theorem.", note=True))
    return section("Conditions of use", *parts) if parts else ""
