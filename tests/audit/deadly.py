"""Functions that end or hold up the process which is asked for them, as damaged files and engines of charts do."""

from __future__ import annotations

import os
import time


def reads(path: str) -> None:
    """Die of files called kills or strata, and never end with one called hangs."""
    if "kills" in path or "strata" in path:
        os.abort()
    if "hangs" in path:
        time.sleep(600)


def draws(specification: str) -> str:
    """Die, whatever is to be drawn."""
    os.abort()
