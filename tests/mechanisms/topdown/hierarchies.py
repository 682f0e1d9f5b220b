"""Small random hierarchies with measurements, known values and gaps, for comparison with the dense solution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, GroupTotal, Level, Places, Tree

SCHEMAS = (
    Schema(
        name="grouped",
        attributes=(
            Attribute(name="home", codes=("a", "b", "c"), groupings={"large": (0, 1, 1)}),
            Attribute(name="sex", codes=("m", "f")),
        ),
    ),
    Schema(
        name="plain",
        attributes=(Attribute(name="sex", codes=("m", "f")), Attribute(name="race", codes=("1", "2", "3"))),
    ),
    Schema(
        name="three",
        attributes=(
            Attribute(name="sex", codes=("m", "f")),
            Attribute(name="home", codes=("a", "b", "c"), groupings={"large": (0, 1, 0)}),
            Attribute(name="old", codes=("n", "y")),
        ),
    ),
    Schema(name="one", attributes=(Attribute(name="all", codes=("1",)),)),
)


def answer(query: MarginalQuery, histograms: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the answers for histograms (areas, cells), as (areas, cells of the query), attribute by attribute."""
    found = histograms.reshape(-1, *(len(each) for each in query.groups))
    for axis, (groups, size) in enumerate(zip(query.groups, query.shape, strict=True), start=1):
        parts = [found.take([c for c, g in enumerate(groups) if g == n], axis=axis).sum(axis) for n in range(size)]
        found = np.stack(parts, axis=axis)
    return found.reshape(len(histograms), query.size)


def summed_up(leaves: Places, levels: Sequence[Level]) -> list[Places]:
    """Return the histograms of all levels, from the top, given those of the leaves (areas, cells)."""
    found = [leaves]
    for below in range(len(levels) - 1, 0, -1):
        above = np.zeros((levels[below - 1].areas, leaves.shape[1]), dtype=np.int64)
        np.add.at(above, levels[below].parent, found[0])
        found.insert(0, above)
    return found


def all_queries(schema: Schema) -> list[MarginalQuery]:
    """Return all queries of a schema."""
    kept = product(*(("*", *each.groupings, "detailed") for each in schema.attributes))
    return [*dict.fromkeys(schema.keeping(each) for each in kept)]


def random_tree(seed: int, *, depth: int = 3, gaps: bool = True) -> tuple[Tree, list[GroupTotal], list[np.ndarray]]:
    """Return a hierarchy, totals of groups, and the true counts of its levels."""
    rng = np.random.default_rng(seed)
    schema = SCHEMAS[seed % len(SCHEMAS)]
    parents: list[Places] = [np.zeros(1, dtype=np.int64)]
    for _ in range(depth - 1):
        above = len(parents[-1])
        fanout = rng.integers(1, 4, size=above)
        if gaps and above > 1 and rng.random() < 0.3:
            fanout[rng.integers(above)] = 0  # an area whose parts are not in the file
        parents.append(np.repeat(np.arange(above), fanout))
    shell = [
        Level(name=f"L{n}", geocodes=tuple(f"{n}.{place:02d}" for place in range(len(each))), parent=each)
        for n, each in enumerate(parents)
    ]
    truth = _truth(rng, schema, shell)
    levels = [_measured(rng, schema, level, counts, gaps) for level, counts in zip(shell, truth, strict=True)]
    groups = []
    if len(parents[1]) > 2 and rng.random() < 0.5:
        members = rng.choice(len(parents[1]), size=2, replace=False)
        value = int(truth[1][members].sum())
        groups.append(GroupTotal(level="L1", members=tuple(shell[1].geocodes[n] for n in members), value=value))
    return Tree(schema=schema, levels=tuple(levels)), groups, truth


def _truth(rng: np.random.Generator, schema: Schema, shell: list[Level]) -> list[np.ndarray]:
    """Return true counts, in which some cells are empty everywhere below some area."""
    leaves = rng.poisson(3, size=(shell[-1].areas, schema.size)) + 1
    leaves[:, rng.random(schema.size) < 0.2] = 0
    leaves[rng.random(leaves.shape) < 0.2] = 0
    truth = summed_up(leaves, shell)
    for height in range(len(shell) - 1):
        childless = ~np.isin(np.arange(shell[height].areas), shell[height + 1].parent)
        for place in np.flatnonzero(childless):
            more = rng.poisson(3, size=schema.size)
            up = int(place)
            for level in range(height, -1, -1):
                truth[level][up] += more
                up = int(shell[level].parent[up])
    return truth


def _measured(rng: np.random.Generator, schema: Schema, level: Level, counts: np.ndarray, gaps: bool) -> Level:
    queries = all_queries(schema)
    chosen = rng.choice(len(queries), size=min(len(queries), int(rng.integers(0 if gaps else 1, 4))), replace=False)
    picked = [queries[n] for n in chosen]
    if not gaps:
        picked = [*dict.fromkeys([*picked, schema.query("detailed")])]
    answers = []
    for query in picked:
        variance = rng.choice([0.5, 1.0, 2.0, 7.0, 4000.0], size=level.areas)
        if gaps:
            variance[rng.random(level.areas) < 0.25] = np.inf  # bypassed
        values = answer(query, counts) + rng.integers(-3, 4, size=(level.areas, query.size))
        answers.append(Answers(query=query, values=values, variance=variance))
    known = []
    if rng.random() < 0.5:
        query = queries[rng.integers(len(queries))]
        known.append(
            Constraint(query=query, sign="=", values=answer(query, counts), given=rng.random(level.areas) < 0.4)
        )
    if rng.random() < 0.6:
        query = queries[rng.integers(len(queries))]
        true = answer(query, counts)
        bound = np.where((true == 0) & (rng.random(true.shape) < 0.7), 0, true + 5)
        known.append(Constraint(query=query, sign="<=", values=bound, given=rng.random(level.areas) < 0.7))
    return Level(
        name=level.name, geocodes=level.geocodes, parent=level.parent, answers=tuple(answers), known=tuple(known)
    )
