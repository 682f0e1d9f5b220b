"""Expected tables of the other members of the family (swapping theory R18): closed forms, before anything is swapped.

The Mallows and the shuffle swap need the law of the number of moved records only (``moments.Laws.by_number_moved``).
Of the conditioned swap there is the exact law of small strata here, beside ``moments.conditioned`` for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from stirred.mechanisms.swapping.laws.family import selected_counts_law
from stirred.mechanisms.swapping.moments.class_laws import Array
from stirred.spec.swap_budget import derangements

_SMALL: Final = 25
_REACH: Final = 12


def mallows_moved(records: int, weight: Fraction) -> tuple[Array, Array]:
    """Return the possible numbers of moved records and their chances, for the Mallows swap (R5).

    >>> k, chance = mallows_moved(4, Fraction(1, 3))
    >>> dict(zip(k.astype(int).tolist(), (168 * chance).round(9).tolist()))
    {4: 9.0, 3: 24.0, 2: 54.0, 1: 0.0, 0: 81.0}
    """
    expected = float(1 / weight) if weight else math.inf
    if records < 2 or math.isinf(expected):
        return np.zeros(1), np.ones(1)
    near = min(records, int(expected))
    reach = int(_REACH * math.sqrt(near)) + 80
    low, high = max(0, near - reach), min(records, near + reach)
    up = np.cumprod(expected / np.arange(near + 1.0, high + 1))
    down = np.cumprod(np.arange(float(near), low, -1) / expected)
    terms = np.concatenate([down[::-1], [1.0], up])
    moved = records - np.arange(low, high + 1)
    terms *= _deranged_share()[np.minimum(moved, _SMALL)]
    return moved.astype(np.float64), terms / terms.sum()


def shuffle_moved(records: int, rate: Fraction) -> tuple[Array, Array]:
    """Return the same for the shuffle swap (R7): of m selected records, some keep their values by chance.

    >>> k, chance = shuffle_moved(2, Fraction(1, 2))
    >>> chance.tolist()
    [0.875, 0.0, 0.125]
    """
    p, n = float(rate), records
    spread = math.sqrt(n * p * (1 - p))
    low, high = max(0, int(n * p - _REACH * spread) - 40), min(n, int(n * p + _REACH * spread) + 40)
    selected = np.arange(low, high + 1)
    chance = _binomial(n, p, low, high)
    least = max(0, low - _SMALL)
    result = np.zeros(high - least + 1)
    shares = _deranged_share()
    for stay in range(min(_SMALL, high) + 1):
        moved = selected - stay
        kept = moved >= 0
        # Of m! permutations, C(m, stay) d(m - stay) leave so many in place.
        share = shares[np.minimum(moved[kept], _SMALL)] / math.factorial(stay)
        np.add.at(result, moved[kept] - least, chance[kept] * share)
    return np.arange(float(least), high + 1), result / result.sum()


def _binomial(n: int, p: float, low: int, high: int) -> Array:
    if p in (0.0, 1.0):
        return (np.arange(low, high + 1) == n * p).astype(np.float64)
    middle = min(max(int((n + 1) * p), low), high)
    above, below = np.arange(middle + 1.0, high + 1), np.arange(float(middle), low, -1)
    odds = p / (1 - p)
    up, down = np.cumprod((n - above + 1) / above * odds), np.cumprod(below / (n - below + 1) / odds)
    weight = np.concatenate([down[::-1], [1.0], up])
    return np.asarray(weight / weight.sum())


def _deranged_share() -> Array:
    """Return d(m)/m! for m = 0, 1, ...; the last stands for all larger m, to double precision."""
    return np.array([derangements(m) / math.factorial(m) for m in range(_SMALL)] + [math.exp(-1)])


# ---- the conditioned swap -------------------------------------------------------------------------------


def exact_moves(counts: Sequence[int], rate: Fraction, masses: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return Phi exactly, by listing all selected counts: the chance that a record of value a gets value b.

    >>> tuple(map(str, exact_moves((2, 2, 1), Fraction(1, 2), [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)])[2]))
    ('134/1335', '134/1335', '1067/1335')
    """
    size = range(len(counts))
    phi = [[Fraction(int(a == b)) for b in size] for a in size]
    for chosen, p in selected_counts_law(counts, rate, masses).items():
        k = sum(chosen)
        for a in size:
            for b in size:
                if k:
                    phi[a][b] += p * Fraction(chosen[a], counts[a]) * (Fraction(chosen[b], k) - int(a == b))
    return phi
