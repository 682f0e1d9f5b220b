"""The statistical audit: a lower confidence bound on a loss from repeated runs, and what it could have seen.

A mechanism is run equally often on two datasets, and one event fixed beforehand is counted. The bounds
of Clopper and Pearson on its two probabilities bound their ratio from below. Finding nothing proves
nothing, so the result says which loss it would have found. The event may be chosen by the mechanism's
owner, or from pilot runs that are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from stirred.spec.exact import exact
from stirred.spec.problems import wrong

_NEGLIGIBLE = 1e-18


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticalAudit:
    """What the counts of one event in repeated runs on two datasets, ``distance`` apart, say about a loss."""

    hits: tuple[int, int]
    runs: int
    distance: float
    budget: float
    delta: float
    confidence: float
    power: float

    @property
    def lower_bound(self) -> float:
        """Return a loss that the true one exceeds, at the level of confidence."""
        return _lower(self.hits, self.runs, self.distance, self.delta, (1 - self.confidence) / 2)

    @property
    def likelihood(self) -> float:
        """Return a probability that the event has at least from the other dataset: a lower confidence bound.

        Half of the probability that the power leaves is spent on it; it is 0 without a hit.
        """
        return clopper_pearson(self.hits[1], self.runs, miss=(1 - self.power) / 2)[0]

    @property
    def detectable(self) -> float:
        """Return a loss of this event beyond which an alarm was due with probability ``power``.

        Whatever the two true probabilities are, a loss above the value returned goes without an alarm with
        probability at most 1 - power: with half of it the event is rarer from the other dataset than
        :attr:`likelihood`, with the other half the first count is below its quantile, and otherwise the
        bound computed from these counts exceeds the budget. Infinite where no loss is sure to be seen.
        """
        miss, spare, q = (1 - self.confidence) / 2, (1 - self.power) / 2, self.likelihood
        if q == 0:
            return math.inf

        def seen(loss: float) -> bool:
            p = min(1.0, self.delta + q * math.exp(min(loss * self.distance, 700.0)))
            least = _quantile(self.runs, p, spare)
            return _lower((least, self.hits[1]), self.runs, self.distance, self.delta, miss) > self.budget

        high = max(0.0, math.log((1 - self.delta) / q) / self.distance)
        if not seen(high):
            return math.inf
        low = 0.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if seen(middle) else (middle, high)
        return high

    @property
    def alarm(self) -> bool:
        """Say whether the loss exceeds the budget, at the level of confidence."""
        return self.lower_bound > self.budget

    @property
    def in_words(self) -> str:
        """Return the finding, and what would have been found."""
        least, promise = self._shown()
        found = f"the loss is at least {least} with {self.confidence:.0%} confidence, and the promise is {promise}"
        if self.alarm:
            return f"The promise is broken: {found}."
        detectable = self.detectable
        if self.hits[1] == 0:
            seen = "The event never happened from the other dataset, so that no size of loss is said to have been seen"
        elif math.isinf(detectable):
            seen = "No loss whatever would surely have been seen by this event in so few runs"
        else:
            seen = (
                f"A loss by this event above {math.ceil(detectable * 100) / 100:.2f} would have been seen with "
                f"{self.power:.0%} probability"
            )
        return f"No violation found: {found}. {seen}."

    def _shown(self) -> tuple[str, str]:
        """Return the lower bound rounded down and the promise rounded up, in as many places as tell them apart."""
        if math.isinf(self.budget):
            return _down(self.lower_bound, 2), "inf"
        least, promise, places = _down(self.lower_bound, 2), exact(self.budget).shown(), 2
        while self.alarm and float(least) <= float(promise) and places < 15:
            places += 1
            least, promise = _down(self.lower_bound, places), exact(self.budget).shown(places)
        return least, promise


def _down(value: float, places: int) -> str:
    return f"{math.floor(value * 10**places) / 10**places:.{places}f}"


def statistical_audit(
    *,
    hits: tuple[int, int],
    runs: int,
    distance: float,
    budget: float,
    delta: float = 0.0,
    confidence: float = 0.99,
    power: float = 0.99,
) -> StatisticalAudit:
    """Return what the counts of one event in ``runs`` runs on each of two datasets say about the loss.

    The event must have been chosen without looking at these runs. ``hits`` are the counts on the dataset
    where it is expected more often and on the other, ``distance`` apart. With ``delta`` the promise is one
    of approximate differential privacy.

    >>> statistical_audit(hits=(900, 100), runs=1000, distance=1, budget=1.0).alarm
    True
    """
    if not runs > 0 or not all(0 <= count <= runs for count in hits) or not 0 < distance < math.inf:
        raise wrong(
            f"{hits[0]} and {hits[1]} hits in {runs} runs at distance {distance}",
            where="statistical audit",
            remedy="count from 0 to the number of runs, at a distance that is positive and finite",
        )
    if not 0 < confidence < 1 or not 0 < power < 1:
        remedy = "write probabilities between 0 and 1, such as 0.99"
        raise wrong(f"confidence {confidence} and power {power}", where="statistical audit", remedy=remedy)
    return StatisticalAudit(
        hits=hits, runs=runs, distance=distance, budget=budget, delta=delta, confidence=confidence, power=power
    )


def _lower(hits: tuple[int, int], runs: int, distance: float, delta: float, miss: float) -> float:
    low = clopper_pearson(hits[0], runs, miss=miss)[0] - delta
    high = clopper_pearson(hits[1], runs, miss=miss)[1]
    return max(0.0, math.log(low / high) / distance) if low > 0 else 0.0


@lru_cache(maxsize=10_000)
def clopper_pearson(hits: int, runs: int, *, miss: float) -> tuple[float, float]:
    """Return the bounds that each fail to cover the probability at most with probability ``miss``.

    >>> low, high = clopper_pearson(0, 100, miss=0.025)
    >>> low, round(high, 6)
    (0.0, 0.036217)
    """
    # P(X >= hits) grows with p, and P(X <= hits) falls: each bound is where its tail equals the miss.
    low = _where(lambda p: at_least(hits, runs, p) > miss)[0] if hits else 0.0
    high = _where(lambda p: at_least(runs - hits, runs, 1 - p) <= miss)[1] if hits < runs else 1.0
    return low, high


def _where(reached: Callable[[float], bool]) -> tuple[float, float]:
    """Enclose the probability from which on a condition holds."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low, high


def at_least(hits: int, runs: int, p: float) -> float:
    """Return the probability of ``hits`` or more in ``runs`` runs: the binomial tail, summed.

    >>> round(at_least(2, 3, 0.5), 12)
    0.5
    """
    if hits <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    if hits <= runs * p:  # the other tail falls faster
        return 1 - at_least(runs - hits + 1, runs, 1 - p)
    log = math.lgamma(runs + 1) - math.lgamma(hits + 1) - math.lgamma(runs - hits + 1)
    term = math.exp(log + hits * math.log(p) + (runs - hits) * math.log1p(-p))
    total, odds = term, p / (1 - p)
    for k in range(hits, runs):
        term *= (runs - k) / (k + 1) * odds
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(total, 1.0)


def _quantile(runs: int, p: float, level: float) -> int:
    """Return the smallest k with P(X <= k) at least ``level``."""
    low, high = 0, runs
    while low < high:
        middle = (low + high) // 2
        if 1 - at_least(middle + 1, runs, p) >= level:
            high = middle
        else:
            low = middle + 1
    return low
