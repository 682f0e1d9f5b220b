"""The perverse guide as checks: ways in which a small budget promises less than it seems.

Section 4.3 of the dissertation lists how to reduce a loss on paper without adding noise. Each check
here looks for one of them and says in plain words what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from stirred.spec.budget import ByUniverse, PermutationSwapping
from stirred.spec.comparison import EQUAL, STRONGER, WEAKER, compare
from stirred.spec.composition import TOTAL_BY
from stirred.spec.convert import BEFORE, can_change_distance
from stirred.spec.domain import AS_GIVEN
from stirred.spec.exact import INFINITE, exact
from stirred.spec.input_premetric import InputPremetric, is_part, lengths_of, whole_of
from stirred.spec.invariant import ALL, Margin, records_of
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.number_text import small
from stirred.spec.specification import Specification

SERIOUS: Final = "serious"
WARNING: Final = "warning"
NOTE: Final = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a reader of the specification should know: what was seen, and what to do about it."""

    check: str
    severity: str
    message: str
    advice: str


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

# From upstream to downstream; a stage of one's own comes after these, and what is given to the mechanism last.
_STAGES: Final = ("population", "sample", "transmitted-record", "raw-responses", "edited-file")


@dataclass(frozen=True, slots=True)
class _Change:
    """A block that became weaker: if explained ``noted`` or not told, and otherwise serious where it is ``certain``.

    One that ``misleads`` is serious though the number is explained.
    """

    check: str
    what: str
    noted: bool = True
    certain: bool = True
    advice: str = ""
    misleads: bool = False


def since(before: Specification, now: Specification) -> Iterator[Finding]:
    """Yield what became weaker since an earlier version of a specification."""
    if before.budget.is_free or now.budget.is_free:
        return
    comparison = compare(before, now.with_flavor(domain=before.domain))
    how = comparison.blocks[3].verdict
    follows = comparison.overall in (STRONGER, EQUAL)
    changes = [*_who(before, now)]
    if comparison.overall not in (EQUAL, WEAKER):
        # Measures that imply each other at some budget are compared by the overall verdict alone.
        weaker = how != WEAKER
        changes += [*_where(before, now), *_what(before, now), *_how(before, now, weaker=weaker)]
    changes += [*_at(before, now), *([] if follows else _how_much(before, now))]
    fell = now.budget.realised < before.budget.realised
    rose = now.budget.realised > before.budget.realised
    for change in changes:
        explained = follows and not change.check.endswith("domain") and not change.misleads
        if explained and not change.noted:
            continue
        if before.budget_text == now.budget_text:
            moved = f"is {now.budget_text} as before"
        else:
            moved = f"{'fell' if fell else 'went'} from {before.budget_text} to {now.budget_text}"
        yield Finding(
            check="weaker" if explained else change.check,
            # What is newly fixed misleads with a number that looks better, or as good.
            severity=NOTE if explained or (rose and change.check == _FIXED) else SERIOUS if change.certain else WARNING,
            message=f"The budget {moved} while {change.what}."
            + (" That number follows from the earlier promise, which was the stronger one." if explained else ""),
            advice=_EXPLAINED if explained else change.advice or _UNEXPLAINED,
        )


_FIXED: Final = "fell-by-invariants"
_EXPLAINED: Final = (
    "Say so beside the number. A mechanism that is conditioned on what is newly fixed may lose twice as much."
)
_UNEXPLAINED: Final = "Do not present this as better protection: bring both to one flavor before comparing."


def _who(before: Specification, now: Specification) -> Iterator[_Change]:
    """A domain that was narrowed or moved downstream, unless the promise was pulled back to where it was."""
    old, new = before.domain, now.domain
    listed = old.datasets is not None and new.datasets is not None
    narrowed = not {*old.datasets} <= {*new.datasets} if listed else not old.is_file_of(new)  # type: ignore[misc]
    fell = now.output_premetric != before.output_premetric or now.budget.realised < before.budget.realised
    advice = "Give the promise for the earlier domain: `stirred spec pull-back` knows the factors of many steps."
    if narrowed:
        what = f"the domain changed: {old.dataset}, now {new.dataset}"
        yield _Change("fell-by-domain", what, certain=fell, advice=advice)
    if new.stage != old.stage and _downstream(new.stage) >= _downstream(old.stage):
        what = f"the domain moved downstream: {old.stage_in_words}, now {new.stage_in_words}"
        yield _Change("fell-by-domain", what, certain=fell, advice=advice)


def _downstream(stage: str) -> float:
    if stage.startswith(BEFORE):  # pulled back, from no further than the edited file
        return len(_STAGES) - 1.5
    return _STAGES.index(stage) if stage in _STAGES else len(_STAGES) + (stage == AS_GIVEN)


def _where(before: Specification, now: Specification) -> Iterator[_Change]:
    if now.multiverse.universes is not None and before.multiverse.universes is None:
        what = "only universes that are listed one by one are compared, such as those around one realised file"
        yield _Change("fell-by-universes", what)
        return
    # Units that differ fix different totals by themselves; that is told once, as the unit.
    alike = before.input_premetric.unit == now.input_premetric.unit
    old = before.flavor.effective_multiverse if alike else before.multiverse
    new = now.flavor.effective_multiverse if alike or not before.input_premetric.bounded else now.multiverse
    answer = old.refines(new)
    if answer.verdict is not Verdict.YES:
        what = f"invariants were added: newly fixed is the {answer.reason}"
        advice = "Do not present this as better protection: less is left to protect."
        yield _Change(_FIXED, what, certain=answer.verdict is Verdict.NO, advice=advice)


