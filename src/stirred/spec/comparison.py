"""Comparing two specifications block by block; an overall verdict only where a theorem gives one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.spec.budget import Budget, ByUniverse, PermutationSwapping, not_above_by_universe
from stirred.spec.composition import UnitFactor, told_apart
from stirred.spec.convert import can_be_metric, change_distance, path_factor, refine, to_metric, to_neighbours
from stirred.spec.domain import AS_GIVEN
from stirred.spec.exact import UndecidedError, compare_exact
from stirred.spec.implication import implies
from stirred.spec.input_premetric import InputPremetric, is_part
from stirred.spec.invariant import Margin, records_of
from stirred.spec.multiverse import Multiverse, Refines, Verdict
from stirred.spec.output_rules import can_change_output, change_output
from stirred.spec.problems import StirredError, refused
from stirred.spec.specification import Derivation, Specification, stepped

STRONGER: Final = "stronger"
WEAKER: Final = "weaker"
EQUAL: Final = "equal"
INCOMPARABLE: Final = "incomparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVerdict:
    """The verdict on one building block, from the point of view of the first specification."""

    block: str
    question: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Five verdicts, an overall one where a theorem gives it, and what would have to change otherwise."""

    first: Specification
    second: Specification
    blocks: tuple[BlockVerdict, ...]
    overall: str | None
    because: str
    to_change: tuple[str, ...]


def compare(a: Specification, b: Specification, *, units: Iterable[UnitFactor] = ()) -> Comparison:
    """Compare ``a`` with ``b``: which is the stronger promise, block by block and, if possible, overall.

    One specification is stronger overall if every mechanism that satisfies it satisfies the other
    (Definition 2.4.9). That is decided by deriving one from the other with the conversions of this
    package; if neither can be derived, there is no overall verdict and two budgets say nothing.
    """
    units = tuple(units)
    verdicts = (_who(a, b), _where(a, b), _units(a, b, units), _how(a, b), _how_much(a, b))
    blocks = tuple(
        BlockVerdict(block=block, question=question, verdict=verdict, reason=reason)
        for (block, question), (verdict, reason) in zip(_QUESTIONS.items(), verdicts, strict=True)
    )
    forward, backward = _implies(a, b, units), _implies(b, a, units)
    overall, because = _overall(forward, backward)
    changes = () if overall else tuple(_to_change(blocks, is_open=a.budget.is_free or b.budget.is_free))
    return Comparison(first=a, second=b, blocks=blocks, overall=overall, because=because, to_change=changes)


_QUESTIONS: Final = {
    "domain": "who is eligible",
    "multiverse": "where it extends",
    "input_premetric": "what the unit is",
    "output_premetric": "how change is measured",
    "budget": "how much may change",
}
_Judged = tuple[str, str]  # the verdict and its reason


def _who(a: Specification, b: Specification) -> _Judged:
    if not _one_file(a, b):
        return INCOMPARABLE, f"{_file(a)} is not {_file(b)}"
    said = [one.domain.stage_in_words for one in (a, b) if one.domain.stage != AS_GIVEN]
    unsaid = f"; only one says at which stage: {said[0]}" if len(said) == 1 else ""
    unsaid = unsaid if said else " (at which stage it is, neither says)"
    seen = "" if a.domain.looked_at == b.domain.looked_at else f"; {_seen(a, b)}"
    return EQUAL, f"both protect {a.domain.dataset}{unsaid}{seen}"


def _one_file(a: Specification, b: Specification) -> bool:
    """Say whether both are about one file at one stage, whatever each looks at.

    A stage that one leaves open is taken for that of the other only where more than words tells that it is one file.
    """
    told = bool(a.domain.identity & b.domain.identity)
    same_stage = a.domain.is_stage_of(b.domain) if told else a.domain.stage == b.domain.stage
    return same_stage and a.domain.is_file_of(b.domain)


def _seen(a: Specification, b: Specification) -> str:
    """Say what each looks at, where that differs."""
    words = ("the first looks at", "the second at")
    return "; ".join(f"{each} {_looked_at(one)}" for each, one in zip(words, (a, b), strict=True))


def _looked_at(specification: Specification) -> str:
    domain = specification.domain
    columns = f"columns {', '.join(domain.columns)}" if domain.columns else "all columns"
    records = f" of records of {' and '.join(domain.record_types)}" if domain.record_types else ""
    return f"{columns}{records}{f', prepared: {domain.prepared_in_words}' if domain.prepared else ''}"


