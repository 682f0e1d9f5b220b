"""Estimates of a hierarchy with their standard errors: of any query, cell, area, or union of areas off the spine;
and intervals from the exact law of the noise where an estimate is a sum of measured values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isclose
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.hierarchy.least_squares import (
    LevelEstimates,
    Residuals,
    Spreads,
    SubspaceModel,
    UpwardPass,
    at,
    downward,
    empty_cells,
    upward,
)
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery
from stirred.mechanisms.topdown.hierarchy.subspaces import (
    Parts,
    Spread,
    Subspace,
    added,
    merged,
    null_space,
    rooted,
)
from stirred.mechanisms.topdown.hierarchy.tree import (
    GroupLevel,
    GroupTotal,
    Level,
    Measurements,
    Numbers,
    Places,
    Tree,
    blocks,
    groups_inside,
    opened,
    regrouped,
)
from stirred.randomness.cell_law import half_width, variance_of

_LOST: Final = 1e-9
# A standard error is not told from zero below this share of the sum of its terms.
_ROUNDING: Final = 1e-11
COLUMNS: Final = ("geolevel", "area", "query_name", "cell", "estimate", "std_dev", "estimable")
ROWS_AT_ONCE: Final = 1 << 22
Load = dict[Subspace, Numbers] | None  # for each look a matrix (core cells, core cells); None is a whole area
_MOST_VALUES: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryEstimate:
    """Estimates (areas, cells of a query), their standard errors, and whether anything is known of them at all."""

    estimate: Numbers
    std_dev: Numbers
    estimable: npt.NDArray[np.bool_]

    def columns(self, at: Any = slice(None)) -> dict[str, pl.Series]:
        """Return the numbers of all cells, or of some, as they are written."""
        return {
            "estimate": pl.Series(self.estimate[at].ravel(), dtype=pl.Float64, nan_to_null=True),
            "std_dev": pl.Series(self.std_dev[at].ravel(), dtype=pl.Float64, nan_to_null=True),
            "estimable": pl.Series(self.estimable[at].ravel()),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeEstimates:
    """The best linear unbiased estimates of all areas of a tree."""

    up: UpwardPass
    by_level: tuple[LevelEstimates, ...]  # of the levels of the tree, from the top
    own: range  # the levels that this tree alone has; areas with trees of their own belong to these

    @property
    def model(self) -> SubspaceModel:
        return self.up.model

    @property
    def residuals(self) -> Residuals:
        return self.up.residuals

    def of(self, level: int, query: MarginalQuery, places: Places | None = None) -> QueryEstimate:
        """Return the estimates of a query in the areas at these places of a level."""
        estimates = self.by_level[level]
        places = np.arange(estimates.level.areas) if places is None else places
        used, kinds = np.unique(estimates.kinds[places], return_inverse=True)
        mean = {each: values[places] for each, values in estimates.mean.items()}
        spread = {look: known.take(used) for look, known in estimates.spread.items()}
        return query_estimate(self.model, query, mean, spread, kinds.reshape(-1))


def query_estimate(
    model: SubspaceModel, query: MarginalQuery, mean: Parts, spread: Spreads, kinds: Places
) -> QueryEstimate:
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
        noisy = (own > _ROUNDING * terms) & (unsure > _LOST * rows.sum(axis=1))
        variance[each] = np.where(noisy, own, 0.0) ** 2
        lost[each] = (unseen > _LOST * rows.sum(axis=1)).astype(np.float64)
    std_dev = np.sqrt(spaces.over_cells(query, variance))[kinds]
    estimable = (spaces.over_cells(query, lost) == 0)[kinds]
    return QueryEstimate(
        estimate=np.where(estimable, spaces.answers(query, mean), np.nan),
        std_dev=np.where(estimable, std_dev, np.nan),
        estimable=estimable,
    )


# ---- a tree, whole or in pieces ---------------------------------------------------------------------------


def estimate(tree: Tree, *, groups: Sequence[GroupTotal] = (), model: SubspaceModel | None = None) -> TreeEstimates:
    """Return the best linear unbiased estimates of a hierarchy in one piece.

    >>> from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
    >>> from stirred.mechanisms.topdown.hierarchy.tree import Answers
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
    model = model or SubspaceModel.of_trees([tree], groups)
    up = upward(model, regrouped(tree, groups))
    return _shown(up, downward(up))


