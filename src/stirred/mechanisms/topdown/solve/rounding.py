"""Controlled rounding: whole counts beside the optimum that keep sums, bounds and totals.

The counts of each child are rounded along a chain of queries, each inside the one before: the total, then the first
attribute, and so on down to the cells. With the parent's cells this is a network, so that rounding cannot fail where
the optimum keeps all limits, and it is optimal. Limits off the chain leave the network: then HiGHS decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.schema import DETAILED, SUMMED, Query, Schema
from stirred.mechanisms.topdown.solve.grid import Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.limits import NO_LIMIT, Rules, coarsens
from stirred.mechanisms.topdown.solve.programs import Program

WHOLE: Final = 1e-6  # what is nearer than this to a whole number is one
_LEXICOGRAPHIC: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounder:
    """What rounding minimises: distances along the chain.

    ``pre_rounded`` is 0 for distances interpolated between whole numbers (documented), 1 for distances from values
    rounded beforehand (production), 2 for the latter in groups and the former in cells. ``totals_first`` settles the
    children's totals before all else.
    """

    pre_rounded: int = 0
    totals_first: bool = False

    def weights(self, levels: int) -> Places:
        """Return the weight of each level of the chain, and of cells."""
        found = np.ones(levels + 1, dtype=np.int64)
        found[0] = _LEXICOGRAPHIC if self.totals_first else 1
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The queries along which is rounded, from the total down; the last is one step above cells."""

    queries: tuple[Query, ...]

    @classmethod
    def of(cls, schema: Schema, rules: Rules) -> Chain:
        """Return the chain that begins with what is bounded, then exchangeable attributes, then the others.

        For PL 94-171 this is the Bureau's: total, hhgq, by hispanic, by cenrace, and then votingage (cells).
        """
        bounded = [query for query, bounds in zip(rules.queries, rules.bounded, strict=True) if bounds]
        bounded += [] if rules.margin is None else [rules.margin]
        kept = [SUMMED] * len(schema.attributes)
        queries = [schema.keeping(kept)]
        for query in sorted(bounded, key=lambda each: each.size):
            if coarsens(queries[-1], query):
                queries.append(query)
        kept = [DETAILED if max(groups) > 0 else SUMMED for groups in queries[-1].groups]
        order = [*rules.grid.exchangeable, *rules.grid.differing]
        for axis in [None, *(axis for axis in order if kept[axis] == SUMMED and schema.shape[axis] > 1)]:
            if axis is not None:
                kept[axis] = DETAILED
            if (query := schema.keeping(kept)) != queries[-1] and kept.count(DETAILED) < len(kept):
                queries.append(query)
        return cls(queries=tuple(query for query in queries if query.size < schema.size) or (schema.keeping(kept),))

    @cached_property
    def groups(self) -> Places:
        """Return for each query and each cell of the schema its group."""
        return np.stack([query.cell_of for query in self.queries])

    def levels(self, rules: Rules) -> Places:
        """Return for each group of the rules its place in the chain, -1 if it has none."""
        found = np.full(len(rules.groups), -1, dtype=np.int64)
        found[0] = 0
        for place, query in enumerate(self.queries):
            if query in rules.queries:
                found[rules.place(query)] = place
        return found


@dataclass(kw_only=True, eq=False)
class _Units:
    """The program of a rounding: for each child and cell the columns that move it from its floor."""

    program: Program
    floors: Places
    parts: Numbers
    columns: dict[tuple[int, int], list[tuple[int, float]]]

    def row(self, cells: Flags, low: float, high: float) -> None:
        """Bound the count of some cells (children, cells)."""
        whole = float(self.floors[cells].sum())
        terms = [term for place in np.argwhere(cells) for term in self.columns.get((int(place[0]), int(place[1])), ())]
        self.program.row([c for c, _ in terms], low - whole, high - whole, [v for _, v in terms])

    def near(self, cells: Flags, weight: float, rounder: Rounder) -> None:
        """Add the cost of a group: the distance of its count from its value, as the kernel has it."""
        total = float(self.parts[cells].sum())
        base = float(np.rint(total)) if rounder.pre_rounded else float(np.floor(total + WHOLE))
        middle = 1.0 if rounder.pre_rounded else 1.0 - 2.0 * max(total - base, 0.0)
        below, step, above = (self.program.column(weight * cost, 0.0, most) for cost, most in _slopes(middle))
        # count = base - below + step + above, where above costs no less than step.
        terms = [term for place in np.argwhere(cells) for term in self.columns.get((int(place[0]), int(place[1])), ())]
        columns = [*(c for c, _ in terms), below, step, above]
        self.program.row(columns, base, base, [*(v for _, v in terms), 1.0, -1.0, -1.0])


def _slopes(middle: float) -> tuple[tuple[float, float], ...]:
    return (1.0, float("inf")), (middle, 1.0), (1.0, float("inf"))


def _units(values: Numbers, allowed: Flags, weight: float, rounder: Rounder, slack: int) -> _Units:
    floors = np.where(allowed, np.floor(values + WHOLE), 0).astype(np.int64)
    parts = np.where(allowed, np.maximum(values - floors, 0.0), 0.0)
    parts[parts <= WHOLE] = 0.0
    found = _Units(program=Program(), floors=floors, parts=parts, columns={})
    for c, j in np.argwhere((parts > 0) | (allowed & (slack > 0))):
        part = parts[c, j]
        cost = (1.0 if part <= 0.5 else -1.0) + 1e-4 * (1 - 2 * part) if rounder.pre_rounded == 1 else 1.0 - 2.0 * part
        own = [(found.program.column(weight * cost, 0.0, 1.0, whole=True), 1.0)]
        if slack:
            own.append((found.program.column(2.0 * weight, 0.0, slack, whole=True), 1.0))
            own.append((found.program.column(2.0 * weight, 0.0, min(slack, int(floors[c, j])), whole=True), -1.0))
        found.columns[int(c), int(j)] = own
    return found


def round_by_program(
    values: Numbers,
    *,
    need: Places,
    column: Places,
    chain: Places,
    sets: Sequence[tuple[Flags, Places, Places]],
    allowed: Flags,
    group: Places,
    group_total: Places,
    rounder: Rounder,
    slack: int = 0,
) -> Places | None:
    """Round with any sets of cells bounded, by an integer program; the objective is the same. None if impossible.

    ``sets`` are cells with the least and the most of each child. With overlapping sets there may be no whole counts
    beside the optimum; ``slack`` lets cells move further.
    """
    weights = rounder.weights(len(chain)).astype(np.float64)
    units = _units(values, allowed, float(weights[-1]), rounder, slack)
    children = np.arange(len(values))[:, None]
    for place, count in enumerate(need):
        units.row(np.broadcast_to(column == place, values.shape), float(count), float(count))
    for c in range(len(values)):
        for level, groups in enumerate(chain):
            for g in np.unique(groups):
                cells = (children == c) & (groups == g)
                units.near(cells, float(weights[level]), rounder)
                if level == 0:
                    total = float(values[c].sum())
                    units.row(cells, np.floor(total + WHOLE) - slack, np.ceil(total - WHOLE) + slack)
        for members, low, high in sets:
            units.row((children == c) & members, float(low[c]), float(min(high[c], NO_LIMIT)))
    for place, total in enumerate(group_total):
        if total >= 0:
            units.row(np.broadcast_to((group == place)[:, None], values.shape), float(total), float(total))
    solved = units.program.solve()
    if solved is None:
        return None
    found = units.floors.copy()
    for (c, j), own in units.columns.items():
        found[c, j] += sum(int(np.rint(solved[0][col])) * int(sign) for col, sign in own)
    return found
