"""Printing: results to stdout, conversation to stderr, and the same facts as JSON on request."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def emit_json(facts: Any) -> None:
    """Print facts as JSON on stdout."""
    sys.stdout.write(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def picked(thing: Any, *names: str) -> dict[str, Any]:
    """Return facts of an object under their names."""
    return {name: getattr(thing, name) for name in names}


def exactly(**values: Any) -> dict[str, Any]:
    """Return each number as a double rounded up, and beside it the exact expression."""
    from stirred.spec.document import number_out

    return {key: out for name, v in values.items() for key, out in ((name, number_out(v)), (f"{name}_exact", str(v)))}


def step_facts(step: Any) -> dict[str, Any]:
    """Return a step of a derivation for JSON."""
    return picked(step, "action", "theorem", "before", "after")


def emit(text: str = "") -> None:
    """Print text on stdout."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Print conversation on stderr."""
    sys.stderr.write(text + "\n")


def width() -> int:
    """Return the width to wrap to: the terminal's, between 60 and 120 columns."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)


def heading(text: str) -> None:
    """Print a heading, bold on a terminal."""
    emit(f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text)


def facts(rows: Sequence[tuple[str, str]], *, indent: int = 0) -> None:
    """Print labelled facts, the text wrapped beside its label; a command under "next" stays whole, to be copied.

    >>> facts([("who", "households"), ("how much", "epsilon 3")])
    who       households
    how much  epsilon 3
    """
    from stirred.spec.text import rows_text

    if rows:
        emit(rows_text(rows, width=width(), indent=indent, whole=["next"]))


def bullets(items: Sequence[str], *, indent: int = 2) -> None:
    """Print a list, each item wrapped."""
    for item in items:
        emit(wrapped(item, first=" " * indent + "- ", rest=" " * (indent + 2)))


def five(words: Any, *, indent: int = 0, without: str = "") -> None:
    """Print what is not protected, and the five answers."""
    from stirred.spec.explanation import NOT_PROTECTED

    emit(" " * indent + f"{NOT_PROTECTED}:")
    bullets(words.not_protected, indent=indent + 2)
    if not indent:
        emit()
    facts([(a.question, a.answer) for a in words.answers if a.question != without], indent=indent)


def paragraph(text: str) -> None:
    """Print a paragraph, wrapped."""
    emit(wrapped(text))


def wrapped(text: str, *, first: str = "", rest: str = "") -> str:
    """Return text wrapped to the width, with the given indents; words are never broken."""
    from stirred.spec.text import wrapped as wrapped_to

    return wrapped_to(text, width=width(), first=first, rest=rest)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its cells wrapped to the width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, width=width(), highlight=False, markup=False)
    console.print(drawn)


Progress = Callable[[str, int, int], None]

# The same words in every run: which inner steps a run needs must not be told.
_WORDS = {"mark": "selecting", "gather": "swapping", "derange": "swapping", "return": "swapping", "redraw": "swapping",
          "write": "writing", "verify": "checking", "report": "reporting",
          "reconstruct": "attacking"}  # fmt: skip


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
