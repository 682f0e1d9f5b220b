"""The cells of a schema as pairs (a, e): attributes whose codes differ, and attributes whose codes are exchangeable.

An attribute is exchangeable if every query and everything that is known keeps all of its codes or sums over them. The
precision of all measurements is then a few matrices over ``a``, one for each set of exchangeable attributes kept (the
ANOVA identity). For PL 94-171 these are 16 x 16 matrices, four of them, for 2,016 cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.topdown.schema import DETAILED, SUMMED, Query, Schema

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """Which exchangeable attributes are kept: all sets of them, over codes of these sizes."""

    sizes: tuple[int, ...]

    @property
    def kept(self) -> tuple[tuple[bool, ...], ...]:
        """Return all sets, from none to all."""
        return tuple(sorted(product((False, True), repeat=len(self.sizes)), key=lambda each: (sum(each), each[::-1])))

    @property
    def width(self) -> int:
        """Return the number of combinations of codes."""
        return prod(self.sizes)

    @property
    def place(self) -> Places:
        """Return for each set and each combination of codes its group."""
        rows = []
        for kept in self.kept:
            place = np.zeros((1,), dtype=np.int64)
            for size, keeps in zip(self.sizes, kept, strict=True):
                code = np.arange(size) if keeps else np.zeros(size, dtype=np.int64)
                place = (place[:, None] * (size if keeps else 1) + code[None, :]).reshape(-1)
            rows.append(place)
        return np.array(rows, dtype=np.int64)

    @property
    def groups(self) -> Places:
        """Return the number of groups of each set."""
        return np.array([prod(s for s, k in zip(self.sizes, kept, strict=True) if k) for kept in self.kept], np.int64)

    @property
    def outside(self) -> Numbers:
        """Return for each set how many combinations of codes one of its groups has."""
        return self.width / self.groups

    @property
    def contains(self) -> Flags:
        """Return whether the set of a row contains that of a column."""
        return np.array([[all(m or not n for m, n in zip(u, t, strict=True)) for t in self.kept] for u in self.kept])

    @property
    def block(self) -> Places:
        """Return for each coordinate the set of attributes in which it is a contrast: not the first along them."""
        found = np.zeros(1, dtype=np.int64)
        for size in self.sizes:
            found = (2 * found[:, None] + (np.arange(size) > 0)[None, :]).reshape(-1)
        order = {kept: place for place, kept in enumerate(self.kept)}
        every = product((False, True), repeat=len(self.sizes))
        return np.array([order[kept] for kept in every], dtype=np.int64)[found]

    @property
    def signs(self) -> Numbers:
        """Return 1 for sets of an even number of attributes, else -1."""
        return np.array([(-1.0) ** sum(kept) for kept in self.kept])


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A schema with its attributes apart: ``differing`` and the others, which are exchangeable."""

    schema: Schema
    differing: tuple[int, ...]

    @classmethod
    def of(cls, schema: Schema, queries: Iterable[Query], known: Iterable[Query] = ()) -> Grid:
        """Return the grid on which these measured queries, and what is known of other queries, are exchangeable."""
        differing: set[int] = set()
        for query in queries:
            for axis, attribute in enumerate(schema.attributes):
                if query.groups[axis] not in (attribute.groups(SUMMED), attribute.groups(DETAILED)):
                    differing.add(axis)
        for query in known:
            differing |= {axis for axis, groups in enumerate(query.groups) if max(groups) > 0}
        differing |= {axis for axis, size in enumerate(schema.shape) if size == 1}
        return cls(schema=schema, differing=tuple(sorted(differing)))

    @cached_property
    def exchangeable(self) -> tuple[int, ...]:
        """Return the positions of the other attributes."""
        return tuple(axis for axis in range(len(self.schema.attributes)) if axis not in self.differing)

    @cached_property
    def lattice(self) -> Lattice:
        """Return the sets of exchangeable attributes."""
        return Lattice(sizes=tuple(self.schema.shape[axis] for axis in self.exchangeable))

    @property
    def height(self) -> int:
        """Return the number of combinations of codes that differ."""
        return prod(self.schema.shape[axis] for axis in self.differing)

    @cached_property
    def cells(self) -> Places:
        """Return the cell of the schema for each pair (a, e)."""
        index = np.arange(self.schema.size).reshape(self.schema.shape)
        return index.transpose(*self.differing, *self.exchangeable).reshape(self.height, self.lattice.width)

    @cached_property
    def place(self) -> Places:
        """Return for each cell of the schema where it stands in ``cells``, row by row."""
        found = np.empty(self.schema.size, dtype=np.int64)
        found[self.cells.reshape(-1)] = np.arange(self.schema.size)
        return found

    def rows_of(self, query: Query) -> Places:
        """Return for each ``a`` the group in which the query counts it."""
        place = np.zeros((1,), dtype=np.int64)
        for axis in self.differing:
            groups = np.array(query.groups[axis])
            place = (place[:, None] * (groups.max() + 1) + groups[None, :]).reshape(-1)
        return place

    def kept_by(self, query: Query) -> int:
        """Return which set of exchangeable attributes the query keeps."""
        return self.lattice.kept.index(tuple(max(query.groups[axis]) > 0 for axis in self.exchangeable))

    def precision(self, queries: Iterable[Query], weights: Numbers) -> Numbers:
        """Return sum_q weight_q Q'Q in sum form, for each row of ``weights`` (rows, queries): (rows, sets, a, a)."""
        found = np.zeros((len(weights), len(self.lattice.kept), self.height, self.height))
        for query, weight in zip(queries, weights.T, strict=True):
            rows = self.rows_of(query)
            found[:, self.kept_by(query)] += weight[:, None, None] * (rows[:, None] == rows[None, :])
        return found