def estimate_in_pieces(
    top: Tree, pieces: Callable[[], Iterable[Tree]], *, model: SubspaceModel, groups: Sequence[GroupTotal] = ()
) -> Iterator[TreeEstimates]:
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
        beneath[code] = at(passed.by_level[0], 0)
    up = upward(model, whole, beneath=beneath)
    del beneath
    finals = downward(up)
    yield _shown(up, finals, apart=1)
    place = {code: place for place, code in enumerate(top.levels[-1].geocodes)}
    for tree in pieces():
        code = tree.levels[0].geocodes[0]
        passed = upward(model, regrouped(tree, groups_inside(tree, groups)), empty=empty[code])
        yield _shown(passed, downward(passed, top=at(finals[-1], place[code])))


def _shown(up: UpwardPass, found: Iterable[LevelEstimates], *, apart: int = 0) -> TreeEstimates:
    by_level = tuple(estimates for estimates in found if not isinstance(estimates.level, GroupLevel))
    return TreeEstimates(up=up, by_level=by_level, own=range(len(by_level) - apart))


# ---- as they are written ----------------------------------------------------------------------------------


def estimates_of(
    source: Measurements,
    *,
    model: SubspaceModel | None = None,
    groups: Sequence[GroupTotal] = (),
    progress: Progress | None = None,
    stage: str = "estimate",
) -> Iterator[TreeEstimates]:
    """Yield the estimates of all areas, tree by tree."""
    top = source.top()
    if top is None:
        yield estimate(opened(next(iter(source.shards()))), groups=groups, model=model)
        return

    def shards() -> Iterator[Tree]:
        return map(opened, source.shards())

    model = model or SubspaceModel.of_trees([top, *shards()], groups)
    for done, found in enumerate(estimate_in_pieces(top, shards, model=model, groups=groups)):
        if progress is not None:
            progress(stage, done, top.levels[-1].areas)
        yield found


