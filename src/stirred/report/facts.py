"""The facts of a report as data inside the page, for programs; they are those of its edition and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape, unescape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stirred.report.release import ReleaseReport

_OPENS: Final = '<template class="facts">'
_INSIDE: Final = re.compile(re.escape(_OPENS) + "(.*?)</template>", re.DOTALL)
# Every key that facts have. What they say is shown on the page as well, except for some numbers.
_KEYS: Final = re.compile(
    r"""schema_version|title|made|records|exposure(\.(of|records|unique|keys))?|validity|validity\.skipped
    |accuracy(\.(table|error|within|size|cells|at_least))?|validity\.findings(\.(what|found|looked_at|worst|in_words))?
    |transparency(\.(what|public|words))?""",
    re.VERBOSE,
)
# Where a list stands, and how long one may be: a list of letters, or of numbers, could spell anything.
_LISTS: Final = ("exposure.keys", "accuracy", "validity.findings", "validity.skipped", "transparency")
_MOST_LISTED: Final = 1_000
_MOST_COUNTED: Final = 10**12
_NUMBERS_ALONE: Final = ("schema_version", "exposure.records", "accuracy.cells", "accuracy.at_least")


def public_facts(report: ReleaseReport) -> dict[str, Any]:
    """Return what the public edition says, for programs."""
    exposed, validity = report.exposure, report.validity
    own = ("of", "records", "unique", "keys")
    findings = () if validity is None else validity.findings
    return {
        "schema_version": 1,
        "title": report.title,
        "made": report.made,
        "records": report.records,
        # Nothing where no table of records is exact; empty where there are too many records to be counted.
        "exposure": {name: getattr(exposed, name) for name in own} if exposed else {} if report.not_counted else None,
        "accuracy": [asdict(each) for each in report.typical],
        "validity": {
            "findings": [{**asdict(each), "in_words": each.in_words} for each in findings],
            "skipped": () if validity is None else validity.skipped,
        },
        "transparency": [each._asdict() for each in report.shown],
    }


def embedded(facts: Mapping[str, Any]) -> str:
    """Return facts as a part of the page that no browser shows.

    Numbers have four digits, which readers are shown at most; the last ones depend on the processor.

    >>> facts_in(embedded({"title": "</template>", "error": 1.9287115073014316}))
    {'title': '</template>', 'error': 1.929}
    """
    rounded = json.loads(json.dumps(facts), parse_float=lambda digits: float(f"{float(digits):.4g}"))
    return f"{_OPENS}{escape(json.dumps(rounded, ensure_ascii=False))}</template>"


def facts_in(page: str) -> dict[str, Any]:
    """Return the facts of a page; nothing where it has none, as pages of earlier versions."""
    found = _INSIDE.search(page)
    try:
        facts = json.loads(unescape(found[1])) if found else {}
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def rounded_facts(written: str) -> str:
    """Return the facts of a page, written as we write them; digits that no reader is shown are left out."""
    return embedded(json.loads(written))


def facts_beside(written: str, shown: Sequence[str]) -> list[str]:
    """Return what is wrong with the facts of a page: keys that none has, and values that its readers are not shown.

    >>> facts_beside('{"title": "Homes", "note": "41"}', ["Release of Homes"])
    ["facts with the key 'note'"]
    >>> facts_beside('{"title": "East 41"}', ["East", "41"])
    ["facts that the page does not show ('title')"]
    >>> facts_beside('{"title": ["a", "t"], "accuracy": [{"cells": [4, 1]}]}', ["cat"])  # what letters could spell
    ["facts that are a list where none stands ('title')", "facts that are a list where none stands ('accuracy.cells')"]
    """
    try:
        return list(dict.fromkeys(_beside(json.loads(written), "", "\n".join(shown))))
    except (ValueError, RecursionError):
        return ["facts that cannot be read"]


def _beside(value: object, key: str, shown: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{key}.{name}" if key else str(name)
            if _KEYS.fullmatch(path):
                yield from _beside(inner, path, shown)
            else:
                yield f"facts with the key '{path[:40]}'"
    elif isinstance(value, list):
        plain = [inner for inner in value if not isinstance(inner, dict)]
        texts = key in ("exposure.keys", "validity.skipped") and all(isinstance(inner, str) for inner in plain)
        if key not in _LISTS or len(value) > _MOST_LISTED or (plain and not texts) or len({*plain}) < len(plain):
            yield f"facts that are a list where none stands ('{key}')"
            return
        for inner in value:
            yield from _beside(inner, key, shown)
    elif isinstance(value, int) and key in _NUMBERS_ALONE and value <= _MOST_COUNTED:
        return
    elif value is not None and not _stands(value, shown):
        yield f"facts that the page does not show ('{key}')"


def _stands(value: object, shown: str) -> bool:
    if isinstance(value, (int, float)):
        return any(text in shown for text in (f"{value:,}", f"{value:,.0f}", f"{value:.2g}"))
    return str(value) in shown
