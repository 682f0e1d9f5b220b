"""The error a swap will make in a table, before running it.

Exact mean and variance of every swapped cell (swapping theory R18), added up over the strata. They need the true
cells: computed from the confidential file itself they are as confidential as it is, and settings chosen by them
depend on it. From another file, such as last year's or a synthetic one, or from the margins of each stratum alone,
which swapping publishes anyway, they are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.moments.class_laws import WITH_MOMENTS, Laws, cell_bounds, crossed_strata
from stirred.mechanisms.swapping.moments.conditioned_cells import conditioned_cells
from stirred.mechanisms.swapping.moments.staged import after_fine_stage, staged_moments
from stirred.mechanisms.swapping.rates import rate_for
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.two_stage import TwoStageSwap

SOURCES: Final = ("this-data", "other-data", "margins")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedError:
    """The error of a table before it is swapped.

    ``table`` has the variables, ``true``, ``mean``, ``variance``, ``bias`` and ``absolute_error``; mean and
    variance are exact, the expected absolute error takes the swapped cell as normal. ``source`` says whether the
    table comes from the confidential file itself (``this-data``: keep it inside) or from another one. From
    ``margins`` the cells are not looked at: ``true`` is then what independence inside the strata would give, so
    there is no bias and the error is that of chance alone.
    """

    table: pl.DataFrame
    source: str

    @property
    def mean_absolute_error(self) -> float:
        """Return the expected mean absolute error over the cells (normal approximation)."""
        return float(self.table["absolute_error"].mean() or 0.0)  # type: ignore[arg-type]

    @property
    def mean_absolute_percentage_error(self) -> float:
        """Return the expected mean of ``|error| / true`` over cells not empty in truth (normal approximation)."""
        full = self.table.filter(pl.col("true") > 0)
        return float((full["absolute_error"] / full["true"]).mean() or 0.0)  # type: ignore[arg-type]

    @property
    def root_mean_square_error(self) -> float:
        """Return the root of the expected mean squared error: exact."""
        squares = self.table.select((pl.col("bias") ** 2 + pl.col("variance")).mean()).item()
        return float(np.sqrt(squares or 0.0))

    @property
    def exact(self) -> bool:
        """Say whether swapping cannot change the table."""
        return not self.table.select((pl.col("bias") != 0) | (pl.col("variance") != 0)).to_series().any()

    @property
    def confidential(self) -> bool:
        """Say whether this must stay inside the agency."""
        return self.source == "this-data"


def expected_error(
    records: pl.DataFrame | pl.LazyFrame,
    swap: Swap,
    *,
    variables: Sequence[str],
    source: str,
    persons: pl.DataFrame | pl.LazyFrame | None = None,
    key: str | None = None,
) -> ExpectedError:
    """Return the error to expect in a table of ``variables`` when ``records`` are swapped.

    ``source`` must say where the records come from: ``this-data``, the file that will be swapped, or
    ``other-data``; ``margins`` uses only the margins of the strata. With ``persons``, linked by ``key``,
    variables of persons make it a table of persons.

    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("AABB"), "tenure": list("oorr")})
    >>> from stirred import PermutationSwap
    >>> swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    >>> found = expected_error(homes, swap, variables=["county", "tenure"], source="other-data")
    >>> found.table.select("county", "tenure", "true", pl.col("mean", "variance").round(6)).row(0)  # T33
    ('A', 'o', 2, 1.222222, 0.246914)
    """
    if source not in SOURCES:
        raise bad_plan(
            f"'{source}' does not say where the records come from",
            where="source",
            remedy=f"write one of {listed(SOURCES)}; from this data the result is confidential",
        )
    if swap.stratum_law not in WITH_MOMENTS:
        raise bad_plan(
            f"the error of the {swap.stratum_law} swap has no closed form",
            where="mechanism",
            remedy="leave the expected error out, or plan another member of the family",
        )
    frame, people = records.lazy(), None if persons is None else persons.lazy()
    there = frame.collect_schema().names()
    own = [name for name in variables if name not in there]
    known = [] if people is None else people.collect_schema().names()
    needed = [name for name in (*swap.match, *swap.swap) if name not in there]
    if unknown := list(dict.fromkeys([*needed, *(name for name in own if name not in known)])):
        raise bad_plan(
            f"no column {listed(unknown)}", where="variables", remedy=f"there are {listed([*there, *known])}"
        )

    def crossed(columns: Sequence[str], *, match: Sequence[str] = swap.match) -> pl.DataFrame:
        cells = crossed_strata(
            frame,
            match=match,
            hold=[name for name in variables if name not in swap.swap],
            swap=columns,
            persons=people if own else None,
            key=key,
        )
        return _independent(cells) if source == "margins" else cells

    cells = crossed([name for name in variables if name in swap.swap])
    if isinstance(swap, ConditionedSwap):
        found = _with_conditioned_moments(cells, crossed(swap.swap), swap)
    elif isinstance(swap, TwoStageSwap):
        fine = crossed([name for name in variables if name in swap.swap], match=swap.matched)
        found = _with_staged_moments(cells, fine, swap, interior=source != "margins")
    else:
        found = _with_moments(cells, swap)
    return ExpectedError(table=_errors(found, variables), source=source)


def _independent(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that independence inside the strata would give."""
    share = pl.col("__swap") / pl.col("__stratum")
    return cells.with_columns(
        (pl.col("__hold") * share).alias("__cell"), (pl.col("__hold_squares") * share).alias("__cell_squares")
    )


