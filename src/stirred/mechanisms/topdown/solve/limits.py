"""What the counts of an area must keep: cells that stay empty, bounds, totals; passed up so that parents respect them.

Look-ahead: an area holds at least what its children must hold together, and at most what they
may. For bounds on one partition this is all there is to know. Where totals of children are fixed as well, bounds on
unions of groups follow (Hall's condition, case 23), and the parent gets those that say more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.schema import TOTAL, Query, Schema
from stirred.mechanisms.topdown.solve.grid import Flags, Grid, Places
from stirred.mechanisms.topdown.tree import GroupTotal, Known, Level, Tree

NO_LIMIT: Final = 1 << 40
_MOST_UNIONS: Final = 10
_PUBLISHED_NO_LIMIT: Final = (1 << 31) - 1


def is_bound(values: Places) -> Flags:
    """Say which values of a constraint bound anything, other than cells that stay empty."""
    return (values > 0) & (values < _PUBLISHED_NO_LIMIT)


def coarsens(one: Query, two: Query) -> bool:
    """Say whether the cells of one query are unions of those of another.

    >>> from stirred.mechanisms.topdown.schema import Attribute, Schema
    >>> a, b = (Attribute(name=name, codes=("1", "2")) for name in "ab")
    >>> toy = Schema(name="toy", attributes=(a, b))
    >>> coarsens(toy.query("a"), toy.query("a * b")), coarsens(toy.query("a"), toy.query("b"))
    (True, False)
    """
    return all(
        len({*zip(fine, coarse, strict=True)}) == len({*fine})
        for coarse, fine in zip(one.groups, two.groups, strict=True)
    )


def _margin(schema: Schema, measured: Sequence[Query], levels: Sequence[Level]) -> Query | None:
    """Return the finest query that is known exactly in all areas, if it keeps attributes otherwise exchangeable.

    Everything else that is known exactly must follow from it; or else all of it is bounds from both sides.
    """
    known = [each for level in levels for each in level.known]
    exact = [*dict.fromkeys(each.query for each in known if each.sign == "=")]
    rest = [each.query for each in known if each.sign != "="]
    exchangeable = Grid.of(schema, measured, rest).exchangeable
    finest = max(exact, key=lambda each: each.size, default=None)
    if finest is None or not any(max(finest.groups[axis]) > 0 for axis in exchangeable):
        return None
    everywhere = all(
        any(each.sign == "=" and each.query == finest and each.given.all() for each in level.known) for level in levels
    )
    return finest if everywhere and all(coarsens(each, finest) for each in exact) else None


def implied(known: Known, margin: Query | None) -> bool:
    """Say whether something that is known follows from a margin that is."""
    return margin is not None and known.sign == "=" and coarsens(known.query, margin)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """The queries on which there are limits; group 0 is the total, then the groups of each query in turn."""

    grid: Grid
    queries: tuple[Query, ...]
    groups: Flags  # (groups, a): which rows of the grid a group counts
    of_query: Places  # for each group its query, -1 for the total
    bounded: tuple[bool, ...] = ()  # for each query whether it has bounds other than cells that stay empty
    margin: Query | None = None  # that is known exactly and keeps exchangeable attributes: an earlier release

    @classmethod
    def of(cls, trees: Iterable[Tree], *, queries: Iterable[Query] = ()) -> Rules:
        """Return the rules of trees that belong together; ``queries`` are measured elsewhere."""
        levels = [(tree.schema, level) for tree in trees for level in tree.levels]
        schema = levels[0][0]
        measured = [*queries, *(each.query for _, level in levels for each in level.answers)]
        known = [each for _, level in levels for each in level.known]
        total = schema.query(TOTAL)
        # The lowest level of the areas above shards has nothing: what is known there belongs to the shards.
        margin = _margin(schema, measured, [level for _, level in levels if level.answers or level.known])
        limited = tuple(
            dict.fromkeys(each.query for each in known if each.query != total and not implied(each, margin))
        )
        bounded = {each.query for each in known if each.sign == ">=" or np.any(is_bound(np.asarray(each.values)))}
        asked = [*measured, *([] if margin is None else [margin])]
        grid = Grid.of(schema, [*dict.fromkeys(asked)], limited)
        groups, of_query = [np.ones((1, grid.height), dtype=np.bool_)], [np.array([-1])]
        for place, query in enumerate(limited):
            rows = grid.rows_of(query)
            groups.append(rows[None, :] == np.arange(rows.max() + 1)[:, None])
            of_query.append(np.full(rows.max() + 1, place))
        return cls(
            grid=grid,
            queries=limited,
            groups=np.concatenate(groups),
            of_query=np.concatenate(of_query).astype(np.int64),
            bounded=tuple(query in bounded for query in limited),
            margin=margin,
        )

    def place(self, query: Query) -> slice:
        """Return where the groups of a query stand."""
        if query.size == 1:
            return slice(0, 1)
        own = np.flatnonzero(self.of_query == self.queries.index(query))
        return slice(int(own[0]), int(own[-1]) + 1)

    def named(self, group: int) -> str:
        """Return what a group counts, in words."""
        if group == 0:
            return "all records"
        query = self.queries[self.of_query[group]]
        cell = group - self.place(query).start
        words = []
        for attribute, kept, size, groups in zip(
            self.grid.schema.attributes, query.kept, query.shape, query.groups, strict=True
        ):
            if size > 1:
                code = np.unravel_index(cell, query.shape)[self.grid.schema.names.index(attribute.name)]
                members = [c for c, g in zip(attribute.codes, groups, strict=True) if g == code]
                words.append(f"{attribute.name if kept == 'detailed' else kept} {'/'.join(members)}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """The limits of the areas of a level: rows of the grid that may be filled, and the least and most of each group."""

    allowed: Flags  # (areas, a)
    low: Places  # (areas, groups)
    high: Places
    margin: Places | None = None  # (areas, cells of the margin), -1 where it is not known

    def take(self, rows: slice | Places) -> Limits:
        """Return the limits of some areas."""
        margin = None if self.margin is None else self.margin[rows]
        return Limits(allowed=self.allowed[rows], low=self.low[rows], high=self.high[rows], margin=margin)

    @property
    def totals(self) -> Places:
        """Return the totals that are known, else -1."""
        return np.where(self.low[:, 0] == self.high[:, 0], self.low[:, 0], -1)


def limits_of(rules: Rules, level: Level) -> Limits:
    """Return what is said of the areas of a level themselves."""
    found = Limits(
        allowed=np.ones((level.areas, rules.grid.height), dtype=np.bool_),
        low=np.zeros((level.areas, len(rules.groups)), dtype=np.int64),
        high=np.full((level.areas, len(rules.groups)), NO_LIMIT, dtype=np.int64),
    )
    margin = None if rules.margin is None else np.full((level.areas, rules.margin.size), -1, dtype=np.int64)
    for known in level.known:
        given = known.given[:, None]
        values = np.asarray(known.values, dtype=np.int64)
        if margin is not None and known.sign == "=" and known.query == rules.margin:
            margin[known.given] = values[known.given]
            found.low[:, 0] = np.where(known.given, np.maximum(found.low[:, 0], values.sum(axis=1)), found.low[:, 0])
            found.high[:, 0] = np.where(known.given, np.minimum(found.high[:, 0], values.sum(axis=1)), found.high[:, 0])
        if implied(known, rules.margin) and known.query.size > 1:
            continue
        at = rules.place(known.query)
        if known.sign != ">=":
            most = np.where(values >= _PUBLISHED_NO_LIMIT, NO_LIMIT, values)
            found.high[:, at] = np.where(given, np.minimum(found.high[:, at], most), found.high[:, at])
        if known.sign != "<=":
            found.low[:, at] = np.where(given, np.maximum(found.low[:, at], values), found.low[:, at])
    return _emptied(rules, replace(found, margin=margin))


def _emptied(rules: Rules, limits: Limits) -> Limits:
    """Return limits with nobody in groups of at most 0, and at most 0 in groups where nobody may be."""
    allowed = limits.allowed & ~((limits.high <= 0).astype(np.float64) @ rules.groups.astype(np.float64) > 0)
    nobody = (allowed.astype(np.float64) @ rules.groups.T.astype(np.float64)) == 0
    return replace(limits, allowed=allowed, high=np.where(nobody, 0, limits.high))


def tightened(rules: Rules, limits: Limits) -> Limits:
    """Return limits with those that follow from totals and the groups of each query together.

    A problem with the limits as they were has the same solutions; only what is passed up must have all.
    """
    limits = _emptied(rules, limits)
    low, high = limits.low.copy(), limits.high.copy()
    for query in range(len(rules.queries)):
        own = np.flatnonzero(rules.of_query == query)
        least, most = low[:, own].sum(axis=1), high[:, own].sum(axis=1)
        low[:, 0] = np.maximum(low[:, 0], least)
        high[:, 0] = np.minimum(high[:, 0], np.minimum(most, NO_LIMIT))
        rest = np.where(high[:, 0] < NO_LIMIT, high[:, 0] - least, NO_LIMIT)
        follows = low[:, :1] - (most[:, None] - high[:, own]), rest[:, None] + low[:, own]
        low[:, own] = np.maximum(low[:, own], follows[0])
        high[:, own] = np.minimum(high[:, own], follows[1])
    return _emptied(rules, replace(limits, low=low, high=high))


def passed_up(rules: Rules, own: Limits, below: Limits, parent: Places) -> Limits:
    """Return the limits of areas with those that follow from their children."""
    areas = len(own.low)
    allowed = np.zeros(own.allowed.shape, dtype=np.bool_)
    np.logical_or.at(allowed, parent, below.allowed)
    low, high = np.zeros((areas, len(rules.groups)), np.int64), np.zeros((areas, len(rules.groups)), np.int64)
    np.add.at(low, parent, below.low)
    np.add.at(high, parent, below.high)
    childless = np.bincount(parent, minlength=areas) == 0
    return _emptied(
        rules,
        replace(
            own,
            allowed=own.allowed & (allowed | childless[:, None]),
            low=np.maximum(own.low, low),
            high=np.minimum(own.high, np.where(childless[:, None], NO_LIMIT, np.minimum(high, NO_LIMIT))),
        ),
    )


def limits_up(
    rules: Rules, levels: Sequence[Level], *, beneath: Limits | None = None, groups: Sequence[GroupTotal] = ()
) -> list[Limits]:
    """Return the limits of all levels from the top; ``beneath`` are those of the lowest from trees of their own."""
    found: list[Limits] = []
    for place in range(len(levels) - 1, -1, -1):
        own = limits_of(rules, levels[place])
        if not found and beneath is not None:
            own = beneath
        own = _with_totals(own, levels[place], groups)
        if found:
            below = _as_sums(tightened(rules, found[0]), levels[place + 1], groups)
            own = passed_up(rules, own, below, levels[place + 1].parent)
        found.insert(0, own)
    return found


def _with_totals(limits: Limits, level: Level, groups: Sequence[GroupTotal]) -> Limits:
    """Return limits with the totals that are known of one area."""
    alone = {each.members[0]: each.value for each in groups if each.level == level.name and len(each.members) == 1}
    if not alone:
        return limits
    low, high = limits.low.copy(), limits.high.copy()
    for place, code in enumerate(level.geocodes):
        if code in alone:
            low[place, 0], high[place, 0] = max(low[place, 0], alone[code]), min(high[place, 0], alone[code])
    return replace(limits, low=low, high=high)


def _as_sums(limits: Limits, level: Level, groups: Sequence[GroupTotal]) -> Limits:
    """Return limits whose sums over areas are right where totals are known of groups of areas.

    The total of a group stands with its first member. All members have one parent.
    """
    places = {code: place for place, code in enumerate(level.geocodes)}
    low, high = limits.low.copy(), limits.high.copy()
    for each in groups:
        members = [places[code] for code in each.members if code in places]
        if each.level == level.name and len(members) > 1:
            low[members, 0], high[members, 0] = 0, 0
            low[members[0], 0] = high[members[0], 0] = each.value
    return replace(limits, low=low, high=high)


def joined(parts: Sequence[Limits]) -> Limits:
    """Return the limits of areas one after the other."""
    margins = [each.margin for each in parts]
    return Limits(
        allowed=np.concatenate([each.allowed for each in parts]),
        low=np.concatenate([each.low for each in parts]),
        high=np.concatenate([each.high for each in parts]),
        margin=None
        if any(each is None for each in margins)
        else np.concatenate([each for each in margins if each is not None]),
    )


def contradictions(rules: Rules, level: Level, limits: Limits) -> Iterator[str]:
    """Yield in words where an area would have to hold more than it may."""
    for area, group in np.argwhere(limits.low > limits.high)[:5]:
        yield (
            f"{level.name} {level.geocodes[area]!r} must hold at least {limits.low[area, group]:,} and at most "
            f"{limits.high[area, group]:,} ({rules.named(int(group))})"
        )


def margins_off(level: Level, own: Limits, below: Limits, parent: Places) -> Iterator[str]:
    """Yield in words where the margins of areas do not add up to that of the area around them."""
    if own.margin is None or below.margin is None:
        return
    sums = np.zeros(own.margin.shape, dtype=np.int64)
    np.add.at(sums, parent, below.margin)
    complete = np.all(own.margin >= 0, axis=1) & (np.bincount(parent, minlength=len(sums)) > 0)
    for area in np.flatnonzero(np.any(sums != own.margin, axis=1) & complete)[:5]:
        yield f"margins published of the areas inside {level.name} {level.geocodes[area]!r} do not add up to its own"


def unions(rules: Rules, parent: Limits, children: Limits) -> Iterator[tuple[Flags, int]]:
    """Yield unions of groups of which a parent must hold more than its own limits say: rows of the grid, and how many.

    A child with the known total t holds at least t minus the most of all other groups (case 23). Both limits are
    tightened, and the parent's are one area's.
    """
    fixed = children.totals >= 0
    for query in range(len(rules.queries)):
        own = np.flatnonzero(rules.of_query == query)
        if not np.any(fixed) or not 2 < len(own) <= _MOST_UNIONS:
            continue
        for chosen in product((False, True), repeat=len(own)):
            some = np.array(chosen)
            if not 1 < some.sum() < len(own):
                continue
            inside, outside = own[some], own[~some]
            rest = np.where(fixed, children.low[:, 0] - children.high[:, outside].sum(axis=1), 0)
            needed = int(np.maximum(children.low[:, inside].sum(axis=1), rest).sum())
            implied = max(parent.low[0, inside].sum(), parent.low[0, 0] - parent.high[0, outside].sum())
            if needed > int(implied):
                yield rules.groups[inside].any(axis=0), needed


def with_unions(rules: Rules, limits: Limits, cuts: Sequence[tuple[Flags, int]]) -> tuple[Rules, Limits]:
    """Return rules and limits with lower bounds on unions of groups more."""
    if not cuts:
        return rules, limits
    groups = np.concatenate([rules.groups, np.array([rows for rows, _ in cuts])])
    more = np.tile(np.array([least for _, least in cuts], dtype=np.int64), (len(limits.low), 1))
    wide = replace(
        limits,
        low=np.concatenate([limits.low, more], axis=1),
        high=np.concatenate([limits.high, np.full(more.shape, NO_LIMIT)], axis=1),
    )
    of_query = np.concatenate([rules.of_query, np.full(len(cuts), -2)])
    return replace(rules, groups=groups, of_query=of_query), wide
