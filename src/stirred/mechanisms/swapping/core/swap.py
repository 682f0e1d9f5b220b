"""A member of the swapping family: its rates, its law on strata, what it promises and whom it changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
import polars as pl

from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.engines.protocol import LOCAL, Cluster, Engine
from stirred.mechanisms.protocol import CellLaw, Progress
from stirred.mechanisms.swapping.core import bulk
from stirred.mechanisms.swapping.core.margins import Shares, SwapMargins, class_law_changes
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.rates import Rule, rate_for
from stirred.mechanisms.swapping.core.roles import Roles
from stirred.mechanisms.swapping.core.small_strata import OwnLoss
from stirred.mechanisms.swapping.core.strata import Strata, find_strata
from stirred.mechanisms.swapping.core.swapped_file import Part, SwappedFile, held_parts
from stirred.mechanisms.swapping.core.swapping import Kernel, Swapping, Values
from stirred.mechanisms.swapping.doubts.promise import Changed
from stirred.mechanisms.swapping.permutation.law import tables_with_margins
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin, records_of
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.output_premetric import PURE
from stirred.spec.reliance import ONE_RUN
from stirred.spec.specification import Flavor, Specification

_LEAST_SHARE: Final = 1 / 1_000  # see doubts.promise.LEAST
PAPER = "Bailie, Gong and Meng, A Refreshment Stirred, Not Shaken"

RateLike = Fraction | str | float | int | Decimal

# The conditions of use that no code can enforce (docs/theory/conditions.md).
ASSUMPTIONS = (
    "the rates, the match, swap and hold variables and the collapsing of their values were fixed beforehand, or "
    "depend on the invariants alone",
    "neither the randomness, nor which records were selected, nor how many, nor accuracy measured against the "
    "confidential file is published",
    "no edit or structural zero is enforced by drawing again until an output satisfies it",
    ONE_RUN.words,
    "the operating system's generator and AES-256 in counter mode are taken as perfectly random",
    "a later release chosen after seeing this one keeps its own budget whatever this one shows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap(Swapping):
    """A member of the family: both tables of Proposition 4 are its invariants.

    A member says which rates its strata have (``rules``), what it promises (``_policy``, ``rests_on``) and how the
    swap codes of a file are exchanged (``_kernel``).
    """

    by_column: ClassVar[bool] = True
    rests_on: ClassVar[str]  # the result that its promise rests on, beside Proposition 4 of the paper
    # What a moved record gets. Where a law is one of values and not of records, moved records are the changed ones.
    moved_get: ClassVar[str] = "another record's values, which may be the same"
    # The hold and swap values of the strata that audits enumerate.
    audited: ClassVar[tuple[tuple[str, str], ...]] = (("aab", "xxy"), ("ab", "xy"), ("abc", "xyz"), ("aabb", "xxyy"))

    # ---- the law, as a function of the invariants

    @abstractmethod
    def rules(self) -> tuple[Sequence[Rule], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""

    @abstractmethod
    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        """Return the budget as a function of the invariants."""

    @abstractmethod
    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""

    def changed_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum."""
        return class_law_changes(strata.margins, strata.shares)

    def changed_where_live(self, strata: Strata, swap: Coded) -> Shares:
        """Return the same, 0 in strata with nothing to swap."""
        return np.where(strata.live_flags[strata.margins.stratum], self.changed_shares(strata, swap), 0.0)

    @property
    def cell_law(self) -> CellLaw | None:
        """Return what the moments of its tables follow from, where permutations that move as many are as likely."""
        moved = type(self).number_moved
        if moved is None or self.stratum_law != self.member:
            return None
        rules, rate = self.rules()
        rate_of = partial(rate_for, rules=rules, default=rate)
        return CellLaw(match=tuple(self.match), swap=tuple(self.swap), rate_of=rate_of, moved=moved)

    def areas_changed(self, plan: SwapPlan) -> pl.DataFrame:
        """Return for each combination of swap values how many records have it and which share is expected to change.

        A function of the invariants. Small areas are where swaps of the family differ most.
        """
        return by_area(plan.swap, plan.strata.margins, self.changed_where_live(plan.strata, plan.swap))

    def _changed(self, plan: SwapPlan) -> Changed | None:
        known, own = plan.strata.known, repr(self)
        if own not in known:
            count, share = plan.strata.margins.count, self.changed_where_live(plan.strata, plan.swap)
            still = int(count[share < _LEAST_SHARE].sum())
            known[own] = Changed(expected=float((count * share).sum()), still=still)
        changed: Changed = known[own]
        return changed

    # ---- the plan and the promise

    def _prepare(self, data: Microdata, roles: Roles, *, alone: bool = True) -> SwapPlan:
        """Return the plan; ``alone`` it may go by the exact loss of small strata, and not inside a layer."""
        swap = encode(data.households, list(self.swap))
        # Match variables are equal inside a stratum and can tell no records apart.
        held = held_parts(data, [name for name in roles.hold if name not in self.match])
        found = self._strata(data, swap, held)
        strata = self._left_out(found)
        strata = strata.with_shares(self.moved_shares(strata, swap))
        plan = self._laid_out(
            data,
            roles,
            strata=strata,
            swap=swap,
            policy=self._policy(strata, swap),
            imputed=self.imputed_flag,
            own=self._own_loss(strata, swap, held) if alone else None,
            untouched=found.exact_records,
            records=data.households.height,
        )
        return replace(plan, moved_get=self.moved_get)

    def _strata(self, data: Microdata, swap: Coded, held: Sequence[Part]) -> Strata:
        """Return the strata of a file with their rates."""
        rules, rate = self.rules()
        return find_strata(data.households, match=self.match, swap=swap, held=held, rates=rules, rate=rate)

    def _left_out(self, strata: Strata) -> Strata:
        """Return the strata with those marked as not live that are published as they are."""
        return strata

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        """Return the loss of the enumerated margins, where a member enumerates them."""
        return None

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, under the margins of Proposition 4."""
        return Specification(
            flavor=Flavor(
                domain=Domain.of_file(
                    universe.name,
                    stage=universe.stage,
                    record_types=(self.unit, "person") if universe.persons else (self.unit,),
                    columns=universe.columns,
                ),
                multiverse=Multiverse(
                    invariants=self.margins(universe),
                    nearest=2,
                    nearest_because="swapping: with both tables fixed no record can change alone",
                    consequences=self._determined(universe),
                ),
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit, post_imputation=universe.post_imputation),
                output_premetric=PURE,
            ),
            budget=universe.budget,
            assumptions=ASSUMPTIONS,
            relies_on=(ONE_RUN,),
            theorem=self._theorem(),
            settings_from=self.settings_from,
        )

    def _theorem(self) -> tuple[str, ...]:
        """Return what the promise rests on."""
        return (self.rests_on, f"Proposition 4 of {PAPER}")

    def margins(self, universe: SwapUniverse) -> tuple[Margin, Margin]:
        """Return the two tables that a swap keeps: match x swap, and what is held."""
        held = [name for name in universe.hold if name not in universe.match]
        inside = ("person",) if universe.persons else ()
        of_persons = ["all characteristics of its persons"] if universe.persons else []
        return (
            Margin(of=self.unit, variables=(*universe.match, *universe.swap)),
            Margin(of=self.unit, variables=(*universe.match, *held, *of_persons), includes=inside),
        )

    def _determined(self, universe: SwapUniverse) -> tuple[str, ...]:
        """Say about how many records the invariants tell everything: in their strata one margin is a single cell."""
        if not universe.untouched:
            return ()
        records = number(universe.untouched, records_of(self.unit, 1))
        share = percent(Fraction(universe.untouched, universe.records), digits=2)
        where = f"their strata (equal {' x '.join(universe.match)})" if universe.match else "this file"
        return (
            f"everything released about {records} ({share} of all): all records of {where} have "
            f"the same {' x '.join(universe.swap)}, or are alike in everything held, so nothing can be swapped there",
        )

    # ---- the exchange

    def on(self, engine: Engine) -> Self:
        """Return the swap whose records are exchanged and gathered by the machines of an engine, or on this one."""
        if engine.name == LOCAL:
            return replace(self, engine=None)
        _ = engine.sources["households"]  # refused here, in the plan, if the records are not those in the files
        return replace(self, engine=cast(Cluster, engine))

    def recheck(self, data: Microdata, plan: SwapPlan) -> None:
        """Compare what the machines of an engine read with what was planned."""
        if self.engine is not None:
            bulk.check_blocks(self.engine, plan.strata)  # how much memory a task has is known only now
            bulk.check_records(self.engine, self._narrowed(data), plan)

    def _planned(self, data: Microdata) -> SwapPlan:
        plan = Swapping._planned(self, data)
        if self.engine is not None:
            bulk.check_blocks(self.engine, plan.strata)
        return plan

    def _file(self, data: Microdata, plan: SwapPlan, *, swap: Coded, swapped: Values, order: Values) -> SwappedFile:
        if self.engine is None:
            return Swapping._file(self, data, plan, swap=swap, swapped=swapped, order=order)
        return bulk.gathered(self.engine, data, plan, swap=swap, swapped=swapped, order=order)

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        own = entropy.child(f"{self.member} swap")
        if self.engine is not None:
            advance = progress or (lambda stage, done, total: None)
            advance("exchanging", 0, 1)
            without_codes = replace(plan, swap=Coded(plan.swap.codes[:0], plan.swap.levels))  # the kernel travels
            bulk.exchange(self.engine, plan, self._kernel(without_codes), swapped, own)
            advance("exchanging", 1, 1)
            advance("gathering", 0, 1)
            return
        self._kernel(plan)(plan.strata.coded.codes, swapped, entropy=own, threads=self.threads, progress=progress)

    @abstractmethod
    def _kernel(self, plan: SwapPlan) -> Kernel:
        """Return the exchange of swap codes within strata, with everything it needs but the codes themselves."""

    # ---- small universes for audits

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small strata, as multisets of (hold, swap) pairs."""
        return [tables_with_margins(hold, swap) for hold, swap in self.audited]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum, given the (hold, swap) pairs of all its tables."""
        first: Any = universe[0]
        records = {"held": [h for h, _ in first], self.swap[0]: [s for _, s in first]}
        return self._one_stratum().plan(pl.DataFrame(records), doubts=False).specification

    def _one_stratum(self) -> Swap:
        """Return the same swap on a file of one stratum, with one swap and one hold variable."""
        return replace(self, match=(), swap=self.swap[:1], hold=("held",))


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedSwap(Swap):
    """A member with a rate, which decides its loss."""

    rate: RateLike

    def rules(self) -> tuple[Sequence[Rule], Fraction]:
        """Return no rules, and the rate."""
        return [], Fraction(self.rate)

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate, and whether there are others."""
        rules, rate = self.rules()
        return f"rate {percent(rate)}" + (", others by match value" if rules else "")

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same file."""
        return [(rate, replace(self, rate=rate)._policy(plan.strata, plan.swap).realised) for rate in rates]

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Return the gentlest rate, to a hundredth of a percent, whose loss is at most ``epsilon``.

        The losses of the conditioned and the shuffle swap fall with the rate.
        """
        low, high, steps = 0, 10_000, 10_000
        while high - low > 1:
            middle = (low + high) // 2
            ((_, found),) = self.losses(plan, [Fraction(middle, steps)])
            low, high = (low, middle) if found <= epsilon else (middle, high)
        return Fraction(high, steps)

    def rates_reaching(self, plan: SwapPlan, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return the one rate of ``rate_reaching``: these losses fall with the rate."""
        rate = self.rate_reaching(plan, epsilon)
        return [(float(rate), rate)]


def by_area(swap: Coded, margins: SwapMargins, share: Shares) -> pl.DataFrame:
    """Return for each combination of swap values its records, and the share of them that values of strata have."""
    records = np.bincount(margins.value, weights=margins.count, minlength=swap.count)
    changed = np.bincount(margins.value, weights=margins.count * share, minlength=swap.count)
    own = pl.DataFrame({"records": records.astype(np.int64), "share_changed": changed / records})
    return pl.concat([swap.levels, own], how="horizontal")
