"""Printing: results to stdout, conversation to stderr, and the same facts as JSON on request."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any


def emit_json(facts: Any) -> None:
    """Print facts as JSON on stdout."""
    sys.stdout.write(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
    """Print labelled facts, the text wrapped beside its label.

    >>> facts([("who", "households"), ("how much", "epsilon 3")])
    who       households
    how much  epsilon 3
    """
    column = max((len(label) for label, _ in rows), default=0) + 2
    for label, text in rows:
        lead = " " * indent + label.ljust(column)
        emit(wrapped(text, first=lead, rest=" " * (indent + column)))


def bullets(items: Sequence[str], *, indent: int = 2) -> None:
    """Print a list, each item wrapped."""
    for item in items:
        emit(wrapped(item, first=" " * indent + "- ", rest=" " * (indent + 2)))


def paragraph(text: str) -> None:
    """Print a paragraph, wrapped."""
    emit(wrapped(text, first="", rest=""))


def wrapped(text: str, *, first: str, rest: str) -> str:
    """Return text wrapped to the width, with the given indents; words are never broken."""
    return textwrap.fill(
        text,
        width=width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
