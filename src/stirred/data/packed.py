"""Columns side by side in a few bits each, so that one look-up fetches a whole record.

Bringing records into another order costs a trip to distant memory for every record and column. Most columns
of a census have few values: together they fit into a word or two, and one trip fetches them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import MACHINE_INTEGERS, Coded, encode
from stirred.data.columns import gather_all
from stirred.data.pieces import by_pieces

Rows = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint32]
Integers = npt.NDArray[Any]

_WORD_BITS: Final = 32
# From here compiled passes pay for loading the compiler.
_LARGE: Final = 1_000_000
# Text and the like is numbered where the first rows show few values. This decides speed and nothing else.
_FIRST_ROWS: Final = 100_000
_FEW: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """Whole numbers from ``low`` on in ``bits`` bits of a word; ``levels`` are the values they stand for, if any."""

    word: int
    shift: int
    bits: int
    low: int
    dtype: np.dtype[Any]
    name: str
    levels: pl.DataFrame | None

    @property
    def mask(self) -> int:
        """Return the bits of the field, moved to the lower end of the word."""
        return (1 << self.bits) - 1

    def columns(self, values: Integers) -> list[pl.Series]:
        """Return the columns whose numbers were fetched."""
        if self.levels is None:
            return [pl.Series(self.name, values)]
        return gather_all(self.levels.get_columns(), values)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Columns of a table, ready to be fetched in any order: ``words[row]`` is a record, ``fields`` say what is where.

    Columns that do not fit, such as fractional numbers, are left ``loose``.
    """

    words: Words
    fields: tuple[Field, ...]
    loose: tuple[pl.Series, ...]

    @classmethod
    def of(cls, columns: Iterable[pl.Series], *, coded: Coded | None = None) -> Packed:
        """Pack columns, and those that have been coded already.

        >>> homes = pl.DataFrame({"rooms": [3, 9, 4], "tenure": ["own", "rent", "own"], "rent": [0.5, 1.5, 0.0]})
        >>> Packed.of(homes.get_columns()).gather(np.array([1, 0], dtype=np.uint32)).select(homes.columns).rows()
        [(9, 'rent', 1.5), (3, 'own', 0.5)]
        """
        numbered = [] if coded is None or not coded.levels.width else [_Numbered.of_codes(coded)]
        loose = []
        for column in columns:
            numbers = _numbered(column)
            if numbers is None:
                loose.append(column)
            else:
                numbered.append(numbers)
        fields, width = _laid_out(numbered)
        rows = numbered[0].values.size if numbered else 0
        words = np.zeros((rows, width), dtype=np.uint32)

        def work(piece: slice) -> None:
            _pack(words[piece], fields, [column.values[piece] for column in numbered], compiled=rows >= _LARGE)

        by_pieces(work, rows)
        return cls(words, tuple(fields), tuple(loose))

    def gather(self, rows: Rows) -> pl.DataFrame:
        """Return some rows, in the given order; the columns come in an order of their own."""
        fetched = [np.empty(rows.size, dtype=field.dtype) for field in self.fields]
        compiled = self.words.shape[0] >= _LARGE

        def work(piece: slice) -> None:
            _fetch(self.words, rows[piece], self.fields, [values[piece] for values in fetched], compiled=compiled)

        by_pieces(work, rows.size if self.fields else 0)
        columns = gather_all(self.loose, rows)
        for field, values in zip(self.fields, fetched, strict=True):
            columns += field.columns(values)
        return pl.DataFrame(columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Numbered:
    """A column as whole numbers from ``low`` to ``high``, or several columns as the codes of their levels."""

    values: Integers
    low: int
    high: int
    name: str
    levels: pl.DataFrame | None

    @classmethod
    def of_codes(cls, coded: Coded) -> _Numbered:
        return cls(coded.codes, 0, max(coded.count - 1, 0), "", coded.levels)


def _numbered(column: pl.Series) -> _Numbered | None:
    """Return a column as numbers that fit a word, or None."""
    if column.dtype in MACHINE_INTEGERS and not column.null_count() and len(column):
        low, high = int(column.min()), int(column.max())  # type: ignore[arg-type]
        if high - low < 1 << _WORD_BITS and high < 1 << 63:
            return _Numbered(column.to_numpy(), low, high, column.name, None)
    elif not column.dtype.is_float() and column.head(_FIRST_ROWS).n_unique() <= _FEW:
        coded = encode(column.to_frame(), [column.name])
        if coded.levels.schema == column.to_frame().schema:
            return _Numbered.of_codes(coded)
    return None


def _laid_out(numbered: Sequence[_Numbered]) -> tuple[list[Field], int]:
    """Give every column the first word with room for it; return also the number of words."""
    used: list[int] = []
    fields = []
    for column in numbered:
        bits = max((column.high - column.low).bit_length(), 1)
        word = next((w for w, taken in enumerate(used) if taken + bits <= _WORD_BITS), len(used))
        if word == len(used):
            used.append(0)
        fields.append(
            Field(
                word=word,
                shift=used[word],
                bits=bits,
                low=column.low,
                dtype=column.values.dtype,
                name=column.name,
                levels=column.levels,
            )
        )
        used[word] += bits
    return fields, len(used)


def _pack(words: Words, fields: Sequence[Field], columns: Sequence[Integers], *, compiled: bool) -> None:
    """Write the columns into their bits of the words, which are 0 so far."""
    for field, values in zip(fields, columns, strict=True):
        if compiled:
            from stirred.data.code_kernels import pack

            pack(values, field.low, field.word, field.shift, words)
        else:
            words[:, field.word] |= (values.astype(np.int64) - field.low).astype(np.uint32) << np.uint32(field.shift)


def _fetch(words: Words, rows: Rows, fields: Sequence[Field], columns: Sequence[Integers], *, compiled: bool) -> None:
    """Look the rows up and write the fields into the columns."""
    if compiled:
        from stirred.data.code_kernels import fetch, unpack

        records = np.empty((rows.size, words.shape[1]), dtype=np.uint32)
        fetch(words, rows, records)
        for field, values in zip(fields, columns, strict=True):
            unpack(records, field.word, field.shift, field.mask, field.low, values)
        return
    records = words[rows]
    for field, values in zip(fields, columns, strict=True):
        codes = records[:, field.word] >> np.uint32(field.shift) & np.uint32(field.mask)
        values[:] = (codes.astype(np.int64) + field.low).astype(values.dtype)
