"""plan.toml: everything a release needs to know, read strictly."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stirred.data.problems import PlanError, bad_plan
from stirred.report.safes import SAFES, SafesSheet
from stirred.spec.problems import Problem

SettingsFrom = Literal["policy", "invariants", "other-data", "this-data"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_list)]
Rate = str | int | Decimal


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DataSection(_Strict):
    """[data]: the confidential files and their identifiers."""

    households: str
    persons: str | None = None
    codebook: str | None = None
    hid: str | None = None
    id: Names = []


class MechanismSection(_Strict):
    """[mechanism]: which one, and its settings."""

    name: Literal["permutation-swap"] = "permutation-swap"
    match: Names = []
    swap: Names
    hold: Names | None = None
    rate: Rate
    rates: list[dict[str, Any]] = []
    unit: str = "household"
    settings_from: SettingsFrom | None = None


class TableSection(_Strict):
    """[[tables]]: a table to publish from the released data."""

    variables: Names
    name: str | None = None
    level: str | None = None


class ReleaseSection(_Strict):
    """[release]: where the bundle goes, and what it is for."""

    out: str
    format: Literal["parquet", "csv"] = "parquet"
    title: str | None = None
    purpose: str = ""
    ledger: str | None = None


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
    context: ContextSection = ContextSection()
    public: bool = Field(default=True, description="Whether the texts may stand in the public edition of the report.")


class PlanFile(_Strict):
    """A plan: data, mechanism, tables, release and the Five Safes sheet."""

    data: DataSection
    mechanism: MechanismSection
    tables: list[TableSection] = []
    release: ReleaseSection
    safes: SafesSection | None = None

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

    @property
    def out(self) -> Path:
        """Return the path of the bundle."""
        return self.folder / self.plan.release.out


def read_plan(path: Path) -> Planned:
    """Read plan.toml; every problem is reported at once with its section and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise bad_plan(f"cannot read the plan: {reason}", where=str(path), remedy="check the path") from None
    try:
        # Decimals stay decimals: rate = 0.05 is exactly 1/20.
        content = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
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
        raise PlanError(_problem(detail, source) for detail in error.errors(include_url=False)) from None


def _problem(detail: Any, source: str) -> Problem:
    place = [str(part) for part in detail["loc"]]
    section = f"[{place[0]}] " if place else ""
    where = f"{source} {section}{'.'.join(place[1:])}".strip()
    if detail["type"] == "extra_forbidden":
        return Problem(
            what=f"there is no setting called '{place[-1]}'", where=where, remedy="remove it, or check its spelling"
        )
    if detail["type"] == "missing":
        return Problem(what=f"'{place[-1]}' is missing", where=where, remedy="add it")
    message = str(detail["msg"])
    given = repr(detail.get("input"))[:60]
    return Problem(
        what=f"{given}: {message[:1].lower()}{message[1:]}",
        where=where,
        remedy="see docs/plans.md, or `stirred plan --help`",
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, for editors."""
    schema = PlanFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:plan:1", **schema}
