"""Survey estimates: weighted totals, means, ratios and tables of a sample, with exact integer noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.tables.engine import declared_cells
from stirred.mechanisms.tables.query import TableAnswers
from stirred.spec.doubts import Doubt
from stirred.survey.estimates import checks, pictures, published, small
from stirred.survey.estimates.measure import ratio_steps, totals, values_of, variances
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.published import SurveyPlan


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
    law = small.law
    audit_universes = small.audit_universes
    audit_specification = small.audit_specification

    def file_notes(self, plan: Any) -> Sequence[str]:
        return ["There is no file of records: the promise is about the estimates alone."]
