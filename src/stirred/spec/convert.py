"""Conversions of one specification into another that follows from it, each with its theorem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from stirred.spec.budget import Budget, derived
from stirred.spec.derivation import Derivation, stepped
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import fraction
from stirred.spec.invariant import Invariant, Margin
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.problems import refused, wrong
from stirred.spec.specification import Specification


def post_process(specification: Specification, *, description: str = "any function of the output") -> Derivation:
    """Return the specification of a function of the released output: the same (Proposition 2.5.4).

    It must be a function of the output, of fresh randomness, and of the invariants, and of nothing
    else about the confidential data.
    """
    if specification.measured_on:
        raise refused(
            f"the promise is about {', '.join(specification.measured_on)} only, not about functions of all the output",
            where="post-process",
            remedy="specify the release for all of its output",
        )
    return stepped(
        specification,
        specification,
        action=f"post-process: {description}",
        theorem="Proposition 2.5.4 (post-processing)",
        assuming="post-processing uses only released output, fresh randomness and the invariants",
    )


def refine(
    specification: Specification,
    *,
    invariants: Iterable[Invariant] = (),
    to: Multiverse | None = None,
) -> Derivation:
    """Return the specification relative to more invariants: it holds with the same budget (Proposition 5).

    The number stays the same and the promise gets weaker: fewer datasets are compared.
    """
    finer = to if to is not None else specification.multiverse.with_invariants(invariants)
    answer = finer.refines(specification.multiverse)
    if answer.verdict is not Verdict.YES:
        raise refused(
            f"the new multiverse does not refine the old one ({answer.verdict.value}): {answer.reason}",
            where="refine",
            remedy="add invariants; removing them is not a consequence of what was proved, "
            "and for most mechanisms the loss becomes infinite",
        )
    added = [str(i) for i in finer.invariants if i not in specification.multiverse.invariants]
    return stepped(
        specification,
        specification.with_flavor(multiverse=finer),
        action=f"hold fixed as well: {'; '.join(added)}" if added else "no further invariants",
        theorem="Proposition 5 (refining the multiverse)",
    )


def change_unit(
    specification: Specification,
    *,
    unit: str,
    factor: int | Fraction | str,
    because: str,
    keeps_total: str | None = None,
    post_imputation: bool | None = None,
) -> Derivation:
    """Return the specification for another unit, by group privacy (Proposition 2.4.15).

    ``factor`` is a number with ``d_old <= factor * d_new``: the largest number of old units in one
    new unit (persons in a household), or of records one person's answers were copied into. It is
    never assumed: say ``because``. A bounded distance is infinite where the number of old units
    changes, so that number becomes an explicit invariant, unless ``keeps_total`` gives the reason why
    the invariants already fix it.
    """
    scale = exact(fraction(factor, where="factor"))
    if scale < 1:
        raise wrong(
            f"{factor} is below 1, but whoever changes one {unit} changes at least one record",
            where="factor",
            remedy="write the largest number of old units that one new unit changes, 1 or more",
        )
    if not because.strip():
        raise wrong(
            "no reason given for the factor",
            where="because",
            remedy="say why no new unit holds more old units, such as 'households have at most 6 persons'",
        )
    old = specification.input_premetric
    if unit == old.unit and post_imputation in (None, old.post_imputation):
        raise wrong(f"the unit is {unit} already", where="unit", remedy="name another unit")
    if post_imputation and not old.post_imputation:
        unsaid = "whether these are records after imputation is not said. " if old.post_imputation is None else ""
        raise refused(
            f"{unsaid}a promise for people gives none for records after imputation: a change of one copy alone is no "
            "change of a person",
            where="unit",
            remedy="specify the release for records after imputation from the start",
        )
    if not old.is_metric:
        raise refused(
            f"{old.symbol} compares neighbours only, so it says nothing about groups of {scale}",
            where="unit",
            remedy="change the unit first and the output premetric afterwards",
        )
    after = scale_budget(specification, scale, formula=f"{scale} x the budget per {old.unit}")
    new = replace(old, unit=unit, post_imputation=old.post_imputation if post_imputation is None else post_imputation)
    after = after.with_flavor(input_premetric=new, multiverse=after.multiverse.nearest_in(scale))
    if old.bounded and keeps_total is None:
        after = after.with_flavor(multiverse=after.multiverse.with_invariants([Margin(of=old.unit)]))
    return stepped(
        specification,
        after,
        action=f"unit {old.unit_in_words} -> {new.unit_in_words}, factor {scale}",
        theorem="Proposition 2.4.15 (group privacy)",
        assuming=because if keeps_total is None else f"{because}; {keeps_total}",
    )


def scale_budget(specification: Specification, scale: Exact, *, formula: str) -> Specification:
    """Return the specification with its Lipschitz constant multiplied: rho squared by the square."""
    budget = specification.budget
    if scale == 1:
        return specification
    power = scale * scale if specification.output_premetric.name == "D_NoR" else scale
    value = budget.realised * power
    return specification.with_budget(Budget(policy=derived(formula, value, budget)))


# d_from <= factor * d_to: unordered distances are at most the ordered ones, and changing one record
# is removing one and adding one (section A.4).
_DISTANCE_FACTORS: Final = {
    ("d_HamS", "d_Ham"): 1,
    ("d_SymDiff", "d_InsDel"): 1,
    ("d_SymDiff", "d_HamS"): 2,
    ("d_SymDiff", "d_Ham"): 2,
    ("d_InsDel", "d_Ham"): 2,
}


def can_change_distance(specification: Specification, *, to: str) -> bool:
    """Say whether :func:`change_distance` has a theorem for it."""
    old = specification.input_premetric
    return old.name == to or (old.is_metric and (old.name, to) in _DISTANCE_FACTORS)


def change_distance(specification: Specification, *, to: str) -> Derivation:
    """Return the specification for another distance between datasets, where one bounds the other."""
    old = specification.input_premetric
    if old.name == to:
        return Derivation(specification=specification)
    if not can_change_distance(specification, to=to):
        raise refused(
            f"a bound per {old.symbol} gives none per {to}",
            where="input_premetric",
            remedy="; ".join(f"{a} -> {b} is possible" for a, b in _DISTANCE_FACTORS if a == old.name)
            or "choose the distance before the mechanism",
        )
    factor = _DISTANCE_FACTORS[old.name, to]
    after = scale_budget(specification, exact(factor), formula=f"{factor} x the budget per {old.name}")
    return stepped(
        specification,
        after.with_flavor(input_premetric=replace(old, name=to), multiverse=after.multiverse.nearest_in(exact(factor))),
        action=f"distance {old.name} -> {to}, factor {factor}",
        theorem="Proposition 2.4.15 (input premetrics that bound each other)",
    )


def to_neighbours(specification: Specification, *, within: int = 1) -> Derivation:
    """Return the specification that compares only datasets at most ``within`` apart."""
    old = specification.input_premetric
    if old.within == within:
        return Derivation(specification=specification)
    if not old.is_metric:
        raise refused(
            f"{old.symbol} already compares neighbours only",
            where="input_premetric",
            remedy=f"keep it, or start again from {old.name}",
        )
    after = scale_budget(specification, exact(within), formula=f"{within} x the budget per {old.unit}")
    return stepped(
        specification,
        after.with_flavor(input_premetric=old.neighbours(within)),
        action=f"compare only datasets at most {old.counted(within)} apart",
        theorem="Proposition 2.4.15 (d <= k d_r)",
    )