def _file(specification: Specification) -> str:
    domain = specification.domain
    records = f", records of {' and '.join(domain.record_types)}" if domain.record_types else ""
    stage = "at a stage that is not said" if domain.stage == AS_GIVEN else domain.stage_in_words
    prepared = f", prepared: {domain.prepared_in_words}" if domain.prepared else ""
    return f"{domain.dataset} ({stage}{records}{prepared})"


def _where(a: Specification, b: Specification) -> _Judged:
    if not _one_file(a, b):
        return INCOMPARABLE, "the invariants are figures of different files"
    mine, yours = (one.flavor.effective_multiverse for one in told_apart([a, b]))
    finer, coarser = mine.refines(yours), yours.refines(mine)
    if finer and coarser:
        return EQUAL, "the same invariants"
    # What the second fixes and the first does not is what keeps the first from refining it.
    only_second, only_first = _fixed(finer), _fixed(coarser)
    if finer:
        return WEAKER, f"it holds more fixed: only the first fixes {only_first}"
    if coarser:
        return STRONGER, f"it holds less fixed: only the second fixes {only_second}"
    if a.domain.prepared != b.domain.prepared:  # a coarser column may follow from the column as it was
        return INCOMPARABLE, f"the invariants are figures of columns that were prepared differently: {_seen(a, b)}"
    return INCOMPARABLE, f"only the first fixes {only_first}; only the second fixes {only_second}"


def _fixed(answer: Refines) -> str:
    if answer.verdict is Verdict.CANNOT_TELL:
        named = "; the ".join(str(invariant) for invariant in answer.undecidable)
        return f"(cannot tell) the {named}" if named else f"(cannot tell) {answer.reason}"
    return "the " + ", the ".join(str(invariant) for invariant in answer.free) if answer.free else answer.reason


def _units(a: Specification, b: Specification, units: tuple[UnitFactor, ...]) -> _Judged:
    mine, yours = a.input_premetric, b.input_premetric
    if mine == yours:
        return EQUAL, f"both count: {mine.words}"
    if mine.unit != yours.unit:
        return _different_units(mine.unit, yours.unit, units)
    if mine.post_imputation != yours.post_imputation and None in (mine.post_imputation, yours.post_imputation):
        which = "the first" if mine.post_imputation is None else "the second"
        return INCOMPARABLE, f"whether its records are records after imputation is not said in {which}"
    if mine.post_imputation != yours.post_imputation:
        reason = "records after imputation are not people: one person's answers may stand in several"
        return (WEAKER if mine.post_imputation else STRONGER), reason
    if any(one.table or one.directed or one.closure for one in (mine, yours)):
        return INCOMPARABLE, f"{mine.words}, against {yours.words}; where datasets are listed, that is decided overall"
    if mine.name == yours.name and mine.relation == yours.relation:
        if (
            {mine.within, yours.within} == {None, 1}
            and path_factor(a if mine.within else b) == 1
            and can_be_metric(a if mine.within else b)
            and (a.output_premetric.is_metric and b.output_premetric.is_metric)
        ):
            return EQUAL, "single changes lead from any version to any other, and losses add up on the way"
        # d <= k d_r: the metric compares all pairs, the relation only those nearby.
        reason = f"{mine.symbol} and {yours.symbol}: a neighbour relation leaves pairs further apart unprotected"
        if mine.within is None or yours.within is None:
            return (STRONGER if mine.within is None else WEAKER), reason
        return (STRONGER if mine.within > yours.within else WEAKER), reason
    if mine.within == yours.within and {mine.name, yours.name} in ({"d_HamS", "d_Ham"}, {"d_SymDiff", "d_InsDel"}):
        reason = "where order does not count, datasets are closer together and more is protected"
        return (WEAKER if mine.ordered else STRONGER), reason
    return INCOMPARABLE, (
        f"{mine.words}, against {yours.words}; a change of one record is two of add or remove, "
        "and only add or remove protects the number of records"
    )


def _different_units(mine: str, yours: str, units: tuple[UnitFactor, ...]) -> _Judged:
    for relation in units:
        # d_old <= factor d_new: the smaller distance is the stronger promise (Proposition 2.4.15).
        some = records_of(relation.old, 1 if str(relation.factor) == "1" else 2)
        stated = f"a change of one {relation.new} changes at most {relation.factor} {some}"
        if (relation.old, relation.new) == (mine, yours):
            return STRONGER, f"it gives one for each {yours} too, at another budget: {stated} ({relation.because})"
        if (relation.old, relation.new) == (yours, mine):
            return WEAKER, f"the second gives one for each {mine} too, at another budget: {stated} ({relation.because})"
    stronger = is_part(yours, of=mine)
    if stronger or is_part(mine, of=yours):
        first, second = ("it", "the second") if stronger else ("the second", "it")
        coarse, fine = (mine, yours) if stronger else (yours, mine)
        return (STRONGER if stronger else WEAKER), (
            f"{first} protects a whole {coarse}, {second} one {fine} record at a time; to convert budgets, the factor "
            "between them must be stated"
        )
    return INCOMPARABLE, f"nothing is stated about how {mine} and {yours} records relate"


