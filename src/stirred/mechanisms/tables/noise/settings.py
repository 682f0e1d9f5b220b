"""The settings of noisy tables: the law of the noise, the budget and how it is split, and what is done afterwards."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stirred.mechanisms.protocol import Names, Rate, Settings


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Sum(_Section):
    """The sum of a column in every cell of a table; values beyond the bounds count as the nearer bound."""

    column: str = Field(description="The column that is added up: whole numbers.")
    by: Names = Field(default=[], description="The variables of the table; none for one sum of all records.")
    low: int = Field(default=0, description="The smallest value that counts.")
    high: int = Field(description="The largest value that counts.")

    @property
    def title(self) -> str:
        """Return what the table is called."""
        return f"sum of {self.column}{' by ' if self.by else ''}{' x '.join(self.by)}"


class Precision(_Section):
    """How precise a table must be: its noise stays within a number with a confidence, cell by cell or jointly."""

    table: str = Field(description="The table, such as 'county x tenure' or 'sum of income by county'.")
    within: int = Field(description="The largest error that is meant to occur.", ge=0)
    confidence: Rate = Field(default="95%", description="With which probability it does not occur.")
    jointly: bool = Field(default=False, description="Whether the confidence is for all cells of the table together.")


class NoisyTablesSettings(Settings):
    """A law of noise and a budget; the tables are those of the plan, and the sums that are named here."""

    noise: Literal["gaussian", "laplace", "geometric"] = Field(
        default="gaussian", description="The law of the noise; laplace and geometric are two names of one law."
    )
    rho: Rate | None = Field(
        default=None,
        description="With gaussian noise: the loss of all tables together, the rho of zCDP, for one changed unit.",
        json_schema_extra={"example": "1/2"},
    )
    epsilon: Rate | None = Field(
        default=None,
        description="With laplace noise: the loss of all tables together, for one changed unit.",
        json_schema_extra={"example": 1},
    )
    shares: dict[str, Rate] = Field(
        default={},
        description="How the budget is split: a weight for each table; left out, evenly.",
        json_schema_extra={"example": {"county": 2, "county x tenure": 1}},
    )
    precision: list[Precision] = Field(
        default=[],
        description="Tables whose budget follows from their precision: all, or those without it share the rest.",
        json_schema_extra={"example": [{"table": "county", "within": 50, "confidence": "95%"}]},
    )
    sums: list[Sum] = Field(
        default=[],
        description="Sums of columns of whole numbers, in bounds that are declared here.",
        json_schema_extra={"example": [{"column": "income", "by": ["county"], "low": 0, "high": 100000}]},
    )
    values: dict[str, list[str | int]] = Field(
        default={},
        description="Every value that a variable of the tables can take, where no codebook declares them.",
        json_schema_extra={"example": {"county": ["North", "South"]}},
    )
    keep: Names = Field(
        default=[],
        description='Counts that are published exactly and that the noise leaves as they are: "total" or variables.',
        json_schema_extra={"example": ["total"]},
    )
    persons: int | None = Field(
        default=None,
        description="With tables of persons: how many of a household count at most; the others are left out.",
        ge=1,
        json_schema_extra={"example": 8},
    )
    after: dict[str, Any] | None = Field(
        default=None,
        description="With laplace noise: a swap within strata, with its name and settings, that comes before; tables "
        "are counted from the swapped file, of which no record is published.",
        json_schema_extra={"example": {"match": "size", "swap": "county", "rate": "1/20"}},
    )
    confidence: Rate = Field(default="95%", description="Of the published intervals.")
    consistent: bool = Field(default=False, description="Add columns in which tables agree on what they share.")
    rounded: int = Field(default=0, description="Add a column rounded to multiples of this number.", ge=0)
    nonnegative: bool = Field(default=False, description="Add a column cut off at 0, which biases small counts.")

    def dumped(self, *, mode: str = "json", exclude_defaults: bool = False, context: str = "") -> dict[str, Any]:
        """Return the settings as plain data; without a swap the same as before there could be one."""
        found = super().dumped(mode=mode, exclude_defaults=exclude_defaults, context=context)
        return {key: value for key, value in found.items() if key != "after" or value is not None}
