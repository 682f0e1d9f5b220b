"""The budgets of swaps in layers: two stages of matching (R13), and perturbation before (R14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.problems import wrong


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
    return tuple(_least(stages[: place + 1]) for place in range(len(stages)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbedBudget:
    """The losses of a swap with a perturbation, by which margins are taken as invariant.

    ``both``: the flavor of the swap, both margins. ``one``: the margin that the perturbation leaves alone.
    ``neither``: the sizes of the strata only.
    """

    both: Exact
    one: Exact
    neither: Exact


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


def perturbed_before(swap: Exact, response: Exact, *, rest: Exact | None = None) -> PerturbedBudget:
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
    others = ZERO if rest is None else rest
    return PerturbedBudget(both=max(others, _least([swap, response])), one=response + others, neither=INFINITE)


def _least(budgets: Sequence[Exact]) -> Exact:
    return reduce(lambda a, b: a if a <= b else b, budgets)
