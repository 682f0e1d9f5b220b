"""What is published without noise: totals, structural zeros, bounds by facilities; all checked before noise is drawn.

All of it is a function of invariants: totals of records, and numbers of facilities in each leaf. A file that keeps all
rules shows that they can be kept together; where it does not, the rules that no file can keep are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import listed, number
from stirred.mechanisms.topdown.schema import Query, Schema
from stirred.mechanisms.topdown.spine import Counted, Records, Spine
from stirred.mechanisms.topdown.tree import Sign
from stirred.spec.invariant import plural
from stirred.spec.problems import Problem

Integers = npt.NDArray[np.int64]
NO_BOUND: Final = (1 << 31) - 1
_AT_ONCE: Final = 1 << 14
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """Something known of a query at some levels: counts of ``source`` times ``times``, plus ``plus``, cell by cell."""

    name: str  # in published files
    query: Query
    sign: Sign
    depths: tuple[int, ...]
    source: Counted | None = None
    asked: Query | None = None  # of the source
    times: int | Integers = 1
    plus: int | Integers = 0

    def values(self, depth: int, areas: range) -> Integers:
        """Return what is known in some areas of a level (areas, cells of the query)."""
        return self.of(None if self.source is None else self.source.records(depth, areas), range(len(areas)))

    def of(self, records: Records | None, areas: range) -> Integers:
        """Return what is known in some areas, given the records of the source in them."""
        if records is None or self.asked is None:
            return np.zeros((len(areas), self.query.size), dtype=np.int64) + self.plus
        return records.answers(self.asked, areas) * self.times + self.plus


def totals(counted: Counted, schema: Schema, depths: Sequence[int]) -> Rule:
    """Return that the totals of some levels are known."""
    query = schema.query("total")
    return Rule(name="total_con", query=query, sign="=", depths=tuple(depths), source=counted, asked=query)


def zeros(schema: Schema, when: Mapping[str, Sequence[str]], spine: Spine) -> Rule:
    """Return that no record has one of these codes of each attribute: an upper bound of 0, and none elsewhere."""
    query = schema.query(" * ".join(when))
    barred = [[a.codes.index(code) for code in when[a.name]] if a.name in when else [0] for a in schema.attributes]
    bound = np.full(query.shape, NO_BOUND, dtype=np.int64)
    bound[np.ix_(*barred)] = 0
    depths = tuple(range(spine.depth))
    return Rule(name=f"{'_'.join(when)}_0_con", query=query, sign="<=", depths=depths, plus=bound.reshape(-1))


def by_facilities(
    schema: Schema, facilities: Counted, *, own: Schema, most: int, empty: Sequence[str]
) -> tuple[Rule, Rule]:
    """Return that a facility has somebody in it, and at most so many; those of ``empty`` codes may have nobody."""
    (attribute,) = own.attributes
    least = np.array([code not in empty for code in attribute.codes], dtype=np.int64)

    def rule(bound: str, sign: Sign, times: int | Integers) -> Rule:
        return Rule(
            name=f"{attribute.name}_total_{bound}_con",
            query=schema.query(attribute.name),
            sign=sign,
            depths=tuple(range(facilities.spine.depth)),
            source=facilities,
            asked=own.query(attribute.name),
            times=times,
        )

    return rule("lb", ">=", least), rule("ub", "<=", most)


def broken(counted: Counted, schema: Schema, rules: Sequence[Rule], *, unit: str) -> Iterator[Problem]:
    """Yield the rules that the file itself does not keep; what holds in every leaf holds above."""
    spine, leaf = counted.spine, counted.spine.depth - 1
    for rule in (rule for rule in rules if rule.sign != "="):
        shown: list[str] = []
        wrong = 0
        for areas in _blocks(spine.areas(leaf)):
            truth, bound = counted.answers(rule.query, leaf, areas), rule.values(leaf, areas)
            rows, cells = np.nonzero(truth < bound if rule.sign == ">=" else truth > bound)
            wrong += rows.size
            for row, cell in zip(rows[: _SHOWN - len(shown)].tolist(), cells.tolist(), strict=False):
                place = f"{spine.names[leaf]} {spine.geocodes[leaf][areas[row]]}"
                least = "at least" if rule.sign == ">=" else "at most"
                what = _cell(schema, rule.query, cell)
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


def contradictions(schema: Schema, rules: Sequence[Rule], spine: Spine) -> Iterator[Problem]:
    """Yield rules that no file at all can keep together, in words."""
    barred = np.zeros(schema.size, dtype=np.bool_)
    for rule in rules:
        if rule.source is None:
            barred |= (np.zeros(rule.query.size) + rule.plus == 0)[rule.query.cell_of]
    for lower in (rule for rule in rules if rule.sign == ">="):
        possible = np.zeros(lower.query.size, dtype=np.bool_)
        possible[lower.query.cell_of[~barred]] = True
        upper = [rule for rule in rules if rule.sign == "<=" and rule.source is not None and rule.query == lower.query]
        for cell in np.flatnonzero(~possible).tolist():
            if lower.values(0, range(1))[0, cell]:
                told = _cell(schema, lower.query, cell)
                what = f"facilities need somebody with {told}, and structural zeros leave no cell for it"
                yield Problem(
                    what=what, where=f"rule {lower.name}", remedy="leave out a zero, or correct the facilities"
                )
        for fixed in (rule for rule in rules if rule.sign == "="):
            yield from _totals_out_of_reach(fixed, lower, upper, possible, spine)


def _totals_out_of_reach(
    fixed: Rule, lower: Rule, upper: Sequence[Rule], possible: npt.NDArray[np.bool_], spine: Spine
) -> Iterator[Problem]:
    for depth in fixed.depths:
        for areas in _blocks(spine.areas(depth)):
            total = fixed.values(depth, areas)[:, 0]
            least = lower.values(depth, areas).sum(axis=1)
            most = np.full(len(areas), NO_BOUND)
            for rule in upper:
                most = np.minimum(most, rule.values(depth, areas)[:, possible].sum(axis=1))
            for row in np.flatnonzero((total < least) | (total > most))[:_SHOWN].tolist():
                what = (
                    f"{spine.names[depth]} {spine.geocodes[depth][areas[row]]}: its facilities need {least[row]:,} to "
                    f"{most[row]:,}, and its total is {total[row]:,}"
                )
                said = "the facilities of an area and its total contradict each other"
                remedy = "correct the facilities or the areas of the records"
                yield Problem(what=what, public=said, where=f"rules {lower.name}, {fixed.name}", remedy=remedy)


def _cell(schema: Schema, query: Query, cell: int) -> str:
    places = np.unravel_index(cell, query.shape)
    kept = [(a, int(place)) for a, place, size in zip(schema.attributes, places, query.shape, strict=True) if size > 1]
    return " and ".join(f"{attribute.name} {listed([attribute.codes[place]])}" for attribute, place in kept)


def _blocks(areas: int) -> Iterator[range]:
    for start in range(0, areas, _AT_ONCE):
        yield range(start, min(start + _AT_ONCE, areas))
