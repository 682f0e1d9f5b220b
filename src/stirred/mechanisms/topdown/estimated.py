"""Estimates of a hierarchy with their standard errors: of any query, cell, area, or union of areas off the spine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.estimates import (
    Floor,
    Model,
    Residuals,
    Spreads,
    Upward,
    at,
    downward,
    empty_cells,
    summary,
    upward,
)
from stirred.mechanisms.topdown.schema import TOTAL, Query
from stirred.mechanisms.topdown.subspaces import Parts
from stirred.mechanisms.topdown.tree import GroupTotal, Known, Level, Numbers, Places, Tree

_LOST: Final = 1e-9
# A standard error is not told from zero below this share of the sum of its terms.
ROUNDING: Final = 1e-11


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimated:
    """Estimates (areas, cells of a query), their standard errors, and whether anything is known of them at all."""

    estimate: Numbers
    std_dev: Numbers
    estimable: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """The best linear unbiased estimates of all areas of a tree."""

    up: Upward
    floors: tuple[Floor, ...]  # of the levels of the tree, from the top

    @property
    def model(self) -> Model:
        """Return the subspaces in which the estimates are kept."""
        return self.up.model

    @property
    def residuals(self) -> Residuals:
        """Return the residuals of the measurements of this tree."""
        return self.up.residuals

    def of(self, level: int, query: Query, places: Places | None = None) -> Estimated:
        """Return the estimates of a query in the areas at these places of a level."""
        floor = self.floors[level]
        places = np.arange(floor.level.areas) if places is None else places
        used, kinds = np.unique(floor.kinds[places], return_inverse=True)
        mean = {each: values[places] for each, values in floor.mean.items()}
        spread = {look: known.take(used) for look, known in floor.spread.items()}
        return estimated(self.model, query, mean, spread, kinds.reshape(-1))


def estimated(model: Model, query: Query, mean: Parts, spread: Spreads, kinds: Places) -> Estimated:
    """Return the estimates of a query, given means and, for kinds of areas, their spread."""
    spaces = model.spaces
    rows = spaces.rows(query)
    variance, lost = {}, {}
    for each in spaces.within(spaces.kept(query)):
        known = spread[model.like[each]]
        own = np.linalg.norm(rows @ known.root, axis=2)
        terms = np.linalg.norm(rows @ np.abs(known.root), axis=2)
        unsure, unseen = (
            np.einsum("ci,nij,cj->nc", rows, part, rows, optimize=True)
            for part in (np.eye(rows.shape[1]) - known.exact, known.unknown)
        )
        noisy = (own > ROUNDING * terms) & (unsure > _LOST * rows.sum(axis=1))
        variance[each] = np.where(noisy, own, 0.0) ** 2
        lost[each] = (unseen > _LOST * rows.sum(axis=1)).astype(np.float64)
    std_dev = np.sqrt(spaces.over_cells(query, variance))[kinds]
    estimable = (spaces.over_cells(query, lost) == 0)[kinds]
    return Estimated(
        estimate=np.where(estimable, spaces.answers(query, mean), np.nan),
        std_dev=np.where(estimable, std_dev, np.nan),
        estimable=estimable,
    )


# ---- a tree, whole or in pieces ---------------------------------------------------------------------------


def estimate(tree: Tree, *, groups: Sequence[GroupTotal] = (), model: Model | None = None) -> Estimates:
    """Return the best linear unbiased estimates of a hierarchy in one piece.

    >>> from stirred.mechanisms.topdown.schema import Attribute, Schema
    >>> from stirred.mechanisms.topdown.tree import Answers
    >>> toy = Schema(name="toy", attributes=(Attribute(name="all", codes=("1",)),))
    >>> total = toy.query("total")
    >>> def level(name, geocodes, values, variance):
    ...     noisy = Answers(query=total, values=np.array(values)[:, None], variance=np.full(len(values), variance))
    ...     return Level(name=name, geocodes=geocodes, parent=np.zeros(len(values), dtype=np.int64), answers=(noisy,))
    >>> tree = Tree(schema=toy, levels=(level("state", ("",), [10], 2.0), level("county", ("1", "2"), [3, 5], 4.0)))
    >>> found = estimate(tree)
    >>> found.of(1, total).estimate.ravel().round(6).tolist(), round(found.residuals.squares, 6)
    ([3.8, 5.8], 0.4)
    """
    model = model or Model.of_trees([tree], groups)
    up = upward(model, regrouped(tree, groups))
    return Estimates(up=up, floors=_shown(downward(up)))


def estimate_in_pieces(
    top: Tree, pieces: Callable[[], Iterable[Tree]], *, model: Model, groups: Sequence[GroupTotal] = ()
) -> Iterator[Estimates]:
    """Yield the estimates of the upper levels, then those of each piece: the same as in one piece.

    Each area of the lowest level of ``top`` is the top of one piece, and its measurements are there alone. ``pieces``
    is called twice, once for each pass; memory holds one piece at a time.
    """
    whole = regrouped(top, [each for each in groups if each.level in top.names])
    empty = dict(zip(top.levels[-1].geocodes, empty_cells(model, whole)[-1], strict=True))
    beneath = {}
    for tree in pieces():
        code = tree.levels[0].geocodes[0]
        passed = upward(model, regrouped(tree, groups_inside(tree, groups)), empty=empty[code])
        beneath[code] = summary(passed)
    up = upward(model, whole, beneath=beneath)
    del beneath
    finals = downward(up)
    yield Estimates(up=up, floors=_shown(finals))
    place = {code: place for place, code in enumerate(top.levels[-1].geocodes)}
    for tree in pieces():
        code = tree.levels[0].geocodes[0]
        passed = upward(model, regrouped(tree, groups_inside(tree, groups)), empty=empty[code])
        yield Estimates(up=passed, floors=_shown(downward(passed, top=at(finals[-1], place[code]))))


def groups_inside(tree: Tree, groups: Sequence[GroupTotal]) -> list[GroupTotal]:
    """Return the groups of areas below the top of a piece."""
    codes = {level.name: {*level.geocodes} for level in tree.levels[1:]}
    return [each for each in groups if each.members[0] in codes.get(each.level, ())]


class _Grouped(Level):
    """A level whose areas have parents in groups, in any order."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Take parents as they come."""


