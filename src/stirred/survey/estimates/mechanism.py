"""Survey estimates: weighted totals, means, ratios and tables of a sample, with exact integer noise."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.tables.cells import declared_cells
from stirred.mechanisms.tables.query import TableAnswers
from stirred.spec.budget import Budget, Derived
from stirred.spec.doubts import Doubt
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction
from stirred.spec.shift_law import Noise, ShiftLaw
from stirred.spec.specification import Specification
from stirred.survey.estimates import checks, pictures, published
from stirred.survey.estimates.classes import Classes
from stirred.survey.estimates.draw import weight_ends
from stirred.survey.estimates.measure import (
    Rows,
    Values,
    nearest,
    ratio_steps,
    totals,
    values_of,
    variances,
)
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.published import SurveyPlan
from stirred.survey.estimates.queries import FINE, EstimateQueries, Public
from stirred.survey.estimates.settings import pair

_MOST: Final = 60  # files of one size: all pairs of them are compared


class SurveyEstimates(SurveyPromise):
    """Estimates of a sample with noise: a record of the setting's first stage is protected with ``epsilon`` in all.

    >>> from stirred.randomness.entropy import Entropy
    >>> sample = pl.DataFrame({"w": [2.0, 2.0, 4.0], "sex": ["f", "m", "f"], "age": [30, 40, 50]})
    >>> survey = SurveyEstimates(
    ...     epsilon=1, attest=["design-weights"], weight_bounds=[1, 5], variance="none",
    ...     estimates=[{"kind": "table", "by": ["sex"]}], values={"sex": ["f", "m"]},
    ... )
    >>> data = Microdata(households=sample, record="person", design={"weights": "w"})
    >>> survey.release(data, Entropy.from_os()).public["estimates"].height
    2
    """

    name: ClassVar[str] = "survey-estimates"
    title: ClassVar[str] = "survey estimates"
    own_tables: ClassVar[bool] = True
    table_columns: ClassVar[tuple[str, ...]] = (*published.LABELS, *published.NUMBERS)

    def check_settings(self) -> None:
        if problems := [*checks.settings_problems(self)]:
            raise PlanError(problems)
        self.sample_loss  # noqa: B018

    # ---- the promise and the act

    def draft(self, data: Microdata, *, doubts: bool) -> SurveyPlan:
        _, public = checks.sampled(self, data)
        declared = self.declared(data, self.coded_columns)
        cells = tuple(declared_cells(each.by, declared) for each in self.estimates)
        if self.after_noise and public.classes is not None:
            cells = (public.classes.frame, *cells)
        found = self.asked(public, [each.height if each.width else 1 for each in cells])
        used = [*dict.fromkeys([*self.sample_columns, *checks.design_of(data).columns])]
        return SurveyPlan(
            specification=self.specification(
                name=data.name, columns=used, post_imputation=data.post_imputation, drawn=checks.design_of(data)
            ),
            estimates=found,
            cells={each.title: own for each, own in zip(found, cells, strict=True)},
            public=public,
            dropped=tuple(name for name in data.households.columns if name not in used),
        )

    def doubts(self, data: Microdata, plan: SurveyPlan) -> Iterator[Doubt]:
        yield from dict.fromkeys(checks.clamping(self, data, checks.sampled(self, data)[0], plan.estimates))
        yield from pictures.notes(plan)

    def answered(
        self, data: Microdata, plan: SurveyPlan, ask: TableAnswers, progress: Progress
    ) -> dict[str, pl.DataFrame]:
        """Return the estimates that follow from noisy numbers; what a variance is taken around is noisy itself."""
        return {published.ESTIMATES: published.published(self, plan, self.noisy(data, plan, ask))}

    def noisy(self, data: Microdata, plan: SurveyPlan, ask: TableAnswers) -> dict[str, dict[str, Any]]:
        """Return the noisy numbers of each estimate by role."""
        rows, _ = checks.sampled(self, data)
        found: dict[str, dict[str, Any]] = {}
        counts = np.zeros(0, dtype=np.int64)
        for each in plan.estimates:
            cells = plan.cells[each.title]
            values = values_of(each, data.households, cells)
            clamped = {"clamped": [values.cut] * (cells.height if cells.width else 1)}
            noisy = {
                role: ask(each.queries[role], true, inside=clamped) for role, true in totals(each, rows, values).items()
            }
            if each is plan.class_counts:
                counts = noisy["top"]
            if "variance" in each.queries:
                around = plan.centred(each, cells, noisy, counts) if each.classes else (ratio_steps(each, noisy), None)
                noisy["variance"] = ask(each.queries["variance"], variances(each, rows, values, *around))
            found[each.title] = noisy
        return found

    def verified(self, title: str) -> dict[str, str]:
        return {"what": "every estimate, computed again", "result": "the true numbers with the noise"}

    check = checks.check
    verify_exact = checks.verify_exact
    audit_bundle = checks.audit_bundle
    files = published.files
    reading_tables = published.reading
    headline = pictures.headline
    sections = pictures.sections
    shown = pictures.shown
    inside = pictures.inside

    # ---- small samples, for audits
    # Where sampling amplifies, the promise on the sample is checked here; what the draw makes of it is checked by the
    # linear programme (`stirred survey audit-design`). Variances follow the published ratio; here it is held fixed, as
    # composition allows.

    def _axes(self) -> dict[str, list[Any]]:
        """Return what a record of a small sample can be: its weight, columns at their bounds, domain or not."""
        axes: dict[str, list[Any]] = {"": [0, 1]}  # the smaller or the larger weight
        for each in self.estimates:
            for name, bounds in ((each.variable, each.bounds), (each.denominator, each.denominator_bounds)):
                if name is not None:
                    ends = [fraction(end, where="bounds") for end in bounds or ()]
                    known = axes.get(name, [])
                    axes[name] = sorted({min([*ends, *known]), max([*ends, *known])})
            for name in (*each.by, *each.where):
                axes.setdefault(name, [0, 1])
        if self.adjust is not None:
            axes[""] = axes[""] if self.after_noise else [0]  # weights follow the class
            axes |= {name: [0, 1] for name in self.adjust.poststrata}
        return axes

    def _sample(self, records: Sequence[dict[str, Any]]) -> tuple[Rows, Public]:
        """Return the records as whole numbers, and what is public of them; totals of classes are made up."""
        n, grid = len(records), self.grid
        low, high = (grid, 2 * grid) if self.weight_bounds is None else pair(self.weight_bounds, where="weights")
        ends = weight_ends(low, high, grid, self.design)
        weights = np.array([ends[record[""]] for record in records], dtype=np.int64)
        public = Public(setting=self.stage, n=n, weights=ends, weight_grid=grid, strata=(n,), equal=self.equal)
        rows = Rows(weights=weights, cluster=np.arange(n), stratum=np.zeros(n, dtype=np.int64), drawn=(n,),
                    left=(Fraction(1),))  # fmt: skip
        if self.adjust is None:
            return rows, public
        by = list(self.adjust.poststrata)
        known = [*product((0, 1), repeat=len(by))]
        of = np.array([known.index(tuple(record[name] for name in by)) for record in records], dtype=np.int64)
        frame = pl.DataFrame([list(map(str, each)) for each in known], schema=by, orient="row")
        if self.after_noise:  # far above the noise of their counts
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

    def law(self, dataset: Any) -> ShiftLaw:
        """Return the exact law of all numbers of a small sample."""
        names = [*self._axes()]
        records = [dict(zip(names, record, strict=True)) for record in dataset]
        rows, public = self._sample(records)
        centre: list[int] = []
        noises: list[Noise] = []
        for each in self.asked(public, [2 ** len(e.by) for e in self.wanted]):
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

    def audit_universes(self) -> list[list[Hashable]]:
        """Return small samples of one, two and three records, with all weights and values at their bounds."""
        axes = self._axes()
        records, names = [*product(*axes.values())], [*axes]
        kept = () if self.adjust is None or self.after_noise else self.adjust.poststrata
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

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a small sample: the loss on the sample, before anything amplifies it."""
        promised = self.specification(name="small", columns=[*self._axes()][1:])
        inner = Budget(
            policy=Derived(formula="the losses of the estimates on the sample", value=exact(self.sample_loss))
        )
        return replace(promised, budget=inner)


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
