"""Whole outputs kept as files and reviewed as text: `make snapshots` writes them again after an edit of words.

A test asks ``same_as_kept("plan of a swap", printed)``. The text stands in ``kept`` beside the test, under the name of
the test's module and this title. What differs from run to run (paths, times, hashes) is replaced before by ``steady``.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

WRITE = os.environ.get("STIRRED_SNAPSHOTS") == "write"
_CHANGING = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "<date>"),
)


def steady(text: str, *folders: Path) -> str:
    """Return a text without the paths of ``folders``, times, days and checksums.

    >>> steady("/tmp/x/out made 2026-11-18", Path("/tmp/x"))
    '<folder>/out made <date>'
    """
    for folder in folders:
        text = text.replace(str(folder), "<folder>")
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return text


def same_as_kept(title: str, text: str) -> None:
    """Fail unless a text is the one that is kept under this title; with STIRRED_SNAPSHOTS=write, keep it."""
    test = Path(inspect.stack()[1].filename)
    file = test.parent / "kept" / f"{test.stem.removeprefix('test_')}-{re.sub(r'[^a-z0-9]+', '-', title.lower())}.txt"
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if WRITE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"nothing is kept as {file.name}: run 'make snapshots' and read what it writes"
    assert text == file.read_text(encoding="utf-8"), f"differs from {file.name}: 'make snapshots' takes the new words"
