"""The settings of survey estimates: what is estimated, in which setting, and what is said of the sampling error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import Names, Rate, Settings, TableFile
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import StirredError, wrong
from stirred.survey.settings import PAIRS, Setting

ATTESTED: Final = {
    "design-weights": "weights are 1 over the probability of being drawn, by the frame alone: not adjusted for "
    "nonresponse, and not calibrated",
    "random-sample": "the sample was drawn at random by the stated design, whatever the records say",
    "secret-sample": "nobody outside knows who was sampled",
    "fixed-donors": "who donates answers to whom was chosen without regard to the answers, and nobody donates to more "
    "than donor_cap others",
}
VARIANCE: Final = {
    "paid": "the sampling variance is estimated, with noise of its own",
    "public-bound": "the sampling error is a public bound, larger than the true one",
    "none": "the sampling error is not published: intervals cover the noise alone",
}
Pair = list[Rate]


class Estimate(BaseModel):
    """One estimate, or one for each domain; values beyond the bounds count as the nearer bound."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["total", "mean", "ratio", "table"] = Field(
        description="Horvitz-Thompson total, Hajek mean, ratio of totals, or weighted table."
    )
    variable: str | None = Field(default=None, description="The column that is estimated; a table needs none.")
    bounds: Pair | None = Field(default=None, description="Public bounds of its values, such as [0, 100].")
    denominator: str | None = Field(default=None, description="ratio: the column below the line.")
    denominator_bounds: Pair | None = Field(default=None, description="ratio: public bounds of that column.")
    ratio_bounds: Pair | None = Field(default=None, description="ratio: a public range of the ratio itself.")
    grid: Rate = Field(default=1, description="Values are rounded to multiples of this number.")
    by: Names = Field(default=[], description="One estimate for each combination of these columns' declared values.")
    where: dict[str, Names] = Field(default={}, description="Only records with these values.")
    share: Rate = Field(default=1, description="Weight of this estimate in the split of the budget.")

    @property
    def title(self) -> str:
        named = {"table": (), "ratio": (self.variable, self.denominator)}.get(self.kind, (self.variable,))
        of = f"{self.kind} {'/'.join(filter(None, named))}".strip()
        where = f" where {self.where_in_words}" if self.where else ""
        return f"{of}{' by ' if self.by else ''}{' x '.join(self.by)}{where}"

    @property
    def where_in_words(self) -> str:
        return ", ".join(f"{name}={'|'.join(values)}" for name, values in self.where.items())

    @property
    def columns(self) -> list[str]:
        """Return all columns that it needs, but for those of the design."""
        own = [name for name in (self.variable, self.denominator) if name is not None]
        return [*dict.fromkeys([*own, *self.by, *self.where])]


