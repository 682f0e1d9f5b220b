"""Numbers as the paper prints them, compared with exact ones through certified enclosures."""

from __future__ import annotations

from fractions import Fraction

from stirred.spec.exact import Exact, exact

# Far more digits than any table prints: a number this close to a rounding boundary has to be rational.
_DIGITS = 60


def bounds(value: Exact | int | Fraction) -> tuple[Fraction, Fraction]:
    """Return fractions certain to enclose the number; a rational number is enclosed by itself."""
    number = exact(value)
    assert not number.is_infinite, "infinity is not printed as a number"
    if number.is_rational:
        return number.rational, number.rational
    enclosure = number.enclose(_DIGITS)
    return Fraction(enclosure.low), Fraction(enclosure.high)


def _last_place(text: str) -> Fraction:
    return Fraction(1, 10 ** len(text.partition(".")[2]))


def assert_prints(value: Exact | int | Fraction, text: str) -> None:
    """Assert that the number, rounded to the nearest, is the printed text; a tie may go either way.

    >>> from stirred.spec.exact import ln
    >>> assert_prints(ln(264332), "12.48")
    """
    low, high = bounds(value)
    printed, half = Fraction(text.replace(",", "")), _last_place(text) / 2
    assert printed - half <= low <= high <= printed + half, f"{float(low):.12g} does not print as {text}"


def assert_truncates(value: Exact | int | Fraction, text: str) -> None:
    """Assert that the number begins with the printed digits and does not round to them: cut off, not rounded.

    >>> assert_truncates(Fraction(9526, 100), "95.2")
    """
    low, high = bounds(value)
    printed, place = Fraction(text), _last_place(text)
    assert printed + place / 2 < low <= high < printed + place, f"{float(low):.12g} is not cut off to {text}"


def assert_encloses(value: Exact, other: Fraction, *, within: Fraction = Fraction(1, 10**40)) -> None:
    """Assert that two computations of one number agree, the second being good to ``within``."""
    low, high = bounds(value)
    assert low - within <= other <= high + within, f"{float(low):.17g} is not {float(other):.17g}"
    assert high - low < within, "the enclosure is too wide to tell"
