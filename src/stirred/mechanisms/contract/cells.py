"""What the tables of a swap follow from: its cells can be foretold and corrected by these public facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

NumberMoved = Callable[[int, Fraction], tuple[Array, Array]]
"""The law of how many of so many records a swap moves at a rate: the numbers, and their chances."""

RedrawLaw = str | Mapping[str, Fraction]
"""``uniform``, ``proportional``, or the declared probability of each swap value."""

FINE_COLUMNS: Final = {"fine_match": "stratum_fine_match", "fine_rate": "stratum_fine_rate"}
"""The settings of a second stage and where ``strata.parquet`` has them: the match variables as JSON, and the rate."""


class RedrawnMoments(Protocol):
    """How values are redrawn in one stratum."""

    def __hash__(self) -> int: ...
    @property
    def counts(self) -> Array:
        """Return how often each swap value occurs."""
        ...

    @property
    def moves(self) -> Array:
        """Return the chance that a record of one value gets another."""
        ...

    @property
    def stay(self) -> Array:
        """Return the chance that a record of each value is not selected."""
        ...

    def second(self, rows: Array, squares: Array, weights: Array, *, pairs: Array | None = None) -> Array:
        """Return E[(sum over s of weights Z_s)^2] for rows of a table (one each) and weights (a column each)."""
        ...

    def alike(self, weights: Array) -> Array:
        """Return E[w(y_i) w(y_j)] for two records of the same swap value: for each value, its own column of weights."""
        ...


RedrawnStratum = Callable[[Sequence[int], Fraction, Sequence[Fraction]], RedrawnMoments]
"""The moments of a stratum by the counts of its swap values, the rate, and the chance to draw each value."""


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
