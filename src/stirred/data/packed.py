"""Columns side by side in a few bits each, so that one look-up fetches a whole record.

Bringing records into another order costs a trip to distant memory for every record and column. Most columns
of a census have few values: together they fit into a word or two, and one trip fetches them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import MACHINE_INTEGERS, Coded, Codes, add_counts, by_pieces, encode, listed_by
from stirred.data.columns import fresh, gather_all
from stirred.data.household_rows import household_rows, pieces_of_rows
from stirred.data.microdata import Microdata

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
    """One column: its values are ``low`` plus some bits of a word, or what a table or ``levels`` hold at that place."""

    name: str
    word: int
    shift: int
    mask: int
    low: int
    dtype: np.dtype[Any]
    table: Integers | None = None
    levels: pl.Series | None = None

    def column(self, values: Integers) -> pl.Series:
        """Return the column whose numbers were fetched."""
        return pl.Series(self.name, values) if self.levels is None else self.levels.gather(values)


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
        places, width = _laid_out(numbered)
        rows = numbered[0].values.size if numbered else 0
        words = np.zeros((rows, width), dtype=np.uint32)

        def work(piece: slice) -> None:
            for column, (word, shift) in zip(numbered, places, strict=True):
                _pack(column.values[piece], column.low, word, shift, words[piece], compiled=rows >= _LARGE)

        by_pieces(work, rows)
        fields = chain.from_iterable(
            column.fields(word, shift) for column, (word, shift) in zip(numbered, places, strict=True)
        )
        return cls(words, tuple(fields), tuple(loose))

    def gather(self, rows: Rows) -> pl.DataFrame:
        """Return some rows in the given order, in memory of their own; the columns come in any order."""
        fetched = [np.empty(rows.size, dtype=field.dtype) for field in self.fields]
        compiled = self.words.shape[0] >= _LARGE

        def work(piece: slice) -> None:
            _fetch(self.words, rows[piece], self.fields, [values[piece] for values in fetched], compiled=compiled)

        by_pieces(work, rows.size if self.fields else 0)
        held = [field.column(values) for field, values in zip(self.fields, fetched, strict=True)]
        return pl.DataFrame([*held, *map(fresh, gather_all(self.loose, rows))])


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

    @property
    def bits(self) -> int:
        return max((self.high - self.low).bit_length(), 1)

    def fields(self, word: int, shift: int) -> Iterator[Field]:
        field = partial(Field, word=word, shift=shift, mask=(1 << self.bits) - 1, low=self.low)
        if self.levels is None:
            yield field(name=self.name, dtype=self.values.dtype)
            return
        for levels in self.levels.get_columns():
            if levels.dtype in MACHINE_INTEGERS and not levels.null_count():
                table = levels.to_numpy()
                yield field(name=levels.name, dtype=table.dtype, table=table)
            else:
                yield field(name=levels.name, dtype=np.dtype(np.uint32), levels=levels)


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


def _laid_out(numbered: Sequence[_Numbered]) -> tuple[list[tuple[int, int]], int]:
    """Give every column the first word with room for it, as word and shift; return also the number of words."""
    used: list[int] = []
    places = []
    for column in numbered:
        word = next((w for w, taken in enumerate(used) if taken + column.bits <= _WORD_BITS), len(used))
        if word == len(used):
            used.append(0)
        places.append((word, used[word]))
        used[word] += column.bits
    return places, len(used)


def _pack(values: Integers, low: int, word: int, shift: int, words: Words, *, compiled: bool) -> None:
    """Write a column into its bits of the words, which are 0 so far."""
    if compiled:
        from stirred.data.code_kernels import pack

        pack(values, low, word, shift, words)
    else:
        words[:, word] |= (values.astype(np.int64) - low).astype(np.uint32) << np.uint32(shift)


def _fetch(words: Words, rows: Rows, fields: Sequence[Field], columns: Sequence[Integers], *, compiled: bool) -> None:
    """Look the rows up and write the fields into the columns."""
    if not compiled:
        records = words[rows]
        for field, values in zip(fields, columns, strict=True):
            numbers = records[:, field.word] >> np.uint32(field.shift) & np.uint32(field.mask)
            values[:] = field.table[numbers] if field.table is not None else numbers.astype(np.int64) + field.low
        return
    from stirred.data.code_kernels import fetch, look_up, unpack

    records = np.empty((rows.size, words.shape[1]), dtype=np.uint32)
    fetch(words, rows, records)
    for field, values in zip(fields, columns, strict=True):
        if field.table is None:
            unpack(records, field.word, field.shift, field.mask, field.low, values)
        else:
            look_up(records, field.word, field.shift, field.mask, field.table, values)


# ---- persons, grouped by household: of a nation they are the largest thing in memory -------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PackedStarts:
    """Numbers that never fall, in half the bytes: one of every 256, and how far each is beyond it.

    >>> starts = PackedStarts.of(np.array([0, 2, 2, 70_000], dtype=np.uint32))
    >>> starts[np.array([1, 3], dtype=np.uint32)].tolist(), starts.beyond.dtype.name
    ([2, 70000], 'uint32')
    """

    bases: Rows
    beyond: npt.NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, numbers: Rows) -> PackedStarts:
        """Pack numbers that never fall."""
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
class PackedPersons:
    """The persons of a file as codes, grouped by household.

    ``codes`` numbers each person's characteristics in the order of their values, in as few bytes as it takes: of a
    nation they are the largest thing in memory. ``values`` reads them back. Persons of household
    ``h`` are the entries ``start[h]`` to ``start[h + 1]`` of ``rows``, or of the file itself where it is
    already grouped that way.
    """

    codes: npt.NDArray[np.uint8]
    values: Coded
    start: PackedStarts
    rows: Rows | None

    @classmethod
    def of(cls, data: Microdata) -> PackedPersons:
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
        return cls(codes, values, PackedStarts.of(start), rows)

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
