"""The settings of TopDown, and the design that they decide on: levels, schemas and budgets, checked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.protocol import PERSONS, Names, Rate, ReleasedFile, ReleasedTable, Settings
from stirred.mechanisms.topdown.budget import Shares, read_budget
from stirred.mechanisms.topdown.hierarchy.schema import (
    BUDGETS,
    SCHEMAS,
    MarginalQuery,
    Schema,
    declared_schema,
    shipped_schema,
)
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.spec.invariant import plural
from stirred.spec.problems import Problem, StirredError

MethodName = Literal["default", "blue", "bureau"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int)) else value


PublishChoice = Annotated[list[Literal["measurements", "estimates", "records"]], BeforeValidator(_as_list)]
MethodNames = Annotated[list[MethodName], BeforeValidator(_as_list)]


def _as_code(given: object) -> object:
    """Return a whole number as its code, which is text everywhere."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


Code = Annotated[str, BeforeValidator(_as_code, json_schema_input_type=str | int)]
Codes = Annotated[list[Code], BeforeValidator(_as_list, json_schema_input_type=str | list[str | int])]


class CountSettings(Settings):
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
        return self.zeros


class UnitSettings(CountSettings):
    """[mechanism.units]: what is measured of the file of households, which also lists vacant housing units."""

    unit: str = Field(default="housing unit", description="What a record of the household file is.")


