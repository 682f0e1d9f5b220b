"""Recovery: what became of reservations whose process died, decided from what it left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stirred.release.bundle import MANIFEST, bundle_checksum, checksum, published_specification, remove_leftovers
from stirred.release.ledger.entry import ABORTED, RESERVED, Entry
from stirred.release.ledger.ledger import Ending, Ledger


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
    it completes later is committed, by itself or by the next recovery.
    """
    entries = [ledger.entry(reference) for reference in references] or list(ledger.entries())
    done = [_resolve(ledger, entry, who, dry_run) for entry in entries if entry.status == RESERVED]
    return done + [late for entry in entries if _may_be_late(entry) for late in _late(ledger, entry, who, dry_run)]


def _resolve(ledger: Ledger, entry: Entry, who: str | None, dry_run: bool) -> Recovered:
    if entry.place is not None and not dry_run:
        remove_leftovers(Path(entry.place))  # half a bundle of a dead process; a living one holds a lock on its own
    if dry_run:
        return Recovered(entry=entry, because=_ending(entry).because)
    # The process may turn out to be alive, and draw after we looked: how the entry stands is read where it is ended.
    found: list[Ending] = []

    def decide(now: Entry) -> Ending:
        found.append(_ending(now))
        return replace(found[-1], because=f"recovery: {found[-1].because}")

    return Recovered(entry=ledger.settle(entry.id, decide, who=who), because=found[-1].because)


def _ending(entry: Entry) -> Ending:
    if not entry.drawn and not entry.derived_from:
        return Ending(because="nothing had been drawn: aborted, and nothing is spent")
    found, what = whole_bundle(entry)
    if found is not None:
        return Ending(because=f"{what}: committed", bundle=found)
    if not entry.drawn:
        return Ending(because=f"{what}: aborted; it is derived, so nothing is spent")
    return Ending(because=f"{what}: aborted, and spent, since something may have been seen")


def _may_be_late(entry: Entry) -> bool:
    return entry.status == ABORTED and entry.drawn and entry.place is not None


def _late(ledger: Ledger, entry: Entry, who: str | None, dry_run: bool) -> list[Recovered]:
    """Commit what was aborted and has its whole bundle after all: a run interrupted just after its bundle appeared."""
    found, what = whole_bundle(entry)
    if found is None:
        return []
    done = entry if dry_run else ledger.commit(entry.id, bundle=found, who=who)
    return [Recovered(entry=done, because=f"{what}, though it was aborted: committed")]


def whole_bundle(entry: Entry) -> tuple[str | None, str]:
    """Return the checksum of the entry's bundle if it is there, whole and its own; and what was found.

    The manifest must name the entry (``ledger.entry``), list the files that are there and no others, and
    every checksum must be right; what it promises, if it does, must be what was reserved.
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
        if "public/specification.json" in files and published_specification(folder) != entry.specification:
            return None, "the bundle at its place promises something else than was reserved"
        return bundle_checksum(folder), "its bundle is at its place and whole"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, "the manifest of the bundle at its place cannot be read"
