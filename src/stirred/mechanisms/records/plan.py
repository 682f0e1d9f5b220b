"""The plan of a swap: what it would promise and do for one file, before anything random happens, and its doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

from stirred.data.codes import Coded
from stirred.data.problems import number
from stirred.data.record_doubts import similar_values
from stirred.mechanisms.protocol import Fact, Plan
from stirred.mechanisms.records.strata import Strata, StratumRow, SwapMargins
from stirred.spec.budget import Budget, Derived, PermutationSwapping
from stirred.spec.document import number_out
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import Exact
from stirred.spec.explanation import published_exactly
from stirred.spec.number_text import percent
from stirred.spec.specification import Specification

_STRATA_LISTED: Final = 50
_LEAST_SHARE: Final = 1 / 1_000
# Who changes with a smaller probability is published as it is.
LEAST: Final = "1 in 1,000"
# Of so many records that are swapped one at least must get other values than it had.
_LEAST_NEW: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoss:
    """What is known of the loss beyond R1.

    ``exact`` is the loss itself, where every live stratum could be enumerated. ``bound`` is an upper
    bound that uses it for strata at rate 1, where R1 says only "infinite"; ``finite`` says whether the
    true loss is finite (R2).
    """

    exact: Exact | None
    bound: Exact
    finite: bool


def swap_budget(policy: PermutationSwapping | Derived, own: OwnLoss | None) -> Budget:
    """Return the sharp budget R1, together with the paper's; at rate 1 the enumerated loss where there is one."""
    if isinstance(policy, Derived):
        return Budget(policy=policy)
    paper = policy.paper
    if own is not None and policy.realised.is_infinite and not own.bound.is_infinite:
        formula = f"the exact loss over all tables with the margins of each stratum at rate 1, for the others {policy}"
        return Budget(policy=Derived(formula=formula, value=own.bound, varies=True), paper_epsilon=paper)
    return Budget(policy=policy, paper_epsilon=paper)


class ExpectedChange(NamedTuple):
    """What a swap is expected to change: how many records get other values, and how many have hardly a chance to."""

    expected: float
    still: int


