"""The swapped file as codes, from which the released tables are made part by part; persons travel with households.

A national file is never copied as a whole: held columns are gathered and codes decoded for a few
million households at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, add_counts, by_pieces, count, encode, listed_by
from stirred.data.household_rows import household_rows, pieces_of_rows
from stirred.data.microdata import Microdata
from stirred.data.packed import Packed
from stirred.mechanisms.protocol import PERSONS, RECORDS

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
class _Starts:
    """Numbers that never fall, in half the bytes: one of every 256, and how far each is beyond it.

    >>> starts = _Starts.of(np.array([0, 2, 2, 70_000], dtype=np.uint32))
    >>> starts[np.array([1, 3], dtype=np.uint32)].tolist(), starts.beyond.dtype.name
    ([2, 70000], 'uint32')
    """

    bases: Rows
    beyond: npt.NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, numbers: Rows) -> _Starts:
        bases = numbers[::256].copy()
        farthest = int(np.diff(bases, append=numbers[-1:]).max())
        beyond = np.empty(numbers.size, dtype=np.min_scalar_type(farthest))

        def work(piece: slice) -> None:
            beyond[piece] = numbers[piece] - bases[np.arange(piece.start, piece.stop) >> 8]

        by_pieces(work, numbers.size)
        return cls(bases, beyond)

    def __getitem__(self, places: Rows) -> Rows:
        return self.bases[places >> np.uint32(8)] + self.beyond[places]


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """The persons of a file as codes, grouped by household.

    ``codes`` numbers each person's characteristics in the order of their values, in as few bytes as it takes: of a
    nation they are the largest thing in memory. ``values`` reads them back. Persons of household
    ``h`` are the entries ``start[h]`` to ``start[h + 1]`` of ``rows``, or of the file itself where it is
    already grouped that way.
    """

    codes: npt.NDArray[np.uint8]
    values: Coded
    start: _Starts
    rows: Rows | None

    @classmethod
    def of(cls, data: Microdata) -> Persons:
        """Read the person columns one after the other and keep one code for each person."""
        assert data.persons is not None
        coded = Coded(np.zeros(data.persons.height, dtype=np.uint32), pl.DataFrame([{}]))
        if names := data.person_variables:
            coded = encode(data.persons, names)
        codes, values = _in_bytes(coded), Coded(coded.codes[:0].copy(), coded.levels)
        del coded
        start = np.zeros(data.households.height + 1, dtype=np.uint32)
        grouped, last = True, 0
        for house in pieces_of_rows(data):
            add_counts(house, start[1:])
            grouped = grouped and bool((house[1:] >= house[:-1]).all()) and (not house.size or last <= house[0])
            last = int(house[-1]) if house.size else last
        np.cumsum(start, out=start)
        rows = None if grouped else listed_by(household_rows(data), start)
        return cls(codes, values, _Starts.of(start), rows)

    def of_households(self, households: Rows) -> tuple[Codes, npt.NDArray[np.int64]]:
        """Return the codes of the persons of some households, and how many each has.

        Inside a household persons come in the order of their values, so that the order in the file
        tells nothing.
        """
        sizes = (self.start[households + np.uint32(1)] - self.start[households]).astype(np.int64)
        ends = np.cumsum(sizes)
        codes = np.empty(int(sizes.sum()), dtype=np.uint32)

        def work(piece: slice) -> None:
            begin = int(ends[piece.start] - sizes[piece.start])
            codes[begin : ends[piece.stop - 1]] = self._in_order(households[piece], sizes[piece])

        by_pieces(work, households.size)
        return codes, sizes

    def _in_order(self, households: Rows, sizes: npt.NDArray[np.int64]) -> Codes:
        ends = np.cumsum(sizes)
        place = np.arange(ends[-1]) + np.repeat(self.start[households] - (ends - sizes), sizes)
        codes = _from_bytes(self.codes.take(place if self.rows is None else self.rows[place], axis=0, mode="clip"))
        # One sort key: household first, then the person's values.
        keys = np.repeat(np.arange(households.size, dtype=np.uint64) << np.uint64(32), sizes) | codes
        keys.sort()
        return (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _in_bytes(coded: Coded) -> npt.NDArray[np.uint8]:
    """Return codes by their lowest bytes, as many as the largest needs."""
    width = max(1, ((coded.count - 1).bit_length() + 7) // 8)
    return np.ascontiguousarray(coded.codes.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)[:, :width])


def _from_bytes(codes: npt.NDArray[np.uint8]) -> Codes:
    wide = np.zeros((len(codes), 4), dtype=np.uint8)
    wide[:, : codes.shape[1]] = codes
    return wide.view("<u4").ravel().astype(np.uint32, copy=False)


PART: Final = 2_000_000  # households in one part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedFile:
    """The input, the swapped codes and the released order: confidential, like the input itself."""

    data: Microdata
    swap: Coded
    swapped: Codes
    order: Rows
    # None where the released tables were made elsewhere.
    held: Packed | None = None
    people: Persons | None = None
    ends: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", np.cumsum(count(self.swapped, groups=self.swap.count)))

    @classmethod
    def of(
        cls,
        data: Microdata,
        held: Sequence[str],
        *,
        swap: Coded,
        swapped: Codes,
        order: Rows,
        known: Coded | None = None,
    ) -> SwappedFile:
        """Return the swapped file; of the ``held`` columns, those of ``known`` codes are kept as these."""
        people = Persons.of(data) if data.persons is not None else None
        coded = known or Coded(np.zeros(data.households.height, dtype=np.uint32), pl.DataFrame([{}]))
        packed = Packed.of((data.households[name] for name in held if name not in coded.levels.columns), coded=coded)
        return cls(data=data, held=packed, swap=swap, swapped=swapped, order=order, people=people)

    @property
    def tables(self) -> dict[str, Callable[[], Iterable[pl.DataFrame]]]:
        """Return the released tables, each made in parts when it is asked for."""
        found: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {RECORDS: self.households}
        return found if self.data.persons is None else {**found, PERSONS: self.persons}

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households: held columns in the new order, swap columns from their codes.

        With persons, the household id is issued anew: the position in the released order, which does
        not depend on the input.
        """
        assert self.held is not None
        for begin in range(0, self.order.size, PART):
            rows = self.order[begin : begin + PART]
            columns = {
                column.name: column
                for frame in (self.held.gather(rows), self.swap.decoded(self._places(begin, rows.size)))
                for column in frame.get_columns()
            }
            released = [columns[name] for name in self.data.households.columns if name in columns]
            if self.people is not None:
                ids = np.arange(begin + 1, begin + rows.size + 1, dtype=np.uint32)
                released.insert(0, pl.Series(self.data.hid, ids))
            yield pl.DataFrame(released)

    def persons(self) -> Iterator[pl.DataFrame]:
        """Yield the released persons: their household's new id and swap values, and their own."""
        assert self.people is not None
        for begin in range(0, self.order.size, PART):
            # Nothing of a part is kept while the next one is made.
            yield self._persons_of(self.people, begin)

    def files(self) -> dict[str, list[Path]]:
        """Return the files that the released tables are in already, by name."""
        return {}

    def agrees(self, role: str) -> bool | None:
        """Say whether records that were brought together elsewhere are those of the input; None where that was here."""
        return None

    def _persons_of(self, people: Persons, begin: int) -> pl.DataFrame:
        rows = self.order[begin : begin + PART]
        codes, sizes = people.of_households(rows)
        house = np.repeat(np.arange(rows.size, dtype=np.uint32), sizes)
        ids = pl.Series(self.data.hid, house + np.uint32(begin + 1))
        places = self.swap.decoded(self._places(begin, rows.size)[house])
        values = people.values.decoded(codes)
        return pl.DataFrame([ids, *places.get_columns(), *values.get_columns()])

    def _places(self, begin: int, rows: int) -> Codes:
        """Return ``swapped[order]`` for some rows. The order is by released codes, so that these come in runs."""
        first, last = np.searchsorted(self.ends, [begin, begin + rows - 1], side="right")
        edges = np.clip(self.ends[first : last + 1], None, begin + rows)
        return np.repeat(np.arange(first, last + 1, dtype=np.uint32), np.diff(edges, prepend=begin))
