"""Labelled rows of text, wrapped: how a plan, a release and a specification print."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

Row = tuple[str, str]

# Of what Python prints; the command line has the width of its terminal.
WIDTH: Final = 100


def rows_text(rows: Sequence[Row], *, width: int = WIDTH, indent: int = 0, whole: Sequence[str] = ()) -> str:
    """Return the rows as lines, each text wrapped beside its label; those labelled as ``whole`` stay on one line.

    >>> print(rows_text([("who", "households"), ("how much", "epsilon 3")]))
    who       households
    how much  epsilon 3
    """
    column = max((len(label) for label, _ in rows), default=0) + 2
    lines = []
    for label, text in rows:
        first, rest = " " * indent + label.ljust(column), " " * (indent + column)
        lines.append(first + text if label in whole else wrapped(text, width=width, first=first, rest=rest))
    return "\n".join(lines)


def wrapped(text: str, *, width: int, first: str = "", rest: str = "") -> str:
    """Return text wrapped to a width, with the given indents; words are never broken."""
    return textwrap.fill(
        text,
        width=width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
