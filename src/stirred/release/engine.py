"""The engine of a plan: made from its [engine] section, checked with the plan, running while a release is made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stirred.data.codebook import Codebook
from stirred.data.frames import parquet_parts
from stirred.data.place import Place
from stirred.data.problems import bad_plan
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, Engine, Sources
from stirred.mechanisms.protocol import Progress
from stirred.release.plan_file import Planned
from stirred.spec.problems import placed

if TYPE_CHECKING:
    from stirred.engines.spark.engine import SparkEngine


def engine_of(planned: Planned) -> Engine:
    """Return the engine that a plan asks for, without anything that is wrong with it as far as that can be known."""
    if planned.plan.engine is None or planned.plan.engine.name == LOCAL:
        return LocalEngine()
    engine = checked_cluster(planned)
    engine.sources = _sources(planned)
    return engine


def checked_cluster(planned: Planned) -> SparkEngine:
    """Return the cluster of a plan, of which nothing is started; refuse what can be known to be wrong."""
    from stirred.engines.spark.engine import SparkEngine

    section = planned.plan.engine
    assert section is not None
    assert section.master is not None
    engine = SparkEngine(master=section.master, conf=section.conf)
    with placed(planned.source):
        if section.scratch is not None and not os.access(planned.folder / section.scratch / ".", os.W_OK | os.X_OK):
            there = (planned.folder / section.scratch).is_dir()
            raise bad_plan(
                f"nothing can be written to {section.scratch}" if there else f"there is no folder {section.scratch}",
                where="[engine] scratch",
                remedy="name one that this machine and all workers may write to, or leave it out (beside the bundle)",
            )
        engine.check()
    return engine


def _sources(planned: Planned) -> Sources:
    """Return the files of a plan, if the records that are released are those in the files."""
    section = planned.plan.data
    codebook = None if planned.codebook is None else Codebook.read(planned.codebook)
    files = {"households": planned.records, **({} if planned.persons is None else {"persons": planned.persons})}
    parts = {role: parquet_parts(path) for role, path in files.items()}
    why = [
        *(f"{files[role].name} is not Parquet" for role, found in parts.items() if not found),
        *(["[[prepare]] changes them first"] if planned.plan.prepare else []),
        *(["missing values are texts or codes (missing, missing_as)"] if section.missing or section.missing_as else []),
        *(["the codebook declares texts as missing"] if codebook and codebook.missing_texts("persons") else []),
        *(["they are a table of counts"] if section.counts is not None else []),
    ]
    return Sources(files={role: (path.absolute(),) for role, path in files.items()}, unlike="; ".join(why))


@contextmanager
def working(engine: Engine, planned: Planned, place: Place, progress: Progress | None) -> Iterator[None]:
    """Keep an engine running, with a folder of its own that nobody else can read, which is removed afterwards.

    The folder is beside the bundle that is made, or where the plan says; what a killed run left is removed with the
    rest of what it left.
    """
    if engine.name == LOCAL:
        yield
        return
    advance, scratch = progress or (lambda stage, done, total: None), place.new_scratch(scratch_elsewhere(planned))
    try:
        with placed(planned.source):
            advance(f"starting {engine.name}", 0, 1)
            engine.start(scratch)
            advance(f"starting {engine.name}", 1, 1)
        advance("preparing", 0, 1)
        yield
    finally:
        engine.close()
        place.remove_scratch()


def scratch_elsewhere(planned: Planned) -> Path | None:
    """Return a new folder where the plan says; nothing if it says nothing."""
    named = None if planned.plan.engine is None else planned.plan.engine.scratch
    return None if named is None else Path(tempfile.mkdtemp(prefix="stirred-", dir=planned.folder / named))
