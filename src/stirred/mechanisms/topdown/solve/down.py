"""Down a tree: the counts of its levels, from its top to its leaves. Each parent is a problem of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.solve.grid import Places
from stirred.mechanisms.topdown.solve.limits import Limits, tightened, unions, with_unions
from stirred.mechanisms.topdown.solve.objective import Objective
from stirred.mechanisms.topdown.solve.pieces import Counts, Piece, Settings, Unrounded
from stirred.mechanisms.topdown.solve.planned import Plan
from stirred.mechanisms.topdown.solve.stage import Event, Solved, Stage
from stirred.mechanisms.topdown.solve.step import solve_children, without_parents
from stirred.mechanisms.topdown.tree import Level, Tree

_AT_ONCE: Final = 16  # parents that a thread takes together


def go_down(
    plan: Plan,
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
        stage = _stage(plan, level, limits[place], objectives[place])
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


def _stage(plan: Plan, level: Level, limits: Limits, objective: Objective) -> Stage:
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
        totals_first=level.name in plan.totals_first,
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


def _level(plan: Plan, stage: Stage, above: Level, level: Level, counts: Counts) -> list[Solved]:
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
            tell(plan.settings, level.name, len(found), above.areas)
    return found


def _kept_unrounded(above: Level, level: Level, found: Sequence[Solved]) -> Iterator[Unrounded]:
    starts = level.starts(above.areas)
    for place, each in enumerate(found):
        if each.values is not None:
            children = level.geocodes[starts[place] : starts[place + 1]]
            yield Unrounded(parent=above.geocodes[place], children=children, cells=each.cells, values=each.values)


def tell(settings: Settings, stage: str, done: int, whole: int) -> None:
    """Say how far it is, to whoever wants to know."""
    if settings.progress is not None:
        settings.progress(stage, done, whole)
