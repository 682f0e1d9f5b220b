"""Numbers as people read them: the formula of an exact number, its decimals rounded up, and short fractions."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from stirred.spec.enclosure import rounding_context

if TYPE_CHECKING:
    from stirred.spec.exact import Exact


def decimal_text(value: Fraction) -> str:
    """Write a decimal of at most four places as it is."""
    scaled = int(abs(value) * 10**4)
    whole, rest = divmod(scaled, 10**4)
    places = f".{rest:04d}".rstrip("0").rstrip(".")
    return f"{'-' if value < 0 else ''}{whole}{places}"


def formula_text(value: Exact) -> str:
    """Write the formula, so that it can be read back."""
    if value.kind == "rational":
        return str(value.rational)
    if value.is_infinite:
        return "inf"
    if value.kind in ("ln", "exp", "sqrt"):
        return f"{value.kind}({formula_text(value.parts[0])})"
    if value.kind == "reciprocal":
        return f"1/({formula_text(value.parts[0])})"
    if value.kind == "product":
        return _product_text(value)
    joined = " + ".join(formula_text(part) for part in value.parts)
    return joined.replace("+ -", "- ")


def _product_text(value: Exact) -> str:
    first, rest = value.parts[0], value.parts[1:]
    if first.is_rational and first.rational == -1:
        return "-" + "*".join(_factor_text(part) for part in rest)
    return "*".join(_factor_text(part) for part in value.parts)


def _factor_text(value: Exact) -> str:
    return f"({formula_text(value)})" if value.kind in ("sum", "reciprocal") else formula_text(value)


def places_for(size: Decimal) -> int:
    """Return how many decimals are shown: two from 1 upwards, three significant digits below."""
    if size == 0 or abs(size) >= 1:
        return 2
    return 2 - size.adjusted()


def rounded_up(value: Exact, places: int) -> Decimal:
    """Round up to ``places`` decimals, exactly: a rational is rounded itself, not a decimal copy of it."""
    if value.is_rational:
        scaled = math.ceil(value.rational * 10**places)
        return Decimal(scaled).scaleb(-places, rounding_context(len(str(abs(scaled))) + 10, decimal.ROUND_CEILING))
    high = value.enclose(60).high
    wide = rounding_context(max(80, high.adjusted() + places + 10), decimal.ROUND_CEILING)
    return high.quantize(Decimal(1).scaleb(-places), context=wide)


def small(value: Fraction) -> str:
    """Write a small probability the way people read it.

    >>> small(Fraction(1, 10**10)), small(Fraction(1, 4_000_000)), small(Fraction(1, 3))
    ('1e-10', '2.5e-7', '1/3')
    """
    exponent, scaled = 0, value
    while scaled and scaled.denominator != 1 and exponent < 40:
        scaled, exponent = scaled * 10, exponent + 1
    if not value or scaled.denominator != 1 or value >= 1:
        return str(value)
    digits = str(scaled)
    return f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e-{exponent - len(digits) + 1}"


def percent(share: Fraction | float, *, digits: int = 4) -> str:
    """Write a share as a percentage, never in powers of ten, and 0% or 100% only where it is exactly that.

    >>> percent(0.05), percent(Fraction(1, 3), digits=2), percent(0.9996, digits=2), percent(1), percent(1e-7)
    ('5%', '33%', '99.96%', '100%', '0.00001%')
    """
    value = 100 * float(share)
    text = f"{value:.{digits}g}"
    while float(text) == 100 != value and digits < 17:
        digits += 1
        text = f"{value:.{digits}g}"
    return f"{Decimal(text):f}%"


def brief(value: Fraction) -> str:
    """Write a fraction for a reader: in full while it is short, and otherwise its first digits.

    >>> brief(Fraction(19, 108)), brief(Fraction(10**40 + 1, 3 * 10**40))
    ('19/108', 'about 0.333333')
    """
    text = str(value)
    return text if len(text) <= 40 else f"about {Decimal(value.numerator) / value.denominator:.6g}"
