"""Noisy tables: counts and sums of a confidential file with exact integer noise on every declared cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata, columns_beside
from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.protocol import Progress, Table
from stirred.mechanisms.tables.engine import (
    declared_cells,
)
from stirred.mechanisms.tables.noise import checks, pages, small
from stirred.mechanisms.tables.noise.measures import (
    Measure,
    people_of,
    tabulated,
)
from stirred.mechanisms.tables.noise.pages import NoisePlan
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.mechanisms.tables.query import TableAnswers, with_numbers
from stirred.spec.domain import after_imputation
from stirred.spec.problems import placed


class NoisyTables(NoisePromise):
    """Counts of the plan's tables, and sums, with noise on every declared cell, whether or not anybody is in it.

    ``rho`` (Gaussian noise, zCDP) or ``epsilon`` (Laplace noise) is the loss of all tables together, for one changed
    unit. It is split evenly, by ``shares``, or by the ``precision`` that tables must have. Every number comes with its
    variance and an interval from the exact law. ``keep`` names counts that stay exact. With ``after``, a swap within
    strata, tables are counted from the swapped file, and the sizes of its strata stay exact (R15).

    >>> from stirred.randomness.entropy import Entropy
    >>> homes = pl.DataFrame({"county": list("ABAB"), "tenure": list("oorr")})
    >>> noisy = NoisyTables(tables=[["county", "tenure"]], rho="1/2", values={"county": "ABC", "tenure": "or"})
    >>> print(noisy.plan(homes).disturbed)
    every cell of 1 table gets noise (county x tenure ±3 with 95%); no records are published
    >>> released = noisy.release(homes, Entropy.from_os()).public["county x tenure"]
    >>> released.columns, released.height  # every cell, also those of county C, where nobody lives
    (['county', 'tenure', 'count', 'variance', 'low', 'high'], 6)
    """

    table_columns: ClassVar[tuple[str, ...]] = (*pages.COLUMNS,)

    def check_settings(self) -> None:
        if problems := [*checks.settings_problems(self)]:
            raise PlanError(problems)
        self.measures()

    # ---- the promise and the act

    def draft(self, data: Microdata, *, doubts: bool) -> NoisePlan:
        names = self.declared_columns
        declared = self.declared(data, names)
        of_persons = data.person_variables
        measures = self.measures(of_persons=of_persons, sizes={name: len(own) for name, own in declared.items()})
        for each in measures:
            with placed(f"table '{each.title}'"):
                # What is beyond reach is refused before anything is drawn: the law, the draw, and sums beyond 64 bits.
                checks.check_draw(each, values=data.households.height * (self.persons or 1))
                each.cell.half_width(self.sure)
        cells = {each.title: declared_cells(each.variables, declared) for each in measures}
        exact = {name for by in self.exact_margins.values() for name in by}
        used = [*dict.fromkeys([*names, *(each.column for each in self.sums), *self.coded_columns])]
        shown = {
            "households": [name for name in data.households.columns if name in (*names, *exact)],
            "persons": [name for name in of_persons if name in names],
        }
        specification = self.specification(
            measures,
            name=data.name,
            stage=data.stage,
            post_imputation=after_imputation(data.stage, data.post_imputation),
            columns=[f"person {name}" if name in of_persons else name for name in used],
        )
        kept = {}
        for title, by in self.exact_margins.items():
            if self.swapped is None:
                kept[title] = declared_cells(by, declared)
            else:  # strata: those that occur, which is fixed
                kept[title] = data.households.select(by).unique().sort(by) if by else pl.DataFrame()
        return NoisePlan(
            specification=specification,
            measures=measures,
            cells={**cells, **kept},
            before=None if self.inner is None else self.inner.plan(data, doubts=False),
            releases=shown,
            dropped=columns_beside(data, used),
        )

    def answered(
        self, data: Microdata, plan: NoisePlan, ask: TableAnswers, progress: Progress
    ) -> dict[str, pl.DataFrame]:
        records: dict[bool, pl.DataFrame] = {False: data.households}
        if any(each.of_persons for each in plan.measures):
            columns = [name.removeprefix("person ") for name in plan.specification.domain.columns]
            records[True] = people_of(data, columns, most=self.persons)
        noisy = {}
        for each in plan.measures:
            cells, own = plan.cells[each.title], records[each.of_persons]
            cut = {} if each.added_up is None else {"cut": tabulated(each, cells, own, cut=True)}
            noisy[each.title] = ask(each, tabulated(each, cells, own), inside=cut)
        return pages.published(self, plan.measures, plan.cells, noisy, total=data.households.height)

    def file_of(self, plan: NoisePlan, title: str) -> str:
        return next(each.file for each in plan.measures if each.title == title)

    def published_exactly(self, data: Microdata, plan: NoisePlan) -> dict[str, pl.DataFrame]:
        return {"invariants": self.kept(data, plan)} if self.exact_margins else {}

    def kept(self, data: Microdata, plan: NoisePlan) -> pl.DataFrame:
        """Return the counts that are published exactly, one table below the other."""
        frames = []
        for title, by in self.exact_margins.items():
            margin = Measure(title=title, variables=by, sizes=(), one=0, square=0, gaussian=True)
            counts = tabulated(margin, plan.cells[title], data.households)
            own = with_numbers(plan.cells[title], {"count": counts})
            frames.append(own.select(pl.lit(title).alias("table"), pl.all()))
        return pl.concat(frames, how="diagonal").select("table", pl.exclude("table", "count"), "count")

    # ---- what is handed over, each in a module of its own

    check = checks.check
    doubts = checks.doubts
    files = pages.noisy_files
    reading_tables = pages.reading
    sections = pages.sections
    typical_errors = pages.typical_errors
    verify = checks.verify
    verify_exact = checks.verify_kept
    audit_bundle = checks.audit
    audit_unstated = classmethod(checks.audit_published)
    law = small.law
    audit_universes = small.audit_universes
    audit_specification = small.audit_specification

    def table_in_words(self, table: Table, data: Microdata, plan: NoisePlan) -> str:
        measure = next(each for each in plan.measures if each.title == table.title)
        return f"{'after a swap, ' * measure.doubled}with noise, ±{plan.width(measure):,} with {plan.percent}"

    def expected_cells(self, data: Microdata, variables: Sequence[str], source: str) -> pl.DataFrame:
        if source == "margins":
            what = "the error of the noise is the same whatever the counts are, and the plan says it (--verbose)"
            raise bad_plan(what, where="--expect-from", remedy="leave it out, or name another file")
        of_persons = {name for each in self.wanted for name in each.columns} - {*data.households.columns}
        measure = next(m for m in self.measures(of_persons=of_persons) if m.variables == tuple(variables))
        cells, files = declared_cells(variables, self.declared(data, variables)), [data.households] * 2
        if data.persons is not None:
            files = [people_of(data, variables, most=most) for most in (None, self.persons)]
        true, mean = (tabulated(measure, cells, file).astype(np.float64) for file in files)
        variance = np.full(true.size, float(measure.cell.variance))
        return with_numbers(cells, {"true": true, "mean": mean, "variance": variance})
