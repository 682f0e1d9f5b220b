"""The metric swap: exchanges are the less likely the farther apart two areas are (swapping theory R6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Rate, Settings
from stirred.mechanisms.swapping.conditioned.law import conditioned_law
from stirred.mechanisms.swapping.core.pairs import Declared
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.roles import Roles, SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.mechanisms.swapping.flows.law import Counts, Floats
from stirred.mechanisms.swapping.flows.mechanism import Flows, FlowSwap, live_values
from stirred.mechanisms.swapping.mallows.budget import mallows_epsilon, mallows_weight
from stirred.mechanisms.swapping.metric.distances import LevelDistances, TableDistances, distances_of
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import INFINITE, ZERO, Exact
from stirred.spec.given_numbers import Number
from stirred.spec.law import Law


class MetricSettings(SwapSettings):
    """The loss, and how far apart swap values are."""

    epsilon: Rate = Field(
        description="The loss for swap values as far apart as any may be; there is no rate.",
        json_schema_extra={"example": 2},
    )
    distances: str | list[str] | dict[str, dict[str, Rate]] = Field(
        description="A file with the columns from, to and distance; or swap variables as levels, from the finest to "
        "the coarsest; or a table with a distance for each pair of swap values.",
        json_schema_extra={"example": "distances.csv", "pairs": "distance"},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetricPlan(SwapPlan):
    """The plan of a metric swap: ``per_unit`` is its loss for each unit of earth-mover distance."""

    per_unit: Exact

    @property
    def further_losses(self) -> dict[str, Exact]:
        """Return the loss for each unit of distance."""
        return {"epsilon_per_unit": self.per_unit}

    @property
    def also_promised(self) -> str:
        """Say what holds for files whose records differ by near areas only."""
        return (
            "The loss of the specification is for each record, however far apart its areas. Counted by distance it is "
            f"at most {self.per_unit.shown(3)} for each unit of distance by which swap values must be carried to turn "
            "one file into the other (earth-mover distance): files that differ by near areas are harder to tell "
            "apart."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSwap(FlowSwap):
    """Exchange swap values with a weight that falls with the distance between them, given that all counts stay.

    A record of value s gets s' with weight exp(-e distance(s,s')), and the whole is conditioned on every value
    occurring as often as before. ``epsilon`` is the loss for a record whose values are as far apart as any may be; for
    nearer ones it is less, in proportion. ``distances`` are fixed beforehand: a mapping {from: {to: distance}}, which
    must be a metric, or names of swap variables from the finest level to the coarsest: values that agree on all of
    them are 1 apart, and one more for each level up to the coarsest on which they differ.

    >>> import polars as pl
    >>> from stirred.randomness.entropy import Entropy
    >>> line = {"A": {"B": 1, "C": 2}, "B": {"C": 1}}
    >>> swap = MetricSwap(match=["size"], swap=["county"], epsilon="ln(9)", distances=line)
    >>> homes = pl.DataFrame({"size": [1] * 6, "county": list("ABCABC"), "tenure": list("ooorrr")})
    >>> plan = swap.plan(homes)
    >>> plan.specification.budget.realised, plan.per_unit
    (Exact('2*ln(3)'), Exact('ln(3)'))
    >>> sorted(swap.release(homes, Entropy.from_os()).public["data"]["county"])
    ['A', 'A', 'B', 'B', 'C', 'C']
    """

    name: ClassVar[str] = "metric-swap"
    title: ClassVar[str] = "metric swapping"
    settings_model: ClassVar[type[Settings]] = MetricSettings
    member: ClassVar[str] = "metric"
    rests_on: ClassVar[str] = "R6, the metric swap (docs/theory/swapping-family.md)"
    beforehand: ClassVar[str] = "the distances between swap values were fixed beforehand"
    farther: ClassVar[str] = "give distances by levels (which reach farther), "

    epsilon: Number
    distances: Declared | Sequence[str] | TableDistances | LevelDistances

    def __post_init__(self) -> None:
        Swap.__post_init__(self)
        object.__setattr__(self, "distances", distances_of(self.distances, self.swap))

    @property
    def _measured(self) -> TableDistances | LevelDistances:
        assert isinstance(self.distances, (TableDistances, LevelDistances))
        return self.distances

    @property
    def declared_pairs(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the distances, where they were declared for pairs of values."""
        measured = self._measured
        return {"distances": measured.pairs.nested} if isinstance(measured, TableDistances) else {}

    @property
    def weight(self) -> Fraction:
        """Return the factor for each step of distance: rounded up where exp(-epsilon) has no rational root."""
        assert isinstance(self.epsilon, Exact)
        return mallows_weight(self.epsilon if self.epsilon.is_infinite else self.epsilon / self._measured.most)

    @property
    def per_unit(self) -> Exact:
        """Return the loss for each unit of earth-mover distance."""
        return mallows_epsilon(self.weight) if not self.weight else mallows_epsilon(self.weight) / self._measured.unit

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        return (
            f"Metric swapping: {', '.join(self.swap)} exchanged among {self.among}, the less likely the farther apart "
            f"(distances {self._measured}), conditioned on all counts; everything else is held."
        )

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        swap = encode(pl.DataFrame({self.swap[0]: [s for _, s in dataset]}), [self.swap[0]])
        one = self._one_stratum()
        steps = one._measured.among(swap)(np.arange(swap.count))
        place = {value: code for code, value in enumerate(swap.levels[self.swap[0]].to_list())}
        return conditioned_law(dataset, lambda row, s: one.weight ** int(steps[place[row[1]], place[s]]))

    def _one_stratum(self) -> MetricSwap:
        measured = self._measured
        if isinstance(measured, LevelDistances):
            measured = LevelDistances(levels=tuple(name for name in measured.levels if name == self.swap[0]))
        return replace(self, match=(), swap=self.swap[:1], hold=("held",), distances=measured)

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        # There is no rate; the weight of a step of distance takes its place in the list of strata.
        return [], self.weight

    def _flows(self, swap: Coded) -> Flows:
        between, weight = self._measured.among(swap), self.weight
        powers = [weight**steps for steps in range(self._measured.most + 1)]
        floats = np.array([float(power) for power in powers])

        def pair(a: int, b: int) -> Fraction:
            return powers[int(between(np.array([a, b]))[0, 1])]

        def table(codes: Counts) -> Floats:
            return floats[between(codes)]

        return Flows(pair, table, steps=between, powers=powers)

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        measured = self._measured
        farthest = self._farthest(strata, swap)
        formula = (
            f"the loss for each unit of distance, {self.per_unit}, times the largest distance between two swap values "
            f"of a live stratum, here {farthest * measured.unit} of at most {measured.most * measured.unit}; the "
            f"distances are {measured}, fixed beforehand. For each unit of earth-mover distance it is {self.per_unit}"
        )
        value = (
            INFINITE if not self.weight and farthest else mallows_epsilon(self.weight) * farthest if farthest else ZERO
        )
        return Derived(formula=formula, value=value, varies=True)

    def _farthest(self, strata: Strata, swap: Coded) -> int:
        """Return the largest distance between two swap values of one live stratum, in steps."""
        between, farthest = self._measured.among(swap), 0
        for _, codes, _ in live_values(strata):
            farthest = max(farthest, int(between(np.array(codes)).max()))
            if farthest == self._measured.most:
                break
        return farthest

    def _prepare(self, data: Microdata, roles: Roles, *, alone: bool = True) -> SwapPlan:
        return Swap._prepare(self, data, roles, alone=alone).extended(MetricPlan, per_unit=self.per_unit)
