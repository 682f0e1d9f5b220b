"""The perverse guide as checks: ways in which a small budget promises less than it seems.

Section 4.3 of the dissertation lists how to reduce a loss on paper without adding noise. Each check
here looks for one of them and says in plain words what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.spec.budget import PermutationSwapping
from stirred.spec.domain import AS_GIVEN
from stirred.spec.exact import exact
from stirred.spec.finding import NOTE, SERIOUS, WARNING, Finding
from stirred.spec.invariant import ALL, Margin, records_of
from stirred.spec.lint_before import since
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import small
from stirred.spec.specification import Specification
from stirred.spec.unit_parts import whole_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a check may look at: the specification, an earlier version of it, and the number of records."""

    specification: Specification
    before: Specification | None = None
    records: int | None = None


def lint(
    specification: Specification, *, before: Specification | None = None, records: int | None = None
) -> list[Finding]:
    """Return what is doubtful about a specification, the most serious first.

    ``before`` is an earlier specification of the same release, to see whether its number fell for a
    bad reason. ``records`` is the number of records, to judge delta.

    >>> from stirred.spec import catalogue
    >>> [f.check for f in lint(catalogue.load("das-2020").specification)]
    ['post-imputation-units', 'settings-from-other-data', 'large-budget']
    """
    context = Context(specification=specification, before=before, records=records)
    findings = [finding for check in CHECKS for finding in check(context)]
    rank = {SERIOUS: 0, WARNING: 1, NOTE: 2}
    return sorted(findings, key=lambda finding: rank[finding.severity])


def _infinite_budget(context: Context) -> Iterator[Finding]:
    budget = context.specification.budget
    if budget.is_unbounded:
        yield Finding(
            check="infinite-budget",
            severity=SERIOUS,
            message="The budget is infinite: an output may give the data away with certainty.",
            advice="Change the settings of the mechanism; for swapping use a rate above 0 and below 1.",
        )


# exp(10) = 22026: the odds between two datasets may change by that factor for one unit.
_LARGE: Final = exact(10)
_OTHER_SCALES: Final = ("D_TV", "D_H", "D_W1", "D_Tr")  # at most 1, in units of the output, or a count of curves


def _large_budget(context: Context) -> Iterator[Finding]:
    specification = context.specification
    budget, name = specification.budget, specification.output_premetric.name
    if budget.is_free or budget.realised.is_infinite or name in _OTHER_SCALES:
        return
    if budget.realised > _LARGE:
        yield Finding(
            check="large-budget",
            severity=NOTE,
            message=f"The budget {specification.budget_text} alone limits little"
            + (": a loss of 10 lets the odds between two datasets change 22,026-fold." if name == "D_Mult" else "."),
            advice="Say what protects in practice: look at disclosure risk, not only at this number.",
        )


def _singleton_universes(context: Context) -> Iterator[Finding]:
    specification = context.specification
    multiverse, datasets = specification.multiverse, specification.domain.datasets
    finest = {hierarchy.levels[0] for hierarchy in multiverse.hierarchies}
    whole = [
        margin
        for margin in multiverse.invariants
        if isinstance(margin, Margin)
        and margin.variables == (ALL,)
        and (margin.level in finest or (margin.level is None and not _uses_levels(multiverse)))
    ]
    alone = datasets is not None and all(len(universe) == 1 for universe in multiverse.universes_of(datasets))
    if whole or alone:
        what = f"the {whole[0]} fixes the whole file" if whole else "every universe holds a single dataset"
        yield Finding(
            check="singleton-universes",
            severity=SERIOUS,
            message=f"The invariants leave nothing to protect: {what}. Any budget, even 0, is then empty.",
            advice="Remove invariants until datasets that matter can differ inside a universe.",
        )


def _uses_levels(multiverse: Multiverse) -> bool:
    """Say whether anything shows that the records carry geography, which "*" leaves out."""
    levels = [m.level for m in multiverse.invariants if isinstance(m, Margin)]
    return bool(multiverse.hierarchies) or any(level is not None for level in levels)


