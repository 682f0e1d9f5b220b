"""A child process for work that may end the process that does it: damaged Parquet files, and the engine of charts.

The child is started when it is first asked, answers one question after another, and is started again if it died. It
leaves no core dump: its memory may hold confidential values. A reader of Parquet trusts lengths that the file states: a
wrong one can make it panic, or end the whole process without an exception that could be caught. A pool of processes
would not do: spawned ones run a user's script again, and forked ones are unsafe with polars.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final

# The child finds the packages where this process found them, whatever the folder it is started in.
_CHILD: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from stirred.data.child import serve; serve()"


class DiedError(Exception):
    """The child ended, or did not answer in time; the message says which."""


class ChildProcess:
    """A child process that calls functions of ours, named ``module:function``, on JSON and returns JSON.

    >>> child.ask("stirred.spec.spelling:near", ["rat", ["rate", "unit"]])
    'rate'
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, function: str, arguments: list[Any], *, seconds: float = 120.0) -> Any:
        """Return what the function answers; raise if the child dies of it."""
        with self._lock:
            try:
                child = self._started()
                assert child.stdin is not None
                child.stdin.write(json.dumps([function, arguments]).encode() + b"\n")
                child.stdin.flush()
                return json.loads(self._line(child, seconds))
            except BaseException as error:
                # An answer that comes later would be taken for that of the next question.
                code = self._stop()
                if isinstance(error, (OSError, EOFError)):
                    raise DiedError(f"it ends the process that reads it (code {code})") from None
                raise

    def _started(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a forked process must not talk into its parent's conversation
            self._child, self._owner = None, os.getpid()
        if self._child is None or self._child.poll() is not None:
            places = json.dumps([os.path.abspath(place) for place in sys.path])
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, places],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what a panic prints may quote the file
                start_new_session=True,  # Ctrl-C is for this process, which ends the child
            )
        return self._child

    def _line(self, child: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert child.stdout is not None
        until, said, handle = time.monotonic() + seconds, b"", child.stdout.fileno()
        while not said.endswith(b"\n"):
            if not select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
                raise DiedError(f"reading it does not end within {seconds:.0f} seconds")
            block = os.read(handle, 1 << 16)
            if not block:
                raise EOFError
            said += block
        return said

    def _stop(self) -> int | None:
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return None
        # A child that ended by itself has its own code; any other is ended.
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        if child.poll() is None:
            child.kill()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        return child.wait()

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._child is not None and self._owner == os.getpid():
                self._child.kill()
            self._stop()


def serve() -> None:
    """Answer every line of standard input, in the child."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not an answer
    for line in sys.stdin.buffer:
        function, arguments = json.loads(line)
        module, _, name = function.partition(":")
        answer = getattr(importlib.import_module(module), name)(*arguments)
        text = json.dumps(answer).encode() + b"\n"
        while text:
            text = text[os.write(out, text) :]


child = ChildProcess()
"""The one child of this process."""
atexit.register(child.close)


# ---- trying files of others ----------------------------------------------------------------------------------------

_READS: Final = "stirred.data.child:reason"
_SECONDS: Final = 60.0  # for any file,
_BYTES_A_SECOND: Final = 5_000_000  # and for what is in it
# A small file can state rows without end: of one value a billion times nothing is stored but the number.
_BOMB: Final = "it swells in memory"
_SWELLS: Final = 1000
_BYTES: Final = {
    "Null": 0,
    **dict.fromkeys(("Int8", "UInt8", "Boolean"), 1),
    **dict.fromkeys(("Int16", "UInt16"), 2),
    **dict.fromkeys(("Int32", "UInt32", "Float32", "Date"), 4),
    **dict.fromkeys(("Int64", "UInt64", "Float64"), 8),
}


def memory() -> int:
    """Return how many bytes of memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parquet_below(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, in order, without links."""
    return [path for path in sorted(folder.rglob("*.parquet")) if path.is_file() and not path.is_symlink()]


def unreadable_parquet(files: Sequence[Path], *, only_deadly: bool = False) -> dict[Path, str]:
    """Return why each of these Parquet files cannot be read, tried in a process of its own; nothing for the others.

    If the process dies, the file at which it died is the reason, and another process goes on with the next.
    ``only_deadly`` leaves out the files whose reader says what is wrong.
    """
    reasons = {}
    for path in files:
        why = None
        patience = _SECONDS + path.stat().st_size / _BYTES_A_SECOND
        try:
            said = child.ask(_READS, [str(path.absolute())], seconds=patience)
            why = None if only_deadly and not str(said).startswith(_BOMB) else said
        except DiedError as died:
            why = str(died)
        if why is not None:
            reasons[path] = why
    return reasons


def reason(path: str) -> str | None:
    """Return why a Parquet file cannot be read: its columns, its notes, and every value of it."""
    import polars as pl  # the child that draws charts needs none

    try:
        schema = pl.read_parquet_schema(path)
        names = list(schema)
        pl.read_parquet_metadata(path)
        rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
        needed = rows * sum(_BYTES.get(str(kind.base_type()), 16) for kind in schema.values())
        if needed > memory() and needed > _SWELLS * Path(path).stat().st_size:
            return f"{_BOMB}: {rows:,} rows need {needed / 1e9:,.0f} GB, and this machine has {memory() / 1e9:,.0f}"
        for name in names:  # one after the other: no more of a large file is in memory than a column
            pl.scan_parquet(path, glob=False).select(name).collect()
    except pl.exceptions.PanicException:
        return "its reader gives up in the middle of it"
    except (pl.exceptions.PolarsError, OSError) as error:
        return type(error).__name__
    return None


def is_unread(path: Path, unread: Mapping[Path, str]) -> str | None:
    """Return why a file, or the first part of a folder, is not to be read."""
    return next((why for place, why in sorted(unread.items()) if place == path or place.is_relative_to(path)), None)
