"""The first screen of every report: what is not protected, and the five questions answered in words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stirred.spec.explain import explain
from stirred.spec.specification import Specification

_QUESTIONS = {
    "who": "Who is eligible?",
    "where": "Where does it extend?",
    "what": "What is the unit?",
    "how": "How is change measured?",
    "how much": "How much may change?",
}


def first_screen(specification: Specification, *, besides: Sequence[str] = ()) -> str:
    """Return the five answers, the invariants first, and what is published exactly ``besides``."""
    words = explain(specification)
    *first, rest = words.not_protected
    fixed = "".join(f"<li>{escape(item)}</li>" for item in (*first, *besides, rest))
    cards = "".join(
        f"<div><b>{_QUESTIONS[a.question]}</b>{_answer(a.question, a.answer, specification)}</div>"
        for a in words.answers
    )
    return (
        f'<div class="open"><h2>Not protected, because it is published exactly</h2><ul>{fixed}</ul></div>'
        f'<div class="five">{cards}</div>'
        f"<p>{escape(words.how_to_read)}</p><p class=note>{escape(words.why_not_compare.replace('`', ''))}</p>"
        f"<p class=note>Notation: <code>{escape(specification.notation)}</code></p>"
    )


def _answer(question: str, answer: str, specification: Specification) -> str:
    if question != "how much":
        return f"<span>{escape(answer)}</span>"
    return f'<span class="big">{escape(specification.budget_text)}</span><br><span>{escape(answer)}</span>'
