"""plan.toml: everything a release needs to know, read strictly, and written."""

from __future__ import annotations

import json
import os
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SerializationInfo, ValidationError, model_serializer

from stirred.data.codebook import Codebook
from stirred.data.codebook_file import Decimals, Separator, toml_value
from stirred.data.place import file_at
from stirred.data.problems import PlanError, bad_plan, control_letters
from stirred.data.sources import PLAIN, READS, Dialect, Source, address_of, local_path, read_toml
from stirred.data.steps import AnyStep, Split
from stirred.mechanisms.protocol import Names, Rate, Settings
from stirred.mechanisms.registry import (
    DEFAULT,
    UnknownMechanismError,
    mechanism_class,
    settings_for,
    usable,
)
from stirred.release.ledger.store import store_at
from stirred.report.safes import SAFES, SafesSheet
from stirred.spec.misfits import Misfit, misfits
from stirred.spec.problems import Problem, StirredError, place_of

RECORD_FILES: Final = ("households", "file", "counts", "sample")
Stage = Literal["as-given", "raw-responses", "edited-file", "sample", "population", "transmitted-record"]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DataSection(_Strict):
    """[data]: the confidential files and their identifiers."""

    households: str | None = Field(
        default=None, description="The household file, one row for each household; relative to the plan."
    )
    file: str | None = Field(default=None, description="Instead: one flat file, such as one of persons.")
    counts: str | None = Field(
        default=None,
        description="Instead: a table of counts, with a row for each combination of values.",
    )
    count: str = Field(default="count", description="The column of a table of counts that has the numbers.")
    sample: str | None = Field(default=None, description="Instead: the file of a survey, see [design].")
    record: str | None = Field(
        default=None,
        description="What a row is, the unit of the promise: household, and in other files record.",
    )
    name: str | None = Field(
        default=None,
        description="What the specification calls the dataset; default the ledger's name for it, or the file's.",
    )
    persons: str | None = Field(default=None, description="The file of the persons in the households.")
    codebook: str | None = Field(default=None, description="A codebook to validate against and to take labels from.")
    hid: str | None = Field(
        default=None,
        description="Column that links persons to households; needed with persons, re-issued on release.",
    )
    id: Names = Field(default=[], description="Columns that identify: never released.")
    missing: Names | dict[str, Names] = Field(
        default=[],
        description='Texts that mean a missing value, such as ["NA", "."]: in every column, or a list for each column.',
    )
    decimal: Decimals | None = Field(
        default=None,
        description="Of text files: what begins the decimals of a number; default the codebook's, or a point.",
    )
    separator: Separator | None = Field(
        default=None,
        description="Of text files: what separates fields; default the codebook's, or told from the header.",
    )
    missing_as: Literal["code"] | None = Field(
        default=None,
        description='With "code" a missing match or swap value is a code of its own, published as (missing); otherwise '
        "it is refused.",
    )
    stage: Stage = Field(
        default="as-given", description="At which stage of its life the file is; the promise is about the file there."
    )
    post_imputation: bool | None = Field(
        default=None,
        description="Whether records may hold answers that imputation copied from others; default what the stage says, "
        "or nothing.",
    )

    @property
    def given(self) -> dict[str, str]:
        """Return the main file by the key that names it; exactly one is right."""
        return {key: path for key in RECORD_FILES if (path := getattr(self, key)) is not None}

    def dialect(self, codebook: Codebook | None) -> Dialect:
        """Return how text files are written, by the plan or else by the codebook."""
        declared = PLAIN if codebook is None else codebook.dialect
        return Dialect(self.separator or declared.separator, self.decimal or declared.decimal)

    @property
    def record_type(self) -> str:
        """Return what a row of the main file is."""
        return self.record or ("household" if self.households is not None else "record")


class DesignSection(_Strict):
    """[design]: how a sample was drawn, by the columns that say it; the names of R's survey package."""

    ids: Names = Field(default=[], description="Columns of the clusters, the largest first; none if units were drawn.")
    strata: Names = Field(default=[], description="Columns of the strata.")
    fpc: Names = Field(default=[], description="Columns of population sizes, for the finite population correction.")
    weights: str | None = Field(default=None, description="Column of the sampling weights.")
    nest: bool = Field(default=False, description="Whether cluster numbers are repeated in other strata.")

    @property
    def columns(self) -> list[str]:
        """Return all columns that the design names."""
        return [*self.ids, *self.strata, *self.fpc, *([self.weights] if self.weights else [])]


