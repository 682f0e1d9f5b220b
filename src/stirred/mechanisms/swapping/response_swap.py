"""Randomised response on one variable, then permutation swapping: the counts of that variable stay protected (R14)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final

import polars as pl

from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.declared import Value, declared_codes, declared_column, declared_texts, undeclared
from stirred.mechanisms.swapping.identifiers import identifier_doubts
from stirred.mechanisms.swapping.laws.response import ResponseLaw
from stirred.mechanisms.swapping.permutation import SHARP, PermutationSwap
from stirred.mechanisms.swapping.persons import held_parts
from stirred.mechanisms.swapping.rates import Rule
from stirred.mechanisms.swapping.response_plan import ResponsePlan
from stirred.mechanisms.swapping.roles import Roles
from stirred.mechanisms.swapping.shares import Shares
from stirred.mechanisms.swapping.similar_values import similar_values
from stirred.mechanisms.swapping.strata import Strata, find_strata
from stirred.mechanisms.swapping.swap import PAPER, RateLike, Swap, Values, every_rule_fits
from stirred.mechanisms.swapping.swap_plan import SwapPlan, SwapUniverse
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget, Derived, PermutationSwapping
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.layered_budget import perturbed_before, response_epsilon
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification

# Settings in the published table of strata, from which readers know the whole law.
RESPONSE_COLUMNS: Final = {
    "response": "stratum_response",
    "on": "stratum_response_on",
    "change": "stratum_response_change",
    "values": "stratum_response_values",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSwap(Swap):
    """Give every record's ``respond`` variable a randomised response, then swap as ``PermutationSwap`` does.

    With probability ``change`` a value is replaced by another of the declared ``values``, each equally likely, for each
    record independently. ``respond`` is a swap variable or a held one that is not matched. Its counts are no invariant
    any more. If nothing else is on its side (swapped with it, or held with it, persons included) the loss
    is that of the response; otherwise the others are protected by the swap alone, and both losses add up.

    >>> import polars as pl
    >>> swap = ResponseSwap(
    ...     match=["size"], swap=["county"], rate="1/4", respond="county", values=["A", "B", "C"], change="1/4"
    ... )
    >>> homes = pl.DataFrame({"size": [1, 1, 2, 2], "county": list("ABAB"), "tenure": list("oror")})
    >>> swap.plan(homes).specification.budget.realised
    Exact('ln(6)')
    >>> [str(invariant) for invariant in swap.plan(homes).specification.multiverse.invariants]
    ['number of households by size x tenure']
    >>> released = swap.release(homes, Entropy.from_os()).public["data"]
    >>> sorted(released.select("size", "tenure").rows())
    [(1, 'o'), (1, 'r'), (2, 'o'), (2, 'r')]
    """

    member: ClassVar[str] = "response"

    rate: RateLike
    respond: str
    values: Sequence[Value]
    change: RateLike
    rates: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", probability(self.rate, where="rate"))
        object.__setattr__(self, "change", probability(self.change, where="change"))
        object.__setattr__(self, "values", declared_texts(self.values, where="values"))
        Swap.__post_init__(self)
        object.__setattr__(self, "rates", self._plain.rates)  # checked by the swap that comes after the response
        if others := self._plain.followed:
            # Response and swap commute only where the swap looks at nothing but match values (R14).
            raise bad_plan(
                f"rates of the response swap may depend on match variables only, not on {listed(others)}",
                where="rates",
                remedy="name values of match variables; permutation-swap takes hold and swap variables too",
            )
        if self.respond in self.match:
            raise bad_plan(
                f"records are matched on {self.respond}, which the response changes: who exchanges with whom would "
                "depend on chance, and nothing is proven about the swap then (R14)",
                where="respond",
                remedy="name a swap variable, or a held one that is not matched",
            )
        if self.hold is not None and self.respond not in (*self.swap, *self.hold):
            raise bad_plan(
                f"{self.respond} is not released, so that a response would change nothing",
                where="respond",
                remedy="name a variable of swap or hold",
            )

    @property
    def _plain(self) -> PermutationSwap:
        """Return the swap that comes after the response."""
        roles = {name: getattr(self, name) for name in ("match", "swap", "hold", "unit", "settings_from", "threads")}
        return PermutationSwap(**roles, rate=self.rate, rates=self.rates)

    @property
    def _texts(self) -> list[str]:
        return [str(value) for value in self.values]

    @property
    def on_swap(self) -> bool:
        """Say whether the perturbed variable is one of those that are swapped."""
        return self.respond in self.swap

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        among = f"records with equal {', '.join(self.match)}" if self.match else "all records"
        rate = "rates that depend on these" if self.rates else f"a rate of {self.rate}"
        return (
            f"Response swapping: {self.respond} replaced by another of its {len(self.values)} declared values with "
            f"probability {self.change} in each record, then {', '.join(self.swap)} exchanged among {among} at {rate}; "
            "everything else is held."
        )

    @property
    def response_loss(self) -> Exact:
        """Return the loss of the response alone, per record."""
        return response_epsilon(Fraction(self.change), values=len(self.values))

    def rules(self) -> tuple[list[Rule], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        return self._plain.rules()

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        """Return the budget; ``strata`` are those of the file without the perturbed variable."""
        del swap
        value = perturbed_before(strata.policy.realised, self.response_loss, rest=strata.policy.realised).one
        response = f"the response on {self.respond}, {len(self.values)} values changed with probability {self.change}"
        if not strata.live:
            formula = f"the loss of {response} (R14); nothing else on its side has two values in a stratum"
            return Derived(formula=formula, value=value, varies=True)
        formula = (
            f"the loss of {response}, and that of the swap of what is left without {self.respond}, "
            f"{strata.policy} (R14)"
        )
        return Derived(formula=formula, value=value, varies=True)

    def _theorem(self) -> tuple[str, ...]:
        before = "R14, randomised response before a swap (docs/theory/swapping-family.md)"
        return (before, SHARP, f"Proposition 4 of {PAPER}")

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that get another record's swap values, for each stratum."""
        return self._plain.moved_shares(strata, swap)

    def changes(self, plan: SwapPlan) -> pl.DataFrame:
        """Return whom the swap moves, by swap value; refuse where that needs protected counts."""
        if self.on_swap:
            raise bad_plan(
                f"whom this swap moves depends on counts of {self.respond}, which it protects",
                where="response-swap",
                remedy="compare its loss and its share moved by `stirred plan`, one plan at a time",
            )
        return Swap.changes(self, plan)

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss if one rate applied to all strata, for several; nothing where it depends on no rate."""
        assert isinstance(plan, ResponsePlan)
        if not plan.exposed.live:
            return []
        return [(rate, self.response_loss + plan.exposed.epsilon(rate)) for rate in rates]

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Refuse: the loss has two settings, and which of them gives way is not ours to choose."""
        del plan, epsilon
        raise bad_plan(
            "the loss of the response swap depends on the rate and on change",
            where="epsilon",
            remedy="give both and see the loss with `stirred plan`",
        )

    def strata_table(self, strata: Strata) -> pl.DataFrame:
        """Return the strata as published, with the settings of the response."""
        settings = {
            "response": self.respond,
            "on": "swap" if self.on_swap else "hold",
            "change": str(self.change),
            "values": json.dumps(self._texts, ensure_ascii=False),
        }
        columns = [pl.lit(text).alias(RESPONSE_COLUMNS[name]) for name, text in settings.items()]
        return strata.frame(self.member).with_columns(columns)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, relative to what is left without the perturbed variable."""
        promised = Swap.specification(self, universe)
        # A single record can change its value alone: the nearest files are 1 apart, not 2.
        multiverse = Multiverse(invariants=promised.multiverse.invariants)
        conditions = (
            f"the declared values of {self.respond} ({', '.join(self._texts)}) and the probability of a "
            "change were fixed beforehand; only files with these values are compared",
            f"the true counts of {self.respond} are published nowhere else",
        )
        return replace(promised.with_flavor(multiverse=multiverse), assumptions=(*promised.assumptions, *conditions))

    def _invariants(self, universe: SwapUniverse) -> tuple[Margin, ...]:
        """Return both tables of a swap without the perturbed variable; one of only match variables is left out."""
        crossed, held = Swap._invariants(self, universe)
        left = [
            replace(margin, variables=tuple(name for name in margin.variables if name != self.respond))
            for margin in (crossed, held)
        ]
        # The sizes of the strata, all that such a table would say, follow from the other one.
        return tuple(margin for margin in left if not {*margin.variables} <= {*universe.match})

    def _relative_to_both(self, universe: SwapUniverse, strata: Strata, exposed: Strata) -> Specification:
        """Return the promise in the flavor of the swap, as a function of the fewer invariants (condition 4 of use)."""
        swap, rest = strata.policy.realised, exposed.policy.realised
        value = perturbed_before(swap, self.response_loss, rest=rest if exposed.live else None).both
        formula = (
            f"the smaller of the response's loss and that of {strata.policy}; where other variables on the side of "
            f"{self.respond} have two values, the latter (R14)"
        )
        promised = Swap.specification(self, universe)
        multiverse = replace(promised.multiverse, invariants=Swap._invariants(self, universe))
        condition = (
            f"the counts of {self.respond} are what the compared files agree on; the release neither keeps nor "
            "publishes them"
        )
        return replace(
            promised.with_flavor(multiverse=multiverse),
            budget=Budget(policy=Derived(formula=formula, value=value, varies=True)),
            assumptions=(*promised.assumptions, condition),
        )

    def _roles(self, data: Microdata) -> Roles:
        roles = Swap._roles(self, data)
        if self.respond not in (*self.swap, *roles.hold):
            of_persons = " of persons" if self.respond in data.person_variables else ""
            what = f'"{self.respond}"{of_persons} is no released column of households'
            remedy = f"name one of {', '.join([*self.swap, *(n for n in roles.hold if n not in self.match)])}"
            raise DataError([Problem(what=what, where="respond", remedy=remedy)])
        problems = [*undeclared(data.households[self.respond], self._texts, source=data.household_source)]
        if problems:
            raise DataError(problems)
        return roles

    def _prepare(self, data: Microdata) -> SwapPlan:
        data = self._narrowed(data)
        roles = self._roles(data)
        rules, rate = self.rules()
        others = [name for name in roles.hold if name not in (*self.match, self.respond)]
        swap = encode(data.households, [name for name in self.swap if name != self.respond])
        held = held_parts(data, others)

        find = partial(find_strata, data.households, match=self.match, rates=rules, rate=rate)
        # Not even which strata are live may look at the perturbed variable: under the promise it could be anything.
        strata = find(swap=None, held=held) if self.on_swap else find(swap=swap, held=None)
        strata = strata.with_shares(self.moved_shares(strata, swap))
        exposed = find(swap=swap, held=held)
        every_rule_fits(self._plain.rules()[0], strata)
        universe = SwapUniverse(
            policy=self._policy(exposed, swap),
            match=tuple(self.match),
            swap=tuple(self.swap),
            hold=roles.hold,
            persons=data.persons is not None,
            name=data.name,
            columns=roles.columns,
        )
        return ResponsePlan(
            specification=self.specification(universe),
            strata=strata,
            hold=roles.hold,
            dropped=roles.dropped,
            universe=universe,
            swap=swap,
            warnings=(
                *identifier_doubts(data, roles.hold, unit=self.unit),
                *similar_values(strata, swap),
                *self._warnings(strata, universe.budget),
            ),
            perturbed=self.respond,
            exposed=exposed,
            swap_specification=self._relative_to_both(universe, strata, exposed),
        )

    def _warnings(self, strata: Strata, budget: Budget) -> Iterator[str]:
        if budget.realised.is_infinite:
            yield "at a rate of 0 or 1, or a change of 0 or 1, nothing is promised: epsilon is infinite"
        elif not strata.live:
            yield f"nothing can be swapped: the response on {self.respond} is all that protects"

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        from stirred.mechanisms.swapping.kernels.response import respond

        del plan
        column = data.households[self.respond]
        answered = respond(
            declared_codes(column, self._texts),
            values=len(self.values),
            change=Fraction(self.change),
            entropy=entropy.child("response"),
        )
        perturbed = data.households.with_columns(declared_column(column, self._texts, answered))
        # Codes of the perturbed file alone decide the released order: what was in the input leaves no trace in it.
        return replace(data, households=perturbed, checked=False), encode(perturbed, list(self.swap))

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        self._plain._exchange(plan, swapped, entropy, progress)

    @property
    def _law(self) -> ResponseLaw:
        settings = {"values": self._texts, "change": Fraction(self.change), "rate": Fraction(self.rate)}
        return ResponseLaw(**settings, on_swap=self.on_swap)  # type: ignore[arg-type]

    def law(self, dataset: Any) -> Law:
        """Return the exact law for a small dataset of one stratum, as ``ResponseLaw`` describes it."""
        return self._law.of(dataset)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the invariants of small strata; the rest of the perturbed side differs, or not."""
        shapes = [("ab", "11"), ("ab", "12")]
        if len(self.values) == 2:  # three records with three values each make too many tables to compare them all
            shapes += [("aab", "111"), ("abc", "112")]
        return [self._law.universe(other, rest) for other, rest in shapes]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum."""
        first: Any = universe[0]
        sides = [self._law.sides(record) for record in first]
        other = "held" if self.on_swap else self.swap[0]
        columns = {
            "rest": [rest for (rest, _), _ in sides],
            self.respond: [value for (_, value), _ in sides],
            other: [value for _, value in sides],
        }
        return self._one_stratum().plan(pl.DataFrame(columns)).specification

    def _one_stratum(self) -> Swap:
        side = ("rest", self.respond)
        swap, hold = (side, ("held",)) if self.on_swap else (self.swap[:1], side)
        return replace(self, match=(), rates=(), swap=swap, hold=hold)
