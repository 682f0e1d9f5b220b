"""The swapped file as codes, from which the released tables are made part by part; persons travel with households.

A national file is never copied as a whole: held columns are gathered and codes decoded for a few
million households at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, encode
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.packed import Packed, PackedPersons
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


PART: Final = 2_000_000  # households in one part


@dataclass(frozen=True, kw_only=True, eq=False)
class SwappedFile:
    """The input, the swapped codes and the released order: confidential, like the input itself."""

    data: Microdata
    swap: Coded
    swapped: Codes
    order: Rows
    # None where the released tables were made elsewhere.
    held: Packed | None = None
    people: PackedPersons | None = None
    # The files that the released tables are in already, by name, and whether their records are those of the input.
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    agree: Mapping[str, Callable[[], bool]] = field(default_factory=dict)

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Return how many records have each released code, or one before it."""
        return np.cumsum(count(self.swapped, groups=self.swap.count))

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
        people = PackedPersons.of(data) if data.persons is not None else None
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

        With persons, the household id is a new one: the position in the released order, which does
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

    def _persons_of(self, people: PackedPersons, begin: int) -> pl.DataFrame:
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
