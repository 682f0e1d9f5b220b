"""What layers share: each holds a permutation swap, and adds a stage, a response before it or noise after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.rate_rules import check_rule
from stirred.mechanisms.swapping.core.swap import RateLike
from stirred.mechanisms.swapping.core.swapping import Swapping, Values
from stirred.mechanisms.swapping.permutation.mechanism import PermutationSwap
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget, Derived
from stirred.spec.exact import Exact
from stirred.spec.multiverse import Multiverse
from stirred.spec.specification import Specification


def between_closer(promised: Specification, multiverse: Multiverse, policy: Derived, *, agreed: str) -> Specification:
    """Return what a release promises between files that agree on more, which it neither keeps nor publishes."""
    closer = replace(promised.with_flavor(multiverse=multiverse), budget=Budget(policy=policy))
    return replace(closer, assumptions=(*closer.assumptions, agreed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(Swapping):
    """A step around a member of the family, its ``inner`` one, which finds the strata and exchanges the records.

    The inner swap is permutation swapping. ``rates`` may depend on match variables only: what is proven about layers
    (R13 to R15) is for swaps that treat all records of a stratum alike.
    """

    # Why it is not said whom it changes, and what to do instead, where that depends on what it protects.
    unsaid: ClassVar[tuple[str, str] | None] = None

    rate: RateLike
    rates: Sequence[Mapping[str, Any]] = ()
    inner: PermutationSwap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", tuple(dict(rule) for rule in self.rates))
        Swapping.__post_init__(self)
        for number, rule in enumerate(self.rates, start=1):
            check_rule(rule, where=f"rates entry {number}")
            if other := [name for name in rule if name not in ("rate", *self.match)]:
                raise bad_plan(
                    f"rates of the {self.member} swap may depend on match variables only, not on {listed(other)}",
                    where=f"rates entry {number}",
                    remedy="name values of match variables; permutation-swap takes hold and swap variables too",
                )
        roles = {name: getattr(self, name) for name in ("match", "swap", "hold", "unit", "settings_from", "threads")}
        object.__setattr__(self, "inner", PermutationSwap(**roles, rate=self.rate, rates=self.rates))

    @property
    def at_rate(self) -> str:
        """Say at which rate the inner swap exchanges."""
        return "rates that depend on these" if self.rates else f"a rate of {self.rate}"

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate of the inner swap."""
        return self.inner.setting_in_words(epsilon)

    def areas_changed(self, plan: SwapPlan) -> pl.DataFrame | None:
        """Return whom the inner swap changes, by area; None where a response protects the areas themselves."""
        if self.unsaid is not None:
            what, remedy = self.unsaid
            raise bad_plan(what, where=self.name, remedy=remedy)
        return None if plan.perturbed in plan.universe.swap else self.inner.areas_changed(plan)

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        self.inner._exchange(plan, swapped, entropy, progress)
