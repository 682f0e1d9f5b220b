"""Permutation swapping (Algorithm 1): the promise and the act side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import Field

from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Check, Curve, Release, StratumAudit, SwapFamily, failed
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.family import MemberScale
from stirred.mechanisms.records.law import PAPER, Kernel, Policy, SmallFile, permutation_law
from stirred.mechanisms.records.laws.counting import (
    ClassLaw,
    count_tables,
    exact_loss,
    permutation_moved,
    psa_weights,
    require_feasible,
)
from stirred.mechanisms.records.laws.varying import (
    LAW,
    THEOREM,
    agreeing_on_imputed,
    as_named_values,
    decisive_stratum,
    declared_rules,
    fitting,
    followed_problems,
    named,
    permutation_share,
    varying_policy,
    varying_shares,
    with_rates,
)
from stirred.mechanisms.records.plan import OwnLoss, SwapPlan
from stirred.mechanisms.records.roles import SwapRate, SwapSettings
from stirred.mechanisms.records.strata import (
    FLAGGED,
    Part,
    Rule,
    Shares,
    Strata,
    StratumRow,
    find_strata,
    imputed_strata,
    rate_for,
)
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.exact import INFINITE, Exact, largest
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import (
    derangements,
    psa_epsilon,
    psa_existential_bound,
    psa_rates_for,
    psa_sharp_epsilon,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)

SHARP: Final = "R1 and R2, the sharp form of Theorem 1 (docs/theory/sharp-budget.md)"


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

    @property
    def matched(self) -> tuple[str, ...]:
        """Return the match variables, and the flag of imputed records among them."""
        flag = [] if self.imputed is None or self.imputed in self.match else [self.imputed]
        return (*self.match, *flag)

    def law(self) -> PermutationLaw:
        """Return the law; refuse rates that depend on anything but released values of the record itself (R8)."""
        rate = probability(self.rate, where="rate")
        declared = declared_rules(
            self.rates,
            allowed=None if self.hold is None else (*self.matched, *self.swap, *self.hold),
            only="rates may depend on match, hold and swap variables",
            remedy="name values of the record that are released: rates by anything else, such as a flag of risk or "
            "rareness made from other records, lose in proportion to the size of the stratum",
        )
        return PermutationLaw(
            rate=rate, declared=declared, imputed=self.imputed, match=self.matched, swap=tuple(self.swap)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationLaw(ClassLaw):
    """Select records independently with probability ``rate``, and exchange their values along a derangement.

    The selection is drawn again where exactly one record of a stratum is selected. ``declared`` rules give records with
    some values other rates; those that name more than ``match`` variables let rates differ inside a stratum (R8).
    Records that ``imputed`` flags stay as they are (R9).
    """

    name: ClassVar[str] = "permutation"
    rests_on: ClassVar[str] = SHARP
    passes: ClassVar[tuple[str, ...]] = ("selected",)
    bound_for_every: ClassVar[str] = " of this size"
    # The budget is a formula in n, another one from n = 4 on, and attained where all values differ (R1).
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*ClassLaw.audited, ("abcd", "wxyz"))

    rate: Fraction
    declared: tuple[Rule, ...] = ()
    imputed: str | None = None
    match: tuple[str, ...] = ()
    swap: tuple[str, ...] = ()

    def problems(self, data: Microdata) -> Iterator[Problem]:
        return followed_problems(data, [name for name in self.followed if name not in self.swap])

    @property
    def rules(self) -> tuple[Rule, ...]:
        if self.imputed is None:
            return self.declared
        left: list[Rule] = [({self.imputed: flag}, Fraction(0)) for flag in FLAGGED]
        return (*self.declared, *left)

    @property
    def followed(self) -> tuple[str, ...]:
        """Return the variables besides match that rates depend on: inside a stratum they differ (R8)."""
        return tuple(dict.fromkeys(name for rule, _ in self.declared for name in rule if name not in self.match))

    @property
    def by_sizes(self) -> bool:  # type: ignore[override]
        """Say that sizes decide everything unless rates follow records, or some are left out."""
        return not self.followed and self.imputed is None

    @property
    def hidden(self) -> Problem | None:
        if not self.followed:
            return None
        return Problem(
            what="whom a swap moves whose rates follow hold or swap values depends on counts that it protects",
            where="rates",
            remedy="compare its loss by `stirred plan`, one plan at a time",
        )

    @property
    def stratum_law(self) -> str:
        """Return the name of the law: with rates that differ inside strata it is no class law."""
        return LAW if self.followed else self.name

    # ---- the promise

    def policy(self, strata: Strata, swap: Coded) -> Policy:
        """Return the sharp budget (R1), or that of rates that differ inside strata (R8)."""
        return varying_policy(strata, self.rules, self.rate) if self.followed else sharp_policy(strata)

    @property
    def theorem(self) -> tuple[str, ...]:
        if self.followed:
            return (THEOREM, SHARP, f"Proposition 4 of {PAPER}")
        return (SHARP, f"Theorem 1 of {PAPER}", f"Proposition 4 of {PAPER}")

    def promised(self, specification: Specification, *, unit: str) -> Specification:
        """Return the promise with what rules assume; with imputed records, between files that agree on these (R9)."""
        if self.followed:
            # No code can see it: a column made from other records voids the budget (R8e).
            own = (
                f"{', '.join(self.followed)}, on which the rates depend, tell of a record itself: none is computed "
                "from other records, as scores of risk and flags of rareness are"
            )
            specification = replace(specification, assumptions=(*specification.assumptions, own))
        return specification if self.imputed is None else agreeing_on_imputed(specification, self.imputed, unit=unit)

    def own_loss(self, strata: Strata, *, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        """Return the enumerated loss of small strata; the enumeration is for one rate in each."""
        return None if self.followed else own_loss(strata, swap=swap, held=held)

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss on a stratum where hold and swap values occur this often, with its bounds.

        ``sharp_bound`` holds for every stratum of this size (swapping theory R1 and R2), ``theorem_bound`` is the
        paper's, and some stratum of this size loses at least ``existential_bound`` (Theorem 3).

        >>> found = PermutationLaw(rate=Fraction(1, 2)).stratum_audit((3, 2), (2, 2, 1))
        >>> found.passed, found.tables, found.exact_loss <= found.sharp_bound <= found.theorem_bound
        (True, 5, True)
        """
        require_feasible(hold, swap)
        size = _live_records(hold, swap)
        return replace(
            ClassLaw.stratum_audit(self, hold, swap),
            theorem_bound=psa_epsilon(self.rate, largest_stratum=size),
            existential_bound=psa_existential_bound(self.rate, largest_stratum=size),
        )

    def weights(self, n: int) -> list[Fraction]:
        return psa_weights(n, self.rate)

    def bound(self, hold: Sequence[int], swap: Sequence[int]) -> Exact:
        return psa_sharp_epsilon(self.rate, stratum=_live_records(hold, swap))

    # ---- the strata, and whom the law moves in them

    def strata(
        self, households: pl.DataFrame, *, match: Sequence[str], swap: Coded | None, held: Sequence[Part] | None
    ) -> Strata:
        """Return the strata with their rates, or with those of their records; refuse a rule that fits nothing."""
        strata = find_strata(households, match=match, swap=swap, held=held, rate=self.rate)
        if not self.rules:
            return strata
        return with_rates(
            strata,
            self.rules,
            self.rate,
            households=households,
            swap=swap,
            followed=self.followed,
            declared=len(self.declared),
        )

    def left_out(self, strata: Strata) -> Strata:
        """Mark imputed strata: files are compared only if they agree there, so nothing in them can differ (R9)."""
        if self.imputed is None:
            return strata
        return replace(strata, live=strata.live & ~imputed_strata(strata, self.imputed))

    def moved(self, strata: Strata, swap: Coded) -> Shares:
        if not self.rules:  # the strata may be those of a plan at another rate
            return permutation_share(strata.records, np.full(strata.count, float(self.rate)))
        return varying_shares(strata)

    def decisive(self, strata: Strata) -> StratumRow | None:
        if strata.by_record is None and len({strata.rates[kind] for kind in np.unique(strata.which[strata.live])}) < 2:
            return None
        return decisive_stratum(strata)

    # ---- the draw and the exact law

    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        from stirred.mechanisms.records.kernels.selected import swap_in_place

        return partial(swap_in_place, rates=strata.kernel_rates)

    def checks(self, plan: SwapPlan, release: Release) -> list[Check]:
        """Check that no imputed record got another value, where they are left out (R9)."""
        if self.imputed is None:
            return []
        left = imputed_strata(plan.strata, self.imputed)[plan.strata.coded.codes]
        if not np.array_equal(plan.swap.codes[left], release.internal["file"].swapped[left]):
            raise failed("an imputed record was swapped")
        return [Check(what="imputed records, each with its own swap values", cells=int(np.count_nonzero(left)))]

    # ---- small files of one stratum. A hold or swap value is that of the one variable that rules name, or a tuple
    # where they name several; where imputed records are left out, hold values are pairs (flag, value). Rules on match
    # values do not count.

    def on_small(self, records: Any) -> Law:
        if self.by_sizes:
            return ClassLaw.on_small(self, records)
        rules = (*self._inside, *self.rules[len(self.declared) :])
        return varying_rate_law(records, lambda record: rate_for(self._values(record), rules, self.rate))

    @property
    def _inside(self) -> list[Rule]:
        """Return the declared rules that name no match variable."""
        return [rule for rule in self.declared if not {*rule[0]} & {*self.match}]

    def _sides(self, swap: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the hold and the swap variables of a small file: those that rates depend on, or one."""
        swapped = tuple(name for name in swap if name in self.followed)
        return tuple(name for name in self.followed if name not in swapped) or ("held",), swapped or (*swap[:1],)

    def _values(self, record: Any) -> dict[str, Any]:
        """Return the values of a record of a small file by variable."""
        (held, swapped), (hold, swap) = record, self._sides(self.swap)
        if self.imputed is None:
            return {**named(hold, held), **named(swap, swapped)}
        return {self.imputed: held[0], **named(hold, held[1]), **named(swap, swapped)}

    def universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small strata; with rules, of the values that these name.

        Where imputed records are left out, every table has the same two of them (R9).
        """
        found: Any = ClassLaw.universes(self)
        if self.followed:
            hold, swap = self._sides(self.swap)
            names = {
                **as_named_values("abcd", hold, self._inside),
                **as_named_values("xyzw", swap, self._inside),
            }
            found = [[tuple(sorted((names[h], names[s]) for h, s in each)) for each in one] for one in found]
        if self.imputed is not None:
            for tables in found:
                kept = [(("true", h), s) for h, s in (tables[0][0], tables[0][-1])]
                tables[:] = [(*((("false", h), s) for h, s in table), *kept) for table in tables]
        return cast(list[list[Hashable]], found)

    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        values = [self._values(record) for record in records]
        hold, swapped = self._sides(swap)
        rules = [{**rule, "rate": rate} for rule, rate in fitting(self._inside, values)]
        columns = {name: [each[name] for each in values] for name in values[0]}
        return SmallFile(columns, {"match": (), "swap": swapped, "hold": hold, "rates": rules})

    # ---- other rates

    def losses(self, strata: Strata, swap: Coded, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss if one rate applied to all strata, for several."""
        return [(rate, psa_sharp_epsilon(rate, stratum=strata.largest_size)) for rate in rates]

    def rate_reaching(self, strata: Strata, swap: Coded, epsilon: Exact) -> Fraction:
        return rate_not_above(epsilon, largest_stratum=strata.largest_size, bound="sharp")

    def strongest_rate(self, strata: Strata) -> float:
        live = strata.largest_live
        return 1.0 if live is None else float(smallest_psa_rate(live.records, bound="sharp"))

    def rates_reaching(self, strata: Strata, swap: Coded, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return both rates: the loss falls with the rate, and rises again at high ones."""
        size = strata.largest_size
        rates = psa_rates_for(epsilon, largest_stratum=size, bound="sharp")
        low, high = (rate_not_above(epsilon, largest_stratum=size, high=high, bound="sharp") for high in (False, True))
        return [(float(rates.low), low), (float(rates.high), high)]

    def loss_curve(self, strata: Strata) -> Curve | None:
        if strata.by_record is not None or strata.largest_live is None:
            return None
        points, least = _curve(strata.largest_size)
        chosen = tuple(
            (float(part.rate), float(psa_sharp_epsilon(part.rate, stratum=part.largest_stratum)))
            for part in sharp_policy(strata).strata
            if 0 < part.rate < 1 and part.largest_stratum
        )
        y = "epsilon (relative to the invariants)"
        return Curve(points=points, marked=chosen, least=least, x="swap rate", y=y)


def law_by_match(settings: Any, *, member: str) -> PermutationLaw:
    """Return the law of the permutation swap inside the steps, whose rates may depend on match variables only.

    What is proven about steps (R13 to R15) is for swaps that treat all records of a stratum alike.
    """
    rate = probability(settings.rate, where="rate")
    declared = declared_rules(
        settings.rates,
        allowed=settings.match,
        only=f"rates of the {member} swap may depend on match variables",
        remedy="name values of match variables; permutation-swap takes hold and swap variables too",
    )
    return PermutationLaw(rate=rate, declared=declared, match=tuple(settings.match))


def _live_records(hold: Sequence[int], swap: Sequence[int]) -> int:
    """Return the size of a stratum; 0 where it has one hold or swap value, one table and nothing to swap (R1)."""
    return sum(hold) if len(hold) > 1 and len(swap) > 1 else 0


def sharp_policy(strata: Strata) -> PermutationSwapping:
    """Return the budget as a function of the universe: the largest live stratum at each rate (R1)."""
    sizes: dict[Fraction, int] = {}
    for kind in np.unique(strata.which).tolist():
        live, rate = strata.live & (strata.which == kind), strata.rates[kind].lowest
        sizes[rate] = max(sizes.get(rate, 0), int(strata.records[live].max(initial=0)))
    parts = tuple(SwappedStrata(rate=rate, largest_stratum=size) for rate, size in sorted(sizes.items()))
    return PermutationSwapping(strata=parts, bound="sharp")


class PermutationSwap(RatedSwap):
    """Swap values between records of equal ``match`` values: the Permutation Swapping Algorithm.

    Records are selected independently with probability ``rate`` (drawn again where exactly one of a
    stratum is selected) and exchange all their ``swap`` variables along a uniformly random
    derangement; everything else, persons included, is held. ``rates`` overrides the rate where match, hold or swap
    variables have given values, the last fitting rule winning; inside a stratum that costs more (R8), and a rate
    that depends on other records has no such budget and is refused (R8e). ``imputed`` names a column that flags imputed
    records: they exchange with no one and are published as they are (R9).

    >>> from stirred.randomness.entropy import Entropy
    >>> swap = PermutationSwap(match=["size"], swap=["county"], rate="3/4")
    >>> homes = pl.DataFrame({"size": [1, 1, 2, 2], "county": list("ABAB"), "tenure": list("oror")})
    >>> swap.plan(homes).specification.budget.shown
    '1.10'
    >>> released = swap.release(homes, Entropy.from_os(), accept=["exposed"]).public["data"]
    >>> sorted(released.select("size", "county").rows())  # match x swap is invariant
    [(1, 'A'), (1, 'B'), (2, 'A'), (2, 'B')]
    """

    name: ClassVar[str] = "permutation-swap"
    title: ClassVar[str] = "permutation swapping"
    settings_model: ClassVar[type[SwapSettings]] = PermutationSettings
    family: ClassVar[SwapFamily] = SwapFamily(
        scales=(MemberScale(name="permutation"),), moved=permutation_moved, stratum_settings={"rate": None}
    )

    swap_law: PermutationLaw
    settings: PermutationSettings

    @property
    def in_words(self) -> str:
        law = self.swap_law
        left = "" if law.imputed is None else f" records flagged by {law.imputed} are left as they are;"
        rates = f"at a rate of {law.rate}"
        if law.declared:
            rates = f"at rates that depend on {', '.join(law.followed) or 'the match values'}"
        swapped = f"{', '.join(self.swap)} exchanged among {self.among}, {rates}"
        return f"Permutation swapping: {swapped};{left} everything else is held."


@lru_cache(maxsize=8)
def _curve(size: int) -> tuple[tuple[tuple[float, float], ...], tuple[float, float]]:
    """Return the loss against the rate for a largest stratum, and its smallest: the same in every edition."""
    least = (float(smallest_psa_rate(size, bound="sharp")), float(smallest_psa_epsilon(size, bound="sharp")))
    # In large strata the smallest loss lies behind the last rate of the grid, and the curve bends down to it.
    grid = [Fraction(p, 200) for p in range(1, 200)]
    last = [rate for k in range(1, 30) if float(rate := 1 - Fraction(1, 200 * 2**k)) < least[0]]
    points = [(float(rate), float(psa_sharp_epsilon(rate, stratum=size))) for rate in (*grid, *last)]
    return (*points, *([least] if least[0] > points[-1][0] else [])), least


Record = tuple[Hashable, Hashable]


def varying_rate_law(records: Sequence[Record], rate: Callable[[Record], Fraction]) -> Law:
    """Return the law of permutation swapping when record i is selected with probability ``rate(record)``.

    The selection is drawn again where exactly one record is selected; the derangement is uniform.

    >>> law = varying_rate_law([("a", "x"), ("b", "y")], lambda record: Fraction(1, 2 if record[0] == "a" else 4))
    >>> law[(("a", "y"), ("b", "x"))]
    Fraction(1, 4)
    """
    rates = {place: p for place, record in enumerate(records) if (p := probability(rate(record), where="rate"))}
    still = [record for place, record in enumerate(records) if place not in rates]
    if len(rates) < 2:  # there is no partner
        return Law.certain(tuple(sorted(records)))

    def chance(sigma: tuple[int, ...]) -> Fraction:
        moved = [i != j for i, j in enumerate(sigma)]
        selected = (p if m else 1 - p for p, m in zip(rates.values(), moved, strict=True))
        return math.prod(selected, start=Fraction(1)) / derangements(sum(moved))

    law = permutation_law([records[place] for place in rates], chance)
    return law.pushed(lambda table: tuple(sorted([*table, *still])))  # type: ignore[misc]


# What a plan may spend on enumeration: a second or so.
_MOST_RECORDS = 30
_MOST_TABLES = 300


def own_loss(strata: Strata, *, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
    """Return what the margins say about the loss, or None where they say nothing more than R1."""
    live, rates = np.flatnonzero(strata.live), [each.lowest for each in strata.rates]
    at_one = live[np.array([rate == 1 for rate in rates])[strata.which[live]]]
    small = bool(live.size) and bool((strata.records[live] <= _MOST_RECORDS).all())
    if not small and not at_one.size:
        return None
    wanted = np.zeros(strata.count, dtype=np.bool_)
    wanted[live if small else at_one] = True
    margins = _margins(strata.coded, swap, held, wanted)
    numbers, kinds, sizes = live.tolist(), strata.which[live].tolist(), strata.records[live].tolist()
    cases = {n: (margins[n], kind) for n, kind in zip(numbers, kinds, strict=True) if n in margins}
    losses = _enumerated([*dict.fromkeys(cases.values())], rates)
    # At rate 1 every table can become every other unless both margins have a 1 (R2b).
    finite = all(
        rates[kind] > 0 and (rates[kind] < 1 or max(map(min, margins[n])) > 1)
        for n, kind in zip(numbers, kinds, strict=True)
    )
    # Strata by the hundred thousand are mostly alike: each kind is bounded once.
    bounds = [
        losses.get(case, INFINITE) if rates[kind] == 1 else psa_sharp_epsilon(rates[kind], stratum=size)
        for kind, size, case in dict.fromkeys(zip(kinds, sizes, map(cases.get, numbers), strict=True))
    ]
    exact = largest([*losses.values()]) if small and losses else None
    return OwnLoss(exact=exact, bound=largest(bounds), finite=finite)


_Margins = tuple[tuple[int, ...], tuple[int, ...]]
_Case = tuple[_Margins, int]  # the margins of a stratum, and the number of its rate


def _margins(coded: Coded, swap: Coded, held: Sequence[Part], wanted: npt.NDArray[np.bool_]) -> dict[int, _Margins]:
    """Return for each wanted stratum how often each of its hold values and swap values occurs."""
    rows = wanted[coded.codes]
    parts = [part(rows).alias(str(number)) for number, part in enumerate(held)]
    hold = encode(pl.DataFrame(parts), [column.name for column in parts]).codes
    frame = pl.DataFrame({"stratum": coded.codes[rows], "hold": hold, "swap": swap.codes[rows]})

    def counts(name: str) -> dict[int, tuple[int, ...]]:
        found = frame.group_by("stratum", name).len().group_by("stratum").agg(pl.col("len").sort(descending=True))
        return {int(code): tuple(lengths) for code, lengths in found.rows()}

    held_counts, swap_counts = counts("hold"), counts("swap")
    return {code: (held_counts[code], swap_counts[code]) for code in held_counts}


def _enumerated(cases: Sequence[_Case], rates: Sequence[Fraction]) -> dict[_Case | None, Exact]:
    """Return the exact loss of each case, or nothing if that takes too long."""
    left = _MOST_TABLES
    for margins, _ in cases:
        if sum(margins[0]) > _MOST_RECORDS:
            return {}
        left -= count_tables(*margins, most=left)
        if left < 0:
            return {}
    return {(margins, kind): _loss(margins, rates[kind]) for margins, kind in cases}


@lru_cache(maxsize=1024)  # plans that are compared differ in little, and their strata not at all
def _loss(margins: _Margins, rate: Fraction) -> Exact:
    return exact_loss(*margins, rate).loss
