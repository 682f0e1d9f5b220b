"""A perturbation table (ptable): for each count and each key, what is added; read and written as agencies have it.

Probabilities are whole numbers of keys, so nothing is rounded when a value is looked up. Two kinds of files are read:
that of the R package ptable and of tau-ARGUS (``i;j;p;v;p_int_ub``), and that of the ONS (``pcv,ckey,pvalue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final

import polars as pl

from stirred.data.problems import bad_file, listed

# From here the ONS repeats its table: count 751 is looked up like 501 (its guide says modulo 750, its code 250).
_ONS_LAST: Final = 750
_ONS_PERIOD: Final = 250
_DIGITS: Final = 8
_PTABLE_COLUMNS: Final = ("i", "p", "v")
_ONS_COLUMNS: Final = ("pcv", "ckey", "pvalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The noise of one count: ``weights`` of all keys add ``values`` (in units of 1 / step)."""

    count: int
    values: tuple[int, ...]
    weights: tuple[int, ...]

    def at(self, key: int) -> int:
        """Return what the key 0, ..., keys - 1 adds."""
        return self.values[bisect_right([*accumulate(self.weights)], key)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PTable:
    """Rows for the counts 1, 2, ...; the last serves all larger counts. A count of 0 stays 0.

    ``order`` has, for tables of the ONS, what each single key adds: there the keys of a value need not stand together.

    >>> table = PTable(rows=(Row(count=1, values=(-1, 0, 1), weights=(1, 2, 1)),), keys=4)
    >>> table.added(7, key=0), table.added(0, key=0), table.bias(1), table.variance(1), table.pstay(1)
    (-1, 0, Fraction(0, 1), Fraction(1, 2), Fraction(1, 2))
    """

    rows: tuple[Row, ...]
    keys: int
    step: int = 1
    order: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        for place, row in enumerate(self.rows, start=1):
            wrong = ""
            if row.count != place:
                wrong = f"the rows are not those of the counts 1 to {len(self.rows)}"
            elif sum(row.weights) != self.keys or min(row.weights) < 0:
                wrong = f"the probabilities of count {row.count} do not add up to 1"
            elif place * self.step + min(row.values) < 0:
                wrong = f"count {row.count} could become negative"
            if wrong:
                raise bad_file(
                    wrong, where="ptable", remedy="correct the table, or design one: `stirred ptable design`"
                )
        if not self.rows:
            raise bad_file("it has no rows", where="ptable", remedy="give a row for each count from 1")

    def pcv(self, count: int) -> int:
        """Return the row that a count is looked up in: the count itself, as far as there are rows.

        >>> PTable.of_ons_count(751), PTable.of_ons_count(100_001)
        (501, 501)
        """
        if self.order is not None and len(self.rows) == _ONS_LAST:
            return self.of_ons_count(count)
        return min(count, len(self.rows))

    @staticmethod
    def of_ons_count(count: int) -> int:
        """Return the row of a count in a table of the ONS."""
        return count if count <= _ONS_LAST else (count - 1) % _ONS_PERIOD + 1 + _ONS_LAST - _ONS_PERIOD

    def row(self, count: int) -> Row:
        """Return the row of a count."""
        return self.rows[self.pcv(count) - 1]

    def added(self, count: int, *, key: int) -> int:
        """Return what is added to a count with this key (in units of 1 / step); 0 to a count of 0."""
        if count == 0:
            return 0
        return self.row(count).at(key) if self.order is None else self.order[self.pcv(count) - 1][key]

    def law(self, count: int) -> dict[int, Fraction]:
        """Return the probability of each perturbed count, by the count."""
        if count == 0:
            return {0: Fraction(1)}
        row, found = self.row(count), dict[int, Fraction]()
        for value, weight in zip(row.values, row.weights, strict=True):
            found[count + value] = found.get(count + value, Fraction(0)) + Fraction(weight, self.keys)
        return {count: p for count, p in found.items() if p}

    def _moment(self, count: int, power: int) -> Fraction:
        row = self.row(count)
        total = sum(w * v**power for v, w in zip(row.values, row.weights, strict=True))
        return Fraction(total, self.keys * self.step**power)

    def bias(self, count: int) -> Fraction:
        """Return the mean of the noise."""
        return self._moment(count, 1)

    def variance(self, count: int) -> Fraction:
        """Return the variance of the noise."""
        return self._moment(count, 2) - self._moment(count, 1) ** 2

    def pstay(self, count: int) -> Fraction:
        """Return the probability that a count stays as it is."""
        row = self.row(count)
        return Fraction(sum(w for v, w in zip(row.values, row.weights, strict=True) if v == 0), self.keys)

    def frame(self, *, ons: bool = False) -> pl.DataFrame:
        """Return the table as a file has it: of the ptable package, or with a row for each key of the ONS."""
        if ons:
            rows: list[Any] = [
                (row.count, key, self.added(row.count, key=key)) for row in self.rows for key in range(self.keys)
            ]
            return pl.DataFrame(rows, schema=dict.fromkeys(_ONS_COLUMNS, pl.Int64), orient="row")
        rows = [(0, "0", "1", "0", "1")]
        for row in self.rows:
            for value, weight, bound in zip(row.values, row.weights, accumulate(row.weights), strict=True):
                v, j = (_decimal(Fraction(x, self.step)) for x in (value, row.count * self.step + value))
                p, upper = (_decimal(Fraction(x, self.keys)) for x in (weight, bound))
                rows.append((row.count, j, p, v, upper))
        kinds = {"i": pl.Int64, **dict.fromkeys(("j", "p", "v", "p_int_ub"), pl.String)}
        return pl.DataFrame(rows, schema=kinds, orient="row")


def _decimal(number: Fraction) -> str:
    return f"{float(number):.{_DIGITS}f}".rstrip("0").rstrip(".")


def read_ptable(frame: pl.DataFrame, *, where: str) -> PTable:
    """Return the table of a file as the ptable package, tau-ARGUS or the ONS writes it."""
    if {*_ONS_COLUMNS} <= {*frame.columns}:
        return _of_ons(frame.select(_ONS_COLUMNS), where=where)
    if {*_PTABLE_COLUMNS} <= {*frame.columns}:
        return _of_package(frame.select(_PTABLE_COLUMNS), where=where)
    raise bad_file(
        f"the columns {listed(frame.columns)} are not those of a perturbation table",
        where=where,
        remedy="give i, p and v (ptable package, tau-ARGUS), or pcv, ckey and pvalue (ONS)",
    )


def _of_package(frame: pl.DataFrame, *, where: str) -> PTable:
    """Read probabilities of eight digits as whole numbers of keys; what rounding left over goes to the largest."""
    try:
        cells = [(int(i), Fraction(str(p)), Fraction(str(v))) for i, p, v in frame.cast(pl.String).rows()]
    except (ValueError, pl.exceptions.PolarsError):
        raise bad_file("i, p and v are not all numbers", where=where, remedy="check the separator ;") from None
    step = 1
    for _, _, v in cells:
        step = max(step, v.denominator)
    keys, rows = 10**_DIGITS, []
    for count in range(1, max((i for i, _, _ in cells), default=0) + 1):
        own = sorted((v, p) for i, p, v in cells if i == count)
        weights = [round(p * keys) for _, p in own]
        if not own or abs(sum(weights) - keys) > len(own):
            what = f"the probabilities of count {count} do not add up to 1" if own else f"count {count} has no row"
            raise bad_file(what, where=where, remedy="give every count from 1 on, with eight digits")
        weights[weights.index(max(weights))] += keys - sum(weights)
        rows.append(Row(count=count, values=tuple(int(v * step) for v, _ in own), weights=tuple(weights)))
    return PTable(rows=tuple(rows), keys=keys, step=step)


def _of_ons(frame: pl.DataFrame, *, where: str) -> PTable:
    whole = frame.cast(pl.Int64, strict=False).filter(pl.col("pcv") > 0).sort("pcv", "ckey")
    keys, last = (int(whole[name].max() or 0) for name in ("ckey", "pcv"))  # type: ignore[arg-type]
    keys += 1
    expected = [(i, key) for i in range(1, last + 1) for key in range(keys)]
    if whole.null_count().sum_horizontal().item() or whole.select("pcv", "ckey").rows() != expected:
        what = "it does not have every key for every count from 1 on, once"
        raise bad_file(what, where=where, remedy="add the pairs that are missing: a missing one would get no noise")
    added = whole["pvalue"].to_list()
    order = tuple(tuple(added[i * keys : (i + 1) * keys]) for i in range(last))
    rows = [_counted(i, own) for i, own in enumerate(order, start=1)]
    return PTable(rows=tuple(rows), keys=keys, order=order)


def _counted(count: int, added: Sequence[int]) -> Row:
    values = sorted({*added})
    return Row(count=count, values=tuple(values), weights=tuple(added.count(v) for v in values))
