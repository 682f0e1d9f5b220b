"""Randomised response on one column of a file of persons: a mechanism of a third party.

Each answer is kept with probability ``keep`` and otherwise replaced by one of the other declared values, each equally
likely. Everything else about a person is released as it is, so the promise is about the answer alone: it compares
files that agree on everything but answers. For one answer the odds change by at most keep (k - 1) / (1 - keep), where
k values are declared; for files with d answers different the factors multiply.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, Self

import polars as pl
from pydantic import Field, model_validator

from stirred.data.microdata import Microdata, as_microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.plain import PlainMechanism, PlainPlan, Probability, Settings
from stirred.mechanisms.protocol import Fact
from stirred.randomness import Entropy, bernoulli_array, integers_below
from stirred.spec import INFINITE, PURE, Budget, Domain, InputPremetric, Law, Margin, Multiverse, Specification, ln
from stirred.spec.doubts import Doubt
from stirred.spec.specification import Flavor


class CoinSettings(Settings):
    """The settings: what a plan, ``--set``, the manifest and the specification know of this mechanism."""

    column: str = Field(description="The column that gets a random answer.", json_schema_extra={"example": "smokes"})
    values: list[str] = Field(
        description="Every value that an answer may have, fixed beforehand.", json_schema_extra={"example": "yes,no"}
    )
    keep: Probability = Field(
        description="The probability that an answer is kept.", json_schema_extra={"example": "3/4"}
    )
    unit: str = Field(default="person", description="What a record is.")

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len({*self.values}) < max(2, len(self.values)):
            raise bad_plan("a coin needs two different values", where="values", remedy="list every value once")
        return self


class CoinAnswers(PlainMechanism):
    """Randomised response on one column.

    >>> coin = CoinAnswers(column="smokes", values=["yes", "no"], keep="3/4")
    >>> coin.plan(pl.DataFrame({"age": [30, 41], "smokes": ["yes", "no"]})).specification.budget.shown
    '1.10'
    """

    name: ClassVar[str] = "coin-answers"
    title: ClassVar[str] = "randomised response"
    settings_model: ClassVar[type[Settings]] = CoinSettings
    settings: CoinSettings

    @property
    def in_words(self) -> str:
        column, keep = self.settings.column, self.settings.keep
        return f"Randomised response: {column} is kept with probability {keep}, otherwise it becomes another."

    @property
    def disturbed(self) -> str:
        column, keep = self.settings.column, self.settings.keep
        return f"{column}: each value is replaced by another one with probability {1 - keep}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.settings.column,)

    @property
    def facts(self) -> tuple[Fact, ...]:
        words = f"each {self.settings.column} is kept with probability {self.settings.keep}"
        return (Fact(label="coin", sentence=words, values={"keep": str(self.settings.keep)}),)

    @property
    def epsilon(self) -> Any:
        """Return the loss of one answer."""
        keep, others = self.settings.keep, len(self.settings.values) - 1
        if keep in (0, 1):
            return INFINITE
        odds = keep * others / (1 - keep)
        return ln(max(odds, 1 / odds))

    def specification(self, data: Microdata | None) -> Specification:
        """Return the promise: files that agree on everything but the answers."""
        columns = ["rest", self.settings.column] if data is None else data.variables
        name, stage = ("small", "as-given") if data is None else (data.name, data.stage)
        rest = tuple(each for each in columns if each != self.settings.column)
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

    def check(self, data: Any) -> None:
        """Refuse a file without the column, or with other values."""
        super().check(data)
        column = self.settings.column
        answers = as_microdata(data).households[column].cast(pl.String)
        if answers.null_count() or not {*answers} <= {*self.settings.values}:
            raise bad_plan(
                f"'{column}' has missing values, or others than those declared",
                where="values",
                remedy="declare every value that may occur",
            )

    def doubts(self, data: Microdata, plan: PlainPlan) -> Iterator[Doubt]:
        """Yield the doubts of any file of records, and one about a coin that always falls on the same side."""
        yield from PlainMechanism.doubts(self, data, plan)
        if self.settings.keep in (0, 1):
            yield Doubt(
                kind="nothing-promised",
                what="with certainty nothing is promised: epsilon is infinite",
                remedy="choose a probability between 0 and 1",
            )

    def draw(self, records: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        column, values = records[self.settings.column], self.settings.values
        place = {value: number for number, value in enumerate(values)}
        old = column.cast(pl.String).replace_strict(place, return_dtype=pl.Int64).to_numpy()
        kept = bernoulli_array(self.settings.keep, count=records.height, entropy=entropy, purpose="keep")
        step = 1 + integers_below(len(values) - 1, count=records.height, entropy=entropy, purpose="other")
        new = (old + (~kept) * step.astype(old.dtype)) % len(values)
        return records.with_columns(pl.Series(column.name, values).gather(new).cast(column.dtype))

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the unordered table, for records (anything, answer)."""
        keep, values = self.settings.keep, self.settings.values
        outcomes: dict[Hashable, Fraction] = {}
        for answers in product(values, repeat=len(dataset)):
            chance = Fraction(1)
            for (_, true), answer in zip(dataset, answers, strict=True):
                chance *= keep if answer == true else (1 - keep) / (len(values) - 1)
            table = tuple(sorted((rest, answer) for (rest, _), answer in zip(dataset, answers, strict=True)))
            outcomes[table] = outcomes.get(table, Fraction(0)) + chance
        return Law(outcomes)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all files with the same rest of every record, for two and three records."""
        values = self.settings.values
        return [
            sorted({tuple(sorted(zip(rest, answers, strict=True))) for answers in product(values, repeat=len(rest))})
            for rest in ("ab", "aa", "aab")
        ]
