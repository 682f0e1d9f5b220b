"""Undo the bias of swapping: unbiased estimates, standard errors and intervals from published data alone.

Swapping theory R18: inside a stratum a swapped cell Z has mean e + lambda (X - e), where e is what independence
of the held and the swapped variable would give. Rate and margins are public, so e and lambda are, and
e + (Z - e)/lambda is an unbiased estimate of the true cell X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, TypeVar

import numpy as np
import polars as pl

from stirred.data.problems import bad_file, bad_plan, counted, listed
from stirred.inference.projection import onto_margins
from stirred.inference.released import SwappedRelease
from stirred.mechanisms.swapping.moments import CLASS_LAWS, Laws, crossed_strata

TOLERANCE: Final = 0.05
"""Strata with |lambda| below this keep their published counts: the noise would grow more than twentyfold."""

# Below this the variance cannot be estimated without bias; the estimated table is put into the formula instead.
_SQUARES_TOLERANCE: Final = TOLERANCE**2

Number = TypeVar("Number")
COUNT: Final = "count"


def corrected(published: Number, *, independent: Number, kept: Number) -> Number:
    """Return the unbiased estimate of one cell of one stratum, in whatever arithmetic it is given.

    >>> from fractions import Fraction
    >>> corrected(Fraction(1), independent=Fraction(1), kept=Fraction(2, 9))
    Fraction(1, 1)
    >>> corrected(1.5, independent=1.0, kept=0.5)
    2.0
    """
    return independent + (published - independent) / kept  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unswapped:
    """A corrected table.

    ``table`` has the variables, ``count`` as published, ``estimate`` (may be negative), ``standard_error``,
    the interval ``low`` to ``high``, and ``kept``: how much of the count comes from strata that could not be
    corrected. Their bias is unknown but bounded by the margins, and the interval contains these bounds.
    ``projected`` is there on request: the nearest table that the margins allow.
    """

    table: pl.DataFrame
    variables: tuple[str, ...]
    level: float
    tolerance: float
    exact: bool
    strata: int
    strata_kept: int

    @property
    def negative(self) -> int:
        """Return the number of cells whose estimate is below 0."""
        return int((self.table["estimate"] < 0).sum())

    @property
    def notes(self) -> list[str]:
        """Return in words what a reader of the numbers must know."""
        if self.exact:
            return ["Swapping leaves this table as it was: the published counts are exact."]
        notes = []
        if self.strata_kept:
            cells = int((self.table["kept"] > 0).sum())
            notes.append(
                f"{self.strata_kept:,} of {self.strata:,} strata keep nothing that could be corrected (|lambda| below "
                f"{self.tolerance:g}): their published counts stay, in {cells:,} cells, and the intervals are widened "
                "by what the margins allow there."
            )
        if self.negative:
            notes.append(
                f"{self.negative:,} estimates are negative. They are kept: setting them to 0 would bias every sum."
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
) -> Unswapped:
    """Return the unbiased estimate of a swapped table, with standard errors and intervals.

    ``table`` is a published table in long form (variables and ``count``) or only its variables; variables that
    persons have make it a table of persons. The intervals use the normal approximation; the variance is the
    exact one of R18, itself estimated without bias.

    >>> homes = pl.DataFrame({"size": [1, 1, 1, 1], "county": list("AABB"), "tenure": list("oorr")})
    >>> found = unswap(["county", "tenure"], SwappedRelease.of(homes, match=["size"], swap=["county"], rate="1/2"))
    >>> found.table.select("county", "tenure", "count", pl.col("estimate").round(6)).rows()
    [('A', 'o', 2, 5.5), ('A', 'r', 0, -3.5), ('B', 'o', 0, -3.5), ('B', 'r', 2, 5.5)]
    """
    if not 0 < level < 1:
        raise bad_plan(f"{level} is not between 0 and 1", where="level", remedy="write such as 0.95")
    if not 0 < tolerance <= 1:
        raise bad_plan(f"{tolerance} is not between 0 and 1", where="tolerance", remedy=f"write such as {TOLERANCE}")
    given = _as_text(table, where=where) if isinstance(table, pl.DataFrame) else None
    variables = [name for name in given.columns if name != COUNT] if given is not None else list(_names(table))
    release.check(variables, where=where)
    if release.member not in CLASS_LAWS:
        raise bad_plan(
            f"tables of the {release.member} swap have no closed form for their standard errors",
            where=where,
            remedy="use it as published; for the conditioned swap stirred.mechanisms.swapping.member_moments has "
            "expected tables and their inverse, in Python",
        )
    cells = _estimated(_strata_cells(variables, release), tolerance, release.member)
    found = _summed(cells, variables, level=level)
    if project:
        blocks = [name for name in variables if name in release.match]
        columns = [name for name in variables if name in release.swap]
        of_persons = any(name in release.person_variables for name in variables)
        found = onto_margins(found, variables=variables, blocks=blocks, columns=columns, columns_fixed=not of_persons)
    if given is not None:
        found = _checked(given, found, variables, where=where)
    names = ["count", "estimate", "standard_error", "low", "high", "kept", *(["projected"] if project else [])]
    kept = cells.filter(pl.col("__near"))
    return Unswapped(
        table=found.select(*variables, *names),
        variables=tuple(variables),
        level=level,
        tolerance=tolerance,
        exact=release.exact(variables),
        strata=release.strata.height,
        strata_kept=kept.select(release.match).n_unique() if release.match else min(kept.height, 1),
    )


def _names(table: pl.DataFrame | Sequence[str]) -> Sequence[str]:
    assert not isinstance(table, pl.DataFrame)
    return (table,) if isinstance(table, str) else table


def _as_text(table: pl.DataFrame, *, where: str) -> pl.DataFrame:
    """Return a published table with its variables as text and its counts as integers."""
    if COUNT not in table.columns:
        raise bad_file(
            f"there is no column {listed([COUNT])}",
            where=where,
            remedy=f"write the table in long form, variables and count; it has {listed(table.columns)}",
        )
    counts = table[COUNT].cast(pl.Int64, strict=False)
    if counts.null_count():
        rows = counts.is_null().arg_true()
        raise bad_file(
            f"counts are not whole numbers ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=f'{where} "{COUNT}"',
            remedy="use the table as published",
        )
    variables = [name for name in table.columns if name != COUNT]
    text = table.select(*(pl.col(name).cast(pl.String) for name in variables), counts)
    twice = text.select(variables).is_duplicated() if variables else pl.Series([False])
    if twice.any():
        rows = twice.arg_true()
        raise bad_file(
            f"cells occur more than once ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=where,
            remedy="add them up, or remove what repeats",
        )
    return text


def _strata_cells(variables: Sequence[str], release: SwappedRelease) -> pl.DataFrame:
    """Return the table's cells in every stratum, with the law of the stratum's swap."""
    own = [name for name in variables if name in release.person_variables]
    cells = crossed_strata(
        release.records,
        match=release.match,
        hold=[name for name in variables if name not in release.swap],
        swap=[name for name in variables if name in release.swap],
        persons=release.persons if own else None,
        key=release.key,
    )
    names = list(dict.fromkeys((*release.match, *variables)))
    cells = cells.with_columns(pl.col(name).cast(pl.String) for name in names)
    if not release.match:
        return cells.with_columns(pl.lit(release.strata["stratum_rate"][0]).alias("stratum_rate"))
    found = cells.join(release.strata, on=list(release.match), how="left", nulls_equal=True)
    if found["stratum_rate"].null_count():
        raise bad_file(
            "some records lie in strata that the list of strata does not have",
            where=f"{release.source} strata",
            remedy="use data and strata of the same release",
        )
    return found


def _estimated(cells: pl.DataFrame, tolerance: float, member: str) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum."""
    n, r, c, z, top, rr, zz = (
        cells[f"__{name}"].to_numpy().astype(np.float64)
        for name in ("stratum", "hold", "swap", "cell", "largest", "hold_squares", "cell_squares")
    )
    laws = Laws.of(cells["__stratum"].to_numpy(), cells["stratum_rate"].to_list(), member=member)
    # What the margins allow: the records of the column, or those outside it, have at most the largest weight.
    low, high = np.maximum(0.0, r - (n - c) * top), np.minimum(r, c * top)
    known, independent = low == high, r * c / n
    near = (np.abs(laws.kept) < tolerance) & ~known
    usable = ~near & ~known
    kept = np.where(usable, laws.kept, 1.0)
    estimate = np.where(usable, corrected(z, independent=independent, kept=kept), z)
    squares = np.where(usable, corrected(zz, independent=rr * c / n, kept=kept), zz)
    margins = {"hold": r, "hold_squares": rr, "swap": c}
    _, free = laws.moments(cell=estimate, cell_squares=squares, **margins)
    plain = np.clip(estimate, low, high)
    squares_plain = plain if np.array_equal(zz, z) else np.clip(squares, 0.0, rr)
    _, inside = laws.moments(cell=plain, cell_squares=squares_plain, **margins)
    plug_in = np.maximum(inside, 0.0) / kept**2
    # The variance of Z is a quadratic in X; with the estimate put in, its mean is (q / lambda^2) Var Z, so this
    # is unbiased for Var Z / lambda^2.
    q = laws.kept_squares
    unbiased = np.where(np.abs(q) < _SQUARES_TOLERANCE, plug_in, free / np.where(q == 0, 1.0, q))
    new = {
        "__near": near,
        "__estimate": estimate,
        "__variance": np.where(usable, unbiased, 0.0),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(near, low - z, 0.0),
        "__bias_high": np.where(near, high - z, 0.0),
        "__kept": np.where(near, z, 0.0).astype(np.int64),
        "__independent": independent,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())


