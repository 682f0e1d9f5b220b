"""The rehearsal of a release: everything that can fail without its draw is done before, when it still costs nothing."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from stirred.audit.bundle import CHECKS, CheckedBundle, When
from stirred.data.bundle import Findings
from stirred.data.columns import Columns, select
from stirred.data.microdata import like
from stirred.data.place import Place
from stirred.data.problems import PlanError, listed
from stirred.data.table_labels import label_columns
from stirred.engines.local import LocalEngine
from stirred.mechanisms.protocol import (
    PERSONS,
    REHEARSED,
    Opening,
    Progress,
    Release,
    Workplace,
    for_rehearsal,
    plan_doubts,
)
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import mark_seeded
from stirred.release.files import public_files, verify_public, write_pages, write_public
from stirred.release.ledger import Request
from stirred.release.prepared import Prepared
from stirred.release.reports import blank_reports, write_reports
from stirred.release.scan import CHECKS as BEFORE_PUBLISHING
from stirred.release.scan import TABLES, may_have
from stirred.spec.doubts import refuse_doubts
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification

_SAMPLE: Final = 20_000
# Tables, invariants and reports come on top of the records; released records, in random order, compress worse.
_REST: Final = 2
_PAGES: Final = 8 << 20


def rehearse(place: Place, prepared: Prepared, request: Request) -> None:
    """Raise all problems that would end the run after its draw, or that `publish` would find in what it wrote.

    A few records are released into the claimed place under a key that is thrown away: what fails for the names, types
    or cells of the file fails here. The pages are looked at as `publish` does. Charts are drawn on the way; the one
    that failed is left out of the report, which says so.
    """
    # What the draw and the passes behind it load only when they need it.
    prepared.check_unchanged()
    prepared.mechanism.ready(
        prepared.data, prepared.plan, Workplace(place.folder / "internal", place.hidden / "progress")
    )
    assert request.specification is not None
    pages = _pages(place.hidden / "rehearsal", prepared, request.specification)
    unlisted = _not_allowed(prepared, request.specification)
    if problems := [*_too_large(place, bytes_needed(prepared)), *unlisted, *pages]:
        raise PlanError(dict.fromkeys(problems))


def _too_large(place: Place, needed: int) -> Iterator[Problem]:
    """Yield a problem for the disk of the bundle, and for that of an engine's folder, if there is too little room."""
    disks = {"the bundle": (place.hidden, place.out)}
    if (scratch := place.scratch) is not None:
        disks["the scratch folder of the engine"] = (scratch, scratch)
    for what, (folder, shown) in disks.items():
        if needed > (free := free_bytes(folder)):
            yield Problem(
                what=f"{what} needs about {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free",
                where=str(shown),
                remedy="make room, or choose a folder on another disk",
            )


def _not_allowed(prepared: Prepared, specification: Specification) -> Iterator[Problem]:
    """Hold the files that the mechanism will make to its own rule of what they may have, as `publish` does."""
    allowed = may_have(prepared.mechanism, prepared.plan.released_columns(prepared.data), specification)
    for file in public_files(prepared):
        kind = TABLES if file["kind"] == "table" else file["name"]
        codes = [name for name in file["columns"] if name not in label_columns(file["columns"])]
        if kind not in allowed or (other := [name for name in codes if name not in allowed[kind]]):
            yield Problem(
                what=f"{listed(other) if kind in allowed else 'such a file'} is not allowed, and `publish` would "
                "refuse it",
                where=f"public/{file['name']}",
                remedy=f"this is a fault in the mechanism {prepared.mechanism.name} (Mechanism.files), please report",
            )


def bytes_needed(prepared: Prepared) -> int:
    """Return about how many bytes a bundle takes, by a sample of the records."""
    data, ending = prepared.data, prepared.plan_file.release.format
    needed = 0.0
    for file in prepared.files:
        if file.kind != "records":
            needed += file.about_bytes / _REST
            continue
        own = data.persons if file.name == PERSONS and data.persons is not None else data.households
        names = [name for name in file.columns if name in own.columns]
        others = [name for name in file.columns if name not in names and name in data.households.columns]
        row = _bytes_a_row(own, names, ending) + _bytes_a_row(data.households, others, ending)
        needed += own.height * row
    return _PAGES + int(_REST * needed)


