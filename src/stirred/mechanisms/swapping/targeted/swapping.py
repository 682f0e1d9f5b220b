"""Targeted record swapping: who initiates a swap, and with whom.

As in sdcMicro's ``recordSwap``: levels from the coarsest to the finest, areas in the order of their codes. At every
level the households at risk there initiate a swap; at the finest also others, drawn in proportion to risk, until the
area has its share of the swap rate. The partner is the first of an order drawn in proportion to risk that is unused,
lies in another area of the level, and is alike on the first similarity profile; if there is none, on the second, ...

Ours, where the original is silent or wrong: in an area the riskiest come first and ties are broken at random; the order
of partners is drawn for each profile; a rate of 0 swaps nobody; records of risk 0 come last in random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from stirred.mechanisms.swapping.records.choices import Choices, Rows, Urn, Weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A file as codes: ``areas`` and ``weights`` (the risk) for each level, coarsest first, ``profiles`` to match on.

    ``risky`` says at which level a household is first at risk; the number of levels if at none.
    """

    areas: Sequence[Rows]
    weights: Sequence[Weights]
    risky: Rows
    profiles: Sequence[Rows]
    rate: Fraction

    @property
    def size(self) -> int:
        """Return how many households there are."""
        return int(self.risky.size)


@dataclass(slots=True, eq=False)
class _State:
    problem: Problem
    choices: Choices
    partner: list[int]  # read and written one by one, which lists do faster than arrays
    initiated: list[int]  # swaps by households of each finest area
    failed: list[int]


def swapped_pairs(problem: Problem, choices: Choices) -> tuple[Rows, list[int]]:
    """Return the partner of each household, itself where it has none, and those at risk that found none."""
    finest, last = problem.areas[-1], len(problem.areas) - 1
    state = _State(
        problem=problem,
        choices=choices,
        partner=list(range(problem.size)),
        initiated=[0] * (int(finest.max(initial=0)) + 1),
        failed=[],
    )
    target = _targets(problem, choices)
    for level in range(last + 1):
        partners, others = _Partners(state, level), _Others(problem)
        at_risk = dict(_by_area(np.flatnonzero(problem.risky == level), problem, level, choices))
        for area in range(len(state.initiated)) if level == last else sorted(at_risk):
            for row in at_risk.get(area, ()):
                partners.swap(row, area)
            urn = others.of(area) if level == last and state.initiated[area] < target[area] else None
            while urn is not None and state.initiated[area] < target[area]:
                drawn = choices.next_of(urn)
                if drawn is None:
                    break
                partners.swap(drawn, area)
    return np.array(state.partner, dtype=np.int64), [row for row in state.failed if state.partner[row] == row]


def _targets(problem: Problem, choices: Choices) -> list[int]:
    """Return how many swaps each finest area initiates: its share rounded down, the rest to areas drawn at random."""
    sizes = np.bincount(problem.areas[-1])
    half = problem.rate / 2
    target = [n * half.numerator // half.denominator for n in sizes.tolist()]
    exact = problem.size * half
    rest = floor(exact) + (exact.denominator > 1 and choices.happens(Fraction(1, 2))) - sum(target)
    for place in choices.order(sizes.size)[:rest] if rest > 0 else ():
        target[place] += 1
    return target


def _by_area(rows: Rows, problem: Problem, level: int, choices: Choices) -> Iterator[tuple[int, list[int]]]:
    """Yield the households of each area, the riskiest first, ties at random."""
    if not rows.size:
        return
    weights, area = problem.weights[level], problem.areas[level][rows]
    risk = -np.ldexp(weights.numerator[rows] / weights.denominator[rows], -weights.level[rows])
    ties = np.empty(rows.size, dtype=np.int64)
    ties[np.asarray(choices.order(rows.size), dtype=np.int64)] = np.arange(rows.size)
    order = np.lexsort((ties, risk, area))
    edges = np.flatnonzero(np.diff(area[order])) + 1
    for own in np.split(rows[order], edges):
        yield int(problem.areas[level][own[0]]), own.tolist()


class _Others:
    """The households of each finest area that are not at risk, in an urn."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._sorted: tuple[Rows, Rows] | None = None

    def of(self, area: int) -> Urn:
        """Return the urn of an area."""
        areas, weights = self._problem.areas[-1], self._problem.weights[-1]
        if self._sorted is None:
            free = np.flatnonzero(self._problem.risky == len(self._problem.areas))
            self._sorted = _grouped(free, areas, weights)
        order, starts = self._sorted
        return Urn(order[starts[area] : starts[area + 1]].copy(), weights)


def _grouped(rows: Rows, codes: Rows, weights: Weights) -> tuple[Rows, Rows]:
    """Return rows by code and level of their weight, and where each code begins: one sort, of short numbers."""
    own = codes[rows] * (Weights.ZERO + 1) + weights.level[rows]
    short = own.astype(np.uint16) if int(own.max(initial=0)) < 1 << 16 else own
    starts = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(codes[rows], minlength=starts.size - 1), out=starts[1:])
    return rows[np.argsort(short, kind="stable")], starts


class _Partners:
    """The orders of partners at one level: an urn for each profile and value, opened when somebody asks for it."""

    def __init__(self, state: _State, level: int) -> None:
        self._state, self._level, self._urns = state, level, dict[tuple[int, int], Urn]()
        self._sorted: dict[int, tuple[Rows, Rows]] = {}
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}  # how far an area has looked through an urn

    def swap(self, row: int, area: int) -> bool:
        """Swap a household with the first partner that fits; say whether there was one, or nothing to do."""
        state = self._state
        if state.partner[row] != row:
            return False
        for profile in range(len(state.problem.profiles)):
            if (other := self._found(row, area, profile)) is not None:
                state.partner[row], state.partner[other] = other, row
                state.initiated[state.problem.areas[-1].item(row)] += 1
                return True
        state.failed.append(row)
        return False

    def _found(self, row: int, area: int, profile: int) -> int | None:
        problem, partner = self._state.problem, self._state.partner
        key = (profile, problem.profiles[profile].item(row))
        urn = self._urns.get(key) or self._opened(key)
        codes = problem.areas[self._level]
        last, begin = self._seen.get(key, (-1, 0))
        # What an area has looked at and left was of this area, or is used: to the next area all that is unused fits.
        if last != area:
            begin, urn.drawn = 0, [other for other in urn.drawn if partner[other] == other]
        for place in range(begin, len(urn.drawn)):
            other = urn.drawn[place]
            if partner[other] == other:
                self._seen[key] = (area, place)
                return other
        while (drawn := self._state.choices.next_of(urn)) is not None:
            urn.drawn.append(drawn)
            if partner[drawn] == drawn and codes.item(drawn) != area:
                self._seen[key] = (area, len(urn.drawn) - 1)
                return drawn
        self._seen[key] = (area, len(urn.drawn))
        return None

    def _opened(self, key: tuple[int, int]) -> Urn:
        problem, (profile, value) = self._state.problem, key
        weights = problem.weights[self._level]
        if profile not in self._sorted:
            every = np.arange(problem.size, dtype=np.int64)
            self._sorted[profile] = _grouped(every, problem.profiles[profile], weights)
        order, starts = self._sorted[profile]
        self._urns[key] = Urn(order[starts[value] : starts[value + 1]].copy(), weights)
        return self._urns[key]
