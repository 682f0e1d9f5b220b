"""How many records of a stratum a swap moves: the law of that number decides the moments of every table (R18)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_REACH: Final = 14  # standard deviations of the number selected that matter to double precision
_SPREADS: Final = 12


def permutation_moved(records: int, rate: Fraction) -> tuple[Array, Array]:
    """Return the possible numbers of moved records and their chances: binomial, drawn again at exactly one.

    >>> k, chance = permutation_moved(2, Fraction(1, 2))
    >>> dict(zip(k.astype(int).tolist(), chance.tolist()))
    {0: 0.5, 1: 0.0, 2: 0.5}
    """
    n, p = records, float(rate)
    if p in (0.0, 1.0):
        return np.array([n * p]), np.array([1.0])
    middle, spread = min(int((n + 1) * p), n), math.sqrt(n * p * (1 - p))
    low, high = max(0, int(middle - _REACH * spread) - 1), min(n, int(middle + _REACH * spread) + 40)
    k, weight = np.arange(float(low), high + 1), _binomial(n, p, low, high)
    weight[k == 1] = 0.0
    return k, weight / weight.sum()


def mallows_moved(records: int, weight: Fraction) -> tuple[Array, Array]:
    """Return the possible numbers of moved records and their chances, for the Mallows swap (R5).

    >>> k, chance = mallows_moved(4, Fraction(1, 3))
    >>> dict(zip(k.astype(int).tolist(), (168 * chance).round(9).tolist()))
    {4: 9.0, 3: 24.0, 2: 54.0, 1: 0.0, 0: 81.0}
    """
    from stirred.mechanisms.swapping.mallows.law import DERANGED, DERANGED_SHARES, poisson_terms

    expected = float(1 / weight) if weight else math.inf
    if records < 2 or math.isinf(expected):
        return np.zeros(1), np.ones(1)
    near = min(records, int(expected))
    reach = int(_SPREADS * math.sqrt(near)) + 80
    low, high = max(0, near - reach), min(records, near + reach)
    moved, terms = records - np.arange(low, high + 1), poisson_terms(expected, near=near, low=low, high=high)
    terms *= DERANGED_SHARES[np.minimum(moved, DERANGED)]
    return moved.astype(np.float64), terms / terms.sum()


def shuffle_moved(records: int, rate: Fraction) -> tuple[Array, Array]:
    """Return the same for the shuffle swap (R7): of m selected records, some keep their values by chance.

    >>> k, chance = shuffle_moved(2, Fraction(1, 2))
    >>> chance.tolist()
    [0.875, 0.0, 0.125]
    """
    from stirred.mechanisms.swapping.mallows.law import DERANGED, DERANGED_SHARES

    p, n = float(rate), records
    spread = math.sqrt(n * p * (1 - p))
    low, high = max(0, int(n * p - _SPREADS * spread) - 40), min(n, int(n * p + _SPREADS * spread) + 40)
    selected = np.arange(low, high + 1)
    chance = _binomial(n, p, low, high)
    chance /= chance.sum()
    least = max(0, low - DERANGED)
    result = np.zeros(high - least + 1)
    for stay in range(min(DERANGED, high) + 1):
        moved = selected - stay
        kept = moved >= 0
        # Of m! permutations, C(m, stay) d(m - stay) leave so many in place.
        share = DERANGED_SHARES[np.minimum(moved[kept], DERANGED)] / math.factorial(stay)
        np.add.at(result, moved[kept] - least, chance[kept] * share)
    return np.arange(float(least), high + 1), result / result.sum()


def _binomial(n: int, p: float, low: int, high: int) -> Array:
    """Return the weights of ``low`` to ``high`` selected, up to a constant."""
    if p in (0.0, 1.0):
        return (np.arange(low, high + 1) == n * p).astype(np.float64)
    # From the mode outwards by quotients of neighbours: logarithms of factorials would lose digits.
    middle = min(max(int((n + 1) * p), low), high)
    above, below = np.arange(middle + 1.0, high + 1), np.arange(float(middle), low, -1)
    odds = p / (1 - p)
    up, down = np.cumprod((n - above + 1) / above * odds), np.cumprod(below / (n - below + 1) / odds)
    return np.concatenate([down[::-1], [1.0], up])
