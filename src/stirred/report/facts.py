"""The facts of a report as data inside the page, for programs; they are those of its edition and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from html import escape, unescape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stirred.report.release import ReleaseReport

_OPENS: Final = '<template class="facts">'
_INSIDE: Final = re.compile(re.escape(_OPENS) + "(.*?)</template>", re.DOTALL)


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

    >>> facts_in(embedded({"title": "</template>"}))
    {'title': '</template>'}
    """
    return f"{_OPENS}{escape(json.dumps(facts, ensure_ascii=False))}</template>"


def facts_in(page: str) -> dict[str, Any]:
    """Return the facts of a page; nothing where it has none, as pages of earlier versions."""
    found = _INSIDE.search(page)
    try:
        facts = json.loads(unescape(found[1])) if found else {}
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
