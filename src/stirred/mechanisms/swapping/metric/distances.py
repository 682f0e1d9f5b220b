"""Distances between swap values, as whole steps of a unit: a declared metric, or levels of a hierarchy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Coded, encode
from stirred.data.problems import PlanError, bad_plan, listed, number
from stirred.mechanisms.swapping.core.pairs import Pairs, some, value_names
from stirred.spec.problems import Problem

Steps = npt.NDArray[np.int64]

_SHOWN: Final = 5
# Weights are powers of one number: more steps would make them too long to compute with exactly.
_MOST_STEPS: Final = 1_000


# The table of steps between some swap codes.
Between = Callable[[Steps], Steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDistances:
    """Distances declared for every pair of values: a metric, checked exactly.

    >>> line = Pairs.declared({"A": {"B": "1/2", "C": 1}, "B": {"C": "1/2"}}, where="distances", own=Fraction(0))
    >>> TableDistances.of(line).steps.tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """

    pairs: Pairs
    steps: Steps = field(compare=False, repr=False)
    unit: Fraction

    @classmethod
    def of(cls, pairs: Pairs) -> TableDistances:
        """Return the distances in steps of their largest common unit; all that keeps them from a metric is told."""
        if problems := [*_pair_problems(pairs)]:
            raise PlanError(problems)
        scale = math.lcm(*(value.denominator for value in pairs.numbers.values()))
        common = math.gcd(*(int(value * scale) for value in pairs.numbers.values()))
        unit = Fraction(common, scale)
        most = max(pairs.numbers.values()) / unit
        if most > _MOST_STEPS:
            raise bad_plan(
                f"the distances are multiples of {unit}, up to {most} times",
                where=pairs.where,
                remedy=f"round them up to multiples of a larger unit, at most {_MOST_STEPS:,} of them: rounding up "
                "keeps the triangle inequality",
            )
        size = len(pairs.values)
        steps: Steps = np.zeros((size, size), dtype=np.int64)
        for place, a in enumerate(pairs.values):
            for other, b in enumerate(pairs.values[:place]):
                steps[place, other] = steps[other, place] = int(pairs[a, b] / unit)
        if problems := [*_triangle_problems(pairs, steps, unit)]:
            raise PlanError(problems)
        return cls(pairs=pairs, steps=steps, unit=unit)

    @property
    def most(self) -> int:
        """Return the largest declared distance, in steps."""
        return int(self.steps.max())

    def among(self, swap: Coded) -> Between:
        """Return the steps between the swap codes of a file, of which every value must be declared."""
        (column,) = swap.levels.get_columns()
        places = np.array(self.pairs.places(value_names(column)))

        def between(codes: Steps) -> Steps:
            here = places[codes]
            return self.steps[here[:, None], here]

        return between

    def __str__(self) -> str:
        return f"declared for {len(self.pairs.values):,} values ({self.pairs})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDistances:
    """Distances by a hierarchy: 1 where all ``levels`` agree, one more for each level up to the coarsest that differs.

    ``levels`` are swap variables, from the finest to the coarsest. This is a metric whatever the values: a level on
    which two values differ is one on which one of them differs from any third.

    >>> homes = {"state": [1, 1, 2], "county": list("AAB"), "block": [1, 2, 3]}
    >>> import polars as pl
    >>> LevelDistances(levels=("county", "state")).among(encode(pl.DataFrame(homes), [*homes]))(np.arange(3)).tolist()
    [[0, 1, 3], [1, 0, 3], [3, 3, 0]]
    """

    levels: tuple[str, ...]

    @property
    def unit(self) -> Fraction:
        """Return 1."""
        return Fraction(1)

    @property
    def most(self) -> int:
        """Return the distance of values that differ on the coarsest level."""
        return len(self.levels) + 1

    def among(self, swap: Coded) -> Between:
        """Return the steps between the swap codes of a file."""
        codes = [encode(swap.levels, [level]).codes for level in self.levels]

        def between(wanted: Steps) -> Steps:
            steps: Steps = (wanted[:, None] != wanted).astype(np.int64)
            for rank, level in enumerate(codes):
                here = level[wanted]
                steps[here[:, None] != here] = rank + 2
            return steps

        return between

    def __str__(self) -> str:
        return f"by the levels {', '.join(self.levels)}"


def distances_of(given: Any, swap: Sequence[str]) -> TableDistances | LevelDistances:
    """Return the distances that were declared: names of levels, or a number for each pair of values."""
    if isinstance(given, (TableDistances, LevelDistances)):
        return given
    if isinstance(given, Mapping):
        if len(swap) != 1:
            raise bad_plan(
                "distances can be declared for the values of one swap variable only",
                where="distances",
                remedy="swap one variable, or name levels among the swap variables",
            )
        return TableDistances.of(Pairs.declared(given, where="distances", own=Fraction(0)))
    levels = (given,) if isinstance(given, str) else tuple(given)
    if outside := [name for name in levels if name not in swap]:
        raise bad_plan(
            f"{listed(outside)} is no swap variable",
            where="distances",
            remedy="name swap variables from the finest level to the coarsest, or declare a number for each pair",
        )
    if len(set(levels)) < len(levels):
        raise bad_plan("a level is named twice", where="distances", remedy="name every level once")
    return LevelDistances(levels=levels)


def _pair_problems(pairs: Pairs) -> Iterator[Problem]:
    remedy = "a distance is 0 from a value to itself, above 0 to every other, and the same both ways"
    wrong = [f"{a} to {b}: {value}" for (a, b), value in pairs.numbers.items() if (value > 0) == (a == b) or value < 0]
    if wrong:
        yield Problem(
            what=f"{number(len(wrong), 'distance is', 'distances are')} wrong: {some(wrong)}",
            where=pairs.where,
            remedy=remedy,
        )
    uneven = [
        f"{a} to {b}: {value}, back {pairs.numbers[b, a]}"
        for (a, b), value in pairs.numbers.items()
        if a < b and pairs.numbers.get((b, a), value) != value
    ]
    if uneven:
        yield Problem(
            what=f"{number(len(uneven), 'pair')} with two distances: {some(uneven)}",
            where=pairs.where,
            remedy=remedy,
        )


def _triangle_problems(pairs: Pairs, steps: Steps, unit: Fraction) -> Iterator[Problem]:
    shown: list[str] = []
    count = 0
    for middle, name in enumerate(pairs.values):
        longer = np.argwhere(np.triu(steps > steps[:, middle, None] + steps[middle]))
        count += len(longer)
        for a, b in longer[: _SHOWN - len(shown)].tolist():
            way = (steps[a, middle] + steps[middle, b]) * unit
            shown.append(f"{pairs.values[a]} to {pairs.values[b]}: {steps[a, b] * unit}, by way of {name} {way}")
    if count:
        yield Problem(
            what=f"{number(count, 'way round another value is', 'ways round another value are')} shorter: "
            f"{some(shown, total=count)}",
            where=pairs.where,
            remedy="use shortest ways: the budget rests on the triangle inequality",
        )