def _bytes_a_row(table: Columns, names: list[str], ending: str) -> float:
    if not names:
        return 0
    rows = table.head(_SAMPLE)
    sample = select(rows, names).sample(fraction=1, shuffle=True, seed=1)
    written = io.BytesIO()
    if ending == "csv":
        sample.write_csv(written)
    else:
        sample.write_parquet(written, compression="zstd", compression_level=1)
    return len(written.getvalue()) / max(rows.height, 1)


def free_bytes(folder: Path) -> int:
    """Return how many bytes this user may still write on the disk of a folder."""
    return shutil.disk_usage(folder).free


def _pages(folder: Path, prepared: Prepared, specification: Specification) -> list[Problem]:
    """Make the bundle of an excerpt, and look at its pages as `publish` will."""
    public = folder / "public"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        if (excerpt := _excerpt(prepared, specification)) is None:
            public.mkdir(parents=True)
            write_pages(public, prepared, specification)
            (public / "report.html").write_text(blank_reports(prepared, specification)[0], encoding="utf-8")
        else:
            thrown_away = Entropy.from_seed("rehearsal") if specification.seeded else Entropy.from_os()
            release = draw_without_release(excerpt, folder, thrown_away)
            write_reports(folder, excerpt, release, verify_public(folder, excerpt, release))
        released = prepared.plan.released_columns(prepared.data)
        bundle = CheckedBundle(
            folder=folder,
            public=public,
            specification=specification,
            found=Findings(),
            mechanism=prepared.mechanism,
            variables=(*released.households, *released.persons),
            rehearsed=True,
        )
        bundle.look((*CHECKS, *BEFORE_PUBLISHING), When.REHEARSAL)
        return [
            Problem(
                what=f"{problem.what}, and `publish` would refuse it",
                where=f"{prepared.plan_file.source} {problem.where}",
                remedy="look at title, purpose and names in the plan",
            )
            for problem in bundle.found.problems
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _excerpt(prepared: Prepared, specification: Specification) -> Prepared | None:
    """Return the plan for a few records that promises what the whole file does; None where no draw is rehearsed."""
    mechanism, data, plan = prepared.mechanism, prepared.data, prepared.plan
    few = mechanism.rehearsed_on(data, plan)
    if few is None:
        return None
    if few is not data:
        try:
            plan = mechanism.plan(few)
            fits = not any(doubt.final for doubt in plan.doubts)
        except StirredError:
            fits = False
        if not fits:  # an excerpt may lack what the file has
            few, plan = data, prepared.plan
    # The promise on the pages is that of the release; an excerpt may lose less.
    return replace(prepared, data=few, plan=for_rehearsal(plan, specification))


def draw_without_release(
    prepared: Prepared, folder: Path, entropy: Entropy, *, progress: Progress | None = None
) -> Release:
    """Draw once without a release, for a rehearsal or to compare plans inside: write the public files to a bundle.

    Only final doubts refuse, as this is not a release. It states what the plan promises. No ledger is opened, and the
    folder is the caller's to remove.
    """
    (folder / "public" / "tables").mkdir(parents=True)
    (folder / "internal").mkdir(mode=0o700)
    prepared = replace(prepared, mechanism=prepared.mechanism.on(LocalEngine()))
    final = [doubt for doubt in plan_doubts(prepared.plan) if doubt.final and doubt != REHEARSED]
    refuse_doubts(final, accept=())
    release = prepared.mechanism.make_release(
        Opening(
            prepared.data,
            prepared.plan,
            entropy.for_release(),
            prepared.plan.specification,
            like(prepared.data),
            Workplace(folder / "internal", folder / "progress"),
        ),
        progress,
    )
    promised = prepared.plan.specification
    release = replace(release, specification=replace(promised, seeded=promised.seeded or entropy.seeded))
    write_public(folder, prepared, release)
    if entropy.seeded:
        mark_seeded(folder)
    return release
