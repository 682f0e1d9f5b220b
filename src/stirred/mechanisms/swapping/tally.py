"""What a swap did, for the custodian's eyes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapTally:
    """Counts of one run of permutation swapping. INTERNAL: never release ``selected``.

    The number of records actually selected is not an invariant. Published beside the swapped data it
    voids the guarantee (docs/theory/conditions.md, condition 2: the loss becomes infinite). ``records``
    and ``strata`` are invariants.
    """

    records: int
    strata: int
    selected: int
