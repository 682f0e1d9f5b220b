"""Preparation: a file, and what is declared of it, after the steps of ``[[prepare]]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from stirred.data.codebook import Codebook, Variable, shown
from stirred.data.columns import Columns, ParquetColumns, as_polars
from stirred.data.microdata import Microdata, missing_column
from stirred.data.natural import sorted_values
from stirred.data.problems import DataError, bad_plan, counted
from stirred.data.steps import NUMBER, Count, Drop, Split, Step, closed, day_of
from stirred.data.whole import decimal_commas
from stirred.spec.problems import Problem, StirredError

_OF_DAYS: Final = (
    'days are put into bands by breaks = [1950-01-01, 1980-01-01], or made coarser by step = "date" with to = "year"'
)
_NO_NUMBER: Final = (
    'if they mean a missing value, declare them: missing = ["NA", "."] under [data]; another text becomes a number by '
    'a step before this one: step = "recode", map = { "none" = 0 }, keep = true'
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """What a step did to one column, for the custodian's eyes: the column before and after."""

    step: Step
    column: str
    before: pl.Series
    after: pl.Series | None

    @property
    def changed(self) -> int:
        """Return in how many records the value, as text, is another one."""
        if self.after is None:
            return len(self.before)
        return int(self.before.cast(pl.String).ne_missing(self.after.cast(pl.String)).sum())


def prepared_data(data: Microdata, steps: Sequence[Step], *, seen: list[Change] | None = None) -> Microdata:
    """Return the data after all steps, in order; every value that a step has no answer for is a problem.

    ``seen`` collects each column before and after.

    >>> from stirred.data.steps import Band, Cap
    >>> homes = Microdata(households=pl.DataFrame({"age": [17, 64, 99]}))
    >>> steps = [Cap(step="top-code", column="age", at=90), Band(step="band", column="age", breaks=[0, 18, 65])]
    >>> prepared_data(homes, steps).households["age"].to_list()
    ['0-17', '18-64', '65+']
    """
    problems: list[Problem] = []
    for number, step in enumerate(steps, start=1):
        where = f"[[prepare]] entry {number} ({step.called})"
        try:
            if isinstance(step, Split):
                if number > 1:
                    what = "a file is split before anything else is done to it"
                    raise bad_plan(what, where="", remedy="make it the first step")
                data = _split(step, data)
            elif isinstance(step, Count):
                data = _counted(step, data, seen)
            else:
                data = _stepped(data, step, seen)
        except StirredError as error:
            problems += [problem.inside(where) for problem in error.problems]
            break  # what follows would stumble over the same
    if problems:
        raise DataError(problems)
    return data


def _split(step: Split, data: Microdata) -> Microdata:
    """Return households and persons; a column that differs inside a household is refused."""
    flat = data.households
    absent = [name for name in step.names if name not in flat.columns]
    if absent or data.persons is not None:
        where = data.household_source
        problems = [missing_column(name, flat.columns, where=where, role="[[prepare]]") for name in absent]
        what, remedy = "the file has persons of its own", "leave the step out: it is for one flat file"
        raise DataError(problems or [Problem(what=what, where=where, remedy=remedy)])
    if flat[step.hid].null_count():
        rows = flat[step.hid].is_null().arg_true().to_list()
        what = f"persons without a household ({counted(rows)})"
        raise DataError([Problem(what=what, where=f'{data.household_source} "{step.hid}"', remedy="give each one")])
    if problems := [*_differing(step, flat, data.household_source)]:
        raise DataError(problems)
    homes = flat.select(step.names).unique(step.hid, keep="first", maintain_order=True)
    people = flat.drop(step.households)
    return replace(
        data,
        households=homes,
        persons=people,
        hid=step.hid,
        record="household",
        person_source=data.household_source,
        checked=False,
    )


def _differing(step: Split, flat: pl.DataFrame, source: str) -> Iterator[Problem]:
    for name in step.households:
        first = pl.col(name).first().over(step.hid)
        rows = flat.select(pl.col(name).ne_missing(first).arg_true()).to_series().to_list()
        if rows:
            yield Problem(
                what=f"it differs between persons of one household ({counted(rows)})",
                where=f'{source} "{name}"',
                remedy="correct them, or take the column out of `households`: it then belongs to persons",
            )


def _counted(step: Count, data: Microdata, seen: list[Change] | None) -> Microdata:
    """Return households with the number of their persons, who are part of a household's record."""
    (name,), homes, people, hid = step.column, data.households, data.persons, data.hid
    if people is None or hid is None:
        remedy = "name persons and hid under [data]; or make a split the first step of a flat file of persons"
        raise bad_plan("there are no persons to count", where="", remedy=remedy)
    if name in {*homes.columns, *people.columns}:
        raise bad_plan(f"there is a column '{name}' already", where="column", remedy="choose another name")
    if lacking := [source for source, frame in _frames(data) if hid not in frame.columns]:
        raise DataError([missing_column(hid, homes.columns, where=source, role="hid") for source in lacking])
    sizes = people[hid].alias(hid).value_counts(name=name)
    counted = homes.select(pl.col(hid).cast(sizes[hid].dtype)).join(sizes, on=hid, how="left", maintain_order="left")
    sizes_of_homes = counted[name].fill_null(0).cast(pl.Int64)
    if seen is not None:
        nothing = pl.Series(name, [None] * homes.height, dtype=pl.Int64)
        seen.append(Change(step=step, column=name, before=nothing, after=sizes_of_homes))
    return replace(data, households=homes.with_columns(sizes_of_homes), checked=False)


