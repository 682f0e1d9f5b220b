"""`stirred attack`: how much of the persons of every block its published tables give away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import bad_plan, no_area
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import emit_json, facts, shown_progress
from stirred.cli.swap_options import Quiet, names

if TYPE_CHECKING:
    from stirred.cli.reidentified import Match
    from stirred.risk.subject import Subject


def attack(
    file: Annotated[Path, arg("FILE|BUNDLE|PLAN.toml", "Whose tables are attacked: a file, a release, or a plan.")],
    out: Annotated[Path, opt("--out FOLDER", "Where results are kept; the same attack goes on where it stopped.")],
    area: Annotated[Names, opt("--area COLUMN", "The area of the tables, such as block; repeat.")] = None,
    tables: Annotated[
        Text,
        opt(
            "--tables NAME",
            "Which tables: sf (summary file), pl (redistricting), or those that a bundle has published (default: sf "
            "of records of persons in the codes of the census, else published; a file or plan in codes of its own "
            "needs --table).",
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
    Disturbed tables are fitted.
    """
    from stirred.cli.reidentified import RESULT, reidentified, shown
    from stirred.cli.risk import subject_of
    from stirred.risk.attacks import PUBLISHED, attacked, has_records, target_of
    from stirred.risk.published import PublishedCounts
    from stirred.risk.subject import bundle_files, is_bundle
    from stirred.risk.table_lists import LISTS

    if tables not in (None, PUBLISHED, *LISTS):
        remedy = f"write {' or '.join([*LISTS, PUBLISHED])}"
        raise bad_plan(f"'{tables}' is no list of tables", where="--tables", remedy=remedy)
    if tables is not None and table:
        raise bad_plan("both name the tables", where="--tables and --table", remedy="give one of them")
    _check_places(out, truth)
    by = names(area) or ["block"]
    files = bundle_files(file) if is_bundle(file) else None
    subject = subject_of(file, persons=persons, hid=hid) if files is None or has_records(files) else None
    if not area and subject is not None and by[0] not in subject.persons.columns:
        raise no_area(by[0])
    true = subject if truth is None else subject_of(truth, persons=None, hid=None)
    if reidentify == "tables" and subject is not None:
        _check_census(subject.name, subject.persons.columns)
    alone = reidentify == "records" and subject is not None
    target = subject if alone else target_of(subject, files, by, name=str(file), tables=tables, own=table or ())
    assert target is not None
    attacked_list = PUBLISHED if isinstance(target, PublishedCounts) else tables or "sf"
    match = _match(
        subject, true, reidentify, out=out, tables=attacked_list, area=by, known=names(known), learn=names(learn),
        file=attacker, id=names(id), errors={"coverage": coverage, "age_error": age_error,
                                             "address_error": address_error},
    )  # fmt: skip
    # Tables are compared with the records that they are counted from, too.
    compared = true if truth is not None or isinstance(target, PublishedCounts) else None
    found: dict[str, Any] = {}
    with shown_progress(quiet=quiet) as progress:
        if not alone:
            found = attacked(
                target, by, out, truth=compared, tables=attacked_list, seconds=seconds, progress=progress
            ).facts
        again = None if match is None else reidentified(match, out, progress)
    # A released file may be compared with itself by anybody; any other comparison is with confidential records.
    public = target.public and truth is None
    if json:
        more = {} if again is None else {"reidentification": again}
        emit_json({"file": str(file), "out": str(out), "public": public, **found, **more})
        return
    of = target.of if isinstance(target, PublishedCounts) else "persons"
    kept = [*(["areas.parquet", "records.parquet"] if found else []), *([] if again is None else [str(RESULT)])]
    rows = _rows(found, of=of, public=public) if found else []
    facts([("file", target.in_words), *rows, ("written", f"{out}: {', '.join(kept)}")])
    if again is not None:
        shown(again)


def _check_places(out: Path, truth: Path | None) -> None:
    """Refuse to keep results in a release, where they could be published, and to take a release for the truth."""
    from stirred.data.place import CHECKSUMS, MANIFEST
    from stirred.risk.subject import is_bundle

    # A folder that only happens to be called public is no release.
    marks = ((MANIFEST, "public"), (CHECKSUMS, "specification.json"))
    if any(all((each / name).exists() for name in own) for each in out.resolve().parents for own in marks):
        what, remedy = "results of an attack must not stand in a release", "choose a folder outside of it"
        raise bad_plan(what, where=f"--out {out}", remedy=remedy)
    if truth is not None and is_bundle(truth):
        what, remedy = "this is a release, not the confidential records", "name the plan that it was made by"
        raise bad_plan(what, where=f"--truth {truth}", remedy=remedy)


def _check_census(name: str, columns: Sequence[str]) -> None:
    """Refuse to look for persons in tables of a file that has not the columns of the census."""
    from stirred.data.problems import listed
    from stirred.risk.table_lists import COLUMNS

    if lacking := [each for each in COLUMNS if each not in columns]:
        raise bad_plan(
            f"persons are looked for in tables of the census alone, and {name} has no {listed(lacking)}",
            where="--reidentify tables",
            remedy="take --reidentify records, with --known for what an attacker knows and --learn for what is to be "
            "learned",
        )


def _match(subject: Subject | None, true: Subject | None, matched_to: str | None, **options: Any) -> Match | None:
    """Return what an attacker's file is matched to, if anything; refuse a release without records."""
    from stirred.cli.reidentified import prepared

    if subject is not None and true is not None:
        return prepared(matched_to, subject, true, **options)
    if matched_to is not None:
        remedy = "leave it out; `stirred compare --attack` matches what the tables of a plan give away"
        raise bad_plan("this release has no records", where="--reidentify", remedy=remedy)
    return None


def _rows(found: dict[str, Any], *, of: str, public: bool) -> list[tuple[str, str]]:
    from stirred.data.problems import number

    outcomes = found["areas_by_outcome"]
    fitted = outcomes.get("fitted", 0)
    areas = number(found["areas"], "area has", "areas have")
    left = f"{number(outcomes.get('time limit', 0), 'area was', 'areas were')} left at the time limit"
    whole = [
        (
            "one",
            f"{found['share_of_areas_with_one_solution']:.1%} of {areas} one solution, with "
            f"{found['share_of_persons_in_them']:.1%} of {found['persons']:,} {of}",
        ),
        ("certain", f"at least {found['share_of_persons_certain']:.1%} of the {of} are there in every solution"),
        ("varying", f"another solution differs in at most {found['variability']:.1%} of the {of}"),
    ]
    words = (
        f"{fitted:,} of {areas} tables that were disturbed or contradict each other: the nearest "
        f"{found['persons']:,} {of}; their tables differ by {found['residual']:,} in all"
    )
    return [
        ("schema", found["schema"]),
        *(whole if fitted < found["areas"] else []),
        *([("fitted", words)] if fitted else []),
        *([("others", left)] if "time limit" in outcomes else []),
        *_agreement(found, of=of, public=public),
    ]


def _agreement(found: dict[str, Any], *, of: str, public: bool) -> list[tuple[str, str]]:
    if found["agreement"] is None:
        return [("agreement", "nobody to compare with; --truth PLAN.toml names the confidential records")]
    whose = "the released records" if public else "the confidential records (keep this inside)"
    chance = found["agreement_by_chance"]
    beside = "" if chance is None else f"; with those of another area of about this size {chance:.1%} agree"
    words = f"{found['agreement']:.1%} of the {of} found agree with {whose}, {found['compared_and_found']:.1%} of which"
    return [("agreement", f"{words} are found{beside}")]
