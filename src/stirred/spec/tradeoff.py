"""Trade-off functions: how well any test tells two laws apart, at every size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.law import Law, likelihood_pairs
from stirred.spec.normal import gaussian_delta
from stirred.spec.problems import wrong

Point = tuple[Fraction, Fraction]
_ZERO, _ONE = Fraction(0), Fraction(1)
# Repeated curves have ever longer fractions; beyond so many repetitions a distance is only known from below.
MOST_STEPS: Final = 32


@dataclass(frozen=True, slots=True)
class TradeOff(Block):
    """The largest power that a test of P against Q has at each size, for finite laws: exact (Definition A.6.1).

    The curve is concave and made of straight pieces; ``corners`` are its points (size, power), from size 0 to (1, 1).
    Type II error is 1 minus power. Corners inside a straight piece are dropped, so equal curves are equal.

    >>> from fractions import Fraction
    >>> truth, lie = Fraction(3, 4), Fraction(1, 4)
    >>> bit = TradeOff.of(Law({0: truth, 1: lie}), Law({0: lie, 1: truth}))
    >>> print(bit, bit == TradeOff.bounded([(3, 0)]))
    0:0 1/4:3/4 1:1 True
    >>> print(bit.times(bit))
    0:0 1/16:9/16 7/16:15/16 1:1
    >>> print(bit.then(bit))
    0:0 1/12:3/4 1/4:11/12 1:1
    """

    in_file: ClassVar = ("corners",)
    bare: ClassVar = True

    corners: tuple[Point, ...]

    def __post_init__(self) -> None:
        points = [(Fraction(a), Fraction(b)) for a, b in self.corners]
        rising = all(a < c for (a, _), (c, _) in pairwise(points))
        fits = len(points) > 1 and points[0][0] == 0 <= points[0][1] and points[-1] == (_ONE, _ONE)
        if not (rising and fits and all(b <= 1 for _, b in points)):
            raise wrong(
                "the corners are no trade-off curve",
                where="output_premetric curve",
                remedy="write points (size, power) with rising sizes, from size 0 to (1, 1), such as 0:0 1/4:3/4 1:1",
            )
        kept = points[:1]
        for before, here, after in zip(points, points[1:], points[2:], strict=False):
            bend = _slope(before, here) - _slope(here, after)
            if bend < 0:
                raise wrong(
                    f"the curve bends upwards at size {here[0]}",
                    where="output_premetric curve",
                    remedy="a mixture of two tests is a test: raise the power there to the straight line",
                )
            kept += [here] if bend else []
        object.__setattr__(self, "corners", (*kept, points[-1]))

    @classmethod
    def of(cls, p: Law, q: Law) -> TradeOff:
        """Return the curve of two finite laws: outcomes enter the test by falling q/p (Neyman and Pearson)."""
        pairs = likelihood_pairs(p, q)
        points = [(_ZERO, sum((b for a, b in pairs if a == 0), _ZERO))]
        for a, b in sorted(((a, b) for a, b in pairs if a), key=lambda pair: pair[1] / pair[0], reverse=True):
            points.append((points[-1][0] + a, points[-1][1] + b))
        return cls(tuple(points))

    @classmethod
    def bounded(cls, profile: Iterable[tuple[Fraction | int, Fraction | int]]) -> TradeOff:
        """Return the highest curve of laws with ``P(S) <= ratio * Q(S) + delta``, both ways, for all (ratio, delta).

        One pair (e^epsilon, 0) is pure DP, (e^epsilon, delta) approximate DP, and (1, tau) total variation.
        """
        lines = [(_ZERO, _ONE)]
        for given, slack in profile:
            ratio, delta = Fraction(given), Fraction(slack)
            if ratio < 1 or not 0 <= delta <= 1:
                raise wrong(
                    f"{ratio}, {delta} is no bound",
                    where="output_premetric curve",
                    remedy="give ratio >= 1, 0 <= delta <= 1",
                )
            lines += [(ratio, delta), (1 / ratio, 1 - (1 - delta) / ratio)]
        return _below(lines)

    @classmethod
    def gaussian(cls, mu: Fraction, *, ratios: Iterable[Fraction | int]) -> TradeOff:
        """Return a curve above that of two unit normals mu apart: its tangents with these slopes, rounded up."""
        return cls.bounded((ratio, gaussian_delta(mu, Fraction(ratio))) for ratio in ratios)

    @classmethod
    def highest(cls, curves: Iterable[TradeOff]) -> TradeOff:
        """Return the lowest curve above all: what holds for many pairs of datasets at once."""
        hull: list[Point] = []
        best: dict[Fraction, Fraction] = {}
        for a, b in (corner for curve in curves for corner in curve.corners):
            best[a] = max(best.get(a, _ZERO), b)
        for point in sorted(best.items()):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        return cls(tuple(hull))

    @property
    def lines(self) -> list[Point]:
        """Return the slope and the height at 0 of each straight piece, the steepest first."""
        return [(s := _slope(one, two), one[1] - s * one[0]) for one, two in pairwise(self.corners)]

    @property
    def laws(self) -> tuple[Law, Law]:
        """Return two laws with this curve, one outcome for each piece."""
        rises = [(_ZERO, self.corners[0][1]), *((c - a, d - b) for (a, b), (c, d) in pairwise(self.corners))]
        return Law({i: p for i, (p, _) in enumerate(rises)}), Law({i: q for i, (_, q) in enumerate(rises)})

    @property
    def turned(self) -> TradeOff:
        """Return the curve of Q against P."""
        best = {_ONE: _ONE}
        for a, b in self.corners:
            best[1 - b] = max(best.get(1 - b, _ZERO), 1 - a)
        return TradeOff(tuple(sorted(best.items())))

    @property
    def symmetric(self) -> TradeOff:
        """Return the highest curve below this one and the turned one: what a promise for both orders says."""
        return _below([*self.lines, *self.turned.lines])

    def power(self, size: Fraction) -> Fraction:
        """Return the largest power of a test of this size."""
        return min(height + slope * size for slope, height in self.lines)

    def dominates(self, other: TradeOff) -> bool:
        """Say whether this curve is nowhere below the other one; a concave curve above corners is above chords."""
        return all(self.power(a) >= b for a, b in other.corners)

    def delta(self, ratio: Fraction) -> Fraction:
        """Return the smallest delta with ``P(S) <= ratio * Q(S) + delta`` for all events, both ways."""
        both = (*self.corners, *self.turned.corners)
        return max(_ZERO, *(power - ratio * size for size, power in both))

    def times(self, other: TradeOff) -> TradeOff:
        """Return the curve of both releases together, with fresh randomness: that of the product laws."""
        (p, q), (r, s) = self.laws, other.laws
        return TradeOff.of(p.times(r), q.times(s))

    def then(self, other: TradeOff) -> TradeOff:
        """Return the highest curve of P against R, where this is that of P against Q and ``other`` of Q against R."""
        sizes = {a for a, _ in self.corners}
        for level, _ in other.corners:
            for (a, b), (c, d) in pairwise(self.corners):
                if b < level < d:
                    sizes.add(a + (level - b) * (c - a) / (d - b))
        return TradeOff(tuple((size, other.power(self.power(size))) for size in sorted(sizes)))

    def steps_to(self, other: TradeOff) -> int | None:
        """Return the fewest repetitions of this curve that reach ``other``; None if none does, or too many would.

        Repetitions of a symmetric curve that starts at 0 stay below 1 at every size below 1, and never reach one that
        does not; otherwise they come as near to 1 as one likes (theory pages).
        """
        reached = TradeOff(((_ZERO, _ZERO), (_ONE, _ONE)))
        for steps in range(MOST_STEPS + 1):
            if reached.dominates(other):
                return steps
            if steps == 0 and self.corners[0][1] == 0 < max(other.corners[0][1], other.turned.corners[0][1]):
                return None
            reached = reached.then(self)
        return None

    def repeated(self, steps: int) -> TradeOff:
        """Return the curve for datasets so many steps apart, where this one holds for each step (group privacy)."""
        reached = TradeOff(((_ZERO, _ZERO), (_ONE, _ONE)))
        for _ in range(steps):
            reached = reached.then(self)
        return reached

    def __str__(self) -> str:
        return " ".join(f"{a}:{b}" for a, b in self.corners)


def blackwell(p: Law, q: Law, p2: Law, q2: Law) -> bool:
    """Say whether (P2, Q2) is a post-processing of (P, Q): some randomised function takes P to P2 and Q to Q2.

    By Blackwell's theorem (A.6.2) this is so exactly if no test does better on the second pair than on the first.

    >>> def bit(k): return Law({0: Fraction(k, k + 1), 1: Fraction(1, k + 1)})
    >>> def lie(k): return Law({1: Fraction(k, k + 1), 0: Fraction(1, k + 1)})
    >>> blackwell(bit(3), lie(3), bit(2), lie(2)), blackwell(bit(2), lie(2), bit(3), lie(3))
    (True, False)
    """
    return TradeOff.of(p, q).dominates(TradeOff.of(p2, q2))


def _slope(one: Point, two: Point) -> Fraction:
    return (two[1] - one[1]) / (two[0] - one[0])


def _below(lines: list[Point]) -> TradeOff:
    """Return the highest curve that is below all lines (slope, height at 0)."""
    lines = list(dict.fromkeys(lines))
    sizes = {_ZERO, _ONE}
    for (s, h), (t, g) in combinations(lines, 2):
        if s != t and 0 < (x := (g - h) / (s - t)) < 1:
            sizes.add(x)
    return TradeOff(tuple((x, min(_ONE, *(h + s * x for s, h in lines))) for x in sorted(sizes)))