def _how(a: Specification, b: Specification) -> _Judged:
    mine, yours = a.output_premetric, b.output_premetric
    if a.measured_on != b.measured_on:
        parts = "; ".join(f"only {', '.join(each)}" for each in (a.measured_on, b.measured_on) if each)
        verdict = INCOMPARABLE if a.measured_on and b.measured_on else WEAKER if a.measured_on else STRONGER
        return verdict if mine == yours else INCOMPARABLE, f"a part of the output is looked at: {parts}"
    if mine == yours:
        return EQUAL, f"both by {mine.classic}"
    if mine.name == yours.name == "D_Mult^delta":
        return (STRONGER if mine.delta < yours.delta else WEAKER), f"delta {mine.delta} against {yours.delta}"
    if mine.name == yours.name == "D_Renyi":
        verdict = STRONGER if (mine.order or 0) > (yours.order or 0) else WEAKER
        return verdict, "a higher order of the Rényi divergence is the larger one"
    there, back = can_change_output(mine, yours), can_change_output(yours, mine)
    if there and back:
        return EQUAL, f"{mine.classic} and {yours.classic} imply each other, at some budget"
    if not there and not back:
        return INCOMPARABLE, f"neither {mine.classic} nor {yours.classic} is known to imply the other at every budget"
    strong, weak = (mine, yours) if there else (yours, mine)
    reason = f"{strong.classic} implies {weak.classic} at some budget, and not the other way round"
    return (STRONGER if there else WEAKER), reason


def _how_much(a: Specification, b: Specification) -> _Judged:
    if a.budget.is_free or b.budget.is_free:
        return INCOMPARABLE, "a budget is left open: choose a value"
    if differing := _differing(a, b):
        return INCOMPARABLE, (
            f"{a.budget_text} and {b.budget_text} are in different currencies: the two differ in {differing}. "
            "A smaller number with more held fixed, or for a smaller unit, is not more protection"
        )
    try:
        order = compare_exact(a.budget.realised, b.budget.realised)
    except UndecidedError as error:
        return INCOMPARABLE, error.problems[0].what
    verdict = EQUAL if order == 0 else STRONGER if order < 0 else WEAKER
    varies = ", for this file's fixed figures" if a.budget.varies or b.budget.varies else ""
    return verdict, _against(a, b, differ=order != 0) + varies


_MOST_PLACES: Final = 30


def _against(a: Specification, b: Specification, *, differ: bool) -> str:
    """Set two budgets side by side, in as many decimals as show that they differ."""
    if not differ or a.budget.shown != b.budget.shown:
        return f"{a.budget_text} against {b.budget_text}"
    greek = a.output_premetric.greek
    for places in range(3, _MOST_PLACES + 1):
        mine, yours = (specification.budget.realised.shown(places) for specification in (a, b))
        if mine != yours:
            return f"{greek}={mine} against {greek}={yours}"
    return f"both {a.budget_text}, and they differ only after {_MOST_PLACES} decimals"


def _same_multiverse(a: Multiverse, b: Multiverse) -> bool:
    if a.universes is not None or b.universes is not None:
        return a.universes is not None and b.universes is not None and set(a.universes) == set(b.universes)
    return set(a.invariants) == set(b.invariants)


def _differing(a: Specification, b: Specification) -> str:
    """Name those of the first four blocks that differ; the order in which invariants are listed means nothing."""
    pairs = {
        "who": (_one_file(a, b), True),
        "where": (_same_multiverse(a.multiverse, b.multiverse), True),
        "what": (a.input_premetric == b.input_premetric or _units(a, b, ())[0] == EQUAL, True),
        "how": (a.output_premetric, b.output_premetric),
    }
    return ", ".join(question for question, (mine, yours) in pairs.items() if mine != yours)


@dataclass(frozen=True, slots=True)
class _Implication:
    reached: Derivation | None
    obstacle: str = ""


