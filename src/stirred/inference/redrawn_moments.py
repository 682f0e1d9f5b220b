"""Second moments of tables whose swap values are redrawn, from how many records each stratum redraws (R18).

Given the number u the selected counts are independent, so every moment is a sum over the values of u. The proofs are in
docs/theory/moments.md.
"""

from __future__ import annotations

import numpy as np

from stirred.mechanisms.protocol import Array, RedrawnCounts


def second_moments(
    law: RedrawnCounts, rows: Array, squares: Array, weights: Array, *, pairs: Array | None = None
) -> Array:
    """Return E[(sum over s of weights Z_s)^2] for rows of a table (one each) and weights (a column each).

    ``rows`` has the sum of what the records of each swap value count, ``squares`` the sum of the squares; for
    counts of records they are the same. ``pairs`` is the sum over pairs of different records of equal value,
    if it is known better than from these two.
    """
    c, w, w2, per_pair = law.counts, weights, weights**2, _per_pair(law)
    pairs_within = rows**2 - squares if pairs is None else pairs
    y, y2 = rows / c, (rows / c) ** 2
    on_squares = squares @ law.moves
    total = np.zeros((rows.shape[0], w.shape[1]))
    for share, once, twice, (mean, var, k3, k4) in zip(
        law.shares, law.once, law.twice, law.cumulants.transpose(1, 0, 2), strict=True
    ):
        # Of the counts g given u: covariance of g^2 with g, and with (g - mean)^2.
        cov, bent = k3 + 2 * mean * var, k4 + 2 * mean * k3 + 2 * var**2
        f, stayed, mean2 = mean / c, 1 - mean / c, mean**2 + var
        none, one, both = _two_alike(law, mean, var)
        selected = (rows @ f)[:, None]
        kept, crossed = (rows * stayed) @ w, (y * var) @ w
        to, to_var, to_squares = mean @ w, var @ w2, mean @ w2
        # All ordered pairs of selected records: the square of a sum, and what it has too much within values.
        chosen = selected**2 + (y2 @ var + pairs_within @ both - y2 @ mean2)[:, None]
        with_g = pairs_within * ((cov - var) * per_pair) - y2 * cov
        with_bent = pairs_within * ((bent - k3) * per_pair) - y2 * bent
        linear = once * (pairs_within * one - rows**2 * (f * stayed)) + twice * (with_g + y2 * k3)
        total += share * kept**2 + 2 * once * kept * (to * selected + crossed) + 2 * to * (linear @ w)
        total += twice * ((to**2 + to_var - to_squares) * chosen + 4 * to * selected * crossed + 2 * crossed**2)
        on_squares += share * (pairs_within * none - rows**2 * stayed**2)
        within = pairs_within * ((c * var - cov) * per_pair) + y * rows * var * (f - stayed)
        on_squares += 2 * once * (within - selected * y * var)
        on_squares += twice * (with_bent - with_g + 2 * selected * y * (k3 - var) + y2 * (k4 - k3))
    return np.asarray(total + on_squares @ w2)


def moments_of_alike(law: RedrawnCounts, weights: Array) -> Array:
    """Return E[w(y_i) w(y_j)] for two records of the same swap value: for each value, its own column of weights."""
    c, w, w2, per_pair = law.counts, np.diagonal(weights), weights**2, _per_pair(law)
    total = np.zeros_like(c)
    for share, once, twice, (mean, var, k3, k4) in zip(
        law.shares, law.once, law.twice, law.cumulants.transpose(1, 0, 2), strict=True
    ):
        cov, bent = k3 + 2 * mean * var, k4 + 2 * mean * k3 + 2 * var**2
        none, one, both = _two_alike(law, mean, var)
        to, squared = mean @ weights, var @ w2 - mean @ w2
        total += share * none * w**2 + 2 * once * (to * one * w + (c * var - cov) * per_pair * w**2)
        inside = 2 * to * (cov - var) * w + (bent - k3 - cov + var) * w**2
        total += twice * ((to**2 + squared) * both + inside * per_pair)
    return total


def _per_pair(law: RedrawnCounts) -> Array:
    c = law.counts
    return np.divide(1.0, c * (c - 1), out=np.zeros_like(c), where=c > 1)


def _two_alike(law: RedrawnCounts, mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Return for two records of one value the chance that none is selected, the first alone, both."""
    c, per_pair, square = law.counts, _per_pair(law), mean**2 + var
    none = ((c - mean) * (c - mean - 1) + var) * per_pair
    return none, (c * mean - square) * per_pair, (square - mean) * per_pair
