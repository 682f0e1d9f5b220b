"""The place of a bundle, claimed by one run: a hidden folder beside it, with a lock for as long as the run lives.

    .NAME.partial/bundle    what becomes NAME in one step
    .NAME.partial/resume    of a release in a ledger: what repeats it, should the run die after its draw

Only one run can hold the folder, so that of many runs to one place all but one are refused before they reserve
anything. The lock ends with the process, however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from stirred.data.bundle import MANIFEST
from stirred.data.problems import bad_plan

_WAITS: Final = (0.1, 0.3, 1.0, 3.0)  # seconds
_KEY: Final = "key"
# What the key was, as a checksum: it stays when the key is gone, and says that there was one.
_MARK: Final = "key.sha256"
_DESTROYED: Final = ".key.destroyed"
_RECORD: Final = "release.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a bundle will be, and the hidden folder in which it is made."""

    out: Path

    @property
    def hidden(self) -> Path:
        """Return the folder that the run holds."""
        return self.out.parent / f".{self.out.name}.partial"

    @property
    def folder(self) -> Path:
        """Return the folder that becomes the bundle."""
        return self.hidden / "bundle"

    @property
    def _kept(self) -> Path:
        return self.hidden / "resume"

    @property
    def is_resumable(self) -> bool:
        """Say whether a release is kept here that can be finished."""
        return (self._kept / _RECORD).is_file()

    @property
    def record(self) -> bytes | None:
        """Return what was kept about the release before its draw, or nothing."""
        return _read(self._kept / _RECORD)

    @property
    def key(self) -> bytes | None:
        """Return the key of the draw, or nothing where it was never made, is destroyed, or is another one."""
        key, mark = _read(self._kept / _KEY), _read(self._kept / _MARK)
        return key if key is None or mark is None or _checksum(key) == mark else None

    @property
    def was_keyed(self) -> bool:
        """Say whether a key was made for this release: another key would make another release."""
        return (self._kept / _MARK).is_file()

    def keep_record(self, record: bytes) -> None:
        """Keep what is needed to repeat the release; only its owner can read it."""
        self._kept.mkdir(mode=0o700, exist_ok=True)
        _write_private(self._kept / _RECORD, record)
        sync(self.hidden)

    def keep_key(self, key: bytes) -> None:
        """Keep the key until the bundle appears; it is on the disk before anything is drawn with it."""
        _write_private(self._kept / _KEY, key)
        _write_private(self._kept / _MARK, _checksum(key))

    def destroy_key(self) -> None:
        """Overwrite the key and remove it. Its name goes first: half a key must not be taken for one."""
        path, doomed = self._kept / _KEY, self._kept / _DESTROYED
        if path.is_file():
            path.rename(doomed)
            sync(self._kept)
        if not doomed.is_file():
            return
        with doomed.open("r+b") as stream:
            stream.write(os.urandom(doomed.stat().st_size))
        sync(doomed)
        doomed.unlink()
        sync(self._kept)

    @property
    def abort_command(self) -> str:
        """Return the command that gives the kept release up, with its ledger and entry where the record names them."""
        try:
            facts = json.loads(self.record or b"")["ledger"]
            return abort_command(str(facts["name"]), facts["number"])
        except (ValueError, KeyError, TypeError):
            return "stirred ledger abort LEDGER ENTRY --reason TEXT"

    def give_up(self) -> None:
        """Destroy the key and what else was kept: the release can be finished no more."""
        self.destroy_key()
        shutil.rmtree(self._kept, ignore_errors=True)

    @property
    def is_sealed(self) -> bool:
        """Say whether the bundle was complete and its key destroyed, so that only the last step is missing."""
        return self.is_resumable and self.was_keyed and self.key is None and (self.folder / MANIFEST).is_file()

    @property
    def _scratch(self) -> Path:
        return self.hidden / "scratch"

    @property
    def scratch(self) -> Path | None:
        """Return the folder of an engine, if there is one."""
        return self._scratch.resolve() if self._scratch.exists() else None

    def new_scratch(self, elsewhere: Path | None = None) -> Path:
        """Return an empty folder for this run alone; one that is elsewhere is remembered here, to be removed."""
        self.remove_scratch()
        if elsewhere is None:
            self._scratch.mkdir(mode=0o700)
        else:
            self._scratch.symlink_to(elsewhere.absolute())
        return self._scratch.resolve()

    def remove_scratch(self) -> None:
        """Remove the folder in which an engine worked, wherever it is."""
        folder, waits = self._scratch.resolve(), iter(_WAITS)
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            if (wait := next(waits, None)) is None:
                warnings.warn(f"confidential records may be left in {folder}: remove it", stacklevel=2)
                break
            time.sleep(wait)  # executors that were told to stop may write for a moment
        if self._scratch.is_symlink():
            self._scratch.unlink()

    def clear(self) -> None:
        """Make the folder of the bundle empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)

    def tidy(self) -> None:
        """Remove everything but what finishes a release that was drawn."""
        self.remove_scratch()
        appeared = self.key is None and not self.folder.is_dir() and (self.out / MANIFEST).is_file()
        if not self.is_resumable or appeared:
            self.give_up()
            shutil.rmtree(self.hidden, ignore_errors=True)
        elif not self.is_sealed:
            # What was written is made again from the key, and a full disk needs the room.
            shutil.rmtree(self.folder, ignore_errors=True)


def abort_command(ledger: str, entry: int) -> str:
    """Return the command that gives a release up.

    >>> abort_command("my homes.ledger", 4)
    "stirred ledger abort 'my homes.ledger' 4 --reason TEXT"
    """
    return shlex.join(["stirred", "ledger", "abort", ledger, str(entry), "--reason", "TEXT"])


@contextmanager
def claimed(out: Path) -> Iterator[Place]:
    """Yield a place that nobody else can write to, with an empty folder; leftovers of a dead run are removed.

    A place where a drawn release can be resumed is refused: its draw is paid for.
    """
    place, lock = Place(out=out), None
    try:
        with _undisturbed():  # or a folder could be made that nobody removes
            lock = _lock(place, make=True)
        if place.is_resumable:
            finish = shlex.join(["stirred", "resume", str(out)])
            raise bad_plan(
                "a release to this place was drawn and not finished, and what it needs is kept",
                where=str(out),
                remedy=f"finish it at no further cost: `{finish}`; or give it up: `{place.abort_command}`",
            )
        check_place(out)  # another run may have finished between the first look and the lock
        place.clear()
        yield place
    finally:
        if lock is not None:
            place.tidy()
            os.close(lock)


@contextmanager
def reopened(out: Path) -> Iterator[Place]:
    """Yield the place of a release that was drawn and not finished, for the one process that finishes it."""
    place = Place(out=out)
    if not place.is_resumable:
        done = (out / MANIFEST).is_file()
        raise bad_plan(
            "the release is complete" if done else "no unfinished release is kept for this place",
            where=str(out),
            remedy="there is nothing to finish"
            if done
            else "only a run with --ledger can be resumed, by the folder it was to go to; otherwise run it again",
        )
    lock = _lock(place, make=False)
    try:
        yield place
    finally:
        try:
            place.tidy()
        finally:
            os.close(lock)


def check_place(out: Path) -> None:
    """Refuse a place where no new folder can be made."""
    # os.path answers False where a folder may not be looked into; pathlib would raise.
    if os.path.lexists(out):
        raise bad_plan(
            "something is already there", where=str(out), remedy="choose a new folder, or remove the old one"
        )
    if not os.path.isdir(out.parent):
        remedy = f"create {out.parent} first, or choose another place"
        raise bad_plan("its parent folder does not exist, or may not be looked into", where=str(out), remedy=remedy)
    if not os.access(out.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise bad_plan("its parent folder cannot be written", where=str(out), remedy="choose another place")


def remove_leftovers(out: Path) -> None:
    """Remove what a dead run left at a place, but for a release that was drawn and can be finished."""
    for each in (out, copies_of(out)):
        _tidied(each)


def remove_copies(out: Path) -> None:
    """Remove the copies of tables from elsewhere that a dead run to a place left."""
    _tidied(copies_of(out))


def _tidied(out: Path) -> None:
    with unheld(out) as place:
        if place is not None:
            place.tidy()


def copies_of(out: Path) -> Path:
    """Return the place, never a bundle, in whose hidden folder a run to ``out`` has copies of tables from elsewhere."""
    return out.with_name(f"{out.name}.copies")


@contextmanager
def unheld(out: Path) -> Iterator[Place | None]:
    """Yield the place of a dead run, locked; None where a run is at work, or nothing is left of one."""
    place = Place(out=out)
    try:
        lock = os.open(place.hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        yield place if _held(lock, place) else None
    finally:
        os.close(lock)


def is_at_work(out: Path) -> bool:
    """Say whether a living run holds the place."""
    with unheld(out) as place:
        return place is None and Place(out=out).hidden.is_dir()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put an interruption off until the end of the block. Only the main thread is ever interrupted."""
    came: list[tuple[int, FrameType | None]] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(ending)
            if callable(handler):
                handlers[int(ending)] = handler
                signal.signal(ending, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        for signum, frame in came[:1]:
            handlers[signum](signum, frame)


def _lock(place: Place, *, make: bool) -> int:
    """Return the handle of the hidden folder with an exclusive lock on it."""
    while True:
        if make:
            check_place(place.out)
            with suppress(FileExistsError):  # of a dead run, or of one that is at work: the lock tells
                place.hidden.mkdir(mode=0o700)
        try:
            lock = os.open(place.hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if make:
                continue  # another run has just finished
            raise
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                what = f"{place.hidden.name} is in the way, and it is not a folder"
                raise bad_plan(what, where=str(place.out), remedy="remove it, or choose a new folder") from None
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            remedy = "choose a new folder, or wait for the other run"
            raise bad_plan("another run is writing to this place", where=str(place.out), remedy=remedy) from None
        if _is(lock, place):
            return lock
        os.close(lock)  # it was moved or removed between the look and the lock


def _held(lock: int, place: Place) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return _is(lock, place)


def _is(lock: int, place: Place) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), place.hidden.stat())
    except FileNotFoundError:
        return False


def _checksum(key: bytes) -> bytes:
    return hashlib.sha256(key).hexdigest().encode()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all, and force it to the disk."""
    half = path.with_name(f".{path.name}")
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
    sync(half)
    half.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