class FurtherPromise(NamedTuple):
    """What a release promises between files that agree on more, which it neither keeps nor publishes.

    ``name`` is that of its loss in JSON; ``agreed`` says on what such files agree besides.
    """

    name: str
    specification: Specification
    agreed: str

    @classmethod
    def of(cls, name: str, promised: Specification, policy: Derived, *, agreed: str, condition: str) -> FurtherPromise:
        """Return the promise with another budget, under one more condition."""
        assumptions = (*promised.assumptions, condition)
        return cls(name, replace(promised, budget=Budget(policy=policy), assumptions=assumptions), agreed)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordPlan(Plan):
    """What a release of records would do to a file whose ``swap`` values are exchanged; ``swap`` are their codes.

    ``coded`` gives each record its match values as a code. ``perturbed`` are released columns that something else than
    the exchange changes too: their counts are not invariant.
    """

    match: tuple[str, ...]
    hold: tuple[str, ...]
    perturbed: tuple[str, ...]
    swap: Coded = field(repr=False)
    coded: Coded = field(repr=False)

    def counted(self, swap: Coded) -> SwapMargins:
        """Return how often each swap value, as coded after any change, occurs with each of the match values."""
        return SwapMargins.of(self.coded.codes, swap.codes, strata=self.coded.count, values=swap.count)

    @property
    def has_persons(self) -> bool:
        return self.origin.data.persons is not None

    @cached_property
    def releases(self) -> Mapping[str, Sequence[str]]:
        data, dropped = self.origin.data, {*self.dropped}
        released = (*self.hold, *self.origin.mechanism.swap)
        return {
            "households": [name for name in data.households.columns if name in released],
            "persons": [name for name in data.person_variables if f"{name} (of persons)" not in dropped],
        }

    @cached_property
    def exact_swap(self) -> tuple[str, ...]:
        """Return the swap variables whose counts by the match variables are invariant."""
        return tuple(name for name in self.origin.mechanism.swap if name not in self.perturbed)

    @cached_property
    def exact_hold(self) -> tuple[str, ...]:
        """Return the held variables whose counts are invariant, the match variables first."""
        return tuple(name for name in self.hold if name not in self.perturbed)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SwapPlan(RecordPlan):
    """What a swap would do to a file: nothing random has happened, and all but ``doubts`` follows from invariants.

    Printed, it says what leaves unchanged, what is disturbed, what is promised, and its doubts.

    ``own_loss`` is the loss of the enumerated margins, where strata are small or swapped at rate 1; ``further`` holds
    between closer files. Where a step perturbs a variable (R14), ``swap`` are the codes of the other swap
    variables, and ``exposed`` the strata of the file without that variable. A second swap has ``fine`` strata.
    """

    strata: Strata
    exposed: Strata = field(repr=False)
    own_loss: OwnLoss | None = None
    further: tuple[FurtherPromise, ...] = ()
    fine: Coded | None = field(default=None, repr=False)

    def counted(self, swap: Coded) -> SwapMargins:
        return RecordPlan.counted(self, swap) if self.perturbed else self.strata.margins

    @cached_property
    def expected_change(self) -> ExpectedChange | None:
        """Return what is expected to change; None where it depends on what is protected."""
        mechanism = self.origin.mechanism
        if mechanism.hidden is not None or self.perturbed:
            return None
        records, share = self.strata.margins.count, mechanism.swap_law.changed(self.strata, self.swap)
        still = int(records[share < _LEAST_SHARE].sum())
        return ExpectedChange(expected=float((records * share).sum()), still=still)

    @property
    def moved_get(self) -> str:
        return str(self.origin.mechanism.swap_law.moved_get)

    @property
    def decisive(self) -> StratumRow | None:
        """Return the stratum that sets the loss, where rates differ."""
        found: StratumRow | None = self.origin.mechanism.swap_law.decisive(
            self.exposed if self.perturbed else self.strata
        )
        return found

    @property
    def unchanged(self) -> str:
        count, figures = self.strata.exact_records, published_exactly(self.specification)
        if not count or self.perturbed:
            return figures
        records = int(self.strata.records.sum())
        return f"{figures}; everything about {count:,} of {records:,} records, which have nothing to swap with"

    @property
    def disturbed(self) -> str:
        strata, share = self.strata, self.strata.moved
        before = "".join(f"{name}: every record gets a randomised response; then " for name in self.perturbed)
        if strata.largest_live is None or all(rate.highest == 0 for rate in strata.rates):
            return f"{before}nothing: no record can get other values"
        if share == 0:
            return f"{before}next to nothing: at so low a rate hardly any record gets other values"
        records = int(strata.records.sum())
        swapped = ", ".join(self.origin.mechanism.swap)
        if share is None:
            return f"{before}{swapped}; of how many records is not said, because it depends on protected counts"
        return f"{before}{swapped}: about {percent(share, digits=3)} of {records:,} records get {self.moved_get}"

    @property
    def moved(self) -> float | None:
        return self.strata.moved

    @property
    def facts(self) -> tuple[Fact, ...]:
        return plan_facts(self)

    @property
    def also_promised(self) -> str:
        return " ".join(
            f"The loss of the specification is the one to rely on. Between files that moreover agree on {each.agreed} "
            f"it is at most {each.specification.budget.shown}. These counts are not published exactly: this release "
            "neither keeps nor publishes them."
            for each in self.further
        )

    @property
    def paper_epsilon(self) -> Exact:
        """Return the loss by Theorem 1; other swaps have no published bound, and this is their own."""
        paper = self.specification.budget.paper_epsilon
        return self.epsilon if paper is None else paper

    @property
    def exact_loss(self) -> Exact | None:
        """Return the loss itself over all files with these margins, where they could be enumerated (R0)."""
        return None if self.own_loss is None else self.own_loss.exact

    @property
    def why_this_number(self) -> str:
        own, epsilon, paper = self.own_loss, self.epsilon, self.paper_epsilon
        if self.strata.largest_live is None:
            return ""
        sentences = []
        if epsilon.is_infinite and own is not None and own.finite:
            sentences.append(
                "At rate 1 infinity is only the upper bound: the true loss is finite here, because no stratum has both "
                "a hold value and a swap value that occur once, but the strata are too large to compute it here."
            )
        elif epsilon < paper and paper.is_infinite:
            sentences.append(
                "The paper's bound is infinite at rate 1; here the loss of the strata at that rate is "
                "computed over all tables with their margins, and is finite."
            )
        elif epsilon < paper and epsilon.shown(3) == paper.shown(3):
            sentences.append(
                "This is the sharp bound; for strata of this size the paper's own number is practically the same."
            )
        elif epsilon < paper:
            digits = 2 if epsilon.shown() != paper.shown() else 3
            sentences.append(
                f"The paper's bound is {paper.shown(digits)}; the number here, {epsilon.shown(digits)}, is "
                "lower because it uses the exact numbers of derangements where the paper rounds them up to b + 1."
            )
        if own is not None and own.exact is not None and not own.exact.is_infinite:
            sentences.append(
                f"The strata are so small that the loss itself can be computed: {own.exact.shown(3)}, the largest over "
                "all files with the same margins."
            )
        return " ".join(sentences)


