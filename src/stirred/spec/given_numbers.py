"""Numbers as callers give them: fractions, probabilities and losses, read exactly or refused with the place."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.problems import SpecificationError, wrong

Number = Exact | int | Fraction | str | Decimal | float

# A fraction, decimal or percentage, and no formula: '1/20/2' is a slip of the pen.
_PLAIN: Final = re.compile(r"[+-]?[0-9]+/[0-9]+|[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*%?")
# Beyond this, infinity says what such a number would say.
_ABSURD: Final = 10**12


def fraction(value: Number, *, where: str) -> Fraction:
    """Return ``value`` as an exact fraction: ``"1/20"``, ``"5%"``, ``"0.05"`` and ``0.05`` agree.

    >>> fraction("5%", where="rate") == fraction(0.05, where="rate") == Fraction(1, 20)
    True
    >>> fraction("0,05", where="rate")
    Traceback (most recent call last):
    stirred.spec.problems.SpecificationError: rate: '0,05' is not a number ... did you mean 0.05?
    """
    plain = not isinstance(value, str) or _PLAIN.fullmatch(value.strip()) is not None
    try:
        number = exact(value) if plain else INFINITE
    except SpecificationError:
        number = INFINITE
    if not number.is_rational:
        point = str(value).strip().replace(",", ".")
        hint = f"; did you mean {point}?" if point != str(value).strip() and _PLAIN.fullmatch(point) else ""
        raise wrong(
            f"{str(value)[:60]!r} is not a number that can be used here",
            where=where,
            remedy=f"write a fraction, decimal (with a point) or percentage, such as '1/20', '0.05' or '5%'{hint}",
        )
    return number.rational


def probability(value: Number, *, where: str) -> Fraction:
    """Return ``value`` as an exact fraction from 0 to 1.

    >>> probability("7/4", where="rate")
    Traceback (most recent call last):
    stirred.spec.problems.SpecificationError: rate: 7/4 is not a probability. Fix: write a fraction ...
    """
    number = fraction(value, where=where)
    if not 0 <= number <= 1:
        hint = f"; did you mean {value}%?" if 1 < number <= 100 and not set("%/") & set(str(value)) else ""
        raise wrong(
            f"{value} is not a probability",
            where=where,
            remedy=f"write a fraction from 0 to 1, such as '1/20', '0.05' or '5%'{hint}",
        )
    return number


def loss(value: Number, *, where: str, called: str = "loss", finite: bool = False) -> Exact:
    """Return ``value`` as a protection loss: an exact number that is not negative.

    Where only a ``finite`` one will do, the caller refuses infinity and no remedy may propose it.

    >>> loss("-1", where="budget")
    Traceback (most recent call last):
    stirred.spec.problems.SpecificationError: budget: -1 is negative. Fix: write a loss of 0 or more.
    """
    try:
        number = exact(value)
    except SpecificationError:
        raise wrong(
            f"{str(value)[:60]!r} is not a {called}",
            where=where,
            remedy="write a number such as '3/4', '0.75' or 'ln(3)'"
            + ("" if finite else ", or 'inf' if nothing is promised"),
        ) from None
    try:
        negative = number.sign() < 0
    except ArithmeticError as error:
        raise wrong(f"{str(value)[:60]!r} cannot be evaluated ({error})", where=where, remedy="simplify it") from None
    if negative:
        raise wrong(f"{value} is negative", where=where, remedy=f"write a {called} of 0 or more")
    if not number.is_infinite and number.enclose().low > _ABSURD:
        raise wrong(
            f"a {called} above {_ABSURD:,} promises nothing",
            where=where,
            remedy="write a smaller one" if finite else "write 'inf', or check the number",
        )
    return number


def finite_loss(value: Number, *, where: str) -> Fraction:
    """Return a loss that noise is drawn for: a fraction, and not so large that infinity would say the same.

    >>> finite_loss("1e13", where="rho")
    Traceback (most recent call last):
    stirred.spec.problems.SpecificationError: rho: a loss above 1,000,000,000,000 promises nothing. Fix: ...
    """
    number = fraction(value, where=where)
    return number if number < 0 else loss(number, where=where, finite=True).rational
