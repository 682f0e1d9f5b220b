"""How many records each stratum has of each swap value: an invariant of every swap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.swapping.kernels.partition import Codes, Values

# Up to here a table of all strata by all swap values is counted in place.
_DENSE: Final = 1 << 26
# From so many rows on, loading compiled code pays.
_LARGE: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwapMargins:
    """The swap values present in each stratum and their counts, ordered by stratum."""

    stratum: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    strata: int

    @classmethod
    def of(cls, stratum: Codes, swap: Values, *, strata: int, values: int) -> SwapMargins:
        """Count.

        >>> homes, places = np.array([0, 0, 1], dtype=np.uint32), np.array([0, 1, 1], dtype=np.uint32)
        >>> SwapMargins.of(homes, places, strata=2, values=2).count.tolist()
        [1, 1, 1]
        """
        if stratum.size >= _LARGE:
            return cls._compiled(stratum, swap, strata=strata, values=values)
        if strata * values > _DENSE:
            return cls._sparse(stratum, swap, strata=strata)
        cells = np.bincount(stratum.astype(np.int64) * values + swap, minlength=strata * values)
        present = np.flatnonzero(cells)
        return cls(stratum=present // values, value=present % values, count=cells[present], strata=strata)

    @classmethod
    def _compiled(cls, stratum: Codes, swap: Values, *, strata: int, values: int) -> SwapMargins:
        from stirred.mechanisms.swapping.kernels.cells import Cells
        from stirred.mechanisms.swapping.kernels.parallel import Workers

        cells = Cells.by_value(stratum, swap, strata=strata, values=values, workers=Workers())
        occupied, begins, codes = cells.occupied()
        own = np.repeat(np.arange(strata), np.diff(begins))
        return cls(
            stratum=own, value=codes.astype(np.int64), count=cells.have[occupied].astype(np.int64), strata=strata
        )

    @classmethod
    def _sparse(cls, stratum: Codes, swap: Values, *, strata: int) -> SwapMargins:
        counted = pl.DataFrame({"stratum": stratum, "value": swap}).group_by("stratum", "value").len()
        parts = counted.sort("stratum", "value").cast(pl.Int64)
        columns = (parts[name].to_numpy() for name in ("stratum", "value", "len"))
        return cls(**dict(zip(("stratum", "value", "count"), columns, strict=True)), strata=strata)

    @property
    def values_present(self) -> npt.NDArray[np.int64]:
        """Return how many swap values each stratum has."""
        return np.bincount(self.stratum, minlength=self.strata)

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """Return the size of each stratum."""
        return np.bincount(self.stratum, weights=self.count, minlength=self.strata).astype(np.int64)

    def smallest(self, masses: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the places of the values with the smallest and second smallest mass of each stratum that has two.

        ``masses`` belong to the values of this table, in its order; only their order counts.
        """
        order = np.lexsort((masses, self.stratum))
        begin = np.searchsorted(self.stratum[order], np.flatnonzero(self.values_present >= 2))
        return order[begin], order[begin + 1]
