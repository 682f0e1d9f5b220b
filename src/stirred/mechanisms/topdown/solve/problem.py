"""What is to be solved: the cells of a schema on a grid, what the counts of areas must keep, and how they are rounded.

An attribute is exchangeable if every query and everything that is known keeps all of its codes or sums over them. Cells
are pairs (a, e): ``a`` runs over the attributes whose codes differ, ``e`` over the exchangeable ones. The precision of
all measurements is then a few matrices over ``a``, one for each set of exchangeable attributes kept (the ANOVA
identity). For PL 94-171 these are 16 x 16 matrices, four of them, for 2,016 cells.

Look-ahead: an area holds at least what its children must hold together, and at most what they may. For bounds on one
partition this is all there is to know. Where totals of children are fixed as well, bounds on unions of groups follow
(Hall's condition, case 23), and the parent gets those that say more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, SUMMED, TOTAL, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.subspaces import Subspace, Subspaces, core_of
from stirred.mechanisms.topdown.hierarchy.tree import (
    NO_BOUND,
    Constraint,
    Flags,
    GroupTotal,
    Level,
    Numbers,
    Places,
    Tree,
)

NO_LIMIT: Final = 1 << 40
_MOST_UNIONS: Final = 10
_LEXICOGRAPHIC: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lattice:
    """All sets of exchangeable attributes that can be kept, over codes of these sizes."""

    sizes: tuple[int, ...]
    kept: tuple[tuple[bool, ...], ...]  # all sets, from none to all
    width: int  # combinations of codes
    place: Places  # (sets, width) group of each combination
    groups: Places  # (sets,) how many there are
    outside: Numbers  # (sets,) how many combinations one group has
    contains: Flags  # whether the set of a row contains that of a column
    signs: Numbers  # 1 for sets of an even number of attributes, else -1
    block: Places  # (width,) of each coordinate the set in which it is a contrast: not the first along them

    def sums(self, blocks: Numbers) -> Numbers:
        """Return matrices in sum form, given their ANOVA blocks (kinds, sets, a, a): inclusion and exclusion."""
        factors = np.where(self.contains.T, np.outer(self.signs, self.signs) / self.outside[:, None], 0.0)
        found = np.zeros(blocks.shape)
        for place in range(len(self.kept)):
            found += factors[:, place, None, None] * blocks[:, place, None]
        return found


@lru_cache(maxsize=4096)
def lattice_of(sizes: tuple[int, ...]) -> Lattice:
    """Return the lattice of exchangeable attributes of these sizes."""
    every = [*product((False, True), repeat=len(sizes))]
    kept = tuple(sorted(every, key=lambda each: (sum(each), each[::-1])))
    groups = np.array([prod(s for s, keeps in zip(sizes, each, strict=True) if keeps) for each in kept], np.int64)
    places = []
    for each in kept:
        place = np.zeros(1, dtype=np.int64)
        for size, keeps in zip(sizes, each, strict=True):
            code = np.arange(size) if keeps else np.zeros(size, dtype=np.int64)
            place = (place[:, None] * (size if keeps else 1) + code[None, :]).reshape(-1)
        places.append(place)
    contrast = np.zeros(1, dtype=np.int64)
    for size in sizes:
        contrast = (2 * contrast[:, None] + (np.arange(size) > 0)[None, :]).reshape(-1)
    return Lattice(
        sizes=sizes,
        kept=kept,
        width=prod(sizes),
        place=np.array(places, dtype=np.int64),
        groups=groups,
        outside=prod(sizes) / groups,
        contains=np.array([[all(m or not n for m, n in zip(u, v, strict=True)) for v in kept] for u in kept]),
        signs=np.array([(-1.0) ** sum(each) for each in kept]),
        block=np.array([kept.index(each) for each in every], dtype=np.int64)[contrast],
    )


@dataclass(frozen=True, kw_only=True)
class CellGrid(Subspaces):
    """A schema with its attributes apart: those of the core, whose codes differ, and exchangeable ones."""

    @classmethod
    def of(cls, schema: Schema, queries: Iterable[MarginalQuery], known: Iterable[MarginalQuery] = ()) -> CellGrid:
        """Return the grid on which these measured queries, and what is known of other queries, are exchangeable."""
        kept = {axis for query in known for axis, groups in enumerate(query.groups) if any(groups)}
        return cls(schema=schema, core=frozenset(core_of(schema, queries=queries) | kept))

    @cached_property
    def lattice(self) -> Lattice:
        return lattice_of(tuple(self.schema.shape[axis] for axis in self.exchangeable))

    @cached_property
    def sets(self) -> list[Subspace]:
        """Return the sets of exchangeable attributes, in the order of the lattice."""
        places = np.array(self.exchangeable, dtype=np.int64)
        return [tuple(places[[*kept]].tolist()) for kept in self.lattice.kept]

    @cached_property
    def cell_at(self) -> Places:
        """Return the cell of the schema for each pair (a, e)."""
        index = np.arange(self.schema.size).reshape(self.schema.shape)
        return index.transpose(*self.differing, *self.exchangeable).reshape(self.cells, self.lattice.width)

    @cached_property
    def place(self) -> Places:
        """Return for each cell of the schema where it stands in ``cell_at``, row by row."""
        found = np.empty(self.schema.size, dtype=np.int64)
        found[self.cell_at.reshape(-1)] = np.arange(self.schema.size)
        return found

    def kept_by(self, query: MarginalQuery) -> int:
        return self.sets.index(self.kept(query))

    def precision(self, queries: Iterable[MarginalQuery], weights: Numbers) -> Numbers:
        """Return sum_q weight_q Q'Q in sum form, for each row of ``weights`` (rows, queries): (rows, sets, a, a)."""
        found = np.zeros((len(weights), len(self.lattice.kept), self.cells, self.cells))
        for query, weight in zip(queries, weights.T, strict=True):
            rows = self.rows(query)
            found[:, self.kept_by(query)] += weight[:, None, None] * (rows.T @ rows)
        return found


