"""Mean and variance of tables under the conditioned swap, from the margins and the law alone (swapping theory R18).

Given how many records of each swap value are selected, these are drawn evenly and their values are dealt out
evenly, so every moment is a mean over the selected counts. Given the number u of ``mixing`` these are independent,
and dividing by k, or by k(k-1), is dividing by u, or by its square, because (k-1)! is the integral of u^(k-1) e^-u.
That leaves sums over a few dozen values of u. The proofs are in docs/theory/moments.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Array

Counts = npt.NDArray[np.int64]

# Up to here the integrals are of a polynomial times e^-u: a Gauss-Laguerre rule has no error but rounding.
_SMALL: Final = 60
# Nodes of the rules tried for larger strata, until one keeps the margins; then all points of the grid.
_NODES: Final = (12, 24, 48)
_KEEPS_MARGINS: Final = 1e-11
_ACCURATE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConditionedMoments:
    """The conditioned swap of one stratum with ``counts`` of its swap values.

    ``shares`` weigh the values of u, ``once`` and ``twice`` are the same divided by k and by k(k-1); ``cumulants``
    has the first four cumulants of the selected counts given u: by order, u and swap value. ``moves`` is Phi, the
    chance that a record of one value gets another, and ``stay`` the chance that it is not selected.

    >>> law = [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)]
    >>> (1335 * ConditionedMoments.of((2, 2, 1), Fraction(1, 2), law).moves[2]).round(9).tolist()  # T37
    [134.0, 134.0, 1067.0]
    """

    counts: Array
    shares: Array
    once: Array
    twice: Array
    cumulants: Array
    moves: Array
    stay: Array

    @classmethod
    def of(cls, counts: Sequence[int], rate: Fraction, masses: Sequence[Fraction]) -> ConditionedMoments:
        """Return the moments for the counts of the swap values, each above 0, and their redraw probabilities."""
        sizes = np.asarray(counts, dtype=np.int64)
        if rate in (0, 1) or sizes.size < 2:
            return cls._certain(sizes, selected=sizes if rate == 1 else 0 * sizes)
        odds = [rate / (1 - rate) * mass for mass in masses]
        if int(sizes.sum()) <= _SMALL:
            return cls._at(sizes, odds, *_laguerre(sizes, odds))
        grid = _grid(sizes, odds)
        for number in _NODES:
            found = cls._at(sizes, odds, *_gauss(*grid, number))
            if found.away_from_margins < _KEEPS_MARGINS:
                return found
        found = cls._at(sizes, odds, *grid)
        if not found.away_from_margins < _ACCURATE:
            raise bad_plan(
                f"the moments of a stratum of {int(sizes.sum()):,} records are off by {found.away_from_margins:.1g}",
                where="rate",
                remedy="use a rate farther from 0 and 1, or leave the moments out",
            )
        return found

    @classmethod
    def _certain(cls, sizes: Counts, *, selected: Counts) -> ConditionedMoments:
        """Return the moments where it is certain who is selected: everybody or nobody."""
        k = max(int(selected.sum()), 1)
        cumulants = np.zeros((4, 1, sizes.size))
        cumulants[0, 0] = selected
        return cls._gathered(sizes, np.ones(1), np.full(1, 1 / k), np.full(1, 1 / max(k * (k - 1), 1)), cumulants)

    @classmethod
    def _at(cls, sizes: Counts, odds: Sequence[Fraction], nodes: Array, shares: Array) -> ConditionedMoments:
        from stirred.mechanisms.records.kernels.redrawn import cumulants

        rates = np.array([float(x) for x in odds])
        found = np.empty((4, nodes.size, sizes.size))
        for place, u in enumerate(nodes.tolist()):
            cumulants(sizes, rates, u, found[:, place])
        return cls._gathered(sizes, shares, shares / nodes, shares / nodes**2, found)

    @classmethod
    def _gathered(cls, sizes: Counts, shares: Array, once: Array, twice: Array, cumulants: Array) -> ConditionedMoments:
        counts, mean = sizes.astype(np.float64), cumulants[0]
        stay = 1 - shares @ mean / counts
        exchanged = mean.T @ (once[:, None] * mean) + np.diag(once @ cumulants[1])
        return cls(
            counts=counts,
            shares=shares,
            once=once,
            twice=twice,
            cumulants=cumulants,
            moves=np.diag(stay) + exchanged / counts[:, None],
            stay=stay,
        )

    @property
    def away_from_margins(self) -> float:
        """Return how far the sums are from what holds exactly: every record gets a value, every value its count."""
        some = np.abs(self.moves.sum(axis=1) - 1).max()
        return float(max(some, np.abs(self.counts @ self.moves / self.counts - 1).max()))

    def second(self, rows: Array, squares: Array, weights: Array, *, pairs: Array | None = None) -> Array:
        """Return E[(sum over s of weights Z_s)^2] for rows of a table (one each) and weights (a column each).

        ``rows`` has the sum of what the records of each swap value count, ``squares`` the sum of the squares; for
        counts of records they are the same. ``pairs`` is the sum over pairs of different records of equal value,
        if it is known better than from these two.
        """
        c, w, w2, per_pair = self.counts, weights, weights**2, self._per_pair
        pairs_within = rows**2 - squares if pairs is None else pairs
        y, y2 = rows / c, (rows / c) ** 2
        on_squares = squares @ self.moves
        total = np.zeros((rows.shape[0], w.shape[1]))
        for share, once, twice, (mean, var, k3, k4) in zip(
            self.shares, self.once, self.twice, self.cumulants.transpose(1, 0, 2), strict=True
        ):
            # Of the counts g given u: covariance of g^2 with g, and with (g - mean)^2.
            cov, bent = k3 + 2 * mean * var, k4 + 2 * mean * k3 + 2 * var**2
            f, stayed, mean2 = mean / c, 1 - mean / c, mean**2 + var
            none, one, both = self._two_alike(mean, var)
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

    def alike(self, weights: Array) -> Array:
        """Return E[w(y_i) w(y_j)] for two records of the same swap value: for each value, its own column of weights."""
        c, w, w2, per_pair = self.counts, np.diagonal(weights), weights**2, self._per_pair
        total = np.zeros_like(c)
        for share, once, twice, (mean, var, k3, k4) in zip(
            self.shares, self.once, self.twice, self.cumulants.transpose(1, 0, 2), strict=True
        ):
            cov, bent = k3 + 2 * mean * var, k4 + 2 * mean * k3 + 2 * var**2
            none, one, both = self._two_alike(mean, var)
            to, squared = mean @ weights, var @ w2 - mean @ w2
            total += share * none * w**2 + 2 * once * (to * one * w + (c * var - cov) * per_pair * w**2)
            inside = 2 * to * (cov - var) * w + (bent - k3 - cov + var) * w**2
            total += twice * ((to**2 + squared) * both + inside * per_pair)
        return total

    @property
    def _per_pair(self) -> Array:
        c = self.counts
        return np.divide(1.0, c * (c - 1), out=np.zeros_like(c), where=c > 1)

    def _two_alike(self, mean: Array, var: Array) -> tuple[Array, Array, Array]:
        """Return for two records of one value the chance that none is selected, the first alone, both."""
        c, per_pair, square = self.counts, self._per_pair, mean**2 + var
        none = ((c - mean) * (c - mean - 1) + var) * per_pair
        return none, (c * mean - square) * per_pair, (square - mean) * per_pair


def _laguerre(sizes: Counts, odds: Sequence[Fraction]) -> tuple[Array, Array]:
    """Return values of u and their shares in the law of u: exact for small strata, of any moment used here."""
    from stirred.mechanisms.records.kernels.redrawn import sums

    nodes, weights = np.polynomial.laguerre.laggauss(int(sizes.sum()) // 2 + 1)
    rates, room = np.array([float(x) for x in odds]), np.empty(4)
    logs = np.empty(nodes.size)
    for place, u in enumerate(nodes.tolist()):
        sums(sizes, rates, np.ones(sizes.size), np.zeros_like(sizes), u, room)
        logs[place] = room[0]
    logs += np.log(weights)
    shares = np.exp(logs - logs.max())
    return nodes, shares / shares.sum()


def _grid(sizes: Counts, odds: Sequence[Fraction]) -> tuple[Array, Array]:
    from stirred.mechanisms.records.kernels.redrawn import STEP, Mixing

    mixing = Mixing(sizes, np.array([float(x) for x in odds]), np.ones(sizes.size), odds.__getitem__)
    points, shares = mixing.grid()
    return np.array([float(point * STEP) for point in points]), shares


def _gauss(nodes: Array, shares: Array, number: int) -> tuple[Array, Array]:
    """Return the Gauss rule of a law given by many points: the same moments with few (Lanczos)."""
    middle = shares @ nodes
    spread = np.sqrt(shares @ (nodes - middle) ** 2)
    places = (nodes - middle) / spread
    basis, diagonal, beside = [np.sqrt(shares)], np.empty(number), np.empty(number - 1)
    for step in range(number):
        after = places * basis[step]
        diagonal[step] = basis[step] @ after
        for vector in (*basis, *basis):  # twice: once leaves rounding that grows
            after = after - (vector @ after) * vector
        if step < number - 1:
            beside[step] = np.sqrt(after @ after)
            basis.append(after / beside[step])
    found, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    weights = vectors[0] ** 2
    return middle + spread * found, weights / weights.sum()
