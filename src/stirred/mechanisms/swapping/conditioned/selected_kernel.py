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
# How often the centre of u moves towards its mode, and how many standard deviations from it are near enough.
_MOST_MOVES = 3
_NEAR = 0.1


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
def find_centre(counts: Counts, rates: Floats, times: Floats, steps: float, start: Counts, out: Floats) -> float:
    """Return about the mode of u, a multiple of 1/steps; write about the most likely counts there, and the sums."""
    u = _balance(counts, rates, times)
    for left in range(_MOST_MOVES, -1, -1):
        u = max(math.floor(u * steps), 1.0) / steps
        for i in range(counts.size):
            start[i] = _middle(counts[i], rates[i] * u)
        sums(counts, rates, times, start, u, out)
        slope, bend = out[1] / u - 1.0, (out[1] - out[2]) / (u * u)
        if left == 0 or u * steps == 1.0 or bend <= 0.0 or abs(slope) <= _NEAR * math.sqrt(bend):
            break
        u = max(u + slope / bend, u / 4.0)
    return u


@compiled
def _balance(counts: Counts, rates: Floats, times: Floats) -> float:
    """Return about the u at which as many records are selected as u says; 0 if the density of u falls from 0 on."""
    low, high, rise = 0.0, 0.0, 0.0
    for i in range(counts.size):
        high += times[i] * counts[i]
        rise += times[i] * counts[i] * rates[i]
    if rise <= 1.0:
        return 0.0
    for _ in range(50):
        u = (low + high) / 2.0
        selected = 0.0
        for i in range(counts.size):
            # About the mean: where the ratio of neighbouring weights is 1, to the next order.
            rate = rates[i] * u
            half = rate + 0.5
            selected += times[i] * (math.sqrt(half * half + (4.0 * counts[i] + 1.0) * rate) - half) / 2.0
        if selected > u:
            low = u
        else:
            high = u
    return high


@compiled
def _middle(count: int, rate: float) -> int:
    """Return about the most likely count: where (c-g) x u = g^2."""
    return min(count, int((math.sqrt(rate * rate + 4.0 * count * rate) - rate) / 2.0))


@compiled
def find_alike(counts: Counts, rates: Floats, first: Counts, times: Floats) -> int:
    """Write a place of each pair of count and rate, and how often it occurs, by size; return how many there are.

    Pairs with equal counts are found alike only where they come in succession.
    """
    found = 0
    for place in np.argsort(counts, kind="mergesort"):
        known = found > 0 and counts[first[found - 1]] == counts[place] and rates[first[found - 1]] == rates[place]
        if not known:
            first[found], times[found] = place, 0.0
            found += 1
        times[found - 1] += 1.0
    return found


@compiled
def draw_counts(counts: Counts, rates: Floats, u: float, points: Points, close: float, out: Counts) -> int:
    """Draw the number selected of every swap value by inversion; write -1, and count, where too ``close`` to a step."""
    undecided = 0
    for i in range(counts.size):
        count, rate = counts[i], rates[i] * u
        middle = _middle(count, rate)
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
        first = _middle(count, rate)
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
