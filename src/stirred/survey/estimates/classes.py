"""Post-strata: classes of the population with public totals, to which estimates are calibrated.

After the noise: with T the noisy total of a cell in a class, C the noisy count of the class (both by design weights)
and N its public total, a calibrated total is the sum of N T / C over classes. With the sampled counts n held fixed
the weights are N / n, and nothing is calibrated afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import missing_column
from stirred.data.problems import PlanError, listed
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, StirredError
from stirred.survey.estimates.settings import Adjust, Estimate
from stirred.survey.refusals import EmptyCell, refusal

if TYPE_CHECKING:
    from stirred.survey.estimates.queries import EstimateQueries, SurveyQuery

TOTAL: Final = "total"
_SURE: Final = 3  # deviations of its noise below which a class count is too small to divide by
_WHERE: Final = "adjust totals"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """The classes as texts, with the public total of each; and the sampled counts, where they are held fixed."""

    frame: pl.DataFrame
    totals: tuple[Fraction, ...]
    counts: tuple[int, ...] | None = None

    @property
    def sizes(self) -> npt.NDArray[np.float64]:
        return np.array([float(total) for total in self.totals])

    def decide(self, estimate: Estimate) -> bool:
        """Say whether the class of a record decides its cell."""
        return {*estimate.by, *estimate.where} <= {*self.frame.columns}

    def reaching(self, estimate: Estimate, cell: Mapping[str, str]) -> npt.NDArray[np.bool_]:
        """Return which classes records of a cell can be in.

        >>> sexes = Classes(frame=pl.DataFrame({"sex": ["f", "m"]}), totals=(Fraction(1), Fraction(2)))
        >>> sexes.reaching(Estimate(kind="total", variable="y", by=["sex"]), {"sex": "m"}).tolist()
        [False, True]
        """
        wanted = {**{name: [cell[name]] for name in estimate.by}, **estimate.where}
        shared = wanted.keys() & {*self.frame.columns}
        return np.array([all(row[name] in wanted[name] for name in shared) for row in self.frame.rows(named=True)])


def read_classes(adjust: Adjust, file: pl.DataFrame) -> tuple[Classes, npt.NDArray[np.int64]]:
    """Return the classes of a totals file, and that of each record; raise all problems at once."""
    if problems := [*_table_problems(adjust)]:
        raise PlanError(problems)
    assert adjust.totals.frame is not None
    table, by = adjust.totals.frame, list(adjust.poststrata)
    own = file.select(pl.col(name).cast(pl.String) for name in by)
    numbered = table.select(by).with_row_index("__class")
    found = own.join(numbered, on=by, how="left", maintain_order="left")["__class"]
    if found.null_count():
        absent = own.filter(found.is_null()).unique().sort(by)
        what = f"{absent.height} classes of the sample have no total, such as {' '.join(absent.row(0))}"
        problems.append(Problem(what=what, where=_WHERE, remedy="list every class that a record can be in",
                                public=f"{absent.height} classes of the sample have no total"))  # fmt: skip
    counts = np.bincount(found.drop_nulls().to_numpy(), minlength=table.height)
    sizes = tuple(fraction(given, where=_WHERE) for given in table[TOTAL])
    known = [*zip((" ".join(row) for row in table.select(by).rows()), sizes, counts.tolist(), strict=True)]
    if less := [name for name, size, count in known if size < count]:
        what = f"the total of class {listed(less)} is below the number of its records in the sample"
        problems.append(Problem(what=what, where=_WHERE, remedy="give units of the population"))
    held = tuple(counts.tolist()) if adjust.when == "counts-invariant" else None
    # After the noise an empty class is no error: a release that is refused for it would tell that no class is empty.
    if held and (empty := [name for name, _, count in known if not count]):
        remedy = "collapse it with another class, in the sample and in the totals"
        none = refusal(EmptyCell, f"no sampled record is in class {listed(empty)}", where=_WHERE, remedy=remedy)
        problems += none.problems
        if len(problems) == 1:
            raise none
    if problems:
        raise PlanError(problems)
    return Classes(frame=table.select(by), totals=sizes, counts=held), found.cast(pl.Int64).to_numpy()


def _table_problems(adjust: Adjust) -> Iterator[Problem]:
    table = adjust.totals.frame
    if table is None:
        yield Problem(what="the file of totals was not read", where=_WHERE, remedy="in Python give a data frame")
        return
    absent = [name for name in (*adjust.poststrata, TOTAL) if name not in table.columns]
    for name in absent:
        yield missing_column(name, table.columns, where=f"{adjust.totals.file} ({_WHERE})", role="totals")
    if absent:
        return
    keys = table.select(adjust.poststrata)
    if keys.is_empty() or any(keys[name].null_count() for name in keys.columns) or keys.is_duplicated().any():
        yield Problem(what="a class stands twice, or is not named", where=_WHERE, remedy="give each class one row")
    for place, given in enumerate(table[TOTAL].to_list(), start=1):
        if not _positive(given):
            yield Problem(what=f"{given!r} in row {place} is not a total above 0", where=_WHERE, remedy="correct it")


def _positive(given: Any) -> bool:
    try:
        return given is not None and fraction(given, where=_WHERE) > 0
    except StirredError:
        return False


# ---- after the noise


def smallest(count: SurveyQuery) -> float:
    """Return the smallest noisy class count to divide by: below it the noise could hide an empty class."""
    decay = math.exp(-float(count.loss / count.one))
    return _SURE * float(count.step) * math.sqrt(2 * decay) / (1 - decay)


def too_small(classes: Classes, count: SurveyQuery) -> Iterator[Problem]:
    """Yield the classes whose count would drown in its noise: public numbers alone tell."""
    least, remedy = smallest(count), "collapse it with another class, or give the counts a larger share under [adjust]"
    for row, size in zip(classes.frame.rows(), classes.sizes, strict=True):
        if size < 2 * least:
            told = f"the count of class {' '.join(row)}, about {size:g}, would have noise of standard deviation "
            yield Problem(what=f"{told}{least / _SURE:.4g}", where=_WHERE, remedy=remedy)


def ratios(classes: Classes, count: SurveyQuery, noisy: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return N / C of each class; a count below the smallest one counts as that."""
    found: npt.NDArray[np.float64] = classes.sizes / np.maximum(noisy * float(count.step), smallest(count))
    return found


