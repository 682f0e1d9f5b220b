"""Rows of a ledger, each an event with its facts, bound to the one before by a hash; and the entries they are about."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from stirred.mechanisms.registry import is_installed, mechanism_class
from stirred.release.ledger.problems import bad_request, broken
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import StirredError, place_of
from stirred.spec.specification import Specification

SCHEMA_VERSION: Final = 1
NOTHING: Final = "0" * 64  # what the first row names as the hash before it

# Every kind of row there is. A published meaning never changes: new meaning, new kind.
GENESIS, POLICY = "genesis", "policy"
RESERVE, DRAW, COMMIT, ABORT, WITHDRAW, ADD = "reserve", "draw", "commit", "abort", "withdraw", "add"
PUBLISHING, PUBLISH, UNPUBLISHED = "publishing", "publish", "not-published"
OPENING: Final = frozenset({RESERVE, ADD})
KINDS: Final = frozenset(
    {GENESIS, POLICY, RESERVE, DRAW, COMMIT, ABORT, WITHDRAW, ADD, PUBLISHING, PUBLISH, UNPUBLISHED}
)


class Row(NamedTuple):
    """One event. ``facts`` is canonical JSON text, ``specification`` the digest of a document.

    The hash covers every other column and the hash of the row before, so that no row can be changed,
    removed, inserted or moved without breaking every hash from there on.
    """

    number: int
    id: str
    kind: str
    entry: str  # the entry the row is about; empty for genesis and policy
    specification: str  # digest of the specification; empty where there is none
    facts: str
    previous: str
    hash: str

    @property
    def computed_hash(self) -> str:
        """Return the hash the row should have."""
        return row_hash(*self[:7])

    @property
    def is_text(self) -> bool:
        """Say whether all but the number is text that can be written as UTF-8."""
        try:
            return all(isinstance(value, str) and value.encode("utf-8") is not None for value in self[1:])
        except UnicodeEncodeError:
            return False


# The columns of a ledger in a database, and their declarations but for that of the number.
COLUMNS: Final = ", ".join(Row._fields)
COLUMN_TYPES: Final = ",\n    ".join(
    f"{name} TEXT NOT NULL{' UNIQUE' if name == 'id' else ''}" for name in Row._fields[1:]
)


def row_hash(number: int, id_: str, kind: str, entry: str, specification: str, facts: str, previous: str) -> str:
    """Return SHA-256 over the columns, one a line; canonical JSON holds no line break, so nothing is ambiguous."""
    text = f"{number}\n{id_}\n{kind}\n{entry}\n{specification}\n{previous}\n{facts}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def next_row(last: Row | None, *, id_: str, kind: str, entry: str, specification: str, facts: Any) -> Row:
    """Return the row that follows ``last``."""
    number = 0 if last is None else last.number + 1
    previous = NOTHING if last is None else last.hash
    text = canonical(facts)
    hashed = row_hash(number, id_, kind, entry, specification, text, previous)
    return Row(number, id_, kind, entry, specification, text, previous, hashed)


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces; fractions and decimals become text, so no digit is lost.

    >>> canonical({"rate": Fraction(1, 20), "columns": ("b", "a"), "Größe": 0.1})
    '{"Größe":0.1,"columns":["b","a"],"rate":"1/20"}'
    """
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise bad_request("the text holds half a character", where="ledger", remedy="use proper Unicode") from None
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise bad_request(
                "a key is not text", where="parameters", remedy="use text as keys, as in a TOML or JSON file"
            )
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (Fraction, Decimal, PurePath, Exact)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_request(f"{value} is not a number in JSON", where="parameters", remedy='write "inf" as text')
    if value is None or isinstance(value, (str, int, float)):
        return value
    remedy = "use text, numbers, lists and tables"
    raise bad_request(f"a {type(value).__name__} cannot be kept in a ledger", where="parameters", remedy=remedy)


def digest_of(text: str) -> str:
    """Return the name of a document: the SHA-256 of its text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class StrictFacts(BaseModel):
    """What comes from outside: nothing is converted, and unknown keys are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Facts(StrictFacts):
    """What every row states: when, by the clock of the writer, and who."""

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
    """A reservation, or a release made elsewhere; ``made`` is the day of the latter, where it is known.

    ``unspecified`` says why a release made elsewhere has no specification: totals are then lower bounds.
    """

    mechanism: str
    purpose: str = ""
    made: Annotated[str, AfterValidator(_day)] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    sample: str | None = None
    amplified: bool = False
    sampling: dict[str, Any] | None = None
    derived_from: list[str] = Field(default_factory=list)
    includes: list[str] = Field(default_factory=list)
    unspecified: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    place: str | None = None
    bundle: str | None = None

    @property
    def relations(self) -> dict[str, Any]:
        """Return what relates the entry to others, and to a sample."""
        lists = {"derived_from": tuple(self.derived_from), "includes": tuple(self.includes)}
        drawn = {"sample": self.sample, "amplified": self.amplified, "sampling": self.sampling}
        return {**drawn, "unspecified": self.unspecified, **lists}


