"""From settings and files to what is measured: areas, cells, budgets and rules, with every problem said at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from stirred.data.columns import Columns
from stirred.data.frames import read_given
from stirred.data.household_rows import Rows, household_rows
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, PlanError, bad_plan, listed
from stirred.mechanisms.protocol import ReleasedTable
from stirred.mechanisms.topdown.budget import Shares, read_budget
from stirred.mechanisms.topdown.counts import Counts
from stirred.mechanisms.topdown.measure import Part
from stirred.mechanisms.topdown.rules import (
    Rule,
    agreement,
    broken,
    by_facilities,
    contradictions,
    disagreements,
    totals,
    zeros,
)
from stirred.mechanisms.topdown.schema import (
    SCHEMAS,
    Attribute,
    Cells,
    Schema,
    code_places,
    declared_schema,
    shipped_schema,
)
from stirred.mechanisms.topdown.settings import CountedSettings, TopDownSettings, UnitSettings
from stirred.mechanisms.topdown.solve.tree import arm_named
from stirred.mechanisms.topdown.spine import Spine
from stirred.spec.invariant import plural
from stirred.spec.problems import Problem, StirredError

TOP: Final = "all"
PERSONS: Final = "persons"
UNITS: Final = "units"
_DEFAULT_QUERIES: Final = ("total", "detailed")
T = TypeVar("T")


def schema_of(settings: CountedSettings) -> Schema:
    """Return the schema that settings name or declare."""
    name = settings.attributes[0] if len(settings.attributes) == 1 else ""
    if name in SCHEMAS:
        return shipped_schema(name)
    return declared_schema("declared", settings.attributes, values=settings.values, groupings=settings.groupings)


def shares_of(settings: CountedSettings, schema: Schema, levels: Sequence[str]) -> Shares | None:
    """Return the budget with its levels called as given, from the top; None where nothing is measured."""
    if settings.budget is not None and (settings.rho is not None or settings.queries):
        remedy = "write the budget file, or rho and queries"
        raise bad_plan("a budget file says rho and queries itself", where="budget", remedy=remedy)
    if settings.budget is not None:
        given = settings.budget
        shares = Shares.read(read_budget(given) if isinstance(given, str) else given)
    elif settings.rho is not None:
        shares = Shares.even(settings.rho, levels=levels, queries=settings.queries or _DEFAULT_QUERIES)
    elif isinstance(settings, UnitSettings) and settings.totals:
        return None
    else:
        remedy = "name a budget file (budget), or write rho = '1/2' and queries = ['total', 'detailed']"
        raise bad_plan("no budget is given", where="budget", remedy=remedy)
    return shares.fitted(schema, levels)


def level_names(settings: TopDownSettings) -> tuple[str, ...]:
    """Return the names of the levels, from the top: as the budget file spells them, where there is one."""
    names = (TOP, *settings.levels)
    if settings.budget is None:
        return names
    given = read_budget(settings.budget) if isinstance(settings.budget, str) else settings.budget
    spelled = [*given["levels"]] if isinstance(given.get("levels"), dict) else []
    same = [name.casefold() for name in spelled[1:]] == [name.casefold() for name in settings.levels]
    return tuple(map(str, spelled)) if same else names


def _collected(problems: list[Problem], work: Callable[[], T]) -> T | None:
    try:
        return work()
    except StirredError as error:
        problems += error.problems
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What settings alone decide: level names, schemas and budgets of both kinds of records."""

    settings: TopDownSettings
    names: tuple[str, ...]
    schema: Schema
    shares: Shares
    unit_schema: Schema | None = None
    unit_shares: Shares | None = None

    @classmethod
    def of(cls, settings: TopDownSettings) -> Design:
        """Return the design; all problems of the settings at once."""
        problems: list[Problem] = [*_wrong_levels(settings)]
        if len({name.casefold() for name in settings.levels}) < max(1, len(settings.levels)):
            raise PlanError(problems)
        names = level_names(settings)
        schema = _collected(problems, lambda: schema_of(settings))
        shares = None if schema is None else _collected(problems, lambda: shares_of(settings, schema, names))
        own = settings.units
        unit_schema = None if own is None else _collected(problems, lambda: schema_of(own))
        unit_shares = None
        if own is not None and unit_schema is not None:
            unit_shares = _collected(problems, lambda: shares_of(own, unit_schema, names))
        for counted, its in ((settings, schema), (own, unit_schema)):
            if counted is not None and its is not None:
                problems += _wrong_rules(counted, its, names)
        if settings.facilities is not None and schema is not None and settings.facilities.attribute not in schema.names:
            remedy = f"there are {listed(schema.names)}"
            what = f"there is no attribute '{settings.facilities.attribute}'"
            problems.append(Problem(what=what, where="facilities attribute", remedy=remedy))
        if schema is None or shares is None or problems:
            raise PlanError(dict.fromkeys(problems))
        design = cls(
            settings=settings,
            names=names,
            schema=schema,
            shares=shares,
            unit_schema=unit_schema,
            unit_shares=unit_shares,
        )
        if problems := [*_wrong_records(design)]:
            raise PlanError(dict.fromkeys(problems))
        return design

    @property
    def parts(self) -> list[tuple[str, CountedSettings, Schema, Shares | None]]:
        """Return the kinds of records, with their settings, schema and budget."""
        found: list[tuple[str, CountedSettings, Schema, Shares | None]] = [
            (PERSONS, self.settings, self.schema, self.shares)
        ]
        if self.settings.units is not None and self.unit_schema is not None:
            found.append((UNITS, self.settings.units, self.unit_schema, self.unit_shares))
        return found

    def agreed(self, part: str) -> ReleasedTable:
        """Return the table of an earlier release with which the records of a kind agree."""
        (table,) = (own.agrees_with for name, own, _, _ in self.parts if name == part)
        assert table is not None
        return table

    @property
    def earlier(self) -> tuple[ReleasedTable, ...]:
        """Return a table of each earlier release with which records agree."""
        named = [own.agrees_with for _, own, _, _ in self.parts if own.agrees_with is not None]
        return tuple({table.release or table.file: table for table in reversed(named)}.values())[::-1]

    def depths(self, counted: CountedSettings) -> list[int]:
        """Return the levels whose totals are published exactly; that of the whole file is fixed by the promise."""
        folded = [name.casefold() for name in self.names]
        whole = {0} if "records" in self.settings.publish or not counted.totals else set()
        return sorted(whole | {folded.index(name.casefold()) for name in counted.totals})

    def record_columns(self, own: CountedSettings, schema: Schema) -> tuple[str, ...]:
        """Return the columns of released records: those of the file, areas first."""
        return (*self.settings.places, *(own.columns.get(name, name) for name in schema.names))

    def column(self, depth: int) -> str:
        """Return the column of a level; the whole has none."""
        return self.settings.levels[depth - 1] if depth else ""


