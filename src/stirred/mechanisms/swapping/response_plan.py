"""The plan of a randomised response and then a swap."""

from __future__ import annotations

from dataclasses import dataclass, field

from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResponsePlan(SwapPlan):
    """The plan of both steps; nothing in it looks at the values of the perturbed variable.

    ``specification`` is the promise that is published, relative to the fewer invariants; ``swap_specification`` what
    the same release promises to those who compare only files that agree on both tables of a plain swap. ``strata``
    are live where the side that is not perturbed has two values; ``exposed`` are the strata of the file without the
    perturbed variable: live where other variables on its side have two values as well.
    """

    exposed: Strata = field(repr=False)
    swap_specification: Specification

    @property
    def also_promised(self) -> str:
        """Say what holds relative to both tables of a plain swap; a function of the fewer invariants."""
        return (
            "The loss of the specification is the one to rely on. Between files that moreover agree on all counts of "
            f"{self.perturbed} that a plain swap would publish it is at most {self.swap_specification.budget.shown} "
            "(R14). These counts are no invariant: this release neither keeps nor publishes them."
        )
