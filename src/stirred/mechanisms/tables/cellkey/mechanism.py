"""Cell-key perturbation of tables of counts and sums, alone or after a mechanism that releases records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from stirred.data.columns import select
from stirred.data.microdata import Microdata, columns_beside
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import (
    Progress,
    PublicFile,
    ReleasedColumns,
    Settings,
    Table,
    TooLargeError,
)
from stirred.mechanisms.tables.cellkey import plan as plans
from stirred.mechanisms.tables.cellkey.keys import RECORD_KEY, Keys, drawn_keys, identified, whole_keys
from stirred.mechanisms.tables.cellkey.perturbation import KeyedRecords, KeyedTable, Magnitude, sums_of
from stirred.mechanisms.tables.cellkey.plan import CellKeyPlan
from stirred.mechanisms.tables.cellkey.promise import CellKeyPromise
from stirred.mechanisms.tables.cellkey.ptable import PTable, plain_table
from stirred.mechanisms.tables.engine import TableMechanism, declared_cells
from stirred.mechanisms.tables.query import TableAnswers
from stirred.randomness.entropy import Entropy
from stirred.spec.convert import post_process
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import loss
from stirred.spec.problems import Problem


class CellKey(CellKeyPromise):
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
        keys = Keys.drawn(entropy) if self.key is None else Keys(self.key.secret)
        return KeyedRecords(
            files={kind: self._keyed(kind, frame, data, keys, entropy) for kind, frame in files.items()},
            keys=keys,
            table=self.table,
            keyed_by=self.keyed_by,
            additive=self.record_key is not None,
            sums=self.sums,
            sums_table=self.sums_table,
        )

    def _keyed(self, kind: str, frame: pl.DataFrame, data: Microdata, keys: Keys, entropy: Entropy) -> pl.DataFrame:
        """Return records with their keys: of a column, of the key that is kept, or drawn."""
        if self.record_key is not None:
            return frame.with_columns(whole_keys(frame[self.record_key], below=self.table.keys).alias(RECORD_KEY))
        if self.key is not None:
            return frame.hstack(keys.of_records(identified(frame, data).to_list()))
        return frame.hstack(drawn_keys(frame.height, entropy.child(f"keys of {kind}")))

    def answered(
        self, data: KeyedRecords, plan: CellKeyPlan, ask: TableAnswers, progress: Progress
    ) -> dict[str, pl.DataFrame]:
        counts, sums = {}, {}
        for title, cells in plan.cells.items():
            found = data.counted(cells, "persons" if {*cells.columns} & {*plan.persons} else "households")
            looked_up = {name: found[name] for name in ("ckey", "pcv")}
            answer = ask(KeyedTable(title=title, cells=found), found["pre_sd_count"].to_numpy(), inside=looked_up)
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

    def expected_cells(self, data: Microdata, variables: Sequence[str], source: str) -> pl.DataFrame:
        if source == "margins":
            what, remedy = "cell keys publish no margins exactly", "use another file (other-data)"
            raise TooLargeError([Problem(what=what, where="expected error", remedy=remedy)])
        counts = data.households.group_by(list(variables)).agg(pl.len().cast(pl.Float64).alias("true"))
        laws = {count: self.table.row(int(count)).count for count in counts["true"].unique()}
        variance = {count: float(self.table.variance(row)) for count, row in laws.items()}
        bias = {count: float(self.table.bias(row)) for count, row in laws.items()}
        return counts.with_columns(
            mean=pl.col("true") + pl.col("true").replace_strict(bias, return_dtype=pl.Float64),
            variance=pl.col("true").replace_strict(variance, return_dtype=pl.Float64),
        )

    def setting_in_words(self, epsilon: Exact) -> str:
        delta = None if self.trade is None else self.trade.delta(loss(self.epsilon, where="epsilon"))
        return f"epsilon {epsilon.shown()}" + ("" if delta is None or self.inner else f", delta {exact(delta).shown()}")
