"""What swaps share that draw the flow table of each stratum: reach, expected moves, and the exchange."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, number
from stirred.mechanisms.swapping.core.margins import Shares
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.flows.law import Counts, Floats, Flow, FlowLaw, Pair
from stirred.mechanisms.swapping.flows.tree_law import Tree, TreeLaw, tree_of
from stirred.randomness.entropy import WordReader
from stirred.spec.specification import Specification

# What one stratum may cost: steps (a second or two), numbers kept at once, and what the margin of double precision
# allows.
_MOST_STEPS: Final = 20_000_000
_MOST_NUMBERS: Final = 4_000_000
_MOST_RECORDS: Final = 400_000
_MOST_STEPS_OF_TREE: Final = 300_000_000
_MOST_NUMBERS_OF_TREE: Final = 16_000_000
_MOST_LEVELS_OF_RECORDS: Final = 1 << 18
# From here the peak of a law is where its mean is, to a percent or so.
_LARGE: Final = 1_000
# Below this the derivative that gives the mean is lost in rounding.
_WEAK: Final = 1e-6
_LIKELY_ALIKE: Final = 32


class Flows:
    """The laws of the flow tables, by one table of weights on all swap codes.

    ``pair`` weighs a record that gets another value, from code to code, and ``floats`` is the table of these weights
    for some codes in double precision; ``kept`` gives the weights of 0, 1, ... records that keep a value, by its code
    and count, and all weigh 1 without it. Where weights are ``powers`` of distances, ``steps`` is the table of
    distances for some codes.
    """

    def __init__(
        self,
        pair: Pair,
        floats: Callable[[Counts], Floats],
        *,
        kept: Callable[[int, int], Sequence[Fraction]] | None = None,
        steps: Callable[[Counts], Counts] | None = None,
        powers: Sequence[Fraction] = (),
    ) -> None:
        self._pair, self._floats, self._kept, self._steps, self._powers = pair, floats, kept, steps, powers
        # Small strata are often alike.
        self._trees = lru_cache(maxsize=20_000)(self._tree_of)

    def __reduce__(self) -> tuple[Callable[[Pair, Callable[[Counts], Floats]], Flows], tuple[object, ...]]:
        # The laws that it remembers stay here: another process finds its own.
        again = partial(Flows, kept=self._kept, steps=self._steps, powers=self._powers)
        return again, (self._pair, self._floats)

    def of(self, values: Sequence[int], counts: Sequence[int]) -> FlowLaw:
        """Return the law of a stratum with these swap codes and their counts."""
        kept = self._kept
        own = None if kept is None else [kept(value, count) for value, count in zip(values, counts, strict=True)]

        def floats(order: list[int]) -> Floats:
            return self._floats(np.array([values[place] for place in order]))

        return FlowLaw(counts, lambda a, b: self._pair(values[a], values[b]), own, floats=floats)

    def draw(self, values: npt.NDArray[np.uint32], counts: Counts, words: WordReader) -> Flow:
        """Return the flow table of a stratum."""
        by_tree = self._by_tree(values.tolist(), counts.tolist()) if counts.size > 2 else None
        return (by_tree or self.of(values.tolist(), counts.tolist())).draw(words)

    def _by_tree(self, values: list[int], counts: list[int]) -> TreeLaw | None:
        found = self._tree(values)
        # Large strata with a few small values can be summed where a tree is too slow, and beyond its margin of error.
        if found is None or (sum(counts) > _LARGE and not _within_reach_of_tree(found[0], counts)):
            return None
        return TreeLaw(counts, *found)

    def _tree(self, values: list[int]) -> tuple[Tree, list[Fraction], Floats] | None:
        if self._steps is None:
            return None
        steps = self._steps(np.array(values))
        return (self._tree_of if len(values) > _LIKELY_ALIKE else self._trees)(steps.tobytes(), len(values))

    def _tree_of(self, steps: bytes, size: int) -> tuple[Tree, list[Fraction], Floats] | None:
        tree = tree_of(np.frombuffer(steps, dtype=np.int64).reshape(size, size))
        if tree is None:
            return None
        weights = tree.weights(self._powers)
        return tree, weights, np.array([float(weight) for weight in weights])

    def within_reach(self, values: list[int], counts: list[int]) -> bool:
        """Say whether the flow table of a stratum can be drawn exactly in a second or two."""
        if (len(counts) <= 2 and self._kept is None) or summable(counts):
            return True
        found = self._tree(values)
        return found is not None and _within_reach_of_tree(found[0], counts)

    def expected_moves(self, values: list[int], counts: list[int]) -> list[float]:
        """Return how many records of each value are expected to get another.

        In strata of more than a thousand records that can only be drawn by a tree, the number at the peak of the law.
        """
        law = self._expecting(values, counts)
        if law is not None:
            return [law.expected_moves(place) for place in range(len(counts))]
        return _moves_at_peak(np.array(counts, dtype=np.float64), self._floats(np.array(values)))

    def expected_total(self, values: list[int], counts: list[int]) -> float:
        """Return how many records of a stratum are expected to get another value."""
        law = self._expecting(values, counts)
        return sum(self.expected_moves(values, counts)) if law is None else law.expected_moves()

    def _expecting(self, values: list[int], counts: list[int]) -> FlowLaw | TreeLaw | None:
        """Return the law that tells the expected moves, or None where its peak must do."""
        if len(counts) > 2 and sum(counts) <= _LARGE and _WEAK < self._powers_apart < 1:
            by_tree = self._by_tree(values, counts)
            if by_tree is not None:
                return by_tree
        return self.of(values, counts) if (len(counts) <= 2 and self._kept is None) or summable(counts) else None

    @property
    def _powers_apart(self) -> float:
        """Return 1 - theta, the smallest weight of a leaf that a tree may have."""
        return float(1 - self._powers[1]) if len(self._powers) > 1 else 0.0


def _within_reach_of_tree(tree: Tree, counts: Sequence[int]) -> bool:
    steps, numbers, levels = tree.cost(counts)
    return steps <= _MOST_STEPS_OF_TREE and numbers <= _MOST_NUMBERS_OF_TREE and levels <= _MOST_LEVELS_OF_RECORDS


def summable(counts: Sequence[int]) -> bool:
    """Say whether a stratum is small enough to sum over all its flow tables.

    >>> summable([30, 30, 30]), summable([100_000, 5, 5]), summable([50, 50, 50, 50])
    (True, True, False)
    """
    *others, largest = sorted(counts)
    if not others:
        return True
    numbers = len(others) * (others[-1] + 1.0)
    for count in others:
        numbers *= count + 1
        if numbers > _MOST_NUMBERS:
            return False
    return numbers * len(others) * (others[-1] / 2 + 1) <= _MOST_STEPS and sum(others) + largest <= _MOST_RECORDS


def _moves_at_peak(counts: Floats, weights: Floats) -> list[float]:
    """Scale rows and columns of the weights to the counts: there the law of the flow table has its peak."""
    rows = columns = np.sqrt(counts)
    for _ in range(1_000):
        before = rows
        rows = counts / (weights @ columns)
        columns = counts / (rows @ weights)
        if np.allclose(rows, before, rtol=1e-9, atol=0):
            break
    return list((counts - rows * np.diag(weights) * columns).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSwap(Swap):
    """A swap that draws in each stratum how many records of each value get each value (R6, R11).

    Exact for two swap values at any size, for distances by levels in strata of thousands of records, and otherwise
    where a stratum is small enough to sum over all flow tables. Others are refused in the plan; there is no approximate
    sampler. ``farther`` is advice on settings that reach farther, where a member has any.
    """

    moved_get: ClassVar[str] = "another value"
    farther: ClassVar[str] = ""
    beforehand: ClassVar[str]  # the condition on what was declared

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, with the condition on what was declared."""
        promised = Swap.specification(self, universe)
        return replace(promised, assumptions=(*promised.assumptions, self.beforehand))

    @property
    @abstractmethod
    def declared_pairs(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return what was declared for pairs of swap values, by the name of the setting."""

    def premises(self, plan: SwapPlan) -> dict[str, str]:
        """Return checksums of the records as codes, and of what was declared for pairs of values."""
        declared = {name: json.dumps(pairs, sort_keys=True) for name, pairs in self.declared_pairs.items()}
        own = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in declared.items()}
        return Swap.premises(self, plan) | own

    @abstractmethod
    def _flows(self, swap: Coded) -> Flows:
        """Return the law of the flow tables for the swap codes of a file."""

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum; refuse strata out of reach."""
        flows, shares = self._flows(swap), np.zeros(len(strata.table))
        _require_reach(strata, flows, self.farther)
        for stratum, codes, counts in live_values(strata):
            shares[stratum] = flows.expected_total(codes, counts) / sum(counts)
        return shares

    def changed_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum."""
        margins, flows = strata.margins, self._flows(swap)
        parts = np.zeros(margins.count.size)
        begins = np.searchsorted(margins.stratum, np.arange(margins.strata))
        for stratum, codes, counts in live_values(strata):
            moves = np.array(flows.expected_moves(codes, counts)) / counts
            parts[begins[stratum] : begins[stratum] + len(counts)] = moves
        return parts

    def _kernel(self, plan: SwapPlan) -> Kernel:
        from stirred.mechanisms.swapping.flows.kernel import swap_flow_in_place

        live, flows = plan.strata.live_flags, self._flows(plan.swap)
        return partial(swap_flow_in_place, live=live, values=plan.swap.count, flows=flows)


def live_values(strata: Strata) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield each live stratum with its swap codes and their counts."""
    margins = strata.margins
    begins = np.searchsorted(margins.stratum, np.arange(margins.strata + 1)).tolist()
    for stratum in np.flatnonzero(strata.live_flags).tolist():
        here = slice(begins[stratum], begins[stratum + 1])
        yield stratum, margins.value[here].tolist(), margins.count[here].tolist()


def _require_reach(strata: Strata, flows: Flows, farther: str) -> None:
    """Refuse live strata that are too large to be drawn exactly."""
    beyond = [
        (sum(counts), len(counts), stratum)
        for stratum, codes, counts in live_values(strata)
        if not flows.within_reach(codes, counts)
    ]
    if not beyond:
        return
    records, present, largest = max(beyond)
    which = zip(strata.match, strata.table[largest].values, strict=True)
    named = ", ".join(f"{name} = {value}" for name, value in which)
    raise bad_plan(
        f"{number(len(beyond), 'stratum is', 'strata are')} too large to be drawn exactly; the largest"
        f"{f' ({named})' if named else ''} has {records:,} records of {present:,} swap values",
        where="match",
        remedy=f"match on more variables, swap among fewer areas, {farther}or use the "
        "conditioned-swap with a redraw_law",
    )
