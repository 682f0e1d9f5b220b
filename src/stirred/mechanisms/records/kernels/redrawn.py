"""How many records of each swap value the conditioned swap selects (swapping theory R6).

The law of the counts g_s is proportional to k! times the product of C(c_s,g_s) x_s^g_s / g_s!, with k the sum of
the g_s and x_s the odds of the rate times the mass of value s. Since k! is the integral of u^k e^-u, one number u
(``mixing``) makes the counts independent.

u is drawn on the lattice of multiples of ``STEP`` instead of the line. u^k e^-u rises and then falls, so that its
sum over the lattice, times STEP, differs from the integral by at most STEP times its largest value, which is
at most k!. No probability is therefore off by more than a factor 1 + STEP or 1 - STEP, which adds at most
``LATTICE_EPSILON`` to the loss: the nearest tables are two records apart. Everything else is exact. Double
precision decides what it can tell with a margin a thousand times its own rounding, and integers of as many
digits as it takes decide the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.records.kernels.partition import Counts, Values
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import WORD_BITS, WordReader
from stirred.randomness.integers import below
from stirred.randomness.inversion import Weights
from stirred.spec.exact import Exact, ln

Floats = npt.NDArray[np.float64]
Points = npt.NDArray[np.uint64]

# Terms below this share of the sum are left out.
_TINY = 1e-24
_LARGE = 1e200
# How often the centre of u moves towards its mode, and how many standard deviations from it are near enough.
_MOST_MOVES = 3
_NEAR = 0.1


@compiled
def sums(counts: Counts, rates: Floats, times: Floats, start: Counts, u: float, out: Floats) -> None:
    """Write the log of the product of all sums, in units of the terms at ``start``; mean and variance of the
    number selected; and the number of terms. Each swap value counts ``times`` times.
    """
    out[:] = 0.0
    for i in range(counts.size):
        count, rate, first = counts[i], rates[i] * u, start[i]
        unit = total = 1.0
        moment = square = log = 0.0
        term, g = 1.0, first
        while g < count:
            ratio = (count - g) * rate / ((g + 1.0) * (g + 1.0))
            term *= ratio
            g += 1
            total += term
            moment += term * (g - first)
            square += term * (g - first) * (g - first)
            if term > _LARGE:
                term, unit, total = term / _LARGE, unit / _LARGE, total / _LARGE
                moment, square, log = moment / _LARGE, square / _LARGE, log + math.log(_LARGE)
            elif term < _TINY * total and ratio < 1.0:
                break
        seen = g - first
        term, g = unit, first
        while g > 0:
            ratio = float(g) * g / ((count - g + 1.0) * rate)
            term *= ratio
            g -= 1
            total += term
            moment += term * (g - first)
            square += term * (g - first) * (g - first)
            if term > _LARGE:
                term, total = term / _LARGE, total / _LARGE
                moment, square, log = moment / _LARGE, square / _LARGE, log + math.log(_LARGE)
            elif term < _TINY * total and ratio < 1.0:
                break
        seen += first - g + 1
        mean = moment / total
        out[0] += times[i] * (math.log(total) + log)
        out[1] += times[i] * (mean + first)
        out[2] += times[i] * (square / total - mean * mean)
        out[3] += times[i] * seen


@compiled
def find_centre(counts: Counts, rates: Floats, times: Floats, steps: float, start: Counts, out: Floats) -> float:
    """Return about the mode of u, a multiple of 1/steps; write about the most likely counts there, and the sums."""
    u = _balance(counts, rates, times)
    for left in range(_MOST_MOVES, -1, -1):
        u = max(math.floor(u * steps), 1.0) / steps
        for i in range(counts.size):
            start[i] = _middle(counts[i], rates[i] * u)
        sums(counts, rates, times, start, u, out)
        slope, bend = out[1] / u - 1.0, (out[1] - out[2]) / (u * u)
        if left == 0 or u * steps == 1.0 or bend <= 0.0 or abs(slope) <= _NEAR * math.sqrt(bend):
            break
        u = max(u + slope / bend, u / 4.0)
    return u


@compiled
def _balance(counts: Counts, rates: Floats, times: Floats) -> float:
    """Return about the u at which as many records are selected as u says; 0 if the density of u falls from 0 on."""
    low, high, rise = 0.0, 0.0, 0.0
    for i in range(counts.size):
        high += times[i] * counts[i]
        rise += times[i] * counts[i] * rates[i]
    if rise <= 1.0:
        return 0.0
    for _ in range(50):
        u = (low + high) / 2.0
        selected = 0.0
        for i in range(counts.size):
            # About the mean: where the ratio of neighbouring weights is 1, to the next order.
            rate = rates[i] * u
            half = rate + 0.5
            selected += times[i] * (math.sqrt(half * half + (4.0 * counts[i] + 1.0) * rate) - half) / 2.0
        if selected > u:
            low = u
        else:
            high = u
    return high


@compiled
def _middle(count: int, rate: float) -> int:
    """Return about the most likely count: where (c-g) x u = g^2."""
    return min(count, int((math.sqrt(rate * rate + 4.0 * count * rate) - rate) / 2.0))


@compiled
def find_alike(counts: Counts, rates: Floats, first: Counts, times: Floats) -> int:
    """Write a place of each pair of count and rate, and how often it occurs, by size; return how many there are.

    Pairs with equal counts are found alike only where they come in succession.
    """
    found = 0
    for place in np.argsort(counts, kind="mergesort"):
        known = found > 0 and counts[first[found - 1]] == counts[place] and rates[first[found - 1]] == rates[place]
        if not known:
            first[found], times[found] = place, 0.0
            found += 1
        times[found - 1] += 1.0
    return found


@compiled
def draw_counts(counts: Counts, rates: Floats, u: float, points: Points, close: float, out: Counts) -> int:
    """Draw the number selected of every swap value by inversion; write -1, and count, where too ``close`` to a step."""
    undecided = 0
    for i in range(counts.size):
        count, rate = counts[i], rates[i] * u
        middle = _middle(count, rate)
        below, term, g = 0.0, 1.0, middle
        while g > 0:
            term *= float(g) * g / ((count - g + 1.0) * rate)
            g -= 1
            below += term
            if term < _TINY:
                break
        above, term, g = 0.0, 1.0, middle
        while g < count:
            term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
            g += 1
            above += term
            if term < _TINY:
                break
        total = below + 1.0 + above
        target = float(points[i]) * 2.0**-64 * total
        term, g = 1.0, middle
        if target < below:
            # From the middle downwards: outcome g ends at ``end`` and begins at end - term.
            end = below
            while g > 0:
                term *= float(g) * g / ((count - g + 1.0) * rate)
                g -= 1
                if target >= end - term:
                    break
                end -= term
            begin = end - term
        else:
            begin = below
            end = begin + term
            while target >= end and g < count:
                term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
                g += 1
                begin = end
                end = begin + term
                if term < _TINY:
                    break
        if target - begin < close * total or end - target < close * total:
            out[i] = -1
            undecided += 1
        else:
            out[i] = g
    return undecided


@compiled
def cumulants(counts: Counts, rates: Floats, u: float, out: Floats) -> None:
    """Write the first four cumulants of the number selected of every swap value, given u: four rows."""
    for i in range(counts.size):
        count, rate = counts[i], rates[i] * u
        first = _middle(count, rate)
        total = 1.0
        moment = square = cube = fourth = 0.0
        for direction in (1, -1):
            term, g = 1.0, first
            while term > _TINY:
                if direction == 1:
                    if g == count:
                        break
                    term *= (count - g) * rate / ((g + 1.0) * (g + 1.0))
                else:
                    if g == 0:
                        break
                    term *= float(g) * g / ((count - g + 1.0) * rate)
                g += direction
                away = float(g - first)
                total += term
                moment += term * away
                square += term * away * away
                cube += term * away * away * away
                fourth += term * away * away * away * away
        m, m2, m3, m4 = moment / total, square / total, cube / total, fourth / total
        variance = m2 - m * m
        out[0, i] = m + first
        out[1, i] = variance
        out[2, i] = m3 - 3.0 * m * m2 + 2.0 * m * m * m
        out[3, i] = m4 - 4.0 * m * m3 + 6.0 * m * m * m2 - 3.0 * m * m * m * m - 3.0 * variance * variance


# The odds of the rate times the mass of the swap value at a place.
Odds = Callable[[int], Fraction]

STEP_BITS: Final = 40
STEP: Final = Fraction(1, 1 << STEP_BITS)

# The rounding of one term of a sum, or of one operation, in double precision: eight half units.
_ROUNDING: Final = 8 * 2.0**-53
# How far the envelope lies above the tangents: far more than rounding can do, and cheap.
_SLACK: Final = 0.01
_SHALLOWER: Final = 0.999
# For sums over the whole law: how many halvings of the envelope on each side, panels, and points in each.
_COVER: Final = 50
_PANELS: Final = 40
_NODES: Final = 16
# Where the tangents touch, in standard deviations from the middle.
_REACH: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
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
        """Return a point of the lattice in proportion to the envelope, and how often the envelope is halved there."""
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


class _SumTable(NamedTuple):
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
        # The envelope is right for any centre, and fits best for the mode.
        u = find_centre(counts, rates, times, 2.0**STEP_BITS, self._start, room)
        at_centre = _SumTable(*room.tolist())
        self._centre = int(u * 2.0**STEP_BITS)
        self._moved = float(self._times @ self._start)
        self._base, self._terms = at_centre.log, at_centre.terms
        self.envelope = self._make_envelope(u, at_centre)

    def draw(self, words: Iterator[int]) -> int:
        """Return u in steps of the lattice."""
        while True:
            point, halved = self.envelope.propose(words)
            head = [next(words), next(words)]
            if point < 1:
                continue
            uniform = (head[0] << WORD_BITS | head[1]) * 2.0**-64
            kept = self._certainly_kept(point, halved, uniform)
            if kept is None:
                kept = self._exactly_kept(point, halved, chain(head, words))
            if kept:
                return point

    def grid(self) -> tuple[list[int], Floats]:
        """Return points of the lattice that cover the law of u, and their shares of it: Gauss-Legendre, by panels."""
        middle = self.envelope.last - self.envelope.first
        low = max(0, self.envelope.first - _COVER * max(self.envelope.left, middle // 4))
        high = self.envelope.last + _COVER * max(self.envelope.right, middle // 4)
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
        chance = log - self.envelope.height + halved * math.log(2)
        if chance > 0:
            raise ArithmeticError("the envelope does not cover the density")
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

    def _evaluate(self, u: float) -> _SumTable:
        room: Floats = np.empty(4)  # not shared: threads may draw from one law at once
        sums(self._counts, self._rates, self._times, self._start, u, room)
        return _SumTable(*room.tolist())

    def _make_envelope(self, centre: float, here: _SumTable) -> Envelope:
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
            return Envelope(height=height, first=1, last=last, left=0, right=block)
        begin, before = left.side(centre, height)
        return Envelope(height=height, first=max(1, int(begin * 2.0**STEP_BITS)), last=last, left=before, right=block)

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
            shift, halves = Fraction(self.envelope.height), halved + WORD_BITS * read
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


LATTICE_EPSILON: Final[Exact] = ln((1 + STEP) / (1 - STEP)) / 2

# Draws and acceptances this close to a step, relative to the whole, go to exact arithmetic:
# sums of up to 2**20 terms are off by less than 8 * 2**20 * 2**-53 = 2**-30 of themselves.
_CLOSE: Final = 2.0**-24


class SelectedCounts:
    """The law of the selected counts of one stratum.

    ``counts`` are the records of each swap value; ``odds`` gives the odds of the rate times the mass of the value at a
    place, and ``rates`` the same in double precision.

    >>> from fractions import Fraction
    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_os().keystream("example").reader(0)
    >>> drawn = SelectedCounts(np.array([3, 2]), np.array([0.5, 0.5]), lambda place: Fraction(1, 2)).draw(words)
    >>> bool((drawn >= 0).all() and (drawn <= [3, 2]).all())
    True
    """

    def __init__(self, counts: Counts, rates: Floats, odds: Odds) -> None:
        self._counts: Counts = np.ascontiguousarray(counts, dtype=np.int64)
        self._rates, self._odds = rates, odds
        # Values alike in count and odds have equal sums.
        first, times = np.empty_like(self._counts), np.empty_like(rates)
        alike = find_alike(self._counts, rates, first, times)
        places, times = first[:alike], times[:alike]
        self._mixing = Mixing(self._counts[places], rates[places], times, lambda place: odds(int(places[place])))

    def draw(self, words: WordReader) -> Counts:
        """Return how many records of each swap value are selected."""
        point = self._mixing.draw(words)
        heads = words.take(2 * self._counts.size).astype(np.uint64)
        points = heads[0::2] << np.uint64(32) | heads[1::2]
        drawn: Counts = np.empty(self._counts.size, dtype=np.int64)
        if draw_counts(self._counts, self._rates, float(point * STEP), points, _CLOSE, drawn):
            for place in np.flatnonzero(drawn < 0).tolist():
                drawn[place] = self._draw_one(place, point, heads, words)
        return drawn

    def _draw_one(self, place: int, point: int, heads: npt.NDArray[np.uint64], words: WordReader) -> int:
        count, rate = int(self._counts[place]), self._odds(place) * point * STEP
        near = min(count, int((float(rate) ** 2 + 4 * count * float(rate)) ** 0.5 - float(rate)) // 2)
        head = heads[2 * place : 2 * place + 2].tolist()
        return count_weights(count, rate, near=near).draw(chain(head, words))


_SMALL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedCounting:
    """How many records of each swap value are selected, at one rate for each stratum.

    ``law`` is "uniform" over the swap values of the stratum, "proportional" to their counts there, or "declared":
    ``masses`` then gives the probability of each swap code, fixed beforehand and the same in every stratum.
    """

    rate: Fraction
    law: str = "uniform"
    masses: Mapping[int, Fraction] | None = None
    by_value: bool = True
    derange: bool = False

    def draw(self, values: Values, counts: Counts, words: WordReader) -> Counts:
        """Return how many records of each swap value of a stratum to select."""
        if counts.size < 2 or self.rate == 0:
            return np.zeros_like(counts)
        if self.rate == 1:
            return counts
        return self.of(values, counts).draw(words)

    def of(self, values: Values, counts: Counts) -> SelectedCounts:
        """Return the law of the selected counts of a stratum with these swap codes and their counts."""
        if self.masses is not None:
            odds = _odds(self.rate)
            exactly = [odds * self.masses[code] for code in values.tolist()]
            return SelectedCounts(counts, np.array([float(x) for x in exactly]), exactly.__getitem__)
        # Small strata are often alike.
        make = _made if counts.size <= _SMALL else _made.__wrapped__
        return make(self.rate, self.law, np.ascontiguousarray(counts, dtype=np.int64).tobytes())


@lru_cache(maxsize=64)
def _odds(rate: Fraction) -> Fraction:
    return rate / (1 - rate)


@lru_cache(maxsize=20_000)
def _made(rate: Fraction, law: str, packed: bytes) -> SelectedCounts:
    counts: Counts = np.frombuffer(packed, dtype=np.int64)
    odds, records = _odds(rate), int(counts.sum())
    if law == "uniform":
        same = odds / counts.size
        return SelectedCounts(counts, np.full(counts.size, float(same)), lambda place: same)
    rates = counts.astype(np.float64) * float(odds / records)
    return SelectedCounts(counts, rates, lambda place: odds * int(counts[place]) / records)
