"""`stirred codebook`: draft a codebook, hold a file against one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stirred.cli.options import Json, Place, Text, arg, opt
from stirred.cli.output import emit, emit_json, facts, paragraph, say

if TYPE_CHECKING:
    import polars as pl

    from stirred.data.codebook import Codebook
    from stirred.spec.problems import Problem

app = typer.Typer(
    help="Codebooks: what the columns of a confidential file mean. Declared rather than learned.", no_args_is_help=True
)

File = Annotated[Path, arg("FILE", "The household file, or a table of a database: FILE.duckdb#TABLE.")]
Persons = Annotated[Place, opt("--persons FILE", "File of the persons in the households.")]


@app.command()
def init(
    file: File,
    out: Annotated[Path, opt("--out CODEBOOK.toml", "Where to write; must not exist.")],
    persons: Persons = None,
    hid: Annotated[Text, opt("--hid COLUMN", "Column linking persons to households.")] = None,
) -> None:
    """Draft a codebook to edit.

    Types and codes are guessed from the file, and marked as guesses.
    """
    from stirred.data.codebook_file import WARNING, draft_codebook
    from stirred.data.frames import read_labels
    from stirred.data.place import file_at
    from stirred.data.problems import bad_file
    from stirred.data.sources import Source

    if out.exists():
        raise bad_file("there is already a file", where=str(out), remedy="choose another name, or remove it first")
    if not out.parent.is_dir():
        raise bad_file("there is no such folder", where=str(out.parent), remedy="create it first")
    households = read_labels(file)
    people = None if persons is None else read_labels(persons)
    _check_hid(hid, {str(file): households.frame, **({str(persons): people.frame} if people else {})})
    source = Source.of(file)
    text = draft_codebook(households, people, hid=hid, title=source.table or source.path.stem)
    with file_at(out, private=True) as half:  # the codes of the file may tell who is in it
        half.write_text(text, encoding="utf-8", newline="\n")
    say(f"wrote {out}")
    paragraph(f"This is a draft to edit, {WARNING}.")
    paragraph(f"Then: stirred codebook check {file}{f' --persons {persons}' if persons else ''} --codebook {out}")


def _check_hid(hid: str | None, files: dict[str, pl.DataFrame]) -> None:
    from dataclasses import replace

    from stirred.data.microdata import ALIKE, missing_column
    from stirred.data.problems import DataError
    from stirred.spec.problems import Problem

    if hid is None and len(files) > 1:
        what = "persons are given, but not the column that links them to households"
        raise DataError([Problem(what=what, where="--hid", remedy="name it: --hid COLUMN")])
    problems = [
        missing_column(hid, frame.columns, where=source, role="hid")
        for source, frame in files.items()
        if hid is not None and hid not in frame.columns
    ]
    if len(problems) == 1 and len(files) > 1:
        problems = [replace(problems[0], remedy=f"{ALIKE}; {problems[0].remedy}")]
    if problems:
        raise DataError(problems)


@app.command()
def check(
    file: File,
    codebook: Annotated[Path, opt("--codebook CODEBOOK.toml", "What the file should be.")],
    persons: Persons = None,
    json: Json = False,
) -> None:
    """Hold a file against its codebook.

    Exits with 2 and every problem, or with 0.
    """
    from stirred.data.codebook import Codebook
    from stirred.data.frames import scan_frame
    from stirred.data.problems import DataError
    from stirred.data.validate import validate
    from stirred.spec.problems import StirredError

    problems: list[Problem] = []
    declared: Codebook | None = None
    frames: dict[str, pl.LazyFrame] = {}
    try:
        declared = Codebook.read(codebook)
    except StirredError as error:
        problems += error.problems
    for source in (file, persons):
        if source is not None:
            try:
                declares = {} if declared is None else {"dialect": declared.dialect}
                frames[str(source)] = scan_frame(source, given=True, **declares)
            except StirredError as error:
                problems += error.problems
    if problems or declared is None:
        raise DataError(problems)
    people = None if persons is None else frames[str(persons)]
    problems = validate(
        frames[str(file)], people, declared, household_source=str(file), person_source=str(persons or "persons")
    )
    problems += _link_problems(frames, declared)
    if problems:
        raise DataError(problems)
    flat = people is None and declared.is_flat(frames[str(file)].collect_schema().names())
    _tell(file, persons, frames, codebook, flat=flat, as_json=json)


def _link_problems(frames: dict[str, pl.LazyFrame], codebook: Codebook) -> list[Problem]:
    """Return what is wrong with the link itself; that its column is absent has been told."""
    from stirred.data.microdata import Microdata
    from stirred.spec.problems import StirredError

    hid, columns = codebook.hid, [frame.collect_schema().names() for frame in frames.values()]
    if hid is None or any(hid not in names for names in columns) or (len(frames) == 1 and codebook.is_flat(columns[0])):
        return []
    (household_source, households), *rest = ((source, frame.select(hid).collect()) for source, frame in frames.items())
    person_source, persons = rest[0] if rest else ("persons", None)
    try:
        Microdata(
            households=households,
            persons=persons,
            hid=hid,
            household_source=household_source,
            person_source=person_source,
        )
    except StirredError as error:
        return list(error.problems)
    return []


def _tell(
    file: Path, persons: Path | None, frames: dict[str, pl.LazyFrame], codebook: Path, *, flat: bool, as_json: bool
) -> None:
    import polars as pl

    from stirred.data.problems import number

    sizes = {
        source: (frame.select(pl.len()).collect().item(), len(frame.collect_schema()))
        for source, frame in frames.items()
    }
    if as_json:
        files = [{"file": source, "records": rows, "columns": columns} for source, (rows, columns) in sizes.items()]
        emit_json({"codebook": str(codebook), "files": files, "problems": []})
        return
    names = {"persons": file} if flat else {"households": file, "persons": persons}
    roles = {role: sizes[str(source)] for role, source in names.items() if source}
    facts([(role, f"{names[role]}: {number(r, 'record')}, {number(c, 'column')}") for role, (r, c) in roles.items()])
    emit(f"as {codebook} declares")
