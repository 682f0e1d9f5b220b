"""The place of an output, claimed by one run: a hidden folder next to it, locked for as long as the run lives.

    .NAME.partial/lock      who holds it (filelock)
    .NAME.partial/bundle    what becomes NAME in one step
    .NAME.partial/resume    of a release in a ledger: what repeats it, should the run die after its draw

Every output of every command is made there, so it is complete or absent. Only one run can hold the folder: of many
runs to one place all but one are refused before they reserve anything. The lock ends with the process, however that
ends.

The folder holds keys and confidential records. It is ours alone: made by this user, closed to others, and never reached
or removed through a link. A folder that somebody else made, or that holds what no run makes, is refused.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from filelock import FileLock, Timeout

from stirred.data.problems import PlanError, bad_plan

MANIFEST: Final = "manifest.json"  # here, so that refusing a place loads nothing that reads data
CHECKSUMS: Final = "CHECKSUMS.sha256"  # of a published folder

_WAITS: Final = (0.1, 0.3, 1.0, 3.0)  # seconds
_BRIEFLY: Final = 0.25  # a run that sweeps what the dead left holds a folder for a moment
_LOCK: Final = "lock"
_KEY: Final = "key"
# What the key was, as a checksum: it stays when the key is gone, and says that there was one.
_MARK: Final = "key.sha256"
_DESTROYED: Final = ".key.destroyed"
_RECORD: Final = "release.json"
_BUNDLE: Final = "bundle"
_KEPT: Final = "resume"
_SCRATCH: Final = "scratch"
# Of a scratch folder that is elsewhere: whose it is. A link that somebody put there leads to no folder with this file.
_OWNER: Final = ".stirred-scratch"
# All that a run makes in its hidden folder, beside the lock.
_MADE: Final = frozenset((_BUNDLE, _KEPT, _SCRATCH, "progress", "rehearsal"))
_HIDDEN: Final = re.compile(r"\.(.+)\.partial", re.DOTALL)
_WINDOWS: Final = sys.platform == "win32"
# No link is followed where the system can refuse to; a file is opened at once, be it a pipe, and read as bytes.
PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an output will be, and the hidden folder in which it is made; ``held`` tells the folder that we hold."""

    out: Path
    held: os.stat_result | None = field(default=None, compare=False, repr=False)

    @property
    def hidden(self) -> Path:
        """Return the folder that the run holds."""
        return self.out.parent / f".{self.out.name}.partial"

    @property
    def folder(self) -> Path:
        """Return the folder that becomes the bundle."""
        return self.hidden / _BUNDLE

    @property
    def is_ours(self) -> bool:
        """Say whether the hidden folder is still the one that we hold; where we hold none, whether we made it."""
        try:
            found = self.hidden.lstat()
        except OSError:
            return False
        if self.held is not None:
            return os.path.samestat(found, self.held)
        return stat.S_ISDIR(found.st_mode) and _is_mine(found)

    def _read(self, name: str) -> bytes | None:
        kept = self.hidden / _KEPT
        return _read(kept / name) if self.is_ours and _is_folder(kept) else None

    @property
    def is_resumable(self) -> bool:
        """Say whether a release is kept here that can be finished."""
        return self.record is not None

    @property
    def record(self) -> bytes | None:
        """Return what was kept about the release before its draw, or nothing."""
        return self._read(_RECORD)

    @property
    def key(self) -> bytes | None:
        """Return the key of the draw, or nothing where it was never made, is destroyed, or is another one."""
        key, mark = self._read(_KEY), self._read(_MARK)
        return key if key is None or mark is None or _checksum(key) == mark else None

    @property
    def was_keyed(self) -> bool:
        """Say whether a key was made for this release: another key would make another release."""
        return self._read(_MARK) is not None

    def keep_record(self, record: bytes) -> None:
        """Keep what is needed to repeat the release; only its owner can read it."""
        if self.is_ours:
            with suppress(FileExistsError):
                (self.hidden / _KEPT).mkdir(mode=0o700)
        self._keep({_RECORD: record})
        sync(self.hidden)

    def keep_key(self, key: bytes) -> None:
        """Keep the key until the bundle appears; it is on the disk before anything is drawn with it."""
        self._keep({_KEY: key, _MARK: _checksum(key)})

    def _keep(self, contents: dict[str, bytes]) -> None:
        kept = self.hidden / _KEPT
        if not self.is_ours or not _is_folder(kept):
            raise _in_the_way(self, "what is kept of a release is not in a folder of ours")
        for name, content in contents.items():
            _write_private(kept / name, content)

    def destroy_key(self) -> None:
        """Overwrite the key and remove it. Its name goes first: half a key must not be taken for one."""
        kept = self.hidden / _KEPT
        if not self.is_ours or not _is_folder(kept):
            return
        gone = kept / _DESTROYED
        with suppress(FileNotFoundError):
            (kept / _KEY).replace(gone)
            sync(kept)
        with suppress(FileNotFoundError):
            if stat.S_ISREG((found := gone.lstat()).st_mode):
                with os.fdopen(os.open(gone, os.O_WRONLY | PLAIN), "wb") as stream:
                    stream.write(os.urandom(found.st_size))
                    stream.flush()
                    os.fsync(stream.fileno())
            gone.unlink()
            sync(kept)

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
        self._remove(_KEPT)

    def _remove(self, *names: str) -> None:
        """Remove what stands in the hidden folder; what a link leads to is left alone."""
        for name in names:
            if self.is_ours:
                _remove(self.hidden / name)

    @property
    def is_sealed(self) -> bool:
        """Say whether the bundle was complete and its key destroyed, so that only the last step is missing."""
        return self.is_resumable and self.was_keyed and self.key is None and (self.folder / MANIFEST).is_file()

    @property
    def _scratch(self) -> Path:
        return self.hidden / _SCRATCH

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
            elsewhere.chmod(0o700)
            (elsewhere / _OWNER).write_text(self._owner, encoding="utf-8")
            self._scratch.symlink_to(elsewhere.absolute())
        return self._scratch.resolve()

    @property
    def _owner(self) -> str:
        return f"{self.hidden.absolute()}\n"

    def remove_scratch(self) -> None:
        """Remove the folder in which an engine worked; one that is elsewhere only if it says that it is ours."""
        folder, waits = self._scratch, iter(_WAITS)
        if folder.is_symlink():
            folder = Path(os.readlink(folder))
            named = self._made(folder)
            if not named and folder.exists():
                what = f"{self._scratch} leads to {folder}, which does not say that it is a folder of ours: left alone"
                warnings.warn(f"{what}; confidential records may be in it", stacklevel=2)
            if not named:
                self._remove(_SCRATCH)
                return
        while folder.exists():
            if folder == self._scratch:
                self._remove(_SCRATCH)
            else:
                shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            if (wait := next(waits, None)) is None:
                warnings.warn(f"confidential records may be left in {folder}: remove it", stacklevel=2)
                break
            time.sleep(wait)  # executors that are stopping may write for a moment
        if self._scratch.is_symlink():
            self._remove(_SCRATCH)

    def _made(self, folder: Path) -> bool:
        """Say whether a run to this place made a folder elsewhere: it is closed to others, and names the place."""
        try:
            found = folder.lstat()
            named = (folder / _OWNER).read_text(encoding="utf-8") == self._owner
        except (OSError, ValueError):
            return False
        return named and stat.S_ISDIR(found.st_mode) and _is_closed(found) and _is_mine(found)

    def clear(self) -> None:
        """Make the folder of the bundle empty."""
        self._remove(_BUNDLE)
        self.folder.mkdir(mode=0o700)

    def tidy(self) -> None:
        """Remove everything but what finishes a release that was drawn."""
        if not self.is_ours:
            what = f"another folder was put in place of {self.hidden}: look for the one that was moved away"
            warnings.warn(f"{what}; confidential records may be in it", stacklevel=2)
            return
        self.remove_scratch()
        appeared = self.key is None and not self.folder.is_dir() and (self.out / MANIFEST).is_file()
        if not self.is_resumable or appeared:
            self.give_up()
            self._remove(*_MADE - {_SCRATCH})
            self._remove(_LOCK)
            with suppress(OSError):  # what no run made is left alone
                self.hidden.rmdir()
        elif not self.is_sealed:
            # What was written is made again from the key, and a full disk needs the room.
            self._remove(_BUNDLE)


