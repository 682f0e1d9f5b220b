"""A plan whose files were read and checked: everything a run needs, before anything random happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.columns import ParquetColumns
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError, bad_plan, listed
from stirred.data.sources import Source
from stirred.data.validate import validate
from stirred.mechanisms.swapping.family import swap_named
from stirred.mechanisms.swapping.identifiers import unnamed_identifiers
from stirred.mechanisms.swapping.revealing import revealing_columns
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.bundle import checksum
from stirred.release.declared_values import draft_doubts, with_declared_cells, with_declared_values
from stirred.release.ledger import Ledger
from stirred.release.ledger.total import numbers
from stirred.release.plan_file import Planned
from stirred.release.tables import Table, wanted_tables
from stirred.spec.problems import Problem, StirredError, placed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A plan whose files were read and checked; nothing random has happened."""

    planned: Planned
    data: Microdata
    mechanism: Swap
    plan: SwapPlan
    tables: Sequence[Table]
    inputs: Mapping[str, str]
    codebook: Codebook | None = None
    ledger: Ledger | None = None
    # For each file, the entries of the ledger that count and were released from another one.
    other_files: Mapping[str, Sequence[int]] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def prepare(planned: Planned) -> Prepared:
    """Read and check everything, and return what would happen."""
    planned = with_declared_values(planned)
    mechanism, data, inputs, codebook = _both(planned)
    ledger = None if planned.ledger is None else Ledger.open(planned.ledger)
    called = planned.plan.data.name or ("" if ledger is None else ledger.dataset)
    data = replace(data, called=called)
    if codebook is not None:
        mechanism = with_declared_cells(mechanism, codebook)
        _check_codebook(codebook, data)
    plan = mechanism.plan(data)
    if codebook is not None:
        plan = _with_geography(plan, codebook)
    requests = [(table.name, table.columns) for table in planned.plan.tables]
    released = [name for name in data.households.columns if name in (*plan.hold, *mechanism.swap)]
    tables = wanted_tables(requests, households=released, persons=data.person_variables)
    revealing = revealing_columns(data, plan) if mechanism.releases_records else ()
    others = _other_files(ledger, inputs)
    _check_names([*released, *data.person_variables])
    if ledger is not None:
        _check_accountable(planned, mechanism, data, plan, ledger, others)
    drafted = draft_doubts(planned, mechanism, codebook)
    warnings = (*plan.warnings, *revealing, *_of_other_files(ledger, others), *drafted)
    return Prepared(
        planned=planned,
        data=data,
        mechanism=mechanism,
        plan=plan,
        tables=tables,
        inputs=inputs,
        codebook=codebook,
        ledger=ledger,
        other_files=others,
        warnings=warnings,
    )


def _check_accountable(
    planned: Planned,
    mechanism: Swap,
    data: Microdata,
    plan: SwapPlan,
    ledger: Ledger,
    others: Mapping[str, Sequence[int]],
) -> None:
    """Refuse what would be spent for nothing: a ledger never forgets, and publishing would refuse it afterwards."""
    problems = []
    if planned.plan.data.name != ledger.dataset:
        remedy = (
            f"if it is the same dataset, edited since, say so with name = '{ledger.dataset}' under [data] (--name); "
            "another dataset needs a ledger of its own"
        )
        for role, entries in others.items():
            what = f"this is not the file of entry {numbers(entries)}, released before from '{ledger.dataset}'"
            problems.append(Problem(what=what, where=f"{planned.source} [data] {role}", remedy=remedy))
    if plan.specification.budget.realised.is_infinite:
        what = "the loss would be infinite, and nothing in this ledger would be promised any more"
        remedy = "choose a rate above 0 and below 1, or run it without a ledger"
        problems.append(Problem(what=what, where=f"{planned.source} [mechanism] rate", remedy=remedy))
    # With hold = [...] somebody named the columns that go out.
    if mechanism.releases_records and mechanism.hold is None:
        for name, of in unnamed_identifiers(data, plan.hold):
            what = f'"{name}" is different for every {of} and would be released as it is'
            remedy = f'if it is an identifier, write id = ["{name}"] (--id {name}); if not, list what is held (--hold)'
            problems.append(Problem(what=what, where=f"{planned.source} [data] id", remedy=remedy))
    if problems:
        raise PlanError(problems)


def _other_files(ledger: Ledger | None, inputs: Mapping[str, str]) -> dict[str, list[int]]:
    """Return, for each file, the entries of the ledger that count and were released from another one."""
    found: dict[str, list[int]] = {}
    for entry in () if ledger is None else ledger.entries():
        for role, seen in entry.inputs.items():
            if entry.is_spent and role in inputs and seen != inputs[role]:
                found.setdefault(role, []).append(entry.number)
    return found


