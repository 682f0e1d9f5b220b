"""Undo the bias of swapping: unbiased estimates, standard errors and intervals from published data alone.

Swapping theory R18: inside a stratum a swapped cell Z has mean e + lambda (X - e), where e is what independence
of the held and the swapped variable would give. Rate and margins are public, so e and lambda are, and
e + (Z - e)/lambda is an unbiased estimate of the true cell X. The conditioned swap has a matrix in place of lambda,
as public (``redrawn``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import polars as pl
import polars.selectors as cs

from stirred.data.problems import bad_file, bad_plan, number
from stirred.inference.projection import onto_margins
from stirred.inference.published import COUNT, as_text, matched
from stirred.inference.redrawn_cells import estimated_redrawn
from stirred.inference.released import SwappedRelease
from stirred.inference.shrunken_cells import estimated_shrunken
from stirred.inference.staged_cells import estimated_staged
from stirred.mechanisms.swapping.moments.class_laws import CLASS_LAWS, WITH_MOMENTS, crossed_strata

TOLERANCE: Final = 0.05
"""Strata with ``|lambda|`` below this keep their published counts: the noise would grow more than twentyfold."""

# What is beyond is noise of floating point.
_DECIMALS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unswapped:
    """A corrected table.

    ``table`` has the variables, ``count`` as published, ``estimate`` (may be negative), ``standard_error``,
    the interval ``low`` to ``high``, and ``kept``: how much of the count comes from strata that could not be
    corrected. Their bias is unknown but bounded by the margins, and the interval contains these bounds.
    No interval leaves what the margins allow, which is certain; an estimate may. ``projected`` is there on request:
    the nearest table that the margins allow. ``added`` empty cells were not in the table that was given, and
    ``uninformative`` cells have an interval that says no more than the margins.
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
    member: str = "permutation"
    first_kept: str = ""

    @property
    def _too_little(self) -> str:
        if self.member == "conditioned":
            share = f"{100 * self.tolerance:g}%"
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
            return [*notes, "Swapping leaves this table as it was: the published counts are exact."]
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
) -> Unswapped:
    """Return the unbiased estimate of a swapped table, with standard errors and intervals.

    ``table`` is a published table in long form (variables and ``count``) or only its variables; variables that
    persons have make it a table of persons. The intervals use the normal approximation; the variance is the
    exact one of R18, itself estimated without bias (of the conditioned swap in large strata: nearly).

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
    if release.member == "response":
        raise bad_plan(
            "the correction of a swap needs counts that are published exactly, and the response leaves some inexact",
            where=where,
            remedy="use the table as published; strata.parquet has the law of the response",
        )
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
    return Unswapped(
        # Adding 0 makes -0.0 the 0 it is.
        table=found.select(*variables, *names).with_columns(cs.float().round(_DECIMALS) + 0.0),
        variables=tuple(variables),
        level=level,
        tolerance=tolerance,
        exact=release.exact(variables) or not swapped,
        strata=release.strata.height,
        strata_kept=kept.select(release.match).n_unique() if release.match else min(kept.height, 1),
        swapped=swapped,
        added=added,
        uninformative=int(found["__uninformative"].sum()),
        member=release.member,
        first_kept=_first(kept, release.match),
    )


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
    staged = release.member == "two-stage"
    if release.member not in WITH_MOMENTS or (staged and release.fine_rate is None):
        raise bad_plan(
            "the release does not say what its second stage does"
            if staged
            else f"tables of the {release.member} swap have no closed form for their standard errors",
            where=where,
            remedy="use it as published",
        )
    cells, swap = _strata_cells(variables, release), [name for name in variables if name in release.swap]
    if release.member in CLASS_LAWS:
        return estimated_shrunken(cells, tolerance=tolerance, member=release.member)
    if release.member == "conditioned":
        return estimated_redrawn(
            cells,
            _crossed(variables, release, swap=release.swap),
            match=list(release.match),
            swap=list(release.swap),
            law=release.known_redraw_law(),
            tolerance=tolerance,
        )
    fine = _crossed(variables, release, swap=swap, match=(*release.match, *release.fine_match))
    return estimated_staged(cells, fine, fine_rate=str(release.fine_rate), tolerance=tolerance)


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
    total = cells.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias(COUNT),
        pl.col("__estimate").sum().alias("estimate"),
        pl.col("__kept").sum().alias("kept"),
        pl.col("__variance", "__plug_in", "__low", "__high", "__bias_low", "__bias_high", "__independent").sum(),
    )
    width = NormalDist().inv_cdf(0.5 + level / 2)
    variance = pl.when(pl.col("__variance") > 0).then("__variance").otherwise("__plug_in")
    error = variance.sqrt().alias("standard_error")
    certain_low, certain_high = pl.col("__low"), pl.col("__high")
    low = pl.col("estimate") + pl.col("__bias_low") - width * pl.col("standard_error")
    high = pl.col("estimate") + pl.col("__bias_high") + width * pl.col("standard_error")
    # The truth is certainly within the bounds of the margins, so cutting at them loses no coverage.
    return (
        total.with_columns(error)
        .with_columns(
            low.clip(certain_low, certain_high).alias("low"),
            high.clip(certain_low, certain_high).alias("high"),
            pl.all_horizontal(certain_low < certain_high, low <= certain_low, high >= certain_high)
            .cast(pl.Int64)
            .alias("__uninformative"),
        )
        .sort(list(variables))
    )