# ---- the facts of a plan ----------------------------------------------------------------------------------


def plan_facts(plan: SwapPlan) -> tuple[Fact, ...]:
    """Return the numbers of a plan, and what it says of its strata and of whom it moves."""
    strata, largest, exact = plan.strata, plan.strata.largest_live, plan.exact_loss
    losses = {each.name: each.specification.budget.realised for each in plan.further}
    losses["paper_epsilon"] = plan.paper_epsilon
    live, count, decisive = int(strata.live.sum()), strata.exact_records, plan.decisive
    size = number(largest.records, "record") if largest else "none is live"
    named = f" ({values})" if largest and (values := _match_values(strata, largest)) else ""
    found = [
        Fact(values={key: value for name, loss in losses.items() for key, value in _loss(name, loss).items()}),
        Fact(
            values={
                "exact_loss": None if exact is None else number_out(exact),
                "exact_loss_expression": None if exact is None else str(exact),
                "records": int(strata.records.sum()),
            }
        ),
        Fact(
            label="strata",
            sentence=f"{strata.count:,}, of which {live:,} have something to swap",
            values={"strata": strata.count, "live_strata": live},
        ),
        Fact(
            label="largest",
            sentence=f"{size}{named}",
            values={"largest_live_stratum": largest.records if largest else 0},
        ),
        _moved(plan),
    ]
    if count and plan.perturbed:  # where nothing is, they are listed with what is not protected
        but = f"in strata with nothing to swap, but for the response on {', '.join(plan.perturbed)}"
        found.append(Fact(label="unchanged", sentence=f"{number(count, 'record')} {but}"))
    if decisive is not None:
        values = _match_values(strata, decisive) or "all records"
        words = f"{values}: {number(decisive.records, 'record')} at rate {decisive.rates}"
        found.append(Fact(label="loss set by", sentence=words))
    listed = [
        {
            "match": dict(zip(strata.match, map(str, each.values), strict=True)),
            "records": each.records,
            "live": each.live,
            "rate": str(each.rates),
            "expected_share_moved": each.share,
        }
        for each in strata.largest(_STRATA_LISTED)
    ]
    return (*found, Fact(values={"largest_strata": listed}, for_plans=True, confidential=True))


def _loss(name: str, loss: Exact) -> dict[str, Any]:
    return {name: number_out(loss), f"{name}_exact": str(loss)}