def _implies(a: Specification, b: Specification, units: tuple[UnitFactor, ...]) -> _Implication:
    """Try to derive ``b`` from ``a``: the same flavor with a budget that is not above b's."""
    if a.budget.is_free or b.budget.is_free:
        return _Implication(None, "a budget is left open")
    if not _one_file(a, b):
        return _Implication(None, "the domains differ")
    if not a.domain.sees_no_more_than(b.domain):
        # Files that differ only where b does not look have b's promise of no change at all.
        return _Implication(None, f"the first promises nothing where only it looks ({_seen(a, b)})")
    a, b = told_apart([a, b])
    if a.measured_on and a.measured_on != b.measured_on:
        return _Implication(None, "change is measured on a part of the output only")
    if a.measured_on == b.measured_on and (datasets := _datasets(a, b)):
        answer = implies(a, b, datasets)
        if answer:
            step = {"action": f"all {len(datasets)} datasets", "theorem": "shortest paths through the pairs promised"}
            return _Implication(stepped(a, b, **step))
        if answer.verdict is Verdict.NO:
            return _Implication(None, answer.reason)
    obstacle = ""
    for aligned in ("last", "before the output", "first"):
        try:
            reached = _to_flavor_of(a, b, units, aligned=aligned)
            same = _same_multiverse(a.multiverse, b.multiverse)
            holds = _not_above(reached.specification.budget, b.budget, same_universes=same)
        except UndecidedError as error:
            return _Implication(None, error.problems[0].what)
        except StirredError as error:
            obstacle = obstacle or "; ".join(_obstacles(a, b, units)) or error.problems[0].what
            continue
        if holds:
            return _Implication(reached)
        obstacle = "in the other's flavor its budget is the larger one"
        if holds is None:
            obstacle = "the budgets depend on the universe, and one is not below the other in all of them"
    return _Implication(None, obstacle)


def _datasets(a: Specification, b: Specification) -> tuple[Hashable, ...]:
    """Return all datasets of the domain, where both list the same: in the domain, or in their tables of distances."""
    mine, yours = (one.domain.datasets or one.input_premetric.labels for one in (a, b))
    units = {(one.input_premetric.unit, one.input_premetric.post_imputation) for one in (a, b)}
    # Rows say how far apart they are for one unit only; a table says it whatever its unit is.
    comparable = len(units) == 1 or (a.input_premetric.table and b.input_premetric.table)
    return tuple(mine) if comparable and set(mine) == set(yours) else ()


def _not_above(a: Budget, b: Budget, *, same_universes: bool) -> bool | None:
    """Say whether one budget is at most another in *every* universe (Definition 2.4.9), or None.

    For Theorem 1 with odds o and o' in the same universes: max((b+1)/o, o) <= max((b+1)/o', o') for
    every b >= 2 if and only if o = o', or o > o' and o o' <= 3. For the sharp bound R1 the same with
    o o' <= 1 (from b = 2, where it is |ln o|; larger b ask for less). The sharp bound is at most
    Theorem 1 in every universe, so a sharp budget may be judged by its paper's value.
    """
    if not a.varies and not b.varies:
        return a.realised <= b.realised
    if ByUniverse in (type(a.policy), type(b.policy)):
        return not_above_by_universe(a.policy, b.policy, same_universes=same_universes)
    rates = [_single_rate(budget) for budget in (a, b)]
    if same_universes and a.policy == b.policy:
        return True
    if not same_universes or rates[0] is None or rates[1] is None:
        return None
    mine_paper, yours_paper = (getattr(budget.policy, "bound", None) == "paper" for budget in (a, b))
    if mine_paper and not yours_paper:
        return None
    if rates[0] == rates[1]:
        return True
    if rates[0] in (0, 1) or rates[1] in (0, 1):
        return rates[1] in (0, 1)  # an infinite budget is never the smaller one
    mine, yours = (rate / (1 - rate) for rate in (rates[0], rates[1]))
    return (mine > yours and mine * yours <= (3 if yours_paper else 1)) or None


def _single_rate(budget: Budget) -> Fraction | None:
    """Return the rate of a swapping budget with one rate for all strata."""
    policy = budget.policy
    return policy.strata[0].rate if isinstance(policy, PermutationSwapping) and len(policy.strata) == 1 else None


def _obstacles(a: Specification, b: Specification, units: tuple[UnitFactor, ...]) -> list[str]:
    """Return everything that stands in the way, not only the first thing."""
    obstacles = []
    answer = b.flavor.effective_multiverse.refines(a.multiverse)
    if not answer:
        obstacles.append(f"the invariants: only the starting point fixes {_fixed(answer)}")
    steps: list[Callable[[], Derivation]] = [
        lambda: _unit_step(a, b, units),
        lambda: change_distance(a, to=b.input_premetric.name),
        lambda: change_output(a, to=b.output_premetric),
    ]
    for step in steps:
        try:
            step()
        except StirredError as error:
            obstacles.append(error.problems[0].what)
    return list(dict.fromkeys(obstacles))


