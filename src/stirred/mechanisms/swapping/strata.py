"""The strata of a swap: who may exchange with whom, and which of them have anything to exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from stirred.data.codes import Coded, encode
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.exact import Exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One stratum as its invariants show it: size, liveness and the rate it is swapped at."""

    values: tuple[object, ...]
    records: int
    live: bool
    rate: Fraction

    @property
    def moved(self) -> float:
        """Return the expected share of records that get another record's swap values.

        With the redraw of Algorithm 1 this is p(1-(1-p)^(n-1)) / (1 - np(1-p)^(n-1)), not the
        numerator alone as section 3.3 has it (swapping theory R3.1).
        """
        n, p = self.records, float(self.rate)
        if n < 2:
            return 0.0
        stay = (1 - p) ** (n - 1)
        return p * (1 - stay) / (1 - n * p * stay)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strata:
    """All strata of a file, largest first; ``coded`` gives each record its stratum."""

    match: tuple[str, ...]
    coded: Coded
    table: tuple[Stratum, ...]

    @property
    def live(self) -> tuple[Stratum, ...]:
        """Return the strata with at least two hold values and two swap values (swapping theory R1)."""
        return tuple(stratum for stratum in self.table if stratum.live)

    @property
    def largest_live(self) -> Stratum | None:
        """Return the largest live stratum, or None if nothing can be swapped."""
        return max(self.live, key=lambda stratum: stratum.records, default=None)

    @property
    def policy(self) -> PermutationSwapping:
        """Return the budget as a function of the universe: the largest live stratum at each rate."""
        largest: dict[Fraction, int] = {}
        for stratum in self.table:
            size = stratum.records if stratum.live else 0
            largest[stratum.rate] = max(largest.get(stratum.rate, 0), size)
        return PermutationSwapping(
            strata=tuple(SwappedStrata(rate=rate, largest_stratum=size) for rate, size in sorted(largest.items()))
        )

    @property
    def moved(self) -> float:
        """Return the expected share of all records that get another record's swap values."""
        total = sum(stratum.records for stratum in self.table)
        return sum(stratum.records * stratum.moved for stratum in self.table) / total if total else 0.0

    def epsilon(self, rate: Fraction) -> Exact:
        """Return the loss if all strata were swapped at one rate."""
        size = self.largest_live.records if self.largest_live else 0
        return PermutationSwapping(strata=(SwappedStrata(rate=rate, largest_stratum=size),)).realised

    def frame(self) -> pl.DataFrame:
        """Return the strata as a table: match values, records, live, rate and expected share moved."""
        columns: dict[str, list[object]] = {name: [] for name in self.match}
        for stratum in self.table:
            for name, value in zip(self.match, stratum.values, strict=True):
                columns[name].append(value)
        frame = pl.DataFrame({name: pl.Series(values, strict=False) for name, values in columns.items()})
        return frame.with_columns(
            pl.Series("records", [s.records for s in self.table], dtype=pl.Int64),
            pl.Series("live", [s.live for s in self.table], dtype=pl.Boolean),
            pl.Series("rate", [str(s.rate) for s in self.table], dtype=pl.String),
            pl.Series("expected_share_moved", [s.moved for s in self.table], dtype=pl.Float64),
        )


def find_strata(
    households: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Coded,
    hold: pl.Series,
    hold_frame: pl.DataFrame,
    rates: Sequence[tuple[dict[str, object], Fraction]],
    rate: Fraction,
) -> Strata:
    """Return the strata by the match variables.

    ``hold`` is a 64-bit fingerprint of each record's hold value. Different fingerprints prove
    different values; where a whole stratum has one fingerprint its values are compared themselves.
    """
    coded = encode(households, list(match))
    summary = (
        pl.DataFrame({"stratum": coded.codes, "swap": swap.codes, "hold": hold})
        .group_by("stratum")
        .agg(
            pl.len().alias("records"),
            (pl.col("swap").min() != pl.col("swap").max()).alias("swaps"),
            (pl.col("hold").min() != pl.col("hold").max()).alias("holds"),
        )
        .sort("stratum")
    )
    holds = _confirmed(summary, coded, hold_frame)
    live = holds & summary["swaps"].to_numpy()
    values = coded.levels.rows() if match else [()]
    table = [
        Stratum(
            values=tuple(row),
            records=int(records),
            live=bool(alive),
            rate=_rate_for(dict(zip(match, row, strict=True)), rates, rate),
        )
        for row, records, alive in zip(values, summary["records"], live, strict=True)
    ]
    return Strata(match=tuple(match), coded=coded, table=tuple(table))


def _confirmed(summary: pl.DataFrame, coded: Coded, hold_frame: pl.DataFrame) -> np.ndarray:
    """Return which strata have two hold values; equal fingerprints are checked against the values."""
    holds = summary["holds"].to_numpy().copy()
    doubtful = np.flatnonzero(~holds & (summary["records"].to_numpy() > 1) & summary["swaps"].to_numpy())
    if not doubtful.size or not hold_frame.width:
        return holds
    wanted = np.zeros(coded.count, dtype=np.bool_)
    wanted[doubtful] = True
    rows = wanted[coded.codes]
    exact = (
        hold_frame.filter(rows)
        .with_columns(pl.Series("__stratum", coded.codes[rows]))
        .unique()
        .group_by("__stratum")
        .len()
    )
    several = exact.filter(pl.col("len") > 1)["__stratum"].to_numpy()
    holds[several] = True
    return holds


def _rate_for(
    values: dict[str, object], rates: Sequence[tuple[dict[str, object], Fraction]], default: Fraction
) -> Fraction:
    """Return the rate of the last rule that fits the match values, or the default."""
    chosen = default
    for wanted, rate in rates:
        if all(str(values[name]) == str(value) for name, value in wanted.items()):
            chosen = rate
    return chosen
