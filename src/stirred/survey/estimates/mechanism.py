"""Survey estimates: weighted totals, means, ratios and tables of a sample, with exact integer noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError, listed
from stirred.mechanisms.protocol import Progress, Settings
from stirred.mechanisms.tables.engine import COMPOSED, LAPLACE, UNPUBLISHED, TableMechanism, declared_cells
from stirred.mechanisms.tables.query import Ask
from stirred.spec.budget import Budget, Derived
from stirred.spec.domain import Domain
from stirred.spec.doubts import Doubt
from stirred.spec.exact import exact
from stirred.spec.given_numbers import finite_loss, fraction
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Invariant, Margin, Named, plural
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE
from stirred.spec.problems import placed
from stirred.spec.reliance import ONE_RUN
from stirred.spec.specification import Flavor, Specification
from stirred.survey.designs import SRSWOR, Design, design_from
from stirred.survey.estimates import checks, draw, pictures, published, small
from stirred.survey.estimates.classes import too_small
from stirred.survey.estimates.measure import all_columns, ratio_steps, totals, values_of, variances
from stirred.survey.estimates.published import VARIANCE, SurveyPlan
from stirred.survey.estimates.queries import EstimateQueries, Public, asked, split
from stirred.survey.estimates.settings import Estimate, SurveyEstimatesSettings, place
from stirred.survey.imputation import copies
from stirred.survey.sample_design import SurveyDesign
from stirred.survey.settings import Setting

ALONE: Final = "nothing of the sample is published but these estimates with noise, and what follows from them"
ASSUMPTIONS: Final = (
    ALONE,
    "estimates, bounds, grids, weights and domains were fixed beforehand, not read off the records",
    *UNPUBLISHED,
)
HELD: Final = {
    "population": "population of the survey, as far as it limits what a record can be",
    "frame": "frame of the survey: who could be drawn, and the weight of each",
    "sample": "sample: who was drawn, and the weight of each",
    "frame-variables": "frame variables of every unit: who is on the frame, strata, clusters and weights",
}
TOTALS: Final = "the totals of the classes are public, and were not computed from this sample"
SENSITIVITY: Final = "sensitivities of survey estimates (docs/theory/survey-estimates.md)"
AMPLIFIED: Final = "amplification by sampling (docs/theory/surveys.md)"


class SurveyEstimates(TableMechanism):
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
    settings_model: ClassVar[type[Settings]] = SurveyEstimatesSettings
    own_tables: ClassVar[bool] = True
    table_columns: ClassVar[tuple[str, ...]] = (*published.LABELS, *published.NUMBERS)

    def check_settings(self) -> None:
        if problems := [*checks.settings_problems(self)]:
            raise PlanError(problems)
        self.sample_loss  # noqa: B018

    @property
    def stage(self) -> Setting:
        """Return the setting: where the promise starts, and what is held fixed."""
        return checks.setting_of(self.setting)

    @property
    def loss(self) -> Fraction:
        return finite_loss(self.epsilon, where="epsilon")

    @property
    def design(self) -> Design | None:
        """Return how the sample was drawn, where that amplifies."""
        return design_from(dict(self.sampling)) if self.sampling else None

    @property
    def equal(self) -> bool:
        """Say whether the draw gives every unit the same weight, whatever the frame says."""
        return isinstance(self.design, SRSWOR)

    @cached_property
    def inner_loss(self) -> Fraction:
        """Return the loss on the sample, of one unit: composed first, then amplified once by the draw."""
        return self.loss if self.design is None else draw.inner_loss(self, self.design)

    @property
    def sample_loss(self) -> Fraction:
        """Return the loss that is split over the estimates.

        Where answers were copied, it is that of one record of the imputed file: all copies of a person count.
        """
        return self.inner_loss / self.copies

    attackers = cached_property(draw.beside)

    @property
    def grid(self) -> Fraction:
        """Return the number to whose multiples weights are rounded."""
        return fraction(self.weight_grid, where="weight_grid")

    @property
    def copies(self) -> int:
        """Return in how many records one person's answers stand at most."""
        return copies(self.imputation, self.donor_cap)

    @property
    def wanted(self) -> tuple[Estimate, ...]:
        """Return the estimates, after the counts of classes where noisy estimates are calibrated to them."""
        if not self.after_noise:
            return tuple(self.estimates)
        return (Estimate(kind="table", by=self.adjust.poststrata, share=self.adjust.share), *self.estimates)

    @property
    def after_noise(self) -> bool:
        return self.adjust is not None and self.adjust.when == "after-noise"

    @property
    def sample_columns(self) -> list[str]:
        more = [*(self.adjust.poststrata if self.adjust else ()), *([self.imputed] if self.imputed else [])]
        return [*dict.fromkeys([*all_columns(self.estimates), *more])]

    @property
    def paid(self) -> Fraction | None:
        """Return the share of a loss that a sampling variance gets."""
        return fraction(self.variance_share, where="variance_share") if self.variance == "paid" else None

    def asked(self, public: Public, sizes: Sequence[int]) -> tuple[EstimateQueries, ...]:
        """Return the estimates with their queries; ``sizes`` are their numbers of cells."""
        found: list[EstimateQueries] = []
        for each, cells, loss in zip(self.wanted, sizes, split(self.wanted, self.sample_loss), strict=True):
            counts = self.after_noise and not found  # of classes: by design weights, for the calibration alone
            own, paid = (replace(public, classes=None), None) if counts else (public, self.paid)
            with placed(place(each, self.estimates)):
                found.append(asked(each, own, cells=cells, loss=loss, paid=paid))
        if self.after_noise and public.classes and (small := [*too_small(public.classes, found[0].queries["top"])]):
            raise PlanError(small)
        return tuple(found)

    @property
    def coded_columns(self) -> Sequence[str]:
        return [*dict.fromkeys(name for each in self.estimates for name in each.by)]

    @property
    def declared_columns(self) -> Sequence[str]:
        return [*self.coded_columns, *(name for each in self.estimates for name in each.where)]

    @property
    def in_words(self) -> str:
        titles = listed([each.title for each in self.estimates])
        amplified = "" if self.design is None else f", by a sample drawn as {self.design}"
        return (
            f"Survey estimates: discrete Laplace noise on {titles}; epsilon {self.loss} in all, for one changed record "
            f"of the stage {self.stage.start}{amplified}. {VARIANCE[self.variance].capitalize()}. No records are "
            "published."
        )

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

    def specification(
        self,
        *,
        name: str,
        columns: Sequence[str],
        stage: str = "",
        post_imputation: bool | None = None,
        drawn: SurveyDesign | None = None,
    ) -> Specification:
        """Return the promise: replaced records of the setting's first stage, and what the setting holds fixed.

        Strata and weights by other columns of ``drawn`` are something else that is held fixed.
        """
        setting = self.stage
        held: list[Invariant] = []
        if setting.invariant:
            by = {"population": (), "frame-variables": ("strata", "ids", "fpc", "weights")}
            known = _by_columns(drawn, by.get(setting.invariant, ("fpc", "weights")))
            held.append(Named(name=f"survey {setting.invariant}{known}", description=HELD[setting.invariant]))
        if self.adjust is not None and not self.after_noise:
            held.append(Margin(of=self.unit, variables=tuple(self.adjust.poststrata)))
        elif self.variance != "none":
            # The name is what makes two of them the same; rows that were drawn one by one are no clusters.
            clustered = drawn is None or bool(drawn.ids)
            counts = f"number of sampled {'clusters' if clustered else plural(self.unit)} in each stratum"
            known = _by_columns(drawn, ("strata", "ids"))
            held.append(Named(name=f"survey clusters by stratum{known}", description=counts))
        parts = ", ".join(each.title for each in self.estimates)
        formula = f"the losses of {parts} added up"
        if self.design is not None:
            formula = (
                f"{formula} on the sample ({exact(self.sample_loss).shown()}), then amplified once by {self.design}"
            )
        if self.copies > 1:
            formula = f"{self.copies} times {formula}: so often one person's answers can stand in the file"
        vouched = [TOTALS] if self.adjust is not None else []
        vouched += [f"attested: {checks.ATTESTED[each]}" for each in self.attest]
        domain = Domain.of_file(name, stage=setting.start, record_types=(self.unit,), columns=tuple(columns))
        if setting.start != "sample":  # what comes before or after the sample is not the file itself
            domain = replace(domain, dataset=setting.domain)
        return Specification(
            flavor=Flavor(
                domain=domain,
                multiverse=Multiverse(invariants=tuple(held)),
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit, post_imputation=post_imputation),
                output_premetric=PURE,
            ),
            budget=Budget(policy=Derived(formula=formula, value=exact(self.loss))),
            assumptions=(*ASSUMPTIONS, *vouched),
            relies_on=(ONE_RUN,),
            theorem=(LAPLACE, SENSITIVITY, COMPOSED, *(() if self.design is None else (AMPLIFIED,))),
            settings_from=self.settings_from, alone=(ALONE,),
        )  # fmt: skip

    def answered(self, data: Microdata, plan: SurveyPlan, ask: Ask, progress: Progress) -> dict[str, pl.DataFrame]:
        """Return the estimates that follow from noisy numbers; what a variance is taken around is noisy itself."""
        return {published.ESTIMATES: published.published(self, plan, self.noisy(data, plan, ask))}

    def noisy(self, data: Microdata, plan: SurveyPlan, ask: Ask) -> dict[str, dict[str, Any]]:
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

    def warm(self) -> None:
        import stirred.randomness.noise_kernel  # noqa: F401

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


def _by_columns(drawn: SurveyDesign | None, roles: Sequence[str]) -> str:
    """Return by which columns of a design something is defined, for the name of an invariant."""
    given = {} if drawn is None else {role: getattr(drawn, role) for role in roles}
    said = [f"{role} {value if isinstance(value, str) else ', '.join(value)}" for role, value in given.items() if value]
    return f": {'; '.join(said)}" if said else ""