def estimate_frames(
    found: TreeEstimates, queries: Mapping[str, MarginalQuery], some: Callable[[Level, str], Places] | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the estimates of queries in all areas of a tree, or in some; one above all without a name is left out."""
    for depth in found.own:
        level = found.by_level[depth].level
        for name, query in queries.items() if level.name else ():
            places = np.arange(level.areas) if some is None else some(level, name)
            for block in blocks(len(places), max(1, ROWS_AT_ONCE // query.size)):
                own = places[block.start : block.stop]
                codes = [level.geocodes[place] for place in own.tolist()]
                yield estimate_frame(level.name, codes, name, found.of(depth, query, own))


def estimate_frame(level: str, areas: Sequence[str], name: str, found: QueryEstimate) -> pl.DataFrame:
    """Return the estimates of one query as they are written."""
    count, size = found.estimate.shape
    return pl.DataFrame(
        {
            "geolevel": pl.repeat(level, count * size, dtype=pl.String, eager=True),
            "area": pl.Series(areas, dtype=pl.String).gather(np.repeat(np.arange(count), size)),
            "query_name": pl.repeat(name, count * size, dtype=pl.String, eager=True),
            "cell": np.tile(np.arange(size), count),
            **found.columns(),
        },
    ).select(COLUMNS)


# ---- unions of areas --------------------------------------------------------------------------------------
# Unions of areas off the spine, such as a school district made of blocks: their estimates and standard errors.
#
# One upward sweep (section 4, with matrices): a union is a sum of areas with a loading matrix each. Given its parent, a
# sum of children with loadings is one matrix times the parent plus an independent remainder. The matrix becomes the
# loading of the parent, and the spread of the remainders is added up. An area that is inside as a whole passes its
# loading on without a remainder: the work grows with the boundary of a union.


@dataclass(slots=True, kw_only=True, eq=False)
class _Union:
    """A union on its way up."""

    mean: Parts
    left: dict[Subspace, Numbers]  # root of the covariance of the remainders
    blank: dict[Subspace, Numbers]  # where they are unknown
    size: dict[Subspace, float]  # of what was added before it cancelled out
    tops: dict[str, Load] = field(default_factory=dict)  # loadings of the tops of pieces
    found: set[str] = field(default_factory=set)

    def add(self, look: Subspace, loading: Numbers, known: Spread, *, size: Spread) -> None:
        """Add an independent part: a loading times what is known so; ``size`` is what cancelled out in it."""
        rows = np.concatenate([self.left[look].T, (loading @ known.root[0]).T])
        self.left[look] = rooted(rows[None], np.zeros(self.left[look].shape))[0]
        self.size[look] += float(np.linalg.norm(loading) * np.linalg.norm(size.root[0]))
        self.blank[look] += loading @ known.unknown[0] @ loading.T


class Unions:
    """Sums over areas by name: fed with the estimates of a tree, and of the pieces below it if there are any."""

    def __init__(self, model: SubspaceModel, members: Mapping[str, Sequence[str]]) -> None:
        cells, width = model.spaces.cells, model.spaces.width
        self._model = model
        self._of: dict[str, list[str]] = {}
        for name, codes in members.items():
            for code in {*codes}:
                self._of.setdefault(code, []).append(name)
        self._all = {
            name: _Union(
                mean={each: np.zeros((1, cells, width(each))) for each in model.seen},
                left={look: np.zeros((cells, cells)) for look in model.kinds},
                blank={look: np.zeros((cells, cells)) for look in model.kinds},
                size=dict.fromkeys(model.kinds, 0.0),
            )
            for name in members
        }
        self._top: TreeEstimates | None = None

    def add(self, piece: TreeEstimates) -> None:
        """Add what a piece has of the unions; the tree above the pieces comes first."""
        if self._top is None:
            self._top = piece
            return
        code = piece.by_level[0].level.geocodes[0]
        for name, load in self._swept(piece.up, [estimates.level for estimates in piece.by_level]).items():
            self._all[name].tops[code] = load

    def finish(self) -> None:
        """Add what the uppermost tree has of the unions: nothing is left after it."""
        top = self._top
        assert top is not None
        levels = [estimates.level for estimates in top.by_level]
        loads = self._swept(top.up, levels[: len(top.own)])
        root = top.by_level[0]
        for name, union in self._all.items():
            for look, matrix in self._whole(loads[name]).items():
                known = root.spread[look].take(root.kinds[:1])
                union.add(look, matrix, known, size=known)
            for each, values in root.mean.items():
                union.mean[each] += self._whole(loads[name])[self._model.like[each]] @ values[:1]

    def of(self, name: str, query: MarginalQuery) -> QueryEstimate:
        """Return the estimates of a query in a union."""
        union = self._all[name]
        spread = {}
        for look, left in union.left.items():
            unknown = np.eye(len(left)) - null_space(union.blank[look][None])
            vectors, values, _ = np.linalg.svd(left)
            root = vectors * np.where(values > _ROUNDING * union.size[look], values, 0.0)
            spread[look] = Spread(root=root[None], unknown=unknown, exact=np.zeros(unknown.shape))
        return query_estimate(self._model, query, union.mean, spread, np.zeros(1, dtype=np.int64))

    def _swept(self, up: UpwardPass, levels: Sequence[Level]) -> dict[str, Load]:
        """Return the loadings at the top of a tree, and add up means and remainders on the way."""
        loads: dict[str, dict[int, Load]] = {}
        for height in range(len(up.by_level) - 1, -1, -1):
            estimates = up.by_level[height]
            if any(estimates.level is level for level in levels):
                self._enter(estimates.level, loads)
            elif height == len(up.by_level) - 1:  # the tops of pieces
                place = {code: number for number, code in enumerate(estimates.level.geocodes)}
                for name, union in self._all.items():
                    loads[name] = {place[code]: load for code, load in union.tops.items()}
            if height:
                loads = {name: self._risen(self._all[name], estimates, own) for name, own in loads.items()}
        return {name: own[0] for name, own in loads.items() if 0 in own}

    def _enter(self, level: Level, loads: dict[str, dict[int, Load]]) -> None:
        """Begin with the members of unions at this level."""
        inside: dict[str, list[int]] = {}
        for place, code in enumerate(level.geocodes):
            for name in self._of.get(code, ()):
                if code not in self._all[name].found:
                    inside.setdefault(name, []).append(place)
        for name, places in inside.items():
            union = self._all[name]
            codes = [level.geocodes[place] for place in places]
            if twice := [code for place, code in zip(places, codes, strict=True) if place in loads.get(name, {})]:
                what = f"'{name}' has {listed(twice[:5])} and also areas inside it"
                raise bad_plan(what, where="areas", remedy="list every place once")
            union.found.update(codes)
            loads.setdefault(name, {}).update(dict.fromkeys(places))

    def _risen(self, union: _Union, estimates: LevelEstimates, loads: dict[int, Load]) -> dict[int, Load]:
        """Return the loadings of the level above."""
        parent = estimates.level.parent
        order = np.argsort(parent, kind="stable")
        found: dict[int, Load] = {}
        for above in sorted({int(parent[place]) for place in loads}):
            low, high = np.searchsorted(parent[order], [above, above + 1])
            children = order[low:high].tolist()
            if all(place in loads and loads[place] is None for place in children):
                found[above] = None
            else:
                found[above] = {look: self._chained(union, estimates, look, children, loads) for look in union.left}
        return found

    def _chained(
        self,
        union: _Union,
        estimates: LevelEstimates,
        look: Subspace,
        children: Sequence[int],
        loads: Mapping[int, Load],
    ) -> Numbers:
        """Return the loading of a parent of these children, which join one group after the other."""
        known = estimates.spread[look]
        groups = [*self._groups(look, children, loads)]
        loading, places = groups[0]
        so_far = added(known, [_counted(estimates, places)])
        for other, more in groups[1:]:
            joining = added(known, [_counted(estimates, more)])
            both = merged(joining, so_far)
            ahead = other - loading
            for each, values in estimates.mean.items():
                if self._model.like[each] == look:
                    own, before = values[more].sum(axis=0), values[places].sum(axis=0)
                    union.mean[each] += ahead @ (own - both.gain[0] @ (own + before))
            union.add(look, ahead, both.spread, size=joining)
            loading = loading + ahead @ both.gain[0]
            places = [*places, *more]
            so_far = added(known, [_counted(estimates, places)])
        return loading

    def _groups(
        self, look: Subspace, children: Sequence[int], loads: Mapping[int, Load]
    ) -> Iterator[tuple[Numbers, list[int]]]:
        """Yield children with the same loading: those outside, those inside, and each of the others."""
        one = np.eye(self._model.spaces.cells)
        if outside := [place for place in children if place not in loads]:
            yield np.zeros(one.shape), outside
        if inside := [place for place in children if place in loads and loads[place] is None]:
            yield one, inside
        for place in children:
            if (load := loads.get(place)) is not None:
                yield load[look], [place]

    def _whole(self, load: Load) -> dict[Subspace, Numbers]:
        return {look: np.eye(self._model.spaces.cells) for look in self._model.kinds} if load is None else load


def _counted(estimates: LevelEstimates, places: Sequence[int]) -> tuple[Places, Numbers]:
    kinds, counts = np.unique(estimates.kinds[[*places]], return_counts=True)
    return kinds, counts.astype(np.float64)


# ---- exact intervals --------------------------------------------------------------------------------------


def measured_sums(
    levels: Iterable[Level], members: Sequence[str], query: MarginalQuery, cell: int
) -> Iterator[tuple[float, int]]:
    """Yield the sums of measured values that make up a count in areas: the variance of each value, and how many.

    A sum that has the variance of the best linear unbiased estimate is that estimate, for there is only one.
    """
    wanted = query.cell_of == cell
    for level in levels:
        inside = [place for place, code in enumerate(level.geocodes) if code in {*members}]
        for answers in level.answers if len(inside) == len(members) else ():
            of, variances = answers.query.cell_of, np.unique(answers.variance[inside])
            cells = np.unique(of[wanted])
            if len(variances) == 1 and np.isfinite(variances[0]) and not np.isin(of[~wanted], cells).any():
                yield float(variances[0]), len(cells) * len(inside)


def half_width_of_sum(variance: float, many: int, confidence: float) -> int | None:
    """Return within what the sum of so much noise stays with this confidence; None where it has too many values.

    >>> half_width_of_sum(4.0, 1, 0.95)
    4
    """
    if many > _MOST_VALUES:
        return None
    return half_width(Fraction(_parameter(variance)), many, Fraction(confidence))


def _parameter(variance: float) -> float:
    """Return sigma squared of discrete Gaussian noise, which for narrow noise is more than its variance."""
    low, high = min(variance, 1.0) / 2, max(1.0, variance) * 1.1
    if variance > 1 and isclose(float(variance_of(Fraction(variance))), variance, rel_tol=1e-12):
        return variance
    while float(variance_of(Fraction(low))) > variance:
        low /= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(variance_of(Fraction(middle))) < variance else (low, middle)
    return (low + high) / 2
