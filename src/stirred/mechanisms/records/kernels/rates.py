"""Exact swap rates of strata or of records, as the compiled passes take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from stirred.randomness.bernoulli import Threshold, require_probability


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """The exact swap rates of a file with stratum codes 0, ..., strata - 1.

    ``values`` are the distinct rates. ``index`` tells which one each stratum has, in 32 bits, or ``by_record`` each
    record, in 16 bits; None if all have the first. A stratum in which one record has rate 1 and all others have rate 0
    would be drawn again for ever: plans refuse it (``laws.varying``).

    >>> Rates.constant(Fraction(1, 20), strata=357).of_record(0, 12)
    Fraction(1, 20)
    >>> kinds = np.array([0, 0, 1], dtype=np.uint16)
    >>> Rates(values=(Fraction(1, 20), Fraction(1, 2)), index=kinds, strata=1, by_record=True).of_record(2, 0)
    Fraction(1, 2)
    """

    values: tuple[Fraction, ...]
    strata: int
    index: npt.NDArray[Any] | None = None
    by_record: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.strata <= 1 << 32:
            raise ValueError(f"{self.strata} strata do not fit. Codes are 32-bit: at most 2**32 strata")
        for rate in self.values:
            require_probability(rate)
        index = self.index
        if index is None:
            if len(self.values) != 1:
                raise ValueError(f"{len(self.values)} rates without an index. Say which stratum has which")
        elif self.by_record and (index.dtype != np.uint16 or index.ndim != 1):
            raise ValueError("the index of rates by record must be uint16 numbers, one for each record")
        elif not self.by_record and (index.dtype != np.uint32 or index.shape != (self.strata,)):
            raise ValueError(f"the index of rates must be {self.strata} uint32 numbers, one for each stratum")
        elif int(index.max(initial=0)) >= len(self.values):
            raise ValueError(f"the index names rate {index.max(initial=0)} of {len(self.values)} rates")

    @classmethod
    def constant(cls, rate: Fraction, *, strata: int) -> Rates:
        """Return the same rate for every stratum."""
        return cls(values=(rate,), strata=strata)

    def of_record(self, row: int, stratum: int) -> Fraction:
        """Return the rate of a record in a row and a stratum."""
        if self.index is None:
            return self.values[0]
        return self.values[int(self.index[row if self.by_record else stratum])]


def thresholds(rates: Sequence[Fraction]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the first digits and the tying words of rates, for compiled code."""
    each = [Threshold.of(rate) for rate in rates]
    return (
        np.array([threshold.digit for threshold in each], dtype=np.uint64),
        np.array([threshold.tie for threshold in each], dtype=np.uint64),
    )
