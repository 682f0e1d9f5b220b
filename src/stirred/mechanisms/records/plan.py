"""The plan of a swap: what it would promise and do for one file, before anything random happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Fact, Plan
from stirred.mechanisms.records.pages import plan_facts
from stirred.mechanisms.records.strata import Strata, StratumRow, SwapMargins
from stirred.spec.budget import Budget, Derived, PermutationSwapping
from stirred.spec.exact import Exact
from stirred.spec.explanation import published_exactly
from stirred.spec.number_text import percent
from stirred.spec.specification import Specification

_LEAST_SHARE: Final = 1 / 1_000  # see doubts.LEAST


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
    """Return the sharp budget R1, with the paper's beside it; at rate 1 the enumerated loss where there is one."""
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
        if mechanism.swap_law.protects_moves or mechanism.unsaid is not None or self.perturbed:
            return None
        records, share = self.strata.margins.count, mechanism.swap_law.changed_where_live(self.strata, self.swap)
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
