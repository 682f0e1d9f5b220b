"""The swapped file as codes, from which the released tables are made part by part.

A national file is never copied as a whole: held columns are gathered and codes decoded for a few
million households at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count
from stirred.data.microdata import Microdata
from stirred.data.packed import Packed
from stirred.mechanisms.swapping.persons import Persons, Rows

PART: Final = 2_000_000  # households in one part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedFile:
    """The input, the swapped codes and the released order: confidential, like the input itself."""

    data: Microdata
    held: Packed
    swap: Coded
    swapped: Codes
    order: Rows
    people: Persons | None
    ends: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", np.cumsum(count(self.swapped, groups=self.swap.count)))

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households: held columns in the new order, swap columns from their codes.

        With persons, the household id is issued anew: the position in the released order, which does
        not depend on the input.
        """
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
            rows = self.order[begin : begin + PART]
            codes, sizes = self.people.of_households(rows)
            house = np.repeat(np.arange(rows.size, dtype=np.uint32), sizes)
            ids = pl.Series(self.data.hid, house + np.uint32(begin + 1))
            places = self.swap.decoded(self._places(begin, rows.size)[house])
            values = self.people.coded.decoded(codes)
            yield pl.DataFrame([ids, *places.get_columns(), *values.get_columns()])

    def _places(self, begin: int, rows: int) -> Codes:
        """Return ``swapped[order]`` for some rows. The order is by released codes, so that these come in runs."""
        first, last = np.searchsorted(self.ends, [begin, begin + rows - 1], side="right")
        edges = np.clip(self.ends[first : last + 1], None, begin + rows)
        return np.repeat(np.arange(first, last + 1, dtype=np.uint32), np.diff(edges, prepend=begin))
