"""What is published without noise, and earlier counts that records agree with; all checked before noise is drawn.

Totals, structural zeros and bounds by facilities are functions of invariants: totals of records, and numbers of
facilities in each leaf. A file that keeps all rules shows that they can be kept together.

A later, more detailed release can agree with one already published: H(Z) = P in every area. P is public: the counts
of an earlier release, cell by cell in every leaf. H adds the cells of the later schema up to those of the earlier one.
P is neither a measurement nor a fact about the confidential file, which need not agree with it; it binds the records
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import DataError, PlanError, listed, number
from stirred.mechanisms.protocol import ReleasedTable
from stirred.mechanisms.topdown.hierarchy.counts import Counts, Entries, Integers
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import AGREES, NO_BOUND, Sign, blocks
from stirred.mechanisms.topdown.settings import CountSettings
from stirred.mechanisms.topdown.solve.problem import coarsens
from stirred.mechanisms.topdown.spine import Spine
from stirred.spec.composition import compose
from stirred.spec.invariant import plural
from stirred.spec.problems import Problem, StirredError, placed
from stirred.spec.specification import Specification

_AT_ONCE: Final = 1 << 14
_SHOWN: Final = 3


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


def by_facilities(
    schema: Schema, facilities: Counts, *, own: Schema, most: int, empty: Sequence[str], spine: Spine
) -> tuple[Rule, Rule]:
    """Return that a facility has somebody in it, and at most so many; those of ``empty`` codes may have nobody."""
    (attribute,) = own.attributes
    least = np.array([code not in empty for code in attribute.codes], dtype=np.int64)

    def rule(bound: str, sign: Sign, times: int | Integers) -> Rule:
        return Rule(
            name=f"{attribute.name}_total_{bound}_con",
            query=schema.query(attribute.name),
            sign=sign,
            depths=tuple(range(spine.depth)),
            source=facilities,
            source_query=own.query(attribute.name),
            times=times,
        )

    return rule("lb", ">=", least), rule("ub", "<=", most)


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


_WHERE: Final = "agrees_with"


def with_earlier(own: Specification, earlier: Sequence[ReleasedTable]) -> Specification:
    """Return the promise of this draw together with those of earlier releases, whose counts are published again."""
    promises = [table.promise for table in earlier if table.promise is not None]
    if not promises:
        return own
    try:
        both = compose([own, *promises]).specification
    except StirredError as error:
        raise PlanError(
            replace(problem, what=f"it cannot be put together with this release: {problem.what}", where=_WHERE)
            for problem in error.problems
        ) from None
    losses = [
        f"the loss is that of this draw ({own.budget_text}) and of an earlier release: {t.named}" for t in earlier
    ]
    return replace(both, assumptions=(*both.assumptions, *losses))


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
