"""The Five Safes sheet of a release: what the custodian recorded, and which of the five the specification speaks to.

Chapter 8 of the dissertation. Differential privacy is a quantitative standard for aspects of the data and the outputs
(Claim 2); it is silent on other aspects of both (Remark 8.4.2) and assesses neither people nor projects nor settings
(Remark 8.4.3). Table 8.1 gives the contextual-integrity parameters their meanings in statistical dissemination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stirred.report.page import paragraph, section, table
from stirred.spec.specification import Specification

SAFES: Final = ("people", "projects", "settings", "data", "outputs")
CONTEXT: Final = {
    "sender": "who passes the information on: the agency, the custodian",
    "recipient": "who receives it (people): researchers, the general public",
    "subject": "whom it is about (a part of data)",
    "information_type": "what kind of information it is (a part of data and of outputs)",
    "transmission_principles": "on what terms it passes on (projects, settings, and more)",
}
_NOT_RECORDED = "not recorded"
_KEPT_INSIDE = "recorded, and kept inside the agency"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafesSheet:
    """What the custodian recorded with a release: texts for the five, and for the parameters of its context."""

    safes: Mapping[str, str] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)
    public: bool = True


class Spoken(NamedTuple):
    """Whether a specification speaks to one of the five: ``partly`` or ``no``, and to what of it."""

    safe: str
    verdict: str
    words: str


def spoken_to(specification: Specification) -> tuple[Spoken, ...]:
    """Return what a specification says, and does not say, about each of the five.

    >>> from stirred.spec import catalogue
    >>> for each in spoken_to(catalogue.load("das-2020").specification):
    ...     print(each.safe, each.verdict)
    people no
    projects no
    settings no
    data partly
    outputs partly
    """
    unit, loss = specification.input_premetric.unit, specification.budget_text
    fixed = "" if specification.multiverse.is_vacuous else ", between files that agree on what is published exactly"
    no_bound = specification.budget.is_free or specification.budget.realised.is_infinite
    bound = (
        f"The budget ({loss}) puts no bound on how far the release may depend on one {unit}. "
        if no_bound
        else f"It bounds how far the probabilities of this release may depend on one {unit} ({loss}{fixed}). "
    )
    data = (
        f"It says which files are eligible and what may differ between them: one {unit}{fixed}. It treats sensitive "
        "and harmless data alike if they have the same structure."
    )
    outputs = f"{bound}It does not say how harmful what can be learned would be, nor what recipients know already."
    return (
        Spoken("people", "no", "It does not assess who receives the release."),
        Spoken("projects", "no", "It does not assess what the release is used for."),
        Spoken("settings", "no", "It does not assess where the release was made or is used."),
        Spoken("data", "partly", data),
        Spoken("outputs", "partly", outputs),
    )


def safes_section(sheet: SafesSheet, specification: Specification, *, internal: bool) -> str:
    """Return the sheet for one edition of the report."""
    shown = internal or sheet.public
    rows = [
        [each.safe, _text(sheet.safes.get(each.safe, ""), shown=shown), each.verdict, each.words]
        for each in spoken_to(specification)
    ]
    context = [
        [name.replace("_", " "), meaning, _text(sheet.context.get(name, ""), shown=shown)]
        for name, meaning in CONTEXT.items()
    ]
    text = "What the custodian did about each of the five; the specification speaks to parts of two, and replaces none."
    header = ["safe", "recorded by the custodian", "does the specification speak to it?", "what it says"]
    parts = [paragraph(text), table(header, rows, caption="The five safes")]
    if any(sheet.context.values()):
        lead = "The flow of information, in the five parameters of contextual integrity:"
        header = ["parameter", "meaning here", "recorded by the custodian"]
        parts += [paragraph(lead), table(header, context, caption=lead[:-1])]
    return section("The five safes", *parts)


def _text(recorded: str, *, shown: bool) -> str:
    if not recorded.strip():
        return _NOT_RECORDED
    return recorded if shown else _KEPT_INSIDE
