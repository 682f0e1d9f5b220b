"""One draw of a plan that is not a release: for the rehearsal, and for comparing plans inside the agency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stirred.engines.local import LocalEngine
from stirred.mechanisms.protocol import Progress, Release, Workplace, plan_doubts
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import mark_seeded
from stirred.release.files import write_public
from stirred.release.prepared import Prepared


def trial_draw(prepared: Prepared, folder: Path, entropy: Entropy, *, progress: Progress | None = None) -> Release:
    """Write the public files that a plan would have under this randomness into a new bundle, and return what it drew.

    Doubts that a person may accept are accepted: this is not a release. It states what the plan promises. No ledger is
    opened, and the folder is the caller's to remove.
    """
    (folder / "public" / "tables").mkdir(parents=True)
    (folder / "internal").mkdir(mode=0o700)
    mechanism = prepared.mechanism.on(LocalEngine())
    files = prepared.plan.files(mechanism, prepared.data)
    doubts = plan_doubts(prepared.plan)
    accept = [doubt.name for doubt in doubts if doubt.refuses and not doubt.final]
    release = mechanism.release(
        prepared.data,
        entropy,
        accept=accept,
        plan=prepared.plan,
        progress=progress,
        workplace=Workplace(folder / "internal", folder / "progress"),
    )
    promised = prepared.plan.specification
    release = replace(release, specification=replace(promised, seeded=promised.seeded or entropy.seeded))
    write_public(folder, prepared, files, release)
    if entropy.seeded:
        mark_seeded(folder)
    return release
