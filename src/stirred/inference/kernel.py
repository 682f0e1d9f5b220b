"""A mechanism as a table of probabilities, and the loss that it really has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any, Final

from stirred.inference.geometry import Distance, components, length
from stirred.inference.weights import Given, OutcomeWeights, multiplicative_distance
from stirred.spec.exact import INFINITE, ZERO, Exact, exp, ln
from stirred.spec.given_numbers import Number, loss
from stirred.spec.problems import wrong

Kernel = Mapping[Any, Given]

_MOST_RECORDS: Final = 12
_MOST_EPSILON: Final = 1_000  # beyond it, probabilities have more digits than anyone can wait for
_MOST_RESPONSES: Final = 8  # a kernel of all answers to all files grows with the square of their number


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The smallest epsilon a mechanism satisfies, and where it is attained: two datasets and an output.

    ``connected`` says whether all datasets are compared; where it is False, nothing is promised between some of them.
    """

    value: Exact
    witness: tuple[Any, Any, Any] | None
    connected: bool


def privacy_loss(kernel: Kernel, universe: Iterable[Any], d: Distance) -> Loss:
    """Return the loss of a mechanism over *all* pairs of a universe that are at a finite distance.

    Looking at neighbours alone is not enough: with a fixed total there are none, and any mechanism would pass.

    >>> hamming = lambda x, y: sum(a != b for a, b in zip(x, y)) if len(x) == len(y) else math.inf
    >>> privacy_loss(randomised_response(2, 1), ["01", "10"], hamming).value
    Exact('1')
    """
    datasets = list(dict.fromkeys(universe))
    laws = {x: OutcomeWeights.probabilities(kernel[x], where=f"output law of {x}") for x in datasets}
    connected = len(components(datasets, d)) <= 1
    worst, pair = ZERO, None
    for x, y in combinations(datasets, 2):
        apart = min(length(d(x, y)), length(d(y, x)))  # a premetric may differ by direction, and both bind
        if math.isinf(apart):
            continue
        change = multiplicative_distance(laws[x], laws[y])
        if change == 0:
            continue
        rate = INFINITE if change.is_infinite or not apart else change / Fraction(apart)
        if rate > worst:
            worst, pair = rate, (x, y)
    witness = None if pair is None else (*pair, telling_output(laws[pair[0]], laws[pair[1]]))
    return Loss(value=worst, witness=witness, connected=connected)


def telling_output(p: OutcomeWeights, q: OutcomeWeights) -> Any:
    """Return the output that tells two laws apart best."""

    def ratio(t: Any) -> Fraction | float:
        return max(p[t] / q[t], q[t] / p[t]) if p[t] and q[t] else math.inf

    return max(dict.fromkeys([*p.values, *q.values]), key=ratio)


def bits(records: int, *, most: int = _MOST_RECORDS) -> list[str]:
    """Return all files of so many yes-or-no records, as text.

    >>> bits(2)
    ['00', '01', '10', '11']
    """
    if not 1 <= records <= most:
        raise wrong(
            f"{records} records give too many files to list, or none",
            where="records",
            remedy=f"write 1 to {most}",
        )
    return ["".join(each) for each in product("01", repeat=records)]


def randomised_response(records: int, epsilon: Number) -> dict[str, OutcomeWeights]:
    """Return the kernel that flips each record with probability 1/(1 + exp(epsilon)) (Example 5.2.3).

    >>> randomised_response(1, "ln(3)")["0"].values
    {'0': Fraction(3, 4), '1': Fraction(1, 4)}
    """
    files, rate = bits(records, most=_MOST_RESPONSES), _finite(epsilon)
    kept = records * ln(1 + exp(-rate))
    chance = OutcomeWeights.of({flips: exp(-flips * rate - kept) for flips in range(records + 1)})
    return {
        x: OutcomeWeights({t: chance[sum(a != b for a, b in zip(x, t, strict=True))] for t in files}, chance.rational)
        for x in files
    }


def geometric_sum(records: int, epsilon: Number) -> dict[str, OutcomeWeights]:
    """Return the kernel that publishes the sum with two-sided geometric noise, moved to the range of the sum.

    Moving an output into the range loses nothing here: all outputs beyond an end have the same ratios as the end.
    """
    files, laws = bits(records), geometric_counts(records, epsilon)
    return {x: laws[x.count("1")] for x in files}


def geometric_counts(records: int, epsilon: Number) -> list[OutcomeWeights]:
    """Return the laws of a noisy count, one for each true count from 0 to ``records``; see `geometric_sum`."""
    rate = _finite(epsilon)
    if rate == 0:
        raise wrong("noise of infinite width", where="epsilon", remedy="write an epsilon above 0")
    r, counts = exp(-rate), range(records + 1)
    end = {gap: exp(-gap * rate) / (1 + r) for gap in counts}  # at and beyond an end of the range
    chance = OutcomeWeights.of({**end, **{(gap, "inside"): value * (1 - r) for gap, value in end.items()}})

    def law(true: int) -> dict[int, Fraction]:
        return {t: chance[abs(t - true) if t in (0, records) else (abs(t - true), "inside")] for t in counts}

    return [OutcomeWeights(law(true), chance.rational) for true in counts]


def _finite(epsilon: Number) -> Exact:
    value = loss(epsilon, where="epsilon")
    if value.is_infinite or value > _MOST_EPSILON:
        raise wrong(
            f"a mechanism with epsilon {value.shown()} cannot be listed",
            where="epsilon",
            remedy=f"write a number such as 1, at most {_MOST_EPSILON:,}",
        )
    return value
