"""Recovery: what became of reservations whose process died, decided from what it left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stirred.release.bundle import MANIFEST, bundle_checksum, checksum, remove_leftovers
from stirred.release.ledger.entry import RESERVED, Entry
from stirred.release.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One reservation and what recovery made of it; ``entry`` is how it stands now."""

    entry: Entry
    because: str


def recover(
    ledger: Ledger, references: Sequence[str | int] = (), *, who: str | None = None, dry_run: bool = False
) -> list[Recovered]:
    """Resolve open reservations, all of them or those named.

    Nothing drawn: aborted, at no cost. Drawn, and a whole bundle of this entry at its place: committed.
    Drawn, and no such bundle: aborted, and spent, for somebody may have seen it. A process that turns out
    to be alive loses nothing but time: its draw is refused before anything random happens, and a bundle
    it completes later can still be committed.
    """
    entries = [ledger.entry(reference) for reference in references] or list(ledger.entries())
    return [_resolve(ledger, entry, who, dry_run) for entry in entries if entry.status == RESERVED]


def _resolve(ledger: Ledger, entry: Entry, who: str | None, dry_run: bool) -> Recovered:
    if entry.place is not None and not dry_run:
        remove_leftovers(Path(entry.place))  # half a bundle of a dead process; a living one holds a lock on its own
    if not entry.drawn:
        because = "nothing had been drawn: aborted, and nothing is spent"
        return Recovered(entry=entry if dry_run else _aborted(ledger, entry, because, who), because=because)
    found, because = whole_bundle(entry)
    if found is None:
        because = f"{because}: aborted, and spent, since something may have been seen"
        return Recovered(entry=entry if dry_run else _aborted(ledger, entry, because, who), because=because)
    because = f"{because}: committed"
    return Recovered(entry=entry if dry_run else ledger.commit(entry.id, bundle=found, who=who), because=because)


def _aborted(ledger: Ledger, entry: Entry, because: str, who: str | None) -> Entry:
    return ledger.abort(entry.id, reason=f"recovery: {because}", who=who)


def whole_bundle(entry: Entry) -> tuple[str | None, str]:
    """Return the checksum of the entry's bundle if it is there, whole and its own; and what was found.

    The manifest must name the entry (``ledger.entry``), list the files that are there and no others, and
    every checksum must be right.
    """
    if entry.place is None:
        return None, "no place for its bundle was recorded"
    folder = Path(entry.place)
    if not (folder / MANIFEST).is_file():
        return None, "there is no bundle at its place"
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        named, files = manifest["ledger"]["entry"], dict(manifest["files"])
        present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}
        if named != entry.id:
            return None, "the bundle at its place belongs to another entry"
        if present != set(files) or any(checksum(folder / name) != wanted for name, wanted in files.items()):
            return None, "the bundle at its place is not whole"
        return bundle_checksum(folder), "its bundle is at its place and whole"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, "the manifest of the bundle at its place cannot be read"
