"""The facts a row states, read strictly: one model for each kind of row."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from stirred.release.ledger.problems import BrokenLedgerError, broken
from stirred.release.ledger.row import ABORT, ADD, COMMIT, DRAW, GENESIS, POLICY, PUBLISH, RESERVE, WITHDRAW, Row

Model = TypeVar("Model", bound="Facts")


class Facts(BaseModel):
    """What every row states: when, by the clock of whoever wrote it, and who."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    at: str
    who: str

    def stored(self) -> dict[str, Any]:
        """Return the facts to keep; what was left open is left out."""
        return self.model_dump(exclude_defaults=True)


class GenesisFacts(Facts):
    """The first row: which ledger this is, of which dataset, with which policy."""

    ledger: str
    dataset: str
    schema_version: int
    policy: dict[str, Any] | None = None


class PolicyFacts(Facts):
    """A change of policy."""

    policy: dict[str, Any] | None = None
    reason: str = ""


def _day(text: str) -> str:
    if date.fromisoformat(text).isoformat() != text:
        raise ValueError("a date is written as 2021-08-12")
    return text


class OpeningFacts(Facts):
    """A reservation, or a release made elsewhere; ``made`` is the day of the latter, where it is known."""

    mechanism: str
    purpose: str = ""
    made: Annotated[str, AfterValidator(_day)] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    sample: str | None = None
    amplified: bool = False
    derived_from: list[str] = Field(default_factory=list)
    includes: list[str] = Field(default_factory=list)
    inputs: dict[str, str] = Field(default_factory=dict)
    place: str | None = None
    bundle: str | None = None


class DrawFacts(Facts):
    """Randomness is about to be drawn: from here on something may have been seen."""


class CommitFacts(Facts):
    """A complete bundle exists."""

    bundle: str


class ReasonFacts(Facts):
    """An abort or a withdrawal."""

    reason: str


class PublishFacts(Facts):
    """The public files were copied to where readers find them; ``to`` is what that place is called."""

    to: str


FACTS: Final[dict[str, type[Facts]]] = {
    GENESIS: GenesisFacts,
    POLICY: PolicyFacts,
    RESERVE: OpeningFacts,
    ADD: OpeningFacts,
    DRAW: DrawFacts,
    COMMIT: CommitFacts,
    ABORT: ReasonFacts,
    WITHDRAW: ReasonFacts,
    PUBLISH: PublishFacts,
}


def facts_of(row: Row, model: type[Model]) -> Model:
    """Return the facts of a row; a row that states something else is broken."""
    try:
        return model.model_validate_json(row.facts)
    except ValidationError as error:
        raise _unreadable(row, error) from None


def checked_facts(row: Row, data: Any, model: type[Model]) -> Model:
    """Return the facts of a row whose JSON was read already."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _unreadable(row, error) from None


def _unreadable(row: Row, error: ValidationError) -> BrokenLedgerError:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    what = f"the facts of this {row.kind} cannot be read: {place + ': ' if place else ''}{first['msg']}"
    return broken(what, kind="facts", number=row.number)
