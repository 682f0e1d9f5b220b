"""Tables of a swapped file with integer noise on every cell that can exist, whether or not a record is in it.

The noise is two-sided geometric, its decay a fraction, so that what a table costs is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

import polars as pl

from stirred.randomness.entropy import Entropy
from stirred.randomness.geometric import two_sided_geometric
from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.given_numbers import loss
from stirred.spec.problems import wrong

# Columns of our own beside the variables. A variable called noise would be published with the noise as its values.
TAKEN_NAMES: Final = ("swapped", "noise", "count", "table")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTable:
    """One table: ``released`` has the variables and the count with noise; ``drawn`` has what went into it.

    ``drawn`` is confidential: the counts of the swapped file, and the noise.
    """

    released: pl.DataFrame
    drawn: pl.DataFrame


def noisy_table(cells: pl.DataFrame, swapped: pl.DataFrame, *, decay: Fraction, entropy: Entropy) -> NoisyTable:
    """Count the swapped records in each of the cells, and add two-sided geometric noise of this decay to each count.

    Nothing is rounded, cut at 0 or made to add up: what is published is the count plus the noise.
    """
    names = cells.columns
    assert not {*names} & {*TAKEN_NAMES}, "a variable has the name of a column that is confidential"
    counted = swapped.select(names).group_by(names).agg(pl.len().cast(pl.Int64).alias("swapped"))
    drawn = cells.join(counted, on=names, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.col("swapped").fill_null(0)
    )
    noise = two_sided_geometric(decay, count=cells.height, entropy=entropy, purpose="noise")
    drawn = drawn.with_columns(pl.Series("noise", noise))
    released = drawn.select(*names, count=pl.col("swapped") + pl.col("noise"))
    return NoisyTable(released=released, drawn=drawn)


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
    return loss(epsilon, where="noise_epsilon", finite=True) / (tables * CELLS_OF_A_CHANGE)


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
