"""`stirred codebook`, `synth` and `demo`: what a file should be, and synthetic files to try things on."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pydantic import BaseModel

from stirred.cli.options import Columns, Place, Text, argument, command, option
from stirred.data.codebook import Codebook
from stirred.data.codebook_file import WARNING, draft_codebook
from stirred.data.frames import read_labels, scan_frame, write_frame
from stirred.data.microdata import ALIKE, Microdata, missing_column
from stirred.data.place import file_at
from stirred.data.problems import DataError, bad_file, bad_plan, number
from stirred.data.sources import Source
from stirred.data.validate import validate
from stirred.mechanisms.groups import Outcome
from stirred.spec.problems import Problem, StirredError

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Progress


# ---- codebooks --------------------------------------------------------------------------------------------------


class _FileOptions(BaseModel):
    file: Path = argument("FILE", "The household file, or a table of a database: FILE.duckdb#TABLE.")
    persons: Place = option("File of the persons in the households.")


class CodebookInitOptions(_FileOptions):
    """`stirred codebook init`."""

    out: Path = option("Where to write; must not exist.", ..., form="CODEBOOK.toml")
    hid: Text = option("Column linking persons to households.", form="COLUMN")
    id: Columns = option("Identifier column.", [], form="COLUMN")


def init(options: CodebookInitOptions, _: Any) -> Outcome:
    """Draft a codebook to edit.

    Types and codes are guessed from the file, and marked as guesses.
    """
    file, persons, out = options.file, options.persons, options.out
    if out.exists():
        raise bad_file("there is already a file", where=str(out), remedy="choose another name, or remove it first")
    if not out.parent.is_dir():
        raise bad_file("there is no such folder", where=str(out.parent), remedy="create it first")
    households = read_labels(file)
    people = None if persons is None else read_labels(persons)
    frames = {str(file): households.frame, **({str(persons): people.frame} if people else {})}
    _check_hid(options.hid, frames)
    columns = [name for frame in frames.values() for name in frame.columns]
    if absent := [missing_column(name, columns, where="--id", role="id") for name in options.id if name not in columns]:
        raise DataError(absent)
    source = Source.of(file)
    title = source.table or source.path.stem
    text = draft_codebook(households, people, hid=options.hid, id=options.id, title=title)
    with file_at(out, private=True) as half:  # the codes of the file may tell who is in it
        half.write_text(text, encoding="utf-8", newline="\n")
    then = f"stirred codebook check {file}{f' --persons {persons}' if persons else ''} --codebook {out}"
    blocks = [f"This is a draft to edit, {WARNING}.", f"Then: {then}"]
    return Outcome(values={"codebook": str(out), "next": then}, blocks=blocks, notes=[f"wrote {out}"])


def _check_hid(hid: str | None, files: dict[str, pl.DataFrame]) -> None:
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


class CodebookCheckOptions(_FileOptions):
    """`stirred codebook check`."""

    codebook: Path = option("What the file should be.", ..., form="CODEBOOK.toml")


def check(options: CodebookCheckOptions, _: Any) -> Outcome:
    """Hold a file against its codebook.

    Exits with 2 and every problem, or with 0.
    """
    file, persons = options.file, options.persons
    problems: list[Problem] = []
    declared: Codebook | None = None
    frames: dict[str, pl.LazyFrame] = {}
    try:
        declared = Codebook.read(options.codebook)
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
    sources = {"household_source": str(file), "person_source": str(persons or "persons")}
    problems = [*validate(frames[str(file)], people, declared, **sources), *_link_problems(frames, declared)]
    if problems:
        raise DataError(problems)
    sizes = {
        source: (frame.select(pl.len()).collect().item(), len(frame.collect_schema()))
        for source, frame in frames.items()
    }
    flat = people is None and declared.is_flat(frames[str(file)].collect_schema().names())
    roles = [("persons" if flat else "households", str(file)), *([("persons", str(persons))] if persons else [])]
    files = [{"file": source, "records": rows, "columns": columns} for source, (rows, columns) in sizes.items()]
    return Outcome(
        values={"codebook": str(options.codebook), "files": files, "problems": []},
        rows=[
            (role, f"{source}: {number(sizes[source][0], 'record')}, {number(sizes[source][1], 'column')}")
            for role, source in roles
        ],
        blocks=[f"as {options.codebook} declares"],
    )


def _link_problems(frames: dict[str, pl.LazyFrame], codebook: Codebook) -> list[Problem]:
    """Return what is wrong with the link itself; that its column is absent is another problem."""
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


# ---- synthetic files ----------------------------------------------------------------------------------------------


class _MadeOptions(BaseModel):
    out: Path = option("Folder to create.", ..., form="FOLDER")


class _SeededOptions(_MadeOptions):
    households: int = option("Household records to make; for a survey, those of the census that is sampled.", ...)
    seed: int = option("A whole number; the same one gives the same files.", ...)


def massachusetts(options: _MadeOptions, _: Any) -> Outcome:
    """The households of Massachusetts in 1940, by the paper.

    1,144,424 of them, by Table 1; other sizes are ours.
    """
    from stirred.data.synth.massachusetts import massachusetts_1940

    path = options.out / "households.parquet"
    if path.exists():
        raise bad_plan("this file exists already", where=str(path), remedy="choose another folder")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        homes = massachusetts_1940()
        with file_at(path, private=False) as half:
            write_frame(homes, half)
    except OSError as error:
        raise bad_plan(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None
    values = {"file": str(path), "households": homes.height, "columns": homes.columns}
    note = "county x tenure is Table 1 of the paper; household sizes other than two persons are ours"
    return Outcome(values=values, text=str(path), notes=[note])


class CensusOptions(_SeededOptions):
    """`stirred synth census`."""

    segregation: float = option("0: the same mixture of races everywhere; 1: nearly homogeneous tracts.", 0.2)


def census(options: CensusOptions, progress: Progress | None) -> Outcome:
    """Households and persons in nested areas, all invented.

    From a town to a nation, 1,000 to 200 million households, made to look like the US in 2020.
    """
    from stirred.data.synth.census import CensusPlan, write_census

    plan = CensusPlan(households=options.households, seed=options.seed, segregation=options.segregation)
    made = write_census(options.out, plan=plan, progress=progress)
    levels = ("states", "counties", "tracts", "block_groups")
    areas = ", ".join(f"{made[name]:,} {name.replace('_', ' ')}" for name in levels)
    rows = [
        ("households", f"{made['households']:,}, of which {made['group_quarters']:,} are group quarters"),
        ("persons", f"{made['persons']:,}"),
        ("areas", f"{areas}, {made['blocks']:,} blocks"),
        ("files", ", ".join(str(options.out / name) for name in made["files"])),
    ]
    return Outcome(values=made, rows=rows)


def survey(options: _SeededOptions, _: Any) -> Outcome:
    """A stratified two-stage sample of the synthetic census.

    With nonresponse, imputation flags and calibrated weights; the truth is kept apart.
    """
    from stirred.data.synth.survey import write_survey

    out = options.out
    made = write_survey(out, households=options.households, seed=options.seed)
    rows = [
        ("sampled", f"{made['sampled']:,} households in {made['clusters']:,} clusters"),
        ("files", f"{out}/sample.csv, plan.toml, totals.csv, truth/"),
    ]
    return Outcome(values=made, rows=rows)


# ---- demonstrations -------------------------------------------------------------------------------------------------


class DemoOptions(BaseModel):
    """`stirred demo census-2020`."""

    out: Path = option("Folder to create: files, plans, bundles, ledgers and report.html.", ..., form="FOLDER")
    households: int | None = option("Of the synthetic census whose largest state is taken (default: 40000).")


def census_2020(options: DemoOptions, progress: Progress | None) -> Outcome:
    """The 2020 Census, whole: seven plans in one ledger.

    With the same synthetic state swapped. About a minute.
    """
    out = options.out
    if out.exists() or out.is_symlink():
        raise bad_plan("this exists already", where=str(out), remedy="choose another folder, or remove this one")
    more = {} if options.households is None else {"households": options.households}
    report = example("census_2020", "demo").main(out, progress=progress, **more)
    values = {"report": str(report), "ledger": str(out / "census.ledger")}
    return Outcome(values=values, rows=[*values.items()])


def example(name: str, module: str) -> ModuleType:
    """Return a module of an example: of the wheel, which brings them along, or of the clone that is installed."""
    here = Path(__file__).parents[1]
    for folder in (here / "examples", here.parents[1] / "examples"):
        if (folder / name / f"{module}.py").is_file():
            # An example is a package of its own, so that a reader can copy it.
            sys.path.insert(0, str(folder))
            try:
                return importlib.import_module(f"{name}.{module}")
            finally:
                sys.path.remove(str(folder))
    raise bad_plan("the example is not installed", where=name, remedy="install stirred from its wheel, or from a clone")


CODEBOOK: Final = (command("init", CodebookInitOptions, init), command("check", CodebookCheckOptions, check))
SYNTH: Final = (
    command("massachusetts-1940", _MadeOptions, massachusetts),
    command("census", CensusOptions, census, progress=True),
    command("survey", _SeededOptions, survey),
)
DEMO: Final = (command("census-2020", DemoOptions, census_2020, progress=True),)
