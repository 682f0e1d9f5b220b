"""Cell-key perturbation of tables of counts and sums, alone or after a mechanism that releases records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import polars as pl
from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, WithJsonSchema

from stirred.data.columns import select
from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata, columns_beside
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import (
    ExpectedError,
    Progress,
    PublicFile,
    Rate,
    ReleasedColumns,
    Settings,
    Table,
    TooLargeError,
)
from stirred.mechanisms.tables.cellkey import plan as plans
from stirred.mechanisms.tables.cellkey.perturbation import KeyedRecords, KeyedTable, KeyFile, Keys, Magnitude, sums_of
from stirred.mechanisms.tables.cellkey.plan import CellKeyPlan
from stirred.mechanisms.tables.cellkey.ptable import KeyTradeOff, PTable, plain_table, read_ptable, table_of
from stirred.mechanisms.tables.engine import AnyFrame, TableMechanism, declared_cells
from stirred.mechanisms.tables.query import Ask
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.convert import post_process
from stirred.spec.domain import Domain
from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.given_numbers import loss
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, approximate
from stirred.spec.problems import Problem, placed
from stirred.spec.reliance import ONE_RUN, KeysAlone
from stirred.spec.specification import Flavor, Specification

# A setting that names the file of a key, which is read with the plan.
SecretKey = Annotated[
    InstanceOf[KeyFile],
    BeforeValidator(KeyFile.of, json_schema_input_type=str),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]


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
        for name in ("ptable", "magnitude_ptable"):
            if isinstance(given := getattr(self, name), str):
                with placed(name):
                    found[name] = plain_table(read_ptable(read_frame(folder / given), where=given))
        if self.key is not None:
            with placed("key"):
                found["key"] = KeyFile.read(self.key, folder / self.key)
        return super().with_files(folder).model_copy(update=found)

    def public(self) -> dict[str, Any]:
        found = super().public()
        for name in ("ptable", "magnitude_ptable"):
            if isinstance(table := found.get(name), dict):
                found[name] = {key: value for key, value in table.items() if key != "runs"}
        return found


THEOREM: Final = "delta of cell keys, exactly from the perturbation table (docs/theory/cell-keys.md)"
SECRET_KEYS: Final = (
    "keys are secret, and uniform and independent for different records; the advantage of the pseudo-random function "
    "is added to delta"
)
DECLARED: Final = "the values that the variables of the tables can take were declared beforehand, not read off the file"


class CellKey(TableMechanism):
    """Tables whose counts are perturbed by what their records' keys look up; the same set has the same noise.

    ``values`` declares which values the variables of the tables can take. With ``after``, a mechanism that releases
    records, tables are counted from these, under keys drawn for this release.

    >>> from fractions import Fraction
    >>> from stirred.mechanisms.tables.cellkey.design import design_ptable
    >>> table = design_ptable(D=2, V=Fraction(9, 10)).table
    >>> people = pl.DataFrame({"county": list("AAAB"), "sex": list("fmff")})
    >>> tables = CellKey(ptable=table, tables=[["county", "sex"]], values={"county": list("AB"), "sex": list("fm")},
    ...                  unit="person")
    >>> promise = tables.plan(people).specification
    >>> promise.budget.shown, float(promise.output_premetric.delta)
    ('1', 0.6375)
    >>> released = tables.release(people, Entropy.from_os(), accept=["large-delta"]).public["county x sex"]
    >>> released.columns, released.filter(pl.col("county") == "B")["count"].to_list()[1]  # a cell of 0 stays 0
    (['county', 'sex', 'count'], 0)
    """

    name: ClassVar[str] = "cell-key"
    title: ClassVar[str] = "cell-key perturbation"
    settings_model: ClassVar[type[Settings]] = CellKeySettings
    table_columns: ClassVar[tuple[str, ...]] = ("sum",)
    otherwise: ClassVar[str] = "or in Python with values"

    def __init__(self, settings: Settings | None = None, **given: Any) -> None:
        plain = {name: plain_table(own) for name, own in given.items() if isinstance(own, PTable)}
        if isinstance(own := given.get("magnitude"), Magnitude):
            plain["magnitude"] = own.model_dump()
        super().__init__(settings, **{**given, **plain})

    def check_settings(self) -> None:
        TableMechanism.check_settings(self)
        if loss(self.epsilon, where="epsilon", finite=True).is_infinite:
            what = "at an infinite loss every delta is 0, which says nothing about these tables"
            raise bad_plan(what, where="epsilon", remedy="write the loss at which delta is to be stated, such as 1")
        self.sums  # noqa: B018 (wrong ones are refused before any file is read)
        plans.check_settings(self)

    @cached_property
    def table(self) -> PTable:
        return table_of(self.ptable)

    @cached_property
    def sums(self) -> Magnitude | None:
        return None if self.magnitude is None else Magnitude.of(self.magnitude)

    @cached_property
    def sums_table(self) -> PTable:
        return self.table if self.magnitude_ptable is None else table_of(self.magnitude_ptable)

    @property
    def declared_columns(self) -> list[str]:
        return list(dict.fromkeys(name for variables in self.tables for name in variables))

    @property
    def coded_columns(self) -> Sequence[str]:
        return self.declared_columns if self.inner is None else self.inner.coded_columns

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

    # ---- the promise and the act

    def draft(self, data: Microdata, *, doubts: bool) -> CellKeyPlan:
        persons = tuple(name for name in self.declared_columns if name in data.person_variables)
        declared = self.declared(data, self.declared_columns)
        cells = {" x ".join(t): declared_cells(t, declared) for t in self.tables}
        before = None
        if self.inner is None:
            specification = self.specification(name=data.name, stage=data.stage, post_imputation=data.post_imputation)
        else:
            before = self.inner.plan(data, doubts=doubts).judged(())  # its records stay inside, and expose no one
            plans.check_released(self, before.releases, persons)
            specification = post_process(before.specification, description=self.in_words).specification
            inside = f"of these figures none is published: {self.inner.title} keeps them, and tables are perturbed"
            fixed = specification.multiverse.with_consequences([inside])
            specification = replace(specification.with_flavor(multiverse=fixed), alone=(inside,))
        return CellKeyPlan(
            specification=specification,
            dropped=columns_beside(data, {*self.table_sources, self.record_key or ""}),
            cells=cells,
            persons=persons,
            before=before,
        )

    def counted_file(self, data: Microdata, plan: CellKeyPlan, entropy: Entropy) -> KeyedRecords:
        if self.key is not None and self.key.secret is None:
            remedy = "in a plan it is read; in Python give 32 bytes"
            raise bad_plan("the key is a file that was not read", where="key", remedy=remedy)
        records = self.records_before(data, plan, entropy)
        files = {"households": records.households}
        if plan.persons:
            assert records.persons is not None
            people = select(records.persons, records.persons.columns)
            shared = [name for name in records.households.columns if name == records.hid or name not in people.columns]
            files["persons"] = people.join(records.households.select(shared), on=records.hid, how="left")
        return KeyedRecords.of(self, files, data, entropy)

    def answered(self, data: KeyedRecords, plan: CellKeyPlan, ask: Ask, progress: Progress) -> dict[str, pl.DataFrame]:
        counts, sums = {}, {}
        for title, cells in plan.cells.items():
            found = data.counted(cells, "persons" if {*cells.columns} & {*plan.persons} else "households")
            looked_up = {name: found[name] for name in ("ckey", "pcv")}
            answer = ask(KeyedTable(title, found), found["pre_sd_count"].to_numpy(), inside=looked_up)
            noisy = pl.Series("count", answer)
            shown = noisy >= self.threshold
            counts[title] = cells.with_columns(count=pl.when(shown).then(noisy))
            sums[sums_of(title)] = cells.with_columns(sum=pl.when(shown).then(found["sum"]))
        return counts if self.sums is None else {**counts, **sums}

    def verified(self, title: str) -> dict[str, str]:
        if title.startswith("tables/"):
            return {}
        return {"what": f"table {title}", "result": "the counts with what was looked up"}

    def premises(self, plan: Any) -> Mapping[str, str]:
        return {} if self.key is None else {"key": Keys(self.key.secret).fingerprint}

    # ---- what is handed over, each in a module of its own

    check = plans.check
    doubts = plans.doubts
    typical_errors = plans.typical_errors
    sections = plans.sections
    audit_bundle = plans.audit_bundle
    audit_unstated = classmethod(plans.audit_unstated)
    law = plans.law
    audit_universes = plans.audit_universes
    audit_specification = plans.audit_specification

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> list[PublicFile]:
        if self.sums is None:
            return []
        words = f"sums of {self.sums.column}, perturbed; empty where the count is left empty"
        return [
            PublicFile(name=sums_of(" x ".join(by)), kind="table", columns=(*by, "sum"), words=words)
            for by in self.tables
        ]

    def table_in_words(self, table: Table, data: Microdata, plan: Any) -> str:
        return "perturbed by cell keys" if self.inner is None else f"perturbed by cell keys, after {self.inner.title}"

    def conclusions(self, plan: Any) -> list[str]:
        return [*plans.promised(plan), *self.reading_tables(plan)]

    def number_of_records(self, data: Microdata) -> int | None:
        return None

    def reading_tables(self, plan: Any) -> list[str]:
        fair = not any(self.table.bias(row.count) for row in self.table.rows)
        noise = "Noise is 0 on average" if fair else "Noise is not 0 on average: report.html shows its bias by count"
        lines = [f"{noise}. Tables do not add up: every cell has noise of its own, totals too."]
        if self.inner is not None:
            lines.append(f"It is added to counts after {self.inner.title}, which are not the true ones on average.")
        if self.threshold:
            lines.append(
                f"Counts below {self.threshold} are left empty, by the perturbed count: of true counts near it only "
                "the larger results are shown, which are too large on average."
            )
        return lines

    # ---- accuracy

    @property
    def no_closed_form(self) -> str:
        return "" if self.inner is None else "the errors of a swap and cell keys together have no closed form here"

    def expected_error(
        self, records: AnyFrame, *, variables: Sequence[str], source: str, persons: Any = None, key: str | None = None
    ) -> ExpectedError:
        if self.inner is not None:
            raise bad_plan(self.no_closed_form, where="mechanism", remedy="leave the expected error out")
        if source == "margins":
            what, remedy = "cell keys publish no margins exactly", "use another file (other-data)"
            raise TooLargeError([Problem(what=what, where="expected error", remedy=remedy)])
        counts = records.lazy().group_by(list(variables)).agg(pl.len().cast(pl.Float64).alias("true")).collect()
        laws = {count: self.table.row(int(count)).count for count in counts["true"].unique()}
        variance = {count: float(self.table.variance(row)) for count, row in laws.items()}
        bias = {count: float(self.table.bias(row)) for count, row in laws.items()}
        cells = counts.with_columns(
            mean=pl.col("true") + pl.col("true").replace_strict(bias, return_dtype=pl.Float64),
            variance=pl.col("true").replace_strict(variance, return_dtype=pl.Float64),
        )
        return ExpectedError.of(cells, variables=variables, source=source)

    def setting_in_words(self, epsilon: Exact) -> str:
        delta = None if self.trade is None else self.trade.delta(loss(self.epsilon, where="epsilon"))
        return f"epsilon {epsilon.shown()}" + ("" if delta is None or self.inner else f", delta {exact(delta).shown()}")
