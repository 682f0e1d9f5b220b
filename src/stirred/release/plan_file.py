"""plan.toml: everything a release needs to know, read strictly."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stirred.data.problems import PlanError, bad_plan
from stirred.data.sources import READS, Source
from stirred.data.spelling import near, told_once
from stirred.report.safes import SAFES, SafesSheet
from stirred.spec.problems import Problem, placed

SettingsFrom = Literal["policy", "invariants", "other-data", "this-data"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A single name may be written without brackets, and the schema says so.
Names = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
Rate = str | int | Decimal


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DataSection(_Strict):
    """[data]: the confidential files and their identifiers."""

    households: str = Field(description="The household file, one row for each household; relative to the plan.")
    name: str | None = Field(
        default=None,
        description="What the specification calls the dataset; default the ledger's name for it, or the file's.",
    )
    persons: str | None = Field(default=None, description="The file of the persons in the households.")
    codebook: str | None = Field(default=None, description="A codebook to validate against and to take labels from.")
    hid: str | None = Field(
        default=None,
        description="Column that links persons to households; needed with persons, issued anew on release.",
    )
    id: Names = Field(default=[], description="Columns that identify: never released.")


class MechanismSection(_Strict):
    """[mechanism]: which one, and its settings.

    ``rate`` is for all but the Mallows swap, which takes ``epsilon``, the metric swap, which takes ``epsilon`` and
    ``distances``, and the Gibbs swap, which takes ``weights``; ``rates`` is for permutation swapping, in one
    stage or two, ``redraw_law`` for the conditioned swap, and ``fine_match`` and ``fine_rate`` for two stages.
    ``respond``, ``values`` and ``change`` are for the response swap. ``noise_epsilon`` and ``noise`` are for the noisy
    swap, which publishes the plan's tables and no records.
    """

    name: Literal[
        "permutation-swap",
        "conditioned-swap",
        "mallows-swap",
        "shuffle-swap",
        "two-stage-swap",
        "metric-swap",
        "gibbs-swap",
        "response-swap",
        "noisy-swap",
    ] = Field(default="permutation-swap", description="The mechanism, one of the swapping family.")
    match: Names = Field(default=[], description="Variables that exchanging records must share; may be empty.")
    swap: Names = Field(description="Variables that are exchanged, all together, such as the geography.")
    hold: Names | None = Field(
        default=None, description="Other variables to release; default all. If given, everything unnamed is dropped."
    )
    rate: Rate | None = Field(
        default=None, description='The swap rate, exact in each form: "1/20", "5%" or 0.05. Not for the Mallows swap.'
    )
    epsilon: Rate | None = Field(
        default=None, description="The loss of the Mallows and the metric swap, which have no rate."
    )
    redraw_law: str | dict[str, Rate] | None = Field(
        default=None,
        description="Of the conditioned swap: uniform, proportional, or a probability for each swap value.",
    )
    distances: str | list[str] | dict[str, dict[str, Rate]] | None = Field(
        default=None,
        description="Of the metric swap: a file with the columns from, to and distance; or swap variables as levels, "
        "from the finest to the coarsest; or a table with a distance for each pair of swap values.",
    )
    weights: str | dict[str, dict[str, Rate]] | None = Field(
        default=None,
        description="Of the Gibbs swap: a file with the columns from, to and weight, or a table with a weight for each "
        "pair of swap values.",
    )
    fine_match: Names = Field(
        default=[], description="Of the two-stage swap: variables that the second stage matches on besides match."
    )
    fine_rate: Rate | None = Field(default=None, description="Of the two-stage swap: the rate of the second stage.")
    noise_epsilon: Rate | None = Field(
        default=None, description="Of the noisy swap: the loss of the noise alone, for all tables together."
    )
    noise: str | None = Field(
        default=None, description="Of the noisy swap: the law of the noise, geometric; bounded noise is refused."
    )
    respond: str | None = Field(
        default=None, description="Of the response swap: the variable that gets a randomised response before the swap."
    )
    values: list[str | int | bool] = Field(
        default=[],
        description="Of the response swap: every value that the variable may have; default the codes of the codebook.",
    )
    change: Rate | None = Field(
        default=None, description="Of the response swap: the probability that a value is replaced by another one."
    )
    rates: list[dict[str, Any]] = Field(
        default=[],
        description="Other rates, each with the values it applies to, of match variables or, in one stage, of hold and "
        "swap variables too; the last that fits wins.",
    )
    imputed: str | None = Field(
        default=None, description="Of permutation swapping: a column that flags imputed records, which are not swapped."
    )
    unit: str = Field(default="household", description="What a record is.")
    settings_from: SettingsFrom | None = Field(
        default=None, description="On what the settings were based; this-data voids the guarantee and is refused."
    )


class TableSection(_Strict):
    """[[tables]]: a table to publish from the released data."""

    variables: Names = Field(description="Columns of the table, of households or persons.")
    name: str | None = Field(default=None, description="Name of its file; default from the variables.")
    level: str | None = Field(default=None, description="A further column, the geographic level.")

    @property
    def columns(self) -> list[str]:
        """Return all variables of the table."""
        return [*self.variables, *([self.level] if self.level else [])]


class ReleaseSection(_Strict):
    """[release]: where the bundle goes, and what it is for."""

    out: str = Field(description="Folder of the bundle; must not exist. Relative to the plan.")
    format: Literal["parquet", "csv"] = Field(default="parquet", description="Of the released data.")
    title: str | None = Field(
        default=None, description="Title of report and specification; default from the file name."
    )
    purpose: str = Field(default="", description="What the release is for.")
    ledger: str | None = Field(default=None, description="The ledger that keeps account of this release.")


class ContextSection(_Strict):
    """[safes.context]: the flow of information in the five parameters of contextual integrity."""

    sender: str = Field(default="", description="Who passes the information on: the agency, the custodian.")
    recipient: str = Field(default="", description="Who receives it: researchers, the general public.")
    subject: str = Field(default="", description="Whom it is about.")
    information_type: str = Field(default="", description="What kind of information it is.")
    transmission_principles: str = Field(default="", description="On what terms it is passed on.")


class SafesSection(_Strict):
    """[safes]: the Five Safes sheet of the release, as far as the custodian recorded it."""

    people: str = Field(default="", description="Who will receive the release, and how they were vetted.")
    projects: str = Field(default="", description="What it will be used for, and why that is appropriate.")
    settings: str = Field(default="", description="Where and how it is accessed, and how that place is secured.")
    data: str = Field(default="", description="How sensitive the data are, and what was taken out or made coarser.")
    outputs: str = Field(default="", description="What is published, and how its disclosure risk was judged.")
    context: ContextSection = Field(default=ContextSection(), description="The flow of information.")
    public: bool = Field(default=True, description="Whether the texts may stand in the public edition of the report.")


class PlanFile(_Strict):
    """A plan: data, mechanism, tables, release and the Five Safes sheet."""

    data: DataSection = Field(description="The confidential files and their identifiers.")
    mechanism: MechanismSection = Field(description="Which mechanism, and its settings.")
    tables: list[TableSection] = Field(default=[], description="Tables to publish from the released data.")
    release: ReleaseSection = Field(description="Where the bundle goes, and what it is for.")
    safes: SafesSection | None = Field(default=None, description="The Five Safes sheet of the release.")

    @property
    def safes_sheet(self) -> SafesSheet | None:
        """Return the Five Safes sheet as a report shows it, if there is one."""
        if self.safes is None:
            return None
        texts = {name: str(getattr(self.safes, name)) for name in SAFES}
        return SafesSheet(safes=texts, context=self.safes.context.model_dump(), public=self.safes.public)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what to call it in messages, and the folder its paths are relative to."""

    plan: PlanFile
    folder: Path
    source: str

    @property
    def households(self) -> Path:
        """Return the path of the household file."""
        return self.folder / self.plan.data.households

    @property
    def persons(self) -> Path | None:
        """Return the path of the person file, if there is one."""
        return None if self.plan.data.persons is None else self.folder / self.plan.data.persons

    @property
    def codebook(self) -> Path | None:
        """Return the path of the codebook, if there is one."""
        return None if self.plan.data.codebook is None else self.folder / self.plan.data.codebook

    def declared(self, name: str, *, number: str) -> Any:
        """Return the setting of this name that may be a file of numbers for pairs of swap values, read."""
        given = getattr(self.plan.mechanism, name)
        if not isinstance(given, str):
            return given
        from stirred.data.frames import read_frame
        from stirred.mechanisms.swapping.pairs import nested_pairs

        with placed(name):
            return nested_pairs(read_frame(self.folder / given), number=number, where=given)

    @property
    def ledger(self) -> str | None:
        """Return the ledger: a URL as it is, a path from the folder of the plan."""
        name = self.plan.release.ledger
        return name if name is None or "://" in name else str(self.folder / name)

    @property
    def out(self) -> Path:
        """Return the path of the bundle."""
        return self.folder / self.plan.release.out


