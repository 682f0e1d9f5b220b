"""From the top of a hierarchy down to its leaves: whole counts in every area that keep all that is known.

The areas above the shards (counties, say) are solved first, then shard by shard, so that memory does not grow with the
number of leaves. Each shard is a task of its own: the counts are the same on any number of threads or machines, and a
run that was interrupted goes on at the level where it stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np

from stirred.data.problems import PlanError, bad_plan, listed
from stirred.engines.local import LocalEngine
from stirred.mechanisms.topdown.least_squares import Floor, Upward, summary, upward
from stirred.mechanisms.topdown.solve.down import go_down, tell
from stirred.mechanisms.topdown.solve.grid import Places
from stirred.mechanisms.topdown.solve.limits import (
    Limits,
    contradictions,
    implied,
    joined,
    limits_up,
    margins_off,
    tightened,
)
from stirred.mechanisms.topdown.solve.margins import Margin, margins_of
from stirred.mechanisms.topdown.solve.objective import (
    Objective,
    bottom_up_objective,
    collapsed,
    first_of,
    inherited,
    own_objective,
    stacked,
)
from stirred.mechanisms.topdown.solve.pieces import Piece, Settings, Shard, Source
from stirred.mechanisms.topdown.solve.planned import Plan, planned, usable
from stirred.mechanisms.topdown.tree import GroupTotal, Level, Tree, groups_inside, regrouped
from stirred.spec.problems import Problem

T = TypeVar("T")
_REMEMBERED: Final = 1 << 29  # bytes of objectives that are kept between the two passes over shards


def solve(source: Source, settings: Settings) -> Iterator[Piece]:
    """Yield the solved trees: first the areas above the shards if there are any, then the shards in their order."""
    return solve_and(source, settings, lambda number, piece: piece)


def solve_and(source: Source, settings: Settings, finish: Callable[[int, Piece], T]) -> Iterator[T]:
    """Yield what ``finish`` makes of each solved tree and its number, there where it was solved."""
    engine = settings.engine or LocalEngine(threads=settings.threads)
    above = source.top()
    top = None if above is None else usable(above)
    plan = planned(source, top, settings, engine)
    if top is None:
        for number, shard in enumerate(map(usable, source.shards())):
            found = go_down(plan, shard, _limits(plan, shard.levels), _objectives(plan, shard), given=None)
            yield finish(number, found)
        return
    task = _Task(plan=replace(plan, settings=settings.alone), finish=finish)
    limits, tops = [], []
    beneath: dict[str, Floor] = {}
    for limit, objective, floors in engine.map_groups(enumerate(source.shards()), task.up):
        limits.append(limit)
        tops.append(objective)
        beneath.update(floors)
        tell(settings, "bottom-up", len(tops), top.levels[-1].areas)
    upper = go_down(
        plan,
        top,
        _limits(plan, top.levels, beneath=joined(limits)),
        _upper_objectives(plan, top, beneath, tops),
        given=None,
        is_top=True,
    )
    yield finish(0, upper)
    decided = upper.levels[-1]
    shards = ((place, shard, decided[place]) for place, shard in enumerate(source.shards()))
    for place, done in enumerate(engine.map_groups(shards, task.down)):
        yield done
        tell(settings, "top-down", place + 1, len(decided))


class _Remembered(dict[int, list[Objective]]):
    """Objectives of shards between the passes, as far as memory allows; another machine has none and makes them."""

    def __init__(self) -> None:
        self._size, self._adding = 0, threading.Lock()

    def keep(self, place: int, objectives: Sequence[Objective]) -> None:
        with self._adding:
            self._size += sum(each.linear.nbytes for each in objectives if each.linear is not None)
            if self._size <= _REMEMBERED:
                self[place] = [replace(each, answers=()) for each in objectives]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task(Generic[T]):
    """The two passes over a shard: upwards what it says of its top, downwards its counts."""

    plan: Plan
    finish: Callable[[int, Piece], T]
    remembered: _Remembered = field(default_factory=_Remembered)

    def up(self, numbered: tuple[int, Shard]) -> tuple[Limits, Objective, Mapping[str, Floor]]:
        place, tree = numbered[0], usable(numbered[1])
        floors: dict[str, Floor] = {}
        limits, objectives = _limits(self.plan, tree.levels)[0], _objectives(self.plan, tree, floors)
        self.remembered.keep(place, objectives)
        return limits.take(slice(0, 1)), first_of(objectives[0]), floors

    def down(self, numbered: tuple[int, Shard, tuple[Places, Places]]) -> T:
        place, tree = numbered[0], usable(numbered[1])
        objectives = self.remembered.pop(place, None) or _objectives(self.plan, tree)
        objectives[-1] = replace(objectives[-1], answers=tree.levels[-1].answers)
        return self.finish(
            place + 1, go_down(self.plan, tree, _limits(self.plan, tree.levels), objectives, given=numbered[2])
        )


# ---- limits and objectives of a tree ----------------------------------------------------------------------


def _limits(plan: Plan, levels: Sequence[Level], *, beneath: Limits | None = None) -> list[Limits]:
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


def _objectives(plan: Plan, tree: Tree, beneath: dict[str, Floor] | None = None) -> list[Objective]:
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


def _margins(plan: Plan, floor: Floor) -> tuple[Margin, ...]:
    """Return the margins that come first in the area at the very top."""
    if not plan.settings.arm.margins or floor.level.name != plan.names[0] or plan.rules.margin is not None:
        return ()
    return margins_of(plan.rules.grid, plan.model, floor, plan.measured)


def _require_measured(plan: Plan, top: Level) -> None:
    """Refuse an area at the very top that an arm knows nothing of."""
    if top.name == plan.names[0] and not any(np.isfinite(each.variance).any() for each in top.answers):
        what = f"the arm '{plan.settings.arm.name}' uses the measurements of each level alone, and the top has none"
        raise bad_plan(what, where="arm", remedy="use the arm 'default', or give measurements of the top")


def _without_margin(plan: Plan, tree: Tree) -> Tree:
    """Return a tree for the linear estimates: an earlier release binds the counts, and is no measurement of them."""
    margin = plan.rules.margin
    if margin is None:
        return tree
    levels = [replace(each, known=tuple(k for k in each.known if not implied(k, margin))) for each in tree.levels]
    return replace(tree, levels=tuple(levels))


def _groups_in(plan: Plan, tree: Tree) -> list[GroupTotal]:
    """Return the groups of a tree; of a shard those below its top, which is one of the areas above the shards."""
    if tree.levels[0].name == plan.names[0]:
        return [each for each in plan.settings.groups if each.level in tree.names]
    return groups_inside(tree, plan.settings.groups)


def _floors(up: Upward, tree: Tree) -> list[Floor]:
    """Return the levels of a tree, without those of groups between them."""
    return [floor for floor in up.floors if floor.level.name in tree.names]


def _upper_objectives(
    plan: Plan, top: Tree, beneath: Mapping[str, Floor], tops: Sequence[Objective]
) -> list[Objective]:
    grid = plan.rules.grid
    if plan.settings.arm.bottom_up:
        up = upward(plan.model, regrouped(_without_margin(plan, top), _groups_in(plan, top)), beneath=beneath)
        floors = _floors(up, top)
        found = [bottom_up_objective(grid, plan.model, floor) for floor in floors]
        return [replace(found[0], margins=_margins(plan, floors[0])), *found[1:]]
    _require_measured(plan, top.levels[0])
    return [*(own_objective(grid, level, dense=True) for level in top.levels[:-1]), stacked(tops)]
