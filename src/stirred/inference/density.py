"""Between what the probability of an output lies, whatever the model of the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from stirred.inference.geometry import Distance, exponent, length
from stirred.inference.testing import WIDER
from stirred.inference.weights import Ends
from stirred.spec.exact import Exact, exp, ln
from stirred.spec.given_numbers import Number, fraction, loss, probability
from stirred.spec.problems import wrong

_METHODS: Final = ("lipschitz", "envelope")


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityBounds:
    """Both ends at one output; ``vacuous`` where the loss limits nothing, and the ends are 0 and infinity."""

    lower: float
    upper: float
    vacuous: bool = False


class DensityBand:
    """The bounds of Theorems 5.4.1 and 5.6.2 on the density of an output, under any model of the data.

    ``support`` are the datasets that the model and the output allow (the whole universe, if left out); it must be
    connected. ``mass`` is the probability that the model gives them: 1 where the invariants are known, and all is then
    conditional on them. Centres range over the whole universe, which is never wider than the theorem and often much
    tighter. Pointwise bounds are not densities: they do not sum to 1.

    >>> band = DensityBand(range(11), lambda a, b: abs(a - b), lambda x, t: 0.05 * math.exp(-0.1 * abs(t - x)), "0.1",
    ...                    support=[0, 10])
    >>> band.at(5).lower  # by the centre 5, which is not in the support
    0.030326...
    """

    def __init__(
        self,
        universe: Iterable[Any],
        d: Distance,
        density: Callable[[Any, Any], Any],
        epsilon: Number,
        *,
        support: Iterable[Any] | None = None,
        mass: Number = 1,
    ) -> None:
        centres = list(universe)
        self.support = list(centres if support is None else support)
        self.density, self.mass = density, float(probability(mass, where="mass"))
        if not self.support:
            raise wrong("no dataset is possible", where="support", remedy="name at least one dataset")
        if any(math.isinf(length(d(self.support[0], x))) for x in self.support):
            raise wrong(
                "the datasets are not connected: between some of them nothing is promised",
                where="support",
                remedy="condition on what the invariants show, and give the mass of that part",
            )
        reach = [(x, max(length(d(y, x)) for y in self.support)) for x in dict.fromkeys([*centres, *self.support])]
        rate = loss(epsilon, where="epsilon")
        far = {apart: exponent(rate, "inf" if math.isinf(apart) else Fraction(apart)) for _, apart in reach}
        self.centres = [(x, float(far[apart])) for x, apart in reach if not far[apart].is_infinite]

    def at(self, t: Any, *, method: str = "lipschitz") -> DensityBounds:
        """Return the bounds at an output; ``envelope`` uses that the whole mechanism is known, and is never wider."""
        if method not in _METHODS:
            raise wrong(f"there is no method {method!r}", where="method", remedy=f"write {' or '.join(_METHODS)}")
        if method == "envelope":
            values = [float(self.density(x, t)) for x in self.support]
            return self._bounds(min(values), max(values))
        if not self.centres:
            return DensityBounds(lower=0.0, upper=math.inf, vacuous=True)
        found = [(float(self.density(x, t)), far) for x, far in self.centres]
        lower = max(p * math.exp(-far) for p, far in found)
        return self._bounds(lower, min(p * math.exp(far) if far < 700 else math.inf for p, far in found))

    def _bounds(self, lower: float, upper: float) -> DensityBounds:
        return DensityBounds(lower=self.mass * lower * (1 - WIDER), upper=self.mass * upper * (1 + WIDER))


def density_bounds(
    t: Any,
    universe: Iterable[Any],
    d: Distance,
    density: Callable[[Any, Any], Any],
    epsilon: Number,
    *,
    support: Iterable[Any] | None = None,
    mass: Number = 1,
    method: str = "lipschitz",
) -> DensityBounds:
    """Return the bounds of a `DensityBand` at one output."""
    return DensityBand(universe, d, density, epsilon, support=support, mass=mass).at(t, method=method)


def sum_bounds(t: Number, *, records: int, epsilon: Number, method: str = "lipschitz") -> Ends:
    """Return the bounds for the sum of yes-or-no records with Laplace noise, exactly (Example 5.4.3).

    Every file has another that differs from it in all records, so that the theorem's distance is their number.

    >>> sum_bounds(5, records=10, epsilon="0.1").doubles
    (0.018393..., 0.082436...)
    """
    at, rate = fraction(t, where="at"), _positive(epsilon)
    n = _records(records)
    near = max(-at, at - n, abs(at - round(at)) if 0 <= at <= n else Fraction(0))
    away = max(abs(at), abs(at - n))
    if method == "envelope":
        return Ends(rate / 2 * exp(-rate * away), rate / 2 * exp(-rate * near))
    if method != "lipschitz":
        raise wrong(f"there is no method {method!r}", where="method", remedy=f"write {' or '.join(_METHODS)}")
    return Ends(rate / 2 * exp(-rate * (n + near)), rate / 2 * exp(rate * (n - away)))


def rr_bounds(records: int, epsilon: Number) -> Ends:
    """Return the bounds for randomised response given the number of records (Eq. 5.8).

    >>> rr_bounds(2, "ln(3)")
    Ends(lower=Exact('1/16'), upper=Exact('9/16'))
    """
    n, rate = _records(records), _positive(epsilon)
    return Ends(exp(-n * ln(1 + exp(rate))), exp(-n * ln(1 + exp(-rate))))


def _records(records: int) -> int:
    if not 1 <= records <= 10**6:
        raise wrong(f"{records} is not a number of records", where="records", remedy="write 1 to 1,000,000")
    return records


def _positive(epsilon: Number) -> Exact:
    rate = loss(epsilon, where="epsilon")
    if rate.is_infinite or rate == 0:
        raise wrong(f"no noise has epsilon {rate}", where="epsilon", remedy="write a finite number above 0")
    return rate
