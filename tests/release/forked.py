"""Real processes that run a command of ours, forked from one that has imported all.

Nothing else happens in that one, so that a fork of it is as good as a new process, which would import for seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stirred.cli.main import main

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        *("stirred.cli.main", "stirred.cli.swap", "stirred.release.run", "stirred.release.publish"),
        *("stirred.mechanisms.records.laws.permutation", "tests.mechanisms.records.kernels.compile_kernels"),
        *("numba.np.arraymath", "numba.np.polynomial.polynomial_functions"),
    ]
)

Arrange = Callable[[], object]


class Forked:
    """A command in a process and a group of its own, with the methods of ``subprocess.Popen`` that tests need."""

    def __init__(self, *command: str | Path, cwd: Path, arrange: Arrange | None = None) -> None:
        self._said = Path(tempfile.mkdtemp(prefix="said-"))
        self._process = _PROCESSES.Process(target=_run, args=(arrange, [*map(str, command)], cwd, self._said))
        self._process.start()
        self.pid = self._process.pid or 0
        while self.poll() is None and os.getpgid(self.pid) != self.pid:
            time.sleep(0.001)

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def returncode(self) -> int:
        """How it ended."""
        assert self._process.exitcode is not None
        return self._process.exitcode

    def wait(self, timeout: float = 300) -> int:
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("stirred", timeout)
        return self.returncode

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Wait, and return what it printed on both streams."""
        self.wait(timeout)
        out, err = ((self._said / name).read_text(encoding="utf-8") for name in ("out", "err"))
        shutil.rmtree(self._said)
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def exit_code_of(arrange: Callable[[str], None], point: str, *command: str, cwd: Path) -> int | None:
    """Return how a command ends in a process in which it was arranged that it dies at a point."""
    process = Forked(*command, cwd=cwd, arrange=partial(arrange, point))
    process.communicate()
    return process.returncode


def _run(arrange: Arrange | None, command: list[str], cwd: Path, said: Path) -> None:
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_CREAT), stream)
    # Tests may run under nohup, which a command respects.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(cwd)
    if arrange is not None:
        arrange()
    sys.argv = ["stirred", *command]
    main()
