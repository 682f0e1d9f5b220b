"""What some mechanisms can do besides releasing: swap before tables, give a loss for a rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan
from stirred.spec.exact import Exact

# ---- swaps --------------------------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A swap whose permutation of the records is drawn by the sizes of its strata alone, whatever the records hold.

    ``of`` are the columns that are exchanged between records with equal values ``within``. Noise on tables of the
    swapped file then has a promise of its own (swapping theory R15).
    """

    within: tuple[str, ...]
    of: tuple[str, ...]

    def crosses(self, columns: Collection[str]) -> bool:
        """Say whether a table of these columns crosses exchanged with held ones: the swap changes no other table."""
        return bool({*columns} & {*self.of}) and not {*columns} <= {*self.of, *self.within}


def tunable(mechanism: Any) -> Any:
    """Return a mechanism whose rate decides its loss, or None; refuse one with a rate that does not decide it alone.

    Its ``rate_reaching(plan, epsilon)`` is the gentlest rate whose loss is at most ``epsilon``, and refuses where there
    is none; ``rates_reaching`` are all rates where the loss becomes ``epsilon``, each with a fraction to use.
    """
    if mechanism.untunable is not None:
        what, remedy = mechanism.untunable
        raise bad_plan(what, where="epsilon", remedy=remedy)
    return mechanism if hasattr(mechanism, "rate_reaching") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumAudit:
    """The loss that a mechanism really has on one stratum, and the bounds on it.

    ``sharp_bound`` is what the mechanism promises ``for_every`` such stratum, ``theorem_bound`` what was published
    before, and some stratum of this size loses at least ``existential_bound``. ``witness`` attains the loss; it prints
    itself, and ``facts`` has it for JSON. A mechanism that can be audited so has ``stratum_audit(hold, swap)``, of how
    often each held and each swapped value occurs, and ``stratum_settings``, the settings that matter there.
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
