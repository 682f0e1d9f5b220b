"""Numbers declared for pairs of swap values, fixed beforehand: distances between areas, or weights of exchanges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import PlanError, bad_plan, listed, number
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
        place = {value: index for index, value in enumerate(self.values)}
        if missing := [name for name in names if name not in place]:
            bare = {value.lstrip("0"): value for value in self.values}
            zeros = [f"{name} is declared as {bare[name.lstrip('0')]}" for name in missing if name.lstrip("0") in bare]
            alike = f"; codes that differ in leading zeros are different codes ({zeros[0]})" if zeros else ""
            raise bad_plan(
                f"nothing is declared for {number(len(missing), 'value that occurs', 'values that occur')}: "
                f"{some(missing)}",
                where=self.where,
                remedy=f"declare every swap value that may occur{alike}",
            )
        return [place[name] for name in names]


def some(names: list[str], *, total: int | None = None) -> str:
    """Write the first names in quotes, and how many more there are, of ``total`` where not all are listed.

    >>> some(["a", "b"]), some(list("abcdefg"))
    ('"a", "b"', '"a", "b", "c", "d", "e" and 2 more')
    """
    more = (len(names) if total is None else total) - _SHOWN
    return listed(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def nested_pairs(frame: pl.DataFrame, *, number: str, where: str) -> dict[str, dict[str, str]]:
    """Return the pairs of a file with the columns from, to and ``number``; a pair that is given twice is refused.

    >>> nested_pairs(pl.DataFrame({"from": ["A"], "to": ["B"], "distance": ["3"]}), number="distance", where="d.csv")
    {'A': {'B': '3'}}
    """
    problems = [*_file_problems(frame, number, where)]
    if problems:
        raise PlanError(problems)
    found: dict[str, dict[str, str]] = {}
    for first, second, value in frame.select(pl.col("from", "to", number).cast(pl.String)).iter_rows():
        found.setdefault(first, {})[second] = value
    return found


def _file_problems(frame: pl.DataFrame, number: str, where: str) -> Iterator[Problem]:
    wanted = ("from", "to", number)
    if missing := [name for name in wanted if name not in frame.columns]:
        has = listed(frame.columns)
        yield Problem(
            what=f"there is no column {listed(missing)}",
            where=where,
            remedy=f"name the columns {listed(wanted)}, not {has}",
        )
        return
    for name in wanted:
        if frame[name].null_count():
            yield Problem(what="a field is empty", where=f'{where} "{name}"', remedy="fill it, or remove the line")
    twice = frame.group_by("from", "to").len().filter(pl.col("len") > 1)
    for first, second, times in twice.head(_SHOWN).sort("from", "to").iter_rows():
        yield Problem(
            what=f"{first} to {second} stands {times} times", where=where, remedy="keep one line for each pair"
        )
