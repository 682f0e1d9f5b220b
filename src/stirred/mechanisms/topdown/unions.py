"""Unions of areas off the spine, such as a school district made of blocks: their estimates and standard errors.

One upward sweep (section 4, with matrices): a union is a sum of areas with a loading matrix each. Given its parent, a
sum of children with loadings is one matrix times the parent plus an independent remainder. The matrix becomes the
loading of the parent, and the spread of the remainders is added up. An area that is inside as a whole passes its
loading on without a remainder: the work grows with the boundary of a union.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.estimates import (
    ROUNDING,
    Estimates,
    Floor,
    Model,
    QueryEstimate,
    Upward,
    query_estimate,
)
from stirred.mechanisms.topdown.schema import Query
from stirred.mechanisms.topdown.subspaces import Parts, Spread, Subspace, added, merged, null_space, rooted
from stirred.mechanisms.topdown.tree import Level, Numbers, Places

Load = dict[Subspace, Numbers] | None  # for each look a matrix (core cells, core cells); None is a whole area


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

    def __init__(self, model: Model, members: Mapping[str, Sequence[str]]) -> None:
        cells, width = model.spaces.cells, model.spaces.width
        self._model = model
        self._members = members
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
        self._top: Estimates | None = None
        self._in_pieces = False

    def add(self, piece: Estimates) -> None:
        """Add what a piece has of the unions; the tree above the pieces comes first."""
        if self._top is None:
            self._top = piece
            return
        self._in_pieces = True
        code = piece.floors[0].level.geocodes[0]
        for name, load in self._swept(piece.up, [floor.level for floor in piece.floors]).items():
            self._all[name].tops[code] = load

    def finish(self) -> None:
        """Add what the uppermost tree has of the unions: nothing is left after it."""
        top = self._top
        assert top is not None
        levels = [floor.level for floor in top.floors]
        loads = self._swept(top.up, levels[:-1] if self._in_pieces else levels)
        root = top.floors[0]
        for name, union in self._all.items():
            if absent := sorted({*self._members[name]} - union.found):
                raise bad_plan(
                    f"{listed(absent[:5])} of '{name}' is not in the file", where="areas", remedy="correct its geocodes"
                )
            for look, matrix in self._whole(loads[name]).items():
                known = root.spread[look].take(root.kinds[:1])
                union.add(look, matrix, known, size=known)
            for each, values in root.mean.items():
                union.mean[each] += self._whole(loads[name])[self._model.like[each]] @ values[:1]

    def of(self, name: str, query: Query) -> QueryEstimate:
        """Return the estimates of a query in a union."""
        union = self._all[name]
        spread = {}
        for look, left in union.left.items():
            unknown = np.eye(len(left)) - null_space(union.blank[look][None])
            vectors, values, _ = np.linalg.svd(left)
            root = vectors * np.where(values > ROUNDING * union.size[look], values, 0.0)
            spread[look] = Spread(root=root[None], unknown=unknown, exact=np.zeros(unknown.shape))
        return query_estimate(self._model, query, union.mean, spread, np.zeros(1, dtype=np.int64))

    def _swept(self, up: Upward, levels: Sequence[Level]) -> dict[str, Load]:
        """Return the loadings at the top of a tree, and add up means and remainders on the way."""
        loads: dict[str, dict[int, Load]] = {}
        for height in range(len(up.floors) - 1, -1, -1):
            floor = up.floors[height]
            if any(floor.level is level for level in levels):
                self._enter(floor.level, loads)
            elif self._in_pieces and height == len(up.floors) - 1:
                place = {code: number for number, code in enumerate(floor.level.geocodes)}
                for name, union in self._all.items():
                    loads[name] = {place[code]: load for code, load in union.tops.items()}
            if height:
                loads = {name: self._risen(self._all[name], floor, own) for name, own in loads.items()}
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

    def _risen(self, union: _Union, floor: Floor, loads: dict[int, Load]) -> dict[int, Load]:
        """Return the loadings of the level above."""
        parent = floor.level.parent
        order = np.argsort(parent, kind="stable")
        found: dict[int, Load] = {}
        for above in sorted({int(parent[place]) for place in loads}):
            low, high = np.searchsorted(parent[order], [above, above + 1])
            children = order[low:high].tolist()
            if all(place in loads and loads[place] is None for place in children):
                found[above] = None
            else:
                found[above] = {look: self._chained(union, floor, look, children, loads) for look in union.left}
        return found

    def _chained(
        self, union: _Union, floor: Floor, look: Subspace, children: Sequence[int], loads: Mapping[int, Load]
    ) -> Numbers:
        """Return the loading of a parent of these children, which join one group after the other."""
        known = floor.spread[look]
        groups = [*self._groups(look, children, loads)]
        loading, places = groups[0]
        so_far = added(known, [_counted(floor, places)])
        for other, more in groups[1:]:
            joining = added(known, [_counted(floor, more)])
            both = merged(joining, so_far)
            ahead = other - loading
            for each, values in floor.mean.items():
                if self._model.like[each] == look:
                    own, before = values[more].sum(axis=0), values[places].sum(axis=0)
                    union.mean[each] += ahead @ (own - both.gain[0] @ (own + before))
            union.add(look, ahead, both.spread, size=joining)
            loading = loading + ahead @ both.gain[0]
            places = [*places, *more]
            so_far = added(known, [_counted(floor, places)])
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


def _counted(floor: Floor, places: Sequence[int]) -> tuple[Places, Numbers]:
    kinds, counts = np.unique(floor.kinds[[*places]], return_counts=True)
    return kinds, counts.astype(np.float64)
