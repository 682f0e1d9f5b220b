"""A plan whose files were read and checked: everything a run needs, before anything random happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

import polars as pl

from stirred.data import uniqueness
from stirred.data.codebook import Codebook
from stirred.data.columns import ParquetColumns
from stirred.data.csv_text import formula_doubts, unwritable
from stirred.data.microdata import Microdata
from stirred.data.place import check_place, sweep
from stirred.data.problems import DataError, PlanError, bad_plan, listed, taken_names
from stirred.data.steps import Count, words_of
from stirred.data.table_labels import ENDING, Labels, tells_more
from stirred.data.uniqueness import MOST_RECORDS, Uniqueness, counted, exact_tables, exposed_in_words
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, Engine
from stirred.mechanisms.protocol import Mechanism, Plan, PublicFile, Table, judged_by_policy, plan_doubts, plan_exposure
from stirred.release.engine import engine_of
from stirred.release.ledger import Ledger
from stirred.release.ledger.account import not_of
from stirred.release.ledger.row import numbers
from stirred.release.plan_file import PlanFile, unprintable
from stirred.release.reading import PlanInputs, input_checksums, read_inputs
from stirred.release.reservation import earlier_doubts, earlier_entry, ledger_doubts
from stirred.release.tables import wanted_tables, with_declared_codes
from stirred.spec.convert import pull_back
from stirred.spec.domain import file_identity
from stirred.spec.doubts import MORE_RUNS, Doubt, refuse_doubts, with_accepted
from stirred.spec.given_numbers import probability
from stirred.spec.number_text import percent
from stirred.spec.problems import placed
from stirred.spec.specification import Specification


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared(PlanInputs):
    """A plan whose files were read and checked; nothing random has happened."""

    plan: Plan
    tables: Sequence[Table]
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

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Return the plan as manifest and ledger keep it."""
        return self.plan_file.recorded()

    @cached_property
    def files(self) -> Sequence[PublicFile]:
        """Return the public files that the mechanism will make."""
        return self.plan.files(self.mechanism, self.data)

    @property
    def exposed_in_words(self) -> str:
        """Say how many records are unique on what is published exactly; empty where no table of them is."""
        if not self.plan.publishes_fixed or not any(exact_tables(self.plan.specification, self.data)):
            return ""  # for files of any size: how many records there are may be protected
        if not counted(self.data):
            return f"not counted for more than {MOST_RECORDS:,} records; `stirred risk` counts it"
        return "" if self.exposure is None else exposed_in_words(self.exposure)

    def refuse(self) -> None:
        """Raise all doubts that were not accepted, and every accepted name that matches no doubt."""
        refuse_doubts(self.doubts, accept=self.plan_file.release.accept, plan_file=self.plan_file.from_file)

    def check_unchanged(self) -> None:
        """Refuse files that are not those of the plan any more, where they are read again and again."""
        by_column = any(isinstance(table, ParquetColumns) for table in (self.data.households, self.data.persons))
        if not by_column and self.engine.name == LOCAL:
            return
        now = input_checksums(self.plan_file)
        if changed := [role for role, was in self.inputs.items() if now.get(role) != was]:
            raise bad_plan(
                f"the file of {' and '.join(changed)} was changed since it was planned",
                where=f"{self.plan_file.source} [data]",
                remedy="keep the files as they are while a release is made; put them back, or plan again",
            )


def _labels(codebook: Codebook | None, data: Microdata) -> Labels:
    declared = {} if codebook is None else {v.name: codebook.labels(v.name) for v in codebook.variables}
    return {**data.labels, **{name: own for name, own in declared.items() if own}}


