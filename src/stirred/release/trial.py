"""One draw of a plan as a test: for comparing plans inside the agency. Nothing is spent, and nothing is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stirred.engines.local import LocalEngine
from stirred.mechanisms.protocol import Progress, plan_doubts
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import mark_seeded
from stirred.release.files import write_public
from stirred.release.prepared import Prepared


def trial_draw(prepared: Prepared, folder: Path, *, seed: str, progress: Progress | None = None) -> Path:
    """Write the public files that a plan would have under a seed, marked as a test run; return their bundle.

    Doubts that a person may accept are: this is not a release. No ledger is opened, and the folder is the caller's to
    remove.
    """
    (folder / "public" / "tables").mkdir(parents=True)
    (folder / "internal").mkdir(mode=0o700)
    mechanism = prepared.mechanism.on(LocalEngine()).working_in(folder / "internal", progress=folder / "progress")
    files = mechanism.files(prepared.data, prepared.plan)
    doubts = plan_doubts(prepared.plan, settings_from=mechanism.settings_from)
    accept = [doubt.name for doubt in doubts if doubt.refuses and not doubt.final]
    entropy = Entropy.from_seed(seed)
    release = mechanism.release(prepared.data, entropy, accept=accept, plan=prepared.plan, progress=progress)
    release = replace(release, specification=replace(release.specification, seeded=True))
    write_public(folder, prepared, files, release)
    mark_seeded(folder)
    return folder
