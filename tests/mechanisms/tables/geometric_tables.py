"""A mechanism of tables as a package of its own would write it, on the engine of all table mechanisms."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import polars as pl
from pydantic import Field

from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Probability, Progress, Settings
from stirred.mechanisms.tables.cells import declared_cells
from stirred.mechanisms.tables.engine import TableMechanism, TablePlan
from stirred.mechanisms.tables.query import Query, TableAnswers
from stirred.spec import PURE, Budget, Domain, InputPremetric, Multiverse, Specification, exact
from stirred.spec.shift_law import ShiftLaw
from stirred.spec.specification import Flavor


class GeometricSettings(Settings):
    loss: Probability = Field(gt=0, description="The loss of each table, for one record that changes.")
    values: dict[str, list[str]] = Field(default_factory=dict, description="The values of each variable.")


class GeometricPlan(TablePlan):
    @property
    def disturbed(self) -> str:
        return "every count gets noise"


class GeometricTables(TableMechanism):
    name: ClassVar[str] = "geometric-tables"
    title: ClassVar[str] = "tables with geometric noise"
    settings_model: ClassVar[type[Settings]] = GeometricSettings
    in_words: ClassVar[str] = "Every declared cell is published with geometric noise."

    @property
    def declared_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for table in self.tables for name in table))

    @property
    def queries(self) -> dict[str, Query]:
        """What is asked, by table: a record that changes leaves one cell and comes to another."""
        titles = [" x ".join(table) for table in self.tables]
        return {title: Query(title=title, one=2, loss=self.settings.loss, gaussian=False) for title in titles}

    # ---- the promise

    def specification(
        self, name: str, columns: Sequence[str], *, stage: str = "as-given", post_imputation: bool | None = None
    ) -> Specification:
        flavor = Flavor(
            domain=Domain.of_file(name, stage=stage, record_types=(self.unit,), columns=tuple(columns)),
            multiverse=Multiverse(invariants=()),
            input_premetric=InputPremetric(name="d_HamS", unit=self.unit, post_imputation=post_imputation),
            output_premetric=PURE,
        )
        budget = Budget.constant(exact(self.settings.loss * len(self.tables)))
        return Specification(flavor=flavor, budget=budget, settings_from=self.settings_from)

    def draft(self, data: Microdata, *, doubts: bool) -> GeometricPlan:
        declared = self.declared(data, self.declared_columns)
        return GeometricPlan(
            specification=self.specification(data.name, self.declared_columns, stage=data.stage),
            cells={title: declared_cells(by, declared) for title, by in zip(self.queries, self.tables, strict=True)},
        )

    # ---- the act

    def answered(self, data: Microdata, plan: Any, ask: TableAnswers, progress: Progress) -> Mapping[str, pl.DataFrame]:
        released = {}
        for (title, query), by in zip(self.queries.items(), self.tables, strict=True):
            counts = data.households.group_by(by).agg(pl.len().cast(pl.Int64).alias("count"))
            cells = plan.cells[title].join(counts, on=by, how="left", maintain_order="left").fill_null(0)
            released[title] = cells.with_columns(count=ask(query, cells["count"].to_numpy()))
        return released

    def reading_tables(self, plan: Any) -> Sequence[str]:
        return ["The noise has mean 0 and does not depend on the counts."]

    # ---- the evidence

    def law(self, dataset: Any) -> ShiftLaw:
        """The law for records of one table: its cells are the values of the first variable."""
        (query,), cells = self.queries.values(), self.values[self.tables[0][0]]
        return ShiftLaw([sum(record == cell for record in dataset) for cell in cells], query.noise)

    def audit_universes(self) -> list[list[Hashable]]:
        cells = self.values[self.tables[0][0]]
        return [[*combinations_with_replacement(cells, size)] for size in (1, 2)]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        return self.specification("small", self.declared_columns)
