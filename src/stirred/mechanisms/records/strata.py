"""The strata of a swap as columns: who may exchange with whom, which have anything to exchange, and at which rates.

What follows from the counts of swap values, an invariant of every swap, is for plans and reports: in double precision,
and a function of the invariants alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, differing, encode
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, listed
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.spec.problems import Problem

Shares = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The columns of strata.parquet after the match values.
OWN_COLUMNS: Final = (
    *("stratum_records", "stratum_live", "stratum_law", "stratum_rate"),
    "stratum_expected_share_moved",
)
# How files write that a record is imputed, or is not.
FLAGGED: Final = ("true", "True", "TRUE", "1")
_NOT_FLAGGED: Final = ("false", "False", "FALSE", "0")
# A part of the hold value of some households, given by a mask (None for all), as one column.
Part = Callable[[npt.NDArray[np.bool_] | None], pl.Series]
# The values that a record must have, by variable, and the rate it then has.
Rule = tuple[Mapping[str, object], Fraction]


class RateRange(NamedTuple):
    """The lowest and the highest rate that the values of a stratum can meet, and what they follow (R8).

    >>> print(RateRange(Fraction(1, 10), Fraction(1, 2), "hold"), RateRange.one(Fraction(1, 20)))
    1/10 to 1/2 by hold value 1/20
    """

    lowest: Fraction
    highest: Fraction
    depends_on: str = "stratum"

    @classmethod
    def one(cls, rate: Fraction) -> RateRange:
        return cls(rate, rate)

    @property
    def varies(self) -> bool:
        """Say whether records of the stratum can have different rates."""
        return self.depends_on != "stratum"

    def __str__(self) -> str:
        if not self.varies:
            return str(self.lowest)
        follows = "hold and swap value" if self.depends_on == "both" else f"{self.depends_on} value"
        return f"{self.lowest} to {self.highest} by {follows}"


class StratumRow(NamedTuple):
    """One row of the strata; ``share`` is None where how many of its records move is protected."""

    values: tuple[object, ...]
    records: int
    live: bool
    rates: RateRange
    share: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Strata:
    """All strata of a file, one entry of each column for each; ``coded`` gives each record its stratum.

    ``live`` are those with at least two hold values and two swap values (swapping theory R1). ``rates[which[s]]`` are
    the rates of stratum ``s``. ``shares`` is the expected share of its records that get another record's swap values: a
    matter of the law, which fills it in; 0 where there is nothing to swap, and not a number where it is no function of
    the invariants. ``by_record`` are the rates of single records, where rules name more than match values.
    ``count_margins`` counts the swap values of each stratum when first called, and only then.
    """

    match: tuple[str, ...]
    coded: Coded
    records: Positions
    live: Flags
    rates: tuple[RateRange, ...]
    which: npt.NDArray[np.uint32]
    shares: Shares
    count_margins: Callable[[], SwapMargins] | None = field(repr=False)
    by_record: Rates | None = None

    @property
    def count(self) -> int:
        return self.coded.count

    @property
    def margins(self) -> SwapMargins:
        """Return how often each swap value occurs in each stratum."""
        assert self.count_margins is not None, "the counts of the swap values are protected: nothing may look at them"
        return self.count_margins()

    def __getitem__(self, stratum: int) -> StratumRow:
        share = float(self.shares[stratum])
        return StratumRow(
            values=self.coded.levels.row(stratum) if self.match else (),
            records=int(self.records[stratum]),
            live=bool(self.live[stratum]),
            rates=self.rates[self.which[stratum]],
            share=None if np.isnan(share) else share,
        )

    @cached_property
    def largest_live(self) -> StratumRow | None:
        """Return the largest live stratum, or None if nothing can be swapped."""
        return self[int(np.argmax(np.where(self.live, self.records, -1)))] if self.live.any() else None

    @property
    def largest_size(self) -> int:
        """Return the number of records of the largest live stratum, 0 if nothing can be swapped."""
        return 0 if self.largest_live is None else self.largest_live.records

    def largest(self, most: int) -> list[StratumRow]:
        """Return the largest strata, at most so many, the largest first."""
        return [self[stratum] for stratum in np.argsort(-self.records, kind="stable")[:most].tolist()]

    @property
    def kernel_rates(self) -> Rates:
        """Return the rate of each stratum code or of each record, for the kernel."""
        if self.by_record is not None:
            return self.by_record
        index = None if len(self.rates) == 1 else self.which
        return Rates(values=tuple(each.lowest for each in self.rates), index=index, strata=self.count)

    @cached_property
    def moved(self) -> float | None:
        """Return the expected share of all records that get another record's swap values.

        None if the invariants do not determine it: publishing it would reveal protected counts.
        """
        if np.isnan(self.shares).any():
            return None
        total = int(self.records.sum())
        return float(self.records.astype(np.float64) @ self.shares / total) if total else 0.0

    @property
    def most_moved(self) -> float:
        """Return how many records are expected to get another record's swap values; below 1 only if they are fewer.

        No fewer than change their values, since another record may have the same ones. Where the number is protected
        the highest rate stands for it: of n records n times that are selected at most, and one alone is never moved.
        """
        known = np.nan_to_num(self.records * self.shares, nan=0.0).sum()
        unsaid = [self[stratum] for stratum in np.flatnonzero(np.isnan(self.shares)).tolist()]
        return float(known) + float(sum(each.records * each.rates.highest for each in unsaid))

    @property
    def unmoved_records(self) -> int:
        """Return how many records lie in strata where nothing moves: nothing to swap there, or a rate of 0."""
        return int(self.records[self.shares == 0].sum())

    @property
    def exact_records(self) -> int:
        """Return how many records lie in strata with nothing to swap: they are published as they are."""
        return int(self.records[~self.live].sum())

    def with_shares(self, shares: Shares) -> Strata:
        """Return the strata with the shares that a swap moves in the live ones."""
        return replace(self, shares=np.where(self.live, shares, 0.0))

    def frame(self, law: str) -> pl.DataFrame:
        """Return the strata as a table: match values, and our own columns with the prefix ``stratum_``.

        ``law`` names the law of the swap for readers who correct a table; the rate of a Mallows swap is the weight of
        a moved record. The share moved is missing where it is no function of the invariants.
        """
        texts = pl.Series([str(each) for each in self.rates], dtype=pl.String)
        own = {
            "stratum_records": self.records,
            "stratum_live": self.live,
            "stratum_law": [law] * self.count,
            "stratum_rate": texts.gather(self.which),
            # Sums of doubles: their last digits depend on the processor, and the same key gives the same bytes.
            "stratum_expected_share_moved": pl.Series(self.shares).fill_nan(None).round_sig_figs(12),
        }
        return pl.concat([self.coded.levels.select(self.match), pl.DataFrame(own)], how="horizontal")


def find_strata(
    households: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Coded | None,
    held: Sequence[Part] | None,
    rate: Fraction,
) -> Strata:
    """Return the strata by the match variables, all with one rate.

    ``held`` gives the parts of the hold value one after the other, each as a column: a stratum has two
    hold values as soon as any part differs, so most of them are never looked at. A side that is None
    may not be looked at: any two records could differ on it.
    """
    coded = encode(households, list(match))
    records = count(coded.codes, groups=coded.count).astype(np.int64)
    live = records > 1 if swap is None else differing(coded.codes, swap.codes, count=coded.count)
    if held is not None:
        live &= _two_values(coded, held, wanted=live)
    margins = None
    if swap is not None:
        margins = cache(partial(SwapMargins.of, coded.codes, swap.codes, strata=coded.count, values=swap.count))
    return Strata(
        match=tuple(match),
        coded=coded,
        records=records,
        live=live,
        rates=(RateRange.one(rate),),
        which=np.zeros(coded.count, dtype=np.uint32),
        shares=np.zeros(coded.count),
        count_margins=margins,
    )


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


def _two_values(coded: Coded, held: Sequence[Part], *, wanted: Flags) -> Flags:
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


def imputed_strata(strata: Strata, flag: str) -> npt.NDArray[np.bool_]:
    """Say of each stratum whether its records are imputed; refuse flags that are neither yes nor no."""
    values = [str(value) for value in strata.coded.levels[flag].to_list()]
    other = sorted({value for value in values if value not in (*FLAGGED, *_NOT_FLAGGED)})
    if other:
        raise DataError(
            [
                Problem(
                    what=f"{listed(other[:5])} does not say whether a record is imputed",
                    where=f'"{flag}"',
                    remedy="write true and false, or 1 and 0",
                )
            ]
        )
    return np.array([value in FLAGGED for value in values], dtype=np.bool_)


# ---- what records hold ------------------------------------------------------------------------------------


def held_parts(data: Microdata, hold: Sequence[str]) -> list[Part]:
    """Return the parts of a household's hold value, the cheap ones first and its persons last."""
    parts: list[Part] = [partial(_column, data, name) for name in hold]
    if data.persons is not None:
        parts.append(lambda rows: _persons_as_text(data, rows))
    return parts


