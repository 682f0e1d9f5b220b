"""An entry: one release, or one reservation for it, as the rows about it tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stirred.release.ledger.row import ABORT, ADD, COMMIT, DRAW, PUBLISH, RESERVE, WITHDRAW
from stirred.spec.specification import Specification

RESERVED, COMMITTED, ABORTED, WITHDRAWN = "reserved", "committed", "aborted", "withdrawn"
STATUSES: Final = (RESERVED, COMMITTED, ABORTED, WITHDRAWN)
_WORDS: Final = {
    RESERVE: "reserved",
    ADD: "recorded, made elsewhere",
    DRAW: "draw recorded",
    COMMIT: "committed",
    ABORT: "aborted",
    WITHDRAW: "withdrawn",
    PUBLISH: "published",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row about an entry: what happened, who wrote it down and when, why, and for a publication where to."""

    number: int
    kind: str
    who: str
    when: str
    reason: str = ""
    to: str = ""

    @property
    def what(self) -> str:
        """Return what happened, in words."""
        where = f" to {self.to}" if self.to else ""
        return f"{_WORDS[self.kind]}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One release in the ledger: what, by whom, why, with which specification, and what became of it.

    ``drawn`` says that randomness may have been drawn. Randomness that may have been seen counts as
    spent, so an entry stops counting only if it was aborted *before* anything random happened.
    ``derived_from`` lists entries whose output this one is computed from: it costs nothing (Proposition
    2.5.4). ``includes`` lists earlier entries that its specification already covers. ``who`` and ``when``
    are those of the row that opened the entry, ``history`` has them all; ``made`` is the stated day of a
    release made elsewhere.
    """

    number: int
    id: str
    mechanism: str
    specification: Specification | None
    status: str
    drawn: bool
    who: str
    when: str
    purpose: str
    hash: str
    previous: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sample: str | None = None
    amplified: bool = False
    derived_from: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    place: str | None = None
    bundle: str | None = None
    reason: str = ""
    elsewhere: bool = False
    made: str | None = None
    history: tuple[Event, ...] = ()

    @property
    def day(self) -> str:
        """Return the day of the release as far as it is known: stated, or that of the row that opened the entry."""
        return self.made or self.when[:10]

    @property
    def publications(self) -> tuple[Event, ...]:
        """Return when and where to the release was published, as often as it was."""
        return tuple(event for event in self.history if event.kind == PUBLISH)

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