class Adjust(BaseModel):
    """Calibration to public totals of classes (post-strata)."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    poststrata: Names = Field(description="Columns of the sample that make the classes.", min_length=1)
    totals: TableFile = Field(
        description="A public file with these columns and `total`, the number of units of the population in each class."
    )
    when: Literal["after-noise", "counts-invariant"] = Field(
        description="after-noise: noisy estimates are calibrated, which costs nothing but the noisy class counts; "
        "counts-invariant: the sampled counts of the classes are published exactly, and the weights are total / count."
    )
    share: Rate = Field(default=1, description="after-noise: weight of the class counts in the split of the budget.")


class SurveyEstimatesSettings(Settings):
    """A setting, a loss, and the estimates."""

    epsilon: Rate = Field(
        description="The loss of all estimates together, for one changed record of the setting's first stage.",
        json_schema_extra={"example": 1},
    )
    setting: str | int = Field(
        default="sample/frame",
        description="Where the promise starts, and what is held fixed: a pair such as 'sample/frame', or its number "
        "in `stirred survey settings`.",
    )
    attest: Names = Field(
        default=[],
        description=f"What you vouch for: {'; '.join(f'{name} ({words})' for name, words in ATTESTED.items())}.",
        json_schema_extra={"example": ["design-weights"]},
    )
    weight_bounds: Pair | None = Field(
        default=None,
        description="Smallest and largest design weight of the frame, public; weights beyond count as the nearer one.",
        json_schema_extra={"example": [1, 40]},
    )
    weight_grid: Rate = Field(default="1/100", description="Weights are rounded to multiples of this number.")
    most_in_cluster: int | None = Field(
        default=None, description="Largest number of records of one sampled cluster, public; needed with ids.", ge=1
    )
    estimates: list[Estimate] = Field(
        default=[],
        description="What is estimated.",
        json_schema_extra={
            "example": [{"kind": "total", "variable": "income", "bounds": [0, 100]}],
            "section": True,
        },
    )
    variance: Literal["paid", "public-bound", "none"] = Field(
        default="paid", description="How the sampling error is told: with noise, by a public bound, or not at all."
    )
    variance_share: Rate = Field(default="1/5", description="The share of each estimate's budget that a paid one gets.")
    values: dict[str, list[str | int]] = Field(
        default={}, description="Every value that a column of `by` can take, where no codebook declares them."
    )
    confidence: Rate = Field(default="95%", description="Of the published intervals.")
    quality: Literal["statcan", "abs", "acs"] = Field(
        default="statcan",
        description="Flags: E and F above a coefficient of variation of 16.5% and 33.3%; * and ** above 25% and 50%; "
        "or n where the 90% margin of error reaches 0.",
    )
    imputation: Literal["none", "own-values", "hot-deck"] = Field(
        default="none", description="How missing answers were filled in; own-values: from the record's own answers."
    )
    imputed: str | None = Field(default=None, description="A column that is not 0 where an answer was filled in.")
    donor_cap: int | None = Field(
        default=None,
        description="hot-deck: into how many other records one record's answers were copied at most.",
        ge=1,
    )
    adjust: Adjust | None = Field(
        default=None, description="Calibration to public totals of classes.", json_schema_extra={"section": True}
    )
    sampling: dict[str, str | int | bool] = Field(
        default={},
        description="Settings 2, 3 and 11: how the sample was drawn, in the words of `stirred survey amplify`.",
        json_schema_extra={"example": {"design": "srswor", "n": 100, "N": 1000}},
    )
    sample: str | None = Field(default=None, description="Settings 2, 3 and 11: the name of the sample in the ledger.")


def place(each: Estimate, estimates: Sequence[Estimate]) -> str:
    """Return where an estimate stands in the list, counted from 1, and what it is called.

    >>> table = Estimate(kind="table", by=["sex"])
    >>> place(table, [Estimate(kind="table", by=["region"]), table])
    "estimates entry 2 'table by sex'"
    """
    entry = next((f"s entry {n}" for n, other in enumerate(estimates, start=1) if other is each), "")
    return f"estimate{entry} '{each.title}'"


def pair(given: Any, *, where: str) -> tuple[Fraction, Fraction]:
    """Return two numbers, the smaller first."""
    if given is None or len(given) != 2:
        raise wrong("two public numbers are needed", where=where, remedy=f"write such as {where} = [0, 100]")
    low, high = (fraction(end, where=where) for end in given)
    if low > high:
        raise wrong(f"{low} is above {high}", where=where, remedy="write the smaller one first")
    return low, high


def setting_of(given: str | int) -> Setting:
    """Return a setting from its number, or from its start and what is held fixed.

    >>> setting_of("sample/frame").number, setting_of(11).start
    (6, 'frame')
    """
    text = str(given).strip()
    if text.isdigit():
        if not 1 <= int(text) <= len(PAIRS):
            raise wrong(f"there is no setting {text}", where="setting", remedy="1 to 11: `stirred survey settings`")
        return Setting(*PAIRS[int(text) - 1])
    start, _, invariant = (part.strip() for part in text.partition("/"))
    try:
        return Setting(start, invariant if invariant not in ("", "none") else None)
    except StirredError as error:
        raise PlanError([replace(each, where="setting") for each in error.problems]) from None