def _of_other_files(ledger: Ledger | None, others: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Warn where the ledger accounts for other files than these."""
    for role, entries in others.items():
        assert ledger is not None
        yield (
            f"the file of {role} is not that of entry {numbers(entries)}, released before from '{ledger.dataset}': an "
            "edited file is the same dataset, another file needs a ledger of its own"
        )


def _check_codebook(codebook: Codebook, data: Microdata) -> None:
    """Check the files against the codebook."""
    persons = data.persons
    frame = persons.scan if isinstance(persons, ParquetColumns) else persons
    assert frame is None or isinstance(frame, (pl.DataFrame, pl.LazyFrame))
    problems = validate(
        data.households,
        frame,
        codebook,
        household_source=data.household_source,
        person_source=data.person_source,
    )
    if problems:
        raise DataError(problems)


def _with_geography(plan: SwapPlan, codebook: Codebook) -> SwapPlan:
    """Put the declared hierarchies into the specification, so that its invariants can be compared with others."""
    multiverse = replace(plan.specification.multiverse, hierarchies=codebook.hierarchies_for_spec())
    return replace(plan, specification=plan.specification.with_flavor(multiverse=multiverse))


# Names of our own columns in the tables we publish.
_OURS = ("table", "count", "true", "released", "error", "cell")


def _check_names(names: Sequence[str]) -> None:
    taken = [name for name in names if name in _OURS or name.startswith(("__", "stratum_"))]
    if taken:
        raise bad_plan(
            f"{listed(taken)} is a name that published tables use for something else",
            where="columns",
            remedy="rename the column in the file, or leave it out",
        )


def _both(planned: Planned) -> tuple[Swap, Microdata, dict[str, str], Codebook | None]:
    """Return mechanism, data and checksums of the files; all problems are reported together."""
    mechanism, data = None, None
    inputs: dict[str, str] = {}
    problems: list[Problem] = []
    try:
        mechanism = mechanism_of(planned)
    except StirredError as error:
        problems += error.problems
    codebook = None
    try:
        codebook = None if planned.codebook is None else Codebook.read(planned.codebook)
    except StirredError as error:
        problems += error.problems
    try:
        section = planned.plan.data
        for role, path in (("households", planned.households), ("persons", planned.persons)):
            place = None if path is None else Source.of(path).path
            if place is not None and place.exists():
                inputs[role] = checksum(place)
        # What the codebook declares as an identifier is one, whatever the plan forgot.
        hid = section.hid or (codebook.hid if codebook is not None and planned.persons is not None else None)
        declared = () if codebook is None else codebook.identifiers
        data = Microdata.read(planned.households, planned.persons, hid=hid, checked=False)
        present = {*data.households.columns, *(data.persons.columns if data.persons is not None else ())}
        named = [*section.id, *(name for name in declared if name in present and name != hid)]
        data = replace(data, id=tuple(dict.fromkeys(named)))
    except StirredError as error:
        problems += error.problems
    if data is not None:
        checks: list[Callable[[], None]] = [data.check]
        if mechanism is not None:
            checks.append(partial(mechanism.check, data))
        for check in checks:
            try:
                check()
            except StirredError as error:
                problems += error.problems
    if mechanism is None or data is None or problems:
        raise PlanError(dict.fromkeys(problems))
    return mechanism, data, inputs, codebook


def mechanism_of(planned: Planned) -> Swap:
    """Return the mechanism a plan asks for; a setting it does not have is refused."""
    section = planned.plan.mechanism
    with placed(f"{planned.source} [mechanism]"):
        return swap_named(
            section.name,
            {
                "rate": section.rate,
                "rates": section.rates,
                "epsilon": section.epsilon,
                "redraw_law": section.redraw_law,
                "fine_match": section.fine_match,
                "fine_rate": section.fine_rate,
                "respond": section.respond,
                "values": section.values,
                "change": section.change,
                "imputed": section.imputed,
                "distances": planned.declared("distances", number="distance"),
                "weights": planned.declared("weights", number="weight"),
                "noise_epsilon": section.noise_epsilon,
                "noise": section.noise,
                # Of the other members tables are counted from what they release.
                "tables": [table.columns for table in planned.plan.tables] if section.name == "noisy-swap" else None,
            },
            match=section.match,
            swap=section.swap,
            hold=section.hold,
            unit=section.unit,
            settings_from=section.settings_from,
        )
