"""Swaps in steps: budgets of two stages (R13) and of a response before (R14), and exact laws."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

from stirred.mechanisms.records.law import StratumLaw
from stirred.mechanisms.records.laws.permutation import PermutationLaw
from stirred.mechanisms.records.laws.varying import declared_rules
from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.problems import wrong


def law_by_match(settings: Any, *, member: str) -> PermutationLaw:
    """Return the law of the permutation swap inside the steps, whose rates may depend on match variables only.

    What is proven about steps (R13 to R15) is for swaps that treat all records of a stratum alike.
    """
    rate = probability(settings.rate, where="rate")
    declared = declared_rules(
        settings.rates,
        allowed=settings.match,
        only=f"rates of the {member} swap may depend on match variables",
        remedy="name values of match variables; permutation-swap takes hold and swap variables too",
    )
    return PermutationLaw(rate=rate, declared=declared, match=tuple(settings.match))


def staged_epsilon(stages: Sequence[Exact]) -> tuple[Exact, ...]:
    """Return the budgets of swapping in nested strata: one for each level of matching, the coarsest first (R13).

    Each has its own invariants: under the flavor of a coarse level the finer margins of the swap values are *not*
    invariant, and relative to the finest ones the smallest budget of all stages holds.
    ``stages`` are the budgets of the single stages, the coarsest first; a finer one must hold in *every*
    universe that the coarser stages can reach. The laws of the finer stages depend on nothing (permutation, Mallows and
    shuffle swaps, and the conditioned swap with a law fixed beforehand): nothing holds for laws that follow the fine
    margins, because the coarse stage changes them.

    >>> from stirred.spec.exact import ln
    >>> staged_epsilon([ln(9), ln(4)])
    (Exact('ln(9)'), Exact('ln(4)'))
    """
    if not stages:
        raise wrong("no stage", where="stages", remedy="give at least one budget, the coarsest first")
    return tuple(accumulate(stages, min))


class PerturbedBudget(NamedTuple):
    """The losses of a swap with a perturbation, by which margins are taken as invariant.

    ``both``: the flavor of the swap, both margins. ``one``: the margin that the perturbation leaves alone. With the
    sizes of the strata only, nothing is promised.
    """

    both: Exact
    one: Exact


def response_epsilon(change: Fraction, *, values: int) -> Exact:
    """Return the loss of randomised response per record: with probability ``change`` another of the declared values.

    Each of the others is equally likely. 0 where all values are equally likely, infinite where some value is certain or
    impossible.

    >>> response_epsilon(Fraction(1, 10), values=2), response_epsilon(Fraction(2, 3), values=3)
    (Exact('ln(9)'), Exact('0'))
    """
    if values < 2:
        raise wrong(f"{values} value to choose from", where="values", remedy="declare two values or more")
    if change in (0, 1):
        return INFINITE
    odds = (1 - change) * (values - 1) / change
    return ln(max(odds, 1 / odds))


def perturbed_before(swap: Exact, response: Exact, *, rest: Exact = ZERO) -> PerturbedBudget:
    """Return the losses of randomised response on swap values, or on held ones, and then a swap (R14).

    One kernel for all records of a stratum commutes with every swap that treats permutations by their
    number of moved records alone (permutation, Mallows, shuffle), so that either protects. It does not hold for the
    conditioned swap, which does not commute: there the response alone counts, and the rest is post-processing. The
    perturbed margin is no invariant: it must stay unpublished, and settings must not use it.

    The response protects its own variable only. Where other variables are swapped together with it, or held
    together with it, ``rest`` is the loss of the swap in those strata where they have two values: a record
    may change its value *and* the place of the others, so that both losses add up, and with both margins as invariants
    the swap alone protects the others.

    >>> perturbed_before(ln(14), ln(9)).both
    Exact('ln(9)')
    >>> perturbed_before(ln(14), ln(9), rest=ln(14)).one
    Exact('ln(126)')
    """
    return PerturbedBudget(both=max(rest, min(swap, response)), one=response + rest)


File = tuple[tuple[Any, ...], ...]


def stage(law: StratumLaw, *, within: Callable[[Any], Hashable]) -> Callable[[File], Law]:
    """Return one stage: a swap within the strata that ``within`` makes of the match values.

    Everything but the swap value is held, the match value included.

    >>> from stirred.mechanisms.records.laws.permutation import varying_rate_law
    >>> half = lambda records: varying_rate_law(records, lambda record: Fraction(1, 2))
    >>> swap = stage(half, within=lambda m: None)
    >>> len(swap(((0, "a", "x"), (1, "b", "y"))))
    2
    """

    def of(file: File) -> Law:
        parts: dict[Hashable, list[tuple[Hashable, Hashable]]] = {}
        for match, hold, swap in file:
            parts.setdefault(within(match), []).append(((match, hold), swap))
        return _together(map(law, parts.values()), lambda table: [(m, h, s) for (m, h), s in table])

    return of


def _together(laws: Iterable[Law], rows: Callable[[Any], Iterable[Any]]) -> Law:
    """Return the law of the rows of independent outcomes, taken together in one file."""
    law = Law.certain(())
    for each in laws:
        law = law.times(each).pushed(lambda both: tuple(sorted([*both[0], *rows(both[1])])))  # type: ignore[index]
    return law


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

    def answers(row: tuple[Any, ...]) -> Law:
        chances = {value: 1 - change if row[place] == value else change / (len(values) - 1) for value in values}
        return Law({(*row[:place], value, *row[place + 1 :]): chance for value, chance in chances.items()})

    return lambda file: _together(map(answers, file), lambda row: [row])
