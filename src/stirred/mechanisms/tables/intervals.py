"""How far noise carries a published number: of one cell by its exact law, of a sum of cells by convolution."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from stirred.mechanisms.cell_law import CellLaw
from stirred.spec.shift_law import DiscreteGaussian

LEVEL: Final = Fraction(95, 100)


@lru_cache(maxsize=1024)
def half_width(variance: Fraction, cells: int = 1, level: Fraction = LEVEL) -> int:
    """Return the smallest k such that the noise of a sum of ``cells`` counts is from -k to k with chance ``level``.

    >>> half_width(Fraction(625)), half_width(Fraction("2.343"), 8)
    (49, 8)
    """
    if cells == 1:
        return CellLaw(DiscreteGaussian(variance)).half_width(level)
    reach = int(12 * float(variance) ** 0.5) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    chances = np.ones(1)
    for bit in bin(cells)[2:]:  # by squaring, from the highest digit on
        chances = np.convolve(chances, chances)
        chances = np.convolve(chances, one / one.sum()) if bit == "1" else chances
    middle = chances.size // 2
    inside = chances[middle] + 2 * np.cumsum(np.concatenate(([0.0], chances[middle + 1 :])))
    return int(np.searchsorted(inside, float(level)))
