"""Values of group quarters, drawn from a law that is declared beforehand: one fitted to the file has no budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file, bad_plan
from stirred.mechanisms.swapping.records.choices import Choices
from stirred.spec.given_numbers import probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """A column, the share of its values that is replaced, and the law of what replaces them."""

    column: str
    share: Fraction
    law: Mapping[str, Fraction]

    @classmethod
    def of(cls, given: Mapping[str, Any] | Synthetic) -> Synthetic:
        """Return it from plain data."""
        if isinstance(given, Synthetic):
            return given
        if {*given} != {"column", "share", "law"} or not isinstance(given["law"], Mapping):
            what = "a synthetic column needs column, share and law; one that is fitted to the file has no budget"
            remedy = "declare the law beforehand: {column = 'age', share = '1/2', law = {'20' = '1/2', '30' = '1/2'}}"
            raise bad_plan(what, where="synthetic", remedy=remedy)
        law = {str(value): probability(p, where="synthetic") for value, p in given["law"].items()}
        if sum(law.values()) != 1:
            what, remedy = "the probabilities of a law do not add up to 1", "write each value with its probability"
            raise bad_plan(what, where="synthetic", remedy=remedy)
        return cls(column=str(given["column"]), share=probability(given["share"], where="synthetic"), law=law)

    def check(self, data: Microdata) -> None:
        """Refuse a column of persons, and values that it cannot hold."""
        if self.column not in data.households.columns:
            raise bad_file("it is no column of households", where=f'synthetic "{self.column}"', remedy="name one")
        kind = data.households[self.column].dtype
        if pl.Series([*self.law]).cast(kind, strict=False).null_count():
            what = f"the law has values that are no {kind}, as the column is"
            raise bad_file(what, where=f'synthetic "{self.column}"', remedy="write values of the kind of the column")

    def drawn(self, choices: Choices) -> str:
        """Draw a value."""
        left = Fraction(1)
        for value, mass in self.law.items():
            if mass and choices.happens(mass / left):
                return value
            left -= mass
        raise AssertionError("the law adds up to 1")
