"""Group privacy: from neighbours to all distances, by adding up along paths that stay inside each universe."""

from __future__ import annotations

from dataclasses import replace

from stirred.spec.budget import Budget, ByUniverse, derived
from stirred.spec.derivation import Derivation, stepped
from stirred.spec.exact import ZERO, Exact, exact, largest
from stirred.spec.invariant import Margin
from stirred.spec.problems import refused
from stirred.spec.specification import Specification


def to_metric(specification: Specification) -> Derivation:
    """Return the specification for all distances that follows from one for neighbours, or refuse with the reason.

    If the output premetric obeys the triangle inequality, losses add up along a path of neighbours (Eq. 2.8). The
    path must stay inside the universe: with no invariants and every file eligible there always is one, of as many
    single changes as records differ. Where the domain lists its datasets, paths are counted: the budget grows by
    the largest number of steps for each unit of distance.
    """
    old = specification.input_premetric
    if old.is_metric:
        return Derivation(specification=specification)
    if why := _why_not_added_up(specification):
        raise refused(why, where="input_premetric", remedy=f"keep {old.symbol}, or specify the release per {old.name}")
    factor = path_factor(specification)
    if isinstance(factor, str):
        raise refused(factor, where="input_premetric", remedy=f"keep {old.symbol}, or specify it per {old.name}")
    after = scale_budget(specification, factor, formula=f"{factor} x the budget of neighbours")
    return stepped(
        specification,
        after.with_flavor(input_premetric=replace(old, within=None)),
        action="compare datasets at all distances, by adding up along paths",
        theorem="group privacy along paths inside each universe (Eq. 2.8)",
        assuming=all_eligible(specification),
    )


def all_eligible(specification: Specification) -> str:
    """Return what paths of single changes rest on where the domain does not list its datasets: all are eligible."""
    if specification.domain.datasets is not None:
        return ""
    return "every file is eligible, so that single changes lead from any version to any other"


def can_be_metric(specification: Specification) -> bool:
    """Say whether :func:`to_metric` is possible."""
    if specification.input_premetric.is_metric:
        return True
    return not _why_not_added_up(specification) and not isinstance(path_factor(specification), str)


def _why_not_added_up(specification: Specification) -> str:
    premetric, output = specification.input_premetric, specification.output_premetric
    if not premetric.counts:
        only = "compares neighbours only" if premetric.one_step else "counts no records"
        return f"{premetric.symbol} {only}, and the shortest paths between others are not known"
    if not output.is_metric:
        return f"{premetric.symbol} compares neighbours only, and {output.classic} does not add up along a path"
    return ""


def path_factor(specification: Specification) -> Exact | str:
    """Return the most neighbour steps that a unit of distance takes inside a universe, or why no number is known."""
    premetric, multiverse = specification.input_premetric, specification.multiverse
    datasets, listed = specification.domain.datasets, multiverse.universes is not None
    # The number of records cannot change at a finite bounded distance, whether it is known how to count them or not.
    harmless = {Margin(of=premetric.unit)} if premetric.bounded else set()
    unknown = {i for i in multiverse.invariants if datasets is None or i.function is None}
    if (datasets is None and listed) or (not listed and not unknown <= harmless):
        return (
            f"{premetric.symbol} compares neighbours only, and under these invariants a path of neighbours between "
            "two versions may be longer than they are apart, or leave the universe"
        )
    if datasets is None:
        return exact(1)
    known = tuple(i for i in multiverse.invariants if i not in unknown)
    multiverse = replace(multiverse, invariants=known, nearest=1, nearest_because="")
    factor = ZERO
    for universe in multiverse.universes_of(datasets):
        members = [dataset for dataset in datasets if dataset in universe]
        for (i, j), steps in premetric.shortest_paths(members).items():
            apart = replace(premetric, within=None).distance(members[i], members[j])
            if apart == 0 or apart.is_infinite:
                continue
            if steps.is_infinite:
                return f"no path of neighbours inside its universe joins {members[i]} and {members[j]}"
            factor = largest([factor, steps / apart])
    return exact(1) if factor == 0 else factor


def scale_budget(specification: Specification, scale: Exact, *, formula: str) -> Specification:
    """Return the specification with its Lipschitz constant multiplied: rho squared by the square."""
    budget = specification.budget
    if scale == 1:
        return specification
    power = scale * scale if specification.output_premetric.name == "D_NoR" else scale
    value = budget.realised * power
    if isinstance(budget.policy, ByUniverse):
        return specification.with_budget(Budget(policy=budget.policy.scaled(power)))
    return specification.with_budget(Budget(policy=derived(formula, value, budget)))
