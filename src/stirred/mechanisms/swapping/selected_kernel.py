"""Sums over the law of the selected counts in double precision. Importing this module loads numba.

For one swap value with c records and u given, g selected records have weight C(c,g) (x u)^g / g!: the weight of
g + 1 is (c-g) x u / (g+1)^2 times that of g, a ratio that falls with g. Sums run from a given g outwards until
the terms no longer matter. What is decided here is decided with a margin far above all rounding
(``selected_counts`` says how far), and left to exact arithmetic otherwise.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stirred.randomness.compiled import compiled

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Points = npt.NDArray[np.uint64]

# Terms below this share of the sum are left out.
_TINY = 1e-24
_LARGE = 1e200


@compiled
def sums(counts: Counts, rates: Floats, times: Floats, start: Counts, u: float, out: Floats) -> None:
    """Write the log of the product of all sums, in units of the terms at ``start``; mean and variance of the
    number selected; and the number of terms. Each swap value counts ``times`` times.
    """
    out[:] = 0.0
    for i in range(counts.size):
        count, rate, first = counts[i], rates[i] * u, start[i]
        unit = total = 1.0
        moment = square = log = 0.0
        term, g = 1.0, first
        while g < count:
            ratio = (count - g) * rate / ((g + 1.0) * (g + 1.0))
            term *= ratio
            g += 1
            total += term
            moment += term * (g - first)
            square += term * (g - first) * (g - first)
            if term > _LARGE:
                term, unit, total = term / _LARGE, unit / _LARGE, total / _LARGE
                moment, square, log = moment / _LARGE, square / _LARGE, log + math.log(_LARGE)
            elif term < _TINY * total and ratio < 1.0:
                break
        seen = g - first
        term, g = unit, first
        while g > 0:
            ratio = float(g) * g / ((count - g + 1.0) * rate)
            term *= ratio
            g -= 1
            total += term
            moment += term * (g - first)
            square += term * (g - first) * (g - first)
            if term > _LARGE:
                term, total = term / _LARGE, total / _LARGE
                moment, square, log = moment / _LARGE, square / _LARGE, log + math.log(_LARGE)
            elif term < _TINY * total and ratio < 1.0:
                break
        seen += first - g + 1
        mean = moment / total
        out[0] += times[i] * (math.log(total) + log)
        out[1] += times[i] * (mean + first)
        out[2] += times[i] * (square / total - mean * mean)
        out[3] += times[i] * seen


@compiled
def balance(counts: Counts, rates: Floats, times: Floats) -> float:
    """Return about the u at which as many records are selected as u says: the middle of the law of u."""
    low, high = 0.0, 0.0
    for i in range(counts.size):
        high += times[i] * counts[i]
    for _ in range(50):
        u = (low + high) / 2.0
        selected = 0.0
        for i in range(counts.size):
            rate = rates[i] * u
            selected += times[i] * (math.sqrt(rate * rate + 4.0 * counts[i] * rate) - rate) / 2.0
        if selected > u:
            low = u
        else:
            high = u
    return high


@compiled
def draw_counts(counts: Counts, rates: Floats, u: float, points: Points, close: float, out: Counts) -> int:
    """Draw the number selected of every swap value by inversion; write -1, and count, where too ``close`` to a step."""
    undecided = 0
    for i in range(counts.size):
        count, rate = counts[i], rates[i] * u
        middle = min(count, int((math.sqrt(rate * rate + 4.0 * count * rate) - rate) / 2.0))
        below, term, g = 0.0, 1.0, middle
        while g > 0:
            term *= float(g) * g / ((count - g + 1.0) * rate)
            g -= 1
            below += term
            if term < _TINY:
                break
        above, term, g = 0.0, 1.0, middle
        while g < count:
            term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
            g += 1
            above += term
            if term < _TINY:
                break
        total = below + 1.0 + above
        target = float(points[i]) * 2.0**-64 * total
        term, g = 1.0, middle
        if target < below:
            # From the middle downwards: outcome g ends at ``end`` and begins at end - term.
            end = below
            while g > 0:
                term *= float(g) * g / ((count - g + 1.0) * rate)
                g -= 1
                if target >= end - term:
                    break
                end -= term
            begin = end - term
        else:
            begin = below
            end = begin + term
            while target >= end and g < count:
                term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
                g += 1
                begin = end
                end = begin + term
                if term < _TINY:
                    break
        if target - begin < close * total or end - target < close * total:
            out[i] = -1
            undecided += 1
        else:
            out[i] = g
    return undecided


@compiled
def cumulants(counts: Counts, rates: Floats, u: float, out: Floats) -> None:
    """Write the first four cumulants of the number selected of every swap value, given u: four rows."""
    for i in range(counts.size):
        count, rate = counts[i], rates[i] * u
        first = min(count, int((math.sqrt(rate * rate + 4.0 * count * rate) - rate) / 2.0))
        total = 1.0
        moment = square = cube = fourth = 0.0
        for direction in (1, -1):
            term, g = 1.0, first
            while term > _TINY:
                if direction == 1:
                    if g == count:
                        break
                    term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
                else:
                    if g == 0:
                        break
                    term *= float(g) * g / ((count - g + 1.0) * rate)
                g += direction
                away = float(g - first)
                total += term
                moment += term * away
                square += term * away * away
                cube += term * away * away * away
                fourth += term * away * away * away * away
        m, m2, m3, m4 = moment / total, square / total, cube / total, fourth / total
        variance = m2 - m * m
        out[0, i] = m + first
        out[1, i] = variance
        out[2, i] = m3 - 3.0 * m * m2 + 2.0 * m * m * m
        out[3, i] = m4 - 4.0 * m * m3 + 6.0 * m * m * m2 - 3.0 * m * m * m * m - 3.0 * variance * variance