def is_bound(values: Places) -> Flags:
    """Say which values of a constraint bound anything, other than cells that stay empty."""
    return (values > 0) & (values < NO_BOUND)


def coarsens(one: MarginalQuery, two: MarginalQuery) -> bool:
    """Say whether the cells of one query are unions of those of another.

    >>> from stirred.mechanisms.topdown.hierarchy.schema import shipped_schema
    >>> hhgq, race, both = map(shipped_schema("pl94-persons").query, ("hhgq", "cenrace", "hhgq * cenrace"))
    >>> coarsens(hhgq, both), coarsens(hhgq, race)
    (True, False)
    """
    return all(
        len({*zip(fine, coarse, strict=True)}) == len({*fine})
        for coarse, fine in zip(one.groups, two.groups, strict=True)
    )


def _margin(schema: Schema, measured: Sequence[MarginalQuery], levels: Sequence[Level]) -> MarginalQuery | None:
    """Return the finest query that is known exactly in all areas, if it keeps attributes otherwise exchangeable.

    Everything else that is known exactly must follow from it; or else all of it is bounds from both sides.
    """
    known = [each for level in levels for each in level.known]
    exact = [*dict.fromkeys(each.query for each in known if each.sign == "=")]
    rest = [each.query for each in known if each.sign != "="]
    exchangeable = CellGrid.of(schema, measured, rest).exchangeable
    finest = max(exact, key=lambda each: each.size, default=None)
    if finest is None or not any(any(finest.groups[axis]) for axis in exchangeable):
        return None
    everywhere = all(
        any(each.sign == "=" and each.query == finest and each.given.all() for each in level.known) for level in levels
    )
    return finest if everywhere and all(coarsens(each, finest) for each in exact) else None