class _Groups(_Grouped):
    """Groups of areas between a level and the one above it."""

    __slots__ = ()


def _shown(floors: Iterable[Floor]) -> tuple[Floor, ...]:
    return tuple(floor for floor in floors if not isinstance(floor.level, _Groups))


def regrouped(tree: Tree, groups: Sequence[GroupTotal]) -> Tree:
    """Return the tree with an area for each group whose total is known, between its members and their parent."""
    levels: list[Level] = []
    unknown = sorted({each.level for each in groups} - {*tree.names})
    if unknown:
        raise bad_plan(f"there is no level {listed(unknown)}", where="totals", remedy=f"there are {listed(tree.names)}")
    for level in tree.levels:
        own = [each for each in groups if each.level == level.name]
        if own:
            between, level = _grouped(level, own, tree)
            levels.append(between)
        levels.append(level)
    return replace(tree, levels=tuple(levels))


def _grouped(level: Level, groups: Sequence[GroupTotal], tree: Tree) -> tuple[Level, Level]:
    place = {code: number for number, code in enumerate(level.geocodes)}
    group = np.full(level.areas, -1, dtype=np.int64)
    parents, values = [], []
    for number, each in enumerate(groups):
        where, remedy = f"totals of {listed(each.members)}", "give totals of groups that do not overlap"
        if absent := [code for code in each.members if code not in place]:
            raise bad_plan(
                f"{level.name} {listed(absent)} is not in the file", where=where, remedy="correct its members"
            )
        members = [place[code] for code in each.members]
        if np.any(group[members] >= 0) or len({*members}) != len(members):
            raise bad_plan(f"some {level.name} belongs to two groups", where=where, remedy=remedy)
        if len({*level.parent[members].tolist()}) > 1:
            what = (
                f"the members of the group have different parents, so that their total is not one of any {level.name}"
            )
            raise bad_plan(what, where=where, remedy="give the total of areas inside one parent, or of the parents")
        group[members] = number
        parents.append(level.parent[members[0]])
        values.append(each.value)
    alone = np.flatnonzero(group < 0)
    group[alone] = len(groups) + np.arange(len(alone))
    total = tree.schema.query(TOTAL)
    given = np.arange(len(groups) + len(alone)) < len(groups)
    known = Known(query=total, sign="=", values=np.array([*values, *[0] * len(alone)])[:, None], given=given)
    names = [*("+".join(each.members) for each in groups), *(level.geocodes[each] for each in alone)]
    between = _Groups(
        name=f"groups of {level.name}",
        geocodes=tuple(names),
        parent=np.array([*parents, *level.parent[alone]], dtype=np.int64),
        known=(known,),
    )
    below = _Grouped(name=level.name, geocodes=level.geocodes, parent=group, answers=level.answers, known=level.known)
    return between, below