def _column(data: Microdata, name: str, rows: npt.NDArray[np.bool_] | None) -> pl.Series:
    return data.households[name] if rows is None else data.households[name].filter(rows)


def _persons_as_text(data: Microdata, rows: npt.NDArray[np.bool_] | None) -> pl.Series:
    """Return the persons of some households written out, so that equal text means equal persons."""
    assert data.persons is not None
    if rows is None:
        rows = np.ones(data.households.height, dtype=np.bool_)
    house = household_rows(data)
    wanted = rows[house]
    values = pl.DataFrame([data.persons[name].filter(wanted) for name in data.person_variables])
    codes = encode(values, values.columns).codes if values.width else np.zeros(int(wanted.sum()), dtype=np.uint32)
    people = pl.DataFrame({"house": house[wanted], "person": codes}).sort("house", "person")
    text = people.group_by("house", maintain_order=True).agg(pl.col("person").cast(pl.String).str.join(" "))
    index = pl.DataFrame({"house": np.flatnonzero(rows).astype(np.uint32)})
    return index.join(text, on="house", how="left", maintain_order="left")["person"].fill_null("")


# ---- the counts of swap values ----------------------------------------------------------------------------


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
            from stirred.mechanisms.records.kernels.cells import CellCounts
            from stirred.mechanisms.records.kernels.partition import Workers

            table = CellCounts.by_value(stratum, swap, strata=strata, values=values, workers=Workers())
            occupied, begins, codes = table.occupied()
            return cls(begins=begins, codes=codes, have=table.have[occupied])
        cells = np.bincount(stratum.astype(np.int64) * values + swap, minlength=strata * values)
        present = np.flatnonzero(cells)
        begins = np.searchsorted(present, np.arange(strata + 1) * values)
        return cls(begins=begins, codes=(present % values).astype(np.uint32), have=cells[present].astype(np.uint32))

    @property
    def strata(self) -> int:
        return self.begins.size - 1

    @property
    def stratum(self) -> npt.NDArray[np.int64]:
        """Return the stratum of each value."""
        return np.repeat(np.arange(self.strata), self.values_present)

    @property
    def value(self) -> npt.NDArray[np.int64]:
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
