"""Randomised response on one column of a file of persons: a mechanism of a third party.

Each answer is kept with probability ``keep`` and otherwise replaced by one of the other declared values, each equally
likely. Everything else about a person is released as it is, so the promise is about the answer alone: it compares
files that agree on everything but answers. For one answer the odds change by at most keep (k - 1) / (1 - keep), where
k values are declared; for files with d answers different the factors multiply.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import polars as pl
from pydantic import Field

from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.doubts import record_doubts
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import Fact, Frames, Mechanism, Plan, Progress, Rate, Release, Settings
from stirred.randomness import Entropy, bernoulli_array, integers_below, random_permutation
from stirred.spec import INFINITE, PURE, Budget, Domain, InputPremetric, Law, Margin, Multiverse, Specification, ln
from stirred.spec.doubts import Doubt
from stirred.spec.given_numbers import probability
from stirred.spec.specification import Flavor


class CoinSettings(Settings):
    """The settings: what a plan, ``--set``, the manifest and the specification know of this mechanism."""

    column: str = Field(description="The column that gets a random answer.", json_schema_extra={"example": "smokes"})
    values: list[str] = Field(
        description="Every value that an answer may have, fixed beforehand.", json_schema_extra={"example": "yes,no"}
    )
    keep: Rate = Field(description="The probability that an answer is kept.", json_schema_extra={"example": "3/4"})
    unit: str = Field(default="person", description="What a record is.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoinPlan(Plan):
    """What would happen to a file; nothing random has happened."""

    specification: Specification
    doubts: tuple[Doubt, ...] = ()
    accepted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    column: str
    keep: Fraction

    @property
    def disturbed(self) -> str:
        """Say what is disturbed."""
        return f"{self.column}: each value is replaced by another one with probability {1 - self.keep}"

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what --verbose and --json say besides."""
        words = f"each {self.column} is kept with probability {self.keep}"
        return (Fact(label="coin", sentence=words, values={"keep": str(self.keep)}),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinAnswers(Mechanism):
    """Randomised response on one column.

    >>> coin = CoinAnswers(column="smokes", values=["yes", "no"], keep="3/4")
    >>> coin.plan(pl.DataFrame({"age": [30, 41], "smokes": ["yes", "no"]})).specification.budget.shown
    '1.10'
    """

    name: ClassVar[str] = "coin-answers"
    title: ClassVar[str] = "randomised response"
    settings_model: ClassVar[type[Settings]] = CoinSettings

    column: str
    values: Sequence[str]
    keep: Fraction | str
    unit: str = "person"
    settings_from: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "keep", probability(self.keep, where="keep"))
        if len({*self.values}) < 2 or len({*self.values}) < len(self.values):
            raise bad_plan("a coin needs two different values", where="values", remedy="list every value once")

    @property
    def in_words(self) -> str:
        """Return in one sentence what is done."""
        return f"Randomised response: {self.column} is kept with probability {self.keep}, otherwise it becomes another."

    @property
    def epsilon(self) -> Any:
        """Return the loss of one answer."""
        keep, others = Fraction(self.keep), len(self.values) - 1
        if keep in (0, 1):
            return INFINITE
        odds = keep * others / (1 - keep)
        return ln(max(odds, 1 / odds))

    def specification(self, *, name: str, columns: Sequence[str], stage: str) -> Specification:
        """Return the promise: files that agree on everything but the answers."""
        rest = tuple(each for each in columns if each != self.column)
        return Specification(
            flavor=Flavor(
                domain=Domain.of_file(name, stage=stage, record_types=(self.unit,), columns=tuple(columns)),
                multiverse=Multiverse(invariants=(Margin(of=self.unit, variables=rest),)),
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
                output_premetric=PURE,
            ),
            budget=Budget.constant(self.epsilon),
            assumptions=("the values were declared beforehand, and every answer is drawn once",),
            theorem=("randomised response (Warner 1965), and composition over answers",),
            settings_from=self.settings_from,
        )

    def plan(self, data: Any, *, doubts: bool = True) -> CoinPlan:
        """Return the plan."""
        microdata = as_microdata(data)
        self._check(microdata)
        columns = microdata.variables
        found = tuple(self._doubts(microdata, columns)) if doubts else ()
        return CoinPlan(
            specification=self.specification(name=microdata.name, columns=columns, stage=microdata.stage),
            doubts=found,
            dropped=tuple(microdata.identifiers),
            column=self.column,
            keep=Fraction(self.keep),
        )

    def _check(self, data: Microdata) -> None:
        if self.column not in data.variables:
            raise bad_plan(
                f"there is no column '{self.column}'", where="column", remedy=f"there are {listed(data.variables)}"
            )
        present = data.households[self.column].cast(pl.String).unique().drop_nulls()
        if data.households[self.column].null_count() or not {*present} <= {*self.values}:
            raise bad_plan(
                f"'{self.column}' has missing values, or others than those declared",
                where="values",
                remedy="declare every value that may occur",
            )

    def _doubts(self, data: Microdata, columns: Sequence[str]) -> Iterator[Doubt]:
        yield from record_doubts(data, columns, unit=self.unit, settings_from=self.settings_from)
        if Fraction(self.keep) in (0, 1):
            yield Doubt(
                kind="nothing-promised",
                what="with certainty nothing is promised: epsilon is infinite",
                remedy="choose a probability between 0 and 1",
            )

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Flip all coins once, and release the records in random order."""
        del progress
        microdata, _, entropy, specification = opened(self, data, entropy, accept=accept, plan=plan)
        frame = microdata.households.select(microdata.variables)
        place = {value: number for number, value in enumerate(self.values)}
        old = frame[self.column].cast(pl.String).replace_strict(place, return_dtype=pl.Int64).to_numpy()
        kept = bernoulli_array(Fraction(self.keep), count=frame.height, entropy=entropy, purpose="keep")
        step = 1 + integers_below(len(self.values) - 1, count=frame.height, entropy=entropy, purpose="other")
        new = (old + (~kept) * step.astype(old.dtype)) % len(self.values)
        answers = pl.Series(self.column, list(self.values)).gather(new).cast(frame[self.column].dtype)
        order = random_permutation(frame.height, entropy=entropy, purpose="order")
        released = frame.with_columns(answers)[order.astype("int64")]
        return Release(public=Frames({"data": lambda: [released]}, convert=like(data)), specification=specification)

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the unordered table, for records (anything, answer)."""
        keep, others = Fraction(self.keep), len(self.values) - 1
        outcomes: dict[Hashable, Fraction] = {}
        for answers in product(self.values, repeat=len(dataset)):
            chance = Fraction(1)
            for (_, true), answer in zip(dataset, answers, strict=True):
                chance *= keep if answer == true else (1 - keep) / others
            table = tuple(sorted((rest, answer) for (rest, _), answer in zip(dataset, answers, strict=True)))
            outcomes[table] = outcomes.get(table, Fraction(0)) + chance
        return Law(outcomes)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all files with the same rest of every record, for two and three records."""
        return [
            sorted(
                {tuple(sorted(zip(rest, answers, strict=True))) for answers in product(self.values, repeat=len(rest))}
            )
            for rest in ("ab", "aa", "aab")
        ]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise in such a universe."""
        del universe
        return self.specification(name="small", columns=["rest", self.column], stage="as-given")
