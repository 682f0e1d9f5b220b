"""The exact law of a randomised response and then a swap, on small files of one stratum.

A dataset is a tuple of (hold, swap) pairs. The perturbed side of each is itself a pair: what else is on it, and the
perturbed value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import Any

from stirred.mechanisms.swapping.laws.chains import chained, response
from stirred.mechanisms.swapping.laws.permutation import psa_law
from stirred.spec.law import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLaw:
    """A response over ``values`` that changes with probability ``change``, then permutation swapping at ``rate``.

    ``on_swap`` says whether the perturbed side is the swapped one.

    >>> fair = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
    >>> sorted(fair.of((("a", ("", "x")), ("b", ("", "y")))).probabilities.values())
    [Fraction(1, 4), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4)]
    """

    values: Sequence[str]
    change: Fraction
    rate: Fraction
    on_swap: bool

    def of(self, dataset: Any) -> Law:
        """Return the law of the released table."""
        rows = tuple((*side, other) for side, other in map(self.sides, dataset))
        return chained(response(self.values, change=self.change, place=1)(rows), self._swapped)

    @property
    def _swapped(self) -> Callable[[Any], Law]:
        return lambda rows: psa_law([self._pair((g, v), o) for g, v, o in rows], rate=self.rate)

    def sides(self, record: Any) -> tuple[Any, Any]:
        """Return the perturbed side of a (hold, swap) pair, and the other one."""
        hold, swap = record
        return (swap, hold) if self.on_swap else (hold, swap)

    def _pair(self, side: Any, other: Any) -> tuple[Any, Any]:
        return (other, side) if self.on_swap else (side, other)

    def universe(self, other: Sequence[str], rest: Sequence[str]) -> list[Hashable]:
        """Return every table with ``other`` on one side and ``rest``, beside any perturbed values, on the other.

        >>> law = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
        >>> len(law.universe("ab", "11")), len(law.universe("ab", "12"))
        (4, 8)
        """
        tables: set[Any] = {
            tuple(sorted(self._pair(side, o) for side, o in zip(zip(order, drawn, strict=True), other, strict=True)))
            for order in set(permutations(rest))
            for drawn in product(self.values, repeat=len(other))
        }
        return sorted(tables)
