"""The plan of a swap: what it would promise and do for one file, before anything random happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from stirred.data.codes import Coded
from stirred.mechanisms.swapping.small_strata import OwnLoss
from stirred.mechanisms.swapping.strata import Strata
from stirred.spec.budget import Budget, Derived, PermutationSwapping
from stirred.spec.exact import Exact
from stirred.spec.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapUniverse:
    """What the invariants tell about a file, as far as the budget needs it: strata by rate, largest live size.

    Other swaps than permutation swapping have a policy of their own. ``own`` is the loss of the enumerated
    margins, where strata are small or swapped at rate 1.
    """

    policy: PermutationSwapping | Derived
    match: tuple[str, ...]
    swap: tuple[str, ...]
    hold: tuple[str, ...]
    persons: bool = False
    name: str = "file"
    imputed: str | None = None
    own: OwnLoss | None = None
    columns: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget:
        """Return the sharp budget R1, with the paper's beside it; at rate 1 the enumerated loss where there is one."""
        if isinstance(self.policy, Derived):
            return Budget(policy=self.policy)
        paper = self.policy.paper
        if self.own is None or not self.policy.realised.is_infinite or self.own.bound.is_infinite:
            return Budget(policy=self.policy, paper_epsilon=paper)
        formula = (
            "the exact loss over all tables with the margins of each stratum at rate 1 (R0, R2), for the others "
            f"{self.policy}"
        )
        return Budget(policy=Derived(formula=formula, value=self.own.bound, varies=True), paper_epsilon=paper)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwapPlan:
    """What a swap would do to a file: nothing random has happened, and all of it follows from invariants.

    ``perturbed`` is a variable that gets a randomised response before the swap (R14): its counts are no invariant.
    ``swap`` are then the codes of the other swap variables.
    """

    specification: Specification
    strata: Strata
    hold: tuple[str, ...]
    dropped: tuple[str, ...]
    universe: SwapUniverse
    swap: Coded = field(repr=False)
    warnings: tuple[str, ...] = ()
    perturbed: str | None = None

    @property
    def exact_swap(self) -> tuple[str, ...]:
        """Return the swap variables whose counts by the match variables are invariant."""
        return tuple(name for name in self.universe.swap if name != self.perturbed)

    @property
    def exact_hold(self) -> tuple[str, ...]:
        """Return the held variables whose counts are invariant, the match variables first."""
        return tuple(name for name in self.hold if name != self.perturbed)

    @property
    def epsilon(self) -> Exact:
        """Return the loss at the realised universe: the sharp budget R1."""
        return self.specification.budget.realised

    @property
    def paper_epsilon(self) -> Exact:
        """Return the loss by Theorem 1; other swaps have no published bound, and this is their own."""
        paper = self.specification.budget.paper_epsilon
        return self.epsilon if paper is None else paper

    @property
    def exact_loss(self) -> Exact | None:
        """Return the loss itself over all files with these margins, where they could be enumerated (R0)."""
        return None if self.universe.own is None else self.universe.own.exact

    @property
    def also_promised(self) -> str:
        """Say what the release promises relative to further invariants; nothing more, for most swaps."""
        return ""

    @property
    def why_this_number(self) -> str:
        """Say in a sentence or two how the loss stands to the paper's and to the exact one."""
        own, epsilon, paper = self.universe.own, self.epsilon, self.paper_epsilon
        if self.strata.largest_live is None:
            return ""
        sentences = []
        if epsilon.is_infinite and own is not None and own.finite:
            sentences.append(
                "At rate 1 infinity is only the upper bound: the true loss is finite here, because no stratum has both "
                "a hold value and a swap value that occur once (R2), but the strata are too large to compute it here."
            )
        elif epsilon < paper and paper.is_infinite:
            sentences.append(
                "The paper's bound (Theorem 1) is infinite at rate 1; here the loss of the strata at that rate is "
                "computed over all tables with their margins, and is finite (R0, R2)."
            )
        elif epsilon < paper and epsilon.shown(3) == paper.shown(3):
            sentences.append(
                "This is the sharp form of Theorem 1 (R1); for strata of this size the paper's own number is "
                "practically the same."
            )
        elif epsilon < paper:
            digits = 2 if epsilon.shown() != paper.shown() else 3
            sentences.append(
                f"The paper's bound (Theorem 1) is {paper.shown(digits)}; the number here, {epsilon.shown(digits)}, is "
                "lower because it uses the exact numbers of derangements where the paper rounds them up to b + 1 (R1)."
            )
        if own is not None and own.exact is not None and not own.exact.is_infinite:
            sentences.append(
                f"The strata are so small that the loss itself can be computed: {own.exact.shown(3)}, the largest over "
                "all files with the same margins (R0)."
            )
        return " ".join(sentences)
