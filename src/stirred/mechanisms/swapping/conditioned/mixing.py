"""The number u that makes the selected counts of the conditioned swap independent (swapping theory R6).

Its density is e^-u A_1(x_1 u) A_2(x_2 u) ..., where A_s(z) is the sum over g of C(c_s,g) z^g / g!. Every A_s
has real zeros only, so the density is log-concave: its tangents lie above it, and a hat made of two of them proposes
values that are kept in proportion to the density. u runs over multiples of ``STEP``, so that proposals are
integers; ``selected_counts`` says what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from stirred.mechanisms.swapping.conditioned.selected_kernel import Counts, Floats, find_centre, sums
from stirred.randomness.entropy import WORD_BITS
from stirred.randomness.integers import below
from stirred.randomness.inversion import Weights
from stirred.spec.exact import ln

# The odds of the rate times the mass of the swap value at a place.
Odds = Callable[[int], Fraction]

STEP_BITS: Final = 40
STEP: Final = Fraction(1, 1 << STEP_BITS)

# Acceptances this close to the limit go to exact arithmetic.
_CLOSE: Final = 2.0**-24
# The rounding of one term of a sum, or of one operation, in double precision: eight half units.
_ROUNDING: Final = 8 * 2.0**-53
# How far the hat lies above the tangents: far more than rounding can do, and cheap.
_SLACK: Final = 0.01
_SHALLOWER: Final = 0.999
# For sums over the whole law: how many halvings of the hat on each side, panels, and points in each.
_COVER: Final = 50
_PANELS: Final = 40
_NODES: Final = 16
# Where the tangents touch, in standard deviations from the middle.
_REACH: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hat:
    """A staircase above the density, in steps of the lattice: flat in the middle, then halved again and again.

    The middle is ``first`` to ``last``. Beyond lie blocks of ``left`` and ``right`` points (0 on the left: none), each
    half as high as the one before. ``height`` is the log of the middle, relative to the density at the centre.
    """

    height: float
    first: int
    last: int
    left: int
    right: int

    def propose(self, words: Iterator[int]) -> tuple[int, int]:
        """Return a point of the lattice in proportion to the hat, and how often the hat is halved there."""
        middle = self.last - self.first + 1
        # The blocks of a side weigh one, a half, a quarter and so on: two in all.
        place = below(middle + 2 * self.right + 2 * self.left, words)
        if place < middle:
            return self.first + place, 0
        halved = 0
        while below(2, words):
            halved += 1
        if place < middle + 2 * self.right:
            return self.last + 1 + halved * self.right + below(self.right, words), halved
        return self.first - 1 - halved * self.left - below(self.left, words), halved


class _Sums(NamedTuple):
    """What the compiled sums say about the selected counts at one u."""

    log: float
    mean: float
    variance: float
    terms: float


class _Tangent(NamedTuple):
    """Where a line touches the log of the density, which lies below it."""

    u: float
    log: float
    slope: float

    def side(self, centre: float, height: float) -> tuple[float, int]:
        """Return where the line reaches the height, and the lattice points in which it falls to a half."""
        shallow = self.slope * _SHALLOWER
        # Nearer than it touches, the shallower line is below the tangent: by less than is added here.
        line = self.log + _SLACK + (1 - _SHALLOWER) * abs(self.slope * (self.u - centre))
        reached = self.u + (height - line) / shallow
        reached = max(reached, centre) if self.slope < 0 else min(reached, centre)
        return reached, int(math.log(2) / abs(shallow) * 2.0**STEP_BITS) + 1


class Mixing:
    """The law of u for swap values with ``counts`` records and ``rates`` (exactly: ``odds``), each ``times`` times."""

    def __init__(self, counts: Counts, rates: Floats, times: Floats, odds: Odds) -> None:
        self._counts, self._rates, self._times, self._odds = counts, rates, times, odds
        self._start: Counts = np.empty(counts.size, dtype=np.int64)
        room: Floats = np.empty(4)
        # The hat is right for any centre, and fits best for the mode.
        u = find_centre(counts, rates, times, 2.0**STEP_BITS, self._start, room)
        at_centre = _Sums(*room.tolist())
        self._centre = int(u * 2.0**STEP_BITS)
        self._moved = float(self._times @ self._start)
        self._base, self._terms = at_centre.log, at_centre.terms
        self.hat = self._make_hat(u, at_centre)

    def draw(self, words: Iterator[int], *, exactly: bool = False) -> int:
        """Return u in steps of the lattice. ``exactly`` decides everything by integers: the oracle."""
        while True:
            point, halved = self.hat.propose(words)
            head = [next(words), next(words)]
            if point < 1:
                continue
            uniform = (head[0] << WORD_BITS | head[1]) * 2.0**-64
            kept = None if exactly else self._certainly_kept(point, halved, uniform)
            if kept is None:
                kept = self._exactly_kept(point, halved, chain(head, words))
            if kept:
                return point

    def grid(self) -> tuple[list[int], Floats]:
        """Return points of the lattice that cover the law of u, and their shares of it: Gauss-Legendre, by panels."""
        middle = self.hat.last - self.hat.first
        low = max(0, self.hat.first - _COVER * max(self.hat.left, middle // 4))
        high = self.hat.last + _COVER * max(self.hat.right, middle // 4)
        nodes, shares = np.polynomial.legendre.leggauss(_NODES)
        width = (high - low) / _PANELS
        points = [max(1, int(low + (panel + (x + 1) / 2) * width)) for panel in range(_PANELS) for x in nodes.tolist()]
        logs = np.array([self._tangent(point)[0] for point in points])
        weights = np.exp(logs - logs.max()) * np.tile(shares, _PANELS)
        return points, weights / weights.sum()

    # ---- double precision, with a margin -------------------------------------------------------------

    def _certainly_kept(self, point: int, halved: int, uniform: float) -> bool | None:
        """Say whether the point is kept, or None where rounding could decide."""
        log, error, _ = self._tangent(point)
        chance = log - self.hat.height + halved * math.log(2)
        if chance > 0:
            raise ArithmeticError("the hat does not cover the density")
        kept = math.exp(chance)
        return None if abs(uniform - kept) <= _CLOSE + 2 * error else uniform < kept

    def _tangent(self, point: int) -> tuple[float, float, float]:
        """Return the log of the density relative to the centre, a bound on its rounding, and its derivative."""
        away, u = _steps_to_u(point - self._centre), _steps_to_u(point)
        here = self._evaluate(u)
        spread = self._moved * math.log1p(away / _steps_to_u(self._centre))
        size = abs(away) + abs(spread) + abs(here.log) + abs(self._base)
        error = _ROUNDING * (here.terms + self._terms + size)
        return -away + spread + here.log - self._base, error, here.mean / u - 1

    def _evaluate(self, u: float) -> _Sums:
        room: Floats = np.empty(4)  # not shared: threads may draw from one law at once
        sums(self._counts, self._rates, self._times, self._start, u, room)
        return _Sums(*room.tolist())

    def _make_hat(self, centre: float, here: _Sums) -> Hat:
        """Put a staircase over two tangents; each is taken a little too high and too shallow, never too low."""
        slope, bend = here.mean / centre - 1, (here.mean - here.variance) / centre**2
        spread = 1 / max(abs(slope), math.sqrt(max(bend, 0.0)))
        right = self._touch(centre + _REACH * spread)
        while right.slope > -0.2 / spread:
            right = self._touch(right.u + spread)
        begin = centre - _REACH * spread
        # By the tangent at the centre no point between the two is higher than this.
        height = _SLACK + max(0.0, slope * (right.u - centre), slope * (max(begin, 0.0) - centre))
        end, block = right.side(centre, height)
        last = int(end * 2.0**STEP_BITS) + 1
        left = self._touch(begin) if begin > 0 else None
        if left is None or left.slope <= 0:
            return Hat(height=height, first=1, last=last, left=0, right=block)
        begin, before = left.side(centre, height)
        return Hat(height=height, first=max(1, int(begin * 2.0**STEP_BITS)), last=last, left=before, right=block)

    def _touch(self, u: float) -> _Tangent:
        log, _, slope = self._tangent(max(1, int(u * 2.0**STEP_BITS)))
        return _Tangent(u, log, slope)

    # ---- exact arithmetic -----------------------------------------------------------------------------

    def _exactly_kept(self, point: int, halved: int, words: Iterator[int]) -> bool:
        """Compare a uniform number with the density by enclosures, narrowed until they decide."""
        uniform, read, digits = 0, 0, 30
        while True:
            for _ in range(read or 2):
                uniform, read = uniform << WORD_BITS | next(words), read + 1
            low, high = self._enclose_log_density(point, digits)
            # ln U < density - height + halved ln 2, with U from uniform to uniform + 1 in units of 2**(-32 read).
            two = _log(Fraction(2), digits)
            shift, halves = Fraction(self.hat.height), halved + WORD_BITS * read
            if _log(Fraction(uniform + 1), digits)[1] <= low - shift + halves * two[0]:
                return True
            if uniform and _log(Fraction(uniform), digits)[0] >= high - shift + halves * two[1]:
                return False
            digits *= 2

    def _enclose_log_density(self, point: int, digits: int) -> tuple[Fraction, Fraction]:
        """Enclose the log of the density relative to the centre."""
        bits = 4 * digits
        away = (point - self._centre) * STEP
        moved = int(self._moved)
        low, high = (-away + moved * end for end in _log(Fraction(point, self._centre), digits))
        for place, times in enumerate(self._times.tolist()):
            here = self.weights(place, point).total(bits)
            base = self.weights(place, self._centre).total(bits)
            low += int(times) * (_log(Fraction(here[0], base[1]), digits)[0])
            high += int(times) * (_log(Fraction(here[1], base[0]), digits)[1])
        return low, high

    def weights(self, place: int, point: int) -> Weights:
        """Return the weights of the number selected of one swap value, given u."""
        rate = self._odds(place) * point * STEP
        return count_weights(int(self._counts[place]), rate, near=int(self._start[place]))


def _steps_to_u(steps: int) -> float:
    """Return the double nearest to so many steps."""
    return steps / (1 << STEP_BITS)


def count_weights(count: int, rate: Fraction, *, near: int) -> Weights:
    """Return the weights C(c,g) rate^g / g! of g selected among ``count`` records, for u times the odds = ``rate``."""
    top, bottom = rate.numerator, rate.denominator
    return Weights(low=0, high=count, near=near, ratio=lambda g: ((count - g) * top, (g + 1) ** 2 * bottom))


def _log(value: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Enclose a natural logarithm."""
    enclosure = ln(value).enclose(digits)
    return Fraction(enclosure.low), Fraction(enclosure.high)
