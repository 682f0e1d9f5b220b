"""Exact integer noise in bulk: discrete Gaussian and discrete Laplace, from the cryptographic stream.

Inversion by a table. Sixteen random bits name a cell of [0, 1); where the whole cell lies in one step of the
distribution function they decide. Otherwise 48 further bits are read, and where 64 bits do not decide either, integers
of growing length do, without end (``noise_steps``). Steps are enclosed by integers, so every outcome has exactly its
probability. Noise too wide for a table is drawn coarsely by one, and digits are added by rejection (``noise_wide``).
The oracle of both is the method of Canonne, Kamath and Steinke, in the tests.

A number is addressed by purpose, chunk and place: a chunk may be an area, and gives the same noise however the work
is divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import Entropy, Keystream, WordReader
from stirred.randomness.noise_steps import draw_exactly, noise_steps
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise

Integers = npt.NDArray[np.int64]

_CELLS: Final = 1 << 16
_POINT_BITS: Final = 64
_TABLE_BITS: Final = 112  # of the enclosures from which a table is made: few points of 64 bits stay open
_MOST_STEPS: Final = 1 << 18
CHUNK: Final = 1 << 18
"""How many numbers of one purpose have a chunk in common where nobody names chunks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseTable:
    """The steps of one law of noise, in 64 bits and by cells of 16 bits; made once for each law."""

    noise: Noise
    cells: npt.NDArray[np.int32]
    guide: npt.NDArray[np.int32]
    begins: npt.NDArray[np.uint64]
    ends: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, noise: Noise) -> NoiseTable:
        """Return the table of a law."""
        from stirred.randomness.noise_kernel import OPEN

        steps = noise_steps(noise, _TABLE_BITS)
        least, most = steps.total
        last = (1 << _POINT_BITS) - 1
        # Below ``ends`` a point surely has this outcome or a smaller one, from ``begins`` on this or a larger one.
        ends = np.array([min((low << _POINT_BITS) // most, last) for low in steps.low], dtype=np.uint64)
        begun = [min(-((-high << _POINT_BITS) // least), last) for high in steps.high]
        begins = np.array([last, *begun[:-1]], dtype=np.uint64)
        first = np.arange(_CELLS, dtype=np.uint64) << np.uint64(48)
        guide = np.searchsorted(ends, first, side="right")
        inside = np.minimum(guide, ends.size - 1)
        whole = (guide < ends.size) & (begins[inside] <= first) & (first + np.uint64((1 << 48) - 1) < ends[inside])
        cells = np.where(whole, inside - steps.reach, OPEN).astype(np.int32)
        return cls(noise=noise, cells=cells, guide=guide.astype(np.int32), begins=begins, ends=ends)

    def fill(self, out: Integers, halves: npt.NDArray[np.uint16], reader: WordReader) -> None:
        """Fill an array with independent noise: from sixteen bits for each number, and further words where needed."""
        from stirred.randomness.noise_kernel import look_up, refine

        undecided = np.empty(out.size + 1, dtype=np.int64)
        count = look_up(halves, self.cells, out, undecided)
        points = np.empty(count, dtype=np.uint64)
        still = refine(
            halves, self.guide, self.begins, self.ends, undecided[:count], reader.take(2 * count), out, points
        )
        for place, point in zip(undecided[:still].tolist(), points[:still].tolist(), strict=True):
            out[place] = draw_exactly(self.noise, reader, point=point, bits=_POINT_BITS)

    def fill_rows(self, out: Integers, chunks: npt.NDArray[np.uint64], streams: Streams) -> None:
        """Fill each row with the noise of its own chunk: what ``fill_noise`` gives it, for many rows at once."""
        from stirred.randomness.noise_kernel import look_up, refine

        wide = out.shape[1]
        words = streams.first.rows(chunks, count=(wide + 1) // 2)
        halves = np.ascontiguousarray(words.view(np.uint16)[:, :wide]).reshape(-1)
        flat, undecided = out.reshape(-1), np.empty(out.size + 1, dtype=np.int64)
        count = look_up(halves, self.cells, flat, undecided)
        if not count:
            return
        of_row, first, many = np.unique(undecided[:count] // wide, return_index=True, return_counts=True)
        turn = np.arange(count) - np.repeat(first, many)
        further = streams.further.rows(chunks[of_row], count=2 * int(many.max()))
        pairs = further.reshape(of_row.size, -1, 2)[np.repeat(np.arange(of_row.size), many), turn]
        points = np.empty(count, dtype=np.uint64)
        still = refine(halves, self.guide, self.begins, self.ends, undecided[:count], pairs.reshape(-1), flat, points)
        for row in {place // wide for place in undecided[:still].tolist()}:  # about once in 2**50 numbers
            fill_noise(self.noise, out[row], chunk=int(chunks[row]), streams=streams)


@dataclass(frozen=True, slots=True)
class Streams:
    """The words of one purpose: the first sixteen bits of every number, and what more is needed for some."""

    first: Keystream
    further: Keystream

    @classmethod
    def of(cls, entropy: Entropy, purpose: str) -> Streams:
        """Return both streams of a purpose."""
        own = entropy.child(purpose)
        return cls(own.keystream("first"), own.keystream("further"))


@lru_cache(maxsize=256)
def table_of(noise: Noise) -> NoiseTable | None:
    """Return the table of a law; None where it would be too long."""
    return NoiseTable.of(noise) if _steps_needed(noise) <= _MOST_STEPS else None


def _steps_needed(noise: Noise) -> float:
    """Return about how many outcomes have a weight above 2**-_TABLE_BITS."""
    exponent = _TABLE_BITS * 0.6932
    if isinstance(noise, DiscreteGaussian):
        return 2 * float(2 * noise.variance * Fraction(exponent)) ** 0.5
    return 2 * exponent / max(float(noise.loss), 1e-300)


def fill_noise(noise: Noise, out: Integers, *, chunk: int, streams: Streams) -> None:
    """Fill an array with noise from one chunk of a purpose, such as one area."""
    table = table_of(noise)
    if table is not None:
        halves = streams.first.words(chunk, count=(out.size + 1) // 2).view(np.uint16)
        table.fill(out, halves, streams.further.reader(chunk))
        return
    from stirred.randomness.noise_wide import fill_wide

    fill_wide(noise, out, streams.first.reader(chunk), streams.further.reader(chunk))


def fill_noise_rows(noise: Noise, out: Integers, *, chunks: npt.NDArray[np.uint64], streams: Streams) -> None:
    """Fill each row of an array with noise from a chunk of its own: as ``fill_noise`` does it, one row at a time."""
    table = table_of(noise)
    if table is not None:
        table.fill_rows(out, chunks, streams)
        return
    for row, chunk in enumerate(chunks.tolist()):
        fill_noise(noise, out[row], chunk=chunk, streams=streams)


def integer_noise(noise: Noise, *, count: int, entropy: Entropy, purpose: str, threads: int = 1) -> Integers:
    """Return ``count`` independent whole numbers with this law, exactly.

    The same entropy and purpose give the same numbers, whatever the number of threads.

    >>> noise = integer_noise(DiscreteGaussian(4), count=10_000, entropy=Entropy.from_os(), purpose="example")
    >>> bool(abs(noise.mean()) < 0.2 and 3.5 < noise.var() < 4.5)
    True
    """
    out = np.empty(count, dtype=np.int64)
    streams = Streams.of(entropy, purpose)
    starts: Sequence[int] = range(0, count, CHUNK)

    def one(start: int) -> None:
        fill_noise(noise, out[start : start + CHUNK], chunk=start // CHUNK, streams=streams)

    if threads == 1 or len(starts) == 1:
        for start in starts:
            one(start)
    else:
        table_of(noise)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, starts))
    return out


def discrete_gaussian(
    variance: Fraction | int | str, *, count: int, entropy: Entropy, purpose: str, threads: int = 1
) -> Integers:
    """Return discrete Gaussian noise: z with probability proportional to exp(-z^2/(2 variance))."""
    return integer_noise(DiscreteGaussian(variance), count=count, entropy=entropy, purpose=purpose, threads=threads)


def discrete_laplace(
    loss: Fraction | int | str, *, count: int, entropy: Entropy, purpose: str, threads: int = 1
) -> Integers:
    """Return discrete Laplace noise: z with probability proportional to exp(-loss |z|)."""
    return integer_noise(DiscreteLaplace(loss), count=count, entropy=entropy, purpose=purpose, threads=threads)
