"""From a plan to a bundle: run, write, verify, and only then let it appear."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from stirred import __version__
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Progress, Release
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import bundle_at, check_place, mark_seeded, write_manifest
from stirred.release.contents import Contents, contents_of
from stirred.release.ledger import Request, Total
from stirred.release.ledger.store import store_at
from stirred.release.plan_file import Planned
from stirred.release.prepared import Prepared
from stirred.release.public_files import write_public
from stirred.release.reports import write_reports
from stirred.release.reservation import reserved
from stirred.release.verify import Check


def run(prepared: Prepared, *, entropy: Entropy, progress: Progress | None = None) -> Path:
    """Carry a prepared plan out and return the bundle. It is complete, or it does not exist."""
    _check_promise(prepared)
    contents = contents_of(prepared)
    advance = progress or (lambda stage, done, total: None)
    out = prepared.planned.out
    check_place(out)
    with (
        reserved(prepared.ledger, release_request(prepared, seeded=entropy.seeded)) as reservation,
        bundle_at(out) as folder,
    ):
        log = Log(folder)
        log.add("started", records=prepared.data.households.height)
        reservation.draw()
        release = prepared.mechanism.release(prepared.data, entropy, plan=prepared.plan, progress=advance)
        release = _marked(release, seeded=entropy.seeded)
        log.add("swapped")
        advance("write", 0, 1)
        write_public(folder, prepared, contents, release)
        log.add("written")
        advance("verify", 0, 1)
        checks = contents.verify(release, folder)
        log.add("verified", checks=[f"{check.what}: {check.result}" for check in checks])
        advance("report", 0, 1)
        write_reports(folder, prepared, contents, release, checks)
        if entropy.seeded:
            mark_seeded(folder)
        log.add("complete")
        write_manifest(folder, {**_manifest(prepared, contents, release, checks), "ledger": reservation.facts})
        advance("done", 1, 1)
    reservation.commit(out)
    return out


def _parameters(planned: Planned) -> dict[str, Any]:
    """Return the plan as it is kept: the ledger by its name, which has no password in it."""
    parameters: dict[str, Any] = json.loads(planned.plan.model_dump_json())
    if planned.plan.release.ledger is not None:
        parameters["release"]["ledger"] = store_at(planned.plan.release.ledger).name
    return parameters


def release_request(prepared: Prepared, *, seeded: bool) -> Request:
    """Return what the ledger is asked for: the promise of this run, and enough to explain it years later."""
    planned = prepared.planned
    return Request(
        mechanism=planned.plan.mechanism.name,
        specification=replace(prepared.plan.specification, seeded=seeded),
        purpose=planned.plan.release.purpose,
        parameters=_parameters(planned),
        inputs=prepared.inputs,
        place=planned.out,
    )


def remaining(prepared: Prepared) -> Total | None:
    """Return the total the ledger would have after this run, refusing what its policy forbids; nothing is written."""
    return None if prepared.ledger is None else prepared.ledger.would(release_request(prepared, seeded=False))


def _check_promise(prepared: Prepared) -> None:
    """Refuse what would publish a promise that does not hold, before anything random happens."""
    if prepared.mechanism.settings_from == "this-data":
        raise bad_plan(
            "settings chosen by looking at the confidential file void the guarantee",
            where=f"{prepared.planned.source} [mechanism] settings_from",
            remedy="choose them by policy, from the invariants, or on an earlier or synthetic file",
        )


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


def _marked(release: Release, *, seeded: bool) -> Release:
    return replace(release, specification=replace(release.specification, seeded=seeded))


def _manifest(prepared: Prepared, contents: Contents, release: Release, checks: Sequence[Check]) -> dict[str, Any]:
    planned = prepared.planned
    parameters = _parameters(planned)
    # A file of distances or weights may be gone when somebody audits the bundle.
    parameters["mechanism"].update(prepared.mechanism.declared_pairs)
    return {
        "stirred": __version__,
        "python": platform.python_version(),
        "polars": pl.__version__,
        "created": _now(),
        "purpose": planned.plan.release.purpose,
        "plan": parameters,
        "inputs": dict(prepared.inputs),
        "records": prepared.data.households.height,
        "identifiers": list(prepared.data.identifiers),
        "released": _released(prepared, contents),
        "seeded": release.specification.seeded,
        "checks": [asdict(check) for check in checks],
    }


def _released(prepared: Prepared, contents: Contents) -> dict[str, Any]:
    """Return the columns that may be in public files, and the one that is issued anew to link them."""
    data, mechanism = prepared.data, prepared.mechanism
    homes = contents.columns()
    return {
        "households": [name for name in data.households.columns if name in homes],
        "persons": [name for name in data.person_variables if mechanism.hold is None or name in mechanism.hold],
        "link": data.hid if data.persons is not None else None,
    }
