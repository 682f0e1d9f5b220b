"""Shares of a budget that are best by a stated criterion at equal rho, from closed-form variances.

The precision of an area is linear in the shares and splits into subspaces: contrasts between codes that no grouping
tells apart, and a small matrix for what groupings and totals see. In a hierarchy where every area of a level has the
mean number of children, two-pass generalised least squares has the closed variance

    P_j = sum over levels m >= j of b_jm K_m,    V_l = sum over levels j <= l of a_lj P_j^-1,

so variances and their derivatives take a millisecond. They are convex in the shares. Structural zeros, non-negativity
and single-child areas are left out, and noise has the variance 1/rho of its share (bounded neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.topdown.schema import Query, Schema

Numbers = npt.NDArray[np.float64]
Shares = Mapping[str, Mapping[str, Fraction]]
Pair = tuple[str, str]

AREAS_2020: Final = {
    "US": 1,
    "State": 51,
    "County": 3_143,
    "Tract": 84_414,
    "Block_Group": 239_780,
    "Block": 5_892_698,  # those with housing or people
}
"""How many areas the 2020 census of the United States has."""
_LEAST: Final = 1e-9
_UNITS: Final = 10**6
_MOST_STEPS: Final = 4_000


def fan_outs(areas: Mapping[str, int] = AREAS_2020) -> tuple[float, ...]:
    """Return the mean number of children in each level but the last.

    >>> fan_outs({"US": 1, "State": 50, "County": 3_000})
    (50.0, 60.0)
    """
    counts = [*areas.values()]
    return tuple(below / above for above, below in pairwise(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What is made small: the largest or the sum of powers of variances, each times its weight.

    ``relative`` divides each variance by the one under the given shares; ``power`` infinity is the largest, 1 the sum
    and what lies between is more and more about the worst. ``targets`` are pairs of level and query, or all measured.
    """

    power: float = math.inf
    relative: bool = True
    targets: tuple[Pair, ...] = ()
    weights: Mapping[Pair, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of a query at a level: its share, and its mean standard error under two-pass estimation."""

    level: str
    query: str
    share: tuple[Fraction, Fraction]
    error: tuple[float, float]
    target: bool

    @property
    def ratio(self) -> float:
        """Return the standard error after over that before; 1 where both are zero."""
        before, after = self.error
        return after / before if before else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """Shares of rho by level and query that sum to exactly 1, what they change, and how good they could be at best."""

    shares: Shares
    changes: tuple[Change, ...]
    loss: tuple[float, float]  # of the criterion, before and after
    bound: float  # no shares have a smaller loss

    @property
    def improved(self) -> tuple[Change, ...]:
        """Return what is estimated better, the best first."""
        return tuple(sorted((each for each in self.changes if each.ratio < 1), key=lambda each: each.ratio))

    @property
    def worsened(self) -> tuple[Change, ...]:
        """Return what is estimated worse, the worst first."""
        return tuple(sorted((each for each in self.changes if each.ratio > 1), key=lambda each: -each.ratio))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hierarchy:
    """A schema, the levels of its hierarchy from the top with mean fan-outs, and the queries that may be asked.

    ``known`` is the lowest level whose totals are known without noise, if any.
    """

    schema: Schema
    levels: tuple[str, ...]
    fan_outs: tuple[float, ...]
    queries: tuple[Query, ...]
    known: str | None = None

    def __post_init__(self) -> None:
        if len(self.fan_outs) != len(self.levels) - 1 or min(self.fan_outs, default=1) < 1:
            raise bad_plan(
                f"{len(self.levels)} levels and the fan-outs {listed([f'{each:g}' for each in self.fan_outs])}",
                where="hierarchy",
                remedy="give one mean number of children, 1 or more, for each level but the last",
            )

    @classmethod
    def of(cls, schema: Schema, *, areas: Mapping[str, int], shares: Shares, known: str | None = None) -> Hierarchy:
        """Return the hierarchy of a budget, given how many areas each level has."""
        names = dict.fromkeys(name for queries in shares.values() for name in queries)
        queries = tuple(schema.query(name) for name in names)
        return cls(schema=schema, levels=tuple(areas), fan_outs=fan_outs(areas), queries=queries, known=known)

    def weights(self) -> tuple[Numbers, Numbers]:
        """Return a and b of the closed form."""
        size = len(self.levels)
        a, b, ratio = np.zeros((size, size)), np.zeros((size, size)), np.array(self.fan_outs)
        for high, low in ((h, w) for w in range(size) for h in range(w + 1)):
            b[high, low] = np.prod(1 / ratio[high:low])
            own = 1.0 if high == 0 else 1 - 1 / ratio[high - 1]
            a[low, high] = own * np.prod(ratio[high:low] ** -2.0)
        return a, b

    def subspaces(self) -> list[_Subspace]:
        """Return the subspaces in which the precision is a small matrix, or a number."""
        parts = [_atoms(self.queries, place) for place in range(len(self.schema.attributes))]
        found = []
        for contrasts in product((False, True), repeat=len(parts)):
            of_queries = [_kronecker(query, parts, contrasts) for query in self.queries]
            many = math.prod(sum(sizes) - len(sizes) for sizes, c in zip(_sizes(parts), contrasts, strict=True) if c)
            if many and any(matrix.any() for matrix in of_queries):
                total = (
                    None if any(contrasts) else _kronecker_of([np.sqrt(np.array(s)[:, None]) for s in _sizes(parts)])
                )
                found.append(_Subspace(many=many, matrices=np.array(of_queries), total=total))
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Subspace:
    """One of the subspaces: how many copies of it there are, the matrix of each query, and where the total lies."""

    many: int
    matrices: Numbers  # (queries, dimension, dimension)
    total: Numbers | None

    def inverse(self, precision: Numbers, *, known: int) -> Numbers:
        """Return covariances (levels, ..); what is known without noise, in the first levels, has none (section 1.3)."""
        found = np.linalg.pinv(precision, rcond=1e-15, hermitian=True)
        if self.total is not None and known:
            left = np.linalg.svd(self.total)[0][:, 1:]  # all but the total
            free = np.linalg.pinv(left.T @ precision[:known] @ left, rcond=1e-15, hermitian=True)
            found[:known] = left @ free @ left.T
        return np.asarray(found, dtype=np.float64)


def _atoms(queries: Iterable[Query], place: int) -> list[list[int]]:
    """Return the codes of an attribute in classes that only the detailed attribute tells apart."""
    classes: dict[tuple[int, ...], list[int]] = {}
    asked = [query.groups[place] for query in queries]
    grouped = [groups for groups in asked if groups != tuple(range(len(groups)))]
    for code in range(len(asked[0])):
        classes.setdefault(tuple(groups[code] for groups in grouped), []).append(code)
    return [*classes.values()]


def _sizes(parts: Sequence[list[list[int]]]) -> list[list[int]]:
    return [[len(atom) for atom in atoms] for atoms in parts]


def _kronecker(query: Query, parts: Sequence[list[list[int]]], contrasts: Sequence[bool]) -> Numbers:
    """Return what a query adds to the precision of a subspace, for noise of variance 1."""
    factors = []
    for groups, atoms, contrast in zip(query.groups, parts, contrasts, strict=True):
        detailed = groups == tuple(range(len(groups)))
        if contrast:
            factors.append(np.array([[float(detailed)]]))
        elif detailed:
            factors.append(np.eye(len(atoms)))
        else:
            of = np.array([groups[atom[0]] for atom in atoms])
            sizes = np.array([len(atom) for atom in atoms], dtype=float)
            factors.append((of[:, None] == of[None, :]) * np.sqrt(np.outer(sizes, sizes)))
    return _kronecker_of(factors)


def _kronecker_of(factors: Sequence[Numbers]) -> Numbers:
    found: Numbers = np.ones((1, 1))
    for each in factors:
        found = np.asarray(np.kron(found, each), dtype=np.float64)
    return found


class Variances:
    """Mean variances of a cell of each query at each level, for rho = 1, and their derivatives by the shares."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.spaces = hierarchy.subspaces()
        self.a, self.b = hierarchy.weights()
        self.sizes = np.array([query.size for query in hierarchy.queries], dtype=float)
        self.known = 0 if hierarchy.known is None else hierarchy.levels.index(hierarchy.known) + 1

    def two_pass(self, shares: Numbers) -> tuple[Numbers, Numbers]:
        """Return variances (levels, queries), and what each loses by more of each share (.., levels, queries)."""
        below, slopes = np.zeros(shares.shape), np.zeros((*shares.shape, shares.shape[1]))
        for space in self.spaces:
            felt = self.felt(space, self.b @ shares)
            below += space.many * np.einsum("jqxx->jq", felt)
            slopes += space.many * np.einsum("jqxy,jpyx->jqp", felt, felt)
        slope = np.einsum("lj,jm,jqp->lqmp", self.a, self.b, slopes) / self.sizes[None, :, None, None]
        return self.a @ below / self.sizes, slope

    def felt(self, space: _Subspace, shares: Numbers) -> Numbers:
        """Return the covariance times each query's matrix, (levels, queries, ..)."""
        covariance = space.inverse(np.einsum("jq,qxy->jxy", shares, space.matrices), known=self.known)
        return covariance[:, None] @ space.matrices[None]

    def known_of(self, shares: Numbers) -> Numbers:
        """Return the variances of two-pass estimates: infinite where there are none, 0 where totals are known."""
        found = np.where(self.estimable(shares), self.two_pass(shares)[0], np.inf)
        found[: self.known, self.sizes == 1] = 0
        return found

    def estimable(self, shares: Numbers) -> npt.NDArray[np.bool_]:
        """Say which queries can be estimated at which levels: those that see nothing that no measurement sees."""
        found = np.ones(shares.shape, dtype=np.bool_)
        for space in self.spaces:
            for level, seen in enumerate(np.einsum("jq,qxy->jxy", self.b @ shares, space.matrices)):
                blind = np.eye(len(seen)) - np.linalg.pinv(seen, rcond=1e-12, hermitian=True) @ seen
                if level < self.known and space.total is not None:
                    blind = blind @ (np.eye(len(seen)) - space.total @ np.linalg.pinv(space.total))
                found[level:] &= np.abs(space.matrices @ blind).max(axis=(1, 2)) < 1e-6
        return found


def optimised(
    hierarchy: Hierarchy,
    shares: Shares,
    *,
    criterion: Criterion | None = None,
    rho: Fraction | int = 1,
    tolerance: float = 1e-3,
) -> Optimised:
    """Return shares that are best by the criterion at equal rho, to within the relative tolerance, beside given ones.

    Given shares that are best already are returned as they are.

    >>> from stirred.mechanisms.topdown.schema import Attribute
    >>> schema = Schema(name="toy", attributes=(Attribute(name="kind", codes=("a", "b", "c", "d")),))
    >>> given = {"US": {"total": Fraction(1, 2), "detailed": Fraction(1, 2)}}
    >>> hierarchy = Hierarchy.of(schema, areas={"US": 1}, shares=given)
    >>> summed = Criterion(power=1, relative=False, weights={("US", "detailed"): 4})  # var(total) + sum of var(cells)
    >>> found = optimised(hierarchy, given, criterion=summed, tolerance=1e-9)
    >>> float(found.shares["US"]["total"]), round(found.loss[1], 6)
    (0.236068, 6.854102)
    """
    criterion = criterion or Criterion()
    variances, given = Variances(hierarchy), _as_array(hierarchy, shares)
    before = variances.known_of(given) / float(rho)
    mask = _targets(hierarchy, criterion, given, before)
    scale = np.array([criterion.weights.get(pair, 1.0) for pair in _pairs(hierarchy)]).reshape(given.shape)[mask]
    scale = scale / before[mask] if criterion.relative else scale
    found, bound = _minimised(variances, given, mask, scale / float(rho), criterion.power, tolerance)
    rational = _rational(variances, found, mask) if found is not given else _exact(hierarchy, shares)
    after = variances.known_of(np.array(rational, dtype=float)) / float(rho)
    old = _exact(hierarchy, shares)
    changes = tuple(
        Change(
            level=level,
            query=query.name,
            share=(old[high][place], rational[high][place]),
            error=(math.sqrt(before[high, place]), math.sqrt(after[high, place])),
            target=bool(mask[high, place]),
        )
        for high, level in enumerate(hierarchy.levels)
        for place, query in enumerate(hierarchy.queries)
        if np.isfinite(before[high, place])
    )
    return Optimised(
        shares={
            level: {query.name: share for query, share in zip(hierarchy.queries, row, strict=True) if share}
            for level, row in zip(hierarchy.levels, rational, strict=True)
        },
        changes=changes,
        loss=(_norm(scale * before[mask], criterion.power), _norm(scale * after[mask], criterion.power)),
        bound=bound,
    )


def _pairs(hierarchy: Hierarchy) -> list[Pair]:
    return [*product(hierarchy.levels, [query.name for query in hierarchy.queries])]


def _exact(hierarchy: Hierarchy, shares: Shares) -> list[list[Fraction]]:
    return [
        [Fraction(shares.get(level, {}).get(query.name, 0)) for query in hierarchy.queries]
        for level in hierarchy.levels
    ]


def _as_array(hierarchy: Hierarchy, shares: Shares) -> Numbers:
    """Return the shares (levels, queries), checked."""
    exact = _exact(hierarchy, shares)
    known = {*_pairs(hierarchy)}
    strange = [f"{level} {name}" for level, each in shares.items() for name in each if (level, name) not in known]
    total = sum(share for row in exact for share in row)
    if strange or total != 1 or min(share for row in exact for share in row) < 0:
        raise bad_plan(
            f"the hierarchy has no {listed(strange)}" if strange else f"the shares sum to {total}",
            where="shares",
            remedy="give shares of levels and queries that are not negative and sum to exactly 1",
        )
    return np.array(exact, dtype=float)


def _targets(hierarchy: Hierarchy, criterion: Criterion, given: Numbers, before: Numbers) -> npt.NDArray[np.bool_]:
    """Return what the criterion is about: the named targets, or everything measured that has noise."""
    pairs = _pairs(hierarchy)
    if strange := [" ".join(pair) for pair in [*criterion.targets, *criterion.weights] if pair not in pairs]:
        raise bad_plan(
            f"there is no {listed(strange)}",
            where="targets",
            remedy=f"name a level, {listed([*hierarchy.levels])}, and a query of the budget",
        )
    named = np.array([pair in criterion.targets for pair in pairs]).reshape(given.shape)
    mask = (named if criterion.targets else given > 0) & (before > 0)
    if not mask.any() or not np.isfinite(before[mask]).all():
        blind = [" ".join(pairs[place]) for place in np.flatnonzero(mask & ~np.isfinite(before))]
        raise bad_plan(
            f"{listed(blind)} cannot be estimated from the given measurements" if blind else "no target has noise",
            where="targets",
            remedy="name targets that the given shares estimate with noise",
        )
    return mask


def _norm(values: Numbers, power: float) -> float:
    largest = float(values.max())
    return largest if math.isinf(power) else largest * float(((values / largest) ** power).sum()) ** (1 / power)


def _minimised(
    variances: Variances, given: Numbers, mask: npt.NDArray[np.bool_], scale: Numbers, power: float, tolerance: float
) -> tuple[Numbers, float]:
    """Return the best shares found, and a bound that no shares beat.

    Shares are multiplied by a root of what more of them would gain, as in optimal design of experiments; where the
    worst counts, so are the weights of the targets. Any weights w of dual norm 1 give a bound: a variance
    c'P(y)^-1 c is at least (c'z)^2/(z'P(y)z) for every z, so with z from the shares x at hand no y has a loss
    below (sum of w times variance at x)^2 over the largest gain.
    """
    best = given
    least, bound = _norm(scale * variances.two_pass(given)[0][mask], power), 0.0
    shares = 0.99 * given + 0.01 / given.size
    weights = np.full(scale.size, 1 / scale.size)
    root = 0.5 if math.isinf(power) else 1 / (1 + power)
    for _ in range(_MOST_STEPS):
        values, slope = variances.two_pass(shares)
        relative = scale * values[mask]
        loss = _norm(relative, power)
        if not math.isinf(power):
            weights = (relative / loss) ** (power - 1)
        gain = np.maximum(np.einsum("t,tmp->mp", weights * scale, slope[mask]), 0)  # where totals are known it is 0
        weighed = float(weights @ relative)
        bound = max(bound, weighed**2 / float(gain.max()))
        if loss < least:
            best, least = shares, loss
        if least <= bound * (1 + tolerance):
            break
        shares = np.maximum(shares * (gain / weighed) ** root, _LEAST)
        shares /= shares.sum()
        if math.isinf(power):
            weights = weights * np.exp(0.5 * (relative / loss - 1))
            weights /= weights.sum()
    return best, bound


def _rational(variances: Variances, shares: Numbers, mask: npt.NDArray[np.bool_]) -> list[list[Fraction]]:
    """Return shares in millionths that sum to exactly 1; those that round to nothing stay if a target needs them."""
    floors = np.floor(shares * _UNITS).astype(np.int64)
    if not variances.estimable((floors > 0).astype(float))[mask].all():
        floors = np.maximum(floors, 1)
    missing = _UNITS - int(floors.sum())
    order = np.argsort(-(shares * _UNITS - floors), axis=None, kind="stable")
    # Where some were raised to a unit, the largest gives it back.
    floors.flat[order[: max(0, missing)]] += 1
    floors.flat[int(np.argmax(floors))] += min(0, missing)
    return [[Fraction(each, _UNITS) for each in row] for row in floors.tolist()]
