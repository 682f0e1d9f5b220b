"""What survey estimates promise: the loss of each estimate on the sample, what the draw makes of it, what is fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

from stirred.data.problems import PlanError, listed
from stirred.mechanisms.protocol import Settings
from stirred.mechanisms.tables.engine import COMPOSED, LAPLACE, UNPUBLISHED, TableMechanism
from stirred.spec.budget import Budget, Derived
from stirred.spec.domain import Domain
from stirred.spec.exact import exact
from stirred.spec.given_numbers import finite_loss, fraction
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Invariant, Margin, Named, plural
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE
from stirred.spec.problems import placed
from stirred.spec.specification import ONE_RUN, Flavor, Specification
from stirred.survey.amplify import deamplify
from stirred.survey.attackers import attackers
from stirred.survey.designs import SRSWOR, Design, Poisson, design_from
from stirred.survey.estimates.calibration import too_small
from stirred.survey.estimates.draw import strata_of, weight_ends
from stirred.survey.estimates.measure import all_columns
from stirred.survey.estimates.queries import FINE, EstimateQueries, Public, asked, split
from stirred.survey.estimates.settings import (
    ATTESTED,
    VARIANCE,
    Estimate,
    SurveyEstimatesSettings,
    pair,
    place,
    setting_of,
)
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


class SurveyPromise(TableMechanism):
    """What survey estimates publish and promise, from settings alone: nothing is estimated."""

    settings_model: ClassVar[type[Settings]] = SurveyEstimatesSettings

    @property
    def stage(self) -> Setting:
        """Return the setting: where the promise starts, and what is held fixed."""
        return setting_of(self.setting)

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
        return self.loss if self.design is None else self._inner_loss(self.design)

    @property
    def sample_loss(self) -> Fraction:
        """Return the loss that is split over the estimates.

        Where answers were copied, it is that of one record of the imputed file: all copies of a person count.
        """
        return self.inner_loss / self.copies

    @cached_property
    def attackers(self) -> tuple[tuple[str, str], ...]:
        """Return the loss before those who know more of the sample than its design, where it is amplified."""
        if self.design is None:
            return ()
        _, *found = attackers(exact(self.inner_loss), self.design, inner="substitute")
        more = [(each.name, each.epsilon.shown(6)) for each in found if float(each.epsilon) > float(self.loss)]
        return (("knows nothing", exact(self.loss).shown(6)), *more)

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

    # ---- where the draw amplifies: the loss on the sample, stratum by stratum
    # In a simple or stratified sample a unit of stratum h moves a weighted total by its own weight w_h, not by the
    # largest one. With ``shares[h]`` the part of the loss on the sample that such a unit can have, the frame loses
    # max over h of amp(inner shares[h], n_h/N_h) (docs/theory/survey-estimates.md).

    def shares(self, stated: Design) -> list[Fraction] | None:
        """Return the part of the loss on the sample of a unit of each stratum; None where no sharper rule is known."""
        strata = strata_of(stated)
        if strata is None or len(strata) == 1 or self.weight_bounds is None:
            return None
        if self.adjust or self.copies > 1:  # a copy may stand in another stratum
            return None
        least, most = weight_ends(*pair(self.weight_bounds, where="weight_bounds"), self.grid)
        taken = [n for n, _ in strata]
        steps = [min(max(math.ceil(Fraction(there, n) / self.grid), least), most) for n, there in strata]
        # All samples weigh the same, so a Hajek mean moves like a total; its noise is for the least they could weigh.
        weighed = Fraction(
            most + (sum(taken) - 1) * least, sum(n * max(w - 1, least) for n, w in zip(taken, steps, strict=True))
        )
        paid, found = self.paid or Fraction(0), []
        for w in steps:
            part, whole = Fraction(w, most), Fraction(1)
            mean, own = min(part * weighed + Fraction(1, FINE), whole), Fraction(0)
            for each, loss in zip(self.estimates, split(self.estimates, whole), strict=True):
                # The square of a score moves by the square of its part; rounding adds a step in each changed cell.
                spread = min(part * part + Fraction(2 if each.by else 1, FINE), whole)
                hajek = each.kind == "mean" and not (each.by or each.where)  # it also pays for the sum of its weights
                own += loss * ((1 - paid) * (mean if hajek else part) + paid * (max(part, spread) if hajek else spread))
            found.append(own)
        return found

    def _inner_loss(self, stated: Design) -> Fraction:
        """Return the largest loss on the sample with which the frame loses no more than is promised."""
        target = exact(self.loss)
        # The noise covers replaced records of a sample of fixed size: other designs are refused here.
        generic = deamplify(target, stated, setting=self.stage, inner="substitute").rational
        parts = self.shares(stated)
        if parts is None:
            return generic
        rates = stated.shape.units or (stated.shape.rate,)
        worst = {rate: max(p for p, own in zip(parts, rates, strict=True) if own == rate) for rate in rates}
        return max(generic, min(deamplify(target, Poisson((rate,))).rational / part for rate, part in worst.items()))

    # ---- the promise

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
        vouched += [f"attested: {ATTESTED[each]}" for each in self.attest]
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


def _by_columns(drawn: SurveyDesign | None, roles: Sequence[str]) -> str:
    """Return by which columns of a design something is defined, for the name of an invariant."""
    given = {} if drawn is None else {role: getattr(drawn, role) for role in roles}
    said = [f"{role} {value if isinstance(value, str) else ', '.join(value)}" for role, value in given.items() if value]
    return f": {'; '.join(said)}" if said else ""
