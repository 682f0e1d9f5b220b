"""Flow tables of small strata in compiled code. Importing this module loads numba.

A flow table says how many records of each swap value get each value. Its weight is a product over cells, so that it
is drawn row by row: ``Z`` of a row is the sum of the weights of all ways to fill this row and those after it, given
what is left of each column. The largest value is last, as a row and as a column; its cells follow from the others.

Weights reach far beyond the range of double precision. Here a number is a double m with an exponent e and means
m * 2**(512 e), m from 2**-256 to 2**256: sums and products of such numbers are off by one rounding, never by a lost
term that counts. A draw that double precision cannot tell is left to ``law``, which has integers.

Below that, how many records go up at each node of a tree of swap values (``tree_law``): messages go up the tree (sums
over all that happens below), draws come down.
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
            _powers(weights[a, b], most, m[a, b], e[a, b])
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
    tm, te = np.zeros(counts[last - 1] + 1), np.zeros(counts[last - 1] + 1, dtype=np.int64)
    for t in range(last):
        _one_row(cells, t, -2, Wide(zm[t + 1], ze[t + 1]), moved, g, x)
        left, width = counts[t], counts[t] + 1
        for k in range(last):
            most = min(left, (v // cells.strides[k]) % (counts[k] + 1))
            for f in range(most + 1):
                at = (v - f * cells.strides[k]) * width + left - f
                if k == t:
                    m1, e1 = cells.stay.m[cells.begin[t] + f], cells.stay.e[cells.begin[t] + f]
                else:
                    m1, e1 = cells.pair.m[t, k, f], cells.pair.e[t, k, f]
                tm[f], te[f] = _times(m1, e1, g.m[k + 1, at], g.e[k + 1, at])
            chosen = _place(tm[: most + 1], te[: most + 1], float(points[at_point]) * 2.0**-64, close)
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


# ---- trees ----------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """What goes up the tree.

    ``message`` is where that of each node begins, ``joined`` where that of it with its elder siblings. ``size`` and
    ``together`` are the records below each, ``elder`` the next elder sibling or -1, ``youngest`` the last child;
    ``factorial`` is k! in m and e.
    """

    size: Counts
    together: Counts
    elder: Counts
    youngest: Counts
    message: Counts
    joined: Counts
    m: Floats
    e: Counts
    factorial_m: Floats
    factorial_e: Counts


@compiled
def _convolve(am: Floats, ae: Counts, bm: Floats, be: Counts, m: Floats, e: Counts) -> None:
    for total in range(m.size):
        m1, e1 = 0.0, 0
        for i in range(max(0, total - bm.size + 1), min(total, am.size - 1) + 1):
            m2, e2 = _times(am[i], ae[i], bm[total - i], be[total - i])
            m1, e1 = _plus(m1, e1, m2, e2)
        m[total], e[total] = m1, e1


@compiled
def _place(m: Floats, e: Counts, point: float, close: float) -> int:
    """Return the place whose step holds the point, or -1 if it is too close to an end of the step to tell."""
    if m.size == 1:
        return 0
    highest = -(1 << 62)
    for i in range(m.size):
        if m[i] > 0.0:
            highest = max(highest, e[i])
    total = 0.0
    for i in range(m.size):
        total += _relative(m[i], e[i], highest)
    target, below = point * total, 0.0
    for i in range(m.size):
        above = below + _relative(m[i], e[i], highest)
        if target < above or i == m.size - 1:
            return i if target - below >= close * total and above - target >= close * total else -1
        below = above
    return -1


@compiled
def draw_tree(
    counts: Counts,
    parent: Counts,
    weights: Floats,
    points: npt.NDArray[np.uint64],
    close: float,
    taken: Counts,
    pool: Counts,
) -> bool:
    """Draw how many of the ``pool`` records of each node are ``taken`` up; False if a point cannot be told from a step.

    Leaves come first, with their ``counts``; a parent has a higher number than its children, and the root the highest.
    One point decides the pool of each inner node, and one the share of each of its children but the first.
    """
    return _draw_down(_summed(counts, parent, weights), counts.size, weights, points, close, taken, pool)


@compiled
def log_total(counts: Counts, parent: Counts, weights: Floats) -> float:
    """Return the logarithm of the sum of all weights."""
    sums, root = _summed(counts, parent, weights), parent.size - 1
    last = sums.joined[sums.youngest[root]]
    pm, pe = np.ones(sums.size[root] + 1), np.zeros(sums.size[root] + 1, dtype=np.int64)
    _powers(weights[root], sums.size[root], pm, pe)
    m, e = 0.0, 0
    for n in range(sums.size[root] + 1):
        m1, e1 = _times(sums.m[last + n], sums.e[last + n], pm[n], pe[n])
        for _ in range(2):
            m1, e1 = _times(m1, e1, sums.factorial_m[n], sums.factorial_e[n])
        m, e = _plus(m, e, m1, e1)
    return float(np.log(m) + 512 * np.log(2.0) * e)


@compiled
def _summed(counts: Counts, parent: Counts, weights: Floats) -> Sums:
    """Return all messages."""
    leaves, nodes = counts.size, parent.size
    size = np.zeros(nodes, dtype=np.int64)
    size[:leaves] = counts
    for u in range(nodes - 1):
        size[parent[u]] += size[u]
    # Where the message of each node begins, and where that of it with its elder siblings.
    message, joined = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    elder = np.full(nodes, -1, dtype=np.int64)
    youngest = np.full(nodes, -1, dtype=np.int64)
    together = np.zeros(nodes, dtype=np.int64)
    room = 0
    for u in range(nodes):
        message[u] = room
        room += size[u] + 1
    for u in range(nodes - 1):
        elder[u] = youngest[parent[u]]
        youngest[parent[u]] = u
        together[u] = size[u] + (together[elder[u]] if elder[u] >= 0 else 0)
        joined[u] = message[u] if elder[u] < 0 else room
        room += 0 if elder[u] < 0 else together[u] + 1
    most = size[nodes - 1]
    fm, fe = np.ones(most + 1), np.zeros(most + 1, dtype=np.int64)
    for k in range(1, most + 1):
        fm[k], fe[k] = _times(fm[k - 1], fe[k - 1], float(k), 0)
    m, e = np.zeros(room), np.zeros(room, dtype=np.int64)
    sums = Sums(size, together, elder, youngest, message, joined, m, e, fm, fe)
    for u in range(nodes - 1):
        _send(sums, u, u < leaves, weights[u])
    return sums


@compiled
def _send(sums: Sums, u: int, leaf: bool, weight: float) -> None:
    """Fill the message of a node and join it with those of its elder siblings."""
    size, m, e = sums.size[u], sums.m, sums.e
    pm, pe = np.ones(size + 1), np.zeros(size + 1, dtype=np.int64)
    _powers(weight, size, pm, pe)
    # N records in the pool weigh (all below) N!^2, those taken up 1/b!^2, those left w^k/k!.
    am, ae = np.ones(size + 1), np.zeros(size + 1, dtype=np.int64)
    if not leaf:
        last = sums.joined[sums.youngest[u]]
        for n in range(size + 1):
            am[n], ae[n] = _times(m[last + n], e[last + n], sums.factorial_m[n], sums.factorial_e[n])
            am[n], ae[n] = _times(am[n], ae[n], sums.factorial_m[n], sums.factorial_e[n])
    own = sums.message[u]
    for b in range(size + 1):
        m1, e1 = 0.0, 0
        for n in range(size if leaf else b, size + 1):
            m2, e2 = _times(am[n], ae[n], pm[n - b], pe[n - b])
            m1, e1 = _plus(m1, e1, m2, e2)
        for _ in range(2):
            m1, e1 = _times(m1, e1, 1.0 / sums.factorial_m[b], -sums.factorial_e[b])
        m[own + b], e[own + b] = m1, e1
    elder = sums.elder[u]
    if elder >= 0:
        ends = own + size + 1, sums.joined[elder] + sums.together[elder] + 1, sums.joined[u] + sums.together[u] + 1
        _convolve(
            m[own : ends[0]],
            e[own : ends[0]],
            m[sums.joined[elder] : ends[1]],
            e[sums.joined[elder] : ends[1]],
            m[sums.joined[u] : ends[2]],
            e[sums.joined[u] : ends[2]],
        )


@compiled
def _powers(weight: float, most: int, m: Floats, e: Counts) -> None:
    """Fill in weight^k / k!."""
    m[0], e[0] = 1.0, 0
    for k in range(1, most + 1):
        m[k], e[k] = _times(m[k - 1], e[k - 1], weight / k, 0)


@compiled
def _draw_down(
    sums: Sums,
    leaves: int,
    weights: Floats,
    points: npt.NDArray[np.uint64],
    close: float,
    taken: Counts,
    pool: Counts,
) -> bool:
    size, m, e, nodes = sums.size, sums.m, sums.e, sums.size.size
    fm, fe = sums.factorial_m, sums.factorial_e
    tm, te = np.zeros(fm.size), np.zeros(fm.size, dtype=np.int64)
    pm, pe = np.ones(fm.size), np.zeros(fm.size, dtype=np.int64)
    used = 0
    pool[:leaves] = size[:leaves]
    for v in range(nodes - 1, leaves - 1, -1):
        up = 0 if v == nodes - 1 else taken[v]
        _powers(weights[v], size[v], pm, pe)
        last = sums.joined[sums.youngest[v]]
        for n in range(up, size[v] + 1):
            m1, e1 = _times(m[last + n], e[last + n], fm[n], fe[n])
            m1, e1 = _times(m1, e1, fm[n], fe[n])
            tm[n - up], te[n - up] = _times(m1, e1, pm[n - up], pe[n - up])
        chosen = _place(tm[: size[v] - up + 1], te[: size[v] - up + 1], float(points[used]) * 2.0**-64, close)
        if chosen < 0:
            return False
        used += 1
        pool[v] = up + chosen
        left, u = pool[v], sums.youngest[v]
        while sums.elder[u] >= 0:
            elder = sums.elder[u]
            low, high = max(0, left - sums.together[elder]), min(left, size[u])
            for b in range(low, high + 1):
                one, two = sums.message[u] + b, sums.joined[elder] + left - b
                tm[b - low], te[b - low] = _times(m[one], e[one], m[two], e[two])
            chosen = _place(tm[: high - low + 1], te[: high - low + 1], float(points[used]) * 2.0**-64, close)
            if chosen < 0:
                return False
            used += 1
            taken[u] = low + chosen
            left -= taken[u]
            u = elder
        taken[u] = left
    return True
