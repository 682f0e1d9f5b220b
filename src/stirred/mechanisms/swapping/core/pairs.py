"""Numbers declared for pairs of swap values, fixed beforehand: distances between areas, or weights of exchanges."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import PlanError, bad_plan, listed, number
from stirred.data.validate import NEEDLESS, as_text
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, StirredError

Declared = Mapping[Any, Mapping[Any, Fraction | Decimal | str | float | int]]

_SHOWN: Final = 5
_SHORT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A number for every pair of different values, as text, and for a value with itself.

    >>> pairs = Pairs.declared({"A": {"B": "1/2", "C": 2}, "C": {"B": 1}}, where="distances", own=Fraction(0))
    >>> pairs.values, pairs["B", "A"], pairs["B", "B"]
    (('A', 'B', 'C'), Fraction(1, 2), Fraction(0, 1))
    """

    values: tuple[str, ...]
    numbers: Mapping[tuple[str, str], Fraction]
    own: Fraction
    where: str

    @classmethod
    def declared(cls, given: Declared, *, where: str, own: Fraction) -> Pairs:
        """Return the numbers of a mapping from value to value to number; a pair may be given in one order only.

        ``own`` is the number of a value with itself where none is given.
        """
        numbers: dict[tuple[str, str], Fraction] = {}
        problems: list[Problem] = []
        for first, others in given.items():
            if not isinstance(others, Mapping):
                raise bad_plan(
                    f"{first} has {others!r} instead of a number for each other value",
                    where=where,
                    remedy="write a table: for each value the other values with their numbers",
                )
            for second, value in others.items():
                try:
                    numbers[str(first), str(second)] = fraction(value, where=f"{where} {first} to {second}")
                except StirredError as error:
                    problems += error.problems
        values = tuple(dict.fromkeys(value for pair in numbers for value in pair))
        missing = [
            f"{a} and {b}"
            for place, a in enumerate(values)
            for b in values[:place]
            if (a, b) not in numbers and (b, a) not in numbers
        ]
        if missing and not problems:
            what = f"no number for {number(len(missing), 'pair')}: {some(missing)}"
            bare = [value.lstrip("0") for value in values]
            twice = [value for value in values if bare.count(value.lstrip("0")) > 1][:2]
            alike = f"; {listed(twice)} differ in leading zeros only: write a code one way" if twice else ""
            problems.append(Problem(what=what, where=where, remedy=f"give every pair of values a number{alike}"))
        if len(values) < 2 and not problems:
            problems.append(Problem(what="no pair of values", where=where, remedy="give every pair of values a number"))
        if problems:
            raise PlanError(problems)
        return cls(values=values, numbers=numbers, own=own, where=where)

    def __getitem__(self, pair: tuple[str, str]) -> Fraction:
        given = self.numbers.get(pair)
        if given is not None:
            return given
        return self.own if pair[0] == pair[1] else self.numbers[pair[1], pair[0]]

    @property
    def nested(self) -> dict[str, dict[str, str]]:
        """Return the numbers as they were declared, as text."""
        found: dict[str, dict[str, str]] = {}
        for (first, second), value in self.numbers.items():
            found.setdefault(first, {})[second] = str(value)
        return found

    def __str__(self) -> str:
        text = ", ".join(f"{first}-{second}: {value}" for (first, second), value in sorted(self.numbers.items()))
        return text if len(text) <= _SHORT else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"

    def places(self, names: list[str]) -> list[int]:
        """Return the places of swap values; all that were not declared are refused at once."""
        # 1.50 may be declared for the number 1.5; among codes of text the one written alike comes first.
        place = {value: index for index, value in enumerate(self.values)}
        place = {**{re.sub(NEEDLESS, r"\1", value): index for value, index in place.items()}, **place}
        if missing := [name for name in names if name not in place]:
            bare = {value.lstrip("0"): value for value in self.values}
            zeros = [f"{name} is declared as {bare[name.lstrip('0')]}" for name in missing if name.lstrip("0") in bare]
            alike = f"; codes that differ in leading zeros are different codes ({zeros[0]})" if zeros else ""
            what = f"nothing is declared for {number(len(missing), 'value that occurs', 'values that occur')}"
            raise bad_plan(
                f"{what}: {some(missing)}{alike}",
                public=what,
                where=self.where,
                remedy="declare every swap value that may occur",
            )
        return [place[name] for name in names]


def value_names(column: pl.Series) -> list[str]:
    """Return values as a declaration writes them: decimals without needless zeros.

    >>> value_names(pl.Series(["0.50", "1.25"]).cast(pl.Decimal(9, 4))), value_names(pl.Series([0.5, 1.0]))
    (['0.5', '1.25'], ['0.5', '1'])
    """
    if column.dtype.is_float() or column.dtype.is_decimal():
        return as_text(column).to_list()
    return [str(value) for value in column.to_list()]


def some(names: list[str], *, total: int | None = None) -> str:
    """Write the first names in quotes, and how many more there are, of ``total`` where not all are listed.

    >>> some(["a", "b"]), some(list("abcdefg"))
    ('"a", "b"', '"a", "b", "c", "d", "e" and 2 more')
    """
    more = (len(names) if total is None else total) - _SHOWN
    return listed(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
