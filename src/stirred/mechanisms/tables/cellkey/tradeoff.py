"""What cell keys promise: delta for each epsilon, exactly, from the perturbation table.

The unit is one record added or removed. In every table it changes one cell, from a count n to n + 1, and with the set
of records its key. All is computed for ideal keys: uniform, independent for different sets and secret; with keys from a
pseudo-random function its advantage is added to delta.

Bounded noise has no finite pure loss: supports of neighbouring counts differ. ``delta`` is
sum max(0, P(t) - e^epsilon Q(t)), the larger of both directions, at the worst counts:

- One table whose keys are used for nothing else: the worst of P_n against P_(n+1).
- Several tables and noise by *sets* of records: without the record, its cell may be the same set as an unchanged cell
  of another table, and then both show the same noise; with it they do not. Whoever sees a difference knows that there
  is a record. Given the unchanged cell, one law is a point and the other P_(n+1), so at *every* epsilon
  delta = 1 - c^m for m tables, c the least of sum_v p_n(v) p_(n+1)(v - 1) and of the chance that a 1 becomes 0. Cells
  that do not tie, or tie with each other, show less (they are post-processing of cells that tie).
- Several tables and noise by *definitions* of cells: independent cells, so laws multiply.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field

from stirred.data.frames import read_frame
from stirred.data.place import file_at
from stirred.data.problems import bad_file, bad_plan
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.tables.cellkey.perturbation import KEY_BYTES
from stirred.mechanisms.tables.cellkey.ptable import KeyedBy, PTable, read_ptable
from stirred.spec.convert import post_process
from stirred.spec.exact import Exact, exact, exp
from stirred.spec.law import Law
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey

Mass = Mapping[Any, Fraction]
_DIGITS: Final = 40
_PLACES: Final = 10**6
# So many independent cells have their laws multiplied; beyond that epsilon and delta are shared out between them.
_MULTIPLIED: Final = 3


def factor_below(epsilon: Exact) -> Fraction:
    """Return a fraction at most e^epsilon, to forty digits: a delta computed with it is never too small."""
    factor = exp(epsilon)
    return factor.rational if factor.is_rational else Fraction(factor.enclose(_DIGITS).low)


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


LETTERS: Final = "ab"  # the values of every variable in the files that are audited
_MOST: Final = 100_000
_Cell = tuple[int, tuple[Any, ...], frozenset[int]]  # table, values, and which records are in it


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTables:
    """Tables of records given as tuples: each table has the places of its ``variables``.

    ``values`` are those of every variable; None where cells without records are left out.
    """

    table: PTable
    variables: Sequence[Sequence[int]]
    values: str | None
    keyed_by: KeyedBy
    additive: bool = False
    threshold: int = 0

    def law(self, records: Sequence[Any]) -> Law:
        """Return the law of all published counts, cell by cell."""
        cells = [*self._cells(records)]
        outcomes: dict[Hashable, Fraction] = {}
        for counts, chance in self._keys(cells, len(records)) if self.additive else self._noise(cells):
            shown = frozenset(
                (cell[:2], None if count < self.threshold else count) for cell, count in zip(cells, counts, strict=True)
                if count or self.values  # a cell that is left out shows as 0
            )  # fmt: skip
            outcomes[shown] = outcomes.get(shown, Fraction(0)) + chance
        return Law(outcomes)

    def _cells(self, records: Sequence[Any]) -> Iterator[_Cell]:
        for number, places in enumerate(self.variables):
            own = [tuple(record[place] for place in places) for record in records]
            every = {*own} if self.values is None else {*product(self.values, repeat=len(places))}
            for cell in sorted(every):
                yield number, cell, frozenset(n for n, values in enumerate(own) if values == cell)

    def _noise(self, cells: Sequence[_Cell]) -> Iterator[tuple[list[int], Fraction]]:
        """Yield the counts and their probability where different sets, or definitions, have independent keys."""
        own: list[Hashable] = [cell[2] if self.keyed_by == "records" else cell[:2] for cell in cells]
        shared = {key: len(cell[2]) for key, cell in zip(own, cells, strict=True) if cell[2]}
        for drawn in product(*(self.table.law(count).items() for count in shared.values())):
            chance = Fraction(1)
            for _, mass in drawn:
                chance *= mass
            found = dict(zip(shared, (count for count, _ in drawn), strict=True))
            yield [found[key] if cell[2] else 0 for key, cell in zip(own, cells, strict=True)], chance

    def _keys(self, cells: Sequence[_Cell], records: int) -> Iterator[tuple[list[int], Fraction]]:
        """Yield the counts for every combination of record keys, whose sums are looked up as they are."""
        keys = self.table.keys
        if keys**records > _MOST:
            what = f"{keys} keys of {records} records are too many to enumerate"
            raise bad_plan(what, where="law", remedy="audit a table with fewer keys")
        for drawn in product(range(keys), repeat=records):
            sums = [(len(cell[2]), sum(drawn[n] for n in cell[2]) % keys) for cell in cells]
            yield [count + self.table.added(count, key=key) for count, key in sums], Fraction(1, keys**records)


def mixed_law(law: Law, then: Callable[[Any], Law]) -> Law:
    """Return the law of one mechanism after another."""
    outcomes: dict[Hashable, Fraction] = {}
    for middle, chance in law.probabilities.items():
        for outcome, mass in then(middle).probabilities.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + chance * mass
    return Law(outcomes)


def law(mechanism: CellKey, dataset: Any) -> Law:
    """Return the exact law of the tables of a small file, records given by the values of ``names``, in order.

    After another mechanism the file is one of that, with a held and a disturbed value for each record.
    """
    if mechanism.inner is None:
        return _small(mechanism, {name: place for place, name in enumerate(mechanism.declared_columns)}).law([*dataset])
    small = _small(mechanism, {name: int(name in mechanism.inner.areas) for name in mechanism.declared_columns})
    before = mechanism.inner.law(dataset)
    assert isinstance(before, Law)
    return mixed_law(before, small.law)


def _small(mechanism: CellKey, places: Mapping[str, int]) -> SmallTables:
    return SmallTables(
        table=mechanism.table,
        variables=[sorted({places[name] for name in variables}) for variables in mechanism.tables],
        values=None if mechanism.inner is not None else LETTERS,
        keyed_by=mechanism.keyed_by,
        additive=mechanism.keys == "additive",
        threshold=mechanism.threshold,
    )


def audit_universes(mechanism: CellKey) -> list[list[Hashable]]:
    """Return all files of up to two records (three, of one variable), by which cells are empty if that is fixed."""
    if mechanism.inner is not None:
        # Four records in four cells have too many outputs to compare all pairs.
        return [[*files] for files in mechanism.inner.audit_universes() if all(len(f) < 4 for f in files)]  # type: ignore[arg-type]
    most = 3 if len(mechanism.declared_columns) == 1 else 2
    records = [*product(LETTERS, repeat=len(mechanism.declared_columns))]
    files = [file for n in range(most + 1) for file in combinations_with_replacement(records, n)]
    if mechanism.zeros != "fixed":
        return [[file for file in files if len(file) < most], [*files]]
    places = {name: place for place, name in enumerate(mechanism.declared_columns)}
    groups: dict[Hashable, list[Hashable]] = {}
    for file in files:
        full = frozenset((t, tuple(record[places[name]] for name in t)) for t in mechanism.tables for record in file)
        groups.setdefault(full, []).append(file)
    return [group for group in groups.values() if len(group) > 1]


def audit_specification(mechanism: CellKey, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for such files."""
    if mechanism.inner is not None:
        return post_process(mechanism.inner.audit_specification(universe)).specification
    return mechanism.specification(name="small", stage="as-given")


