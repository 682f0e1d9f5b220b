"""The plan of noisy tables: every table with its loss, its noise and the interval of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import polars as pl

from stirred.data.problems import number
from stirred.mechanisms.protocol import Fact
from stirred.mechanisms.tables.engine import TablePlan
from stirred.mechanisms.tables.noise.budget import Measure
from stirred.spec.exact import exact
from stirred.spec.shift_law import DiscreteGaussian

RELATION = "for one changed {unit} (bounded neighbours, {premetric})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NoisePlan(TablePlan):
    """What would be published; nothing random has happened. ``cells`` are the declared cells, by title."""

    measures: tuple[Measure, ...]
    cells: Mapping[str, pl.DataFrame] = field(repr=False)
    confidence: Fraction
    alone: Fraction | None = None  # what the same noise would lose without the swap before it
    shown: Mapping[str, Sequence[str]]
    after: str

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the tables, by record type."""
        return self.shown

    @property
    def disturbed(self) -> str:
        """Say that only tables with noise are published."""
        told = f"every cell of {number(len(self.measures), 'table')} gets noise ({self.widths})"
        cut = [f"of {each.title} {bounds_in_words(each)}" for each in self.measures if each.added_up is not None]
        return "; ".join([told, *cut, "no records are published"])

    @property
    def widths(self) -> str:
        """Say how far off a cell of each table may be."""
        told = [f"{each.title} ±{each.cell.half_width(self.confidence):,}" for each in self.measures[:4]]
        more = [f"{len(self.measures) - 4} more"] if len(self.measures) > 4 else []
        return f"{', '.join([*told, *more])} with {float(100 * self.confidence):g}%"

    @property
    def relation(self) -> str:
        """Say which neighbours every loss is about."""
        premetric = self.specification.input_premetric
        return RELATION.format(unit=premetric.unit, premetric=premetric.symbol)

    @property
    def why_this_number(self) -> str:
        """Say how the loss comes about."""
        return f"{self.specification.budget.policy}, {self.relation}; losses of tables add up"

    @property
    def also_promised(self) -> str:
        """Say after a swap what it did to the noise, and what holds between closer files; nothing else is."""
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
        """Return each table with its loss and noise, and what is done to them afterwards."""
        letter = self.specification.output_premetric.parameter.removesuffix("2")
        found = []
        for each in self.measures:
            width, deviation = each.cell.half_width(self.confidence), float(each.cell.variance) ** 0.5
            values: dict[str, Any] = {
                "table": each.title, "cells": each.cells, letter: str(each.loss), "noise": noise_in_words(each),
                "variance": float(each.cell.variance), "half_width": width,
                "sensitivity_l1": each.one, "sensitivity_squared": each.square,
            }  # fmt: skip
            if each.added_up is not None:
                values["bounds"] = [each.added_up.low, each.added_up.high]
            loss = f"{letter} {exact(each.loss).shown()} {self.relation}"
            told = f"{each.cells:,} cells, {noise_in_words(each)}, standard deviation {deviation:.4g}"
            cut = "" if each.added_up is None else f"; {bounds_in_words(each)}"
            found.append((f"{each.title}: {told}, {loss}{cut}", values))
        tables = [values for _, values in found]
        return (
            *(Fact(label="noise", sentence=sentence) for sentence, _ in found),
            Fact(values={"noisy_tables": tables, "confidence": str(self.confidence)}),
            *([] if self.alone is None else [Fact(values={"noise_alone": str(self.alone)})]),
            *([Fact(label="after", sentence=self.after)] if self.after else []),
        )


def bounds_in_words(measure: Measure) -> str:
    """Say of a sum what is added up: noise covers bounded values only."""
    assert measure.added_up is not None
    low, high = measure.added_up.low, measure.added_up.high
    return f"values beyond {low:,} to {high:,} are counted as the nearer bound, and the interval is for that sum"


def noise_in_words(measure: Measure) -> str:
    """Return the law of a table's noise, with its exact parameter, and what it keeps."""
    noise = measure.cell.noise
    words = (
        f"discrete Gaussian noise of variance parameter {noise.variance}"
        if isinstance(noise, DiscreteGaussian)
        else f"discrete Laplace noise, loss {noise.loss} for each unit"
    )
    kept = [" x ".join(sorted(each)) or "the total" for each in measure.kept]
    return f"{words}, conditioned on keeping {' and '.join(kept)}" if kept else words