class MechanismSection(_Strict):
    """[mechanism]: which one, and the settings that its own model declares (``stirred mechanism show NAME``)."""

    name: str = DEFAULT
    settings: Settings

    @classmethod
    def of(cls, content: Mapping[str, Any], *, words: Any = None) -> MechanismSection:
        """Return the section of plain data: the name, and with it the settings."""
        name, own = content.get("name", DEFAULT), {key: value for key, value in content.items() if key != "name"}
        return cls(name=name, settings=settings_for(str(name), own, words=words))

    @model_serializer(mode="plain")
    def _flat(self, info: SerializationInfo) -> dict[str, Any]:
        settings = self.settings.dumped(mode=info.mode, exclude_defaults=bool(info.exclude_defaults))
        return {"name": self.name, **settings}


class TableSection(_Strict):
    """[[tables]]: a table to publish from the released data."""

    variables: Names = Field(description="Columns of the table, of households or persons.")
    name: str | None = Field(default=None, description="Name of its file; default from the variables.")
    level: str | None = Field(default=None, description="A further column, the geographic level.")

    @property
    def columns(self) -> list[str]:
        """Return all variables of the table."""
        return [*self.variables, *([self.level] if self.level else [])]


class ReleaseSection(_Strict):
    """[release]: where the bundle goes, and what it is for."""

    out: str = Field(description="Folder of the bundle; must not exist. Relative to the plan.")
    format: Literal["parquet", "csv"] = Field(default="parquet", description="Of the released data.")
    title: str | None = Field(
        default=None, description="Title of report and specification; default from the file name."
    )
    purpose: str = Field(default="", description="What the release is for.")
    ledger: str | None = Field(default=None, description="The ledger that keeps account of this release.")
    accept: Names = Field(
        default=[], description='Doubts about protection that you accept, by name, such as "identifier:mark".'
    )
    exposed_share: Rate | None = Field(
        default=None,
        description="The share of unique records above which `exposed` is a doubt; at most that of the policy, "
        "or 1/3 without one.",
    )


class EngineSection(_Strict):
    """[engine]: where the bulk work runs. What is released does not depend on it."""

    name: Literal["local", "spark"] = Field(default="local", description="On this machine, or on a Spark cluster.")
    master: str | None = Field(
        default=None, description="Of a cluster: its address, such as spark://head.agency.example:7077."
    )
    scratch: str | None = Field(
        default=None,
        description="Of a cluster: a folder that this machine and all workers see; default beside the bundle.",
    )
    conf: dict[str, str] = Field(
        default={}, description="Of a cluster: further settings of Spark, such as spark.executor.memory."
    )


class ContextSection(_Strict):
    """[safes.context]: the flow of information in the five parameters of contextual integrity."""

    sender: str = Field(default="", description="Who passes the information on: the agency, the custodian.")
    recipient: str = Field(default="", description="Who receives it: researchers, the general public.")
    subject: str = Field(default="", description="Whom it is about.")
    information_type: str = Field(default="", description="What kind of information it is.")
    transmission_principles: str = Field(default="", description="On what terms it is passed on.")


class SafesSection(_Strict):
    """[safes]: the Five Safes sheet of the release, as far as the custodian recorded it."""

    people: str = Field(default="", description="Who will receive the release, and how they were vetted.")
    projects: str = Field(default="", description="What it will be used for, and why that is appropriate.")
    settings: str = Field(default="", description="Where and how it is accessed, and how that place is secured.")
    data: str = Field(default="", description="How sensitive the data are, and what was taken out or made coarser.")
    outputs: str = Field(default="", description="What is published, and how its disclosure risk was judged.")
    context: ContextSection = Field(default=ContextSection(), description="The flow of information.")
    public: bool = Field(default=True, description="Whether the texts may stand in the public edition of the report.")


