"""Which match and swap variables could be chosen, what each would cost and what each would publish exactly.

Table 5 of the paper, computed from a file: for every pair of neighbouring geographic levels, swap the
finer ones within the coarser, alone or crossed with further match variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from stirred.data.codes import differing, encode
from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.revealing import LOOKS_INSIDE, told
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.exact import Exact
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import Problem
from stirred.spec.swap_budget import rate_not_above, smallest_psa_epsilon

RATES = (Fraction(1, 20), Fraction(1, 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One choice of match and swap variables: strata, losses, and what it holds fixed."""

    match: tuple[str, ...]
    swap: tuple[str, ...]
    strata: int
    live: int
    largest: int
    largest_values: tuple[object, ...]
    epsilons: tuple[tuple[Fraction, Exact], ...]
    least: Exact
    reaching: Fraction | None
    multiverse: Multiverse
    safe: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the choice in a few words."""
        return f"{' x '.join(self.match) or '(no match)'} | {self.swap[0]}"

    @property
    def invariants(self) -> tuple[str, ...]:
        """Return in words what would be published exactly."""
        return tuple(str(invariant) for invariant in self.multiverse.invariants)


def candidates(
    data: Any,
    *,
    levels: Sequence[str],
    cross: Sequence[str] = (),
    rates: Sequence[Fraction] = RATES,
    epsilon: Exact | None = None,
    unit: str = "household",
) -> list[Candidate]:
    """Return the choices for a geography whose ``levels`` are given from the finest to the coarsest.

    ``cross`` names further match variables, tried together. With ``epsilon`` each candidate says the
    gentlest rate that reaches it. Everything shown is a function of the candidate's own invariants;
    ``safe`` says whether it is also one of the invariants of *this* candidate for all the others, so
    that choosing it by looking at the whole list reveals nothing more (docs/theory/conditions.md, condition 3);
    that the levels nest is checked, and taken as publicly known.
    """
    microdata = as_microdata(data)
    _check_names(microdata, levels, cross)
    _check_nesting(microdata, levels)
    geography = Hierarchy(name="geography", levels=tuple(levels))
    warnings = _telling(microdata, levels, cross)
    found: list[Candidate] = []
    for place in range(len(levels) - 1, 0, -1):
        # Everything nested under the match level moves together; coarser levels are held with it.
        swap, match = list(reversed(levels[:place])), levels[place]
        for more in [[], list(cross)] if cross else [[]]:
            mechanism = PermutationSwap(match=[match, *more], swap=swap, rate=Fraction(1, 2), unit=unit)
            # Of a national file only one plan at a time fits: it holds the codes of every record.
            choice = _candidate(mechanism.plan(microdata), geography, rates=rates, epsilon=epsilon)
            more_warnings = (words for level, words in warnings if level in swap)
            found.append(replace(choice, warnings=(*choice.warnings, *more_warnings)))
    return [
        replace(choice, safe=all(choice.multiverse.refines(other.multiverse) for other in found)) for choice in found
    ]


def _check_names(data: Microdata, levels: Sequence[str], cross: Sequence[str]) -> None:
    """Refuse names that cannot be levels or further match variables, all at once."""
    problems: list[Problem] = []
    if len(set(levels)) < 2:
        what, remedy = "a geography needs two levels or more", "name them from the finest to the coarsest: block, tract"
        problems.append(Problem(what=what, where="geography", remedy=remedy))
    for role, names in (("geography", levels), ("cross", cross)):
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                what = f'"{name}" is named {names.count(name)} times'
                problems.append(Problem(what=what, where=role, remedy="name it once"))
            if name in data.identifiers:
                what = f'"{name}" is an identifier'
                problems.append(
                    Problem(what=what, where=role, remedy=f"remove it here, or from {_named_by(data, name)}")
                )
            elif name not in data.households.columns:
                columns = data.households.columns
                problems.append(missing_column(name, columns, where=data.household_source, role=role))
            elif role == "cross" and name in levels:
                what = f'"{name}" is a level of the geography, and every level is matched or swapped already'
                remedy = "remove it here, or from geography; cross is for other variables, such as the household size"
                problems.append(Problem(what=what, where=role, remedy=remedy))
    if problems:
        raise DataError(problems)


def _named_by(data: Microdata, identifier: str) -> str:
    return "hid" if identifier == data.hid else "id"


def _check_nesting(data: Microdata, levels: Sequence[str]) -> None:
    """Refuse levels that do not nest: then one level's table does not follow from another's."""
    for fine, coarse in pairwise(levels):
        inner, outer = encode(data.households, [fine]), encode(data.households, [coarse])
        broken = differing(inner.codes, outer.codes, count=inner.count)
        if broken.any():
            example = inner.levels[fine][int(broken.argmax())]
            raise bad_plan(
                f'{int(broken.sum()):,} values of "{fine}" lie in two or more values of "{coarse}", such as {example}',
                where="geography",
                remedy="name the levels from the finest to the coarsest, with codes that are unique in the whole file",
            )


def _telling(data: Microdata, levels: Sequence[str], cross: Sequence[str]) -> list[tuple[str, str]]:
    """Return the finest level that each column outside the geography tells, with a warning in words.

    Levels nest, so that it tells the coarser ones too; the coarsest is never swapped.
    """
    others = [name for name in data.variables if name not in levels and name not in cross]
    return [
        (
            tells[0],
            f'"{name}" is not a level of the geography and tells "{tells[0]}", so that anybody can undo its swap: if '
            f"it is a place, name it with --geography where it nests, or leave it out of the release {LOOKS_INSIDE}",
        )
        for name, tells in told(data.households, others, of=levels[:-1])
    ]


def _with_geography(plan: SwapPlan, geography: Hierarchy) -> Multiverse:
    multiverse = plan.specification.multiverse
    return Multiverse(
        invariants=multiverse.invariants,
        hierarchies=(geography,),
        nearest=multiverse.nearest,
        nearest_because=multiverse.nearest_because,
    )


def _candidate(plan: SwapPlan, geography: Hierarchy, *, rates: Sequence[Fraction], epsilon: Exact | None) -> Candidate:
    strata = plan.strata
    largest = strata.largest_live
    size = largest.records if largest else 0
    least = smallest_psa_epsilon(size, bound="sharp")
    reaching = None
    if epsilon is not None and size and epsilon > least:
        reaching = rate_not_above(epsilon, largest_stratum=size, bound="sharp")
    return Candidate(
        match=plan.universe.match,
        swap=plan.universe.swap,
        strata=len(strata.table),
        live=len(strata.live),
        largest=size,
        largest_values=largest.values if largest else (),
        epsilons=tuple((rate, strata.epsilon(rate)) for rate in rates),
        least=least,
        reaching=reaching,
        multiverse=_with_geography(plan, geography),
        warnings=plan.warnings,
    )
