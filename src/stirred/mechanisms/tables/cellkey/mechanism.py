"""Cell-key perturbation of tables of counts and sums, alone or after a mechanism that releases records."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar, Final, Self

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codebook import Codebook
from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.missing import missing_doubts
from stirred.data.problems import bad_plan, listed
from stirred.data.table_labels import with_labels
from stirred.mechanisms.doubts import repeated_ids, settings_doubts
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    PERSONS,
    RECORDS,
    Check,
    ExpectedError,
    Frames,
    Mechanism,
    Progress,
    PublicFile,
    Release,
    Section,
    Settings,
    Table,
    TooLargeError,
    Typical,
    Written,
    failed,
)
from stirred.mechanisms.tables.cellkey.keys import KeyFile, Keys, whole_keys
from stirred.mechanisms.tables.cellkey.law import LETTERS, SmallTables, mixed_law
from stirred.mechanisms.tables.cellkey.magnitudes import Magnitude
from stirred.mechanisms.tables.cellkey.perturbed import Perturbation, identified, perturbed_table, summed
from stirred.mechanisms.tables.cellkey.plan import CellKeyPlan, promised, sections_of, typical_of
from stirred.mechanisms.tables.cellkey.ptable import PTable
from stirred.mechanisms.tables.cellkey.settings import CellKeySettings, table_of
from stirred.mechanisms.tables.cellkey.tradeoff import KeyedBy, TradeOff
from stirred.mechanisms.tables.cells import (
    Values,
    declared_cells,
    declared_columns,
    incomplete,
    values_of_tables,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.accepted import with_accepted_names
from stirred.spec.budget import Budget
from stirred.spec.convert import post_process
from stirred.spec.domain import Domain
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import INFINITE, Exact
from stirred.spec.given_numbers import Number, loss
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Margin
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, approximate
from stirred.spec.problems import Problem
from stirred.spec.pull_back import pull_back
from stirred.spec.reliance import ONE_RUN
from stirred.spec.specification import Flavor, Specification

THEOREM: Final = "delta of cell keys, exactly from the perturbation table (docs/theory/cell-keys.md)"
KEYS: Final = "keys are secret, and uniform and independent for different records; the advantage of the pseudo-random "\
    "function is added to delta"  # fmt: skip
ALONE: Final = "the record keys of the file are used for this table alone, in no other release and no other year"
DECLARED: Final = "the values that the variables of the tables can take were declared beforehand, not read off the file"
_LARGE: Final = Fraction(1, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey(Mechanism):
    """Tables whose counts are perturbed by what their records' keys look up; the same set has the same noise.

    ``tab_vars`` by ``geog`` are one more table, under the names of the ONS. ``values`` declares which values the
    variables of the tables can take. With ``after``, a mechanism that releases
    records, tables are counted from these, under keys drawn for this release.

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
    counts_tables: ClassVar[bool] = False
    loss_setting: ClassVar[str] = "epsilon"

    ptable: PTable | Mapping[str, Any]
    tables: Sequence[Sequence[str]] = ()
    geog: Sequence[str] = ()
    tab_vars: Sequence[str] = ()
    epsilon: Number = 1
    threshold: int = 0
    keyed_by: KeyedBy = "records"
    zeros: str = "protected"
    key: str | bytes | None = None
    record_key: str | None = None
    keys: str = "prf"
    magnitude: Magnitude | Mapping[str, Any] | None = None
    magnitude_ptable: PTable | Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    values: Values = field(default_factory=dict)
    unit: str = "household"
    settings_from: str | None = None
    table: PTable = field(init=False, repr=False, compare=False)
    inner: Mechanism | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        put = object.__setattr__
        named = [(*_names(self.tab_vars), *_names(self.geog))] if self.tab_vars else []
        put(self, "tables", (*(_names(t) for t in self.tables), *named))
        put(self, "tab_vars", ())
        put(self, "epsilon", loss(self.epsilon, where="epsilon"))
        put(self, "table", table_of(self.ptable))
        if isinstance(self.magnitude, Mapping):
            put(self, "magnitude", Magnitude.of(self.magnitude))
        if self.after is not None:
            from stirred.mechanisms import registry

            own = {key: value for key, value in self.after.items() if key != "name"}
            name = registry.full_name(str(self.after.get("name", registry.DEFAULT)), where="after")
            put(self, "inner", registry.build(name, {"unit": self.unit, **own}))
        self._check()

    def _check(self) -> None:
        for where, wrong, what, remedy in (
            ("tables", not self.tables or any(len({*t}) < len(t) or not t for t in self.tables),
             "a table needs different variables", "name at least one table, and each variable once"),
            ("ptable", self.table.step != 1,
             "the table has fractions, and counts are whole", "use it for sums, as magnitude_ptable"),
            ("record_key", (self.record_key is not None) != (self.keys == "additive"),
             "a column of record keys goes with keys = 'additive', and with it alone", "give both or none"),
            ("key", self.record_key is not None and self.key is not None,
             "records have their keys in a column and in a file", "leave one out"),
            ("after", self.inner is not None
             and (not self.inner.counts_tables or self.key is not None or self.record_key is not None),
             "before cell keys comes a mechanism that releases records, whose keys are drawn for this release",
             "name such a mechanism, and leave key, keys and record_key out"),
            ("keyed_by", self.keyed_by == "definition" and self.key is not None,
             "with a key that is kept, a cell would have the same noise next year, whoever is in it then, and the "
             "difference of the two would be exact", "leave key out, or write keyed_by = 'records'"),
            ("keyed_by", self.keyed_by == "definition" and self.keys == "additive",
             "additive keys are sums of records' keys", "write keyed_by = 'records'"),
        ):  # fmt: skip
            if wrong:
                raise bad_plan(what, where=where, remedy=remedy)

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism; without any table there is nothing to release."""
        if not others.get("tables"):
            remedy = "add tables, such as [[tables]] variables = ['county', 'tenure']"
            raise bad_plan("is needed", where="tables", remedy=remedy)
        return super(CellKey, cls).of_settings(settings, **others)

    def with_codebook(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        """Return the mechanism with the values that the variables of its tables can take."""
        own = replace(self, values=values_of_tables(codebook, self.names))
        if self.inner is not None:
            object.__setattr__(own, "inner", self.inner.with_codebook(codebook, missing_as=missing_as))
        return own

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variables of the tables: their values are those of the codebook."""
        return [*self.values]

    @property
    def coded_columns(self) -> Sequence[str]:
        """Return the variables of the tables."""
        return self.names if self.inner is None else self.inner.coded_columns

    @property
    def names(self) -> list[str]:
        """Return the variables of all tables."""
        return list(dict.fromkeys(name for variables in self.tables for name in variables))

    @property
    def inner_title(self) -> str:
        """Return what is done before, by its title."""
        return "" if self.inner is None else self.inner.title

    @property
    def sums(self) -> Magnitude | None:
        """Return how sums are published; None where they are not."""
        assert not isinstance(self.magnitude, Mapping)
        return self.magnitude

    @property
    def in_words(self) -> str:
        """Return in one sentence what is done."""
        what = "the same set of records" if self.keyed_by == "records" else "the same cell"
        before = "" if self.inner is None else f" of the records that {self.inner.title} releases"
        below = f", counts below {self.threshold} left empty" if self.threshold else ""
        return (
            f"Cell keys: every count above 0 of {listed([' x '.join(t) for t in self.tables])}{before} is perturbed by "
            f"what its key looks up, alike for {what}{below}."
        )

    @property
    def no_promise(self) -> str:
        """Say why nothing is promised; empty where something is."""
        if self.magnitude is not None:
            return "One contribution to a sum may be of any size, and so may the change of a published sum."
        if self.keys == "additive" and len(self.tables) > 1:
            return "Sums of short keys in several tables are not independent, and no bound is proven for them."
        return ""

    @property
    def trade(self) -> TradeOff | None:
        """Return the trade-off of epsilon and delta; None where there is none."""
        if self.no_promise:
            return None
        return TradeOff(
            table=self.table,
            tables=len(self.tables),
            keyed_by=self.keyed_by,
            alone=self.key is None,
            zeros_fixed=self.zeros == "fixed",
        )

    def specification(self, *, name: str, stage: str, post_imputation: bool | None = None) -> Specification:
        """Return the promise between files that differ by one record added or removed."""
        trade, epsilon = self.trade, loss(self.epsilon, where="epsilon")
        delta = None if trade is None else trade.rounded(epsilon)
        finite = delta is not None and delta < 1
        fixed = [
            Inequality(
                name=f"empty cells of {' x '.join(t)}",
                condition=f"any {self.unit} in each cell of {' x '.join(t)}",
                on=Margin(of=self.unit, variables=tuple(t)),
            )
            for t in self.tables
        ]
        return Specification(
            flavor=Flavor(
                domain=Domain(
                    name=name,
                    dataset=f"the released columns of the confidential file '{name}'",
                    stage=stage,
                    record_types=(self.unit,),
                    columns=tuple(self.names),
                ),
                multiverse=Multiverse(invariants=tuple(fixed) if self.zeros == "fixed" else ()),
                input_premetric=InputPremetric(
                    name="d_SymDiff", unit=self.unit, within=1, post_imputation=post_imputation
                ),
                output_premetric=approximate(delta) if finite and delta else PURE,
            ),
            budget=Budget.constant(epsilon if finite else INFINITE),
            assumptions=(KEYS, *((ALONE,) if self.keys == "additive" else ()), DECLARED, ONE_RUN.words),
            relies_on=(ONE_RUN,),
            theorem=(THEOREM,),
            settings_from=self.settings_from,
        )

    # ---- the promise and the act

    def plan(self, data: Any, *, doubts: bool = True) -> CellKeyPlan:
        """Return the plan; nothing random happens."""
        microdata = as_microdata(data)
        self.check(microdata)
        persons = self._persons(microdata)
        columns = {name: self._column(microdata, name) for name in self.names}
        declared = declared_columns(self.names, self.values, columns)
        cells = {" x ".join(t): declared_cells(t, declared) for t in self.tables}
        inner = None if self.inner is None else self.inner.plan(microdata, doubts=doubts)
        if inner is not None:
            self._check_released(inner.releases, persons)
        if inner is None:
            specification = self.specification(
                name=microdata.name, stage=microdata.stage, post_imputation=microdata.post_imputation
            )
        else:
            specification = post_process(inner.specification, description=self.in_words).specification
        return CellKeyPlan(
            specification=specification,
            doubts=tuple(self._doubts(microdata, specification, inner)) if doubts else (),
            dropped=tuple(name for name in microdata.households.columns if name not in columns),
            mechanism=self,
            cells=cells,
            persons=persons,
            inner=inner,
        )

    def check(self, data: Any) -> None:
        """Raise all problems of the columns; which values they can take is not known yet."""
        microdata = as_microdata(data)
        self._persons(microdata)
        for name in self.names:
            self._column(microdata, name)
        if self.sums is not None:
            summed(self._column(microdata, self.sums.column, where="magnitude"))
        if self.inner is not None:
            self.inner.check(microdata)
        elif self.record_key is not None:
            whole_keys(self._column(microdata, self.record_key, where="record_key"), below=self.table.keys)
        elif self.key is not None:
            identified(microdata.households, microdata)

    def _persons(self, data: Microdata) -> tuple[str, ...]:
        """Return the variables of persons; a unit may then have many records, and only a swap covers that."""
        own = tuple(name for name in self.names if name in data.person_variables)
        if own and self.inner is None:
            raise bad_plan(
                f"{listed(own)} is a variable of persons, and a {self.unit} may change a count for each of them",
                where="tables",
                remedy="give the file of persons as [data] file with record = 'person'; or swap before, with after",
            )
        return own

    def _check_released(self, releases: Mapping[str, Collection[str]], persons: Collection[str]) -> None:
        """Refuse a table of what the mechanism before does not release: it could not be counted after the draw."""
        homes, people = releases["households"], {*releases.get("persons", ())}
        for table in self.tables:
            there = {*homes, *people} if {*table} & {*persons} else {*homes}
            wanted = [*table, *(() if self.sums is None else (self.sums.column,))]
            if absent := [name for name in wanted if name not in there]:
                what = f"{listed(absent)} of the table {' x '.join(table)} is not among the records that are released"
                raise bad_plan(what, where="after", remedy="let the mechanism release it, or leave it out of the table")

    def _column(self, data: Microdata, name: str, *, where: str = "tables") -> pl.Series:
        if name in (data.households.columns if where == "record_key" else data.variables):
            return data.households[name]
        if data.persons is not None and name in data.person_variables:
            return data.persons[name]
        there = [*data.variables, *data.person_variables]
        raise bad_plan(f"there is no column '{name}'", where=where, remedy=f"there are {listed(there)}")

    def _doubts(self, data: Microdata, specification: Specification, inner: Any) -> Iterator[Doubt]:
        if inner is not None:
            yield from inner.doubts
            return
        yield from settings_doubts(self.settings_from)
        yield from missing_doubts(data.households, self.names, codes=data.not_missing)
        yield from repeated_ids(data, unit=self.unit)
        delta = specification.output_premetric.delta
        if specification.budget.realised.is_infinite:
            why = self.no_promise or "Delta is 1."
            what = f"nothing is promised: {why[:1].lower()}{why[1:-1]}"
            yield nothing_promised(what, remedy="publish counts, and one table at a time")
        elif delta > _LARGE:
            yield Doubt(
                kind="large-delta",
                what=f"the promise fails with probability {float(delta):.4g}, which is not small",
                remedy="choose noise that is not bounded, or fewer tables; zeros = 'fixed' protects less and says so",
            )
        if self.key is None and self.record_key is None:
            yield Doubt(
                kind="keys-of-this-release",
                what="keys are drawn for this release alone: the same cell gets other noise in the next one",
                remedy="name a key file with key, made by `stirred ptable key`",
                refuses=False,
            )

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Count every table, look the noise of every cell up, and return the perturbed tables alone."""
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        perturbation = self._perturbation(microdata, entropy)
        if self.inner is not None:
            before = self.inner.release(
                microdata, entropy.child("before"), accept=accept, plan=plan.inner, progress=progress
            )
            files = {"households": before.public.frame(RECORDS)}
            if plan.persons:
                people = before.public.frame(PERSONS)
                link = people.columns[0]
                homes = files["households"]
                shared = [name for name in homes.columns if name == link or name not in people.columns]
                files["persons"] = people.join(homes.select(shared), on=link, how="left")
        else:
            files = {"households": microdata.households}
        keyed = {kind: perturbation.keyed(frame, kind, microdata) for kind, frame in files.items()}
        found = {}
        for title, cells in plan.cells.items():
            kind = "persons" if {*cells.columns} & {*plan.persons} else "households"
            found[title] = perturbed_table(cells, keyed[kind], perturbation)
        parts: dict[str, Any] = {title: lambda f=each: [f.released] for title, each in found.items()}
        for title, each in found.items():
            if each.sums is not None:
                parts[_sums_of(title)] = lambda f=each: [f.sums]
        return Release(
            public=Frames(parts, convert=like(data)),
            specification=promised,
            internal={"cells": {title: each.cells for title, each in found.items()}, "parts": parts},
        )

    def _perturbation(self, data: Microdata, entropy: Entropy) -> Perturbation:
        secret = self.key.secret if isinstance(self.key, KeyFile) else self.key
        if isinstance(secret, str):
            remedy = "in a plan it is read; in Python give 32 bytes"
            raise bad_plan("the key is a file that was not read", where="key", remedy=remedy)
        return Perturbation(
            table=self.table,
            keys=Keys.drawn(entropy) if secret is None else Keys(secret),
            entropy=entropy if secret is None else None,
            keyed_by=self.keyed_by,
            record_key=self.record_key,
            threshold=self.threshold,
            magnitude=self.sums,
            magnitude_table=self.table if self.magnitude_ptable is None else table_of(self.magnitude_ptable),
        )

    def premises(self, plan: Any) -> Mapping[str, str]:
        """Return what tells the key from others: a resumed run must use the same."""
        return {"key": Keys(self.key.secret).fingerprint} if isinstance(self.key, KeyFile) else {}

    # ---- files and pages

    def files(self, data: Microdata, plan: Any) -> list[PublicFile]:
        """Return the tables of sums; counts are the tables of the plan."""
        if self.sums is None:
            return []
        words = f"sums of {self.sums.column}, perturbed; empty where the count is left empty"
        return [
            PublicFile(name=_sums_of(t), kind="side", columns=(*c.columns, "sum"), words=words)
            for t, c in plan.cells.items()
        ]

    def allowed(self, released: Mapping[str, Collection[str]], fixed: Collection[str]) -> dict[str, set[str]]:
        """Return the columns that each file may have: none of records."""
        sums = {_sums_of(" x ".join(t)): {*t, "sum"} for t in self.tables if self.sums is not None}
        return {RECORDS: set(), PERSONS: set(), **sums}

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Keep true counts, keys and noise inside, under the names people know."""
        (written.internal / "cells").mkdir(mode=0o700)
        for number, (title, frame) in enumerate(release.internal["cells"].items(), start=1):
            write_frame(
                frame.select(pl.lit(title).alias("table"), pl.all()),
                written.internal / "cells" / f"{number}.parquet",
                note=dict(note),
            )

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Compare the written tables with the counts and the noise that was looked up, cell by cell."""
        if records := sorted([*written.public.glob("data.*"), *written.public.glob("persons.*")]):
            raise failed(f"{records[0].name} was written, and only tables may be published")
        checks = []
        for table in written.tables:
            cells = release.internal["cells"][table.title]
            count = pl.col("pre_sd_count") + pl.col("pvalue")
            kept = pl.when(count >= self.threshold).then(count)
            sums = with_labels(cells.select(*table.variables, count=kept), written.labels)
            published = read_frame(written.public / "tables" / f"{table.name}.csv")
            if not as_read(sums, "csv", written.public).equals(published, null_equal=True):
                raise failed(f"the table {table.title}, as written, is not the counts with what was looked up")
            if cells.filter((pl.col("pre_sd_count") == 0) & (pl.col("pvalue") != 0)).height:
                raise failed(f"an empty cell of {table.title} was perturbed")
            checks.append(
                Check(what=f"table {table.title}", cells=cells.height, result="the counts with what was looked up")
            )
            if self.sums is not None:
                name, wrong = _sums_of(table.title), f"the sums of {table.title}, as written, are not those drawn"
                list(written.parts(name, release.internal["parts"][name](), kind="side", wrong=wrong))
        return checks

    def table_in_words(self, table: Table, data: Microdata, plan: Any) -> str:
        """Say what was done to a table."""
        return "perturbed by cell keys" if self.inner is None else f"perturbed by cell keys, after {self.inner.title}"

    def conclusions(self, plan: Any) -> list[str]:
        """Return the three sentences, and how to read the tables."""
        return [*promised(plan), *self.reading_tables(plan)]

    def file_notes(self, plan: Any) -> list[str]:
        """Return why there is no file of records."""
        return ["There is no file of records: the promise is about the tables alone."]

    def typical_errors(self, plan: Any, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
        """Return the noise of large counts."""
        return typical_of(plan)

    def sections(self, plan: Any) -> list[Section]:
        """Return the promise, the trade-off and the perturbation table."""
        return sections_of(plan)

    def reading_tables(self, plan: Any) -> list[str]:
        """Return what a reader of the tables must know."""
        below = [f"Counts below {self.threshold} are left empty, by the perturbed count."] if self.threshold else []
        return [
            "Counts are right on average, and tables do not add up: every cell has noise of its own, totals too.",
            *below,
        ]

    # ---- accuracy

    @property
    def no_closed_form(self) -> str:
        """Say why errors cannot be computed beforehand; empty where they can."""
        return "" if self.inner is None else "the errors of a swap and cell keys together have no closed form here"

    def expected_error(
        self,
        records: pl.DataFrame | pl.LazyFrame,
        *,
        variables: Sequence[str],
        source: str,
        persons: pl.DataFrame | pl.LazyFrame | None = None,
        key: str | None = None,
    ) -> ExpectedError:
        """Return the error of a table: noise has mean 0, and the variance of each count's row."""
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
        """Return epsilon with its delta."""
        delta = None if self.trade is None else self.trade.delta(loss(self.epsilon, where="epsilon"))
        return f"epsilon {epsilon.shown()}" + ("" if delta is None or self.inner else f", delta {float(delta):.3g}")

    # ---- audits

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the tables of a small file, records given by the values of ``names``, in order.

        After another mechanism the file is one of that, with a held and a disturbed value for each record.
        """
        if self.inner is None:
            return self._small({name: place for place, name in enumerate(self.names)}).law([*dataset])
        small = self._small({name: int(name in self.inner.areas) for name in self.names})
        before = self.inner.law(dataset)
        assert isinstance(before, Law)
        return mixed_law(before, small.law)

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
        most = 3 if len(self.names) == 1 else 2
        records = [*product(LETTERS, repeat=len(self.names))]
        files = [file for n in range(most + 1) for file in combinations_with_replacement(records, n)]
        if self.zeros != "fixed":
            return [[file for file in files if len(file) < most], [*files]]
        places = {name: place for place, name in enumerate(self.names)}
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

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Check the cells of the tables, and the promise against the settings."""
        self.audit_unstated(bundle, found)
        if self.inner is not None:
            found.unchecked.append("the promise of the swap: its records are not published")
            return
        own = self.specification(name=bundle.specification.domain.name, stage="as-given")
        own = with_accepted_names(pull_back(own, prepared=bundle.prepared).specification, bundle.accepted)
        said, where = bundle.specification, "public/specification.json"
        for block in ("output_premetric", "budget", "theorem", "assumptions"):
            if getattr(said, block) != getattr(own, block):
                found.bad(f"its {block} is not what the perturbation table gives", where=where)
                return
        found.checks.append(f"{said.budget_text} and delta: computed anew from the perturbation table")

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Check that only tables are published, with every cell once and no count below 0."""
        for path in sorted([*bundle.public.glob("data.*"), *bundle.public.glob("persons.*")]):
            found.bad("records are published, and the promise is about tables", where=f"public/{path.name}")
        for name, place, table, variables in bundle.tables():
            counts = table["count"].cast(pl.Int64, strict=False) if "count" in table.columns else None
            if counts is None or not variables or (counts < 0).any():
                found.bad("it has no variables, no counts, or counts below 0", where=place)
            elif incomplete(table.select(variables)):
                found.bad("cells are missing or doubled: which of them are there may tell who exists", where=place)
            else:
                found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
        found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _sums_of(title: str) -> str:
    """Return the name of the file with the sums of a table."""
    return "sums-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower().replace(" x ", "-x-"))