# ---- commands ---------------------------------------------------------------------------------------------------

_WIDTH: Final = 24
_DRAWN: Final = 12  # rows
_EPSILONS: Final = ("0", "1/2", "1", "2")
_FILE: Final[dict[str, Any]] = {"argument": "FILE"}


class PTableDesignOptions(BaseModel):
    """`stirred ptable design`, which is refused."""

    D: int | None = Field(default=None, description="No longer there.")
    V: str | None = Field(default=None, description="No longer there.")
    out: Path | None = Field(default=None, description="No longer there.")


class ShowOptions(BaseModel):
    """`stirred ptable show`."""

    file: Path = Field(description="A perturbation table.", json_schema_extra=_FILE)
    tables: int = Field(default=1, ge=1, description="For how many tables delta is computed.")


class KeyOptions(BaseModel):
    """`stirred ptable key`."""

    file: Path = Field(description="Where the key goes; must not exist.", json_schema_extra=_FILE)


def design(options: Any, progress: Progress | None) -> Outcome:
    """Refuse to design a table, and say where tables come from."""
    what = "tables are no longer designed here, and the last commit that does is a7e31a88"
    remedy = (
        "write one with the R package ptable or tau-ARGUS, and name its file; docs/cell-keys.md has one to begin with"
    )
    raise bad_plan(what, where="ptable design", remedy=remedy)


