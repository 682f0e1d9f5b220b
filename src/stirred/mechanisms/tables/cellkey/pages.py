"""What cell keys would do to a file, and the sentences about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stirred.mechanisms.protocol import Fact, Grid, Section, Typical
from stirred.mechanisms.tables.engine import TablePlan
from stirred.spec.brief import published_exactly
from stirred.spec.exact import exact

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey

_EPSILONS: Final = ("0", "1/2", "1", "2", "4")
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CellKeyPlan(TablePlan):
    """The plan; ``cells`` has every declared cell of each table, ``inner`` the plan of what is done before."""

    mechanism: CellKey
    cells: Mapping[str, pl.DataFrame]
    persons: tuple[str, ...] = ()  # columns of persons that tables use
    inner: Any = None

    @property
    def disturbed(self) -> str:
        """Say what is disturbed, and how much."""
        table = self.mechanism.table
        most = max(max(abs(v) for v in row.values) for row in table.rows)
        last = table.rows[-1].count
        before = "" if self.inner is None else f" (after: {self.inner.disturbed})"
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
        """Say what is published exactly; what a swap before keeps is not published."""
        before = self.mechanism.inner
        if before is not None:
            kept = published_exactly(self.inner.specification)
            return f"nothing; {before.title} keeps, and this release does not publish, {kept}"
        return "which cells are empty" if self.mechanism.zeros == "fixed" else "nothing"

    @property
    def publishes_fixed(self) -> bool:
        """Say that what a swap before holds fixed stays inside."""
        return self.inner is None

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns that tables have."""
        names = dict.fromkeys(name for cells in self.cells.values() for name in cells.columns)
        return {
            "households": [name for name in names if name not in self.persons],
            "persons": list(self.persons),
        }

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return the trade-off, and the three sentences for a board."""
        trade = self.mechanism.trade
        values = {} if trade is None else {f"delta_at_{e}": float(exact(trade.delta(exact(e)))) for e in _EPSILONS}
        rows = (Fact(label="promised", sentence=" ".join(promised(self))),)
        if trade is None:
            return rows
        words = ", ".join(f"{exact(trade.delta(exact(e))).shown()} at epsilon {e}" for e in _EPSILONS)
        if self.inner is None:
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


def _tells_tables(mechanism: CellKey) -> bool:
    """Say whether counts that all move up as far as they can are shown and tell what they were."""
    highest = [row.count + max(row.law) for row in mechanism.table.rows]
    return highest[0] >= mechanism.threshold and all(one < other for one, other in pairwise(highest))


def typical_errors(mechanism: CellKey, plan: CellKeyPlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
    """Return the noise of large counts by the perturbation table; nothing where something else was done before."""
    if plan.inner is not None:
        return []
    table, last = mechanism.table, mechanism.table.rows[-1]
    error = math.sqrt(sum(many * value**2 for value, many in last.law.items()) / table.keys)
    inside = (k for k in range(max(map(abs, last.law)) + 1)
              if 10 * sum(many for value, many in last.law.items() if abs(value) <= k) >= 9 * table.keys)  # fmt: skip
    least = max(last.count, mechanism.threshold)  # below the threshold nothing is published
    size, within, error = f"{least:,} and more", next(inside) / table.step, error / table.step
    return [Typical(table=t, size=size, cells=c.height, error=error, within=within) for t, c in plan.cells.items()]


def sections(mechanism: CellKey, plan: CellKeyPlan) -> list[Section]:
    """Return the sections on the promise, the trade-off and the perturbation table."""
    found = [Section(title="What is promised", blocks=(mechanism.in_words, *promised(plan)))]
    if mechanism.trade is not None:
        rows = tuple((e, exact(mechanism.trade.delta(exact(e))).shown(6)) for e in _EPSILONS)
        own = "the cell keys alone, without the swap" if plan.inner is not None else "these tables"
        grid = Grid(header=("epsilon", "delta"), rows=rows, numbers=("epsilon", "delta"))
        found.append(Section(title="Epsilon and delta", blocks=(f"Of {own}, exactly from the table.", grid)))
    table = mechanism.table
    shown = tuple(
        (row.count, f"{float(table.pstay(row.count)):.6f}", f"{float(table.bias(row.count)):.3g}",
         f"{float(table.variance(row.count)):.6f}", f"{min(row.values)} to {max(row.values)}")
        for row in table.rows[:_SHOWN]
    )  # fmt: skip
    header = ("count", "stays", "bias", "variance", "added")
    more = f"The last row serves all larger counts{'' if len(table.rows) <= _SHOWN else '; only the first are shown'}."
    found.append(
        Section(title="Perturbation table", blocks=(more, Grid(header=header, rows=shown, numbers=header[:-1])))
    )
    return found
