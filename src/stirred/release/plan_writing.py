"""Plans written as plan.toml, ready to be read, changed and carried out."""

from __future__ import annotations

import os
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from stirred.data.codebook_file import toml_value
from stirred.data.place import file_at
from stirred.data.problems import bad_plan
from stirred.data.sources import local_path
from stirred.release.plan_file import planned
from stirred.release.plan_sections import RECORD_FILES, PlanFile

_WIDE = 110


def to_toml(plan: PlanFile, *, remarks: Sequence[str] = ()) -> str:
    """Return a plan as TOML, remarks as comments above it; what has its default is left out, but for the name.

    >>> from stirred.release.plan_file import planned
    >>> mechanism = {"swap": "county", "rate": "5%"}
    >>> content = {"data": {"households": "a.csv"}, "mechanism": mechanism, "release": {"out": "b"}}
    >>> print(to_toml(planned(content, source="", folder=Path()).plan, remarks=["Made by hand."]))
    # Made by hand.
    <BLANKLINE>
    [data]
    households = "a.csv"
    <BLANKLINE>
    [mechanism]
    name = "permutation-swap"
    swap = ["county"]
    rate = "5%"
    <BLANKLINE>
    [release]
    out = "b"
    <BLANKLINE>
    """
    content = plan.model_dump(exclude_defaults=True)
    comments = [f"# {line}" for remark in remarks for line in textwrap.wrap(remark, _WIDE, break_long_words=False)]
    head = ["\n".join(comments) + "\n"] if comments else []
    return "\n".join([*head, *_sections(content)])


def _sections(content: dict[str, Any]) -> Iterator[str]:
    for name, section in content.items():
        many = isinstance(section, list)
        for each in section if many else [section]:
            lines = [f"{key} = {toml_value(value)}" for key, value in each.items()]
            yield "\n".join([f"[[{name}]]" if many else f"[{name}]", *lines, ""])


def write_plan(plan: PlanFile, path: Path, *, remarks: Sequence[str] = ()) -> None:
    """Write a plan whose paths are relative to here, so that they hold from its own folder; never over a file."""
    from_there = {
        key: str(local_path(value)) if local_path(value).is_absolute() else os.path.relpath(value, path.parent)
        for key in (*RECORD_FILES, "persons", "codebook")
        if (value := getattr(plan.data, key)) is not None
    }
    moved = plan.model_copy(update={"data": plan.data.model_copy(update=from_there)})
    text = to_toml(moved, remarks=remarks)
    read = planned(tomllib.loads(text, parse_float=Decimal), source=str(path), folder=path.parent)
    assert read.plan == moved, "a plan must read as it was written"
    try:
        with file_at(path, private=False) as half:
            half.write_text(text, encoding="utf-8")
    except OSError as error:
        raise bad_plan(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None
