"""Held columns from which a swapped value can be guessed, and held columns that a swap value determines.

Everybody knows the match values. There is one criterion, for single columns, pairs and more: how many wrong guesses of
a swap value disappear for somebody who also knows the column (``guessing``). Half of them is too many. A column that
says nothing of most records, such as an address that few gave, is judged on the others.

A column with many values is also judged by its order: neighbours in it, such as those of a latitude or of codes that
begin with the area, know each other's place. Pairs are tried of the columns that guess best alone, and more columns
one by one, each time the one that guesses best with those before it. Anyone who can guess where a record belongs sees
which records were swapped, and from where. The other way round, a state that is held shows which counties came from
elsewhere.

Of a large file a sample of rows is judged. It is drawn by row numbers: the order of a file, which is often that of its
areas, changes nothing. Of a column with many values all rows of *some values* are kept, and pieces of its order.

All this looks at the interior of the file. Acting on it is safe where it corrects the role of a column by what the
column *is*; choosing rates by it would void the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, differing, encode
from stirred.data.columns import Columns
from stirred.data.guessing import Guess, GuessTarget, may_be_chance, numbered, spread, voted
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.data.record_doubts import KEEP, named_like_an_identifier
from stirred.spec.doubts import Doubt
from stirred.spec.problems import setting

LOOKS_INSIDE: Final = (
    "this looks inside the file: correct the column's role by what it is; choosing settings by this voids the guarantee"
)
NOT_LOOKED_AT: Final = "not-looked-at"
_Array = npt.NDArray[Any]
# So many rows are sampled for single columns, and for several. Persons are guessed by household, which takes longer.
_ROWS: Final = 200_000
_ROWS_OF_PERSONS: Final = 20_000
_ROWS_TOGETHER: Final = 20_000
# And so many are put in order, since sorting takes longest: text above all. Of an order pieces are judged.
_SORTED: Final = 1_000_000
_PIECE: Final = 1_000
# With fewer rows to a value a column has many values: its rows are kept by value, and neighbours are asked too.
_MANY_VALUES: Final = 20
# So many neighbours are asked: few where areas are small, many where the order is rough.
_NEIGHBOURS: Final = (3, 10, 30)
# Pairs of so many columns: those that guess best alone. Of households with persons, so many of each.
_MOST_PAIRED: Final = 16
_MOST_CROSSED: Final = 8
# So many columns at most are put together value by value.
_MOST_TOGETHER: Final = 6
# A column is judged on the records that it says something of if these are a twentieth, and fewer than half, of all.
_FEWEST: Final = 1 / 20
_MOST: Final = 1 / 2
# A value that stands in so few records, for many values, holds together what belongs together.
_FEW_TOGETHER: Final = 10
_MANY_GROUPS: Final = 20
# One record of so many agrees with an earlier one, or a column determines what nobody could read from it.
_AGREES: Final = 20
# So many rows, spread over the file, show of nearly every column that it determines nothing.
_GLANCE: Final = 50_000
# Of larger files that leave too little to guess, it is the swap value that hardly varies.
_FEW_RECORDS: Final = 100


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


def revealing_columns(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield doubts about held columns from which swap values can be guessed, or that follow from them."""
    guessing = [*_guessing_columns(data, columns)]
    yield from guessing
    yield from _revealing_the_response(data, columns)
    determining = {doubt.about for doubt in guessing if doubt.kind in ("tells", "regroup")}
    others = [name for name in columns.exact_hold if name not in determining]
    unbound = {doubt.about: doubt for doubt in _against_the_response(data, columns, others)}
    yield from unbound.values()
    held = [name for name in columns.hold if name not in columns.match]
    yield from _left_behind(data, columns, [name for name in others if name in held and name not in unbound])


