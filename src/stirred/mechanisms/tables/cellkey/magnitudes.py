"""Perturbing sums: the flex function, and noise in units of the largest contributions (cellKey, ``ck_params_nums``).

The noise of a sum is v units, v looked up in a table with fractions (``step``). The unit of the j-th largest
contribution x is x m(x) epsilon_j, where the share m falls from ``p_small`` to ``p_large`` beyond the flex point;
smaller ones have x p_small. Contributions have no largest value, so sums have no finite loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stirred.data.problems import PlanError
from stirred.mechanisms.tables.cellkey.ptable import PTable
from stirred.spec.problems import Problem

_MOST: Final = 6


class Magnitude(BaseModel):
    """[mechanism.magnitude]: which column is summed, and how large its noise is."""

    model_config = ConfigDict(strict=False, extra="forbid", frozen=True)

    column: str = Field(description="The column whose sums are published.")
    p_small: float = Field(default=0.2, gt=0, le=1, description="Noise as a share of small contributions.")
    p_large: float = Field(default=0.03, gt=0, le=1, description="Noise as a share of very large contributions.")
    flex: float = Field(default=1000, gt=0, description="The flex point: contributions above it are large.")
    q: float = Field(default=2, gt=0, description="How fast the share falls beyond the flex point.")
    epsilons: list[float] = Field(
        default=[1.0], min_length=1, max_length=_MOST, description="Weights of the largest contributions, in order."
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Magnitude:
        """Return the settings of plain data; all that is wrong with them is told at once."""
        try:
            return cls(**given)
        except ValidationError as error:
            raise PlanError(
                Problem(what=each["msg"].lower(), where=f"magnitude {each['loc'][0]}", remedy="see docs/cell-keys.md")
                for each in error.errors(include_url=False)
            ) from None

    def share(self, x: float) -> float:
        """Return m(x), the share of a large contribution that is a unit of noise.

        It is ``p_small`` at the flex point and tends to ``p_large``. It never rises above ``p_small`` only if
        q >= 2 p_small / (p_small - p_large); with q = 1 it tends to p_large + 2 p_small instead.

        >>> flex = Magnitude(column="turnover")
        >>> [round(flex.share(x), 6) for x in (1000, 2000, 10_000)]
        [0.2, 0.194444, 0.095124]
        """
        over = (self.p_small * x - self.p_large * self.flex) / (self.p_large * self.flex)
        return self.p_large * (1 + over * (2 * self.flex / (self.flex + x)) ** self.q)

    def unit(self, x: float, epsilon: float) -> float:
        """Return the unit of noise of one contribution; ``epsilon`` weighs large ones alone."""
        x = abs(x)
        return x * self.p_small if x < self.flex else x * epsilon * self.share(x)

    def perturbed(self, total: float, largest: Sequence[float], table: PTable, keys: Sequence[int]) -> float:
        """Return a sum with noise in units of its largest contributions, one key for each.

        >>> from fractions import Fraction
        >>> from stirred.mechanisms.tables.cellkey.design import design_ptable
        >>> table = design_ptable(D=2, V=Fraction(1), step=2, compat=True).table
        >>> round(Magnitude(column="turnover").perturbed(1580, [1200, 300, 80], table, [7 * table.keys // 10]), 6)
        1702.132231
        """
        value = total
        for x, epsilon, key in zip(largest, self.epsilons, keys, strict=False):
            unit = min(self.unit(x, epsilon), abs(value)) if value else 0.0
            if unit > 0:
                noise = _between(abs(value) / unit, table, key)
                changed = abs(unit) * noise
                value = value + max(changed, -value) if value > 0 else value - max(changed, value)
        return value


def _between(size: float, table: PTable, key: int) -> float:
    """Return the noise for a value of so many units: that of its row, or between two rows at the same key."""
    last = len(table.rows)
    low = min(int(size), last)
    share = 0.0 if low == last else size - low
    return (1 - share) * _noise(low, table, key) + (share * _noise(low + 1, table, key) if share else 0.0)


def _noise(count: int, table: PTable, key: int) -> float:
    return table.rows[count - 1].at(key) / table.step if count else 0.0
