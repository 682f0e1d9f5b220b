"""Rényi divergences of finite laws in certified enclosures, and their normalised supremum D_NoR."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from typing import Final

from stirred.spec.enclosure import Enclosure
from stirred.spec.exact import ln

Pairs = list[tuple[Fraction, Fraction]]

_DIGITS: Final = 40
_DOWN: Final = decimal.Context(prec=_DIGITS, rounding=decimal.ROUND_FLOOR)
_UP: Final = decimal.Context(prec=_DIGITS, rounding=decimal.ROUND_CEILING)
_ONE: Final = Decimal(1)
_EVERYWHERE: Final = Enclosure(Decimal("Infinity"), Decimal("Infinity"))


def renyi(pairs: Pairs, *, order: Fraction) -> Enclosure:
    """Enclose the Rényi divergence of P from Q, ``ln(sum p^a q^(1-a)) / (a - 1)``, for order a > 1.

    Infinite where P is not absolutely continuous with respect to Q (Appendix G).
    """
    if any(q == 0 < p for p, q in pairs):
        return _EVERYWHERE
    power = _log_moment(_logs(pairs), order)
    return _scaled(power, 1 / (order - 1))


def normalised_renyi(pairs: Pairs, *, tolerance: Fraction = Fraction(1, 10**6)) -> Enclosure:
    """Enclose the supremum over orders a > 1 of ``sqrt(D_a(P||Q) / a)``, one direction of D_NoR.

    (a-1) D_a is convex in a and 0 at a = 1, so on an interval of orders it lies below its chord, which
    gives the bound of :func:`_push`. Intervals are split, the most promising first, until the bound and
    the best value found agree to ``tolerance``. Beyond the last one the ratio is at most D_infinity / a.
    """
    if any(q == 0 < p for p, q in pairs):
        return _EVERYWHERE
    logs = _logs(pairs)
    top = max(ln(p / q).enclose().high for p, q in pairs if p)
    if top <= 0:
        return Enclosure(Decimal(0), Decimal(0))
    best = _divergence(pairs, logs, Fraction(1)).low  # the limit a -> 1 is the Kullback-Leibler divergence
    last = Fraction(2)
    while _divide_up(top, last) > best:
        best = max(best, _ratio_low(pairs, logs, last))
        last *= 2
    intervals: list[tuple[Decimal, Fraction, Fraction]] = []
    edge = Fraction(1)
    while edge < last:
        _push(intervals, pairs, logs, edge, min(edge * 2, last))
        edge *= 2
    for _ in range(20_000):
        bound = -intervals[0][0]
        if bound <= best or _DOWN.multiply(bound, _decimal_up(1 - tolerance)) <= best:
            return _root(Enclosure(min(best, bound), max(best, bound)))
        _, a, b = heappop(intervals)
        middle = (a + b) / 2
        best = max(best, _ratio_low(pairs, logs, middle))
        _push(intervals, pairs, logs, a, middle)
        _push(intervals, pairs, logs, middle, b)
    return _root(Enclosure(best, -intervals[0][0]))


def _push(
    intervals: list[tuple[Decimal, Fraction, Fraction]], pairs: Pairs, logs: list[_Logs], a: Fraction, b: Fraction
) -> None:
    heappush(intervals, (-_bound(pairs, logs, a, b), a, b))


def _bound(pairs: Pairs, logs: list[_Logs], a: Fraction, b: Fraction) -> Decimal:
    """Bound D_x / x over orders x from a to b.

    The chord of (x-1) D_x, divided by x (x-1), is P/x - N/(x-1) with P >= N >= 0. That is largest at
    x/(x-1) = sqrt(P/N), where it is (sqrt P - sqrt N)^2; otherwise an end of the interval decides. From
    a = 1 the chord gives D_b.
    """
    at_b = _divergence(pairs, logs, b)
    if a == 1:
        return at_b.high
    at_a = _divergence(pairs, logs, a)
    high, end_high = (a - 1) * Fraction(at_a.high), (b - 1) * Fraction(at_b.high)
    ends = max(_divide_up(at_a.high, a), _divide_up(at_b.high, b))
    # A chord through the upper ends lies above the true one: high + slope (x - a) = -P + ... in the form above.
    slope = (end_high - high) / (b - a)
    p, n = slope * a - high, slope * (a - 1) - high
    if slope <= 0 or p <= 0 or n <= 0:
        return max(ends, _divide_up(_decimal_up(max(high, end_high)), a * (a - 1)))
    # The top of the curve lies inside the interval only if (b/(b-1))^2 <= P/N <= (a/(a-1))^2.
    if (b / (b - 1)) ** 2 <= p / n <= (a / (a - 1)) ** 2:
        return max(ends, _squared_gap(p, n))
    return ends


def _squared_gap(p: Fraction, n: Fraction) -> Decimal:
    """Return (sqrt p - sqrt n)^2 rounded up, for p >= n."""
    context = decimal.Context(prec=_DIGITS)
    up = _decimal_up(p).sqrt(context).next_plus(context)
    down = Enclosure.of(n, digits=_DIGITS).low.sqrt(context).next_minus(context)
    gap = _UP.subtract(up, down)
    return _UP.multiply(gap, gap)


def _ratio_low(pairs: Pairs, logs: list[_Logs], order: Fraction) -> Decimal:
    return _DOWN.divide(_divergence(pairs, logs, order).low, _decimal_up(order))


_Logs = tuple[Enclosure, Enclosure]


def _logs(pairs: Pairs) -> list[_Logs]:
    return [(ln(p).enclose(_DIGITS), ln(q).enclose(_DIGITS)) for p, q in pairs if p]


def _divergence(pairs: Pairs, logs: list[_Logs], order: Fraction) -> Enclosure:
    if order > 1:
        return _scaled(_log_moment(logs, order), 1 / (order - 1))
    low = high = Decimal(0)
    for (p, _), (log_p, log_q) in zip([pair for pair in pairs if pair[0]], logs, strict=True):
        weight = Enclosure.of(p, digits=_DIGITS)
        down, up = _DOWN.subtract(log_p.low, log_q.high), _UP.subtract(log_p.high, log_q.low)
        low = _DOWN.add(low, min(_DOWN.multiply(weight.low, down), _DOWN.multiply(weight.high, down)))
        high = _UP.add(high, max(_UP.multiply(weight.low, up), _UP.multiply(weight.high, up)))
    return Enclosure(max(low, Decimal(0)), max(high, Decimal(0)))


def _log_moment(logs: list[_Logs], order: Fraction) -> Enclosure:
    """Enclose ln of the sum of p^a q^(1-a)."""
    a = Enclosure.of(order, digits=_DIGITS)
    low = high = Decimal(0)
    context = decimal.Context(prec=_DIGITS)
    for log_p, log_q in logs:
        # ln p and ln q are at most 0, and a > 1: a ln p is lowest at the upper end of a.
        small = _DOWN.subtract(_DOWN.multiply(a.high, log_p.low), _UP.multiply(_DOWN.subtract(a.low, _ONE), log_q.high))
        large = _UP.subtract(_UP.multiply(a.low, log_p.high), _DOWN.multiply(_UP.subtract(a.high, _ONE), log_q.low))
        low = _DOWN.add(low, small.exp(context).next_minus(context))
        high = _UP.add(high, large.exp(context).next_plus(context))
    bottom = low.ln(context).next_minus(context) if low > 0 else Decimal(0)
    return Enclosure(max(bottom, Decimal(0)), max(high.ln(context).next_plus(context), Decimal(0)))


def _scaled(x: Enclosure, by: Fraction) -> Enclosure:
    scale = Enclosure.of(by, digits=_DIGITS)
    return Enclosure(_DOWN.multiply(x.low, scale.low), _UP.multiply(x.high, scale.high))


def _root(x: Enclosure) -> Enclosure:
    context = decimal.Context(prec=_DIGITS)
    low = x.low.sqrt(context).next_minus(context) if x.low > 0 else Decimal(0)
    return Enclosure(low, x.high.sqrt(context).next_plus(context))


def _decimal_up(value: Fraction) -> Decimal:
    return Enclosure.of(value, digits=_DIGITS).high


def _divide_up(value: Decimal, by: Fraction) -> Decimal:
    return _UP.divide(value, Enclosure.of(by, digits=_DIGITS).low)
