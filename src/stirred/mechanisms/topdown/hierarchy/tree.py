"""A hierarchy of areas as arrays, level by level: what was measured there, what is known, and counts of records.

Counts by area and cell are one value from the confidential file to the released one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.schema import TOTAL, MarginalQuery, Schema

Places = npt.NDArray[np.int64]
Integers = Places
Whole = npt.NDArray[np.signedinteger]  # narrow ones, where there are many
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


# ---- counts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Counts by area and cell of the histogram, without zeros.

    Areas stand one after the other: those of area i are ``cells[starts[i] : starts[i + 1]]`` and ``counts`` there. A
    cell may stand more than once, where areas were put together.

    >>> found = Counts.of(np.array([2, 0, 2]), np.array([1, 3, 1]), areas=3)
    >>> found.area.tolist(), found.cells.tolist(), found.counts.tolist()
    ([0, 2], [3, 1], [1, 2])
    """

    starts: Integers  # and at the end where the last area stops
    cells: Whole
    counts: Whole

    @classmethod
    def of(cls, area: Whole, cell: Whole, count: Whole | None = None, *, areas: int) -> Counts:
        """Return the counts of entries in any order, equal ones added up; without ``count`` each entry is a record."""
        size = int(cell.max(initial=0)) + 1
        keys = area.astype(np.int64)
        keys *= size
        keys += cell
        if count is None:
            keys.sort()
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            counts: Whole = np.diff(first, append=keys.size).astype(np.int32)
        else:
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            counts = np.add.reduceat(count[order].astype(np.int64), first) if first.size else np.zeros(0, np.int64)
        keys = keys[first]
        starts = np.searchsorted(keys, np.arange(areas + 1) * size).astype(np.int64)
        return cls(starts=starts, cells=(keys % size).astype(cell.dtype), counts=counts)

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Integers, Integers]]) -> Counts:
        """Return the counts of areas given one by one, as cells and counts."""
        kept = [(cells[counts != 0], counts[counts != 0]) for cells, counts in rows]
        none = np.zeros(0, dtype=np.int64)
        return cls(
            starts=np.cumsum([0, *(len(cells) for cells, _ in kept)]).astype(np.int64),
            cells=np.concatenate([none, *(cells for cells, _ in kept)]),
            counts=np.concatenate([none, *(counts for _, counts in kept)]),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, area: int) -> tuple[Whole, Whole]:
        own = slice(self.starts[area], self.starts[area + 1])
        return self.cells[own], self.counts[own]

    @property
    def area(self) -> Integers:
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.starts))

    def between(self, bounds: Integers) -> Counts:
        """Return the counts of larger areas, each of neighbours: area i has those from ``bounds[i]`` on."""
        starts = self.starts[bounds]
        own = slice(starts[0], starts[-1])
        return Counts(starts=starts - starts[0], cells=self.cells[own], counts=self.counts[own])

    def up(self, parent: Integers, areas: int) -> Counts:
        """Return the counts of the areas above, of which these are the children, each cell once."""
        return Counts.of(parent[self.area], self.cells, self.counts, areas=areas)

    def answers(self, query: MarginalQuery, areas: range | None = None) -> Integers:
        """Return the answers to a query (areas, cells of the query) in some of the areas."""
        areas = range(len(self)) if areas is None else areas
        bounds = self.starts[areas.start : areas.stop + 1]
        own = slice(bounds[0], bounds[-1])
        place = np.repeat(np.arange(len(areas), dtype=np.int64) * query.size, np.diff(bounds))
        place += query.cell_of.astype(np.int32)[self.cells[own]]
        # Sums of whole numbers are exact in doubles as long as they stay below 2**53.
        found = np.bincount(place, weights=self.counts[own], minlength=len(areas) * query.size)
        return found.astype(np.int64).reshape(len(areas), query.size)

    def frame(self, schema: Schema, geocodes: Sequence[str]) -> pl.DataFrame:
        """Return the counts as they are published: geocode, attributes, count; ordered by area and cell."""
        area = self.area
        order = np.lexsort((self.cells, area))
        codes = np.unravel_index(self.cells[order], schema.shape)
        columns = [pl.Series("geocode", geocodes, dtype=pl.String).gather(area[order])]
        for attribute, code in zip(schema.attributes, codes, strict=True):
            columns.append(pl.Series(attribute.name, attribute.codes, dtype=pl.String).gather(code))
        return pl.DataFrame([*columns, pl.Series("count", self.counts[order], dtype=pl.Int64)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """The rows of published counts: area and cell of each, -1 where there is none; ``strange`` values by column."""

    area: Integers
    cell: Integers
    strange: dict[str, list[str]]

    @classmethod
    def of(cls, frame: pl.DataFrame, schema: Schema, geocodes: Sequence[str]) -> Entries:
        """Return the rows of a frame (geocode, attributes, count).

        >>> from stirred.mechanisms.topdown.hierarchy.schema import Attribute
        >>> toy = Schema(name="toy", attributes=(Attribute(name="sex", codes=("m", "f")),))
        >>> found = Entries.of(pl.DataFrame({"geocode": ["b", "c"], "sex": ["f", "m"]}), toy, ["a", "b"])
        >>> found.area.tolist(), found.cell.tolist(), found.strange
        ([1, -1], [1, 0], {'geocode': ['c']})
        """
        strange: dict[str, list[str]] = {}

        def places(name: str, codes: Sequence[str]) -> Integers:
            texts = frame[name].cast(pl.String)
            found = texts.replace_strict(
                pl.Series(codes, dtype=pl.String), np.arange(len(codes)), default=-1, return_dtype=pl.Int64
            ).to_numpy()
            if np.any(found < 0):
                strange[name] = texts.filter(pl.Series(found < 0)).fill_null("").unique().sort().to_list()
            return found

        area, cell = places("geocode", geocodes), np.zeros(frame.height, dtype=np.int64)
        for attribute in schema.attributes:
            code = places(attribute.name, attribute.codes)
            cell = np.where((cell < 0) | (code < 0), -1, cell * attribute.size + code)
        return cls(area=area, cell=cell, strange=strange)


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
