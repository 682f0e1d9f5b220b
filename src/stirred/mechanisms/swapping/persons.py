"""Persons travel with their household: they are part of its hold value and get its new swap values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, encode
from stirred.data.microdata import Microdata
from stirred.data.pieces import by_pieces

Rows = npt.NDArray[np.uint32]


# A part of the hold value of some households, given by a mask (None for all), as one column.
Part = Callable[[npt.NDArray[np.bool_] | None], pl.Series]


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


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """The persons of a file as codes, grouped by household.

    ``coded`` numbers each person's characteristics in the order of their values; persons of household
    ``h`` are the entries ``start[h]`` to ``start[h + 1]`` of ``rows``, or of the file itself where it is
    already grouped that way.
    """

    coded: Coded
    start: npt.NDArray[np.int64]
    rows: Rows | None

    @classmethod
    def of(cls, data: Microdata) -> Persons:
        """Read the person columns one after the other and keep one code for each person."""
        assert data.persons is not None
        house = household_rows(data)
        start = np.zeros(data.households.height + 1, dtype=np.int64)
        np.cumsum(count(house, groups=data.households.height), out=start[1:])
        grouped = bool((house[1:] >= house[:-1]).all())
        rows = None if grouped else _group(house)
        del house
        return cls(_encode(data), start, rows)

    def of_households(self, households: Rows) -> tuple[Codes, npt.NDArray[np.int64]]:
        """Return the codes of the persons of some households, and how many each has.

        Inside a household persons come in the order of their values, so that the order in the file
        tells nothing.
        """
        sizes = (self.start[households.astype(np.int64) + 1] - self.start[households]).astype(np.int64)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if ends.size else 0
        place = np.arange(total, dtype=np.int64) + np.repeat(self.start[households] - (ends - sizes), sizes)
        codes = self.coded.codes[place if self.rows is None else self.rows[place]]
        # One sort key: household first, then the person's values.
        keys = np.repeat(np.arange(households.size, dtype=np.uint64) << np.uint64(32), sizes) | codes
        keys.sort()
        return (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), sizes


def _encode(data: Microdata) -> Coded:
    assert data.persons is not None
    names = data.person_variables
    if not names:
        return Coded(np.zeros(data.persons.height, dtype=np.uint32), pl.DataFrame([{}]))
    return encode(data.persons, names)


def household_rows(data: Microdata) -> Rows:
    """Return the row of each person's household, as found by the link."""
    assert data.persons is not None
    assert data.hid is not None
    ids, link = data.households[data.hid], data.persons[data.hid]
    if ids.dtype.is_integer() and len(ids):
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
        if high - low < 8 * len(ids) + 1024 and high < 1 << 63:
            return _looked_up(ids.to_numpy(), link.to_numpy(), low, high)
    index = pl.DataFrame({"id": ids}).with_row_index("row")
    rows = pl.DataFrame({"id": link}).join(index, on="id", how="left", maintain_order="left")["row"]
    return rows.to_numpy().astype(np.uint32, copy=False)


def _looked_up(ids: npt.NDArray[Any], link: npt.NDArray[Any], low: int, high: int) -> Rows:
    """Return the row of each link among the ids, which go from ``low`` to ``high``.

    Piece by piece: wide copies of hundreds of millions of links were the peak of a national run's memory.
    """
    table = np.zeros(high - low + 1, dtype=np.uint32)
    rows = np.empty(link.size, dtype=np.uint32)

    def enter(piece: slice) -> None:
        table[ids[piece].astype(np.int64) - low] = np.arange(piece.start, piece.stop, dtype=np.uint32)

    def find(piece: slice) -> None:
        rows[piece] = table[link[piece].astype(np.int64) - low]

    by_pieces(enter, ids.size)
    by_pieces(find, link.size)
    return rows


def _group(house: Rows) -> Rows:
    """Return the rows of persons household by household: a counting sort by the household's row."""
    return np.argsort(house, kind="stable").astype(np.uint32)
