"""Budget files as data: what the files of SafeTab and PHSafe have in common, and how one is read.

Every rho of a budget is per record that comes or goes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from stirred.data.problems import PlanError, bad_plan
from stirred.spec.given_numbers import fraction
from stirred.spec.misfits import misfits
from stirred.spec.problems import StirredError


def _share(given: Any) -> Fraction:
    if isinstance(given, (bool, float)) or not isinstance(given, (str, int, Decimal, Fraction)):
        raise ValueError("write an exact number, such as '0.159' or 1/10")
    try:
        found = fraction(given, where="")
    except StirredError as error:
        raise ValueError(error.problems[0].what) from None
    if found < 0:
        raise ValueError("it is below 0")
    return found


def _rising(given: list[int]) -> list[int]:
    if given != sorted({*given}):
        raise ValueError("thresholds and edges rise")
    return given


REFERENCE: Final = resources.files("stirred.mechanisms.tables") / "reference"
Amount = Annotated[Fraction, BeforeValidator(_share)]
Edges = Annotated[list[int], AfterValidator(_rising)]


class BudgetFile(BaseModel):
    """What every budget file has."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    title: str


class Region(BudgetFile):
    """A region type: the column of the areas that names the region, and which iterations are tabulated there."""

    title: str = ""
    type: str
    column: str
    iterations: Literal["detailed", "coarse"]
    suppress: bool = False


class BudgetPart(BudgetFile):
    """One region type and level: rho for its groups, and the thresholds at which their table gets finer."""

    title: str = ""
    table: str = "t2"
    region: str
    level: int
    rho: Amount
    thresholds: Edges

    @property
    def name(self) -> str:
        return f"{self.region} level {self.level}"


class GroupsBudget(BudgetFile):
    """What the budget files of SafeTab have in common."""

    regions: list[Region]
    parts: list[BudgetPart]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        once([region.type for region in self.regions], "region type")
        once([region.column for region in self.regions], "region column")
        once([f"{part.table}, {part.name}" for part in self.parts], "part")
        return self


def once(names: Sequence[Hashable], what: str) -> None:
    """Refuse what appears twice: two measurements of one name would draw the same noise."""
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"{what} {twice[0]} appears twice")


Model = TypeVar("Model", bound=BudgetFile)


def budget_of(model: type[Model], given: str | Mapping[str, Any], *, ending: str) -> Model:
    """Return a checked budget: one that is brought along, by its name, or the content of a file."""
    content: Any = given
    if isinstance(given, str):
        place = REFERENCE.joinpath(f"{given}{ending}.toml")
        if not given.replace("-", "").isalnum() or not place.is_file():
            remedy = "write us-2020, or name a file that ends in .toml"
            raise bad_plan(f"there is no budget called {given!r}", where="budget", remedy=remedy)
        content = tomllib.loads(place.read_text(encoding="utf-8"), parse_float=Decimal)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        remedy = "see the budget that is brought along, us-2020, in docs/census-2020.md"
        found = misfits(error.errors(), content, model, remedy=remedy)
        raise PlanError(each.problem("budget") for each in found) from None
