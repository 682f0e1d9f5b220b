"""Flow tables of small strata in compiled code. Importing this module loads numba.

A flow table says how many records of each swap value get each value. Its weight is a product over cells, so that it
is drawn row by row: ``Z`` of a row is the sum of the weights of all ways to fill this row and those after it, given
what is left of each column. The largest value is last, as a row and as a column; its cells follow from the others.

Weights reach far beyond the range of double precision. Here a number is a double m with an exponent e and means
m * 2**(512 e), m from 2**-256 to 2**256: sums and products of such numbers are off by one rounding, never by a lost
term that counts. A draw that double precision cannot tell is left to ``laws.flow``, which has integers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stirred.randomness.compiled import compiled

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LARGE: Final = 2.0**256
_TINY: Final = 2.0**-256
_UP: Final = 2.0**512
_DOWN: Final = 2.0**-512


class Wide(NamedTuple):
    """An array of numbers m * 2**(512 e)."""

    m: Floats
    e: Counts


class Cells(NamedTuple):
    """The weights of one stratum's flow table: its values by count, the largest last.

    ``pair[a, b, f]`` belongs to f records of value a that get value b, ``stay`` to those that keep it, from
    ``begin[a]`` on. ``strides`` number what is left of the columns, all but the last, and ``sums`` adds it up.
    """

    counts: Counts
    strides: Counts
    sums: Counts
    pair: Wide
    stay: Wide
    begin: Counts


@compiled
def _times(m1: float, e1: int, m2: float, e2: int) -> tuple[float, int]:
    m, e = m1 * m2, e1 + e2
    if m >= _LARGE:
        return m * _DOWN, e + 1
    if 0.0 < m < _TINY:
        return m * _UP, e - 1
    return m, e


@compiled
def _plus(m1: float, e1: int, m2: float, e2: int) -> tuple[float, int]:
    if m2 == 0.0 or (m1 > 0.0 and e1 > e2 + 1):
        return m1, e1
    if m1 == 0.0 or e2 > e1 + 1:
        return m2, e2
    if e1 == e2:
        m, e = m1 + m2, e1
    elif e1 > e2:
        m, e = m1 + m2 * _DOWN, e1
    else:
        m, e = m1 * _DOWN + m2, e2
    if m >= _LARGE:
        return m * _DOWN, e + 1
    return m, e


@compiled
def _cells(counts: Counts, weights: Floats, kept: Wide) -> Cells:
    size, most = counts.size, counts[counts.size - 2]
    m, e = np.zeros((size, size, most + 1)), np.zeros((size, size, most + 1), dtype=np.int64)
    for a in range(size):
        for b in range(size):
            m[a, b, 0] = 1.0
            for f in range(1, most + 1):
                m[a, b, f], e[a, b, f] = _times(m[a, b, f - 1], e[a, b, f - 1], weights[a, b] / f, 0)
    begin, strides = np.zeros(size, dtype=np.int64), np.ones(size, dtype=np.int64)
    for a in range(1, size):
        begin[a] = begin[a - 1] + counts[a - 1] + 1
        strides[a] = strides[a - 1] * (counts[a - 1] + 1)
    stay = Wide(kept.m.copy(), kept.e.copy())
    for a in range(size):
        m1, e1 = 1.0, 0
        for f in range(1, counts[a] + 1):
            m1, e1 = _times(m1, e1, 1.0 / f, 0)
            at = begin[a] + f
            stay.m[at], stay.e[at] = _times(stay.m[at], stay.e[at], m1, e1)
    sums = np.zeros(strides[size - 1], dtype=np.int64)
    for v in range(1, sums.size):
        for k in range(size - 1):
            sums[v] += (v // strides[k]) % (counts[k] + 1)
    return Cells(counts, strides, sums, Wide(m, e), stay, begin)


@compiled
def _last_row(cells: Cells, row: int, z: Wide, moved: Floats) -> None:
    """Fill Z of the last row, which takes all that is left, and how many records it moves."""
    counts, last = cells.counts, cells.counts.size - 1
    for v in range(z.m.size):
        left, rest = counts[last], v
        m, e = 1.0, 0
        for k in range(last):
            f = rest % (counts[k] + 1)
            rest //= counts[k] + 1
            left -= f
            m, e = _times(m, e, cells.pair.m[last, k, f], cells.pair.e[last, k, f])
        z.m[v], z.e[v], moved[v] = 0.0, 0, 0.0
        if left >= 0:
            at = cells.begin[last] + left
            z.m[v], z.e[v] = _times(m, e, cells.stay.m[at], cells.stay.e[at])
            moved[v] = counts[last] - left if row == -1 or row == last else 0


@compiled
def _one_row(cells: Cells, t: int, row: int, z: Wide, moved: Floats, g: Wide, x: Floats) -> None:
    """Fill for every cell k of row t the weight g[k] of filling it and all after it, given what is left.

    ``z`` belongs to the rows after t. ``x`` is the expected number of records moved, in ``row`` or (-1) in all; it is
    not computed for -2. What is left of the last column follows: after + left - sums, which no cell before it changes.
    """
    counts, strides, pair, stay = cells.counts, cells.strides, cells.pair, cells.stay
    last, width, after = counts.size - 1, counts[t] + 1, counts[t + 1 :].sum()
    counted = 1.0 if row == -1 or row == t else 0.0
    for k in range(last, -1, -1):
        for v in range(z.m.size):
            low = max(0, cells.sums[v] - after)
            high = min(width, cells.sums[v] - after + counts[last] + 1)
            if k == last:
                for left in range(low, high):
                    at = v * width + left
                    g.m[k, at], g.e[k, at] = 0.0, 0
                    if cells.sums[v] <= after:
                        g.m[k, at], g.e[k, at] = _times(z.m[v], z.e[v], pair.m[t, k, left], pair.e[t, k, left])
                        x[k, at] = moved[v] + counted * left
                continue
            column = (v // strides[k]) % (counts[k] + 1)
            # Only the whole row is asked for at its first cell.
            for left in range(max(low, width - 1) if k == 0 else low, high):
                m, e, mean = 0.0, 0, 0.0
                for f in range(min(left, column) + 1):
                    at = (v - f * strides[k]) * width + left - f
                    if k == t:
                        m1, e1, more = stay.m[cells.begin[t] + f], stay.e[cells.begin[t] + f], 0.0
                    else:
                        m1, e1, more = pair.m[t, k, f], pair.e[t, k, f], counted * f
                    m1, e1 = _times(m1, e1, g.m[k + 1, at], g.e[k + 1, at])
                    m, e = _plus(m, e, m1, e1)
                    if row > -2 and m1 > 0.0:
                        mean += _relative(m1, e1, e) / m * (x[k + 1, at] + more - mean)
                at = v * width + left
                g.m[k, at], g.e[k, at], x[k, at] = m, e, mean


@compiled
def _relative(m: float, e: int, to: int) -> float:
    """Return a number as a double, in units of 2**(512 to); what is far below one is 0."""
    if e == to:
        return m
    return m * _DOWN if e == to - 1 else 0.0


@compiled
def _next_z(g: Wide, x: Floats, width: int, z: Wide, moved: Floats) -> None:
    for v in range(z.m.size):
        at = v * width + width - 1
        z.m[v], z.e[v], moved[v] = g.m[0, at], g.e[0, at], x[0, at]


@compiled
def expected_moves(counts: Counts, weights: Floats, kept_m: Floats, kept_e: Counts, row: int) -> float:
    """Return how many records of the value ``row``, or (-1) of all, are expected to get another value."""
    cells = _cells(counts, weights, Wide(kept_m, kept_e))
    last = counts.size - 1
    states = cells.strides[last]
    z, moved = Wide(np.zeros(states), np.zeros(states, dtype=np.int64)), np.zeros(states)
    room = states * (counts[last - 1] + 1)
    g, x = Wide(np.zeros((last + 1, room)), np.zeros((last + 1, room), dtype=np.int64)), np.zeros((last + 1, room))
    _last_row(cells, row, z, moved)
    for t in range(last - 1, -1, -1):
        _one_row(cells, t, row, z, moved, g, x)
        _next_z(g, x, counts[t] + 1, z, moved)
    return float(moved[states - 1])


@compiled
def draw_flow(
    counts: Counts,
    weights: Floats,
    kept_m: Floats,
    kept_e: Counts,
    points: npt.NDArray[np.uint64],
    close: float,
    flow: npt.NDArray[np.int64],
) -> bool:
    """Draw a flow table, one point for each cell that is free; False if a point is too close to a step to tell.

    ``counts`` rise; ``weights`` belong to pairs of different values, ``kept`` to records of a value that keep it.
    """
    cells = _cells(counts, weights, Wide(kept_m, kept_e))
    last = counts.size - 1
    states = cells.strides[last]
    room = states * (counts[last - 1] + 1)
    zm, ze = np.zeros((last + 1, states)), np.zeros((last + 1, states), dtype=np.int64)
    g, x = Wide(np.zeros((last + 1, room)), np.zeros((last + 1, room), dtype=np.int64)), np.zeros((last + 1, room))
    moved = np.zeros(states)
    _last_row(cells, -2, Wide(zm[last], ze[last]), moved)
    for t in range(last - 1, 0, -1):
        _one_row(cells, t, -2, Wide(zm[t + 1], ze[t + 1]), moved, g, x)
        _next_z(g, x, counts[t] + 1, Wide(zm[t], ze[t]), moved)
    v, at_point = states - 1, 0
    terms = np.zeros(counts[last - 1] + 1)
    for t in range(last):
        _one_row(cells, t, -2, Wide(zm[t + 1], ze[t + 1]), moved, g, x)
        left, width = counts[t], counts[t] + 1
        for k in range(last):
            most = min(left, (v // cells.strides[k]) % (counts[k] + 1))
            total, highest = 0.0, -(1 << 62)
            for turn in range(2):
                for f in range(most + 1):
                    at = (v - f * cells.strides[k]) * width + left - f
                    if k == t:
                        m1, e1 = cells.stay.m[cells.begin[t] + f], cells.stay.e[cells.begin[t] + f]
                    else:
                        m1, e1 = cells.pair.m[t, k, f], cells.pair.e[t, k, f]
                    m1, e1 = _times(m1, e1, g.m[k + 1, at], g.e[k + 1, at])
                    if turn == 0 and m1 > 0.0:
                        highest = max(highest, e1)
                    elif turn == 1:
                        terms[f] = _relative(m1, e1, highest)
                        total += terms[f]
            chosen = _place(terms[: most + 1], total, float(points[at_point]) * 2.0**-64, close)
            if chosen < 0:
                return False
            at_point += 1
            flow[t, k] = chosen
            v -= chosen * cells.strides[k]
            left -= chosen
        flow[t, last] = left
    flow[last, last] = counts[last]
    for k in range(last):
        flow[last, k] = (v // cells.strides[k]) % (counts[k] + 1)
        flow[last, last] -= flow[last, k]
    return True


@compiled
def _place(terms: Floats, total: float, point: float, close: float) -> int:
    """Return the term whose step holds the point, or -1 if it is too close to an end of the step to tell."""
    if terms.size == 1:
        return 0
    target, below = point * total, 0.0
    for f in range(terms.size):
        above = below + terms[f]
        if target < above or f == terms.size - 1:
            return f if target - below >= close * total and above - target >= close * total else -1
        below = above
    return -1
