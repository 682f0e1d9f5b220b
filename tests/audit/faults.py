"""Swap mechanisms with one fault each, on small strata; the right one for comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

from stirred import PermutationSwap
from stirred.audit.exhaustive import promise_for
from stirred.mechanisms.records.law import tables_with_margins
from stirred.mechanisms.records.laws.counting import psa_weights
from stirred.spec.exact import Exact
from stirred.spec.law import Law
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import derangements, psa_sharp_epsilon

Weights = Callable[[int, Fraction], list[Fraction]]
UNIVERSES = (("ab", "xy"), ("abc", "xyz"), ("aabb", "xxyy"), ("abcd", "wxyz"))


def sharp(size: int, rate: Fraction) -> Exact:
    return psa_sharp_epsilon(rate, stratum=size)


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Permutations that move k records have probability weights[k]; the budget is the sharp one."""

    weights: Weights = psa_weights
    budget: Callable[[int, Fraction], Exact] = sharp
    rate: Fraction = Fraction(1, 4)
    keeps_order: bool = False

    def audit_universes(self) -> list[list[Hashable]]:
        return [tables_with_margins(hold, swap) for hold, swap in UNIVERSES]

    def law(self, dataset: Any) -> Law:
        n = len(dataset)
        weights = self.weights(n, self.rate)
        outcomes: dict[Hashable, Fraction] = {}
        for sigma in permutations(range(n)):
            rows = [(dataset[i][0], dataset[j][1]) for i, j in enumerate(sigma)]
            table = tuple(rows if self.keeps_order else sorted(rows))
            moved = sum(i != j for i, j in enumerate(sigma))
            outcomes[table] = outcomes.get(table, Fraction(0)) + weights[moved]
        return Law(outcomes)

    def specification(self, universe: Sequence[Hashable]) -> Specification:
        right = promise_for(PermutationSwap(match=[], swap=["s"], rate=self.rate), universe)
        assert right is not None
        return right.with_budget(self.budget(len(universe[0]), self.rate))  # type: ignore[arg-type]


def without_redraw(n: int, rate: Fraction) -> list[Fraction]:
    """A single selected record stays where it is."""
    chance = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
    chance[0], chance[1] = chance[0] + chance[1], Fraction(0)
    return [c / (math.comb(n, k) * derangements(k)) if k != 1 else Fraction(0) for k, c in enumerate(chance)]


def permutation_instead_of_derangement(n: int, rate: Fraction) -> list[Fraction]:
    """The selected records are shuffled, so that some may keep their own value."""
    return [
        sum(
            (
                Fraction(math.comb(n - k, m - k)) * rate**m * (1 - rate) ** (n - m) / math.factorial(m)
                for m in range(k, n + 1)
            ),
            Fraction(0),
        )
        for k in range(n + 1)
    ]


def fixed_number(n: int, rate: Fraction) -> list[Fraction]:
    """Always exactly two records exchange their values."""
    del rate
    return [Fraction(int(k == 2), len([*combinations(range(n), 2)])) for k in range(n + 1)]


def one_step_too_small(size: int, rate: Fraction) -> Exact:
    """The budget of a stratum with one record less."""
    return psa_sharp_epsilon(rate, stratum=max(size - 1, 2))


RIGHT = Swap()
FAULTS = {
    "selection without the redraw": replace(RIGHT, weights=without_redraw),
    "permutation instead of derangement": replace(RIGHT, weights=permutation_instead_of_derangement),
    "a fixed number of swaps": replace(RIGHT, weights=fixed_number),
    "an output that keeps row order": replace(RIGHT, keeps_order=True),
    "a budget one derangement step too small": replace(RIGHT, budget=one_step_too_small),
}


@dataclass(frozen=True)
class Understated:
    """A mechanism of the package whose stated budget is a tenth too small."""

    mechanism: Any

    def audit_universes(self) -> list[list[Hashable]]:
        return self.mechanism.audit_universes()

    def law(self, dataset: Any) -> Any:
        return self.mechanism.law(dataset)

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        right: Specification = self.mechanism.audit_specification(universe)
        budget = right.budget.realised
        return right if budget.is_infinite else right.with_budget(budget * Fraction(9, 10))
