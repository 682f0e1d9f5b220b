"""Checking a whole ledger: every hash, link, document and change of status; the first break is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from stirred.release.ledger.account import Account
from stirred.release.ledger.facts import FACTS, facts_of
from stirred.release.ledger.problems import BrokenLedgerError, StorageError, bad_request, broken
from stirred.release.ledger.row import OPENING, Row, canonical, digest_of
from stirred.release.ledger.store import Store


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
    account = Account(documents.get)
    first: BrokenLedgerError | None = None
    try:
        if not rows:
            raise broken("the ledger has no rows", kind="gap", number=0)
        for row in rows:
            account.read((row,))
            _check_facts(row)
            if row.kind in OPENING and row.specification:
                account.specification(row.specification)
        if head is not None:
            _check_head(rows, head)
    except BrokenLedgerError as error:
        first = error
    sound = rows if first is None else [row for row in rows if row.number < first.number]
    return Verification(
        rows=len(rows),
        entries=len(account.standings),
        head=account.last.hash if account.last else "",
        first_break=first,
        observations=_observations(sound, documents),
    )


def verify_store(store: Store, *, head: str | None = None) -> Verification:
    """Check a stored ledger; damage that keeps the storage from being read is a break as well."""
    try:
        return verify_rows(store.rows(), store.documents(), head=head)
    except StorageError as error:
        if "damaged" not in str(error):
            raise
        found = BrokenLedgerError(error.problems, kind="storage")
        return Verification(rows=0, entries=0, head="", first_break=found)


def _check_facts(row: Row) -> None:
    """Check what reading for a total has no need to look at."""
    facts_of(row, FACTS[row.kind])
    # The text is what was hashed; anything but its canonical form was not written by us.
    if canonical(json.loads(row.facts)) != row.facts:
        raise broken("its facts are not in canonical form", kind="facts", number=row.number)


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


def _observations(rows: Sequence[Row], documents: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    latest: tuple[datetime, int] | None = None
    back = 0
    for row in rows:
        stated = _time(facts_of(row, FACTS[row.kind]).at)
        if stated is None:
            notes.append(f"row {row.number}: its time cannot be read")
            continue
        if latest is not None and stated < latest[0]:
            back += 1
            if back <= 5:
                notes.append(
                    f"row {row.number}: its clock is behind that of row {latest[1]} "
                    f"({stated.isoformat()} after {latest[0].isoformat()}); the order is that of the numbers"
                )
        else:
            latest = (stated, row.number)
    if back > 5:
        notes.append(f"{back - 5} more rows with a clock behind an earlier one")
    used = {row.specification for row in rows}
    unused = sum(digest not in used for digest in documents)
    if unused:
        notes.append(f"{unused} stored specification{'s' if unused > 1 else ''} that no row refers to")
    if any(digest_of(text) != digest for digest, text in documents.items() if digest not in used):
        notes.append("one of them was changed")
    return tuple(notes)


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
