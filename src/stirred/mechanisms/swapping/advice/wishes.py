"""What a custodian wishes of a swap: counts that stay exact, a largest loss, areas that are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.natural import sorted_values
from stirred.data.problems import PlanError, listed
from stirred.data.spelling import crossed
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import loss, probability
from stirred.spec.problems import Problem, StirredError

Number = Exact | Fraction | Decimal | float | int | str
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """An area by the value of one swap variable; with several swap variables it is all that lies in it."""

    variable: str
    value: str

    def share(self, areas: pl.DataFrame) -> float:
        """Return the share of its records that change, from the shares of all combinations of swap values."""
        own = areas.filter(pl.col(self.variable).cast(pl.String) == self.value)
        return float((own["records"] * own["share_changed"]).sum()) / float(own["records"].sum())

    def __str__(self) -> str:
        return f"{self.variable} {self.value}" if self.value.isdigit() else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a swap should do: margins that must be ``exact``, or ``nearly`` so, and what it may change.

    ``changed`` is the share of all records that should at least change their swap values; of the records of an
    ``undisturbed`` area at most a share of ``at_most`` may.
    """

    swap: tuple[str, ...]
    exact: tuple[tuple[str, ...], ...] = ()
    nearly: tuple[tuple[str, ...], ...] = ()
    epsilon: Exact | None = None
    undisturbed: tuple[Area, ...] = ()
    at_most: Fraction = Fraction(1, 10)
    changed: Fraction = Fraction(1, 20)

    @property
    def match(self) -> tuple[str, ...]:
        """Return the variables to match on: only counts of match x swap stay exact, and all of those."""
        return self._beside_swap(self.exact)

    @property
    def fine_match(self) -> tuple[str, ...]:
        """Return what two stages match on in the second one."""
        return tuple(name for name in self._beside_swap(self.nearly) if name not in self.match)

    def _beside_swap(self, margins: Sequence[Sequence[str]]) -> tuple[str, ...]:
        forced = [name for margin in margins if set(margin) & set(self.swap) for name in margin]
        return tuple(dict.fromkeys(name for name in forced if name not in self.swap))

    @property
    def demanding(self) -> tuple[tuple[str, ...], ...]:
        """Return the exact margins that force variables into the match; the others stay exact in any swap."""
        return tuple(margin for margin in self.exact if self._beside_swap([margin]))

    def without(self, margin: tuple[str, ...]) -> Wishes:
        """Return the same with one margin only nearly exact; without a loss to reach, given up altogether."""
        exact = tuple(other for other in self.exact if other != margin)
        nearly = (*self.nearly, margin) if self.epsilon is not None else self.nearly
        return replace(self, exact=exact, nearly=nearly)


def wishes_for(
    data: Microdata,
    *,
    swap: Sequence[str],
    exact: Sequence[str | Sequence[str]] = (),
    nearly: Sequence[str | Sequence[str]] = (),
    epsilon: Number | None = None,
    undisturbed: Sequence[str] = (),
    at_most: Number = "10%",
    changed: Number = "5%",
    hold: Sequence[str] | None = None,
) -> Wishes:
    """Return the wishes, checked against the columns and areas of a file; all problems at once.

    >>> homes = pl.DataFrame({"county": ["A", "B"], "size": [1, 1], "tenure": ["owned", "rented"]})
    >>> wishes = wishes_for(Microdata(households=homes), swap=["county"], exact=["county x size", "size x tenure"])
    >>> wishes.match  # size x tenure holds no swap variable, and stays exact in any swap
    ('size',)
    """
    problems: list[Problem] = []

    def read(reading: Callable[..., T], value: Any, where: str, default: T) -> T:
        try:
            return reading(value, where=where)
        except StirredError as error:
            problems.extend(error.problems)
            return default

    margins = {
        role: tuple(tuple(crossed(each) if isinstance(each, str) else each) for each in given)
        for role, given in (("--exact", exact), ("--nearly", nearly))
    }
    for role, given in margins.items():
        for margin in given:
            problems += _margin_problems(margin, data, swap, hold, where=f"{role} '{' x '.join(margin)}'")
    found = Wishes(
        swap=tuple(swap),
        exact=margins["--exact"],
        nearly=margins["--nearly"],
        epsilon=None if epsilon is None else read(_positive_loss, epsilon, "--epsilon", None),
        at_most=read(probability, at_most, "--at-most", Fraction(1, 10)),
        changed=read(probability, changed, "--changed", Fraction(1, 20)),
    )
    if nearly and epsilon is None:
        what, remedy = "how nearly depends on the loss", "add --epsilon, or write --exact"
        problems.append(Problem(what=what, where="--nearly", remedy=remedy))
    areas = [_area(name, data.households, swap) for name in undisturbed]
    problems += [area for area in areas if isinstance(area, Problem)]
    if problems:
        raise PlanError(problems)
    return replace(found, undisturbed=tuple(area for area in areas if isinstance(area, Area)))


