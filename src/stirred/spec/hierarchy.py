"""Levels that nest: block in tract in county, or any other chain of coarser and coarser classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from stirred.spec.block import Block
from stirred.spec.problems import wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy(Block):
    """A chain of levels from the finest to the coarsest, each value lying inside one value of the next.

    ``geographic`` says whether these are places, or classes of a characteristic such as age groups.

    >>> census = Hierarchy(name="geography", levels=("block", "tract", "county", "state"))
    >>> census.determines("block", "county"), census.determines("county", "block")
    (True, False)
    """

    in_file: ClassVar = ("name", "levels", "geographic")

    name: Annotated[str, "what the hierarchy is called"]
    levels: Annotated[tuple[str, ...], "the levels, the finest first"]
    geographic: Annotated[bool, "whether the levels are areas"] = True

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) != len(self.levels):
            raise wrong(
                f"levels {', '.join(self.levels) or '(none)'} are not a chain",
                where=f"hierarchy {self.name}",
                remedy="list two or more different levels, the finest first",
            )

    def determines(self, fine: str, coarse: str) -> bool:
        """Say whether knowing ``fine`` tells ``coarse``."""
        if fine not in self.levels or coarse not in self.levels:
            return fine == coarse
        return self.levels.index(fine) <= self.levels.index(coarse)


def check_agreement(hierarchies: tuple[Hierarchy, ...]) -> None:
    """Refuse hierarchies of which one nests two levels the other way round than another."""
    for first in hierarchies:
        for second in hierarchies:
            shared = [level for level in first.levels if level in second.levels]
            if [level for level in second.levels if level in shared] != shared:
                raise wrong(
                    f"hierarchies {first.name} and {second.name} nest {', '.join(shared)} in different orders",
                    where="hierarchies",
                    remedy="list the levels from the finest to the coarsest in both",
                )


def determined_by(variable: str, hierarchies: tuple[Hierarchy, ...]) -> frozenset[str]:
    """Return every variable that ``variable`` tells: itself and all coarser levels above it."""
    told = {variable}
    for hierarchy in hierarchies:
        told |= {level for level in hierarchy.levels if hierarchy.determines(variable, level)}
    return frozenset(told)
