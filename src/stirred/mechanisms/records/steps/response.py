"""Randomised response on one variable, then permutation swapping: the counts of that variable stay protected (R14)."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from typing import Any, ClassVar, Final, Self

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codebook import Codebook
from stirred.data.codes import Coded, Codes, encode
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE
from stirred.data.problems import DataError, bad_plan, counted, listed, number
from stirred.mechanisms.protocol import Mechanism, Rate, Settings
from stirred.mechanisms.records.doubts import no_bound, nothing_moves
from stirred.mechanisms.records.engine import RatedSwap, Swap
from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.law import PAPER
from stirred.mechanisms.records.laws.permutation import SHARP, PermutationLaw, psa_law, sharp_policy
from stirred.mechanisms.records.plan import FurtherPromise, SwapOrigin, SwapPlan, SwapUniverse
from stirred.mechanisms.records.roles import OtherRates, Roles, SwapRate, SwapSettings
from stirred.mechanisms.records.steps.chains import (
    chained,
    law_by_match,
    perturbed_before,
    response,
    response_epsilon,
)
from stirred.mechanisms.records.strata import Strata
from stirred.mechanisms.records.swapped_file import held_parts
from stirred.randomness.bernoulli import bernoulli_array
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import integers_below
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

    def law(self) -> PermutationLaw:
        """Return the law of the swap; refuse a response that would change nothing, or who exchanges with whom."""
        probability(self.change, where="change")
        declared_texts(self.values, where="values")
        found = law_by_match(self, member="response")
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
        return found


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


class ResponseSwap(Swap):
    """Give every record's ``respond`` variable a randomised response, then swap as ``PermutationSwap`` does.

    With probability ``change`` a value is replaced by another of the declared ``values``, each equally likely, for each
    record independently. ``respond`` is a swap variable or a held one that is not matched. Its counts are no invariant
    any more. If nothing else is on its side (swapped with it, or held with it, persons included) the loss
    is that of the response; otherwise the others are protected by the swap alone, and both losses add up.

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
    settings_model: ClassVar[type[SwapSettings]] = ResponseSettings
    stratum_law: ClassVar[str] = "response"
    uncorrected: ClassVar[tuple[str, str] | None] = (
        "the correction of a swap needs counts that are published exactly, and the response leaves some inexact",
        "use the table as published; strata.parquet has the law of the response",
    )
    untunable: ClassVar[tuple[str, str] | None] = (
        "the loss of the response swap depends on the rate and on change",
        "give both and see the loss with `stirred plan`",
    )

    on = Mechanism.on  # on this machine alone
    exchange: ClassVar[None] = None

    settings: ResponseSettings
    swap_law: PermutationLaw

    @property
    def respond(self) -> str:
        """Return the variable that gets the response."""
        return self.settings.respond

    @property
    def values(self) -> tuple[str, ...]:
        """Return its declared values, as files write them."""
        return declared_texts(self.settings.values, where="values")

    @property
    def change(self) -> Fraction:
        """Return the probability of another value."""
        return probability(self.settings.change, where="change")

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity, self.respond, self.values, self.change)

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism, which needs declared values: those of the settings, or of a codebook."""
        assert isinstance(settings, ResponseSettings)
        if not settings.values:
            remedy = f"add values, such as {settings.mark('values', 'example')}"
            raise bad_plan("is needed", where="values", remedy=remedy)
        return super().of_settings(settings, **others)

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        """Return the settings with the codes that a codebook declares for the variable of the response."""
        assert isinstance(settings, ResponseSettings)
        return settings.with_codes(codebook, missing_as=missing_as)

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variable of the response, where its values are the codes of this codebook."""
        variable = codebook.variable(self.respond)
        values = [value for value in self.values if value != MISSING_CODE]
        same = variable is not None and [*codebook.codes(variable.name)] == values
        return [self.respond] if same else []

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
        return response_epsilon(self.change, values=len(self.values))

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate of the swap, and how often the response changes a value."""
        rate = RatedSwap.setting_in_words(self, epsilon)  # type: ignore[arg-type]
        return f"{rate}, {self.respond} changed at {self.change}"

    def _policy(self, strata: Strata) -> Derived:
        """Return the budget; ``strata`` are those of the file without the perturbed variable."""
        policy = sharp_policy(strata)
        value = perturbed_before(policy.realised, self.response_loss, rest=policy.realised).one
        response = f"the response on {self.respond}, {len(self.values)} values changed with probability {self.change}"
        if not strata.live.any():
            formula = f"the loss of {response}; nothing else on its side has two values in a stratum"
            return Derived(formula=formula, value=value, varies=True)
        formula = f"the loss of {response}, and that of the swap of what is left without {self.respond}, {policy}"
        return Derived(formula=formula, value=value, varies=True)

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss if one rate applied to all strata, for several; nothing where it depends on no rate."""
        assert plan.exposed is not None
        if not plan.exposed.live.any():
            return []
        found = self.swap_law.losses(plan.exposed, plan.swap, rates)
        return [(rate, self.response_loss + loss) for rate, loss in found]

    @property
    def law_columns(self) -> dict[str, str]:
        """Return the settings of the response."""
        settings = {
            "response": self.respond,
            "on": "swap" if self.on_swap else "hold",
            "change": str(self.change),
            "values": json.dumps([*self.values], ensure_ascii=False),
        }
        return {RESPONSE_COLUMNS[name]: text for name, text in settings.items()}

    @property
    def strata_in_words(self) -> str:
        """Say what strata.parquet has."""
        own = f"the response on {self.respond}, its values and how often it changes"
        return f"{super().strata_in_words}; {own}"

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
        promised = super().specification(universe)
        # A single record can change its value alone: the nearest files are 1 apart, not 2.
        multiverse = Multiverse(invariants=self._margins_left(universe))
        unpublished = Unpublished(figure=Margin(of=self.unit, variables=(self.respond,)))
        conditions = (
            f"the declared values of {self.respond} ({', '.join(self.values)}) and the probability of a "
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
            for margin in self.margins(universe)
        ]
        # The sizes of the strata, all that such a table would say, follow from the other one.
        return tuple(margin for margin in left if not {*margin.variables} <= {*universe.match})

    def _relative_to_both(self, universe: SwapUniverse, strata: Strata, exposed: Strata) -> FurtherPromise:
        """Return the promise in the flavor of the swap, as a function of the fewer invariants (condition 4 of use)."""
        policy = sharp_policy(strata)
        swap, rest = policy.realised, sharp_policy(exposed).realised
        value = perturbed_before(swap, self.response_loss, rest=rest if exposed.live.any() else None).both
        formula = (
            f"the smaller of the response's loss and that of {policy}; where other variables on the side of "
            f"{self.respond} have two values, the latter"
        )
        promised = replace(super().specification(universe), theorem=THEOREM)
        condition = (
            f"the counts of {self.respond} are what the compared files agree on; the release neither keeps nor "
            "publishes them"
        )
        return FurtherPromise.between_closer(
            promised,
            promised.multiverse,
            Derived(formula=formula, value=value, varies=True),
            name="swap_flavor_epsilon",
            agreed=f"all counts of {self.respond} that a plain swap would publish",
            condition=condition,
        )

    def _roles(self, data: Microdata) -> Roles:
        roles = super()._roles(data)
        if self.respond not in (*self.swap, *roles.hold):
            of_persons = " of persons" if self.respond in data.person_variables else ""
            what = f'"{self.respond}"{of_persons} is no released column of households'
            remedy = f"name one of {', '.join([*self.swap, *(n for n in roles.hold if n not in self.match)])}"
            raise DataError([Problem(what=what, where="respond", remedy=remedy)])
        problems = [*undeclared(data.households[self.respond], self.values, source=data.household_source)]
        if problems:
            raise DataError(problems)
        return roles

    def _prepare(self, data: Microdata, roles: Roles, *, origin: SwapOrigin) -> SwapPlan:
        others = [name for name in roles.hold if name not in (*self.match, self.respond)]
        swap = encode(data.households, [name for name in self.swap if name != self.respond])
        held = held_parts(data, others)
        find = partial(self.swap_law.strata, data.households, match=self.match)
        # Not even which strata are live may look at the perturbed variable: under the promise it could be anything.
        strata = find(swap=None, held=held) if self.on_swap else find(swap=swap, held=None)
        strata = strata.with_shares(self.swap_law.moved(strata, swap))
        exposed = find(swap=swap, held=held)
        plan = self._laid_out(data, roles, origin=origin, strata=strata, swap=swap, policy=self._policy(exposed))
        return replace(
            plan,
            perturbed=self.respond,
            exposed=exposed,
            decisive=self.swap_law.decisive(exposed),
            further=(self._relative_to_both(plan.universe, strata, exposed),),
            moved_by=f", by the swap; the response changes each {self.respond} with probability "
            f"{percent(float(self.change))} besides",
        )

    def _empty(self, plan: SwapPlan) -> Iterator[Doubt]:
        changed = self.change * len(plan.strata.coded.codes)
        if not changed and not plan.strata.most_moved:
            yield nothing_moves("nothing can be swapped, and no response changes anything")
        elif changed + Fraction(plan.strata.most_moved) < 1:
            yield nothing_moves("fewer than one record is expected to get other values")
        elif plan.epsilon.is_infinite:
            yield no_bound("at a rate of 0 or 1, or a change of 0 or 1")
        elif not plan.strata.live.any():
            yield Doubt(
                kind="nothing-swapped",
                what=f"nothing can be swapped: the response on {self.respond} is all that protects",
                remedy="match on fewer or coarser variables",
            )

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        column = data.households[self.respond]
        answered = respond(
            declared_codes(column, self.values),
            values=len(self.values),
            change=self.change,
            entropy=entropy.child("response"),
        )
        perturbed = data.households.with_columns(declared_column(column, self.values, answered))
        # Codes of the perturbed file alone decide the released order: what was in the input leaves no trace in it.
        return replace(data, households=perturbed, checked=False), encode(perturbed, list(self.swap))

    @property
    def _law(self) -> ResponseLaw:
        settings = {"values": self.values, "change": self.change, "rate": self.swap_law.rate}
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
        return self.with_settings(match=(), rates=(), swap=swap, hold=hold)


