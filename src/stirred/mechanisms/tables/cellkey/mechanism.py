"""Cell-key perturbation of tables of counts and sums, alone or after a mechanism that releases records."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.columns import select
from stirred.data.microdata import Microdata, absent_variable, as_microdata, columns_beside, missing_column
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import (
    Grid,
    Progress,
    PublicFile,
    ReleasedColumns,
    Section,
    Settings,
    Table,
    TooLargeError,
    Typical,
)
from stirred.mechanisms.tables.cellkey.keys import RECORD_KEY, Keys, drawn_keys, identified, whole_keys
from stirred.mechanisms.tables.cellkey.perturbation import KeyedRecords, KeyedTable, Magnitude, summed, sums_of
from stirred.mechanisms.tables.cellkey.plan import EPSILONS, LETTERS, CellKeyPlan, SmallTables, promised
from stirred.mechanisms.tables.cellkey.promise import PTABLES, CellKeyPromise, table_in
from stirred.mechanisms.tables.cellkey.ptable import PTable, plain_table
from stirred.mechanisms.tables.cells import column_of, declared_cells
from stirred.mechanisms.tables.engine import TableMechanism, audit_cells, audit_promise, audit_records
from stirred.mechanisms.tables.query import TableAnswers
from stirred.randomness.entropy import Entropy
from stirred.spec.convert import post_process
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import loss
from stirred.spec.law import Law
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification

_LARGE: Final = Fraction(1, 1000)
_SHOWN: Final = 12


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
        files = {name: str(own) for name in PTABLES if isinstance(own := given.get(name), str | Path)}
        plain |= {name: table_in(Path(own), key=name, called=own) for name, own in files.items()}
        if isinstance(own := given.get("magnitude"), Magnitude):
            plain["magnitude"] = own.model_dump()
        super().__init__(settings, **{**given, **plain})

    def check_settings(self) -> None:
        TableMechanism.check_settings(self)
        if loss(self.epsilon, where="epsilon", finite=True).is_infinite:
            what = "at an infinite loss every delta is 0, which says nothing about these tables"
            raise bad_plan(what, where="epsilon", remedy="write the loss at which delta is to be stated, such as 1")
        self.sums  # noqa: B018 (wrong ones are refused before any file is read)
        self._check_together()

    # ---- the promise and the act

    def draft(self, data: Microdata, *, doubts: bool) -> CellKeyPlan:
        persons = tuple(name for name in self.declared_columns if name in data.person_variables)
        declared = self.declared(data, self.declared_columns)
        cells = {" x ".join(t): declared_cells(t, declared) for t in self.tables}
        before = None
        if self.inner is None:
            specification = self.specification(name=data.name, stage=data.stage, post_imputation=data.post_imputation)
        else:
            before = self.inner.plan(data, doubts=doubts)
            self._check_released(before.releases, persons)
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

    # ---- files and pages

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
        return [*promised(plan), *self.reading_tables(plan)]

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

    def typical_errors(self, plan: CellKeyPlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
        """Return the noise of large counts by the perturbation table; nothing where something else was done before."""
        if plan.before is not None:
            return []
        table, last = self.table, self.table.rows[-1]
        error = math.sqrt(sum(many * value**2 for value, many in last.law.items()) / table.keys)
        largest = max(map(abs, last.law))
        near = [sum(many for value, many in last.law.items() if abs(value) <= k) for k in range(largest + 1)]
        within = next(k for k, many in enumerate(near) if 10 * many >= 9 * table.keys) / table.step
        least = max(last.count, self.threshold)  # below the threshold nothing is published
        size, error = f"{least:,} and more", error / table.step
        return [Typical(table=t, size=size, cells=c.height, error=error, within=within) for t, c in plan.cells.items()]

    def sections(self, plan: CellKeyPlan) -> list[Section]:
        """Return the sections on the promise, the trade-off and the perturbation table."""
        found = [Section(title="What is promised", blocks=(self.in_words, *promised(plan)))]
        if self.trade is not None:
            rows = tuple((e, exact(self.trade.delta(exact(e))).shown(6)) for e in EPSILONS)
            own = "the cell keys alone, without the swap" if plan.before is not None else "these tables"
            grid = Grid(header=("epsilon", "delta"), rows=rows, numbers=("epsilon", "delta"))
            found.append(Section(title="Epsilon and delta", blocks=(f"Of {own}, exactly from the table.", grid)))
        table = self.table
        shown = tuple(
            (row.count, f"{float(table.pstay(row.count)):.6f}", f"{float(table.bias(row.count)):.3g}",
             f"{float(table.variance(row.count)):.6f}", f"{min(row.values)} to {max(row.values)}")
            for row in table.rows[:_SHOWN]
        )  # fmt: skip
        header = ("count", "stays", "bias", "variance", "added")
        more = (
            f"The last row serves all larger counts{'' if len(table.rows) <= _SHOWN else '; only the first are shown'}."
        )
        found.append(
            Section(title="Perturbation table", blocks=(more, Grid(header=header, rows=shown, numbers=header[:-1])))
        )
        return found

    def _check_together(self) -> None:
        """Refuse settings that do not go together."""
        for where, wrong, what, remedy in (
            ("tables", any(len({*t}) < len(t) or not t for t in self.tables),
             "a table needs different variables", "name at least one, and each once"),
            ("ptable", self.table.step != 1,
             "the table has fractions, and counts are whole", "use it for sums, as magnitude_ptable"),
            ("record_key", (self.record_key is not None) != (self.keys == "additive"),
             "a column of record keys goes with keys = 'additive', and with it alone", "give both or none"),
            ("key", self.record_key is not None and self.key is not None,
             "records have their keys in a column and in a file", "leave one out"),
            ("after", self.inner is not None and (self.key is not None or self.record_key is not None),
             "after another mechanism come records whose keys are drawn for this release",
             "leave key, keys and record_key out"),
            ("keyed_by", self.keyed_by == "definition" and self.key is not None,
             "with a key that is kept, a cell would have the same noise next year, whoever is in it then, and the "
             "difference of the two would be exact", "leave key out, or write keyed_by = 'records'"),
            ("keyed_by", self.keyed_by == "definition" and self.keys == "additive",
             "additive keys are sums of records' keys", "write keyed_by = 'records'"),
        ):  # fmt: skip
            if wrong:
                raise bad_plan(what, where=where, remedy=remedy)

    def check(self, data: Any) -> None:
        """Raise all problems of the columns; which values they can take is not known yet."""
        data = as_microdata(data)
        columns = [*data.variables, *data.person_variables]
        roles = dict.fromkeys(self.declared_columns, ("table", columns))
        if self.sums is not None:
            roles.setdefault(self.sums.column, ("magnitude", columns))
        if self.record_key is not None:
            roles[self.record_key] = ("record_key", data.households.columns)
        where = data.household_source
        absent = [
            absent_variable(data, name, where=where, role=role)
            if there is columns
            else missing_column(name, there, where=where, role=role)
            for name, (role, there) in roles.items()
            if name not in there
        ]
        if absent:
            raise DataError(absent)
        of_persons = [name for name in self.declared_columns if name in data.person_variables]
        if of_persons and self.inner is None:  # a unit may have many records, and only a swap covers that
            raise bad_plan(
                f"{listed(of_persons)} is a variable of persons, and a {self.unit} may change a count for each of them",
                where="tables",
                remedy="give the file of persons as [data] file with record = 'person'; or swap before, with after",
            )
        if self.sums is not None:
            summed(column_of(data, self.sums.column))
        if self.inner is not None:
            self.inner.check(data)
        elif self.record_key is not None:
            whole_keys(data.households[self.record_key], below=self.table.keys)
        elif self.key is not None:
            identified(data.households, data)

    def _check_released(self, releases: Mapping[str, Collection[str]], persons: Collection[str]) -> None:
        """Refuse a table of what the mechanism before does not release: it could not be counted after the draw."""
        homes, people = releases["households"], {*releases.get("persons", ())}
        for table in self.tables:
            there = {*homes, *people} if {*table} & {*persons} else {*homes}
            wanted = [*table, *(() if self.sums is None else (self.sums.column,))]
            if absent := [name for name in wanted if name not in there]:
                what = f"{listed(absent)} of the table {' x '.join(table)} is not among the records that are released"
                raise bad_plan(what, where="after", remedy="let the mechanism release it, or leave it out of the table")

    def doubts(self, data: Microdata, plan: CellKeyPlan) -> Iterator[Doubt]:
        """Yield what speaks against a release; after another mechanism, what speaks against that."""
        if plan.before is not None:
            yield from plan.before.doubts
            return
        yield from self.usual_doubts(data, coded=self.declared_columns)
        specification = plan.specification
        delta = specification.output_premetric.delta
        if specification.budget.realised.is_infinite:
            why = self.no_promise or "Delta is 1."
            what = f"nothing is promised: {why[:1].lower()}{why[1:-1]}"
            yield nothing_promised(what, remedy=self._instead())
        elif delta > _LARGE:
            yield Doubt(
                kind="large-delta",
                what=f"delta is {exact(delta).shown()}, which is not small: so much is added to the bound on every "
                "probability",
                remedy="publish noisy-tables, whose noise is not bounded"
                f"{', or fewer tables' if len(self.tables) > 1 else ''}; zeros = 'fixed' protects less and says so",
            )
        if self.key is None and self.record_key is None:
            yield Doubt(
                kind="keys-of-this-release",
                what="keys are drawn for this release alone: the same cell gets other noise in the next one",
                remedy="name a key file with key, made by `stirred ptable key`",
                refuses=False,
            )

    def _instead(self) -> str:
        """Say what would promise something."""
        if self.sums is not None:
            return "publish counts alone: leave magnitude out"
        if self.keys == "additive" and len(self.tables) > 1:
            return (
                "let keys be drawn: leave keys and record_key out. With additive keys one table can be published in "
                "all; another release by the same keys is not independent of it"
            )
        return "publish fewer tables; zeros = 'fixed' protects less and says so"

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Check the cells of the tables, and the promise against the settings."""
        self.audit_unstated(bundle, found)
        if self.inner is not None:
            found.unchecked.append("the promise of the swap: its records are not published")
            return
        computed = "{} and delta: computed anew from the perturbation table"
        audit_promise(self.specification, bundle, found, computed=computed, also=("theorem", "assumptions"))

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Check that only tables are published, with every cell once and no count below 0."""
        audit_records(bundle, found)
        audit_cells(bundle, found, whole=False, added=KeyedTable.kept_as)
        found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the tables of a small file, records given by the values of ``names``, in order.

        After another mechanism the file is one of that, with a held and a disturbed value for each record.
        """
        if self.inner is None:
            return self._small({name: place for place, name in enumerate(self.declared_columns)}).law([*dataset])
        small = self._small({name: int(name in self.inner.areas) for name in self.declared_columns})
        before: Any = self.inner.law(dataset)
        outcomes: dict[Hashable, Fraction] = {}
        for middle, chance in before.probabilities.items():
            for outcome, mass in small.law(middle).probabilities.items():
                outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + chance * mass
        return Law(outcomes)

    def _small(self, places: Mapping[str, int]) -> SmallTables:
        return SmallTables(
            table=self.table,
            variables=[sorted({places[name] for name in variables}) for variables in self.tables],
            values=None if self.inner is not None else LETTERS,
            keyed_by=self.keyed_by,
            additive=self.keys == "additive",
            threshold=self.threshold,
        )

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all files of up to two records (three, of one variable), by which cells are empty if that is fixed."""
        if self.inner is not None:
            # Four records in four cells have too many outputs to compare all pairs.
            return [[*files] for files in self.inner.audit_universes() if all(len(f) < 4 for f in files)]  # type: ignore[arg-type]
        most = 3 if len(self.declared_columns) == 1 else 2
        records = [*product(LETTERS, repeat=len(self.declared_columns))]
        files = [file for n in range(most + 1) for file in combinations_with_replacement(records, n)]
        if self.zeros != "fixed":
            return [[file for file in files if len(file) < most], [*files]]
        places = {name: place for place, name in enumerate(self.declared_columns)}
        groups: dict[Hashable, list[Hashable]] = {}
        for file in files:
            full = frozenset((t, tuple(record[places[name]] for name in t)) for t in self.tables for record in file)
            groups.setdefault(full, []).append(file)
        return [group for group in groups.values() if len(group) > 1]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for such files."""
        if self.inner is not None:
            return post_process(self.inner.audit_specification(universe)).specification
        return self.specification(name="small", stage="as-given")