class PlanFile(_Strict):
    """A plan: data, mechanism, tables, release and the Five Safes sheet.

    Its paths are relative to ``folder``, and messages call it ``source``.
    """

    data: DataSection = Field(description="The confidential files and their identifiers.")
    design: DesignSection | None = Field(default=None, description="How a sample was drawn.")
    prepare: list[AnyStep] = Field(default=[], description="What is done to each record before, in order.")
    mechanism: MechanismSection = Field(description="Which mechanism, and its settings.")
    tables: list[TableSection] = Field(default=[], description="Tables to publish from the released data.")
    release: ReleaseSection = Field(description="Where the bundle goes, and what it is for.")
    safes: SafesSection | None = Field(default=None, description="The Five Safes sheet of the release.")
    engine: EngineSection | None = Field(default=None, description="Where the bulk work runs; default this machine.")

    _folder: Path = PrivateAttr(default=Path())
    _source: str = PrivateAttr(default="plan")
    _copies: Mapping[str, Path] = PrivateAttr(default_factory=dict)  # of addresses, for as long as a command runs

    @property
    def folder(self) -> Path:
        """Return the folder that paths are relative to."""
        return self._folder

    @property
    def source(self) -> str:
        """Return what messages call the plan."""
        return self._source

    def changed(self, section: str, **values: Any) -> PlanFile:
        """Return the plan with other values in one of its sections."""
        own = getattr(self, section).model_copy(update=values)
        return self.model_copy(update={section: own})

    def with_copies(self, copies: Mapping[str, Path]) -> PlanFile:
        """Return the plan with files to read in the place of addresses."""
        found = self.model_copy()
        found._copies = copies
        return found

    @property
    def record_type(self) -> str:
        """Return what a row of the main file is, after it was split into households if it is."""
        split = any(isinstance(step, Split) for step in self.prepare)
        return self.data.record or ("household" if split else self.data.record_type)

    @property
    def safes_sheet(self) -> SafesSheet | None:
        """Return the Five Safes sheet as a report shows it, if there is one."""
        if self.safes is None:
            return None
        texts = {name: str(getattr(self.safes, name)) for name in SAFES}
        return SafesSheet(safes=texts, context=self.safes.context.model_dump(), public=self.safes.public)

    @property
    def addresses(self) -> dict[str, str]:
        """Return the tables that lie elsewhere than on this machine, each by its key under [data]."""
        tables = {**self.data.given, "persons": self.data.persons or ""}
        return {key: text for key, text in tables.items() if address_of(text)}

    def _table(self, name: str) -> Path:
        return self._copies[name] if name in self._copies else self.folder / local_path(name)

    @property
    def records(self) -> Path:
        """Return the path of the main file: of households, or whatever a row is."""
        (name,) = self.data.given.values()
        return self._table(name)

    @property
    def persons(self) -> Path | None:
        """Return the path of the person file, if there is one."""
        return None if self.data.persons is None else self._table(self.data.persons)

    @property
    def codebook(self) -> Path | None:
        """Return the path of the codebook, if there is one."""
        return None if self.data.codebook is None else self.folder / local_path(self.data.codebook)

    @property
    def files(self) -> list[Path]:
        """Return the files that a release reads; what lies at an address is left out."""
        named = (*self.data.given.values(), self.data.persons, self.data.codebook)
        return [Source.of(self._table(name)).path for name in named if name is not None and "://" not in name]

    @property
    def settings(self) -> Settings:
        """Return the settings of the mechanism, those that name a file with what it holds."""
        settings, data = self.mechanism.settings, self.data
        default = type(settings).model_fields["unit"].default
        # A kept plan has its defaults written out: what counts is the value. A file of households alone has no persons.
        households_alone = data.households is not None and data.persons is None
        if settings.unit == default and (data.record is not None or default == "household" or households_alone):
            settings = settings.model_copy(update={"unit": self.record_type})
        return settings.with_files(self.folder)

    @contextmanager
    def places(self, otherwise: str = "") -> Iterator[None]:
        """Raise problems inside the block with their places in the plan, as :meth:`place` does."""
        try:
            yield
        except StirredError as error:
            raise type(error)(self.place(each, otherwise) for each in error.problems) from None

    def place(self, problem: Problem, otherwise: str = "") -> Problem:
        """Return a problem of a setting that is a section with its place in the plan; others inside ``otherwise``."""
        settings = self.mechanism.settings
        sections = {key: getattr(settings, key) for key in type(settings).model_fields if settings.mark(key, "section")}
        written = _as_written(problem, sections)
        return problem.inside(otherwise) if written is None else written.inside(self.source)

    @property
    def from_file(self) -> bool:
        """Say whether the plan is a file, and not made of options."""
        return self.source.endswith(".toml")

    def with_settings(self, settings: Settings) -> PlanFile:
        """Return the plan with other settings of its mechanism."""
        return self.changed("mechanism", settings=settings)

    def on(self, name: str | None, master: str | None) -> PlanFile:
        """Return the plan on another engine than it says; settings of a cluster stay where only its address differs."""
        if name is None and master is None:
            return self
        section = self.engine or EngineSection()
        name = name or "spark"
        kept = section.model_dump(include={"master", "scratch", "conf"}) if name == section.name else {}
        content = {**kept, "name": name, **({} if master is None else {"master": master})}
        try:
            engine = EngineSection.model_validate(content)
        except ValidationError:
            remedy = "write --engine local or --engine spark"
            raise bad_plan(f"there is no engine '{name}'", where="--engine", remedy=remedy) from None
        if problems := [*_engine_problems(engine, "command line")]:
            raise PlanError(replace(problem, where="--master") for problem in problems)
        return self.model_copy(update={"engine": engine})

    def accounted_in(self, ledger: str | None) -> PlanFile:
        """Return the plan with the address that its ledger has now, from here; as it is where none is given."""
        if ledger is None:
            return self
        there = ledger if "://" in ledger else str(Path(ledger).absolute())
        return self.changed("release", ledger=there)

    def recorded(self) -> dict[str, Any]:
        """Return the plan as manifest and ledger keep it: the ledger by its name, which has no password in it."""
        parameters: dict[str, Any] = json.loads(self.model_dump_json(exclude={"engine"}))
        if self.release.ledger is not None:
            parameters["release"]["ledger"] = store_at(self.release.ledger).name
        return parameters

    @property
    def ledger(self) -> str | None:
        """Return the ledger: a URL as it is, a path from the folder of the plan."""
        name = self.release.ledger
        return name if name is None or "://" in name else str(self.folder / name)

    @property
    def out(self) -> Path:
        """Return the path of the bundle."""
        return self.folder / local_path(self.release.out)


