"""`stirred attack`: how much of the persons of every block its published tables give away, and who is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel

from stirred.cli.option_words import no_area
from stirred.cli.options import Columns, Names, Place, Text, argument, command, option
from stirred.cli.risk import subject_of
from stirred.data.columns import select
from stirred.data.frames import read_given
from stirred.data.microdata import missing_column
from stirred.data.place import CHECKSUMS, MANIFEST, file_at
from stirred.data.problems import DataError, PlanError, bad_plan, listed, number
from stirred.mechanisms.groups import FactRows, Outcome, OutputBlock
from stirred.mechanisms.protocol import Grid, Progress
from stirred.risk.attackers import AttackerColumns, attackers_file, given_attacker, unknown_values
from stirred.risk.attacks import PUBLISHED, attacked, has_records, target_of
from stirred.risk.published import PublishedCounts
from stirred.risk.reidentification import VULNERABLE
from stirred.risk.replacement import reidentify_release
from stirred.risk.subject import Subject, bundle_files, is_bundle
from stirred.risk.table_lists import COLUMNS, LISTS
from stirred.spec.problems import Problem

RESULT: Final = Path("internal") / "reidentification.json"


class AttackOptions(BaseModel):
    """`stirred attack`."""

    file: Path = argument("FILE|BUNDLE|PLAN.toml", "Whose tables are attacked: a file, a release, or a plan.")
    out: Path = option("Where results are kept; the same attack goes on where it stopped.", ..., form="FOLDER")
    area: Columns = option("The area of the tables, such as block.", [], form="COLUMN")
    tables: Text = option(
        "Which tables: sf (summary file), pl (redistricting), or those that a bundle has published (default: sf of "
        "records of persons in the codes of the census, else published; a file or plan in codes of its own needs "
        "--table).",
        form="NAME",
    )
    table: Names = option("A table of your own, counted from the records: 'sex x age'.", [], form="VARIABLES")
    persons: Place = option("With a file of households: the persons in them.")
    hid: Text = option("With a file: the column linking persons to households.", form="COLUMN")
    truth: Place = option("The confidential records that a reconstruction is compared with.", form="PLAN.toml")
    reidentify: Text = option(
        "Match an attacker's file to what tables give away, or to the records.", form="tables|records"
    )
    attacker: Place = option("The attacker's file (default: made from the truth).")
    id: Columns = option("With --attacker: who a person is, there and in the truth.", [], form="COLUMN")
    made: Names = option(
        "Of a made attacker's file: coverage, the share of the persons in it; age_error, whose age is off by one to "
        "five years; address_error, with the area of somebody else.",
        [], form="NAME=SHARE",
    )  # fmt: skip
    known: Columns = option("What the attacker knows (default: sex, age).", [], form="COLUMN")
    learn: Columns = option("What is to be learned (default: race, hispanic).", [], form="COLUMN")
    seconds: float = option("The most that one program may take.", 30.0, ge=0.1)

    @property
    def errors(self) -> dict[str, float]:
        """Return what a made attacker's file has of the truth, and how wrong it is."""
        found = dict(_EXACT)
        for text in self.made:
            name, _, share = text.partition("=")
            try:
                found[name], known = float(share), name in _EXACT
            except ValueError:
                known = False
            if not known or not 0 <= found[name] <= 1:
                remedy = f"write one of {', '.join(_EXACT)} and a share from 0 to 1, such as coverage=0.9"
                raise bad_plan(f"{text!r} is not known", where="--made", remedy=remedy)
        return found


_EXACT: Final = {"coverage": 1.0, "age_error": 0.0, "address_error": 0.0}


def attack(options: AttackOptions, progress: Progress | None) -> Outcome:
    """Reconstruct the persons of every area.

    Says in how many areas there is one solution, how many persons are certain, and with --reidentify who is found.
    Disturbed tables are fitted.
    """
    file, out, tables, truth = options.file, options.out, options.tables, options.truth
    if tables not in (None, PUBLISHED, *LISTS):
        remedy = f"write {' or '.join([*LISTS, PUBLISHED])}"
        raise bad_plan(f"'{tables}' is no list of tables", where="--tables", remedy=remedy)
    if tables is not None and options.table:
        raise bad_plan("both name the tables", where="--tables and --table", remedy="give one of them")
    _check_places(out, truth)
    by = options.area or ["block"]
    files = bundle_files(file) if is_bundle(file) else None
    with_records = files is None or has_records(files)
    subject = subject_of(file, persons=options.persons, hid=options.hid) if with_records else None
    if not options.area and subject is not None and by[0] not in subject.persons.columns:
        raise no_area(by[0])
    true = subject if truth is None else subject_of(truth, persons=None, hid=None)
    if options.reidentify == "tables" and subject is not None:
        _check_census(subject.name, subject.persons.columns)
    alone = options.reidentify == "records" and subject is not None
    target = subject if alone else target_of(subject, files, by, name=str(file), tables=tables, own=options.table)
    assert target is not None
    attacked_list = PUBLISHED if isinstance(target, PublishedCounts) else tables or "sf"
    match = _match(subject, true, options, tables=attacked_list, area=by)
    # Tables are compared with the records that they are counted from, too.
    compared = true if truth is not None or isinstance(target, PublishedCounts) else None
    found: dict[str, Any] = {}
    if not alone:
        more: dict[str, Any] = {"tables": attacked_list, "seconds": options.seconds, "progress": progress}
        found = attacked(target, by, out, truth=compared, **more).facts
    again = None if match is None else reidentified(match, out, progress)
    # A released file may be compared with itself by anybody; any other comparison is with confidential records.
    public = target.public and truth is None
    values = {"file": str(file), "out": str(out), "public": public, **found}
    of = target.of if isinstance(target, PublishedCounts) else "persons"
    kept = [*(["areas.parquet", "records.parquet"] if found else []), *([] if again is None else [str(RESULT)])]
    rows = _rows(found, of=of, public=public) if found else []
    return Outcome(
        values=values if again is None else {**values, "reidentification": again},
        rows=[("file", target.in_words), *rows, ("written", f"{out}: {', '.join(kept)}")],
        blocks=[] if again is None else _reidentified_shown(again),
    )