def implied(known: Constraint, margin: MarginalQuery | None) -> bool:
    """Say whether something that is known follows from a margin that is."""
    return margin is not None and known.sign == "=" and coarsens(known.query, margin)


@dataclass(frozen=True, kw_only=True, eq=False)
class LimitGroups:
    """The queries on which there are limits; group 0 is the total, then the groups of each query in turn."""

    grid: CellGrid
    queries: tuple[MarginalQuery, ...]
    groups: Flags  # (groups, a): which rows of the grid a group counts
    of_query: Places  # for each group its query, -1 for the total
    margin: MarginalQuery | None  # that is known exactly and keeps exchangeable attributes: an earlier release
    chain: tuple[MarginalQuery, ...]  # along which is rounded, from the total down; the last is one step above cells

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> LimitGroups:
        """Return the rules of trees that belong together."""
        schema, levels = trees[0].schema, [level for tree in trees for level in tree.levels]
        measured = [each.query for level in levels for each in level.answers]
        known = [each for level in levels for each in level.known]
        total = schema.query(TOTAL)
        # The lowest level of the areas above shards has nothing: what is known there belongs to the shards.
        margin = _margin(schema, measured, [level for level in levels if level.answers or level.known])
        limited = tuple(
            dict.fromkeys(each.query for each in known if each.query != total and not implied(each, margin))
        )
        bounded = {each.query for each in known if each.sign == ">=" or np.any(is_bound(np.asarray(each.values)))}
        asked = [*measured, *([] if margin is None else [margin])]
        grid = CellGrid.of(schema, [*dict.fromkeys(asked)], limited)
        groups, of_query = [np.ones((1, grid.cells), dtype=np.bool_)], [np.array([-1])]
        for place, query in enumerate(limited):
            groups.append(grid.rows(query) > 0)
            of_query.append(np.full(len(groups[-1]), place))
        return cls(
            grid=grid,
            queries=limited,
            groups=np.concatenate(groups),
            of_query=np.concatenate(of_query).astype(np.int64),
            margin=margin,
            chain=_chain(
                grid, [*(query for query in limited if query in bounded), *([] if margin is None else [margin])]
            ),
        )

    def place(self, query: MarginalQuery) -> slice:
        """Return where the groups of a query stand."""
        if query.size == 1:
            return slice(0, 1)
        own = np.flatnonzero(self.of_query == self.queries.index(query))
        return slice(int(own[0]), int(own[-1]) + 1)

    def named(self, group: int) -> str:
        """Return what a group counts, in words."""
        if group == 0:
            return "all records"
        query = self.queries[self.of_query[group]]
        return self.grid.schema.cell_name(query, group - self.place(query).start)

    @cached_property
    def chain_cells(self) -> Places:
        """Return for each query of the chain the cell of it that counts a cell (queries, cells)."""
        return np.stack([query.cell_of for query in self.chain])


def _chain(grid: CellGrid, bounded: Iterable[MarginalQuery]) -> tuple[MarginalQuery, ...]:
    """Return the chain that begins with what is bounded, then exchangeable attributes, then the others.

    For PL 94-171 this is the Bureau's: total, hhgq, by hispanic, by cenrace, and then votingage (cells).
    """
    schema = grid.schema
    queries = [schema.query(TOTAL)]
    for query in sorted(bounded, key=lambda each: each.size):
        if coarsens(queries[-1], query):
            queries.append(query)
    kept = [DETAILED if max(groups) > 0 else SUMMED for groups in queries[-1].groups]
    further = [axis for axis in (*grid.exchangeable, *grid.differing) if kept[axis] == SUMMED]
    steps = [schema.keeping(kept)]
    for axis in further:
        kept[axis] = DETAILED
        steps.append(schema.keeping(kept))
    # Cells are rounded after the chain; an attribute of one code adds no step.
    queries = [*dict.fromkeys(query for query in (*queries, *steps) if query.size < schema.size)]
    return tuple(queries) or (steps[-1],)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AreaLimits:
    """The limits of the areas of a level: rows of the grid that may be filled, and the least and most of each group."""

    allowed: Flags  # (areas, a)
    low: Places  # (areas, groups)
    high: Places
    margin: Places | None = None  # (areas, cells of the margin), -1 where it is not known

    def take(self, rows: slice | Places) -> AreaLimits:
        margin = None if self.margin is None else self.margin[rows]
        return AreaLimits(allowed=self.allowed[rows], low=self.low[rows], high=self.high[rows], margin=margin)

    @property
    def totals(self) -> Places:
        return np.where(self.low[:, 0] == self.high[:, 0], self.low[:, 0], -1)


