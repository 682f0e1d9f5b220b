"""A later, more detailed release that agrees with one already published: H(Z) = P in every area.

P is public: the counts of an earlier release, cell by cell in every leaf. H adds the cells of the later schema up to
those of the earlier one. P is neither a measurement nor a fact about the confidential file, which need not agree with
it; it binds the records alone. Everything that could keep them from agreeing is looked at before any noise is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from stirred.data.problems import DataError, PlanError, listed, number
from stirred.mechanisms.protocol import ReleasedTable
from stirred.mechanisms.topdown.known import Rule
from stirred.mechanisms.topdown.schema import Attribute, Query, Schema
from stirred.mechanisms.topdown.settings import CountedSettings
from stirred.mechanisms.topdown.solve.limits import coarsens
from stirred.mechanisms.topdown.spine import Counted, Spine
from stirred.mechanisms.topdown.store import AGREES
from stirred.spec.compose import compose
from stirred.spec.problems import Problem, StirredError, placed
from stirred.spec.specification import Specification

_WHERE: Final = "agrees_with"
_AT_ONCE: Final = 1 << 14


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
    said = [f"the loss is that of this draw ({own.budget_text}) and of an earlier release: {t.named}" for t in earlier]
    return replace(both, assumptions=(*both.assumptions, *said))


def agreement(settings: CountedSettings, schema: Schema, spine: Spine) -> Rule | None:
    """Return that the counts of an earlier release are kept in all areas; None where none is named."""
    if settings.agrees_with is None:
        return None
    with placed(_WHERE):
        table = settings.agrees_with.expected.frame
    assert table is not None
    own = _earlier_schema(settings, schema, table.columns)
    leaf, cells, counts = _earlier_counts(table, own, spine)
    earlier = Counted.of(spine, np.repeat(leaf, counts), np.repeat(cells, counts))
    return Rule(
        name=AGREES,
        query=schema.query(" * ".join(own.names)),
        sign="=",
        depths=tuple(range(spine.depth)),
        source=earlier,
        asked=own.query("detailed"),
    )


def _earlier_schema(settings: CountedSettings, schema: Schema, columns: Sequence[str]) -> Schema:
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


def _earlier_counts(
    frame: pl.DataFrame, own: Schema, spine: Spine
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], ...]:
    """Return leaf, cell and count of every row."""
    problems = []
    leaves = spine.geocodes[-1].cast(pl.String).to_list()
    leaf = _places(frame["geocode"].cast(pl.String).fill_null(""), leaves)
    if np.any(leaf < 0):
        other = frame["geocode"].gather(np.flatnonzero(leaf < 0)).unique().sort().head(3).to_list()
        what = f"it counts in areas that are not among the {spine.names[-1]}s of this release, such as {listed(other)}"
        problems.append(Problem(what=what, where=f"{_WHERE} geocode", remedy="give both releases the same areas"))
    cells = np.zeros(frame.height, dtype=np.int32)
    for attribute in own.attributes:
        code = _places(frame[attribute.name].cast(pl.String), attribute.codes)
        if np.any(code < 0):
            other = frame[attribute.name].gather(np.flatnonzero(code < 0)).unique().sort().head(3).to_list()
            remedy = f"say with agreed_codes which codes it had; taken were {listed(attribute.codes[:9])}"
            what = f"it has {listed([str(each) for each in other])}, which is none of the codes"
            problems.append(Problem(what=what, where=f"{_WHERE} {attribute.name}", remedy=remedy))
        cells = cells * attribute.size + code
    counts = frame["count"].cast(pl.Int64, strict=False)
    if counts.null_count() or (counts < 0).any():
        remedy = "name the counts of a release that made records"
        problems.append(Problem(what="it has counts that are not whole numbers", where=_WHERE, remedy=remedy))
    if problems:
        raise DataError(problems)
    return leaf, cells, counts.to_numpy().astype(np.int32)


def _places(texts: pl.Series, codes: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    found = texts.replace_strict([*codes], [*range(len(codes))], default=-1, return_dtype=pl.Int32)
    return found.to_numpy()


def disagreements(schema: Schema, rules: Sequence[Rule], spine: Spine, *, unit: str) -> Iterator[Problem]:
    """Yield what the earlier counts contradict; where nothing is, records that agree exist whatever is drawn.

    Given the earlier counts, the cells of a leaf split into one transport problem for each earlier cell (section 6);
    each is feasible if some cell of it may be filled. Bounds must say something of earlier cells alone.
    """
    earlier = next((rule for rule in rules if rule.name == AGREES), None)
    if earlier is None:
        return
    barred = np.zeros(schema.size, dtype=np.bool_)
    for rule in rules:
        if rule.source is None:
            barred |= (np.zeros(rule.query.size) + rule.plus == 0)[rule.query.cell_of]
        elif rule is not earlier:
            yield from _against(earlier, rule, spine, unit=unit)
    possible = np.zeros(earlier.query.size, dtype=np.bool_)
    possible[earlier.query.cell_of[~barred]] = True
    if lost := int(earlier.values(0, range(1))[0, ~possible].sum()):
        what = f"{number(lost, unit)} of then would have no cell: structural zeros leave none for them"
        yield Problem(what=what, where=_WHERE, remedy="leave out a zero, or correct agreed_codes")


def _against(earlier: Rule, rule: Rule, spine: Spine, *, unit: str) -> Iterator[Problem]:
    """Yield where the earlier counts break a total or a bound."""
    if not coarsens(rule.query, earlier.query):
        what = f"{rule.name} bounds what the earlier counts do not tell apart, so records may be unable to keep both"
        yield Problem(what=what, where=_WHERE, remedy="name a table that counts the attribute of the facilities")
        return
    inside = _inside(rule.query, earlier.query)
    for depth in rule.depths:
        for start in range(0, spine.areas(depth), _AT_ONCE):
            areas = range(start, min(start + _AT_ONCE, spine.areas(depth)))
            then = np.zeros((len(areas), rule.query.size), dtype=np.int64)
            np.add.at(then.T, inside, earlier.values(depth, areas).T)
            bound = rule.values(depth, areas)
            wrong = {"=": then != bound, "<=": then > bound, ">=": then < bound}[rule.sign]
            for row, cell in np.argwhere(wrong)[:1].tolist():
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


def _inside(coarse: Query, fine: Query) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return for each cell of a query the cell of a coarser one that it is in."""
    found = np.zeros(fine.size, dtype=np.int64)
    found[fine.cell_of] = coarse.cell_of
    return found
