"""What columns of a file tell of its swap values: in which rows, and in which groups.

Of a large file some rows are sampled, drawn by their numbers: the order of a file, which is often that of its areas,
changes nothing. Rows that share a value show what it tells, so of a column with many values all rows of *some values*
are kept; and neighbours show what its order tells, so pieces of it are kept.
Groups of records show a value if all of a group share it and chance would hardly bring that about (``shown``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, differing, encode
from stirred.data.columns import Columns
from stirred.data.guessing import Guess, GuessTarget, hashed, numbered, spread, voted
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata

_Array = npt.NDArray[Any]
# So many rows are looked at for single columns, and for pairs. Persons are guessed by household, which takes longer.
ROWS: Final = 200_000
ROWS_OF_PERSONS: Final = 20_000
ROWS_OF_PAIRS: Final = 20_000
# And so many are put in order, since sorting takes longest: text above all. Of an order pieces are looked at.
_SORTED: Final = 1_000_000
_PIECE: Final = 1_000
# With fewer rows to a value a column has many values: its rows are kept by value, and neighbours are asked too.
_MANY_VALUES: Final = 20
# So many neighbours are asked: few where areas are small, many where the order is rough.
_NEIGHBOURS: Final = (3, 10, 30)
# The first letters of codes, up to so many, often name the area.
_BEGINNINGS: Final = 4
# Pairs of columns with many values are looked at in cells of about so many rows.
_CELL: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwapColumns:
    """The columns of a file that a swap of ``unit`` matches on, exchanges and holds, with codes of strata and values.

    ``perturbed`` gets a randomised response; ``exact_hold`` and ``exact_swap`` are the columns that do not.
    """

    match: tuple[str, ...]
    swap: tuple[str, ...]
    hold: tuple[str, ...]
    strata: Coded
    coded: Coded
    unit: str
    perturbed: str | None = None
    exact_hold: tuple[str, ...]
    exact_swap: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a column, or two, tell of one swap value: how often it is guessed, and how many records show it."""

    guess: Guess
    shown: Shown

    def __or__(self, other: Evidence) -> Evidence:
        """Return the better of each."""
        return Evidence(
            guess=max(self.guess, other.guess, key=lambda each: each.removed),
            shown=max(self.shown, other.shown, key=lambda each: each.rank),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SearchedFile:
    """Households or persons, with what is to be guessed there; ``house`` is the household of each person."""

    columns: Columns
    homes: pl.DataFrame
    house: _Array | None
    strata: Codes
    swap: tuple[str, ...]
    coded: Coded

    @classmethod
    def of(cls, data: Microdata, columns: SwapColumns, *, persons: bool) -> SearchedFile:
        """Return the file of households, or of persons."""
        searched: Columns = data.households
        house = None
        if persons and data.persons is not None:
            searched, house = data.persons, household_rows(data)
        return cls(searched, data.households, house, columns.strata.codes, columns.swap, columns.coded)

    def some(self, most: int) -> _Array | None:
        """Return about so many rows, and of persons those of whole households; None where that is every row."""
        height = self.columns.height
        if self.house is None or height <= most:
            return spread(height, most=most)
        return self._persons_of(spread(self.homes.height, most=max(1, most * self.homes.height // height)))

    def of_some_values(self, most: int) -> _Array | None:
        """Return all rows of some swap values; None where a sample has enough of each.

        Where few rows share a swap value, as in a block, columns may tell it that rows here and there cannot show.
        These rows find them. They have few of the values and make guesses too easy, so what they find is judged once
        more (``of_combinations``).
        """
        height = self.columns.height
        if height <= most or self.coded.count * _MANY_VALUES <= most:
            return None
        limit = np.uint64(((1 << 64) - 1) // height * most)
        kept = np.flatnonzero((hashed(np.arange(self.coded.count)) < limit)[self.coded.codes])
        return kept if self.house is None else self._persons_of(kept)

    def of_combinations(self, names: Sequence[str], most: int) -> _Array | None:
        """Return all rows of some combinations of values; None where that is every row."""
        height = self.columns.height
        if height <= most:
            return None
        values = pl.DataFrame([self.columns[name] for name in names]).hash_rows(seed=1)
        return np.flatnonzero((values < ((1 << 64) - 1) // height * most).to_numpy())

    def _persons_of(self, homes: _Array | None) -> _Array:
        kept = np.zeros(self.homes.height, dtype=np.bool_)
        kept[homes] = True
        return np.flatnonzero(kept[self.house])

    @property
    def rows(self) -> int:
        """Return how many rows are looked at for single columns."""
        return ROWS if self.house is None else ROWS_OF_PERSONS

    def sample(self, rows: _Array | None) -> RowSample:
        """Return some rows, or all, with what is to be guessed there."""
        own = None
        at = rows
        if self.house is not None:
            at, own = np.unique(self.house if rows is None else self.house[rows], return_inverse=True)
            at = at.astype(np.int64)
        strata = self.strata if at is None else self.strata[at]
        # Swap values are known as codes: the file need not be read for them again.
        known = pl.DataFrame() if at is None else self.coded.decoded(self.coded.codes[at])
        codes = {n: _codes(known[n], None) if n in known else _codes(self.homes[n], at) for n in self.swap}
        targets = {name: GuessTarget.of(own, strata) for name, own in codes.items()}
        targets = {name: target for name, target in targets.items() if target.values > 1}
        height = self.columns.height if rows is None else rows.size
        return RowSample(self, rows, at, own, height, targets)

    def determines(self, name: str, other: str) -> bool:
        """Say whether a column has one swap value for each of its own in the whole file."""
        values = encode(self.homes, [other]).codes
        pair = pl.DataFrame(
            {"column": self.columns[name], "value": values if self.house is None else values[self.house]}
        )
        value = pl.col("value")
        groups = pair.lazy().group_by("column").agg((value.min() != value.max()).alias("differs"))
        return not groups.select(pl.col("differs").any()).collect(engine="streaming").item()


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Some rows of a file and the swap values that could be guessed there; of persons, those of their households.

    ``homes`` are the rows of the households, ``own`` the place of each person's household among them.
    """

    file: SearchedFile
    rows: _Array | None
    homes: _Array | None
    own: _Array | None
    height: int
    targets: dict[str, GuessTarget]
    known: dict[str, Codes] = field(default_factory=dict)
    classes: dict[str, Codes] = field(default_factory=dict)

    @property
    def can_tell(self) -> bool:
        """Say whether there are enough records to tell a right guess of any swap value from chance."""
        return any(target.can_be_told for target in self.targets.values())

    def codes(self, name: str) -> Codes:
        """Return the codes of a column in the rows looked at; they are kept, since many pairs have them."""
        if name not in self.known:
            self.known[name] = _codes(self.file.columns[name], self.rows)
        return self.known[name]

    def values(self, name: str) -> int:
        """Return the number of values of a column in the rows looked at."""
        return int(self.codes(name).max(initial=0)) + 1

    def has_many_values(self, name: str) -> bool:
        """Say whether few rows share a value of a column."""
        return self.values(name) * _MANY_VALUES > self.height

    def beginnings(self, name: str) -> Iterator[tuple[int, Codes]]:
        """Yield the codes of the first letters of a column, with how many letters these are."""
        column = self.file.columns[name]
        for letters, first in beginnings(column if self.rows is None else column.gather(self.rows)):
            yield letters, _codes(first, None)

    def of_homes(self, codes: Codes) -> Codes:
        """Return codes of households for the persons looked at."""
        assert self.own is not None
        return codes[self.own]

    def evidence(self, codes: Codes) -> dict[str, Evidence]:
        """Return what codes tell of each swap value: with the match values, or alone if that is better."""
        within = self._within_strata(codes)
        return {
            name: self._evidence(target, codes, group=within) | self._evidence(target, codes, group=codes, alone=True)
            for name, target in self.targets.items()
        }

    def guesses(self, codes: Codes) -> dict[str, Guess]:
        """Return how well codes guess each swap value with the match values; a bound where even that does not tell."""
        if self.own is None:
            return {name: target.guessed(codes, exact=False) for name, target in self.targets.items()}
        return {
            name: voted(target, self.own, codes, with_strata=True, exact=False) for name, target in self.targets.items()
        }

    def evidence_in_order(self, order: _Array) -> dict[str, Evidence]:
        """Return what neighbours tell of each other, given the place of each row in the order of a column."""
        found: dict[str, Evidence] = {}
        for groups in self._neighbours(order):
            for name, target in self.targets.items():
                told = self._evidence(target, groups, group=groups, alone=True)
                found[name] = found[name] | told if name in found else told
        return found

    def _strata(self) -> _Array:
        strata = next(iter(self.targets.values())).strata
        return strata if self.own is None else strata[self.own]

    def _within_strata(self, codes: Codes) -> _Array:
        return self._strata() * np.int64(int(codes.max(initial=0)) + 1) + codes if self.targets else codes

    def _neighbours(self, order: _Array) -> Iterator[Codes]:
        """Yield groups of neighbours in an order: in the whole look, and inside strata."""
        if not self.targets:
            return
        strata = self._strata()
        inside = np.lexsort((order, strata))
        sizes = np.bincount(strata)
        place = np.arange(self.height) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for few in _NEIGHBOURS:
            yield (order // few).astype(np.uint32)
            groups = np.empty(self.height, dtype=np.uint32)
            groups[inside] = np.cumsum(place % few == 0) - 1
            yield groups

    def _evidence(self, target: GuessTarget, codes: Codes, *, group: _Array, alone: bool = False) -> Evidence:
        if self.own is None:
            guess = target.guessed_from(codes) if alone else target.guessed(codes)
            found = shown(group, target.codes, target.largest[target.strata], records=self.height)
            return Evidence(guess=guess, shown=found)
        group = numbered(group)
        many = np.int64(int(group.max(initial=0)) + 1)
        # A value counts once for each household: that its persons share their area shows nothing.
        pairs = np.sort(self.own * many + group)
        own, group = np.divmod(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))], many)
        return Evidence(
            guess=voted(target, self.own, codes, with_strata=not alone),
            shown=shown(
                group, target.codes[own], target.largest[target.strata[own]], unit=own, records=target.codes.size
            ),
        )

    def in_classes(self, name: str) -> Codes:
        """Return a column with many values in classes of equal size, so that pairs of classes have several rows."""
        if name not in self.classes:
            classes = max(2, math.isqrt(self.height // _CELL))
            column = self.file.columns[name]
            part = column if self.rows is None else column.gather(self.rows)
            place = np.empty(self.height, dtype=np.int64)
            place[_sorted(part)] = np.arange(self.height)
            self.classes[name] = (place * classes // self.height).astype(np.uint32)
        return self.classes[name]


def versions(seen: RowSample, name: str) -> tuple[Codes, Codes]:
    """Return a column as it is, and in classes where it has many values: a latitude tells little more by its digits."""
    return seen.codes(name), seen.in_classes(name) if seen.has_many_values(name) else seen.codes(name)


def beginnings(column: pl.Series) -> Iterator[tuple[int, pl.Series]]:
    """Yield the first letters of codes, one, two and more of them, with how many they are.

    Of numbers that are all of one length these are their first digits; of others they mean nothing.

    >>> [(letters, first.to_list()) for letters, first in beginnings(pl.Series([101, 102, 201]))]
    [(1, ['1', '1', '2']), (2, ['10', '10', '20'])]
    """
    if column.dtype != pl.String and not column.dtype.is_integer():
        return
    text = column.cast(pl.String)
    lengths = text.str.len_chars().drop_nulls().unique().to_list()
    if column.dtype.is_integer() and len(lengths) > 1:
        return
    if bool(text.drop_nulls().str.contains(r"^\s*[+-]?\d*[.,]\d+\s*$").all()):
        return  # of numbers with fractions the order tells
    for letters in range(1, min(_BEGINNINGS, max(lengths, default=0) - 1) + 1):
        yield letters, text.str.slice(0, letters)


def combined(codes: Sequence[Codes]) -> Codes:
    """Return the codes of one column, or of the combinations of several."""
    first, *others = codes
    for other in others:
        first = numbered(first * np.int64(int(other.max(initial=0)) + 1) + other).astype(np.uint32)
    return first


def some_values(column: pl.Series, seen: RowSample) -> _Array:
    """Return rows of a column: all rows of some values, and of a value with very many rows those seen already.

    Values are drawn by their hash, as large a share of them as of the rows, so that each row is as likely as any other.
    """
    assert seen.rows is not None
    counts = column.gather(seen.rows).value_counts(name="rows")
    frequent = counts.filter(pl.col("rows") > seen.height // 1_000)[column.name]
    kept = column.hash(seed=1) < ((1 << 64) - 1) // column.len() * seen.height
    often = column.is_in(frequent.implode(), nulls_equal=True)
    again = np.zeros(column.len(), dtype=np.bool_)
    again[seen.rows] = True
    return np.flatnonzero(np.where(often.to_numpy(), again, kept.to_numpy()))


def orders(column: pl.Series, *, most: int) -> Iterator[tuple[_Array | None, _Array]]:
    """Yield rows of a column and the place of each in its order: text as text, and as numbers where it holds these."""
    step = max(1, math.ceil(column.len() / _SORTED))
    part = column.gather_every(step)
    keys = [part]
    if part.dtype == pl.String:
        numbers = part.cast(pl.Float64, strict=False)
        keys += [numbers] if numbers.null_count() == part.null_count() else []
    for key in keys:
        order = _sorted(key)
        pieces = None
        if order.size > most:
            starts = np.linspace(0, order.size, num=most // _PIECE, endpoint=False).astype(np.int64)
            pieces = (starts[:, None] + np.arange(_PIECE)).ravel()
            order = order[pieces[pieces < order.size]]
        rows = np.argsort(order)
        if pieces is None and step == 1:
            yield None, rows
        else:
            yield order * step, np.arange(order.size)


def _sorted(column: pl.Series) -> _Array:
    """Return the rows of a column in its order; equal ones in an order of their own, and not in that of the file."""
    if column.dtype.is_decimal():
        column = column.cast(pl.Float64)
    lot = pl.int_range(column.len(), eager=True).hash(seed=2)
    keys = pl.DataFrame({"value": column, "lot": lot})
    return keys.select(pl.arg_sort_by("value", "lot")).to_series().to_numpy().astype(np.int64)


def _codes(column: pl.Series, rows: _Array | None) -> Codes:
    """Return numbers for the values of some rows. Their order does not matter, so that they are told by their hash."""
    part = column if rows is None else column.gather(rows)
    return np.unique(part.hash(seed=1).to_numpy(), return_inverse=True)[1].astype(np.uint32)


# A group counts if chance lets all of it share a value in one of so many cases, or fewer. Pairs of neighbours in rich
# and poor counties often share theirs, and show little by that.
_ONE_GROUP_IN: Final = 1_000
# And so many of these groups would share theirs by chance in one of so many files.
_ONE_FILE_IN: Final = 1_000_000
# A twentieth of the records: fewer than that may have a rare value that only one place knows. A record counts by what
# its stratum leaves open: that the dearest homes stand in the city is no news where most homes do.
_ENOUGH: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How many of some records lie in groups that show a value: ``groups`` of them, ``by_chance`` if unrelated.

    ``news`` adds up what the strata of these records leave open.
    """

    records: int
    shown: int
    news: float
    groups: int
    by_chance: float

    @property
    def share(self) -> float:
        """Return the share of the records whose value is shown."""
        return self.shown / max(self.records, 1)

    @property
    def rank(self) -> tuple[bool, float]:
        """Return what orders by how much is shown."""
        return self.telling, self.share

    @property
    def telling(self) -> bool:
        """Say whether enough records are shown, and in more groups than chance would show.

        Chernoff's bound for a sum of independent events: so many or more happen with a probability of at most
        exp(-(k ln(k/e) - k + e)), where e are expected. The groups share the values of their strata, so that one
        that has them leaves fewer to the others, and the bound holds all the more.
        """
        # Large groups share a value by chance so rarely that floating point says never. To expect more is cautious.
        k, e = self.groups, max(self.by_chance, sys.float_info.min)
        if self.news < _ENOUGH * self.records or k <= e:
            return False
        return k * math.log(k / e) - k + e >= math.log(_ONE_FILE_IN)


def shown(group: _Array, value: _Array, largest: _Array, *, unit: _Array | None = None, records: int) -> Shown:
    """Return what groups of rows show, given the largest share that a value has in the stratum of each row.

    A group of m rows shares a value by chance with a probability of at most the product of m - 1 of these shares, and
    so of the (m - 1)/m-th power of the product of all. A stratum with one value has the share 1: its rows show
    nothing. ``unit`` is the household of each row, where one has several rows.

    >>> group = np.repeat(np.arange(10), 10)
    >>> found = shown(group, group % 5, np.full(100, 0.2), records=100)
    >>> found.share, found.telling
    (1.0, True)
    """
    number = numbered(group)
    size = np.bincount(number)
    chance = np.bincount(number, weights=np.log(largest)) * (size - 1) / size
    rare = chance <= -math.log(_ONE_GROUP_IN)
    found = rare & ~differing(number.astype(np.uint32), value, count=size.size)
    rows = np.flatnonzero(found[number])
    if unit is not None:
        first = np.full(int(unit.max(initial=0)) + 1, -1, dtype=np.int64)
        first[unit[rows]] = rows  # one row of each household: all of them have its stratum
        rows = first[first >= 0]
    return Shown(
        records=records,
        shown=rows.size,
        news=float((1 - largest[rows]).sum()),
        groups=int(found.sum()),
        by_chance=float(np.exp(chance[rare]).sum()),
    )
