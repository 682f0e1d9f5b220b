"""Randomised response on one variable, then permutation swapping: the counts of that variable stay protected (R14)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, Self

import polars as pl
from pydantic import Field

from stirred.data.codebook import Codebook
from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE
from stirred.data.problems import DataError, bad_plan
from stirred.mechanisms.protocol import Rate, Settings
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.rate_rules import every_rule_fits
from stirred.mechanisms.swapping.core.roles import OtherRates, Roles, SwapRate, SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata, find_strata
from stirred.mechanisms.swapping.core.swap import PAPER, RateLike
from stirred.mechanisms.swapping.core.swapped_file import held_parts
from stirred.mechanisms.swapping.doubts.promise import no_bound, nothing_moves
from stirred.mechanisms.swapping.layers.budget import perturbed_before, response_epsilon
from stirred.mechanisms.swapping.layers.layer import Layer, between_closer
from stirred.mechanisms.swapping.layers.response.law import (
    ResponseLaw,
    Value,
    declared_codes,
    declared_column,
    declared_texts,
    respond,
    undeclared,
)
from stirred.mechanisms.swapping.permutation.mechanism import SHARP
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem
from stirred.spec.reliance import Unpublished
from stirred.spec.specification import Specification


class ResponseSettings(SwapSettings):
    """Which variable gets the response, and how likely another value is."""

    rate: SwapRate
    respond: str = Field(
        description="The variable that gets a randomised response before the swap.",
        json_schema_extra={"example": "tenure"},
    )
    values: list[str | int | bool] = Field(
        default=[],
        description="Every value that the variable may have; default the codes of the codebook.",
        json_schema_extra={"example": ["owned", "rented"]},
    )
    change: Rate = Field(
        description="The probability that a value is replaced by another one.", json_schema_extra={"example": "1/10"}
    )
    rates: OtherRates = Field(default=[])

    def with_codes(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        """Return the settings with the codes that a codebook declares for the variable, where no values are given."""
        variable = codebook.variable(self.respond)
        if self.values or variable is None:
            return self
        values: list[str | int | bool] = [*codebook.codes(variable.name)]
        if variable.type == "true-false":
            values = [True, False]
        if missing_as == "code" and variable.missing and self.respond in {*self.match, *self.swap}:
            values.append(MISSING_CODE)
        return self.model_copy(update={"values": values})


THEOREM: Final = (
    "R14, randomised response before a swap (docs/theory/swapping-family.md)",
    *(SHARP, f"Proposition 4 of {PAPER}"),
)
# Settings in the published table of strata, from which readers know the whole law.
RESPONSE_COLUMNS: Final = {
    "response": "stratum_response",
    "on": "stratum_response_on",
    "change": "stratum_response_change",
    "values": "stratum_response_values",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ResponsePlan(SwapPlan):
    """The plan of both steps; nothing in it looks at the values of the perturbed variable.

    ``specification`` is the promise that is published, relative to the fewer invariants; ``swap_specification`` what
    the same release promises to those who compare only files that agree on both tables of a plain swap. ``strata``
    are live where the side that is not perturbed has two values; ``exposed`` are the strata of the file without the
    perturbed variable: live where other variables on its side have two values as well.
    """

    exposed: Strata = field(repr=False)
    swap_specification: Specification

    @property
    def disturbed(self) -> str:
        """Say that the response may change every record, and what the swap changes besides."""
        responded = f"{self.perturbed}: every record gets a randomised response"
        # super() alone would look for the class before slots made it anew.
        return f"{responded}; then {super(ResponsePlan, self).disturbed}"

    @property
    def further_losses(self) -> dict[str, Exact]:
        """Return the loss relative to both tables of a plain swap."""
        return {"swap_flavor_epsilon": self.swap_specification.budget.realised}

    @property
    def moved_by(self) -> str:
        """Say what the response changes besides."""
        assert self.origin is not None
        chance = percent(float(self.origin.mechanism.change))
        return f", by the swap; the response changes each {self.perturbed} with probability {chance} besides"

    @property
    def deciding(self) -> Strata:
        """Return the strata of what the response does not protect."""
        return self.exposed

    @property
    def also_promised(self) -> str:
        """Say what holds relative to both tables of a plain swap; a function of the fewer invariants."""
        return (
            "The loss of the specification is the one to rely on. Between files that moreover agree on all counts of "
            f"{self.perturbed} that a plain swap would publish it is at most {self.swap_specification.budget.shown}. "
            "These counts are not published exactly: this release neither keeps nor publishes them."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSwap(Layer):
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
    >>> released = swap.release(homes, Entropy.from_os(), accept=["exposed"]).public["data"]
    >>> sorted(released.select("size", "tenure").rows())
    [(1, 'o'), (1, 'r'), (2, 'o'), (2, 'r')]
    """

    name: ClassVar[str] = "response-swap"
    title: ClassVar[str] = "response swapping"
    settings_model: ClassVar[type[Settings]] = ResponseSettings
    member: ClassVar[str] = "response"
    uncorrected: ClassVar[tuple[str, str] | None] = (
        "the correction of a swap needs counts that are published exactly, and the response leaves some inexact",
        "use the table as published; strata.parquet has the law of the response",
    )
    untunable: ClassVar[tuple[str, str] | None] = (
        "the loss of the response swap depends on the rate and on change",
        "give both and see the loss with `stirred plan`",
    )

    respond: str
    values: Sequence[Value]
    change: RateLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "change", probability(self.change, where="change"))
        object.__setattr__(self, "values", declared_texts(self.values, where="values"))
        Layer.__post_init__(self)
        if self.respond in self.match:
            raise bad_plan(
                f"records are matched on {self.respond}, which the response changes: who exchanges with whom would "
                "depend on chance, and nothing is proven about the swap then",
                where="respond",
                remedy="name a swap variable, or a held one that is not matched",
            )
        if self.hold is not None and self.respond not in (*self.swap, *self.hold):
            raise bad_plan(
                f"{self.respond} is not released, so that a response would change nothing",
                where="respond",
                remedy="name a variable of swap or hold",
            )

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism, which needs declared values: those of the settings, or of a codebook."""
        assert isinstance(settings, ResponseSettings)
        if not settings.values:
            remedy = f"add values, such as {settings.mark('values', 'example')}"
            raise bad_plan("is needed", where="values", remedy=remedy)
        return super(ResponseSwap, cls).of_settings(settings, **others)

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        """Return the settings with the codes that a codebook declares for the variable of the response."""
        assert isinstance(settings, ResponseSettings)
        return settings.with_codes(codebook, missing_as=missing_as)

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variable of the response, where its values are the codes of this codebook."""
        variable = codebook.variable(self.respond)
        values = [value for value in self._texts if value != MISSING_CODE]
        same = variable is not None and [*codebook.codes(variable.name)] == values
        return [self.respond] if same else []

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
        return (
            f"Response swapping: {self.respond} replaced by another of its {len(self.values)} declared values with "
            f"probability {self.change} in each record, then {', '.join(self.swap)} exchanged among {self.among} at "
            f"{self.at_rate}; everything else is held."
        )

    @property
    def response_loss(self) -> Exact:
        """Return the loss of the response alone, per record."""
        return response_epsilon(Fraction(self.change), values=len(self.values))

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate of the swap, and how often the response changes a value."""
        return f"{self.inner.setting_in_words(epsilon)}, {self.respond} changed at {self.change}"

    def _policy(self, strata: Strata) -> Derived:
        """Return the budget; ``strata`` are those of the file without the perturbed variable."""
        value = perturbed_before(strata.policy.realised, self.response_loss, rest=strata.policy.realised).one
        response = f"the response on {self.respond}, {len(self.values)} values changed with probability {self.change}"
        if not strata.live:
            formula = f"the loss of {response}; nothing else on its side has two values in a stratum"
            return Derived(formula=formula, value=value, varies=True)
        formula = (
            f"the loss of {response}, and that of the swap of what is left without {self.respond}, {strata.policy}"
        )
        return Derived(formula=formula, value=value, varies=True)

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss if one rate applied to all strata, for several; nothing where it depends on no rate."""
        assert isinstance(plan, ResponsePlan)
        if not plan.exposed.live:
            return []
        return [(rate, self.response_loss + plan.exposed.epsilon(rate)) for rate in rates]

    @property
    def law_columns(self) -> dict[str, str]:
        """Return the settings of the response."""
        settings = {
            "response": self.respond,
            "on": "swap" if self.on_swap else "hold",
            "change": str(self.change),
            "values": json.dumps(self._texts, ensure_ascii=False),
        }
        return {RESPONSE_COLUMNS[name]: text for name, text in settings.items()}

    @property
    def strata_in_words(self) -> str:
        """Say what strata.parquet has."""
        own = f"the response on {self.respond}, its values and how often it changes"
        return f"{self.inner.strata_in_words}; {own}"

    @property
    def outside(self) -> tuple[str, ...]:
        """Return the variable of the response."""
        return (self.respond,)

    @property
    def before_in_words(self) -> list[str]:
        """Say what the response did."""
        return [
            f"No count of {self.respond} is exact: with probability {self.change} a record's value was replaced "
            f"by another of its {len(self.values)} declared values, each equally likely, before the swap."
        ]

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, relative to what is left without the perturbed variable."""
        promised = self.inner.specification(universe)
        # A single record can change its value alone: the nearest files are 1 apart, not 2.
        multiverse = Multiverse(invariants=self._margins_left(universe))
        unpublished = Unpublished(figure=Margin(of=self.unit, variables=(self.respond,)))
        conditions = (
            f"the declared values of {self.respond} ({', '.join(self._texts)}) and the probability of a "
            "change were fixed beforehand; only files with these values are compared",
            unpublished.words,
        )
        return replace(
            promised.with_flavor(multiverse=multiverse),
            assumptions=(*promised.assumptions, *conditions),
            relies_on=(*promised.relies_on, unpublished),
            theorem=THEOREM,
        )

    def _margins_left(self, universe: SwapUniverse) -> tuple[Margin, ...]:
        """Return both tables of a swap without the perturbed variable; one of only match variables is left out."""
        left = [
            replace(margin, variables=tuple(name for name in margin.variables if name != self.respond))
            for margin in self.inner.margins(universe)
        ]
        # The sizes of the strata, all that such a table would say, follow from the other one.
        return tuple(margin for margin in left if not {*margin.variables} <= {*universe.match})

    def _relative_to_both(self, universe: SwapUniverse, strata: Strata, exposed: Strata) -> Specification:
        """Return the promise in the flavor of the swap, as a function of the fewer invariants (condition 4 of use)."""
        swap, rest = strata.policy.realised, exposed.policy.realised
        value = perturbed_before(swap, self.response_loss, rest=rest if exposed.live else None).both
        formula = (
            f"the smaller of the response's loss and that of {strata.policy}; where other variables on the side of "
            f"{self.respond} have two values, the latter"
        )
        promised = replace(self.inner.specification(universe), theorem=THEOREM)
        condition = (
            f"the counts of {self.respond} are what the compared files agree on; the release neither keeps nor "
            "publishes them"
        )
        policy = Derived(formula=formula, value=value, varies=True)
        return between_closer(promised, promised.multiverse, policy, agreed=condition)

    def _roles(self, data: Microdata) -> Roles:
        roles = Layer._roles(self, data)
        if self.respond not in (*self.swap, *roles.hold):
            of_persons = " of persons" if self.respond in data.person_variables else ""
            what = f'"{self.respond}"{of_persons} is no released column of households'
            remedy = f"name one of {', '.join([*self.swap, *(n for n in roles.hold if n not in self.match)])}"
            raise DataError([Problem(what=what, where="respond", remedy=remedy)])
        problems = [*undeclared(data.households[self.respond], self._texts, source=data.household_source)]
        if problems:
            raise DataError(problems)
        return roles

    def _prepare(self, data: Microdata, roles: Roles) -> SwapPlan:
        rules, rate = self.inner.rules()
        others = [name for name in roles.hold if name not in (*self.match, self.respond)]
        swap = encode(data.households, [name for name in self.swap if name != self.respond])
        held = held_parts(data, others)

        find = partial(find_strata, data.households, match=self.match, rates=rules, rate=rate)
        # Not even which strata are live may look at the perturbed variable: under the promise it could be anything.
        strata = find(swap=None, held=held) if self.on_swap else find(swap=swap, held=None)
        strata = strata.with_shares(self.inner.moved_shares(strata, swap))
        exposed = find(swap=swap, held=held)
        every_rule_fits(rules, strata)
        plan = self._laid_out(data, roles, strata=strata, swap=swap, policy=self._policy(exposed))
        both = self._relative_to_both(plan.universe, strata, exposed)
        return plan.extended(ResponsePlan, perturbed=self.respond, exposed=exposed, swap_specification=both)

    def _empty(self, plan: SwapPlan) -> Iterator[Doubt]:
        changed = Fraction(self.change) * len(plan.strata.coded.codes)
        if not changed and not plan.strata.most_moved:
            yield nothing_moves("nothing can be swapped, and no response changes anything")
        elif changed + Fraction(plan.strata.most_moved) < 1:
            yield nothing_moves("fewer than one record is expected to get other values")
        elif plan.epsilon.is_infinite:
            yield no_bound("at a rate of 0 or 1, or a change of 0 or 1")
        elif not plan.strata.live:
            yield Doubt(
                kind="nothing-swapped",
                what=f"nothing can be swapped: the response on {self.respond} is all that protects",
                remedy="match on fewer or coarser variables",
            )

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
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
        return self._one_stratum().plan(pl.DataFrame(columns), doubts=False).specification

    def _one_stratum(self) -> ResponseSwap:
        side = ("rest", self.respond)
        swap, hold = (side, ("held",)) if self.on_swap else (self.swap[:1], side)
        return replace(self, match=(), rates=(), swap=swap, hold=hold)
