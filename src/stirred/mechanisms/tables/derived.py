"""`stirred derive`: rounding and threshold suppression of released tables, which cost nothing.

A function of what was released promises what the release promises (post-processing). The same functions of confidential
tables are mechanisms of infinite loss: 12 rounds to 10 and 13 to 15, with certainty. Only releases are taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl
from pydantic import BaseModel, Field

from stirred.data.bundle import SPECIFICATION, Findings, audit_manifest, audit_published, public_folder
from stirred.data.frames import read_frame, write_frame
from stirred.data.place import CHECKSUMS, folder_at
from stirred.data.problems import DataError, bad_file, listed
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.registry import is_installed, mechanism_class
from stirred.spec.convert import post_process
from stirred.spec.document import from_json, to_json
from stirred.spec.problems import StirredError

_ARGUMENT: Final[dict[str, Any]] = {"argument": "FOLDER"}
_FREE: Final = "nothing: a function of released tables promises what the release promises (post-processing)"
COUNT: Final = "count"
_NO_MORE: Final = (
    "It promises no more either: the release itself already shows this. Read specification.json for what that is."
)
_COMPLEMENTARY: Final = (
    "an empty cell may follow from totals, and then shows what was released, not what is confidential; complementary "
    "suppression is not done here, see tau-ARGUS"
)


class _Options(BaseModel):
    folder: Path = Field(description="A bundle, or a folder that was published.", json_schema_extra=_ARGUMENT)
    out: Path = Field(description="Where the new tables go; must not exist.")


class RoundOptions(_Options):
    """`stirred derive round`."""

    base: int = Field(default=5, ge=2, description="The number whose multiples are left, halves up.")
    rule: Literal["nearest", "special"] = Field(
        default="nearest",
        description="Special tabulations of the US Census 2000: 0 stays, 1 to 7 become 4, else the nearest 5.",
    )


class SuppressOptions(_Options):
    """`stirred derive suppress`."""

    threshold: int = Field(ge=1, description="Released counts below it are left empty.")


def rounded(count: int, *, base: int) -> int:
    """Return the nearest multiple, halves up.

    >>> [rounded(n, base=10) for n in (4, 5, 14, 15)]
    [0, 10, 10, 20]
    """
    return (2 * count + base) // (2 * base) * base


def special(count: int) -> int:
    """Return a count as special tabulations of the US Census 2000 have it.

    >>> [special(n) for n in (0, 3, 7, 8, 864, 982)]
    [0, 4, 4, 10, 865, 980]
    """
    return 4 if 1 <= count <= 7 else rounded(count, base=5)


def round_tables(options: Any, progress: Progress | None) -> Outcome:
    """Round every count of every released table."""
    del progress
    one = special if options.rule == "special" else lambda count: rounded(count, base=options.base)
    words = "rounded by the rule of special tabulations" if options.rule == "special" else f"rounded to {options.base}"
    return _derived(options, lambda count: None if count is None else one(count), words, [])


def suppress_tables(options: Any, progress: Progress | None) -> Outcome:
    """Leave out every released count below a threshold."""
    del progress
    words = f"counts below {options.threshold} left empty"
    note = [("suppression", _COMPLEMENTARY)]
    return _derived(options, lambda n: None if n is None or n < options.threshold else n, words, note)


def _derived(options: Any, change: Callable[[Any], int | None], words: str, note: list[tuple[str, str]]) -> Outcome:
    public, out = _released(options.folder), options.out
    if out.exists():
        raise bad_file("something is already there", where=str(out), remedy="choose a new folder")
    specification = from_json((public / SPECIFICATION).read_text(encoding="utf-8"))
    derived = post_process(specification, description=words).specification
    released = [(path, read_frame(path)) for path in sorted(public.glob("tables/*.csv"))]
    # Beside a count stand its interval and adjusted counts, which would show what was rounded or left empty.
    beside = _beside(public)
    tables = [
        (path, _changed(table.drop(beside, strict=False), change, where=str(path)))
        for path, table in released
        if COUNT in table.columns
    ]
    if not tables:
        what = "it has no tables of counts" if released else "there are no tables"
        raise bad_file(what, where=str(public / "tables"), remedy="name a release that has some")
    others = [path.name for path, table in released if COUNT not in table.columns]
    if others:
        note = [("left out", f"{listed(others)}: only counts are derived, and sums stay as they were released"), *note]
    if derived.budget.is_unbounded:
        note = [("promise", "nothing is promised: the loss of the release is infinite"), *note]
    page = f"# Derived tables\n\nReleased tables, {words}. Cost: {_FREE}. {_NO_MORE}\n" + "".join(
        f"\n{label[:1].upper()}{label[1:]}: {text}.\n" for label, text in note
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with folder_at(out, private=False) as folder:
        (folder / "tables").mkdir()
        for path, table in tables:
            write_frame(table, folder / "tables" / path.name)
        (folder / SPECIFICATION).write_text(to_json(derived), encoding="utf-8")
        (folder / "README.md").write_text(page, encoding="utf-8")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files]
        (folder / CHECKSUMS).write_text("".join(digests), encoding="utf-8")
    cells = sum(table.height for _, table in tables)
    rows = [("tables", f"{len(tables)}, {cells:,} cells, {words}"), ("costs", _FREE), *note, ("wrote", str(out))]
    facts = {"out": str(out), "tables": len(tables), "left_out": others, "cells": cells, "loss": 0}
    return Outcome(rows=rows, values=facts)


def _released(folder: Path) -> Path:
    """Return the public folder of a release whose files are what they were; refuse anything else."""
    what = "this is not a release: of confidential tables, rounding and suppression are mechanisms of infinite loss"
    if not folder.exists():
        raise bad_file("there is no such folder", where=str(folder), remedy="name the folder of a release")
    try:
        public = public_folder(folder)
    except StirredError:
        remedy = "release the table first, such as by noisy tables or cell keys, and derive from that"
        raise bad_file(what, where=str(folder), remedy=remedy) from None
    found = Findings()
    if public == folder:
        audit_published(public, found)
    else:
        audit_manifest(folder, found)
    if found.problems:
        raise DataError(found.problems)
    return public


def _beside(public: Path) -> list[str]:
    """Return the columns that the mechanism writes beside a count; none where it is not installed here."""
    stated = json.loads((public / SPECIFICATION).read_text(encoding="utf-8")).get("mechanism") or {}
    name = stated.get("name", "")
    return [each for each in mechanism_class(name).table_columns if each != COUNT] if is_installed(name) else []


def _changed(table: pl.DataFrame, change: Callable[[Any], int | None], *, where: str) -> pl.DataFrame:
    counts = table[COUNT].cast(pl.Int64, strict=False)
    if counts.null_count() != table[COUNT].null_count():
        raise bad_file("its counts are not whole numbers", where=where, remedy="name a release with tables of counts")
    return table.with_columns(pl.Series(COUNT, [change(count) for count in counts], dtype=pl.Int64))


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="round", help="Round the counts of released tables.", options=RoundOptions, run=round_tables),
    Command(name="suppress", help="Leave small released counts out.", options=SuppressOptions, run=suppress_tables),
)
