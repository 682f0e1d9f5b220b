"""A plan whose files were read and checked: everything a run needs, before anything random happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Final

import polars as pl

from stirred.data import uniqueness
from stirred.data.bundle import checksum
from stirred.data.codebook import Codebook
from stirred.data.columns import Columns, ParquetColumns
from stirred.data.csv_text import formula_doubts, unwritable
from stirred.data.microdata import Microdata
from stirred.data.place import check_place, sweep
from stirred.data.problems import DataError, PlanError, bad_plan, listed, taken_names
from stirred.data.sources import Source
from stirred.data.steps import Count, Drop, Split, words_of
from stirred.data.table_labels import ENDING, Labels, tells_more
from stirred.data.uniqueness import MOST_RECORDS, Uniqueness, counted, exact_tables, exposed_in_words
from stirred.data.validate import validate
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, Engine
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Mechanism, Plan, Settings, Table, exposed_doubts, plan_doubts, plan_exposure
from stirred.release.declared_missing import as_declared, undeclared_columns, with_missing_as_declared
from stirred.release.engine import engine_of
from stirred.release.ledger import Ledger
from stirred.release.ledger.account import not_of
from stirred.release.ledger.entry import numbers
from stirred.release.ledger_doubts import earlier_doubts, earlier_entry, ledger_doubts
from stirred.release.plan_file import Planned, unprintable
from stirred.release.preparation import preparation_of, with_numbers
from stirred.release.tables import wanted_tables, with_declared_codes
from stirred.spec.accepted import MORE_RUNS, with_accepted
from stirred.spec.domain import file_identity
from stirred.spec.doubts import Doubt, refuse_doubts
from stirred.spec.given_numbers import probability
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, StirredError, placed
from stirred.spec.pull_back import pull_back
from stirred.spec.specification import Specification


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A plan whose files were read and checked; nothing random has happened."""

    planned: Planned
    settings: Settings
    data: Microdata
    mechanism: Mechanism
    plan: Plan
    tables: Sequence[Table]
    inputs: Mapping[str, str]
    codebook: Codebook | None = None
    engine: Engine = field(default_factory=LocalEngine)
    ledger: Ledger | None = None
    # For each file, the entries of the ledger that count and were released from another one.
    other_files: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # The one list of doubts, and those of them that a person accepted by name.
    doubts: Sequence[Doubt] = ()
    accepted: Sequence[Doubt] = ()
    # How many records are unique on what is published exactly; None where they are not counted.
    exposure: Uniqueness | None = None

    @property
    def labels(self) -> Labels:
        """Return the labels of codes, by column: those of the codebook, or those that the file itself keeps."""
        return _labels(self.codebook, self.data)

    @property
    def exposed_in_words(self) -> str:
        """Say how many records are unique on what is published exactly; empty where no table of them is."""
        if not self.plan.publishes_fixed or not any(exact_tables(self.plan.specification, self.data)):
            return ""  # for files of any size: how many records there are may be protected
        if not counted(self.data):
            return f"not counted for more than {MOST_RECORDS:,} records; `stirred risk` counts it"
        return "" if self.exposure is None else exposed_in_words(self.exposure)

    def refuse(self) -> None:
        """Raise every doubt about protection that was not accepted, and every accepted name that is none."""
        refuse_doubts(self.doubts, accept=self.planned.plan.release.accept, plan_file=self.planned.from_file)

    def check_unchanged(self) -> None:
        """Refuse files that are not those of the plan any more, where they are read again and again."""
        by_column = any(isinstance(table, ParquetColumns) for table in (self.data.households, self.data.persons))
        if not by_column and self.engine.name == LOCAL:
            return
        now = input_checksums(self.planned)
        if changed := [role for role, was in self.inputs.items() if now.get(role) != was]:
            raise bad_plan(
                f"the file of {' and '.join(changed)} was changed since it was planned",
                where=f"{self.planned.source} [data]",
                remedy="keep the files as they are while a release is made; put them back, or plan again",
            )


def _labels(codebook: Codebook | None, data: Microdata) -> Labels:
    declared = {} if codebook is None else {v.name: codebook.labels(v.name) for v in codebook.variables}
    return {**data.labels, **{name: own for name, own in declared.items() if own}}


