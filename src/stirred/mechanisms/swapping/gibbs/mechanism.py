"""The Gibbs swap: permutations weighed by a declared factor for each record they move (swapping theory R11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import Field

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Rate, Settings
from stirred.mechanisms.swapping.core.pairs import Declared, Pairs, value_names
from stirred.mechanisms.swapping.core.roles import SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.mechanisms.swapping.flows.law import Counts, Floats
from stirred.mechanisms.swapping.flows.mechanism import Flows, FlowSwap, live_values
from stirred.mechanisms.swapping.permutation.law import permutation_law
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import Number, fraction
from stirred.spec.law import Law
from stirred.spec.problems import wrong


class GibbsSettings(SwapSettings):
    """A weight for each exchange."""

    weights: str | dict[str, dict[str, Rate]] = Field(
        description="A file with the columns from, to and weight, or a table with a weight for each pair of swap "
        "values.",
        json_schema_extra={"example": "weights.csv", "pairs": "weight"},
    )


# Farther from 1 the numbers of ``flows.law_kernel`` (m from 2**-256 to 2**256) would lose terms that count.
_MOST_WEIGHT: Final = Fraction(10) ** 75


def gibbs_epsilon(least: Number, most: Number) -> Exact:
    """Return the loss of a law that weighs a permutation by a factor for each moved record (R11).

    The factors lie from ``least`` to ``most`` and depend on the two swap values alone. A condition on the
    numbers of moved records, as appendix C.2 has it, would leave only equal weights.

    >>> gibbs_epsilon("1/4", "1/2"), gibbs_epsilon("1/2", 3)
    (Exact('ln(4)'), Exact('ln(6)'))
    """
    low, high = fraction(least, where="least"), fraction(most, where="most")
    if not 0 <= low <= high:
        raise wrong(f"factors from {low} to {high}", where="factors", remedy="give the smallest first, 0 or more")
    return ln(max(Fraction(1), high) / min(Fraction(1), low)) if low else INFINITE


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

    name: ClassVar[str] = "gibbs-swap"
    title: ClassVar[str] = "Gibbs swapping"
    settings_model: ClassVar[type[Settings]] = GibbsSettings
    member: ClassVar[str] = "gibbs"
    rests_on: ClassVar[str] = "R11, weights on permutations (docs/theory/swapping-family.md)"
    beforehand: ClassVar[str] = "the weights of exchanges between swap values were fixed beforehand"

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
        return (
            f"Gibbs swapping: {', '.join(self.swap)} exchanged among {self.among} along permutations with a declared "
            "weight for each record they move; everything else is held."
        )

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        values, pairs = [str(s) for _, s in dataset], self._pairs
        pairs.places(values)

        def chance(sigma: tuple[int, ...]) -> Fraction:
            moved = (pairs[values[i], values[j]] for i, j in enumerate(sigma) if i != j)
            return math.prod(moved, start=Fraction(1))

        return permutation_law(dataset, chance)

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return what is declared."""
        return "declared weights"

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        # There is no rate; the smallest weight takes its place in the list of strata.
        return [], min(Fraction(1), *self._pairs.numbers.values())

    def _flows(self, swap: Coded) -> Flows:
        pairs = self._pairs
        places = np.array(pairs.places(value_names(swap.levels[self.swap[0]])))
        names = [pairs.values[place] for place in places]
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
            "ln of the largest weight between swap values of a live stratum (or 1) over the smallest (or 1); the "
            f"weights are fixed beforehand ({self._pairs})"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
        pairs = self._pairs
        names = [pairs.values[place] for place in pairs.places(value_names(swap.levels[self.swap[0]]))]
        seen = {frozenset(codes) for _, codes, _ in live_values(strata)}
        if not seen:
            return ZERO
        found = {(a, b) for codes in seen for a in codes for b in codes}
        weights = [pairs[names[a], names[b]] for a, b in found]
        return gibbs_epsilon(min(weights), max(weights))


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
