"""What the confidential files hold: counts by area and cell, and what is published of them without noise.

Totals, structural zeros and bounds by facilities are functions of invariants: totals of records, and numbers of
facilities in each leaf. A file that keeps all rules shows that they can be kept together. All is checked before noise
is drawn.

A later, more detailed release can agree with one already published: H(Z) = P in every area. P is public: the counts
of an earlier release, cell by cell in every leaf. H adds the cells of the later schema up to those of the earlier one.
P is neither a measurement nor a fact about the confidential file, which need not agree with it; it binds the records
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.columns import Columns, select
from stirred.data.frames import read_given
from stirred.data.household_rows import Rows, household_rows
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, PlanError, listed, number
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Cells, MarginalQuery, Schema, code_places
from stirred.mechanisms.topdown.hierarchy.tree import AGREES, NO_BOUND, Counts, Entries, Integers, Sign, blocks
from stirred.mechanisms.topdown.settings import UNITS, CountSettings, RecordKind, TopDownDesign, collected
from stirred.mechanisms.topdown.solve.problem import coarsens
from stirred.mechanisms.topdown.spine import Spine
from stirred.spec.invariant import plural
from stirred.spec.problems import Problem, StirredError, placed

_AT_ONCE: Final = 1 << 14
_SHOWN: Final = 3
_WHERE: Final = "agrees_with"


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordFile:
    """The records of one kind in the confidential files; persons have the columns of their household as well."""

    data: Microdata
    of_units: bool = False

    @property
    def alone(self) -> bool:
        """Say whether these are the records of the first file: units, or persons that have one file."""
        return self.of_units or self.data.persons is None

    @property
    def own(self) -> Columns:
        return self.data.households if self.alone or self.data.persons is None else self.data.persons

    @property
    def source(self) -> str:
        return self.data.household_source if self.alone else self.data.person_source

    @cached_property
    def home(self) -> Rows:
        return household_rows(self.data)

    def missing(self, names: Sequence[str]) -> Iterator[Problem]:
        there = [*dict.fromkeys((*self.own.columns, *self.data.households.columns))]
        for name in names:
            if name not in there:
                yield missing_column(name, there, where=self.source, role="a level or an attribute")

    def leaves(self, spine: Spine) -> Cells:
        """Return the leaf of each record; persons of a household live where it does."""
        homes, home = self.data.households, None if self.alone else self.home  # where a person has none is refused
        if home is None or any(name not in homes.columns for name in spine.leaves.columns):
            return spine.leaf_of(self.own, source=self.source)
        return spine.leaf_of(homes, source=self.data.household_source)[home]

    def places(self, attribute: Attribute, name: str) -> Cells:
        if name in self.own.columns:
            return code_places(self.own[name], attribute, source=self.source)
        return code_places(self.data.households[name], attribute, source=self.data.household_source)[self.home]

    def cells(self, kind: RecordKind) -> Cells:
        """Return the cell of each record; all codes that were not declared are refused at once."""
        problems: list[Problem] = []
        cells = np.zeros(self.own.height, dtype=np.int32)
        for attribute, name in zip(kind.schema.attributes, kind.columns, strict=True):
            if (place := collected(problems, partial(self.places, attribute, name))) is not None:
                cells *= attribute.size
                cells += place
        if problems:
            raise DataError(problems)
        return cells


def check_columns(design: TopDownDesign, data: Microdata) -> None:
    """Raise all columns that settings name and files lack; nothing is computed."""
    own, of_units = design.columns
    problems = [*RecordFile(data=data).missing(own)]
    if of_units and data.persons is None:
        remedy = "give two files under [data]: households (all housing units) and persons"
        problems.append(Problem(what="there is no file of housing units", where="units", remedy=remedy))
    elif of_units:
        problems += RecordFile(data=data, of_units=True).missing(of_units)
    if problems:
        raise PlanError(dict.fromkeys(problems))


def spine_of(design: TopDownDesign, data: Microdata, areas: pl.DataFrame | None) -> tuple[Spine, bool]:
    """Return the areas, and whether which of them exist was read off a file that does not publish that.

    The list is that of ``areas``, or the file ``areas`` of the settings; otherwise areas with a record are taken.
    """
    settings, names = design.settings, design.settings.places
    if areas is None and settings.areas is not None:
        areas = read_given(Path(settings.areas))
    if areas is not None and (absent := [name for name in names if name not in areas.columns]):
        where = settings.areas or "areas"
        raise PlanError(missing_column(name, areas.columns, where=where, role="a level") for name in absent)
    of_units = data.persons is not None and all(name in data.households.columns for name in names)
    table = select(RecordFile(data=data, of_units=of_units).own if areas is None else areas, names)
    if settings.geocode is not None:
        spine = Spine.of_geocodes(
            table, settings.geocode, widths=settings.widths, names=design.names, bypass=settings.bypass
        )
    else:
        spine = Spine.of_columns(table, settings.levels, names=design.names, bypass=settings.bypass)
    # Where the number of units in every leaf is published, so is which leaves have any.
    units, leaf = settings.units, len(design.names) - 1
    published = of_units and ((units is not None and leaf in design.depths(units)) or settings.facilities is not None)
    # A list names each area once. One that repeats them, or is the file itself, is made of records.
    sources = {Path(each).resolve() for each in (data.household_source, data.person_source)}
    of_records = areas is not None and (
        table.is_duplicated().any() or (settings.areas is not None and Path(settings.areas).resolve() in sources)
    )
    return spine, (areas is None or of_records) and not published


def populations(design: TopDownDesign, data: Microdata, spine: Spine) -> list[Population]:
    """Return what is measured, with its rules, all checked against the file before any noise is drawn."""
    found: list[Population] = []
    problems: list[Problem] = []
    for kind in design.kinds:
        own, schema, of_units = kind.settings, kind.schema, kind.name == UNITS
        file = RecordFile(data=data, of_units=of_units)
        try:
            counts = Counts.of(file.leaves(spine), file.cells(kind), areas=spine.areas(spine.depth - 1))
        except StirredError as error:
            problems += error.problems
            continue
        rules = [zeros(schema, zero, spine) for zero in own.zeros]
        if depths := design.depths(own):
            rules.insert(0, totals(counts, schema, depths))
        if design.settings.facilities is not None and not of_units:
            rules += collected(problems, lambda: [*_by_facilities(design, data, spine)]) or ()
        problems += broken(counts, schema, rules, spine, unit=kind.unit)
        earlier = collected(problems, partial(agreement, own, schema, spine))
        if earlier is not None:
            rules.append(earlier)
            problems += disagreements(schema, rules, spine, unit=kind.unit)
        found.append(
            Population(
                name=kind.name,
                settings=own,
                schema=schema,
                shares=kind.shares,
                spine=spine,
                counts=counts,
                rules=tuple(rules),
                noise=areas_by_noise(kind, spine),
            )
        )
    if problems:
        raise DataError(dict.fromkeys(problems))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population(RecordKind):
    """One kind of record with its areas, its counts and what is known of them."""

    spine: Spine
    counts: Counts  # of the leaves
    rules: tuple[Rule, ...] = ()
    noise: Mapping[tuple[str, str, str], int]  # how many areas have it, by level, query and variance parameter

    @property
    def numbers(self) -> int:
        """Return how many numbers are drawn."""
        return sum(many * self.queries[query].size for (_, query, _), many in self.noise.items())

    def answers(self, query: MarginalQuery, depth: int, areas: range) -> Integers:
        return self.spine.counts(self.counts, depth, areas).answers(query)


NoisyQuery = tuple[MarginalQuery, dict[int, Fraction]]  # with variance parameters by the level that has the budget


def noisy_queries(kind: RecordKind, spine: Spine, depth: int) -> Iterator[NoisyQuery]:
    """Yield what is measured at a level."""
    names, shares = spine.names, kind.shares
    for name in shares.measured(names[depth]):
        query = kind.schema.query(name)
        found = {s: shares.sigma2(names[depth], query.name, since=names[s]) for s in range(depth + 1)}
        yield query, {since: sigma2 for since, sigma2 in found.items() if sigma2 is not None}


def areas_by_noise(kind: RecordKind, spine: Spine) -> dict[tuple[str, str, str], int]:
    """Return how many areas each level, query and variance parameter has: what an audit of the files looks for."""
    found: dict[tuple[str, str, str], int] = {}
    for depth, level in enumerate(spine.names):
        carried = spine.carried(depth, range(spine.areas(depth)), idle=kind.shares.idle)
        since, areas = (each.tolist() for each in np.unique(carried, return_counts=True))
        for query, sigma2 in noisy_queries(kind, spine, depth):
            for first, many in zip(since, areas, strict=True):
                if first in sigma2:
                    key = (level, f"{query.name}_dpq", f"{sigma2[first].numerator}/{sigma2[first].denominator}")
                    found[key] = found.get(key, 0) + many
    return found


# ---- what is known exactly --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """Something known of a query at some levels: counts of ``source`` times ``times``, plus ``plus``, cell by cell."""

    name: str  # in published files
    query: MarginalQuery
    sign: Sign
    depths: tuple[int, ...]
    source: Counts | None = None  # of the leaves
    source_query: MarginalQuery | None = None
    times: int | Integers = 1
    plus: int | Integers = 0

    def values(self, spine: Spine, depth: int, areas: range) -> Integers:
        """Return what is known in some areas of a level (areas, cells of the query)."""
        return self.of(None if self.source is None else spine.counts(self.source, depth, areas), range(len(areas)))

    def broken_by(self, found: Integers, bound: Integers) -> npt.NDArray[np.bool_]:
        """Return where counts are not what a rule asks for."""
        return {"=": found != bound, "<=": found > bound, ">=": found < bound}[self.sign]

    def of(self, counts: Counts | None, areas: range) -> Integers:
        """Return what is known in some areas, given the counts of the source in them."""
        if counts is None or self.source_query is None:
            return np.zeros((len(areas), self.query.size), dtype=np.int64) + self.plus
        return counts.answers(self.source_query, areas) * self.times + self.plus


def totals(counts: Counts, schema: Schema, depths: Sequence[int]) -> Rule:
    """Return that the totals of some levels are known."""
    query = schema.query("total")
    return Rule(name="total_con", query=query, sign="=", depths=tuple(depths), source=counts, source_query=query)


def zeros(schema: Schema, when: Mapping[str, Sequence[str]], spine: Spine) -> Rule:
    """Return that no record has one of these codes of each attribute: an upper bound of 0, and none elsewhere."""
    query = schema.query(" * ".join(when))
    barred = [[a.codes.index(code) for code in when[a.name]] if a.name in when else [0] for a in schema.attributes]
    bound = np.full(query.shape, NO_BOUND, dtype=np.int64)
    bound[np.ix_(*barred)] = 0
    depths = tuple(range(spine.depth))
    return Rule(name=f"{'_'.join(when)}_0_con", query=query, sign="<=", depths=depths, plus=bound.reshape(-1))


def broken(counts: Counts, schema: Schema, rules: Sequence[Rule], spine: Spine, *, unit: str) -> Iterator[Problem]:
    """Yield the rules that the file itself does not keep; what holds in every leaf holds above."""
    leaf = spine.depth - 1
    for rule in (rule for rule in rules if rule.sign != "="):
        shown: list[str] = []
        wrong = 0
        for areas in blocks(spine.areas(leaf), _AT_ONCE):
            truth, bound = counts.answers(rule.query, areas), rule.values(spine, leaf, areas)
            rows, cells = np.nonzero(rule.broken_by(truth, bound))
            wrong += rows.size
            for row, cell in zip(rows[: _SHOWN - len(shown)].tolist(), cells.tolist(), strict=False):
                place = f"{spine.names[leaf]} {spine.geocodes[leaf][areas[row]]}"
                least = "at least" if rule.sign == ">=" else "at most"
                what = schema.cell_name(rule.query, cell)
                shown.append(
                    f"{place} has {truth[row, cell]:,} with {what}, and {least} {bound[row, cell]:,} are possible"
                )
        if wrong:
            yield Problem(
                what=f"the file breaks it {number(wrong, 'time')}: {'; '.join(shown)}",
                public="the file breaks it",
                where=f"rule {rule.name}",
                remedy=f"correct the {plural(unit)} or the facilities, or leave the rule out",
            )


def _by_facilities(design: TopDownDesign, data: Microdata, spine: Spine) -> Iterator[Rule]:
    """Yield that a facility has somebody in it, and at most so many; those of ``empty`` codes may have nobody."""
    given = design.settings.facilities
    assert given is not None
    attribute = next(each for each in design.persons.schema.attributes if each.name == given.attribute)
    own = Schema(name="facilities", attributes=(Attribute(name=attribute.name, codes=attribute.codes),))
    file = RecordFile(data=data, of_units=True)
    counts = Counts.of(file.leaves(spine), file.places(attribute, given.column), areas=spine.areas(spine.depth - 1))
    least = np.array([code not in given.empty for code in attribute.codes], dtype=np.int64)
    signs: tuple[tuple[str, Sign, int | Integers], ...] = (("lb", ">=", least), ("ub", "<=", given.most))
    for bound, sign, times in signs:
        yield Rule(
            name=f"{attribute.name}_total_{bound}_con",
            query=design.persons.schema.query(attribute.name),
            sign=sign,
            depths=tuple(range(spine.depth)),
            source=counts,
            source_query=own.query(attribute.name),
            times=times,
        )


# ---- an earlier release -----------------------------------------------------------------------------------


def agreement(settings: CountSettings, schema: Schema, spine: Spine) -> Rule | None:
    """Return that the counts of an earlier release are kept in all areas; None where none is named."""
    if settings.agrees_with is None:
        return None
    with placed(_WHERE):
        table = settings.agrees_with.expected.frame
    assert table is not None
    own = _earlier_schema(settings, schema, table.columns)
    earlier = _earlier_counts(table, own, spine)
    return Rule(
        name=AGREES,
        query=schema.query(" * ".join(own.names)),
        sign="=",
        depths=tuple(range(spine.depth)),
        source=earlier,
        source_query=own.query("detailed"),
    )


def _earlier_schema(settings: CountSettings, schema: Schema, columns: Sequence[str]) -> Schema:
    """Return the schema of the earlier counts: its columns are attributes of the later one, or groupings of them."""
    problems = [
        Problem(what=f"it has no column '{name}'", where=_WHERE, remedy=f"it has {listed(columns)}")
        for name in ("geocode", "count")
        if name not in columns
    ]
    there = [name for name in columns if name not in ("geocode", "count")]
    kept: list[Attribute] = []
    for attribute in schema.attributes:
        for name in (attribute.name, *attribute.groupings):
            if name not in there:
                continue
            there.remove(name)
            groups = max(attribute.groups("detailed" if name == attribute.name else name)) + 1
            codes = settings.agreed_codes.get(name, attribute.codes if name == attribute.name else ())
            if len(codes) == groups:
                kept.append(Attribute(name=name, codes=tuple(codes)))
                continue
            what = f"'{name}' has {groups} groups here, and {number(len(codes), 'code')} of then is given for them"
            remedy = f'write agreed_codes = {{ {name} = ["...", "..."] }}: the code that each group had, in order'
            problems.append(Problem(what=what, where=f"{_WHERE} {name}", remedy=remedy))
    for name in there:
        factors = [each for a in schema.attributes for each in (a.name, *a.groupings)]
        remedy = f"name an attribute or a grouping like it; there are {listed(factors)}"
        problems.append(Problem(what=f"'{name}' is not counted here", where=f"{_WHERE} {name}", remedy=remedy))
    if problems:
        raise PlanError(problems)
    return Schema(name="earlier", attributes=tuple(kept))


def _earlier_counts(frame: pl.DataFrame, own: Schema, spine: Spine) -> Counts:
    """Return the counts of the leaves."""
    problems = []
    found = Entries.of(frame, own, spine.geocodes[-1].cast(pl.String).to_list())
    codes = {attribute.name: attribute.codes for attribute in own.attributes}
    for name, strange in found.strange.items():
        other = listed(strange[:3])
        if name in codes:
            what = f"it has {other}, which is none of the codes"
            remedy = f"say with agreed_codes which codes it had; taken were {listed(codes[name][:9])}"
        else:
            what = f"it counts in areas that are not among the {spine.names[-1]}s of this release, such as {other}"
            remedy = "give both releases the same areas"
        problems.append(Problem(what=what, where=f"{_WHERE} {name}", remedy=remedy))
    counts = frame["count"].cast(pl.Int64, strict=False)
    if counts.null_count() or (counts < 0).any():
        remedy = "name the counts of a release that made records"
        problems.append(Problem(what="it has counts that are not whole numbers", where=_WHERE, remedy=remedy))
    if problems:
        raise DataError(problems)
    return Counts.of(found.area, found.cell, counts.to_numpy(), areas=spine.areas(spine.depth - 1))


def disagreements(schema: Schema, rules: Sequence[Rule], spine: Spine, *, unit: str) -> Iterator[Problem]:
    """Yield what the earlier counts contradict; where nothing is, records that agree exist whatever is drawn.

    Given the earlier counts, the cells of a leaf split into one transport problem for each earlier cell (section 6);
    each is feasible if some cell of it may be filled. Bounds must say something of earlier cells alone.
    """
    earlier = next((rule for rule in rules if rule.name == AGREES), None)
    if earlier is None:
        return
    for rule in rules:
        if rule.source is not None and rule is not earlier:
            yield from _against(earlier, rule, spine, unit=unit)
    barred = np.zeros(schema.size, dtype=np.bool_)
    for rule in rules:
        if rule.source is None:
            barred |= (np.zeros(rule.query.size) + rule.plus == 0)[rule.query.cell_of]
    impossible = np.ones(earlier.query.size, dtype=np.bool_)
    impossible[earlier.query.cell_of[~barred]] = False
    if lost := int(earlier.values(spine, 0, range(1))[0, impossible].sum()):
        what = f"{number(lost, unit)} of then would have no cell: structural zeros leave none for them"
        yield Problem(what=what, where=_WHERE, remedy="leave out a zero, or correct agreed_codes")


def _against(earlier: Rule, rule: Rule, spine: Spine, *, unit: str) -> Iterator[Problem]:
    """Yield where the earlier counts break a total or a bound."""
    if not coarsens(rule.query, earlier.query):
        what = f"{rule.name} bounds what the earlier counts do not tell apart, so records may be unable to keep both"
        yield Problem(what=what, where=_WHERE, remedy="name a table that counts the attribute of the facilities")
        return
    inside = np.zeros(earlier.query.size, dtype=np.int64)  # for each earlier cell the cell that it is in
    inside[earlier.query.cell_of] = rule.query.cell_of
    for depth in rule.depths:
        for areas in blocks(spine.areas(depth), _AT_ONCE):
            then = np.zeros((len(areas), rule.query.size), dtype=np.int64)
            np.add.at(then.T, inside, earlier.values(spine, depth, areas).T)
            bound = rule.values(spine, depth, areas)
            for row, cell in np.argwhere(rule.broken_by(then, bound))[:1].tolist():
                code = spine.geocodes[depth][areas[row]]
                place = f"{spine.names[depth]} {code}" if code else "the whole"
                yield Problem(
                    what=f"{place} had {number(int(then[row, cell]), unit)} then, and {rule.name} asks for "
                    f"{rule.sign} {bound[row, cell]:,}",
                    public="earlier counts and what is published exactly now contradict each other",
                    where=_WHERE,
                    remedy="release from the same file with the same totals and facilities, or leave this total out",
                )
                return
