"""Exact swap rates of strata or of records, as the compiled passes take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stirred.randomness.bernoulli import Threshold, require_probability

Thresholds = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StratumRates:
    """One exact swap rate for each stratum code 0, ..., strata - 1.

    ``values`` are the distinct rates. ``index`` tells which one a stratum has; None if all have the
    first. With very many strata build these two directly; ``by_stratum`` is for lists.

    >>> StratumRates.constant(Fraction(1, 20), strata=357).of(12)
    Fraction(1, 20)
    >>> StratumRates.by_stratum([Fraction(1, 2), Fraction(0), Fraction(1, 2)]).of(2)
    Fraction(1, 2)
    """

    values: tuple[Fraction, ...]
    index: npt.NDArray[np.uint32] | None
    strata: int

    def __post_init__(self) -> None:
        if not 0 <= self.strata <= 1 << 32:
            raise ValueError(f"{self.strata} strata do not fit. Codes are 32-bit: at most 2**32 strata")
        for rate in self.values:
            require_probability(rate)
        if self.index is None:
            if len(self.values) != 1:
                raise ValueError(f"{len(self.values)} rates without an index. Say which stratum has which")
        elif self.index.dtype != np.uint32 or self.index.shape != (self.strata,):
            raise ValueError(f"the index of rates must be {self.strata} uint32 numbers, one for each stratum")
        elif (self.index >= len(self.values)).any():
            raise ValueError(f"the index names rate {self.index.max()} of {len(self.values)} rates")

    @classmethod
    def constant(cls, rate: Fraction, *, strata: int) -> StratumRates:
        """Return the same rate for every stratum."""
        return cls(values=(rate,), index=None, strata=strata)

    @classmethod
    def by_stratum(cls, rates: Sequence[Fraction]) -> StratumRates:
        """Return the rates given in order of stratum code."""
        values = tuple(dict.fromkeys(rates))
        if len(values) == 1:
            return cls.constant(values[0], strata=len(rates))
        place = {rate: number for number, rate in enumerate(values)}
        index = np.array([place[rate] for rate in rates], dtype=np.uint32)
        return cls(values=values, index=index, strata=len(rates))

    def of(self, stratum: int) -> Fraction:
        """Return the rate of one stratum."""
        return self.values[0 if self.index is None else int(self.index[stratum])]

    def of_record(self, row: int, stratum: int) -> Fraction:
        """Return the rate of one record: that of its stratum."""
        return self.of(stratum)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordRates:
    """One exact swap rate for each record: ``kinds`` tells which of the distinct ``values`` a row has.

    A stratum in which one record has rate 1 and all others have rate 0 would be drawn again for ever: whoever
    makes these rates must leave it out, as plans do (``rate_rules``).

    >>> kinds = np.array([0, 0, 1], dtype=np.uint16)
    >>> RecordRates(values=(Fraction(1, 20), Fraction(1, 2)), kinds=kinds, strata=1).of_record(2, 0)
    Fraction(1, 2)
    """

    values: tuple[Fraction, ...]
    kinds: npt.NDArray[np.uint16]
    strata: int

    def __post_init__(self) -> None:
        for rate in self.values:
            require_probability(rate)
        if len(self.values) > 1 << 16:
            raise ValueError(f"{len(self.values)} different rates do not fit. Kinds are 16-bit: at most 65,536")
        if self.kinds.dtype != np.uint16 or self.kinds.ndim != 1:
            raise ValueError("the kinds of records must be uint16 numbers, one for each record")
        if self.kinds.size and int(self.kinds.max()) >= len(self.values):
            raise ValueError(f"a record names rate {self.kinds.max()} of {len(self.values)} rates")

    def of_record(self, row: int, stratum: int) -> Fraction:
        """Return the rate of one record."""
        return self.values[int(self.kinds[row])]


Rates = StratumRates | RecordRates


def thresholds(rates: Sequence[Fraction]) -> Thresholds:
    """Return the first digits and the tying words of rates, for compiled code."""
    each = [Threshold.of(rate) for rate in rates]
    return (
        np.array([threshold.digit for threshold in each], dtype=np.uint64),
        np.array([threshold.tie for threshold in each], dtype=np.uint64),
    )
