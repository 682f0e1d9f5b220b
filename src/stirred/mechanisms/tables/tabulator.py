"""What mechanisms share that publish nothing but counts with discrete Gaussian noise: promise, plan, files and checks.

Every rho of a budget is per record that comes or goes. The paper's unit is one record replaced by another, and each
mechanism says what that costs by its own structure (docs/theory/census-2020.md).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import Field

from stirred.data.microdata import Microdata, as_microdata, columns_beside
from stirred.data.problems import DataError, bad_plan, counted, listed
from stirred.mechanisms.protocol import (
    Fact,
    Grid,
    ReleasedTable,
    Section,
    Settings,
    Typical,
    Workplace,
)
from stirred.mechanisms.tables.budgets import BudgetFile, budget_of
from stirred.mechanisms.tables.engine import (
    TableMechanism,
    TablePlan,
)
from stirred.mechanisms.tables.query import INTERVAL, Query, intervals, schema_of
from stirred.randomness.cell_law import LEVEL, half_width, variance_of
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import table_of
from stirred.spec.budget import Budget, Derived
from stirred.spec.domain import AS_GIVEN, Domain, after_imputation
from stirred.spec.exact import exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import ZCDP
from stirred.spec.problems import Problem
from stirred.spec.specification import Flavor, Specification

Ints = npt.NDArray[np.int64]
Promise = Literal["replace", "as-printed", "add-remove"]
BEFOREHAND: Final = "regions, iterations, thresholds and cells were fixed beforehand, not read off the file"
_WIDEST: Final = 10**9  # the largest variance of one count, so that sums of many cells have intervals too
THEORY: Final = "docs/theory/census-2020.md"


class TabulatorSettings(Settings):
    """What all of these mechanisms can be given."""

    budget: str | dict[str, Any] = Field(
        default="us-2020",
        description="The budget: us-2020, or a TOML file of the same form.",
        json_schema_extra={"example": "us-2020", "document": True},
    )
    promise: Promise = Field(
        default="replace",
        description="Between which files: one record replaced, by this mechanism's own structure; as-printed, with the "
        "factor behind the published total; or one record added or removed.",
    )


class TabulatorPlan(TablePlan):
    """What would be published; nothing random has happened, and nothing was counted."""

    @property
    def given(self) -> Sequence[ReleasedTable]:
        own: Sequence[ReleasedTable] = self.mechanism.rests_on
        return own

    @property
    def disturbed(self) -> str:
        widths = [each.width for each in self.mechanism.measured]
        least, most = min(widths), max(widths)
        return f"every count gets noise: 95% of errors of one cell are up to {least}, where least is spent {most}"

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        return {"households": [], "persons": []}

    @property
    def facts(self) -> tuple[Fact, ...]:
        rho, neighbours, measured = self.mechanism.rho, self.mechanism.neighbours, self.mechanism.measured
        words = "; ".join(f"{each.title} rho {float(each.loss):g}, 95% within {each.width}" for each in measured)
        lines = [
            {"what": each.title, "rho": str(each.loss), "variance": str(each.parameter), "within_95": each.width}
            for each in measured
        ]
        values = {"rho": str(rho), "neighbours": neighbours, "measured": lines}
        sentence = f"rho {float(rho):.6g} per {neighbours}: {words}"
        return (Fact(label="budget", sentence=sentence, values=values, for_plans=True),)

    @property
    def why_this_number(self) -> str:
        return f"The budget file spends rho {float(self.mechanism.rho):.6g} per {self.mechanism.neighbours}."


class Tabulator(TableMechanism):
    """A mechanism that publishes counts with noise and nothing else."""

    own_tables: ClassVar[bool] = True
    budget_model: ClassVar[type[BudgetFile]]
    shipped: ClassVar[str]  # how the names of budgets end that are brought along
    neighbours: ClassVar[str]  # what a rho of the budget is about

    def check_settings(self) -> None:
        if self.tables:
            remedy = "leave [[tables]] out, or use another mechanism for them"
            raise bad_plan(f"{self.name} publishes tables of its own", where="tables", remedy=remedy)

    @cached_property
    def spent(self) -> Any:
        return budget_of(self.budget_model, self.budget, ending=self.shipped)

    # ---- the promise

    @property
    @abstractmethod
    def measured(self) -> tuple[Query, ...]:
        """Return what is measured, line by line of the budget."""

    @property
    def rho(self) -> Fraction:
        """Return rho per record that comes or goes."""
        return sum((line.loss for line in self.measured), Fraction(0))

    @property
    @abstractmethod
    def replaced(self) -> tuple[Fraction, str]:
        """Return what replacing one record costs by the structure of this mechanism, and how that follows."""

    @property
    @abstractmethod
    def printed(self) -> tuple[Fraction, str]:
        """Return what it costs with the factor behind the published total, and which that is."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return what the promise assumes besides."""
        return ()

    @property
    @abstractmethod
    def used(self) -> Collection[str]:
        """Return the columns of the files from which its tables are counted."""

    @property
    def rests_on(self) -> tuple[ReleasedTable, ...]:
        """Return the tables of earlier releases that it uses."""
        return ()

    def number_of_records(self, data: Microdata) -> int | None:
        return None if self.promise == "add-remove" else data.households.height

    def specification(
        self, *, name: str, stage: str = AS_GIVEN, post_imputation: bool | None = None, columns: Sequence[str] = ()
    ) -> Specification:
        """Return the promise: nothing is held fixed, and whatever the columns of the file are."""
        if self.promise == "add-remove":
            distance, unit = "d_SymDiff", self.neighbours.split()[1]
            value, formula = self.rho, "the sum of the budget file"
        else:
            distance, unit = "d_HamS", self.unit
            value, formula = self.replaced if self.promise == "replace" else self.printed
        premetric = InputPremetric(name=distance, unit=unit, post_imputation=post_imputation)
        who = Domain.of_file(name, stage=stage)
        flavor = Flavor(domain=who, multiverse=Multiverse(), input_premetric=premetric, output_premetric=ZCDP)
        stated = f"{formula}; the noise has rho {float(self.rho):.6g} per {self.neighbours}"
        return Specification(
            flavor=flavor,
            budget=Budget(policy=Derived(formula=stated, value=exact(value))),
            assumptions=(BEFOREHAND, *self.assumed),
            theorem=(f"discrete Gaussian noise is zCDP, and {THEORY}",),
            settings_from=self.settings_from,
        )

    # ---- small files, for audits

    @abstractmethod
    def examples(self) -> Sequence[Hashable]:
        """Return units that differ in all that matters, as its small files have them."""

    def audit_universes(self) -> list[list[Hashable]]:
        sizes: list[list[Hashable]] = [[*combinations_with_replacement(self.examples(), n)] for n in range(3)]
        return [[*sizes[0], *sizes[1]], [*sizes[1], *sizes[2]]] if self.promise == "add-remove" else sizes[1:]

    def audit_specification(self, universe: Sequence[Any]) -> Specification:
        del universe
        return self.specification(name="small")

    # ---- the act

    def noise_entropy(self, entropy: Entropy) -> Entropy:
        return entropy

    @abstractmethod
    def problems(self, data: Microdata) -> Iterator[Problem]:
        """Yield everything that is wrong with a file for these settings."""

    def check(self, data: Any) -> None:
        if problems := [*self.problems(as_microdata(data))]:
            raise DataError(problems)
        for line in self.measured:
            if (wide := line.parameter) > _WIDEST:
                what = f"noise of variance {float(wide):.4g} ({line.title}) is too wide for tables and their sums"
                raise bad_plan(what, where="budget rho", remedy=f"write a larger rho: variances go up to {_WIDEST:,}")

    def draft(self, data: Microdata, *, doubts: bool) -> TabulatorPlan:
        said = after_imputation(data.stage, data.post_imputation)
        return TabulatorPlan(
            specification=self.specification(name=data.name, stage=data.stage, post_imputation=said),
            dropped=columns_beside(data, self.used),
        )

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:
        super().ready(data, plan)
        for noise in {line.noise for line in self.measured}:
            table_of(noise)

    # ---- files and pages

    def verified(self, title: str) -> dict[str, str]:
        return {"what": title, "result": "counts and sums of counts with the noise drawn, nothing adjusted"}

    def reading_tables(self, plan: Any) -> list[str]:
        return [
            "Every count is the true count plus noise of mean 0; column `variance` is that of the noise, and the true "
            f"count lies from `low` to `high` in {float(LEVEL):.0%} of cases.",
            "Counts may be negative, and tables do not add up to each other: nothing was rounded, cut off or adjusted.",
        ]

    def typical_errors(self, plan: Any, corrected: Mapping[str, pl.DataFrame]) -> Sequence[Typical]:
        ninety = Fraction(9, 10)
        return [
            Typical(table=e.title, error=e.deviation, within=half_width(e.parameter, level=ninety))
            for e in self.measured
        ]

    def sections(self, plan: Any) -> Sequence[Section]:
        header = ("counted", "rho", "standard deviation", "95% of errors within")
        rows = tuple((e.title, f"{float(e.loss):g}", f"{e.deviation:.2f}", e.width) for e in self.measured)
        lead = f"Each rho is per {self.neighbours}; together {float(self.rho):.6g}. {self.in_words}"
        grid = Grid(header=header, rows=rows, numbers=header[1:])
        return [Section(title="Budget and noise", blocks=(lead, grid, *self.reading_tables(plan)))]