def _check_places(out: Path, truth: Path | None) -> None:
    """Refuse to keep results in a release, where they could be published, and to take a release for the truth."""
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
    if lacking := [each for each in COLUMNS if each not in columns]:
        raise bad_plan(
            f"persons are looked for in tables of the census alone, and {name} has no {listed(lacking)}",
            where="--reidentify tables",
            remedy="take --reidentify records, with --known for what an attacker knows and --learn for what is to be "
            "learned",
        )


def _match(
    subject: Subject | None, true: Subject | None, options: AttackOptions, *, tables: str, area: list[str]
) -> Match | None:
    """Return what an attacker's file is matched to, if anything; refuse a release without records."""
    if subject is not None and true is not None:
        return prepared(
            options.reidentify, subject, true, out=options.out, tables=tables, area=area, known=options.known,
            learn=options.learn, file=options.attacker, id=options.id, errors=options.errors,
        )  # fmt: skip
    if options.reidentify is not None:
        remedy = "leave it out; `stirred compare --attack` matches what the tables of a plan give away"
        raise bad_plan("this release has no records", where="--reidentify", remedy=remedy)
    return None


def _rows(found: dict[str, Any], *, of: str, public: bool) -> list[tuple[str, str]]:
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


# ---- persons who are looked for ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """An attacker's file, and what it is matched to."""

    subject: Subject
    true: Subject
    asked: AttackerColumns
    file: pl.DataFrame
    facts: dict[str, Any]


def prepared(
    matched_to: str | None, subject: Subject, true: Subject, *, out: Path, tables: str, area: list[str],
    known: list[str], learn: list[str], file: Path | None, id: list[str], errors: dict[str, float],
) -> Match | None:  # fmt: skip
    """Return what is to be matched; refuse options that do not fit together, and columns that are not there."""
    made = errors != _EXACT
    if matched_to is None:
        if made or known or learn or file or id:
            what, remedy = "there is nothing to match an attacker's file to", "add --reidentify tables, or records"
            raise bad_plan(what, where="--reidentify", remedy=remedy)
        return None
    of_tables = matched_to == "tables"
    for refused, what, where, remedy in (
        (not of_tables and matched_to != "records", f"'{matched_to}' cannot be matched to", "--reidentify",
         "write tables or records"),
        (of_tables and tables != "sf", "persons are looked for only in the tables of a summary file",
         "--reidentify tables", "take --tables sf, or --reidentify records"),
        (of_tables and bool(known or learn), "tables are matched by sex and age, for race and hispanic",
         "--known or --learn", "leave it out, or take --reidentify records"),
        (not of_tables and out.exists() and not (out / RESULT).exists(), "something else is already there", str(out),
         "choose a new folder"),
        (true.public, "only the confidential records say who was found", "--truth",
         "name the plan that the release was made by: --truth PLAN.toml"),
        (file is not None and made, "a real file has its own coverage and errors", "--attacker",
         "leave --made out"),
        ((file is None) != (not id), "a real file and the columns that say who its persons are belong together",
         "--id", "give both: --attacker FILE --id COLUMN, columns that the confidential persons have too"),
    ):  # fmt: skip
        if refused:
            raise bad_plan(what, where=where, remedy=remedy)
    truth = true.persons
    larger = tuple(name for name in ("tract",) if name in truth.columns and name not in area)
    usual = AttackerColumns()
    known_columns, learned = tuple(known) or usual.known, tuple(learn) or usual.learn
    asked = AttackerColumns(area=tuple(area), known=known_columns, learn=learned, within=larger)
    _check_said(true.name, truth.columns, asked, known=known, learn=learn)
    _check_columns({true.name: truth}, (*asked.keys, *asked.learn))
    _check_columns({subject.name: subject.persons}, (*asked.keys, *asked.learn), truth.schema)
    whose = "made from the confidential persons" if file is None else str(file)
    said: dict[str, Any] = {"matched_to": matched_to, "attacker": whose}
    said |= {"known": [*asked.known], "learn": [*asked.learn]}
    if file is None:
        whole = attackers_file(truth, asked, **errors)  # type: ignore[arg-type]
        if not whole.height:
            raise bad_plan("nobody is in the attacker's file", where="--made", remedy="choose a larger coverage")
        return Match(subject=subject, true=true, asked=asked, file=whole, facts={**said, **errors})
    people = true.data.households if true.data.persons is None else true.data.persons
    _check_columns({"--id": people.head(0)}, id)
    whole = given_attacker(read_given(file), truth, select(people, id), asked, where=str(file))
    said["unknown_values"] = unknown_values(whole, truth, asked)
    return Match(subject=subject, true=true, asked=asked, file=whole, facts=said)


