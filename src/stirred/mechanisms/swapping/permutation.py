"""Permutation swapping (Algorithm 1): the promise and the act side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl

from stirred.data.codes import Coded
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError, bad_plan, listed
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.imputed import (
    FLAGGED,
    agreeing_on_imputed,
    beside_imputed,
    law_beside_imputed,
    without_imputed,
)
from stirred.mechanisms.swapping.laws.family import varying_rate_law
from stirred.mechanisms.swapping.laws.permutation import psa_law
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.persons import Part
from stirred.mechanisms.swapping.rate_rules import RateRules, with_record_rates
from stirred.mechanisms.swapping.rates import Rule
from stirred.mechanisms.swapping.roles import Roles, check_names
from stirred.mechanisms.swapping.shares import Shares, permutation_share
from stirred.mechanisms.swapping.small_strata import OwnLoss, own_loss
from stirred.mechanisms.swapping.strata import Strata, find_strata
from stirred.mechanisms.swapping.swap import PAPER, RateLike, Swap, Values
from stirred.mechanisms.swapping.swap_plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.varying import (
    LAW,
    THEOREM,
    as_named_values,
    fitting,
    followed_problems,
    named,
    own_values,
    varying_policy,
    varying_shares,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import rate_not_above

SHARP = "R1 and R2, the sharp form of Theorem 1 (docs/theory/sharp-budget.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationSwap(Swap):
    """Swap values between records of equal ``match`` values: the Permutation Swapping Algorithm.

    Records are selected independently with probability ``rate`` (drawn again where exactly one of a
    stratum is selected) and exchange all their ``swap`` variables along a uniformly random
    derangement; everything else, persons included, is held. ``rates`` overrides the rate where match, hold or swap
    variables have given values, the last fitting rule winning; inside a stratum that costs more (R8), and a rate
    that depends on other records has no such budget and is refused (R8e). ``imputed`` names a column that flags imputed
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
    rates_inside: ClassVar[bool] = True
    # The budget is a formula in n, another one from n = 4 on, and attained where all values differ (R1).
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*Swap.audited, ("abcd", "wxyz"))

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
        if len(rule) < 2:
            raise bad_plan("a rule for nothing", where=place, remedy="name values of match, hold or swap variables")
        if other := [name for name in rule if name != "rate" and not self._may_follow(name)]:
            raise self._follows_other(other, place)

    def _may_follow(self, name: str) -> bool:
        """Say whether rates may depend on a variable: on one that is released, of the record itself (R8)."""
        if not self.rates_inside:
            return name in self.match
        return self.hold is None or name in (*self.match, *self.swap, *self.hold)

    def _follows_other(self, names: Sequence[str], place: str) -> PlanError:
        if not self.rates_inside:
            return bad_plan(
                f"rates of the {self.member} swap may depend on match variables only, not on {listed(names)}",
                where=place,
                remedy="name values of match variables; permutation-swap takes hold and swap variables too",
            )
        return bad_plan(
            f"rates may depend on match, hold and swap variables only, not on {listed(names)}",
            where=place,
            remedy="name values of the record that are released: rates by anything else, such as a flag of risk or "
            "rareness made from other records, lose in proportion to the size of the stratum (R8e)",
        )

    @property
    def rate_rules(self) -> RateRules:
        """Return all rules with the rate of all other records."""
        rules, rate = self.rules()
        return RateRules(rules=tuple(rules), rate=rate)

    @property
    def followed(self) -> tuple[str, ...]:
        """Return the variables besides match that rates depend on: inside a stratum they differ (R8)."""
        named = dict.fromkeys(name for rule in self.rates for name in rule)
        return tuple(name for name in named if name not in (*self.match, "rate"))

    @property
    def stratum_law(self) -> str:
        """Return the name of the law: with rates that differ inside strata it is no class law."""
        return LAW if self.followed else self.member

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        among = f" among records with equal {', '.join(self.match)}" if self.match else " among all records"
        rates = f"at a rate of {self.rate}"
        if self.rates:
            rates = f"at rates that depend on {', '.join(self.followed) or 'the match values'}"
        left = f" records flagged by {self.imputed} are left as they are;" if self.imputed is not None else ""
        swapped = ", ".join(self.swap)
        return f"Permutation swapping: {swapped} exchanged{among}, {rates};{left} everything else is held."

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum.

        Rules on match values do not count. A hold or swap value is that of the one variable that rules name, or a
        tuple where they name several; where imputed records are left out, hold values are pairs (flag, value).
        """
        if self.imputed is not None:
            return law_beside_imputed(dataset, self._without_flag().law)
        if not self.followed:
            return psa_law(dataset, rate=Fraction(self.rate))
        rules, (hold, swap) = self.rate_rules.without(self.match), self._sides()
        return varying_rate_law(dataset, lambda record: rules.of({**named(hold, record[0]), **named(swap, record[1])}))

    def _without_flag(self) -> PermutationSwap:
        """Return the same swap of the records that are not imputed."""
        match = [name for name in self.match if name != self.imputed]
        return replace(self, match=match, rates=[rule for rule in self.rates if self.imputed not in rule], imputed=None)

    def _sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the hold and the swap variables of a file of one stratum: those that rates depend on, or one."""
        swap = tuple(name for name in self.swap if name in self.followed)
        return tuple(name for name in self.followed if name not in swap) or ("held",), swap or self.swap[:1]  # type: ignore[return-value]

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small strata; with rules, of the values that these name.

        Where imputed records are left out, two of them stand beside the others: the same ones in a whole universe (R9).
        """
        if self.imputed is not None:
            return [*map(beside_imputed, self._without_flag().audit_universes())]
        universes = Swap.audit_universes(self)
        if not self.followed:
            return universes
        rules, (hold, swap) = self.rate_rules.without(self.match), self._sides()
        names = {**as_named_values("abcd", hold, rules), **as_named_values("xyzw", swap, rules)}
        return [[tuple(sorted((names[h], names[s]) for h, s in table)) for table in tables] for tables in universes]  # type: ignore[attr-defined]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum, given the (hold, swap) pairs of all its tables."""
        first: Any = universe[0]
        hold, swap = self._sides()
        if self.imputed is None:
            records = [{**named(hold, h), **named(swap, s)} for h, s in first]
        else:
            records = [{self.imputed: flag, **named(hold, h), **named(swap, s)} for (flag, h), s in first]
        one = self._one_stratum()
        one = replace(one, rates=fitting(one.rates, records))
        return one.plan(pl.DataFrame(records)).specification

    def rules(self) -> tuple[list[Rule], Fraction]:
        """Return the rates of records with given values, and the rate of all others."""
        rules = self._declared_rules()
        if self.imputed is not None:
            rules += [({self.imputed: flag}, Fraction(0)) for flag in FLAGGED]
        return rules, Fraction(self.rate)

    def _declared_rules(self) -> list[Rule]:
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
        if self.followed:
            promised = replace(promised, assumptions=(*promised.assumptions, own_values(self.followed)))
        return promised if self.imputed is None else agreeing_on_imputed(promised, self.imputed, unit=self.unit)

    def _one_stratum(self) -> PermutationSwap:
        hold, swap = self._sides()
        rules = [rule for rule in self.rates if not {*rule} & {*self.match}]
        return replace(self, match=(), swap=swap, hold=hold, rates=rules)

    def _roles(self, data: Microdata) -> Roles:
        problems = [*followed_problems(data, [name for name in self.followed if name not in self.swap])]
        try:
            roles = Swap._roles(self, data)
        except StirredError as error:
            raise type(error)([*error.problems, *problems]) from None
        if problems:
            raise DataError(problems)
        return roles

    def _strata(self, data: Microdata, swap: Coded, held: Sequence[Part]) -> Strata:
        if not self.followed:
            return Swap._strata(self, data, swap, held)
        rules = self.rate_rules
        strata = find_strata(data.households, match=self.match, swap=swap, held=held, rates=(), rate=rules.rate)
        hold = [name for name in self.followed if name not in self.swap]
        return with_record_rates(
            strata, rules, data.households, hold=hold, swap=swap, declared=len(self._declared_rules())
        )

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        del swap
        return varying_policy(strata, self.rate_rules) if self.followed else strata.policy

    def changed_shares(self, strata: Strata, swap: Coded, margins: SwapMargins) -> Shares:
        """Return the share of records that change their value; refuse where it depends on what is protected."""
        if not self.followed:
            return Swap.changed_shares(self, strata, swap, margins)
        raise bad_plan(
            "whom a swap moves whose rates follow hold or swap values depends on counts that it protects (R18 is "
            "for rates by match values)",
            where="rates",
            remedy="compare its loss by `stirred plan`, one plan at a time",
        )

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum; not a number where that is protected."""
        del swap
        if self.followed:
            return varying_shares(strata)
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
        if self.followed:
            return (THEOREM, SHARP, f"Proposition 4 of {PAPER}")
        return (SHARP, f"Theorem 1 of {PAPER}", f"Proposition 4 of {PAPER}")

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        if self.followed:
            return None  # the enumeration is for one rate in each stratum
        return own_loss(strata, swap=swap, held=held)

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.kernels.permutation import swap_in_place

        swap_in_place(
            plan.strata.coded.codes,
            swapped,
            rates=plan.strata.rates,
            entropy=entropy.child("permutation swap"),
            threads=self.threads,
            progress=progress,
        )
