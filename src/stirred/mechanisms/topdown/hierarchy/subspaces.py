"""The subspaces in which a hierarchy of measurements falls apart into small problems (ANOVA, section 1.1).

An attribute that queries only keep in full or sum over, and that no known zero tells apart, is *exchangeable*: in an
orthonormal basis whose first vector is constant, a query that keeps it sees every coordinate with the same noise, and a
query that sums over it sees the first coordinate alone. All other attributes (groupings, known zeros) together are the
*core*. For every set E of exchangeable attributes, the coordinates that are contrasts in E and constant in the others
form a matrix (core cells, contrasts). Its columns have the same covariance, and two different E are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Constraint, Numbers, Places

LARGEST_CORE: Final = 512
Subspace = tuple[int, ...]  # the exchangeable attributes (positions in the schema) in which it is a contrast
Parts = dict[Subspace, Numbers]  # for each subspace (areas, core cells, contrasts)


def core_of(schema: Schema, *, queries: Iterable[MarginalQuery], known: Iterable[Constraint] = ()) -> set[int]:
    """Return the positions of the attributes that are not exchangeable.

    >>> from stirred.mechanisms.topdown.hierarchy.schema import shipped_schema
    >>> persons = shipped_schema("pl94-persons")
    >>> core_of(persons, queries=[persons.query("hhinstlevels"), persons.query("cenrace")])
    {0}
    """
    core = {place for query in queries for place, groups in enumerate(query.groups) if not _is_plain(groups)}
    for each in known:
        if each.sign == "=":
            core |= core_of(schema, queries=[each.query])
        # Attributes some of whose groups are known to be empty while others are not, all else being equal.
        zeros = known_zeros(each).reshape(-1, *each.query.shape)
        core |= {n for n in range(zeros.ndim - 1) if np.any(zeros.any(axis=n + 1) != zeros.all(axis=n + 1))}
    return core | {place for place, size in enumerate(schema.shape) if size == 1}


def known_zeros(known: Constraint) -> npt.NDArray[np.bool_]:
    """Return which cells of the query are empty: counts are at least 0, so all their parts are empty too."""
    if known.sign == ">=":
        return np.zeros(known.values.shape, dtype=np.bool_)
    return (known.values <= 0) & known.given[:, None]


def _is_plain(groups: tuple[int, ...]) -> bool:
    return not any(groups) or groups == tuple(range(len(groups)))


@dataclass(frozen=True, kw_only=True)
class Subspaces:
    """A schema split into a core and exchangeable attributes.

    >>> from stirred.mechanisms.topdown.hierarchy.schema import Attribute
    >>> age = Attribute(name="age", codes=("0-17", "18-64", "65+"), groupings={"adult": (0, 1, 1)})
    >>> race = Attribute(name="race", codes=("1", "2", "3", "4"))
    >>> spaces = Subspaces(schema=Schema(name="toy", attributes=(age, race)), core=frozenset({0}))
    >>> spaces.cells, spaces.all, [spaces.width(each) for each in spaces.all]
    (3, ((), (1,)), [1, 3])
    >>> x = np.arange(12.0).reshape(1, 12)
    >>> parts = spaces.split(spaces.schema.query("detailed"), x)
    >>> spaces.answers(spaces.schema.query("adult"), parts).tolist()
    [[6.0, 60.0]]
    """

    schema: Schema
    core: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if self.cells > LARGEST_CORE:
            names = listed([self.schema.names[place] for place in sorted(self.core)])
            raise bad_plan(
                f"queries with groupings, or known zeros, tie together the attributes {names}, "
                f"which have {self.cells:,} cells; at most {LARGEST_CORE} are possible",
                where=f"schema {self.schema.name}",
                remedy="leave out groupings or known zeros of some attributes",
            )

    @property
    def cells(self) -> int:
        return prod(self.schema.shape[place] for place in self.core)

    @cached_property
    def differing(self) -> tuple[int, ...]:
        """Return the positions of the attributes of the core."""
        return tuple(sorted(self.core))

    @cached_property
    def exchangeable(self) -> Subspace:
        return tuple(place for place in range(len(self.schema.shape)) if place not in self.core)

    @cached_property
    def all(self) -> tuple[Subspace, ...]:
        return self.within(self.exchangeable)

    def within(self, kept: Subspace) -> tuple[Subspace, ...]:
        """Return the subspaces that a query sees if it keeps these exchangeable attributes."""
        return tuple(each for size in range(len(kept) + 1) for each in combinations(kept, size))

    def width(self, subspace: Subspace) -> int:
        return prod(self.schema.shape[place] - 1 for place in subspace)

    def kept(self, query: MarginalQuery) -> Subspace:
        return tuple(place for place in self.exchangeable if any(query.groups[place]))

    def scale(self, query: MarginalQuery) -> float:
        """Return how a query sees the coordinates that are constant in what it sums over: times this."""
        return sqrt(prod(self.schema.shape[place] for place in self.exchangeable if not any(query.groups[place])))

    def rows(self, query: MarginalQuery) -> Numbers:
        """Return which cells of the core each of the query's core cells counts, as 0 and 1 (cells of query, core)."""
        groups = query.cell_along(self.differing)
        return (groups[None, :] == np.arange(groups.max() + 1)[:, None]).astype(np.float64)

    def matrix(self, query: MarginalQuery) -> Numbers:
        """Return what the query sees of the core, in every subspace that it sees (cells of query, core)."""
        return self.scale(query) * self.rows(query)

    def zeros(self, known: Constraint) -> npt.NDArray[np.bool_]:
        """Return which cells of the core are known to be empty (areas, core cells)."""
        shaped = known_zeros(known).reshape(-1, *known.query.shape)
        rows = self.rows(known.query)
        # Exchangeable attributes are not told apart, except by fixed values that are used as sums alone.
        empty = shaped.all(axis=tuple(place + 1 for place in self.exchangeable)).reshape(len(shaped), len(rows))
        return (empty.astype(np.float64) @ rows) > 0

    def split(self, query: MarginalQuery, values: npt.NDArray[Any]) -> Parts:
        """Return answers (areas, cells of the query) in the subspaces that the query sees.

        What is returned for E is ``matrix(query) @ x_E`` for the histogram x; noise of variance v in the answers has
        variance v there, because the basis is orthonormal.
        """
        apart = values.reshape(-1, *query.shape).transpose(0, *(p + 1 for p in (*self.differing, *self.exchangeable)))
        sizes = [query.shape[place] for place in self.exchangeable]
        core = prod(query.shape[place] for place in self.core)
        turned = _reflected(apart.reshape(len(apart), core, *sizes).astype(np.float64))
        return {
            each: turned[self._slices(each)].reshape(len(turned), core, self.width(each))
            for each in self.within(self.kept(query))
        }

    def _slices(self, subspace: Subspace) -> tuple[slice, ...]:
        """Return where the coordinates of a subspace stand in a turned array."""
        ends = (slice(1, None) if place in subspace else slice(0, 1) for place in self.exchangeable)
        return (slice(None), slice(None), *ends)

    def answers(self, query: MarginalQuery, parts: Mapping[Subspace, Numbers]) -> Numbers:
        """Return the answers (areas, cells) to a query, given a histogram in its subspaces; absent ones are zero."""
        kept, rows = self.kept(query), self.matrix(query)
        areas = len(next(iter(parts.values())))
        sizes = [self.schema.shape[place] if place in kept else 1 for place in self.exchangeable]
        turned = np.zeros((areas, len(rows), *sizes))
        for each in self.within(kept):
            if each in parts:
                where = self._slices(each)
                turned[where] = (rows @ parts[each]).reshape(turned[where].shape)
        apart = _reflected(turned).reshape(areas, *(query.shape[place] for place in self.differing), *sizes)
        return _grouped(self._in_order(apart), query, self.exchangeable).reshape(areas, query.size)

    def _in_order(self, apart: Numbers) -> Numbers:
        """Return values by attributes of the core, then exchangeable ones, in the order of the schema."""
        return apart.transpose(0, *(np.argsort((*self.differing, *self.exchangeable)) + 1))

    def over_cells(self, query: MarginalQuery, variances: Mapping[Subspace, Numbers]) -> Numbers:
        """Return the variance of every cell of a query (kinds, cells), given those of its core cells.

        Section 4: the contrasts of a group of s of n codes have the squared length s - s²/n, the constant s²/n.
        """
        found = np.zeros((len(next(iter(variances.values()))), query.size))
        for each, own in variances.items():
            for place in self.exchangeable:
                count = np.bincount(query.groups[place]).astype(np.float64)
                constant = count**2 / len(query.groups[place])
                own = own[..., None] * (count - constant if place in each else constant)
            shaped = own.reshape(len(own), *(query.shape[place] for place in (*self.differing, *self.exchangeable)))
            found += self._in_order(shaped).reshape(found.shape)
        return found


