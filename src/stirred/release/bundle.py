"""A bundle is complete or absent: it is written beside its place and moved there in one step."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stirred.data.problems import bad_plan
from stirred.spec.document import from_json
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification

MANIFEST = "manifest.json"
SEEDED_MARK = "SEEDED-TEST-RUN.txt"
_SEEDED_TEXT = (
    "This is a test run with a seed. Whoever knows the seed can undo the protection.\n"
    "Nothing in this folder may be published.\n"
)


@contextmanager
def bundle_at(out: Path) -> Iterator[Path]:
    """Yield a folder to write a bundle into; it becomes ``out`` if its files are those of its manifest."""
    with folder_at(out) as folder:
        yield folder
        _check_complete(folder)


@contextmanager
def folder_at(out: Path) -> Iterator[Path]:
    """Yield a folder to write into; on success it becomes ``out``, otherwise it disappears.

    A process killed at any moment leaves no ``out`` behind, at most a hidden folder that the next run
    to the same place removes. Each run has a folder of its own, and holds a lock on it for as long as
    it lives, so that no other run, on this machine or another, takes it for a leftover.
    """
    check_place(out)
    remove_leftovers(out)
    partial, lock = _own_folder(out)
    moved = False
    try:
        yield partial
        _sync(partial)
        _move(partial, out)
        moved = True
    finally:
        if not moved:
            shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _own_folder(out: Path) -> tuple[Path, int]:
    """Make a hidden folder beside ``out`` and lock it; the lock ends with the process, however it ends."""
    while True:
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        lock = os.open(partial, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), partial.stat()):
                return partial, lock
        except (BlockingIOError, FileNotFoundError):
            pass  # another run took the folder for a leftover before it was locked: take a new one
        os.close(lock)


def check_place(out: Path) -> None:
    """Refuse a place where no new folder can be made."""
    # os.path answers False where a folder may not be looked into; pathlib would raise.
    if os.path.lexists(out):
        raise bad_plan(
            "something is already there", where=str(out), remedy="choose a new folder, or remove the old one"
        )
    if not os.path.isdir(out.parent):
        raise bad_plan(
            "its parent folder does not exist, or may not be looked into",
            where=str(out),
            remedy=f"create {out.parent} first, or choose another place",
        )
    if not os.access(out.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise bad_plan("its parent folder cannot be written", where=str(out), remedy="choose another place")


def remove_leftovers(out: Path) -> None:
    """Remove folders of runs that died: those whose lock nobody holds any more."""
    for old in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
        try:
            lock = os.open(old, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # not a folder, or gone meanwhile
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _check_complete(folder: Path) -> None:
    """Compare the files, names and contents, with the manifest once more: what appears is what it lists."""
    wanted = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    if _checksums(folder) != wanted:
        raise OSError(errno.EIO, "files of the bundle changed while it was written", str(folder))


def _checksums(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): checksum(path) for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != MANIFEST]


def _move(partial: Path, out: Path) -> None:
    try:
        os.rename(partial, out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise bad_plan(
                "something appeared there meanwhile", where=str(out), remedy="choose a new folder and run again"
            ) from None
        raise
    _sync_path(out.parent)


def _sync(folder: Path) -> None:
    """Force every file and folder to the disk before the move makes them visible."""
    for path in sorted(folder.rglob("*")):
        _sync_path(path)
    _sync_path(folder)


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the parts of a folder one after the other."""
    if path.is_dir():
        parts = "".join(checksum(part) for part in sorted(path.iterdir()) if part.is_file())
        return hashlib.sha256(parts.encode()).hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def bundle_checksum(folder: Path) -> str:
    """Return the checksum of a bundle: that of its manifest, which holds the checksum of every other file."""
    return checksum(folder / MANIFEST)


def published_specification(bundle: Path) -> Specification | None:
    """Return the promise that a bundle publishes, or None if it cannot be read."""
    try:
        return from_json((bundle / "public" / "specification.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, StirredError):
        return None


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write manifest.json with the checksum of every other file; the seed is never in it."""
    for path in (folder / "internal").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    text = json.dumps(
        {"schema_version": 1, **facts, "files": _checksums(folder)}, indent=2, ensure_ascii=False, default=str
    )
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def mark_seeded(folder: Path) -> None:
    """Leave the marker of a test run in the bundle and in what could be published."""
    for place in (folder, folder / "public"):
        (place / SEEDED_MARK).write_text(_SEEDED_TEXT, encoding="utf-8")
