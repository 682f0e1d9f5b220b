"""Measures on finitely many outcomes, and how far apart two of them are.

They are exact where they are given exactly, and have sixty digits where they cannot be.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from stirred.spec.exact import INFINITE, ONE, ZERO, Exact, exact, ln
from stirred.spec.given_numbers import Number
from stirred.spec.law import Law
from stirred.spec.problems import SpecificationError, wrong

# Digits of a weight that is not rational, such as e/(1 + e), and how far a result of such weights is trusted.
_DIGITS: Final = 60
_TRUSTED: Final = Fraction(1, 10**45)
_SIMPLE: Final = 10**6


class Ends(NamedTuple):
    """The two ends between which a number lies.

    Shown or written to a file, the lower end is rounded down and the upper end up.

    >>> Ends(exact("1/3"), exact("2/3")).doubles
    (0.333..., 0.66666666666666...)
    """

    lower: Exact
    upper: Exact

    @property
    def doubles(self) -> tuple[float, float]:
        """Return both ends as doubles, rounded outwards."""
        return 0.0 - float(-self.lower), float(self.upper)  # 0.0, and not -0.0, at the bottom


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeWeights:
    """A measure on finitely many outcomes; those of weight zero are left out.

    Rational weights are kept as they are. Others, such as ``exp(1)/(1 + exp(1))``, are kept to sixty digits and
    ``rational`` is False.

    >>> OutcomeWeights.of([0.5, 0.3, 0.2])[1]
    Fraction(3, 10)
    """

    values: Mapping[Any, Fraction]
    rational: bool = True

    @classmethod
    def of(cls, given: Given, *, where: str = "measure") -> OutcomeWeights:
        """Read a measure: a law, a mapping from outcomes to weights, or a sequence of weights."""
        if isinstance(given, OutcomeWeights):
            return given
        if isinstance(given, Law):
            return cls(given.probabilities)
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        read = {outcome: _read(value, where=f"{where} {outcome}".strip()) for outcome, value in pairs}
        kept = {outcome: value for outcome, (value, _) in read.items() if value}
        return cls(MappingProxyType(kept), all(rational for _, rational in read.values()))

    @classmethod
    def probabilities(cls, given: Given, *, where: str = "probabilities") -> OutcomeWeights:
        """Read a measure whose weights sum to 1; doubles may miss it by their rounding."""
        weights = cls.of(given, where=where)
        if abs(weights.total - 1) > Fraction(1, 10**9):
            raise wrong(f"the probabilities sum to {float(weights.total):.9g}", where=where, remedy="let them sum to 1")
        return weights

    def __getitem__(self, outcome: Hashable) -> Fraction:
        return self.values.get(outcome, Fraction(0))

    @property
    def total(self) -> Fraction:
        """Return the mass of everything."""
        return sum(self.values.values(), Fraction(0))

    def mass(self, event: Iterable[Hashable]) -> Fraction:
        """Return the mass of an event."""
        return sum((self[outcome] for outcome in set(event)), Fraction(0))

    def scaled(self, factor: Exact | int | Fraction) -> OutcomeWeights:
        """Return the measure times a factor."""
        by, rational = _read(factor, where="factor")
        return OutcomeWeights({t: by * w for t, w in self.values.items() if by}, self.rational and rational)

    def given(self, event: Iterable[Hashable]) -> OutcomeWeights | None:
        """Return the conditional probabilities given an event; None where it has no mass."""
        inside = {t: self[t] for t in event if self[t]}
        mass = sum(inside.values(), Fraction(0))
        return OutcomeWeights({t: w / mass for t, w in inside.items()}, self.rational) if mass else None


Given = OutcomeWeights | Law | Mapping[Any, Number] | Sequence[Number]


def _read(value: Number, *, where: str) -> tuple[Fraction, bool]:
    """Return a weight as a fraction, and whether that is exactly what was given."""
    try:
        number = exact(value)
    except SpecificationError:
        raise wrong(f"{str(value)[:60]!r} is not a number", where=where, remedy="write such as '1/4'") from None
    if number.is_infinite or number.sign() < 0:
        raise wrong(f"{value} is not a weight", where=where, remedy="write a finite number of 0 or more")
    if number.is_rational:
        return number.rational, True
    seen = number.enclose(_DIGITS)
    return (Fraction(seen.low) + Fraction(seen.high)) / 2, False


def logarithm(ratio: Fraction, *, rational: bool) -> Exact:
    """Return the logarithm of a ratio of weights: exactly where they are rational, and otherwise rounded up.

    >>> logarithm(Fraction(8), rational=True)
    Exact('ln(8)')
    """
    value = ln(ratio)
    if rational:
        return value
    seen = value.enclose(_DIGITS)
    return settled((Fraction(seen.low) + Fraction(seen.high)) / 2, rational=False)


def settled(value: Fraction, *, rational: bool, up: bool = True) -> Exact:
    """Return a result of weights as a number: outwards by 1e-45 where the weights were not rational.

    A result that agrees with a short fraction to 45 digits is that fraction: randomised response with epsilon 1 loses
    1, although none of its probabilities is rational.

    >>> settled(Fraction(1) + Fraction(1, 10**50), rational=False)
    Exact('1')
    """
    if rational:
        return exact(value)
    simple = value.limit_denominator(_SIMPLE)
    if abs(simple - value) < _TRUSTED and (simple or not value):  # what is tiny is not nothing
        return exact(simple)
    places = 10**44
    outwards = -((-value * places) // 1) + 1 if up else (value * places) // 1 - 1
    return exact(Fraction(outwards if value < 0 else max(outwards, 0), places))


# ---- how far apart two measures are --------------------------------------------------------------------------------


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
