"""Undo the bias of swapping: unbiased estimates, standard errors and intervals from published data alone.

Swap theory R18: inside a stratum a swapped cell Z has mean e + lambda (X - e), where e is what independence
of the held and the swapped variable would give. Rate and margins are public, so e and lambda are, and
e + (Z - e)/lambda is an unbiased estimate of the true cell X. The conditioned swap has a matrix in place of lambda,
as public (``redrawn``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs

from stirred.data.bundle import stated_mechanism
from stirred.data.microdata import Microdata
from stirred.data.natural import sort_naturally
from stirred.data.problems import bad_file, bad_plan, number
from stirred.data.table_labels import labels_in, with_labels
from stirred.inference.cell_estimates import estimated_redrawn, estimated_shrunken, estimated_staged
from stirred.inference.swap_moments import crossed_strata
from stirred.inference.swapped_release import COUNT, SwappedRelease, as_text, matched, public_part
from stirred.mechanisms.protocol import Array, Mechanism, Release, SwapFamily, Table, TooLargeError
from stirred.mechanisms.registry import DEFAULT, mechanism_class
from stirred.spec.number_text import percent

TOLERANCE: Final = 0.05
"""Strata with ``|lambda|`` below this keep their published counts: the noise would grow more than twentyfold."""

SQUARED_ERROR: Final = "squared_error"
# What is beyond is noise of floating point.
_DECIMALS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorrectedTable:
    """A published table without the bias of its mechanism.

    ``table`` has the variables, ``count`` as published, ``estimate`` (may be negative), ``standard_error``,
    the interval ``low`` to ``high``, and ``kept``: how much of the count comes from strata that could not be
    corrected. Their bias is unknown but bounded by the margins, and the interval contains these bounds.
    No interval leaves what the margins allow, which is certain; an estimate may. ``projected`` is there on request:
    the nearest table that the margins allow. ``squared_error`` is an unbiased estimate of the expected squared error of
    each published count (of one cell it may be negative; none after two stages). ``added`` empty cells were not in the
    table that was given, and ``uninformative`` cells have an interval that says no more than the margins.
    """

    table: pl.DataFrame
    variables: tuple[str, ...]
    level: float
    tolerance: float
    exact: bool
    strata: int
    strata_kept: int
    swapped: bool
    added: int
    uninformative: int
    squared_error: pl.Series
    redrawn: bool = False
    first_kept: str = ""

    @property
    def _too_little(self) -> str:
        if self.redrawn:
            share = percent(self.tolerance, digits=6)
            return f"swap values that cannot be corrected (fewer than {share} of their records are left unselected)"
        return f"nothing that could be corrected (|lambda| below {self.tolerance:g})"

    @property
    def moved(self) -> float:
        """Return the share of the table's total that the correction moves to other cells."""
        moved = (self.table["estimate"] - self.table[COUNT]).abs().sum()
        return float(moved) / (2 * max(int(self.table[COUNT].sum()), 1))

    @property
    def negative(self) -> int:
        """Return the number of cells whose estimate is below 0."""
        return int((self.table["estimate"] < 0).sum())

    @property
    def values(self) -> dict[str, Any]:
        """Return what is said about it, for JSON."""
        errors = self.table["standard_error"]
        return {
            "variables": list(self.variables),
            "cells": self.table.height,
            "added": self.added,
            "swapped": self.swapped,
            "exact": self.exact,
            "level": self.level,
            "strata": self.strata,
            "strata_kept": self.strata_kept,
            "tolerance": self.tolerance,
            "moved": self.moved,
            "uninformative": self.uninformative,
            "negative": self.negative,
            "largest_standard_error": float(errors.max() or 0.0),  # type: ignore[arg-type]
            "projected": "projected" in self.table.columns,
            "notes": self.notes,
        }

    @property
    def notes(self) -> list[str]:
        """Return in words what a reader of the numbers must know."""
        notes = []
        if self.added:
            notes.append(
                f"{number(self.added, 'empty cell')} of the release {'was' if self.added == 1 else 'were'} not in the "
                "table: added at its end. What is empty after swapping need not have been empty before."
            )
        if not self.swapped:
            return [*notes, "Nothing was swapped: the published counts are exact."]
        if self.exact:
            return [*notes, "Swap leaves this table as it was: the published counts are exact."]
        if self.moved > 1:
            notes.append(
                f"The correction is useless: it moves {100 * self.moved:,.0f}% of the table's total, because the swap "
                "left too little of the table. Use the intervals, or a table of fewer cells."
            )
        if self.uninformative:
            notes.append(
                f"In {self.uninformative:,} of {number(self.table.height, 'cell')} the interval says no more than the "
                "margins of the strata: any count that they allow may be the true one."
            )
        if self.strata_kept:
            cells = int((self.table["kept"] > 0).sum())
            notes.append(
                f"{self.strata_kept:,} of {number(self.strata, 'stratum', 'strata')} "
                f"{'keeps' if self.strata_kept == 1 else 'keep'} {self._too_little} (first: {self.first_kept}): the "
                f"published counts stay, in {number(cells, 'cell')}, and the intervals are widened by what the margins "
                "allow there."
            )
        if self.negative:
            notes.append(
                f"{number(self.negative, 'estimate is', 'estimates are')} negative. Kept, because setting such "
                "estimates to 0 would bias every sum."
            )
        return notes


