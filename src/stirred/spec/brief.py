"""A specification in a few lines: what is published exactly, and the promise in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from stirred.spec.explain import explain
from stirred.spec.invariant import ALL, Invariant, Margin, plural, the
from stirred.spec.rows import Row, rows_text
from stirred.spec.specification import Specification

# More variables than this are counted, and named by whoever explains at length.
_MOST_VARIABLES: Final = 10


def brief(specification: Specification) -> str:
    """Return the specification in a few lines: what is not protected, the promise, and how to read it.

    >>> from stirred.spec import catalogue
    >>> print(brief(catalogue.load("pure-dp").specification))
    held fixed  the total number of records
    promise    ε (how much) for one record (what) of 'datasets' (who), among versions with as many
               records (where), measured in odds (how).
    meaning    the smaller the letter's value, the less an output can tell versions of the file apart.
    """
    return rows_text([("held fixed", published_exactly(specification)), *promise_rows(specification)])


def promise_rows(specification: Specification) -> list[Row]:
    """Return the promise in one sentence, and how to read its number."""
    return [("promise", promise(specification)), ("meaning", explain(specification).meaning)]


def promise(specification: Specification) -> str:
    """Return the promise in one sentence: the loss and its four companions.

    >>> from stirred.spec import catalogue
    >>> print(promise(catalogue.load("das-2020").specification))
    ρ²=55.371 (how much) for one person record after imputation (what) of 'CEF' (who), among versions with the same
    fixed figures (where), measured in odds, on average (how).
    """
    return (
        f"{specification.budget_text} (how much) for {_unit(specification)} (what) of '{specification.domain.name}' "
        f"(who), among versions {_agreeing(specification)} (where), measured in "
        f"{specification.output_premetric.measured} (how)."
    )


def blocks(specification: Specification) -> list[Row]:
    """Return the five blocks, each in a few words.

    >>> from stirred.spec import catalogue
    >>> for question, answer in blocks(catalogue.load("pure-dp").specification):
    ...     print(f"{question}: {answer}")
    who: datasets
    where: the total number of records
    what: one record
    how: odds (D_Mult)
    how much: ε
    """
    premetric = specification.output_premetric
    return [
        ("who", specification.domain.name),
        ("where", published_exactly(specification)),
        ("what", _unit(specification)),
        ("how", f"{premetric.measured} ({premetric.name})"),
        ("how much", specification.budget_text),
    ]


def _unit(specification: Specification) -> str:
    premetric = specification.input_premetric
    unit = f"{premetric.unit} record after imputation" if premetric.post_imputation else premetric.unit
    return f"one {unit}" if premetric.within in (None, 1) else f"up to {premetric.within} {plural(unit)}"


def _agreeing(specification: Specification) -> str:
    if not specification.multiverse.is_vacuous:
        return "with the same fixed figures"
    if specification.input_premetric.bounded:
        return f"with as many {plural(specification.input_premetric.unit)}"
    return "of any kind"


def published_exactly(specification: Specification) -> str:
    """Return all figures that are published exactly, in one line.

    >>> from stirred.spec import catalogue
    >>> print(published_exactly(catalogue.load("das-2020").specification))
    the number of persons in each state; the number of occupied group quarters by type in each block; the number of
    housing units in each block
    """
    invariants = specification.multiverse.invariants
    if not invariants and specification.input_premetric.bounded:
        return f"the total number of {plural(specification.input_premetric.unit)}"
    return "; ".join(figures(invariants)) or "nothing"


def figures(invariants: Sequence[Invariant]) -> Iterable[str]:
    """Yield the invariants in short: counts of the same things are named once, long lists of variables are cut.

    Of two tables the first crosses what is swapped, and is never cut.

    >>> margins = [Margin(of="household", variables=by) for by in (("size", "county"), ("size", "tenure"))]
    >>> list(figures(margins))
    ['the number of households by size x county, and by size x tenure']
    """
    for things, group in groupby(invariants, key=_things):
        together = list(group)
        if things is None:
            yield from map(the, together)
        else:
            margins = [each.variables for each in together if isinstance(each, Margin)]
            first, others = margins[: len(margins) - 1], margins[len(margins) - 1 :]
            crossed = [*(" x ".join(each) for each in first), *map(_crossed, others)]
            yield f"the number of {things} by {', and by '.join(crossed)}"


def _things(invariant: Invariant) -> str | None:
    """Return what a margin by variables counts; None for any other invariant."""
    if not isinstance(invariant, Margin) or invariant.level or not invariant.variables or ALL in invariant.variables:
        return None
    return plural(invariant.of)


def _crossed(variables: Sequence[str]) -> str:
    """Cross variables; of very many the first and the last, which may stand for all those of the persons."""
    if len(variables) > _MOST_VARIABLES:
        kept = _MOST_VARIABLES - 2
        variables = (*variables[:kept], f"{len(variables) - kept - 1} more columns", variables[-1])
    return " x ".join(variables)
