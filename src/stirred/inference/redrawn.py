"""Undo the conditioned swap in one stratum: estimates, and their variances, from the released table (R18).

A released row has mean x Phi, and Phi follows from the margins and the law, which are public: Z Phi^-1 is unbiased.
Its variance is quadratic in x. In small strata of few values it is estimated without bias, from how pairs of
records move; otherwise the estimates are put into it, less what their own variance adds there. What is left of that
is of the order of one over the number of records left unselected, and makes the variance larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.moments.class_laws import Array
from stirred.mechanisms.swapping.moments.conditioned import ConditionedMoments

Groups = npt.NDArray[np.int64]

# Strata of at most so many swap values have their pairs of records undone too, unless so many records are left
# unselected (records times the square of the share) that it makes less than about a percent of the variance.
_MOST_PAIRED: Final = 16
_MANY: Final = 50
# Below this, undoing pairs, or what the variance of the estimate adds to itself, would only multiply noise.
_LEAST: Final = 0.05**2
# Where less than this share stays, rounding alone would spoil the inverse.
_LEAST_STAY: Final = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Redrawn:
    """One stratum under the conditioned swap, seen from what it released.

    >>> from fractions import Fraction
    >>> stratum = Redrawn(moments=ConditionedMoments.of((2, 2), Fraction(1, 2), [Fraction(1, 2)] * 2))
    >>> truth = np.array([[2.0, 1.0], [0.0, 1.0]])
    >>> bool(np.allclose(stratum.estimates(truth @ stratum.moments.moves), truth))
    True
    """

    moments: ConditionedMoments

    @property
    def usable(self) -> bool:
        """Say whether anything of the stratum can be estimated back at all."""
        return float(self.moments.stay.min()) > _LEAST_STAY

    @property
    def _shares(self) -> Array:
        return self.moments.counts / self.moments.counts.sum()

    @cached_property
    def _centred(self) -> Array:
        return np.eye(self.moments.counts.size) - self._shares

    @cached_property
    def weights(self) -> Array:
        """Return the weights of a released row in the estimate of each cell, beyond what independence gives."""
        return np.asarray(np.linalg.solve(self.moments.moves, self._centred), dtype=np.float64)

    def estimates(self, released: Array) -> Array:
        """Return the unbiased estimate of each row, Z Phi^-1."""
        return released.sum(axis=1, keepdims=True) * self._shares + released @ self.weights

    def variances(self, released: Array, squares: Array, groups: Groups) -> Array:
        """Return the estimated variances of the estimates of each row, summed over the values of each group.

        Without bias where pairs can be undone; they may then be negative, and only sums of many mean something.
        """
        estimate, estimated_squares = self.estimates(released), self.estimates(squares)
        members = (groups[:, None] == np.arange(groups.max() + 1)).astype(np.float64)
        if self._pairs is not None:
            products = self._products(released, squares)
            within = np.einsum("hab,ag,bg->hg", products, members, members)
            return np.asarray((estimate @ members) ** 2 - within - estimated_squares @ members)
        own = self._variances(estimate, estimated_squares, np.eye(groups.size))
        alone = np.where(self._own > _LEAST, own / np.maximum(self._own, _LEAST), own)
        if members.shape[1] == groups.size:
            return alone
        extra = np.where(self.moments.counts > 1, self._added(members, groups) * alone, 0.0)
        return self._variances(estimate, estimated_squares, members) - extra @ members

    def _variances(self, estimate: Array, squares: Array, members: Array) -> Array:
        """Return the variances with estimates put in; two records of one value are none where it has one record."""
        pairs = np.where(self.moments.counts > 1, estimate**2 - squares, 0.0)
        centred, weights = self._centred @ members, self.weights @ members
        surplus = (estimate**2 - squares - pairs) @ centred**2
        away = (estimate @ centred) ** 2 - surplus
        return np.asarray(self.moments.second(estimate, squares, weights, pairs=pairs) - away)

    def at(self, rows: Array, squares: Array, members: Array) -> Array:
        """Return the variances of the estimates if these were the true rows."""
        away = rows @ (self._centred @ members)
        return np.maximum(self.moments.second(rows, squares, self.weights @ members) - away**2, 0.0)

    @cached_property
    def _own(self) -> Array:
        """Return by which factor a variance with the estimate put in is too small, on average."""
        added = self._added(np.eye(self.moments.counts.size), np.arange(self.moments.counts.size))
        return np.where(self.moments.counts > 1, 1 + added, 1.0)

    def _added(self, members: Array, groups: Groups) -> Array:
        """Return what each unit of variance of a value's estimate adds to the variance of its group."""
        weights, centred = self.weights @ members, self._centred @ members
        every = np.arange(groups.size)
        return self.moments.alike(weights[:, groups]) - centred[every, groups] ** 2

    @cached_property
    def _pairs(self) -> tuple[Groups, Groups, Array] | None:
        """Return the kinds of pairs of records, and the chances that a pair of one kind becomes one of another."""
        counts = self.moments.counts
        size = counts.size
        left = float(counts @ self.moments.stay) / float(counts.sum())
        if size > _MOST_PAIRED or counts.sum() * left**2 > _MANY:
            return None
        first, second = np.triu_indices(size)
        there = (first != second) | (counts[first] > 1)
        first, second = first[there], second[there]
        both = np.zeros((first.size, size))
        both[np.arange(first.size), first] = both[np.arange(first.size), second] = 1.0
        every = np.eye(size)
        alike = self.moments.second(every, np.zeros_like(every), np.hstack([every, both.T]))
        found = self.moments.second(both, np.zeros_like(both), np.hstack([every, both.T]))
        apart = (first != second)[:, None]
        found = np.where(apart, (found - alike[first] - alike[second]) / 2, found)
        singles, joint = found[:, :size], found[:, size:]
        chances = np.where(apart.T, joint - singles[:, first] - singles[:, second], joint)
        if np.linalg.svd(chances, compute_uv=False)[-1] < _LEAST:
            return None
        return first, second, chances

    def _products(self, released: Array, squares: Array) -> Array:
        """Return the unbiased estimate of the sums over pairs of different records, by their two values."""
        assert self._pairs is not None
        first, second, chances = self._pairs
        pairs = released[:, first] * released[:, second] - np.where(first == second, squares[:, first], 0.0)
        # A kind of two values is met in two orders; counted in one here and in the result.
        pairs = np.where(first == second, pairs / 2, pairs)
        found = np.linalg.solve(chances.T, pairs.T).T
        size = self.moments.counts.size
        products = np.zeros((released.shape[0], size, size))
        products[:, first, second] += found
        products[:, second, first] += found
        return products
