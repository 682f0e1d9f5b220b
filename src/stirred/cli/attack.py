"""`stirred attack`: how much of the persons of every block its published tables give away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import emit_json, facts, shown_progress
from stirred.cli.swap_options import Quiet, names

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from stirred.risk.areas import Progress, Reconstructed
    from stirred.risk.published import Published
    from stirred.risk.subject import Subject

_PUBLISHED = "published"


def attack(
    file: Annotated[Path, arg("FILE|BUNDLE|PLAN.toml", "Whose tables are attacked: a file, a release, or a plan.")],
    out: Annotated[Path, opt("--out FOLDER", "Where results are kept; the same attack goes on where it stopped.")],
    area: Annotated[Names, opt("--area COLUMN", "The area of the tables, such as block; repeat.")] = None,
    tables: Annotated[
        Text,
        opt(
            "--tables NAME",
            "Which tables: sf (summary file), pl (redistricting), or those that a bundle has published (default: sf "
            "where there are records of persons, else published).",
        ),
    ] = None,
    table: Annotated[
        Names, opt("--table VARIABLES", "A table of your own, counted from the records: 'sex x age'; repeat.")
    ] = None,
    persons: Annotated[Place, opt("--persons FILE", "With a file of households: the persons in them.")] = None,
    hid: Annotated[Text, opt("--hid COLUMN", "With a file: the column linking persons to households.")] = None,
    truth: Annotated[
        Place, opt("--truth PLAN.toml", "The confidential records that a reconstruction is compared with.")
    ] = None,
    seconds: Annotated[float, opt("--seconds NUMBER", "The most that one program may take.", min=0.1)] = 30.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Reconstruct the persons of every area from its tables alone.

    Says in how many areas there is one solution, and how many persons are certain. Disturbed tables are fitted.
    """
    from stirred.cli.risk import subject_of
    from stirred.risk.published import Published
    from stirred.risk.table_lists import LISTS

    if tables not in (None, _PUBLISHED, *LISTS):
        known = " or ".join([*LISTS, _PUBLISHED])
        raise bad_plan(f"'{tables}' is no list of tables", where="--tables", remedy=f"write {known}")
    if tables is not None and table:
        raise bad_plan("both name the tables", where="--tables and --table", remedy="give one of them")
    by = names(area) or ["block"]
    target = target_of(file, by, tables=tables, own=table or (), persons=persons, hid=hid)
    compared = None if truth is None else subject_of(truth, persons=None, hid=None)
    if compared is None and isinstance(target, Published) and target.weight is None:
        compared = subject_of(file, persons=persons, hid=hid)  # the records that the tables are counted from
    with shown_progress(quiet=quiet) as progress:
        found = attacked(target, by, out, truth=compared, tables=tables or "sf", seconds=seconds, progress=progress)
    # A released file may be compared with itself by anybody; any other comparison is with confidential records.
    public = target.public and truth is None
    if json:
        emit_json({"file": str(file), "out": str(out), "public": public, **found.facts})
        return
    facts([("file", target.in_words), *_rows(found.facts, public=public), ("written", str(out))])


def target_of(
    file: Path,
    by: Sequence[str],
    *,
    tables: str | None,
    own: Sequence[str] = (),
    persons: Path | None = None,
    hid: str | None = None,
) -> Subject | Published:
    """Return what is attacked: records, whose tables are counted, or tables as they were published."""
    from stirred.cli.risk import subject_of
    from stirred.data.problems import DataError
    from stirred.risk.published import of_bundle, of_records
    from stirred.risk.subject import bundle_files, is_bundle
    from stirred.risk.table_lists import cells_of

    files = bundle_files(file) if is_bundle(file) else None
    records = files is None or files.has_persons or any(files.public.glob("data.*"))
    if tables == _PUBLISHED and files is None:
        raise bad_plan("a file has published nothing", where="--tables", remedy="name the tables with --table")
    if files is not None and not records and (own or tables not in (None, _PUBLISHED)):
        what, remedy = "this release has no records to count tables from", "attack the tables that it has published"
        raise bad_plan(what, where="--table" if own else "--tables", remedy=remedy)
    if files is not None and (tables == _PUBLISHED or not records):
        return of_bundle(files, area=by, name=str(file), exact=records)
    subject = subject_of(file, persons=persons, hid=hid)
    frame = _people(subject, by)
    if own:
        _people(subject, [name.strip() for each in own for name in each.split(" x ")], where="--table")
        of = "persons" if subject.data.persons is not None else "records"
        return of_records(frame, own, area=by, name=subject.name, of=of, public=subject.public)
    try:
        cells_of(frame, where=subject.name)
    except DataError:
        # Codes of its own, which the lists of the census do not have: what it has published itself is left.
        if tables is None and files is not None and any(True for _ in files.tables()):
            return of_bundle(files, area=by, name=str(file), exact=True)
        raise
    return subject