def with_intervals(
    table: pl.DataFrame, queries: Sequence[Query], *, cells: Ints, which: Ints | None = None
) -> pl.DataFrame:
    """Return counts that add up so many ``cells``, each with the noise of one of the queries, with their intervals."""
    kind = np.zeros(cells.size, dtype=np.int64) if which is None else which
    pairs, place = np.unique(np.stack([kind, cells]), axis=1, return_inverse=True)
    each = [(queries[k].parameter, m) for k, m in pairs.T.tolist()]
    width = np.array([half_width(variance, m) for variance, m in each], dtype=np.int64)[place.ravel()]
    variance = np.array([float(variance_of(variance) * m) for variance, m in each])[place.ravel()]
    found, types = intervals(table["count"].to_numpy(), variance=variance, width=width), schema_of(INTERVAL)
    return table.with_columns(pl.Series(name, values, dtype=types[name]) for name, values in found.items())


def missing_columns(
    frame: pl.DataFrame, names: Sequence[str], *, where: str, settings: Mapping[str, Sequence[str]], part: str
) -> list[Problem]:
    """Return a problem for columns that a file does not have.

    ``settings`` has the columns that each setting names; those of all others stand in the budget file, which is that
    of one ``part`` of the census.
    """
    missing = list(dict.fromkeys(name for name in names if name not in frame.columns))
    named = {key: columns for key, columns in settings.items() if {*columns} & {*missing}}
    ways = [f"name your columns with {' and '.join(named)}"] if named else []
    if others := [name for name in missing if not any(name in columns for columns in named.values())]:
        ways.append(
            f"rename yours to {listed(others)}, which the budget names, or name yours in a copy of it: `stirred census "
            f"budget --part {part} --out mine.toml`, and budget = 'mine.toml'"
        )
    remedy = f"{'; '.join(ways)}. The file has {listed(frame.columns)}"
    return [Problem(what=f"there is no column {listed(missing)}", where=where, remedy=remedy)] if missing else []


def undeclared(
    frame: pl.DataFrame, declared: Mapping[str, Sequence[str] | pl.Series], *, where: str, what: str, remedy: str
) -> Iterator[Problem]:
    """Yield the columns with values that are missing or were not declared; ``what`` says what the values are."""
    for name, values in declared.items():
        known = frame[name].cast(pl.String).is_in([*values]).fill_null(value=False)
        if rows := (~known).arg_true().to_list():
            wrong = f"a {what} is missing or was not declared"
            shown = f"{wrong} ({counted(rows)})"
            yield Problem(what=shown, public=wrong, where=f'{where} "{name}"', remedy=remedy)
