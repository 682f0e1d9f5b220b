"""Two stages of matching: among coarse strata first, then inside finer ones (swapping theory R13)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import Coded, count, encode
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import FINE_COLUMNS, CellLaw, Curve, Names, NumberMoved, Progress, Rate, Settings
from stirred.mechanisms.swapping.core.margins import permutation_share, staged_share
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.rates import StratumRates
from stirred.mechanisms.swapping.core.roles import OtherRates, Roles, SwapRate, SwapSettings
from stirred.mechanisms.swapping.core.swap import RateLike
from stirred.mechanisms.swapping.core.swapping import Values
from stirred.mechanisms.swapping.laws.moved import permutation_moved
from stirred.mechanisms.swapping.layers.budget import staged_epsilon
from stirred.mechanisms.swapping.layers.chains import chained, stage
from stirred.mechanisms.swapping.layers.layer import Layer, between_closer
from stirred.mechanisms.swapping.permutation.law import tables_with_margins
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.exact import Exact
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TwoStagePlan(SwapPlan):
    """The plan of both stages: ``strata`` are the coarse ones, ``fine`` gives each record its fine stratum.

    ``specification`` is the promise that is published, relative to the coarse invariants. ``fine_specification``
    is what the same release promises to those who compare only files that agree on the fine margins too.
    """

    fine: Coded = field(repr=False)
    fine_specification: Specification

    @property
    def further_losses(self) -> dict[str, Exact]:
        """Return the loss relative to the fine margins."""
        return {"fine_epsilon": self.fine_specification.budget.realised}

    @property
    def also_promised(self) -> str:
        """Say what holds relative to the fine margins; a function of the coarse invariants."""
        crossed = self.fine_specification.multiverse.invariants[0]
        return (
            "The loss of the specification is the one to rely on. Between files that moreover agree on the "
            f"{crossed} it is at most {self.fine_specification.budget.shown}. These counts are not published exactly: "
            "this release neither keeps nor publishes them."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStageSwap(Layer):
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
    >>> plan.specification.budget.shown, plan.fine_specification.budget.shown
    ('3.30', '0')
    >>> released = swap.release(homes, Entropy.from_os(), accept=["exposed"]).public["data"]
    >>> sorted(released.select("size", "county").rows())
    [(1, 'A'), (1, 'A'), (1, 'B'), (1, 'B')]
    """

    name: ClassVar[str] = "two-stage-swap"
    title: ClassVar[str] = "two-stage swapping"
    settings_model: ClassVar[type[Settings]] = TwoStageSettings
    member: ClassVar[str] = "two-stage"
    number_moved: ClassVar[NumberMoved | None] = staticmethod(permutation_moved)
    two_stages: ClassVar[bool] = True
    # Who changes a value in the second stage depends on the fine margins, which are not invariant.
    unsaid: ClassVar[tuple[str, str] | None] = (
        "whom the two-stage swap moves depends on counts that it protects",
        "compare its loss and its share moved by `stirred plan`, one plan at a time",
    )

    fine_match: Sequence[str]
    fine_rate: RateLike

    def __post_init__(self) -> None:
        names = self.fine_match
        object.__setattr__(self, "fine_match", (names,) if isinstance(names, str) else tuple(names))
        object.__setattr__(self, "fine_rate", probability(self.fine_rate, where="fine_rate"))
        if not self.fine_match:
            raise bad_plan(
                "the second stage matches on nothing more than the first",
                where="fine_match",
                remedy="name further variables that only the second stage matches on, or use permutation-swap",
            )
        Layer.__post_init__(self)

    @property
    def matched(self) -> tuple[str, ...]:
        """Return the variables of the fine strata, which are all held."""
        return (*self.match, *self.fine_match)

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return both rates."""
        return f"{self.inner.setting_in_words(epsilon)}, then {percent(Fraction(self.fine_rate))}"

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        return (
            f"Two-stage swapping: {', '.join(self.swap)} exchanged among {self.among} at {self.at_rate}, then among "
            f"those with equal {', '.join(self.matched)} at a rate of {self.fine_rate}; everything else is held."
        )

    @property
    def cell_law(self) -> CellLaw | None:
        """Return what the moments of its tables follow from: both stages."""
        coarse = self.inner.cell_law
        if coarse is None:
            return None
        return replace(coarse, fine_match=tuple(self.fine_match), fine_rate=Fraction(self.fine_rate))

    def law(self, dataset: Any) -> Law:
        """Return the exact law for a small dataset of one coarse stratum, its hold values pairs (fine match, other)."""
        second = replace(self.inner, rate=self.fine_rate)
        first = stage(self.inner.law, within=lambda match: None)(tuple((m, h, s) for (m, h), s in dataset))
        last = chained(first, stage(second.law, within=lambda match: match))
        outcomes: dict[Hashable, Fraction] = {
            tuple(((m, h), s) for m, h, s in rows): chance  # type: ignore[attr-defined]
            for rows, chance in last.probabilities.items()
        }
        return Law(outcomes)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small coarse strata, each of one to four fine strata."""
        files = (
            *(("1a1b", "xy"), ("1a1b2c", "xxy"), ("1a1b2c", "xyz"), ("1a1b2c2d", "xxyy"), ("1a2a3b", "xyz")),
            ("1a2a3b4c", "wxyz"),
        )
        return [
            [tuple(((h[0], h[1]), s) for h, s in table) for table in tables_with_margins(_pairs(hold), swap)]  # type: ignore[attr-defined]
            for hold, swap in files
        ]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one coarse stratum."""
        first: Any = universe[0]
        columns = {
            "fine": [m for (m, _), _ in first],
            "held": [h for (_, h), _ in first],
            self.swap[0]: [s for _, s in first],
        }
        return self._one_stratum().plan(pl.DataFrame(columns), doubts=False).specification

    def _one_stratum(self) -> TwoStageSwap:
        return replace(self, match=(), fine_match=("fine",), swap=self.swap[:1], hold=("held",), rates=())

    @property
    def law_columns(self) -> dict[str, str]:
        """Return what the second stage matches on, and its rate: the same in all coarse strata."""
        settings = {"fine_match": json.dumps(list(self.fine_match)), "fine_rate": str(self.fine_rate)}
        return {FINE_COLUMNS[name]: text for name, text in settings.items()}

    @property
    def strata_in_words(self) -> str:
        """Say what strata.parquet has."""
        return f"{self.inner.strata_in_words}; what the second stage matches on, and its rate"

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate of the first stage would have."""
        return self.inner.losses(plan, rates)

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Return the gentlest rate of the first stage whose loss is at most ``epsilon``."""
        return self.inner.rate_reaching(plan, epsilon)

    def rates_reaching(self, plan: SwapPlan, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return both rates of the first stage where its loss becomes ``epsilon``."""
        return self.inner.rates_reaching(plan, epsilon)

    def loss_curve(self, plan: SwapPlan) -> Curve | None:
        """Return the loss against the rate of the first stage, which decides it."""
        return self.inner.loss_curve(plan)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise of the first stage: the second one is post-processing."""
        promised = self.inner.specification(universe)
        staged = "R13, two stages of matching (docs/theory/swapping-family.md)"
        return replace(promised, theorem=(staged, *promised.theorem))

    def _prepare(self, data: Microdata, roles: Roles) -> SwapPlan:
        plan = self.inner._prepare(data, roles, alone=False)
        plan = replace(plan, specification=self.specification(plan.universe))
        fine = encode(data.households, list(self.matched))
        sizes = count(fine.codes, groups=fine.count)
        coarse = np.zeros(fine.count, dtype=np.int64)
        coarse[fine.codes] = plan.strata.coded.codes
        shares = staged_share(
            plan.strata.sizes,
            coarse=self.inner.moved_shares(plan.strata, plan.swap),
            fine=permutation_share(sizes.astype(np.float64), np.full(fine.count, float(Fraction(self.fine_rate)))),
            fine_records=sizes.astype(np.float64),
            within=coarse,
        )
        promised = self._relative_to_fine(plan, int(sizes.max(initial=0)))
        strata = plan.strata.with_shares(shares)
        return plan.extended(TwoStagePlan, strata=strata, fine=fine, fine_specification=promised)

    def _relative_to_fine(self, plan: SwapPlan, largest: int) -> Specification:
        """Return the promise in the fine flavor, as a function of the coarse invariants (condition 4 of use)."""
        coarse = plan.specification.budget.realised
        # A stratum of one record has nobody to swap with: its fine universe is a single file.
        fine = psa_sharp_epsilon(Fraction(self.fine_rate), stratum=largest if largest > 1 else 0)
        formula = (
            f"the smaller of the loss of the first stage and that of permutation swapping at rate {self.fine_rate} on "
            f"the largest fine stratum, {largest} records, whether live or not"
        )
        policy = Derived(formula=formula, value=staged_epsilon([coarse, fine])[-1], varies=True)
        universe = replace(plan.universe, match=self.matched)
        multiverse = replace(plan.specification.multiverse, invariants=self.inner.margins(universe))
        condition = (
            f"the {multiverse.invariants[0]} is what the compared files agree on; the release neither keeps nor "
            "publishes it"
        )
        return between_closer(plan.specification, multiverse, policy, agreed=condition)

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.permutation.kernel import swap_in_place

        assert isinstance(plan, TwoStagePlan)
        # Coarse first: the proof aligns two files before the fine stage, whose law looks at no swap value.
        self.inner._exchange(plan, swapped, entropy, progress)
        swap_in_place(
            plan.fine.codes,
            swapped,
            rates=StratumRates.constant(Fraction(self.fine_rate), strata=plan.fine.count),
            entropy=entropy.child("fine stage"),
            threads=self.threads,
            progress=progress,
        )


def _pairs(text: str) -> list[str]:
    return [text[place : place + 2] for place in range(0, len(text), 2)]
