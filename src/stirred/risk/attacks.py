"""One attack on whatever was released: which tables it has, and the persons that they give away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from stirred.data.bundle import BundleFiles
from stirred.data.microdata import missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.data.uniqueness import of_persons
from stirred.risk.areas import Progress, Reconstructed, reconstruct_areas, reconstruct_published
from stirred.risk.published import PublishedCounts, of_bundle, of_records
from stirred.risk.subject import Subject
from stirred.risk.table_lists import cells_of

if TYPE_CHECKING:
    import numpy as np

PUBLISHED: Final = "published"


def has_records(files: BundleFiles) -> bool:
    """Say whether a release has records: its tables are then counted from these, and exact in them."""
    return files.has_persons or any(files.public.glob("data.*"))


def target_of(
    subject: Subject | None,
    files: BundleFiles | None,
    by: Sequence[str],
    *,
    name: str,
    tables: str | None = None,
    own: Sequence[str] = (),
) -> Subject | PublishedCounts:
    """Return what is attacked: records, whose tables are counted, or tables as they were published.

    ``subject`` are the records, if there are any, and ``files`` those of a bundle. ``own`` are tables to count, such as
    "sex x age"; otherwise ``tables`` are those of a list, those that are published, or what suits.
    """
    if tables == PUBLISHED and files is None:
        raise bad_plan("a file has published nothing", where="--tables", remedy="name the tables with --table")
    if subject is None and (own or tables not in (None, PUBLISHED)):
        what, remedy = "this release has no records to count tables from", "attack the tables that it has published"
        raise bad_plan(what, where="--table" if own else "--tables", remedy=remedy)
    inside = () if subject is None else subject.data.person_variables
    if files is not None and (subject is None or tables == PUBLISHED):
        return of_bundle(files, area=by, name=name, exact=subject is not None, person_columns=inside)
    assert subject is not None
    frame = people_of(subject, by)
    if own:
        people_of(subject, [each.strip() for one in own for each in one.split(" x ")], where="--table")
        of = "persons" if subject.data.persons is not None else "records"
        return of_records(frame, own, area=by, name=name, of=of, public=subject.public)
    try:
        cells_of(frame, where=subject.name)
    except DataError:
        # Codes of its own, which the lists of the census do not have: what it has published itself is left.
        if tables is None and files is not None and any(True for _ in files.tables()):
            return of_bundle(files, area=by, name=name, exact=True, person_columns=inside)
        raise
    return subject


def attacked(
    target: Subject | PublishedCounts,
    by: Sequence[str],
    folder: Path,
    *,
    truth: Subject | None,
    tables: str = "sf",
    seconds: float = 30.0,
    progress: Progress | None = None,
) -> Reconstructed:
    """Reconstruct the persons of all areas, and compare them with the truth, or released records with themselves."""

    def census(subject: Subject) -> tuple[np.ndarray, pl.DataFrame]:
        people = people_of(subject, by)
        return cells_of(people, where=subject.name), people.select(by)

    if isinstance(target, PublishedCounts):
        assert target.tables.codes is not None
        true = None if truth is None else people_of(truth, [*by, *target.tables.codes], where=truth.name, of=target.of)
        return reconstruct_published(target, folder=folder, truth=true, seconds=seconds, progress=progress)
    compared = None if truth is None else census(truth)
    return reconstruct_areas(
        *census(target), tables=tables, folder=folder, truth=compared, seconds=seconds, progress=progress
    )


def people_of(subject: Subject, needed: Sequence[str], *, where: str = "--area", of: str = "persons") -> pl.DataFrame:
    """Return all persons with the columns of their household, or other records; refuse if columns are not there."""
    data = subject.data
    people = data.households if data.persons is None or of != "persons" else of_persons(data)
    lacking = [name for name in dict.fromkeys(needed) if name not in people.columns]
    if lacking:
        role = "an area" if where == "--area" else "a variable"
        raise DataError(missing_column(name, people.columns, where=where, role=role) for name in lacking)
    return people
