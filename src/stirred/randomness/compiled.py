"""The one way this toolkit compiles a function.

Compiled code is cached on disk and numba notices a change only in the file that holds the function,
not in files it calls into. House rule, held by a test: a compiled function calls compiled functions
of its own file only, so that no release can run on a stale half of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled to machine code that runs without the interpreter lock."""
    from numba import njit

    try:
        machine_code = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Nowhere to keep a cache, as in a read-only container: compile in every process.
        machine_code = njit(nogil=True)(function)
    return cast(Callable[P, R], machine_code)
