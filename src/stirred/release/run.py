"""From a plan to a bundle: run, write, verify, and only then let it appear."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl

from stirred import __version__
from stirred.data.place import Place, claimed
from stirred.mechanisms.protocol import Check, Progress, Release, Workplace, check_seeded, plan_doubts
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import bundle_in, mark_seeded, write_manifest
from stirred.release.engine import working
from stirred.release.files import Files, public_files, verify_public, write_public
from stirred.release.kept import Kept
from stirred.release.ledger import Request, Total
from stirred.release.ledger.samples import Sampling
from stirred.release.ledger.store import store_at
from stirred.release.ledger_doubts import earlier_entry
from stirred.release.plan_file import Planned
from stirred.release.prepared import Prepared
from stirred.release.rehearsal import rehearse
from stirred.release.reports import write_reports
from stirred.release.reservation import Reservation, reserved


def run(prepared: Prepared, *, entropy: Entropy | None = None, progress: Progress | None = None) -> Path:
    """Carry a prepared plan out and return the bundle. It is complete, or it does not exist.

    What can fail without a draw fails first. Then the cost is reserved and the draw recorded, and only then a key is
    taken from the operating system (``entropy`` is for tests). A run that dies after its draw can be resumed.
    """
    if entropy is not None:
        Entropy.expected(entropy)
    prepared.refuse()
    check_seeded(prepared.plan, seeded=entropy is not None and entropy.seeded)
    files = prepared.plan.files(prepared.mechanism, prepared.data)
    seeded = entropy is not None and entropy.seeded
    request = release_request(prepared, seeded=seeded)
    with claimed(prepared.planned.out) as place, working(prepared.engine, prepared.planned, place, progress):
        if prepared.ledger is not None:
            prepared.ledger.would(request)  # what the policy forbids is not even rehearsed
        rehearse(place, prepared, files, request)
        with reserved(prepared.ledger, request, place) as reservation, bundle_in(place) as folder:
            log = Log(folder)
            log.add("started", records=prepared.data.households.height)
            if reservation.facts is not None:
                place.keep_record(Kept.of(prepared, ledger=reservation.facts).written)
            reservation.draw()
            drawn = draw_key(reservation, place, entropy)
            make_bundle(folder, prepared, files, drawn, reservation, log, progress)
    reservation.commit(place.out)
    return place.out


def draw_key(reservation: Reservation, place: Place, entropy: Entropy | None) -> Entropy:
    """Return the randomness of this release alone; with a ledger its key is kept until the bundle appears.

    It is bound to the entry of the ledger, or to a number of its own. A seed is used as it is, since it must repeat
    itself; no ledger accepts one.
    """
    if entropy is not None and entropy.seeded:
        return entropy
    source = Entropy.from_os() if entropy is None else entropy.for_release()
    facts = reservation.facts
    if facts is None:
        return source.child(f"bundle {uuid4()}")
    own = source.child(f"ledger {facts['id']} entry {facts['entry']}")
    place.keep_key(own.kept)
    return own


def make_bundle(
    folder: Path,
    prepared: Prepared,
    files: Files,
    entropy: Entropy,
    reservation: Reservation,
    log: Log,
    progress: Progress | None,
) -> None:
    """Release, write, verify and report. All of it follows from the plan, the files and the key."""
    advance = progress or (lambda stage, done, total: None)
    log.add("drawn")
    # Other doubts are known to the release alone.
    own = {doubt.name for doubt in plan_doubts(prepared.plan)}
    accept = [doubt.name for doubt in prepared.accepted if doubt.name in own]
    release = prepared.mechanism.release(
        prepared.data,
        entropy,
        accept=accept,
        plan=prepared.plan,
        progress=advance,
        workplace=Workplace(folder / "internal", folder.parent / "progress"),
    )
    release = replace(release, specification=replace(release.specification, seeded=entropy.seeded))
    log.add("swapped", **release.internal.get("log", {}))
    advance("write", 0, 1)
    write_public(folder, prepared, files, release, account=reservation.account)
    if not any((folder / "public" / "tables").iterdir()):
        (folder / "public" / "tables").rmdir()
    log.add("written")
    advance("verify", 0, 1)
    checks = verify_public(folder, prepared, files, release)
    log.add("verified", checks=[f"{check.what}: {check.result}" for check in checks])
    advance("report", 0, 1)
    write_reports(folder, prepared, release, checks)
    prepared.check_unchanged()  # of what was read and checked meanwhile, some came from the files
    if entropy.seeded:
        mark_seeded(folder)
    log.add("complete")
    write_manifest(folder, {**_manifest(prepared, files, release, checks), "ledger": reservation.facts})
    advance("done", 1, 1)


def _parameters(planned: Planned) -> dict[str, Any]:
    """Return the plan as it is kept: the ledger by its name, which has no password in it."""
    parameters: dict[str, Any] = json.loads(planned.plan.model_dump_json(exclude={"engine"}))
    if planned.plan.release.ledger is not None:
        parameters["release"]["ledger"] = store_at(planned.plan.release.ledger).name
    return parameters


def release_request(prepared: Prepared, *, seeded: bool) -> Request:
    """Return what the ledger is asked for: the promise of this run, and enough to explain it years later."""
    planned, sampled = prepared.planned, prepared.plan.sampled
    return Request(
        mechanism=planned.plan.mechanism.name,
        specification=replace(prepared.plan.specification, seeded=seeded),
        purpose=planned.plan.release.purpose,
        parameters=_parameters(planned),
        inputs=prepared.inputs,
        place=planned.out,
        includes=_included(prepared),
        sample=None if sampled is None else sampled[0],
        amplified=sampled is not None,
        sampling=None if sampled is None else Sampling.of(sampled[1]),
    )


def _included(prepared: Prepared) -> list[int]:
    """Return the entries whose promises are part of this one, so that a ledger counts them once."""
    ledger = prepared.ledger
    known = [] if ledger is None else [earlier_entry(ledger, table) for table in prepared.plan.includes]
    return [entry.number for entry in known if entry is not None]


def remaining(prepared: Prepared) -> Total | None:
    """Return the total the ledger would have after this run, refusing what its policy forbids; nothing is written."""
    return None if prepared.ledger is None else prepared.ledger.would(release_request(prepared, seeded=False))


class Log:
    """internal/log.jsonl: what happened and when; never a record of the file."""

    def __init__(self, folder: Path) -> None:
        (folder / "public" / "tables").mkdir(parents=True)
        (folder / "internal").mkdir(mode=0o700)
        self.path = folder / "internal" / "log.jsonl"

    def add(self, event: str, **facts: Any) -> None:
        """Append one line."""
        line = json.dumps({"at": _now(), "event": event, **facts})
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _manifest(prepared: Prepared, files: Files, release: Release, checks: Sequence[Check]) -> dict[str, Any]:
    planned, released = prepared.planned, prepared.plan.released_columns(prepared.data)
    parameters = _parameters(planned)
    # A file that a setting names may be gone when somebody audits the bundle.
    parameters["mechanism"].update(prepared.settings.dumped())
    return {
        "stirred": __version__,
        "python": platform.python_version(),
        "polars": pl.__version__,
        "created": _now(),
        "engine": dict(prepared.engine.facts),
        "purpose": planned.plan.release.purpose,
        "plan": parameters,
        "inputs": dict(prepared.inputs),
        "records": prepared.data.households.height,
        "identifiers": list(prepared.data.identifiers),
        "released": {
            "households": [*released.households],
            "persons": [*released.persons],
            "link": next(iter(released.link), None),
        },
        "public_files": public_files(prepared, files),
        "seeded": release.specification.seeded,
        "doubts": [
            {"name": doubt.name, "what": doubt.what, "refuses": doubt.refuses, "accepted": doubt in prepared.accepted}
            for doubt in prepared.doubts
        ],
        "checks": [asdict(check) for check in checks],
    }
