"""What accepted doubts do to a promise: they stand among its conditions, and take away what they deny."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stirred.spec.doubts import Doubt, accepted_in_words
from stirred.spec.reliance import ONE_RUN
from stirred.spec.specification import Specification

MORE_RUNS: Final = "more-runs"


def with_accepted(specification: Specification, accepted: Iterable[Doubt]) -> Specification:
    """Return the promise with the accepted doubts among its conditions."""
    return with_accepted_names(specification, (doubt.name for doubt in accepted))


def with_accepted_names(specification: Specification, names: Iterable[str]) -> Specification:
    """Return the promise with the accepted doubts, by their names, among its conditions.

    A release whose plan was run before cannot say that it is the one run: the accepted doubt stands in its place.

    >>> from stirred.spec import catalogue
    >>> pure = catalogue.load("pure-dp").specification
    >>> one = replace(pure, assumptions=(ONE_RUN.words,), relies_on=(ONE_RUN,))
    >>> again = with_accepted_names(one, ["more-runs:1"])
    >>> again.relies_on, [line.partition(": ")[2] for line in again.assumptions]
    ((), ['more-runs:1 (the plan was run more than once, see entry 1 of the ledger)'])
    """
    names = list(names)
    sentence = accepted_in_words(names)
    if not sentence or sentence in specification.assumptions:
        return specification
    kept, relies_on = specification.assumptions, specification.relies_on
    if any(name.partition(":")[0] == MORE_RUNS for name in names):
        kept = tuple(line for line in kept if line != ONE_RUN.words)
        relies_on = tuple(one for one in relies_on if one != ONE_RUN)
    return replace(specification, assumptions=(*kept, sentence), relies_on=relies_on)