def limits_of(rules: LimitGroups, level: Level) -> AreaLimits:
    """Return the limits of the areas of a level alone."""
    found = AreaLimits(
        allowed=np.ones((level.areas, rules.grid.cells), dtype=np.bool_),
        low=np.zeros((level.areas, len(rules.groups)), dtype=np.int64),
        high=np.full((level.areas, len(rules.groups)), NO_LIMIT, dtype=np.int64),
    )
    margin = None if rules.margin is None else np.full((level.areas, rules.margin.size), -1, dtype=np.int64)
    for known in level.known:
        given, values = known.given, known.values[known.given].astype(np.int64)
        at = slice(0, 1)
        if margin is not None and known.sign == "=" and known.query == rules.margin:
            margin[given], values = values, values.sum(axis=1, keepdims=True)  # its total is known as well
        elif implied(known, rules.margin) and known.query.size > 1:
            continue
        else:
            at = rules.place(known.query)
        if known.sign != ">=":
            most = np.where(values >= NO_BOUND, NO_LIMIT, values)
            found.high[given, at] = np.minimum(found.high[given, at], most)
        if known.sign != "<=":
            found.low[given, at] = np.maximum(found.low[given, at], values)
    return _emptied(rules, replace(found, margin=margin))


def _emptied(rules: LimitGroups, limits: AreaLimits) -> AreaLimits:
    """Return limits with no one in groups of at most 0, and at most 0 in groups that no one may be in."""
    allowed = limits.allowed & ~((limits.high <= 0).astype(np.float64) @ rules.groups.astype(np.float64) > 0)
    closed = (allowed.astype(np.float64) @ rules.groups.T.astype(np.float64)) == 0
    return replace(limits, allowed=allowed, high=np.where(closed, 0, limits.high))


def tightened(rules: LimitGroups, limits: AreaLimits) -> AreaLimits:
    """Return limits with those that follow from totals and the groups of each query together.

    A problem with the limits as they were has the same solutions; only what is passed up must have all.
    """
    limits = _emptied(rules, limits)
    low, high = limits.low.copy(), limits.high.copy()
    for query in range(len(rules.queries)):
        own = np.flatnonzero(rules.of_query == query)
        least, most = low[:, own].sum(axis=1), high[:, own].sum(axis=1)
        low[:, 0] = np.maximum(low[:, 0], least)
        high[:, 0] = np.minimum(high[:, 0], np.minimum(most, NO_LIMIT))
        rest = np.where(high[:, 0] < NO_LIMIT, high[:, 0] - least, NO_LIMIT)
        follows = low[:, :1] - (most[:, None] - high[:, own]), rest[:, None] + low[:, own]
        low[:, own] = np.maximum(low[:, own], follows[0])
        high[:, own] = np.minimum(high[:, own], follows[1])
    return _emptied(rules, replace(limits, low=low, high=high))


def passed_up(rules: LimitGroups, own: AreaLimits, below: AreaLimits, parent: Places) -> AreaLimits:
    """Return the limits of areas with those that follow from their children."""
    allowed, low, high = np.zeros_like(own.allowed), np.zeros_like(own.low), np.zeros_like(own.high)
    np.logical_or.at(allowed, parent, below.allowed)
    np.add.at(low, parent, below.low)
    np.add.at(high, parent, below.high)
    childless = (np.bincount(parent, minlength=len(low)) == 0)[:, None]
    allowed, low = own.allowed & (allowed | childless), np.maximum(own.low, low)
    high = np.minimum(own.high, np.where(childless, NO_LIMIT, np.minimum(high, NO_LIMIT)))
    return _emptied(rules, replace(own, allowed=allowed, low=low, high=high))


