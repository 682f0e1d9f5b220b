"""The files of a bundle: all of them are there, none is added, and each is the one whose checksum was recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from stirred.audit.findings import Findings
from stirred.data.columns import has_text
from stirred.data.frames import read_frame
from stirred.spec.problems import StirredError

MANIFEST: Final = "manifest.json"
CHECKSUMS: Final = "CHECKSUMS.sha256"


def audit_manifest(bundle: Path, found: Findings) -> dict[str, Any] | None:
    """Return the manifest after comparing all files with it, or None if it cannot be read."""
    try:
        manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
        recorded = manifest["files"]
        if not isinstance(recorded, dict):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        found.bad("it is missing or cannot be read, so no file can be trusted", where=MANIFEST)
        return None
    # Later evaluations are appended with checksums of their own.
    present = {name for name in _files(bundle) if not name.startswith("internal/evaluations/")}
    _compare(bundle, present - {MANIFEST}, recorded, "the manifest", found)
    return dict(manifest)


def audit_published(public: Path, found: Findings) -> None:
    """Compare the files of a published folder with the checksums that were published with them, if any."""
    try:
        lines = (public / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        found.unchecked.append(f"checksums: there is neither {MANIFEST} nor {CHECKSUMS} here")
        return
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    _compare(public, _files(public) - {CHECKSUMS}, recorded, CHECKSUMS, found)


def read_released(path: Path, found: Findings, *, where: str) -> pl.DataFrame | None:
    """Return a table of a bundle; what cannot be read, or is of a kind that is never released, is a finding."""
    try:
        frame = read_frame(path)
    except StirredError as error:
        for problem in error.problems:
            found.bad(f"it cannot be read: {problem.what}", where=where)
        return None
    odd = [f'"{name}" ({kind})' for name, kind in frame.schema.items() if kind != pl.Null and not has_text(kind)]
    if odd:
        found.bad(f"it has values of a kind that is never released: {', '.join(odd)}", where=where)
    return None if odd else frame


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _compare(folder: Path, present: set[str], recorded: Mapping[str, str], where: str, found: Findings) -> None:
    for name in sorted(set(recorded) - present):
        found.bad(f"it is in {where} and not in the folder", where=name)
    for name in sorted(present - set(recorded)):
        found.bad(f"it is in the folder and not in {where}", where=name)
    for name in sorted(set(recorded) & present):
        with (folder / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != recorded[name]:
                found.bad(f"it is not the file {where} describes", where=name)
    found.checks.append(f"checksums of {len(recorded)} files")