class Facilities(BaseModel):
    """[mechanism.facilities]: bounds on persons by the number of facilities of their kind in each area."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    attribute: str = Field(description="The attribute of persons that says in what kind of place they live.")
    column: str = Field(description="The column of the household file with the same codes.")
    most: int = Field(default=99_999, ge=1, description="How many persons a place has at most.")
    empty: Names = Field(default=[], description="Codes of places that may have nobody in them.")


class TopDownSettings(CountSettings):
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
    arm: MethodName = Field(
        default="default", description="How records are made: default, or for comparison blue or bureau."
    )
    compare: MethodNames = Field(
        default=[],
        description="Further arms whose errors the internal report shows beside those of the records.",
        json_schema_extra={"internal": True, "example": "bureau"},
    )
    unit: str = Field(default="person", description="What a record is.")

    @property
    def places(self) -> list[str]:
        return [self.geocode] if self.geocode is not None else [*self.levels]


# ---- the design -------------------------------------------------------------------------------------------

TOP: Final = "all"
UNITS: Final = "units"
_DEFAULT_QUERIES: Final = ("total", "detailed")
T = TypeVar("T")


def schema_of(settings: CountSettings) -> Schema:
    """Return the schema that settings name or declare."""
    name = settings.attributes[0] if len(settings.attributes) == 1 else ""
    if name in SCHEMAS:
        return shipped_schema(name)
    return declared_schema("declared", settings.attributes, values=settings.values, groupings=settings.groupings)


def shares_of(settings: CountSettings, levels: Sequence[str]) -> Shares:
    """Return the budget as it is written, or split evenly between levels."""
    if settings.budget is not None and (settings.rho is not None or settings.queries):
        remedy = "write the budget file, or rho and queries"
        raise bad_plan("a budget file says rho and queries itself", where="budget", remedy=remedy)
    if settings.budget is not None:
        given = settings.budget
        return Shares.read(read_budget(given) if isinstance(given, str) else given)
    if settings.rho is not None:
        return Shares.even(settings.rho, levels=levels, queries=settings.queries or _DEFAULT_QUERIES)
    if isinstance(settings, UnitSettings) and settings.totals:
        return Shares.none(levels)
    remedy = "name a budget file (budget), or write rho = '1/2' and queries = ['total', 'detailed']"
    raise bad_plan("no budget is given", where="budget", remedy=remedy)


def collected(problems: list[Problem], work: Callable[[], T]) -> T | None:
    """Return what work returns; its problems join the others."""
    try:
        return work()
    except StirredError as error:
        problems += error.problems
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordKind:
    """One kind of record, persons or units: its settings, schema and budget."""

    name: str
    settings: CountSettings
    schema: Schema
    shares: Shares

    @property
    def unit(self) -> str:
        """Return what one record is."""
        return self.settings.unit

    @property
    def records(self) -> str:
        return self.name if self.name == UNITS else plural(self.unit)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.settings.columns.get(name, name) for name in self.schema.names)

    def file(self, what: str) -> str:
        """Return the name of a published file: of records, counts, estimates, measurements, constraints, agreement."""
        if what == "records":
            return self.name
        return what if self.name == PERSONS else f"unit_{what}"

    @property
    def measured(self) -> bool:
        """Say whether anything is measured; otherwise only what is known is published."""
        return self.shares.rho > 0

    @property
    def queries(self) -> dict[str, MarginalQuery]:
        """Return what is measured at any level, by its name in published files."""
        names = [name for level in self.shares.levels for name in self.shares.measured(level)]
        return {f"{name}_dpq": self.schema.query(name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopDownDesign:
    """What settings alone decide: the names of levels, and the kinds of records with their schemas and budgets."""

    settings: TopDownSettings
    names: tuple[str, ...]
    kinds: tuple[RecordKind, ...]  # persons, and units where they are counted

    @classmethod
    def of(cls, settings: TopDownSettings) -> TopDownDesign:
        """Return the design; all problems of the settings at once."""
        problems: list[Problem] = [*_wrong_levels(settings)]
        if len({name.casefold() for name in settings.levels}) < max(1, len(settings.levels)):
            raise PlanError(problems)
        names, kinds = (TOP, *settings.levels), list[RecordKind]()
        for name, own in ((PERSONS, settings), (UNITS, settings.units)):
            if own is None:
                continue
            schema = collected(problems, partial(schema_of, own))
            shares = collected(problems, partial(shares_of, own, names))
            # Levels are called as the budget of persons spells them, where it has the same.
            spelled = () if shares is None or name != PERSONS else tuple(shares.levels)
            if [each.casefold() for each in spelled[1:]] == [each.casefold() for each in settings.levels]:
                names = spelled
            if schema is not None:
                shares = shares and collected(problems, partial(shares.fitted, schema, names))
                kinds.append(RecordKind(name=name, settings=own, schema=schema, shares=shares or Shares.none(names)))
                # A budget that cannot be read might have called the levels otherwise.
                problems += _wrong_rules(own, schema, names) if shares or not own.budget else ()
        design = cls(settings=settings, names=names, kinds=tuple(kinds))
        problems = problems or [*_wrong_records(design)]
        if problems:
            raise PlanError(dict.fromkeys(problems))
        return design

    @property
    def persons(self) -> RecordKind:
        return self.kinds[0]

    @property
    def earlier(self) -> tuple[ReleasedTable, ...]:
        """Return a table of each earlier release with which records agree."""
        named = [table for kind in self.kinds if (table := kind.settings.agrees_with) is not None]
        return tuple({table.release or table.file: table for table in reversed(named)}.values())[::-1]

    def depths(self, counted: CountSettings) -> list[int]:
        """Return the levels whose totals are published exactly; that of the whole file is fixed by the promise."""
        folded = [name.casefold() for name in self.names]
        whole = {0} if "records" in self.settings.publish or not counted.totals else set()
        return sorted(whole | {folded.index(name.casefold()) for name in counted.totals})

    def record_columns(self, kind: RecordKind) -> tuple[str, ...]:
        """Return the columns of released records: those of the file, areas first."""
        return (*self.settings.places, *kind.columns)

    @property
    def columns(self) -> tuple[list[str], list[str]]:
        """Return the columns that the settings name: of persons, and of units."""
        own, *units = (self.record_columns(kind) for kind in self.kinds)
        facilities = self.settings.facilities
        of_facilities = [] if facilities is None else [*self.settings.places, facilities.column]
        return [*own], [*(name for each in units for name in each), *of_facilities]

    def counted_by(self, variables: Sequence[str]) -> str:
        """Return the kind of records that a table counts: units where they have all its variables, else persons."""
        found = [kind for kind in self.kinds if kind.measured and {*variables} <= {*self.record_columns(kind)}]
        return found[-1].name if found else PERSONS


def _wrong_levels(settings: TopDownSettings) -> Iterator[Problem]:
    levels = [name.casefold() for name in settings.levels]
    if not levels or len({*levels}) < len(levels) or TOP in levels:
        remedy = f"name the columns of the areas once, the largest first; '{TOP}' is the whole"
        yield Problem(what="there are no levels, or two of one name", where="levels", remedy=remedy)
    if settings.geocode is not None or settings.widths:
        rising = [*settings.widths] == sorted({*settings.widths}) and all(width > 0 for width in settings.widths)
        if settings.geocode is None or len(settings.widths) != len(levels) or not rising:
            remedy = "write geocode = 'COLUMN' and for each level how many letters name it, such as [3, 9, 13, 15, 31]"
            yield Problem(what="widths do not fit the levels", where="widths", remedy=remedy)


def _wrong_rules(settings: CountSettings, schema: Schema, names: Sequence[str]) -> Iterator[Problem]:
    for name in settings.totals:
        if name.casefold() not in {each.casefold() for each in names}:
            remedy = f"from the top there are {listed(names)}"
            yield Problem(what=f"there is no level '{name}'", where="totals", remedy=remedy)
    codes = {attribute.name: attribute.codes for attribute in schema.attributes}
    facilities = settings.facilities if isinstance(settings, TopDownSettings) else None
    if facilities is not None and facilities.attribute not in codes:
        what, remedy = f"there is no attribute '{facilities.attribute}'", f"there are {listed(schema.names)}"
        yield Problem(what=what, where="facilities attribute", remedy=remedy)
    for number, zero in enumerate(settings.zeros, start=1):
        where = f"zeros {number}"
        for name, barred in zero.items():
            other = [code for code in barred if code not in codes.get(name, ())]
            if name not in codes or other or not barred:
                what = f"'{name}' has no code {listed(other)}" if name in codes else f"there is no attribute '{name}'"
                remedy = f"there are {listed([*codes])}, with the codes that were declared"
                yield Problem(what=what, where=where, remedy=remedy)
        if not zero:
            yield Problem(what="it bars nothing", where=where, remedy='name codes, such as { age = ["0-17"] }')


def _wrong_records(design: TopDownDesign) -> Iterator[Problem]:
    """Yield what stands against records, or asks for something of records where there are none."""
    settings = design.settings
    records = "records" in settings.publish
    if not settings.publish:
        remedy = 'write publish = ["measurements"], or name others of the three'
        yield Problem(what="nothing that is measured would be published", where="publish", remedy=remedy)
    for kind in design.kinds:
        if kind.settings.agrees_with is not None and (not records or not kind.measured):
            remedy = 'write publish = ["measurements", "records"], and a budget'
            yield Problem(what="only records agree with an earlier release", where="agrees_with", remedy=remedy)
        names = design.record_columns(kind)
        ours = {"count", "geocode"} - {settings.geocode}
        taken = [name for name in dict.fromkeys(names) if names.count(name) > 1 or name in ours]
        if records and taken:
            what = f"{listed(taken)} would stand twice among the columns of the records"
            yield Problem(what=what, where="attributes", remedy="rename the column in the file")
    if not records and (settings.compare or settings.arm != "default"):
        remedy = 'write publish = ["measurements", "records"]'
        yield Problem(what="arms make records, and none are published", where="arm", remedy=remedy)
    top = design.names[0]
    unmeasured = any(kind.measured and not kind.shares.noise[top] for kind in design.kinds)
    for arm in dict.fromkeys((settings.arm, *settings.compare)):
        if records and unmeasured and not METHODS[arm].bottom_up:
            what = f"the arm '{arm}' uses the measurements of each level alone, and the whole is not measured"
            yield Problem(what=what, where="arm", remedy="use the arm 'default', or measure the whole")
