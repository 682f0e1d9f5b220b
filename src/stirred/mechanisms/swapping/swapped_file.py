"""The swapped file as codes, from which the released tables are made part by part.

A national file is never copied as a whole: held columns are gathered and codes decoded for a few
million households at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from stirred.data.codes import Coded, Codes
from stirred.data.columns import gather_all
from stirred.data.microdata import Microdata
from stirred.mechanisms.swapping.persons import Persons, Rows

PART: Final = 2_000_000  # households in one part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedFile:
    """The input, the swapped codes and the released order: confidential, like the input itself."""

    data: Microdata
    hold: tuple[str, ...]
    swap: Coded
    swapped: Codes
    order: Rows
    people: Persons | None

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households: held columns in the new order, swap columns from their codes.

        With persons, the household id is issued anew: the position in the released order, which does
        not depend on the input.
        """
        names = [n for n in self.data.households.columns if n in self.hold or n in self.swap.levels.columns]
        for begin in range(0, self.order.size, PART):
            rows = self.order[begin : begin + PART]
            moved = self.swap.decoded(self.swapped[rows])
            held = gather_all([self.data.households[name] for name in names if name not in moved.columns], rows)
            by_name = {column.name: column for column in (*held, *moved.get_columns())}
            columns = [by_name[name] for name in names]
            if self.people is not None:
                ids = np.arange(begin + 1, begin + rows.size + 1, dtype=np.uint32)
                columns.insert(0, pl.Series(self.data.hid, ids))
            yield pl.DataFrame(columns)

    def persons(self) -> Iterator[pl.DataFrame]:
        """Yield the released persons: their household's new id and swap values, and their own."""
        assert self.people is not None
        for begin in range(0, self.order.size, PART):
            rows = self.order[begin : begin + PART]
            codes, sizes = self.people.of_households(rows)
            house = np.repeat(np.arange(rows.size, dtype=np.uint32), sizes)
            ids = pl.Series(self.data.hid, house + np.uint32(begin + 1))
            places = self.swap.decoded(self.swapped[rows][house])
            values = self.people.coded.decoded(codes)
            yield pl.DataFrame([ids, *places.get_columns(), *values.get_columns()])