def _with_conditioned_moments(cells: pl.DataFrame, whole: pl.DataFrame, swap: ConditionedSwap) -> pl.DataFrame:
    """Add the moments of cells under the conditioned swap, where ``whole`` has them by all its swap values."""
    mean, variance = cells["__cell"].to_numpy().astype(np.float64), np.zeros(cells.height)
    strata = conditioned_cells(
        cells, whole, match=swap.match, swap=swap.swap, rates=_rates(cells, swap), law=swap.known_law
    )
    for stratum in strata:
        counts, rows = stratum.moments.counts, stratum.rows
        # What is beyond independence: no large numbers are subtracted from each other.
        away = stratum.members - counts @ stratum.members / counts.sum()
        shift = rows @ stratum.moments.moves @ away
        mean[stratum.places] = rows.sum(axis=1, keepdims=True) * (counts @ stratum.members / counts.sum()) + shift
        variance[stratum.places] = stratum.moments.second(rows, stratum.squares, away) - shift**2
    return _known_exactly(cells, mean, variance)


def _with_staged_moments(
    cells: pl.DataFrame, fine: pl.DataFrame, swap: TwoStageSwap, *, interior: bool
) -> pl.DataFrame:
    """Add the moments after two stages, from the cells of the fine strata."""
    names = [name for name in cells.columns if not name.startswith("__")]
    if not interior:
        # The swap values of a fine stratum are no invariant: every one of the coarse stratum, by its share there.
        rows = [name for name in fine.columns if name not in swap.swap and not name.startswith("__")]
        held = fine.select(*rows, "__stratum", "__hold", "__hold_squares").unique(rows)
        columns = [name for name in names if name in (*swap.match, *swap.swap)]
        share = (pl.col("__swap") / pl.col("__stratum")).alias("__share")
        shares = cells.select(*columns, share).unique(columns)
        on = [name for name in columns if name in swap.match]
        fine = held.join(shares, on=on, nulls_equal=True) if on else held.join(shares, how="cross")
        fine = fine.with_columns(
            (pl.col("__stratum") * pl.col("__share")).alias("__swap"),
            (pl.col("__hold") * pl.col("__share")).alias("__cell"),
            (pl.col("__hold_squares") * pl.col("__share")).alias("__cell_squares"),
        )
    after = after_fine_stage(fine, rate=Fraction(swap.fine_rate))
    mean, variance = staged_moments(cells, after, names=names, rates=_rates(cells, swap))
    return _known_exactly(cells, mean, variance)


def _with_moments(cells: pl.DataFrame, swap: Swap) -> pl.DataFrame:
    r, c, x, rr, xx = (
        cells[f"__{name}"].to_numpy().astype(np.float64)
        for name in ("hold", "swap", "cell", "hold_squares", "cell_squares")
    )
    laws = Laws.of(cells["__stratum"].to_numpy(), _rates(cells, swap), member=swap.stratum_law)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    return _known_exactly(cells, mean, variance)


def _known_exactly(cells: pl.DataFrame, mean: np.ndarray, variance: np.ndarray) -> pl.DataFrame:
    low, high = cell_bounds(cells)
    known = low == high  # such a cell cannot change; the formula leaves noise of floating point there
    return cells.with_columns(
        pl.Series("__mean", np.where(known, cells["__cell"].to_numpy(), mean)),
        pl.Series("__variance", np.where(known, 0.0, np.maximum(variance, 0.0))),
    )


def _rates(cells: pl.DataFrame, swap: Swap) -> list[Fraction]:
    """Return the rate of each cell's stratum: the last rule that fits its match values, or the default."""
    rules, default = swap.rules()
    if not rules:
        return [default] * cells.height
    rows = cells.select(swap.match).rows()
    found = {values: rate_for(dict(zip(swap.match, values, strict=True)), rules, default) for values in set(rows)}
    return [found[values] for values in rows]


def _errors(cells: pl.DataFrame, variables: Sequence[str]) -> pl.DataFrame:
    total = cells.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias("true"),
        pl.col("__mean").sum().alias("mean"),
        pl.col("__variance").sum().alias("variance"),
    )
    total = total.with_columns((pl.col("mean") - pl.col("true")).alias("bias")).sort(list(variables))
    absolute = mean_of_absolute_normal(total["bias"].to_numpy(), np.sqrt(total["variance"].to_numpy()))
    return total.with_columns(pl.Series("absolute_error", absolute))


def mean_of_absolute_normal(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return E|Y| of a normal Y: sd sqrt(2/pi) exp(-t^2/2) + mean erf(t/sqrt 2), t = mean/sd.

    >>> mean_of_absolute_normal(np.array([0.0, -3.0]), np.array([1.0, 0.0])).round(6).tolist()
    [0.797885, 3.0]
    """
    from math import erf, pi, sqrt

    t = np.divide(mean, sd, out=np.zeros_like(mean), where=sd > 0)
    inside = np.array([erf(value / sqrt(2)) for value in t.tolist()])
    spread: np.ndarray = sd * sqrt(2 / pi) * np.exp(-(t**2) / 2) + mean * inside
    return np.where(sd > 0, spread, np.abs(mean))
