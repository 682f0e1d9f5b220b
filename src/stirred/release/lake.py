"""Tables at addresses that only Hadoop reads, copied to this machine for as long as a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from stirred.data.codebook import Codebook
from stirred.data.place import check_place, claimed, copies_of, remove_copies
from stirred.data.problems import bad_plan
from stirred.data.sources import PARQUET, READS, address_of, is_read, without_secret
from stirred.engines.protocol import SPARK
from stirred.mechanisms.protocol import Progress
from stirred.release.engine import checked_cluster, scratch_elsewhere
from stirred.release.ledger import Ledger
from stirred.release.plan_file import Planned
from stirred.spec.problems import StirredError, placed

_WEB: Final = ("http", "https", "ftp")  # Hadoop reads them, without telling how long a file is or when it changed
Shown = Callable[[], AbstractContextManager[Progress | None]]


@contextmanager
def at_hand(planned: Planned, *, shown: Shown = nullcontext, releasing: bool = False) -> Iterator[Planned]:
    """Yield the plan with copies of the tables that lie elsewhere; the plan itself keeps their addresses.

    Copies are private, beside the bundle or in the scratch folder of the plan, and are removed at the end; those of a
    killed run by the next one to the same bundle, or by `recover` if a ledger knows the run. Without Spark nothing is
    copied: reading refuses the address.
    """
    wanted = {key: name for key, name in planned.addresses.items() if name.partition(":")[0].lower() not in _WEB}
    if not wanted or planned.plan.engine is None or planned.plan.engine.name != SPARK:
        yield planned
        return
    for key, name in wanted.items():
        where = f"{planned.source} [data] {key}"
        if without_secret(address := address_of(name) or name) != address:
            what = "the address has a password or a signature in it, and a plan is kept in the manifest"
            remedy = "leave it out, and put it into spark-defaults.conf, which only you can read"
            raise bad_plan(what, where=where, remedy=remedy)
        if (ending := Path(name).suffix.lower()) in READS and ending not in PARQUET:
            remedy = "write it as Parquet, or copy the file to this machine and name the copy"
            raise bad_plan(f"only Parquet is read at an address, not {ending}", where=where, remedy=remedy)
    cluster = checked_cluster(planned)
    remove_copies(planned.out)
    # Or hours of copying would be in vain.
    if releasing:
        check_place(planned.out, inputs=planned.files)
    if planned.codebook is not None:
        Codebook.read(planned.codebook)
    if planned.ledger is not None:
        Ledger.open(planned.ledger)
    from stirred.engines.spark.lake import copy_here

    with claimed(copies_of(planned.out)) as place:
        scratch = place.new_scratch(scratch_elsewhere(planned))
        copies = {name: scratch / key / (Path(name).name or key) for key, name in wanted.items()}
        with shown() as progress, placed(f"{planned.source} [data]"):
            copy_here(copies, cluster.conf, scratch, is_read=_is_part, progress=progress or (lambda *_: None))
        with _told_by_address(copies):
            yield replace(planned, copies=copies)


def _is_part(name: str, folder: bool) -> bool:
    return is_read(name, folder=folder) and (folder or Path(name).suffix.lower() in PARQUET)


@contextmanager
def _told_by_address(copies: Mapping[str, Path]) -> Iterator[None]:
    """Name the address in problems, instead of a copy that is gone when somebody reads them."""

    def told(text: str) -> str:
        for name, copy in copies.items():
            text = text.replace(str(copy), name)
        return text

    try:
        yield
    except StirredError as error:
        renamed = type(error)(
            replace(each, what=told(each.what), where=told(each.where), remedy=told(each.remedy))
            for each in error.problems
        )
        for note in getattr(error, "__notes__", ()):
            renamed.add_note(note)
        raise renamed from None