def _reflected(values: Numbers) -> Numbers:
    """Return values (areas, core, ...) with each further axis in an orthonormal basis whose first vector is constant.

    Householder reflections: their own inverse, and as cheap as subtracting a mean.
    """
    for axis, size in enumerate(values.shape):
        if axis > 1 and size > 1:
            first = (*[slice(None)] * axis, slice(0, 1))
            mean = values.sum(axis=axis, keepdims=True) / sqrt(size)
            values = values - (mean - values[first]) / (sqrt(size) - 1)
            values[first] = mean
    return values


def _grouped(values: Numbers, query: MarginalQuery, places: Subspace) -> Numbers:
    """Sum detailed axes to the groups of a query, where it has groups that no measurement had."""
    for place in places:
        groups = np.array(query.groups[place])
        if not _is_plain(query.groups[place]):
            member = (groups[:, None] == np.arange(groups.max() + 1)).astype(np.float64)
            values = np.moveaxis(np.moveaxis(values, place + 1, -1) @ member, -1, place + 1)
    return values


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
        return Spread(root=self.root[places], unknown=self.unknown[places], exact=self.exact[places])


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


def inverse_off(matrices: Numbers, subspace: Numbers) -> Numbers:
    """Return the inverses of matrices (kinds, cells, cells) off a subspace on which they are zero, and zero there."""
    keep = np.eye(matrices.shape[-1]) - subspace
    left = matrices.shape[-1] - np.einsum("nii->n", subspace)
    size = np.einsum("nii->n", matrices) / np.maximum(left, 1)
    size = np.where((left > 0.5) & (size > 0), size, 1.0)[:, None, None]
    # The subspace is filled up with the mean size of the rest: the condition stays that of the rest.
    found: Numbers = keep @ np.linalg.inv(keep @ matrices @ keep + size * subspace) @ keep
    return found


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
class Merger:
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


