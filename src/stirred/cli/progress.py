"""Progress on stderr: a bar on a terminal, lines that a log can keep otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]

# The same words in every run: which inner steps a run needs must not be told.
_WORDS = {"mark": "selecting", "gather": "swapping", "derange": "swapping", "return": "swapping", "redraw": "swapping",
          "write": "writing", "verify": "checking", "report": "reporting"}  # fmt: skip


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Yield a function (stage, done, total) that shows progress, or None if nothing is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), TextColumn("{task.description:<12}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, object] = {}

        def advance(stage: str, done: int, total: int) -> None:
            stage = _WORDS.get(stage, stage)
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield advance


def _lines() -> Progress:
    seen: set[str] = set()

    def advance(stage: str, done: int, total: int) -> None:
        stage = _WORDS.get(stage, stage)
        if stage not in seen:
            seen.add(stage)
            sys.stderr.write(f"{stage} ...\n" if done < total else f"{stage}\n")
            sys.stderr.flush()

    return advance