def _wrong_levels(settings: TopDownSettings) -> Iterator[Problem]:
    levels = [name.casefold() for name in settings.levels]
    if not levels or len({*levels}) < len(levels) or TOP in levels:
        remedy = f"name the columns of the areas once, the largest first; '{TOP}' is the whole"
        yield Problem(what="there are no levels, or two of one name", where="levels", remedy=remedy)
    if settings.geocode is not None or settings.widths:
        rising = [*settings.widths] == sorted({*settings.widths}) and all(width > 0 for width in settings.widths)
        if settings.geocode is None or len(settings.widths) != len(levels) or not rising:
            remedy = "write geocode = 'COLUMN' and for each level how many letters name it, such as [3, 9, 13, 15, 31]"
            yield Problem(what="widths do not fit the levels", where="widths", remedy=remedy)


def _wrong_rules(settings: CountedSettings, schema: Schema, names: Sequence[str]) -> Iterator[Problem]:
    for name in settings.totals:
        if name.casefold() not in {each.casefold() for each in names}:
            remedy = f"from the top there are {listed(names)}"
            yield Problem(what=f"there is no level '{name}'", where="totals", remedy=remedy)
    codes = {attribute.name: attribute.codes for attribute in schema.attributes}
    for number, zero in enumerate(settings.zeros, start=1):
        where = f"zeros {number}"
        for name, barred in zero.items():
            other = [code for code in barred if code not in codes.get(name, ())]
            if name not in codes or other or not barred:
                said = f"'{name}' has no code {listed(other)}" if name in codes else f"there is no attribute '{name}'"
                remedy = f"there are {listed([*codes])}, with the codes that were declared"
                yield Problem(what=said, where=where, remedy=remedy)
        if not zero:
            yield Problem(what="it bars nothing", where=where, remedy='name codes, such as { age = ["0-17"] }')