def abort_command(ledger: str, entry: int) -> str:
    """Return the command that gives a release up.

    >>> abort_command("my homes.ledger", 4)
    "stirred ledger abort 'my homes.ledger' 4 --reason TEXT"
    """
    return shlex.join(["stirred", "ledger", "abort", ledger, str(entry), "--reason", "TEXT"])


@contextmanager
def claimed(out: Path, *, replace: bool = False, private: bool = True) -> Iterator[Place]:
    """Yield a place that no other run can write to, with an empty folder; leftovers of dead runs are removed.

    A place where a drawn release can be resumed is refused: its draw is paid for. So is a hidden folder that we did not
    make. ``replace`` allows that something is there already. Where nothing ``private`` is made, a disk that cannot
    close a folder to others will do.
    """
    lock = None
    try:
        with _undisturbed():  # or a folder could be left behind
            place, lock = _lock(Place(out=out), make=True, replace=replace, private=private)
        if place.is_resumable:
            finish = shlex.join(["stirred", "release", "--resume", str(out)])
            raise bad_plan(
                "a release to this place was drawn and not finished, and what it needs is kept",
                where=str(out),
                remedy=f"finish it at no further cost: `{finish}`; or give it up: `{place.abort_command}`",
            )
        if not replace:
            check_place(out)  # another run may have finished between the first look and the lock
        place.remove_scratch()
        place._remove(*_MADE)
        sweep(out.parent)
        place.clear()
        yield place
    finally:
        if lock is not None:
            _leave(place, lock)


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
    place, lock = _lock(place, make=False)
    try:
        yield place
    finally:
        _leave(place, lock)


