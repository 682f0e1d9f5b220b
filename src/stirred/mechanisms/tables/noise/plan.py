"""The plan of noisy tables, and what they publish: a function of the noisy numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import number
from stirred.mechanisms.protocol import Fact
from stirred.mechanisms.tables.engine import TablePlan
from stirred.mechanisms.tables.noise.measures import ConsistentTable, Measure, consistent
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.mechanisms.tables.query import DECIMAL, INTERVAL, WHOLE, Column, Columns, intervals, with_numbers
from stirred.spec.exact import exact


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


_CONSISTENT: Final[Columns] = dict.fromkeys(("consistent", "consistent_variance"), DECIMAL)
# Columns beside the variables and the count. Intervals of consistent numbers do not cover as often as they say.
COLUMNS: Final[Columns] = {
    "sum": WHOLE,
    **INTERVAL,
    **_CONSISTENT,
    **dict.fromkeys(("consistent_low", "consistent_high"), Column(pl.Float64(), "earlier")),
    "adjusted": DECIMAL,
}
# Columns that stay inside.
CONFIDENTIAL: Final = ("true", "noise", "cut", "table", "count")
_DECIMALS: Final = 6
Noisy = Mapping[str, npt.NDArray[np.int64]]


def published(
    mechanism: NoisePromise,
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
    mechanism: NoisePromise,
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


def after_in_words(mechanism: NoisePromise) -> str:
    """Say what is done to the noisy numbers, each with its bias; the numbers themselves are always published."""
    sentences = []
    if mechanism.consistent:
        sentences.append(
            "`consistent` is the least squares estimate from all tables and exact counts together: tables agree on "
            "totals and on variables that they share. Nothing is biased, and `consistent_variance` is its variance. It "
            "has no interval: its error is far from normal in small tables. That codes of one variable nest in those "
            "of another is not known to it"
        )
    if mechanism.rounded:
        sentences.append(
            f"`adjusted` is rounded to multiples of {mechanism.rounded}, which moves each number by up to "
            f"{mechanism.rounded / 2:g}; sums of rounded numbers no longer agree"
        )
    if mechanism.nonnegative:
        sentences.append(
            "`adjusted` is cut off at 0, which makes small counts too large on average, and sums of them more so"
        )
    return ". ".join(sentences)
