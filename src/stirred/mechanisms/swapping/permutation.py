"""Permutation swapping (Algorithm 1): the promise and the act side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.imputed import FLAGGED, agreeing_on_imputed, without_imputed
from stirred.mechanisms.swapping.law import psa_law
from stirred.mechanisms.swapping.persons import Part
from stirred.mechanisms.swapping.roles import check_names
from stirred.mechanisms.swapping.shares import Shares, permutation_share
from stirred.mechanisms.swapping.small_strata import OwnLoss, own_loss
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import PAPER, RateLike, Swap, Values
from stirred.mechanisms.swapping.swap_plan import SwapPlan, SwapUniverse
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import Exact, probability
from stirred.spec.law import Law
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import rate_not_above

SHARP = "R1 and R2, the sharp form of Theorem 1 (docs/theory/sharp-budget.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationSwap(Swap):
    """Swap values between records of equal ``match`` values: the Permutation Swapping Algorithm.

    Records are selected independently with probability ``rate`` (drawn again where exactly one of a
    stratum is selected) and exchange all their ``swap`` variables along a uniformly random
    derangement; everything else, persons included, is held. ``rates`` overrides the rate where match
    variables have given values, the last fitting rule winning. ``imputed`` names a column that flags imputed
    records: they exchange with nobody and are published as they are (R9).

    >>> import polars as pl
    >>> swap = PermutationSwap(match=["size"], swap=["county"], rate="1/4")
    >>> homes = pl.DataFrame({"size": [1, 1, 2, 2], "county": list("ABAB"), "tenure": list("oror")})
    >>> swap.plan(homes).specification.budget.shown
    '1.10'
    >>> released = swap.release(homes, Entropy.from_os()).public["data"]
    >>> sorted(released.select("size", "county").rows())  # match x swap is invariant
    [(1, 'A'), (1, 'B'), (2, 'A'), (2, 'B')]
    """

    member: ClassVar[str] = "permutation"

    rate: RateLike
    rates: Sequence[Mapping[str, Any]] = ()
    imputed: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", probability(self.rate, where="rate"))
        object.__setattr__(self, "rates", tuple(dict(rule) for rule in self.rates))
        Swap.__post_init__(self)
        if self.imputed is not None and self.imputed not in self.match:
            object.__setattr__(self, "match", (*self.match, self.imputed))
            check_names(matched=self.matched, swap=self.swap, hold=self.hold)
        for number, rule in enumerate(self.rates, start=1):
            self._check_rule(number, rule)

    def _check_rule(self, number: int, rule: Mapping[str, Any]) -> None:
        place = f"rates[{number}]"
        if "rate" not in rule:
            raise bad_plan("a rule without a rate", where=place, remedy="add rate = '1/20'")
        probability(rule["rate"], where=place)
        other = [name for name in rule if name not in (*self.match, "rate")]
        if other or len(rule) < 2:
            raise bad_plan(
                f"rates may depend on match variables only, not on {listed(other)}" if other else "a rule for nothing",
                where=place,
                remedy="name values of match variables: rates that depend on anything else are outside Theorem 1",
            )

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        among = f" among records with equal {', '.join(self.match)}" if self.match else " among all records"
        rates = "at rates that depend on the match values" if self.rates else f"at a rate of {self.rate}"
        left = f" records flagged by {self.imputed} are left as they are;" if self.imputed is not None else ""
        swapped = ", ".join(self.swap)
        return f"Permutation swapping: {swapped} exchanged{among}, {rates};{left} everything else is held."

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        return psa_law(dataset, rate=Fraction(self.rate))

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        rules = self._declared_rules()
        if self.imputed is not None:
            rules += [({self.imputed: flag}, Fraction(0)) for flag in FLAGGED]
        return rules, Fraction(self.rate)

    def _declared_rules(self) -> list[tuple[dict[str, object], Fraction]]:
        return [
            ({k: v for k, v in rule.items() if k != "rate"}, probability(rule["rate"], where="rates"))
            for rule in self.rates
        ]

    def _flag(self) -> str | None:
        return self.imputed

    def _left_out(self, strata: Strata) -> Strata:
        """Mark imputed strata: files are compared only if they agree there, so nothing in them can differ (R9)."""
        return strata if self.imputed is None else without_imputed(strata, self.imputed)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe; with imputed records, between files that agree on these (R9)."""
        promised = Swap.specification(self, universe)
        return promised if self.imputed is None else agreeing_on_imputed(promised, self.imputed, unit=self.unit)

    def _one_stratum(self) -> Swap:
        return replace(self, match=(), swap=self.swap[:1], hold=("held",), rates=(), imputed=None)

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        del swap
        return strata.policy

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""
        del swap
        rates = (
            [float(s.rate) for s in strata.table]
            if self.rates or self.imputed is not None
            else [float(Fraction(self.rate))] * len(strata.table)
        )
        return permutation_share(strata.sizes, np.array(rates))

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss if one rate applied to all strata, for several."""
        return [(rate, plan.strata.epsilon(rate)) for rate in rates]

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Return the gentlest rate for all strata whose loss is at most ``epsilon``; refuse where there is none."""
        largest = plan.strata.largest_live
        return rate_not_above(epsilon, largest_stratum=largest.records if largest else 0, bound="sharp")

    def _theorem(self) -> tuple[str, ...]:
        return (SHARP, f"Theorem 1 of {PAPER}", f"Proposition 4 of {PAPER}")

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        return own_loss(strata, swap=swap, held=held)

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.kernel import swap_in_place

        swap_in_place(
            plan.strata.coded.codes,
            swapped,
            rates=plan.strata.rates,
            entropy=entropy.child("permutation swap"),
            threads=self.threads,
            progress=progress,
        )
