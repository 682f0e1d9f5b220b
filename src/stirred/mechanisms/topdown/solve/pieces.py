"""What goes into solving and what comes out of it: measurements in shards, settings, and solved trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stirred.engines.protocol import Engine
from stirred.mechanisms.topdown.schema import Schema
from stirred.mechanisms.topdown.solve.arms import Arm
from stirred.mechanisms.topdown.solve.grid import Places
from stirred.mechanisms.topdown.solve.stage import Event
from stirred.mechanisms.topdown.tree import GroupTotal, Tree

Progress = Callable[[str, int, int], None]
Shard = Tree | Callable[[], Tree]  # or how it is opened, wherever it is worked on


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

    def shards(self) -> Iterator[Shard]:
        """Yield the shards, or how each is opened, as often as it is asked for."""
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
    """How to solve: the arm, known totals of groups of areas, given parents, where and on how many threads.

    Shards run on ``engine``, or else on the threads that areas above them have too.
    """

    arm: Arm
    groups: tuple[GroupTotal, ...] = ()
    parents: Mapping[tuple[str, str], tuple[Places, Places]] = field(default_factory=dict)  # (level, geocode): counts
    keep_unrounded: bool = False
    threads: int = 1
    engine: Engine | None = None
    keeper: Keeper | None = None
    progress: Progress | None = None

    @property
    def alone(self) -> Settings:
        """Return them for a task, which has no threads and tells nobody."""
        return replace(self, threads=1, engine=None, progress=None)