def _check_said(
    name: str, columns: Sequence[str], asked: AttackerColumns, *, known: Sequence[str], learn: Sequence[str]
) -> None:
    """Refuse a file in codes of its own that does not say what is known of a person, or what is to be learned."""
    roles = (("--known", "what an attacker knows", known, asked.known), ("--learn", "what is to be learned", learn,
             asked.learn))  # fmt: skip
    named = {*asked.area, *known, *learn}
    others = listed([each for each in columns if each not in named])
    problems = [
        Problem(
            what=f"{role} is not said, and {name} has no {listed([each for each in taken if each not in columns])}, "
            "as files of the census have",
            where=option,
            remedy=f"name columns of the file: {option} COLUMN,...; there are {others}",
        )
        for option, role, given, taken in roles
        if not given and not {*taken} <= {*columns}
    ]
    if problems:
        raise PlanError(problems)


def _check_columns(frames: Mapping[str, pl.DataFrame], columns: Sequence[str], like: pl.Schema | None = None) -> None:
    """Refuse columns that are not there, or whose values are of another kind than those of the truth."""
    problems = []
    for where, frame in frames.items():
        for name in columns:
            if name not in frame.columns:
                problems.append(missing_column(name, frame.columns, where=where, role="a column to match or to learn"))
            elif like and frame[name].cast(like[name], strict=False).null_count() > frame[name].null_count():
                what, remedy = f'"{name}" has other values than in the truth', "name the plan that made this release"
                problems.append(Problem(what=what, where=where, remedy=remedy))
    if problems:
        raise DataError(problems)


def reidentified(match: Match, out: Path, progress: Callable[[str, int, int], None] | None) -> dict[str, Any]:
    """Match, and keep what was found under internal/: all of it is computed from the confidential records."""
    folder = out if match.facts["matched_to"] == "tables" else None
    found = reidentify_release(
        match.subject, match.true, asked=match.asked, attacker=match.file, folder=folder, progress=progress
    )
    facts = {"confidential": True, **match.facts, "persons": found.facts}
    (out / RESULT).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_at(out / RESULT, private=True, replace=True) as half:
        half.write_text(json.dumps(facts, indent=2), encoding="utf-8")
    return facts


def _reidentified_shown(found: dict[str, Any]) -> Iterator[OutputBlock]:
    """Yield of each kind of persons how many match, how many are right, and how many would be by other ways."""

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = [("vulnerable", _vulnerable(found))]
    for name, many in found.get("unknown_values", {}).items():
        what = f'{many:,} rows of the attacker\'s file have a "{name}" that no confidential person has'
        rows.append(("unknown", what))
    yield FactRows(rows)
    columns = ("putative_rate", "confirmed_rate", "precision", "modal_guess", "proportional_guess", "person_replaced",
               "excess")  # fmt: skip
    header = ("persons", "number", "matched", "confirmed", "precision", "modal guess", "drawn", "replaced", "excess")
    lines = [
        (name, f"{each['records']:,}", *(share(each[of]) for of in columns)) for name, each in found["persons"].items()
    ]
    yield Grid(header=header, rows=tuple(lines))
    yield (f"An attacker's file matched to {found['matched_to']} and compared with the truth: keep all of this inside.")


def _vulnerable(found: dict[str, Any]) -> str:
    """Say in one sentence what happens to those who stand out; ``excess`` is what their own record gives away."""
    own = found["persons"][VULNERABLE]
    known, learned = (" and ".join(found[each]) for each in ("known", "learn"))
    who = f"{own['records']:,} persons differ from most in their area and are alone there with {known}"
    if own["precision"] is None:
        return f"{who}; none of them is matched"
    by_own = "" if own["excess"] is None else f"; {own['excess']:.1%} more than if the record were somebody else's"
    matched, right = f"{own['putative_rate']:.1%}", f"{own['precision']:.1%}"
    return f"{who}: {matched} are matched, and {right} of the matches tell their {learned}{by_own}"


COMMANDS: Final = (command("attack", AttackOptions, attack, progress=True),)
