"""Compiled passes over columns of integers. Importing this module loads numba.

Each has its plain numpy twin in ``codes`` or ``packed``, which serves small files and is the oracle in the tests.
Compiled functions call only functions of this file: numba's cache does not notice changes elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def mark_present(values: Any, low: int, present: Any) -> None:
    """Mark ``value - low`` as present for every value."""
    for i in range(values.size):
        present[np.int64(values[i]) - low] = True


@njit(cache=True, nogil=True)
def fold_in(values: Any, low: int, table: Any, size: int, codes: Any) -> None:
    """Append one column to the codes: ``code * size + table[value - low]``."""
    for i in range(values.size):
        codes[i] = codes[i] * np.uint32(size) + table[np.int64(values[i]) - low]


@njit(cache=True, nogil=True)
def renumber(codes: Any, number: Any) -> None:
    """Replace every code by its number."""
    for i in range(codes.size):
        codes[i] = number[codes[i]]


@njit(cache=True, nogil=True)
def count_codes(codes: Any, counts: Any) -> None:
    """Count how often each code occurs."""
    for i in range(codes.size):
        counts[codes[i]] += 1


@njit(cache=True, nogil=True)
def list_rows(codes: Any, places: Any, rows: Any) -> None:
    """List the rows of each code from its place on, which moves along."""
    for i in range(codes.size):
        rows[places[codes[i]]] = i
        places[codes[i]] += 1


@njit(cache=True, nogil=True)
def find_differing(groups: Any, values: Any, first: Any, seen: Any, differing: Any) -> None:
    """Mark the groups that hold two different values."""
    for i in range(groups.size):
        group = groups[i]
        if differing[group]:
            continue
        if not seen[group]:
            seen[group] = True
            first[group] = values[i]
        elif first[group] != values[i]:
            differing[group] = True


@njit(cache=True, nogil=True)
def pack(values: Any, low: int, word: int, shift: int, words: Any) -> None:
    """Write ``value - low`` into the bits of a word from ``shift`` on."""
    for i in range(values.size):
        words[i, word] |= np.uint32(np.int64(values[i]) - low) << np.uint32(shift)


@njit(cache=True, nogil=True)
def fetch(words: Any, rows: Any, records: Any) -> None:
    """Copy the words of some rows."""
    if words.shape[1] == 1:
        for i in range(rows.size):
            records[i, 0] = words[rows[i], 0]
        return
    for i in range(rows.size):
        for word in range(words.shape[1]):
            records[i, word] = words[rows[i], word]


@njit(cache=True, nogil=True)
def unpack(records: Any, word: int, shift: int, mask: int, low: int, values: Any) -> None:
    """Read the values back that ``pack`` wrote."""
    for i in range(values.size):
        values[i] = np.int64(records[i, word] >> np.uint32(shift) & np.uint32(mask)) + low


@njit(cache=True, nogil=True)
def look_up(records: Any, word: int, shift: int, mask: int, table: Any, values: Any) -> None:
    """Read numbers back that ``pack`` wrote and replace them by what the table holds there."""
    for i in range(values.size):
        values[i] = table[records[i, word] >> np.uint32(shift) & np.uint32(mask)]
