"""What the tables count: records or the persons of households, of which only so many as were declared."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.columns import select
from stirred.data.microdata import Microdata
from stirred.mechanisms.tables.noise.budget import Measure
from stirred.mechanisms.tables.noise.settings import Sum


def people_of(data: Microdata, columns: Sequence[str], *, most: int | None) -> pl.DataFrame:
    """Return the persons with these columns of theirs and of their household; of a household at most so many."""
    assert data.persons is not None
    assert data.hid is not None
    own = [name for name in columns if name in data.person_variables]
    homes = data.households.select(data.hid, *(name for name in columns if name not in own))
    people = select(data.persons, [data.hid, *own]).join(homes, on=data.hid, how="left").select(data.hid, *columns)
    if most is None:
        return people.drop(data.hid)
    many = pl.len().over(data.hid) > most
    large = people.filter(many).sort(data.hid).rows()
    kept = [row for _, rows in groupby(large, key=lambda row: row[0]) for row in counted_persons([*rows], most=most)]
    few = people.filter(~many)
    return pl.concat([few, pl.DataFrame(kept, schema=few.schema, orient="row")]).drop(data.hid)


def counted_persons(persons: Sequence[tuple[object, ...]], *, most: int) -> list[tuple[object, ...]]:
    """Return the persons of one household that count: a function of the household alone, whatever their order.

    Which of them count follows from a hash of all of them together: nobody is left out for one value of theirs.

    >>> len(counted_persons([("a", 1), ("b", 2), ("c", 3)], most=2))
    2
    """
    if len(persons) <= most:
        return [*persons]
    salt = blake2b("\n".join(sorted(map(repr, persons))).encode()).digest()
    return sorted(persons, key=lambda person: blake2b(repr(person).encode(), key=salt).digest())[:most]


def bounded(added_up: Sum) -> pl.Expr:
    """Return the column that is added up, its values brought inside the bounds."""
    return pl.col(added_up.column).cast(pl.Int64).clip(added_up.low, added_up.high)


def tabulated(
    asked: Measure, cells: pl.DataFrame, records: pl.DataFrame, *, cut: bool = False
) -> npt.NDArray[np.int64]:
    """Return the count or the sum of every cell, in the order of the cells; or how many values its bounds ``cut``."""
    number = pl.len().cast(pl.Int64)
    if asked.added_up is not None:
        own = bounded(asked.added_up)
        number = (own != pl.col(asked.added_up.column).cast(pl.Int64)).sum().cast(pl.Int64) if cut else own.sum()
    names = list(asked.variables)
    if not names:
        return records.select(number).to_series().to_numpy()
    found = records.group_by(names).agg(number.alias("__number"))
    joined = cells.join(found, on=names, how="left", nulls_equal=True, maintain_order="left")
    return joined["__number"].fill_null(0).to_numpy()


def column_of(data: Microdata, name: str) -> pl.Series:
    """Return a column of the records or, where they do not have it, of their persons."""
    if name in data.households.columns or data.persons is None:
        return data.households[name]
    return data.persons[name]
