"""The law of noisy counts in parts, each with its own noise; in a part, a noisy total may choose which table follows.

A mechanism that first counts a group with noise and then publishes a finer table the larger the group seems to be has
such a law. Its distances are known exactly in most cases (docs/theory/census-2020.md, Lemmas 1 and 2), and enclosed in
the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from stirred.spec.exact import Exact, exact
from stirred.spec.law import Law
from stirred.spec.problems import wrong
from stirred.spec.shift_law import DiscreteGaussian, ShiftLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Counts with discrete Gaussian noise: one of ``tables``, chosen by how many ``thresholds`` a noisy total reaches.

    Without a total there is one table. Tables of all levels count the same records.
    """

    tables: tuple[ShiftLaw, ...]
    total: ShiftLaw | None = None
    thresholds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        laws = [*self.tables, *([] if self.total is None else [self.total])]
        rising = [*self.thresholds] == sorted({*self.thresholds})
        fits = len(self.tables) == len(self.thresholds) + 1 and (self.total is not None or not self.thresholds)
        if not rising or not fits or not all(isinstance(law.noise, DiscreteGaussian) for law in laws):
            raise wrong(
                "the stages do not fit together",
                where="staged law",
                remedy="give rising thresholds, one table more than thresholds, and discrete Gaussian noise",
            )

    @property
    def noises(self) -> tuple[object, ...]:
        """Return the noise of the total and of each table, with the number of cells."""
        return (self.total and self.total.noise, *((len(law.centre), law.noise) for law in self.tables))

    @property
    def emptied(self) -> Staged:
        """Return the same stages where nobody is counted."""

        def empty(law: ShiftLaw) -> ShiftLaw:
            return ShiftLaw((0,) * len(law.centre), law.noise)

        total = None if self.total is None else empty(self.total)
        return Staged(tables=tuple(map(empty, self.tables)), total=total, thresholds=self.thresholds)


@dataclass(frozen=True, slots=True, eq=False)
class StagedLaw:
    """Independent parts by name; a part that is not there counts nobody.

    >>> one, two = (StagedLaw({"a": Staged(tables=(ShiftLaw((n,), DiscreteGaussian(2)),))}) for n in (4, 5))
    >>> one.squared_distance(two)
    (Fraction(1, 4), Fraction(1, 4))
    """

    parts: Mapping[Hashable, Staged]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StagedLaw) and all(a == b for a, b in self._pairs(other))

    def __hash__(self) -> int:
        return hash(frozenset((key, part) for key, part in self.parts.items() if part != part.emptied))

    def _pairs(self, other: StagedLaw) -> Iterable[tuple[Staged, Staged]]:
        for key in dict.fromkeys([*self.parts, *other.parts]):
            a, b = self.parts.get(key), other.parts.get(key)
            yield a or b.emptied, b or a.emptied  # type: ignore[union-attr]

    def squared_distance(self, other: StagedLaw) -> tuple[Fraction, Fraction] | None:
        """Enclose the square of the normalised Rényi distance; None where noise differs, which has no bound.

        D_a/a of a part is that of the total plus an average over the tables. It is at most the largest table's, and
        tends, for large orders a, to that of the table at the end to which the total is tilted; every other table is
        reached against the tilt, at the price of the total itself.
        """
        high = there = back = Fraction(0)
        for a, b in self._pairs(other):
            if a.noises != b.noises or a.thresholds != b.thresholds:
                return None
            shift, cost = (0, Fraction(0)) if a.total is None or b.total is None else _tilt(a.total, b.total)
            tables = [_squared(p, q) for p, q in zip(a.tables, b.tables, strict=True)]
            most, ends = max(tables), {-1: tables[0], 0: max(tables), 1: tables[-1]}
            high += cost + most
            there += cost + max(ends[shift], most - cost)
            back += cost + max(ends[-shift], most - cost)
        return max(there, back), high

    def away_from(self, other: StagedLaw, *, beyond: Exact) -> tuple[tuple[int, ...], Exact]:
        """Return an output that is likelier here than there, by more than exp(beyond) where laws differ, and by what.

        The output lists the noisy totals of the parts that differ, and the cells that do.
        """
        step = 0
        while True:
            output: list[int] = []
            ratio = exact(0)
            for a, b in self._pairs(other):
                if a != b:
                    shown, gained = _output(a, b, step)
                    output, ratio = [*output, *shown], ratio + gained
            if ratio > beyond or step > 1 << 40:
                return tuple(output), ratio
            step = 2 * step or 1


OutputLaw = Law | ShiftLaw | StagedLaw


def _squared(p: ShiftLaw, q: ShiftLaw) -> Fraction:
    """Return the squared distance of two tables with the same noise."""
    assert isinstance(p.noise, DiscreteGaussian)
    return Fraction(sum(k * k for k in p.shift(q))) / (2 * p.noise.variance)


def _tilt(p: ShiftLaw, q: ShiftLaw) -> tuple[int, Fraction]:
    """Return to which side large orders tilt a total, and its squared distance."""
    (shift,) = q.shift(p)
    return (shift > 0) - (shift < 0), _squared(p, q)


def _output(a: Staged, b: Staged, step: int) -> tuple[list[int], Exact]:
    """Return an output of one part, ``step`` away from the centre of the other law, and ln of its likelihood ratio."""
    level, output, ratio = 0, list[int](), exact(0)
    if a.total is not None and b.total is not None:
        side, _ = _tilt(a.total, b.total)
        if side:
            value = a.total.centre[0] + step * side
        else:  # the total tells nothing: take a level at which the tables differ most
            apart = [_squared(p, q) for p, q in zip(a.tables, b.tables, strict=True)]
            wanted = apart.index(max(apart))
            value = a.thresholds[wanted - 1] if wanted else min([a.total.centre[0], *(t - 1 for t in a.thresholds[:1])])
        level = bisect_right(a.thresholds, value)
        output, ratio = [value], a.total.log_ratio(b.total, [value])
    p, q = a.tables[level], b.tables[level]
    cells = [c + step * ((k < 0) - (k > 0)) for c, k in zip(p.centre, p.shift(q), strict=True)]
    shown = [cell for cell, k in zip(cells, p.shift(q), strict=True) if k]
    return [*output, *shown], ratio + p.log_ratio(q, cells)
