"""Tables of counts and sums perturbed by what the keys of their cells look up.

The key of a cell is the sum of the keys of its records: the same set of records has the same sum, whatever the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stirred.data.problems import PlanError, bad_file
from stirred.mechanisms.protocol import failed
from stirred.mechanisms.tables.cellkey.keys import LIMBS, RECORD_KEY, Keys, definition_key, key_of_sums
from stirred.mechanisms.tables.cellkey.ptable import KeyedBy, PTable
from stirred.mechanisms.tables.query import Query
from stirred.randomness.entropy import Entropy
from stirred.spec.misfits import misfits

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
        """Return the settings of plain data; all that is wrong with them in one error."""
        try:
            return cls(**given)
        except ValidationError as error:
            found = misfits(error.errors(), given, cls, remedy="see docs/cell-keys.md")
            raise PlanError(each.problem("magnitude") for each in found) from None

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

        >>> from stirred.mechanisms.tables.cellkey.ptable import PTableRow
        >>> table = PTable(rows=(PTableRow(count=1, values=(-2, 1), weights=(1, 2)),), keys=3, step=2)
        >>> flex = Magnitude(column="turnover")
        >>> round(flex.perturbed(1580, [1200, 300, 80], table, [2]), 6), round(flex.unit(1200, 1) / 2, 6)
        (1702.132231, 122.132231)
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


_TOP: Final = "__largest"
_TOTAL: Final = "__sum"


def summed(column: pl.Series) -> pl.Series:
    """Return the contributions of a column as numbers; a missing one adds nothing."""
    known = column.cast(pl.Float64, strict=False)
    if known.null_count() > column.null_count() or not known.drop_nulls().is_finite().all():
        remedy = "sum a column of numbers; declare what means a missing value with missing under [data]"
        raise bad_file("it has values that are not numbers", where=f'magnitude "{column.name}"', remedy=remedy)
    return known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedRecords:
    """The records of one release, by kind, with the keys of each, and how cells are looked up.

    With ``additive`` keys the sums of records' short keys are looked up as they are. ``sums`` are published besides.
    """

    files: Mapping[str, pl.DataFrame]
    keys: Keys
    table: PTable
    keyed_by: KeyedBy
    additive: bool
    sums: Magnitude | None
    sums_table: PTable

    def counted(self, cells: pl.DataFrame, kind: str) -> pl.DataFrame:
        """Return each cell with its count, what its key looks up, and its perturbed sum."""
        names, keyed, sums = cells.columns, self.files[kind], self.sums
        wanted = [pl.len().cast(pl.Int64).alias("pre_sd_count")]
        wanted += [pl.col(RECORD_KEY if self.additive else LIMBS).sum()]
        if sums is not None:
            value = pl.col(sums.column)
            keyed = keyed.with_columns(summed(keyed[sums.column]))
            largest = value.drop_nulls().sort_by(value.drop_nulls().abs(), descending=True).head(len(sums.epsilons))
            wanted += [value.sum().alias(_TOTAL), largest.alias(_TOP)]
        found = cells.join(
            keyed.group_by(names).agg(wanted), on=names, how="left", nulls_equal=True, maintain_order="left"
        ).with_columns(pl.col("pre_sd_count").fill_null(0))
        schema = {"ckey": pl.Int64, "pcv": pl.Int64, "pvalue": pl.Int64, "sum": pl.Float64}
        rows = [self._looked_up(row, names) for row in found.iter_rows(named=True)]
        return found.select("pre_sd_count").hstack(pl.DataFrame(rows, schema=schema, orient="row"))

    def _looked_up(self, row: dict[str, Any], names: Sequence[str]) -> tuple[int | None, int, int, float]:
        """Return key, row of the table, noise and perturbed sum of a cell."""
        count, table, sums = int(row["pre_sd_count"]), self.table, self.sums
        if count == 0:
            return None, 0, 0, 0.0
        own = self._key_of({name: row[name] for name in names}, row)
        key = self._number(own, below=table.keys)
        total = 0.0
        if sums is not None:
            turns = range(len(sums.epsilons))
            keys = [self._number(own, below=self.sums_table.keys, turn=turn) for turn in turns]
            total = sums.perturbed(float(row[_TOTAL]), row[_TOP], self.sums_table, keys)
        return key, table.pcv(count), table.added(count, key=key), total

    def _key_of(self, cell: dict[str, Any], sums: dict[str, Any]) -> bytes | int:
        """Return what identifies a cell: the sum of its records' keys modulo 2^128, or its definition."""
        if self.additive:
            return int(sums[RECORD_KEY]) % self.table.keys
        return definition_key(cell) if self.keyed_by == "definition" else key_of_sums(sums)

    def _number(self, own: bytes | int, *, below: int, turn: int = 0) -> int:
        """Return the key that is looked up; each ``turn`` gives another one for the same cell."""
        if isinstance(own, bytes):
            return self.keys.looked_up(own + bytes([turn] if turn else []), below=below)
        every = self.table.keys
        digits = len(str(every)) - 1
        if turn and every == 10**digits:  # as cellKey does it: the digits rotated to the left
            text = f"{own:0{digits}d}"
            own = int(text[turn % digits :] + text[: turn % digits])
        return own * below // every


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedTable(Query):
    """The query of one table: nothing is drawn, each cell gets what its key looks up (``cells``)."""

    kept_as: ClassVar[tuple[str, str]] = ("pre_sd_count", "pvalue")

    cells: pl.DataFrame

    @property
    def columns(self) -> tuple[str, str]:
        return self.kept_as

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> npt.NDArray[np.int64]:
        """Return what the keys look up."""
        return self.cells["pvalue"].to_numpy()

    def check_noise(self, noise: npt.NDArray[np.int64]) -> None:
        """Raise if noise that was kept is not what the keys look up: in an empty cell nothing."""
        if not np.array_equal(noise, self.cells["pvalue"].to_numpy()):
            raise failed(f"the noise of {self.title} is not what its keys look up")


def sums_of(title: str) -> str:
    """Return the name of the file with the sums of a table, beside that of its counts."""
    return "tables/sums-" + "".join(
        letter if letter.isalnum() else "-" for letter in title.lower().replace(" x ", "-x-")
    )
