"""Witnesses: two datasets and an output by which they can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.law import Law
from stirred.spec.number_text import brief
from stirred.spec.shift_law import DiscreteGaussian, OutputLaw, ShiftLaw, same_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """Two datasets and an output by which they can be told apart; no distance where none was promised."""

    dataset: Hashable
    other: Hashable
    output: Hashable
    probabilities: tuple[Fraction, Fraction]
    distance: Exact | None

    @property
    def ratio(self) -> Exact:
        """Return the factor between the two probabilities of the output."""
        p, q = self.probabilities
        return exact(p / q) if q else INFINITE

    @property
    def is_certain(self) -> bool:
        """Say whether the output is possible from one dataset only."""
        return self.ratio.is_infinite

    def __str__(self) -> str:
        p, q = self.probabilities
        if q:
            ratio = f"a factor of {brief(p / q)}"
        else:
            ratio = "possible from one and impossible from the other, so the two are told apart with certainty"
        return (
            f"the output {shown(self.output)} has probability {brief(p)} from the dataset {shown(self.dataset)} and "
            f"probability {brief(q)} from {shown(self.other)}{_apart(self.distance)}: {ratio}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftWitness:
    """Two datasets and an output of integer noise that is likelier from the first; every output is possible."""

    dataset: Hashable
    other: Hashable
    output: tuple[int, ...]
    log_ratio: Exact
    distance: Exact | None

    @property
    def is_certain(self) -> bool:
        """Say whether the output is possible from one dataset only: with integer noise it never is."""
        return False

    def __str__(self) -> str:
        return (
            f"the output {', '.join(map(str, self.output))} is likelier from the dataset {shown(self.dataset)} than "
            f"from {shown(self.other)}{_apart(self.distance)} by a factor of exp({self.log_ratio.shown()})"
        )


def witness_between(
    x: Hashable, y: Hashable, p: OutputLaw, q: OutputLaw, apart: Exact | None, *, beyond: Exact | None = None
) -> Witness | ShiftWitness | None:
    """Return the output that tells two laws apart best: the largest ratio, then the largest difference.

    Where ratios have no largest, one whose logarithm exceeds ``beyond``.
    """
    if isinstance(p, Law) and isinstance(q, Law):
        return _finite(x, y, p, q, apart)
    if not isinstance(p, ShiftLaw) or not isinstance(q, ShiftLaw) or not same_noise(p.noise, q.noise):
        return None
    output = p.centre
    if isinstance(p.noise, DiscreteGaussian) and beyond is not None:
        # Away from the other centre the logarithm grows linearly.
        away = [(k < 0) - (k > 0) for k in p.shift(q)]
        step = 1
        while p.log_ratio(q, output) <= beyond:
            output = tuple(c + step * a for c, a in zip(p.centre, away, strict=True))
            step *= 2
    return ShiftWitness(dataset=x, other=y, output=output, log_ratio=p.log_ratio(q, output), distance=apart)


def _finite(x: Hashable, y: Hashable, p: Law, q: Law, apart: Exact | None) -> Witness:
    outcomes = list(dict.fromkeys([*p, *q]))
    certain = [t for t in outcomes if (p[t] == 0) != (q[t] == 0)]
    if certain:
        output = max(certain, key=lambda t: p[t] + q[t])
    else:
        output = max(outcomes, key=lambda t: max(p[t] / q[t], q[t] / p[t]))
    if p[output] < q[output]:
        x, y, p, q = y, x, q, p
    return Witness(dataset=x, other=y, output=output, probabilities=(p[output], q[output]), distance=apart)


def certain_witness(laws: Mapping[Hashable, OutputLaw], distance: Callable[[Any, Any], Exact] | None) -> Witness | None:
    """Return the likeliest output that is possible from one dataset and impossible from another: a loss of infinity.

    Pairs infinitely far apart are left out where a distance is given.
    """
    best: Witness | None = None
    for x, y in permutations(laws, 2):
        p, q = laws[x], laws[y]
        if not isinstance(p, Law) or not isinstance(q, Law):
            continue
        certain = [t for t in p if q[t] == 0]
        output = max(certain, key=p.__getitem__) if certain else None
        if not certain or (best is not None and p[output] <= best.probabilities[0]):
            continue
        apart = None if distance is None else distance(x, y)
        if apart is None or not apart.is_infinite:
            best = Witness(dataset=x, other=y, output=output, probabilities=(p[output], Fraction(0)), distance=apart)
    return best


def _apart(distance: Exact | None) -> str:
    if distance is None:
        return ""
    return " (the same records in another order)" if distance == 0 else f" (at distance {distance})"


def shown(value: Any) -> str:
    """Write a dataset briefly: records of two plain values as 'a-x'."""
    if isinstance(value, tuple) and value and all(isinstance(row, tuple) for row in value):
        return "{" + ", ".join("-".join(map(str, row)) for row in value) + "}"
    return str(value)