def prepare(planned: Planned, *, before: int | None = None, releasing: bool = False) -> Prepared:
    """Read and check everything, and return what would happen.

    ``before`` is the entry of a release that was reserved already: the ledger is asked as it stood then. For a plan
    that is only shown everything is looked at; ``releasing``, what refuses at once refuses before that.
    """
    sweep(planned.out.absolute().parent)  # a run that was killed in its rehearsal left a draw that no ledger counts
    if releasing:
        check_place(planned.out, inputs=planned.files)
    engine = engine_of(planned)  # before files are read: it may take minutes
    planned, settings, mechanism, data, inputs, codebook = _read(planned)
    with placed(planned.source):
        mechanism = mechanism.on(engine)
    if texts := [*unprintable(planned, [*data.households.columns, *data.person_variables])]:
        raise PlanError(texts)
    ledger = None if planned.ledger is None else Ledger.open(planned.ledger)
    called = planned.plan.data.name or ("" if ledger is None else ledger.dataset)
    data = replace(data, called=called)
    if codebook is not None:
        mechanism = mechanism.with_codebook(codebook, missing_as=planned.plan.data.missing_as)
    known = file_identity(
        ledger="" if ledger is None else ledger.id, files=inputs.values(), name=planned.plan.data.name or ""
    )
    promised = partial(_promised, planned=planned, codebook=codebook, identity=known)
    of_ledger = partial(
        ledger_doubts,
        ledger,
        mechanism=planned.plan.mechanism.name,
        parameters=planned.plan.model_dump(mode="json", include={"prepare", "mechanism", "tables"}),
        inputs=inputs,
        before=before,
    )
    if releasing and ledger is not None and any(one.is_spent and one.inputs == inputs for one in ledger.entries()):
        # A further run of a plan refuses before the search for doubts, which takes longest.
        with planned.places():
            first = promised(mechanism.plan(data, doubts=False)).specification
        again = [doubt for doubt in of_ledger(specification=first) if doubt.kind == MORE_RUNS]
        if not {doubt.name for doubt in again} <= {*planned.plan.release.accept}:
            refuse_doubts(again, plan_file=planned.from_file)
    with planned.places():
        plan = mechanism.plan(data)
        entered = [] if ledger is None else [t.release for t in plan.includes if earlier_entry(ledger, t) is not None]
        plan = promised(plan, identity=known | file_identity(releases=entered))
    _check_counted(planned, plan, data)
    requests = [(table.name, table.columns) for table in planned.plan.tables]
    released, people = plan.releases["households"], plan.releases.get("persons", ())
    with placed(planned.source):
        tables = wanted_tables(requests, households=released, persons=people)
    if codebook is not None:
        tables = with_declared_codes(tables, codebook, data.types)
    in_csv = [*_in_csv(planned, data, released, tables)]
    if problems := [*unwritable(in_csv)]:
        raise DataError(problem.inside(f"{planned.source} [data]") for problem in problems)
    others = {} if ledger is None else ledger.other_files(inputs)
    _check_names([*released, *people], tables)
    if ledger is not None:
        _check_accountable(planned, ledger, others)
    alone = plan_exposure(plan)
    most, set_by = _most_exposed(planned, ledger)
    exposed = tuple(exposed_doubts(alone, plan, most=most, set_by=set_by))
    plan = plan.judged(exposed)  # the release judges by the same rule
    doubts = (
        *plan_doubts(plan),
        *_of_other_files(ledger, others),
        *of_ledger(specification=plan.specification),
        *earlier_doubts(ledger, (*plan.includes, *plan.given)),
        *_of_draft(mechanism, codebook),
        *formula_doubts([*in_csv, *_labels_in_csv(tables, _labels(codebook, data))]),
    )
    accept = planned.plan.release.accept
    accepted = tuple(doubt for doubt in doubts if doubt.refuses and not doubt.final and doubt.name in accept)
    names = tuple(doubt.name for doubt in accepted)
    plan = plan.promising(with_accepted(plan.specification, accepted), accepted=names)
    return Prepared(
        planned=planned,
        settings=settings,
        data=data,
        mechanism=mechanism,
        plan=plan,
        tables=tables,
        inputs=inputs,
        codebook=codebook,
        engine=engine,
        ledger=ledger,
        other_files=others,
        doubts=doubts,
        accepted=accepted,
        exposure=alone,
    )


