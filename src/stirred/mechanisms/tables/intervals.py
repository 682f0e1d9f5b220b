"""How far noise carries a published number: of one cell by its exact law, of a sum of cells by convolution."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from stirred.mechanisms.cell_law import CellLaw
from stirred.spec.shift_law import DiscreteGaussian

LEVEL: Final = Fraction(95, 100)
_SMOOTH: Final = 16  # from here on a sum has the law of one number but for a factor between 1 - 10^-60 and 1 + 10^-60


@lru_cache(maxsize=1024)
def variance_of(variance: Fraction) -> Fraction:
    """Return the variance of noise with this parameter: less than that where the noise is narrow.

    >>> round(float(variance_of(Fraction(5, 18))), 4), variance_of(Fraction(625)) == 625
    (0.2527, True)
    """
    return CellLaw(DiscreteGaussian(variance)).variance if variance < _SMOOTH else variance


@lru_cache(maxsize=1024)
def half_width(variance: Fraction, cells: int = 1, level: Fraction = LEVEL) -> int:
    """Return the smallest k such that the noise of a sum of ``cells`` counts is from -k to k with chance ``level``.

    >>> half_width(Fraction(625)), half_width(Fraction("2.343"), 8)
    (49, 8)
    """
    if cells == 1 or variance >= _SMOOTH:
        return CellLaw(DiscreteGaussian(cells * variance)).half_width(level)
    reach = int(12 * float(variance) ** 0.5) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    chances = np.ones(1)
    for bit in bin(cells)[2:]:  # by squaring, from the highest digit on
        chances = np.convolve(chances, chances)
        chances = np.convolve(chances, one / one.sum()) if bit == "1" else chances
    middle = chances.size // 2
    inside = chances[middle] + 2 * np.cumsum(np.concatenate(([0.0], chances[middle + 1 :])))
    return int(np.searchsorted(inside, float(level)))
