"""How many records each stratum has of each swap value, an invariant of every swap, and what follows from it.

How many records a swap is expected to move, and how many of each swap value change it: for plans and reports, in
double precision, and functions of the invariants alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Codes

# Up to here a table of all strata by all swap values is counted in place.
_DENSE: Final = 1 << 26
# From so many rows on, loading compiled code pays.
_LARGE: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwapMargins:
    """The swap values present in each stratum and their counts, ordered by stratum.

    A nation has tens of millions of them, and a plan keeps them: ``codes`` and ``have`` are the values and counts in
    few bytes, those of stratum ``s`` from ``begins[s]`` on.
    """

    begins: npt.NDArray[np.int64]
    codes: Codes
    have: Codes

    @classmethod
    def of(cls, stratum: Codes, swap: Codes, *, strata: int, values: int) -> SwapMargins:
        """Count.

        >>> homes, places = np.array([0, 0, 1], dtype=np.uint32), np.array([0, 1, 1], dtype=np.uint32)
        >>> SwapMargins.of(homes, places, strata=2, values=2).count.tolist()
        [1, 1, 1]
        """
        if stratum.size >= _LARGE or strata * values > _DENSE:
            from stirred.mechanisms.swapping.kernels.cells import Cells
            from stirred.mechanisms.swapping.kernels.partition import Workers

            table = Cells.by_value(stratum, swap, strata=strata, values=values, workers=Workers())
            occupied, begins, codes = table.occupied()
            return cls(begins=begins, codes=codes, have=table.have[occupied])
        cells = np.bincount(stratum.astype(np.int64) * values + swap, minlength=strata * values)
        present = np.flatnonzero(cells)
        begins = np.searchsorted(present, np.arange(strata + 1) * values)
        return cls(begins=begins, codes=(present % values).astype(np.uint32), have=cells[present].astype(np.uint32))

    @property
    def strata(self) -> int:
        """Return the number of strata."""
        return self.begins.size - 1

    @property
    def stratum(self) -> npt.NDArray[np.int64]:
        """Return the stratum of each value."""
        return np.repeat(np.arange(self.strata), self.values_present)

    @property
    def value(self) -> npt.NDArray[np.int64]:
        """Return the values."""
        return self.codes.astype(np.int64)

    @property
    def count(self) -> npt.NDArray[np.int64]:
        """Return how many records have each value."""
        return self.have.astype(np.int64)

    @property
    def values_present(self) -> npt.NDArray[np.int64]:
        """Return how many swap values each stratum has."""
        return np.diff(self.begins)

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """Return the size of each stratum."""
        return np.bincount(self.stratum, weights=self.count, minlength=self.strata).astype(np.int64)

    def smallest(self, masses: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the places of the values with the smallest and second smallest mass of each stratum that has two.

        ``masses`` belong to the values of this table, in its order; only their order counts.
        """
        order = np.lexsort((masses, self.stratum))
        begin = np.searchsorted(self.stratum[order], np.flatnonzero(self.values_present >= 2))
        return order[begin], order[begin + 1]


Shares = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


def permutation_share(records: Shares, rate: Shares) -> Shares:
    """Return the share of records that get another record's swap values in permutation swapping.

    With the redraw of Algorithm 1 this is p(1-(1-p)^(n-1)) / (1 - np(1-p)^(n-1)), not the numerator
    alone as section 3.3 has it (swapping theory R3.1).

    >>> permutation_share(np.array([2.0, 3.0]), np.array([0.5, 0.5])).tolist()
    [0.5, 0.6]
    """
    stay = (1 - rate) ** (records - 1)
    some = (records > 1) & (rate > 0)
    return np.divide(rate * (1 - stay), 1 - records * rate * stay, out=np.zeros_like(stay), where=some)


def varying_share(counts: Positions, rates: Shares) -> Shares:
    """Return the same where records have different rates: ``counts[stratum, kind]`` of them have ``rates[kind]``.

    The expected number selected, given that it is not one: (E[k] - P1)/(1 - P1).

    >>> varying_share(np.array([[1, 1], [2, 0]]), np.array([0.5, 0.25])).round(6).tolist()
    [0.25, 0.5]
    """
    has = counts > 0
    inside = np.where(has, rates, 0.0)  # a rate of 1 that nobody has must not spoil the sums
    none = np.exp((counts * np.log1p(-inside)).sum(axis=1))
    one = none * (counts * inside / (1 - inside)).sum(axis=1)
    return ((counts * inside).sum(axis=1) - one) / (1 - one) / counts.sum(axis=1)


def shuffle_share(records: Shares, rate: Shares) -> Shares:
    """Return the same for the shuffle swap: of k selected records one keeps its place on average.

    >>> shuffle_share(np.array([2.0]), np.array([1.0])).tolist()
    [0.5]
    """
    return (records * rate - 1 + (1 - rate) ** records) / records


def mallows_share(records: int, weight: Fraction) -> float:
    """Return the same for the Mallows swap.

    >>> round(mallows_share(4, Fraction(1, 3)), 6)  # T16: 2, 3 or 4 of 4 move, with chances 54, 24 and 9 of 168
    0.321429
    """
    from stirred.mechanisms.swapping.laws.moved import mallows_moved

    moved, chance = mallows_moved(records, weight)
    return float(moved @ chance / records)


def staged_moves(records: Shares, *, coarse: Shares, fine: Shares, within: Positions) -> Shares:
    """Return the same for each part of strata that a second swap exchanges within; ``within`` says whose part it is.

    A record keeps its values if neither stage moves it, or if the second undoes the first: it gets the place
    of another record of its part, which the first stage gave this record's values, one of n - 1 equally likely.

    >>> two = np.array([2.0])
    >>> staged_moves(two, coarse=two / 4, fine=two / 4, within=np.array([0])).tolist()  # two exchanges, each with 1/2
    [0.5]
    """
    first = coarse[within]
    back = first / np.maximum(records[within] - 1, 1)
    return np.asarray(1 - (1 - fine) * (1 - first) - fine * back)


def staged_share(records: Shares, *, coarse: Shares, fine: Shares, fine_records: Shares, within: Positions) -> Shares:
    """Return the same for whole strata, swapped within and then within their parts."""
    moved = staged_moves(records, coarse=coarse, fine=fine, within=within)
    return np.bincount(within, weights=fine_records * moved, minlength=records.size) / np.maximum(records, 1)


def class_law_changes(margins: SwapMargins, moved: Shares) -> Shares:
    """Return the share of each value's records that change it, where a moved record goes to any other's place."""
    n = margins.records[margins.stratum].astype(np.float64)
    return moved[margins.stratum] * (n - margins.count) / np.maximum(n - 1, 1)


def conditioned_changes(margins: SwapMargins, *, odds: float, masses: Shares) -> Shares:
    """Return the same for the conditioned swap, from its law of selected counts.

    >>> homes = np.zeros(200, dtype=np.uint32)
    >>> places = np.repeat(np.arange(2, dtype=np.uint32), 100)
    >>> margins = SwapMargins.of(homes, places, strata=1, values=2)
    >>> conditioned_changes(margins, odds=1.0, masses=np.full(2, 0.5)).round(3).tolist()
    [0.249, 0.249]
    """
    from stirred.mechanisms.swapping.conditioned.selected_shares import expected_changes

    if math.isinf(odds):
        total = margins.records[margins.stratum].astype(np.float64)
        return 1 - margins.count / total
    return expected_changes(margins.stratum, margins.count, odds * masses)
