"""The settings of noisy tables, what is measured, and what is promised for it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from stirred.data.problems import listed
from stirred.mechanisms.protocol import Exchange, Names, Rate, Settings
from stirred.mechanisms.tables.engine import (
    COMPOSED,
    LAPLACE,
    UNPUBLISHED,
    TableMechanism,
)
from stirred.mechanisms.tables.noise.measures import (
    Measure,
    Precision,
    Sum,
    budgeted,
    changes,
    keeping,
    table_key,
    with_kept,
)
from stirred.spec.budget import Budget, Derived
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import finite_loss
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, ZCDP
from stirred.spec.specification import ONE_RUN, Flavor, Specification


class NoisyTablesSettings(Settings):
    """A law of noise and a budget; the tables are those of the plan, and the sums that are named here."""

    noise: Literal["gaussian", "laplace", "geometric"] = Field(
        default="gaussian", description="The law of the noise; laplace and geometric are two names of one law."
    )
    rho: Rate | None = Field(
        default=None,
        description="With gaussian noise: the loss of all tables together, the rho of zCDP, for one changed unit.",
        json_schema_extra={"example": "1/2"},
    )
    epsilon: Rate | None = Field(
        default=None,
        description="With laplace noise: the loss of all tables together, for one changed unit.",
        json_schema_extra={"example": 1},
    )
    shares: dict[str, Rate] = Field(
        default={},
        description="How the budget is split: a weight for each table; left out, evenly.",
        json_schema_extra={"example": {"county": 2, "county x tenure": 1}},
    )
    precision: list[Precision] = Field(
        default=[],
        description="Tables whose budget follows from their precision: all, or those without it share the rest.",
        json_schema_extra={"example": [{"table": "county", "within": 50, "confidence": "95%"}]},
    )
    sums: list[Sum] = Field(
        default=[],
        description="Sums of columns of whole numbers, in bounds that are declared here.",
        json_schema_extra={"example": [{"column": "income", "by": ["county"], "low": 0, "high": 100000}]},
    )
    values: dict[str, list[str | int]] = Field(
        default={},
        description="Every value that a variable of the tables can take, where no codebook declares them.",
        json_schema_extra={"example": {"county": ["North", "South"]}},
    )
    keep: Names = Field(
        default=[],
        description='Counts that are published exactly and that the noise leaves as they are: "total" or variables.',
        json_schema_extra={"example": ["total"]},
    )
    persons: int | None = Field(
        default=None,
        description="With tables of persons: how many of a household count at most; the others are left out.",
        ge=1,
        json_schema_extra={"example": 8},
    )
    after: dict[str, Any] | None = Field(
        default=None,
        description="With laplace noise: a swap within strata, with its name and settings, that comes before; tables "
        "are counted from the swapped file, of which no record is published.",
        json_schema_extra={"example": {"match": "size", "swap": "county", "rate": "1/20"}},
    )
    confidence: Rate = Field(default="95%", description="Of the published intervals.")
    consistent: bool = Field(default=False, description="Add columns in which tables agree on what they share.")
    rounded: int = Field(default=0, description="Add a column rounded to multiples of this number.", ge=0)
    nonnegative: bool = Field(default=False, description="Add a column cut off at 0, which biases small counts.")

    def dumped(self, *, mode: str = "json", exclude_defaults: bool = False, context: str = "") -> dict[str, Any]:
        """Return the settings as plain data; without a swap the same as before there could be one."""
        found = super().dumped(mode=mode, exclude_defaults=exclude_defaults, context=context)
        return {key: value for key, value in found.items() if key != "after" or value is not None}


ALONE: Final = (
    "nothing of the file is published but these tables with noise, what follows from them, and what is kept exactly"
)
ASSUMPTIONS: Final = (
    ALONE,
    "the tables, their values, bounds and budgets were fixed beforehand, not read off the file",
    *UNPUBLISHED,
    "a later release chosen after seeing this one keeps its own budget whatever this one shows",
)
GAUSSIAN: Final = "discrete Gaussian noise (Canonne, Kamath and Steinke 2020), as in the 2020 US Census"
AFTER: Final = "R15, noise after a swap (docs/theory/swapping-family.md)"
BEFORE: Final = (
    "the records that {title} drew for these tables stay inside, and nothing else is published of this draw; its rates "
    "and its match and swap variables were fixed beforehand"
)
INSIDE: Final = "noise inside the universe (docs/theory/noise-inside.md)"


class TableRequest(NamedTuple):
    """A table as it is asked for: of counts, or of a sum."""

    title: str
    variables: tuple[str, ...]
    added_up: Sum | None = None

    @property
    def columns(self) -> list[str]:
        return [*self.variables, *(() if self.added_up is None else (self.added_up.column,))]


class NoisePromise(TableMechanism):
    """What noisy tables publish and promise, from settings and tables alone: nothing is counted."""

    name: ClassVar[str] = "noisy-tables"
    title: ClassVar[str] = "noisy tables"
    settings_model: ClassVar[type[Settings]] = NoisyTablesSettings

    @property
    def table_sources(self) -> Sequence[str]:
        return [*dict.fromkeys(name for each in self.wanted for name in each.columns)]

    @property
    def swapped(self) -> Exchange | None:
        return None if self.inner is None else self.inner.exchange

    @property
    def gaussian(self) -> bool:
        return self.noise == "gaussian"

    @property
    def letter(self) -> str:
        return "rho" if self.gaussian else "epsilon"

    @property
    def total(self) -> Fraction | None:
        given = self.rho if self.gaussian else self.epsilon
        return None if given is None else finite_loss(given, where=self.letter)

    @property
    def wanted(self) -> list[TableRequest]:
        """Return every table and sum; without a plan those that the settings name, or one."""
        tables: Sequence[Sequence[str]] | None = self.tables
        if tables is None:
            named = [*self.shares, *(each.table for each in self.precision)]
            keys = dict.fromkeys(table_key(title) for title in named)
            tables = [sorted(by) for column, by in keys if not column] or ([] if self.sums else [("variable",)])
        counts = [TableRequest(" x ".join(variables), tuple(variables)) for variables in tables]
        return [*counts, *(TableRequest(each.title, tuple(each.by), each) for each in self.sums)]

    def measures(
        self, *, of_persons: Collection[str] = (), sizes: Mapping[str, int] | None = None
    ) -> tuple[Measure, ...]:
        """Return every table with its loss and noise; ``of_persons`` are columns of persons, ``sizes`` of variables."""
        declared = {name: len(dict.fromkeys(own)) for name, own in self.values.items()} if sizes is None else sizes
        asked = []
        for each in self.wanted:
            persons = self.persons if {*each.columns} & {*of_persons} else None
            own = tuple(declared.get(name, 2) for name in each.variables)
            one, square = changes(persons=persons, added_up=each.added_up, cells=math.prod(own))
            crossed = self.swapped is not None and self.swapped.crosses(each.columns)
            one, square = (2 * one, 4 * square) if crossed else (one, square)  # two changed records of one (R15)
            asked.append(
                Measure(
                    **each._asdict(), sizes=own, one=one, square=square, gaussian=self.gaussian,
                    of_persons=persons is not None, doubled=crossed,
                )
            )  # fmt: skip
        inside = [*with_kept(asked, keeping(self.keep))]
        return budgeted(inside, letter=self.letter, total=self.total, shares=self.shares, precision=self.precision)

    @property
    def declared_columns(self) -> Sequence[str]:
        kept = self.margins.values() if self.swapped is None else ()
        return [*dict.fromkeys(n for by in (*(w.variables for w in self.wanted), *kept) for n in by)]

    @property
    def in_words(self) -> str:
        titles = listed([each.title for each in self.wanted])
        law = "discrete Gaussian" if self.gaussian else "discrete Laplace (two-sided geometric)"
        budget = "the budget that the stated precision needs"
        if self.total is not None:
            split = "by precision and shares" if self.precision else "by shares" if self.shares else "evenly"
            budget = f"{self.letter} {self.total} in all, split {split}"
        kept = f", drawn so that {' and '.join(self.keep)} stay exact" if self.keep else ""
        before = "" if self.inner is None else f" of the records after {self.inner.title}"
        return (
            f"Noisy tables: {law} noise on every declared cell of the tables {titles}{before}{kept}; {budget}, for one "
            f"changed {self.unit} (bounded neighbours). No records are published."
        )

    def setting_in_words(self, epsilon: Exact) -> str:
        return f"{self.letter} {epsilon.shown()}"

    # ---- the promise

    @property
    def margins(self) -> dict[str, tuple[str, ...]]:
        """Return the margins that are held fixed, by their names: of a swap before the sizes of the strata."""
        found = keeping(self.keep) if self.swapped is None else (frozenset(self.swapped.within),)
        return {" x ".join(sorted(margin)) or "total": tuple(sorted(margin)) for margin in found}

    @property
    def exact_margins(self) -> dict[str, tuple[str, ...]]:
        """Return what is in ``invariants``: the margins, and where tables must agree with it the number of records."""
        return {**self.margins, **({"total": ()} if self.consistent and not self.keep else {})}

    def specification(
        self,
        measures: Sequence[Measure],
        *,
        name: str,
        columns: Sequence[str],
        stage: str = "as-given",
        post_imputation: bool | None = None,
    ) -> Specification:
        """Return the promise: bounded neighbours, and the margins that are kept as invariants."""
        kept = keeping(self.keep)
        fixed = Multiverse(invariants=tuple(Margin(of=self.unit, variables=by) for by in self.margins.values()))
        if len(kept) == 2 and {*columns} <= kept[0] | kept[1]:
            fixed = replace(fixed, nearest=2, nearest_because="both margins are fixed, so no record can change alone")
        persons = ("person",) if any(name.startswith("person ") for name in columns) else ()
        flavor = Flavor(
            domain=Domain.of_file(name, stage=stage, record_types=(self.unit, *persons), columns=tuple(columns)),
            multiverse=fixed,
            input_premetric=InputPremetric(name="d_HamS", unit=self.unit, post_imputation=post_imputation),
            output_premetric=ZCDP if self.gaussian else PURE,
        )
        parts = ", ".join(sorted(f"{each.title}: {self.letter} {each.loss}" for each in measures))
        changed = "squared changes/(2 variance parameter)" if self.gaussian else "changes x loss of a unit"
        spent = exact(sum(each.loss for each in measures))
        before = () if self.inner is None else (BEFORE.format(title=self.inner.title),)
        inside, after = (INSIDE,) if kept else (), (AFTER,) if before else ()
        return Specification(
            flavor=flavor,
            budget=Budget(policy=Derived(formula=f"the sum over tables of {changed}: {parts}", value=spent)),
            assumptions=(*ASSUMPTIONS, *before),
            relies_on=(ONE_RUN,),
            theorem=(GAUSSIAN if self.gaussian else LAPLACE, COMPOSED, *inside, *after),
            settings_from=self.settings_from,
            alone=(ALONE,),
        )
