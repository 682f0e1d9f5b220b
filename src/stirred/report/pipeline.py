"""The way of the data in a report: where the promise starts, what was done before, and what passes by the mechanism."""

from __future__ import annotations

from html import escape
from typing import Final

from stirred.report.page import paragraph, section
from stirred.spec.explanation import figures
from stirred.spec.specification import Specification

# What happens before a stage and is no part of the promise.
_BEFORE: Final = {
    "as-given": "What happened to the file before is not said.",
    "edited-file": "Answers were coded, edited and completed by imputation.",
    "sample": "The sample was drawn.",
    "responding": "The sample was drawn, and not everybody responded.",
}


def pipeline_section(specification: Specification, *, publishes_fixed: bool = True) -> str:
    """Return the pipeline of a release as a strip of boxes, from the specification and whether its fixed figures leave.

    It is an ordered list, so that it is read in order where nobody sees the arrows.
    """
    domain, boxes = specification.domain, []
    if domain.stage in _BEFORE:
        boxes.append(("before", "Not covered", _BEFORE[domain.stage]))
    boxes.append(("start", "The promise starts here", f"{domain.dataset}; {domain.stage_in_words}"))
    boxes += [
        ("step", "Prepared", f"{'the file' if column == '*' else column} {words}") for column, words in domain.prepared
    ]
    unit = specification.input_premetric.unit_in_words
    boxes.append(("step", "The mechanism", f"{specification.budget_text} for one {unit}"))
    fixed = [*figures(specification.flavor.effective_multiverse.invariants)]
    held = f"Published as it is, without protection: {'; '.join(fixed)}."
    by = held if fixed and publishes_fixed else "Nothing is published exactly."
    if fixed and not publishes_fixed:
        boxes.append(("step", "Kept inside", f"Held fixed and not protected, but not published: {'; '.join(fixed)}."))
    boxes.append(("exact" if by == held else "step", "Published", by))
    items = "".join(f'<li class="{kind}"><b>{title}</b><span>{escape(text)}</span></li>' for kind, title, text in boxes)
    return section(
        "From the data to the release",
        f'<ol class="pipeline" aria-label="Steps from the data to the release, in order">{items}</ol>',
        paragraph("What was done to the data before the start is not covered by the promise.", note=True),
    )
