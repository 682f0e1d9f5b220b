"""Small hierarchies of people with facilities, zeros and known totals, and noise drawn beside the truth."""

from __future__ import annotations

import numpy as np

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Tree
from tests.mechanisms.topdown.hierarchies import answer, summed_up

SCHEMA = Schema(
    name="people",
    attributes=(
        Attribute(name="home", codes=("house", "ward", "hall"), groupings={"shared": (0, 1, 1)}),
        Attribute(name="adult", codes=("n", "y")),
        Attribute(name="race", codes=("1", "2", "3", "4", "5")),
    ),
)
QUERIES = {"total": 0.5, "shared": 8.0, "adult * race": 4.0, "detailed": 2.0}
NO_BOUND = (1 << 31) - 1


def people(
    seed: int, *, fanout: tuple[int, ...] = (2, 3, 5), noise: float = 1.0, facts: bool = True
) -> tuple[Tree, list[np.ndarray]]:
    """Return a hierarchy of people, and the true counts of its levels; ``noise`` scales all variances.

    Nobody under age is in a ward. Homes of a kind are known leaf by leaf: each ward and hall has somebody in it, and at
    most 30. The totals of the top and of the level below it are known.
    """
    rng = np.random.default_rng(seed)
    parents = [np.zeros(1, dtype=np.int64)]
    for width in fanout:
        parents.append(np.repeat(np.arange(len(parents[-1])), width))
    codes: list[list[str]] = [[""]]
    for below in parents[1:]:
        own = np.arange(len(below)) - np.searchsorted(below, below)
        codes.append([f"{codes[-1][up]}{place:02d}" for up, place in zip(below, own, strict=True)])
    shell = [
        Level(name=f"L{n}", geocodes=tuple(code), parent=parent)
        for n, (code, parent) in enumerate(zip(codes, parents, strict=True))
    ]
    leaves = len(parents[-1])
    races = rng.dirichlet(np.full(5, 0.4), size=leaves)
    counts = np.zeros((leaves, 3, 2, 5), dtype=np.int64)
    counts[:, 0] = rng.poisson(12 * np.array([0.3, 0.7])[None, :, None] * races[:, None, :])
    homes = (rng.random((leaves, 2)) < 0.2).astype(np.int64)
    counts[:, 1, 1] = rng.poisson(6 * races) * homes[:, :1]
    counts[:, 1, 1, 0] += homes[:, 0]
    counts[:, 2] = rng.poisson(2 * races[:, None, :]) * homes[:, 1, None, None]
    counts[:, 2, 1, 1] += homes[:, 1]
    truth = summed_up(counts.reshape(leaves, -1), shell)
    kinds = summed_up(np.concatenate([np.ones((leaves, 1), dtype=np.int64), homes], axis=1), shell)
    levels = []
    for place, (level, true) in enumerate(zip(shell, truth, strict=True)):
        answers = []
        for name, variance in QUERIES.items():
            query = SCHEMA.query(name)
            drawn = np.rint(rng.normal(0, np.sqrt(variance * noise), (level.areas, query.size))).astype(np.int64)
            answers.append(
                Answers(
                    query=query, values=answer(query, true) + drawn, variance=np.full(level.areas, variance * noise)
                )
            )
        known = _facts(level, true, kinds[place], place) if facts else ()
        levels.append(
            Level(name=level.name, geocodes=level.geocodes, parent=level.parent, answers=tuple(answers), known=known)
        )
    return Tree(schema=SCHEMA, levels=tuple(levels)), truth


def _facts(level: Level, true: np.ndarray, kinds: np.ndarray, place: int) -> tuple[Constraint, ...]:
    everywhere = np.ones(level.areas, dtype=np.bool_)
    home, ward = SCHEMA.query("home"), SCHEMA.query("home * adult")
    least = kinds.copy()
    least[:, 0] = 0
    barred = np.full((level.areas, 6), NO_BOUND)
    barred[:, 2] = 0
    found = [
        Constraint(query=home, sign=">=", values=least, given=everywhere),
        Constraint(
            query=home, sign="<=", values=np.where([[True, False, False]], NO_BOUND, 30 * kinds), given=everywhere
        ),
        Constraint(query=ward, sign="<=", values=barred, given=everywhere),
    ]
    if place < 2:
        total = SCHEMA.query("total")
        found.append(Constraint(query=total, sign="=", values=answer(total, true), given=everywhere))
    return tuple(found)
