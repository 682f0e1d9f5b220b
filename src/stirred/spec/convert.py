"""Conversions of one specification into another that follows from it, each with its theorem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Final

from stirred.spec.budget import Budget, ByUniverse, derived
from stirred.spec.convert_output import group_delta
from stirred.spec.exact import ZERO, Exact, exact, largest
from stirred.spec.given_numbers import fraction
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import ALL, Invariant, Margin, Named, records_of
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.output_premetric import approximate
from stirred.spec.problems import refused, setting, wrong
from stirred.spec.specification import Derivation, Specification, stepped


def post_process(specification: Specification, *, description: str = "any function of the output") -> Derivation:
    """Return the specification of a function of the released output: the same (Proposition 2.5.4).

    It must be a function of the output, of fresh randomness, and of the invariants, and of nothing
    else about the confidential data. Output premetrics that a function can increase are refused.
    """
    output = specification.output_premetric
    if not output.immune:
        raise refused(
            f"a function of the output may be further apart by {output.symbol} than the output itself: numbers 0, 1, 2 "
            "relabelled as 0, 1, 10 lie further apart, though they tell the same",
            where="output_premetric",
            remedy="specify the release by a measure that functions of the output cannot increase, such as D_TV",
        )
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
    the invariants already fix it. By position (``d_Ham``) one record more or less moves all that follow, so the
    number of old units in every new unit becomes an invariant.
    """
    scale = exact(fraction(factor, where="factor"))
    if scale < 1:
        raise wrong(
            f"{factor} is below 1, but a change of one {unit} changes at least one record",
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
    if not old.counts and old.name != "d_r":
        raise refused(
            f"{old.symbol} counts no {old.unit} records, so a factor between units says nothing about it",
            where="unit",
            remedy="state the distance between datasets for the new unit",
        )
    if specification.output_premetric.delta and not old.is_metric:
        start = Derivation(specification=specification)
        after = _group_of(specification, int(scale.rational), where="unit")
    else:
        start = to_metric(specification)
        after = scale_budget(start.specification, scale, formula=f"{scale} x the budget per {old.unit}")
    new = replace(after.input_premetric, unit=unit)
    new = new if post_imputation is None else replace(new, post_imputation=post_imputation)
    after = after.with_flavor(input_premetric=new, multiverse=after.multiverse.nearest_in(scale, counts=new.counts))
    if old.name == "d_Ham" and unit != old.unit:
        # One record more in a unit moves all records after it, and by position they all differ.
        places = Named(name=f"number of {records_of(old.unit)} in each {unit}, in the order of the file")
        after = after.with_flavor(multiverse=after.multiverse.with_invariants([places]))
    elif old.bounded and keeps_total is None:
        after = after.with_flavor(multiverse=after.multiverse.with_invariants([Margin(of=old.unit)]))
    step = stepped(
        start.specification,
        after,
        action=f"unit {old.unit_in_words} -> {new.unit_in_words}, factor {scale}",
        theorem="Proposition 2.4.15 (group privacy)",
        assuming=because if keeps_total is None else f"{because}; {keeps_total}",
    )
    return start.then(step)


def _group_of(specification: Specification, size: int, *, where: str, group: str = "") -> Specification:
    """Return (k epsilon, delta (e^(k eps) - 1)/(e^eps - 1)) for groups of k, between which single changes lead."""
    old, budget = specification.input_premetric, specification.budget
    converted = f"if it was converted to this measure, change the {where} first and the measure afterwards"
    steps = path_factor(specification) if _single_changes(specification) else "its neighbours are not 1 apart"
    if isinstance(steps, str) or steps != 1:
        raise refused(
            f"{old.symbol} compares neighbours only, and nothing follows for groups of {size}: "
            f"{steps if isinstance(steps, str) else 'paths inside a universe are longer than the distance'}",
            where=where,
            remedy=f"look at the release alone; {converted}",
        )
    delta = group_delta(budget.realised, specification.output_premetric.delta, size=size)
    if delta >= 1:
        raise refused(
            f"{group or f'{size} {records_of(old.unit)}'}: {specification.budget_text} for each change grows to a "
            "delta of 1 or more, and nothing is promised",
            where=where,
            remedy="look at each release alone, or choose settings with a smaller delta"
            f"{'' if group else f'; {converted}'}",
        )
    policy = derived(f"{size} x the budget per {old.unit}, delta (e^({size} eps) - 1)/(e^eps - 1)",
                     budget.realised * size, budget)  # fmt: skip
    return specification.with_flavor(output_premetric=approximate(delta)).with_budget(Budget(policy=policy))


def _single_changes(specification: Specification) -> bool:
    """Say whether neighbours are one record apart, so that a group of k is k steps from one file to another."""
    old = specification.input_premetric
    return old.within == 1 and old.counts


# d_from <= factor * d_to: unordered distances are at most the ordered ones, and changing one record
# is removing one and adding one (section A.4).
_DISTANCE_FACTORS: Final = {
    ("d_HamS", "d_Ham"): Fraction(1),
    ("d_SymDiff", "d_InsDel"): Fraction(1),
    ("d_SymDiff", "d_HamS"): Fraction(2),
    ("d_SymDiff", "d_Ham"): Fraction(2),
    ("d_InsDel", "d_Ham"): Fraction(2),
}
# The same where the number of records is fixed: then adding and removing is changing, twice as far apart.
_SAME_SIZE_FACTORS: Final = {("d_HamS", "d_SymDiff"): Fraction(1, 2), ("d_HamS", "d_InsDel"): Fraction(1, 2)}


def can_change_distance(specification: Specification, *, to: str) -> bool:
    """Say whether :func:`change_distance` has a theorem for it."""
    old, factor = specification.input_premetric, _distance_factor(specification, to)
    if old.name == to or factor is None:
        return old.name == to
    near = old.within is not None and old.within // factor >= 1
    return near or can_be_metric(specification) or _grows_by_groups(specification)


def _grows_by_groups(specification: Specification) -> bool:
    """Say whether group privacy gives a bound for k changes, and no bound per distance: epsilon with a delta."""
    return bool(specification.output_premetric.delta) and _single_changes(specification)


def _distance_factor(specification: Specification, to: str) -> Fraction | None:
    old = specification.input_premetric
    if old.name == to:
        return Fraction(1)
    factor = _DISTANCE_FACTORS.get((old.name, to))
    if factor is None and (same_size := _SAME_SIZE_FACTORS.get((old.name, to))):
        fixed = Multiverse(invariants=(Margin(of=old.unit),))
        return same_size if specification.multiverse.refines(fixed) else None
    return factor


def change_distance(specification: Specification, *, to: str) -> Derivation:
    """Return the specification for another distance between datasets, where one bounds the other.

    A neighbour relation stays one, with the same budget, where the neighbours by the new distance are neighbours by
    the old one; otherwise group privacy must give a bound at all distances first. Epsilon with a delta has none at
    all distances, and gives one for neighbours by the new distance: to change a record is to remove one and add one,
    through a file with one record less that must be eligible.
    """
    old, factor = specification.input_premetric, _distance_factor(specification, to)
    if old.name == to:
        return Derivation(specification=specification)
    if factor is None:
        possible = [f"{a} -> {b} is possible" for a, b in _DISTANCE_FACTORS if a == old.name]
        fixed = [f"{a} -> {b} is, if the number of {old.unit} records is fixed" for a, b in _SAME_SIZE_FACTORS
                 if a == old.name]  # fmt: skip
        raise refused(
            f"a bound per {old.symbol} gives none per {to}",
            where="input_premetric",
            remedy="; ".join([*possible, *fixed]) or "choose the distance before the mechanism",
        )
    if old.within is not None and old.within // factor >= 1:
        start, new = Derivation(specification=specification), replace(old, name=to, within=int(old.within // factor))
        after, through = specification, ""
    elif _grows_by_groups(specification):
        start, new = Derivation(specification=specification), replace(old, name=to)
        group = f"one {old.unit} changed is one removed and one added"
        after = _group_of(specification, int(factor), where="distance", group=group)
        through = all_eligible(specification)
    else:
        start, through = to_metric(specification), ""
        new = replace(start.specification.input_premetric, name=to)
        after = scale_budget(start.specification, exact(factor), formula=f"{factor} x the budget per {old.name}")
    step = stepped(
        start.specification,
        after.with_flavor(
            input_premetric=new, multiverse=after.multiverse.nearest_in(exact(factor), counts=new.counts)
        ),
        action=f"distance {old.name} -> {to}, factor {factor}",
        theorem="Proposition 2.4.15 (input premetrics that bound each other)",
        assuming=through,
    )
    return start.then(step)


def to_distance(
    specification: Specification, *, to: InputPremetric, at_least: int | Fraction | str, because: str
) -> Derivation:
    """Return the specification for another distance that is never below ``at_least`` times the old one.

    The budget is divided by it (Proposition 2.4.15; rho squared by its square), in every universe: a factor above 1
    lowers the number, because a step of the new distance is a smaller change. It is never assumed: say ``because``.
    """
    least = exact(fraction(at_least, where="at_least"))
    if least <= 0 or not because.strip():
        raise wrong(
            f"{at_least} is not a bound with a reason",
            where="at_least",
            remedy="write a number above 0, and say why no two datasets are closer by the new distance",
        )
    old = specification.input_premetric
    after = scale_budget(specification, 1 / least, formula=f"the budget per {old.symbol} / {least}")
    return stepped(
        specification,
        after.with_flavor(input_premetric=to, multiverse=after.multiverse.nearest_in(1 / least, counts=to.counts)),
        action=f"distance {old.symbol} -> {to.symbol}, which is at least {least} times as large",
        theorem="Proposition 2.4.15 (input premetrics that bound each other)",
        assuming=because,
    )


def to_neighbours(specification: Specification, *, within: int = 1) -> Derivation:
    """Return the specification that compares only datasets at most ``within`` apart.

    Closer neighbours keep the budget of neighbours further apart; the other way round it needs group privacy.
    """
    old = specification.input_premetric
    if old.within == within and old.name != "d_r":
        return Derivation(specification=specification)
    if within > 1 and _grows_by_groups(specification):
        grown = _group_of(specification, within, where="distance")
        return stepped(
            specification,
            grown.with_flavor(input_premetric=old.neighbours(within)),
            action=f"compare datasets up to {old.counted(within)} apart, by single changes one after the other",
            theorem="Proposition 2.4.15 (group privacy)",
            assuming=all_eligible(specification),
        )
    nearer = old.within is not None and 1 <= within < old.within
    start = Derivation(specification=specification) if nearer else to_metric(specification)
    before = start.specification
    after = before if nearer else scale_budget(before, exact(within), formula=f"{within} x the budget per {old.unit}")
    step = stepped(
        before,
        after.with_flavor(input_premetric=old.neighbours(within)),
        action=f"compare only datasets at most {old.counted(within)} apart",
        theorem="Proposition 2.4.15 (d <= k d_r)",
    )
    return start.then(step)


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


RECODE: Final = "recode"
BEFORE: Final = "it was before the file was"  # how a stage is told that has no name
_FIXED: Final = "the preparation was fixed beforehand, without looking at this file"
_COPIES: Final = "1 + the largest number of copies of one record"
_SIZE: Final = "it changes the number of records, and this distance never compares files of different size"
_ONE: Final = dict.fromkeys(("d_HamS", "d_Ham", "d_SymDiff", "d_InsDel"), (0, 1))
_TIMES: Final = dict.fromkeys(_ONE, (1, 0))
_ORDERED: Final = {"d_HamS": "d_Ham", "d_SymDiff": "d_InsDel"}


@dataclass(frozen=True, slots=True)
class PreparationStep:
    """A step that was done to the file before the mechanism saw it, and what it does to distances.

    ``factors`` has for each distance of the release the factor ``a k + b``, where the caller states ``k`` if ``stated``
    says what it is. ``before`` names the distance of the promise about the file before, where it is another one. For a
    distance without a factor ``refused`` says why.
    """

    words: str
    factors: Mapping[str, tuple[int, int]]
    refused: str = "nothing is known about this distance"
    stated: str = ""
    before: Mapping[str, str] = field(default_factory=dict)


# Every factor is attained on small files, which the tests list.
STEPS: Final = {
    RECODE: PreparationStep("recoded record by record", _ONE),
    "edit": PreparationStep("edited record by record", _ONE),
    "clip": PreparationStep("clipped to limits fixed beforehand", _ONE),
    "forget-order": PreparationStep("put into no order", dict.fromkeys(_ORDERED, (0, 1)), before=_ORDERED,
                                    refused="a file in no order has no positions to compare"),
    "filter": PreparationStep("filtered record by record", {"d_SymDiff": (0, 1), "d_InsDel": (0, 1)}, _SIZE),
    "deduplicate": PreparationStep("rid of repeated records", {"d_SymDiff": (0, 1), "d_InsDel": (0, 2)}, _SIZE),
    "join": PreparationStep("joined with a public table", {"d_SymDiff": (1, 0), "d_InsDel": (1, 0)}, _SIZE,
                            stated="the largest number of rows that one record can match"),
    "impute-copies": PreparationStep("completed by imputation, donors fixed by public identifiers", _TIMES,
                                     stated=_COPIES, before=dict.fromkeys(_ONE, "d_Ham")),
    "impute-by-position": PreparationStep("completed by imputation, donors fixed by position", {"d_Ham": (1, 0)},
                                "files that differ only in order are no distance apart, and have other donors",
                                stated=_COPIES),
    "clip-at-rank": PreparationStep("clipped at this file's own value of a rank fixed beforehand, counted from the top",
                                    {**_TIMES, "d_SymDiff": (2, -1), "d_InsDel": (2, -1)},
                                    stated="the rank, such as 2 for the second largest value"),
}  # fmt: skip
# Steps that have none, since it grows with the file.
REFUSED: Final = {
    "impute-nearest": "one changed record may be the donor of all others, n of them",
    "impute-sequential": "one changed record may be the donor of all others, n of them",
    "impute-mean": "every record moves the mean, and with it all values put in, n of them",
    "link": "one record can join two clusters into one (3 records on a line), and there is no bound in general",
    "self-join": "one of n records is in up to 2n - 1 pairs",
    "rank": "one record moves the ranks of all others, n of them",
    "clip-at-median": "the median of n records moves up to (n + 1)/2 clipped values",
    "clip-at-quantile": "a quantile of this file moves a share of all clipped values",
}


def pull_back(
    specification: Specification,
    step: str = RECODE,
    *,
    lipschitz: int | Fraction | str | None = None,
    because: str = "",
    stage: str | None = None,
    prepared: tuple[tuple[str, str], ...] | None = None,
) -> Derivation:
    """Return the specification of a mechanism that is run on a prepared file, for the file as it was.

    ``step`` is one of ``STEPS``, whose factor is known, or one of your own with its factor ``lipschitz`` and the reason
    ``because``. For some steps ``lipschitz`` says how far one record reaches: 2 for one copy by imputation. ``stage``
    names the stage that is reached. ``prepared`` says by column what was done by functions of single records; figures
    that are fixed are fixed in the prepared file. A step with no factor that holds for files of every size is refused.

    >>> from stirred.spec import catalogue
    >>> pull_back(catalogue.load("das-2020").specification, "impute-copies", lipschitz=2).specification.notation
    'ρ²=221.484-DP(X_CEF, D_c, d_Ham^person, D_NoR)'
    """
    if prepared == ():
        return Derivation(specification=specification)
    known, name, start = STEPS.get(step), specification.input_premetric.name, Derivation(specification=specification)
    factor = _own(step, lipschitz, because) if known is None else _known(specification, step, known, lipschitz)
    if known is not None and name in known.before:
        start = change_distance(specification, to=known.before[name])
    after = _stretched(start.specification, factor)
    if step.startswith("impute"):  # the people behind the records, whatever was copied
        after = after.with_flavor(input_premetric=replace(after.input_premetric, post_imputation=False))
    words = f"changed by {step}" if known is None else known.words
    done = ((ALL, words),) if prepared is None else prepared
    reached = stage or (after.domain.stage if prepared is not None else f"{BEFORE} {words}")
    before = replace(after.domain, prepared=(*done, *after.domain.prepared), stage=reached)
    along = "function of single records," if known and known.factors is _ONE else "step that multiplies distances by"
    step_back = stepped(
        start.specification,
        after.with_flavor(domain=before),
        action=f"pull back along the preparation ({before.prepared_in_words}), factor {factor}",
        theorem=f"pull-back along a {along} factor {factor} (Proposition 2.4.15)",
        assuming=because or _FIXED,
    )
    return start.then(step_back)


def _own(step: str, lipschitz: int | Fraction | str | None, because: str) -> Fraction:
    """Return the stated factor of a step that is not in the list."""
    if step in REFUSED:
        remedy = (
            "use a rule fixed beforehand, on public identifiers or on another file; or prove a factor for your own "
            f"rule and state it under a name of its own with {setting('lipschitz', 'K')} and "
            f"{setting('because', 'TEXT')}"
        )
        raise refused(f"{step} has no factor: {REFUSED[step]}", where="step", remedy=remedy)
    near = get_close_matches(step, [*STEPS, *REFUSED], n=1, cutoff=0.8)
    if lipschitz is None or near or not step.strip():
        own = f"a step of your own needs {setting('lipschitz', 'K')} and {setting('because', 'TEXT')}"
        remedy = f"{f'did you mean {near[0]}? ' if near else ''}There are: {', '.join(STEPS)}; {own}"
        raise wrong(f"there is no step called {step!r}", where="step", remedy=remedy)
    if not because.strip():
        what = f"no reason is given why {step} multiplies distances by at most {lipschitz}"
        raise wrong(what, where="because", remedy="say why one changed record changes no more records after the step")
    return _positive(lipschitz)


def _known(
    specification: Specification, step: str, known: PreparationStep, lipschitz: int | Fraction | str | None
) -> Fraction:
    """Return the true factor of a step in the list."""
    premetric = specification.input_premetric
    if premetric.name not in known.factors:
        remedy = f"specify the release with {' or '.join(known.factors)}"
        raise refused(f"{step} has no factor for {premetric.symbol}: {known.refused}", where="step", remedy=remedy)
    given = None if lipschitz is None else _positive(lipschitz)
    if known.stated and (given is None or given.denominator != 1):
        raise wrong(f"{step} needs a whole number", where="lipschitz", remedy=f"state {known.stated}")
    a, b = known.factors[premetric.name]
    true = a * (given or 1) + b
    if not known.stated and given is not None and given < true:
        raise refused(f"the factor of {step} is {true}, not {given}", where="lipschitz", remedy="leave it out")
    return Fraction(true) if known.stated or given is None else given


def _positive(lipschitz: int | Fraction | str) -> Fraction:
    factor = fraction(lipschitz, where="lipschitz")
    if factor <= 0:
        raise wrong(f"{factor} is not a factor", where="lipschitz", remedy="write a number above 0, such as 2")
    return factor


def _stretched(specification: Specification, factor: Fraction) -> Specification:
    """Return the promise where distances may grow by ``factor``; neighbours must stay neighbours."""
    premetric, scale = specification.input_premetric, exact(factor)
    multiverse = specification.multiverse.nearest_in(scale, counts=premetric.counts)
    if premetric.is_metric:
        after = scale_budget(specification, scale, formula=f"{factor} x the budget after the step")
        return after.with_flavor(multiverse=multiverse)
    within = premetric.within or 1
    if factor > within:
        raise refused(
            f"{premetric.symbol} compares neighbours only, and the step makes them up to {factor} times as far apart",
            where="step",
            remedy="pull back first and convert to neighbours afterwards",
        )
    if premetric.within is None or factor < 1:
        return specification
    return specification.with_flavor(
        input_premetric=replace(premetric, within=int(within // factor)), multiverse=multiverse
    )
