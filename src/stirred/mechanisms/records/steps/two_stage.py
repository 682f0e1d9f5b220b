"""Two stages of matching: among coarse strata first, then inside finer ones (swapping theory R13)."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from stirred.data.codes import Codes, count, encode
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import FINE_COLUMNS, Names, Progress, Rate, SwapCellLaw, SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.law import (
    File,
    SmallFile,
    StepWords,
    StratumLaw,
    SwapStep,
    chained,
    tables_with_margins,
    together,
)
from stirred.mechanisms.records.laws.counting import permutation_moved
from stirred.mechanisms.records.laws.permutation import PermutationLaw, law_by_match
from stirred.mechanisms.records.laws.varying import permutation_share
from stirred.mechanisms.records.plan import FurtherPromise, SwapPlan
from stirred.mechanisms.records.roles import OtherRates, SwapRate, SwapSettings
from stirred.mechanisms.records.strata import Positions, Shares
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, wrong
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

    stratum_law: ClassVar[str] = "two-stage"

    match: tuple[str, ...]
    fine_match: tuple[str, ...]
    fine_rate: Fraction

    @property
    def matched(self) -> tuple[str, ...]:
        return self.fine_match

    @property
    def hidden(self) -> Problem | None:
        # Who changes a value in the second stage depends on the fine margins, which are not invariant.
        return Problem(
            what="whom the two-stage swap moves depends on counts that it protects",
            where="two-stage-swap",
            remedy="compare its loss and its share moved by `stirred plan`, one plan at a time",
        )

    @property
    def words(self) -> StepWords:
        setting = f", then {percent(self.fine_rate)}"
        return StepWords(setting=setting, columns="what the second stage matches on, and its rate")

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

    def cells(self, law: SwapCellLaw) -> SwapCellLaw:
        return replace(law, fine_match=self.fine_match, fine_rate=self.fine_rate)

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

    # ---- small files of one coarse stratum, their hold values pairs (fine match, other)

    def on_small(self, swap: StratumLaw) -> StratumLaw:
        first = stage(swap, within=lambda match: None)
        then = stage(PermutationLaw(rate=self.fine_rate).on_small, within=lambda match: match)

        def law(records: Any) -> Law:
            last = chained(first(tuple((match, held, value) for (match, held), value in records)), then)
            return last.pushed(lambda rows: tuple(((match, held), value) for match, held, value in rows))  # type: ignore[attr-defined]

        return law

    def universes(self) -> list[list[Hashable]]:
        files = (
            *(("1a 1b", "xy"), ("1a 1b 2c", "xxy"), ("1a 1b 2c", "xyz"), ("1a 1b 2c 2d", "xxyy")),
            *(("1a 2a 3b", "xyz"), ("1a 2a 3b 4c", "wxyz")),
        )
        return [
            [tuple(((h[0], h[1]), s) for h, s in table) for table in tables_with_margins(hold.split(), swap)]  # type: ignore[attr-defined]
            for hold, swap in files
        ]

    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        columns = {
            "fine": [match for (match, _), _ in records],
            "held": [held for (_, held), _ in records],
            swap[0]: [value for _, value in records],
        }
        settings = {"match": (), "fine_match": ("fine",), "swap": swap[:1], "hold": ("held",), "rates": ()}
        return SmallFile(columns, settings)


class TwoStageSwap(RatedSwap):
    """Permutation swapping among records of equal ``match`` values, then once more among those equal on more.

    The second stage matches on ``fine_match`` too and exchanges the same variables at ``fine_rate``. Only counts
    of ``match`` x ``swap`` stay exact; those of ``fine_match`` x ``swap`` do not. That is the point: swapping on
    the fine strata alone would fix them. The loss relative to these fewer invariants is that of the first
    stage; relative to the fine ones the smaller of both, by the sizes of the fine strata alone, because which
    of them have anything to swap is no invariant here.

    >>> import polars as pl
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
    family: ClassVar[SwapFamily] = SwapFamily(moved=permutation_moved)
    settings: TwoStageSettings
    swap_law: PermutationLaw
    steps: tuple[FinerSwap]

    @property
    def in_words(self) -> str:
        fine = f"among those with equal {', '.join(self.matched)} at a rate of {self.steps[0].fine_rate}"
        coarse = f"exchanged among {self.among} at {self.at_rate}"
        return f"Two-stage swapping: {', '.join(self.swap)} {coarse}, then {fine}; everything else is held."


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


# ---- the budgets and the exact law of stages


def staged_epsilon(stages: Sequence[Exact]) -> tuple[Exact, ...]:
    """Return the budgets of swapping in nested strata: one for each level of matching, the coarsest first (R13).

    Each has its own invariants: under the flavor of a coarse level the finer margins of the swap values are *not*
    invariant, and relative to the finest ones the smallest budget of all stages holds.
    ``stages`` are the budgets of the single stages, the coarsest first; a finer one must hold in *every*
    universe that the coarser stages can reach. The laws of the finer stages depend on nothing (permutation, Mallows and
    shuffle swaps, and the conditioned swap with a law fixed beforehand): nothing holds for laws that follow the fine
    margins, because the coarse stage changes them.

    >>> from stirred.spec.exact import ln
    >>> staged_epsilon([ln(9), ln(4)])
    (Exact('ln(9)'), Exact('ln(4)'))
    """
    if not stages:
        raise wrong("no stage", where="stages", remedy="give at least one budget, the coarsest first")
    return tuple(accumulate(stages, min))


def stage(law: StratumLaw, *, within: Callable[[Any], Hashable]) -> Callable[[File], Law]:
    """Return one stage: a swap within the strata that ``within`` makes of the match values.

    Everything but the swap value is held, the match value included.

    >>> from stirred.mechanisms.records.laws.permutation import varying_rate_law
    >>> half = lambda records: varying_rate_law(records, lambda record: Fraction(1, 2))
    >>> swap = stage(half, within=lambda m: None)
    >>> len(swap(((0, "a", "x"), (1, "b", "y"))))
    2
    """

    def of(file: File) -> Law:
        parts: dict[Hashable, list[tuple[Hashable, Hashable]]] = {}
        for match, hold, swap in file:
            parts.setdefault(within(match), []).append(((match, hold), swap))
        return together(map(law, parts.values()), lambda table: [(m, h, s) for (m, h), s in table])

    return of