def unswap(
    table: pl.DataFrame | Sequence[str],
    release: SwappedRelease,
    *,
    level: float = 0.95,
    tolerance: float = TOLERANCE,
    project: bool = False,
    where: str = "table",
) -> CorrectedTable:
    """Return the unbiased estimate of a swapped table, with standard errors and intervals.

    ``table`` is a published table in long form (variables and ``count``) or only its variables; variables that
    persons have make it a table of persons. The variance is the exact one of R18, itself estimated without bias (of the
    conditioned swap in large strata: nearly). An interval holds the counts that agree with the estimate, by the
    variance it would have if they were true (``agreeing_counts``).

    >>> homes = pl.DataFrame({"size": [1, 1, 1, 1], "county": list("AABB"), "tenure": list("oorr")})
    >>> found = unswap(["county", "tenure"], SwappedRelease.of(homes, match=["size"], swap=["county"], rate="1/2"))
    >>> found.table.select("county", "tenure", "count", pl.col("estimate").round(6)).rows()
    [('A', 'o', 2, 5.5), ('A', 'r', 0, -3.5), ('B', 'o', 0, -3.5), ('B', 'r', 2, 5.5)]
    """
    if not 0 < level < 1:
        raise bad_plan(f"{level} is not between 0 and 1", where="level", remedy="write such as 0.95")
    if not 0 < tolerance <= 1:
        raise bad_plan(f"{tolerance} is not between 0 and 1", where="tolerance", remedy=f"write such as {TOLERANCE}")
    given = as_text(table, where=where) if isinstance(table, pl.DataFrame) else None
    variables = [name for name in given.columns if name != COUNT] if given is not None else list(_names(table))
    release.check(variables, where=where)
    cells = _corrected_cells(variables, release, tolerance, where=where)
    found = _summed(cells, variables, level=level)
    if project:
        blocks = [name for name in variables if name in release.match]
        columns = [name for name in variables if name in release.swap]
        of_persons = any(name in release.person_variables for name in variables)
        found = onto_margins(found, variables=variables, blocks=blocks, columns=columns, columns_fixed=not of_persons)
    added = 0
    if given is not None:
        found, added = matched(given, found, variables, where=where)
    names = [COUNT, "estimate", "standard_error", "low", "high", "kept", *(["projected"] if project else [])]
    kept, swapped = cells.filter(pl.col("__near")), bool(cells["__moves"].any())
    return CorrectedTable(
        # Adding 0 makes -0.0 the 0 it is.
        table=found.select(*variables, *names).with_columns(cs.float().round(_DECIMALS) + 0.0),
        squared_error=found.get_column(SQUARED_ERROR),
        variables=tuple(variables),
        level=level,
        tolerance=tolerance,
        exact=release.exact(variables) or not swapped,
        strata=release.strata.height,
        strata_kept=kept.select(release.match).n_unique() if release.match else min(kept.height, 1),
        swapped=swapped,
        added=added,
        uninformative=int(found["__uninformative"].sum()),
        redrawn=release.redraw_law is not None,
        first_kept=_first(kept, release.match),
    )


