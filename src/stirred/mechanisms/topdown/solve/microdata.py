"""From the top of a hierarchy down to its leaves: whole counts in every area that keep all that is known.

The areas above the shards (counties, say) are solved first, then shard by shard, so that memory does not grow with the
number of leaves. Each parent is a problem of its own: the counts are the same on any number of threads, and a run that
was interrupted goes on at the level where it stopped.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.topdown.estimated import groups_inside, regrouped
from stirred.mechanisms.topdown.estimates import Floor, Model, Upward, summary, upward
from stirred.mechanisms.topdown.schema import Schema
from stirred.mechanisms.topdown.solve.arms import Arm
from stirred.mechanisms.topdown.solve.grid import Places
from stirred.mechanisms.topdown.solve.limits import (
    Limits,
    Rules,
    contradictions,
    implied,
    is_bound,
    joined,
    limits_up,
    margins_off,
    tightened,
    unions,
    with_unions,
)
from stirred.mechanisms.topdown.solve.margins import Margin, margins_of
from stirred.mechanisms.topdown.solve.objective import (
    Objective,
    bottom_up_objective,
    collapsed,
    first_of,
    inherited,
    model_on,
    own_objective,
    stacked,
)
from stirred.mechanisms.topdown.solve.public import Fit, fitted, moments, with_public
from stirred.mechanisms.topdown.solve.rounding import Chain
from stirred.mechanisms.topdown.solve.step import Event, Solved, Stage, solve_children, without_parents
from stirred.mechanisms.topdown.tree import Answers, GroupTotal, Level, Tree
from stirred.spec.problems import Problem

Progress = Callable[[str, int, int], None]
A = TypeVar("A")
B = TypeVar("B")
_LEAST_VARIANCE: Final = 1e-4
_AT_ONCE: Final = 16  # parents that a thread takes together
_REMEMBERED: Final = 1 << 29  # bytes of objectives that are kept between the two passes over shards


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """The counts of the areas of a level, without zeros; those of area i are ``cells[starts[i] : starts[i + 1]]``."""

    starts: Places
    cells: Places
    counts: Places

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Places, Places]]) -> Counts:
        """Return the counts of areas given one by one as cells and counts."""
        kept = [(cells[counts != 0], counts[counts != 0]) for cells, counts in rows]
        none = np.zeros(0, dtype=np.int64)
        return cls(
            starts=np.cumsum([0, *(len(cells) for cells, _ in kept)]).astype(np.int64),
            cells=np.concatenate([none, *(cells for cells, _ in kept)]),
            counts=np.concatenate([none, *(counts for _, counts in kept)]),
        )

    def __getitem__(self, area: int) -> tuple[Places, Places]:
        own = slice(self.starts[area], self.starts[area + 1])
        return self.cells[own], self.counts[own]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def summed(self, parent: Places, areas: int) -> Counts:
        """Return the counts of the areas above, of which these are the children, side by side."""
        area = parent[np.repeat(np.arange(len(self)), np.diff(self.starts))]
        size = int(self.cells.max(initial=0)) + 1
        keys, place = np.unique(area * size + self.cells, return_inverse=True)
        counts = np.zeros(len(keys), dtype=np.int64)
        np.add.at(counts, place.reshape(-1), self.counts)
        starts = np.searchsorted(keys, np.arange(areas + 1) * size).astype(np.int64)
        return Counts(starts=starts, cells=keys % size, counts=counts)

    def dense(self, size: int) -> Places:
        """Return the histograms (areas, cells)."""
        found = np.zeros((len(self), size), dtype=np.int64)
        found[np.repeat(np.arange(len(self)), np.diff(self.starts)), self.cells] = self.counts
        return found


class Source(Protocol):
    """Where measurements come from: the areas above the shards, and the shards, each as a tree of its own.

    The lowest level of ``top`` are the areas at the top of the shards, in their order; what was measured there, and is
    known of them, belongs to the shards. ``top`` is None where there is one shard with everything.
    """

    @property
    def schema(self) -> Schema:
        """Return the schema of all trees."""
        ...

    def top(self) -> Tree | None:
        """Return the areas above the shards."""
        ...

    def shards(self) -> Iterator[Tree]:
        """Yield the shards, as often as it is asked for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """A tree in memory as a source."""

    tree: Tree

    @property
    def schema(self) -> Schema:
        """Return the schema."""
        return self.tree.schema

    def top(self) -> Tree | None:
        """Return that nothing is above."""
        return None

    def shards(self) -> Iterator[Tree]:
        """Yield the tree."""
        yield self.tree


