"""Witnesses: two datasets and an output by which they can be told apart, or two orders of the same records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise, permutations
from typing import Any

from stirred.spec.exact import INFINITE, ZERO, Exact, exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.law import Law
from stirred.spec.number_text import brief
from stirred.spec.output_premetric import PURE, Between
from stirred.spec.shift_law import DiscreteGaussian, OutputLaw, ShiftLaw, StagedLaw


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
        """Say whether the output is possible from one dataset only: a sum that the noise keeps gives it away."""
        return self.log_ratio.is_infinite

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
    if isinstance(p, StagedLaw) and isinstance(q, StagedLaw):
        output, ratio = p.away_from(q, beyond=ZERO if beyond is None else beyond)
        return ShiftWitness(dataset=x, other=y, output=output, log_ratio=ratio, distance=apart)
    if not isinstance(p, ShiftLaw) or not isinstance(q, ShiftLaw) or not p.same_noise(q):
        return None
    output = p.centre
    if any(isinstance(noise, DiscreteGaussian) for noise in p.noises) and beyond is not None:
        # Away from the other centre the logarithm grows linearly, and a sum that is fixed stays as it is.
        away = [-k if p.fixed else (k < 0) - (k > 0) for k in p.shift(q)]
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


# Orders of the records of one dataset that are tried.
_ORDERS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering:
    """What other orders cost (0, infinity, or enclosed where that is not decided), and how many were tried."""

    loss: Between
    witness: Witness | ShiftWitness | None = None
    tried: int
    untried: int


def try_orders(
    law: Callable[[Hashable], OutputLaw], premetric: InputPremetric, laws: Mapping[Hashable, OutputLaw]
) -> Reordering:
    """Look for two orders of the same records with different output laws.

    The distance between them is 0, so any difference is an infinite loss (docs/theory/conditions.md, 1).
    Orders for which there is no law, a LookupError, cannot be tried and are counted.
    """
    loss, tried, untried = Between(ZERO, ZERO), 0, 0
    # Where the order counts, another one is another dataset.
    orders = () if premetric.ordered else ((dataset, other) for dataset in laws for other in _other_orders(dataset))
    for dataset, other in orders:
        if premetric.distance(dataset, other) != 0:
            continue
        try:
            reordered = law(other)
        except LookupError:
            untried += 1
            continue
        tried += 1
        apart = Between(ZERO, ZERO) if reordered == laws[dataset] else PURE.distance(laws[dataset], reordered)
        if apart.low > ZERO:
            witness = witness_between(dataset, other, laws[dataset], reordered, ZERO)
            return Reordering(loss=Between(INFINITE, INFINITE), witness=witness, tried=tried, untried=untried)
        if apart.high > ZERO:
            loss = Between(ZERO, INFINITE)
    return Reordering(loss=loss, tried=tried, untried=untried)


def _other_orders(dataset: Hashable) -> Iterator[Hashable]:
    """Yield other orders of a tuple of records: all of a short one, neighbours exchanged in a longer one."""
    if not isinstance(dataset, tuple):
        return
    orders: Iterable[tuple[Any, ...]]
    if len(dataset) <= 4:
        orders = permutations(dataset)
    else:
        exchanged = (
            (*dataset[:a], dataset[b], dataset[a], *dataset[b + 1 :]) for a, b in pairwise(range(len(dataset)))
        )
        orders = [dataset[::-1], *exchanged]
    yield from islice((order for order in dict.fromkeys(orders) if order != dataset), _ORDERS)
