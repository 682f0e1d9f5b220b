"""The perverse guide, between two versions of one specification: did its number fall for a bad reason?

A block that became weaker is serious where the new number does not follow from the old promise, and worth a note where
it does. What implies the old promise is silent, however its number looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from stirred.spec.budget import ByUniverse
from stirred.spec.compare import EQUAL, STRONGER, WEAKER, compare
from stirred.spec.compose import TOTAL_BY
from stirred.spec.convert import can_change_distance
from stirred.spec.domain import AS_GIVEN
from stirred.spec.exact import INFINITE
from stirred.spec.finding import NOTE, SERIOUS, WARNING, Finding
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.multiverse import Verdict
from stirred.spec.pull_back import BEFORE
from stirred.spec.specification import Specification
from stirred.spec.tables import lengths_of
from stirred.spec.unit_parts import is_part

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
