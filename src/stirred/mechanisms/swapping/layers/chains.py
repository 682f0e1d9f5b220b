"""Exact laws of swaps in layers on small files: stages of matching (R13), perturbation before (R14).

A file is a tuple of records (match, hold, swap); the released object is the file in sorted order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from stirred.spec.law import Law

File = tuple[tuple[Any, ...], ...]
# From the (hold, swap) pairs of one stratum to the law of the released pairs.
StratumLaw = Callable[[Sequence[tuple[Hashable, Hashable]]], Law]


def stage(law: StratumLaw, *, within: Callable[[Any], Hashable]) -> Callable[[File], Law]:
    """Return one stage: a swap within the strata that ``within`` makes of the match values.

    Everything but the swap value is held, the match value included.

    >>> from stirred.mechanisms.swapping.permutation.law import psa_law
    >>> swap = stage(lambda records: psa_law(records, rate=Fraction(1, 2)), within=lambda m: None)
    >>> len(swap(((0, "a", "x"), (1, "b", "y"))))
    2
    """

    def of(file: File) -> Law:
        parts: dict[Hashable, list[tuple[Hashable, Hashable]]] = {}
        for match, hold, swap in file:
            parts.setdefault(within(match), []).append(((match, hold), swap))
        laws = [law(records) for records in parts.values()]
        outcomes: dict[Hashable, Fraction] = {}
        for chosen in product(*(one.probabilities.items() for one in laws)):
            rows = tuple(sorted((m, h, s) for table, _ in chosen for (m, h), s in _pairs(table)))
            chance = Fraction(1)
            for _, p in chosen:
                chance *= p
            outcomes[rows] = outcomes.get(rows, Fraction(0)) + chance
        return Law(outcomes)

    return of


def _pairs(table: Hashable) -> Iterable[Any]:
    assert isinstance(table, tuple)
    return table


def chained(first: Law, then: Callable[[Any], Law]) -> Law:
    """Return the law of a second mechanism applied to what the first released."""
    outcomes: dict[Hashable, Fraction] = {}
    for middle, p in first.probabilities.items():
        for outcome, q in then(middle).probabilities.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + p * q
    return Law(outcomes)


def response(values: Sequence[Hashable], *, change: Fraction, place: int) -> Callable[[File], Law]:
    """Return randomised response on one column: another value, each equally likely, with probability ``change``.

    >>> len(response("xy", change=Fraction(1, 10), place=2)(((0, "a", "x"), (0, "b", "y"))))
    4
    """

    def of(file: File) -> Law:
        outcomes: dict[Hashable, Fraction] = {}
        for drawn in product(values, repeat=len(file)):
            chance = Fraction(1)
            for row, value in zip(file, drawn, strict=True):
                chance *= 1 - change if row[place] == value else change / (len(values) - 1)
            changed = ((*row[:place], value, *row[place + 1 :]) for row, value in zip(file, drawn, strict=True))
            rows = tuple(sorted(changed))
            outcomes[rows] = outcomes.get(rows, Fraction(0)) + chance
        return Law(outcomes)

    return of
