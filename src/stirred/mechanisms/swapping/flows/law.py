"""How many records of each swap value get each value: the law of the flow table, drawn exactly (theory R6, R11).

If the rearrangements y of the swap values have weights that are products of R(s_i, y_i), the numbers F(s,s') of
records of value s that get s' have weight prod R(s,s')^F(s,s') / F(s,s')!, and given F all rearrangements are equally
likely. Where records that keep their value are weighed otherwise (R11), R(s,s)^F is another function of F(s,s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import WordReader
from stirred.randomness.inversion import Weights, draw_weighted

Flow = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# The weight of one record of a value, by its place, that gets another.
Pair = Callable[[int, int], Fraction]

# A draw this close to a step, relative to the whole, is left to integers: 2**21 roundings of 2**-53 are less than half
# of it. A number here has at most 4 for each record (powers and factorials) and a few for each term of the sums.
_CLOSE: Final = 2.0**-30


class FlowLaw:
    """The law of the flow table of one stratum, with ``counts`` records of each swap value.

    ``pair`` weighs a record that changes its value, from place to place; ``floats`` gives the same in double
    precision, for a list of places in order. ``kept[s][F]`` weighs F records that keep the value s; all weigh 1 if
    it is None.

    >>> from stirred.randomness.entropy import Entropy
    >>> law = FlowLaw([2, 1, 1], lambda a, b: Fraction(1, 3))
    >>> law.draw(Entropy.from_os().keystream("example").reader(0)).sum(axis=0).tolist()
    [2, 1, 1]
    """

    def __init__(
        self,
        counts: Sequence[int],
        pair: Pair,
        kept: Sequence[Sequence[Fraction]] | None = None,
        *,
        floats: Callable[[list[int]], Floats] | None = None,
    ) -> None:
        # The largest value comes last, as a row and as a column: its cells follow from the others.
        self._order = sorted(range(len(counts)), key=lambda place: (counts[place], place))
        self._counts = [int(counts[place]) for place in self._order]
        self._weight, self._floats = pair, floats
        self._kept = None if kept is None else [kept[place] for place in self._order]

    @property
    def _pair(self) -> list[list[Fraction]]:
        return [[Fraction(1) if a == b else self._weight(a, b) for b in self._order] for a in self._order]

    def draw(self, words: WordReader) -> Flow:
        """Return how many records of each value (rows) get each value (columns)."""
        if len(self._counts) < 3 and self._kept is None:
            return self._restored(self._of_two(words))
        from stirred.mechanisms.swapping.flows.law_kernel import draw_flow

        heads = words.take(2 * (len(self._counts) - 1) ** 2).astype(np.uint64)
        flow: Flow = np.zeros((len(self._counts),) * 2, dtype=np.int64)
        points = heads[0::2] << np.uint64(32) | heads[1::2]
        if not draw_flow(*self._in_doubles, points, _CLOSE, flow):
            flow = self._by_integers(heads, words)
        return self._restored(flow)

    def draw_exactly(self, words: WordReader) -> Flow:
        """Return the same from the same words by integers alone: the oracle of ``draw``."""
        if len(self._counts) < 3 and self._kept is None:
            return self._restored(self._of_two(words))
        return self._restored(self._by_integers(words.take(2 * (len(self._counts) - 1) ** 2), words))

    def expected_moves(self, place: int | None = None) -> float:
        """Return how many records, of the value at a place or of all, are expected to get another value."""
        if len(self._counts) == 1:
            return 0.0
        if len(self._counts) == 2 and self._kept is None:
            exchanges = _exchanges_expected(*self._counts, float(self._both_ways))
            return exchanges if place is not None else 2 * exchanges
        packed = tuple(array.tobytes() for array in self._in_doubles)
        return _expected(*packed, -1 if place is None else self._order.index(place))

    def _restored(self, flow: Flow) -> Flow:
        place = np.argsort(self._order)
        return flow[place[:, None], place]

    @property
    def _in_doubles(self) -> tuple[Counts, Floats, Floats, Counts]:
        counts = np.array(self._counts, dtype=np.int64)
        if self._floats is None:
            weights = np.array([[float(weight) for weight in row] for row in self._pair])
        else:
            weights = self._floats(self._order)
        if self._kept is None:
            size = int(counts.sum()) + counts.size
            return counts, weights, np.ones(size), np.zeros(size, dtype=np.int64)
        pairs = [_wide(weight) for row in self._kept for weight in row]
        return counts, weights, np.array([m for m, _ in pairs]), np.array([e for _, e in pairs], dtype=np.int64)

    # ---- two values: any size ---------------------------------------------------------------------------

    def _of_two(self, words: WordReader) -> Flow:
        """Draw the number D of exchanges between two values: C(a,D) C(b,D) theta^2D."""
        if len(self._counts) == 1:
            return np.array([self._counts], dtype=np.int64)
        few, many = self._counts
        d = _exchanges(few, many, self._both_ways).draw(words)
        return np.array([[few - d, d], [d, many - d]], dtype=np.int64)

    @property
    def _both_ways(self) -> Fraction:
        return self._weight(0, 1) * self._weight(1, 0)

    # ---- integers ---------------------------------------------------------------------------------------

    def _by_integers(self, heads: npt.NDArray[np.unsignedinteger], words: WordReader) -> Flow:
        law, last = _Integers(self._counts, self._pair, self._kept), len(self._counts) - 1
        flow: Flow = np.zeros((last + 1, last + 1), dtype=np.int64)
        columns = tuple(self._counts[:-1])
        for t in range(last):
            left = self._counts[t]
            for k in range(last):
                ways = law.ways(t, k, columns, left)
                place = 2 * (t * last + k)
                # A cell with one way takes no more than its two words.
                f = draw_weighted(ways, chain(heads[place : place + 2].tolist(), words)) if len(ways) > 1 else 0
                columns = (*columns[:k], columns[k] - f, *columns[k + 1 :])
                flow[t, k], left = f, left - f
            flow[t, last] = left
        flow[last, :last] = columns
        flow[last, last] = self._counts[last] - sum(columns)
        return flow


class _Integers:
    """The sums of ``law_kernel`` in integers: every row's weights are multiplied by what makes them whole."""

    def __init__(
        self, counts: list[int], pair: list[list[Fraction]], kept: Sequence[Sequence[Fraction]] | None
    ) -> None:
        self._counts, self._last = counts, len(counts) - 1
        scale = math.lcm(*(weight.denominator for row in pair for weight in row))
        self._pair = [[int(weight * scale) for weight in row] for row in pair]
        self._stay = []
        for place, count in enumerate(counts):
            own = [Fraction(1)] * (count + 1) if kept is None else kept[place]
            whole = math.lcm(*(weight.denominator for weight in own))
            self._stay.append([int(weight * whole) * scale**f for f, weight in enumerate(own)])
        self._rows: Callable[[int, tuple[int, ...]], int] = lru_cache(None)(self._rows_from)
        self._cells: Callable[[int, int, tuple[int, ...], int], int] = lru_cache(None)(self._cells_from)

    def ways(self, t: int, k: int, columns: tuple[int, ...], left: int) -> list[int]:
        """Return the weight of every number in cell k of row t, with all that can follow."""
        return [
            math.comb(left, f)
            * (self._stay[t][f] if k == t else self._pair[t][k] ** f)
            * self._cells(t, k + 1, (*columns[:k], columns[k] - f, *columns[k + 1 :]), left - f)
            for f in range(min(left, columns[k]) + 1)
        ]

    def _cells_from(self, t: int, k: int, columns: tuple[int, ...], left: int) -> int:
        if k == self._last:
            return int(self._pair[t][k] ** left) * self._rows(t + 1, columns)
        return sum(self.ways(t, k, columns, left))

    def _rows_from(self, t: int, columns: tuple[int, ...]) -> int:
        if t < self._last:
            return self._cells(t, 0, columns, self._counts[t])
        left, weight = self._counts[t], 1
        for k, f in enumerate(columns):
            weight *= math.comb(left, f) * self._pair[t][k] ** f
            left -= f
            if left < 0:
                return 0
        return int(weight * self._stay[t][left])


