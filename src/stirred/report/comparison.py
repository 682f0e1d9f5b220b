"""Swaps side by side on one page: a table and a plot, so that a choice is a look."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stirred.inference.learned import what_could_be_learned
from stirred.report.charts import areas_changed
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.spec.compare import compare
from stirred.utility.comparison import Compared

_MOST_POINTS = 2_000
_PROTECTED = "not shown: protected"

_CONFIDENTIAL = (
    "The errors are from the confidential file and do not: choosing settings by them voids the guarantee; use an "
    "earlier census or the synthetic one."
)


def rests_on(found: Sequence[Compared], *, source: str) -> str:
    """Say what the numbers follow from, and that errors do not, where there are any from the file itself."""
    text = "Losses and shares follow from the invariants of each swap."
    if not any(each.errors for each in found):
        return text
    chance = "Errors are those of chance alone; the bias comes on top."
    return f"{text} {_CONFIDENTIAL if source == 'this-data' else chance}"


def rows(found: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table: one swap a row."""
    tables = list(dict.fromkeys(name for each in found for name, _ in each.errors))
    header = ["swap", "setting", "ε", "records changed", "in the smallest area", *(f"error, {name}" for name in tables)]
    return header, [_row(each, tables) for each in found]


def _row(each: Compared, tables: Sequence[str]) -> list[str]:
    smallest, changed = each.smallest_area, each.changed
    errors = dict(each.errors)
    return [
        each.name,
        each.setting,
        each.epsilon.shown(),
        _PROTECTED if changed is None else f"{100 * changed:.2f}%",
        _PROTECTED if smallest is None else f"{100 * smallest[2]:.1f}% of {smallest[1]:,} ({smallest[0]})",
        *(
            f"{100 * errors[name].mean_absolute_percentage_error:.2f}%" if name in errors else "not computed"
            for name in tables
        ),
    ]


def block_by_block(found: Sequence[Compared]) -> list[str]:
    """Return for each swap after the first how its specification stands to the first one's."""
    first = found[0]
    lines = []
    for other in found[1:]:
        seen = compare(other.plan.specification, first.plan.specification)
        differing = [f"{b.block}: {b.verdict} ({b.reason})" for b in seen.blocks if b.verdict != "equal"]
        lines.append(f"{other.name} beside {first.name}: {'; '.join(differing) or 'equal in all five blocks'}")
    return lines


def _learned(found: Sequence[Compared]) -> list[str]:
    """Return for each swap what could be learned about one unit."""
    told = [(each.name, what_could_be_learned(each.plan.specification)) for each in found]
    return [f"{name}: {seen.rows[0].words if seen.rows else seen.refused}" for name, seen in told]


def comparison_page(title: str, found: Sequence[Compared], *, source: str) -> str:
    """Return the page."""
    header, body = rows(found)
    most = max((each.areas.height for each in found if each.areas is not None), default=0)
    left_out = f" The first {_MOST_POINTS:,} of {most:,} combinations are shown." if most > _MOST_POINTS else ""
    points = [
        {"swap": each.name, "records": records, "share": share}
        for each in found
        if each.areas is not None
        for records, share in each.areas.select("records", "share_changed").head(_MOST_POINTS).iter_rows()
    ]
    return page(
        title,
        [
            f"<h1>{escape(title)}</h1>",
            section("Side by side", paragraph(rests_on(found, source=source)), table(header, body)),
            section(
                "Who is changed",
                paragraph("Each point is one combination of swap values: how many records it has, and which share of "
                          "them is expected to change it. Small areas are where the swaps differ most."
                          + left_out),
                areas_changed(points),
            ),
            section("What could be learned", paragraph("About one unit, at most; more about groups of them."),
                    bullets(_learned(found))),
            section("The promises, block by block", bullets(block_by_block(found)) if len(found) > 1 else ""),
        ],
    )  # fmt: skip
