"""A hierarchy of areas with what was measured in them and what is known of them, as arrays level by level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.schema import TOTAL, MarginalQuery, Schema

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Sign = Literal["=", "<=", ">="]
NO_BOUND: Final = (1 << 31) - 1
AGREES: Final = "agrees_con"  # what counts of an earlier release are called among constraints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """The noisy answers to one query in all areas of a level; an infinite variance says that an area has none."""

    query: MarginalQuery
    values: npt.NDArray[np.signedinteger]  # (areas, cells of the query)
    variance: Numbers  # (areas,), of the noise of each cell

    @property
    def precision(self) -> Numbers:
        """Return one over the variance of each area; zero where nothing was measured."""
        usable = np.isfinite(self.variance) & (self.variance > 0)
        found: Numbers = np.divide(1.0, self.variance, out=np.zeros(len(usable)), where=usable)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraint:
    """What is known of a query in the areas of a level without noise: equal to, at most or at least these values."""

    query: MarginalQuery
    sign: Sign
    values: npt.NDArray[np.int64]  # (areas, cells of the query)
    given: npt.NDArray[np.bool_]  # (areas,), where anything is known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """The areas of one level, the children of an area side by side, and in the order of their geocodes.

    Only below :class:`GroupLevel` children stand in any order.
    """

    name: str
    geocodes: tuple[str, ...]
    parent: Places  # position in the level above; zeros at the top
    answers: tuple[Answers, ...] = ()
    known: tuple[Constraint, ...] = ()

    @property
    def areas(self) -> int:
        return len(self.geocodes)

    def starts(self, parents: int) -> Places:
        """Return where the children of each of the parents begin, and at the end where they stop."""
        return np.searchsorted(self.parent, np.arange(parents + 1)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tree:
    """A hierarchy below one area, down to its leaves: the nation, or one county of it that is worked on alone."""

    schema: Schema
    levels: tuple[Level, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(level.name for level in self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotal:
    """A total that is known of several areas of one level together, such as both parts of a state."""

    level: str
    members: tuple[str, ...]
    value: int


def blocks(areas: int, most: int) -> Iterator[range]:
    """Yield all areas in ranges of at most so many."""
    for start in range(0, areas, most):
        yield range(start, min(start + most, areas))


# ---- where trees come from --------------------------------------------------------------------------------

Shard = Tree | Callable[[], Tree]  # or how it is opened, wherever it is worked on


class Measurements(Protocol):
    """Measurements, of the store of a draw or as they were published: areas above the shards, and a tree for each.

    The lowest level of ``top`` are the areas at the top of the shards, in their order; what was measured there, and is
    known of them, belongs to the shards. ``top`` is None where there is one shard with everything.
    """

    @property
    def schema(self) -> Schema: ...

    def top(self) -> Tree | None: ...

    def shards(self) -> Iterator[Shard]: ...


def opened(shard: Shard) -> Tree:
    """Return the tree of a shard."""
    return shard if isinstance(shard, Tree) else shard()


# ---- totals of groups of areas ----------------------------------------------------------------------------


def groups_inside(tree: Tree, groups: Sequence[GroupTotal]) -> list[GroupTotal]:
    """Return the groups of areas below the top of a piece."""
    codes = {level.name: {*level.geocodes} for level in tree.levels[1:]}
    return [each for each in groups if each.members[0] in codes.get(each.level, ())]


class GroupLevel(Level):
    """Groups of areas whose total is known, between a level and the one above it."""

    __slots__ = ()


def regrouped(tree: Tree, groups: Sequence[GroupTotal]) -> Tree:
    """Return the tree with an area for each group whose total is known, between its members and their parent."""
    levels: list[Level] = []
    unknown = sorted({each.level for each in groups} - {*tree.names})
    if unknown:
        raise bad_plan(f"there is no level {listed(unknown)}", where="totals", remedy=f"there are {listed(tree.names)}")
    for level in tree.levels:
        own = [each for each in groups if each.level == level.name]
        if own:
            between, level = _grouped(level, own, tree)
            levels.append(between)
        levels.append(level)
    return replace(tree, levels=tuple(levels))


def _grouped(level: Level, groups: Sequence[GroupTotal], tree: Tree) -> tuple[Level, Level]:
    place = {code: number for number, code in enumerate(level.geocodes)}
    group = np.full(level.areas, -1, dtype=np.int64)
    parents, values = [], []
    for number, each in enumerate(groups):
        where, remedy = f"totals of {listed(each.members)}", "give totals of groups that do not overlap"
        if absent := [code for code in each.members if code not in place]:
            raise bad_plan(
                f"{level.name} {listed(absent)} is not in the file", where=where, remedy="correct its members"
            )
        members = [place[code] for code in each.members]
        if np.any(group[members] >= 0) or len({*members}) != len(members):
            raise bad_plan(f"some {level.name} belongs to two groups", where=where, remedy=remedy)
        if len({*level.parent[members].tolist()}) > 1:
            what = (
                f"the members of the group have different parents, so that their total is not one of any {level.name}"
            )
            raise bad_plan(what, where=where, remedy="give the total of areas inside one parent, or of the parents")
        group[members] = number
        parents.append(level.parent[members[0]])
        values.append(each.value)
    alone = np.flatnonzero(group < 0)
    group[alone] = len(groups) + np.arange(len(alone))
    total = tree.schema.query(TOTAL)
    given = np.arange(len(groups) + len(alone)) < len(groups)
    known = Constraint(query=total, sign="=", values=np.array([*values, *[0] * len(alone)])[:, None], given=given)
    names = [*("+".join(each.members) for each in groups), *(level.geocodes[each] for each in alone)]
    between = GroupLevel(
        name=f"groups of {level.name}",
        geocodes=tuple(names),
        parent=np.array([*parents, *level.parent[alone]], dtype=np.int64),
        known=(known,),
    )
    return between, replace(level, parent=group)
