"""plan.toml: everything a release needs to know, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stirred.data.problems import PlanError, bad_plan, control_letters
from stirred.data.sources import READS, Source, address_of, local_path, read_toml
from stirred.mechanisms.protocol import Settings
from stirred.mechanisms.registry import DEFAULT, UnknownMechanismError, mechanism_class
from stirred.release.plan_sections import EngineSection, MechanismSection, PlanFile
from stirred.spec.misfits import Misfit, misfits
from stirred.spec.problems import Problem, StirredError, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what to call it in messages, and the folder its paths are relative to."""

    plan: PlanFile
    folder: Path
    source: str
    copies: Mapping[str, Path] = field(default_factory=dict)  # of addresses, for as long as a command runs

    @property
    def addresses(self) -> dict[str, str]:
        """Return the tables that lie elsewhere than on this machine, each by its key under [data]."""
        tables = {**self.plan.data.given, "persons": self.plan.data.persons or ""}
        return {key: text for key, text in tables.items() if address_of(text)}

    def _table(self, name: str) -> Path:
        return self.copies[name] if name in self.copies else self.folder / local_path(name)

    @property
    def records(self) -> Path:
        """Return the path of the main file: of households, or whatever a row is."""
        (name,) = self.plan.data.given.values()
        return self._table(name)

    @property
    def persons(self) -> Path | None:
        """Return the path of the person file, if there is one."""
        return None if self.plan.data.persons is None else self._table(self.plan.data.persons)

    @property
    def codebook(self) -> Path | None:
        """Return the path of the codebook, if there is one."""
        return None if self.plan.data.codebook is None else self.folder / local_path(self.plan.data.codebook)

    @property
    def files(self) -> list[Path]:
        """Return the files that a release reads; what lies at an address is left out."""
        named = (*self.plan.data.given.values(), self.plan.data.persons, self.plan.data.codebook)
        return [Source.of(self._table(name)).path for name in named if name is not None and "://" not in name]

    @property
    def settings(self) -> Settings:
        """Return the settings of the mechanism, those that name a file with what it holds."""
        settings, data = self.plan.mechanism.settings, self.plan.data
        default = type(settings).model_fields["unit"].default
        # A kept plan has its defaults written out: what counts is the value.
        if settings.unit == default and (data.record is not None or default == "household"):
            settings = settings.model_copy(update={"unit": self.plan.record_type})
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
        settings = self.plan.mechanism.settings
        sections = {key: getattr(settings, key) for key in type(settings).model_fields if settings.mark(key, "section")}
        written = _as_written(problem, sections)
        return problem.inside(otherwise) if written is None else written.inside(self.source)

    @property
    def from_file(self) -> bool:
        """Say whether the plan is a file, and not made of options."""
        return self.source.endswith(".toml")

    def with_settings(self, settings: Settings) -> Planned:
        """Return the plan with other settings of its mechanism."""
        mechanism = self.plan.mechanism.model_copy(update={"settings": settings})
        return replace(self, plan=self.plan.model_copy(update={"mechanism": mechanism}))

    def on(self, name: str | None, master: str | None) -> Planned:
        """Return the plan on another engine than it says; settings of a cluster stay where only its address differs."""
        if name is None and master is None:
            return self
        section = self.plan.engine or EngineSection()
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
        return replace(self, plan=self.plan.model_copy(update={"engine": engine}))

    def accounted_in(self, ledger: str | None) -> Planned:
        """Return the plan with the address that its ledger has now, from here; as it is where none is given."""
        if ledger is None:
            return self
        there = ledger if "://" in ledger else str(Path(ledger).absolute())
        release = self.plan.release.model_copy(update={"ledger": there})
        return replace(self, plan=self.plan.model_copy(update={"release": release}))

    @property
    def ledger(self) -> str | None:
        """Return the ledger: a URL as it is, a path from the folder of the plan."""
        name = self.plan.release.ledger
        return name if name is None or "://" in name else str(self.folder / name)

    @property
    def out(self) -> Path:
        """Return the path of the bundle."""
        return self.folder / local_path(self.plan.release.out)


def read_plan(path: Path, *, out: Path | None = None) -> Planned:
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
    return planned(content, source=str(path), folder=path.parent)


def planned(content: dict[str, Any], *, source: str, folder: Path) -> Planned:
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
            told = [_as_written(each, written) or each.inside("[mechanism]") for each in error.problems]
            problems = [("mechanism", problem.inside(source)) for problem in told]
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
            dict.fromkeys(problem for _, problem in sorted(problems, key=lambda told: order.get(told[0], len(order))))
        )
    return Planned(plan=plan, folder=folder, source=source)


def _with_own_sections(content: dict[str, Any]) -> dict[str, Any]:
    """Return a plan in which sections that are settings of its mechanism stand under [mechanism]."""
    given = content.get("mechanism")
    if not isinstance(given, dict) or {*content} <= {*PlanFile.model_fields}:
        return content
    try:
        model = mechanism_class(str(given.get("name", DEFAULT))).settings_model
    except StirredError:  # told with the section
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


def unprintable(planned: Planned, columns: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for every text with control letters, or bytes that are no text."""
    plan = planned.plan
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
                where=f"{planned.source} {where}",
                remedy="rename the column" if where == "columns" else "write it without them",
            )