def read_plan(path: Path, *, out: Path | None = None) -> PlanFile:
    """Read plan.toml; every problem is reported at once with its section and key.

    ``out`` is where the bundle goes if the plan does not say it.
    """
    place = Source.of(path)
    if place.kind in READS and place.kind != ".txt":
        remedy = (
            f"make a plan of it, `stirred plan {path} ... --write PLAN.toml`, or use `stirred swap {path}` with options"
        )
        raise bad_plan("this is a data file, and here a plan is read", where=str(path), remedy=remedy)
    content = read_toml(path, called="the plan")
    if "variables" in content and content.keys().isdisjoint(_LEAST):
        remedy = f"name it in a plan, codebook = {path.name!r} under [data], or with --codebook"
        raise bad_plan("this is a codebook, and here a plan is read", where=str(path), remedy=remedy)
    section = content.get("release", {})
    if out is not None and isinstance(section, dict) and "out" not in section:
        content["release"] = {**section, "out": str(out.absolute())}
    data, mechanism = content.get("data", {}), content.get("mechanism", {})
    sections = isinstance(data, dict) and isinstance(mechanism, dict)
    if sections and mechanism.get("unit") == "household" and {*data}.isdisjoint(("households", "record")):
        content["data"] = {
            **data,
            "record": "household",
        }  # somebody wrote it: only kept plans have defaults written out
    return plan_from(content, source=str(path), folder=path.parent)


def plan_from(content: dict[str, Any], *, source: str, folder: Path) -> PlanFile:
    """Return a plan from plain data; ``source`` names it in messages."""
    problems: list[tuple[str, Problem]] = []
    unknown = False
    written, content = content, _with_own_sections(content)
    given = content.get("mechanism")
    if isinstance(given, dict):
        section = _NO_MECHANISM
        try:
            section = MechanismSection.of(given)
        except StirredError as error:
            unknown = isinstance(error, UnknownMechanismError)
            wrong = [_as_written(each, written) or each.inside("[mechanism]") for each in error.problems]
            problems = [("mechanism", problem.inside(source)) for problem in wrong]
        content = {**content, "mechanism": section}
    try:
        plan = PlanFile.model_validate(content)
    except ValidationError as error:
        for found in misfits(
            error.errors(), content, PlanFile, remedy="see docs/plans.md, or `stirred plan --schema plan`"
        ):
            if unknown and found.kind == "extra_forbidden" and len(found.place) == 1 and not found.hint:
                continue  # perhaps a section of the mechanism that was meant
            problems.append((str((*found.place, "")[0]), _problem(found, source)))
    else:
        problems += [("data", problem) for problem in _data_problems(plan, source)]
        problems += [("engine", problem) for problem in _engine_problems(plan.engine, source)]
    if problems:
        order = {name: place for place, name in enumerate(PlanFile.model_fields)}
        raise PlanError(
            dict.fromkeys(problem for _, problem in sorted(problems, key=lambda each: order.get(each[0], len(order))))
        )
    plan._folder, plan._source = folder, source
    return plan


