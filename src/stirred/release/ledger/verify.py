"""Checking a whole ledger: every hash, link, document and change of status; the first break is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stirred.release.ledger.account import Account, without_collecting
from stirred.release.ledger.problems import BrokenLedgerError, DamagedStorageError, bad_request, broken
from stirred.release.ledger.row import OPENING, Facts, Row, facts_of
from stirred.release.ledger.sqlite import DAMAGED
from stirred.release.ledger.store import Store
from stirred.spec.problems import Problem

_MOST_NOTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of the whole ledger found.

    ``first_break`` is None for a sound ledger. ``observations`` are oddities that break nothing, such
    as clocks that went backwards. ``head`` is the last hash: kept elsewhere, it shows later whether
    rows were cut off at the end, which the chain alone cannot.
    """

    rows: int
    entries: int
    head: str
    first_break: BrokenLedgerError | None = None
    observations: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Say whether nothing is broken."""
        return self.first_break is None


def verify_rows(rows: Sequence[Row], documents: Mapping[str, str], *, head: str | None = None) -> Verification:
    """Check rows and documents; ``head`` is a hash written down earlier that must still be there."""
    account, clock = Account(documents.get), _Clock()
    first: BrokenLedgerError | None = None
    try:
        if not rows:
            raise broken("the ledger has no rows", kind="gap", number=0)
        account.read(_checked(rows, account, clock))
        if head is not None:
            _check_head(rows, head)
    except BrokenLedgerError as error:
        first = error
    used = {row.specification for row in rows}
    unused = sum(digest not in used for digest in documents)
    idle = [f"{unused} stored specification{'s' if unused > 1 else ''} that no row refers to"] if unused else []
    return Verification(
        rows=len(rows),
        entries=len(account.standings),
        head=account.last.hash if account.last else "",
        first_break=first,
        observations=(*clock.notes, *idle),
    )


def _checked(rows: Sequence[Row], account: Account, clock: _Clock) -> Iterator[Row]:
    """Hand on each row; once the account has taken it in, look at what a total has no need to look at."""
    for row in rows:
        yield row
        clock.look(row.number, _facts(row).at)
        if row.kind in OPENING and row.specification:
            account.specification(row.specification)


def verify_store(store: Store, *, head: str | None = None) -> Verification:
    """Check a stored ledger; damage of the storage itself is a break as well."""
    left = store.unfinished()
    found = Verification(rows=0, entries=0, head="", observations=tuple(left))
    try:
        with without_collecting():
            checked = verify_rows(store.rows(), store.documents(), head=head)
        found = replace(checked, observations=(*left, *checked.observations))
        if found.first_break is None and (damage := store.damage()):
            told = f"SQLite's own check finds the file damaged: {'; '.join(damage[:3])} (storage)"
            problem = Problem(what=f"every row can be read, but {told}", where=store.name, remedy=DAMAGED)
            found = replace(found, first_break=BrokenLedgerError((problem,), kind="storage"))
        return replace(found, observations=(*found.observations, *store.guards()))
    except DamagedStorageError as error:
        return replace(found, first_break=found.first_break or BrokenLedgerError(error.problems, kind="storage"))


def _facts(row: Row) -> Facts:
    """Return the facts of a row, whose text must be the canonical one: nothing else was written by us."""
    try:
        data = json.loads(row.facts, parse_constant=_no_constant)
        same = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":")) == row.facts
    except (ValueError, RecursionError):
        raise broken("its facts are not JSON", kind="facts", number=row.number) from None
    if not same:
        raise broken("its facts are not in canonical form", kind="facts", number=row.number)
    found: Facts = facts_of(row, data)
    return found


def _no_constant(text: str) -> str:
    raise ValueError(text)


def _check_head(rows: Sequence[Row], head: str) -> None:
    wanted = head.strip().lower()
    if len(wanted) < 16:
        raise bad_request(f"{head!r} is too short to be a hash", where="--head", remedy="give the whole hash")
    if not any(row.hash.startswith(wanted) for row in rows):
        raise broken(
            f"no row has the hash {wanted[:16]}... that was written down: rows are missing at the end",
            kind="cut off",
            number=len(rows),
        )


class _Clock:
    """Notes where a stated time is earlier than one before it. Clocks are not trusted; the numbers give the order."""

    def __init__(self) -> None:
        self._latest: tuple[datetime, int] | None = None
        self._notes: list[str] = []

    def look(self, number: int, text: str) -> None:
        """Look at the time one row states."""
        try:
            stated = datetime.fromisoformat(text)
        except ValueError:
            stated = None
        if stated is None or stated.tzinfo is None:
            self._notes.append(f"row {number}: its time cannot be read")
        elif self._latest is not None and stated < self._latest[0]:
            self._notes.append(
                f"row {number}: its clock is behind that of row {self._latest[1]} ({stated.isoformat()} after "
                f"{self._latest[0].isoformat()}); the order is that of the numbers"
            )
        else:
            self._latest = (stated, number)

    @property
    def notes(self) -> list[str]:
        """Return the first few notes, and how many more there are."""
        more = len(self._notes) - _MOST_NOTES
        return [*self._notes[:_MOST_NOTES], *([f"{more:,} more rows like this"] if more > 0 else [])]
