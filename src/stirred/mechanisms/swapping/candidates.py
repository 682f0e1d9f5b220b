"""Which match and swap variables could be chosen, what each would cost and what each would publish exactly.

Table 5 of the paper, computed from a file: for every pair of neighbouring geographic levels, swap the
finer ones within the coarser, alone or crossed with further match variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from stirred.data.codes import differing, encode
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.mechanisms.swapping.permutation import PermutationSwap, SwapPlan, as_microdata
from stirred.spec.exact import Exact
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.multiverse import Multiverse
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
    safe: bool
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
    that choosing it by looking at the whole list reveals nothing more (condition 3 of use); that the
    levels nest is checked, and taken as publicly known.
    """
    microdata = as_microdata(data)
    if len(levels) < 2:
        raise bad_plan(
            "a geography needs two levels or more", where="geography", remedy="name block, tract, county, ..."
        )
    _check_nesting(microdata, levels)
    geography = Hierarchy(name="geography", levels=tuple(levels))
    plans: list[SwapPlan] = []
    for place in range(len(levels) - 1, 0, -1):
        # Everything nested under the match level moves together; coarser levels are held with it.
        swap, match = list(reversed(levels[:place])), levels[place]
        for more in [[], list(cross)] if cross else [[]]:
            mechanism = PermutationSwap(match=[match, *more], swap=swap, rate=Fraction(1, 2), unit=unit)
            plans.append(mechanism.plan(microdata))
    multiverses = [_with_geography(plan, geography) for plan in plans]
    return [
        _candidate(plan, multiverse, rates=rates, epsilon=epsilon, others=multiverses)
        for plan, multiverse in zip(plans, multiverses, strict=True)
    ]


def _check_nesting(data: Microdata, levels: Sequence[str]) -> None:
    """Refuse levels that do not nest: then one level's table does not follow from another's."""
    for fine, coarse in pairwise(levels):
        for name in (fine, coarse):
            if name not in data.households.columns:
                problem = missing_column(name, data.households.columns, where=data.household_source, role="geography")
                raise DataError([problem])
        inner, outer = encode(data.households, [fine]), encode(data.households, [coarse])
        broken = differing(inner.codes, outer.codes, count=inner.count)
        if broken.any():
            example = inner.levels[fine][int(broken.argmax())]
            raise bad_plan(
                f'{int(broken.sum()):,} values of "{fine}" lie in two or more values of "{coarse}", such as {example}',
                where="geography",
                remedy="name the levels from the finest to the coarsest, with codes that are unique in the whole file",
            )


def _with_geography(plan: SwapPlan, geography: Hierarchy) -> Multiverse:
    multiverse = plan.specification.multiverse
    return Multiverse(
        invariants=multiverse.invariants,
        hierarchies=(geography,),
        nearest=multiverse.nearest,
        nearest_because=multiverse.nearest_because,
    )


def _candidate(
    plan: SwapPlan,
    multiverse: Multiverse,
    *,
    rates: Sequence[Fraction],
    epsilon: Exact | None,
    others: Sequence[Multiverse],
) -> Candidate:
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
        multiverse=multiverse,
        safe=all(multiverse.refines(other) for other in others),
        warnings=plan.warnings,
    )