def merged(one: Spread, two: Spread) -> Merger:
    """Return two independent sources on the same vectors as one."""
    cells = one.root.shape[-1]
    both, full = one.exact.any() and two.exact.any(), np.eye(cells)
    doubled = null_space(2 * full - one.exact - two.exact) if both else np.zeros(one.exact.shape)
    gain, whiten = (np.zeros(one.root.shape) for _ in range(2))
    unknown = np.zeros(one.unknown.shape)
    freedom = np.zeros(len(one.root))
    diffuse = np.any((one.unknown != 0) | (two.unknown != 0), axis=(1, 2))
    first, second = _turned(one.root), _turned(two.root)
    if np.any(sure := ~diffuse):
        inverse = inverse_root(np.concatenate([first[sure], second[sure]], axis=1), doubled[sure])
        whiten[sure] = _turned(inverse)
        gain[sure] = one.root[sure] @ (first[sure] @ inverse) @ whiten[sure]
        freedom[sure] = cells - np.einsum("nii->n", doubled[sure])
    for place in np.flatnonzero(diffuse).tolist():
        gain[place], whiten[place], unknown[place], freedom[place] = _merged_diffuse(one, two, doubled, place)
    exact = full - null_space(one.exact + two.exact) if both else one.exact + two.exact
    rows = np.concatenate([first - first @ _turned(gain), second @ _turned(gain)], axis=1)
    spread = Spread(root=rooted(rows, exact), unknown=unknown, exact=exact)
    return Merger(spread=spread, gain=gain, whiten=whiten, freedom=np.round(freedom), doubled=doubled)


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
