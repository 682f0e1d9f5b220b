"""`stirred attack`: how much of the persons of every block its published tables give away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import emit_json, facts, shown_progress
from stirred.cli.swap_options import Quiet, names

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from stirred.risk.subject import Subject


def attack(
    file: Annotated[Path, arg("FILE|BUNDLE|PLAN.toml", "Whose tables are attacked: a file, a release, or a plan.")],
    out: Annotated[Path, opt("--out FOLDER", "Where results are kept; the same attack goes on where it stopped.")],
    area: Annotated[Names, opt("--area COLUMN", "The area of the tables, such as block; repeat.")] = None,
    tables: Annotated[str, opt("--tables NAME", "Which tables: sf (summary file) or pl (redistricting).")] = "sf",
    persons: Annotated[Place, opt("--persons FILE", "With a file of households: the persons in them.")] = None,
    hid: Annotated[Text, opt("--hid COLUMN", "With a file: the column linking persons to households.")] = None,
    truth: Annotated[
        Place, opt("--truth PLAN.toml", "The confidential records that a reconstruction is compared with.")
    ] = None,
    reidentify: Annotated[
        Text,
        opt("--reidentify tables|records", "Match an attacker's file to what tables give away, or to the records."),
    ] = None,
    attacker: Annotated[Place, opt("--attacker FILE", "The attacker's file (default: made from the truth).")] = None,
    id: Annotated[
        Names, opt("--id COLUMN", "With --attacker: who a person is, there and in the truth; repeat.")
    ] = None,
    coverage: Annotated[
        float, opt("--coverage SHARE", "The share of the persons that a made file has.", min=0, max=1)
    ] = 1.0,
    age_error: Annotated[
        float, opt("--age-error SHARE", "The share whose age is off by one to five years.", min=0, max=1)
    ] = 0.0,
    address_error: Annotated[
        float, opt("--address-error SHARE", "The share with the area of somebody else.", min=0, max=1)
    ] = 0.0,
    known: Annotated[Names, opt("--known COLUMN", "What the attacker knows (default: sex, age); repeat.")] = None,
    learn: Annotated[Names, opt("--learn COLUMN", "What is to be learned (default: race, hispanic); repeat.")] = None,
    seconds: Annotated[float, opt("--seconds NUMBER", "The most that one program may take.", min=0.1)] = 30.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Reconstruct the persons of every area, and look for known ones.

    Says in how many areas there is one solution, how many persons are certain, and with --reidentify who is found.
    """
    from stirred.cli.reidentified import prepared, reidentified, shown
    from stirred.cli.risk import subject_of
    from stirred.risk.areas import reconstruct_areas
    from stirred.risk.table_lists import LISTS

    if tables not in LISTS:
        raise bad_plan(f"'{tables}' is no list of tables", where="--tables", remedy=f"write {' or '.join(LISTS)}")
    by = names(area) or ["block"]
    errors = {"coverage": coverage, "age_error": age_error, "address_error": address_error}
    subject = subject_of(file, persons=persons, hid=hid)
    true = subject if truth is None else subject_of(truth, persons=None, hid=None)
    match = prepared(
        reidentify, subject, true, out=out, tables=tables, area=by, known=names(known), learn=names(learn),
        file=attacker, id=names(id), errors=errors,
    )  # fmt: skip
    cells = None if reidentify == "records" else _cells(subject, by)
    compared = None if truth is None or cells is None else _cells(true, by)
    found: dict[str, Any] = {}
    with shown_progress(quiet=quiet) as progress:
        if cells is not None:
            found = reconstruct_areas(
                *cells, tables=tables, folder=out, truth=compared, seconds=seconds, progress=progress
            ).facts
        again = None if match is None else reidentified(match, out, progress)
    # A released file may be compared with itself by anybody; any other comparison is with confidential records.
    public = subject.public and truth is None
    if json:
        more = {} if again is None else {"reidentification": again}
        emit_json({"file": str(file), "out": str(out), "public": public, **found, **more})
        return
    facts([("file", subject.in_words), *(_rows(found, public=public) if found else []), ("written", str(out))])
    if again is not None:
        shown(again)


def _cells(subject: Subject, by: list[str]) -> tuple[np.ndarray, pl.DataFrame]:
    """Return the kinds of all persons, and their areas."""
    from stirred.data.microdata import missing_column
    from stirred.data.problems import DataError
    from stirred.risk.table_lists import cells_of

    people = subject.persons
    lacking = [name for name in by if name not in people.columns]
    if lacking:
        raise DataError(missing_column(name, people.columns, where="--area", role="an area") for name in lacking)
    return cells_of(people, where=subject.name), people.select(by)


def _rows(found: dict[str, Any], *, public: bool) -> list[tuple[str, str]]:
    outcomes = found["areas_by_outcome"]
    unsolved = [f"{outcomes[name]:,} {words}" for name, words in _OTHERS if name in outcomes]
    whose = "the released records" if public else "the confidential records (keep this inside)"
    return [
        ("schema", found["schema"]),
        (
            "one",
            f"{found['share_of_areas_with_one_solution']:.1%} of {found['areas']:,} areas have one solution, with "
            f"{found['share_of_persons_in_them']:.1%} of {found['persons']:,} persons",
        ),
        ("certain", f"{found['share_of_persons_certain']:.1%} of the persons are there in every solution"),
        ("varying", f"another solution differs in at most {found['variability']:.1%} of the persons"),
        *([("others", ", ".join(unsolved))] if unsolved else []),
        ("agreement", f"{found['agreement']:.1%} of the persons found agree with {whose}"),
    ]


_OTHERS = (("none", "areas whose tables contradict each other"), ("time limit", "areas were left at the time limit"))
