"""The files of a plan read and checked: what its mechanism will see, before anything is planned.

The codebook and the plan say which texts mean a missing value; then the steps of [[prepare]] are carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stirred.data.bundle import checksum
from stirred.data.codebook import Codebook
from stirred.data.columns import Columns, ParquetColumns
from stirred.data.frames import is_text
from stirred.data.microdata import Microdata, missing_column
from stirred.data.prepare import Change, prepared_codebook, prepared_data
from stirred.data.problems import DataError, PlanError, listed
from stirred.data.sources import Source
from stirred.data.steps import Count, Drop, Split, Step
from stirred.data.validate import validate
from stirred.data.whole import MISSING_LIKE, as_numbers
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Mechanism, Settings
from stirred.release.plan_file import PlanFile
from stirred.spec.problems import Problem, StirredError, placed


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanInputs:
    """The files of a plan as its mechanism sees them; ``inputs`` are the checksums of those that were given."""

    plan_file: PlanFile
    settings: Settings
    mechanism: Mechanism
    data: Microdata
    inputs: Mapping[str, str]
    codebook: Codebook | None = None


class _ProblemCollector:
    """A block whose problems are noted, and that is left at the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, StirredError):
            self._problems += error.problems
        return isinstance(error, StirredError)


def read_inputs(plan_file: PlanFile) -> PlanInputs:
    """Return the files of a plan with its mechanism; all problems are reported together."""
    settings: Settings | None = None
    mechanism: Mechanism | None = None
    codebook: Codebook | None = None
    data: Microdata | None = None
    prepared: PreparedFile | None = None
    problems: list[Problem] = []
    of_settings: list[Problem] = []
    inputs: Mapping[str, str] = {}
    with _ProblemCollector(problems):
        codebook = None if plan_file.codebook is None else Codebook.read(plan_file.codebook)
    plan_file = completed(plan_file, codebook)
    with _ProblemCollector(of_settings):
        with placed(f"{plan_file.source} [mechanism]"):
            settings = plan_file.settings
        mechanism = mechanism_of(plan_file, settings)
    problems[:0] = of_settings
    with _ProblemCollector(problems):
        inputs = input_checksums(plan_file)
        by_column = mechanism is not None and mechanism.family is not None and not plan_file.prepare
        data = _microdata(plan_file, codebook, by_column=by_column)
        problems += _misfits(plan_file, data, codebook)
        prepared = carry_out_steps(plan_file, data, codebook)
        data = prepared.data
        if mechanism is not None and mechanism.counts_tables:
            data = with_numbers(data, prepared.codebook, codes=[*mechanism.coded_columns])
        problems += _of_design(data, plan_file)
    seen: Microdata | None = None
    if data is not None:
        with _ProblemCollector(problems):
            seen = _with_missing_code(data, plan_file, mechanism)
        dropped = [] if settings is None else [*_dropped_and_named(plan_file, settings)]
        problems += dropped
        made = any(isinstance(step, (Split, Count)) for step in plan_file.prepare)
        if prepared is not None or not made:  # otherwise columns that the steps would have made are not there
            with _ProblemCollector(problems):
                data.check()
            if mechanism is not None and seen is not None and not dropped:
                with _ProblemCollector(problems):
                    mechanism.check(seen)
    if mechanism is None or settings is None or prepared is None or seen is None or problems:
        raise PlanError(dict.fromkeys(_in_plan(problem, plan_file) for problem in problems))
    if codebook is not None:
        # The file as it was: before steps make it coarser, and missing values become a code, which no codebook lists.
        _check_codebook(codebook, prepared.given)
        codebook = prepared.codebook
    return PlanInputs(
        plan_file=plan_file, settings=settings, mechanism=mechanism, data=seen, inputs=inputs, codebook=codebook
    )


def _microdata(plan_file: PlanFile, codebook: Codebook | None, *, by_column: bool) -> Microdata:
    """Return the records as the plan and the codebook declare them; no step is carried out yet."""
    section = plan_file.data
    # What the codebook declares as an identifier is one, whatever the plan forgot.
    hid = section.hid or (codebook.hid if codebook is not None and plan_file.persons is not None else None)
    declared = () if codebook is None else codebook.identifiers
    data = Microdata.read(
        plan_file.records,
        plan_file.persons,
        hid=hid,
        checked=False,
        by_column=by_column,
        dialect=section.dialect(codebook),
    )
    if section.counts is not None:
        data = data.counted_by(section.count)
    named = [*section.id, *(name for name in declared if name in _columns(data) and name != hid)]
    data = replace(
        data,
        id=tuple(dict.fromkeys(named)),
        stage="sample" if section.sample is not None and "stage" not in section.model_fields_set else section.stage,
        record=plan_file.record_type,
        design={} if plan_file.design is None else plan_file.design.model_dump(),
        post_imputation=section.post_imputation,
    )
    return _with_missing_texts(data, plan_file, codebook)


