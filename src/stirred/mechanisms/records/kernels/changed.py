"""How many records the conditioned swap changes, for all strata at once. Importing this module loads numba.

Given the number u of R6 the selected counts are independent; of c records with a value, g are selected with weight
C(c,g) (x u)^g / g!, and a selected record keeps its value with probability g/k. So E[g] - E[g^2/k] records change,
and E[g^2/k] is the mean of E[g^2 | u]/u over the law of u, proportional to e^-u times the sums of the weights
(``redrawn_counts`` of ``laws.conditioned``, the oracle of this module). The sums are Laguerre polynomials with negative
roots: the log of the density of u is concave, so that its peak and its ends are found safely. Double precision:
for plans and reports, no random outcome depends on it.
"""

from __future__ import annotations

import math

import numpy as np

from stirred.mechanisms.records.kernels.partition import Counts
from stirred.mechanisms.records.kernels.redrawn import Floats
from stirred.randomness.compiled import compiled

_TINY = 1e-18
# From so many expected records on, the peak of their law stands for its mean.
_MANY = 2_000.0
# The law of u is followed until it has fallen by this on the log scale.
_FALL = 30.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def expected_changes(stratum: Counts, counts: Counts, rates: Floats) -> Floats:
    """Return the share of each value's records that change it; ``stratum`` says where a value stands, in order.

    ``rates`` are the odds of a redraw times the mass of each value.

    >>> expected_changes(np.array([0, 0]), np.array([1, 1]), np.array([0.5, 0.5])).round(9).tolist()
    [0.1, 0.1]
    """
    # Values of a stratum that occur equally often, with equal mass, change alike.
    order = np.lexsort((rates, counts, stratum))
    parts = (stratum[order], counts[order], rates[order])
    fresh = np.ones(order.size, dtype=np.bool_)
    fresh[1:] = np.logical_or.reduce([part[1:] != part[:-1] for part in parts])
    first = np.flatnonzero(fresh)
    times = np.diff(np.append(first, order.size)).astype(np.float64)
    starts = np.append(np.flatnonzero(np.diff(parts[0][first], prepend=-1)), first.size)
    alike = np.zeros(first.size)
    _write_changes(starts, parts[1][first], parts[2][first], times, _NODES, _WEIGHTS, alike)
    out = np.empty(order.size)
    out[order] = np.repeat(alike, times.astype(np.int64))
    return out


@compiled
def _moments(count: int, rate: float) -> tuple[float, float, float]:
    """Return the log of the sum of the weights, mean and variance of the number selected, for x u = ``rate``."""
    if rate <= 0.0:
        return 0.0, 0.0, 0.0
    middle = (math.sqrt(rate * rate + 4.0 * rate * (count + 1.0)) - rate) / 2.0 - 0.5
    if middle > 4.0 * _MANY:
        # Where the weights peak; the log is of use only where few are selected.
        return 0.0, middle, 1.0 / (2.0 / (middle + 0.5) + 1.0 / (count - middle + 0.5))
    first = min(count, max(0, int(middle)))
    total, moment, square = 1.0, 0.0, 0.0
    term, g = 1.0, first
    while g < count and term > _TINY:
        term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
        g += 1
        total += term
        moment += term * (g - first)
        square += term * (g - first) * (g - first)
    term, g = 1.0, first
    while g > 0 and term > _TINY:
        term *= float(g) * g / ((count - g + 1.0) * rate)
        g -= 1
        total += term
        moment += term * (g - first)
        square += term * (g - first) * (g - first)
    log = math.log(total)
    if first:
        log += math.lgamma(count + 1.0) - math.lgamma(count - first + 1.0) - 2.0 * math.lgamma(first + 1.0)
        log += first * math.log(rate)
    mean = moment / total
    return log, mean + first, square / total - mean * mean


@compiled
def _all(counts: Counts, rates: Floats, times: Floats, u: float, own: Floats) -> tuple[float, float, float]:
    """Return the log density of u in a stratum, and mean and variance of the number selected of all its values.

    ``own`` gets, for each value, how many of its selected records are expected to get another value.
    """
    log, mean, variance = -u, 0.0, 0.0
    for i in range(counts.size):
        a, m, v = _moments(counts[i], rates[i] * u)
        log += times[i] * a
        mean += times[i] * m
        variance += times[i] * v
        own[i] = m - (v + m * m) / u if u > 0.0 else 0.0
    return log, mean, variance


@compiled
def _peak(counts: Counts, rates: Floats, times: Floats, own: Floats) -> float:
    """Return the u at which as many records are selected as u says, or 0: Newton's method, from above."""
    slope = records = 0.0
    for i in range(counts.size):
        slope += times[i] * counts[i] * rates[i]
        records += times[i] * counts[i]
    if slope <= 1.0:
        return 0.0
    # The mean is concave in u and never above the number of records: steps from above stay above.
    u = records
    for _ in range(100):
        _, mean, variance = _all(counts, rates, times, u, own)
        step = (u - mean) / (1.0 - variance / u)
        u -= step
        if step <= 1e-9 * u:
            break
    return u


@compiled
def _end(counts: Counts, rates: Floats, times: Floats, own: Floats, peak: float, step: float) -> float:
    """Return where, going by steps that grow, the density has fallen far enough; 0 at the least."""
    top, _, _ = _all(counts, rates, times, peak, own)
    while True:
        u = max(0.0, peak + step)
        log, _, _ = _all(counts, rates, times, u, own)
        if u == 0.0 or log < top - _FALL:
            break
        step *= 1.3
    return u


@compiled
def _write_changes(
    starts: Counts, counts: Counts, rates: Floats, times: Floats, nodes: Floats, weights: Floats, out: Floats
) -> None:
    for stratum in range(starts.size - 1):
        here = slice(starts[stratum], starts[stratum + 1])
        c, x, t, changed = counts[here], rates[here], times[here], out[here]
        own = np.zeros(c.size)
        peak = _peak(c, x, t, own)
        top, mean, variance = _all(c, x, t, peak, own)
        if mean - variance > _MANY:
            changed[:] = own / c
            continue
        step = max(1.0, 5.0 * peak / math.sqrt(mean - variance) if mean > variance else 1.0)
        low, high = _end(c, x, t, own, peak, -step), _end(c, x, t, own, peak, step)
        total = 0.0
        for j in range(nodes.size):
            log, _, _ = _all(c, x, t, low + (high - low) * (nodes[j] + 1.0) / 2.0, own)
            share = weights[j] * math.exp(log - top)
            total += share
            changed += share * own / c
        changed /= total
