"""Linear algebra on one thread: where many small problems are solved side by side, its own threads only wait."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

_LOCK = threading.Lock()
_inside, _usual = 0, 0  # how many are inside at the moment, and the number of threads before the first of them


@cache
def _threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return how the number of threads of numpy's own OpenBLAS is asked for and set; None where it has another."""
    root = Path(np.__file__).parent
    for folder in (root.with_name("numpy.libs"), root / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for suffix in ("64_", ""):
                found = [
                    getattr(library, f"scipy_openblas_{verb}_num_threads{suffix}", None) for verb in ("get", "set")
                ]
                if found[0] is not None and found[1] is not None:
                    return found[0], found[1]
    return None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep numpy's linear algebra on one thread inside this block, in the whole process; also a decorator.

    >>> with one_blas_thread():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    global _inside, _usual
    threads = _threads()
    if threads is None:
        yield
        return
    get, put = threads
    with _LOCK:
        if _inside == 0:
            _usual = get()
            put(1)
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if _inside == 0:
                put(_usual)