def _wrong_records(design: Design) -> Iterator[Problem]:
    """Yield what stands against records, or asks for something of records where there are none."""
    settings = design.settings
    records = "records" in settings.publish
    for _, own, schema, shares in design.parts:
        if own.agrees_with is not None and (not records or shares is None):
            remedy = 'write publish = ["measurements", "records"], and a budget'
            yield Problem(what="only records agree with an earlier release", where="agrees_with", remedy=remedy)
        names = design.record_columns(own, schema)
        ours = {"count", "geocode"} - {settings.geocode}
        taken = [name for name in dict.fromkeys(names) if names.count(name) > 1 or name in ours]
        if records and taken:
            what = f"{listed(taken)} would stand twice among the columns of the records"
            yield Problem(what=what, where="attributes", remedy="rename the column in the file")
    if not records and (settings.compare or settings.arm != "default"):
        remedy = 'write publish = ["measurements", "records"]'
        yield Problem(what="arms make records, and none are published", where="arm", remedy=remedy)
    top = design.names[0]
    unmeasured = any(
        shares is not None and all(shares.sigma2(top, query) is None for query in shares.measured(top))
        for *_, shares in design.parts
    )
    for arm in dict.fromkeys((settings.arm, *settings.compare)):
        if records and unmeasured and not arm_named(arm).bottom_up:
            what = f"the arm '{arm}' uses the measurements of each level alone, and the whole is not measured"
            yield Problem(what=what, where="arm", remedy="use the arm 'default', or measure the whole")


# ---- files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """The confidential files: persons, with the columns of their household where they have none of their own."""

    data: Microdata

    @property
    def persons(self) -> Columns:
        """Return the records that are persons: those of the one file, where there is one."""
        return self.data.households if self.data.persons is None else self.data.persons

    def missing(self, names: Sequence[str], *, of_units: bool = False) -> Iterator[Problem]:
        """Yield the columns that neither file has."""
        homes = self.data.households.columns
        there = homes if of_units else [*dict.fromkeys((*self.persons.columns, *homes))]
        source = self.data.household_source if of_units or self.data.persons is None else self.data.person_source
        for name in names:
            if name not in there:
                yield missing_column(name, there, where=source, role="a level or an attribute")

    def rows(self) -> Rows | None:
        """Return the household of each person; None where persons are in one file."""
        return None if self.data.persons is None else household_rows(self.data)

    def leaves(self, spine: Spine, rows: Rows | None, *, of_units: bool) -> Cells:
        """Return the leaf of each record; persons of a household live where it does."""
        homes = self.data.households
        if rows is None and not of_units:
            return spine.leaf_of(homes, source=self.data.household_source)
        if all(name in homes.columns for name in spine.leaves.columns):
            own = spine.leaf_of(homes, source=self.data.household_source)
            return own if of_units or rows is None else own[rows]
        return spine.leaf_of(self.persons, source=self.data.person_source)

    def cells(self, settings: CountedSettings, schema: Schema, rows: Rows | None, *, of_units: bool) -> Cells:
        """Return the cell of each record; all codes that were not declared are told at once."""
        homes, file = self.data.households, self.data.households if of_units else self.persons
        problems: list[Problem] = []
        cells = np.zeros(file.height, dtype=np.int32)
        for attribute in schema.attributes:
            name = settings.columns.get(attribute.name, attribute.name)
            own = name in file.columns
            source = self.data.household_source if of_units or not own or rows is None else self.data.person_source
            place = code_places(file[name] if own else homes[name], attribute, source=source)
            if isinstance(place, Problem):
                problems.append(place)
                continue
            cells *= attribute.size
            cells += place if own or rows is None else place[rows]
        if problems:
            raise DataError(problems)
        return cells


def columns_used(design: Design) -> tuple[list[str], list[str]]:
    """Return the columns that settings name: of persons, and of units."""
    settings, of_units = design.settings, list[str]()
    if settings.units is not None and design.unit_schema is not None:
        of_units = [*settings.places, *(settings.units.columns.get(name, name) for name in design.unit_schema.names)]
    if settings.facilities is not None:
        of_units.append(settings.facilities.column)
    return [*settings.places, *(settings.columns.get(name, name) for name in design.schema.names)], of_units