def _promised(plan: Plan, *, planned: Planned, codebook: Codebook | None, identity: frozenset[str]) -> Plan:
    """Return a plan whose promise knows the declared geography and the file, as it was before its preparation."""

    def stated(own: Specification) -> Specification:
        before = pull_back(own, prepared=words_of(planned.plan.prepare)).specification
        kinds = before.domain.record_types
        if kinds and any(isinstance(step, Count) for step in planned.plan.prepare):  # it looks at persons
            kinds = tuple(dict.fromkeys((*kinds, "person")))
        return before.with_flavor(domain=replace(before.domain, identity=identity, record_types=kinds))

    plan = plan if codebook is None else _with_geography(plan, codebook)
    return plan.restated(stated)


def _in_csv(planned: Planned, data: Microdata, released: Sequence[str], tables: Sequence[Table]) -> Iterator[pl.Series]:
    """Yield the columns that would stand in a CSV file: those of tables, and all if records are written as CSV."""
    everything = planned.plan.release.format == "csv"
    wanted = {name for table in tables for name in table.variables}
    for frame, names in ((data.households, released), (data.persons, data.person_variables)):
        for name in names if frame is not None else ():
            if everything or name in wanted:
                assert frame is not None
                yield frame[name]


def _labels_in_csv(tables: Sequence[Table], labels: Labels) -> Iterator[pl.Series]:
    """Yield the labels that would stand beside the codes of tables, which are written as CSV."""
    for name in dict.fromkeys(name for table in tables for name in table.variables):
        if tells_more(own := labels.get(name, {})):
            yield pl.Series(f"{name}{ENDING}", [*own.values()], dtype=pl.String)


def _check_accountable(planned: Planned, ledger: Ledger, others: Mapping[str, Sequence[int]]) -> None:
    """Refuse the file of another dataset: a ledger never forgets."""
    if planned.plan.data.name != ledger.dataset and others:
        raise PlanError(not_of(others, ledger.dataset, where=f"{planned.source} [data]"))


def _most_exposed(planned: Planned, ledger: Ledger | None) -> tuple[Fraction, str]:
    """Return which share of records may be unique on what is published unchanged, and who says so.

    A policy says how large it may be. A plan may be stricter, and never laxer: beyond it a person accepts.
    """
    policy = None if ledger is None else ledger.policy
    stated = None if policy is None else policy.exposed_share
    most, set_by = (uniqueness.MOST_EXPOSED, "the default") if stated is None else (stated, "the policy of the ledger")
    own = planned.plan.release.exposed_share
    if own is not None:
        strict = probability(own, where="exposed_share")
        if strict > most:
            raise bad_plan(
                f"{percent(strict)} is more than {percent(most, digits=3)}, which {set_by} allows",
                where=f"{planned.source} [release] exposed_share",
                remedy="write a smaller share, or leave it out; if the plan then shows the doubt, accept = ['exposed']",
            )
        if strict < most:
            most, set_by = strict, "the plan"
    return most, set_by


def _of_other_files(ledger: Ledger | None, others: Mapping[str, Sequence[int]]) -> Iterator[Doubt]:
    """Yield a doubt where the ledger accounts for other files than these; the plan named the dataset all the same."""
    for role, entries in others.items():
        assert ledger is not None
        yield Doubt(
            kind="other-file",
            about=role,
            what=f"the file of {role} is not that of entry {numbers(entries)}, released before from '{ledger.dataset}'",
            remedy="an edited file is the same dataset, another file needs a ledger of its own",
            refuses=False,
        )


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


def _with_geography(plan: Plan, codebook: Codebook) -> Plan:
    """Put the declared hierarchies into the specification, so that its invariants can be compared with others."""
    return plan.restated(
        lambda own: own.with_flavor(multiverse=replace(own.multiverse, hierarchies=codebook.hierarchies))
    )


