"""The first screen of a report: three sentences and a picture; then the five answers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from stirred.data.problems import number
from stirred.data.uniqueness import exposed_in_words, share_in_words
from stirred.mechanisms.protocol import Bars, Plan, Typical
from stirred.report.charts import bars, share_bar
from stirred.report.page import bullets, folded, paragraph, section, table
from stirred.spec.explanation import NOT_BESIDE, NOT_PROTECTED, WHY_NOT_BESIDE, explain, why_nothing
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.report.release import ReleaseReport

_QUESTIONS: Final = {
    "who": "Who is eligible?",
    "where": "Where does it extend?",
    "what": "What is the unit?",
    "how": "How is change measured?",
    "how much": "How much may change?",
}
_OFF: Final = "How far off published counts are"
_FROM_LAW: Final = "The root of the expected squared error, by the law of the mechanism and the published files alone."
_WHOLE: Final = 10  # errors from here on are said in whole numbers
_MOST_BARS: Final = 8


def protects_nothing(plan: Plan) -> bool:
    """Say whether a release protects nobody: the loss has no bound, or is 0 because nothing can move."""
    return bool(why_nothing(plan.specification)) or plan.moved == 0


def first_screen(report: ReleaseReport) -> str:
    """Return three sentences and a picture (what leaves unchanged, what was disturbed, who is exposed); the answers."""
    head = report.mechanism.headline(report.plan)
    parts = [
        paragraph(head.unchanged),
        folded(NOT_PROTECTED.capitalize(), bullets(explain(report.plan.specification).not_protected)),
        paragraph(" ".join([head.disturbed, *map(_typically, report.typical[:1])])),
        _by_size(report.typical),
        paragraph(_exposed(report)),
        _picture(report),
    ]
    three = f'<section class="open"><h2>In three sentences</h2>{"".join(parts)}</section>'
    return three + section("What is promised, in five answers", _answers(report.plan.specification))


def _typically(one: Typical) -> str:
    of = f"A published count of {one.size} ({one.table})"
    if one.at_least:
        return (
            f"{of} is typically off by at least {_amount(one.error)}; by the part of the error that is known here, "
            f"nine in ten are off by at most {_amount(one.within)}."
        )
    return f"{of} is typically off by {_amount(one.error)}, nine in ten by at most {_amount(one.within)}."


def _amount(error: float) -> str:
    if error < _WHOLE:
        return f"{error:.2g}"
    # A whole number, with the digits that the facts of the page have: programs and readers see the same.
    return f"{error:,}" if isinstance(error, int) else f"{float(f'{error:.4g}'):,.0f}"


def _by_size(typical: Sequence[Typical]) -> str:
    if not typical[1:]:
        return ""
    header = ["table", "published count", "cells", "typical error", "nine in ten within"]
    rows = [
        [e.table, e.size, e.cells or "", "at least " * e.at_least + _amount(e.error), _amount(e.within)]
        for e in typical
    ]  # fmt: skip
    shown = table(header, rows, numbers=header[2:], caption=_OFF)
    return folded("How far off counts are, by table and size", paragraph(_FROM_LAW, note=True), shown)


def _exposed(report: ReleaseReport) -> str:
    """Say how many records are alone with what is published exactly: a function of what is published."""
    found, specification = report.exposure, report.plan.specification
    if found is None and report.not_counted:
        return f"How many records are unique on what is published unchanged: {report.not_counted}."
    if found is None:
        promised = "nothing" if protects_nothing(report.plan) else specification.budget_text
        about = f"for one {specification.input_premetric.unit} {promised} is promised (see below)"
        return f"Nobody can be looked up by values that are published exactly; {about}."
    if not found.unique:
        shared = f"each shares it with at least {number(found.k - 1, 'other')}"
        return f"None of the {found.of} is unique on what is published unchanged ({found.named}): {shared}."
    # A record with exchanged values may be another's, and of tables alone there is no record to be found.
    own = report.has_records and not {*found.keys} & {*report.mechanism.areas}
    finds = "whoever knows these values of one of them finds its record in the release"
    return f"{exposed_in_words(found)}: {finds if own else 'each of them is a count of 1 in an exact table'}."


def _picture(report: ReleaseReport) -> str:
    """Return how many records share what is published exactly, or where no table is exact, how far off counts are."""
    found = report.exposure
    if found is None:
        named = [(e.table if e.size == "any size" else f"{e.table}, {e.size}", e) for e in report.typical[:_MOST_BARS]]
        both = [((name, "typical error", e.error), (name, "nine in ten within", e.within)) for name, e in named]
        more = f" (first {_MOST_BARS})" * (len(report.typical) > _MOST_BARS)
        return bars(Bars(bars=tuple(bar for pair in both for bar in pair), x="", y=_OFF + more)) if both else ""
    rows = [[label, count, share_in_words(count, found.records)] for label, count in found.bands]
    told = f"{found.of.capitalize()} by how many others have the same values in what is published unchanged"
    shown = table(["with what is published unchanged", found.of, "share"], rows, numbers=["share"], caption=told)
    parts = [(f"{label} ({share})", count) for (label, count), (*_, share) in zip(found.bands, rows, strict=True)]
    drawn = share_bar(parts, title=told)
    return paragraph(f"{told}:", note=True) + drawn + folded("The same in numbers", shown)


def five_answers(specification: Specification) -> str:
    """Return what is not protected, and the five answers: for pages that are not about one bundle."""
    fixed = bullets(explain(specification).not_protected)
    return f'<div class="open"><h2>{NOT_PROTECTED.capitalize()}</h2>{fixed}</div>{_answers(specification)}'


def _answers(specification: Specification) -> str:
    words, loss = explain(specification), specification.budget_text
    big = {"how much": f'<span class="big">{escape(loss)}</span><br>'}
    cards = "".join(
        f"<div><b>{_QUESTIONS[a.question]}</b>{big.get(a.question, '')}<span>{escape(a.below)}</span></div>"
        for a in words.answers
    )
    notation = f"<p class=note>Notation: <code>{escape(specification.notation)}</code></p>"
    because = f"{WHY_NOT_BESIDE[:1].upper()}{WHY_NOT_BESIDE[1:]}"
    why = folded(NOT_BESIDE, paragraph(because, note=True), notation)
    return f'<div class="five">{cards}</div>{paragraph(words.how_to_read)}{why}'