def _guessing_columns(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield a doubt for each held column, or several of them, from which a swap value can be guessed."""
    held = [name for name in columns.hold if name not in columns.match]
    homes = _Search(SearchedFile.of(data, columns, persons=False), held, unit=columns.unit)
    yield from homes.doubts()
    if data.persons is not None:
        people = _Search(SearchedFile.of(data, columns, persons=True), data.person_variables, unit="person")
        yield from people.doubts()
        yield from _crossed(homes, people)


# ---- the rows that are judged --------------------------------------------------------------------------------


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

    def spread(self, most: int) -> _Array | None:
        """Return about so many rows, and of persons those of whole households; None where that is every row."""
        height = self.columns.height
        if self.house is None or height <= most:
            return spread(height, most=most)
        kept = np.zeros(self.homes.height, dtype=np.bool_)
        kept[spread(self.homes.height, most=max(1, most * self.homes.height // height))] = True
        return np.flatnonzero(kept[self.house])

    @property
    def rows(self) -> int:
        """Return how many rows are sampled for single columns."""
        return _ROWS if self.house is None else _ROWS_OF_PERSONS

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

    def spoken_of(self, name: str, seen: _Array | None) -> SearchedFile | None:
        """Return the rows of which a column says something: those without the most frequent of the values ``seen``.

        None where they are few, or most.
        """
        column = self.columns[name]
        glance = column if seen is None else column.gather(seen)
        frequent = glance.value_counts(sort=True, name="__rows").head(1)
        if not _MOST * len(glance) < frequent["__rows"].item() <= (1 - _FEWEST) * len(glance):
            return None
        kept = np.flatnonzero(~column.is_in(frequent[column.name].implode(), nulls_equal=True).to_numpy())
        part = column.gather(kept).to_frame()
        if self.house is not None:
            return SearchedFile(part, self.homes, self.house[kept], self.strata, self.swap, self.coded)
        homes = self.homes.select(self.swap)[kept]
        coded = Coded(self.coded.codes[kept], self.coded.levels)
        return SearchedFile(part, homes, None, self.strata[kept], self.swap, coded)

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

    @property
    def can_tell(self) -> bool:
        """Say whether there are enough records to tell a right guess of any swap value from chance."""
        return any(target.can_be_told for target in self.targets.values())

    def codes(self, name: str) -> Codes:
        """Return the codes of a column in these rows; they are kept, since many pairs have them."""
        if name not in self.known:
            self.known[name] = _codes(self.file.columns[name], self.rows)
        return self.known[name]

    def has_many_values(self, name: str) -> bool:
        """Say whether few rows share a value of a column."""
        return (int(self.codes(name).max(initial=0)) + 1) * _MANY_VALUES > self.height

    def guesses(self, codes: Codes) -> dict[str, Guess]:
        """Return how well codes guess each swap value: with the match values, or alone if that is better."""
        alone = {
            name: target.guessed_from(codes) if self.own is None else voted(target, self.own, codes, with_strata=False)
            for name, target in self.targets.items()
        }
        return _better(self.within_strata(codes, exact=True), alone)

    def within_strata(self, codes: Codes, *, exact: bool = False) -> dict[str, Guess]:
        """Return how well codes guess each swap value with the match values; unless ``exact``, a bound may be enough.

        Where even the bound does not tell, nothing does.
        """
        if self.own is None:
            return {name: target.guessed(codes, exact=exact) for name, target in self.targets.items()}
        return {
            name: voted(target, self.own, codes, with_strata=True, exact=exact) for name, target in self.targets.items()
        }

    def guesses_in_order(self, order: _Array) -> dict[str, Guess]:
        """Return how well neighbours guess each other's swap values, given the place of each row in an order."""
        found: dict[str, Guess] = {}
        for groups in self._neighbours(order):
            for name, target in self.targets.items():
                own = self.own
                guess = target.guessed_from(groups) if own is None else voted(target, own, groups, with_strata=False)
                found = _better(found, {name: guess})
        return found

    def _neighbours(self, order: _Array) -> Iterator[Codes]:
        """Yield groups of neighbours in an order: among all these rows, and inside strata."""
        if not self.targets:
            return
        strata = next(iter(self.targets.values())).strata
        strata = strata if self.own is None else strata[self.own]
        inside = np.lexsort((order, strata))
        sizes = np.bincount(strata)
        place = np.arange(self.height) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for few in _NEIGHBOURS:
            yield (order // few).astype(np.uint32)
            groups = np.empty(self.height, dtype=np.uint32)
            groups[inside] = np.cumsum(place % few == 0) - 1
            yield groups


def _better(found: dict[str, Guess], others: dict[str, Guess]) -> dict[str, Guess]:
    """Return the better guess of each swap value."""
    names = {**found, **others}
    return {
        name: max((each[name] for each in (found, others) if name in each), key=lambda guess: guess.removed)
        for name in names
    }


def _combined(one: Codes, other: Codes) -> Codes:
    """Return the codes of the combinations of two columns."""
    return numbered(one * np.int64(int(other.max(initial=0)) + 1) + other).astype(np.uint32)


def _rows_of_some_values(column: pl.Series, seen: RowSample) -> _Array:
    """Return rows of a column: all rows of some values, and of a value with very many rows those seen already.

    Values are drawn by their hash, as large a share of them as of the rows: each row is as likely as any other.
    """
    assert seen.rows is not None
    counts = column.gather(seen.rows).value_counts(name="__rows")
    frequent = counts.filter(pl.col("__rows") > seen.height // 1_000)[column.name]
    kept = column.hash(seed=1) < ((1 << 64) - 1) // column.len() * seen.height
    often = column.is_in(frequent.implode(), nulls_equal=True)
    again = np.zeros(column.len(), dtype=np.bool_)
    again[seen.rows] = True
    return np.flatnonzero(np.where(often.to_numpy(), again, kept.to_numpy()))


def _orders(column: pl.Series, *, most: int) -> Iterator[tuple[_Array | None, _Array]]:
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
    """Return numbers for the values of some rows, told apart by their hash: their order does not matter."""
    part = column if rows is None else column.gather(rows)
    return np.unique(part.hash(seed=1).to_numpy(), return_inverse=True)[1].astype(np.uint32)


# ---- the search ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Search:
    """Columns of one file that are judged; ``clear`` are those without a doubt alone, with how much they guess."""

    file: SearchedFile
    names: Sequence[str]
    unit: str = field(kw_only=True)
    clear: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> list[str]:
        """Return the columns without a doubt alone, those that guess best first."""
        return sorted(self.clear, key=lambda name: -self.clear[name])

    def doubts(self) -> Iterator[Doubt]:
        """Yield the doubts about single columns first, then about pairs of the others, then about more of them."""
        if not self.names or not self.file.columns.height:
            return
        seen = self.file.sample(self.file.spread(self.file.rows))
        for name in self.names if seen.targets else ():
            doubt = self._single(name, seen)
            if doubt is not None:
                yield doubt
            seen.known.clear()  # of a wide file the codes of all columns are many
        yield from self._too_few(seen)
        several = self.sample_for_several() if len(self.clear) > 1 else None
        if several is None:
            return
        paired = [*self._pairs(several)]
        yield from paired
        if self.file.house is None:
            doubted = {name for doubt in paired if doubt.refuses for name in doubt.about.split("+")}
            yield from self._jointly(several, [name for name in self.best if name not in doubted][:_MOST_PAIRED])

    def sample_for_several(self) -> RowSample | None:
        """Return the rows that several columns are judged on; None where nothing could be told."""
        seen = self.file.sample(self.file.spread(_ROWS_TOGETHER))
        return seen if seen.can_tell else None

    def _too_few(self, seen: RowSample) -> Iterator[Doubt]:
        """Say that nothing can be told from so few records, whatever the columns are."""
        if self.file.house is None and seen.targets and not seen.can_tell and seen.height <= _FEW_RECORDS:
            yield Doubt(
                kind=NOT_LOOKED_AT,
                about="+".join(seen.targets),
                what=f"the file has {seen.height:,} records, too few to tell from chance whether a column shows where "
                "a record belongs",
                remedy=f"judge by yourself whether {listed(list(self.names))} could tell {listed([*seen.targets])}",
                remark=LOOKS_INSIDE,
                refuses=False,
            )

    def _single(self, name: str, seen: RowSample) -> Doubt | None:
        """Return the doubt about one column."""
        rows = seen.rows
        seen, found = _guesses_of(self.file, name, seen)
        groups = self.file.house is None and _small_groups(seen.codes(name))
        determined = [other for other in found if _determines(seen, name, other)]
        if determined:
            which = "the swap values" if len(determined) == len(self.file.swap) else listed(determined)
            what = f"is published unchanged and determines {which}: anyone could reverse the swap"
            return self._doubt("tells", name, what, shared=f"share {which}", groups=groups)
        best = max(found, key=lambda other: found[other].removed)
        if found[best].telling:
            shares = found[best].in_words(self._rows)
            what = f'predicts "{best}" for {shares}: anyone could tell which records were swapped, and often reverse it'
            shared = f'mostly share their "{best}": one is guessed from the others for {shares}'
            return self._doubt("nearly-tells", name, what, shared=shared, groups=groups)
        self.clear[name] = found[best].removed
        return self._partly_tells(name, rows, groups=groups)

    def _partly_tells(self, name: str, rows: _Array | None, *, groups: bool) -> Doubt | None:
        """Return the doubt about a column that shows the value of nearly all records it says something of."""
        part = self.file.spoken_of(name, rows)
        seen = None if part is None else part.sample(part.spread(part.rows))
        if part is None or seen is None or not seen.targets:
            return None
        _, found = _guesses_of(part, name, seen)
        best = max(found, key=lambda other: found[other].removed)
        if not (found[best].telling and found[best].nearly_all):
            return None
        del self.clear[name]
        share = f"{100 * part.columns.height / self.file.columns.height:.2g}% of the {self._rows}"
        what = (
            f'shows "{best}" of {share}, those it says something of: anyone could tell which of them were swapped, and '
            "reverse it"
        )
        return self._doubt("partly-tells", name, what, shared=f'share their "{best}" for {share}', groups=groups)

    def _pairs(self, seen: RowSample) -> Iterator[Doubt]:
        """Yield the doubts about pairs of columns, and say which pairs were not looked at."""
        ranked = self.best
        for pair in combinations([name for name in self.clear if name in ranked[:_MOST_PAIRED]], 2):
            one, other = (seen.codes(name) for name in pair)
            guess, best = _best(seen.within_strata(_combined(one, other)))
            if guess.telling:
                yield _together(pair, best, guess, of=self._of, rows=self._rows, swap="" if self._of else "one of them")
        if left := ranked[_MOST_PAIRED:]:
            yield Doubt(
                kind=NOT_LOOKED_AT,
                what=f"of {len(ranked)} columns{self._of} only the {_MOST_PAIRED} that guess the swap values best "
                "alone were paired",
                remedy="judge whether two columns together tell where a record belongs, one of them among "
                f"{listed(left)}",
                refuses=False,
            )

    def _jointly(self, seen: RowSample, names: Sequence[str]) -> Iterator[Doubt]:
        """Yield the doubt about three columns or more that guess together what no two of them do."""
        chosen: list[str] = []
        codes = np.zeros(seen.height, dtype=np.uint32)
        while len(chosen) < min(_MOST_TOGETHER, len(names)):
            tried = {name: _combined(codes, seen.codes(name)) for name in names if name not in chosen}
            found = {name: _best(seen.guesses(own)) for name, own in tried.items()}
            name = max(found, key=lambda each: found[each][0].removed)
            codes, (guess, best) = tried[name], found[name]
            chosen.append(name)
            if len(chosen) > 2 and guess.telling:
                # In the order of the file, as doubts name them.
                chosen.sort(key=[*self.names].index)
                yield _together(chosen, best, guess, of="", rows="rows", swap="one of them")
                return

    @property
    def _of(self) -> str:
        return "" if self.file.house is None else " of persons"

    @property
    def _rows(self) -> str:
        return "rows" if self.file.house is None else "households"

    def _doubt(self, kind: str, name: str, what: str, *, shared: str, groups: bool) -> Doubt:
        identifier = named_like_an_identifier(name)
        # Small groups of households are places; of persons they are households, and so are those of an id.
        if groups and (self.unit != "household" or identifier):
            return _regroups(name, shared)
        # A column of persons goes with its household: it can be neither swapped nor matched.
        remedy = f"swap it too, or {_without(name)}" if self.file.house is None else _without(name)
        if groups or identifier:
            remedy += f"; if it is an identifier, such as that of a household, name it with {setting('id', name)}"
        return Doubt(
            kind=kind,
            about=name,
            what=f'"{name}"{self._of} {what}',
            remedy=f"if it is about the place, {remedy}",
            remark=LOOKS_INSIDE,
        )


def _guesses_of(file: SearchedFile, name: str, seen: RowSample) -> tuple[RowSample, dict[str, Guess]]:
    """Return how well a column guesses each swap value, by its values and by its order, and the rows that show it."""
    found = seen.guesses(seen.codes(name))
    if seen.has_many_values(name):
        column = file.columns[name]
        if seen.rows is not None:
            seen = file.sample(_rows_of_some_values(column, seen))
            found = _better(found, seen.guesses(seen.codes(name)))
        for rows, order in _orders(column, most=file.rows):
            found = _better(found, file.sample(rows).guesses_in_order(order))
    return seen, found


def _best(found: dict[str, Guess]) -> tuple[Guess, str]:
    """Return the best guess, and of which swap value."""
    name = max(found, key=lambda other: (found[other].telling, found[other].removed))
    return found[name], name


def _without(name: str) -> str:
    return f'{KEEP} "{name}"'


def _small_groups(codes: Codes) -> bool:
    """Say whether codes put rows into many small groups, as the id of a household does with its persons."""
    values, rows = int(codes.max(initial=0)) + 1, codes.size
    return values > _MANY_GROUPS and rows <= _FEW_TOGETHER * values and _AGREES * (rows - values) >= rows


def _determines(seen: RowSample, name: str, other: str) -> bool:
    """Say whether a column has one value of another for each of its own, and that is not likely to be chance.

    Rows that differ are found in the sample; where there are none, the whole file is asked.
    """
    target, codes = seen.targets.get(other), seen.codes(name)
    if target is None:
        return False
    records, groups = int(target.codes.size), int(codes.max(initial=0)) + 1
    repeated = records - groups
    chance = max(target.without / records, 1 / target.values)
    if may_be_chance(repeated, share=chance) or _AGREES * repeated < records:
        return False
    # Persons of a household agree anyway: records are households there.
    values = target.codes if seen.own is None else target.codes[seen.own]
    differs = differing(codes, values, count=groups).any()
    return not differs and (seen.rows is None or seen.file.determines(name, other))


def _crossed(homes: _Search, people: _Search) -> Iterator[Doubt]:
    """Yield the doubts about a column of households together with one of persons."""
    first, second = homes.best, people.best
    seen = people.sample_for_several() if first and second else None
    if seen is None:
        return
    assert seen.own is not None
    of_homes = homes.file.sample(seen.homes)
    for home, person in product(first[:_MOST_CROSSED], second[:_MOST_CROSSED]):
        guess, best = _best(seen.within_strata(_combined(of_homes.codes(home)[seen.own], seen.codes(person))))
        if guess.telling:
            yield _together((home, person), best, guess, of=" of persons", rows="households", swap=f'"{home}"')
    if len(first) > _MOST_CROSSED or len(second) > _MOST_CROSSED:
        yield Doubt(
            kind=NOT_LOOKED_AT,
            what=f"of {len(first)} columns of households and {len(second)} of persons only the {_MOST_CROSSED} of each "
            "that guess the swap values best alone were paired with each other",
            remedy="judge whether one of a household and one of its persons together tell where a record belongs",
            refuses=False,
        )


def _together(names: Sequence[str], target: str, guess: Guess, *, of: str, rows: str, swap: str) -> Doubt:
    columns = " and ".join(f'"{name}"' for name in names)
    return Doubt(
        kind="nearly-tells",
        about="+".join(names),
        what=f'{columns}{of} together predict "{target}" for {guess.in_words(rows)}: anyone could tell which records '
        "were swapped, and often reverse it",
        remedy=f"if they are about the place, {f'swap {swap} too, or ' if swap else ''}{KEEP} one of them",
        remark=LOOKS_INSIDE,
    )


def _regroups(name: str, how: str) -> Doubt:
    return Doubt(
        kind="regroup",
        about=name,
        what=f'"{name}" puts the rows into small groups that {how}: rows that belong together could be found in the '
        "release, and those among them that were swapped",
        remedy=f"if it is the id of a household, name it with {setting('id', name)}; better, give households and "
        f"persons as two files, and the swap keeps them together; if it is a place, {_without(name)}",
        remark=LOOKS_INSIDE,
    )


# ---- columns that a swap value determines, and a randomised response -----------------------------------------


def _revealing_the_response(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield columns that determine the true value of a variable that gets a randomised response."""
    if columns.perturbed is None or columns.perturbed in columns.swap:
        return  # what determines a swap value is doubted as it is for every swap
    others = [name for name in (*columns.exact_hold, *columns.exact_swap) if name not in columns.match]
    for name in _determining(data.households, others, columns.perturbed):
        yield Doubt(
            kind="tells-response",
            about=name,
            what=f'"{name}" is released and determines "{columns.perturbed}": the response protects nothing',
            remedy=f"{KEEP} one of them",
            remark=LOOKS_INSIDE,
        )


def _left_behind(data: Microdata, columns: SwapColumns, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of the swap values: where they differ inside a stratum, a swap leaves them behind."""
    frame, names = data.households, list(columns.swap)
    swap = encode(frame, names) if columns.perturbed in names else columns.coded
    for name in _functions(frame, held, of=swap):
        bound = _function(frame[name], columns.strata.codes, count=columns.strata.count)
        if not bound and not may_be_chance(frame.height - swap.count, share=_largest_share(frame[name])):
            yield Doubt(
                kind="left-behind",
                about=name,
                what=f'"{name}" is a function of {listed(names)} and is held: a record whose {listed(names)} does not '
                f'fit shows that it was swapped, and from which "{name}"',
                remedy=f"match on it, swap it too, or {_without(name)}",
                remark=LOOKS_INSIDE,
            )


def _against_the_response(data: Microdata, columns: SwapColumns, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of a variable that gets a response: matching does not bind a response."""
    if columns.perturbed is None:
        return
    frame = data.households
    for name in _functions(frame, held, of=encode(frame, [columns.perturbed])):
        determined = name not in columns.match and _determined(frame, name, columns.perturbed)
        if not determined and frame[name].n_unique() > 1:
            yield Doubt(
                kind="shows-response",
                about=name,
                what=f'"{name}" is a function of "{columns.perturbed}" and is released as it is: a record whose '
                f'"{columns.perturbed}" does not fit shows that the response changed it',
                remedy=f'leave "{name}" out, or let another variable get the response',
                remark=LOOKS_INSIDE,
            )


def _determining(frame: pl.DataFrame, columns: Sequence[str], other: str) -> Iterator[str]:
    """Yield the columns that determine another.

    A column that is different on most rows determines everything, and nothing could be read from it; one that never
    varies is determined by all.

    >>> homes = pl.DataFrame({"zip": [1, 2, 2, 3] * 2, "county": ["A", "A", "A", "B"] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(_determining(homes, ["zip", "size"], "county"))
    ['zip', 'size']
    >>> list(_determining(homes.with_columns(size=pl.Series([1, 1, 2, 1] * 2)), ["zip", "size"], "county"))
    ['zip']
    """
    glance = frame.gather_every(max(1, frame.height // _GLANCE))
    for name in columns:
        varies = frame[other].n_unique() > 1 and frame[name].n_unique() <= frame.height // 2
        if varies and _determined(glance, name, other) and _determined(frame, name, other):
            yield name


def _functions(frame: pl.DataFrame, columns: Sequence[str], *, of: Coded) -> Iterator[str]:
    """Yield the columns that are functions of some codes; nothing is known where these are different on most rows.

    >>> homes = pl.DataFrame({"place": [11, 12, 21, 21] * 2, "state": [1, 1, 2, 2] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(_functions(homes, ["state", "size"], of=encode(homes, ["place"])))
    ['state']
    """
    if of.count > frame.height // 2:
        return
    step = max(1, frame.height // _GLANCE)
    few = np.ascontiguousarray(of.codes[::step])
    for name in columns:
        glance = frame[name].gather_every(step)
        if _function(glance, few, count=of.count) and _function(frame[name], of.codes, count=of.count):
            yield name


def _largest_share(column: pl.Series) -> float:
    """Return the share of the records that have the most frequent value."""
    return int(column.value_counts(name="__records")["__records"].max()) / len(column)  # type: ignore[arg-type]


def _determined(frame: pl.DataFrame, name: str, other: str) -> bool:
    column = encode(frame, [name])
    return _function(frame[other], column.codes, count=column.count)


def _function(column: pl.Series, codes: Codes, *, count: int) -> bool:
    """Say whether a column has one value for each code."""
    return not differing(codes, encode(column.to_frame(), [column.name]).codes, count=count).any()
