"""Other orders of the same records: where the order does not count, they must have the same output law."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise, permutations
from typing import Any

from stirred.audit.witness import ShiftWitness, Witness, witness_between
from stirred.spec.exact import INFINITE, ZERO
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.output_premetric import PURE, Between
from stirred.spec.shift_law import OutputLaw

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
    for dataset, other in _reordered(premetric, laws):
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


def _reordered(premetric: InputPremetric, datasets: Iterable[Hashable]) -> Iterator[tuple[Hashable, Hashable]]:
    """Yield datasets with another order of their records, where the order does not count."""
    if not premetric.ordered:
        for dataset in datasets:
            for other in _other_orders(dataset):
                if premetric.distance(dataset, other) == 0:
                    yield dataset, other


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
