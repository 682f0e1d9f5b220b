"""Calibration after the noise: noisy totals by class, the noisy count of each class and its public total.

With T the noisy total of a cell in a class, C the noisy count of the class (both by design weights) and N its public
total, a calibrated total is the sum of N T / C over classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stirred.spec.problems import Problem
from stirred.survey.estimates.classes import WHERE, Classes
from stirred.survey.estimates.queries import EstimateQueries, SurveyQuery

_SURE: Final = 3  # deviations of its noise below which a class count is too small to divide by


def smallest(count: SurveyQuery) -> float:
    """Return the smallest noisy class count to divide by: below it the noise could hide an empty class."""
    decay = math.exp(-float(count.loss / count.one))
    return _SURE * float(count.step) * math.sqrt(2 * decay) / (1 - decay)


def too_small(classes: Classes, count: SurveyQuery) -> Iterator[Problem]:
    """Yield the classes whose count would drown in its noise: public numbers alone tell."""
    least, remedy = smallest(count), "collapse it with another class, or give the counts a larger share under [adjust]"
    for row, size in zip(classes.frame.rows(), classes.sizes, strict=True):
        if size < 2 * least:
            noise = f"the count of class {' '.join(row)}, about {size:g}, would have noise of standard deviation "
            yield Problem(what=f"{noise}{least / _SURE:.4g}", where=WHERE, remedy=remedy)


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
