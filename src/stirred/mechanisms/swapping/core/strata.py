"""The strata of a swap: who may exchange with whom, and which of them have anything to exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, count, differing, encode
from stirred.mechanisms.swapping.core.margins import Shares, SwapMargins
from stirred.mechanisms.swapping.core.rates import Rates, RecordRates, Rule, StratumRates, VaryingRates, rate_for
from stirred.mechanisms.swapping.core.swapped_file import Part
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.exact import ZERO, Exact, largest
from stirred.spec.swap_budget import psa_sharp_epsilon

# The columns of strata.parquet beside the match values.
OWN_COLUMNS: Final = (
    *("stratum_records", "stratum_live", "stratum_law", "stratum_rate"),
    "stratum_expected_share_moved",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One stratum as its invariants show it: size, liveness and the rate it is swapped at.

    Where its records can have different rates, ``varying`` says how and ``rate`` is the lowest (R8).
    """

    values: tuple[object, ...]
    records: int
    live: bool
    rate: Fraction
    varying: VaryingRates | None = None

    @property
    def epsilon(self) -> Exact:
        """Return its loss: 0 where there is nothing to swap."""
        size = self.records if self.live else 0
        if self.varying is not None:
            return self.varying.epsilon(size)
        return psa_sharp_epsilon(self.rate, stratum=size)

    @property
    def rate_shown(self) -> str:
        """Return its rate, or between which its records' rates lie, for readers."""
        return str(self.rate if self.varying is None else self.varying)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strata:
    """All strata of a file; ``coded`` gives each record its stratum, its place in ``table``.

    ``shares`` is the expected share of each stratum's records that get another record's swap values: a
    matter of the swap, which fills it in; 0 where there is nothing to swap, and not a number where it is no
    function of the invariants. ``by_record`` are the rates of single records, where rules name more than match
    values. ``count_margins`` counts the swap values of each stratum when first called, and only then.
    """

    match: tuple[str, ...]
    coded: Coded
    table: tuple[Stratum, ...]
    shares: Shares
    count_margins: Callable[[], SwapMargins] | None = field(repr=False)
    by_record: RecordRates | None = None
    # What was computed from the margins and is asked for again, by what computed it.
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def margins(self) -> SwapMargins:
        """Return how often each swap value occurs in each stratum."""
        assert self.count_margins is not None, "the counts of the swap values are protected: nothing may look at them"
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
        sizes: dict[Fraction, int] = {}
        for stratum in self.table:
            size = stratum.records if stratum.live else 0
            sizes[stratum.rate] = max(sizes.get(stratum.rate, 0), size)
        strata = tuple(SwappedStrata(rate=rate, largest_stratum=size) for rate, size in sorted(sizes.items()))
        return PermutationSwapping(strata=strata, bound="sharp")

    @property
    def rates(self) -> Rates:
        """Return the rate of each stratum code or of each record, for the kernel."""
        if self.by_record is not None:
            return self.by_record
        return StratumRates.by_stratum([stratum.rate for stratum in self.table])

    @property
    def moved(self) -> float | None:
        """Return the expected share of all records that get another record's swap values.

        None where it is no function of the invariants, and would tell of what is protected.
        """
        sizes = self.sizes
        if np.isnan(self.shares).any():
            return None
        return float(sizes @ self.shares / sizes.sum()) if sizes.sum() else 0.0

    @property
    def most_moved(self) -> float:
        """Return how many records are expected to get another record's swap values; below 1 only if they are fewer.

        No fewer than change their values, since another record may have the same ones. Where the number is protected
        the highest rate stands for it: of n records n times that are selected at most, and one alone is never moved.
        """
        known = np.nan_to_num(self.sizes * self.shares, nan=0.0).sum()
        unsaid = (s for s, share in zip(self.table, self.shares.tolist(), strict=True) if np.isnan(share))
        bounds = (s.records * (s.varying.highest if s.varying is not None else s.rate) for s in unsaid)
        return float(known) + float(sum(bounds))

    @property
    def unmoved_records(self) -> int:
        """Return how many records lie in strata where nothing moves: nothing to swap there, or a rate of 0."""
        return int(self.sizes[self.shares == 0].sum())

    @property
    def sizes(self) -> Shares:
        """Return the number of records of each stratum."""
        return np.fromiter((stratum.records for stratum in self.table), dtype=np.float64, count=len(self.table))

    @property
    def largest_first(self) -> list[tuple[Stratum, float | None]]:
        """Return the strata by size, each with its share moved, None where that is not said."""
        shares = (None if np.isnan(share) else share for share in self.shares.tolist())
        both = zip(self.table, shares, strict=True)
        return sorted(both, key=lambda each: -each[0].records)

    @property
    def live_flags(self) -> npt.NDArray[np.bool_]:
        """Say of each stratum whether it is live."""
        return np.fromiter((stratum.live for stratum in self.table), dtype=np.bool_, count=len(self.table))

    def with_shares(self, shares: Shares) -> Strata:
        """Return the strata with the shares that a swap moves in the live ones."""
        return replace(self, shares=np.where(self.live_flags, shares, 0.0), known={})

    @property
    def exact_records(self) -> int:
        """Return how many records lie in strata with nothing to swap: they are published as they are."""
        return sum(stratum.records for stratum in self.table if not stratum.live)

    @property
    def _worst(self) -> list[Stratum]:
        """Return live strata among which is the one that loses most: the largest at each rate."""
        found: dict[tuple[object, ...], Stratum] = {}
        for stratum in self.live:
            # The bound grows with the size, but where rates follow both values: there all sizes count (R8d).
            both = stratum.varying is not None and stratum.varying.depends_on == "both"
            key = (stratum.rate, stratum.varying, stratum.records if both else 0)
            if key not in found or stratum.records > found[key].records:
                found[key] = stratum
        return [*found.values()]

    @property
    def decisive(self) -> Stratum | None:
        """Return the stratum that sets the loss: the one whose size and rates lose most."""
        return max(self._worst, key=lambda stratum: (float(stratum.epsilon), stratum.records), default=None)

    @property
    def loss(self) -> Exact:
        """Return the largest loss of all strata."""
        return largest([ZERO, *(stratum.epsilon for stratum in self._worst)])

    def epsilon(self, rate: Fraction) -> Exact:
        """Return the loss if all strata were swapped at one rate."""
        size = self.largest_live.records if self.largest_live else 0
        return psa_sharp_epsilon(rate, stratum=size)

    def frame(self, law: str) -> pl.DataFrame:
        """Return the strata as a table: match values, and our own columns with the prefix ``stratum_``.

        ``law`` names the law of the swap for whoever corrects a table; the rate of a Mallows swap is the weight of
        a moved record. The share moved is missing where it is no function of the invariants.
        """
        own = {
            "stratum_records": [s.records for s in self.table],
            "stratum_live": [s.live for s in self.table],
            "stratum_law": [law] * len(self.table),
            "stratum_rate": [s.rate_shown for s in self.table],
            "stratum_expected_share_moved": pl.Series(self.shares).fill_nan(None),
        }
        return pl.concat([self.coded.levels.select(self.match), pl.DataFrame(own)], how="horizontal")


def find_strata(
    households: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Coded | None,
    held: Sequence[Part] | None,
    rates: Sequence[Rule],
    rate: Fraction,
) -> Strata:
    """Return the strata by the match variables.

    ``held`` gives the parts of the hold value one after the other, each as a column: a stratum has two
    hold values as soon as any part differs, so most of them are never looked at. A side that is None
    may not be looked at: any two records could differ on it.
    """
    coded = encode(households, list(match))
    sizes = count(coded.codes, groups=coded.count)
    live = sizes > 1 if swap is None else differing(coded.codes, swap.codes, count=coded.count)
    if held is not None:
        live &= _two_values(coded, held, wanted=live)
    values = coded.levels.rows() if match else [()]
    table = [
        Stratum(
            values=tuple(row),
            records=records,
            live=alive,
            rate=rate_for(dict(zip(match, row, strict=True)), rates, rate) if rates else rate,
        )
        for row, records, alive in zip(values, sizes.tolist(), live.tolist(), strict=True)
    ]
    margins = None
    if swap is not None:
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
