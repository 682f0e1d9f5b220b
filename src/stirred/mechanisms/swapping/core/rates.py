"""Swap rates by stratum, or by record, exact.

Rates may differ between strata if they depend on the stratum and the invariants only (swapping theory,
R0'), and inside a stratum if they depend on the record's own values by a rule fixed beforehand (R8). A rate
chosen from the confidential file in any other way voids the guarantee (docs/theory/conditions.md, condition 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.permutation.rates_budget import varying_rate_epsilon
from stirred.randomness.bernoulli import Threshold, require_probability
from stirred.spec.exact import Exact

Thresholds = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
# The values that a record must have, by variable, and the rate it then has.
Rule = tuple[Mapping[str, object], Fraction]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VaryingRates:
    """Rates that differ inside a stratum: the lowest and highest its values can meet, and what they follow (R8).

    >>> varying = VaryingRates(lowest=Fraction(1, 10), highest=Fraction(1, 2), depends_on="hold")
    >>> print(varying, varying.epsilon(4))
    1/10 to 1/2 by hold value ln(27)
    """

    lowest: Fraction
    highest: Fraction
    depends_on: str

    def epsilon(self, records: int) -> Exact:
        """Return the loss of a live stratum of so many records."""
        return varying_rate_epsilon(self.lowest, self.highest, stratum=records, depends_on=self.depends_on)

    def __str__(self) -> str:
        follows = "hold and swap value" if self.depends_on == "both" else f"{self.depends_on} value"
        return f"{self.lowest} to {self.highest} by {follows}"


def text_of(value: object) -> str:
    """Return a value as rules compare it: as text, and truth as a CSV file writes it.

    >>> text_of(1), text_of(True)
    ('1', 'true')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def rate_for(values: Mapping[str, object], rules: Sequence[Rule], default: Fraction) -> Fraction:
    """Return the rate of the last rule that fits the values, or the default; values are compared as text.

    >>> rate_for({"size": 1}, [({"size": "1"}, Fraction(1, 2))], Fraction(1, 20))
    Fraction(1, 2)
    """
    chosen = default
    for wanted, rate in rules:
        if all(text_of(values[name]) == text_of(value) for name, value in wanted.items()):
            chosen = rate
    return chosen
