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
from stirred.mechanisms.protocol import Bars, Block, Curve, ExpectedError, Grid, Mechanism, Plan, Section
from stirred.report.charts import bars, loss_curve, share_bar
from stirred.report.learned import learned_section
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.report.pipeline import pipeline_section
from stirred.report.safes import SafesSheet, safes_section
from stirred.risk.exposed import exposed_in_words
from stirred.risk.uniqueness import Uniqueness, share_in_words
from stirred.spec.doubts import Doubt
from stirred.spec.explain import explain
from stirred.spec.invariant import records_of
from stirred.spec.specification import Specification
from stirred.utility.measures import CELL_CLASSES, Accuracy, by_area_size, by_cell_size

_ROWS_SHOWN = 40
PUBLIC_STAMP = '<span class="stamp">public edition</span>'
INTERNAL_STAMP = '<span class="stamp internal">internal: computed from confidential data, never publish</span>'

NOTHING: Final = "Nothing is promised about confidentiality"
_QUESTIONS: Final = {
    "who": "Who is eligible?",
    "where": "Where does it extend?",
    "what": "What is the unit?",
    "how": "How is change measured?",
    "how much": "How much may change?",
}


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
    exposure: Uniqueness | None = None


def public_report(report: ReleaseReport) -> str:
    """Return the edition that may be published as far as the specification says."""
    body = [_head(report, internal=False), first_screen(report.plan.specification)]
    body += [pipeline_section(report.plan.specification), _exposed(report)]
    body += [learned_section(report.plan.specification)]
    body += [_own(report), _checks(report), _tables(report), _conditions(report)]
    body.append(_safes(report, internal=False))
    return page(report.title, body, seeded=report.seeded)


def internal_report(report: ReleaseReport) -> str:
    """Return the edition for the agency: the public one, and before and after with errors."""
    body = [_head(report, internal=True), first_screen(report.plan.specification)]
    body += [pipeline_section(report.plan.specification), _exposed(report)]
    body += [
        *map(_section, report.inside),
        learned_section(report.plan.specification),
        _doubts(report),
        _accuracy(report),
        _own(report),
        _checks(report),
        _conditions(report),
    ]
    body.append(_safes(report, internal=True))
    return page(f"{report.title} (internal)", body, seeded=report.seeded)


def first_screen(specification: Specification) -> str:
    """Return the five answers, the invariants first."""
    words = explain(specification)
    fixed = "".join(f"<li>{escape(item)}</li>" for item in words.not_protected)
    big = {"how much": f'<span class="big">{escape(specification.budget_text)}</span><br>'}
    cards = "".join(
        f"<div><b>{_QUESTIONS[a.question]}</b>{big.get(a.question, '')}<span>{escape(a.answer)}</span></div>"
        for a in words.answers
    )
    return (
        f'<div class="open"><h2>Not protected, because it is published exactly</h2><ul>{fixed}</ul></div>'
        f'<div class="five">{cards}</div>'
        f"<p>{escape(words.how_to_read)}</p><p class=note>{escape(words.why_not_compare.replace('`', ''))}</p>"
        f"<p class=note>Notation: <code>{escape(specification.notation)}</code></p>"
    )


def _exposed(report: ReleaseReport) -> str:
    """Return how many records are alone with what is published exactly: a function of what is published."""
    found = report.exposure
    if found is None:
        return ""
    text = f"{exposed_in_words(found)[:1].upper()}{exposed_in_words(found)[1:]}. "
    if found.unique:
        text += "Whoever knows these values of one of them finds its record in the release."
    rows = [[label, count, share_in_words(count, found.records)] for label, count in found.bands]
    return section(
        "How exposed people are",
        paragraph(text),
        share_bar(found.bands, title="How many records have the same values"),
        table(["with what is published unchanged", found.of, "share"], rows, numbers=["share"]),
    )


def _safes(report: ReleaseReport, *, internal: bool) -> str:
    specification = report.plan.specification
    return "" if report.safes is None else safes_section(report.safes, specification, internal=internal)


def _head(report: ReleaseReport, *, internal: bool) -> str:
    stamp = INTERNAL_STAMP if internal else PUBLIC_STAMP
    mechanism = report.mechanism
    many = "" if report.records is None else f"{number(report.records, records_of(mechanism.unit, 1))}, "
    title = mechanism.title if many else mechanism.title.capitalize()
    lead = f"{many}{title}{' of ' if mechanism.areas else ''}{', '.join(mechanism.areas)}."
    nothing = f'<h1 class="nothing">{NOTHING}</h1>' if report.plan.specification.budget.is_unbounded else ""
    return f'{stamp}{nothing}<h1>{escape(report.title)}</h1><p class="lead">{escape(lead)} {escape(report.made)}</p>'


def _own(report: ReleaseReport) -> str:
    """Return the sections of the mechanism."""
    return "".join(map(_section, report.mechanism.sections(report.plan)))


