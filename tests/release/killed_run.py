"""The points of a release at which it may die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from stirred.data.place import Place
from stirred.release import run
from stirred.release.ledger import Ledger
from stirred.release.reservation import Reservation

POINTS = (
    *("before reserve", "reserved", "drawn", "key kept"),
    *("started", "swapped", "written", "verified", "complete"),
    *("sealed", "moved", "committed"),
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
    elif point == "key kept":
        patched(Place, "keep_key")
    elif point == "sealed":
        patched(Place, "destroy_key")
    elif point == "moved":
        patched(Reservation, "commit", before=True)
    elif point == "committed":
        patched(Reservation, "commit")
    else:
        patched(run.Log, "add", only=lambda log, event, **facts: event == point)