def respond(codes: Codes, *, values: int, change: Fraction, entropy: Entropy) -> Codes:
    """Return the codes after a randomised response over ``values`` values, for each record independently.

    >>> truth = np.zeros(6, dtype=np.uint32)
    >>> respond(truth, values=2, change=Fraction(1), entropy=Entropy.from_os()).tolist()
    [1, 1, 1, 1, 1, 1]
    >>> set(respond(truth, values=3, change=Fraction(1), entropy=Entropy.from_os()).tolist()) <= {1, 2}
    True
    """
    changes = bernoulli_array(change, count=codes.size, entropy=entropy, purpose=addressing.RESPOND)
    rows = np.flatnonzero(changes)
    others = integers_below(values - 1, count=rows.size, entropy=entropy, purpose=addressing.RESPOND_OTHER)
    answered = codes.copy()
    # The other values in order: those from the own one on move up by one place.
    answered[rows] = others + (others >= codes[rows])
    return answered


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLaw:
    """A response over ``values`` that changes with probability ``change``, then permutation swapping at ``rate``.

    ``on_swap`` says whether the perturbed side is the swapped one.

    >>> fair = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
    >>> sorted(fair.of((("a", ("", "x")), ("b", ("", "y")))).probabilities.values())
    [Fraction(1, 4), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4)]
    """

    values: Sequence[str]
    change: Fraction
    rate: Fraction
    on_swap: bool

    def of(self, dataset: Any) -> Law:
        """Return the law of the released table."""
        rows = tuple((*side, other) for side, other in map(self.sides, dataset))
        return chained(response(self.values, change=self.change, place=1)(rows), self._swapped)

    @property
    def _swapped(self) -> Callable[[Any], Law]:
        return lambda rows: psa_law([self._pair((g, v), o) for g, v, o in rows], rate=self.rate)

    def sides(self, record: Any) -> tuple[Any, Any]:
        """Return the perturbed side of a (hold, swap) pair, and the other one."""
        hold, swap = record
        return (swap, hold) if self.on_swap else (hold, swap)

    def _pair(self, side: Any, other: Any) -> tuple[Any, Any]:
        return (other, side) if self.on_swap else (side, other)

    def universe(self, other: Sequence[str], rest: Sequence[str]) -> list[Hashable]:
        """Return every table with ``other`` on one side and ``rest``, beside any perturbed values, on the other.

        >>> law = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
        >>> len(law.universe("ab", "11")), len(law.universe("ab", "12"))
        (4, 8)
        """
        tables: set[Any] = {
            tuple(sorted(self._pair(side, o) for side, o in zip(zip(order, drawn, strict=True), other, strict=True)))
            for order in set(permutations(rest))
            for drawn in product(self.values, repeat=len(other))
        }
        return sorted(tables)