def _section(own: Section) -> str:
    return section(own.title, *map(_block, own.blocks))


def _block(block: Block) -> str:
    if isinstance(block, Grid):
        return table(block.header, block.rows, numbers=block.numbers)
    if isinstance(block, Bars):
        return bars(block)
    return loss_curve(block) if isinstance(block, Curve) else paragraph(block)


def _checks(report: ReleaseReport) -> str:
    text = "After writing, the files were read again and compared with the confidential input."
    checks = table(["what", "cells", "result"], report.checks)
    return section("Verified on the files as written", paragraph(text), checks)


def _tables(report: ReleaseReport) -> str:
    if not report.tables:
        return ""
    parts = [f"<h3>{escape(name)}</h3>{_first_rows(frame)}" for name, frame in report.tables.items()]
    reading = [paragraph(text.replace("`", "")) for text in report.mechanism.reading_tables(report.plan)]
    return section("Tables", *reading, *parts)


def _first_rows(frame: pl.DataFrame) -> str:
    """Return a frame as a table; where it is long its first rows, and that there are more."""
    shown = table(frame.columns, frame.head(_ROWS_SHOWN).rows())
    if frame.height <= _ROWS_SHOWN:
        return shown
    return shown + paragraph(f"{frame.height:,} rows; the first {_ROWS_SHOWN} are shown.", note=True)


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
            + "<p class=note>Cell by cell:</p>"
            + _first_rows(frame)
            + "<p class=note>By true size of the cell:</p>"
            + _by_size(by_cell_size(frame), of="cell")
        )
        if areas:
            parts.append(paragraph(f"By true size of the area ({' x '.join(areas)}):", note=True))
            parts.append(_by_size(by_area_size(frame, level=areas), of="area"))
    text = "Released counts beside the confidential truth. Publishing these errors would be a further disclosure."
    return section("Before and after", paragraph(text), *parts)


def _measured(found: Accuracy, expected: ExpectedError | None, corrected: Accuracy | None) -> str:
    def shown(of: Accuracy) -> list[str]:
        return [
            f"{of.mean_absolute_error:.4g}",
            f"{100 * of.mean_absolute_percentage_error:.2f}%",
            f"{of.root_mean_square_error:.4g}",
            f"{of.l1:,.0f}",
            f"{of.total_variation:.4g}",
            f"{100 * of.within_5_percent:.1f}%",
        ]

    columns = {
        "measure": [
            "mean absolute error",
            "mean absolute percentage error, non-empty cells",
            "root mean square error",
            "L1 distance",
            "total variation",
            "cells within 5% of the truth",
        ],
        "this run": shown(found),
        "expected before the run": [
            _of(expected, "mean_absolute_error"),
            _of(expected, "mean_absolute_percentage_error", percent=True),
            _of(expected, "root_mean_square_error"),
            *[""] * 3,
        ],
    }
    if corrected is not None:
        columns["after stirred unswap"] = shown(corrected)
    rows: list[list[object]] = [list(row) for row in zip(*columns.values(), strict=True)]
    if found.association_true is not None and found.association_released is not None:
        kept = f"{found.association_released:.4f} of {found.association_true:.4f}"
        row = ["association with the area kept (Cramér's V)", kept]
        rows.append([*row, *[""] * (len(columns) - len(row))])
    return table(list(columns), rows, numbers=list(columns)[1:])


def _of(expected: ExpectedError | None, name: str, *, percent: bool = False) -> str:
    if expected is None:
        return ""
    if expected.exact:
        return "exact"
    value = float(getattr(expected, name))
    return f"{100 * value:.2f}%" if percent else f"{value:.4g}"


def _by_size(classes: pl.DataFrame, *, of: str) -> str:
    rows = [
        [_class(row["from"]), row["cells"], f"{row['bias']:.4g}", f"{row['mean_absolute_error']:.4g}"]
        for row in classes.iter_rows(named=True)
    ]
    return table([of, "cells", "bias", "mean absolute error"], rows, numbers=["bias", "mean absolute error"])


def _class(start: int) -> str:
    end = next((larger - 1 for larger in CELL_CLASSES if larger > start), None)
    if end is None:
        return f"{start:,} and more"
    return f"{start:,}" if end == start else f"{start:,} to {end:,}"


def _conditions(report: ReleaseReport) -> str:
    specification = report.plan.specification
    lead = "What is said holds" if specification.budget.is_unbounded else "The promise holds"
    parts = [paragraph(f"{lead} under these conditions:"), bullets(specification.assumptions)]
    if report.plan.dropped:
        parts.append(paragraph(f"Columns not released: {', '.join(report.plan.dropped)}."))
    parts.append(paragraph("The proofs are cited in specification.json, under theorem.", note=True))
    return section("Conditions of use", *parts)