def _positive_loss(value: Number, *, where: str) -> Exact | None:
    number = loss(value, where=where, finite=True)
    if number.is_infinite or number.sign() == 0:
        remedy = "write the largest loss you accept, above 0, such as 3; or leave it out for the smallest there is"
        raise PlanError([Problem(what=f"epsilon {number.shown()} is no wish", where=where, remedy=remedy)])
    return number


def _margin_problems(
    margin: tuple[str, ...], data: Microdata, swap: Sequence[str], hold: Sequence[str] | None, *, where: str
) -> Iterator[Problem]:
    homes, people = data.variables, data.person_variables
    known = [*homes, *people]
    unknown = [name for name in margin if name not in known]
    if unknown or not margin or len(set(margin)) < len(margin):
        yield Problem(
            what=f"there is no variable {listed(unknown)}" if unknown else "a margin needs different variables",
            where=where,
            remedy=f"write such as '{_such_as(known, swap)}', with {listed(known[:30])}",
        )
        return
    of_persons = [name for name in margin if name not in homes]
    across = bool(set(margin) & set(swap))
    if of_persons and across:
        yield Problem(
            what=f"{listed(of_persons)} belongs to persons, and no swap keeps counts of persons by "
            f"{listed([name for name in margin if name in swap])} exactly: only variables of the household can be "
            "matched on",
            where=where,
            remedy="leave it out, or add what you need to the household file, such as the number of its adults, and "
            "name that",
        )
    dropped = [] if hold is None or across else [name for name in margin if name not in hold]
    if dropped:
        remedy = "add it to --hold, or leave the margin out"
        yield Problem(what=f"{listed(dropped)} is not released", where=where, remedy=remedy)


def _such_as(known: Sequence[str], swap: Sequence[str]) -> str:
    """Return a margin of columns that the file has, across the swap if it can be."""
    own = [name for name in swap if name in known][:1]
    return " x ".join([*own, *(name for name in known if name not in swap)][:2])


def _area(name: str, households: pl.DataFrame, swap: Sequence[str]) -> Area | Problem:
    """Return the area of a name: a value of a swap variable, or VARIABLE=VALUE where several have it."""
    variables = [variable for variable in swap if variable in households.columns]
    values = {
        variable: sorted_values(households[variable].unique().cast(pl.String).drop_nulls()) for variable in variables
    }
    named, _, value = name.partition("=")
    if named in variables and value in set(values[named]):
        return Area(variable=named, value=value)
    holding = [variable for variable in variables if name in set(values[variable])]
    if len(holding) == 1:
        return Area(variable=holding[0], value=name)
    there = [text for variable in variables for text in values[variable].head(30)]
    where = f"--undisturbed '{name}'"
    if holding:
        remedy = f"write such as '{holding[0]}={name}'"
        return Problem(what=f"{listed(holding)} have this value", where=where, remedy=remedy)
    what = f"there is no such area; there are {listed(there[:30])}{', ...' if len(there) > 30 else ''}"
    return Problem(what=what, where=where, remedy=f"name a value of {listed(list(swap))}")
