"""The command of microdata: ``stirred topdown microdata`` makes records from published measurements.

It reads what anybody may read. No noise is drawn and no budget is spent.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stirred import __version__
from stirred.data.place import file_at, folder_at
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.topdown.asked import SPENDS, PublishedOptions
from stirred.mechanisms.topdown.published import Published
from stirred.mechanisms.topdown.published_files import damage_said, read_table
from stirred.mechanisms.topdown.solve.files import SolverOutcome, given_parents, make
from stirred.mechanisms.topdown.solve.tree import LevelStore, SolveOptions, arm_named
from stirred.spec.problems import Problem


class MicrodataOptions(PublishedOptions):
    """The options of ``stirred topdown microdata``."""

    arm: Literal["default", "blue", "bureau"] = Field(
        default="default", description="How to solve: default, or for comparison blue or bureau."
    )
    parents: Path | None = Field(
        default=None, description="Fixes every parent at these counts: arm, geolevel, geocode, cell, count."
    )
    unrounded: Path | None = Field(
        default=None, description="Also writes children before rounding: parent, geocode, cell, value."
    )
    public: Path | None = Field(
        default=None, description="Gone: records come from measurements alone.", json_schema_extra={"gone": True}
    )
    records: str = Field(default="persons", description="What records are called: the name of their file.")
    threads: int = Field(default=0, ge=0, description="Threads; 0 for one per core. The counts do not depend on it.")
    out: Path = Field(description="A folder for counts.parquet, the records and certificate.json.")


@damage_said
def run_microdata(options: MicrodataOptions, progress: Progress | None = None) -> Outcome:
    """Make microdata from published measurements, check it as it was written, and say what happened.

    A run that was interrupted goes on where it stopped if it is started again with the same files and options.
    """
    _check_out(options)
    published = options.opened()
    given = {}
    if options.parents is not None:
        columns = ("geolevel", "geocode", "cell", "count")
        given = given_parents(read_table(options.parents, columns, option="--parents"), options.arm)
    kept = LevelStore(folder=_kept(options.out), mark=_mark(options, published))
    settings = SolveOptions(
        arm=arm_named(options.arm),
        groups=published.totals,
        parents=given,
        keep_unrounded=options.unrounded is not None,
        threads=options.threads or os.cpu_count() or 1,
        store=kept if options.unrounded is None else None,  # what was kept has no unrounded children
        progress=progress,
    )
    out, unrounded = options.out, options.unrounded
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as outputs:
        # What an interrupted run is continued from stays beside them.
        folder = outputs.enter_context(folder_at(out.absolute(), private=False, replace=True))
        half = None if unrounded is None else outputs.enter_context(file_at(unrounded.absolute(), private=False))
        made = make(published.shards, settings, folder, top=published.top(), records=options.records, unrounded=half)
    shown = {} if unrounded is None or half is None else {half: unrounded}
    made = replace(made, files=tuple(shown.get(path, out / path.name) for path in made.files))
    shutil.rmtree(kept.folder, ignore_errors=True)
    return _outcome(options, published, made)


def _kept(out: Path) -> Path:
    """Return the folder of what an interrupted run has solved; all of it follows from published files."""
    return out.absolute().with_name(f".{out.absolute().name}.unfinished")


def _check_out(options: MicrodataOptions) -> None:
    """Refuse to write over what is there, but for an empty folder."""
    out, problems = options.out, []
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        remedy = "choose a new folder"
        problems.append(Problem(what="it exists already", where=f"--out {out}", remedy=remedy))
    if Path(options.records).name != options.records or options.records in ("", ".", "..", "counts"):
        remedy = "write a plain name, such as persons"
        problems.append(Problem(what=f"'{options.records}' is no name of a file", where="--records", remedy=remedy))
    if options.public is not None:
        remedy = "leave it out: records are made from the measurements alone"
        problems.append(Problem(what="public counts are no longer used", where="--public", remedy=remedy))
    if options.unrounded is not None and options.unrounded.exists():
        remedy = "choose a new file"
        problems.append(Problem(what="it exists already", where=f"--unrounded {options.unrounded}", remedy=remedy))
    if problems:
        raise PlanError(problems)


def _mark(options: MicrodataOptions, published: Published) -> str:
    parents = b"" if options.parents is None else options.parents.read_bytes()
    sums = hashlib.sha256(parents).hexdigest()
    return f"{__version__} {published.sha256} {options.arm} {options.schema_} {sums}"


def _outcome(options: MicrodataOptions, published: Published, made: SolverOutcome) -> Outcome:
    certificate = made.certificate
    areas = {name: len(codes) for name, codes in zip(published.names, published.geocodes, strict=True) if name}
    checks = sum(certificate.checks.values())
    values: dict[str, Any] = {
        **made.facts(),
        "arm": options.arm,
        "files": [str(path) for path in made.files],
        "areas": areas,
        "sha256": published.sha256,
        "spends": SPENDS,
    }
    rows = [
        ("records", f"{certificate.records:,} in {options.out}"),
        ("areas", ", ".join(f"{name} {count:,}" for name, count in areas.items())),
        ("solved", f"{made.parents:,} problems, {made.iterations:,} iterations, largest gap {made.largest_gap:.1e}"),
        ("check", f"passed: {checks:,} comparisons" if certificate.passed else f"FAILED: {certificate.failed:,} times"),
        *(("failed", text) for text in certificate.failures[:5]),
        *(("event", f"{event.level} in {event.area!r}: {event.what} ({event.why})") for event in made.events[:5]),
        ("measured", f"{len(published.files):,} files, SHA-256 {published.sha256}"),
        ("spends", SPENDS),
    ]
    if len(made.events) > 5:
        rows.append(("events", f"{len(made.events):,} in all, see {options.out / 'certificate.json'}"))
    return Outcome(rows=rows, values=values, passed=certificate.passed)


COMMANDS = (
    Command(
        name="microdata",
        help="Make records from published measurements.",
        options=MicrodataOptions,
        run=run_microdata,
    ),
)
