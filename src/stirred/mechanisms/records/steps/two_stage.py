"""Two stages of matching: among coarse strata first, then inside finer ones (swapping theory R13)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import Codes, count, encode
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import FINE_COLUMNS, Names, Progress, Rate, SwapCellLaw, SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.law import SwapStep, tables_with_margins
from stirred.mechanisms.records.laws.counting import permutation_moved
from stirred.mechanisms.records.laws.permutation import PermutationLaw
from stirred.mechanisms.records.laws.varying import permutation_share
from stirred.mechanisms.records.plan import FurtherPromise, SwapPlan
from stirred.mechanisms.records.roles import OtherRates, SwapRate, SwapSettings
from stirred.mechanisms.records.steps.chains import chained, law_by_match, stage, staged_epsilon
from stirred.mechanisms.records.strata import Positions, Shares
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.number_text import percent
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import psa_sharp_epsilon


class TwoStageSettings(SwapSettings):
    """What the second stage matches on, and the rates of both."""

    rate: SwapRate
    fine_match: Names = Field(
        description="Variables that the second stage matches on besides match.",
        json_schema_extra={"example": ["tenure"]},
    )
    fine_rate: Rate = Field(description="The rate of the second stage.", json_schema_extra={"example": "1/2"})
    rates: OtherRates = Field(default=[])

    def law(self) -> PermutationLaw:
        probability(self.fine_rate, where="fine_rate")
        if not self.fine_match:
            raise bad_plan(
                "the second stage matches on nothing more than the first",
                where="fine_match",
                remedy="name further variables that only the second stage matches on, or use permutation-swap",
            )
        return law_by_match(self, member="two-stage")

    def steps(self) -> tuple[FinerSwap]:
        rate = probability(self.fine_rate, where="fine_rate")
        return (FinerSwap(match=(*self.match,), fine_match=(*self.fine_match,), fine_rate=rate),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinerSwap(SwapStep):
    """Permutation swapping once more, among records that are equal on ``fine_match`` too, at ``fine_rate`` (R13).

    The promise of the first stage stays: this one is post-processing.
    """

    match: tuple[str, ...]
    fine_match: tuple[str, ...]
    fine_rate: Fraction

    @property
    def matched(self) -> tuple[str, ...]:
        return self.fine_match

    @property
    def setting_in_words(self) -> str:
        return f", then {percent(self.fine_rate)}"

    @property
    def columns_in_words(self) -> str:
        return "what the second stage matches on, and its rate"

    @property
    def columns(self) -> Mapping[str, str]:
        match = json.dumps(list(self.fine_match))
        return {FINE_COLUMNS["fine_match"]: match, FINE_COLUMNS["fine_rate"]: str(self.fine_rate)}

    def promised(self, specification: Specification, *, unit: str) -> Specification:
        staged = "R13, two stages of matching (docs/theory/swapping-family.md)"
        return replace(specification, theorem=(staged, *specification.theorem))

    def planned(self, swap: Any, plan: SwapPlan) -> SwapPlan:
        fine = encode(plan.origin.data.households, [*self.match, *self.fine_match])
        sizes = count(fine.codes, groups=fine.count)
        coarse = np.zeros(fine.count, dtype=np.int64)
        coarse[fine.codes] = plan.strata.coded.codes
        shares = staged_share(
            plan.strata.records.astype(np.float64),
            coarse=swap.swap_law.moved(plan.strata, plan.swap),
            fine=permutation_share(sizes, np.full(fine.count, float(self.fine_rate))),
            fine_records=sizes.astype(np.float64),
            within=coarse,
        )
        return replace(
            plan,
            strata=plan.strata.with_shares(shares),
            fine=fine,
            further=(self._relative_to_fine(swap, plan, largest=int(sizes.max(initial=0))),),
        )

    def _relative_to_fine(self, swap: Any, plan: SwapPlan, *, largest: int) -> FurtherPromise:
        """Return the promise in the fine flavor, as a function of the coarse invariants (condition 4 of use)."""
        coarse = plan.specification.budget.realised
        # A stratum of one record has no partner: its fine universe is a single file.
        fine = psa_sharp_epsilon(self.fine_rate, stratum=largest if largest > 1 else 0)
        formula = (
            f"the smaller of the loss of the first stage and that of permutation swapping at rate {self.fine_rate} on "
            f"the largest fine stratum, {largest} records, whether live or not"
        )
        policy = Derived(formula=formula, value=staged_epsilon([coarse, fine])[-1], varies=True)
        invariants = swap.margins(plan.hold, match=swap.matched, persons=plan.has_persons)
        multiverse = replace(plan.specification.multiverse, invariants=invariants)
        condition = (
            f"the {invariants[0]} is what the compared files agree on; the release neither keeps nor publishes it"
        )
        promised = plan.specification.with_flavor(multiverse=multiverse)
        return FurtherPromise.of("fine_epsilon", promised, policy, agreed=f"the {invariants[0]}", condition=condition)

    def after(
        self, plan: SwapPlan, swapped: Codes, *, entropy: Entropy, threads: int | None, progress: Progress | None
    ) -> None:
        """Swap inside the fine strata.

        Coarse first: the proof aligns two files before the fine stage, whose law looks at no swap value.
        """
        from stirred.mechanisms.records.kernels.selected import swap_in_place

        assert plan.fine is not None
        rates = Rates.constant(self.fine_rate, strata=plan.fine.count)
        own = entropy.child("fine stage")
        swap_in_place(plan.fine.codes, swapped, rates=rates, entropy=own, threads=threads, progress=progress)


class TwoStageSwap(RatedSwap):
    """Permutation swapping among records of equal ``match`` values, then once more among those equal on more.

    The second stage matches on ``fine_match`` too and exchanges the same variables at ``fine_rate``. Only counts
    of ``match`` x ``swap`` stay exact; those of ``fine_match`` x ``swap`` do not. That is the point: swapping on
    the fine strata alone would fix them. The loss relative to these fewer invariants is that of the first
    stage; relative to the fine ones the smaller of both, by the sizes of the fine strata alone, because which
    of them have anything to swap is no invariant here.

    >>> swap = TwoStageSwap(match=["size"], fine_match=["tenure"], swap=["county"], rate="1/10", fine_rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 4, "tenure": list("oorr"), "county": list("ABAB"), "age": [1, 2, 3, 4]})
    >>> plan = swap.plan(homes)
    >>> plan.specification.budget.shown, plan.further[0].specification.budget.shown
    ('3.30', '0')
    >>> released = swap.release(homes, Entropy.from_os(), accept=["exposed"]).public["data"]
    >>> sorted(released.select("size", "county").rows())
    [(1, 'A'), (1, 'A'), (1, 'B'), (1, 'B')]
    """

    name: ClassVar[str] = "two-stage-swap"
    title: ClassVar[str] = "two-stage swapping"
    settings_model: ClassVar[type[SwapSettings]] = TwoStageSettings
    stratum_law: ClassVar[str] = "two-stage"
    family: ClassVar[SwapFamily] = SwapFamily(moved=permutation_moved)
    # Who changes a value in the second stage depends on the fine margins, which are not invariant.
    unsaid: ClassVar[tuple[str, str] | None] = (
        "whom the two-stage swap moves depends on counts that it protects",
        "compare its loss and its share moved by `stirred plan`, one plan at a time",
    )

    settings: TwoStageSettings
    swap_law: PermutationLaw
    fine_match: tuple[str, ...]
    fine_rate: Fraction

    @property
    def in_words(self) -> str:
        return (
            f"Two-stage swapping: {', '.join(self.swap)} exchanged among {self.among} at {self.at_rate}, then "
            f"among those with equal {', '.join(self.matched)} at a rate of {self.fine_rate}; everything else is held."
        )

    @property
    def cell_law(self) -> SwapCellLaw | None:
        coarse = super().cell_law
        return coarse and replace(coarse, fine_match=self.fine_match, fine_rate=self.fine_rate)

    def law(self, dataset: Any) -> Law:
        """Return the exact law for a small dataset of one coarse stratum, its hold values pairs (fine match, other)."""
        second = PermutationLaw(rate=self.fine_rate)
        first = stage(self.swap_law.on_small, within=lambda match: None)(tuple((m, h, s) for (m, h), s in dataset))
        last = chained(first, stage(second.on_small, within=lambda match: match))
        return last.pushed(lambda rows: tuple(((m, h), s) for m, h, s in rows))  # type: ignore[attr-defined]

    def audit_universes(self) -> list[list[Hashable]]:
        files = (
            *(("1a 1b", "xy"), ("1a 1b 2c", "xxy"), ("1a 1b 2c", "xyz"), ("1a 1b 2c 2d", "xxyy")),
            *(("1a 2a 3b", "xyz"), ("1a 2a 3b 4c", "wxyz")),
        )
        return [
            [tuple(((h[0], h[1]), s) for h, s in table) for table in tables_with_margins(hold.split(), swap)]  # type: ignore[attr-defined]
            for hold, swap in files
        ]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        first: Any = universe[0]
        columns = {
            "fine": [m for (m, _), _ in first],
            "held": [h for (_, h), _ in first],
            self.swap[0]: [s for _, s in first],
        }
        return self._one_stratum().plan(pl.DataFrame(columns), doubts=False).specification

    def _one_stratum(self) -> TwoStageSwap:
        return self.with_settings(match=(), fine_match=("fine",), swap=self.swap[:1], hold=("held",), rates=())


def staged_share(records: Shares, *, coarse: Shares, fine: Shares, fine_records: Shares, within: Positions) -> Shares:
    """Return the share of each stratum that gets other values where a second swap exchanges within its parts.

    ``within`` says whose part each is. A record keeps its values if neither stage moves it, or if the second undoes the
    first: it gets the place of another record of its part, which the first stage gave this record's values, one of
    n - 1 equally likely.

    >>> two = np.array([2.0])
    >>> staged_share(two, coarse=two / 4, fine=two / 4, fine_records=two, within=np.array([0])).tolist()  # 1/2 each
    [0.5]
    """
    first = coarse[within]
    back = first / np.maximum(records[within] - 1, 1)
    moved = 1 - (1 - fine) * (1 - first) - fine * back
    return np.bincount(within, weights=fine_records * moved, minlength=records.size) / np.maximum(records, 1)
