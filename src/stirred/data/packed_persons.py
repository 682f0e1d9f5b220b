"""The persons of a file in a few bytes each, grouped by household: of a nation they are the largest thing in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, add_counts, by_pieces, encode, listed_by
from stirred.data.household_rows import household_rows, pieces_of_rows
from stirred.data.microdata import Microdata

Rows = npt.NDArray[np.uint32]


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