def prepare(plan_file: PlanFile, *, before: int | None = None, releasing: bool = False) -> Prepared:
    """Read and check everything, and return what would happen.

    ``before`` is the entry of a release that was reserved already: the ledger is asked as it stood then. For a plan
    that is only shown everything is looked at; ``releasing``, what refuses at once refuses before that.
    """
    sweep(plan_file.out.absolute().parent)  # a run that was killed in its rehearsal left a draw that no ledger counts
    if releasing:
        check_place(plan_file.out, inputs=plan_file.files)
    engine = engine_of(plan_file)  # before files are read: it may take minutes
    read = _on_engine(read_inputs(plan_file), engine)
    plan_file, mechanism, inputs = read.plan_file, read.mechanism, read.inputs
    if texts := [*unprintable(plan_file, [*read.data.households.columns, *read.data.person_variables])]:
        raise PlanError(texts)
    ledger = None if plan_file.ledger is None else Ledger.open(plan_file.ledger)
    data = replace(read.data, called=plan_file.data.name or ("" if ledger is None else ledger.dataset))
    known = file_identity(
        ledger="" if ledger is None else ledger.id, files=inputs.values(), name=plan_file.data.name or ""
    )
    of_ledger = partial(
        ledger_doubts,
        ledger,
        mechanism=plan_file.mechanism.name,
        parameters=plan_file.recorded(),
        inputs=inputs,
        before=before,
    )
    if releasing and ledger is not None and any(one.is_spent and one.inputs == inputs for one in ledger.entries()):
        # A further run of a plan refuses before the search for doubts, which takes longest.
        with plan_file.places():
            first = _promised(mechanism.plan(data, doubts=False), read, known).specification
        again = [doubt for doubt in of_ledger(specification=first) if doubt.kind == MORE_RUNS]
        if not {doubt.name for doubt in again} <= {*plan_file.release.accept}:
            refuse_doubts(again, plan_file=plan_file.from_file)
    with plan_file.places():
        plan = mechanism.plan(data)
        entered = [] if ledger is None else [t.release for t in plan.includes if earlier_entry(ledger, t) is not None]
        plan = _promised(plan, read, known | file_identity(releases=entered))
    _check_counted(plan_file, plan, data)
    released, people = plan.releases["households"], plan.releases.get("persons", ())
    requests = [(table.name, table.columns) for table in plan_file.tables]
    with placed(plan_file.source):
        tables = wanted_tables(requests, households=released, persons=people)
    if read.codebook is not None:
        tables = with_declared_codes(tables, read.codebook, data.types)
    in_csv = [*_in_csv(plan_file, data, released, tables)]
    if problems := [*unwritable(in_csv)]:
        raise DataError(problem.inside(f"{plan_file.source} [data]") for problem in problems)
    others = {} if ledger is None else ledger.other_files(inputs)
    _check_names([*released, *people], tables)
    if ledger is not None:
        _check_accountable(plan_file, ledger, others)
    alone = plan_exposure(plan)
    most, set_by = _most_exposed(plan_file, ledger)
    plan = judged_by_policy(plan, most=most, set_by=set_by)  # the release judges by this rule
    doubts = (
        *plan_doubts(plan),
        *_of_other_files(ledger, others),
        *of_ledger(specification=plan.specification),
        *earlier_doubts(ledger, (*plan.includes, *plan.given)),
        *_of_draft(mechanism, read.codebook),
        *formula_doubts([*in_csv, *_labels_in_csv(tables, _labels(read.codebook, data))]),
    )
    accept = plan_file.release.accept
    accepted = tuple(doubt for doubt in doubts if doubt.refuses and not doubt.final and doubt.name in accept)
    names = tuple(doubt.name for doubt in accepted)
    return Prepared(
        **{**vars(read), "data": data},
        plan=plan.promising(with_accepted(plan.specification, accepted), accepted=names),
        tables=tables,
        engine=engine,
        ledger=ledger,
        other_files=others,
        doubts=doubts,
        accepted=accepted,
        exposure=alone,
    )


def _on_engine(read: PlanInputs, engine: Engine) -> PlanInputs:
    """Return the files with their mechanism on the engine of the plan, and with what the codebook declares."""
    with placed(read.plan_file.source):
        mechanism = read.mechanism.on(engine)
    if read.codebook is not None:
        mechanism = mechanism.with_codebook(read.codebook, missing_as=read.plan_file.data.missing_as)
    return replace(read, mechanism=mechanism)