def read_plan(path: Path) -> Planned:
    """Read plan.toml; every problem is reported at once with its section and key."""
    place = Source.of(path)
    if place.kind in READS:
        remedy = f"write a plan.toml that names it, or use `stirred swap {path}` with options"
        raise bad_plan("this is a data file, and here a plan is read", where=str(path), remedy=remedy)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise bad_plan(f"cannot read the plan: {reason}", where=str(path), remedy="check the path") from None
    try:
        # Decimals stay decimals: rate = 0.05 is exactly 1/20.
        content = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise bad_plan(
            f"this is not TOML ({error})",
            where=str(path),
            remedy='check quotes and brackets: text, names with other letters than a-z ("Größe" = 1) and codes with '
            'leading zeros ("01") need quotes',
        ) from None
    return planned(content, source=str(path), folder=path.parent)


def planned(content: dict[str, Any], *, source: str, folder: Path) -> Planned:
    """Return a plan from plain data; ``source`` names it in messages."""
    try:
        return Planned(plan=PlanFile.model_validate(content), folder=folder, source=source)
    except ValidationError as error:
        told = told_once(error.errors(include_url=False), PlanFile)
        raise PlanError(_problem(detail, source, hint) for detail, hint in told) from None


# What a section must have at least, for a plan without it.
_LEAST = {
    "data": "[data] households = 'households.csv'",
    "mechanism": "[mechanism] swap = 'county', rate = '5%'",
    "release": "[release] out = 'bundle', the folder that the bundle goes to",
}


