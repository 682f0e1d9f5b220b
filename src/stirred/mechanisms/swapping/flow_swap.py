"""What swaps share that draw the flow table of each stratum: reach, expected moves, and the exchange."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, number
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.laws.flows import Flows
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.shares import Shares
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import Swap, Values
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.randomness.entropy import Entropy
from stirred.spec.exact import Exact


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSwap(Swap):
    """A swap that draws in each stratum how many records of each value get each value (R6, R11).

    Exact for two swap values at any size, for distances by levels in strata of thousands of records, and otherwise
    where a stratum is small enough to sum over all flow tables. Others are refused in the plan; there is no approximate
    sampler. ``farther`` is advice on settings that reach farther, where a member has any.
    """

    moved_get: ClassVar[str] = "another value"
    farther: ClassVar[str] = ""

    @abstractmethod
    def _flows(self, swap: Coded) -> Flows:
        """Return the law of the flow tables for the swap codes of a file."""

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum; refuse strata out of reach."""
        flows, shares = self._flows(swap), np.zeros(len(strata.table))
        margins = margins_of(strata, swap)
        _require_reach(strata, margins, flows, self.farther)
        for stratum, codes, counts in live_values(strata, margins):
            shares[stratum] = flows.expected_total(codes, counts) / sum(counts)
        return shares

    def changed_shares(self, strata: Strata, swap: Coded, margins: SwapMargins) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum."""
        flows, parts = self._flows(swap), np.zeros(margins.count.size)
        begins = np.searchsorted(margins.stratum, np.arange(margins.strata))
        for stratum, codes, counts in live_values(strata, margins):
            moves = np.array(flows.expected_moves(codes, counts)) / counts
            parts[begins[stratum] : begins[stratum] + len(counts)] = moves
        return parts

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return nothing: there is no rate."""
        del plan, rates
        return []

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.kernels.flowing import swap_flow_in_place

        swap_flow_in_place(
            plan.strata.coded.codes,
            swapped,
            live=_flags(plan.strata),
            values=plan.swap.count,
            flows=self._flows(plan.swap),
            entropy=entropy.child(f"{self.member} swap"),
            threads=self.threads,
            progress=progress,
        )


def margins_of(strata: Strata, swap: Coded) -> SwapMargins:
    """Return how many records each stratum has of each swap value."""
    return SwapMargins.of(strata.coded.codes, swap.codes, strata=strata.coded.count, values=swap.count)


def _flags(strata: Strata) -> npt.NDArray[np.bool_]:
    return np.fromiter((stratum.live for stratum in strata.table), dtype=np.bool_, count=len(strata.table))


def live_values(strata: Strata, margins: SwapMargins) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield each live stratum with its swap codes and their counts."""
    begins = np.searchsorted(margins.stratum, np.arange(margins.strata + 1)).tolist()
    for stratum in np.flatnonzero(_flags(strata)).tolist():
        here = slice(begins[stratum], begins[stratum + 1])
        yield stratum, margins.value[here].tolist(), margins.count[here].tolist()


def _require_reach(strata: Strata, margins: SwapMargins, flows: Flows, farther: str) -> None:
    """Refuse live strata that are too large to be drawn exactly."""
    beyond = [
        (sum(counts), len(counts), stratum)
        for stratum, codes, counts in live_values(strata, margins)
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
