"""What a report shows of a release: tables, curves and bars, its first sentences, and how far off its numbers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import polars as pl

from stirred.data.natural import sort_naturally
from stirred.data.problems import PlanError
from stirred.spec.problems import Problem

# ---- blocks and sentences ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of a report; ``numbers`` names the columns that are set as numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line in a report: points (x, y), marked points, and the lowest point, with the titles of both axes."""

    points: tuple[tuple[float, float], ...]
    marked: tuple[tuple[float, float], ...] = ()
    least: tuple[float, float] | None = None
    x: str = "rate"
    y: str = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars in a report, side by side: (group, series, height), with the titles of both axes.

    ``stacked`` heights are parts of a whole and stand behind each other. On a ``log`` scale a bar has no length, and
    dots take their place. A ``note`` about a group stands next to its bar.
    """

    bars: tuple[tuple[str, str, float], ...]
    x: str
    y: str
    stacked: bool = False
    log: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Points of a report, or lines through them: (series, x, y), with the titles of both axes.

    ``rules`` are lines across, (what they mean, height); ``log`` names the axes, such as ``xy``, that are logarithmic.
    """

    points: tuple[tuple[str, float, float], ...]
    x: str
    y: str
    lines: bool = False
    rules: tuple[tuple[str, float], ...] = ()
    log: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """A picture of steps: (row, step, what it is there), one tile each, with the same colour for the same word."""

    tiles: tuple[tuple[str, str, str], ...]
    title: str


Picture = Curve | Bars | Plot | Tiles
Block = str | Grid | Picture  # a text is a paragraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the report beyond the common pages, from public facts alone: it is in both editions."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The first two sentences of a report: what leaves the agency unchanged, and what was disturbed and how much."""

    unchanged: str
    disturbed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Typical:
    """How far off published counts are: by the law and the public files, never by the truth.

    ``error`` is the root of the expected squared error, and nine in ten errors are at most ``within``. ``size`` says of
    which size the counts of a table are, ``cells`` how many; with ``at_least`` a part of the error is not known.
    """

    table: str
    error: float
    within: float
    size: str = "any size"
    cells: int = 0
    at_least: bool = False


# ---- accuracy ---------------------------------------------------------------------------------------------


class TooLargeError(PlanError):
    """A table whose errors would take too much memory or time, or more than what may be looked at, to compute."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedError:
    """The error of a table before it is disturbed.

    ``table`` has the variables, ``true``, ``mean``, ``variance``, ``bias`` and ``absolute_error``; mean and
    variance are exact, the expected absolute error takes the disturbed cell as normal. ``source`` says whether the
    table comes from the confidential file itself (``this-data``: keep it inside) or from another one. From
    ``margins`` the cells are not looked at: ``true`` is then what the published counts alone would give, so
    there is no bias and the error is that of chance alone.
    """

    table: pl.DataFrame
    source: str

    @classmethod
    def of(cls, cells: pl.DataFrame, *, variables: Sequence[str], source: str) -> Self:
        """Return the error of cells with the columns ``true``, ``mean`` and ``variance``."""
        if taken := [name for name in variables if name in ("bias", "absolute_error")]:
            what = f"a variable is called {taken[0]}, as a column of its errors is"
            raise TooLargeError([Problem(what=what, where="expected error", remedy="rename the column in the file")])
        found = sort_naturally(cells.with_columns((pl.col("mean") - pl.col("true")).alias("bias")), variables)
        absolute = mean_of_absolute_normal(found["bias"].to_numpy(), np.sqrt(found["variance"].to_numpy()))
        return cls(table=found.with_columns(pl.Series("absolute_error", absolute)), source=source)

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
        """Say whether the mechanism cannot change the table."""
        return not self.table.select((pl.col("bias") != 0) | (pl.col("variance") != 0)).to_series().any()

    @property
    def confidential(self) -> bool:
        """Say whether this must stay inside the agency."""
        return self.source == "this-data"


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
