"""The cells of a table under the conditioned swap, stratum by stratum, with the law of the stratum.

A table may sum over some of the swapped variables, but what happens to a record depends on all of them: every
stratum is taken apart by its whole swap values, and these are grouped into the columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.swapping.moments.class_laws import Array, TooLargeError
from stirred.mechanisms.swapping.moments.conditioned import ConditionedMoments
from stirred.spec.problems import Problem

Places = npt.NDArray[np.int64]

RedrawLaw = str | Mapping[str, Fraction]
"""``uniform``, ``proportional``, or the declared probability of each swap value."""

# Multiplications of the moments for one row, and in all: minutes.
_EACH: Final = 300
_MOST: Final = 1e12
# Laws of strata with few values are remembered: small strata are often alike.
_REMEMBERED: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StratumCells:
    """One stratum: ``rows`` and ``squares`` by whole swap values, which ``groups`` puts into columns of the table.

    ``places`` says where the cells of these columns stand in the table.
    """

    places: Places
    rows: Array
    squares: Array
    groups: Places
    moments: ConditionedMoments

    @property
    def members(self) -> Array:
        """Return which whole swap values each column of the table has: a row for each value."""
        return (self.groups[:, None] == np.arange(self.groups.max() + 1)).astype(np.float64)


def conditioned_cells(
    cells: pl.DataFrame,
    whole: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Sequence[str],
    rates: Sequence[Fraction | str],
    law: RedrawLaw,
) -> Iterator[StratumCells]:
    """Yield the strata of ``cells``, whose order ``rates`` follows.

    ``whole`` has the same table by all ``swap`` variables; both are made by ``crossed_strata``.

    >>> from stirred.mechanisms.swapping.moments.class_laws import crossed_strata
    >>> homes = pl.LazyFrame({"size": [1, 1, 1, 2], "county": list("AABB"), "tenure": list("orro")})
    >>> cells = crossed_strata(homes, match=["size"], hold=["tenure"], swap=["county"])
    >>> found = conditioned_cells(
    ...     cells, cells, match=["size"], swap=["county"], rates=["1/2"] * cells.height, law="uniform"
    ... )
    >>> next(found).rows.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    shared = [name for name in cells.columns if name in whole.columns and not name.startswith(("__", "stratum_"))]
    held = [name for name in shared if name not in swap and name not in match]
    placed = cells.select(*shared).with_row_index("__place")
    if shared:
        joined = whole.join(placed, on=shared, how="left", nulls_equal=True, maintain_order="left")
    else:
        joined = whole.with_columns(pl.lit(0).alias("__place"))
    joined = joined.with_columns(_runs(match).alias("__in"), _runs([*match, *held]).alias("__row"))
    _check_work(joined)
    places, numbers, squares, counts = (
        joined[f"__{name}"].to_numpy() for name in ("place", "cell", "cell_squares", "swap")
    )
    values = joined[swap[0]].cast(pl.String) if len(swap) == 1 else None
    starts = np.flatnonzero(np.diff(joined["__in"].to_numpy(), prepend=-1))
    in_row = joined["__row"].to_numpy()
    for start, end in zip(starts, [*starts[1:], joined.height], strict=True):
        size = int(np.searchsorted(in_row[start:end], in_row[start], side="right"))
        here = slice(start, end)
        place = places[here].reshape(-1, size).astype(np.int64)
        _, first, groups = np.unique(place[0], return_index=True, return_inverse=True)
        found = tuple(counts[start : start + size].tolist())
        rate = Fraction(rates[place[0, 0]])
        masses = _masses(found, law, None if values is None else values[start : start + size])
        make = _law if size <= _REMEMBERED else _law.__wrapped__
        yield StratumCells(
            places=place[:, first],
            rows=numbers[here].reshape(-1, size).astype(np.float64),
            squares=squares[here].reshape(-1, size).astype(np.float64),
            groups=groups,
            moments=make(found, rate, masses),
        )


def _runs(names: Sequence[str]) -> pl.Expr:
    return pl.struct(names).rle_id() if names else pl.lit(0, dtype=pl.UInt32)


def _check_work(joined: pl.DataFrame) -> None:
    sizes = joined.group_by("__in").agg(pl.len().alias("cells"), pl.col("__row").n_unique().alias("rows"))
    rows, values = (sizes["rows"].cast(pl.Float64), sizes["cells"] / sizes["rows"])
    work = float((_EACH * rows * values**2 + values**3).sum())
    if work > _MOST:
        raise TooLargeError(
            [
                Problem(
                    what=f"the moments of the conditioned swap need {work:.0e} multiplications for this table; "
                    f"{_MOST:.0e} take minutes",
                    where="variables",
                    remedy="ask for fewer held variables, or coarser ones",
                )
            ]
        )


def _masses(counts: tuple[int, ...], law: RedrawLaw, values: pl.Series | None) -> tuple[Fraction, ...]:
    if isinstance(law, str):
        if law == "uniform":
            return (Fraction(1, len(counts)),) * len(counts)
        return tuple(Fraction(count, sum(counts)) for count in counts)
    assert values is not None
    if missing := [str(value) for value in values if str(value) not in law]:
        raise bad_plan(
            f"no probability for {listed(missing[:5])}",
            where="redraw_law",
            remedy="give the law that the swap used, with every swap value that occurs",
        )
    return tuple(law[str(value)] for value in values)


@lru_cache(maxsize=10_000)
def _law(counts: tuple[int, ...], rate: Fraction, masses: tuple[Fraction, ...]) -> ConditionedMoments:
    return ConditionedMoments.of(counts, rate, masses)