def _neighbour_guarantee(context: Context) -> Iterator[Finding]:
    premetric, output = context.specification.input_premetric, context.specification.output_premetric
    if not output.is_metric and premetric.is_metric and not context.specification.theorem:
        yield Finding(
            check="neighbours-only",
            severity=WARNING,
            message=f"The promise is stated for all distances, but {output.classic} is usually proved for neighbours "
            "only, and does not extend to larger groups by itself.",
            advice='Add "within": 1 to the input premetric, unless the bound was proved for every distance.',
        )


def _no_neighbours(context: Context) -> Iterator[Finding]:
    specification = context.specification
    within, nearest = specification.input_premetric.within, specification.multiverse.nearest
    if within is not None and within < nearest:
        yield Finding(
            check="no-neighbours",
            severity=SERIOUS,
            message=f"Only datasets at most {within} apart are compared, but under these invariants no two different "
            f"datasets are closer than {nearest}: the promise is empty.",
            advice=f"Compare all pairs (no neighbour relation), or convert at distance {nearest} or more.",
        )


def _swapping_has_no_neighbours(context: Context) -> Iterator[Finding]:
    specification = context.specification
    if isinstance(specification.budget.policy, PermutationSwapping) and specification.multiverse.nearest < 2:
        yield Finding(
            check="nearest-not-stated",
            severity=NOTE,
            message="Under swapping invariants no record can change alone, but the file does not say so.",
            advice="Set nearest = 2 in the multiverse: conversions are sharper, and readers see that the closest two "
            "versions of the file already lose twice the budget.",
        )


def _delta_too_large(context: Context) -> Iterator[Finding]:
    delta, records = context.specification.output_premetric.delta, context.records
    if not delta:
        return
    if records is not None and delta * records * 100 > 1:
        yield Finding(
            check="delta-too-large",
            severity=SERIOUS if delta * records >= 1 else WARNING,
            message=f"delta = {small(delta)} is not far below 1/n = 1/{records:,}: publishing about "
            f"{float(delta * records):.2g} records at random would satisfy it.",
            advice=f"Use a delta of at most {small(Fraction(1, 10 ** len(str(records * 100))))}.",
        )
    elif records is None and delta > Fraction(1, 10**6):
        yield Finding(
            check="delta-too-large",
            severity=WARNING,
            message=f"delta = {small(delta)} may not be far below one over the number of records.",
            advice="Give the number of records (--records) to check it.",
        )


def _post_imputation(context: Context) -> Iterator[Finding]:
    premetric = context.specification.input_premetric
    if premetric.post_imputation:
        yield Finding(
            check="post-imputation-units",
            severity=WARNING,
            message=f"The unit is a {records_of(premetric.unit, 1)} after imputation, not a {premetric.unit}: "
            "whoever's answers were copied into k records is protected with k times the loss (rho squared: k^2 times).",
            advice="Say so wherever the budget is quoted, and give the budget for the largest number of copies "
            "(`stirred spec budget --copies`).",
        )


def _part_of_a_unit(context: Context) -> Iterator[Finding]:
    unit = context.specification.input_premetric.unit
    if owner := whole_of(unit):
        yield Finding(
            check="part-of-a-unit",
            severity=WARNING,
            message=f"The unit is a {unit}, and one {owner} may have many: whoever has k of them is protected with k "
            "times the loss (rho squared: k^2 times).",
            advice=f"Say so wherever the budget is quoted, and state the budget for a {owner} "
            f"(`stirred spec convert --unit {owner} --factor K --because ...`).",
        )


def _not_said(context: Context) -> Iterator[Finding]:
    specification = context.specification
    unsaid = {
        "at which stage of its life the file is": specification.domain.stage == AS_GIVEN,
        "whether its records are records after imputation": specification.input_premetric.post_imputation is None,
    }
    missing = [what for what, is_unsaid in unsaid.items() if is_unsaid]
    if missing and not specification.budget.is_free:
        yield Finding(
            check="stage-not-said",
            severity=NOTE,
            message=f"The specification does not say {' and '.join(missing)}: readers cannot tell what happened to the "
            "data before, nor whether one person may stand in several records.",
            advice='Say it in the plan, such as stage = "edited-file" and post_imputation = true under [data], or in '
            "the domain and the input premetric.",
        )


