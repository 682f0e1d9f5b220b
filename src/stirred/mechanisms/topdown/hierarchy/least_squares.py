"""Best linear unbiased estimates over a hierarchy: two passes of generalised least squares, one subspace at a time.

Upward, what an area's children say of their sum is merged with its own measurements. Downward, every child is
conditioned on the best estimate of its parent (section 1.2 of the theory, with matrices in place of scalars).
Covariances depend on an area only through its *kind*: which variances it was measured with, what is known to be empty,
what is fixed, and the kinds of its children. They are computed once for each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.schema import TOTAL, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.subspaces import (
    LARGEST_CORE,
    Merger,
    Parts,
    Spread,
    Subspace,
    Subspaces,
    added,
    core_of,
    inverse_root,
    merged,
    null_space,
    rooted,
)
from stirred.mechanisms.topdown.hierarchy.tree import Constraint, Flags, GroupTotal, Level, Numbers, Places, Tree

Spreads = dict[Subspace, Spread]
Members = tuple[Places, Numbers]  # kinds of children, and how many there are of each
_AGREE: Final = 1e-6
_ROUNDING: Final = 1e-9
_SPREAD: Final = ("root", "unknown", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspaceModel:
    """The subspaces of a schema, and which of them look alike: those that the same queries see have one covariance."""

    spaces: Subspaces
    like: Mapping[Subspace, Subspace]
    seen: frozenset[Subspace]  # by any query; the others are zero where they are known at all

    @classmethod
    def of(cls, schema: Schema, *, queries: Iterable[MarginalQuery], known: Iterable[Constraint] = ()) -> SubspaceModel:
        """Return the model for all queries and all that is known, whatever the area."""
        asked = dict.fromkeys(queries)
        core, loose = core_of(schema, queries=asked), set[int]()
        for fact in known:
            if fact.sign == "=":
                asked[fact.query] = None
                core |= core_of(schema, queries=[fact.query])
                loose |= core_of(schema, queries=[], known=[fact])
            else:
                core |= core_of(schema, queries=[], known=[fact])
        # Zeros among fixed values also empty the areas inside, unless that would tie too many attributes together.
        if prod(schema.shape[place] for place in core | loose) <= LARGEST_CORE:
            core |= loose
        spaces = Subspaces(schema=schema, core=frozenset(core))
        views: dict[tuple[int, ...], Subspace] = {}
        like, seen = {}, set()
        for each in spaces.all:
            view = tuple(place for place, query in enumerate(asked) if {*each} <= {*spaces.kept(query)})
            like[each] = views.setdefault(view, each)
            if view:
                seen.add(each)
        return cls(spaces=spaces, like=like, seen=frozenset(seen))

    @classmethod
    def of_trees(cls, trees: Iterable[Tree], groups: Sequence[GroupTotal] = ()) -> SubspaceModel:
        """Return the model for these trees together."""
        trees = [*trees]
        levels = [level for tree in trees for level in tree.levels]
        total = [trees[0].schema.query(TOTAL)] if groups else []
        queries = [each.query for level in levels for each in level.answers]
        return cls.of(
            trees[0].schema, queries=[*queries, *total], known=[each for level in levels for each in level.known]
        )

    @property
    def kinds(self) -> tuple[Subspace, ...]:
        return tuple(dict.fromkeys(self.like.values()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """The weighted sum of squared residuals and its degrees of freedom: chi-squared if file and variances agree."""

    squares: float = 0.0
    freedom: int = 0

    def __add__(self, other: Residuals) -> Residuals:
        return Residuals(squares=self.squares + other.squares, freedom=self.freedom + other.freedom)

    @property
    def chance(self) -> float | None:
        """Return the probability of a larger sum, if file and variances agree (Wilson and Hilferty 1931).

        >>> round(Residuals(squares=18.307, freedom=10).chance, 3)
        0.05
        """
        if not self.freedom:
            return None
        spread = 2 / (9 * self.freedom)
        return 1 - NormalDist().cdf(((self.squares / self.freedom) ** (1 / 3) - 1 + spread) / sqrt(spread))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelEstimates:
    """What is known of the areas of a level: each with its kind, the spread of kinds, and the means."""

    level: Level
    kinds: Places
    spread: Spreads
    mean: Parts
    residuals: Residuals = field(default_factory=Residuals)
    # Of the children: for each kind the kinds below, and for each area their sum.
    members: Sequence[Members] = ()
    below: Parts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpwardPass:
    """A tree after the upward pass: for every area the best estimate from its own subtree alone."""

    model: SubspaceModel
    by_level: tuple[LevelEstimates, ...]  # from the top

    @property
    def residuals(self) -> Residuals:
        return sum((estimates.residuals for estimates in self.by_level), start=Residuals())


# ---- one level by itself ----------------------------------------------------------------------------------


def _kinds(table: npt.NDArray[Any]) -> tuple[Places, Places]:
    """Return where each different row stands first, and for every row which of these it is."""
    _, first, kinds = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, kinds.reshape(-1)


def _own(model: SubspaceModel, level: Level, zeros: Flags) -> LevelEstimates:
    """Return what the areas of a level say of themselves."""
    fixed = [each for each in level.known if each.sign == "="]
    columns = [each.precision[:, None] for each in level.answers]
    first, kinds = _kinds(np.concatenate([*columns, zeros, *(each.given[:, None] for each in fixed)], axis=1))
    weights = [column[:, 0] for column in columns]
    spread, mean, residuals = {}, {}, Residuals()
    matrices: dict[Subspace, tuple[Numbers, Spread]] = {}
    for each in model.like:
        look = model.like[each]
        if look not in matrices:
            measured = [
                (answers.query, weight[first])
                for answers, weight in zip(level.answers, weights, strict=True)
                if {*each} <= {*model.spaces.kept(answers.query)}
            ]
            matrices[look] = _informed(model.spaces, measured, zeros[first])
            spread[look] = matrices[look][1]
        if each in model.seen:
            mean[each] = np.zeros((level.areas, model.spaces.cells, model.spaces.width(each)))
    split = [model.spaces.split(each.query, each.values) for each in level.answers]
    for each, found in mean.items():
        rows = [
            (model.spaces.matrix(answers.query), weight, parts[each])
            for answers, weight, parts in zip(level.answers, weights, split, strict=True)
            if each in parts
        ]
        inverse, known = matrices[model.like[each]]
        for _ in range(2):  # the second time with what is left: small counts beside large ones keep their digits
            left = [row.T @ (weight[:, None, None] * (values - row @ found)) for row, weight, values in rows]
            found += inverse[kinds] @ sum(left, start=np.zeros(found.shape))
        squares = sum(float(np.sum(weight * np.sum((v - row @ found) ** 2, axis=(1, 2)))) for row, weight, v in rows)
        observed = sum(len(row) * np.count_nonzero(weight) for row, weight, _ in rows)
        free = np.eye(model.spaces.cells) - known.unknown - known.exact
        fitted = np.round(np.einsum("nii->n", free))[kinds].sum()
        width = model.spaces.width(each)
        residuals += Residuals(squares=squares, freedom=int(observed - fitted) * width)
    estimates = LevelEstimates(level=level, kinds=kinds, spread=spread, mean=mean, residuals=residuals)
    return _held(model, estimates, fixed, zeros, first) if fixed else estimates


def _informed(
    spaces: Subspaces, measured: Sequence[tuple[MarginalQuery, Numbers]], zeros: Flags
) -> tuple[Numbers, Spread]:
    """Return the covariance that measurements of these precisions (kinds,) give, and what they leave unknown."""
    cells = zeros.shape[1]
    seen, stacked = np.zeros((len(zeros), cells, cells)), [np.zeros((len(zeros), 1, cells))]
    for query, weight in measured:
        rows = spaces.rows(query)
        seen += (weight > 0)[:, None, None] * (rows.T @ rows)
        stacked.append((np.sqrt(weight) * spaces.scale(query))[:, None, None] * rows)
    empty = np.zeros(seen.shape)
    np.einsum("nii->ni", empty)[:] = zeros
    open_ = ~zeros[:, :, None] & ~zeros[:, None, :]
    unknown = null_space(seen * open_ + empty)
    root = inverse_root(np.concatenate(stacked, axis=1), unknown + empty)
    return root @ root.transpose(0, 2, 1), Spread(root=root, unknown=unknown, exact=empty)


def _held(
    model: SubspaceModel, estimates: LevelEstimates, fixed: Sequence[Constraint], zeros: Flags, first: Places
) -> LevelEstimates:
    """Merge what was measured in the areas with what is fixed there."""
    spread, residuals = {**estimates.spread}, estimates.residuals
    split = [model.spaces.split(each.query, each.values) for each in fixed]
    given = np.stack([each.given for each in fixed], axis=1)
    held = np.flatnonzero(given.any(axis=1))
    done: dict[Subspace, tuple[Merger, Numbers, Numbers]] = {}
    for each in model.like:
        look = model.like[each]
        seeing = [place for place, parts in enumerate(split) if each in parts]
        if not seeing:
            continue
        if look not in done:
            rows = [model.spaces.matrix(fixed[p].query) for p in seeing]
            which = np.repeat(given[first][:, seeing], [len(row) for row in rows], axis=1)
            stacked = np.concatenate(rows)[None] * which[:, :, None] * ~zeros[first][:, None, :]
            solved = np.asarray(np.linalg.pinv(stacked, rcond=_AGREE), dtype=np.float64)
            exact = solved @ stacked + estimates.spread[look].exact
            # Projections that are exactly zero where they are zero but for rounding.
            exact, unknown = (np.where(np.abs(m) < 1e-12, 0.0, m) for m in (exact, np.eye(model.spaces.cells) - exact))
            rule = Spread(root=np.zeros(exact.shape), unknown=unknown, exact=exact)
            done[look] = merged(estimates.spread[look], rule), solved, stacked
            spread[look] = done[look][0].spread
        both, solved, stacked = done[look]
        kinds = estimates.kinds[held]
        given_values = np.concatenate([split[p][each][held] * fixed[p].given[held, None, None] for p in seeing], axis=1)
        values = solved[kinds] @ given_values
        _check_agree(estimates.level, held, stacked[kinds] @ values - given_values, given_values)
        moved = values - estimates.mean[each][held]
        estimates.mean[each][held] += both.gain[kinds] @ moved
        residuals += _residuals(both, kinds, moved)
    return replace(estimates, spread=spread, residuals=residuals)


def _residuals(both: Merger, kinds: Places, moved: Numbers) -> Residuals:
    """Return how far two sources are apart in areas of these kinds."""
    squares = np.sum((both.whiten[kinds] @ moved) ** 2)
    return Residuals(squares=float(squares), freedom=int(both.freedom[kinds].sum()) * moved.shape[2])


def _check_agree(level: Level, places: Places, off: Numbers, scale: Numbers) -> None:
    """Refuse known values that cannot all be true."""
    allowed = np.maximum(_AGREE, _ROUNDING * np.abs(scale).max(axis=(1, 2), initial=0.0))
    if np.any(wrong := np.abs(off).max(axis=(1, 2), initial=0.0) > allowed):
        names = [level.geocodes[place] for place in places[wrong][:5]]
        more = f" and {wrong.sum() - 5:,} more" if wrong.sum() > 5 else ""
        raise bad_plan(
            f"what is known of {level.name} {listed(names)}{more} contradicts itself or what is known of areas inside",
            where="constraints",
            remedy="correct totals, fixed values and upper bounds of 0, so that one set of counts has them all",
        )


# ---- up and down ------------------------------------------------------------------------------------------


def _members(kinds: Places, parent: Places, parents: int) -> tuple[list[Members], Places]:
    """Return the different sets of children by their kinds, and for each parent which of these it has."""
    height = int(kinds.max(initial=0)) + 1
    pairs, counts = np.unique(parent * height + kinds, return_counts=True)
    ends = np.searchsorted(pairs, np.arange(parents + 1) * height)
    found: dict[bytes, int] = {}
    sets: list[Members] = []
    which = np.zeros(parents, dtype=np.int64)
    for place in range(parents):
        own = slice(ends[place], ends[place + 1])
        key = (pairs[own] - place * height).tobytes() + counts[own].tobytes()
        if key not in found:
            found[key] = len(sets)
            sets.append((pairs[own] - place * height, counts[own].astype(np.float64)))
        which[place] = found[key]
    return sets, which


def _summed(values: Numbers, parent: Places, parents: int) -> Numbers:
    """Return the sums over the children of each parent."""
    if np.any(np.diff(parent) < 0):
        order = np.argsort(parent, kind="stable")
        values, parent = values[order], parent[order]
    found = np.zeros((parents, *values.shape[1:]))
    with_children, starts = np.unique(parent, return_index=True)
    if len(starts):
        found[with_children] = np.add.reduceat(values, starts, axis=0)
    return found


def _above(model: SubspaceModel, own: LevelEstimates, below: LevelEstimates) -> LevelEstimates:
    """Merge what the children of the areas of a level say with the areas' own measurements."""
    areas = own.level.areas
    sets, which = _members(below.kinds, below.level.parent, areas)
    first, kinds = _kinds(np.stack([own.kinds, which], axis=1))
    members = [sets[place] for place in which[first]]
    spread, mean, sums, doubles = {}, {}, {}, {}
    residuals = own.residuals
    for look in model.kinds:
        both = merged(added(below.spread[look], members), own.spread[look].take(own.kinds[first]))
        spread[look], doubles[look] = both.spread, both
    for each, values in own.mean.items():
        both = doubles[model.like[each]]
        sums[each] = _summed(below.mean[each], below.level.parent, areas)
        moved = values - sums[each]
        if both.doubled.any():
            _check_agree(own.level, np.arange(areas), both.doubled[kinds] @ moved, values)
        mean[each] = sums[each] + both.gain[kinds] @ moved
        residuals += _residuals(both, kinds, moved)
    return LevelEstimates(
        level=own.level, kinds=kinds, spread=spread, mean=mean, residuals=residuals, members=members, below=sums
    )