def _leave(place: Place, lock: FileLock) -> None:
    """Tidy a place that we hold, and let it go."""
    try:
        place.tidy()
    finally:
        lock.release()


def _is_release(folder: Path) -> bool:
    """Say whether a folder is a bundle, or was published."""
    bundle = os.path.isfile(folder / MANIFEST) and os.path.isdir(folder / "public")
    return bundle or os.path.isfile(folder / CHECKSUMS)


def check_place(out: Path, *, replace: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Refuse a place where nothing new can be made; ``inputs`` are the files that a release reads."""
    # os.path answers False where a folder may not be looked into; pathlib would raise.
    if os.path.lexists(out) and not replace:
        read = any(os.path.exists(each) and os.path.exists(out) and os.path.samefile(each, out) for each in inputs)
        what = "this is a file that the release reads" if read else "something is already there"
        raise bad_plan(what, where=str(out), remedy="choose a new folder")
    if whole := next((each for each in out.absolute().parents if _is_release(each)), None):
        what = f"{whole} is a release, and nothing may be added to it: confidential files would lie beside public ones"
        raise bad_plan(what, where=str(out), remedy="choose a place outside of it")
    files = [each for each in out.parents if os.path.lexists(each) and not os.path.isdir(each)]
    if files:
        remedy = "name a new folder beside it, or in a folder"
        raise bad_plan(f"{files[0]} is a file, and nothing can be made inside a file", where=str(out), remedy=remedy)
    if not os.path.isdir(out.parent):
        remedy = f"create {out.parent} first, or choose another place"
        raise bad_plan("its parent folder does not exist, or may not be looked into", where=str(out), remedy=remedy)
    effective = os.access in os.supports_effective_ids
    if not os.access(out.parent, os.W_OK | os.X_OK, effective_ids=effective):
        raise bad_plan("its parent folder cannot be written", where=str(out), remedy="choose another place")


def remove_leftovers(out: Path) -> None:
    """Remove what a dead run left at a place, but for a release that was drawn and can be finished."""
    for each in (out, copies_of(out)):
        _tidied(each)


def sweep(folder: Path) -> None:
    """Remove what dead runs left for any place in a folder, but for releases that were drawn and can be finished."""
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if (left := _HIDDEN.fullmatch(name)) is not None:
                _tidied(folder / left[1])


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
    try:
        found = Place(out=out).hidden.lstat()
    except OSError:
        yield None
        return
    place = Place(out=out, held=found)
    lock = None if _foreign(place) else _held(place, wait=0)
    try:
        yield None if lock is None else place
    finally:
        if lock is not None:
            lock.release()


def is_at_work(out: Path) -> bool:
    """Say whether a living run holds the place."""
    with unheld(out) as place:
        return place is None and Place(out=out).hidden.is_dir()


# Windows has no hang-up.
_ENDINGS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put an interruption off until the end of the block. Only the main thread is ever interrupted."""
    came: list[tuple[int, FrameType | None]] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for ending in _ENDINGS:
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


def _lock(place: Place, *, make: bool, replace: bool = False, private: bool = True) -> tuple[Place, FileLock]:
    """Return the place with its hidden folder, which is ours, and an exclusive lock on it."""
    while True:
        if make:
            check_place(place.out, replace=replace)
            _check_closable(place)
            with suppress(FileExistsError):  # of a dead run, or of one that is at work: the lock tells
                place.hidden.mkdir(mode=0o700)
        try:
            held = Place(out=place.out, held=place.hidden.lstat())
        except FileNotFoundError:
            if make:
                continue  # another run has just finished
            raise
        if why := _foreign(held, private=private):
            if make:
                raise _in_the_way(place, why)
            # It holds a key: to remove it would lose the release.
            remedy = f"find out who could read the key that is in it; then run `chmod 700 {place.hidden}`"
            raise bad_plan(f"{place.hidden.name} is not as we left it: {why}", where=str(place.out), remedy=remedy)
        try:
            lock = _held(held, wait=_BRIEFLY)
        except FileNotFoundError:
            continue  # it was removed between the look and the lock
        if lock is None and held.is_ours:
            remedy = "choose a new folder, or wait for the other run"
            raise bad_plan("another run is writing to this place", where=str(place.out), remedy=remedy)
        if lock is not None:
            return held, lock


def _held(place: Place, *, wait: float) -> FileLock | None:
    """Return a lock on a hidden folder; None where a living run has it, or it was moved or removed meanwhile."""
    lock = FileLock(place.hidden / _LOCK, mode=0o600, timeout=wait)
    try:
        lock.acquire(poll_interval=0.05)
    except Timeout:
        return None
    if place.is_ours and (place.hidden / _LOCK).exists():
        return lock
    lock.release()
    return None


def _check_closable(place: Place) -> None:
    """Refuse a system that cannot close a folder to others."""
    if _WINDOWS and sys.version_info < (3, 12, 4):
        raise bad_plan(
            "this version of Python cannot close a folder to others on Windows, and keys and records would be in it",
            where=str(place.out),
            remedy="install Python 3.12.4 or newer",
        )


def _in_the_way(place: Place, why: str) -> PlanError:
    what = f"{place.hidden.name} is in the way: {why}"
    return bad_plan(what, where=str(place.out), remedy="look at it and remove it, or choose another place")


def _foreign(place: Place, *, private: bool = True) -> str:
    """Say why a folder is not one that a run of this user made; empty if it is.

    Its maker, and all who may write to it, could read the key of the draw, or let us remove what is theirs.
    """
    assert place.held is not None
    if not stat.S_ISDIR(place.held.st_mode):
        return "it is not a folder"
    if not _is_mine(place.held):
        return "another user made it"
    if private and not _is_closed(place.held):
        return "others than its owner may open it"
    other = sorted({*os.listdir(place.hidden)} - {*_MADE, _LOCK})
    return f"it holds {other[0]!a}, which no run makes" if other else ""


def _is_mine(found: os.stat_result) -> bool:
    """Say whether this user made a file; Windows says so by who may open it, and mkdir there closes a folder."""
    return _WINDOWS or found.st_uid == os.geteuid()


def _is_closed(found: os.stat_result) -> bool:
    return _WINDOWS or not found.st_mode & 0o077


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _checksum(key: bytes) -> bytes:
    return hashlib.sha256(key).hexdigest().encode()


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file; nothing where it is absent, or is a link or a pipe."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        handle = os.open(path, os.O_RDONLY | PLAIN)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    with os.fdopen(handle, "rb") as stream:
        return stream.read()


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all, and force it to the disk."""
    half = path.with_name(f".{path.name}")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(path)
    sync(path.parent)


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder; what a link leads to is left alone."""
    with suppress(OSError):
        if _is_folder(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sync(path: Path) -> None:
    """Force a file or a folder to the disk; Windows writes the entries of folders itself."""
    if _WINDOWS and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if _WINDOWS else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- outputs ----------------------------------------------------------------------------------------------


@contextmanager
def folder_at(
    out: Path, *, finish: Callable[[Path], None] | None = None, private: bool = True, replace: bool = False
) -> Iterator[Path]:
    """Yield a folder to write into; on success it becomes ``out``, otherwise it disappears.

    ``finish`` is called once everything is on the disk, just before the folder gets its place. What is not ``private``
    others may read, as far as this user's files usually can be read. ``replace`` allows that an empty folder is there.

    A process killed at any moment leaves no ``out`` behind, at most a hidden folder that the next run
    to the same place removes.
    """
    with claimed(out, replace=replace, private=private) as place:
        if not private and finish is None:
            probe = place.hidden / "progress"
            probe.mkdir()
            usual = stat.S_IMODE(probe.stat().st_mode)
            probe.rmdir()
            finish = partial(os.chmod, mode=usual)
        with appearing(place, finish=finish, replace=replace) as folder:
            yield folder


@contextmanager
def file_at(out: Path, *, private: bool, replace: bool = False) -> Iterator[Path]:
    """Yield an empty file to write over; on success it becomes ``out``, otherwise it disappears.

    What was computed from confidential data is ``private``: only its owner may read it.
    """
    with claimed(out, replace=replace, private=private) as place:
        half = place.folder / out.name
        os.close(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
        yield half
        sync(half)
        if replace:
            os.replace(half, out)
        else:
            move_new(half, out)
        sync(out.parent)


@contextmanager
def appearing(place: Place, *, finish: Callable[[Path], None] | None = None, replace: bool = False) -> Iterator[Path]:
    """Yield the folder of a claimed place; on success it gets its place, and nothing of it is kept."""
    yield place.folder
    _sync(place.folder)
    if finish is not None:
        finish(place.folder)
        _sync(place.folder)
    if not place.is_ours:
        raise OSError(errno.EIO, "another folder was put in place of the hidden one", str(place.hidden))
    # A bundle never appears while the key that made it still exists.
    place.destroy_key()
    if replace:
        os.rename(place.folder, place.out)  # refuses a folder that is not empty
    else:
        move_new(place.folder, place.out)
    sync(place.out.parent)
    place.give_up()  # nothing is left to finish


def _sync(folder: Path) -> None:
    """Force every file and folder to the disk before the move makes them visible."""
    for path in (*sorted(folder.rglob("*")), folder):
        sync(path)


_AT_FDCWD: Final = -100
_NO_REPLACE: Final = 1  # RENAME_NOREPLACE of renameat2(2)
_EXCLUSIVE: Final = 4  # RENAME_EXCL of renamex_np(2), on macOS
# The call, the kernel or the file system does not know the flag.
_UNKNOWN: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def move_new(folder: Path, place: Path) -> None:
    """Give a folder, or a file, its place; refuse if anything stands there, be it an empty folder.

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
    """Rename by the system call that refuses to replace; on Windows each rename does."""
    if _WINDOWS:
        os.rename(folder, place)
        return
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
    """Rename over an empty folder of our own, where the system cannot refuse to replace; a file gets a second name.

    Making the folder fails if anything is there, so what the rename replaces is ours. A process that dies in between
    leaves it, empty and closed to others.
    """
    if not folder.is_dir():
        os.link(folder, place)
        return
    os.mkdir(place, 0o700)
    try:
        os.rename(folder, place)
    except OSError:
        os.rmdir(place)  # fails, and leaves it alone, if somebody put something inside
        raise
