"""What all trees share: decided once from all shards, before the first of them is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stirred.data.problems import bad_plan
from stirred.engines.protocol import Engine
from stirred.mechanisms.topdown.least_squares import Model
from stirred.mechanisms.topdown.schema import Query
from stirred.mechanisms.topdown.solve.limits import Rules, is_bound
from stirred.mechanisms.topdown.solve.objective import model_on
from stirred.mechanisms.topdown.solve.pieces import Settings, Shard, Source
from stirred.mechanisms.topdown.solve.rounding import Chain
from stirred.mechanisms.topdown.tree import Answers, Level, Tree

_LEAST_VARIANCE: Final = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What all trees share."""

    settings: Settings
    rules: Rules
    chain: Chain
    model: Model
    names: tuple[str, ...]  # of all levels, from the top
    totals_first: frozenset[str]  # levels at which totals are fixed before cells
    measured: tuple[Query, ...]


def planned(source: Source, top: Tree | None, settings: Settings, engine: Engine) -> Plan:
    """Return the plan of all shards: a later one may have queries and limits that the first has not."""
    sketches = [*engine.map_groups(source.shards(), _sketch)]
    trees = sketches if top is None else [top, *sketches]
    queries = [*dict.fromkeys(each.query for tree in trees for level in tree.levels for each in level.answers)]
    rules = Rules.of(trees)
    upper = () if top is None else top.levels[:-1]
    below = zip(*(tree.levels for tree in sketches), strict=True)
    pattern = {level.name: level for level in (*upper, *map(_side_by_side, below))}
    if not queries:
        raise bad_plan("there are no measurements", where="measurements", remedy="name a folder or file that has some")
    for each in settings.groups:
        if each.level not in pattern:
            raise bad_plan(
                f"totals are given for the level '{each.level}', which is not there", where="totals", remedy=""
            )
    places = enumerate(pattern.values())
    first = settings.arm.totals_first
    return Plan(
        settings=settings,
        rules=rules,
        chain=Chain.of(source.schema, rules),
        model=model_on(rules.grid, queries),
        names=tuple(pattern),
        totals_first=frozenset(each.name for place, each in places if first(each, place=place, depth=len(pattern))),
        measured=tuple(each.query for level in pattern.values() for each in level.answers),
    )


def _sketch(shard: Shard) -> Tree:
    """Return what decides how to proceed, without areas: queries, variances above the leaves, and kinds of limits."""
    tree, levels, none = usable(shard), [], np.zeros(0, dtype=np.int64)
    for place, level in enumerate(tree.levels):
        spread = slice(None) if place < len(tree.levels) - 1 else slice(0, 0)
        answers = (
            Answers(query=a.query, values=none.reshape(0, 1), variance=a.variance[spread]) for a in level.answers
        )
        known = (
            replace(each, values=each.values[bound : bound + 1], given=np.array([each.given.all()]))
            for each in level.known
            for bound in (int(is_bound(each.values).any(axis=1).argmax()),)
        )
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


def usable(shard: Shard) -> Tree:
    """Return a tree whose noise has a variance that numbers can hold; below the least one, rounding decides anyway."""
    tree, levels = shard() if callable(shard) else shard, []
    for level in tree.levels:
        answers = [replace(each, variance=np.maximum(each.variance, _LEAST_VARIANCE)) for each in level.answers]
        levels.append(replace(level, answers=tuple(answers)))
    return replace(tree, levels=tuple(levels))
