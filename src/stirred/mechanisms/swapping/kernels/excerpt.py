"""The rows that a kernel is given: a whole file, or those rows of it that lie in whole blocks of strata.

Words are addressed by the row of the file and by the block of strata (``addressing``). A kernel that knows the rows'
numbers in the file and the length of the file therefore does with an excerpt what it does with these rows of the
whole file, bit for bit: blocks do not look at each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels.addressing import CHUNK_ROWS, block_shift, rows_of
from stirred.randomness.entropy import Keystream, Words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """Rows of a file of ``of`` rows: their numbers in it, ascending, or None for all of them.

    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_seed("an example").keystream("select")
    >>> whole, some = np.empty(5, dtype=np.uint32), np.empty(2, dtype=np.uint32)
    >>> Excerpt(of=5).fill(words, 0, whole)
    >>> Excerpt(of=5, rows=np.array([1, 4], dtype=np.uint32)).fill(words, 0, some)
    >>> bool((some == whole[[1, 4]]).all())
    True
    """

    of: int
    rows: npt.NDArray[np.uint32] | None = None

    def shift(self, codes: int) -> int:
        """Return the number of low bits that tell the codes of one block of the file apart."""
        return block_shift(codes, rows=self.of)

    def number(self, row: int) -> int:
        """Return the number in the file of a row of the excerpt."""
        return row if self.rows is None else int(self.rows[row])

    def fill(self, keystream: Keystream, chunk: int, out: Words) -> None:
        """Overwrite ``out`` with the words of the rows of a chunk of the excerpt."""
        if self.rows is None:
            keystream.fill(chunk, out)
        else:
            out[:] = self._picked(keystream, self.rows[rows_of(chunk)], each=1)

    def fill_halves(self, keystream: Keystream, chunk: int, out: Words) -> None:
        """Overwrite ``out`` with the half words of these rows: the lower half of a word is that of the even row."""
        if self.rows is None:
            keystream.fill(chunk, out)
            return
        rows = self.rows[rows_of(chunk)]
        halves = np.zeros(2 * out.size, dtype=np.uint32)
        words = self._picked(keystream, rows, each=2)
        halves[: rows.size] = words >> ((rows & np.uint32(1)) << np.uint32(4)) & np.uint32(0xFFFF)
        out[:] = halves[0::2] | halves[1::2] << np.uint32(16)

    def _picked(self, keystream: Keystream, rows: npt.NDArray[np.uint32], *, each: int) -> Words:
        """Return the word of each of these rows, where one word serves so many neighbouring rows."""
        picked = np.empty_like(rows)
        chunks, begins = np.unique(rows // np.uint32(CHUNK_ROWS), return_index=True)
        places = rows % np.uint32(CHUNK_ROWS) // np.uint32(each)
        for chunk, begin, end in zip(chunks.tolist(), begins, [*begins[1:], rows.size], strict=True):
            words = keystream.words(chunk, count=int(places[end - 1]) + 1)
            picked[begin:end] = words[places[begin:end]]
        return picked
