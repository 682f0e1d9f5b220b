"""The strata of a swap: who may exchange with whom, and which of them have anything to exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, count, differing, encode
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.persons import Part
from stirred.mechanisms.swapping.rates import StratumRates
from stirred.mechanisms.swapping.shares import Shares
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.exact import Exact
from stirred.spec.swap_budget import psa_sharp_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One stratum as its invariants show it: size, liveness and the rate it is swapped at."""

    values: tuple[object, ...]
    records: int
    live: bool
    rate: Fraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strata:
    """All strata of a file; ``coded`` gives each record its stratum, its place in ``table``.

    ``shares`` is the expected share of each stratum's records that get another record's swap values: a
    matter of the swap, which fills it in; 0 where there is nothing to swap. ``count_margins`` counts the swap
    values of each stratum when first called, and only then. ``settings`` are further settings that who corrects a
    table must know, the same in all strata.
    """

    match: tuple[str, ...]
    coded: Coded
    table: tuple[Stratum, ...]
    shares: Shares
    count_margins: Callable[[], SwapMargins] = field(repr=False)
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def margins(self) -> SwapMargins:
        """Return how often each swap value occurs in each stratum."""
        return self.count_margins()

    @property
    def live(self) -> tuple[Stratum, ...]:
        """Return the strata with at least two hold values and two swap values (swapping theory R1)."""
        return tuple(stratum for stratum in self.table if stratum.live)

    @property
    def largest_live(self) -> Stratum | None:
        """Return the largest live stratum, or None if nothing can be swapped."""
        return max(self.live, key=lambda stratum: stratum.records, default=None)

    @property
    def policy(self) -> PermutationSwapping:
        """Return the budget as a function of the universe: the largest live stratum at each rate."""
        largest: dict[Fraction, int] = {}
        for stratum in self.table:
            size = stratum.records if stratum.live else 0
            largest[stratum.rate] = max(largest.get(stratum.rate, 0), size)
        strata = tuple(SwappedStrata(rate=rate, largest_stratum=size) for rate, size in sorted(largest.items()))
        return PermutationSwapping(strata=strata, bound="sharp")

    @property
    def rates(self) -> StratumRates:
        """Return the rate of each stratum code, for the kernel."""
        distinct = list(dict.fromkeys(stratum.rate for stratum in self.table))
        if len(distinct) == 1:
            return StratumRates.constant(distinct[0], strata=len(self.table))
        place = {rate: number for number, rate in enumerate(distinct)}
        index = np.fromiter((place[stratum.rate] for stratum in self.table), dtype=np.uint32, count=len(self.table))
        return StratumRates(values=tuple(distinct), index=index, strata=len(self.table))

    @property
    def moved(self) -> float:
        """Return the expected share of all records that get another record's swap values."""
        sizes = self.sizes
        return float(sizes @ self.shares / sizes.sum()) if sizes.sum() else 0.0

    @property
    def sizes(self) -> Shares:
        """Return the number of records of each stratum."""
        return np.fromiter((stratum.records for stratum in self.table), dtype=np.float64, count=len(self.table))

    @property
    def largest_first(self) -> list[tuple[Stratum, float]]:
        """Return the strata by size, each with its share moved."""
        both = zip(self.table, self.shares.tolist(), strict=True)
        return sorted(both, key=lambda each: -each[0].records)

    def with_shares(self, shares: Shares) -> Strata:
        """Return the strata with the shares that a swap moves in the live ones."""
        live = np.fromiter((stratum.live for stratum in self.table), dtype=np.bool_, count=len(self.table))
        return replace(self, shares=np.where(live, shares, 0.0))

    @property
    def exact_records(self) -> int:
        """Return how many records lie in strata with nothing to swap: they are published as they are."""
        return sum(stratum.records for stratum in self.table if not stratum.live)

    @property
    def decisive(self) -> Stratum | None:
        """Return the stratum that sets the loss: the one whose size and rate lose most."""
        # The bound grows with the size, so only the largest at each rate can be the one.
        parts = [part for part in self.policy.strata if part.largest_stratum]
        losses = {part.rate: float(psa_sharp_epsilon(part.rate, stratum=part.largest_stratum)) for part in parts}
        return max(self.live, key=lambda stratum: (losses[stratum.rate], stratum.records), default=None)

    def epsilon(self, rate: Fraction) -> Exact:
        """Return the loss if all strata were swapped at one rate."""
        size = self.largest_live.records if self.largest_live else 0
        return psa_sharp_epsilon(rate, stratum=size)

    def frame(self, member: str) -> pl.DataFrame:
        """Return the strata as a table: match values, and our own columns with the prefix ``stratum_``.

        ``member`` names the swap, so that whoever corrects a table knows its law; the rate of a Mallows swap is
        the weight of a moved record.
        """
        own = {
            "stratum_records": [s.records for s in self.table],
            "stratum_live": [s.live for s in self.table],
            "stratum_law": [member] * len(self.table),
            "stratum_rate": [str(s.rate) for s in self.table],
            "stratum_expected_share_moved": self.shares,
            **{f"stratum_{name}": [value] * len(self.table) for name, value in self.settings},
        }
        return pl.concat([self.coded.levels.select(self.match), pl.DataFrame(own)], how="horizontal")