def limits_up(
    rules: LimitGroups, levels: Sequence[Level], *, beneath: AreaLimits | None = None, groups: Sequence[GroupTotal] = ()
) -> list[AreaLimits]:
    """Return the limits of all levels from the top; ``beneath`` are those of the lowest from trees of their own."""
    found: list[AreaLimits] = []
    for place in range(len(levels) - 1, -1, -1):
        own = limits_of(rules, levels[place]) if found or beneath is None else beneath
        own = _with_totals(own, members_in(levels[place], groups))
        if found:
            inside = levels[place + 1]
            own = passed_up(rules, own, _as_sums(tightened(rules, found[0]), members_in(inside, groups)), inside.parent)
        found.insert(0, own)
    return found


def members_in(level: Level, groups: Sequence[GroupTotal]) -> list[tuple[list[int], int]]:
    """Return for each group of areas of a level the places of its members, and its total."""
    own = [each for each in groups if each.level == level.name]
    places = {code: place for place, code in enumerate(level.geocodes)} if own else {}
    # A group of tops of shards lies in several trees, and is known in the one above them.
    return [([places[code] for code in each.members], each.value) for each in own if {*each.members} <= {*places}]


def _with_totals(limits: AreaLimits, groups: Sequence[tuple[list[int], int]]) -> AreaLimits:
    """Return limits with the totals that are known of one area."""
    low, high = limits.low.copy(), limits.high.copy()
    for members, total in groups:
        if len(members) == 1:
            low[members, 0], high[members, 0] = np.maximum(low[members, 0], total), np.minimum(high[members, 0], total)
    return replace(limits, low=low, high=high)


def _as_sums(limits: AreaLimits, groups: Sequence[tuple[list[int], int]]) -> AreaLimits:
    """Return limits whose sums over areas are right where totals are known of groups of areas.

    The total of a group stands with its first member. All members have one parent.
    """
    low, high = limits.low.copy(), limits.high.copy()
    for members, total in groups:
        if len(members) > 1:
            low[members, 0] = high[members, 0] = [total, *[0] * (len(members) - 1)]
    return replace(limits, low=low, high=high)


def joined(parts: Sequence[AreaLimits]) -> AreaLimits:
    """Return the limits of areas one after the other."""
    margins = [each.margin for each in parts if each.margin is not None]
    return AreaLimits(
        allowed=np.concatenate([each.allowed for each in parts]),
        low=np.concatenate([each.low for each in parts]),
        high=np.concatenate([each.high for each in parts]),
        margin=np.concatenate(margins) if margins else None,
    )


def contradictions(rules: LimitGroups, level: Level, limits: AreaLimits) -> Iterator[str]:
    """Yield in words where an area would have to hold more than it may."""
    for area, group in np.argwhere(limits.low > limits.high)[:5]:
        yield (
            f"{level.name} {level.geocodes[area]!r} must hold at least {limits.low[area, group]:,} and at most "
            f"{limits.high[area, group]:,} ({rules.named(int(group))})"
        )


def margins_off(level: Level, own: AreaLimits, below: AreaLimits, parent: Places) -> Iterator[str]:
    """Yield in words where the margins of areas do not add up to that of the area around them."""
    if own.margin is None or below.margin is None:
        return
    sums = np.zeros(own.margin.shape, dtype=np.int64)
    np.add.at(sums, parent, below.margin)
    complete = np.all(own.margin >= 0, axis=1) & (np.bincount(parent, minlength=len(sums)) > 0)
    for area in np.flatnonzero(np.any(sums != own.margin, axis=1) & complete)[:5]:
        yield f"margins published of the areas inside {level.name} {level.geocodes[area]!r} do not add up to its own"