def _wide(weight: Fraction) -> tuple[float, int]:
    """Return a number as a double m and an exponent e that mean m * 2**(512 e)."""
    if not weight:
        return 0.0, 0
    e = (weight.numerator.bit_length() - weight.denominator.bit_length() + 255) // 512
    return float(weight / Fraction(2) ** (512 * e)), e


@lru_cache(maxsize=20_000)
def _expected(counts: bytes, weights: bytes, kept_m: bytes, kept_e: bytes, row: int) -> float:
    """Return the expected number of moves; small strata are often alike."""
    from stirred.mechanisms.swapping.flows.law_kernel import expected_moves

    whole, size = np.frombuffer(counts, dtype=np.int64), len(counts) // 8
    pairs = np.frombuffer(weights, dtype=np.float64).reshape(size, size)
    kept = np.frombuffer(kept_m, dtype=np.float64), np.frombuffer(kept_e, dtype=np.int64)
    return expected_moves(whole.copy(), pairs.copy(), kept[0].copy(), kept[1].copy(), row)


@lru_cache(maxsize=10_000)
def _exchanges(few: int, many: int, weight: Fraction) -> Weights:
    """Return the law of the number of exchanges between two values, by the ratios of neighbouring weights."""
    root = math.sqrt(weight)
    # Where (few - d)(many - d) weight = d^2.
    near = few * many * root / (root * (few + many) / 2 + math.sqrt(weight * (few - many) ** 2 / 4 + few * many))
    top, bottom = weight.numerator, weight.denominator
    return Weights(
        low=0,
        high=few,
        near=min(few, int(near)),
        ratio=lambda d: ((few - d) * (many - d) * top, (d + 1) ** 2 * bottom),
    )


@lru_cache(maxsize=10_000)
def _exchanges_expected(few: int, many: int, weight: float) -> float:
    d = np.arange(few + 1.0)
    if not weight:
        return 0.0
    steps = np.log((few - d[:-1]) * (many - d[:-1]) * weight) - 2 * np.log(d[1:])
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    return float(d @ chances / chances.sum())