def _problem(detail: Any, source: str, hint: str) -> Problem:
    place = [str(part) for part in detail["loc"]]
    section = f"[{place[0]}] " if place else ""
    where = f"{source} {section}{'.'.join(place[1:])}".strip()
    if detail["type"] == "extra_forbidden":
        remedy = hint or "remove it, or check its spelling"
        return Problem(what=f"there is no setting called '{place[-1]}'", where=where, remedy=remedy)
    if detail["type"] == "missing":
        remedy = f"add {_LEAST[place[0]]}" if len(place) == 1 else "add it"
        return Problem(what=f"'{place[-1]}' is missing", where=where, remedy=remedy)
    message = str(detail["msg"])
    given = repr(detail.get("input"))[:60]
    return Problem(
        what=f"{given}: {message[:1].lower()}{message[1:]}",
        where=where,
        remedy=f"{_value_meant(detail)}see docs/plans.md, or `stirred schema plan`",
    )


def _value_meant(detail: Any) -> str:
    """Return the hint for a misspelt word among those that a key takes; a mechanism without its "-swap" is one."""
    if detail["type"] != "literal_error" or not isinstance(detail.get("input"), str):
        return ""
    known = re.findall(r"'([^']+)'", detail["ctx"]["expected"])
    written = re.sub(r"[\s_]+", "-", detail["input"].strip().lower())
    found = f"{written}-swap" if f"{written}-swap" in known else near(written, known)
    return f'did you mean "{found}"? Or ' if found else ""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, for editors."""
    schema = PlanFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:plan:1", **schema}
