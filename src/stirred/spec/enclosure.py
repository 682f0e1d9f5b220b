"""Intervals that are certain to contain a number: arithmetic in decimals, rounded outwards."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache


class TooCoarseError(ArithmeticError):
    """More digits are needed."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """An interval that is certain to contain a number: ``low <= number <= high``.

    >>> third = Enclosure.of(Fraction(1, 3), digits=4)
    >>> third
    Enclosure(low=Decimal('0.3333'), high=Decimal('0.3334'))
    >>> third.plus(third, digits=4).inverse(digits=2)
    Enclosure(low=Decimal('1.4'), high=Decimal('1.6'))
    """

    low: Decimal
    high: Decimal

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ArithmeticError(f"an enclosure from {self.low} to {self.high} contains nothing")

    @classmethod
    def of(cls, value: Fraction, *, digits: int) -> Enclosure:
        """Enclose a rational number."""
        top, bottom = Decimal(value.numerator), Decimal(value.denominator)
        return cls(_floor(digits).divide(top, bottom), _ceiling(digits).divide(top, bottom))

    def plus(self, other: Enclosure, *, digits: int) -> Enclosure:
        """Enclose the sum."""
        return Enclosure(_floor(digits).add(self.low, other.low), _ceiling(digits).add(self.high, other.high))

    def times(self, other: Enclosure, *, digits: int) -> Enclosure:
        """Enclose the product."""
        corners = [(p, q) for p in (self.low, self.high) for q in (other.low, other.high)]
        return Enclosure(
            min(_floor(digits).multiply(p, q) for p, q in corners),
            max(_ceiling(digits).multiply(p, q) for p, q in corners),
        )

    def inverse(self, *, digits: int) -> Enclosure:
        """Enclose one over the number."""
        if self.low <= 0 <= self.high:
            raise TooCoarseError
        one = Decimal(1)
        return Enclosure(_floor(digits).divide(one, self.high), _ceiling(digits).divide(one, self.low))

    def ln(self, *, digits: int) -> Enclosure:
        """Enclose the natural logarithm."""
        return self._through(Decimal.ln, digits)

    def exp(self, *, digits: int) -> Enclosure:
        """Enclose the exponential."""
        return self._through(Decimal.exp, digits)

    def sqrt(self, *, digits: int) -> Enclosure:
        """Enclose the square root."""
        return self._through(Decimal.sqrt, digits)

    def _through(self, function: Callable[[Decimal, decimal.Context], Decimal], digits: int) -> Enclosure:
        """Enclose an increasing function whose decimal version is correctly rounded.

        ``ln``, ``exp`` and ``sqrt`` of the decimal standard are correctly rounded half-even, so stepping
        one unit in the last place outwards is certain to enclose the true value.
        """
        context = rounding_context(digits, decimal.ROUND_HALF_EVEN)
        low, high = function(self.low, context), function(self.high, context)
        return Enclosure(low.next_minus(context), high.next_plus(context))


def rounding_context(digits: int, rounding: str) -> decimal.Context:
    """Return how to compute with so many digits; no possible outcome may underflow to zero (architecture, rules)."""
    return decimal.Context(prec=digits, rounding=rounding, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@lru_cache(maxsize=64)
def _floor(digits: int) -> decimal.Context:
    return rounding_context(digits, decimal.ROUND_FLOOR)


@lru_cache(maxsize=64)
def _ceiling(digits: int) -> decimal.Context:
    return rounding_context(digits, decimal.ROUND_CEILING)
