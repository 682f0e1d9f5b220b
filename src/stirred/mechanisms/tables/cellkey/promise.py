"""The settings of cell keys, and what is promised for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, WithJsonSchema

from stirred.data.frames import read_frame
from stirred.data.problems import listed
from stirred.mechanisms.protocol import (
    Rate,
    Settings,
    Workplace,
)
from stirred.mechanisms.tables.cellkey.keys import KeyFile
from stirred.mechanisms.tables.cellkey.perturbation import Magnitude
from stirred.mechanisms.tables.cellkey.ptable import KeyTradeOff, PTable, plain_table, read_ptable, table_of
from stirred.mechanisms.tables.engine import TableMechanism
from stirred.spec.budget import Budget
from stirred.spec.domain import Domain
from stirred.spec.exact import INFINITE
from stirred.spec.given_numbers import loss
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, approximate
from stirred.spec.problems import placed
from stirred.spec.specification import ONE_RUN, Flavor, KeysAlone, Specification

# A setting that names the file of a key, which is read with the plan.
SecretKey = Annotated[
    InstanceOf[KeyFile],
    BeforeValidator(KeyFile.of, json_schema_input_type=str),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]


PTABLES: Final = ("ptable", "magnitude_ptable")


def table_in(path: Path, *, key: str, called: str) -> dict[str, Any]:
    """Return the perturbation table in the file that a setting names, as plain data."""
    with placed(key):
        return plain_table(read_ptable(read_frame(path), where=called))


class CellKeySettings(Settings):
    """The perturbation table, the keys, and what is done before and after; the tables are those of the plan."""

    ptable: str | dict[str, Any] = Field(
        description="The perturbation table: a file of the ptable package, of tau-ARGUS or of the ONS.",
        json_schema_extra={"example": "ptable.csv"},
    )
    epsilon: Rate = Field(default=1, description="The loss at which delta is stated.", json_schema_extra={"example": 1})
    threshold: int = Field(default=0, ge=0, description="Perturbed counts below it are left empty.")
    keyed_by: Literal["records", "definition"] = Field(
        default="records",
        description="What shares its noise: the same set of records in any table, or the same cell by its variables.",
    )
    zeros: Literal["protected", "fixed"] = Field(
        default="protected", description="With fixed, which cells are empty is published exactly and not protected."
    )
    key: SecretKey | None = Field(
        default=None,
        description="A file with the custodian's key; left out, keys are drawn for this release alone.",
        json_schema_extra={"example": "record-keys.key", "internal": True},
    )
    record_key: str | None = Field(
        default=None, description="With keys = additive: the column that has the record keys."
    )
    keys: Literal["prf", "additive"] = Field(
        default="prf",
        description="With additive, sums of short keys are looked up as they are, as other programs do; it promises "
        "less, and for several tables nothing.",
    )
    magnitude_ptable: str | dict[str, Any] | None = Field(
        default=None,
        description="For sums: a perturbation table of its own, which may have fractions; default that of counts.",
        json_schema_extra={"example": "magnitudes.csv"},
    )
    magnitude: dict[str, Any] | None = Field(
        default=None,
        description="Sums to publish beside the counts: their column, and p_small, p_large, flex, q and epsilons.",
    )
    after: dict[str, Any] | None = Field(
        default=None,
        description="A mechanism that releases records, with its name and settings: tables are counted from these.",
    )

    def with_files(self, folder: Path) -> Self:
        found: dict[str, Any] = {}
        for name in PTABLES:
            if isinstance(given := getattr(self, name), str):
                found[name] = table_in(folder / given, key=name, called=given)
        if self.key is not None:
            with placed("key"):
                found["key"] = KeyFile.read(self.key, folder / self.key)
        return super().with_files(folder).model_copy(update=found)

    def public(self) -> dict[str, Any]:
        found = super().public()
        for name in PTABLES:
            if isinstance(table := found.get(name), dict):
                found[name] = {key: value for key, value in table.items() if key != "runs"}
        return found


THEOREM: Final = "delta of cell keys, exactly from the perturbation table (docs/theory/cell-keys.md)"
SECRET_KEYS: Final = (
    "keys are secret, and uniform and independent for different records; the advantage of the pseudo-random function "
    "is added to delta"
)
DECLARED: Final = "the values that the variables of the tables can take were declared beforehand, not read off the file"


class CellKeyPromise(TableMechanism):
    """What cell keys publish and promise, from settings and tables alone: nothing is counted."""

    name: ClassVar[str] = "cell-key"
    title: ClassVar[str] = "cell-key perturbation"
    settings_model: ClassVar[type[Settings]] = CellKeySettings
    table_columns: ClassVar[tuple[str, ...]] = ("sum",)
    otherwise: ClassVar[str] = "or in Python with values"

    @cached_property
    def table(self) -> PTable:
        return table_of(self.ptable)

    @cached_property
    def sums(self) -> Magnitude | None:
        return None if self.magnitude is None else Magnitude.of(self.magnitude)

    @cached_property
    def sums_table(self) -> PTable:
        return self.table if self.magnitude_ptable is None else table_of(self.magnitude_ptable)

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:  # no noise is drawn
        if self.inner is not None:
            self.inner.ready(data, plan.before)

    @property
    def table_sources(self) -> list[str]:
        return [*dict.fromkeys([*self.declared_columns, *([] if self.sums is None else [self.sums.column])])]

    @property
    def in_words(self) -> str:
        what = "the same set of records" if self.keyed_by == "records" else "the same cell"
        before = "" if self.inner is None else f" of the records that {self.inner.title} releases"
        below = f", counts below {self.threshold} left empty" if self.threshold else ""
        added = "" if self.sums is None else f" So is every sum of {self.sums.column} in these cells."
        return (
            f"Cell keys: every count above 0 of {listed([' x '.join(t) for t in self.tables])}{before} is perturbed by "
            f"what its key looks up, alike for {what}{below}.{added}"
        )

    @property
    def no_promise(self) -> str:
        """Say why nothing is promised; empty where something is."""
        if self.sums is not None:
            column = self.sums.column
            return f"Sums of {column} are published: one contribution may be of any size, and change a sum by as much."
        if self.keys == "additive" and len(self.tables) > 1:
            return "Sums of short keys in several tables are not independent, and no bound is proven for them."
        return ""

    @property
    def trade(self) -> KeyTradeOff | None:
        """Return the trade-off of epsilon and delta; None where there is none."""
        if self.no_promise:
            return None
        return KeyTradeOff(
            table=self.table,
            tables=len(self.tables),
            keyed_by=self.keyed_by,
            alone=self.key is None,
            zeros_fixed=self.zeros == "fixed",
        )

    def specification(
        self, *, name: str, stage: str, post_imputation: bool | None = None, columns: Sequence[str] = ()
    ) -> Specification:
        """Return the promise between files that differ by one record added or removed, about the tables' columns."""
        trade, epsilon = self.trade, loss(self.epsilon, where="epsilon")
        delta = None if trade is None else trade.rounded(epsilon)
        finite = delta is not None and delta < 1
        keyed = (KeysAlone(column=self.record_key or ""),) if self.keys == "additive" else ()
        flavor = Flavor(
            domain=Domain.of_file(name, stage=stage, record_types=(self.unit,), columns=tuple(self.declared_columns)),
            multiverse=Multiverse(invariants=tuple(map(self._empty, self.tables)) if self.zeros == "fixed" else ()),
            input_premetric=InputPremetric(name="d_SymDiff", unit=self.unit, within=1, post_imputation=post_imputation),
            output_premetric=approximate(delta) if finite and delta else PURE,
        )
        return Specification(
            flavor=flavor,
            budget=Budget.constant(epsilon if finite else INFINITE),
            assumptions=(SECRET_KEYS, *(each.words for each in keyed), DECLARED, ONE_RUN.words),
            relies_on=(ONE_RUN, *keyed),
            theorem=(THEOREM,),
            settings_from=self.settings_from,
        )

    def _empty(self, table: Sequence[str]) -> Inequality:
        """Return which cells of a table are empty, as an invariant."""
        title = " x ".join(table)
        condition = f"any {self.unit} in each cell of {title}"
        return Inequality(
            name=f"empty cells of {title}", condition=condition, on=Margin(of=self.unit, variables=tuple(table))
        )
