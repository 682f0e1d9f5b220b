"""The plan of noisy tables, what they publish, and the pages that say how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.mechanisms.protocol import Block, Fact, Grid, PublicFile, ReleasedColumns, Section, Typical
from stirred.mechanisms.tables.engine import TablePlan
from stirred.mechanisms.tables.noise.measures import ConsistentTable, Measure, consistent
from stirred.mechanisms.tables.query import INTERVAL, intervals, with_numbers
from stirred.spec.exact import exact

if TYPE_CHECKING:
    from stirred.mechanisms.tables.noise.mechanism import NoisyTables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NoisePlan(TablePlan):
    """What would be published; nothing random has happened."""

    measures: tuple[Measure, ...]
    releases: Mapping[str, Sequence[str]]

    @property
    def percent(self) -> str:
        return f"{float(100 * self.mechanism.sure):g}%"

    def width(self, measure: Measure) -> int:
        """Return the half-width of the interval of each cell."""
        return measure.cell.half_width(self.mechanism.sure)

    @property
    def alone(self) -> Fraction | None:
        """Return what the same noise would lose without the swap before it."""
        if self.mechanism.inner is None:
            return None
        return sum((each.loss / 2 if each.doubled else each.loss for each in self.measures), Fraction(0))

    @property
    def after(self) -> str:
        return after_in_words(self.mechanism)

    @property
    def disturbed(self) -> str:
        widths = [f"{each.title} ±{self.width(each):,}" for each in self.measures[:4]]
        widths += [f"{len(self.measures) - 4} more"] if len(self.measures) > 4 else []
        noise = f"every cell of {number(len(self.measures), 'table')} gets noise ({', '.join(widths)} with "
        cut = [f"of {each.title} {each.in_bounds}" for each in self.measures if each.in_bounds]
        return "; ".join([f"{noise}{self.percent})", *cut, "no records are published"])

    @property
    def relation(self) -> str:
        premetric = self.specification.input_premetric
        return f"for one changed {premetric.unit} (bounded neighbours, {premetric.symbol})"

    @property
    def why_this_number(self) -> str:
        return f"{self.specification.budget.policy}, {self.relation}; losses of tables add up"

    @property
    def also_promised(self) -> str:
        if self.alone is None:
            return ""
        budget, alone = self.specification.budget, exact(self.alone).shown()
        weakened = (
            f"The noise alone, on tables of the file as it is, would promise {alone} where this release promises "
            f"{budget.shown}: swapping first can weaken the noise's own guarantee, because a record that changes both "
            "what is held and what is swapped becomes two changed records after the swap. "
            if budget.realised > exact(self.alone)
            else ""
        )
        return (
            f"The loss of the specification is the one to rely on. {weakened}Between files that moreover agree on all "
            f"that is held, or on match x swap, it is at most {alone}; between files that agree on both at most the "
            "smaller of that and of the swap's own loss. This release neither keeps nor publishes these counts."
        )

    @property
    def facts(self) -> tuple[Fact, ...]:
        letter = self.specification.output_premetric.parameter.removesuffix("2")
        found = []
        for each in self.measures:
            values: dict[str, Any] = {
                "table": each.title, "cells": each.cells, letter: str(each.loss), "noise": each.noise_in_words,
                "variance": float(each.cell.variance), "half_width": self.width(each),
                "sensitivity_l1": each.one, "sensitivity_squared": each.square,
            }  # fmt: skip
            if each.added_up is not None:
                values["bounds"] = [each.added_up.low, each.added_up.high]
            loss = f"{letter} {exact(each.loss).shown()} {self.relation}"
            noise = f"{each.cells:,} cells, {each.noise_in_words}, standard deviation {each.deviation:.4g}"
            cut = f"; {each.in_bounds}" if each.in_bounds else ""
            found.append((f"{each.title}: {noise}, {loss}{cut}", values))
        tables = [values for _, values in found]
        return (
            *(Fact(label="noise", sentence=sentence) for sentence, _ in found),
            Fact(values={"noisy_tables": tables, "confidence": str(self.mechanism.sure)}),
            *([] if self.alone is None else [Fact(values={"noise_alone": str(self.alone)})]),
            *([Fact(label="after", sentence=self.after)] if self.after else []),
        )


# Releases of earlier versions have intervals of consistent numbers, which do not cover as often as they say.
EARLIER: Final = ("consistent_low", "consistent_high")
# Columns beside the variables and the count, and those that stay inside.
_CONSISTENT: Final = ("consistent", "consistent_variance")
COLUMNS: Final = ("sum", *INTERVAL, *_CONSISTENT, *EARLIER, "adjusted")
CONFIDENTIAL: Final = ("true", "noise", "cut", "table", "count")
_DECIMALS: Final = 6
_SIZES: Final = (0, 1, 5, 20, 100, 1_000, 10_000)  # of counts for which accuracy is shown
Noisy = Mapping[str, npt.NDArray[np.int64]]


def published(
    mechanism: NoisyTables,
    measures: Sequence[Measure],
    cells: Mapping[str, pl.DataFrame],
    noisy: Noisy,
    *,
    total: int | None,
) -> dict[str, pl.DataFrame]:
    """Return each table as it is published, by its title: a function of the noisy numbers and public facts alone.

    ``total`` is the number of records, where it is published exactly.
    """
    agreeing: dict[str, ConsistentTable] = {}
    if mechanism.consistent:
        kinds: dict[object, list[Measure]] = {}
        for each in measures:
            kinds.setdefault(each.counts, []).append(each)
        for same in kinds.values():
            agreeing |= consistent(same, noisy, total=total if same[0].of_records else None)
    return {m.title: _published(mechanism, m, cells, noisy[m.title], agreeing.get(m.title)) for m in measures}


def _published(
    mechanism: NoisyTables,
    each: Measure,
    cells: Mapping[str, pl.DataFrame],
    noisy: npt.NDArray[np.int64],
    agreeing: ConsistentTable | None,
) -> pl.DataFrame:
    width = each.cell.half_width(mechanism.sure)
    columns: dict[str, npt.ArrayLike] = {
        "count" if each.added_up is None else "sum": noisy,
        **intervals(noisy, variance=np.full(noisy.size, float(each.cell.variance)), width=width),
    }
    values: npt.NDArray[Any] = noisy
    if agreeing is not None:
        values = np.round(agreeing.values.reshape(-1), _DECIMALS) + 0.0
        columns |= zip(_CONSISTENT, (values, np.full(noisy.size, agreeing.variance)), strict=True)
    if mechanism.rounded or mechanism.nonnegative:
        base = mechanism.rounded or 1
        rounded = (np.rint(values / base) * base).astype(np.int64) if mechanism.rounded else values
        columns["adjusted"] = np.maximum(rounded, 0) if mechanism.nonnegative else rounded
    assert {*columns} <= {"count", *COLUMNS}, "a column is published that is not declared"
    return with_numbers(cells[each.title], columns)


def noisy_files(
    mechanism: NoisyTables, released: ReleasedColumns, data: Microdata | None = None, plan: NoisePlan | None = None
) -> list[PublicFile]:
    """Return the sums of a plan, and the table of what is published exactly. No record."""
    found = [
        PublicFile(
            name=each.file,
            kind="table",
            columns=(*each.variables, *COLUMNS),
            words=f"{each.title}, with noise; {each.in_bounds}",
        )
        for each in (() if plan is None else plan.measures)
        if each.added_up is not None
    ]
    if exact := mechanism.exact_margins.values():
        words = "the counts that are published exactly"
        columns = ("table", *dict.fromkeys(name for by in exact for name in by), "count")
        found.append(PublicFile(name="invariants", kind="side", columns=columns, words=words))
    return found


def after_in_words(mechanism: NoisyTables) -> str:
    """Say what is done to the noisy numbers, each with its bias; the numbers themselves are always published."""
    told = []
    if mechanism.consistent:
        told.append(
            "`consistent` is the least squares estimate from all tables and exact counts together: tables agree on "
            "totals and on variables that they share. Nothing is biased, and `consistent_variance` is its variance. It "
            "has no interval: its error is far from normal in small tables. That codes of one variable nest in those "
            "of another is not known to it"
        )
    if mechanism.rounded:
        told.append(
            f"`adjusted` is rounded to multiples of {mechanism.rounded}, which moves each number by up to "
            f"{mechanism.rounded / 2:g}; sums of rounded numbers no longer agree"
        )
    if mechanism.nonnegative:
        told.append(
            "`adjusted` is cut off at 0, which makes small counts too large on average, and sums of them more so"
        )
    return ". ".join(told)


def reading(mechanism: NoisyTables, plan: NoisePlan) -> list[str]:
    """Return what a reader of the tables must know, from public facts alone."""
    exact = mechanism.keep or mechanism.inner is not None
    lines = [f"Published exactly: {plan.unchanged}. Nothing else is."] if exact else []
    sums = [f"Of {each.title} {each.in_bounds}." for each in plan.measures if each.in_bounds]
    bounded = " (of a sum: that of the bounded values)" if sums else ""
    if mechanism.inner is not None:
        lines.append(
            f"True numbers are here those after {mechanism.inner.title}, which is not undone: it draws tables that "
            "cross exchanged with held variables towards independence."
        )
    lines += [
        f"Every number is the true one{bounded} plus noise of mean 0, drawn in every cell that could exist; `variance` "
        f"is the variance of the noise. From `low` to `high` is an interval of {plan.percent} by the exact law of "
        f"the noise: at least so often the true number{bounded} lies in it.",
        *sums,
        "Counts may be negative, and tables do not add up to each other. Sums of many cells are right on average as "
        "the numbers stand; cutting at 0 first would make them too large.",
    ]
    if mechanism.persons is not None and plan.releases["persons"]:
        lines.append(
            f"Of a household at most {mechanism.persons} persons are counted, so tables of persons are too small where "
            "households are larger."
        )
    return [*lines, *([f"{plan.after}."] if plan.after else [])]


def typical_errors(mechanism: NoisyTables, plan: NoisePlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
    """Return the noise of each table, by its law: the same for counts of every size.

    What was cut before the noise was added, persons of large households or values beyond bounds, is not known.
    """
    return [
        Typical(
            table=each.title, cells=each.cells, error=each.deviation,
            within=each.cell.half_width(Fraction(9, 10)), at_least=not each.of_records or each.doubled,
        )
        for each in sorted(plan.measures, key=lambda each: -each.cells)
    ]  # fmt: skip


def sections(mechanism: NoisyTables, plan: NoisePlan) -> list[Section]:
    """Return the sections on noise and intervals by size of a count, and on the bias of what was done afterwards."""
    letter = plan.specification.output_premetric.parameter.removesuffix("2")
    widths = {each.title: plan.width(each) for each in plan.measures}
    header = ("table", "cells", "noise", letter, "standard deviation", f"{plan.percent} interval")
    rows = tuple(
        (m.title, m.cells, m.noise_in_words, exact(m.loss).shown(), f"{m.deviation:.4g}", f"±{widths[m.title]:,}")
        for m in plan.measures
    )
    sizes = [size for size in _SIZES if size]
    relative = Grid(
        header=("table", *(f"count of {size:,}" for size in sizes)),
        rows=tuple((title, *(f"±{100 * width / size:,.3g}%" for size in sizes)) for title, width in widths.items()),
    )
    told = f"Each {letter} is {plan.relation}; losses of tables add up to {plan.specification.budget_text}."
    also = [plan.also_promised] if plan.also_promised else []
    grid = Grid(header=header, rows=rows)
    noise: tuple[Block, ...] = (mechanism.in_words, told, *also, grid, "Half-width of the interval, by the true count:")
    cut = [f"Of {each.title} {each.in_bounds}." for each in plan.measures if each.in_bounds]
    found = [Section(title="Noise and intervals", blocks=(*noise, relative, *cut))]
    if mechanism.nonnegative:
        counts = [each for each in plan.measures if each.added_up is None]
        bias = tuple((m.title, *(f"{m.cell.bias_of_cutting(n):.3g}" for n in _SIZES[:5])) for m in counts)
        words = "By how much a noisy count is too large on average once it is cut off at 0, by the true count"
        least = " (for consistent numbers less: as of a normal error of their own variance)" * mechanism.consistent
        grid = Grid(header=("table", *(f"count of {n}" for n in _SIZES[:5])), rows=bias)
        found.append(Section(title="After the noise", blocks=(f"{words}{least}:", grid)))
    return found
