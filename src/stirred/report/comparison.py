"""Plans side by side on one page: a table and a plot, so that a choice is a look."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stirred.data.uniqueness import share_in_words
from stirred.inference.learned import what_could_be_learned
from stirred.mechanisms.protocol import Bars, Plot
from stirred.report.charts import bars, plot
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.risk.attacks import PlanRisk, vulnerable_in_words
from stirred.risk.reidentification import VULNERABLE
from stirred.spec.comparison import compare
from stirred.spec.explanation import blocks
from stirred.utility.comparison import MechanismComparison

_MOST_POINTS = 2_000
_PROTECTED = "not shown: protected"

_CONFIDENTIAL = (
    "The errors are from the confidential file and do not: choosing settings by them voids the guarantee; use an "
    "earlier census or the synthetic one."
)


INSIDE = (
    "CONFIDENTIAL: attacks and errors are estimates from one test draw of each plan, compared with the confidential "
    "file. Keep this inside. Nothing was spent, and nothing of the draws is kept. Choosing settings by these numbers "
    "voids the guarantee."
)
NOT_RANKED = (
    "Losses are not ranked: they compare only where the other four answers are equal. What an attacker can do is "
    "measured in the same way for all."
)


def rests_on(found: Sequence[MechanismComparison], *, source: str) -> str:
    """Say what the numbers follow from, and that errors do not, where there are any from the file itself."""
    text = "Losses and shares follow from the settings and the invariants of each plan."
    if not any(each.errors for each in found):
        return text
    chance = "Errors are those of chance alone; the bias comes on top."
    return f"{text} {_CONFIDENTIAL if source == 'this-data' else chance}"


def rows(found: Sequence[MechanismComparison]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table: one plan a row."""
    tables = list(dict.fromkeys(name for each in found for name, _ in each.errors))
    header = ["plan", "setting", "loss", "records changed", "in the smallest area"]
    header += [f"error, {name}" for name in tables]
    return header, [_row(each, tables) for each in found]


def _row(each: MechanismComparison, tables: Sequence[str]) -> list[str]:
    smallest, changed = each.smallest_area, each.changed
    errors = dict(each.errors)
    return [
        each.name,
        each.setting,
        each.plan.specification.budget_text,  # with its letter: losses in different currencies stand side by side
        _PROTECTED if changed is None else f"{100 * changed:.2f}%",
        _PROTECTED if smallest is None else f"{100 * smallest[2]:.1f}% of {smallest[1]:,} ({smallest[0]})",
        *(
            f"{100 * errors[name].mean_absolute_percentage_error:.2f}%" if name in errors else "not computed"
            for name in tables
        ),
    ]


def promises(found: Sequence[MechanismComparison]) -> list[list[str]]:
    """Return the five blocks, one a row, one column for each plan."""
    each = [blocks(one.plan.specification) for one in found]
    return [[question, *(dict(own)[question] for own in each)] for question, _ in each[0]]


def risks(faced: Sequence[PlanRisk]) -> list[list[str]]:
    """Return whom plans expose and what attacks found, one measure a row, one column for each plan."""
    lines = [
        ["unique on what is exact", *(_unique(each) for each in faced)],
        ["told by exact tables alone", *(_revealed(each) for each in faced)],
    ]
    if all(each.drawn is None for each in faced):
        return lines
    lines += [
        [label, *(_reconstructed(each, measure) for each in faced)]
        for label, measure in (
            ("areas with one solution", "share_of_areas_with_one_solution"),
            ("persons who are certain, at least", "share_of_persons_certain"),
            ("reconstructed persons who are right", "agreement"),
            ("the same by chance", "agreement_by_chance"),
        )
    ]
    lines.append(["reidentified, vulnerable persons", *(_reidentified(each) for each in faced)])
    titles = dict.fromkeys(title for each in faced if each.drawn is not None for title in each.drawn.errors)
    return lines + [[f"mean absolute error, {title}", *(_error(each, title) for each in faced)] for title in titles]


def _unique(each: PlanRisk) -> str:
    found = each.unique
    return "no table of records is exact" if found is None else f"{found.share_unique} of the {found.of}"


def _revealed(each: PlanRisk) -> str:
    found = each.revealed
    return "nothing" if found is None else f"{share_in_words(found.at_least, found.records)} of what was exchanged"


def _reconstructed(each: PlanRisk, measure: str) -> str:
    found = None if each.drawn is None else each.drawn.reconstruction
    if found is None:
        return _why(each)
    return "no other area" if found[measure] is None else f"{found[measure]:.1%}"