# Settings that the promise has in it, or that change nothing of what is drawn.
_SHOWN: Final = ("hold", "unit", "settings_from")


def by_part(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return checksums by the part of the dataset: its records, whichever key of a plan named their file, and persons.

    >>> by_part({"households": "9f86", "persons": "60ab"}) == by_part({"file": "9f86", "persons": "60ab"})
    True
    """
    return {role if role == "persons" else "records": seen for role, seen in inputs.items()}


def plan_in(facts: OpeningFacts) -> str:
    """Return what tells runs of one plan, besides what they promise; nothing if the files were not kept.

    That is which files, by their checksums, the settings, and the tables of a mechanism that makes nothing else. A
    number counts by its value: `1/4`, `0.25` and `25%` are one rate. What is held stands in the promise.
    """
    if not facts.inputs:
        return ""
    found = facts.parameters.get("mechanism") or {}
    given = {key: value for key, value in found.items() if key not in _SHOWN and value is not None and value != []}
    settings = {key: _by_value(value) for key, value in given.items()}
    name = str(found.get("name", ""))
    tables = facts.parameters.get("tables") if is_installed(name) and not mechanism_class(name).counts_tables else None
    asked = sorted([*sorted(table["variables"]), table.get("level") or ""] for table in tables or ())
    return canonical({"inputs": by_part(facts.inputs), "settings": settings, "tables": asked})


def _by_value(given: Any) -> Any:
    """Return a setting with its numbers as fractions."""
    if isinstance(given, list):
        found = [_by_value(each) for each in given]
        # The order of variables changes nothing.
        return sorted(found) if all(isinstance(each, str) for each in found) else found
    if isinstance(given, dict):
        return {name: _by_value(each) for name, each in given.items()}
    try:
        return str(fraction(given, where="setting"))
    except (StirredError, TypeError, ValueError):
        return str(given)


class DrawFacts(Facts):
    """Randomness is about to be drawn: from here on something may have been seen."""


class CommitFacts(Facts):
    """A complete bundle exists."""

    bundle: str


class ReasonFacts(Facts):
    """An abort or a withdrawal."""

    reason: str


class PublishingFacts(Facts):
    """The public files are about to be copied to ``place``, which readers call ``to``; nothing can be seen yet.

    ``files`` is the checksum of the list of checksums that is published with them: it tells this publication from
    whatever else may stand at the place later. ``accepted`` names the doubts that the publisher accepted.
    """

    to: str
    place: str
    files: str
    accepted: list[str] = Field(default_factory=list)


class PublishFacts(Facts):
    """The public files were copied to where readers find them; ``to`` is what that place is called.

    ``began`` is the number of the row that announced it, where there was one.
    """

    to: str
    began: int | None = None
    accepted: list[str] = Field(default_factory=list)


class UnpublishedFacts(Facts):
    """The publication that row ``began`` announced did not happen: nothing appeared."""

    to: str
    began: int
    reason: str


FACTS: Final[dict[str, type[Facts]]] = {
    GENESIS: GenesisFacts,
    POLICY: PolicyFacts,
    RESERVE: OpeningFacts,
    ADD: OpeningFacts,
    DRAW: DrawFacts,
    COMMIT: CommitFacts,
    ABORT: ReasonFacts,
    WITHDRAW: ReasonFacts,
    PUBLISHING: PublishingFacts,
    PUBLISH: PublishFacts,
    UNPUBLISHED: UnpublishedFacts,
}


def facts_of(row: Row, data: Any = None) -> Any:
    """Return the facts of a row, whose JSON may be read already; a row that states something else is broken."""
    model = FACTS[row.kind]
    try:
        return model.model_validate_json(row.facts) if data is None else model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = place_of(first["loc"])
        what = f"the facts of this {row.kind} cannot be read: {place + ': ' if place else ''}{first['msg']}"
        raise broken(what, kind="facts", number=row.number) from None


# ---- entries -----------------------------------------------------------------------------------------------

_MOST_RUNS: Final = 12  # of entries in a row that are listed
RESERVED, COMMITTED, ABORTED, WITHDRAWN = "reserved", "committed", "aborted", "withdrawn"
_WORDS: Final = {
    RESERVE: "reserved",
    ADD: "recorded, made elsewhere",
    DRAW: "draw recorded",
    COMMIT: "committed",
    ABORT: "aborted",
    WITHDRAW: "withdrawn",
    PUBLISHING: "copying begun",
    PUBLISH: "published",
    UNPUBLISHED: "not published",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row about an entry: what happened, who wrote it down and when, why, and for a publication where to.

    ``place`` and ``files`` are those of a publication that begins; ``began`` is its row, in the row that ends it.
    ``accepted`` names the doubts that the publisher accepted.
    """

    number: int
    kind: str
    who: str
    when: str
    reason: str = ""
    to: str = ""
    place: str = ""
    files: str = ""
    began: int | None = None
    accepted: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Return what happened, in words."""
        where = f" to {self.to}" if self.to else ""
        return f"{_WORDS[self.kind]}{where}"


class Entry(OpeningFacts):
    """One release in the ledger: what its opening row states, and what became of it.

    ``drawn`` says that randomness may have been drawn. Randomness that may have been seen counts as
    spent, so an entry stops counting only if it was aborted *before* anything random happened.
    ``derived_from`` lists entries whose output this one is computed from: it costs nothing (Proposition
    2.5.4). ``includes`` lists earlier entries that its specification already covers. ``unspecified`` says why a
    release made elsewhere has no specification. ``who`` and ``when`` are those of the row that opened the entry,
    ``history`` has them all; ``made`` is the stated day of a release made elsewhere.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    number: int
    id: str
    specification: Specification | None
    status: str
    drawn: bool
    hash: str
    previous: str
    reason: str = ""
    elsewhere: bool = False
    history: tuple[Event, ...] = ()

    @property
    def when(self) -> str:
        """Return when the entry was opened."""
        return self.at

    @property
    def day(self) -> str:
        """Return the day of the release as far as it is known: stated, or that of the row that opened the entry."""
        return self.made or self.when[:10]

    @property
    def publications(self) -> tuple[Event, ...]:
        """Return when and where to the release was published, as often as it was."""
        return tuple(event for event in self.history if event.kind == PUBLISH)

    @property
    def open_publications(self) -> tuple[Event, ...]:
        """Return the publications that began and of which no row says whether they appeared."""
        ended = {event.began for event in self.history}
        return tuple(event for event in self.history if event.kind == PUBLISHING and event.number not in ended)

    @property
    def is_spent(self) -> bool:
        """Say whether the entry counts, or will count if it goes on: all but aborted before a draw."""
        return counts(self.status, drawn=self.drawn)

    @property
    def state(self) -> str:
        """Return the status in words that do not hide what was spent."""
        if self.status == ABORTED:
            return "aborted, spent" if self.drawn else "aborted, unspent"
        if self.status == RESERVED and self.drawn:
            return "reserved, drawing"
        return self.status


def counts(status: str, *, drawn: bool) -> bool:
    """Say whether an entry of this status counts in the total."""
    return status != ABORTED or drawn


class Charge(NamedTuple):
    """One entry as the total sees it: which specification, and why it may cost nothing.

    It covers what it ``includes`` once it is ``drawn``: a reservation may still be given up, and its parts were spent.
    What was ``given_up`` has no bundle: nothing of it can be published, whether anything was drawn or not.
    """

    number: int
    id: str
    specification: str  # digest
    spent: bool = True
    drawn: bool = True
    reserved: bool = False
    given_up: bool = False
    sample: str | None = None
    amplified: bool = False
    sampling: Mapping[str, Any] | None = None  # the design, the loss on the sample, and dependent samples
    derived_from: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    unspecified: str = ""  # why it has no specification


def entry_names(entries: Sequence[int]) -> str:
    """Write numbers of entries as names of doubts have them.

    >>> entry_names((1, 2, 3, 7))
    '1-3+7'
    """
    return numbers(entries).replace(", ", "+").replace(" ", "-")


def numbers(entries: Sequence[int]) -> str:
    """Write numbers of entries, runs of them shortened.

    >>> numbers((1, 2, 3, 7))
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(entries):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_MOST_RUNS]]
    return ", ".join([*shown, *([f"and {len(runs) - _MOST_RUNS:,} more"] if len(runs) > _MOST_RUNS else [])])
