"""Small samples on which the promise of survey estimates is checked by enumeration, and the exact law of each.

Where sampling amplifies, the promise on the sample is checked here; what the draw makes of it is checked by the linear
programme (`stirred survey audit-design`). Variances follow the published ratio; here it is held fixed, as composition
allows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.spec.budget import Budget, Derived
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction
from stirred.spec.shift_law import Noise, ShiftLaw
from stirred.spec.specification import Specification
from stirred.survey.estimates.classes import Classes
from stirred.survey.estimates.draw import weight_ends
from stirred.survey.estimates.measure import Rows, Values, nearest, totals, variances
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.queries import FINE, EstimateQueries, Public
from stirred.survey.estimates.settings import pair

_MOST: Final = 60  # files of one size: all pairs of them are compared


def _axes(mechanism: SurveyPromise) -> dict[str, list[Any]]:
    """Return what a record of a small sample can be: its weight, columns at their bounds, domains inside or outside."""
    axes: dict[str, list[Any]] = {"": [0, 1]}  # the smaller or the larger weight
    for each in mechanism.estimates:
        for name, bounds in ((each.variable, each.bounds), (each.denominator, each.denominator_bounds)):
            if name is not None:
                ends = [fraction(end, where="bounds") for end in bounds or ()]
                known = axes.get(name, [])
                axes[name] = sorted({min([*ends, *known]), max([*ends, *known])})
        for name in (*each.by, *each.where):
            axes.setdefault(name, [0, 1])
    if mechanism.adjust is not None:
        axes[""] = axes[""] if mechanism.after_noise else [0]  # weights follow the class
        axes |= {name: [0, 1] for name in mechanism.adjust.poststrata}
    return axes


def _sample(mechanism: SurveyPromise, records: Sequence[dict[str, Any]]) -> tuple[Rows, Public]:
    """Return the records as whole numbers, and what is public of them; totals of classes are made up."""
    n, grid = len(records), mechanism.grid
    low, high = (grid, 2 * grid) if mechanism.weight_bounds is None else pair(mechanism.weight_bounds, where="weights")
    ends = weight_ends(low, high, grid, mechanism.design)
    weights = np.array([ends[record[""]] for record in records], dtype=np.int64)
    public = Public(setting=mechanism.stage, n=n, weights=ends, weight_grid=grid, strata=(n,), equal=mechanism.equal)
    rows = Rows(weights=weights, cluster=np.arange(n), stratum=np.zeros(n, dtype=np.int64), drawn=(n,),
                left=(Fraction(1),))  # fmt: skip
    if mechanism.adjust is None:
        return rows, public
    by = list(mechanism.adjust.poststrata)
    known = [*product((0, 1), repeat=len(by))]
    of = np.array([known.index(tuple(record[name] for name in by)) for record in records], dtype=np.int64)
    frame = pl.DataFrame([list(map(str, each)) for each in known], schema=by, orient="row")
    if mechanism.after_noise:  # far above the noise of their counts
        classes = Classes(frame=frame, totals=(Fraction(10**12),) * len(known))
        return replace(rows, classes=of), replace(public, classes=classes)
    counts = tuple(np.bincount(of, minlength=len(known)).tolist())
    classes = Classes(frame=frame, totals=tuple(Fraction(6 * h + 6) for h in range(len(known))), counts=counts)
    steps = np.array([nearest(total / max(k, 1) / grid) for total, k in zip(classes.totals, counts, strict=True)])
    own = steps[of]
    return (
        replace(rows, weights=own, stratum=of, drawn=counts, left=(Fraction(1),) * len(known), classes=of),
        replace(public, weights=(int(own.min()), int(own.max())), strata=counts, classes=classes),
    )


def _values(asked: EstimateQueries, records: Sequence[dict[str, Any]]) -> Values:
    def steps(name: str | None, ends: tuple[int, int], grid: Fraction) -> Any:
        if name is None:
            return np.ones(len(records), dtype=np.int64)
        found = [min(max(round(r[name] / grid), ends[0]), ends[1]) for r in records]
        return np.array(found, dtype=np.int64)

    estimate = asked.estimate
    cell = [0] * len(records)
    for place, record in enumerate(records):
        for name in estimate.by:
            cell[place] = 2 * cell[place] + record[name]
        if not all(record[name] for name in estimate.where):
            cell[place] = -1
    return Values(
        y=steps(estimate.variable, asked.y, asked.grid), x=steps(estimate.denominator, asked.x, asked.below_grid),
        cell=np.array(cell, dtype=np.int64),
    )  # fmt: skip


def law(mechanism: SurveyPromise, dataset: Any) -> ShiftLaw:
    """Return the exact law of all numbers of a small sample."""
    names = [*_axes(mechanism)]
    records = [dict(zip(names, record, strict=True)) for record in dataset]
    rows, public = _sample(mechanism, records)
    centre: list[int] = []
    noises: list[Noise] = []
    for each in mechanism.asked(public, [2 ** len(e.by) for e in mechanism.wanted]):
        values = _values(each, records)
        numbers = dict(totals(each, rows, values))
        if "variance" in each.queries:
            middle: Any = [sum(each.ratio) // 2] * each.queries["variance"].cells
            factors = None
            if each.classes:
                middle = np.repeat(np.array(middle)[:, None], each.classes, axis=1)
                factors = FINE // np.arange(1, each.classes + 1)
            numbers["variance"] = variances(each, rows, values, middle, factors)
        for role, own in numbers.items():
            centre += own.ravel().tolist()
            noises += [each.queries[role].noise] * own.size
    return ShiftLaw(centre, noises)


def audit_universes(mechanism: SurveyPromise) -> list[list[Hashable]]:
    """Return small samples of one, two and three records, with all weights and values at their bounds."""
    axes = _axes(mechanism)
    records, names = [*product(*axes.values())], [*axes]
    kept = () if mechanism.adjust is None or mechanism.after_noise else mechanism.adjust.poststrata
    held = [names.index(name) for name in kept]
    found: list[list[Hashable]] = []
    for count in (1, 2, 3):
        samples = [*combinations_with_replacement(records, count)]
        if count > 2 and len(samples) > _MOST:
            break
        groups: dict[Any, list[Hashable]] = {}  # by how many records their classes have, where that is held fixed
        for sample in samples:
            groups.setdefault(tuple(sorted(tuple(record[k] for k in held) for record in sample)), []).append(sample)
        found += groups.values()
    return found


def audit_specification(mechanism: SurveyPromise, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for a small sample: the loss on the sample, before anything amplifies it."""
    promised = mechanism.specification(name="small", columns=[*_axes(mechanism)][1:])
    inner = Budget(
        policy=Derived(formula="the losses of the estimates on the sample", value=exact(mechanism.sample_loss))
    )
    return replace(promised, budget=inner)