def check_columns(design: Design, data: Microdata) -> None:
    """Raise all columns that settings name and files lack; nothing is computed."""
    files = Files(data=data)
    own, of_units = columns_used(design)
    problems = [*files.missing(own)]
    if of_units and data.persons is None:
        remedy = "give two files under [data]: households (all housing units) and persons"
        problems.append(Problem(what="there is no file of housing units", where="units", remedy=remedy))
    elif of_units:
        problems += files.missing(of_units, of_units=True)
    if problems:
        raise PlanError(dict.fromkeys(problems))


def spine_of(design: Design, data: Microdata, areas: pl.DataFrame | None) -> tuple[Spine, bool]:
    """Return the areas, and whether which of them exist was read off a file that does not publish that.

    The list is that of ``areas``, or the file ``areas`` of the settings; otherwise areas with a record are taken.
    """
    settings = design.settings
    names = settings.places
    listed_areas = read_given(Path(settings.areas)) if areas is None and settings.areas is not None else areas
    if listed_areas is not None:
        problems = [
            missing_column(name, listed_areas.columns, where=settings.areas or "areas", role="a level")
            for name in names
            if name not in listed_areas.columns
        ]
        if problems:
            raise PlanError(problems)
    files, leaf = Files(data=data), len(design.names) - 1
    of_units = data.persons is not None and all(name in data.households.columns for name in names)
    table: Any = listed_areas if listed_areas is not None else data.households if of_units else files.persons
    table = table.select(names) if isinstance(table, pl.DataFrame) else pl.DataFrame({n: table[n] for n in names})
    if settings.geocode is not None:
        spine = Spine.of_geocodes(
            table, settings.geocode, widths=settings.widths, names=design.names, bypass=settings.bypass
        )
    else:
        spine = Spine.of_columns(table, settings.levels, names=design.names, bypass=settings.bypass)
    # Where the number of units in every leaf is published, so is which leaves have any.
    units = settings.units
    published = of_units and ((units is not None and leaf in design.depths(units)) or settings.facilities is not None)
    return spine, listed_areas is None and not published


def parts_of(design: Design, data: Microdata, spine: Spine) -> list[Part]:
    """Return what is measured, with its rules, all checked against the file before any noise is drawn."""
    settings, files = design.settings, Files(data=data)
    rows = files.rows()
    found: list[Part] = []
    problems: list[Problem] = []
    for name, own, schema, shares in design.parts:
        of_units = name == UNITS

        def counted(own: CountedSettings = own, schema: Schema = schema, of_units: bool = of_units) -> Counts:
            leaf = files.leaves(spine, rows, of_units=of_units)
            return Counts.of(
                leaf, files.cells(own, schema, rows, of_units=of_units), areas=spine.areas(spine.depth - 1)
            )

        records = _collected(problems, counted)
        if records is None:
            continue
        rules = [zeros(schema, zero, spine) for zero in own.zeros]
        if depths := design.depths(own):
            rules.insert(0, totals(records, schema, depths))
        if settings.facilities is not None and not of_units:
            rules += _collected(problems, lambda: _facility_rules(design, files, spine)) or ()
        problems += contradictions(schema, rules, spine)
        problems += broken(records, schema, rules, spine, unit=own.unit)
        earlier = _collected(problems, partial(agreement, own, schema, spine))
        if earlier is not None:
            rules.append(earlier)
            problems += disagreements(schema, rules, spine, unit=own.unit)
        called = name if of_units else plural(own.unit)
        found.append(
            Part(
                name=name, schema=schema, shares=shares, spine=spine, counts=records, rules=tuple(rules), records=called
            )
        )
    if problems:
        raise DataError(dict.fromkeys(problems))
    return found


def _facility_rules(design: Design, files: Files, spine: Spine) -> tuple[Rule, Rule]:
    given = design.settings.facilities
    assert given is not None
    attribute = next(each for each in design.schema.attributes if each.name == given.attribute)
    own = Schema(name="facilities", attributes=(Attribute(name=attribute.name, codes=attribute.codes),))
    place = code_places(files.data.households[given.column], attribute, source=files.data.household_source)
    if isinstance(place, Problem):
        raise DataError([place])
    leaf = files.leaves(spine, None, of_units=True)
    counts = Counts.of(leaf, place, areas=spine.areas(spine.depth - 1))
    return by_facilities(design.schema, counts, own=own, most=given.most, empty=given.empty, spine=spine)
