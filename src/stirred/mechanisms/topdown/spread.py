"""What is known of vectors: covariances where some directions are known exactly and others are not known at all.

A vector is known up to normal noise of a finite covariance, except in the directions of ``unknown``, where its variance
is infinite (a limit, never a large number), and along ``exact``, where it is zero. Both are kept as subspaces of their
own. They come from the queries asked and from what is fixed, never from the size of a variance: very small or large
noise is not taken for a certainty or for ignorance.

A covariance is kept as a *root*, a matrix L with L L' the covariance, and roots are computed from roots by orthogonal
transformations alone. A sum of cells may be known a million million times better than the cells: as a sum of their
covariances nothing would be left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.tree import Numbers, Places

# Subspaces are spanned by sums of cells. Their angles, if not zero, are far larger than this.
_SAME: Final = 1e-8
_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """How well several kinds of vectors are known: matrices (kinds, cells, cells).

    ``unknown`` and ``exact`` are orthogonal projections; the covariance is zero on both.
    """

    root: Numbers
    unknown: Numbers
    exact: Numbers

    @property
    def covariance(self) -> Numbers:
        """Return the covariances; of sums that are known far better than their parts, take the root instead."""
        found: Numbers = self.root @ self.root.transpose(0, 2, 1)
        return found

    def take(self, places: Places) -> Spread:
        """Return the kinds at these places."""
        return Spread(root=self.root[places], unknown=self.unknown[places], exact=self.exact[places])

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


def rooted(rows: Numbers, off: Numbers) -> Numbers:
    """Return the roots of ``rows' rows`` for matrices (kinds, rows, cells), zero on a subspace."""
    if rows.shape[-1] == 1:
        return np.sqrt(np.sum(rows**2, axis=1, keepdims=True)) * (1 - off)
    triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    found: Numbers = (np.eye(rows.shape[-1]) - off) @ triangle.transpose(0, 2, 1)
    return found


def inverse_root(rows: Numbers, off: Numbers) -> Numbers:
    """Return the roots of the inverses of ``rows' rows`` off a subspace on which they are zero, and zero there."""
    cells = rows.shape[-1]
    keep = np.eye(cells) - off
    left = np.einsum("nii->n", keep)
    size = np.sqrt(np.sum(rows**2, axis=(1, 2)) / np.maximum(left, 1))
    # The subspace is filled up with the mean size of the rest: the condition stays that of the rest.
    size = np.where((left > 0.5) & (size > 0), size, 1.0)[:, None, None]
    if cells == 1:
        return keep / np.sqrt(np.sum(rows**2, axis=1, keepdims=True) + size**2 * off)
    triangle = np.linalg.qr(np.concatenate([rows @ keep, size * off], axis=1), mode="r")
    found: Numbers = keep @ np.linalg.inv(triangle)
    return found


def added(spread: Spread, members: Sequence[tuple[Places, Numbers]], *, empty_is_zero: bool = False) -> Spread:
    """Return what is known of sums: for each the kinds of its members and how many there are of each.

    A sum of none is exactly zero, or else of members that are not in the file: nothing is known of it.
    """
    cells, kinds = spread.root.shape[-1], len(spread.root)
    counts = np.zeros((len(members), kinds))
    for row, (own, many) in enumerate(members):
        counts[row, own] = many
    some = (counts > 0).astype(np.float64)
    one = np.eye(cells)
    unknown = exact = np.zeros((len(members), cells, cells))
    # What is unknown in one member is unknown in the sum, and only what is exact in all is exact.
    if spread.unknown.any():
        unknown = one - null_space(np.tensordot(some, spread.unknown, axes=1))
    if spread.exact.any():
        exact = null_space(np.tensordot(some, one - spread.exact, axes=1))
    if np.any(empty := ~counts.any(axis=1)):
        unknown, exact = unknown.copy(), exact.copy()
        unknown[empty], exact[empty] = (0, one) if empty_is_zero else (one, 0)
    return Spread(root=_summed(spread.root, members, unknown + exact), unknown=unknown, exact=exact)


