"""Recovery: what became of reservations whose process died, decided from what it left behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stirred.data.bundle import SPECIFICATION, Manifest, checksum, files_of, published_specification
from stirred.data.place import MANIFEST, Place, abort_command, is_at_work, remove_leftovers, sweep, unheld
from stirred.release.ledger.ledger import Ending, Ledger
from stirred.release.ledger.row import ABORTED, RESERVED, Entry, Event
from stirred.release.reservation import has_appeared


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One reservation or publication and what recovery made of it; ``entry`` is how it stands now."""

    entry: Entry
    because: str


def recover(
    ledger: Ledger, references: Sequence[str | int] = (), *, who: str | None = None, dry_run: bool = False
) -> list[Recovered]:
    """Resolve open reservations, all of them or those named.

    Nothing drawn: aborted, at no cost. Drawn, and a whole bundle of this entry at its place: committed.
    Drawn, and its run is at work or its draw is kept: left open, since the release can be finished at no cost.
    Drawn, and nothing is left of it: aborted, and spent, for somebody may have seen it. A process that turns out
    to be alive loses nothing but time: its draw is refused before anything random happens, and a bundle
    it completes later is committed, by itself or by the next recovery. A publication that began is recorded as
    published if its files are at its place, and as not published otherwise; what was half copied is removed.
    """
    entries = [ledger.entry(reference) for reference in references] or list(ledger.entries())
    # A run may have died before it was reserved, or after it was committed: no entry tells. Where the ledger is, too.
    places = [
        place for entry in entries for place in (entry.place, *(began.place for began in entry.open_publications))
    ]
    for folder in {Path(place).parent for place in (*places, ledger.name) if place and "://" not in place}:
        if not dry_run:
            sweep(folder)
    done = [_resolve(ledger, entry, who, dry_run) for entry in entries if entry.status == RESERVED]
    done += [late for entry in entries for late in _late(ledger, entry, who, dry_run)]
    publications = [(entry, began) for entry in entries for began in entry.open_publications]
    return done + [_end_publication(ledger, entry, began, who, dry_run) for entry, began in publications]


def _resolve(ledger: Ledger, entry: Entry, who: str | None, dry_run: bool) -> Recovered:
    if entry.place is not None and not entry.drawn and not dry_run:
        give_up(entry)  # what was kept to repeat a draw that never happened
    if entry.place is not None and not dry_run:
        remove_leftovers(Path(entry.place))  # half a bundle of a dead process; a living one holds a lock on its own
    if (waiting := _can_go_on(ledger, entry)) is not None:
        return Recovered(entry=entry, because=waiting)
    if dry_run:
        return Recovered(entry=entry, because=_ending(entry).because)
    # The process may turn out to be alive, and draw after we looked: how the entry stands is read where it is ended.
    found: list[Ending] = []

    def decide(now: Entry) -> Ending:
        found.append(_ending(now))
        return replace(found[-1], because=f"recovery: {found[-1].because}")

    return Recovered(entry=ledger.settle(entry.id, decide, who=who), because=found[-1].because)


def give_up(entry: Entry) -> bool:
    """Destroy the key and whatever else a dead run of an entry left at its place; say whether there was anything."""
    if entry.place is None or not _is_kept(entry):
        return False
    with unheld(Path(entry.place)) as place:
        if place is None:
            return False
        place.give_up()
        place.tidy()
    remove_leftovers(Path(entry.place))
    return True


def _can_go_on(ledger: Ledger, entry: Entry) -> str | None:
    """Say how a drawn release can still be finished at no cost; nothing where it cannot, or is complete."""
    if not entry.drawn or entry.place is None or not _is_kept(entry) or whole_bundle(entry)[0] is not None:
        return None
    if is_at_work(Path(entry.place)):
        return "its run is at work: left open"
    return (
        f"its draw is kept: left open; `stirred release --resume {entry.place}` finishes the release at no further "
        f"cost, and `{abort_command(ledger.name, entry.number)}` gives it up"
    )


def _is_kept(entry: Entry) -> bool:
    """Say whether what is kept at the entry's place is of this entry."""
    try:
        record = Place(out=Path(str(entry.place))).record
        return record is not None and json.loads(record)["ledger"]["entry"] == entry.id
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _ending(entry: Entry) -> Ending:
    if not entry.drawn and not entry.derived_from:
        return Ending(because="nothing had been drawn: aborted, and nothing is spent")
    found, what = whole_bundle(entry)
    if found is not None:
        return Ending(because=f"{what}: committed", bundle=found)
    if not entry.drawn:
        return Ending(because=f"{what}: aborted; it is derived, so nothing is spent")
    return Ending(because=f"{what}: aborted, and spent, since something may have been seen")


def _late(ledger: Ledger, entry: Entry, who: str | None, dry_run: bool) -> list[Recovered]:
    """Commit what was aborted and has its whole bundle after all: a run interrupted just after its bundle appeared."""
    if entry.status != ABORTED or not entry.drawn:
        return []
    found, what = whole_bundle(entry)
    if found is None:
        return []
    done = entry if dry_run else ledger.commit(entry.id, bundle=found, who=who)
    return [Recovered(entry=done, because=f"{what}, though it was aborted: committed")]


def _end_publication(ledger: Ledger, entry: Entry, began: Event, who: str | None, dry_run: bool) -> Recovered:
    """Say whether a publication appeared whose process did not; a living one, or one out of sight, is left alone."""
    place = Path(began.place)
    if not place.parent.is_dir():
        return Recovered(entry=entry, because=f"{place.parent} cannot be seen from here: recover where it can be")
    if is_at_work(place):
        return Recovered(entry=entry, because=f"it is being published to {began.to} now: left alone")
    appeared = has_appeared(place, began.files)
    words = f"its files are at {place}: published" if appeared else f"its files are not at {place}: not published"
    if dry_run:
        return Recovered(entry=entry, because=words)
    remove_leftovers(place)
    if appeared:
        done = ledger.publish(entry.id, to=began.to, who=who, began=began.number, accepted=began.accepted)
        return Recovered(entry=done, because=words)
    return Recovered(
        entry=ledger.give_up_publication(entry.id, began, reason=f"recovery: {words}", who=who), because=words
    )


def whole_bundle(entry: Entry, *, at: Path | None = None) -> tuple[str | None, str]:
    """Return the checksum of the entry's bundle if it is there, whole and its own; and what was found.

    The manifest must name the entry (``ledger.entry``), list the files that are there and no others, and
    every checksum must be right; what it promises, if it does, must be what was reserved. It is looked for ``at`` a
    folder, by default at the entry's place.
    """
    if entry.place is None:
        return None, "no place for its bundle was recorded"
    folder = at or Path(entry.place)
    if not (folder / MANIFEST).is_file():
        return None, "there is no bundle at its place"
    try:
        written = (folder / MANIFEST).read_bytes()
        manifest = Manifest.read(written)
        if manifest is None or manifest.ledger is None or "entry" not in manifest.ledger:
            return None, "the manifest of the bundle at its place cannot be read"
        files, public = manifest.files, folder / "public"
        if manifest.ledger["entry"] != entry.id:
            return None, "the bundle at its place belongs to another entry"
        if files_of(folder) != set(files) or any(checksum(folder / name) != wanted for name, wanted in files.items()):
            return None, "the bundle at its place is not whole"
        if SPECIFICATION in manifest.public and published_specification(public) != entry.specification:
            return None, "the bundle at its place promises something else than was reserved"
        return hashlib.sha256(written).hexdigest(), "its bundle is at its place and whole"
    except OSError:
        return None, "the manifest of the bundle at its place cannot be read"
