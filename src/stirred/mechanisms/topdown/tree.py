"""A hierarchy of areas with what was measured in them and what is known of them, as arrays level by level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.topdown.schema import Query, Schema

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Sign = Literal["=", "<=", ">="]
NO_BOUND: Final = (1 << 31) - 1
AGREES: Final = "agrees_con"  # what counts of an earlier release are called among constraints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """The noisy answers to one query in all areas of a level; an infinite variance says that an area has none."""

    query: Query
    values: npt.NDArray[np.signedinteger]  # (areas, cells of the query)
    variance: Numbers  # (areas,), of the noise of each cell


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What is known of a query in the areas of a level without noise: equal to, at most or at least these values."""

    query: Query
    sign: Sign
    values: npt.NDArray[np.int64]  # (areas, cells of the query)
    given: npt.NDArray[np.bool_]  # (areas,), where anything is known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """The areas of one level, the children of an area side by side, and in the order of their geocodes."""

    name: str
    geocodes: tuple[str, ...]
    parent: Places  # position in the level above; zeros at the top
    answers: tuple[Answers, ...] = ()
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        if np.any(np.diff(self.parent) < 0):
            raise ValueError(f"areas of {self.name} are not side by side with those of the same parent")

    @property
    def areas(self) -> int:
        """Return how many areas there are."""
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
        """Return the names of the levels, from the top."""
        return tuple(level.name for level in self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotal:
    """A total that is known of several areas of one level together, such as both parts of a state."""

    level: str
    members: tuple[str, ...]
    value: int
