"""Randomised response on one variable, then permutation swapping: the counts of that variable stay protected (R14)."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codebook import Codebook
from stirred.data.codes import Codes, encode
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE
from stirred.data.problems import bad_plan, counted, listed, number
from stirred.mechanisms.protocol import Rate, RateLosses, Settings, SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.law import (
    PAPER,
    File,
    Policy,
    SmallFile,
    StepWords,
    StratumLaw,
    SwapStep,
    chained,
    together,
)
from stirred.mechanisms.records.laws.permutation import SHARP, PermutationLaw, law_by_match, sharp_policy
from stirred.mechanisms.records.plan import FurtherPromise, SwapPlan, no_bound, nothing_moves
from stirred.mechanisms.records.roles import OtherRates, SwapRate, SwapSettings
from stirred.mechanisms.records.strata import Strata
from stirred.randomness.bernoulli import bernoulli_array
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import integers_below
from stirred.spec.budget import Derived
from stirred.spec.doubts import Doubt
from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, wrong
from stirred.spec.specification import Specification, Unpublished

Value = str | int | bool


class ResponseSettings(SwapSettings):
    """Which variable gets the response, and how likely another value is."""

    rate: SwapRate
    respond: str = Field(
        description="The variable that gets a randomised response before the swap.",
        json_schema_extra={"example": "tenure"},
    )
    values: list[Value] = Field(
        default=[],
        description="Every value that the variable may have; default the codes of the codebook.",
        json_schema_extra={"example": ["owned", "rented"]},
    )
    change: Rate = Field(
        description="The probability that a value is replaced by another one.", json_schema_extra={"example": "1/10"}
    )
    rates: OtherRates = Field(default=[])

    def law(self) -> PermutationLaw:
        if not self.values:
            remedy = f"add values, such as {self.mark('values', 'example')}"
            raise bad_plan("is needed", where="values", remedy=remedy)
        self.steps()
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

    def steps(self) -> tuple[Response]:
        change = probability(self.change, where="change")
        values = declared_texts(self.values)
        return (Response(respond=self.respond, values=values, change=change, on_swap=self.respond in self.swap),)


THEOREM: Final = (
    "R14, randomised response before a swap (docs/theory/swapping-family.md)",
    *(SHARP, f"Proposition 4 of {PAPER}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(SwapStep):
    """A randomised response on one variable before the swap: another of the declared values with ``change`` (R14).

    ``on_swap`` says whether the variable is one of those that are swapped.
    """

    stratum_law: ClassVar[str] = "response"

    respond: str
    values: tuple[str, ...]
    change: Fraction
    on_swap: bool

    @property
    def outside(self) -> tuple[str, ...]:
        return (self.respond,)

    @property
    def loss(self) -> Exact:
        """Return the loss of the response alone, per record."""
        return response_epsilon(self.change, values=len(self.values))

    @property
    def words(self) -> StepWords:
        often = percent(float(self.change))
        return StepWords(
            setting=f", {self.respond} changed at {self.change}",
            columns=f"the response on {self.respond}, its values and how often it changes",
            moved=f", by the swap; the response changes each {self.respond} with probability {often} besides",
            readers=(
                f"No count of {self.respond} is exact: with probability {self.change} a record's value was replaced "
                f"by another of its {len(self.values)} declared values, each equally likely, before the swap.",
            ),
        )

    @property
    def columns(self) -> Mapping[str, str]:
        return {
            "stratum_response": self.respond,
            "stratum_response_on": "swap" if self.on_swap else "hold",
            "stratum_response_change": str(self.change),
            "stratum_response_values": json.dumps([*self.values], ensure_ascii=False),
        }

    def problems(self, data: Microdata, released: Sequence[str]) -> Iterator[Problem]:
        if self.respond not in released:
            of_persons = " of persons" if self.respond in data.person_variables else ""
            what = f'"{self.respond}"{of_persons} is no released column of households'
            yield Problem(what=what, where="respond", remedy=f"name one of {', '.join(released)}")
            return
        column = data.households[self.respond]
        where = f'{data.household_source} "{column.name}"'
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
        if other := [text for text in present if text not in self.values]:
            more = "" if len(other) <= 5 else f" and {len(other) - 5:,} more"
            yield Problem(
                what=f"{listed(other[:5])}{more}: not among the declared values",
                public=f"{number(len(other), 'value')} not among the declared values",
                where=where,
                remedy="declare every value that may occur, under values or in the codebook, or recode",
            )
        typed = _typed(column, self.values)
        if odd := [text for text, value in zip(self.values, typed, strict=True) if value is None]:
            yield Problem(
                what=f"the declared {listed(odd)} cannot stand in a column of type {column.dtype}",
                where=where,
                remedy="declare values as the file writes them, or store the column as text",
            )

    def policy(self, policy: Policy, strata: Strata) -> Policy:
        value = perturbed_before(policy.realised, self.loss, rest=policy.realised).one
        response = f"the response on {self.respond}, {len(self.values)} values changed with probability {self.change}"
        formula = f"the loss of {response}, and that of the swap of what is left without {self.respond}, {policy}"
        if not strata.live.any():
            formula = f"the loss of {response}; nothing else on its side has two values in a stratum"
        return Derived(formula=formula, value=value, varies=True)

    def promised(self, specification: Specification, *, unit: str) -> Specification:
        unpublished = Unpublished(figure=Margin(of=unit, variables=(self.respond,)))
        conditions = (
            f"the declared values of {self.respond} ({', '.join(self.values)}) and the probability of a "
            "change were fixed beforehand; only files with these values are compared",
            unpublished.words,
        )
        return replace(
            specification,
            assumptions=(*specification.assumptions, *conditions),
            relies_on=(*specification.relies_on, unpublished),
            theorem=THEOREM,
        )

    def planned(self, swap: Any, plan: SwapPlan) -> SwapPlan:
        """Add the promise in the flavor of the swap, as a function of the fewer invariants (condition 4 of use)."""
        policy = sharp_policy(plan.strata)
        rest = sharp_policy(plan.exposed).realised if plan.exposed.live.any() else ZERO
        value = perturbed_before(policy.realised, self.loss, rest=rest).both
        formula = (
            f"the smaller of the response's loss and that of {policy}; where other variables on the side of "
            f"{self.respond} have two values, the latter"
        )
        further = FurtherPromise.of(
            "swap_flavor_epsilon",
            plan.specification.with_flavor(multiverse=swap.multiverse(plan.hold, persons=plan.has_persons)),
            Derived(formula=formula, value=value, varies=True),
            agreed=f"all counts of {self.respond} that a plain swap would publish",
            condition=f"the counts of {self.respond} are what the compared files agree on; the release neither keeps "
            "nor publishes them",
        )
        return replace(plan, further=(further,))

    def before(self, data: Microdata, entropy: Entropy) -> Microdata:
        column, values = data.households[self.respond], len(self.values)
        truth = declared_codes(column, self.values)
        answered = respond(truth, values=values, change=self.change, entropy=entropy.child("response"))
        perturbed = data.households.with_columns(declared_column(column, self.values, answered))
        return replace(data, households=perturbed, checked=False)

    def doubts(self, plan: SwapPlan) -> Iterator[Doubt]:
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

    def rate_losses(self, losses: RateLosses, plan: SwapPlan) -> RateLosses:
        def refused(epsilon: Exact) -> Any:
            what = "the loss of the response swap depends on the rate and on change"
            raise bad_plan(what, where="epsilon", remedy="give both and see the loss with `stirred plan`")

        def both(rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
            # Where nothing else can be swapped, the response protects at any rate.
            return [(rate, self.loss + loss) for rate, loss in losses.losses(rates) if plan.exposed.live.any()]

        return RateLosses(losses=both, gentlest=refused, reaching=refused)

    # ---- small files for audits: records are pairs (hold, swap), the perturbed side of each a pair (rest, value)

    def sides(self, record: Any) -> tuple[Any, Any]:
        """Return the perturbed side of a (hold, swap) pair, and the other one."""
        hold, swap = record
        return (swap, hold) if self.on_swap else (hold, swap)

    def on_small(self, swap: StratumLaw) -> StratumLaw:
        def law(records: Any) -> Law:
            rows = tuple((*side, other) for side, other in map(self.sides, records))
            answered = response(self.values, change=self.change, place=1)(rows)
            return chained(answered, lambda file: swap([self.sides(((g, v), o)) for g, v, o in file]))

        return law

    def universes(self) -> list[list[Hashable]]:
        shapes = [("ab", "11"), ("ab", "12")]
        if len(self.values) == 2:  # three records with three values each make too many tables to compare them all
            shapes += [("aab", "111"), ("abc", "112")]
        return [self.universe(other, rest) for other, rest in shapes]

    def universe(self, other: Sequence[str], rest: Sequence[str]) -> list[Hashable]:
        """Return every table with ``other`` on one side and ``rest``, with any perturbed values, on the other.

        >>> fair = Response(respond="county", values=("x", "y"), change=Fraction(1, 2), on_swap=True)
        >>> len(fair.universe("ab", "11")), len(fair.universe("ab", "12"))
        (4, 8)
        """
        tables: set[Any] = {
            tuple(sorted(map(self.sides, zip(zip(order, drawn, strict=True), other, strict=True))))
            for order in set(permutations(rest))
            for drawn in product(self.values, repeat=len(other))
        }
        return sorted(tables)

    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        perturbed, other = ("rest", self.respond), ("held",) if self.on_swap else swap[:1]
        sides = [*map(self.sides, records)]
        columns = {
            "rest": [rest for (rest, _), _ in sides],
            self.respond: [value for (_, value), _ in sides],
            other[0]: [value for _, value in sides],
        }
        swapped, held = (perturbed, other) if self.on_swap else (other, perturbed)
        return SmallFile(columns, {"match": (), "swap": swapped, "hold": held, "rates": ()})


class ResponseSwap(RatedSwap):
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
    perturbed_by: ClassVar[str] = "the response"
    family: ClassVar[SwapFamily] = SwapFamily(
        uncorrected=(
            "the correction of a swap needs counts that are published exactly, and the response leaves some inexact",
            "use the table as published; strata.parquet has the law of the response",
        )
    )

    settings: ResponseSettings
    swap_law: PermutationLaw
    steps: tuple[Response]

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        assert isinstance(settings, ResponseSettings)
        variable = codebook.variable(settings.respond)
        if settings.values or variable is None:
            return settings
        codes: list[Value] = [True, False] if variable.type == "true-false" else [*codebook.codes(variable.name)]
        if missing_as == "code" and variable.missing and settings.respond in {*settings.match, *settings.swap}:
            codes.append(MISSING_CODE)
        return settings.model_copy(update={"values": codes})

    def learned(self, codebook: Codebook) -> Sequence[str]:
        (step,) = self.steps
        variable = codebook.variable(step.respond)
        values = [value for value in step.values if value != MISSING_CODE]
        same = variable is not None and [*codebook.codes(variable.name)] == values
        return [step.respond] if same else []

    @property
    def in_words(self) -> str:
        (step,) = self.steps
        return (
            f"Response swapping: {step.respond} replaced by another of its {len(step.values)} declared values with "
            f"probability {step.change} in each record, then {', '.join(self.swap)} exchanged among {self.among} at "
            f"{self.at_rate}; everything else is held."
        )


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


def declared_texts(values: Sequence[Value]) -> tuple[str, ...]:
    """Return declared values as files write them; refuse a list with which nothing can be perturbed.

    >>> declared_texts([1, True, "owned"])
    ('1', 'true', 'owned')
    """
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice or len(texts) < 2:
        raise bad_plan(
            f"{listed(twice)} is declared twice" if twice else "a response needs two declared values or more",
            where="values",
            remedy="list every value that the variable may have once, such as ['owned', 'rented']; what the file "
            "happens to hold must not decide",
        )
    return texts


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


# ---- the budget and the exact law of a response


class PerturbedBudget(NamedTuple):
    """The losses of a swap with a perturbation, by which margins are taken as invariant.

    ``both``: the flavor of the swap, both margins. ``one``: the margin that the perturbation leaves alone. With the
    sizes of the strata only, nothing is promised.
    """

    both: Exact
    one: Exact


def response_epsilon(change: Fraction, *, values: int) -> Exact:
    """Return the loss of randomised response per record: with probability ``change`` another of the declared values.

    Each of the others is equally likely. 0 where all values are equally likely, infinite where some value is certain or
    impossible.

    >>> response_epsilon(Fraction(1, 10), values=2), response_epsilon(Fraction(2, 3), values=3)
    (Exact('ln(9)'), Exact('0'))
    """
    if values < 2:
        raise wrong(f"{values} value to choose from", where="values", remedy="declare two values or more")
    if change in (0, 1):
        return INFINITE
    odds = (1 - change) * (values - 1) / change
    return ln(max(odds, 1 / odds))


def perturbed_before(swap: Exact, response: Exact, *, rest: Exact = ZERO) -> PerturbedBudget:
    """Return the losses of randomised response on swap values, or on held ones, and then a swap (R14).

    One kernel for all records of a stratum commutes with every swap that treats permutations by their
    number of moved records alone (permutation, Mallows, shuffle), so that either protects. It does not hold for the
    conditioned swap, which does not commute: there the response alone counts, and the rest is post-processing. The
    perturbed margin is no invariant: it must stay unpublished, and settings must not use it.

    The response protects its own variable only. Where other variables are swapped together with it, or held
    together with it, ``rest`` is the loss of the swap in those strata where they have two values: a record
    may change its value *and* the place of the others, so that both losses add up, and with both margins as invariants
    the swap alone protects the others.

    >>> perturbed_before(ln(14), ln(9)).both
    Exact('ln(9)')
    >>> perturbed_before(ln(14), ln(9), rest=ln(14)).one
    Exact('ln(126)')
    """
    return PerturbedBudget(both=max(rest, min(swap, response)), one=response + rest)


def response(values: Sequence[Hashable], *, change: Fraction, place: int) -> Callable[[File], Law]:
    """Return randomised response on one column: another value, each equally likely, with probability ``change``.

    >>> len(response("xy", change=Fraction(1, 10), place=2)(((0, "a", "x"), (0, "b", "y"))))
    4
    """

    def answers(row: tuple[Any, ...]) -> Law:
        chances = {value: 1 - change if row[place] == value else change / (len(values) - 1) for value in values}
        return Law({(*row[:place], value, *row[place + 1 :]): chance for value, chance in chances.items()})

    return lambda file: together(map(answers, file), lambda row: [row])