class Calibration(NamedTuple):
    """A calibrated estimate, by how much a unit of each noise moves it (role, factor), and what divides its scores.

    It is of totals N T / C, divided by such totals of another variable, or by the public total of its classes.
    """

    estimate: float
    moved: tuple[tuple[str, float], ...]
    below: float


def calibrate(
    asked: EstimateQueries,
    classes: Classes,
    cell: Mapping[str, str],
    z: Mapping[str, Any],
    counts: Any,
    count: SurveyQuery,
) -> Calibration | None:
    """Return the estimate of a cell from noisy numbers by class; None where there is nothing to divide by."""
    mine, size = classes.reaching(asked.estimate, cell), classes.sizes
    ratio, there = ratios(classes, count, counts), counts * float(count.step)
    if (there[mine] <= smallest(count)).any():
        return None
    top = np.where(mine, z["top"] * float(asked.queries["top"].step), 0.0)
    rest, below, moved = top, 1.0, []
    if asked.estimate.kind == "mean" and not asked.is_ratio:
        below = float(size[mine].sum())
    if asked.is_ratio:
        bottom = np.where(mine, z["below"] * float(asked.queries["below"].step), 0.0)
        below = float(ratio @ bottom)
        if below <= 0:
            return None
    estimate = float(ratio @ top) / below
    if asked.is_ratio:
        rest = top - estimate * bottom
        moved += [("below", abs(estimate) * g / below) for g in ratio[mine]]
    moved += [("top", g / below) for g in ratio[mine]]
    moved += [("count", g * abs(r) / c / below) for g, r, c in zip(ratio[mine], rest[mine], there[mine], strict=True)]
    return Calibration(estimate, tuple(moved), below / float(ratio.max()))


def centres(
    asked: EstimateQueries, classes: Classes, cells: Sequence[Mapping[str, str]], noisy: Mapping[str, Any], counts: Any,
    count: SurveyQuery,
) -> npt.NDArray[np.int64]:  # fmt: skip
    """Return what scores are taken around, by cell and class in steps: the class's mean, the ratio, or 0.

    A cell that classes decide is centred class by class, which is what calibration gains. In others the gain is left
    out, and the variance is that of the weighted total.
    """
    found = np.zeros((len(cells), len(classes.totals)))
    if asked.ratio != (0, 0):
        there = np.maximum(counts * float(count.step), smallest(count))
        for place, cell in enumerate(cells):
            z = {role: own[place] for role, own in noisy.items()}
            if not asked.is_ratio:
                found[place] = z["top"] * float(asked.queries["top"].step) / there
            elif (own := calibrate(asked, classes, cell, z, counts, count)) is not None:
                found[place] = own.estimate
    steps = found * float(asked.fine * asked.below_grid / asked.grid)
    return np.rint(np.clip(steps, *asked.ratio)).astype(np.int64)