def _with_own_sections(content: dict[str, Any]) -> dict[str, Any]:
    """Return a plan in which sections that are settings of its mechanism stand under [mechanism]."""
    given = content.get("mechanism")
    if not isinstance(given, dict) or {*content} <= {*PlanFile.model_fields}:
        return content
    try:
        model = mechanism_class(str(given.get("name", DEFAULT))).settings_model
    except StirredError:  # said with the section
        return content
    own = [key for key in content if key in model.model_fields and model.mark(key, "section")]
    moved = {key: content[key] for key in own if key not in given}
    return {**{key: value for key, value in content.items() if key not in moved}, "mechanism": {**given, **moved}}


def _as_written(problem: Problem, sections: Mapping[str, Any]) -> Problem | None:
    """Return a problem of a setting that is a section of its own under that, such as [[estimates]] entry 2."""
    key = problem.where.partition(" ")[0].partition(".")[0]
    if key not in sections or key in PlanFile.model_fields:
        return None
    section = f"[[{key}]]" if isinstance(sections[key], list) else f"[{key}]"
    return replace(problem, where=f"{section} {problem.where[len(key) :].lstrip(' .')}".strip())


def _data_problems(plan: PlanFile, source: str) -> Iterator[Problem]:
    """Yield what is wrong with the files that a plan names together."""
    given, where = [*plan.data.given], f"{source} [data]"
    instead = "file (one flat file), counts (a table of counts) or sample (a survey)"
    if not given:
        yield Problem(what="'households' is missing", where=f"{where} households", remedy=f"add it, or {instead}")
    elif len(given) > 1:
        yield Problem(what=f"{' and '.join(given)} both name the file", where=where, remedy="name it once")
    for place, name in (("[data] record", plan.data.record), ("[mechanism] unit", plan.mechanism.settings.unit)):
        if name is not None and not name.strip():
            remedy = "say what a record is, such as household or person; or leave it out"
            yield Problem(what="it is empty", where=f"{source} {place}", remedy=remedy)
    if len(given) == 1 and plan.data.persons is not None and given != ["households"]:
        remedy = "name the other file with households"
        yield Problem(what="persons belong to households", where=f"{where} persons", remedy=remedy)
    if not plan.release.out.strip():
        remedy = "name a folder that does not exist yet"
        yield Problem(what="it is empty", where=f"{source} [release] out", remedy=remedy)
    if plan.design is not None and given != ["sample"]:
        remedy = "name the file of the survey with sample under [data]"
        yield Problem(what="only a sample has a design", where=f"{source} [design]", remedy=remedy)


def _engine_problems(engine: EngineSection | None, source: str) -> Iterator[Problem]:
    """Yield what an engine must have, or has no use for."""
    if engine is None:
        return
    if engine.name == "spark" and engine.master is None:
        remedy = (
            "name the address of the cluster, such as master = 'spark://head.agency.example:7077', or with --master"
        )
        yield Problem(what="'master' is missing", where=f"{source} [engine]", remedy=remedy)
    if engine.name == "local" and (engine.master, engine.scratch, engine.conf) != (None, None, {}):
        remedy = "write name = 'spark', or leave master, scratch and conf out"
        yield Problem(what="only a cluster has these settings", where=f"{source} [engine]", remedy=remedy)


# Stands where the section has problems, while those of the others are looked for.
_NO_MECHANISM = MechanismSection(settings=Settings())
# What a section must have at least, for a plan without it.
_LEAST = {
    "data": 'a line [data], and below it households = "households.csv"',
    "mechanism": 'a line [mechanism], and below it, on a line each, swap = "county" and rate = "5%"',
    "release": 'a line [release], and below it out = "bundle", the folder that the bundle goes to',
}


def _problem(found: Misfit, source: str) -> Problem:
    name, *inside = found.place or ("",)
    section = f"[[{name}]]" if inside and isinstance(inside[0], int) else f"[{name}]" if name else ""
    remedy = f"add {_LEAST[str(name)]}" if found.kind == "missing" and not inside else found.remedy
    return Problem(what=found.what, where=f"{source} {section} {place_of(inside)}".strip(), remedy=remedy)


