"""The Gibbs swap: permutations weighed by a declared factor for each record they move (swapping theory R11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.swapping.flow_swap import FlowSwap, live_values, margins_of
from stirred.mechanisms.swapping.laws.flow import Counts, Floats
from stirred.mechanisms.swapping.laws.flows import Flows
from stirred.mechanisms.swapping.laws.permutation import permutation_law
from stirred.mechanisms.swapping.pairs import Declared, Pairs
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import PAPER, Swap
from stirred.mechanisms.swapping.swap_plan import SwapUniverse
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import ZERO, Exact
from stirred.spec.family_budget import gibbs_epsilon
from stirred.spec.law import Law
from stirred.spec.specification import Specification

# Farther from 1 the numbers of ``kernels.flow`` (m from 2**-256 to 2**256) would lose terms that count.
_MOST_WEIGHT: Final = Fraction(10) ** 75


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsSwap(FlowSwap):
    """Swap along a permutation whose weight has a factor ``weights[s][s']`` for each record moved from s to s'.

    The factors are fixed beforehand and look at swap values only: above 1 for exchanges that are wanted, below for
    those that are not. ``weights[s][s]`` is for records that get the value of another record with the same value, which
    changes nothing; it is 1 unless given. The loss is ln of the largest factor (or 1) over the smallest (or 1).

    >>> import polars as pl
    >>> from stirred.randomness.entropy import Entropy
    >>> swap = GibbsSwap(match=["size"], swap=["county"], weights={"A": {"B": "1/2", "C": "1/4"}, "B": {"C": "1/2"}})
    >>> homes = pl.DataFrame({"size": [1] * 6, "county": list("ABCABC"), "tenure": list("ooorrr")})
    >>> swap.plan(homes).specification.budget.realised
    Exact('ln(4)')
    >>> sorted(swap.release(homes, Entropy.from_os()).public["data"]["county"])
    ['A', 'A', 'B', 'B', 'C', 'C']
    """

    member: ClassVar[str] = "gibbs"

    weights: Declared | Pairs

    def __post_init__(self) -> None:
        Swap.__post_init__(self)
        if len(self.swap) != 1:
            raise bad_plan(
                "weights can be declared for the values of one swap variable only",
                where="weights",
                remedy="swap one variable, or use another member of the family",
            )
        given = self.weights
        if isinstance(given, Mapping):
            given = Pairs.declared(given, where="weights", own=Fraction(1))
            if wrong := [f"{a} to {b}: {value}" for (a, b), value in given.numbers.items() if value <= 0]:
                raise bad_plan(
                    f"not above 0: {listed(wrong[:5])}",
                    where="weights",
                    remedy="a weight of 0 forbids an exchange and leaves no finite loss; use a small one",
                )
            far = [f"{a} to {b}" for (a, b), value in given.numbers.items() if max(value, 1 / value) > _MOST_WEIGHT]
            if far:
                raise bad_plan(
                    f"too far from 1 to be drawn exactly: {listed(far[:5])}",
                    where="weights",
                    remedy="write weights from 1e-75 to 1e75: even these have a loss of 172",
                )
            object.__setattr__(self, "weights", given)

    @property
    def _pairs(self) -> Pairs:
        assert isinstance(self.weights, Pairs)
        return self.weights

    @property
    def declared_pairs(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the weights."""
        return {"weights": self._pairs.nested}

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        among = f" among records with equal {', '.join(self.match)}" if self.match else " among all records"
        return (
            f"Gibbs swapping: {', '.join(self.swap)} exchanged{among} along permutations with a declared weight for "
            "each record they move; everything else is held."
        )

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        values, pairs = [str(s) for _, s in dataset], self._pairs
        pairs.places(values)

        def chance(sigma: tuple[int, ...]) -> Fraction:
            moved = (pairs[values[i], values[j]] for i, j in enumerate(sigma) if i != j)
            return math.prod(moved, start=Fraction(1))

        return permutation_law(dataset, chance)

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        # There is no rate; the smallest weight takes its place in the list of strata.
        return [], min(Fraction(1), *self._pairs.numbers.values())

    def _flows(self, swap: Coded) -> Flows:
        pairs = self._pairs
        names = [str(value) for value in swap.levels[self.swap[0]].to_list()]
        places = np.array(pairs.places(names))
        floats = np.array([[float(pairs[a, b]) for b in pairs.values] for a in pairs.values])
        own = [pairs[name, name] for name in names]

        def table(codes: Counts) -> Floats:
            here = places[codes]
            return floats[here[:, None], here]

        def kept(code: int, count: int) -> Sequence[Fraction]:
            return staying(own[code], count)

        every = None if all(weight == 1 for weight in own) else kept
        return Flows(lambda a, b: pairs[names[a], names[b]], table, kept=every)

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        formula = (
            "ln of the largest weight between swap values of a live stratum (or 1) over the smallest (or 1) (R11); the "
            f"weights are fixed beforehand ({self._pairs})"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
        names = [str(value) for value in swap.levels[self.swap[0]].to_list()]
        pairs = self._pairs
        pairs.places(names)
        seen = {frozenset(codes) for _, codes, _ in live_values(strata, margins_of(strata, swap))}
        if not seen:
            return ZERO
        found = {(a, b) for codes in seen for a in codes for b in codes}
        weights = [pairs[names[a], names[b]] for a, b in found]
        return gibbs_epsilon(min(weights), max(weights))

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, with the condition on the weights."""
        promised = Swap.specification(self, universe)
        beforehand = "the weights of exchanges between swap values were fixed beforehand"
        return replace(promised, assumptions=(*promised.assumptions, beforehand))

    def _theorem(self) -> tuple[str, ...]:
        return ("R11, weights on permutations (docs/theory/swapping-family.md)", f"Proposition 4 of {PAPER}")


@lru_cache(maxsize=10_000)
def staying(weight: Fraction, count: int) -> tuple[Fraction, ...]:
    """Return the weight of F = 0, 1, ... of ``count`` records of a value that keep it, up to a constant (R11).

    j of them stay where they are with weight 1, the others change places with weight ``weight`` each: the sum over j of
    C(F,j) (1-w)^j w^(F-j) (count-j)!, here over count!.

    >>> staying(Fraction(1), 3)
    (Fraction(1, 1), Fraction(1, 1), Fraction(1, 1), Fraction(1, 1))
    >>> staying(Fraction(1, 2), 2)[2]  # both fixed, or exchanged with weight 1/4, of two arrangements
    Fraction(5, 8)
    """
    falling = [Fraction(math.factorial(count - j), math.factorial(count)) for j in range(count + 1)]
    return tuple(
        sum((math.comb(f, j) * (1 - weight) ** j * weight ** (f - j) * falling[j] for j in range(f + 1)), Fraction(0))
        for f in range(count + 1)
    )