def attacked(
    target: Subject | Published,
    by: Sequence[str],
    out: Path,
    *,
    truth: Subject | None,
    tables: str = "sf",
    seconds: float = 30.0,
    progress: Progress | None = None,
) -> Reconstructed:
    """Reconstruct the persons of all areas, and compare them with the truth, or released records with themselves."""
    from stirred.risk.areas import reconstruct_areas, reconstruct_published
    from stirred.risk.published import Published
    from stirred.risk.table_lists import cells_of

    def census(subject: Subject) -> tuple[np.ndarray, pl.DataFrame]:
        people = _people(subject, by)
        return cells_of(people, where=subject.name), people.select(by)

    if isinstance(target, Published):
        assert target.tables.codes is not None
        true = None if truth is None else _people(truth, [*by, *target.tables.codes], where="--truth", of=target.of)
        return reconstruct_published(target, folder=out, truth=true, seconds=seconds, progress=progress)
    compared = None if truth is None else census(truth)
    return reconstruct_areas(
        *census(target), tables=tables, folder=out, truth=compared, seconds=seconds, progress=progress
    )


def _people(subject: Subject, needed: Sequence[str], *, where: str = "--area", of: str = "persons") -> pl.DataFrame:
    """Return all persons with the columns of their household, or other records; refuse if columns are not there."""
    from stirred.data.microdata import missing_column
    from stirred.data.problems import DataError
    from stirred.risk.exposed import of_persons

    data = subject.data
    people = data.households if data.persons is None or of != "persons" else of_persons(data)
    lacking = [name for name in dict.fromkeys(needed) if name not in people.columns]
    if lacking:
        role = "an area" if where == "--area" else "a variable"
        raise DataError(missing_column(name, people.columns, where=where, role=role) for name in lacking)
    return people


def _rows(found: dict[str, Any], *, public: bool) -> list[tuple[str, str]]:
    outcomes = found["areas_by_outcome"]
    fitted = outcomes.get("fitted", 0)
    left = f"{outcomes.get('time limit', 0):,} areas were left at the time limit"
    whole = [
        (
            "one",
            f"{found['share_of_areas_with_one_solution']:.1%} of {found['areas']:,} areas have one solution, with "
            f"{found['share_of_persons_in_them']:.1%} of {found['persons']:,} persons",
        ),
        ("certain", f"{found['share_of_persons_certain']:.1%} of the persons are there in every solution"),
        ("varying", f"another solution differs in at most {found['variability']:.1%} of the persons"),
    ]
    words = (
        f"{fitted:,} of {found['areas']:,} areas have tables that were disturbed or contradict each other: the nearest "
        f"{found['persons']:,} persons; their tables differ by {found['residual']:,} in all"
    )
    return [
        ("schema", found["schema"]),
        *(whole if fitted < found["areas"] else []),
        *([("fitted", words)] if fitted else []),
        *([("others", left)] if "time limit" in outcomes else []),
        *_agreement(found, public=public),
    ]


def _agreement(found: dict[str, Any], *, public: bool) -> list[tuple[str, str]]:
    if found["agreement"] is None:
        return [("agreement", "nobody to compare with; --truth PLAN.toml names the confidential records")]
    whose = "the released records" if public else "the confidential records (keep this inside)"
    return [
        (
            "agreement",
            f"{found['agreement']:.1%} of the persons found agree with {whose}, {found['compared_and_found']:.1%} of "
            f"which are found; with those of another area of about this size {found['agreement_by_chance']:.1%} agree",
        )
    ]