def _check_counted(planned: Planned, plan: Plan, data: Microdata) -> None:
    """Refuse the number of persons where the unit is not the household: one person would change two records."""
    unit = plan.specification.input_premetric.unit
    for number, step in enumerate(planned.plan.prepare, start=1):
        if isinstance(step, Count) and (unit != data.record or unit == "person"):
            raise bad_plan(
                f"the promise is about each {unit}, and the number of persons is part of the household: one {unit} "
                "could change more than one record",
                where=f"{planned.source} [[prepare]] entry {number}",
                remedy="let the unit be the household, or leave the step out",
            )


# Names of our own columns in what is published, and in what is said of a table: its errors, and corrected counts.
OURS: Final = ("table", "count", "true", "released", "error", "cell")
OF_TABLES: Final = (
    *("mean", "variance", "bias"),
    *("estimate", "standard_error", "low", "high", "kept", "projected", "published", "squared_error"),
)


def _check_names(names: Sequence[str], tables: Sequence[Table]) -> None:
    """Refuse columns that would stand beside one of ours of the same name, before anything is spent."""
    counted = {name for table in tables for name in table.variables}
    taken = [name for name in names if name in OURS or name.startswith("stratum_")]
    taken += [name for name in names if name in counted and name in OF_TABLES]
    if taken:
        raise bad_plan(
            taken_names(taken, by="published tables"),
            where="columns",
            remedy="rename the column in the file, or drop it: step = 'drop' under [[prepare]]",
        )


def _read(planned: Planned) -> tuple[Planned, Settings, Mechanism, Microdata, dict[str, str], Codebook | None]:
    """Return plan, mechanism, data and checksums of the files; all problems are reported together."""
    settings, mechanism, data, codebook, given, preparation = None, None, None, None, None, None
    inputs: dict[str, str] = {}
    problems: list[Problem] = []
    try:
        codebook = None if planned.codebook is None else Codebook.read(planned.codebook)
    except StirredError as error:
        problems += error.problems
    planned = completed(planned, codebook)
    try:
        with placed(f"{planned.source} [mechanism]"):
            settings = planned.settings
        mechanism = mechanism_of(planned, settings)
    except StirredError as error:
        problems[:0] = error.problems
    try:
        section = planned.plan.data
        inputs = input_checksums(planned)
        # What the codebook declares as an identifier is one, whatever the plan forgot.
        hid = section.hid or (codebook.hid if codebook is not None and planned.persons is not None else None)
        declared = () if codebook is None else codebook.identifiers
        by_column = mechanism is not None and mechanism.family is not None and not planned.plan.prepare
        data = Microdata.read(
            planned.records,
            planned.persons,
            hid=hid,
            checked=False,
            by_column=by_column,
            dialect=section.dialect(codebook),
        )
        if section.counts is not None:
            data = data.counted_by(section.count)
            if codebook is not None and section.count in [each.name for each in codebook.variables]:
                what = f'"{section.count}" is the count column of the table, and not a variable'
                problems.append(Problem(what=what, where=str(planned.codebook), remedy="remove it from the codebook"))
        present = {*data.households.columns, *(data.persons.columns if data.persons is not None else ())}
        named = [*section.id, *(name for name in declared if name in present and name != hid)]
        data = replace(
            data,
            id=tuple(dict.fromkeys(named)),
            stage="sample" if section.sample is not None and "stage" not in section.model_fields_set else section.stage,
            record=planned.plan.record_type,
            design={} if planned.plan.design is None else planned.plan.design.model_dump(),
            post_imputation=section.post_imputation,
        )
        data = as_declared(data, planned, codebook)
        problems += undeclared_columns(data, planned)
        preparation = preparation_of(planned, data, codebook)
        given, data = preparation.given, preparation.data
        if mechanism is not None and mechanism.counts_tables:
            data = with_numbers(data, preparation.codebook, codes=[*mechanism.coded_columns])
        problems += _of_design(data, planned)
    except StirredError as error:
        problems += error.problems
    swapped = data
    if data is not None:
        try:
            swapped = with_missing_as_declared(data, planned, mechanism)
        except StirredError as error:
            swapped = None
            problems += error.problems
        made = any(isinstance(step, (Split, Count)) for step in planned.plan.prepare)
        unmade = preparation is None and made  # columns that the steps would have made are not there
        checks: list[Callable[[], None]] = [] if unmade else [data.check]
        dropped = [] if settings is None else [*_dropped_and_named(planned, settings)]
        problems += dropped
        if mechanism is not None and swapped is not None and not dropped and not unmade:
            checks.append(partial(mechanism.check, swapped))
        for check in checks:
            try:
                check()
            except StirredError as error:
                problems += error.problems
    if mechanism is None or settings is None or data is None or swapped is None or problems:
        raise PlanError(dict.fromkeys(_in_plan(problem, planned) for problem in problems))
    if codebook is not None and given is not None and preparation is not None:
        # The file as it was: before steps make it coarser, and missing values become a code, which no codebook lists.
        _check_codebook(codebook, given)
        codebook = preparation.codebook
    return planned, settings, mechanism, swapped, inputs, codebook