def _reidentified(each: PlanRisk) -> str:
    found = None if each.drawn is None else each.drawn.reidentified
    if found is None or each.drawn is None:
        return _why(each)
    return vulnerable_in_words(found) + (", in the released records" if each.drawn.in_records else "")


def _why(each: PlanRisk) -> str:
    return f"not measured: {'' if each.drawn is None else each.drawn.why_not}"


def _error(each: PlanRisk, title: str) -> str:
    error = None if each.drawn is None else each.drawn.errors.get(title)
    return "not published" if error is None else f"{error:.3g}"


def _picture(found: Sequence[MechanismComparison], faced: Sequence[PlanRisk]) -> str:
    """Return one picture: for each plan who is alone, who is certain, and how often attacks are right."""
    heights: list[tuple[str, str, float | None]] = []
    for plan, each in zip(found, faced, strict=True):
        if each.unique is not None:
            heights.append(("unique on what is exact", plan.name, each.unique.unique / max(each.unique.records, 1)))
        if each.drawn is not None and (rebuilt := each.drawn.reconstruction) is not None:
            heights.append(("reconstructed, right", plan.name, rebuilt["agreement"]))
            heights.append(("the same by chance", plan.name, rebuilt["agreement_by_chance"]))
        if each.drawn is not None and (matched := each.drawn.reidentified) is not None:
            heights.append(("vulnerable, right", plan.name, matched[VULNERABLE].precision))
    order = {group: None for group, _, _ in heights}
    # What was not measured is no bar: one of 0 would say that the attack is never right.
    kept = tuple(
        (*each[:2], each[2]) for group in order for each in heights if each[0] == group and each[2] is not None
    )
    return bars(Bars(bars=kept, x="", y="share")) if kept else ""


def block_by_block(found: Sequence[MechanismComparison]) -> list[str]:
    """Return for each swap after the first how its specification stands to the first one's."""
    first = found[0]
    lines = []
    for other in found[1:]:
        seen = compare(other.plan.specification, first.plan.specification)
        differing = [f"{b.block}: {b.verdict} ({b.reason})" for b in seen.blocks if b.verdict != "equal"]
        lines.append(f"{other.name} beside {first.name}: {'; '.join(differing) or 'equal in all five blocks'}")
    return lines


def _learned(found: Sequence[MechanismComparison]) -> list[str]:
    """Return for each swap what could be learned about one unit."""
    told = [(each.name, what_could_be_learned(each.plan.specification)) for each in found]
    return [f"{name}: {seen.rows[0].words if seen.rows else seen.refused}" for name, seen in told]


def comparison_page(
    title: str, found: Sequence[MechanismComparison], *, source: str, faced: Sequence[PlanRisk] = ()
) -> str:
    """Return the page; ``faced`` is what each plan leaves to an attacker, in the order of the plans."""
    names = ["", *(each.name for each in found)]
    drawn = any(each.drawn is not None for each in faced)
    risk = [
        section("The promises", paragraph(NOT_RANKED), table(names, promises(found))),
        section("What an attacker can do", paragraph(INSIDE) if drawn else "", table(names, risks(faced)),
                _picture(found, faced)),
    ] if faced else []  # fmt: skip
    header, body = rows(found)
    most = max((each.areas.height for each in found if each.areas is not None), default=0)
    left_out = f" The first {_MOST_POINTS:,} of {most:,} combinations are shown." if most > _MOST_POINTS else ""
    points = [
        (each.name, records, share)
        for each in found
        if each.areas is not None
        for records, share in each.areas.select("records", "share_changed").head(_MOST_POINTS).iter_rows()
    ]
    return page(
        title,
        [
            f"<h1>{escape(title)}</h1>",
            *risk,
            section("Side by side", paragraph(rests_on(found, source=source)), table(header, body)),
            "" if not points else section(
                "Who is changed",
                paragraph("Each point is one combination of swap values: how many records it has, and which share of "
                          "them is expected to change it. Small areas are where the swaps differ most."
                          + left_out),
                plot(Plot(points=tuple(points), x="records in the area", y="share changed", log="x", percent=True)),
            ),
            section("What could be learned", paragraph("About one unit, at most; more about groups of them."),
                    bullets(_learned(found))),
            section("The promises, block by block", bullets(block_by_block(found)) if len(found) > 1 else ""),
        ],
    )  # fmt: skip
