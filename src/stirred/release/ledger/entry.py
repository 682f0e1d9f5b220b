"""An entry: one release, or one reservation for it, as the rows about it tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict

from stirred.release.ledger.row import (
    ABORT,
    ADD,
    COMMIT,
    DRAW,
    PUBLISH,
    PUBLISHING,
    RESERVE,
    UNPUBLISHED,
    WITHDRAW,
    OpeningFacts,
)
from stirred.spec.specification import Specification

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
    ``accepted`` names the doubts that whoever published accepted.
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
        """Return the publications that began and of which nobody wrote down whether they appeared."""
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
