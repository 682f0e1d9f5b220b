"""Two-sided geometric noise on tables of counts: its decay as a fraction, and what a table costs."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.given_numbers import loss
from stirred.spec.problems import wrong

# A record that changes leaves one cell of a table and enters another: two counts change by one each.
CELLS_OF_A_CHANGE: Final = 2
# The decay is a short fraction, and at most so little of the loss is given away for that.
_GIVEN_AWAY: Final = Fraction(1, 1 << 20)
_DIGITS: Final = 60
_LEAST: Final = Fraction(1, 10**6)


def decay_for(asked: Exact) -> Fraction:
    """Return the decay of noise whose loss per unit is ``asked``, or less by at most one part in a million.

    exp(-asked) itself where it is rational; otherwise the fraction of smallest denominator a little above it, so that
    noise with this decay can be drawn exactly and its loss ln(1/decay) is known exactly.

    >>> decay_for(ln(5)), decay_for(exact("1/4"))
    (Fraction(1, 5), Fraction(3468, 4453))
    """
    if asked.is_infinite or asked < exact(_LEAST):
        raise wrong(
            f"noise with a loss of {asked.shown()} for each unit of a count hides {_hides(asked)}",
            where="noise",
            remedy=f"write a loss above 0 and not infinite, from {float(_LEAST):g} for each unit",
        )
    sought = exp(-asked)
    if sought.is_rational:
        return sought.rational
    least = Fraction(sought.enclose(_DIGITS).high)
    most = Fraction(exp(-asked * (1 - _GIVEN_AWAY)).enclose(_DIGITS).low)
    return _simplest_between(least, most)


def table_loss(decay: Fraction) -> Exact:
    """Return what one table costs for each changed record, its counts all under noise of this decay.

    >>> table_loss(Fraction(1, 5))
    Exact('2*ln(5)')
    """
    return CELLS_OF_A_CHANGE * ln(1 / decay)


def share_of(epsilon: Exact | int | Fraction | str | Decimal | float, *, tables: int) -> Exact:
    """Return the loss for each unit of a count, if ``epsilon`` is for all tables together and split evenly."""
    return loss(epsilon, where="noise_epsilon") / (tables * CELLS_OF_A_CHANGE)


def _hides(asked: Exact) -> str:
    return "nothing" if asked.is_infinite else "everything"


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of smallest denominator from ``low`` to ``high``, by their continued fractions."""
    whole = low.numerator // low.denominator
    if low == whole:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _simplest_between(1 / (high - whole), 1 / (low - whole))
