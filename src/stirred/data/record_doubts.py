"""Doubts about single columns: identifiers that were not named or that recur, values alike, numbers beyond bounds.

All look inside the confidential file: they are for the custodian, and stand in no public file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.codes import all_different, differing, encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.identifying import (
    DATE_STEP,
    coordinates,
    identifier_doubt,
    identifying,
    named_like_a_household_id,
    named_like_an_identifier,
    nearly_unique,
    timed,
    values_of,
)
from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.spec.doubts import Doubt

# So many persons, spread over the file, show of nearly every column that it is a code.
_GLANCE: Final = 1_000
# Of so many persons the numbers inside their households are compared, and the columns that a household shares.
_LOOKED_AT: Final = 2_000_000
# With more rows to a value a column is no id of a household, but its number inside a house, or a type.
_ROWS_TO_A_HOUSEHOLD: Final = 20
_PERSONS: Final = 'if a row is a person, say so with --set unit=person (unit = "person" in a plan)'


def identifier_doubts(data: Microdata, hold: Sequence[str], *, unit: str, swap: Sequence[str] = ()) -> Iterator[Doubt]:
    """Yield doubts about released columns that look like identifiers, and about identifiers that recur.

    Values that are swapped leave too, each as often as it was, beside the match variables even exactly.
    """
    yield from identifying_columns(data, swap, swapped=True)
    yield from unnamed_identifiers(data, hold)
    yield from _of_others(data, hold, swap)
    yield from repeated_ids(data, unit=unit)


def identifying_columns(data: Microdata, names: Sequence[str], *, swapped: bool = False) -> Iterator[Doubt]:
    """Yield doubts about columns of records that look like identifiers, or have nearly as many values as records."""
    for name in names:
        column = data.households[name]
        if why := identifying(column) or nearly_unique(column, decimals=True):
            yield identifier_doubt(column, why, swapped=swapped)


def unnamed_identifiers(data: Microdata, hold: Sequence[str]) -> Iterator[Doubt]:
    """Yield doubts about released columns that look like identifiers and are not named as such."""
    for name in hold:
        if why := identifying(column := data.households[name]):
            yield identifier_doubt(column, why)
    if data.persons is None:
        return
    for name in data.person_variables:
        column = data.persons[name]
        glance = column.gather_every(max(1, len(column) // _GLANCE))
        if not named_like_an_identifier(name) and 10 * glance.n_unique() < len(glance):
            continue
        why = identifying(column).replace("record", "person") or _of_households(data, name)
        if why:
            yield identifier_doubt(column, why)


def _of_others(data: Microdata, hold: Sequence[str], swap: Sequence[str]) -> Iterator[Doubt]:
    """Yield doubts about released columns that hold ids of other records, and about held coordinates and times.

    A column that looks like an identifier is looked at too: who accepts that has not accepted its times of day.
    """
    homes = [data.households[name] for name in hold]
    people: list[pl.Series] = []
    ids = [data.households[name] for name in data.identifiers if name in data.households.columns]
    if data.persons is not None:
        people = [data.persons[name] for name in data.person_variables]
        ids += [data.persons[name] for name in data.id if name in data.persons.columns]
    for column in (*homes, *people, *(data.households[name] for name in swap)):
        if why := next(filter(None, (values_of(column, each) for each in ids)), ""):
            yield identifier_doubt(column, why, swapped=column.name in swap)
    for file in (homes, people):
        yield from (_coordinates(names) for names in coordinates(file))
        yield from (_times(column.name) for column in file if timed(column))


def _coordinates(names: Sequence[str]) -> Doubt:
    columns = " and ".join(f'"{name}"' for name in names)
    look, them = ("look like coordinates", "them") if len(names) > 1 else ("looks like a coordinate", "it")
    return Doubt(
        kind="coordinates",
        about="+".join(names),
        what=f"{columns} {look} and would be published unchanged: a home can be found on a map",
        remedy=f'leave {them} out, or round {them} to the size of a district: step = "round" under '
        "[[prepare]] of a plan",
    )


def _times(name: str) -> Doubt:
    return Doubt(
        kind="times",
        about=name,
        what=f'"{name}" has times of day and would be published unchanged: anyone who knows when something happened '
        "finds the record",
        remedy=f"leave it out, or keep the month, quarter or year alone: {DATE_STEP}",
    )


def _of_households(data: Microdata, name: str) -> str:
    """Say whether a column of persons is the same for all of a household and different for nearly every one."""
    assert data.persons is not None
    column = data.persons[name].head(_LOOKED_AT)
    values = column.n_unique()
    # A household has two persons or three: with far fewer values than households it is no identifier of theirs.
    if 4 * values < min(data.households.height, len(column)):
        return ""
    house = household_rows(data)[: len(column)]
    codes = encode(column.to_frame(), [name]).codes
    if differing(house, codes, count=data.households.height).any():
        return ""
    _, first = np.unique(house, return_index=True)
    return nearly_unique(column.gather(first)).replace("record", "household")


def repeated_ids(data: Microdata, *, unit: str) -> Iterator[Doubt]:
    """Yield doubts where records share their identifiers: the promise is for one record, and a unit may have several.

    Other identifiers than that of the record, such as an address, may be shared. So may the number of a person
    inside the household.
    """
    own = [data.households[name] for name in data.identifiers if name in data.households.columns]
    if any(all_different(column) for column in own) or (len(own) > 1 and not _recur_together(own)):
        own = []
    if unit != "household":
        own = [column for column in own if not named_like_a_household_id(column.name)]  # it has several of them
    yield from (_repeated(column.name, column, of=unit) for column in own)
    if unit == "household" and not own:
        yield from _several_rows(data)
    if data.persons is None or data.hid is None:
        return
    of_persons = [name for name in data.id if name in data.persons.columns and name not in data.households.columns]
    columns = {name: data.persons[name] for name in of_persons}
    # The promise is for a household with all its persons: one of them in two records does not weaken it.
    if any(all_different(column) for column in columns.values()):
        return
    for name, column in columns.items():
        # One that seldom recurs is meant for the whole file, any other for the household.
        if 2 * column.n_unique() > len(column):
            yield _repeated(name, column, of="person", refuses=False)
            continue
        # Pairs take many times the memory of a column; a file that numbers persons twice does so from its first rows.
        inside = select(data.persons.head(_LOOKED_AT), [data.hid, name]).to_struct()
        if inside.is_duplicated().any():
            yield _repeated(name, inside, of="person", place=" inside a household", refuses=False)


def _several_rows(data: Microdata) -> Iterator[Doubt]:
    """Yield the doubt about a file of persons that is given as one of households.

    The id of the household tells that it has several rows, whether it is named, held or dropped.
    """
    for name in filter(named_like_a_household_id, data.households.columns):
        column = data.households[name].drop_nulls()
        values, rows = column.n_unique(), len(column)
        if 1 < values < rows <= _ROWS_TO_A_HOUSEHOLD * values:
            yield Doubt(
                kind="unit",
                about=name,
                what=f'the file has several rows for a household: "{name}" has {values:,} values in {rows:,} rows. '
                "What is promised is for one row, and would be called a promise for one household",
                remedy=f"{_PERSONS}; or give households and persons as two files, with --persons FILE and --hid {name}",
            )


def _recur_together(columns: Sequence[pl.Series]) -> bool:
    """Say whether even all identifiers together stand in several records: household and person number are one id."""
    return bool(pl.DataFrame(columns).is_duplicated().any())


def _repeated(name: str, values: pl.Series, *, of: str, place: str = "", refuses: bool = True) -> Doubt:
    records = number(int((values.is_duplicated() & values.is_not_null()).sum()), "record")
    persons = f"{_PERSONS}; " if of == "household" else ""
    return Doubt(
        kind="regroup",
        about=name,
        what=f'"{name}" is repeated in {records}{place}: are they the same {of}? What is promised is for one record, '
        f"and holds for a {of} only where it has one",
        remedy=f"if they are, give one record for each {of}; {persons}some identifiers may recur, such as an address: "
        "then name the one that tells records apart with --id, too",
        refuses=refuses,
    )


_MOST_SHOWN: Final = 3


def similar_values(name: str, values: Iterable[Any]) -> Iterator[Doubt]:
    """Yield one doubt about similar values of one variable.

    >>> print(*similar_values("town", [" Logroño", "Haro", "Logroño"]))
    "town" has values that are the same but for blanks or letter case (' Logroño' and 'Logroño'): each is ...
    """
    alike: dict[str, list[str]] = {}
    for value in sorted({value for value in values if isinstance(value, str)}):
        alike.setdefault(" ".join(value.lower().split()), []).append(value)
    groups = [" and ".join(map(repr, each)) for each in alike.values() if len(each) > 1]
    if groups:
        more = f"; {len(groups) - _MOST_SHOWN:,} more" if len(groups) > _MOST_SHOWN else ""
        yield Doubt(
            kind="similar-values",
            about=name,
            what=f'"{name}" has values that are the same but for blanks or letter case '
            f"({'; '.join(groups[:_MOST_SHOWN])}{more}): each is swapped and counted as a value of its own",
            public=f'"{name}" has values that are the same but for blanks or letter case',
            remedy="if they are one, correct the file first",
            refuses=False,
        )


_MOST_CLAMPED: Final = 0.05  # of the records, or of a sum, that clamping may change before it refuses


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTable:
    """A table of domains with a number each: the columns that tell them apart, which records count, and the noise."""

    title: str
    by: pl.DataFrame
    noise: float  # its standard deviation, in the unit of what is clamped
    inside: Any = None  # which records count; all of them if None


def clamped_doubts(
    name: str,
    values: Any,
    ends: tuple[float | Fraction, float | Fraction],
    *,
    weights: Any = None,
    published: Iterable[PublishedTable] = (),
) -> Iterator[Doubt]:
    """Yield how many numbers lie beyond their declared bounds, and refuse where that changes what is estimated.

    A few count as the nearer bound and are noted. More than a twentieth of the records, or of the (weighted) sum of
    absolute values, and the sum that is published is not of this file: noise and interval would say nothing about that.
    The same is asked of every published domain, where clamping changes it by more than its noise does.

    >>> doubt, = clamped_doubts("income", [10, 20, 900, 5000], (0, 100))
    >>> doubt.name, doubt.refuses
    ('clamped:income', True)
    >>> print(doubt.what)
    2 of 4 values of "income" lie beyond the declared bounds 0 and 100 and count as the nearer one; that ...
    """
    given, (low, high) = np.asarray(values, dtype=np.float64), (float(end) for end in ends)
    share = np.ones(given.size) if weights is None else np.asarray(weights, dtype=np.float64)
    beyond = (given < low) | (given > high)
    count = int(beyond.sum())
    if not count:
        return
    size, moved = share * np.abs(given), share * np.abs(np.clip(given, low, high) - given)
    changed, of = _part(moved.sum(), size.sum()), "sum" if weights is None else "weighted sum"
    worst, words = 0.0, ""
    for table in published:
        inside = np.ones(given.size, dtype=bool) if table.inside is None else table.inside
        coded = encode(table.by.filter(inside), table.by.columns) if table.by.width else None
        code = np.zeros(int(inside.sum()), dtype=np.intp) if coded is None else coded.codes
        records = np.bincount(code)
        cut, shift, sums = (np.bincount(code, each[inside]) for each in (beyond, moved, size))
        for cell in np.flatnonzero(shift > table.noise).tolist():
            part = max(cut[cell] / records[cell], _part(shift[cell], sums[cell]))
            if part > max(worst, _MOST_CLAMPED):
                levels = {} if coded is None else coded.levels.row(cell, named=True)
                cells = " and ".join(f"{column} is {value!r}" for column, value in levels.items())
                worst, words = (
                    part,
                    (
                        f"; {f'where {cells}' if cells else f'in {table.title!r}'} it is {cut[cell]:,.0f} of "
                        f"{records[cell]:,.0f}, and changes its {of} by {_part(shift[cell], sums[cell]):.1%}"
                    ),
                )
    yield Doubt(
        kind="clamped",
        about=name,
        what=f'{count:,} of {given.size:,} values of "{name}" lie beyond the declared bounds {low:,.10g} and '
        f"{high:,.10g} and count as the nearer one; that changes the {of} of all by {changed:.1%}{words}",
        public=f'values of "{name}" lie beyond the declared bounds and count as the nearer one',
        remedy="declare bounds that hold for the whole population, from public knowledge and not read off this file",
        refuses=bool(words) or count > _MOST_CLAMPED * given.size or changed > _MOST_CLAMPED,
    )


def _part(moved: float, size: float) -> float:
    return float(moved / (size or moved or 1))
