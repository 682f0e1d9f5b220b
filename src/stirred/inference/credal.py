"""Sets of probabilities that a loss allows: intervals of measures and density-ratio balls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stirred.inference.weights import Ends, Given, OutcomeWeights, density_ratio_distance, settled
from stirred.spec.exact import INFINITE, ONE, Exact, exp
from stirred.spec.given_numbers import Number, fraction, loss
from stirred.spec.problems import wrong

Payoff = Mapping[Hashable, Number] | Sequence[Number] | Callable[[Hashable], Number]


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityInterval:
    """All probabilities between two measures: ``I_1(L, U)`` of Definition 5.3.1.

    >>> near = ProbabilityInterval.around([0.5, 0.3, 0.2], "ln(2)")
    >>> near.expect([0, 1, 3])
    Ends(lower=Exact('9/20'), upper=Exact('31/20'))
    """

    lower: OutcomeWeights
    upper: OutcomeWeights

    def __init__(self, lower: Given, upper: Given) -> None:
        object.__setattr__(self, "lower", OutcomeWeights.of(lower, where="lower"))
        object.__setattr__(self, "upper", OutcomeWeights.of(upper, where="upper"))
        if any(weight > self.upper[t] for t, weight in self.lower.values.items()):
            raise wrong("the lower measure exceeds the upper one", where="interval", remedy="swap them")
        if not self.lower.total <= 1 <= self.upper.total:
            raise wrong(
                f"no probability lies between measures of mass {float(self.lower.total):.6g} and "
                f"{float(self.upper.total):.6g}",
                where="interval",
                remedy="give a lower measure of mass at most 1 and an upper one of mass at least 1",
            )

    @classmethod
    def around(cls, centre: Given, radius: Number) -> ProbabilityInterval:
        """Return all probabilities within a multiplicative distance of ``centre``."""
        middle, r = OutcomeWeights.probabilities(centre), _finite(radius)
        return cls(middle.scaled(exp(-r)), middle.scaled(exp(r)))

    def contains(self, law: Given) -> bool:
        """Say whether a probability lies in the interval."""
        inside = OutcomeWeights.probabilities(law)
        outcomes = {*inside.values, *self.lower.values}
        return all(self.lower[t] <= inside[t] <= self.upper[t] for t in outcomes)

    def event(self, event: Iterable[Hashable]) -> Ends:
        """Return between what the probability of an event lies."""
        chosen = set(event)
        rest = self.upper.values.keys() - chosen
        low = max(self.lower.mass(chosen), 1 - self.upper.mass(rest))
        high = min(self.upper.mass(chosen), 1 - self.lower.mass(rest))
        return self._limits(low, high)

    def odds(self, first: Iterable[Hashable], second: Iterable[Hashable]) -> Ends:
        """Return between what the odds of two events lie, for every measure of the interval."""
        a, b = set(first), set(second)
        rational = self.lower.rational and self.upper.rational
        ends = (self.lower.mass(a), self.upper.mass(b)), (self.upper.mass(a), self.lower.mass(b))
        return Ends(*(_ratio(*end, rational=rational, up=up) for end, up in zip(ends, (False, True), strict=True)))

    def expect(self, payoff: Payoff) -> Ends:
        """Return between what an expectation lies: the free mass goes to the smallest, or the largest, values."""
        values = _values(payoff, self.upper)
        return self._limits(self._poured(values, up=False), self._poured(values, up=True))

    def _poured(self, values: Mapping[Hashable, Fraction], *, up: bool) -> Fraction:
        missing = 1 - self.lower.total
        total = sum((self.lower[t] * values[t] for t in values), Fraction(0))
        for t in sorted(values, key=values.__getitem__, reverse=up):
            poured = min(missing, self.upper[t] - self.lower[t])
            missing, total = missing - poured, total + poured * values[t]
        return total

    def _limits(self, low: Fraction, high: Fraction) -> Ends:
        rational = self.lower.rational and self.upper.rational
        return Ends(settled(low, rational=rational, up=False), settled(high, rational=rational))


@dataclass(frozen=True, slots=True, eq=False)
class DensityRatioBall:
    """All probabilities whose odds differ from those of ``centre`` by a factor of at most ``exp(radius)``.

    ``N_r`` of Definition 5.8.3, which is the constant-odds-ratio model with 1 - exp(-r).

    >>> DensityRatioBall([0.5, 0.3, 0.2], "ln(2)").expect([0, 1, 3])
    Ends(lower=Exact('3/5'), upper=Exact('5/4'))
    """

    centre: OutcomeWeights
    radius: Exact

    def __init__(self, centre: Given, radius: Number) -> None:
        object.__setattr__(self, "centre", OutcomeWeights.probabilities(centre))
        object.__setattr__(self, "radius", _finite(radius))

    def contains(self, law: Given) -> bool:
        """Say whether a probability lies in the ball."""
        return density_ratio_distance(self.centre, OutcomeWeights.probabilities(law)) <= self.radius

    def event(self, event: Iterable[Hashable]) -> Ends:
        """Return between what the probability of an event lies."""
        chosen = set(event)
        return self.expect({t: int(t in chosen) for t in self.centre.values})

    def odds(self, first: Iterable[Hashable], second: Iterable[Hashable]) -> Ends:
        """Return between what the odds of two events lie; what they share may weigh much or little."""
        a, b = set(first), set(second)
        factor, rational = self._factor()
        only_a, only_b, both = (self.centre.mass(each) for each in (a - b, b - a, a & b))
        high = [(factor * only_a + w * both, only_b + w * both) for w in (1, factor)]
        low = [(only_a + w * both, factor * only_b + w * both) for w in (1, factor)]
        ends = min(low, key=_size), max(high, key=_size)
        return Ends(*(_ratio(*end, rational=rational, up=up) for end, up in zip(ends, (False, True), strict=True)))

    def expect(self, payoff: Payoff) -> Ends:
        """Return between what an expectation lies: the extreme weights are two-valued, split at a threshold."""
        values = _values(payoff, self.centre)
        factor, rational = self._factor()
        found = [
            self._tilted(values, factor, above=above, at=at) for at in set(values.values()) for above in (False, True)
        ]
        return Ends(settled(min(found), rational=rational, up=False), settled(max(found), rational=rational))

    def _tilted(self, values: Mapping[Hashable, Fraction], factor: Fraction, *, above: bool, at: Fraction) -> Fraction:
        weight = {t: self.centre[t] * (factor if (v >= at if above else v <= at) else 1) for t, v in values.items()}
        return sum((w * values[t] for t, w in weight.items()), Fraction(0)) / sum(weight.values())

    def _factor(self) -> tuple[Fraction, bool]:
        one = OutcomeWeights({None: Fraction(1)}).scaled(exp(self.radius))
        return one[None], one.rational and self.centre.rational


def _values(payoff: Payoff, on: OutcomeWeights) -> dict[Hashable, Fraction]:
    if callable(payoff):
        found = {t: payoff(t) for t in on.values}
    elif isinstance(payoff, Mapping):
        found = {t: payoff[t] for t in on.values}
    else:
        found = {t: value for t, value in enumerate(payoff) if t in on.values}
    if found.keys() != on.values.keys():
        raise wrong("an outcome has no value", where="payoff", remedy="give a value for every outcome")
    return {t: fraction(value, where=f"payoff {t}") for t, value in found.items()}


def _finite(radius: Number) -> Exact:
    number = loss(radius, where="radius")
    if number.is_infinite:
        raise wrong("an infinite radius allows everything", where="radius", remedy="write a finite number")
    return number


def _size(ends: tuple[Fraction, Fraction]) -> Fraction | float:
    return ends[0] / ends[1] if ends[1] else float("inf") if ends[0] else Fraction(1)


def _ratio(top: Fraction, bottom: Fraction, *, rational: bool, up: bool) -> Exact:
    """Return a ratio of masses, where nothing over nothing counts as 1 (section 5.2)."""
    if not bottom:
        return INFINITE if top else ONE
    return settled(top / bottom, rational=rational, up=up)
