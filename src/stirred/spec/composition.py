"""The specification of several releases together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Final

from stirred.spec.budget import Budget, derived
from stirred.spec.convert import can_change_distance, change_distance, change_unit, refine, to_neighbours
from stirred.spec.convert_output import at_most_one
from stirred.spec.domain import AS_GIVEN, Domain
from stirred.spec.exact import Exact, add_up, exp, ln, sqrt
from stirred.spec.invariant import ALL, Inequality, Invariant, Margin, Named, records_of
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import GDP, PRODUCT, ROOT, ZCDP, OutputPremetric, approximate
from stirred.spec.output_rules import change_output
from stirred.spec.problems import MeasureProblem, refused, setting
from stirred.spec.specification import Derivation, DerivationStep, KeysAlone, Specification

FRESH: Final = "the releases use fresh, independent randomness; a later one chosen after seeing an earlier one "\
    "must keep its budget whatever the earlier one showed"  # fmt: skip

# What a total rests on; a mechanism that adds up its own tables says so in other words.
TOTAL_BY: Final = ("Proposition 2.5.3 (composition)", "zCDP composition (section 2.5)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFactor:
    """A stated bound ``d_old <= factor * d_new`` between distances in two units, with its reason.

    ``people`` says that the new unit is the people behind records after imputation.
    """

    old: str
    new: str
    factor: int | Fraction | str
    because: str
    keeps_total: str | None = None
    people: bool = False

    def applied(self, specification: Specification) -> Derivation:
        """Return the specification for the new unit."""
        return change_unit(
            specification,
            unit=self.new,
            factor=self.factor,
            because=self.because,
            keeps_total=self.keeps_total,
            post_imputation=False if self.people else None,
        )


def compose(
    specifications: Sequence[Specification],
    *,
    unit: str | None = None,
    units: Iterable[UnitFactor] = (),
    delta: Fraction | str | None = None,
    output: OutputPremetric | None = None,
    times: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Derivation:
    """Return the specification of all releases together, with every conversion as a step.

    The common flavor is the common refinement of the multiverses, one unit (``unit``, reached by the
    stated ``units`` factors, which are never assumed), and the strongest output premetric that all can
    reach, or ``output`` where one is asked for. Budgets then add up (Proposition 2.5.3), for zCDP as
    rho squared. ``times`` says how often each release was made, each with fresh randomness; ``names``
    are put in front of the steps that concern one of them.

    >>> from stirred.spec import catalogue
    >>> pl, dhc = (catalogue.load(n).specification for n in ("das-2020-pl-person", "das-2020-dhc-person"))
    >>> compose([pl, dhc]).specification.budget_text
    'ρ²=7.52'
    >>> compose([dhc], times=[100]).specification.budget_text
    'ρ²=496.22'
    """
    parts = alike(specifications, unit=unit, units=units, times=times)
    return added(parts, delta=delta, output=output, times=times, names=names)


def alike(
    specifications: Sequence[Specification],
    *,
    unit: str | None = None,
    units: Iterable[UnitFactor] = (),
    times: Sequence[int] | None = None,
) -> list[Derivation]:
    """Return releases of one file by one distance between datasets and in one unit, each in its own measure.

    This comes before any delta is chosen: with the distance a delta grows, and one that was chosen would be exceeded.
    """
    if not specifications:
        raise refused("there is nothing to compose", where="compose", remedy="give one specification or more")
    often = [1] * len(specifications) if times is None else list(times)
    if len(often) != len(specifications) or any(count < 1 for count in often):
        raise refused(
            "the releases are not counted one by one", where="times", remedy="give one count for each, 1 or more"
        )
    if partial := [each for specification in specifications for each in specification.measured_on]:
        raise refused(
            f"change is measured on a part of the output only: {', '.join(partial)}",
            where="compose how",
            kind=MeasureProblem,
            remedy="specify each release for all of its output",
        )
    keyed = [
        count
        for s, count in zip(specifications, often, strict=True)
        if any(isinstance(each, KeysAlone) for each in s.relies_on)
    ]
    if sum(keyed) > 1:
        raise refused(
            "several of the releases use the same record keys, each for a table that has them alone: their noise is "
            "not independent, and no bound is proven for them together",
            where="compose how",
            kind=MeasureProblem,
            remedy="look at each alone; for several tables let keys be drawn, without keys = 'additive'",
        )
    _same_domain(specifications)
    specifications = told_apart(specifications if sum(often) == 1 else [*map(beside_others, specifications)])
    parts = [Derivation(specification=specification) for specification in specifications]
    return _common_unit(_common_distance(parts), unit=unit, units=tuple(units))


def added(
    parts: list[Derivation],
    *,
    delta: Fraction | str | None = None,
    output: OutputPremetric | None = None,
    times: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Derivation:
    """Return the sum of releases that are alike (:func:`alike`), with the measure and the multiverse that all reach."""
    far = _reach(parts)
    # Where a conversion uses the nearest distance, it uses that of the release itself: that of another
    # release says nothing about files that only differ where the other does not look.
    # And a path of single changes need not stay among the files that another release compares.
    early = _reaches_zcdp(parts, wanted=output) or any(part.specification.output_premetric.delta for part in parts)
    parts = _common_output(parts, delta=delta, wanted=output, far=far) if early else parts
    parts = _common_multiverse(parts)
    parts = parts if early else _common_output(parts, delta=delta, wanted=output, far=far)
    if names is not None:
        parts = [
            replace(part, steps=tuple(replace(step, action=f"{name}: {step.action}") for step in part.steps))
            for part, name in zip(parts, names, strict=True)
        ]
    return _added(parts, [1] * len(parts) if times is None else times)


def reach(specifications: Sequence[Specification], *, unit: str | None = None, units: Iterable[UnitFactor] = ()) -> int:
    """Return the smallest distance at which every release compares some datasets, in the common unit.

    Below it a release with invariants may compare none: a swap allows no two datasets at distance 1.

    >>> from stirred.spec import catalogue
    >>> swap, noise = (catalogue.load(n).specification for n in ("psa-2020-state-county-50pct", "das-2020-safetab-h"))
    >>> reach([noise]), reach([swap, noise])
    (1, 2)
    """
    parts = _common_distance([Derivation(specification=specification) for specification in specifications])
    return _reach(_common_unit(parts, unit=unit, units=tuple(units)))


def _reach(parts: Sequence[Derivation]) -> int:
    # A loss with a delta for files up to so far apart is compared there: nearer ones would make the total fall.
    return max(max(p.specification.multiverse.nearest, p.specification.input_premetric.within or 1) for p in parts)


def _reaches_zcdp(parts: Sequence[Derivation], *, wanted: OutputPremetric | None) -> bool:
    """Say whether the common output is zCDP, which pure DP reaches through the nearest distance (R17)."""
    if wanted is not None:
        return wanted.name == "D_NoR"
    names = {part.specification.output_premetric.name for part in parts}
    return "D_NoR" in names and names <= {"D_Mult", "D_NoR", "D_GDP"}


def beside_others(specification: Specification) -> Specification:
    """Return a specification without what its release says of itself alone, and others of the file make false."""
    multiverse = specification.multiverse
    assumed, implied = (
        tuple(line for line in lines if line not in specification.alone)
        for lines in (specification.assumptions, multiverse.consequences)
    )
    shared = specification.with_flavor(multiverse=replace(multiverse, consequences=implied))
    return replace(shared, assumptions=assumed, alone=())


def told_apart(specifications: Sequence[Specification]) -> Sequence[Specification]:
    """Name prepared columns by what was done to them, where releases prepared the file in different ways.

    The age of one release may be the top-coded age of another: an invariant by one does not fix that by the other.
    """
    if len({specification.domain.prepared for specification in specifications}) == 1:
        return specifications
    return [_with_prepared_names(specification) for specification in specifications]


def _with_prepared_names(specification: Specification) -> Specification:
    if not specification.domain.prepared:
        return specification
    names, whole = {ALL: "all characteristics as prepared"}, dict(specification.domain.prepared).get(ALL)
    columns = specification.domain.prepared
    for column, words in columns:
        names[column] = f"{names.get(column, column)} ({words})"

    def named(invariant: Invariant) -> Invariant:
        if whole:  # a step that is no function of single records: its figures are others, whatever they count
            return Named(name=f"{invariant}, after the file was {whole}")
        if isinstance(invariant, Inequality):
            on = None if invariant.on is None else named(invariant.on)
            return replace(invariant, on=on if isinstance(on, Margin) else None)
        if isinstance(invariant, Named):  # any function of the file, which was another one
            return replace(invariant, name=f"{invariant.name}, with {'; '.join(map(': '.join, columns))}")
        level = None if invariant.level is None else names.get(invariant.level, invariant.level)
        return replace(invariant, variables=tuple(names.get(name, name) for name in invariant.variables), level=level)

    multiverse = specification.multiverse
    known = tuple(named(invariant) for invariant in multiverse.invariants)
    # A hierarchy is about columns as they were: what was made coarser is none of its levels.
    hierarchies = tuple(each for each in multiverse.hierarchies if not {*each.levels} & {*names})
    return specification.with_flavor(multiverse=replace(multiverse, invariants=known, hierarchies=hierarchies))


def _same_domain(specifications: Sequence[Specification]) -> None:
    # One that says its stage comes first, or two that say different ones would both agree with one that says none.
    domains = [specification.domain for specification in specifications]
    first, *others = sorted(domains, key=lambda domain: domain.stage == AS_GIVEN)
    joined, left = [first], others
    for one in joined:  # one release may look at households alone, another at persons alone, and a third at both files
        joined += [other for other in left if one.is_file_of(other)]
        left = [other for other in left if not one.is_file_of(other)]
    for other in (*left, *(other for other in others if not first.is_stage_of(other))):
        raise refused(
            f"the domains differ: {first.name}, {first.dataset} ({first.stage}), and {other.name}, {other.dataset} "
            f"({other.stage})",
            where="compose who",
            remedy="if these are one file, write the same name, dataset and stage into the domain of every "
            "specification.json; in a ledger its own name for the dataset is enough (a plan takes it from there where "
            "[data] has no name). If they are different files, their losses do not add up: keep a ledger for each",
        )


def _common_distance(parts: list[Derivation]) -> list[Derivation]:
    """Bring ordered and unordered, bounded and unbounded distances to one that all can reach."""
    names = {part.specification.input_premetric.name for part in parts}
    if len(names) == 1:
        return parts
    for target in ("d_HamS", "d_InsDel", "d_Ham"):
        if all(can_change_distance(part.specification, to=target) for part in parts):
            return [part.then(change_distance(part.specification, to=target)) for part in parts]
    raise refused(
        f"the distances between datasets differ and none bounds all the others: {', '.join(sorted(names))}",
        where="compose what",
        remedy="specify the releases with one distance",
    )


def _common_unit(parts: list[Derivation], *, unit: str | None, units: tuple[UnitFactor, ...]) -> list[Derivation]:
    present = list(dict.fromkeys(part.specification.input_premetric.unit for part in parts))
    flags = {part.specification.input_premetric.post_imputation for part in parts}
    if flags >= {True, False}:
        raise refused(
            "some releases protect records after imputation and others the people behind them",
            where="compose what",
            remedy="bring them to one unit first with change_unit, stating how often a record may be copied",
        )
    target = unit or present[0]
    if unit is None and len(present) > 1:
        raise refused(
            f"the releases protect different units: {', '.join(present)}",
            where="compose what",
            remedy=f"choose one with {setting('unit', present[0])}, and state a factor for each of the others with "
            f"{setting('kappa')}",
        )
    converted = [_to_unit(part, target, units) for part in parts]
    flags = {part.specification.input_premetric.post_imputation for part in converted}
    return [_with_flag(part, flags) for part in converted]


def _with_flag(part: Derivation, flags: set[bool | None]) -> Derivation:
    """Give all parts one statement about imputation, where some have none: the weaker that anybody makes.

    All count the same records of one file. They are records after imputation if one release says so, and if one
    release says they are not and another nothing, nothing is said of all.
    """
    if len(flags) == 1:
        return part
    premetric = part.specification.input_premetric
    said = True if True in flags else None
    return replace(
        part, specification=part.specification.with_flavor(input_premetric=replace(premetric, post_imputation=said))
    )


def _to_unit(part: Derivation, target: str, units: tuple[UnitFactor, ...]) -> Derivation:
    here = part.specification.input_premetric.unit
    if here == target:
        return part
    for relation in units:
        if (relation.old, relation.new) == (here, target):
            return part.then(relation.applied(part.specification))
    raise refused(
        f"nothing says how a change of one {target} bounds the number of changed {records_of(here)}",
        where="compose what",
        remedy=f"state it: {setting('kappa', here, target, 'K')}",
    )


def _common_multiverse(parts: list[Derivation]) -> list[Derivation]:
    empty = Multiverse()
    different = dict.fromkeys(part.specification.multiverse for part in parts)
    together = reduce(lambda a, b: a.meet(b), different, empty)
    together = together.with_consequences(_union(part.specification.multiverse.consequences for part in parts))
    if len({part.specification.domain.looked_at for part in parts}) > 1:
        # Files that differ in one record, in a column only one of the releases looks at, are one apart.
        together = replace(together, nearest=1, nearest_because="")
    return [_refined(part, together) for part in parts]


def _refined(part: Derivation, together: Multiverse) -> Derivation:
    specification = part.specification
    if set(specification.multiverse.invariants) == set(together.invariants):
        return replace(part, specification=specification.with_flavor(multiverse=together))
    return part.then(refine(specification, to=together))


def _common_output(
    parts: list[Derivation], *, delta: Fraction | str | None, wanted: OutputPremetric | None, far: int
) -> list[Derivation]:
    """Bring all parts to one output premetric; those for neighbours alone compare datasets up to ``far`` apart."""
    if wanted is not None:
        return [part.then(change_output(part.specification, to=wanted, at_distance=far)) for part in parts]
    names = {part.specification.output_premetric.name for part in parts}
    premetrics = {part.specification.output_premetric for part in parts}
    if names == {"D_Mult", "D_Mult^delta"}:  # pure DP is that with a delta of 0
        return _near(parts, far)
    if len(names) == 1 and (len(premetrics) == 1 or "D_Mult^delta" in names):
        return _near(parts, far) if "D_Mult^delta" in names else parts
    for target, reachable in ((GDP, {"D_Mult", "D_GDP"}), (ZCDP, {"D_Mult", "D_NoR", "D_GDP"})):
        if names <= reachable:
            return [part.then(change_output(part.specification, to=target)) for part in parts]
    if "D_TV" in names:
        raise refused(
            "total variation can be reached from the others, but adding it up says little",
            where="compose how",
            kind=MeasureProblem,
            remedy="convert each to D_TV first with change_output, if that is what you want",
        )
    if delta is None:
        raise refused(
            f"the releases measure change differently: {', '.join(sorted(p.symbol for p in premetrics))}",
            where="compose how",
            kind=MeasureProblem,
            remedy="give a delta to convert those that need one to approximate differential privacy",
        )
    target = approximate(delta)
    return _near(
        [
            part
            if part.specification.output_premetric.name in ("D_Mult", "D_Mult^delta")
            else part.then(change_output(part.specification, to=target, at_distance=far))
            for part in parts
        ],
        far,
    )


def _near(parts: list[Derivation], far: int) -> list[Derivation]:
    """Compare datasets up to ``far`` apart in all parts where they differ in that: a delta is no number per distance.

    A part for single changes grows by group privacy, along files that another release need not compare.
    """
    if len({part.specification.input_premetric for part in parts}) == 1:
        return parts
    return [part.then(to_neighbours(part.specification, within=far)) for part in parts]


def _added(parts: list[Derivation], times: Sequence[int]) -> Derivation:
    first = parts[0].specification
    specifications = [part.specification for part in parts]
    premetrics = {specification.input_premetric for specification in specifications}
    if len(premetrics) > 1:
        raise refused(
            f"the distances differ: {', '.join(sorted(p.symbol for p in premetrics))}",
            where="compose what",
            remedy="compose before converting to neighbours",
        )
    several = sum(times) > 1
    fresh = (FRESH,) if several else ()
    output = _added_output(specifications, times)
    budgets = [s.budget for s in specifications]
    if output.composes == ROOT:
        value = sqrt(add_up(b.realised * b.realised * count for count, b in zip(times, budgets, strict=True)))
        formula = "root of " + _listed(times, lambda i: f"{budgets[i].shown}^2", " + ")
    elif several and (output.composes == PRODUCT or not output.immune):
        value, formula = _multiplied(first, budgets, times), "product of 1 + each, minus 1"
    else:
        value = add_up(b.realised * count for count, b in zip(times, budgets, strict=True))
        formula = _listed(times, lambda i: budgets[i].shown, " + ")
    if output.at_most_one and first.input_premetric.least >= 1:  # at smaller distances a bound cut off is too small
        value = at_most_one(value)
    budget = Budget(policy=derived(formula, value, *budgets)) if several else first.budget
    theorem = TOTAL_BY[output.name == "D_NoR"]
    specification = Specification(
        flavor=replace(first.flavor, output_premetric=output, domain=common_domain(specifications)),
        budget=budget,
        assumptions=(
            *_union(s.assumptions for s in specifications),
            *_of_one_file(specifications),
            *_of_prepared(specifications),
            *fresh,
        ),
        theorem=tuple(dict.fromkeys((*_union(s.theorem for s in specifications), theorem))),
        settings_from=_settings(specifications),
        seeded=any(s.seeded for s in specifications),
        relies_on=tuple(dict.fromkeys(one for s in specifications for one in s.relies_on)),
        alone=_union(s.alone for s in specifications),
    )
    steps = [step for part in parts for step in part.steps]
    joined = _listed(times, lambda i: specifications[i].budget_text, " and ")
    steps.append(DerivationStep(action="together", theorem=theorem, before=joined, after=specification.budget_text))
    return Derivation(specification=specification, steps=tuple(steps))


def _multiplied(first: Specification, budgets: Sequence[Budget], times: Sequence[int]) -> Exact:
    """Return the product of 1 plus each, minus 1, for neighbours; at distance d it grows faster than d."""
    if not first.input_premetric.one_step or not first.output_premetric.immune:
        doubled = "does not add up: two releases of 4/3 come to 40/9; convert to D_Renyi of order 2 first"
        why = doubled if first.output_premetric.immune else "adds up only if none was chosen by the output of another"
        raise refused(
            f"{first.output_premetric.classic} {why}",
            where="compose how",
            remedy="use another measure",
            kind=MeasureProblem,
        )
    return exp(add_up(ln(1 + b.realised) * count for count, b in zip(times, budgets, strict=True))) - 1


def _of_one_file(specifications: Sequence[Specification]) -> tuple[str, ...]:
    """Return what is assumed where releases name one file, and not all of them say at which stage it was."""
    stages = dict.fromkeys(specification.domain.stage for specification in specifications)
    if len(stages) == 1:
        return ()
    said = next(stage for stage in stages if stage != AS_GIVEN)
    return (f"the releases that do not say at which stage the file was used the same file as the others ({said})",)


def _of_prepared(specifications: Sequence[Specification]) -> tuple[str, ...]:
    """Say how some releases prepared the file, where others did not, or otherwise: the common file is as it was."""
    if len({specification.domain.prepared for specification in specifications}) == 1:
        return ()
    done = dict.fromkeys(s.domain.prepared_in_words for s in specifications if s.domain.prepared)
    return tuple(
        f"figures of a release that prepared the file are those of the prepared file: {words}" for words in done
    )


def common_domain(specifications: Sequence[Specification]) -> Domain:
    """Return the common domain: of the whole file, where the releases look at different parts of it."""
    domains = [specification.domain for specification in specifications]
    first = next((replace(domains[0], stage=AS_GIVEN) for domain in domains if domain.stage == AS_GIVEN), domains[0])
    if len({domain.looked_at for domain in domains}) > 1:
        kinds = dict.fromkeys(kind for domain in domains for kind in domain.record_types)
        first = replace(first.whole, record_types=tuple(kinds))
    if len({domain.dataset for domain in domains}) > 1:  # one file, in the words of several versions or people
        first = replace(first, dataset=Domain.of_file(first.name).dataset)
    return replace(first, identity=frozenset().union(*(domain.identity for domain in domains)))


def _added_output(specifications: Sequence[Specification], times: Sequence[int]) -> OutputPremetric:
    first = specifications[0].output_premetric
    if not any(specification.output_premetric.delta for specification in specifications):
        return first
    deltas = (count * s.output_premetric.delta for count, s in zip(times, specifications, strict=True))
    total = sum(deltas, Fraction(0))
    if total >= 1:
        raise refused(
            f"the deltas add up to {float(total):.4g}, and from 1 on nothing is promised",
            where="compose how",
            kind=MeasureProblem,
            remedy="release with a smaller delta (of cell keys: a larger epsilon, or wider noise), or by a method that "
            "has none",
        )
    return approximate(total)


_MOST_LISTED: Final = 12


def _listed(times: Sequence[int], term: Callable[[int], str], between: str) -> str:
    """Join terms, each with how often it counts; where there are too many to read, say how many more."""
    shown = [term(i) if count == 1 else f"{count:,} x {term(i)}" for i, count in enumerate(times[:_MOST_LISTED])]
    return between.join([*shown, *([f"{len(times) - _MOST_LISTED:,} more"] if len(times) > _MOST_LISTED else [])])


def _union(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _settings(specifications: Sequence[Specification]) -> str | None:
    """Return the most worrying basis among the parts: one part that looked at the data taints the whole."""
    order: Mapping[str | None, int] = {"this-data": 0, None: 1, "other-data": 2, "invariants": 3, "policy": 4}
    return min((s.settings_from for s in specifications), key=lambda basis: order[basis])
