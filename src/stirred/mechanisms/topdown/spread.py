"""What is known of vectors: covariances where some directions are known exactly and others are not known at all.

A vector is known up to normal noise of a finite covariance, except in the directions of ``unknown``, where its variance
is infinite (a limit, never a large number), and along ``exact``, where it is zero. Both are kept as subspaces of their
own. They come from the queries asked and from what is fixed, never from the size of a variance: very small or large
noise is not taken for a certainty or for ignorance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.tree import Numbers, Places

# Subspaces are spanned by sums of cells. Their angles, if not zero, are far larger than this.
_SAME: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """How well several kinds of vectors are known: matrices (kinds, cells, cells).

    ``unknown`` and ``exact`` are orthogonal projections; the covariance is zero on both.
    """

    covariance: Numbers
    unknown: Numbers
    exact: Numbers

    @classmethod
    def none(cls, kinds: int, cells: int) -> Spread:
        """Return what is known of vectors of which nothing is known."""
        covariance, exact = np.zeros((2, kinds, cells, cells))
        return cls(covariance=covariance, unknown=exact + np.eye(cells), exact=exact)

    def take(self, places: Places) -> Spread:
        """Return the kinds at these places."""
        return Spread(covariance=self.covariance[places], unknown=self.unknown[places], exact=self.exact[places])

    @property
    def ignorant(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return of which kinds anything is unknown."""
        return np.any(self.unknown != 0, axis=(1, 2))


def null_space(matrices: Numbers) -> Numbers:
    """Return the projections onto the null spaces of sums of projections (kinds, cells, cells).

    >>> null_space(np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])).round(3).tolist()
    [[[0.0, 0.0], [0.0, 1.0]], [[0.5, -0.5], [-0.5, 0.5]]]
    """
    diagonal = np.einsum("nii->ni", matrices)
    found = np.zeros(matrices.shape)
    np.einsum("nii->ni", found)[:] = diagonal < _SAME
    mixed = np.abs(matrices).sum(axis=(1, 2)) - np.abs(diagonal).sum(axis=1) > _SAME
    if np.any(mixed):
        values, vectors = np.linalg.eigh(matrices[mixed])
        chosen = vectors * (values < _SAME)[:, None, :]
        found[mixed] = chosen @ chosen.transpose(0, 2, 1)
    return found


def _span(one: Numbers, two: Numbers) -> Numbers:
    """Return the projections onto the sums of two subspaces; those of cells, or one within the other, stay exact."""
    if not two.any():
        return one
    if not one.any():
        return two
    return np.eye(one.shape[-1]) - null_space(one + two)


def _meet(one: Numbers, two: Numbers) -> Numbers:
    """Return the projections onto what two subspaces have in common."""
    if not one.any() or not two.any():
        return np.zeros(one.shape)
    return null_space(2 * np.eye(one.shape[-1]) - one - two)


def cleared(matrices: Numbers, subspace: Numbers) -> Numbers:
    """Return matrices that are zero on a subspace without the rounding errors there."""
    keep = np.eye(matrices.shape[-1]) - subspace
    found: Numbers = keep @ matrices @ keep
    return found


def inverse_off(matrices: Numbers, subspace: Numbers) -> Numbers:
    """Return the inverses of matrices (kinds, cells, cells) off a subspace on which they are zero, and zero there."""
    left = matrices.shape[-1] - np.einsum("nii->n", subspace)
    size = np.einsum("nii->n", matrices) / np.maximum(left, 1)
    size = np.where((left > 0.5) & (size > 0), size, 1.0)[:, None, None]
    # The subspace is filled up with the mean size of the rest: the condition stays that of the rest.
    inverse = np.asarray(np.linalg.inv(cleared(matrices, subspace) + size * subspace), dtype=np.float64)
    return cleared(inverse, subspace)