class Keeper(Protocol):
    """Keeps the counts of levels that are done, so that a run can go on after an interruption."""

    def load(self, name: str) -> Mapping[str, npt.NDArray[Any]] | None:
        """Return the arrays that were kept under a name."""
        ...

    def save(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays, completely or not at all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrounded:
    """The children of one parent before rounding."""

    parent: str
    children: tuple[str, ...]
    cells: Places = field(compare=False)
    values: npt.NDArray[np.float64] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """One tree, solved: the counts of each of its levels from the top, and what happened."""

    tree: Tree
    levels: tuple[Counts, ...]
    is_top: bool
    events: tuple[Event, ...] = ()
    unrounded: tuple[Unrounded, ...] = ()
    parents: int = 0
    iterations: int = 0
    largest_gap: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """How to solve: the arm, known totals of groups of areas, given parents, threads, and what to keep.

    ``public`` has a count of each leaf by geocode that is used if it fits (:mod:`public`).
    """

    arm: Arm
    groups: tuple[GroupTotal, ...] = ()
    parents: Mapping[tuple[str, str], tuple[Places, Places]] = field(default_factory=dict)  # (level, geocode): counts
    public: Mapping[str, int] | None = None
    keep_unrounded: bool = False
    threads: int = 1
    keeper: Keeper | None = None
    progress: Progress | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """What all trees share."""

    settings: Settings
    rules: Rules
    chain: Chain
    model: Model
    pattern: Mapping[str, Level]  # for each level one with its answers, from which is decided how to proceed
    names: tuple[str, ...]  # of all levels, from the top
    fit: Fit | None = None  # of public counts, where they are given

    def totals_first(self, name: str) -> bool:
        return self.settings.arm.totals_first(self.pattern[name], place=self.names.index(name), depth=len(self.names))

    def telling(self, piece: Piece) -> Piece:
        """Return the first piece with what was decided on public counts among its events."""
        if self.fit is None:
            return piece
        what, why = self.fit.told
        area, amount = piece.tree.levels[0].geocodes[0], self.fit.phi if np.isfinite(self.fit.phi) else 0.0
        event = Event(level=self.names[-1], area=area, what=what, why=why, amount=amount)
        return replace(piece, events=(event, *piece.events))


def solve(source: Source, settings: Settings) -> Iterator[Piece]:
    """Yield the solved trees: first the areas above the shards if there are any, then the shards in their order."""
    above = source.top()
    top = None if above is None else _usable(above)
    plan = _planned(source, top, settings)
    if top is None:
        for shard in map(_usable, source.shards()):
            found = _solved(plan, shard, _limits(plan, shard.levels), _objectives(plan, shard), given=None)
            yield plan.telling(found)
        return
    limits, tops, size = [], [], 0
    beneath: dict[str, Floor] = {}
    kept: dict[int, list[Objective]] = {}
    alone = replace(plan, settings=replace(settings, threads=1, progress=None))

    def bottom_up(shard: Tree) -> tuple[Limits, list[Objective]]:
        return _limits(plan, shard.levels)[0], _objectives(plan, shard, beneath)

    for place, (own, objectives) in enumerate(_in_order(bottom_up, map(_usable, source.shards()), settings.threads)):
        limits.append(own.take(slice(0, 1)))
        tops.append(first_of(objectives[0]))
        size += sum(each.linear.nbytes for each in objectives if each.linear is not None)
        if size <= _REMEMBERED:
            kept[place] = [replace(each, answers=()) for each in objectives]
        _tell(settings, "bottom-up", place + 1, len(top.levels[-1].geocodes))
    upper = _solved(
        plan,
        top,
        _limits(plan, top.levels, beneath=joined(limits)),
        _upper_objectives(plan, top, beneath, tops),
        given=None,
        is_top=True,
    )
    yield plan.telling(upper)

    def top_down(numbered: tuple[int, Tree]) -> Piece:
        place, shard = numbered
        objectives = kept.pop(place) if place in kept else _objectives(plan, shard)
        objectives[-1] = replace(objectives[-1], answers=shard.levels[-1].answers)
        return _solved(alone, shard, _limits(plan, shard.levels), objectives, given=upper.levels[-1][place])

    shards = enumerate(map(_usable, source.shards()))
    for place, piece in enumerate(_in_order(top_down, shards, settings.threads)):
        yield piece
        _tell(settings, "top-down", place + 1, len(upper.levels[-1]))


def _in_order(work: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """Yield what work makes of items, in their order; only as many are under way as there are threads, and one more."""
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _planned(source: Source, top: Tree | None, settings: Settings) -> _Plan:
    # All shards: a later one may have queries and limits that the first has not.
    trees, leaves = [] if top is None else [top], []
    for shard in map(_usable, source.shards()):
        trees.append(_sketch(shard))
        if settings.public is not None:
            leaves.append(moments(shard.levels[-1], settings.public))
    queries = [*dict.fromkeys(each.query for tree in trees for level in tree.levels for each in level.answers)]
    rules = Rules.of(trees)
    upper = () if top is None else top.levels[:-1]
    below = zip(*(tree.levels for tree in trees[top is not None :]), strict=True)
    pattern = {level.name: level for level in (*upper, *map(_side_by_side, below))}
    names = tuple(pattern)
    if not queries:
        raise bad_plan("there are no measurements", where="measurements", remedy="name a folder or file that has some")
    for each in settings.groups:
        if each.level not in pattern:
            raise bad_plan(
                f"totals are given for the level '{each.level}', which is not there", where="totals", remedy=""
            )
    return _Plan(
        settings=settings,
        rules=rules,
        chain=Chain.of(source.schema, rules),
        model=model_on(rules.grid, queries),
        pattern=pattern,
        names=names,
        fit=fitted(leaves) if leaves else None,
    )


def _sketch(tree: Tree) -> Tree:
    """Return what decides how to proceed, without areas: queries, variances above the leaves, and kinds of limits."""
    levels = []
    for place, level in enumerate(tree.levels):
        spread = slice(None) if place < len(tree.levels) - 1 else slice(0, 0)
        answers = (Answers(query=a.query, values=a.values[:0], variance=a.variance[spread]) for a in level.answers)
        known = (
            replace(each, values=each.values[bound : bound + 1], given=np.array([each.given.all()]))
            for each in level.known
            for bound in (int(is_bound(each.values).any(axis=1).argmax()),)
        )
        none = np.zeros(0, dtype=np.int64)
        levels.append(Level(name=level.name, geocodes=(), parent=none, answers=tuple(answers), known=tuple(known)))
    return replace(tree, levels=tuple(levels))


def _side_by_side(levels: Sequence[Level]) -> Level:
    """Return one level of all shards; where one does not ask what another asks, it has an infinite variance."""
    queries = dict.fromkeys(each.query for level in levels for each in level.answers)
    most = [max((each.variance.size for each in level.answers), default=0) for level in levels]
    answers = []
    for query in queries:
        own = ({each.query: each.variance for each in level.answers}.get(query) for level in levels)
        spread = [np.full(many, np.inf) if each is None else each for many, each in zip(most, own, strict=True)]
        none = np.zeros((0, query.size), dtype=np.int64)
        answers.append(Answers(query=query, values=none, variance=np.concatenate(spread)))
    return replace(levels[0], answers=tuple(answers))


def _usable(tree: Tree) -> Tree:
    """Return a tree whose noise has a variance that numbers can hold; below the least one, rounding decides anyway."""
    levels = []
    for level in tree.levels:
        answers = [replace(each, variance=np.maximum(each.variance, _LEAST_VARIANCE)) for each in level.answers]
        levels.append(replace(level, answers=tuple(answers)))
    return replace(tree, levels=tuple(levels))


def _tell(settings: Settings, stage: str, done: int, whole: int) -> None:
    if settings.progress is not None:
        settings.progress(stage, done, whole)


# ---- limits and objectives of a tree ----------------------------------------------------------------------


def _limits(plan: _Plan, levels: Sequence[Level], *, beneath: Limits | None = None) -> list[Limits]:
    """Return the limits of all levels, known totals of groups included; stop where they contradict each other."""
    found = limits_up(plan.rules, levels, beneath=beneath, groups=plan.settings.groups)
    problems = [
        Problem(what=text, where="constraints", remedy="correct the limits of this area or of those inside it")
        for level, own in zip(levels, found, strict=True)
        for text in contradictions(plan.rules, level, tightened(plan.rules, own))
    ]
    for level, own, below, inside in zip(levels, found, found[1:], levels[1:], strict=False):
        for text in margins_off(level, own, below, inside.parent):
            problems.append(Problem(what=text, where="constraints", remedy="give one release, of all areas"))
        if childless := np.flatnonzero(np.bincount(inside.parent, minlength=level.areas) == 0).tolist():
            names = listed([level.geocodes[area] for area in childless[:5]])
            what = f"{level.name} {names} has no {inside.name} inside it, so that its records have no place"
            problems.append(Problem(what=what, where="measurements", remedy="give all areas down to the leaves"))
    if problems:
        raise PlanError(problems)
    return found


def _objectives(plan: _Plan, tree: Tree, beneath: dict[str, Floor] | None = None) -> list[Objective]:
    """Return the objectives of all levels of a tree; note in ``beneath`` what it says of its top."""
    grid, arm = plan.rules.grid, plan.settings.arm
    leaves = own_objective(grid, tree.levels[-1], dense=False)
    if not arm.bottom_up:
        upper = inherited(tree.levels)[:-1]
        _require_measured(plan, upper[0] if upper else tree.levels[0])
        return [*(own_objective(grid, level, dense=True) for level in upper), leaves]
    groups, linear = _groups_in(plan, tree), _without_margin(plan, tree)
    if not any(each.level == tree.names[-1] for each in groups):  # a group of leaves needs each of them
        linear = collapsed(linear, plan.model)
    up = upward(plan.model, regrouped(linear, groups))
    if beneath is not None:
        beneath[tree.levels[0].geocodes[0]] = summary(up)
    floors = _floors(up, tree) if len(tree.levels) == 1 else _floors(up, tree)[:-1]
    found = [bottom_up_objective(grid, plan.model, floor) for floor in floors]
    found[0] = replace(found[0], margins=_margins(plan, floors[0]))
    return found if len(tree.levels) == 1 else [*found, leaves]


def _margins(plan: _Plan, floor: Floor) -> tuple[Margin, ...]:
    """Return the margins that come first in the area at the very top."""
    if not plan.settings.arm.margins or floor.level.name != plan.names[0] or plan.rules.margin is not None:
        return ()
    measured = (each.query for level in plan.pattern.values() for each in level.answers)
    return margins_of(plan.rules.grid, plan.model, floor, measured)


def _require_measured(plan: _Plan, top: Level) -> None:
    """Refuse an area at the very top that an arm knows nothing of."""
    if top.name == plan.names[0] and not any(np.isfinite(each.variance).any() for each in top.answers):
        what = f"the arm '{plan.settings.arm.name}' uses the measurements of each level alone, and the top has none"
        raise bad_plan(what, where="arm", remedy="use the arm 'default', or give measurements of the top")


def _without_margin(plan: _Plan, tree: Tree) -> Tree:
    """Return a tree for the linear estimates: an earlier release binds the counts, and is no measurement of them."""
    margin = plan.rules.margin
    if margin is None:
        return tree
    levels = [replace(each, known=tuple(k for k in each.known if not implied(k, margin))) for each in tree.levels]
    return replace(tree, levels=tuple(levels))


def _groups_in(plan: _Plan, tree: Tree) -> list[GroupTotal]:
    """Return the groups of a tree; of a shard those below its top, which is one of the areas above the shards."""
    if tree.levels[0].name == plan.names[0]:
        return [each for each in plan.settings.groups if each.level in tree.names]
    return groups_inside(tree, plan.settings.groups)


def _floors(up: Upward, tree: Tree) -> list[Floor]:
    """Return the levels of a tree, without those of groups between them."""
    return [floor for floor in up.floors if floor.level.name in tree.names]


def _upper_objectives(
    plan: _Plan, top: Tree, beneath: Mapping[str, Floor], tops: Sequence[Objective]
) -> list[Objective]:
    grid = plan.rules.grid
    if plan.settings.arm.bottom_up:
        up = upward(plan.model, regrouped(_without_margin(plan, top), _groups_in(plan, top)), beneath=beneath)
        floors = _floors(up, top)
        found = [bottom_up_objective(grid, plan.model, floor) for floor in floors]
        return [replace(found[0], margins=_margins(plan, floors[0])), *found[1:]]
    _require_measured(plan, top.levels[0])
    return [*(own_objective(grid, level, dense=True) for level in top.levels[:-1]), stacked(tops)]


# ---- down a tree ------------------------------------------------------------------------------------------


def _solved(
    plan: _Plan,
    tree: Tree,
    limits: Sequence[Limits],
    objectives: Sequence[Objective],
    *,
    given: tuple[Places, Places] | None,
    is_top: bool = False,
) -> Piece:
    """Return a tree with the counts of all its levels; ``given`` are those of its top."""
    levels: list[Counts] = []
    events: list[Event] = []
    unrounded: list[Unrounded] = []
    parents, iterations, gap = 0, 0, 0.0
    for place, level in enumerate(tree.levels):
        name = f"{tree.levels[0].geocodes[0]}-{is_top:d}-{place}"
        if place == 0 and given is not None:
            levels.append(Counts.of_rows([given]))
            continue
        kept = plan.settings.keeper.load(name) if plan.settings.keeper is not None else None
        if kept is not None:
            levels.append(Counts(starts=kept["starts"], cells=kept["cells"], counts=kept["counts"]))
            events += [Event(**each) for each in json.loads(kept["events"].tobytes())]
            parents, iterations = parents + int(kept["done"][0]), iterations + int(kept["done"][1])
            gap = max(gap, float(kept["done"][2]))
            continue
        objective = objectives[place]
        if level.name == plan.names[-1] and place > 0 and not is_top:
            objective = _leaf_objective(plan, objective, tree.levels[place - 1], level, levels[-1])
        stage = _stage(plan, level, limits[place], objective)
        if place == 0:
            below = limits[1] if len(limits) > 1 else None
            found = [_root(stage, level, below)]
        else:
            found = _level(plan, stage, tree.levels[place - 1], level, levels[-1])
        levels.append(Counts.of_rows([(each.cells, row) for each in found for row in each.counts]))
        own = [event for each in found for event in each.events]
        done = len(found), sum(each.iterations for each in found), max(each.gap for each in found)
        events += own
        parents, iterations, gap = parents + done[0], iterations + done[1], max(gap, done[2])
        if plan.settings.keep_unrounded and place > 0:
            unrounded += _kept_unrounded(tree.levels[place - 1], level, found)
        if plan.settings.keeper is not None:
            last = levels[-1]
            told = np.frombuffer(json.dumps([asdict(event) for event in own]).encode(), dtype=np.uint8)
            arrays = {"starts": last.starts, "cells": last.cells, "counts": last.counts}
            plan.settings.keeper.save(name, {**arrays, "events": told, "done": np.array(done)})
    if any(event.moves for event in events):
        # The failsafe moved counts of an area after it was decided on: those above it follow from the leaves.
        for place in range(len(levels) - 2, -1, -1):
            levels[place] = levels[place + 1].summed(tree.levels[place + 1].parent, tree.levels[place].areas)
    return Piece(
        tree=tree,
        levels=tuple(levels),
        is_top=is_top,
        events=tuple(events),
        unrounded=tuple(unrounded),
        parents=parents,
        iterations=iterations,
        largest_gap=gap,
    )


def _leaf_objective(plan: _Plan, objective: Objective, above: Level, level: Level, counts: Counts) -> Objective:
    """Return the objective of leaves, with public counts in it if these fit."""
    if plan.fit is None or plan.settings.public is None or not plan.fit.used:
        return objective
    given = plan.settings.parents
    own = [given.get((above.name, code), counts[place])[1].sum() for place, code in enumerate(above.geocodes)]
    return with_public(objective, level, plan.settings.public, plan.fit, np.array(own, dtype=np.float64))


def _stage(plan: _Plan, level: Level, limits: Limits, objective: Objective) -> Stage:
    group = np.zeros(level.areas, dtype=np.int64)
    group_total = [-1]
    places = {code: place for place, code in enumerate(level.geocodes)}
    for each in plan.settings.groups:
        members = [places[code] for code in each.members if code in places]
        if each.level == level.name and len(members) > 1:
            group[members] = len(group_total)
            group_total.append(each.value)
    return Stage(
        name=level.name,
        rules=plan.rules,
        objective=objective,
        limits=limits,
        chain=plan.chain,
        rounder=plan.settings.arm.rounder,
        totals_first=plan.totals_first(level.name),
        geocodes=level.geocodes,
        group=group,
        group_total=np.array(group_total, dtype=np.int64),
        keep_unrounded=plan.settings.keep_unrounded,
    )


def _root(stage: Stage, level: Level, below: Limits | None) -> Solved:
    """Return the area at the top; it keeps what follows from known totals of its children (case 23)."""
    found = without_parents(stage, level.geocodes[0])
    if below is None:
        return found
    rules = stage.rules
    cuts = [*unions(rules, tightened(rules, stage.limits), tightened(rules, below))]
    row = rules.grid.place[found.cells] // rules.grid.lattice.width
    if all(found.counts[0][rows[row]].sum() >= least for rows, least in cuts):
        return found
    rules, limits = with_unions(rules, stage.limits, cuts)
    return without_parents(replace(stage, rules=rules, limits=limits), level.geocodes[0])


def _level(plan: _Plan, stage: Stage, above: Level, level: Level, counts: Counts) -> list[Solved]:
    """Return the children of all parents of a level, in order."""
    starts = level.starts(above.areas)
    given = plan.settings.parents

    def one(parent: int) -> Solved:
        code = above.geocodes[parent]
        cells, own = given.get((above.name, code), counts[parent])
        return solve_children(stage, code, cells, own, slice(int(starts[parent]), int(starts[parent + 1])))

    def some(first: int) -> list[Solved]:
        return [one(parent) for parent in range(first, min(first + _AT_ONCE, above.areas))]

    firsts = range(0, above.areas, _AT_ONCE)
    found: list[Solved] = []
    with ThreadPoolExecutor(max(1, plan.settings.threads)) as pool:
        for part in pool.map(some, firsts) if plan.settings.threads > 1 else map(some, firsts):
            found += part
            _tell(plan.settings, level.name, len(found), above.areas)
    return found


def _kept_unrounded(above: Level, level: Level, found: Sequence[Solved]) -> Iterator[Unrounded]:
    starts = level.starts(above.areas)
    for place, each in enumerate(found):
        if each.values is not None:
            children = level.geocodes[starts[place] : starts[place + 1]]
            yield Unrounded(parent=above.geocodes[place], children=children, cells=each.cells, values=each.values)
