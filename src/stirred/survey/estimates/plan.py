"""The plan of survey estimates: each with its loss, its noise and what is said of the sampling error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from stirred.data.problems import number
from stirred.mechanisms.protocol import Fact
from stirred.mechanisms.tables.engine import TablePlan
from stirred.spec.exact import Exact, exact
from stirred.survey.design import Design
from stirred.survey.estimates.classes import centres, ratios
from stirred.survey.estimates.queries import FINE, EstimateQueries, Public

VARIANCE = {
    "paid": "the sampling variance is estimated, with noise of its own",
    "public-bound": "the sampling error is a public bound, larger than the true one",
    "none": "the sampling error is not published: intervals cover the noise alone",
}
ROLES = {"top": "total", "below": "denominator", "weight": "sum of weights", "variance": "sampling variance"}


def text_rows(cells: pl.DataFrame) -> list[dict[str, str]]:
    """Return the cells of an estimate, their values as texts; without variables there is one."""
    return cells.cast(pl.String).rows(named=True) if cells.width else [{}]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SurveyPlan(TablePlan):
    """What would be published; nothing random has happened."""

    estimates: tuple[EstimateQueries, ...]
    cells: tuple[pl.DataFrame, ...] = field(repr=False)
    public: Public
    variance: str
    inner: Exact
    attackers: tuple[tuple[str, str], ...] = ()
    drawn_by: Design | None = None
    shares: tuple[Fraction, ...] = ()
    sample: str | None = None

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of domains: no other column of the file is published."""
        return {"households": [*dict.fromkeys(name for each in self.estimates for name in each.estimate.by)]}

    @property
    def publishes_fixed(self) -> bool:
        """Say that of what is fixed only counts of classes are published: frame and weights stay inside."""
        return self.public.held

    @property
    def disturbed(self) -> str:
        """Say that only estimates with noise are published."""
        count = sum(each.height if each.width else 1 for each in self.cells)
        after = "" if self.class_counts is None else ", calibrated to public totals afterwards"
        return f"{number(count, 'estimate')} with noise{after}; {VARIANCE[self.variance]}; no records are published"

    @property
    def class_counts(self) -> EstimateQueries | None:
        """Return the counts of classes, to which noisy estimates are calibrated; they come first."""
        return self.estimates[0] if self.public.classes is not None and not self.public.held else None

    def centred(
        self, asked: EstimateQueries, cells: pl.DataFrame, noisy: Mapping[str, Any], counts: Any
    ) -> tuple[Any, Any]:
        """Return what the scores of a calibrated estimate are taken around, and by what they are multiplied."""
        assert self.class_counts is not None
        assert self.public.classes is not None
        count, classes = self.class_counts.queries["top"], self.public.classes
        factors = ratios(classes, count, counts)
        around = centres(asked, classes, text_rows(cells), noisy, counts, count)
        return around, np.rint(FINE * factors / factors.max()).astype(np.int64)

    @property
    def sampled(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the sample, with its design and the loss on it, where the draw amplifies."""
        if self.drawn_by is None or self.sample is None:
            return None
        own = {"shares": [str(share) for share in self.shares]} if self.shares else {}
        return self.sample, {"design": self.drawn_by.document(), "inner": str(self.inner), **own}

    @property
    def why_this_number(self) -> str:
        """Say how the loss comes about."""
        return str(self.specification.budget.policy)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return each estimate with its queries, and before whom an amplified loss holds."""
        found, values = [], []
        for each in self.estimates:
            told: dict[str, Any] = {"estimate": each.title}
            for role, query in each.queries.items():
                sd = float(query.step) * 2**0.5 * float(query.sensitivity / query.loss)
                told[role] = {
                    "cells": query.cells, "epsilon": str(query.loss), "step": str(query.step), "noise_sd": sd,
                    "sensitivity": str(query.sensitivity * query.step),
                }  # fmt: skip
                words = f"{each.title}, {ROLES.get(role, role)}: noise of standard deviation {sd:.4g}"
                found.append(f"{words}, epsilon {exact(query.loss).shown()}")
            values.append(told)
        return (
            *(Fact(label="noise", sentence=sentence) for sentence in found),
            *(Fact(label="before", sentence=f"{who}: epsilon {loss}") for who, loss in self.attackers),
            Fact(values={"survey_estimates": values, "inner_epsilon": str(self.inner), "variance": self.variance}),
        )
