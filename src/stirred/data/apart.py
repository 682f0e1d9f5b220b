"""A process of its own for work that may end the process that does it: damaged files, and the engine of charts.

The child is started when it is first asked, answers one question after another, and is started again if it died. It
leaves no core dump: its memory may hold confidential values.
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
from contextlib import suppress
from threading import RLock
from typing import Any, Final

# The child finds the packages where this process found them, whatever the folder it is started in.
_CHILD: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from stirred.data.apart import serve; serve()"


class DiedError(Exception):
    """The child ended, or did not answer in time; the message says which."""


class Apart:
    """A child process that calls functions of ours, named ``module:function``, on JSON and returns JSON.

    >>> apart.ask("stirred.spec.spelling:near", ["rat", ["rate", "unit"]])
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


apart = Apart()
"""The one child of this process."""
atexit.register(apart.close)