def upward(
    model: SubspaceModel, tree: Tree, *, empty: Flags | None = None, beneath: Mapping[str, LevelEstimates] | None = None
) -> UpwardPass:
    """Return the best estimates of all areas of a tree from their own subtrees.

    ``empty`` are core cells known to be empty in all of the tree. ``beneath`` has, for each area of the lowest level,
    what is known of it from a tree of its own, whose top it is; all that was measured there belongs to that tree.
    """
    zeros = empty_cells(model, tree, empty)
    by_level: list[LevelEstimates] = []
    for place in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[place]
        if beneath is not None and place == len(tree.levels) - 1:
            by_level.append(_stacked(level, beneath))
        else:
            own = _own(model, level, zeros[place])
            by_level.append(_above(model, own, by_level[-1]) if by_level else own)
    return UpwardPass(model=model, by_level=tuple(by_level[::-1]))


def empty_cells(model: SubspaceModel, tree: Tree, empty: Flags | None = None) -> list[Flags]:
    """Return for each level the core cells that are known to be empty, there or in an area around it."""
    found: list[Flags] = []
    for level in tree.levels:
        around = found[-1][level.parent] if found else np.zeros((level.areas, model.spaces.cells), dtype=np.bool_)
        if not found and empty is not None:
            around = around | empty
        for each in level.known:
            around = around | model.spaces.zeros(each)
        found.append(around)
    return found


