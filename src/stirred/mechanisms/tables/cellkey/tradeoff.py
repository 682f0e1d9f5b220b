"""What cell keys promise: delta for each epsilon, exactly, from the perturbation table.

The unit is one record added or removed. In every table it changes one cell, from a count n to n + 1, and with the set
of records its key. All is computed for ideal keys: uniform, independent for different sets and secret; with keys from a
pseudo-random function its advantage is added to delta.

Bounded noise has no finite pure loss: supports of neighbouring counts differ. ``delta`` is
sum max(0, P(t) - e^epsilon Q(t)), the larger of both directions, at the worst counts:

- One table whose keys are used for nothing else: the worst of P_n against P_(n+1).
- Several tables and noise by *sets* of records: without the record, its cell may be the same set as an unchanged cell
  of another table, and then both show the same noise; with it they do not. Whoever sees a difference knows that there
  is a record. Given the unchanged cell, one law is a point and the other P_(n+1), so at *every* epsilon
  delta = 1 - c^m for m tables, c the least of sum_v p_n(v) p_(n+1)(v - 1) and of the chance that a 1 becomes 0. Cells
  that do not tie, or tie with each other, show less (they are post-processing of cells that tie).
- Several tables and noise by *definitions* of cells: independent cells, so laws multiply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any, Final, Literal

from stirred.mechanisms.tables.cellkey.ptable import PTable
from stirred.spec.exact import Exact, exp

KeyedBy = Literal["records", "definition"]
Mass = Mapping[Any, Fraction]
_DIGITS: Final = 40
_PLACES: Final = 10**6
# So many independent cells have their laws multiplied; beyond that epsilon and delta are shared out between them.
_MULTIPLIED: Final = 3


def factor_below(epsilon: Exact) -> Fraction:
    """Return a fraction at most e^epsilon, to forty digits: a delta computed with it is never too small."""
    factor = exp(epsilon)
    return factor.rational if factor.is_rational else Fraction(factor.enclose(_DIGITS).low)


def hockey_stick(p: Mass, q: Mass, factor: Fraction) -> Fraction:
    """Return sum max(0, p - factor q), the larger of both directions.

    >>> half = Fraction(1, 2)
    >>> hockey_stick({0: half, 1: half}, {1: half, 2: half}, Fraction(1))
    Fraction(1, 2)
    """
    there = sum((max(Fraction(0), mass - factor * q.get(t, 0)) for t, mass in p.items()), Fraction(0))
    back = sum((max(Fraction(0), mass - factor * p.get(t, 0)) for t, mass in q.items()), Fraction(0))
    return max(there, back)


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeOff:
    """The trade-off of a declared number of tables.

    ``alone`` says that the keys are used for these tables only. ``zeros_fixed`` says that which cells are empty is
    published exactly and not protected. ``least`` may restrict counts further, for what-if questions.
    """

    table: PTable
    tables: int = 1
    keyed_by: KeyedBy = "records"
    alone: bool = True
    zeros_fixed: bool = False
    least: int = 0

    @property
    def counts(self) -> range:
        """Return the counts n of which the step to n + 1 has to be looked at; all larger ones are like the last."""
        rows = len(self.table.rows)
        # A table that repeats itself (of the ONS) has a step at its end that no other count has.
        last = rows if self.table.pcv(rows + 1) == rows else rows + 1
        return range(max(self.least, 1 if self.zeros_fixed else 0), max(last, self.least) + 1)

    @property
    def ties(self) -> bool:
        """Say whether an unchanged cell of another table may be the same set of records."""
        return self.keyed_by == "records" and not (self.alone and self.tables == 1)

    def common(self, count: int) -> Fraction:
        """Return how probable it is that n + 1 is shown as what a cell of n records shows."""
        one, other = self.table.law(count), self.table.law(count + 1)
        return sum((mass * other.get(t, 0) for t, mass in one.items()), Fraction(0))

    def delta(self, epsilon: Exact) -> Fraction:
        """Return delta at an epsilon, an upper bound that is exact but for e^epsilon in the 40th digit."""
        if self.ties:
            return 1 - min(map(self.common, self.counts)) ** self.tables
        if self.tables > _MULTIPLIED:
            return min(Fraction(1), self.tables * self._single(factor_below(epsilon / self.tables)))
        factor = factor_below(epsilon)
        if self.tables == 1:
            return self._single(factor)
        worst = combinations_with_replacement(self.counts, self.tables)
        return max(self._multiplied(counts, factor) for counts in worst)

    def _single(self, factor: Fraction) -> Fraction:
        return max(hockey_stick(self.table.law(n), self.table.law(n + 1), factor) for n in self.counts)

    def _multiplied(self, counts: Sequence[int], factor: Fraction) -> Fraction:
        one, other = ([self.table.law(n + more) for n in counts] for more in (0, 1))
        return hockey_stick(_joint(one), _joint(other), factor)

    def rounded(self, epsilon: Exact) -> Fraction:
        """Return delta rounded up, as it is published: to six places, or twelve where it is small."""
        delta = self.delta(epsilon)
        places = _PLACES if delta > Fraction(1, 1000) else _PLACES**2
        return Fraction(-(-delta * places // 1), places)


def _joint(laws: Sequence[Mass]) -> dict[tuple[int, ...], Fraction]:
    """Return the law of several independent cells."""
    return {
        tuple(t for t, _ in cells): prod((mass for _, mass in cells), start=Fraction(1))
        for cells in product(*(law.items() for law in laws))
    }