def find_strata(
    households: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Coded,
    held: Sequence[Part],
    rates: Sequence[tuple[dict[str, object], Fraction]],
    rate: Fraction,
) -> Strata:
    """Return the strata by the match variables.

    ``held`` gives the parts of the hold value one after the other, each as a column: a stratum has two
    hold values as soon as any part differs, so most of them are never looked at.
    """
    coded = encode(households, list(match))
    sizes = count(coded.codes, groups=coded.count)
    live = differing(coded.codes, swap.codes, count=coded.count)
    live &= _two_values(coded, held, wanted=live)
    values = coded.levels.rows() if match else [()]
    default = rate if not rates else None
    table = [
        Stratum(
            values=tuple(row),
            records=records,
            live=alive,
            rate=default if default is not None else _rate_for(dict(zip(match, row, strict=True)), rates, rate),
        )
        for row, records, alive in zip(values, sizes.tolist(), live.tolist(), strict=True)
    ]
    margins = cache(partial(SwapMargins.of, coded.codes, swap.codes, strata=coded.count, values=swap.count))
    return Strata(
        match=tuple(match), coded=coded, table=tuple(table), shares=np.zeros(len(table)), count_margins=margins
    )


def _two_values(coded: Coded, held: Sequence[Part], *, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which of the wanted strata have two different hold values, looking only at those still in doubt."""
    found = np.zeros(coded.count, dtype=np.bool_)
    for number, part in enumerate(held):
        doubtful = wanted & ~found
        if not doubtful.any():
            break
        # A look at every record costs less than picking some, where most strata are in doubt.
        rows = None if number == 0 or doubtful.all() else doubtful[coded.codes]
        groups = coded.codes if rows is None else coded.codes[rows]
        found |= differing(groups, _comparable(part(rows)), count=coded.count)
    return found


def _comparable(column: pl.Series) -> npt.NDArray[np.generic]:
    """Return a column as numbers that are equal exactly where its values are equal."""
    if column.dtype.is_integer() and column.dtype != pl.Int128 and not column.null_count():
        return column.to_numpy()
    # Dense ranks and not hashes: two different values must never look alike.
    return encode(column.to_frame("value"), ["value"]).codes


def _rate_for(
    values: dict[str, object], rates: Sequence[tuple[dict[str, object], Fraction]], default: Fraction
) -> Fraction:
    """Return the rate of the last rule that fits the match values, or the default."""
    chosen = default
    for wanted, rate in rates:
        if all(str(values[name]) == str(value) for name, value in wanted.items()):
            chosen = rate
    return chosen
