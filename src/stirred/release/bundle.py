"""A bundle is complete or absent: it is written next to its place and moved there in one step."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stirred.data.bundle import SEEDED_MARK, checksum, files_of
from stirred.data.place import MANIFEST, Place, appearing
from stirred.spec.document import mechanism_in
from stirred.spec.domain import file_identity
from stirred.spec.specification import Specification

_SEEDED_TEXT = (
    "This is a test run with a seed. Whoever knows the seed can undo the protection.\n"
    "Nothing in this folder may be published.\n"
)


@contextmanager
def bundle_in(place: Place) -> Iterator[Path]:
    """Yield the folder of a claimed place; it becomes a bundle there if its files are those of its manifest."""
    with appearing(place) as folder:
        yield folder
        _check_complete(folder)


def _check_complete(folder: Path) -> None:
    """Compare the files, names and contents, with the manifest once more: what appears is what it lists."""
    wanted = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    if _checksums(folder) != wanted:
        raise OSError(errno.EIO, "files of the bundle changed while it was written", str(folder))


def _checksums(folder: Path) -> dict[str, str]:
    return {name: checksum(folder / name) for name in sorted(files_of(folder))}


def bundle_checksum(folder: Path) -> str:
    """Return the checksum of a bundle: that of its manifest, which holds the checksum of every other file."""
    return checksum(folder / MANIFEST)


def bundle_origin(folder: Path) -> dict[str, Any]:
    """Return the plan of a bundle and the checksums of its files, as a ledger keeps them, if a manifest states them."""
    try:
        stated = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        inputs = {str(role): str(seen) for role, seen in stated["inputs"].items()}
        return {"inputs": inputs, "parameters": dict(stated["plan"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def stated_mechanism(place: Path) -> str:
    """Return the name of the mechanism that a bundle, a published folder or a specification states; empty if none."""
    for path in (place / "public" / "specification.json", place / "specification.json", place):
        try:
            found = mechanism_in(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return "" if found is None else found.name
    return ""


def identified(folder: Path, specification: Specification) -> Specification:
    """Return the specification of a bundle with what its manifest knows of the file, if there is a manifest.

    The manifest stays inside: of a published folder only the ledger is known, which its specification names.
    """
    origin = bundle_origin(folder)
    name = dict(origin.get("parameters", {}).get("data", {})).get("name")
    known = file_identity(files=origin.get("inputs", {}).values(), name=name or "")
    domain = specification.domain
    return specification.with_flavor(domain=replace(domain, identity=domain.identity | known))


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write manifest.json with the checksum of every other file; the seed is never in it."""
    for path in (folder / "internal").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    text = json.dumps(
        {"schema_version": 1, **facts, "files": _checksums(folder)}, indent=2, ensure_ascii=False, default=str
    )
    (folder / MANIFEST).touch(mode=0o600)  # it names the inputs, the plan and the ledger: it stays inside the agency
    (folder / MANIFEST).chmod(0o600)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def mark_seeded(folder: Path) -> None:
    """Leave the marker of a test run in the bundle and in what could be published."""
    for place in (folder, folder / "public"):
        (place / SEEDED_MARK).write_text(_SEEDED_TEXT, encoding="utf-8")