def _stacked(level: Level, beneath: Mapping[str, LevelEstimates]) -> LevelEstimates:
    """Return the tops of other trees as the lowest level of this one."""
    if level.answers or level.known:
        raise ValueError(f"what was measured in {level.name} belongs to the trees below")
    tops = [beneath[code] for code in level.geocodes]
    spread = {
        look: Spread(**{name: np.concatenate([getattr(top.spread[look], name) for top in tops]) for name in _SPREAD})
        for look in tops[0].spread
    }
    mean = {each: np.concatenate([top.mean[each] for top in tops]) for each in tops[0].mean}
    return LevelEstimates(level=level, kinds=np.arange(level.areas), spread=spread, mean=mean)


def downward(up: UpwardPass, *, top: LevelEstimates | None = None) -> tuple[LevelEstimates, ...]:
    """Return the best estimates of all areas from all measurements, from the top.

    ``top`` is what is known of the area at the top from a larger tree (see :func:`at`).
    """
    finals = [up.by_level[0] if top is None else replace(top, level=up.by_level[0].level)]
    for above, below in zip(up.by_level, up.by_level[1:], strict=False):
        finals.append(_down(up.model, finals[-1], above, below))
    return tuple(finals)


def at(estimates: LevelEstimates, place: int) -> LevelEstimates:
    """Return one area of a level by itself."""
    spread = {look: known.take(estimates.kinds[place : place + 1]) for look, known in estimates.spread.items()}
    mean = {each: values[place : place + 1] for each, values in estimates.mean.items()}
    return replace(estimates, kinds=np.zeros(1, dtype=np.int64), spread=spread, mean=mean, members=(), below={})