def _summed(cells: pl.DataFrame, variables: Sequence[str], *, level: float) -> pl.DataFrame:
    """Add up the strata, which are swapped independently of each other."""
    total = cells.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias(COUNT),
        pl.col("__estimate").sum().alias("estimate"),
        pl.col("__kept").sum().alias("kept"),
        pl.col("__variance", "__plug_in", "__low", "__high", "__bias_low", "__bias_high", "__independent").sum(),
    )
    width = NormalDist().inv_cdf(0.5 + level / 2)
    variance = pl.when(pl.col("__variance") > 0).then("__variance").otherwise("__plug_in")
    error = variance.sqrt().alias("standard_error")
    return (
        total.with_columns(error)
        .with_columns(
            (pl.col("estimate") + pl.col("__bias_low") - width * pl.col("standard_error")).alias("low"),
            (pl.col("estimate") + pl.col("__bias_high") + width * pl.col("standard_error")).alias("high"),
        )
        .sort(list(variables))
    )


def _checked(given: pl.DataFrame, found: pl.DataFrame, variables: Sequence[str], *, where: str) -> pl.DataFrame:
    """Return the corrected cells in the order of the published table, if they are the cells of this release."""
    joined = given.rename({COUNT: "__given"}).join(
        found, on=list(variables), how="left", nulls_equal=True, maintain_order="left"
    )
    rest = [name for name in found.columns if name not in variables]
    joined = joined.with_columns(pl.col(name).fill_null(0) for name in rest)  # cells that no stratum allows are 0
    other = (joined["__given"] != joined[COUNT]).arg_true()
    if len(other):
        raise bad_file(
            f"{len(other):,} counts are not those of the released data "
            f"({counted(other.head(5).to_list(), total=len(other))})",
            where=f'{where} "{COUNT}"',
            remedy="use a table that was published with this bundle, unrounded and unchanged",
        )
    return joined.drop("__given")