def _to_flavor_of(a: Specification, b: Specification, units: tuple[UnitFactor, ...], *, aligned: str) -> Derivation:
    """Derive the flavor of ``b``; the neighbours are those of b only after the output premetric, or before it.

    Either may be the sharper one, or the only one possible: not every output premetric adds up along paths. Paths
    need not stay inside the universes of b, so they may be followed first of all.
    """
    wanted = b.input_premetric
    path = Derivation(specification=a) if aligned != "first" else to_metric(a)
    path = path.then(_unit_step(path.specification, b, units))
    if (
        path.specification.input_premetric.bounded
        and not wanted.bounded
        and b.multiverse.refines(fixed := Multiverse(invariants=(Margin(of=wanted.unit),)))
    ):
        path = path.then(refine(path.specification, invariants=fixed.invariants))
    if wanted.name != path.specification.input_premetric.name:
        path = path.then(change_distance(path.specification, to=wanted.name))
    if not _same_multiverse(path.specification.multiverse, b.multiverse):
        # What b's distance fixes by itself counts as fixed on both sides.
        path = path.then(refine(path.specification, to=b.flavor.effective_multiverse))
    if aligned == "before the output":
        path = path.then(_aligned(path.specification, wanted))
    path = path.then(change_output(path.specification, to=b.output_premetric, at_distance=wanted.within))
    path = path.then(_aligned(path.specification, wanted))
    reached = path.specification.input_premetric
    if reached != wanted:
        raise refused(f"{reached.symbol} is not {wanted.symbol}", where="what")
    return path


def _aligned(specification: Specification, wanted: InputPremetric) -> Derivation:
    """Return the specification for the wanted neighbours, or for all distances if that is what is wanted."""
    if wanted.name == "d_r" or specification.input_premetric.within == wanted.within:
        return Derivation(specification=specification)
    if wanted.within is None:
        return to_metric(specification)
    return to_neighbours(specification, within=wanted.within)


def _unit_step(a: Specification, b: Specification, units: tuple[UnitFactor, ...]) -> Derivation:
    mine, yours = a.input_premetric, b.input_premetric
    if (mine.unit, mine.post_imputation) == (yours.unit, yours.post_imputation):
        return Derivation(specification=a)
    for relation in units:
        if (relation.old, relation.new) == (mine.unit, yours.unit):
            return relation.applied(a)
    if mine.unit == yours.unit and None in (mine.post_imputation, yours.post_imputation):
        raise refused("whether records are records after imputation is not said in one of them", where="what")
    # Not even people -> records after imputation: a change of one copy alone is no change of a person.
    raise refused(f"no factor is stated from {mine.unit} to {records_of(yours.unit)}", where="what")


def _overall(forward: _Implication, backward: _Implication) -> tuple[str | None, str]:
    if forward.reached and backward.reached:
        return EQUAL, "Each follows from the other."
    if winner := forward.reached or backward.reached:
        steps = "; ".join(str(step) for step in winner.steps) or "same flavor, smaller budget"
        which = "The second follows from the first" if forward.reached else "The first follows from the second"
        return (STRONGER if forward.reached else WEAKER), f"{which}: {steps}"
    return None, (
        "Neither was derived from the other, so the two budgets cannot be compared. "
        f"From first to second: {forward.obstacle}. From second to first: {backward.obstacle}."
    )


def _to_change(blocks: tuple[BlockVerdict, ...], *, is_open: bool) -> list[str]:
    """Say what would have to be the same, or stated, for a verdict."""
    advice = {
        "domain": "specify both for the same dataset at the same stage of its life",
        "multiverse": "evaluate both mechanisms relative to the same invariants (`spec convert --refine` adds some), "
        "and judge what the extra ones give away by disclosure risk",
        "input_premetric": "bring both to one unit (`spec convert --unit`), stating the largest group",
        "output_premetric": "bring both to one output premetric (`spec convert --output`)",
    }
    if is_open:
        advice["budget"] = "choose a value for the budget that is only a letter (`--budget`, `with_budget`)"
    elif all(block.verdict == EQUAL for block in blocks[:-1]):
        advice["budget"] = "write both budgets in the same form, or state rates that can be ordered in every universe"
    return [advice[block.block] for block in blocks if block.verdict != EQUAL and block.block in advice]
