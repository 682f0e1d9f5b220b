"""Slow and obvious: least squares with fractions over all measurements of a hierarchy at once.

The unknowns are the counts of the areas without children. Every measurement and every fixed value is a row. What is
fixed is eliminated, the normal equations are solved by elimination, and a sum of counts is estimable if and only if the
measurements determine it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery
from stirred.mechanisms.topdown.hierarchy.tree import GroupTotal, Tree

Row = list[Fraction]


def reduced(rows: list[Row], width: int) -> tuple[list[Row], list[int]]:
    """Return the reduced echelon form of rows, and the columns of its pivots, which are among the first ones."""
    rows = [row[:] for row in rows]
    pivots: list[int] = []
    for column in range(width):
        at = len(pivots)
        place = next((n for n in range(at, len(rows)) if rows[n][column]), None)
        if place is None:
            continue
        rows[at], rows[place] = rows[place], rows[at]
        top = [value / rows[at][column] for value in rows[at]]
        rows[at] = top
        for n, row in enumerate(rows):
            if n != at and row[column]:
                factor = row[column]
                rows[n] = [a - factor * b if b else a for a, b in zip(row, top, strict=True)]
        pivots.append(column)
    return rows[: len(pivots)], pivots


class Dense:
    """A hierarchy of measurements as one system of linear equations."""

    def __init__(self, tree: Tree, groups: Sequence[GroupTotal] = ()) -> None:
        self.tree = tree
        self.cells = tree.schema.size
        below: list[list[list[int]]] = []  # for each level and area its leaves
        leaves = 0
        for height in range(len(tree.levels) - 1, -1, -1):
            level = tree.levels[height]
            own: list[list[int]] = [[] for _ in range(level.areas)]
            if below:
                for place, parent in enumerate(tree.levels[height + 1].parent):
                    own[parent] += below[0][place]
            for each in own:
                if not each:
                    each.append(leaves)
                    leaves += 1
            below.insert(0, own)
        self.leaves, self.size = below, leaves * self.cells
        self.squares, self.freedom = Fraction(0), 0
        self._solve(*self._rows(groups))

    def functional(self, areas: Sequence[tuple[int, int]], query: MarginalQuery, cell: int) -> Row:
        """Return a sum of counts as a row: a cell of a query over areas (level, place)."""
        row = [Fraction(0)] * self.size
        cells = np.flatnonzero(query.cell_of == cell)
        for level, place in areas:
            for leaf in self.leaves[level][place]:
                for each in cells:
                    row[leaf * self.cells + int(each)] += 1
        return row

    def _rows(self, groups: Sequence[GroupTotal]) -> tuple[list[Row], list[tuple[Row, Fraction, Fraction]]]:
        fixed: list[Row] = []
        noisy: list[tuple[Row, Fraction, Fraction]] = []
        for height, level in enumerate(self.tree.levels):
            for answers in level.answers:
                for place in range(level.areas):
                    if np.isfinite(answers.variance[place]):
                        variance = Fraction(float(answers.variance[place]))
                        for cell, value in enumerate(answers.values[place]):
                            row = self.functional([(height, place)], answers.query, cell)
                            noisy.append((row, Fraction(int(value)), variance))
            for known in level.known:
                for at in np.flatnonzero(known.given).tolist():
                    for cell, value in enumerate(known.values[at]):
                        row = self.functional([(height, at)], known.query, cell)
                        if known.sign == "=" or (known.sign == "<=" and value == 0):
                            fixed.append([*row, Fraction(int(value))])
                        if known.sign != ">=" and value == 0:
                            fixed += [
                                [Fraction(int(n == place)) for n in range(self.size)] + [Fraction(0)]
                                for place, inside in enumerate(row)
                                if inside
                            ]
        total = self.tree.schema.query("total")
        for group in groups:
            height = self.tree.names.index(group.level)
            places = [self.tree.levels[height].geocodes.index(code) for code in group.members]
            row = self.functional([(height, place) for place in places], total, 0)
            fixed.append([*row, Fraction(group.value)])
        return fixed, noisy

    def _solve(self, fixed: list[Row], noisy: list[tuple[Row, Fraction, Fraction]]) -> None:
        held, pivots = reduced(fixed, self.size + 1)
        if pivots and pivots[-1] == self.size:
            raise ValueError("what is fixed contradicts itself")
        self.free = [place for place in range(self.size) if place not in {*pivots}]
        self.base = [Fraction(0)] * self.size
        self.null = [[Fraction(int(place == free)) for free in self.free] for place in range(self.size)]
        for row, pivot in zip(held, pivots, strict=True):
            self.base[pivot] = row[-1]
            self.null[pivot] = [-row[free] for free in self.free]
        count = len(self.free)
        normal = [[Fraction(0)] * (count + 1) for _ in range(count)]
        seen = []
        for row, value, variance in noisy:
            turned = self._turned(row)
            missing = value - sum(a * b for a, b in zip(row, self.base, strict=True) if a)
            seen.append((turned, missing, variance))
            places = [place for place, each in enumerate(turned) if each]
            for place in places:
                for other in places:
                    normal[place][other] += turned[place] * turned[other] / variance
                normal[place][count] += turned[place] * missing / variance
        beside = [[*row, *(Fraction(int(n == place)) for n in range(count))] for place, row in enumerate(normal)]
        self.solved, self.pivots = reduced(beside, count)
        self.fit = [Fraction(0)] * count
        for row, pivot in zip(self.solved, self.pivots, strict=True):
            self.fit[pivot] = row[count]
        for turned, missing, variance in seen:
            off = missing - sum(a * b for a, b in zip(turned, self.fit, strict=True) if a)
            self.squares += off * off / variance
        self.freedom = len(noisy) - len(self.pivots)

    def _turned(self, row: Row) -> Row:
        found = [Fraction(0)] * len(self.free)
        for place, each in enumerate(row):
            if each:
                found = [a + each * b if b else a for a, b in zip(found, self.null[place], strict=True)]
        return found

    def estimate(self, row: Row) -> tuple[Fraction, Fraction] | None:
        """Return the estimate of a sum of counts and its variance; None where the measurements do not determine it."""
        turned = self._turned(row)
        value = sum((a * b for a, b in zip(row, self.base, strict=True) if a), start=Fraction(0))
        # Pivot columns of the echelon form are unit vectors: a row of its row space is known by its values there.
        left, weights = turned[:], [Fraction(0)] * len(self.free)
        places = [place for place, each in enumerate(turned) if each]
        for line, pivot in zip(self.solved, self.pivots, strict=True):
            if turned[pivot]:
                left = [a - turned[pivot] * b if b else a for a, b in zip(left, line, strict=False)]
            beside = line[len(self.free) + 1 :]
            weights[pivot] = sum((beside[place] * turned[place] for place in places), start=Fraction(0))
        if any(left):
            return None
        value += sum(a * b for a, b in zip(turned, self.fit, strict=True) if a)
        return value, sum((a * b for a, b in zip(turned, weights, strict=True) if a), start=Fraction(0))
