"""Integer noise that is too wide for a table: coarse noise from a table, and uniform digits kept by exact coins.

|X| = m a + r with 0 <= r < m, m a power of two. The coarse a is drawn with the weight of m a, which is noise m times
narrower; r is uniform; and the number is kept with probability w(m a + r)/w(m a) = exp(-x), where x is below 1/1000 as
a rule. A word that is below 1 - x decides at once, others by integers that enclose exp(-x).

Signs: a = 0 has both signs while any other a has one of two, so that it is kept with probability 1/2, and of the
two zeros one is left out. Then every number has its weight.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from stirred.randomness.entropy import WORD_BITS, WordReader
from stirred.randomness.noise import Integers, NoiseTable, table_of
from stirred.randomness.noise_steps import coin
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise

_USUAL: Final = 1 << 20  # more than the reach of any table


def fill_wide(noise: Noise, out: Integers, first: WordReader, further: WordReader) -> None:
    """Fill an array with independent noise of this law, exactly."""
    table, digits, unit = _coarse(noise)
    pending = np.arange(out.size)
    while pending.size:
        count = pending.size
        coarse = np.empty(count, dtype=np.int64)
        table.fill(coarse, first.take((count + 1) // 2).view(np.uint16), further)
        words, points = first.take(count), first.take(count).astype(np.int64)
        flipped = (words & np.uint32(1)).astype(np.bool_)
        size, rest = np.abs(coarse), (words >> np.uint32(WORD_BITS - digits)).astype(np.int64)
        negative = np.where(size == 0, flipped, coarse < 0)
        kept = ((size == 0) | flipped) & ~(negative & (size == 0) & (rest == 0))
        energy = rest * ((size << (digits + 1)) + rest) if isinstance(noise, DiscreteGaussian) else rest
        # exp(-x) >= 1 - x, and x is at most so many units of 2**-32.
        sure = (size < _USUAL) & (points + 2 + (energy << 24) // unit <= 1 << WORD_BITS)
        for each in np.flatnonzero(kept & ~sure).tolist():
            kept[each] = coin(noise, int(energy[each]), further, point=int(points[each]), bits=WORD_BITS)
        found = (size << digits) + rest
        out[pending[kept]] = np.where(negative, -found, found)[kept]
        pending = pending[~kept]


@lru_cache(maxsize=64)
def _coarse(noise: Noise) -> tuple[NoiseTable, int, int]:
    """Return the table of the coarse noise, how many binary digits are added, and the energy that costs 2**-8."""
    for digits in range(1, WORD_BITS):
        if isinstance(noise, DiscreteGaussian):
            coarse: Noise = DiscreteGaussian(noise.variance / 4**digits)
            unit = math.floor(2 * noise.variance / 256)
        else:
            coarse = DiscreteLaplace(noise.loss * 2**digits)
            unit = math.floor(1 / (256 * Fraction(noise.loss.enclose(30).high)))
        table = table_of(coarse)
        if table is not None:
            return table, digits, unit
    raise AssertionError(f"{noise}: so wide a law is refused where it is made")
