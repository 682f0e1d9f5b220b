"""From the top of a hierarchy down to its leaves: whole counts in every area that keep all that is known.

The areas above the shards (counties, say) are solved first, then shard by shard, so that memory does not grow with the
number of leaves. Each shard is a task of its own: the counts are the same on any number of threads or machines, and a
run that was interrupted goes on at the level where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
import polars as pl

from stirred.data.problems import PlanError, bad_plan, listed
from stirred.engines.blas import one_blas_thread
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import Engine
from stirred.mechanisms.topdown.hierarchy.least_squares import LevelEstimates, SubspaceModel, UpwardPass, at, upward
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery
from stirred.mechanisms.topdown.hierarchy.tree import (
    Answers,
    Counts,
    GroupTotal,
    Level,
    Shard,
    Tree,
    groups_inside,
    opened,
    regrouped,
)
from stirred.mechanisms.topdown.solve.objective import (
    Objective,
    bottom_up_objective,
    collapsed,
    inherited,
    margins_of,
    model_on,
    own_objective,
)
from stirred.mechanisms.topdown.solve.parent import (
    ChildCounts,
    LevelStep,
    SolverEvent,
    SolverReport,
    solve_children,
    solve_top,
)
from stirred.mechanisms.topdown.solve.problem import (
    AreaLimits,
    LimitGroups,
    SolverMethod,
    contradictions,
    implied,
    is_bound,
    joined,
    limits_up,
    margins_off,
    members_in,
    tightened,
)
from stirred.spec.problems import Problem

Shards = Callable[[], Iterable[Shard]]  # called as often as they are gone through
Finish = Callable[[int, "TreeCounts"], Any]
_LEAST_VARIANCE: Final = 1e-4
_REMEMBERED: Final = 1 << 29  # bytes of objectives that are kept between the two passes over shards
_AT_ONCE: Final = 16  # parents that a thread takes together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveOptions:
    """How to solve: the method, known totals of groups of areas, where and on how many threads.

    Shards run on ``engine``, or else on the threads that areas above them have too.
    """

    method: SolverMethod
    groups: tuple[GroupTotal, ...] = ()
    threads: int = 1
    engine: Engine | None = None
    store: LevelStore | None = None
    progress: Callable[[str, int, int], None] | None = None

    def report(self, stage: str, done: int, whole: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, whole)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelCounts(SolverReport):
    """The counts of the areas of a level, and what happened."""

    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeCounts(SolverReport):
    """The counts of each level of a tree from its top, and what happened."""

    tree: Tree
    levels: tuple[Counts, ...]
    is_top: bool  # whether these are the areas above the shards

    @property
    def leaves(self) -> pl.DataFrame:
        """Return the counts of the leaves as they are published."""
        return self.levels[-1].frame(self.tree.schema, self.tree.levels[-1].geocodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStore:
    """Levels that are done, in a folder; those of a run with other measurements or settings are not taken."""

    folder: Path
    mark: str  # of measurements and settings

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(f"{self.mark} {name}".encode()).hexdigest()[:24]
        return self.folder / f"{digest}.npz"

    def load(self, name: str) -> LevelCounts | None:
        """Return the level that was kept under a name; None if there is none, or it is damaged."""
        try:
            with self._path(name).open("rb") as stream, np.load(stream) as kept:
                report = json.loads(kept["report"].tobytes())
                report["events"] = tuple(SolverEvent(**each) for each in report["events"])
                counts = Counts(starts=kept["starts"], cells=kept["cells"], counts=kept["counts"])
                return LevelCounts(counts=counts, **report)
        except (OSError, ValueError, EOFError, BadZipFile):
            return None

    def save(self, name: str, level: LevelCounts) -> None:
        counts = level.counts
        report = SolverReport.of([level])
        report["events"] = [asdict(each) for each in level.events]
        written = np.frombuffer(json.dumps(report).encode(), dtype=np.uint8)
        with replacing(self._path(name)) as writing, writing.open("wb") as stream:
            np.savez(stream, starts=counts.starts, cells=counts.cells, counts=counts.counts, report=written)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file that becomes ``path`` once it is complete; another attempt may write the same at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f"{uuid4().hex}.writing")
    yield writing
    os.replace(writing, path)


# ---- what all trees share ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Strategy:
    """What is decided once from all shards, before the first of them is solved."""

    options: SolveOptions
    rules: LimitGroups
    model: SubspaceModel
    names: tuple[str, ...]  # of all levels, from the top
    totals_first: frozenset[str]  # levels at which totals are fixed before cells
    measured: tuple[MarginalQuery, ...]

    @classmethod
    def of(cls, shards: Shards, top: Tree | None, options: SolveOptions, engine: Engine) -> Strategy:
        """Return the strategy of all shards: a later one may have queries and limits that the first has not."""
        sketches = [*engine.map_groups(shards(), _sketch)]
        trees = sketches if top is None else [top, *sketches]
        queries = [*dict.fromkeys(each.query for tree in trees for level in tree.levels for each in level.answers)]
        rules = LimitGroups.of(trees)
        upper = () if top is None else top.levels[:-1]
        below = zip(*(tree.levels for tree in sketches), strict=True)
        pattern = {level.name: level for level in (*upper, *map(_side_by_side, below))}
        if not queries:
            remedy = "name a folder or file that has some"
            raise bad_plan("there are no measurements", where="measurements", remedy=remedy)
        for each in options.groups:
            if each.level not in pattern:
                what = f"totals are given for the level '{each.level}', which is not there"
                raise bad_plan(what, where="totals", remedy="")
        first, depth = options.method.settles_totals, len(pattern)
        return cls(
            options=options,
            rules=rules,
            model=model_on(rules.grid, queries),
            names=tuple(pattern),
            totals_first=frozenset(
                name for place, (name, each) in enumerate(pattern.items()) if first(each, place=place, depth=depth)
            ),
            measured=tuple(each.query for level in pattern.values() for each in level.answers),
        )

    @one_blas_thread()
    def limits(self, levels: Sequence[Level], *, beneath: AreaLimits | None = None) -> list[AreaLimits]:
        """Return the limits of all levels, known totals of groups included; stop where they contradict each other."""
        found = limits_up(self.rules, levels, beneath=beneath, groups=self.options.groups)
        problems = [
            Problem(what=text, where="constraints", remedy="correct the limits of this area or of those inside it")
            for level, own in zip(levels, found, strict=True)
            for text in contradictions(self.rules, level, tightened(self.rules, own))
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

    @one_blas_thread()
    def objectives(self, tree: Tree, beneath: dict[str, LevelEstimates | Level] | None = None) -> list[Objective]:
        """Return the objectives of all levels above the leaves; note in ``beneath`` what a shard says of its top."""
        names, code = tree.names[:-1] or tree.names, tree.levels[0].geocodes[0]
        if not self.options.method.bottom_up:
            levels = inherited(tree.levels)[: len(names)]
            if beneath is not None:
                beneath[code] = levels[0]
            return self._own_objectives(levels)
        groups, linear = self._groups_in(tree), self._without_margin(tree)
        if not any(each.level == tree.names[-1] for each in groups):  # a group of leaves needs each of them
            linear = collapsed(linear, self.model)
        up = upward(self.model, regrouped(linear, groups))
        if beneath is not None:
            beneath[code] = at(up.by_level[0], 0)
        return self._bottom_up(up, names)

    @one_blas_thread()
    def upper_objectives(self, top: Tree, beneath: Mapping[str, LevelEstimates | Level]) -> list[Objective]:
        """Return the objectives of the areas above shards, given what the shards say of their tops."""
        if self.options.method.bottom_up:
            known = {code: each for code, each in beneath.items() if isinstance(each, LevelEstimates)}
            up = upward(self.model, regrouped(self._without_margin(top), self._groups_in(top)), beneath=known)
            return self._bottom_up(up, top.names)
        tops = [each for each in map(beneath.get, top.levels[-1].geocodes) if isinstance(each, Level)]
        return self._own_objectives([*top.levels[:-1], _side_by_side(tops)])

    def _bottom_up(self, up: UpwardPass, names: Sequence[str]) -> list[Objective]:
        """Return the objectives of levels from their estimates; margins come first in the area at the very top."""
        by_level = [estimates for estimates in up.by_level if estimates.level.name in names]
        found = [bottom_up_objective(self.rules.grid, estimates) for estimates in by_level]
        if not self.options.method.totals_first and names[0] == self.names[0] and self.rules.margin is None:
            found[0] = replace(found[0], margins=margins_of(self.rules.grid, by_level[0], self.measured))
        return found

    def _own_objectives(self, levels: Sequence[Level]) -> list[Objective]:
        """Return the objectives of levels from their own measurements; refuse a very top that has none."""
        top = levels[0]
        if top.name == self.names[0] and not any(np.isfinite(each.variance).any() for each in top.answers):
            what = (
                f"the arm '{self.options.method.name}' uses the measurements of each level alone, and the top has none"
            )
            raise bad_plan(what, where="arm", remedy="use the arm 'default', or give measurements of the top")
        return [own_objective(self.rules.grid, level) for level in levels]

    def _without_margin(self, tree: Tree) -> Tree:
        """Return a tree for the linear estimates: an earlier release binds the counts, and does not measure them."""
        margin = self.rules.margin
        if margin is None:
            return tree
        levels = [replace(each, known=tuple(k for k in each.known if not implied(k, margin))) for each in tree.levels]
        return replace(tree, levels=tuple(levels))

    def _groups_in(self, tree: Tree) -> list[GroupTotal]:
        """Return the groups of a tree; of a shard those below its top, which is one of the areas above the shards."""
        if tree.levels[0].name == self.names[0]:
            return [each for each in self.options.groups if each.level in tree.names]
        return groups_inside(tree, self.options.groups)

    def step(self, level: Level, limits: AreaLimits, objective: Objective) -> LevelStep:
        """Return what all parents of a level share."""
        group, group_total = np.zeros(level.areas, dtype=np.int64), [-1]
        for members, total in members_in(level, self.options.groups):
            if len(members) > 1:
                group[members] = len(group_total)
                group_total.append(total)
        return LevelStep(
            level=level,
            rules=self.rules,
            objective=objective,
            limits=limits,
            method=self.options.method,
            totals_first=level.name in self.totals_first,
            group=group,
            group_total=np.array(group_total, dtype=np.int64),
        )


def _sketch(shard: Shard) -> Tree:
    """Return what decides how to proceed, without areas: queries, variances above the leaves, and kinds of limits."""
    tree, levels, none = _usable(shard), list[Level](), np.zeros(0, dtype=np.int64)
    for place, level in enumerate(tree.levels):
        spread = slice(None) if place < len(tree.levels) - 1 else slice(0, 0)
        answers = (replace(each, values=each.values[:0], variance=each.variance[spread]) for each in level.answers)
        known = (
            replace(each, values=each.values[bound : bound + 1], given=np.array([each.given.all()]))
            for each in level.known
            for bound in (int(is_bound(each.values).any(axis=1).argmax()),)
        )
        levels.append(Level(name=level.name, geocodes=(), parent=none, answers=tuple(answers), known=tuple(known)))
    return replace(tree, levels=tuple(levels))


def _side_by_side(levels: Sequence[Level]) -> Level:
    """Return one level of all shards; where one does not ask what another asks, it has an infinite variance."""
    answers = []
    for query in dict.fromkeys(each.query for level in levels for each in level.answers):
        parts = []
        for level in levels:
            # A sketch has variances without areas.
            blank = np.full(max([level.areas, *(each.variance.size for each in level.answers)]), np.inf)
            nothing = Answers(query=query, values=np.zeros((level.areas, query.size), dtype=np.int64), variance=blank)
            parts.append(next((each for each in level.answers if each.query == query), nothing))
        values = np.concatenate([each.values for each in parts])
        answers.append(Answers(query=query, values=values, variance=np.concatenate([each.variance for each in parts])))
    codes = tuple(code for level in levels for code in level.geocodes)
    return replace(levels[0], geocodes=codes, answers=tuple(answers))


def _usable(shard: Shard) -> Tree:
    """Return a tree whose noise has a variance that numbers can hold; below the least one, rounding decides anyway."""
    tree, levels = opened(shard), []
    for level in tree.levels:
        answers = [replace(each, variance=np.maximum(each.variance, _LEAST_VARIANCE)) for each in level.answers]
        levels.append(replace(level, answers=tuple(answers)))
    return replace(tree, levels=tuple(levels))


# ---- all trees --------------------------------------------------------------------------------------------


def _as_solved(number: int, tree: TreeCounts) -> TreeCounts:
    return tree


def solve(
    shards: Shards, options: SolveOptions, finish: Finish = _as_solved, *, top: Tree | None = None
) -> Iterator[Any]:
    """Yield the solved trees: first the areas above the shards if there are any, then the shards in their order.

    They are :class:`TreeCounts`, or what ``finish`` makes of these and their numbers, there where they are solved. Of
    ``top``, the areas above the shards, see :class:`Measurements`.
    """
    engine = options.engine or LocalEngine(threads=options.threads)
    top = None if top is None else _usable(top)
    strategy = Strategy.of(shards, top, options, engine)
    if top is None:
        for number, tree in enumerate(map(_usable, shards())):
            yield finish(number, _go_down(strategy, tree, strategy.limits(tree.levels), strategy.objectives(tree)))
        return
    alone = replace(options, threads=1, engine=None, progress=None)  # a task has no threads, and reports nothing
    task = _ShardTask(strategy=replace(strategy, options=alone), finish=finish)
    limits = []
    beneath: dict[str, LevelEstimates | Level] = {}
    for limit, own in engine.map_groups(enumerate(shards()), task.up):
        limits.append(limit)
        beneath.update(own)
        options.report("bottom-up", len(limits), top.levels[-1].areas)
    upper_limits = strategy.limits(top.levels, beneath=joined(limits))
    upper = _go_down(strategy, top, upper_limits, strategy.upper_objectives(top, beneath), is_top=True)
    yield finish(0, upper)
    decided = upper.levels[-1]
    numbered = ((place, shard, decided.between(np.array([place, place + 1]))) for place, shard in enumerate(shards()))
    for place, done in enumerate(engine.map_groups(numbered, task.down)):
        yield done
        options.report("top-down", place + 1, len(decided))


class _ObjectiveCache(dict[int, list[Objective]]):
    """Objectives above leaves between the passes, as far as memory allows; another machine has none and makes them."""

    def __init__(self) -> None:
        self._size, self._adding = 0, threading.Lock()

    def keep(self, place: int, objectives: Sequence[Objective]) -> None:
        with self._adding:
            self._size += sum(each.linear.nbytes for each in objectives if each.linear is not None)
            if self._size <= _REMEMBERED:
                self[place] = [*objectives]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShardTask:
    """The two passes over a shard: upwards what it says of its top, downwards its counts."""

    strategy: Strategy
    finish: Finish
    remembered: _ObjectiveCache = field(default_factory=_ObjectiveCache)

    def up(self, numbered: tuple[int, Shard]) -> tuple[AreaLimits, Mapping[str, LevelEstimates | Level]]:
        place, tree = numbered[0], _usable(numbered[1])
        found: dict[str, LevelEstimates | Level] = {}
        limits, objectives = self.strategy.limits(tree.levels)[0], self.strategy.objectives(tree, found)
        if self.strategy.options.method.bottom_up:  # others are made in no time
            self.remembered.keep(place, objectives)
        return limits.take(slice(0, 1)), found

    @one_blas_thread()
    def down(self, numbered: tuple[int, Shard, Counts]) -> Any:
        place, tree = numbered[0], _usable(numbered[1])
        objectives = self.remembered.pop(place, None) or self.strategy.objectives(tree)
        # They were found free of contradictions on the way up.
        limits = limits_up(self.strategy.rules, tree.levels, groups=self.strategy.options.groups)
        return self.finish(place + 1, _go_down(self.strategy, tree, limits, objectives, given=numbered[2]))


# ---- one tree ---------------------------------------------------------------------------------------------


@one_blas_thread()
def _go_down(
    strategy: Strategy,
    tree: Tree,
    limits: Sequence[AreaLimits],
    objectives: Sequence[Objective],
    *,
    given: Counts | None = None,
    is_top: bool = False,
) -> TreeCounts:
    """Return a tree with the counts of all its levels; ``given`` are those of its top.

    Leaves that have no objective yet have that of their own measurements.
    """
    done, store = [] if given is None else [LevelCounts(counts=given)], strategy.options.store
    objectives = [*objectives, own_objective(strategy.rules.grid, tree.levels[-1])]
    for place in range(len(done), len(tree.levels)):
        name = f"{tree.levels[0].geocodes[0]}-{is_top:d}-{place}"
        found = None if store is None else store.load(name)
        if found is None:
            step = strategy.step(tree.levels[place], limits[place], objectives[place])
            if place == 0:
                found = _level_counts([solve_top(step, limits[1] if len(limits) > 1 else None)])
            else:
                found = _level(strategy.options, step, tree, place, done[-1].counts)
            if store is not None:
                store.save(name, found)
        done.append(found)
    levels = [each.counts for each in done]
    if any(event.moves for each in done for event in each.events):
        # The failsafe moved counts of an area after it was decided on: those above it follow from the leaves.
        for place in range(len(levels) - 2, -1, -1):
            levels[place] = levels[place + 1].up(tree.levels[place + 1].parent, tree.levels[place].areas)
    return TreeCounts(
        tree=tree,
        levels=tuple(levels),
        is_top=is_top,
        **SolverReport.of(done),
    )


def _level_counts(found: Sequence[ChildCounts]) -> LevelCounts:
    places = [np.nonzero(each.counts) for each in found]  # child by child, in the order of cells
    many = [np.bincount(child, minlength=len(each.counts)) for each, (child, _) in zip(found, places, strict=True)]
    return LevelCounts(
        counts=Counts(
            starts=np.cumsum(np.concatenate([[0], *many])),
            cells=np.concatenate([each.cells[cell] for each, (_, cell) in zip(found, places, strict=True)]),
            counts=np.concatenate([each.counts[place] for each, place in zip(found, places, strict=True)]),
        ),
        **SolverReport.of(found),
    )


def _level(options: SolveOptions, step: LevelStep, tree: Tree, place: int, counts: Counts) -> LevelCounts:
    """Return the children of all areas of the level above, which hold ``counts``."""
    above, level = tree.levels[place - 1], tree.levels[place]
    starts = level.starts(above.areas)

    def some(first: int) -> list[ChildCounts]:
        found = []
        for parent in range(first, min(first + _AT_ONCE, above.areas)):
            children = slice(int(starts[parent]), int(starts[parent + 1]))
            found.append(solve_children(step, above.geocodes[parent], *counts[parent], children))
        return found

    firsts = range(0, above.areas, _AT_ONCE)
    found: list[ChildCounts] = []
    with ThreadPoolExecutor(max(1, options.threads)) as pool:
        for part in pool.map(some, firsts) if options.threads > 1 else map(some, firsts):
            found += part
            options.report(level.name, len(found), above.areas)
    return _level_counts(found)
