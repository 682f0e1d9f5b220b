"""The subspaces in which a hierarchy of measurements falls apart into small problems (ANOVA, section 1.1).

An attribute that queries only keep in full or sum over, and that no known zero tells apart, is *exchangeable*: in an
orthonormal basis whose first vector is constant, a query that keeps it sees every coordinate with the same noise, and a
query that sums over it sees the first coordinate alone. All other attributes (groupings, known zeros) together are the
*core*. For every set E of exchangeable attributes, the coordinates that are contrasts in E and constant in the others
form a matrix (core cells, contrasts). Its columns have the same covariance, and two different E are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.schema import Query, Schema
from stirred.mechanisms.topdown.tree import Known, Numbers

LARGEST_CORE: Final = 512
Subspace = tuple[int, ...]  # the exchangeable attributes (positions in the schema) in which it is a contrast
Parts = dict[Subspace, Numbers]  # for each subspace (areas, core cells, contrasts)


def core_of(schema: Schema, *, queries: Iterable[Query], known: Iterable[Known] = ()) -> set[int]:
    """Return the positions of the attributes that are not exchangeable.

    >>> from stirred.mechanisms.topdown.schema import Attribute
    >>> age = Attribute(name="age", codes=("0-17", "18-64", "65+"), groupings={"adult": (0, 1, 1)})
    >>> race = Attribute(name="race", codes=("1", "2", "3", "4"))
    >>> toy = Schema(name="toy", attributes=(age, race))
    >>> core_of(toy, queries=[toy.query("adult"), toy.query("race")])
    {0}
    """
    core = {place for query in queries for place, groups in enumerate(query.groups) if not _is_plain(groups)}
    for each in known:
        if each.sign == "=":
            core |= core_of(schema, queries=[each.query])
        if each.sign != ">=":
            core |= {*_told_apart(known_zeros(each), each.query)}
    return core | {place for place, size in enumerate(schema.shape) if size == 1}


def known_zeros(known: Known) -> npt.NDArray[np.bool_]:
    """Return which cells of the query hold nobody: counts are at least 0, so that nobody is in any part of them."""
    if known.sign == ">=":
        return np.zeros(known.values.shape, dtype=np.bool_)
    return (known.values <= 0) & known.given[:, None]


def _is_plain(groups: tuple[int, ...]) -> bool:
    return not any(groups) or groups == tuple(range(len(groups)))


def _told_apart(zeros: npt.NDArray[np.bool_], query: Query) -> Iterator[int]:
    """Yield the attributes some of whose groups are known to be empty while others are not, all else being equal."""
    shaped = zeros.reshape(-1, *query.shape)
    for place in range(len(query.shape)):
        if np.any(shaped.any(axis=place + 1) != shaped.all(axis=place + 1)):
            yield place


@dataclass(frozen=True, kw_only=True)
class Subspaces:
    """A schema split into a core and exchangeable attributes.

    >>> from stirred.mechanisms.topdown.schema import Attribute
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
        """Return the number of cells of the core."""
        return prod(self.schema.shape[place] for place in self.core)

    @cached_property
    def exchangeable(self) -> Subspace:
        """Return the exchangeable attributes, in the order of the schema."""
        return tuple(place for place in range(len(self.schema.shape)) if place not in self.core)

    @cached_property
    def all(self) -> tuple[Subspace, ...]:
        """Return all subspaces, the constants first."""
        return self.within(self.exchangeable)

    def within(self, kept: Subspace) -> tuple[Subspace, ...]:
        """Return the subspaces that a query sees if it keeps these exchangeable attributes."""
        return tuple(each for size in range(len(kept) + 1) for each in combinations(kept, size))

    def width(self, subspace: Subspace) -> int:
        """Return the number of contrasts."""
        return prod(self.schema.shape[place] - 1 for place in subspace)

    def kept(self, query: Query) -> Subspace:
        """Return the exchangeable attributes that a query does not sum over."""
        return tuple(place for place in self.exchangeable if any(query.groups[place]))

    def scale(self, query: Query) -> float:
        """Return how a query sees the coordinates that are constant in what it sums over: times this."""
        return sqrt(prod(self.schema.shape[place] for place in self.exchangeable if not any(query.groups[place])))

    def rows(self, query: Query) -> Numbers:
        """Return which cells of the core each of the query's core cells counts, as 0 and 1 (cells of query, core)."""
        found = np.ones((1, 1))
        for place in sorted(self.core):
            groups = np.array(query.groups[place])
            found = np.kron(found, (groups[None, :] == np.arange(groups.max() + 1)[:, None]).astype(np.float64))
        return found

    def zeros(self, known: Known) -> npt.NDArray[np.bool_]:
        """Return which cells of the core are known to be empty (areas, core cells)."""
        shaped = known_zeros(known).reshape(-1, *known.query.shape)
        rows = self.rows(known.query)
        # Exchangeable attributes are not told apart, except by fixed values that are used as sums alone.
        empty = shaped.all(axis=tuple(place + 1 for place in self.exchangeable)).reshape(len(shaped), len(rows))
        return (empty.astype(np.float64) @ rows) > 0

    def split(self, query: Query, values: npt.NDArray[Any]) -> Parts:
        """Return answers (areas, cells of the query) in the subspaces that the query sees.

        What is returned for E is ``scale(query) * rows(query) @ x_E`` for the histogram x; noise of variance v in the
        answers has variance v there, because the basis is orthonormal.
        """
        kept = self.kept(query)
        apart = values.reshape(-1, *query.shape).transpose(
            0, *(p + 1 for p in (*sorted(self.core), *self.exchangeable))
        )
        sizes = [query.shape[place] for place in self.exchangeable]
        core = prod(query.shape[place] for place in self.core)
        turned = apart.reshape(len(apart), core, *sizes).astype(np.float64)
        for axis in range(2, turned.ndim):
            turned = _reflected(turned, axis)
        return {
            each: turned[self._slices(each)].reshape(len(turned), core, self.width(each)) for each in self.within(kept)
        }

    def _slices(self, subspace: Subspace) -> tuple[slice, ...]:
        """Return where the coordinates of a subspace stand in a turned array."""
        ends = (slice(1, None) if place in subspace else slice(0, 1) for place in self.exchangeable)
        return (slice(None), slice(None), *ends)

    def answers(self, query: Query, parts: Mapping[Subspace, Numbers]) -> Numbers:
        """Return the answers (areas, cells) to a query, given a histogram in its subspaces; absent ones are zero."""
        kept = self.kept(query)
        rows = self.scale(query) * self.rows(query)
        areas = len(next(iter(parts.values())))
        sizes = [self.schema.shape[place] if place in kept else 1 for place in self.exchangeable]
        turned = np.zeros((areas, len(rows), *sizes))
        for each in self.within(kept):
            if each in parts:
                where = self._slices(each)
                turned[where] = (rows @ parts[each]).reshape(turned[where].shape)
        for axis in range(2, turned.ndim):
            turned = _reflected(turned, axis)
        order = [*sorted(self.core), *self.exchangeable]
        apart = turned.reshape(areas, *(query.shape[place] for place in sorted(self.core)), *sizes)
        found = apart.transpose(0, *(order.index(place) + 1 for place in range(len(order))))
        return _grouped(found, query, self.exchangeable).reshape(areas, query.size)

    def over_cells(self, query: Query, variances: Mapping[Subspace, Numbers]) -> Numbers:
        """Return the variance of every cell of a query (kinds, cells), given those of its core cells.

        Section 4: the contrasts of a group of s of n codes have the squared length s - s²/n, the constant s²/n.
        """
        order = [*sorted(self.core), *self.exchangeable]
        found = np.zeros((len(next(iter(variances.values()))), query.size))
        for each, own in variances.items():
            for place in self.exchangeable:
                count = np.bincount(query.groups[place]).astype(np.float64)
                constant = count**2 / len(query.groups[place])
                own = own[..., None] * (count - constant if place in each else constant)
            shaped = own.reshape(len(own), *(query.shape[place] for place in order))
            found += shaped.transpose(0, *(order.index(p) + 1 for p in range(len(order)))).reshape(found.shape)
        return found


def _reflected(values: Numbers, axis: int) -> Numbers:
    """Return coordinates along an axis in an orthonormal basis whose first vector is constant.

    A Householder reflection: its own inverse, and as cheap as subtracting a mean.
    """
    size = values.shape[axis]
    if size == 1:
        return values
    first: Any = [slice(None)] * values.ndim
    first[axis] = slice(0, 1)
    mean = values.sum(axis=axis, keepdims=True) / sqrt(size)
    found = values - (mean - values[tuple(first)]) / (sqrt(size) - 1)
    found[tuple(first)] = mean
    return found


def _grouped(values: Numbers, query: Query, places: Subspace) -> Numbers:
    """Sum detailed axes to the groups of a query, where it has groups that no measurement had."""
    for place in places:
        groups = np.array(query.groups[place])
        if not _is_plain(query.groups[place]):
            member = (groups[:, None] == np.arange(groups.max() + 1)).astype(np.float64)
            values = np.moveaxis(np.moveaxis(values, place + 1, -1) @ member, -1, place + 1)
    return values