def _frames(data: Microdata) -> list[tuple[str, Columns]]:
    frames = [(data.household_source, data.households), (data.person_source, data.persons)]
    return [(source, frame) for source, frame in frames if frame is not None]


def _stepped(data: Microdata, step: Step, seen: list[Change] | None) -> Microdata:
    there = _frames(data)
    files = " and ".join(dict.fromkeys(source for source, _ in there))
    known = {name for _, frame in there for name in frame.columns}
    problems = [
        missing_column(name, sorted(known), where=files, role="[[prepare]]") for name in step.names if name not in known
    ]
    if data.hid is not None and data.hid in step.names:
        remedy = "leave it: it is re-issued on release"
        problems.append(Problem(what="this column links persons to households", where=data.hid, remedy=remedy))
    for source, frame in there:
        for name in (each for each in step.names if each in frame.columns):
            problems += _unfit(step, frame[name], source)
    if problems:
        raise DataError(problems)
    households, persons = _changed(data.households, step), data.persons
    if isinstance(persons, ParquetColumns):
        kinds = persons.scan.collect_schema()
        persons = persons.with_columns_changed(lambda scan: scan.with_columns(_expressions(step, kinds)))
        if isinstance(step, Drop):
            persons = persons.with_columns_changed(lambda scan: scan.drop(step.column, strict=False))
            persons.columns = [name for name in persons.columns if name not in step.column]
    elif persons is not None:
        persons = _changed(as_polars(persons), step)
    labels = {name: own for name, own in data.labels.items() if name not in step.names}
    after = replace(data, households=households, persons=persons, labels=labels, checked=False)
    if seen is not None:
        seen += [*_changes(step, data, after)]
    return after


def _changed(frame: pl.DataFrame, step: Step) -> pl.DataFrame:
    if isinstance(step, Drop):
        return frame.drop(step.column, strict=False)
    return frame.with_columns(_expressions(step, frame.schema))


def _expressions(step: Step, kinds: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    if isinstance(step, Drop):
        return []
    there = [name for name in step.names if name in kinds]
    return [step.new(pl.col(name), kinds[name]).alias(name) for name in there]


def _unfit(step: Step, column: pl.Series, source: str) -> Iterator[Problem]:
    where = f'{source} "{column.name}"'
    wrong = step.unfit(column)
    if wrong is None or not bool(wrong.any()):
        return
    values = column.filter(wrong).cast(pl.String).unique()
    odd = values.filter(~values.str.contains(NUMBER)) if step.numeric else values.head(0)
    told = sorted_values(odd if len(odd) else values)
    what, remedy = f"{step.no_answer} {len(told):,} of its values", step.answer
    if len(odd):
        what = "it has values that are not numbers"
        remedy = _OF_DAYS if day_of(str(odd[0])) else decimal_commas(odd) or _NO_NUMBER
    such = f", such as {shown(told.head(5).to_list())}"
    yield Problem(what=what + such, public=what, where=where, remedy=remedy)


def _changes(step: Step, before: Microdata, after: Microdata) -> Iterator[Change]:
    for old, new in ((before.households, after.households), (before.persons, after.persons)):
        if old is not None and new is not None:
            for name in (each for each in step.names if each in old.columns):
                kept = new[name] if name in new.columns else None
                yield Change(step=step, column=name, before=old[name], after=kept)


def prepared_codebook(codebook: Codebook, steps: Sequence[Step]) -> Codebook:
    """Return what is declared of the prepared file: the coarser domain. It follows from declarations alone."""
    touched = {name for step in steps if not isinstance(step, Split) for name in step.names}
    made = [step.variable for step in steps if isinstance(step, Count)]
    variables = [after for each in (*codebook.variables, *made) if (after := _after(each, steps)) is not None]
    zeros = [zero for zero in codebook.structural_zeros if not touched & {*zero.when}]
    return replace(
        codebook,
        variables=tuple(variables),
        hierarchies=tuple(each for each in codebook.hierarchies if not touched & {*each.levels}),
        trees=tuple(each for each in codebook.trees if each.variable not in touched),
        structural_zeros=tuple(zeros),
    )


def _after(variable: Variable | None, steps: Sequence[Step]) -> Variable | None:
    for step in steps:
        if variable is not None and not isinstance(step, (Split, Count)) and variable.name in step.names:
            variable = step.declares(variable)
    return None if variable is None else closed(variable)