def added(spread: Spread, members: Sequence[tuple[Places, Numbers]], *, empty_is_zero: bool = False) -> Spread:
    """Return what is known of sums: for each the kinds of its members and how many there are of each.

    A sum of none is exactly zero, or else of members that are not in the file: nothing is known of it.
    """
    cells, kinds = spread.covariance.shape[-1], len(spread.covariance)
    counts = np.zeros((len(members), kinds))
    for row, (own, many) in enumerate(members):
        counts[row, own] = many
    covariance = np.tensordot(counts, spread.covariance, axes=1)
    some = (counts > 0).astype(np.float64)
    one = np.eye(cells)
    unknown = exact = np.zeros(covariance.shape)
    # What is unknown in one member is unknown in the sum, and only what is exact in all is exact.
    if spread.unknown.any():
        unknown = one - null_space(np.tensordot(some, spread.unknown, axes=1))
    if spread.exact.any():
        exact = null_space(np.tensordot(some, one - spread.exact, axes=1))
    if np.any(empty := ~counts.any(axis=1)):
        unknown, exact = unknown.copy(), exact.copy()
        unknown[empty], exact[empty] = (0, one) if empty_is_zero else (one, 0)
    return Spread(covariance=cleared(covariance, unknown + exact), unknown=unknown, exact=exact)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Merged:
    """Two independent sources on the same vectors as one: ``m1 + gain @ (m2 - m1)`` is the best estimate.

    With ``z = weight @ (m2 - m1)``, ``z' @ total @ z`` is chi-squared with ``freedom`` degrees (what is unknown may be
    any number in ``m2 - m1``, and is gone from z). What ``doubled`` projects ``m2 - m1`` onto must be zero, because
    both sources know it exactly.
    """

    spread: Spread
    gain: Numbers
    weight: Numbers
    total: Numbers
    freedom: Numbers
    doubled: Numbers


def merged(one: Spread, two: Spread) -> Merged:
    """Return two independent sources on the same vectors as one."""
    cells = one.covariance.shape[-1]
    doubled = _meet(one.exact, two.exact)
    total = one.covariance + two.covariance
    gain, weight = (np.zeros(one.covariance.shape) for _ in range(2))
    unknown = np.zeros(one.unknown.shape)
    freedom = np.zeros(len(one.covariance))
    diffuse = one.ignorant | two.ignorant
    if np.any(sure := ~diffuse):
        weight[sure] = inverse_off(total[sure], doubled[sure])
        gain[sure] = one.covariance[sure] @ weight[sure]
        freedom[sure] = cells - np.einsum("nii->n", doubled[sure])
    for place in np.flatnonzero(diffuse).tolist():
        gain[place], weight[place], unknown[place], freedom[place] = _merged_diffuse(one, two, doubled, place)
    rest = np.eye(cells) - gain
    covariance = rest @ one.covariance @ rest.transpose(0, 2, 1) + gain @ two.covariance @ gain.transpose(0, 2, 1)
    exact = _span(one.exact, two.exact)
    spread = Spread(covariance=cleared(covariance, exact), unknown=unknown, exact=exact)
    return Merged(spread=spread, gain=gain, weight=weight, total=total, freedom=np.round(freedom), doubled=doubled)


def _basis(projection: Numbers) -> tuple[Numbers, Numbers]:
    """Return orthonormal bases of a subspace and of its complement."""
    values, vectors = np.linalg.eigh(projection)
    return vectors[:, values > 0.5], vectors[:, values <= 0.5]


def _merged_diffuse(one: Spread, two: Spread, doubled: Numbers, place: int) -> tuple[Numbers, Numbers, Numbers, float]:
    """Merge where something is unknown: the limit of variances that grow without bound.

    The second source observes ``seen' x``. Combinations of these that see unknown directions of the first settle
    them one for one (exact diffuse filtering, Koopman 1997); all others are weighed as usual.
    """
    first, second = one.covariance[place], two.covariance[place]
    cells = len(first)
    blank, _ = _basis(one.unknown[place])
    _, seen = _basis(two.unknown[place])
    left, sizes, right = np.linalg.svd(seen.T @ blank)
    rank = int(np.sum(sizes > np.sqrt(_SAME)))
    settling, weighing = seen @ left[:, :rank], seen @ left[:, rank:]
    settled, still = blank @ (right[:rank].T / sizes[:rank]), blank @ right[rank:].T
    off = np.eye(cells) - settled @ settling.T
    known = (off @ first - settled @ settling.T @ second) @ weighing
    total = weighing.T @ (first + second) @ weighing
    common = weighing.T @ doubled[place] @ weighing
    inverse = inverse_off(total[None], common[None])[0] if total.size else total
    gain = settled @ settling.T + known @ inverse @ weighing.T
    freedom = weighing.shape[1] - float(np.trace(common))
    return gain, weighing @ inverse @ weighing.T, still @ still.T, freedom