def _dropped_and_named(planned: Planned, settings: Settings) -> Iterator[Problem]:
    """Yield columns that a step drops and the mechanism names."""
    lists = [value for value in settings.dumped().values() if isinstance(value, list)]
    named = {each for value in lists for each in value if isinstance(each, str)}
    for number, step in enumerate(planned.plan.prepare, start=1):
        for name in step.names if isinstance(step, Drop) else ():
            if name in named:
                where = f"{planned.source} [[prepare]] entry {number}"
                remedy = "leave the step out, or name another column"
                yield Problem(what=f"this step drops '{name}', which [mechanism] names", where=where, remedy=remedy)


def _of_design(data: Microdata, planned: Planned) -> Iterator[Problem]:
    """Yield the columns of a design that the file does not have."""
    design = planned.plan.design
    for name in () if design is None else design.columns:
        if name not in data.households.columns:
            remedy = f"there are {listed(data.households.columns)}"
            yield Problem(what=f"no column '{name}'", where=f"{planned.source} [design]", remedy=remedy)


def _in_plan(problem: Problem, planned: Planned) -> Problem:
    """Return a problem of what the plan says about the file with its place in the plan."""
    if problem.where in ("stage", "post_imputation"):
        return problem.inside(f"{planned.source} [data]")
    return planned.place(problem)


def input_checksums(planned: Planned) -> dict[str, str]:
    """Return the checksums of the confidential files that are there."""
    found = {}
    (main,) = planned.plan.data.given
    for role, path in ((main, planned.records), ("persons", planned.persons)):
        place = None if path is None else Source.of(path).path
        # A pipe is refused when it is read; opening it here would wait for somebody to write.
        if place is not None and (place.is_file() or place.is_dir()):
            found[role] = checksum(place)
    return found


def mechanism_of(planned: Planned, settings: Settings | None = None) -> Mechanism:
    """Return the mechanism a plan asks for; ``settings`` are those of the plan, with the files that they name."""
    name = planned.plan.mechanism.name
    with planned.places(f"{planned.source} [mechanism]"):
        # Of most mechanisms tables are counted from what they release.
        counted = registry.mechanism_class(name).counts_tables
        tables = {} if counted else {"tables": [table.columns for table in planned.plan.tables]}
        return registry.build(name, settings or planned.settings, **tables)


def completed(planned: Planned, codebook: Codebook | None) -> Planned:
    """Return the plan with what its codebook declares for settings: manifest and ledger keep what was declared."""
    if codebook is None:
        return planned
    section = planned.plan.mechanism
    complete = registry.mechanism_class(section.name).completed
    return planned.with_settings(complete(section.settings, codebook, missing_as=planned.plan.data.missing_as))


def _of_draft(mechanism: Mechanism, codebook: Codebook | None) -> Iterator[Doubt]:
    """Yield a doubt where values that a mechanism needs declared are those of a draft, read off the file."""
    if codebook is not None and codebook.draft and (learned := mechanism.learned(codebook)):
        yield Doubt(
            kind="draft",
            about="+".join(learned),
            what=f"the values of {listed(learned)} are those of a codebook that is still a draft, read off the "
            "confidential file: which values occur is confidential, and the promise needs every value that may occur, "
            "declared",
            remedy="complete the lists, and remove `draft = true` from the codebook",
        )