def unions(rules: LimitGroups, parent: AreaLimits, children: AreaLimits) -> Iterator[tuple[Flags, int]]:
    """Yield unions of groups of which a parent must hold more than its own limits say: rows of the grid, and how many.

    A child with the known total t holds at least t minus the most of all other groups (case 23). Both limits are
    tightened, and the parent's are one area's.
    """
    fixed = children.totals >= 0
    for query in range(len(rules.queries)):
        own = np.flatnonzero(rules.of_query == query)
        if not np.any(fixed) or not 2 < len(own) <= _MOST_UNIONS:
            continue
        for chosen in product((False, True), repeat=len(own)):
            some = np.array(chosen)
            if not 1 < some.sum() < len(own):
                continue
            inside, outside = own[some], own[~some]
            rest = np.where(fixed, children.low[:, 0] - children.high[:, outside].sum(axis=1), 0)
            needed = int(np.maximum(children.low[:, inside].sum(axis=1), rest).sum())
            implied = max(parent.low[0, inside].sum(), parent.low[0, 0] - parent.high[0, outside].sum())
            if needed > int(implied):
                yield rules.groups[inside].any(axis=0), needed


def with_unions(
    rules: LimitGroups, limits: AreaLimits, cuts: Sequence[tuple[Flags, int]]
) -> tuple[LimitGroups, AreaLimits]:
    """Return rules and limits with lower bounds on unions of groups more."""
    groups = np.concatenate([rules.groups, np.array([rows for rows, _ in cuts])])
    more = np.tile(np.array([least for _, least in cuts], dtype=np.int64), (len(limits.low), 1))
    wide = replace(
        limits,
        low=np.concatenate([limits.low, more], axis=1),
        high=np.concatenate([limits.high, np.full(more.shape, NO_LIMIT)], axis=1),
    )
    of_query = np.concatenate([rules.of_query, np.full(len(cuts), -2)])
    return replace(rules, groups=groups, of_query=of_query), wide


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverMethod:
    """How areas are solved for: from all measurements of their subtrees or their own alone, and how is rounded.

    Rounding minimises distances along the chain. ``pre_rounded`` is 0 for distances interpolated between whole numbers
    (documented), 1 for distances from values rounded beforehand (production), 2 for the latter in groups and the former
    in cells. ``totals_first`` settles totals before all else at all levels between the top and the leaves. Else they
    come first where they are measured well, and so do margins at the top.
    """

    name: str
    bottom_up: bool = True
    pre_rounded: int = 0
    totals_first: bool = False

    def weights(self, levels: int) -> Places:
        """Return the weight of each level of the chain, and of cells, when counts are rounded."""
        found = np.ones(levels + 1, dtype=np.int64)
        found[0] = _LEXICOGRAPHIC if self.totals_first else 1
        return found

    def settles_totals(self, level: Level, *, place: int, depth: int) -> bool:
        """Say whether the totals of the areas of a level are fixed before their cells.

        A single pass is best at the leaves, where totals are known from cells: a leaf total pass raised the error of
        leaf totals by half (section 1.4). Totals are measured well if they are so as precisely as the finest query.
        """
        if not 0 < place < depth - 1:
            return False
        if self.totals_first or not level.answers:
            return True
        finest = max(level.answers, key=lambda each: each.query.size)
        total = [each for each in level.answers if each.query.size == 1]
        return bool(total and np.median(total[0].precision) >= np.median(finest.precision))


METHODS: Final[Mapping[str, SolverMethod]] = {
    method.name: method
    for method in (
        SolverMethod(name="default"),
        SolverMethod(name="blue", pre_rounded=2, totals_first=True),
        SolverMethod(name="bureau", bottom_up=False, pre_rounded=1, totals_first=True),
    )
}