def unprintable(plan: PlanFile, columns: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for every text with control letters, or bytes that are no text."""
    texts = [
        ("[release] title", plan.release.title or "", ""),
        ("[release] out", plan.release.out, ""),
        ("[data] name", plan.data.name or "", ""),
        ("[mechanism] unit", plan.mechanism.settings.unit, ""),
        ("[release] purpose", plan.release.purpose, "\n\t"),
        *(("columns", name, "\n\t\r") for name in columns),
    ]
    for where, text, allowed in texts:
        if shown := control_letters(text, allowed=allowed):
            yield Problem(
                what=f"{text[:40]!a} holds letters that cannot be published ({shown})",
                where=f"{plan.source} {where}",
                remedy="rename the column" if where == "columns" else "write it without them",
            )


_WIDE = 110


def to_toml(plan: PlanFile, *, remarks: Sequence[str] = ()) -> str:
    """Return a plan as TOML, remarks as comments above it; what has its default is left out, but for the name.

    >>> mechanism = {"swap": "county", "rate": "5%"}
    >>> content = {"data": {"households": "a.csv"}, "mechanism": mechanism, "release": {"out": "b"}}
    >>> print(to_toml(plan_from(content, source="", folder=Path()), remarks=["Made by hand."]))
    # Made by hand.
    <BLANKLINE>
    [data]
    households = "a.csv"
    <BLANKLINE>
    [mechanism]
    name = "permutation-swap"
    swap = ["county"]
    rate = "5%"
    <BLANKLINE>
    [release]
    out = "b"
    <BLANKLINE>
    """
    content = plan.model_dump(exclude_defaults=True)
    comments = [f"# {line}" for remark in remarks for line in textwrap.wrap(remark, _WIDE, break_long_words=False)]
    head = ["\n".join(comments) + "\n"] if comments else []
    return "\n".join([*head, *_sections(content)])


def _sections(content: dict[str, Any]) -> Iterator[str]:
    for name, section in content.items():
        many = isinstance(section, list)
        for each in section if many else [section]:
            lines = [f"{key} = {toml_value(value)}" for key, value in each.items()]
            yield "\n".join([f"[[{name}]]" if many else f"[{name}]", *lines, ""])


def write_plan(plan: PlanFile, path: Path, *, remarks: Sequence[str] = ()) -> None:
    """Write a plan whose paths are relative to here, so that they hold from its own folder; never over a file."""
    from_there = {
        key: str(local_path(value)) if local_path(value).is_absolute() else os.path.relpath(value, path.parent)
        for key in (*RECORD_FILES, "persons", "codebook")
        if (value := getattr(plan.data, key)) is not None
    }
    moved = plan.changed("data", **from_there)
    text = to_toml(moved, remarks=remarks)
    read = plan_from(tomllib.loads(text, parse_float=Decimal), source=str(path), folder=path.parent)
    assert read.model_dump() == moved.model_dump(), "a plan must read as it was written"
    try:
        with file_at(path, private=False) as half:
            half.write_text(text, encoding="utf-8")
    except OSError as error:
        raise bad_plan(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, for editors: its mechanism is one of those that are installed."""
    schema = PlanFile.model_json_schema()
    mechanisms, parts = [], {}
    for name, mechanism in usable().items():
        model = mechanism.settings_model
        own = model.model_json_schema()
        parts.update(own.pop("$defs", {}))
        said = {"const": name, "default": name, "description": "The name of the mechanism.", "type": "string"}
        own["properties"] = {"name": said, **{key: own["properties"][key] for key in model.setting_names()}}
        if name != DEFAULT:
            own["required"] = ["name", *own.get("required", [])]
        parts[model.__name__] = own
        sections = {key: own["properties"][key] for key in model.model_fields if model.mark(key, "section")}
        schema["properties"].update(sections)
        mechanisms.append({"$ref": f"#/$defs/{model.__name__}"})
    described = {"description": MechanismSection.__doc__, "oneOf": mechanisms, "title": "MechanismSection"}
    schema["$defs"] = dict(sorted({**schema["$defs"], **parts, "MechanismSection": described}.items()))
    schema["$defs"].pop("Settings", None)
    one = [{"properties": {key: {"type": "string"}}, "required": [key]} for key in RECORD_FILES]
    schema["$defs"]["DataSection"]["oneOf"] = one
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:plan:1", **schema}