def _match_values(strata: Strata, stratum: StratumRow) -> str:
    return ", ".join(f"{k} = {v}" for k, v in zip(strata.match, stratum.values, strict=True))


def _moved(plan: SwapPlan) -> Fact:
    """Say how many records are expected to move, or to change where the law is one of values and not of records."""
    share = plan.strata.moved
    values = {"expected_share_moved": share}
    if share is None:
        why = "with rates by hold and swap values together it depends on counts that are protected"
        return Fact(label="moved", sentence=f"not said: {why}", values=values)
    label = "changed" if plan.moved_get == "another value" else "moved"
    besides = "".join(step.words.moved for step in plan.origin.mechanism.steps)
    sentence = f"{100 * share:.2f}% of records are expected to get {plan.moved_get}{besides}"
    return Fact(label=label, sentence=sentence, values=values)


# ---- doubts about a promise as a whole: too little moves, or nothing is promised ------------------------------


def nothing_moves(why: str) -> Doubt:
    """Return the doubt about a release that would be a copy of the file; it cannot be accepted."""
    return Doubt(
        kind="nothing-moves",
        what=f"{why}: the file would be published as it is, and nothing protects it",
        remedy="swap a variable that differs between records with the same match values, match on fewer variables, and "
        "choose a higher rate",
        final=True,
    )


def no_bound(when: str) -> Doubt:
    """Return the doubt about an infinite loss."""
    what = f"{when} nothing is promised: epsilon is infinite"
    return nothing_promised(what, remedy="choose a rate above 0 and below 1")


def empty_promise(plan: SwapPlan) -> Iterator[Doubt]:
    """Yield the doubts about a plan that leaves the file, or most of it, as it is, or promises nothing.

    Where it is protected how many records change, records that move are counted instead, which are more.
    """
    changed = plan.expected_change
    expected = plan.strata.most_moved if changed is None else changed.expected
    if plan.strata.largest_live is None:
        yield nothing_moves("nothing can be swapped, since no two records could exchange different values")
    elif all(rate.highest == 0 for rate in plan.strata.rates):
        yield nothing_moves("at a rate of 0 nothing is swapped and nothing is promised")
    elif expected < 1:
        yield nothing_moves("fewer than one record is expected to get other values")
    else:
        if plan.epsilon.is_infinite:
            yield no_bound("at a rate of 0 or 1")
        yield from _mostly_unmoved(plan)


def _mostly_unmoved(plan: SwapPlan) -> Iterator[Doubt]:
    """Yield the doubt about a file of which more than half is published as it is, or nearly certainly so.

    That is where nothing can move, where rates are next to 0, and where nearly all records of a stratum have the same
    swap values: a record that moves there gets the values it had.
    """
    records, moved, changed = int(plan.strata.records.sum()), plan.strata.most_moved, plan.expected_change
    still = plan.strata.unmoved_records if changed is None else changed.still
    if 2 * still > records:
        share = percent(Fraction(still, records), digits=2)
        what = f"{still:,} of {records:,} records ({share}) get other values with a probability below {LEAST}, or never"
    elif changed is not None and changed.expected < moved / _LEAST_NEW:
        what = (
            f"of about {moved:,.0f} records that are swapped only about {changed.expected:,.0f} get other values than "
            "they had: match and swap variables, published exactly, tell nearly every record's place"
        )
    else:
        return
    yield Doubt(
        kind="mostly-unmoved",
        what=f"{what}. The file is published nearly as it is",
        remedy="match on fewer or coarser variables, and choose a higher rate",
    )


def similar_in_roles(strata: Strata, swap: Coded) -> Iterator[Doubt]:
    """Yield doubts about values of match and swap variables that are the same but for blanks or letter case."""
    for name in strata.match:
        yield from similar_values(name, strata.coded.levels[name])
    for column in swap.levels.get_columns():
        yield from similar_values(column.name, column.unique())
