"""Running independent pieces of work on several threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stirred.mechanisms.swapping.kernels.addressing import CHUNK_ROWS
from stirred.randomness.entropy import BUFFER_WORDS

# stage, pieces done, pieces in all. Called from the thread that started the work.
Progress = Callable[[str, int, int], None]


class Scratch(threading.local):
    """Memory that every thread keeps for itself from one piece of work to the next.

    Fresh memory is several times slower than memory used before.
    """

    def __init__(self) -> None:
        self.words = np.empty(max(BUFFER_WORDS, CHUNK_ROWS), dtype=np.uint32)
        self.positions = np.empty(CHUNK_ROWS, dtype=np.uint16)


class Workers:
    """A number of threads that share out numbered pieces of work.

    The pieces must not depend on each other; then the result does not depend on the threads.

    >>> squares = [0] * 5
    >>> def square(piece):
    ...     squares[piece] = piece**2
    >>> Workers(threads=3).run("square", square, range(5))
    >>> squares
    [0, 1, 4, 9, 16]
    """

    def __init__(self, *, threads: int | None = None, progress: Progress | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"{threads} threads cannot work. Ask for at least 1, or None for all")
        self.threads = threads or _available_threads()
        self._progress = progress

    def run(self, stage: str, work: Callable[[int], None], pieces: Sequence[int], *, at_once: int = 1) -> None:
        """Do all ``pieces``, handing ``at_once`` of them to a thread; the first failure stops the rest."""
        batches = [pieces[start : start + at_once] for start in range(0, len(pieces), at_once)]

        def do(batch: Sequence[int]) -> None:
            for piece in batch:
                work(piece)

        if self.threads == 1 or len(batches) == 1:
            for number, batch in enumerate(batches, start=1):
                do(batch)
                self._report(stage, number, len(batches))
            return
        with ThreadPoolExecutor(min(self.threads, len(batches) or 1)) as pool:
            try:
                for number, _ in enumerate(pool.map(do, batches), start=1):
                    self._report(stage, number, len(batches))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)


def _available_threads() -> int:
    """Return how many processors this process may use; not every system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
