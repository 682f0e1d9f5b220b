"""A bundle is complete or absent: it is written beside its place and moved there in one step."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stirred.data.bundle import MANIFEST, SEEDED_MARK, checksum, files_of
from stirred.data.problems import bad_plan
from stirred.release.place import Place, claimed, sync
from stirred.spec.domain import file_identity
from stirred.spec.specification import Specification

_SEEDED_TEXT = (
    "This is a test run with a seed. Whoever knows the seed can undo the protection.\n"
    "Nothing in this folder may be published.\n"
)


@contextmanager
def bundle_in(place: Place) -> Iterator[Path]:
    """Yield the folder of a claimed place; it becomes a bundle there if its files are those of its manifest."""
    with _appearing(place) as folder:
        yield folder
        _check_complete(folder)


@contextmanager
def folder_at(out: Path, *, finish: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Yield a folder to write into; on success it becomes ``out``, otherwise it disappears.

    ``finish`` is called once everything is on the disk, just before the folder gets its place.

    A process killed at any moment leaves no ``out`` behind, at most a hidden folder that the next run
    to the same place removes.
    """
    with claimed(out) as place, _appearing(place, finish=finish) as folder:
        yield folder


@contextmanager
def _appearing(place: Place, *, finish: Callable[[Path], None] | None = None) -> Iterator[Path]:
    yield place.folder
    _sync(place.folder)
    if finish is not None:
        finish(place.folder)
        _sync(place.folder)
    # A bundle never appears while the key that made it still exists.
    place.destroy_key()
    move_new(place.folder, place.out)
    sync(place.out.parent)
    place.give_up()  # nothing is left to finish


def _check_complete(folder: Path) -> None:
    """Compare the files, names and contents, with the manifest once more: what appears is what it lists."""
    wanted = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    if _checksums(folder) != wanted:
        raise OSError(errno.EIO, "files of the bundle changed while it was written", str(folder))


def _checksums(folder: Path) -> dict[str, str]:
    return {name: checksum(folder / name) for name in sorted(files_of(folder))}


def _sync(folder: Path) -> None:
    """Force every file and folder to the disk before the move makes them visible."""
    for path in (*sorted(folder.rglob("*")), folder):
        sync(path)


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


_AT_FDCWD: Final = -100
_NO_REPLACE: Final = 1  # RENAME_NOREPLACE of renameat2(2)
_EXCLUSIVE: Final = 4  # RENAME_EXCL of renamex_np(2), on macOS
# The call, the kernel or the file system does not know the flag.
_UNKNOWN: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def move_new(folder: Path, place: Path) -> None:
    """Give a folder its place; refuse if anything stands there, be it an empty folder.

    A plain rename replaces an empty folder without a word, and somebody may have made it for a purpose.
    """
    try:
        try:
            _rename_new(folder, place)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            _rename_claimed(folder, place)
    except OSError as error:
        if error.errno in _TAKEN:
            raise bad_plan(
                "something appeared there meanwhile", where=str(place), remedy="choose a new folder and run again"
            ) from None
        raise


def _rename_new(folder: Path, place: Path) -> None:
    """Rename by the system call that refuses to replace."""
    library = ctypes.CDLL(None, use_errno=True)
    old, new = os.fsencode(folder), os.fsencode(place)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(old, new, ctypes.c_uint(_EXCLUSIVE))
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, ctypes.c_uint(_NO_REPLACE))
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(place))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(folder), None, str(place))


def _rename_claimed(folder: Path, place: Path) -> None:
    """Rename over an empty folder of our own, where the system cannot refuse to replace.

    Making the folder fails if anything is there, so what the rename replaces is ours. A process that dies in between
    leaves it, empty and closed to others.
    """
    os.mkdir(place, 0o700)
    try:
        os.rename(folder, place)
    except OSError:
        os.rmdir(place)  # fails, and leaves it alone, if somebody put something inside
        raise
