"""An entry: one release, or one reservation for it, as the rows about it tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stirred.spec.specification import Specification

RESERVED, COMMITTED, ABORTED, WITHDRAWN = "reserved", "committed", "aborted", "withdrawn"
STATUSES: Final = (RESERVED, COMMITTED, ABORTED, WITHDRAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One release in the ledger: what, by whom, why, with which specification, and what became of it.

    ``drawn`` says that randomness may have been drawn. Randomness that may have been seen counts as
    spent, so an entry stops counting only if it was aborted *before* anything random happened.
    ``derived_from`` lists entries whose output this one is computed from: it costs nothing (Proposition
    2.5.4). ``includes`` lists earlier entries that its specification already covers.
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
