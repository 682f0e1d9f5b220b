"""What `stirred attack --reidentify` asks for, checked before anything is attacked, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stirred.cli.option_words import bad_plan

if TYPE_CHECKING:
    import polars as pl

    from stirred.risk.attackers import AttackerColumns
    from stirred.risk.subject import Subject

RESULT = Path("internal") / "reidentification.json"


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
    from stirred.data.columns import select
    from stirred.data.frames import read_given
    from stirred.risk.attackers import AttackerColumns, attackers_file, given_attacker, unknown_values

    made = {*errors.items()} != {("coverage", 1.0), ("age_error", 0.0), ("address_error", 0.0)}
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
         "leave --coverage, --age-error and --address-error out"),
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
            raise bad_plan("nobody is in the attacker's file", where="--coverage", remedy="choose a larger share")
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
    from stirred.data.problems import PlanError, listed
    from stirred.spec.problems import Problem

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
    from stirred.data.microdata import missing_column
    from stirred.data.problems import DataError
    from stirred.spec.problems import Problem

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
    import json

    from stirred.data.place import file_at
    from stirred.risk.replacement import reidentify_release

    folder = out if match.facts["matched_to"] == "tables" else None
    found = reidentify_release(
        match.subject, match.true, asked=match.asked, attacker=match.file, folder=folder, progress=progress
    )
    facts = {"confidential": True, **match.facts, "persons": found.facts}
    (out / RESULT).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_at(out / RESULT, private=True, replace=True) as half:
        half.write_text(json.dumps(facts, indent=2), encoding="utf-8")
    return facts


def shown(found: dict[str, Any]) -> None:
    """Print of each kind of persons how many match, how many are right, and how many would be by other ways."""
    from stirred.cli.output import facts, paragraph, table

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = [("vulnerable", _vulnerable(found))]
    for name, many in found.get("unknown_values", {}).items():
        rows.append(
            ("unknown", f'{many:,} rows of the attacker\'s file have a "{name}" that no confidential person has')
        )
    facts(rows)
    columns = ("putative_rate", "confirmed_rate", "precision", "modal_guess", "proportional_guess", "person_replaced",
               "excess")  # fmt: skip
    table(
        ["persons", "number", "matched", "confirmed", "precision", "modal guess", "drawn", "replaced", "excess"],
        [
            [name, f"{each['records']:,}", *(share(each[of]) for of in columns)]
            for name, each in found["persons"].items()
        ],
    )
    paragraph(
        f"An attacker's file matched to {found['matched_to']} and compared with the truth: keep all of this inside."
    )


def _vulnerable(found: dict[str, Any]) -> str:
    """Say in one sentence what happens to those who stand out; ``excess`` is what their own record gives away."""
    from stirred.risk.reidentification import VULNERABLE

    own = found["persons"][VULNERABLE]
    known, learned = (" and ".join(found[each]) for each in ("known", "learn"))
    who = f"{own['records']:,} persons differ from most in their area and are alone there with {known}"
    if own["precision"] is None:
        return f"{who}; none of them is matched"
    by_own = "" if own["excess"] is None else f"; {own['excess']:.1%} more than if the record were somebody else's"
    matched, right = f"{own['putative_rate']:.1%}", f"{own['precision']:.1%}"
    return f"{who}: {matched} are matched, and {right} of the matches tell their {learned}{by_own}"
