"""The error a swap will make in a table, before running it.

Exact mean and variance of every swapped cell (swapping theory R18), added up over the strata. They need the true
cells: computed from the confidential file itself they are as confidential as it is, and settings chosen by them
depend on it. From another file, such as last year's or a synthetic one, or from the margins of each stratum alone,
which swapping publishes anyway, they are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import ExpectedError
from stirred.mechanisms.swapping.conditioned.mechanism import ConditionedSwap
from stirred.mechanisms.swapping.conditioned.moments import conditioned_cells
from stirred.mechanisms.swapping.core.rates import rate_for
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.mechanisms.swapping.core.swapping import Swapping
from stirred.mechanisms.swapping.layers.two_stage.mechanism import TwoStageSwap
from stirred.mechanisms.swapping.moments.class_laws import Array, Laws, cell_bounds, crossed_strata

SOURCES: Final = ("this-data", "other-data", "margins")


def expected_error(
    records: pl.DataFrame | pl.LazyFrame,
    swap: Swapping,
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
    if swap.no_closed_form:
        raise bad_plan(
            swap.no_closed_form,
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
        assert isinstance(swap, Swap)  # of the layers only two stages have a closed form
        found = _with_moments(cells, swap)
    summed = found.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias("true"),
        pl.col("__mean").sum().alias("mean"),
        pl.col("__variance").sum().alias("variance"),
    )
    return ExpectedError.of(summed, variables=variables, source=source)


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
    mean, variance = staged_moments(cells, after, names=names, rates=_rates(cells, swap.inner))
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


CARRIED = ("mean", "mean_squares", "variance")


def after_fine_stage(fine: pl.DataFrame, *, rate: Fraction) -> pl.DataFrame:
    """Add to the cells of the fine strata what they are after the fine stage: means, and the variance."""
    laws = Laws.of(fine["__stratum"].to_numpy(), [rate] * fine.height)
    n, r, rr, c, x, xx = _margins(fine)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    squares = rr * c / n + laws.kept * (xx - rr * c / n)
    found = zip(CARRIED, (mean, squares, np.maximum(variance, 0.0)), strict=True)
    return fine.with_columns(pl.Series(f"__after_{name}", values) for name, values in found)


def staged_moments(
    cells: pl.DataFrame, fine: pl.DataFrame, *, names: Sequence[str], rates: Sequence[Fraction | str]
) -> tuple[Array, Array]:
    """Return mean and variance of coarse cells, from the fine cells after the fine stage; ``names`` make a cell.

    The two stages commute in law, so the fine one may be thought of as the first. Its moments are those of one stage in
    every fine stratum; the coarse stage then acts on a table that is random, and its variance is quadratic in that
    table's cell. The proof is in docs/theory/moments.md (R13, R18).
    """
    after = [f"__after_{name}" for name in CARRIED]
    summed = fine.group_by(list(names)).agg(pl.col(after).sum())
    both = cells.join(summed, on=list(names), how="left", nulls_equal=True, maintain_order="left")
    x, xx, spread = (both[name].fill_null(0.0).to_numpy() for name in after)
    laws = Laws.of(cells["__stratum"].to_numpy(), rates)
    _, r, rr, c, _, _ = _margins(cells)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    return mean, variance + laws.kept_squares * spread


def _margins(cells: pl.DataFrame) -> list[Array]:
    names = ("stratum", "hold", "hold_squares", "swap", "cell", "cell_squares")
    return [cells[f"__{name}"].to_numpy().astype(np.float64) for name in names]
