"""The pages of a bundle, written for people: they must say what specification.json says."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final

from stirred.audit.findings import Findings
from stirred.spec.explain import explain
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification

# A budget as pages write it, such as ε=2.98.
_BUDGET: Final = re.compile(r"(?:ε|ρ²|μ|τ)=\w+(?:\.\w+)?")


def audit_pages(
    public: Path, specification: Specification, *, method: str | None, same_version: bool, found: Findings
) -> None:
    """Compare specification.md and report.html with the specification.

    ``method`` is the sentence that says what was done, where it is known. Pages by another version of stirred may
    have other words; of them the notation and the budgets are compared.
    """
    page = _text(public, "specification.md", found)
    if page is not None:
        lines = page.splitlines()
        title = lines[0].removeprefix("# ") if lines else ""
        stated = lines[2] if len(lines) > 2 and not lines[2].startswith("`") else ""
        written = to_markdown(specification, title=title, method=stated if method is None else method)
        _compare("specification.md", page, specification, same=page == written, whole=same_version, found=found)
    report = _text(public, "report.html", found)
    if report is not None:
        words = explain(specification)
        pieces = [*words.not_protected, *(answer.answer for answer in words.answers), words.how_to_read]
        shown = [f">{escape(specification.budget_text)}<", f"<code>{escape(specification.notation)}</code>"]
        same = all(piece in report for piece in (*shown, *map(escape, pieces)))
        _compare("report.html", report, specification, same=same, whole=same_version, found=found)


def _compare(name: str, text: str, specification: Specification, *, same: bool, whole: bool, found: Findings) -> None:
    place = f"public/{name}"
    others = sorted({*_BUDGET.findall(text)} - {*_BUDGET.findall(specification.budget_text)})
    if same:
        found.checks.append(f"{name}: says what specification.json says")
    elif others:
        found.bad(f"it says {', '.join(others)}, and specification.json {specification.budget_text}", where=place)
    elif escape(specification.notation) not in text and specification.notation not in text:
        found.bad(f"it does not say {specification.notation}, as specification.json does", where=place)
    elif whole:
        found.bad("its words are not those of specification.json", where=place)
    else:
        found.checks.append(f"{name}: has the notation of specification.json")
        found.unchecked.append(f"{name}, its other words: another version of stirred may have written them")


def _text(public: Path, name: str, found: Findings) -> str | None:
    try:
        return (public / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        found.bad("it is missing or cannot be read", where=f"public/{name}")
        return None
