"""How many records go up at each node of a tree of swap values, in compiled code. Importing this module loads numba.

Messages go up the tree (sums over all that happens below), draws come down. Numbers are those of ``kernels.flow``: a
double m and an exponent e that mean m * 2**(512 e). A compiled function may call those of its own file only, so that
the two operations stand here once more; a test holds them equal.
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
        total += m[i] if e[i] == highest else (m[i] * _DOWN if e[i] == highest - 1 else 0.0)
    target, below = point * total, 0.0
    for i in range(m.size):
        above = below + (m[i] if e[i] == highest else (m[i] * _DOWN if e[i] == highest - 1 else 0.0))
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
