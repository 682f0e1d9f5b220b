"""What some mechanisms can do besides releasing: swap before tables, give a loss for a rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.spec.exact import Exact

# ---- swaps --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A swap whose permutation of the records is drawn by the sizes of its strata alone, whatever the records hold.

    ``of`` are the columns that are exchanged between records with equal values ``within``. Noise on tables of the
    swapped file then has a promise of its own (swapping theory R15).
    """

    within: tuple[str, ...]
    of: tuple[str, ...]

    def crosses(self, columns: Collection[str]) -> bool:
        """Say whether a table of these columns crosses exchanged with held ones: the swap changes no other table."""
        return bool({*columns} & {*self.of}) and not {*columns} <= {*self.of, *self.within}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLosses:
    """How the loss for the file of a plan follows from one rate for all strata, in place of the plan's own.

    ``losses`` are those of several rates. ``gentlest`` is the smallest rate whose loss is at most epsilon, and refuses
    where there is none; ``reaching`` are all rates where the loss becomes epsilon, each with a fraction to use.
    """

    losses: Callable[[Sequence[Fraction]], list[tuple[Fraction, Exact]]]
    gentlest: Callable[[Exact], Fraction]
    reaching: Callable[[Exact], list[tuple[float, Fraction]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumAudit:
    """The loss that a mechanism really has on one stratum, and the bounds on it.

    ``sharp_bound`` is what the mechanism promises ``for_every`` such stratum, ``theorem_bound`` what was published
    before, and some stratum of this size loses at least ``existential_bound``. ``witness`` attains the loss; it prints
    itself, and ``facts`` has it for JSON.
    """

    exact_loss: Exact
    sharp_bound: Exact
    for_every: str
    tables: int
    witness: Any = None
    theorem_bound: Exact | None = None
    existential_bound: Exact | None = None

    @property
    def passed(self) -> bool:
        """Say whether the exact loss keeps within the sharp bound, and that within what was published."""
        within = self.theorem_bound is None or self.sharp_bound <= self.theorem_bound
        return self.exact_loss <= self.sharp_bound and within


# ---- what the tables of a swap follow from: its cells are foretold and corrected by these public facts ------------

Array = npt.NDArray[np.float64]
# The law of how many of so many records a swap moves at a rate: the numbers, and their chances.
NumberMoved = Callable[[int, Fraction], tuple[Array, Array]]
# ``uniform``, ``proportional``, or the declared probability of each swap value.
RedrawLaw = str | Mapping[str, Fraction]
# The settings of a second stage and where ``strata.parquet`` has them: the match variables as JSON, and the rate.
FINE_COLUMNS: Final = {"fine_match": "stratum_fine_match", "fine_rate": "stratum_fine_rate"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RedrawnCounts:
    """How many records of each swap value one stratum redraws: what all moments of its tables follow from.

    ``counts`` says how often each swap value occurs, ``moves`` is Phi, the chance that a record of one value gets
    another, and ``stay`` the chance that a record of each value is not selected. Given a number u the numbers selected
    are independent: ``shares`` weigh the values of u, ``once`` and ``twice`` are the same divided by k and by k(k-1), k
    the number selected in all; ``cumulants`` has the first four of the numbers selected given u: by order, u and value.
    """

    counts: Array
    shares: Array
    once: Array
    twice: Array
    cumulants: Array
    moves: Array
    stay: Array


# The same by the counts of the swap values of a stratum, the rate, and the chance to draw each value.
RedrawnStratum = Callable[[Sequence[int], Fraction, Sequence[Fraction]], RedrawnCounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCellLaw:
    """How a swap treats the cells of a table.

    ``rate_of`` gives the rate of a stratum by its match values. All permutations that move equally many records are
    equally likely, and ``moved`` is the law of that number; or values are ``redrawn`` from ``redraw_law``. A second
    swap may follow inside strata that also agree on ``fine_match``, at ``fine_rate``.
    """

    match: tuple[str, ...]
    swap: tuple[str, ...]
    rate_of: Callable[[Mapping[str, object]], Fraction]
    moved: NumberMoved | None = None
    redrawn: RedrawnStratum | None = None
    redraw_law: RedrawLaw | None = None
    fine_match: tuple[str, ...] = ()
    fine_rate: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapFamily:
    """What all swaps of a kind have in common, whatever their settings: swaps within strata, which are compared.

    They ask for households by single columns: those of a national file need not be in memory.

    ``scales`` are their settings by one number, from gentle to strong, where advice may propose them. Readers correct
    tables by the law of ``moved`` records, or by what is ``redrawn``; ``uncorrected`` says why they cannot, and what to
    do instead. With ``stratum_settings``, those that matter on one stratum and their defaults, a swap has
    ``stratum_audit(hold, swap)``: the ``StratumAudit`` by how often each held and each swapped value occurs.
    """

    scales: tuple[Any, ...] = ()
    moved: NumberMoved | None = None
    redrawn: RedrawnStratum | None = None
    uncorrected: tuple[str, str] | None = None
    stratum_settings: Mapping[str, str | None] | None = None