def _columns(data: Microdata) -> list[str]:
    return [*data.households.columns, *(data.persons.columns if data.persons is not None else ())]


def _misfits(plan_file: PlanFile, data: Microdata, codebook: Codebook | None) -> Iterator[Problem]:
    """Yield what the codebook or the plan declares and the file cannot have."""
    section = plan_file.data
    variables = () if codebook is None or section.counts is None else codebook.variables
    if section.count in [variable.name for variable in variables]:
        what = f'"{section.count}" is the count column of the table, and not a variable'
        yield Problem(what=what, where=str(plan_file.codebook), remedy="remove it from the codebook")
    for name in section.missing if isinstance(section.missing, Mapping) else ():
        if name not in (there := _columns(data)):
            yield missing_column(name, there, where=f"{plan_file.source} [data] missing", role="missing")


def _dropped_and_named(plan_file: PlanFile, settings: Settings) -> Iterator[Problem]:
    """Yield columns that a step drops and the mechanism names."""
    lists = [value for value in settings.dumped().values() if isinstance(value, list)]
    named = {each for value in lists for each in value if isinstance(each, str)}
    for number, step in enumerate(plan_file.prepare, start=1):
        for name in step.names if isinstance(step, Drop) else ():
            if name in named:
                where = f"{plan_file.source} [[prepare]] entry {number}"
                remedy = "leave the step out, or name another column"
                yield Problem(what=f"this step drops '{name}', which [mechanism] names", where=where, remedy=remedy)


def _of_design(data: Microdata, plan_file: PlanFile) -> Iterator[Problem]:
    """Yield the columns of a design that the file does not have."""
    design = plan_file.design
    for name in () if design is None else design.columns:
        if name not in data.households.columns:
            remedy = f"there are {listed(data.households.columns)}"
            yield Problem(what=f"no column '{name}'", where=f"{plan_file.source} [design]", remedy=remedy)


def _in_plan(problem: Problem, plan_file: PlanFile) -> Problem:
    """Return a problem of what the plan says about the file with its place in the plan."""
    if problem.where in ("stage", "post_imputation"):
        return problem.inside(f"{plan_file.source} [data]")
    return plan_file.place(problem)


def input_checksums(plan_file: PlanFile) -> dict[str, str]:
    """Return the checksums of the confidential files that are there."""
    found = {}
    (main,) = plan_file.data.given
    for role, path in ((main, plan_file.records), ("persons", plan_file.persons)):
        place = None if path is None else Source.of(path).path
        # A pipe is refused when it is read; opening it here would wait for somebody to write.
        if place is not None and (place.is_file() or place.is_dir()):
            found[role] = checksum(place)
    return found


def mechanism_of(plan_file: PlanFile, settings: Settings | None = None) -> Mechanism:
    """Return the mechanism a plan asks for; ``settings`` are those of the plan, with the files that they name."""
    name = plan_file.mechanism.name
    with plan_file.places(f"{plan_file.source} [mechanism]"):
        # Of most mechanisms tables are counted from what they release.
        counted = registry.mechanism_class(name).counts_tables
        tables = {} if counted else {"tables": [table.columns for table in plan_file.tables]}
        return registry.build(name, settings or plan_file.settings, **tables)


def completed(plan_file: PlanFile, codebook: Codebook | None) -> PlanFile:
    """Return the plan with what its codebook declares for settings: manifest and ledger keep what was declared."""
    if codebook is None:
        return plan_file
    section = plan_file.mechanism
    complete = registry.mechanism_class(section.name).completed
    return plan_file.with_settings(complete(section.settings, codebook, missing_as=plan_file.data.missing_as))


def _check_codebook(codebook: Codebook, data: Microdata) -> None:
    """Check the files against the codebook."""
    persons = data.persons
    frame = persons.scan if isinstance(persons, ParquetColumns) else persons
    homes: Columns | pl.LazyFrame = data.households
    if isinstance(homes, ParquetColumns):
        # Texts are checked as they are released: without the point of a whole number.
        homes = homes.select(homes.columns) if pl.String in homes.schema.values() else homes.scan
    assert isinstance(homes, (pl.DataFrame, pl.LazyFrame))
    assert frame is None or isinstance(frame, (pl.DataFrame, pl.LazyFrame))
    problems = validate(
        homes,
        frame,
        codebook,
        household_source=data.household_source,
        person_source=data.person_source,
    )
    if problems:
        raise DataError(problems)