def _what(before: Specification, now: Specification) -> Iterator[_Change]:
    old, new = before.input_premetric, now.input_premetric
    both = f"{old.words}, now {new.words}"
    advice = "Convert one of them by group privacy before comparing."
    if is_part(new.unit, of=old.unit) or (old.unit == new.unit and new.post_imputation and not old.post_imputation):
        yield _Change("fell-by-unit", f"the unit became smaller: {both}", advice=advice)
    elif old.unit != new.unit and not is_part(old.unit, of=new.unit):
        what = f"the unit changed, and nothing says how the two relate: {both}"
        yield _Change("fell-by-unit", what, certain=False, advice=advice)
    if old.name == new.name and (old.relation, old.table) != (new.relation, new.table):
        fell = now.budget.realised < before.budget.realised
        yield from _stretched(old, new, fell=fell, advice=advice)
    every_pair = now.with_flavor(input_premetric=replace(new, within=None))
    other = old.name != new.name and not can_change_distance(every_pair, to=old.name)
    nearer = new.within is not None and (old.within is None or new.within < old.within)
    # Without invariants, single changes lead from any file to any other, and their bounds add up.
    adds_up = old.within is None and now.multiverse.is_vacuous and now.output_premetric.is_metric
    if other or (nearer and not adds_up):
        yield _Change("fell-by-distance", f"fewer pairs of files count as close: {both}", advice=advice)


def _stretched(old: InputPremetric, new: InputPremetric, *, fell: bool, advice: str) -> Iterator[_Change]:
    """A distance of one's own that is not what it was; a longer one makes the number smaller and the loss no less."""
    was, is_ = (lengths_of(each.table, directed=each.directed, closure=each.closure) for each in (old, new))
    longer = [(pair, far) for pair, far in was.items() if is_.get(pair, INFINITE) > far and pair[0] != pair[1]]
    if longer:
        ((x, y), far), *_ = longer
        now = is_.get((x, y), INFINITE)
        length = "infinitely far apart" if now.is_infinite else now.shown()
        what = f"distances were stretched: {x} and {y} were {far.shown()} apart and are now {length}"
        yield _Change("fell-by-distance", what, advice=advice, misleads=fell)
    elif not (was and is_):
        what = f"the distance changed, and nothing says how the two relate: {old.words}, now {new.words}"
        yield _Change("fell-by-distance", what, certain=False, advice=advice)


def _at(before: Specification, now: Specification) -> Iterator[_Change]:
    """A file that is said to be in another universe than before, where the budget is smaller."""
    old, new = before.budget.policy, now.budget.policy
    if not (isinstance(old, ByUniverse) and isinstance(new, ByUniverse)) or new.at in (None, old.at):
        return
    if new.realised < replace(new, at=old.at).realised:
        was = f"universe {old.at!r}" if old.at is not None else "none, so that the largest budget stood for it"
        what = f"the universe of this file, which decides the number, is now {new.at!r}; it was {was}"
        advice = "The invariants of the file say in which universe it is: state that one, and quote all budgets."
        yield _Change("fell-by-universe", what, advice=advice, misleads=True)


def _how(before: Specification, now: Specification, *, weaker: bool) -> Iterator[_Change]:
    old, new = before.output_premetric, now.output_premetric
    advice = "Compare them in one output premetric; a number in another scale is not a smaller loss."
    if now.measured_on and now.measured_on != before.measured_on:
        what = f"change is measured on a part of the output only: {', '.join(now.measured_on)}"
        yield _Change("fell-by-output-premetric", what, advice=advice)
    elif old != new and weaker:
        what = f"change is measured differently: {old.classic} ({old.symbol}), now {new.classic} ({new.symbol})"
        noted = old.name == new.name or {old.name, new.name} == {"D_Mult", "D_Mult^delta"}
        yield _Change("fell-by-output-premetric", what, noted=noted, advice=advice)


def _how_much(before: Specification, now: Specification) -> Iterator[_Change]:
    """A number that is not what it was: one for a function, a part for the total, another scale."""
    old, new = before.budget, now.budget
    if old.varies and not new.varies and not new.realised.is_infinite:
        yield _Change("fell-by-one-number", "a budget that depends on the universe became one number for all of them")
    if {*TOTAL_BY} & {*before.theorem} and not {*TOTAL_BY} & {*now.theorem}:
        what = "the total of several releases became the loss of one"
        yield _Change("not-the-total", what, advice="Compare totals with totals: `stirred spec compose`.")
    if before.flavor == now.flavor and old.realised.is_rational and new.realised.is_rational:
        was, is_ = old.realised.rational, new.realised.rational
        root = is_**2 == was != is_ and now.output_premetric.name == "D_NoR"
        if root or (is_ and was / is_ in (100, 1000)):
            scale = (
                "the square root, as where ρ is quoted for ρ²"
                if root
                else f"1/{was / is_} of it, as where it is per more"
            )
            yield _Change("looks-rescaled", f"the new number is exactly {scale}", certain=False,
                          advice="Quote both numbers in the same parameter.")  # fmt: skip