def correct(
    table: pl.DataFrame | Sequence[str],
    bundle: Path,
    *,
    level: float = 0.95,
    project: bool = False,
    where: str = "table",
) -> CorrectedTable:
    """Return the unbiased estimate of a table, with standard errors and intervals of a ``level``.

    ``table`` is a published table in long form (variables and ``count``) or only its variables, and ``bundle`` the
    folder of its release, or the public one in it. With ``project`` there is also the nearest table that the published
    margins allow. Labels of the table are kept.
    """
    public = public_part(bundle)
    stated = stated_mechanism(public)
    family = mechanism_class(DEFAULT if stated is None else stated.name).family or SwapFamily()
    if family.moved is None and family.redrawn is None:
        what, remedy = family.uncorrected or ("tables of this mechanism are not corrected", "use them as published")
        raise bad_file(what, where=str(public), remedy=remedy)
    found = unswap(table, SwappedRelease.read(public), level=level, project=project, where=where)
    labels = labels_in(table) if isinstance(table, pl.DataFrame) else {}
    beside = [name for name in found.table.columns if name not in found.variables]
    return replace(found, table=with_labels(found.table, labels, beside=beside)) if labels else found


def corrected_tables(
    mechanism: Mechanism, release: Release, data: Microdata, tables: Sequence[Table]
) -> dict[str, pl.DataFrame]:
    """Return by title the unbiased estimates of tables and squared errors, from what a release has for everybody."""
    law = mechanism.cell_law
    if law is None:
        return {}
    persons = data.persons is not None
    public = SwappedRelease.by_law(
        release.public["data"].lazy(),
        law,
        persons=release.public["persons"].lazy() if persons else None,
        key=data.hid if persons else None,
    )
    found = {}
    for table in tables:
        with suppress(TooLargeError):
            undone = unswap(table.variables, public)
            columns = {"estimate": COUNT, COUNT: "published", "kept": "kept"}
            own = undone.table.select(*table.variables, *(pl.col(name).alias(new) for name, new in columns.items()))
            found[table.title] = own.with_columns(undone.squared_error.alias(SQUARED_ERROR))
    return found


def _first(kept: pl.DataFrame, match: Sequence[str]) -> str:
    """Return the match values of the first stratum that keeps its counts."""
    values = zip(match, kept.select(match).row(0), strict=True) if kept.height and match else ()
    return ", ".join(f"{name} = {value}" for name, value in values) or "all records"


def _names(table: pl.DataFrame | Sequence[str]) -> Sequence[str]:
    assert not isinstance(table, pl.DataFrame)
    return (table,) if isinstance(table, str) else table


def _corrected_cells(
    variables: Sequence[str], release: SwappedRelease, tolerance: float, *, where: str
) -> pl.DataFrame:
    """Return the table's cells in every stratum, corrected by what the release's swap does on average."""
    release.check_correctable(where=where)
    cells, swap = _strata_cells(variables, release), [name for name in variables if name in release.swap]
    if release.redrawn is not None:
        return estimated_redrawn(
            cells,
            _crossed(variables, release, swap=release.swap),
            match=list(release.match),
            swap=list(release.swap),
            law=release.known_redraw_law(),
            redrawn=release.redrawn,
            tolerance=tolerance,
        )
    if release.fine_rate is None:
        return estimated_shrunken(cells, tolerance=tolerance, moved=release.moved)
    fine = _crossed(variables, release, swap=swap, match=(*release.match, *release.fine_match))
    return estimated_staged(cells, fine, fine_rate=release.fine_rate, tolerance=tolerance, moved=release.moved)


def _crossed(
    variables: Sequence[str], release: SwappedRelease, *, swap: Sequence[str], match: Sequence[str] | None = None
) -> pl.DataFrame:
    own = [name for name in variables if name in release.person_variables]
    cells = crossed_strata(
        release.records,
        match=release.match if match is None else match,
        hold=[name for name in variables if name not in release.swap],
        swap=swap,
        persons=release.persons if own else None,
        key=release.key,
    )
    return cells.with_columns(pl.col(name).cast(pl.String) for name in cells.columns if not name.startswith("__"))


def _strata_cells(variables: Sequence[str], release: SwappedRelease) -> pl.DataFrame:
    """Return the table's cells in every stratum, with the law of the stratum's swap."""
    cells = _crossed(variables, release, swap=[name for name in variables if name in release.swap])
    if not release.match:
        return cells.with_columns(pl.lit(release.strata["stratum_rate"][0]).alias("stratum_rate"))
    found = cells.join(release.strata, on=list(release.match), how="left", nulls_equal=True, maintain_order="left")
    if found["stratum_rate"].null_count():
        raise bad_file(
            "some records lie in strata that the list of strata does not have",
            where=f"{release.source} strata",
            remedy="use data and strata of the same release",
        )
    return found