Value = str | int | bool


def declared_texts(values: Sequence[Value], *, where: str) -> tuple[str, ...]:
    """Return declared values as files write them; refuse a list with which nothing can be perturbed.

    >>> declared_texts([1, True, "owned"], where="values")
    ('1', 'true', 'owned')
    """
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice or len(texts) < 2:
        raise bad_plan(
            f"{listed(twice)} is declared twice" if twice else "a response needs two declared values or more",
            where=where,
            remedy="list every value that the variable may have once, such as ['owned', 'rented']; what the file "
            "happens to hold must not decide",
        )
    return texts


def undeclared(column: pl.Series, values: Sequence[str], *, source: str) -> Iterator[Problem]:
    """Yield what is wrong with a column that may have only declared values."""
    where = f'{source} "{column.name}"'
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Boolean, pl.Categorical)):
        yield Problem(
            what=f"a response needs codes, and this column holds values of type {column.dtype}",
            where=where,
            remedy="turn it into classes, text or whole numbers first",
        )
        return
    if column.null_count():
        rows = counted(column.is_null().arg_true().head(5).to_list(), total=column.null_count())
        yield Problem(
            what=f"values are missing, and no response can be given for them ({rows})",
            where=where,
            remedy="fill them in with a code of its own, such as 'unknown', and declare it",
        )
    present = column.unique().drop_nulls().sort().cast(pl.String).to_list()
    if other := [text for text in present if text not in values]:
        more = "" if len(other) <= 5 else f" and {len(other) - 5:,} more"
        yield Problem(
            what=f"{listed(other[:5])}{more}: not among the declared values",
            public=f"{number(len(other), 'value')} not among the declared values",
            where=where,
            remedy="declare every value that may occur, under values or in the codebook, or recode",
        )
    typed = _typed(column, values)
    if odd := [text for text, value in zip(values, typed, strict=True) if value is None]:
        yield Problem(
            what=f"the declared {listed(odd)} cannot stand in a column of type {column.dtype}",
            where=where,
            remedy="declare values as the file writes them, or store the column as text",
        )


def declared_codes(column: pl.Series, values: Sequence[str]) -> Codes:
    """Return each record's place among the declared values.

    >>> declared_codes(pl.Series("tenure", ["r", "o", "r"]), ["o", "r", "free"]).tolist()
    [1, 0, 1]
    """
    coded = encode(column.to_frame(), [column.name])
    place = {text: number for number, text in enumerate(values)}
    table = np.array([place[text] for text in coded.levels[column.name].cast(pl.String)], dtype=np.uint32)
    return table[coded.codes]


def declared_column(column: pl.Series, values: Sequence[str], codes: Codes) -> pl.Series:
    """Return a column of the same name and type with the declared values of some codes."""
    return pl.Series(column.name, _typed(column, values), dtype=column.dtype).gather(codes)


def _typed(column: pl.Series, values: Sequence[str]) -> list[Value | None]:
    """Return declared values in the type of the column, None for one that it cannot hold as written."""
    if column.dtype == pl.Boolean:
        return [{"true": True, "false": False}.get(text) for text in values]
    typed = pl.Series(values).cast(column.dtype, strict=False)
    same = typed.cast(pl.String) == pl.Series(values)
    return [value if kept else None for value, kept in zip(typed.to_list(), same.to_list(), strict=True)]
