"""A perturbation table (ptable): for each count and each key, what is added; as agencies have it, and what it promises.

Probabilities are whole numbers of keys, so nothing is rounded when a value is looked up. Two kinds of files are read:
that of the R package ptable and of tau-ARGUS (``i;j;p;v;p_int_ub``), and that of the ONS (``pcv,ckey,pvalue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, groupby, product
from math import lcm, prod
from typing import Any, Final, Literal

import polars as pl

from stirred.data.problems import bad_file, bad_plan, listed
from stirred.spec.exact import Exact, exp

# From here the ONS repeats its table: count 751 is looked up like 501 (its guide says modulo 750, its code 250).
_ONS_LAST: Final = 750
_ONS_PERIOD: Final = 250
_DIGITS: Final = 8
_MOST_DIGITS: Final = 28
_PTABLE_COLUMNS: Final = ("i", "p", "v")
_BOUND: Final = "p_int_ub"
_APART: Final = 1e-6  # of sums of up to a few dozen numbers of eight digits
KEY_BYTES: Final = 32
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

    @classmethod
    def of(cls, count: int, runs: Sequence[tuple[int, int]]) -> PTableRow:
        """Return the row of these runs: each a value, and how many keys add it."""
        return cls(count=count, values=tuple(v for v, _ in runs), weights=tuple(w for _, w in runs))

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
                    wrong, where="ptable", remedy="correct the table, or design one: `stirred ptable design`"
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

    def frame(self, *, ons: bool = False) -> pl.DataFrame:
        """Return the table as a file has it: of the ptable package, or with a row for each key of the ONS."""
        if ons:
            rows: list[Any] = [
                (row.count, key, self.added(row.count, key=key)) for row in self.rows for key in range(self.keys)
            ]
            return pl.DataFrame(rows, schema=dict.fromkeys(_ONS_COLUMNS, pl.Int64), orient="row")
        for what, number in ((f"{self.keys:,} keys", self.keys), (f"step {self.step}", self.step)):
            if _digits(Fraction(1, number)) is None:
                raise bad_plan(
                    f"probabilities and values of {what} have no finite decimals, which such a file needs",
                    where="ptable",
                    remedy="write keys such as 4096 or 10^8 and a step such as 2 or 5; or write the format of the ONS",
                )
        rows = [(0, "0", "1", "0", "1")]
        for row in self.rows:
            for value, weight, bound in zip(row.values, row.weights, accumulate(row.weights), strict=True):
                v, j = (_decimal(Fraction(x, self.step)) for x in (value, row.count * self.step + value))
                p, upper = (_decimal(Fraction(x, self.keys)) for x in (weight, bound))
                rows.append((row.count, j, p, v, upper))
        kinds = {"i": pl.Int64, **dict.fromkeys(("j", "p", "v", "p_int_ub"), pl.String)}
        return pl.DataFrame(rows, schema=kinds, orient="row")


def _digits(number: Fraction) -> int | None:
    """Return how many decimals a number has; None where they do not end, or are very many."""
    return next((k for k in range(_MOST_DIGITS + 1) if 10**k % number.denominator == 0), None)


def _decimal(number: Fraction) -> str:
    """Return a number with all its decimals: a file has the table that was written, and no other.

    >>> _decimal(Fraction(-1, 4096)), _decimal(Fraction(3))
    ('-0.000244140625', '3')
    """
    digits = _digits(number)
    assert digits is not None
    return f"{Decimal(number.numerator) / Decimal(number.denominator):.{digits}f}"


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
    rows = []
    for count in range(1, last + 1):
        runs = [(value, len([*own])) for value, own in groupby(added[(count - 1) * keys : count * keys])]
        rows.append(PTableRow.of(count, runs))
    return PTable(rows=tuple(rows), keys=keys, repeats=last == _ONS_LAST)


def plain_table(table: PTable) -> dict[str, Any]:
    """Return a table as plain data, as manifest and specification keep it."""
    rows = {str(row.count): {str(v): w for v, w in row.law.items()} for row in table.rows}
    runs = [" ".join(f"{v}:{w}" for v, w in zip(row.values, row.weights, strict=True)) for row in table.rows]
    arranged = any([*row.law] != [*row.values] for row in table.rows)
    more = {**({"repeats": True} if table.repeats else {}), **({"runs": runs} if arranged else {})}
    return {"keys": table.keys, "step": table.step, "rows": rows, **more}


def table_of(plain: str | Mapping[str, Any]) -> PTable:
    """Return the table of plain data; the name of a file stands there where it was not read."""
    if isinstance(plain, str):
        remedy = "name it in a plan, or by keyword, CellKey(ptable='ptable.csv'): there it is read"
        raise bad_plan(f"the file {plain} was not read", where="ptable", remedy=remedy)
    try:
        own = {int(i): [(int(v), int(w)) for v, w in law.items()] for i, law in plain["rows"].items()}
        for i, runs in enumerate(plain.get("runs", ()), start=1):
            own[i] = [(int(v), int(w)) for v, _, w in (run.partition(":") for run in runs.split())]
        return PTable(
            rows=tuple(PTableRow.of(count, runs) for count, runs in own.items()),
            keys=int(plain["keys"]),
            step=int(plain.get("step", 1)),
            repeats=bool(plain.get("repeats", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        remedy = "name a file, such as ptable.csv"
        raise bad_file("this is not a perturbation table", where="ptable", remedy=remedy) from None


# ---- the promise ------------------------------------------------------------------------------------------------
# What cell keys promise: delta for each epsilon, exactly, from the perturbation table.
#
# The unit is one record added or removed. In every table it changes one cell, from a count n to n + 1, and with the set
# of records its key. All is computed for ideal keys: uniform, independent for different sets and secret; with keys from
# a pseudo-random function its advantage is added to delta.
#
# Bounded noise has no finite pure loss: supports of neighbouring counts differ. ``delta`` is
# sum max(0, P(t) - e^epsilon Q(t)), the larger of both directions, at the worst counts:
#
# - One table whose keys are used for nothing else: the worst of P_n against P_(n+1).
# - Several tables and noise by *sets* of records: without the record, its cell may be the same set as an unchanged cell
#   of another table, and then both show the same noise; with it they do not. A difference shows that there is a
#   record. Given the unchanged cell, one law is a point and the other P_(n+1), so at *every* epsilon
#   delta = 1 - c^m for m tables, c the least of sum_v p_n(v) p_(n+1)(v - 1) and of the chance that a 1 becomes 0. Cells
#   that do not tie, or tie with each other, show less (they are post-processing of cells that tie).
# - Several tables and noise by *definitions* of cells: independent cells, so laws multiply.

Mass = Mapping[Any, Fraction]
_FACTOR_DIGITS: Final = 40
_PLACES: Final = 10**6
# So many independent cells have their laws multiplied; beyond that epsilon and delta are shared out between them.
_MULTIPLIED: Final = 3


def factor_below(epsilon: Exact) -> Fraction:
    """Return a fraction at most e^epsilon, to forty digits: a delta computed with it is never too small."""
    factor = exp(epsilon)
    return factor.rational if factor.is_rational else Fraction(factor.enclose(_FACTOR_DIGITS).low)


def hockey_stick(p: Mass, q: Mass, factor: Fraction) -> Fraction:
    """Return sum max(0, p - factor q), the larger of both directions.

    >>> half = Fraction(1, 2)
    >>> hockey_stick({0: half, 1: half}, {1: half, 2: half}, Fraction(1))
    Fraction(1, 2)
    """
    there = sum((max(Fraction(0), mass - factor * q.get(t, 0)) for t, mass in p.items()), Fraction(0))
    back = sum((max(Fraction(0), mass - factor * p.get(t, 0)) for t, mass in q.items()), Fraction(0))
    return max(there, back)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTradeOff:
    """The trade-off of a declared number of tables.

    ``alone`` says that the keys are used for these tables only. ``zeros_fixed`` says that which cells are empty is
    published exactly and not protected. ``least`` may restrict counts further, for what-if questions.
    """

    table: PTable
    tables: int = 1
    keyed_by: KeyedBy = "records"
    alone: bool = True
    zeros_fixed: bool = False
    least: int = 0

    @property
    def counts(self) -> range:
        """Return the counts n of which the step to n + 1 has to be looked at; all larger ones are like the last."""
        rows = len(self.table.rows)
        # A table that repeats itself (of the ONS) has a step at its end that no other count has.
        last = rows if self.table.pcv(rows + 1) == rows else rows + 1
        return range(max(self.least, 1 if self.zeros_fixed else 0), max(last, self.least) + 1)

    @property
    def ties(self) -> bool:
        """Say whether an unchanged cell of another table may be the same set of records."""
        return self.keyed_by == "records" and not (self.alone and self.tables == 1)

    def common(self, count: int) -> Fraction:
        """Return how probable it is that n + 1 is shown as what a cell of n records shows."""
        one, other = self.table.law(count), self.table.law(count + 1)
        return sum((mass * other.get(t, 0) for t, mass in one.items()), Fraction(0))

    def delta(self, epsilon: Exact) -> Fraction:
        """Return delta at an epsilon, an upper bound that is exact but for e^epsilon in the 40th digit."""
        if self.ties:
            return 1 - min(map(self.common, self.counts)) ** self.tables
        if self.tables > _MULTIPLIED:
            return min(Fraction(1), self.tables * self._single(factor_below(epsilon / self.tables)))
        factor = factor_below(epsilon)
        if self.tables == 1:
            return self._single(factor)
        worst = combinations_with_replacement(self.counts, self.tables)
        return max(self._multiplied(counts, factor) for counts in worst)

    def _single(self, factor: Fraction) -> Fraction:
        return max(hockey_stick(self.table.law(n), self.table.law(n + 1), factor) for n in self.counts)

    def _multiplied(self, counts: Sequence[int], factor: Fraction) -> Fraction:
        one, other = ([self.table.law(n + more) for n in counts] for more in (0, 1))
        return hockey_stick(_joint(one), _joint(other), factor)

    def rounded(self, epsilon: Exact) -> Fraction:
        """Return delta rounded up, as it is published: to six places, or twelve where it is small."""
        delta = self.delta(epsilon)
        places = _PLACES if delta > Fraction(1, 1000) else _PLACES**2
        return Fraction(-(-delta * places // 1), places)


def _joint(laws: Sequence[Mass]) -> dict[tuple[int, ...], Fraction]:
    """Return the law of several independent cells."""
    return {
        tuple(t for t, _ in cells): prod((mass for _, mass in cells), start=Fraction(1))
        for cells in product(*(law.items() for law in laws))
    }
