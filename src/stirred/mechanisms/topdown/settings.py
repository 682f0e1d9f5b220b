"""The settings of TopDown: what is counted, where, with which budget, and what is published exactly."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stirred.mechanisms.protocol import Names, Rate, ReleasedFile, Settings
from stirred.mechanisms.topdown.schema import BUDGETS, SCHEMAS

Arm = Literal["default", "blue", "bureau"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int)) else value


PublishChoice = Annotated[list[Literal["measurements", "estimates", "records"]], BeforeValidator(_as_list)]
ArmChoice = Annotated[list[Arm], BeforeValidator(_as_list)]


def _as_code(given: object) -> object:
    """Return a whole number as its code, which is text everywhere."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


Code = Annotated[str, BeforeValidator(_as_code, json_schema_input_type=str | int)]
Codes = Annotated[list[Code], BeforeValidator(_as_list, json_schema_input_type=str | list[str | int])]


class CountedSettings(Settings):
    """What is measured of one kind of record."""

    attributes: Names = Field(
        description=f"Columns whose combinations are counted, in this order; or {', '.join(SCHEMAS)}.",
        json_schema_extra={"example": "sex"},
    )
    budget: str | dict[str, Any] | None = Field(
        default=None,
        description=f"A budget file (TOML), or {', '.join(BUDGETS)}: rho, and its shares.",
        json_schema_extra={"document": True, "example": "budget.toml"},
    )
    rho: Rate | None = Field(
        default=None,
        description="Instead of a budget: rho of zCDP, split evenly between levels and queries.",
        json_schema_extra={"example": "1/2"},
    )
    queries: Names = Field(default=[], description="Queries for rho: total, detailed, or attributes joined by *.")
    values: dict[str, list[Code]] = Field(
        default={}, description="The codes of each attribute; default the codebook's."
    )
    columns: dict[str, str] = Field(default={}, description="The column of an attribute, where it is called otherwise.")
    groupings: dict[str, dict[str, list[list[Code]]]] = Field(
        default={}, description="Groups of codes by attribute and name, to be used in queries."
    )
    totals: Names = Field(default=[], description="Levels at which the number of records is published exactly.")
    zeros: list[dict[str, Codes]] = Field(
        default=[], description="Structural zeros: codes of some attributes that no record has together."
    )
    agrees_with: ReleasedFile | None = Field(
        default=None,
        description="Counts of an earlier release (counts.parquet of its bundle, or of the folder that was published), "
        "with which records agree in every area; the promise is then that of both releases.",
        json_schema_extra={"example": "earlier/public/counts.parquet"},
    )
    agreed_codes: dict[str, list[Code]] = Field(
        default={}, description="The codes that an attribute, or the groups of a grouping, had then, in the same order."
    )

    @property
    def impossible(self) -> list[dict[str, Names]]:
        """Return the structural zeros."""
        return self.zeros


class UnitSettings(CountedSettings):
    """[mechanism.units]: what is measured of the file of households, which also lists vacant housing units."""

    unit: str = Field(default="housing unit", description="What a record of the household file is.")


class Facilities(BaseModel):
    """[mechanism.facilities]: bounds on persons by the number of facilities of their kind in each area."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    attribute: str = Field(description="The attribute of persons that says in what kind of place they live.")
    column: str = Field(description="The column of the household file with the same codes.")
    most: int = Field(default=99_999, ge=1, description="How many persons a place has at most.")
    empty: Names = Field(default=[], description="Codes of places that may have nobody in them.")


class TopDownSettings(CountedSettings):
    """Persons in a hierarchy of areas; optionally housing units, and what is published exactly."""

    levels: Names = Field(
        description="Columns of the areas, the largest first; the whole is above them. With geocode: names of levels.",
        json_schema_extra={"example": "region"},
    )
    geocode: str | None = Field(default=None, description="A column of geocodes, instead of a column for each level.")
    widths: list[int] = Field(default=[], description="How many letters of a geocode name each level.")
    areas: str | None = Field(
        default=None,
        description="A file that lists all areas, also those without records, by the columns of the levels.",
        json_schema_extra={"path": True, "internal": True, "example": "areas.csv"},
    )
    bypass: bool = Field(default=True, description="Whether an area with one child leaves its budget to the child.")
    units: UnitSettings | None = Field(default=None, description="What is measured of the file of households.")
    facilities: Facilities | None = Field(default=None, description="Bounds on persons by the places they live in.")
    publish: PublishChoice = Field(
        default=["measurements"],
        description="What is published: measurements, estimates with standard errors, records; any of the three.",
        json_schema_extra={"example": "records"},
    )
    arm: Arm = Field(default="default", description="How records are made: default, or for comparison blue or bureau.")
    compare: ArmChoice = Field(
        default=[],
        description="Further arms whose errors the internal report shows beside those of the records.",
        json_schema_extra={"internal": True, "example": "bureau"},
    )
    unit: str = Field(default="person", description="What a record is.")

    @property
    def places(self) -> list[str]:
        """Return the columns by which a record names its area."""
        return [self.geocode] if self.geocode is not None else [*self.levels]