def _summed(roots: Numbers, members: Sequence[tuple[Places, Numbers]], off: Numbers) -> Numbers:
    """Return the roots of the sums of covariances; sums of about as many kinds are computed together."""
    cells = roots.shape[-1]
    found = np.zeros(off.shape)
    many = np.array([len(own) for own, _ in members], dtype=np.int64)
    for most in 2 ** np.arange(int(many.max(initial=0)).bit_length() + 1):
        rows = np.flatnonzero((many <= most) & (2 * many > most))
        step = max(1, _AT_ONCE // int(most * cells * cells))
        for part in (rows[start : start + step] for start in range(0, rows.size, step)):
            kinds, weights = np.zeros((part.size, most), dtype=np.int64), np.zeros((part.size, most))
            for row, place in enumerate(part.tolist()):
                own, count = members[place]
                kinds[row, : len(own)], weights[row, : len(own)] = own, np.sqrt(count)
            stacked = (weights[:, :, None, None] * roots[kinds].transpose(0, 1, 3, 2)).reshape(part.size, -1, cells)
            found[part] = rooted(stacked, off[part])
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Merged:
    """Two independent sources on the same vectors as one: ``m1 + gain @ (m2 - m1)`` is the best estimate.

    The squares of ``whiten @ (m2 - m1)`` add up to chi-squared with ``freedom`` degrees (what is unknown may be any
    number in ``m2 - m1``, and is gone from it). What ``doubled`` projects ``m2 - m1`` onto must be zero, because both
    sources know it exactly.
    """

    spread: Spread
    gain: Numbers
    whiten: Numbers
    freedom: Numbers
    doubled: Numbers


def merged(one: Spread, two: Spread) -> Merged:
    """Return two independent sources on the same vectors as one."""
    cells = one.root.shape[-1]
    doubled = _meet(one.exact, two.exact)
    gain, whiten = (np.zeros(one.root.shape) for _ in range(2))
    unknown = np.zeros(one.unknown.shape)
    freedom = np.zeros(len(one.root))
    diffuse = one.ignorant | two.ignorant
    first, second = _turned(one.root), _turned(two.root)
    if np.any(sure := ~diffuse):
        inverse = inverse_root(np.concatenate([first[sure], second[sure]], axis=1), doubled[sure])
        whiten[sure] = _turned(inverse)
        gain[sure] = one.root[sure] @ (first[sure] @ inverse) @ whiten[sure]
        freedom[sure] = cells - np.einsum("nii->n", doubled[sure])
    for place in np.flatnonzero(diffuse).tolist():
        gain[place], whiten[place], unknown[place], freedom[place] = _merged_diffuse(one, two, doubled, place)
    exact = _span(one.exact, two.exact)
    rows = np.concatenate([first - first @ _turned(gain), second @ _turned(gain)], axis=1)
    spread = Spread(root=rooted(rows, exact), unknown=unknown, exact=exact)
    return Merged(spread=spread, gain=gain, whiten=whiten, freedom=np.round(freedom), doubled=doubled)


def _turned(matrices: Numbers) -> Numbers:
    return matrices.transpose(0, 2, 1)


def _basis(projection: Numbers) -> tuple[Numbers, Numbers]:
    """Return orthonormal bases of a subspace and of its complement."""
    values, vectors = np.linalg.eigh(projection)
    return vectors[:, values > 0.5], vectors[:, values <= 0.5]


def _merged_diffuse(one: Spread, two: Spread, doubled: Numbers, place: int) -> tuple[Numbers, Numbers, Numbers, float]:
    """Merge where something is unknown: the limit of variances that grow without bound.

    The second source observes ``seen' x``. Combinations of these that see unknown directions of the first settle
    them one for one (exact diffuse filtering, Koopman 1997); all others are weighed as usual.
    """
    first, second = one.root[place], two.root[place]
    cells = len(first)
    blank, _ = _basis(one.unknown[place])
    _, seen = _basis(two.unknown[place])
    left, sizes, right = np.linalg.svd(seen.T @ blank)
    rank = int(np.sum(sizes > np.sqrt(_SAME)))
    settling, weighing = seen @ left[:, :rank], seen @ left[:, rank:]
    settled, still = blank @ (right[:rank].T / sizes[:rank]), blank @ right[rank:].T
    gain, whiten, common = settled @ settling.T, np.zeros((cells, cells)), weighing.T @ doubled[place] @ weighing
    if many := weighing.shape[1]:
        rows = np.concatenate([first.T, second.T]) @ weighing
        inverse = inverse_root(rows[None], common[None])[0]
        whiten[:many] = inverse.T @ weighing.T
        mixed = rows @ inverse
        gain = gain + ((first - gain @ first) @ mixed[:cells] - gain @ second @ mixed[cells:]) @ whiten[:many]
    return gain, whiten, still @ still.T, many - float(np.trace(common))