def _promised(plan: Plan, read: PlanInputs, identity: frozenset[str]) -> Plan:
    """Return a plan whose promise knows the declared geography and the file, as it was before its preparation."""
    steps = read.plan_file.prepare

    def stated(own: Specification) -> Specification:
        if read.codebook is not None:  # so that its invariants can be compared with others
            own = own.with_flavor(multiverse=replace(own.multiverse, hierarchies=read.codebook.hierarchies))
        before = pull_back(own, prepared=words_of(steps)).specification
        kinds = before.domain.record_types
        if kinds and any(isinstance(step, Count) for step in steps):  # it looks at persons
            kinds = tuple(dict.fromkeys((*kinds, "person")))
        return before.with_flavor(domain=replace(before.domain, identity=identity, record_types=kinds))

    return plan.restated(stated)


def _in_csv(
    plan_file: PlanFile, data: Microdata, released: Sequence[str], tables: Sequence[Table]
) -> Iterator[pl.Series]:
    """Yield the columns that would stand in a CSV file: those of tables, and all if records are written as CSV."""
    everything = plan_file.release.format == "csv"
    wanted = {name for table in tables for name in table.variables}
    for frame, names in ((data.households, released), (data.persons, data.person_variables)):
        for name in names if frame is not None else ():
            if everything or name in wanted:
                assert frame is not None
                yield frame[name]


def _labels_in_csv(tables: Sequence[Table], labels: Labels) -> Iterator[pl.Series]:
    """Yield the labels that would be published with the codes of tables, which are written as CSV."""
    for name in dict.fromkeys(name for table in tables for name in table.variables):
        if tells_more(own := labels.get(name, {})):
            yield pl.Series(f"{name}{ENDING}", [*own.values()], dtype=pl.String)


def _check_accountable(plan_file: PlanFile, ledger: Ledger, others: Mapping[str, Sequence[int]]) -> None:
    """Refuse the file of another dataset: a ledger never forgets."""
    if plan_file.data.name != ledger.dataset and others:
        raise PlanError(not_of(others, ledger.dataset, where=f"{plan_file.source} [data]"))


def _most_exposed(plan_file: PlanFile, ledger: Ledger | None) -> tuple[Fraction, str]:
    """Return which share of records may be unique on what is published unchanged, and who says so.

    A policy says how large it may be. A plan may be stricter, and never laxer: beyond it a person accepts.
    """
    policy = None if ledger is None else ledger.policy
    stated = None if policy is None else policy.most_exposed
    most, set_by = (uniqueness.MOST_EXPOSED, "the default") if stated is None else (stated, "the policy of the ledger")
    own = plan_file.release.exposed_share
    if own is not None:
        strict = probability(own, where="exposed_share")
        if strict > most:
            raise bad_plan(
                f"{percent(strict)} is more than {percent(most, digits=3)}, which {set_by} allows",
                where=f"{plan_file.source} [release] exposed_share",
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


def _check_counted(plan_file: PlanFile, plan: Plan, data: Microdata) -> None:
    """Refuse the number of persons where the unit is not the household: one person would change two records."""
    unit = plan.specification.input_premetric.unit
    for number, step in enumerate(plan_file.prepare, start=1):
        if isinstance(step, Count) and (unit != data.record or unit == "person"):
            raise bad_plan(
                f"the promise is about each {unit}, and the number of persons is part of the household: one {unit} "
                "could change more than one record",
                where=f"{plan_file.source} [[prepare]] entry {number}",
                remedy="let the unit be the household, or leave the step out",
            )


# Names of our own columns in what is published, and in what is said of a table: its errors, and corrected counts.
OURS: Final = ("table", "count", "true", "released", "error", "cell")
OF_TABLES: Final = (
    *("mean", "variance", "bias"),
    *("estimate", "standard_error", "low", "high", "kept", "projected", "published", "squared_error"),
)


def _check_names(names: Sequence[str], tables: Sequence[Table]) -> None:
    """Refuse columns with the name of one that we add to a table, before anything is spent."""
    counted = {name for table in tables for name in table.variables}
    taken = [name for name in names if name in OURS or name.startswith("stratum_")]
    taken += [name for name in names if name in counted and name in OF_TABLES]
    if taken:
        raise bad_plan(
            taken_names(taken, by="published tables"),
            where="columns",
            remedy="rename the column in the file, or drop it: step = 'drop' under [[prepare]]",
        )


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
