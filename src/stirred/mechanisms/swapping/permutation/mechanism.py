"""Permutation swapping (Algorithm 1): the promise and the act side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import Coded
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import Curve, Exchange, Settings, StratumAudit
from stirred.mechanisms.swapping.core.margins import Shares, permutation_share
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.rate_rules import RateRules, check_rule, every_rule_fits, with_record_rates
from stirred.mechanisms.swapping.core.rates import Rule
from stirred.mechanisms.swapping.core.roles import Roles, SwapRate, SwapSettings, check_names
from stirred.mechanisms.swapping.core.small_strata import OwnLoss, own_loss
from stirred.mechanisms.swapping.core.strata import Strata, find_strata
from stirred.mechanisms.swapping.core.swap import PAPER, RatedSwap, Swap
from stirred.mechanisms.swapping.core.swapped_file import Part
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.doubts.promise import Changed
from stirred.mechanisms.swapping.laws.counting import exact_loss
from stirred.mechanisms.swapping.permutation.imputed import (
    FLAGGED,
    agreeing_on_imputed,
    beside_imputed,
    law_beside_imputed,
    without_imputed,
)
from stirred.mechanisms.swapping.permutation.law import psa_law, varying_rate_law
from stirred.mechanisms.swapping.permutation.varying import (
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
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import (
    psa_epsilon,
    psa_existential_bound,
    psa_rates_for,
    psa_sharp_epsilon,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)


class PermutationSettings(SwapSettings):
    """A rate, and where it is another one."""

    rate: SwapRate
    rates: list[dict[str, Any]] = Field(
        default=[],
        description="Other rates, each with the values it applies to, of match, hold or swap variables; the last that "
        "fits wins.",
        json_schema_extra={"example": [{"size": 1, "rate": "1/10"}]},
    )
    imputed: str | None = Field(
        default=None,
        description="A column that flags imputed records, which are not swapped.",
        json_schema_extra={"example": "imputed"},
    )


SHARP = "R1 and R2, the sharp form of Theorem 1 (docs/theory/sharp-budget.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationSwap(RatedSwap):
    """Swap values between records of equal ``match`` values: the Permutation Swapping Algorithm.

    Records are selected independently with probability ``rate`` (drawn again where exactly one of a
    stratum is selected) and exchange all their ``swap`` variables along a uniformly random
    derangement; everything else, persons included, is held. ``rates`` overrides the rate where match, hold or swap
    variables have given values, the last fitting rule winning; inside a stratum that costs more (R8), and a rate
    that depends on other records has no such budget and is refused (R8e). ``imputed`` names a column that flags imputed
    records: they exchange with nobody and are published as they are (R9).

    >>> from stirred.randomness.entropy import Entropy
    >>> swap = PermutationSwap(match=["size"], swap=["county"], rate="3/4")
    >>> homes = pl.DataFrame({"size": [1, 1, 2, 2], "county": list("ABAB"), "tenure": list("oror")})
    >>> swap.plan(homes).specification.budget.shown
    '1.10'
    >>> released = swap.release(homes, Entropy.from_os()).public["data"]
    >>> sorted(released.select("size", "county").rows())  # match x swap is invariant
    [(1, 'A'), (1, 'B'), (2, 'A'), (2, 'B')]
    """

    name: ClassVar[str] = "permutation-swap"
    title: ClassVar[str] = "permutation swapping"
    settings_model: ClassVar[type[Settings]] = PermutationSettings
    member: ClassVar[str] = "permutation"
    stratum_settings: ClassVar[Mapping[str, str | None]] = {"rate": None}
    # The budget is a formula in n, another one from n = 4 on, and attained where all values differ (R1).
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*Swap.audited, ("abcd", "wxyz"))

    rates: Sequence[Mapping[str, Any]] = ()
    imputed: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", tuple(dict(rule) for rule in self.rates))
        Swap.__post_init__(self)
        if self.imputed is not None and self.imputed not in self.match:
            object.__setattr__(self, "match", (*self.match, self.imputed))
            check_names(matched=self.matched, swap=self.swap, hold=self.hold)
        for number, rule in enumerate(self.rates, start=1):
            self._check_rule(rule, where=f"rates entry {number}")

    def _check_rule(self, rule: Mapping[str, Any], *, where: str) -> None:
        """Refuse rates that depend on anything but released values of the record itself (R8)."""
        check_rule(rule, where=where)
        released = ("rate", *self.match, *self.swap, *(self.hold or ()))
        if self.hold is not None and (other := [name for name in rule if name not in released]):
            raise bad_plan(
                f"rates may depend on match, hold and swap variables only, not on {listed(other)}",
                where=where,
                remedy="name values of the record that are released: rates by anything else, such as a flag of risk or "
                "rareness made from other records, lose in proportion to the size of the stratum",
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
        left = f" records flagged by {self.imputed} are left as they are;" if self.imputed is not None else ""
        return f"Permutation swapping: {self.exchanged};{left} everything else is held."

    @property
    def exchanged(self) -> str:
        """Say what is exchanged among whom, and how often."""
        rates = f"at a rate of {self.rate}"
        if self.rates:
            rates = f"at rates that depend on {', '.join(self.followed) or 'the match values'}"
        return f"{', '.join(self.swap)} exchanged among {self.among}, {rates}"

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss on a stratum where hold and swap values occur this often, beside its bounds.

        ``sharp_bound`` holds for every stratum of this size (swapping theory R1 and R2), ``theorem_bound`` is the
        paper's, and some stratum of this size loses at least ``existential_bound`` (Theorem 3).

        >>> swap = PermutationSwap(match=[], swap=["county"], rate="1/2")
        >>> found = swap.stratum_audit((3, 2), (2, 2, 1))
        >>> found.passed, found.tables, found.exact_loss <= found.sharp_bound <= found.theorem_bound
        (True, 5, True)
        """
        rate = Fraction(self.rate)
        found = exact_loss(hold, swap, rate)
        # A stratum with one hold value or one swap value has a single table: nothing to swap (R1, live).
        size = sum(hold) if len(hold) > 1 and len(swap) > 1 else 0
        return replace(
            found.audit(psa_sharp_epsilon(rate, stratum=size), for_every=" of this size"),
            theorem_bound=psa_epsilon(rate, largest_stratum=size),
            existential_bound=psa_existential_bound(rate, largest_stratum=size),
        )

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
        return one.plan(pl.DataFrame(records), doubts=False).specification

    def rules(self) -> tuple[list[Rule], Fraction]:
        """Return the rates of records with given values, and the rate of all others."""
        rules = self._declared_rules()
        if self.imputed is not None:
            rules += [({self.imputed: flag}, Fraction(0)) for flag in FLAGGED]
        return rules, Fraction(self.rate)

    @property
    def exchange(self) -> Exchange | None:
        """Return what is exchanged within which strata; None where rates follow records, or some are left out."""
        return None if self.followed or self.imputed is not None else Exchange(tuple(self.match), tuple(self.swap))

    def _declared_rules(self) -> list[Rule]:
        return [
            ({k: v for k, v in rule.items() if k != "rate"}, probability(rule["rate"], where="rates"))
            for rule in self.rates
        ]

    @property
    def imputed_flag(self) -> str | None:
        """Return the column that flags imputed records, which are not swapped."""
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
            strata = Swap._strata(self, data, swap, held)
            every_rule_fits(self._declared_rules(), strata)
            return strata
        rules = self.rate_rules
        strata = find_strata(data.households, match=self.match, swap=swap, held=held, rates=(), rate=rules.rate)
        hold = [name for name in self.followed if name not in self.swap]
        return with_record_rates(
            strata, rules, data.households, hold=hold, swap=swap, declared=len(self._declared_rules())
        )

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        return varying_policy(strata, self.rate_rules) if self.followed else strata.policy

    def changed_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the share of records that change their value; refuse where it depends on what is protected."""
        if not self.followed:
            return Swap.changed_shares(self, strata, swap)
        raise bad_plan(
            "whom a swap moves whose rates follow hold or swap values depends on counts that it protects",
            where="rates",
            remedy="compare its loss by `stirred plan`, one plan at a time",
        )

    def _changed(self, plan: SwapPlan) -> Changed | None:
        return None if self.followed else Swap._changed(self, plan)

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum; not a number where that is protected."""
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

    def rates_reaching(self, plan: SwapPlan, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return both rates: the loss falls with the rate, and rises again at high ones."""
        largest = plan.strata.largest_live
        size = largest.records if largest else 0
        rates = psa_rates_for(epsilon, largest_stratum=size, bound="sharp")
        low, high = (rate_not_above(epsilon, largest_stratum=size, high=high, bound="sharp") for high in (False, True))
        return [(float(rates.low), low), (float(rates.high), high)]

    def loss_curve(self, plan: SwapPlan) -> Curve | None:
        """Return the loss against the rate for the largest stratum, with the rates that were chosen."""
        strata = plan.strata
        if strata.by_record is not None or strata.largest_live is None:
            return None
        points, least = _curve(strata.largest_live.records)
        chosen = tuple(
            (float(part.rate), float(psa_sharp_epsilon(part.rate, stratum=part.largest_stratum)))
            for part in strata.policy.strata
            if 0 < part.rate < 1 and part.largest_stratum
        )
        y = "epsilon (relative to the invariants)"
        return Curve(points=points, marked=chosen, least=least, x="swap rate", y=y)

    def _theorem(self) -> tuple[str, ...]:
        if self.followed:
            return (THEOREM, SHARP, f"Proposition 4 of {PAPER}")
        return (SHARP, f"Theorem 1 of {PAPER}", f"Proposition 4 of {PAPER}")

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        if self.followed:
            return None  # the enumeration is for one rate in each stratum
        return own_loss(strata, swap=swap, held=held)

    def _kernel(self, plan: SwapPlan) -> Kernel:
        from stirred.mechanisms.swapping.permutation.kernel import swap_in_place

        return partial(swap_in_place, rates=plan.strata.rates)


@lru_cache(maxsize=8)
def _curve(size: int) -> tuple[tuple[tuple[float, float], ...], tuple[float, float]]:
    """Return the loss against the rate for a largest stratum, and its smallest: the same in every edition."""
    least = (float(smallest_psa_rate(size, bound="sharp")), float(smallest_psa_epsilon(size, bound="sharp")))
    # In large strata the smallest loss lies behind the last rate of the grid, and the curve bends down to it.
    grid = [Fraction(p, 200) for p in range(1, 200)]
    last = [rate for k in range(1, 30) if float(rate := 1 - Fraction(1, 200 * 2**k)) < least[0]]
    points = [(float(rate), float(psa_sharp_epsilon(rate, stratum=size))) for rate in (*grid, *last)]
    return (*points, *([least] if least[0] > points[-1][0] else [])), least
