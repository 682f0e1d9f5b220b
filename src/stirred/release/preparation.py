"""The steps of [[prepare]] carried out on the files of a plan, before its mechanism sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.frames import is_text
from stirred.data.microdata import Microdata
from stirred.data.prepare import Change, prepared_codebook, prepared_data
from stirred.data.problems import PlanError
from stirred.data.sources import Source
from stirred.data.steps import Split, Step
from stirred.data.whole import as_numbers
from stirred.release.declared_missing import as_declared
from stirred.release.plan_file import Planned
from stirred.spec.problems import Problem, StirredError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preparation:
    """A file as it was given and as the mechanism sees it, with what is declared of it afterwards.

    ``given`` is split into households and persons where the plan says so: a codebook declares these.
    """

    given: Microdata
    data: Microdata
    codebook: Codebook | None
    changes: Sequence[Change] = ()


def preparation_of(planned: Planned, data: Microdata, codebook: Codebook | None) -> Preparation:
    """Carry all steps out; what is wrong with any of them is said with its place in the plan."""
    steps = _with_files(planned, codebook)
    changes: list[Change] = []
    try:
        given = prepared_data(data, [step for step in steps[:1] if isinstance(step, Split)])
        after = prepared_data(data, steps, seen=changes)
    except StirredError as error:
        raise PlanError(problem.inside(planned.source) for problem in error.problems) from None
    declared = None if codebook is None else prepared_codebook(codebook, steps)
    return Preparation(given=given, data=after, codebook=declared, changes=changes)


def with_numbers(data: Microdata, codebook: Codebook | None, *, codes: Sequence[str]) -> Microdata:
    """Return records of text files with their numbers as numbers: the same values, typed for whoever reads the release.

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


def rehearsed(planned: Planned, file: Path) -> Preparation:
    """Carry the steps of a plan out on a file of its own, and check it against the codebook; nothing is written."""
    codebook = None if planned.codebook is None else Codebook.read(planned.codebook)
    section = planned.plan.data
    data = Microdata.read(file, planned.persons, hid=section.hid, checked=False, dialect=section.dialect(codebook))
    data = replace(data, record=planned.plan.record_type)
    if section.counts is not None:
        data = data.counted_by(section.count)
    return preparation_of(planned, as_declared(data, planned, codebook), codebook)


def _with_files(planned: Planned, codebook: Codebook | None) -> list[Step]:
    """Return the steps with the hierarchies that they name; all problems at once."""
    steps: list[Step] = []
    problems: list[Problem] = []
    for number, step in enumerate(planned.plan.prepare, start=1):
        try:
            steps.append(step.with_files(codebook, planned.folder))
        except StirredError as error:
            problems += [problem.inside(f"{planned.source} [[prepare]] entry {number}") for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return steps
