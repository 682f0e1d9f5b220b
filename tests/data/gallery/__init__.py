"""Broken files, each named after the message that it must produce."""

import re
from pathlib import Path

from stirred.spec.problems import Problem

HERE = Path(__file__).parent


def slug(text: str) -> str:
    """Return a message as a file would be named after it.

    >>> slug("codes 7, 9 are not in the codebook (2 rows: 1, 2)")
    'codes-7-9-are-not-in-the-codebook-2-rows-1-2'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def exhibits(room: str, *endings: str) -> list[Path]:
    """Return the broken files of one room of the gallery."""
    return sorted(p for p in (HERE / room).iterdir() if p.suffix in endings and p.stem not in ("codebook", "nothing"))


def is_named_after(path: Path, problems: tuple[Problem, ...] | list[Problem]) -> bool:
    """Whether the one problem of a file is the one that the file is named after, with a place and a remedy."""
    (problem,) = problems
    assert problem.where, problem
    assert problem.remedy, problem
    return slug(problem.what).startswith(path.stem)
