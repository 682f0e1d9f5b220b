"""A perturbation table (ptable): for each count and each key, what is added; read as agencies have it.

Probabilities are whole numbers of keys, so nothing is rounded when a value is looked up. Two kinds of files are read:
that of the R package ptable and of tau-ARGUS (``i;j;p;v;p_int_ub``), and that of the ONS (``pcv,ckey,pvalue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, groupby
from math import lcm
from typing import Any, Final, Literal

import polars as pl

from stirred.data.problems import bad_file, listed

# From here the ONS repeats its table: count 751 is looked up like 501 (its guide says modulo 750, its code 250).
_ONS_LAST: Final = 750
_ONS_PERIOD: Final = 250
_DIGITS: Final = 8
_PTABLE_COLUMNS: Final = ("i", "p", "v")
_BOUND: Final = "p_int_ub"
_APART: Final = 1e-6  # of sums of up to a few dozen numbers of eight digits
KeyedBy = Literal["records", "definition"]  # what shares its noise
_ONS_COLUMNS: Final = ("pcv", "ckey", "pvalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class PTableRow:
    """The noise of one count, by runs of keys: the next ``weights`` of them add ``values`` (in units of 1 / step).

    A rearranged table, and one of the ONS, may have a value in several runs.
    """

    count: int
    values: tuple[int, ...]
    weights: tuple[int, ...]
    _bounds: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bounds", tuple(accumulate(self.weights)))

    def at(self, key: int) -> int:
        """Return what the key 0, ..., keys - 1 adds."""
        return self.values[bisect_right(self._bounds, key)]

    @property
    def law(self) -> dict[int, int]:
        """Return how many keys add each value, the smallest first."""
        found: dict[int, int] = dict.fromkeys(sorted({*self.values}), 0)
        for value, weight in zip(self.values, self.weights, strict=True):
            found[value] += weight
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PTable:
    """Rows for the counts 1, 2, ...; the last serves all larger counts. A count of 0 stays 0.

    A table of the ONS with 750 rows ``repeats`` its last 250 instead.

    >>> table = PTable(rows=(PTableRow(count=1, values=(-1, 0, 1), weights=(1, 2, 1)),), keys=4)
    >>> table.added(7, key=0), table.added(0, key=0), table.bias(1), table.variance(1), table.pstay(1)
    (-1, 0, Fraction(0, 1), Fraction(1, 2), Fraction(1, 2))
    """

    rows: tuple[PTableRow, ...]
    keys: int
    step: int = 1
    repeats: bool = False

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
                    wrong, where="ptable", remedy="correct the table: the R package ptable and tau-ARGUS write them"
                )
        if not self.rows:
            raise bad_file("it has no rows", where="ptable", remedy="give a row for each count from 1")

    def pcv(self, count: int) -> int:
        """Return the row that a count is looked up in: the count itself, as far as there are rows.

        >>> PTable.of_ons_count(751), PTable.of_ons_count(100_001)
        (501, 501)
        """
        return self.of_ons_count(count) if self.repeats else min(count, len(self.rows))

    @staticmethod
    def of_ons_count(count: int) -> int:
        """Return the row of a count in a table of the ONS."""
        return count if count <= _ONS_LAST else (count - 1) % _ONS_PERIOD + 1 + _ONS_LAST - _ONS_PERIOD

    def row(self, count: int) -> PTableRow:
        """Return the row of a count."""
        return self.rows[self.pcv(count) - 1]

    def added(self, count: int, *, key: int) -> int:
        """Return what is added to a count with this key (in units of 1 / step); 0 to a count of 0."""
        return self.row(count).at(key) if count else 0

    def law(self, count: int) -> dict[int, Fraction]:
        """Return the probability of each perturbed count, by the count."""
        if count == 0:
            return {0: Fraction(1)}
        return {count + value: Fraction(weight, self.keys) for value, weight in self.row(count).law.items() if weight}

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
        return Fraction(self.row(count).law.get(0, 0), self.keys)


def read_ptable(frame: pl.DataFrame, *, where: str) -> PTable:
    """Return the table of a file as the ptable package, tau-ARGUS or the ONS writes it."""
    if {*_ONS_COLUMNS} <= {*frame.columns}:
        return _of_ons(frame.select(_ONS_COLUMNS), where=where)
    if {*_PTABLE_COLUMNS} <= {*frame.columns}:
        return _of_package(frame, where=where)
    raise bad_file(
        f"the columns {listed(frame.columns)} are not those of a perturbation table",
        where=where,
        remedy="give i, p and v (ptable package, tau-ARGUS), or pcv, ckey and pvalue (ONS)",
    )


def _of_package(frame: pl.DataFrame, *, where: str) -> PTable:
    """Read probabilities of eight digits as whole numbers of keys; what rounding left over goes to the largest.

    Probabilities of more digits that add up to 1 exactly are taken as they are, such as those of 4,096 keys. The order
    of the file is kept: a rearranged table looks other values up, and has the same law.
    """
    try:
        texts = frame.select(_PTABLE_COLUMNS).cast(pl.String)
        cells = [(int(i), Fraction(str(p)), Fraction(str(v))) for i, p, v in texts.rows()]
    except (ValueError, pl.exceptions.PolarsError):
        raise bad_file("i, p and v are not all numbers", where=where, remedy="check the separator ;") from None
    step = lcm(*(v.denominator for _, _, v in cells))
    keys, rows = 10**_DIGITS, []
    finest, sums = lcm(*(p.denominator for _, p, _ in cells)), dict[int, Fraction]()
    for count, p, _ in cells:
        sums[count] = sums.get(count, Fraction(0)) + p
    if keys % finest and all(each == 1 for each in sums.values()):
        keys = finest
    for count in range(1, max((i for i, _, _ in cells), default=0) + 1):
        own = [(v, p) for i, p, v in cells if i == count]
        weights = [round(p * keys) for _, p in own]
        if not own or abs(sum(weights) - keys) > len(own):
            what = f"the probabilities of count {count} do not add up to 1" if own else f"count {count} has no row"
            raise bad_file(what, where=where, remedy="give every count from 1 on, with eight digits")
        weights[weights.index(max(weights))] += keys - sum(weights)
        rows.append(PTableRow(count=count, values=tuple(int(v * step) for v, _ in own), weights=tuple(weights)))
    if _BOUND in frame.columns:
        _check_bounds(frame.filter(pl.col("i").cast(pl.Int64) > 0)[_BOUND], rows, keys=keys, where=where)
    return PTable(rows=tuple(rows), keys=keys, step=step)


def _check_bounds(given: pl.Series, rows: Sequence[PTableRow], *, keys: int, where: str) -> None:
    """Refuse upper bounds that are not the sums of the probabilities so far: keys would look other values up."""
    sums = [bound / keys for row in rows for bound in accumulate(row.weights)]
    known = given.cast(pl.Float64, strict=False)
    if known.null_count() or bool(((known - pl.Series(sums)).abs() > _APART).any()):
        remedy = "sort the rows by i and p_int_ub, and let each p be what p_int_ub grows by"
        raise bad_file("p_int_ub is not the sum of the probabilities so far", where=where, remedy=remedy)


def _of_ons(frame: pl.DataFrame, *, where: str) -> PTable:
    whole = frame.cast(pl.Int64, strict=False).filter(pl.col("pcv") > 0).sort("pcv", "ckey")
    keys, last = (int(whole[name].max() or 0) for name in ("ckey", "pcv"))  # type: ignore[arg-type]
    keys += 1
    expected = [(i, key) for i in range(1, last + 1) for key in range(keys)]
    if whole.null_count().sum_horizontal().item() or whole.select("pcv", "ckey").rows() != expected:
        what = "it does not have every key for every count from 1 on, once"
        raise bad_file(what, where=where, remedy="add the pairs that are missing: a missing one would get no noise")
    added = whole["pvalue"].to_list()
    rows = [_in_runs(i, added[(i - 1) * keys : i * keys]) for i in range(1, last + 1)]
    return PTable(rows=tuple(rows), keys=keys, repeats=last == _ONS_LAST)


def _in_runs(count: int, added: Sequence[int]) -> PTableRow:
    runs = [(value, len([*own])) for value, own in groupby(added)]
    return PTableRow(count=count, values=tuple(v for v, _ in runs), weights=tuple(w for _, w in runs))


def plain_table(table: PTable) -> dict[str, Any]:
    """Return a table as plain data, as manifest and specification keep it."""
    rows = {str(row.count): {str(v): w for v, w in row.law.items()} for row in table.rows}
    runs = [" ".join(f"{v}:{w}" for v, w in zip(row.values, row.weights, strict=True)) for row in table.rows]
    arranged = any([*row.law] != [*row.values] for row in table.rows)
    more = {**({"repeats": True} if table.repeats else {}), **({"runs": runs} if arranged else {})}
    return {"keys": table.keys, "step": table.step, "rows": rows, **more}


def table_of(plain: PTable | Mapping[str, Any]) -> PTable:
    """Return the table of plain data."""
    if isinstance(plain, PTable):
        return plain
    try:
        own = {int(i): [(int(v), int(w)) for v, w in law.items()] for i, law in plain["rows"].items()}
        for i, runs in enumerate(plain.get("runs", ()), start=1):
            own[i] = [(int(v), int(w)) for v, _, w in (run.partition(":") for run in runs.split())]
        return PTable(
            rows=tuple(
                PTableRow(count=i, values=tuple(v for v, _ in law), weights=tuple(w for _, w in law))
                for i, law in own.items()
            ),
            keys=int(plain["keys"]),
            step=int(plain.get("step", 1)),
            repeats=bool(plain.get("repeats", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        remedy = "name a file, such as ptable.csv"
        raise bad_file("this is not a perturbation table", where="ptable", remedy=remedy) from None
