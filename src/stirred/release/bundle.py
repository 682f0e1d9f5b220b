"""A bundle is complete or absent: it is written beside its place and moved there in one step."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stirred.data.problems import bad_plan

MANIFEST = "manifest.json"
SEEDED_MARK = "SEEDED-TEST-RUN.txt"
_SEEDED_TEXT = (
    "This is a test run with a seed. Whoever knows the seed can undo the protection.\n"
    "Nothing in this folder may be published.\n"
)


@contextmanager
def bundle_at(out: Path) -> Iterator[Path]:
    """Yield a folder to write into; on success it becomes ``out``, otherwise it disappears.

    A process killed at any moment leaves no ``out`` behind, at most a hidden folder that the next
    run to the same place removes.
    """
    _check_place(out)
    _remove_leftovers(out)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    partial.mkdir(mode=0o700)
    try:
        yield partial
        _sync(partial)
        _move(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_place(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise bad_plan(
            "something is already there", where=str(out), remedy="choose a new folder, or remove the old one"
        )
    if not out.parent.is_dir():
        raise bad_plan("its parent folder does not exist", where=str(out), remedy=f"create {out.parent} first")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise bad_plan("its parent folder cannot be written", where=str(out), remedy="choose another place")


def _remove_leftovers(out: Path) -> None:
    for old in out.parent.glob(f".{out.name}.partial-*"):
        owner = re.fullmatch(r".*\.partial-(\d+)", old.name)
        if owner is None or not _alive(int(owner[1])):
            shutil.rmtree(old, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


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
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write manifest.json with the checksum of every other file; the seed is never in it."""
    files = {
        str(path.relative_to(folder)): checksum(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({"schema_version": 1, **facts, "files": files}, indent=2, ensure_ascii=False, default=str)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def mark_seeded(folder: Path) -> None:
    """Leave the marker of a test run in the bundle and in what could be published."""
    for place in (folder, folder / "public"):
        (place / SEEDED_MARK).write_text(_SEEDED_TEXT, encoding="utf-8")
