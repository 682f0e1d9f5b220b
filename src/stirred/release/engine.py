"""The engine of a plan: made from its [engine] section, checked with the plan, running while a release is made.

Tables at addresses that only Hadoop reads are copied to this machine for as long as a command runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stirred.data.codebook import Codebook
from stirred.data.frames import parquet_parts
from stirred.data.place import Place, check_place, claimed, copies_of, remove_copies
from stirred.data.problems import bad_plan
from stirred.data.sources import PARQUET, READS, address_of, is_read, without_secret
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, SPARK, Engine, Sources
from stirred.mechanisms.protocol import Progress
from stirred.release.ledger import Ledger
from stirred.release.plan_file import PlanFile
from stirred.spec.problems import StirredError, placed

if TYPE_CHECKING:
    from stirred.engines.spark.engine import SparkEngine


def engine_of(plan_file: PlanFile) -> Engine:
    """Return the engine that a plan asks for, without anything that is wrong with it as far as that can be known."""
    if plan_file.engine is None or plan_file.engine.name == LOCAL:
        return LocalEngine()
    engine = checked_cluster(plan_file)
    engine.sources = _sources(plan_file)
    return engine


def checked_cluster(plan_file: PlanFile) -> SparkEngine:
    """Return the cluster of a plan, of which nothing is started; refuse what can be known to be wrong."""
    from stirred.engines.spark.engine import SparkEngine

    section = plan_file.engine
    assert section is not None
    assert section.master is not None
    engine = SparkEngine(master=section.master, conf=section.conf)
    with placed(plan_file.source):
        if section.scratch is not None and not os.access(plan_file.folder / section.scratch / ".", os.W_OK | os.X_OK):
            there = (plan_file.folder / section.scratch).is_dir()
            raise bad_plan(
                f"nothing can be written to {section.scratch}" if there else f"there is no folder {section.scratch}",
                where="[engine] scratch",
                remedy="name one that this machine and all workers may write to, or leave it out (beside the bundle)",
            )
        engine.check()
    return engine


def _sources(plan_file: PlanFile) -> Sources:
    """Return the files of a plan, if the records that are released are those in the files."""
    section = plan_file.data
    codebook = None if plan_file.codebook is None else Codebook.read(plan_file.codebook)
    files = {"households": plan_file.records, **({} if plan_file.persons is None else {"persons": plan_file.persons})}
    parts = {role: parquet_parts(path) for role, path in files.items()}
    why = [
        *(f"{files[role].name} is not Parquet" for role, found in parts.items() if not found),
        *(["[[prepare]] changes them first"] if plan_file.prepare else []),
        *(["missing values are texts or codes (missing, missing_as)"] if section.missing or section.missing_as else []),
        *(["the codebook declares texts as missing"] if codebook and codebook.missing_texts("persons") else []),
        *(["they are a table of counts"] if section.counts is not None else []),
    ]
    return Sources(files={role: (path.absolute(),) for role, path in files.items()}, unlike="; ".join(why))


@contextmanager
def working(engine: Engine, plan_file: PlanFile, place: Place, progress: Progress | None) -> Iterator[None]:
    """Keep an engine running, with a folder that only its user can read, which is removed afterwards.

    The folder is next to the bundle that is made, or where the plan says; what a killed run left is removed with the
    rest of what it left.
    """
    if engine.name == LOCAL:
        yield
        return
    advance, scratch = progress or (lambda stage, done, total: None), place.new_scratch(scratch_elsewhere(plan_file))
    try:
        with placed(plan_file.source):
            advance(f"starting {engine.name}", 0, 1)
            engine.start(scratch)
            advance(f"starting {engine.name}", 1, 1)
        advance("preparing", 0, 1)
        yield
    finally:
        engine.close()
        place.remove_scratch()


def scratch_elsewhere(plan_file: PlanFile) -> Path | None:
    """Return a new folder where the plan says; nothing if it says nothing."""
    named = None if plan_file.engine is None else plan_file.engine.scratch
    return None if named is None else Path(tempfile.mkdtemp(prefix="stirred-", dir=plan_file.folder / named))


_WEB: Final = ("http", "https", "ftp")  # Hadoop reads them, without telling how long a file is or when it changed
Shown = Callable[[], AbstractContextManager[Progress | None]]


@contextmanager
def at_hand(plan_file: PlanFile, *, shown: Shown = nullcontext, releasing: bool = False) -> Iterator[PlanFile]:
    """Yield the plan with copies of the tables that lie elsewhere; the plan itself keeps their addresses.

    Copies are private, next to the bundle or in the scratch folder of the plan, and are removed at the end; those of a
    killed run by the next one to the same bundle, or by `recover` if a ledger knows the run. Without Spark nothing is
    copied: reading refuses the address.
    """
    wanted = {key: name for key, name in plan_file.addresses.items() if name.partition(":")[0].lower() not in _WEB}
    if not wanted or plan_file.engine is None or plan_file.engine.name != SPARK:
        yield plan_file
        return
    for key, name in wanted.items():
        where = f"{plan_file.source} [data] {key}"
        if without_secret(address := address_of(name) or name) != address:
            what = "the address has a password or a signature in it, and a plan is kept in the manifest"
            remedy = "leave it out, and put it into spark-defaults.conf, which only you can read"
            raise bad_plan(what, where=where, remedy=remedy)
        if (ending := Path(name).suffix.lower()) in READS and ending not in PARQUET:
            remedy = "write it as Parquet, or copy the file to this machine and name the copy"
            raise bad_plan(f"only Parquet is read at an address, not {ending}", where=where, remedy=remedy)
    cluster = checked_cluster(plan_file)
    remove_copies(plan_file.out)
    # Or hours of copying would be in vain.
    if releasing:
        check_place(plan_file.out, inputs=plan_file.files)
    if plan_file.codebook is not None:
        Codebook.read(plan_file.codebook)
    if plan_file.ledger is not None:
        Ledger.open(plan_file.ledger)
    from stirred.engines.spark.lake import copy_here

    with claimed(copies_of(plan_file.out)) as place:
        scratch = place.new_scratch(scratch_elsewhere(plan_file))
        copies = {name: scratch / key / (Path(name).name or key) for key, name in wanted.items()}
        with shown() as progress, placed(f"{plan_file.source} [data]"):
            copy_here(copies, cluster.conf, scratch, is_read=_is_part, progress=progress or (lambda *_: None))
        with _named_by_address(copies):
            yield plan_file.with_copies(copies)


def _is_part(name: str, folder: bool) -> bool:
    return is_read(name, folder=folder) and (folder or Path(name).suffix.lower() in PARQUET)


@contextmanager
def _named_by_address(copies: Mapping[str, Path]) -> Iterator[None]:
    """Name the address in problems, instead of a copy that is gone when somebody reads them."""

    def renamed(text: str) -> str:
        for name, copy in copies.items():
            text = text.replace(str(copy), name)
        return text

    try:
        yield
    except StirredError as error:
        named = type(error)(
            replace(each, what=renamed(each.what), where=renamed(each.where), remedy=renamed(each.remedy))
            for each in error.problems
        )
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from None