def _summed(cells: pl.DataFrame, variables: Sequence[str], *, level: float) -> pl.DataFrame:
    """Add up the strata, which are swapped independently of each other."""
    likely = pl.col("__plain").clip(0) + pl.col("__independent")
    total = cells.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias(COUNT),
        pl.col("__estimate").sum().alias("estimate"),
        pl.col("__kept").sum().alias("kept"),
        _mean("__slope", by=likely.filter(pl.col("__plug_in") > 0)),
        _mean("__step", by=pl.col("__plug_in").filter(pl.col("__plug_in") > 0)),
        pl.col("__variance", "__plug_in", "__plain", "__low", "__high", "__bias_low", "__bias_high").sum(),
        # Z - X^ estimates the bias, but its square has its own variance in it: adding 2 Cov(Z, X^) - Var X^ makes
        # the sum unbiased for the expected squared error of Z, the published cell. Strata are independent.
        ((pl.col("__cell").sum() - pl.col("__estimate").sum()) ** 2 + pl.col("__shift").sum()).alias(SQUARED_ERROR),
        pl.col("__independent").sum(),
    )
    positive = pl.col("__variance") > 0
    total = total.with_columns(
        __used=pl.when(positive).then("__variance").otherwise("__plug_in"),
        __at=pl.when(positive).then("estimate").otherwise("__plain"),
    ).with_columns(standard_error=pl.col("__used").sqrt())
    low, high = agreeing_counts(
        total["estimate"].to_numpy(),
        variance=total["__used"].to_numpy(),
        at=total["__at"].to_numpy(),
        slope=total["__slope"].to_numpy(),
        step=total["__step"].to_numpy(),
        width=NormalDist().inv_cdf(0.5 + level / 2),
    )
    certain_low, certain_high = pl.col("__low"), pl.col("__high")
    first, last = pl.lit(pl.Series(low)) + pl.col("__bias_low"), pl.lit(pl.Series(high)) + pl.col("__bias_high")
    # The truth is certainly within the bounds of the margins, so cutting at them loses no coverage.
    cells = total.with_columns(
        first.clip(certain_low, certain_high).alias("low"),
        last.clip(certain_low, certain_high).alias("high"),
        pl.all_horizontal(certain_low < certain_high, first <= certain_low, last >= certain_high)
        .cast(pl.Int64)
        .alias("__uninformative"),
    )
    return sort_naturally(cells, variables)


def _mean(name: str, *, by: pl.Expr) -> pl.Expr:
    """Return the weighted mean over the strata whose cell can vary, 0 where there is none."""
    values = pl.col(name).filter(pl.col("__plug_in") > 0)
    return ((values * by).sum() / by.sum()).fill_nan(0.0).alias(name)


# From so many steps to a standard deviation on, less than the whole correction for whole numbers is made.
_FEW_STEPS: Final = 2.0


def agreeing_counts(
    estimate: Array, *, variance: Array, at: Array, slope: Array, step: Array, width: float
) -> tuple[Array, Array]:
    """Return the smallest and the largest count that agree with an estimate (R18).

    The variance of an estimate depends on the true count, nearly in a straight line: a record of the cell that may
    leave it, and one that may come in, add each its own. An interval around the estimate with the variance *at the
    estimate* is therefore too short where the estimate fell too low, which happens in rare cells. Here a count belongs
    to the interval if the estimate is within the usual number of standard deviations of it, with the variance *at that
    count* (Wilson's interval), and half a step of the estimate for its being a whole number of records (Yates'
    correction). Where a standard deviation is many steps, whole numbers matter less, and so much less of it is made.

    ``variance`` is that of the estimate if the true count is ``at``, and changes by ``slope`` with each further
    record. ``step`` is what one released record more adds to the estimate, and ``width`` how many standard deviations
    are allowed.

    >>> zero, one = np.zeros(1), np.ones(1)
    >>> low, high = agreeing_counts(zero, variance=one / 2, at=zero, slope=one, step=2 * one, width=1.96)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([-1.0], [6.0])
    """
    spread = np.sqrt(np.maximum(variance, 0.0))
    half = step / 2 * np.minimum(1.0, _FEW_STEPS * step / np.where(spread > 0, spread, 1.0))
    half = np.where(spread > 0, half, step / 2)
    return (
        estimate - half - _reach(variance + slope * (estimate - half - at), -slope, width),
        estimate + half + _reach(variance + slope * (estimate + half - at), slope, width),
    )


