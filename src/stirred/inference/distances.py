"""How far apart two measures are, in the three ways that limits of inference use."""

from __future__ import annotations

from fractions import Fraction

from stirred.inference.weights import Given, OutcomeWeights, logarithm, settled
from stirred.spec.exact import INFINITE, ONE, ZERO, Exact


def multiplicative_distance(p: Given, q: Given) -> Exact:
    """Return the largest change of the logarithm of any event's mass: ``D_MULT`` of Definition 5.2.1.

    The supremum over events is attained on single outcomes. It is infinite where the supports differ. Do not put
    observed frequencies into it: it does not depend on them continuously where an outcome is rare.

    >>> multiplicative_distance([0.9, *[1 / 80] * 8], [0.2, *[0.1] * 8])
    Exact('ln(8)')
    """
    ratios, rational = _ratios(p, q)
    if ratios is None:
        return INFINITE
    return logarithm(max((max(r, 1 / r) for r in ratios), default=Fraction(1)), rational=rational)


def density_ratio_distance(p: Given, q: Given) -> Exact:
    """Return how far the odds between any two outcomes change: ``d_DR`` of Definition 5.8.3.

    For probabilities it lies between the multiplicative distance and twice that. It does not see a change of scale.

    >>> density_ratio_distance([1, 2, 3], [2, 4, 6])
    Exact('0')
    """
    ratios, rational = _ratios(p, q)
    if ratios is None:
        return INFINITE
    return logarithm(max(ratios) / min(ratios), rational=rational) if ratios else ZERO


def constant_odds_distance(p: Given, q: Given) -> Exact:
    """Return 1 - exp(-d_DR), the constant-odds-ratio distance; 1 where the supports differ.

    Remark 5.8.7 leaves that last case out.

    >>> constant_odds_distance([0.9, *[1 / 80] * 8], [0.2, *[0.1] * 8])
    Exact('35/36')
    """
    ratios, rational = _ratios(p, q)
    if ratios is None:
        return ONE
    return settled(1 - min(ratios) / max(ratios), rational=rational) if ratios else ZERO


def linear_vacuous_distance(p: Given, q: Given) -> Exact:
    """Return the largest share of an event's mass under ``q`` that ``p`` lacks (Remark C.4.3).

    >>> linear_vacuous_distance([0.5, 0.5], [0.6, 0.4])
    Exact('1/6')
    """
    first, second = OutcomeWeights.of(p, where="p"), OutcomeWeights.of(q, where="q")
    least = min((first[t] / w for t, w in second.values.items()), default=Fraction(1))
    return settled(max(1 - least, Fraction(0)), rational=first.rational and second.rational)


def _ratios(p: Given, q: Given) -> tuple[list[Fraction] | None, bool]:
    """Return the ratios of the weights, None where one measure has an outcome that the other lacks."""
    first, second = OutcomeWeights.of(p, where="p"), OutcomeWeights.of(q, where="q")
    rational = first.rational and second.rational
    if first.values.keys() != second.values.keys():
        return None, rational
    return [weight / second.values[t] for t, weight in first.values.items()], rational