def show(options: Any, progress: Progress | None) -> Outcome:
    """Draw a table, and say what it would promise."""
    del progress
    table = read_ptable(read_frame(options.file), where=str(options.file))
    if table.step != 1:
        return _shown(table, rows=[("use", "for sums: it has fractions")], values={})
    many = options.tables
    rows, values = [], dict[str, Any]()
    for label, trade in (
        ("one table", KeyTradeOff(table=table)),
        ("zeros fixed", KeyTradeOff(table=table, zeros_fixed=True)),
        ("keys used again", KeyTradeOff(table=table, tables=many, alone=False)),
        ("by definition", KeyTradeOff(table=table, tables=many, keyed_by="definition")),
    ):
        deltas = {e: exact(trade.delta(exact(e))) for e in _EPSILONS}
        rows.append((label, ", ".join(f"delta {each.shown(6)} at epsilon {e}" for e, each in deltas.items())))
        values[label.replace(" ", "_")] = {e: float(each) for e, each in deltas.items()}
    return _shown(table, rows=rows, values={"delta": values})


def key(options: Any, progress: Progress | None) -> Outcome:
    """Write a new key, for its owner alone."""
    del progress
    if options.file.exists() or not options.file.parent.is_dir():
        what = "something is already there" if options.file.exists() else "there is no such folder"
        raise bad_file(what, where=str(options.file), remedy="choose a new file")
    with file_at(options.file, private=True) as half:
        half.write_text(secrets.token_hex(KEY_BYTES) + "\n", encoding="utf-8")
    keep = "keep it secret, as long as tables are to be consistent; whoever has it can undo the noise"
    return Outcome(rows=[("wrote", str(options.file)), ("keep", keep)], values={"file": str(options.file)})


def _shown(table: PTable, *, rows: list[tuple[str, str]], values: dict[str, Any]) -> Outcome:
    told, drawn, moments = [], [], []
    for row in table.rows:
        v = [float(Fraction(each, table.step)) for each in row.law]
        p = [float(Fraction(each, table.keys)) for each in row.law.values()]
        own = {name: float(getattr(table, name)(row.count)) for name in ("bias", "variance", "pstay")}
        told.append({"count": row.count, "values": v, "probabilities": p, **own})
        if row.count <= _DRAWN:
            moments.append((row.count, *(f"{number:.8g}" for number in own.values())))
            bars = ["#" * round(_WIDTH * each / max(p)) for each in p]
            drawn += [(row.count, f"{x:+g}", f"{y:.8f}", bar) for x, y, bar in zip(v, p, bars, strict=True)]
    grids = [
        Grid(header=("count", "bias", "variance", "stays"), rows=tuple(moments)),
        Grid(header=("count", "added", "probability", ""), rows=tuple(drawn)),
    ]
    return Outcome(rows=rows, grids=grids, values={"keys": table.keys, "rows": told, **values})


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="design", help="No longer there: says what to use instead.", options=PTableDesignOptions, run=design),
    Command(name="show", help="Draw a perturbation table, and say what it promises.", options=ShowOptions, run=show),
    Command(name="key", help="Make a secret key for record keys.", options=KeyOptions, run=key),
)