def _reach(variance: Array, slope: Array, width: float) -> Array:
    """Return the largest u with u^2 <= width^2 (variance + slope u), 0 where there is none."""
    linear = width**2 * slope
    inside = linear**2 + 4 * width**2 * variance
    return np.where(inside > 0, np.maximum(linear + np.sqrt(np.maximum(inside, 0.0)), 0.0) / 2, 0.0)


# ---- the nearest table that the margins allow ---------------------------------------------------------------

Free = npt.NDArray[np.bool_]

_ROUNDS: Final = 2_000
_CLOSE: Final = 1e-9  # of the largest count of the table


def onto_margins(
    table: pl.DataFrame,
    *,
    variables: Sequence[str],
    blocks: Sequence[str],
    columns: Sequence[str],
    columns_fixed: bool,
) -> pl.DataFrame:
    """Add ``projected``: inside the bounds ``__low`` to ``__high`` of every cell, with the margins of the estimate.

    Sums of the estimate over the swapped variables are exact, and so are (for tables of records, not of
    persons) those over the held ones, inside each block of equal match values. The projection keeps them.
    """
    held = [name for name in variables if name not in blocks and name not in columns]
    parts = table.partition_by(list(blocks)) if blocks else [table]
    done = [_block(part, rows=held, columns=columns, columns_fixed=columns_fixed) for part in parts]
    return sort_naturally(pl.concat(done), variables) if done else table.with_columns(projected="estimate")


def _block(part: pl.DataFrame, *, rows: Sequence[str], columns: Sequence[str], columns_fixed: bool) -> pl.DataFrame:
    row, i = _numbered(part, rows)
    column, j = _numbered(part, columns)

    def square(name: str) -> Array:
        full = np.zeros((i, j))
        full[row, column] = part[name].to_numpy()
        return full

    projected = project(
        square("estimate"),
        low=square("__low"),
        high=square("__high"),
        inside=square("__independent"),
        columns_fixed=columns_fixed,
    )
    return part.with_columns(pl.Series("projected", projected[row, column]))


def _numbered(part: pl.DataFrame, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], int]:
    if not names:
        return np.zeros(part.height, dtype=np.int64), 1
    code = part.select(pl.struct(names).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    return code, int(code.max()) + 1


def project(table: Array, *, low: Array, high: Array, inside: Array, columns_fixed: bool = True) -> Array:
    """Return the table nearest in least squares with the same margins, between ``low`` and ``high``.

    Dykstra's alternating projections; ``inside``, a table with these margins strictly between the bounds wherever
    they leave room, takes up what a finite number of rounds leaves over, so that the bounds hold exactly.

    >>> estimate = np.array([[5.5, -3.5], [-3.5, 5.5]])
    >>> half = np.ones((2, 2))
    >>> project(estimate, low=0 * half, high=2 * half, inside=half).round(9).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    free = high > low
    scale = max(float(np.abs(high).max()), 1.0)
    moved, correction = table.copy(), np.zeros_like(table)
    sums = (table.sum(axis=1), table.sum(axis=0))
    for _ in range(_ROUNDS):
        if np.all(moved >= low - _CLOSE * scale) and np.all(moved <= high + _CLOSE * scale):
            break
        wanted = moved + correction
        boxed = np.clip(wanted, low, high)
        correction = wanted - boxed
        moved = _with_sums(boxed, free, sums, columns_fixed=columns_fixed, close=_CLOSE * scale / 100)
    return _blended(moved, inside, low, high, free)


def _with_sums(table: Array, free: Free, sums: tuple[Array, Array], *, columns_fixed: bool, close: float) -> Array:
    """Return the nearest table with given sums of rows, and of columns, that changes only free cells."""
    in_row, in_column = np.maximum(free.sum(axis=1), 1), np.maximum(free.sum(axis=0), 1)
    for _ in range(_ROUNDS):
        table = table + free * ((sums[0] - table.sum(axis=1)) / in_row)[:, None]
        if not columns_fixed:
            break
        off = sums[1] - table.sum(axis=0)
        table = table + free * (off / in_column)[None, :]
        if np.abs(sums[0] - table.sum(axis=1)).max() <= close:
            break
    return table


def _blended(table: Array, inside: Array, low: Array, high: Array, free: Free) -> Array:
    """Go towards the inner table just as far as all cells need to be inside their bounds."""
    over = np.maximum(np.maximum(low - table, table - high), 0.0) * free
    room = np.abs(inside - table)
    share = float(np.max(np.where(over > 0, over / np.where(room > 0, room, 1.0), 0.0), initial=0.0))
    return np.clip(table + share * (inside - table), low, high)
