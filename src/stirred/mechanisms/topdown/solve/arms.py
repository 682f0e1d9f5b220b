"""Arms: the ways from measurements to microdata that are compared on the same noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.solve.objective import precisions
from stirred.mechanisms.topdown.solve.rounding import Rounder
from stirred.mechanisms.topdown.tree import Level

Totals = Literal["measured", "between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """How areas are solved for: from which measurements, where totals come first, and how is rounded.

    ``totals``: first at all levels between the top and the leaves, or only at those of them that measure totals well;
    ``margins``: whether margins come first at the top, where they are measured well.
    """

    name: str
    bottom_up: bool
    totals: Totals
    rounder: Rounder
    margins: bool = False

    def totals_first(self, level: Level, *, place: int, depth: int) -> bool:
        """Say whether the totals of the areas of a level are fixed before their cells.

        A single pass is best at the leaves, where totals are known from cells: a leaf total pass raised the error of
        leaf totals by half (section 1.4). Totals are measured well if they are so as precisely as the finest query.
        """
        if not 0 < place < depth - 1:
            return False
        if self.totals == "between" or not level.answers:
            return True
        finest = max(level.answers, key=lambda each: each.query.size)
        total = [each for each in level.answers if each.query.size == 1]
        return bool(total and np.median(precisions(total[0])) >= np.median(precisions(finest)))


ARMS: Final[Mapping[str, Arm]] = {
    arm.name: arm
    for arm in (
        Arm(name="default", bottom_up=True, totals="measured", rounder=Rounder(), margins=True),
        Arm(name="blue", bottom_up=True, totals="between", rounder=Rounder(pre_rounded=2, totals_first=True)),
        Arm(name="bureau", bottom_up=False, totals="between", rounder=Rounder(pre_rounded=1, totals_first=True)),
    )
}


def arm_named(name: str) -> Arm:
    """Return the arm of a name.

    >>> arm_named("bureau").bottom_up
    False
    """
    if name not in ARMS:
        raise bad_plan(f"there is no arm '{name}'", where="arm", remedy=f"write one of {listed([*ARMS])}")
    return ARMS[name]
