"""Run a plan and die at a named point of its life: ``python killed_run.py POINT PLAN.toml``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from stirred.cli.main import main
from stirred.release import run
from stirred.release.ledger import Ledger
from stirred.release.reservation import Reservation

POINTS = (
    *("before reserve", "reserved", "drawn"),
    *("started", "swapped", "written", "verified", "complete"),
    *("moved", "committed"),
)


def die() -> None:
    """Stop as a machine does whose power fails."""
    os.kill(os.getpid(), signal.SIGKILL)


def patched(owner: Any, name: str, *, before: bool = False, only: Callable[..., bool] | None = None) -> None:
    """Die before or after a function, if ``only`` agrees with its arguments."""
    real = getattr(owner, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        if before:
            die()
        result = real(*args, **kwargs)
        if only is None or only(*args, **kwargs):
            die()
        return result

    setattr(owner, name, dying)


def arrange(point: str) -> None:
    """Make the process die at a point."""
    if point == "before reserve":
        patched(Ledger, "reserve", before=True)
    elif point == "reserved":
        patched(Ledger, "reserve")
    elif point == "drawn":
        patched(Reservation, "draw")
    elif point == "moved":
        patched(Reservation, "commit", before=True)
    elif point == "committed":
        patched(Reservation, "commit")
    else:
        patched(run.Log, "add", only=lambda log, event, **facts: event == point)


if __name__ == "__main__":
    arrange(sys.argv[1])
    sys.argv = ["stirred", "release", sys.argv[2], "--quiet"]
    main()
