"""The report of a swap, in two editions: public, and internal with accuracy against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape

import polars as pl

from stirred.data.problems import number
from stirred.mechanisms.swapping.moments.class_laws import WITH_MOMENTS
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.report.charts import epsilon_curve
from stirred.report.five import first_screen
from stirred.report.noisy import noise_section, reading_noise, sizes_section
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.report.safes import SafesSheet, safes_section
from stirred.spec.budget import Derived
from stirred.spec.swap_budget import psa_sharp_epsilon, smallest_psa_epsilon, smallest_psa_rate
from stirred.utility.expected import ExpectedError
from stirred.utility.measures import CELL_CLASSES, Accuracy, by_area_size, by_cell_size

_ROWS_SHOWN = 40
PUBLIC_STAMP = '<span class="stamp">public edition</span>'
INTERNAL_STAMP = '<span class="stamp internal">internal: computed from confidential data, never publish</span>'


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwapReport:
    """What a report shows. ``accuracy`` and ``warnings`` look at the confidential file and belong inside only."""

    title: str
    mechanism: Swap
    plan: SwapPlan
    checks: Sequence[tuple[str, int, str]]
    tables: Mapping[str, pl.DataFrame]
    records: int
    seeded: bool
    made: str
    accuracy: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    measures: Mapping[str, Accuracy] = field(default_factory=dict)
    expected: Mapping[str, ExpectedError] = field(default_factory=dict)
    corrected: Mapping[str, Accuracy] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    safes: SafesSheet | None = None


NOTHING_SWAPPED = "Nothing was swapped: every count is exact, and the file is published as it is."


def nothing_swapped(plan: SwapPlan) -> bool:
    """Say whether a plan leaves every record as it is, by its rate or because there is nothing to exchange."""
    return plan.perturbed is None and (plan.strata.largest_live is None or plan.strata.moved == 0)


def published_as_they_are(plan: SwapPlan, mechanism: Swap) -> list[str]:
    """Say how many records no swap can change, where the invariants tell which these are."""
    count, every = plan.strata.exact_records, sum(stratum.records for stratum in plan.strata.table)
    if not count or not mechanism.releases_records or plan.perturbed is not None:
        return []
    lie = "lies" if count == 1 else "lie"
    return [
        f"everything about {number(count, 'record')} ({100 * count / every:.2g}% of all), which {lie} in strata with "
        "nothing to swap: strata.parquet tells which strata these are"
    ]


def moved_in_words(plan: SwapPlan, mechanism: Swap) -> str:
    """Say how many records are expected to get other values, or that saying it would tell of what is protected."""
    share = plan.strata.moved
    if share is None:
        return (
            "How many records move is not said: where rates follow hold and swap values together it depends on counts "
            "that are protected."
        )
    return f"About {100 * share:.1f}% of all records are expected to get {mechanism.moved_get}."


def correction_in_words(mechanism: Swap) -> str:
    """Return how a reader undoes the bias of tables, or nothing where there is no closed form for it."""
    if mechanism.stratum_law not in WITH_MOMENTS:
        return ""
    return (
        f"Tables that cross {', '.join(mechanism.swap)} with held variables are drawn towards independence. "
        "`stirred unswap TABLE.csv --bundle DIR --out FILE.csv` undoes this bias from the public files alone, with "
        "standard errors and intervals; the formula is in docs/theory/moments.md of stirred."
    )


def public_report(report: SwapReport) -> str:
    """Return the edition that may be published as far as the specification says."""
    body = [_head(report, internal=False), _first(report)]
    body += [_rate(report), _strata(report), _checks(report), _tables(report), _conditions(report)]
    body.append(_safes(report, internal=False))
    return page(report.title, body, seeded=report.seeded)


def internal_report(report: SwapReport) -> str:
    """Return the edition for the agency: the public one, and before and after with errors."""
    body = [_head(report, internal=True), _first(report)]
    body += [_warnings(report), _accuracy(report), _rate(report), _strata(report), _checks(report), _conditions(report)]
    body.append(_safes(report, internal=True))
    return page(f"{report.title} (internal)", body, seeded=report.seeded)


def _first(report: SwapReport) -> str:
    return first_screen(report.plan.specification, besides=published_as_they_are(report.plan, report.mechanism))


def _safes(report: SwapReport, *, internal: bool) -> str:
    specification = report.plan.specification
    return "" if report.safes is None else safes_section(report.safes, specification, internal=internal)


def _head(report: SwapReport, *, internal: bool) -> str:
    stamp = INTERNAL_STAMP if internal else PUBLIC_STAMP
    swapped = ", ".join(report.mechanism.swap)
    kind = report.mechanism.in_words.partition(":")[0].lower()
    lead = f"{report.records:,} {report.mechanism.unit} records, {kind} of {swapped}."
    return f'{stamp}<h1>{escape(report.title)}</h1><p class="lead">{escape(lead)} {escape(report.made)}</p>'


def _rate(report: SwapReport) -> str:
    strata = report.plan.strata
    if isinstance(report.mechanism, NoisySwap):
        return noise_section(report.mechanism, report.plan)
    if report.plan.perturbed is not None:
        return _losses(report, strata.largest_live.records if strata.largest_live else 0)
    if strata.largest_live is None:
        return section(
            "Rate and loss",
            paragraph(
                "No stratum has two different households in two different places: swapping changes nothing, and the "
                "loss of 0 is not protection. Everything in the file is published as it is."
            ),
        )
    size = strata.largest_live.records
    if nothing_swapped(report.plan):
        return section("Rate and loss", paragraph(f"{NOTHING_SWAPPED} Nothing is promised."))
    if not isinstance(report.mechanism, PermutationSwap) or strata.by_record is not None:
        return _losses(report, size)
    least = (float(smallest_psa_rate(size, bound="sharp")), float(smallest_psa_epsilon(size, bound="sharp")))
    # In large strata the smallest loss lies behind the last rate of the grid, and the curve bends down to it.
    grid = [Fraction(p, 200) for p in range(1, 200)]
    last = [rate for k in range(1, 30) if float(rate := 1 - Fraction(1, 200 * 2**k)) < least[0]]
    points = [(float(rate), float(strata.epsilon(rate))) for rate in (*grid, *last)]
    points += [least] if least[0] > points[-1][0] else []
    chosen = [
        (float(part.rate), float(psa_sharp_epsilon(part.rate, stratum=part.largest_stratum)))
        for part in strata.policy.strata
        if 0 < part.rate < 1 and part.largest_stratum
    ]
    moved = moved_in_words(report.plan, report.mechanism)
    summary = (
        f"The largest stratum with something to swap has {size:,} records. {moved} A smaller stratum would give a "
        "smaller number, but only because more is then published exactly."
    )
    explained = [paragraph(text) for text in (report.plan.why_this_number, report.plan.also_promised) if text]
    return section("Rate and loss", paragraph(summary), *explained, epsilon_curve(points, chosen=chosen, least=least))


_RATES = tuple(Fraction(n, 100) for n in (1, 5, 10, 20, 50, 80))


def _losses(report: SwapReport, size: int) -> str:
    """Return rate and loss of the other members, whose loss is not a function of the largest size alone."""
    text = (
        f"{report.mechanism.in_words} The largest stratum with something to swap has {size:,} records. "
        f"{moved_in_words(report.plan, report.mechanism)}"
    )
    rows = [[f"{100 * float(rate):g}%", e.shown()] for rate, e in report.mechanism.losses(report.plan, _RATES)]
    policy = report.plan.specification.budget.policy
    if report.plan.strata.by_record is not None and isinstance(policy, Derived):
        text += f" The loss is {policy.formula}. For comparison, the loss if one rate applied everywhere:"
    header = ["rate", "ε (relative to the invariants)"]
    by_rate = [table(header, rows, numbers=header)] if rows else []
    also = [paragraph(report.plan.also_promised)] if report.plan.also_promised else []
    return section("Rate and loss", paragraph(text), *also, *by_rate)


def _strata(report: SwapReport) -> str:
    strata = report.plan.strata
    if isinstance(report.mechanism, NoisySwap):
        return sizes_section(report.plan, shown=_ROWS_SHOWN)
    largest = strata.largest_first[:_ROWS_SHOWN]
    header = [*strata.match, "records", "something to swap", "rate", "expected share moved"]
    rows = [
        [*map(str, s.values), s.records, s.live, s.rate_shown, "" if share is None else f"{100 * share:.2f}%"]
        for s, share in largest
    ]
    count = f"{number(len(strata.table), 'stratum', 'strata')}, {len(strata.live):,} of them with something to swap."
    more = f" The {_ROWS_SHOWN} largest are shown." if len(strata.table) > _ROWS_SHOWN else ""
    return section("Strata", paragraph(count + more), table(header, rows, numbers=header[-2:]))


def _checks(report: SwapReport) -> str:
    text = "After writing, the files were read again and compared with the confidential input."
    checks = table(["what", "cells", "result"], report.checks)
    return section("Verified on the files as written", paragraph(text), checks)


def _tables(report: SwapReport) -> str:
    if not report.tables:
        return ""
    parts = []
    for name, frame in report.tables.items():
        shown = table(frame.columns, frame.head(_ROWS_SHOWN).rows())
        more = paragraph(f"{frame.height:,} rows; the first {_ROWS_SHOWN} are shown.", note=True)
        parts.append(f"<h3>{escape(name)}</h3>{shown}{more if frame.height > _ROWS_SHOWN else ''}")
    text = "Counted from the released records; each costs nothing beyond the release itself (post-processing)."
    if isinstance(report.mechanism, NoisySwap):
        return section("Tables", *map(paragraph, reading_noise(report.mechanism, report.plan)), *parts)
    undo = "" if nothing_swapped(report.plan) else correction_in_words(report.mechanism)
    return section("Tables", paragraph(text), *([paragraph(undo.replace("`", ""))] if undo else []), *parts)


def _warnings(report: SwapReport) -> str:
    return section("Warnings", bullets(report.warnings)) if report.warnings else ""


def _accuracy(report: SwapReport) -> str:
    if not report.accuracy:
        return section("Before and after", paragraph("No table was asked for, so none is compared."))
    parts = []
    for name, frame in report.accuracy.items():
        areas = [variable for variable in frame.columns if variable in report.mechanism.swap]
        parts.append(
            f"<h3>{escape(name)}</h3>"
            + _measured(report.measures[name], report.expected.get(name), report.corrected.get(name))
            + "<p class=note>Cell by cell:</p>"
            + table(frame.columns, frame.head(_ROWS_SHOWN).rows())
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


def _conditions(report: SwapReport) -> str:
    specification = report.plan.specification
    parts = [paragraph("The promise holds under these conditions:"), bullets(specification.assumptions)]
    if report.plan.dropped:
        parts.append(paragraph(f"Columns not released: {', '.join(report.plan.dropped)}."))
    parts.append(paragraph(f"Evidence: {'; '.join(specification.theorem)}.", note=True))
    return section("Conditions of use", *parts)