def _looked_at_data(context: Context) -> Iterator[Finding]:
    basis = context.specification.settings_from
    if basis == "this-data":
        yield Finding(
            check="settings-from-this-data",
            severity=SERIOUS,
            message="The settings were chosen by looking at the confidential data: the budget does not cover what "
            "that choice reveals, and no guarantee holds.",
            advice="Choose settings by policy, from the invariants alone, or on an earlier or a synthetic file.",
        )
    elif basis == "other-data":
        yield Finding(
            check="settings-from-other-data",
            severity=NOTE,
            message="The settings were tuned on other data, which is sound for this file.",
            advice="Make sure that the other data do not contain this file's records.",
        )


def _budget_outside_partition(context: Context) -> Iterator[Finding]:
    specification = context.specification
    if specification.budget.varies and not specification.multiverse.is_partition:
        yield Finding(
            check="budget-outside-partition",
            severity=SERIOUS,
            message="The budget depends on the universe and universes overlap, so the realised budget tells "
            "something about the data (Corollary A.2.2).",
            advice="Publish the policy, not the realised value, or use invariants: they always partition.",
        )


def _nothing_to_swap(context: Context) -> Iterator[Finding]:
    policy = context.specification.budget.policy
    if isinstance(policy, PermutationSwapping) and not any(part.largest_stratum for part in policy.strata):
        yield Finding(
            check="nothing-to-swap",
            severity=SERIOUS,
            message="No stratum has anything to swap: the file is published as it is, and 0 is not protection.",
            advice="Match on fewer variables or coarser values.",
        )


def _seeded(context: Context) -> Iterator[Finding]:
    if context.specification.seeded:
        yield Finding(
            check="seeded",
            severity=SERIOUS,
            message="The randomness came from a seed: whoever knows the seed can undo it.",
            advice="Use it for tests only; run without a seed for a release.",
        )


def _zero_budget(context: Context) -> Iterator[Finding]:
    specification = context.specification
    if specification.settings_from is None and not specification.budget.is_free and specification.budget.realised == 0:
        yield Finding(
            check="zero-budget",
            severity=WARNING,
            message="The budget is 0: the output is the same whatever the data are. Nothing says where it comes from, "
            "and a constant that was read off the data gives them away at no loss.",
            advice="Say on what the settings are based; a constant must be fixed before anybody sees the data.",
        )


def _part_of_output(context: Context) -> Iterator[Finding]:
    parts = context.specification.measured_on
    if parts:
        yield Finding(
            check="part-of-output",
            severity=WARNING,
            message=f"Change is measured on a part of the output only ({', '.join(parts)}): what else is published may "
            "give everything away at no loss.",
            advice="Measure it on all that is published, or publish no more than this.",
        )


def empty(specification: Specification) -> list[Finding]:
    """Return why a promise protects nothing whatever its number is; nothing where it does."""
    context = Context(specification=specification)
    checks = (_singleton_universes, _nothing_to_swap, _no_neighbours)
    return [finding for check in checks for finding in check(context)]


def _since_before(context: Context) -> Iterator[Finding]:
    if context.before is not None:
        yield from since(context.before, context.specification)


CHECKS: Final[tuple[Callable[[Context], Iterator[Finding]], ...]] = (
    _infinite_budget,
    _singleton_universes,
    _nothing_to_swap,
    _no_neighbours,
    _neighbour_guarantee,
    _looked_at_data,
    _budget_outside_partition,
    _seeded,
    _since_before,
    _zero_budget,
    _part_of_output,
    _delta_too_large,
    _swapping_has_no_neighbours,
    _post_imputation,
    _part_of_a_unit,
    _not_said,
    _large_budget,
)
