"""The page: style, headings, tables. Light and dark, on a phone and on paper, with and without its script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

_HERE: Final = files(__package__)
# Each begins on a line of its own in the page.
STYLE: Final = "\n" + (_HERE / "page.css").read_text("utf-8")
# Sorting and filtering are added by the script: a page without it shows everything.
SCRIPT: Final = "\n" + (_HERE / "page.js").read_text("utf-8")
_SCRIPT_HASH: Final = b64encode(sha256(SCRIPT.encode()).digest()).decode()

_WIDE: Final = 8  # columns
_SCROLLED: Final = 5


def page(title: str, body: Iterable[str], *, seeded: bool = False) -> str:
    """Return a complete HTML page; nothing in it points outside."""
    warning = (
        '<p class="seeded">Test run with a seed: whoever knows the seed can undo it. Not for publication.</p>'
        if seeded
        else ""
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # The page's own script runs, and no other.
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{_SCRIPT_HASH}'; img-src data:\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{warning}{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """Return a section with a heading."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def paragraph(text: str, *, note: bool = False) -> str:
    """Return a paragraph."""
    return f"<p{' class=note' if note else ''}>{escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """Return a list; of nothing, nothing."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return listed and f"<ul>{listed}</ul>"


def folded(summary: str, *parts: str) -> str:
    """Return what opens on a click, and on paper is open."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = (), caption: str = ""
) -> str:
    """Return a table; numbers are right-aligned and grouped. ``numbers`` are columns of numbers written as text.

    ``caption`` is for who cannot see what the table stands under.
    """
    kept = [list(row) for row in rows]
    numeric = [
        name in numbers
        or (bool(kept) and all(isinstance(row[i], (int, float)) and not isinstance(row[i], bool) for row in kept))
        for i, name in enumerate(header)
    ]
    head = "".join(
        f"<th scope=col{' class=n' if number else ''}>{escape(name)}</th>"
        for name, number in zip(header, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if n else ''}>{_cell(v)}</td>" for v, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in kept
    )
    wide = " class=wide" if len(header) >= _WIDE else ""
    # A table that may be wider than its place is scrolled with the keyboard, too.
    place = "" if len(header) < _SCROLLED else f' tabindex=0 role=region aria-label="{escape(caption or header[0])}"'
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"{place}><table{wide}>{told}<thead><tr>{head}</tr></thead>'
        f"{f'<tbody>{body}</tbody>' if body else ''}</table></div>"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return escape({True: "yes", False: "no", None: ""}[value])
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return escape(str(value))