# ---- missing values ----------------------------------------------------------------------------------------


def _with_missing_texts(data: Microdata, plan_file: PlanFile, codebook: Codebook | None) -> Microdata:
    """Return the data in which every text that the plan or the codebook declares as missing is missing."""
    data = data.with_missing(plan_file.data.missing)
    if codebook is None:
        return data
    codes = {
        variable.name: [text for text in MISSING_LIKE if text in variable.codes] for variable in codebook.variables
    }
    return replace(data.with_missing(codebook.missing_texts("persons")), not_missing=codes)


def _with_missing_code(data: Microdata, plan_file: PlanFile, mechanism: Mechanism | None) -> Microdata:
    """Return the data in which missing values of the mechanism's codes are a code, where the plan says so."""
    if plan_file.data.missing_as != "code" or mechanism is None:
        return data
    return data.with_missing_code([*mechanism.coded_columns])


# ---- steps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedFile:
    """A file as it was given and as the mechanism sees it, with what is declared of it afterwards.

    ``given`` is split into households and persons where the plan says so: a codebook declares these.
    """

    given: Microdata
    data: Microdata
    codebook: Codebook | None
    changes: Sequence[Change] = ()


def carry_out_steps(plan_file: PlanFile, data: Microdata, codebook: Codebook | None) -> PreparedFile:
    """Carry all steps out; what is wrong with any of them is said with its place in the plan."""
    steps = _with_files(plan_file, codebook)
    changes: list[Change] = []
    try:
        given = prepared_data(data, [step for step in steps[:1] if isinstance(step, Split)])
        after = prepared_data(data, steps, seen=changes)
    except StirredError as error:
        raise PlanError(problem.inside(plan_file.source) for problem in error.problems) from None
    declared = None if codebook is None else prepared_codebook(codebook, steps)
    return PreparedFile(given=given, data=after, codebook=declared, changes=changes)


def with_numbers(data: Microdata, codebook: Codebook | None, *, codes: Sequence[str]) -> Microdata:
    """Return records of text files with their numbers as numbers: the same values, typed for its readers.

    What the codebook declares as a code stays text, and so do ``codes``, the columns that a mechanism exchanges or
    draws, unless it declares them as integers. The values of all others are published as they are, so that the
    type, which depends on them alone, adds nothing.
    """
    declared = {} if codebook is None else {each.name: each.type for each in codebook.variables}
    flat = data.household_source  # where a file was split, persons come from it too
    tables = {"households": (data.households, flat), "persons": (data.persons, data.person_source)}
    frames = {
        name: frame
        for name, (frame, source) in tables.items()
        if isinstance(frame, pl.DataFrame) and is_text(Source.of(source))
    }
    typed: dict[str, list[pl.Series]] = {}
    for frame in frames.values():
        for name in (each for each in frame.columns if each not in data.identifiers):
            kind = declared.get(name, "text")
            if kind == "integer" or (kind == "text" and name not in codes):
                typed.setdefault(name, []).append(as_numbers(frame[name]))
    # A column that persons repeat from their household has one type.
    alike = {name: own[0].dtype for name, own in typed.items() if len({each.dtype for each in own}) == 1}
    changed = {
        name: frame.with_columns(pl.col(each).cast(alike[each]) for each in frame.columns if each in alike)
        for name, frame in frames.items()
    }
    return replace(data, **changed)  # type: ignore[arg-type]


def rehearsed(plan_file: PlanFile, file: Path) -> PreparedFile:
    """Carry the steps of a plan out on a file of its own, and check it against the codebook; nothing is written."""
    codebook = None if plan_file.codebook is None else Codebook.read(plan_file.codebook)
    section = plan_file.data
    data = Microdata.read(file, plan_file.persons, hid=section.hid, checked=False, dialect=section.dialect(codebook))
    data = replace(data, record=plan_file.record_type)
    if section.counts is not None:
        data = data.counted_by(section.count)
    return carry_out_steps(plan_file, _with_missing_texts(data, plan_file, codebook), codebook)


def _with_files(plan_file: PlanFile, codebook: Codebook | None) -> list[Step]:
    """Return the steps with the hierarchies that they name; all problems at once."""
    steps: list[Step] = []
    problems: list[Problem] = []
    for number, step in enumerate(plan_file.prepare, start=1):
        try:
            steps.append(step.with_files(codebook, plan_file.folder))
        except StirredError as error:
            problems += [problem.inside(f"{plan_file.source} [[prepare]] entry {number}") for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return steps
