"""The plan of cell keys, what is promised in words, and the exact law of tables of small files."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, Final

from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Fact
from stirred.mechanisms.tables.cellkey.promise import CellKeyPromise
from stirred.mechanisms.tables.cellkey.ptable import KeyedBy, PTable
from stirred.mechanisms.tables.engine import TablePlan
from stirred.spec.exact import exact
from stirred.spec.explanation import published_exactly
from stirred.spec.law import Law

EPSILONS: Final = ("0", "1/2", "1", "2", "4")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CellKeyPlan(TablePlan):
    """The plan; ``cells`` has every declared cell of each table."""

    persons: tuple[str, ...] = ()  # columns of persons that tables use

    @property
    def disturbed(self) -> str:
        table = self.mechanism.table
        most = max(max(abs(v) for v in row.values) for row in table.rows)
        last = table.rows[-1].count
        before = "" if self.before is None else f" (after: {self.before.disturbed})"
        sums = self.mechanism.sums
        added = (
            "" if sums is None else f"; and every sum of {sums.column} in these cells, in units of its largest values"
        )
        return (
            f"every count above 0, by at most {most}, with variance {float(table.variance(last)):.4g}, alike for the "
            f"same {'set of records' if self.mechanism.keyed_by == 'records' else 'cell'}{added}{before}"
        )

    @property
    def unchanged(self) -> str:
        before = self.mechanism.inner
        if before is not None:
            kept = published_exactly(self.before.specification)
            return f"nothing; {before.title} keeps, and this release does not publish, {kept}"
        return "which cells are empty" if self.mechanism.zeros == "fixed" else "nothing"

    @property
    def publishes_fixed(self) -> bool:
        return self.before is None

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        names = dict.fromkeys(name for cells in self.cells.values() for name in cells.columns)
        return {
            "households": [name for name in names if name not in self.persons],
            "persons": list(self.persons),
        }

    @property
    def facts(self) -> tuple[Fact, ...]:
        trade = self.mechanism.trade
        values = {} if trade is None else {f"delta_at_{e}": float(exact(trade.delta(exact(e)))) for e in EPSILONS}
        rows = (Fact(label="promised", sentence=" ".join(promised(self))),)
        if trade is None:
            return rows
        words = ", ".join(f"{exact(trade.delta(exact(e))).shown()} at epsilon {e}" for e in EPSILONS)
        if self.before is None:
            return (*rows, Fact(label="delta", sentence=words, values={"delta": values}))
        words = f"of the cell keys alone, for one {self.mechanism.unit} more or less and without the swap: {words}"
        return (*rows, Fact(label="delta", sentence=words, values={"delta_of_keys_alone": values}))


def promised(plan: CellKeyPlan) -> list[str]:
    """Return in three sentences what is promised and what is not."""
    mechanism, specification = plan.mechanism, plan.specification
    if mechanism.inner is not None:
        before = mechanism.inner.title
        what = f"What is promised is what {before} promises, {specification.budget_text}"
        if specification.budget.is_unbounded:
            what = f"Nothing is promised, because {before} promises nothing"
        return [
            f"{what}: cell keys come after it and use nothing but its output and fresh keys.",
            "Where every count above 0 moves up as far as it can, the output tells these tables of the swapped file: "
            "cell keys are not counted on to make the loss smaller."
            if _tells_tables(mechanism)
            else "No smaller loss is proven for both together.",
            "They make outputs that tell much less probable; by how much, for both together, is not computed.",
        ]
    delta = specification.output_premetric.delta
    if not delta:
        return [
            "Nothing is promised: the loss is infinite.",
            mechanism.no_promise,
            "Noise hides single counts from a casual reader, and nothing more is proven of it.",
        ]
    unit = mechanism.unit
    second = (
        "Cells with the same records show the same noise, so a difference between two of them proves that a record is "
        f"in one alone: at every epsilon this has a probability of up to {exact(delta).shown()}, more with more noise."
        if mechanism.trade is not None and mechanism.trade.ties
        else "Noise that is bounded can never hide more than its width: no finite loss holds without such a delta."
    )
    return [
        f"Between two files that differ by one {unit}, any set of outputs is at most e^{specification.budget.shown} "
        f"times as probable under one as under the other, plus {exact(delta).shown()}. This bounds probabilities and "
        "not odds: a single output may change odds by more.",
        second,
        "Nothing is promised about averages over many tables that split one total in different ways, nor once the key "
        "is known.",
    ]


def _tells_tables(mechanism: CellKeyPromise) -> bool:
    """Say whether counts that all move up as far as they can are shown and tell what they were."""
    highest = [row.count + max(row.law) for row in mechanism.table.rows]
    return highest[0] >= mechanism.threshold and all(one < other for one, other in pairwise(highest))


# ---- small files ------------------------------------------------------------------------------------------------

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