def _down(model: SubspaceModel, final: LevelEstimates, above: LevelEstimates, below: LevelEstimates) -> LevelEstimates:
    """Condition the areas of a level on the best estimates of their parents."""
    parent = below.level.parent
    first, pair = _kinds(np.stack([above.kinds[parent], below.kinds], axis=1))
    start, path = _kinds(np.stack([final.kinds[parent], below.kinds], axis=1))
    siblings = [(*above.members[above.kinds[parent[place]]], below.kinds[place]) for place in first]
    others = [(kinds, counts - (kinds == kind)) for kinds, counts, kind in siblings]
    spread, gains = {}, {}
    for look, known in below.spread.items():
        rest = added(known, others, empty_is_zero=True)
        # What the parent has beyond the other children is one more observation of this child.
        both = merged(known.take(below.kinds[first]), rest)
        gains[look] = both.gain
        gain, given = both.gain[pair[start]], both.spread.take(pair[start])
        around = final.spread[look].take(final.kinds[parent[start]])
        back = gain.transpose(0, 2, 1)
        one = np.eye(model.spaces.cells)
        unknown = one - null_space(given.unknown + gain @ around.unknown @ back)
        # Exact is what is exact given the parent, and refers to what is exact of the parent.
        exact = null_space(one - given.exact + given.exact @ gain @ (one - around.exact) @ back @ given.exact)
        rows = np.concatenate([given.root.transpose(0, 2, 1), around.root.transpose(0, 2, 1) @ back], axis=1)
        spread[look] = Spread(root=rooted(rows, unknown + exact), unknown=unknown, exact=exact)
    mean = {}
    for each, values in below.mean.items():
        missing = final.mean[each] - above.below[each]
        mean[each] = values + gains[model.like[each]][pair] @ missing[parent]
    return LevelEstimates(level=below.level, kinds=path, spread=spread, mean=mean)
