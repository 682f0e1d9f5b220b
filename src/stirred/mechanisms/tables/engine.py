"""The life of a release of tables: plan, doubts, opening, draw, files, verification and audit, once for all of them.

A table mechanism says what it promises, which cells it has, and what it asks of the file (``query``): the answers
have noise, and what it publishes follows from them. Everything else is here: noisy tables, cell keys, SafeTab, PHSafe
and survey estimates publish numbers of declared cells and no record. Cells are every combination of declared values,
whether or not a record is in them.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, as_text, probe_parquet, read_released
from stirred.data.child import parquet_below
from stirred.data.codebook import Codebook
from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.microdata import Microdata, like
from stirred.data.missing import missing_doubts
from stirred.data.problems import bad_plan
from stirred.data.record_doubts import repeated_ids
from stirred.data.table_labels import with_labels
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import (
    PERSONS,
    RECORDS,
    Check,
    ExpectedError,
    Frames,
    Mechanism,
    Opening,
    Plan,
    Progress,
    PublicFile,
    Release,
    ReleasedColumns,
    Settings,
    Workplace,
    Written,
    confidence_of,
    failed,
)
from stirred.mechanisms.tables.cells import (
    Values,
    as_tables,
    declared_values,
    values_of_tables,
)
from stirred.mechanisms.tables.query import CHUNK, Columns, DrawnAnswers, KeptAnswers, TableAnswers, are_declared
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.convert import pull_back
from stirred.spec.document import mechanism_in
from stirred.spec.doubts import Doubt, with_accepted_names
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import StirredError
from stirred.spec.specification import ONE_RUN, Specification

AnyFrame = pl.DataFrame | pl.LazyFrame
NO_TABLES: Final = 'add a line [[tables]], and below it variables = ["county", "tenure"]'
NOISE: Final = "noise"  # the folder below internal with true numbers and what was added to them
STAYS_INSIDE: Final = "both are confidential (internal/noise has them)"
LAPLACE: Final = "discrete Laplace noise (Ghosh, Roughgarden and Sundararajan 2009)"
COMPOSED: Final = "composition (section 2.5 of the dissertation)"
UNPUBLISHED: Final = (  # what every promise of noise assumes
    "neither the noise, nor the randomness, nor accuracy measured against the confidential file is published",
    ONE_RUN.words,
    "the operating system's generator and AES-256 in counter mode are taken as perfectly random",
)
UNSTATED: Final = "the budget, computed anew: the public files do not state all settings"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TablePlan(Plan):
    """What would be published; nothing random has happened."""

    unreleased: ClassVar[str] = "not used"

    cells: Mapping[str, pl.DataFrame] = field(default_factory=dict, repr=False)  # the declared ones, by table
    before: Any = None  # the plan of the mechanism before, where there is one (``after``)

    @property
    def mechanism(self) -> Any:
        return self.origin.mechanism


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TableMechanism(Mechanism):
    """A mechanism that publishes tables of declared cells, and no record.

    Settings are given by keyword, and are its attributes: ``NoisyTables(rho="1/2", tables=[["county"]])``. ``tables``
    are those of a plan, and ``values`` what their variables can take, by the settings or a codebook (``taken``).
    """

    counts_tables: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, Columns]] = {}  # of the files that it publishes whatever the tables of the plan
    file_words: ClassVar[Mapping[str, str]] = {}  # what is in these files
    otherwise: ClassVar[str] = "or write values = {...}"  # how values are declared without a codebook

    settings: Any
    tables: Any  # tuples of names; None where no plan was read
    values: Values
    taken: Sequence[str]  # variables whose values are those of a codebook

    def __init__(
        self,
        settings: Any = None,
        *,
        tables: str | Sequence[str | Sequence[str]] | None = None,
        values: Values | None = None,
        taken: Sequence[str] = (),
        **given: Any,
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            what, remedy = f"{settings!r:.60} is not a model of settings", "give settings by keyword: rho=1"
            raise bad_plan(what, where="settings", remedy=remedy)
        Mechanism.__init__(self, settings, **given)
        named = None if tables is None else as_tables(tables)
        declared = getattr(self.settings, "values", {}) if values is None else values
        if not isinstance(declared, Mapping) or any(not isinstance(own, Iterable) for own in declared.values()):
            remedy = 'list them by variable: values={"county": ["North", "South"]}'
            raise bad_plan(f"{declared!r:.60} does not list values of variables", where="values", remedy=remedy)
        for name, value in (("tables", named), ("values", declared), ("taken", taken)):
            object.__setattr__(self, name, value)
        self.check_settings()

    def check_settings(self) -> None:
        """Raise what is wrong with settings that do not go together: each by itself was checked."""
        if not self.tables:
            raise bad_plan("is needed", where="tables", remedy=NO_TABLES)

    def with_settings(self, **changed: Any) -> Self:
        own = {key: getattr(self, key) for key in ("settings", "tables", "values", "taken")}
        return type(self)(**{**own, **changed})

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("settings")
        if settings is not None and name in type(settings).model_fields:
            return getattr(settings, name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, TableMechanism) and type(self) is type(other)
        return same and all(getattr(self, key) == getattr(other, key) for key in ("settings", "tables", "values"))

    def __hash__(self) -> int:
        return hash((type(self), self.tables))

    def __repr__(self) -> str:
        given = {**self.settings.dumped(exclude_defaults=True), "tables": self.tables, "values": self.values}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in given.items() if value)})"

    @property
    def sure(self) -> Fraction:
        """Return the confidence of the intervals."""
        return confidence_of(self.confidence, where="confidence")

    @cached_property
    def inner(self) -> Mechanism | None:
        """Return the mechanism before, which a setting ``after`` names."""
        after = getattr(self.settings, "after", None)
        return None if after is None else mechanism_before(after, unit=self.unit, published=self.table_sources)

    @property
    def declared_columns(self) -> Sequence[str]:
        """Return the columns whose values must be declared: those that make cells."""
        return [*dict.fromkeys(name for variables in self.tables or () for name in variables)]

    @property
    def table_sources(self) -> Sequence[str]:
        """Return the columns that tables are made of."""
        return self.declared_columns

    @property
    def coded_columns(self) -> Sequence[str]:
        before = () if self.inner is None else self.inner.coded_columns
        return [*dict.fromkeys((*self.declared_columns, *before))]

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:
        import stirred.randomness.noise_kernel  # noqa: F401

        if self.inner is not None:
            self.inner.ready(data, plan.before)

    def with_codebook(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        found = values_of_tables(codebook, {*self.declared_columns}, missing_as=missing_as)
        taken = [name for name in found if name not in self.values]
        own = self.with_settings(values={**found, **self.values}, taken=taken)
        if self.inner is not None:
            object.__setattr__(own, "inner", self.inner.with_codebook(codebook, missing_as=missing_as))
        return own

    def learned(self, codebook: Codebook) -> Sequence[str]:
        return self.taken

    def declared(self, data: Microdata, names: Sequence[str]) -> dict[str, pl.Series]:
        """Return the declared values of these variables, in the type of their columns; all problems at once."""
        return declared_values(data, names, self.values, otherwise=self.otherwise)

    # ---- the plan

    specification: Any  # returns the promise, by name, columns, stage and imputation of a file

    @abstractmethod
    def draft(self, data: Microdata, *, doubts: bool) -> Any:
        """Return the plan for a file whose columns were checked, without its own doubts.

        ``doubts`` says whether a mechanism that comes before is to be searched for its own.
        """

    def doubts(self, data: Microdata, plan: Any) -> Iterable[Doubt]:
        """Return what speaks against a release with a plan."""
        return self.usual_doubts(data)

    def usual_doubts(self, data: Microdata, *, coded: Sequence[str] = ()) -> Iterator[Doubt]:
        """Yield what may speak against every release of tables; ``coded`` columns may have missing values as codes."""
        yield from missing_doubts(data.households, coded, codes=data.not_missing)
        yield from repeated_ids(data, unit=self.unit)

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        self.check(data)
        return super().plan(data, doubts=doubts)

    # ---- the release

    def noise_entropy(self, entropy: Entropy) -> Entropy:
        """Return the randomness of the noise; what comes before it has its own."""
        return entropy.child("noise")

    def records_before(self, data: Microdata, plan: Any, entropy: Entropy) -> Microdata:
        """Return the records of tables: those of the input, or what a mechanism before makes of it, which stay inside.

        What speaks against that mechanism was refused with this one's own doubts.
        """
        if self.inner is None:
            return data
        opening = Opening(data, plan.before, entropy.child("before"), plan.before.specification, like(data))
        released = self.inner.make_release(opening, None).public
        people = released.frame(PERSONS) if PERSONS in released else None
        return Microdata(
            households=released.frame(RECORDS),
            persons=people,
            hid=None if people is None else people.columns[0],
            checked=False,
        )

    def counted_file(self, data: Microdata, plan: Any, entropy: Entropy) -> Any:
        """Return what tables are counted from: the records, or these with keys."""
        return self.records_before(data, plan, entropy)

    @abstractmethod
    def answered(self, data: Any, plan: Any, ask: TableAnswers, progress: Progress) -> Mapping[str, pl.DataFrame]:
        """Ask for the numbers of every table, and return what is published of them, by title.

        What is asked later may depend on earlier answers, and what is published on answers and public facts alone.
        """

    def published_exactly(self, data: Microdata, plan: Any) -> Mapping[str, pl.DataFrame]:
        """Return the tables that are published without noise, by file."""
        return {}

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> Sequence[PublicFile]:
        return [
            PublicFile(name=name, kind="measurements", columns=(*columns,), words=self.file_words[name])
            for name, columns in self.columns.items()
        ]

    def file_of(self, plan: Any, title: str) -> str:
        """Return the name under which a release has a table: its title, or the name of its file."""
        return title

    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        """Count every table, draw its noise once, and return what is published and what stays inside."""
        data, plan, entropy, promised, convert, _ = opening
        progress = progress or (lambda stage, done, total: None)
        counted = self.counted_file(data, plan, entropy)
        answers = DrawnAnswers(self.noise_entropy(entropy))
        tables = self.answered(counted, plan, answers, progress)
        progress("noise", 1, 1)
        public = {self.file_of(plan, title): table for title, table in tables.items()}
        public |= self.published_exactly(data, plan)
        return Release(
            public=Frames({name: partial(list, [table]) for name, table in public.items()}, convert=convert),
            specification=promised,
            internal={"plan": plan, "drawn": answers.kept(plan.cells), "counted": counted},
        )

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        folder = written.internal / NOISE
        folder.mkdir(mode=0o700)
        named = [f.select(pl.lit(title).alias("table"), pl.all()) for title, f in release.internal["drawn"].items()]
        chunks = [frame for frame in named if CHUNK in frame.columns]
        files = [frame for frame in named if CHUNK not in frame.columns] + ([pl.concat(chunks)] if chunks else [])
        for number, frame in enumerate(files, start=1):
            write_frame(frame, folder / f"{number}.parquet", note=dict(note))

    def premises(self, plan: Any) -> Mapping[str, str]:
        """Return a checksum of the cells, by which noise is addressed."""
        text = "\n".join(f"{title}\n{cells.write_csv()}" for title, cells in plan.cells.items())
        return {"the declared cells": hashlib.sha256(text.encode()).hexdigest()} if plan.cells else {}

    # ---- the files as written

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Read the written tables back; raise if one is not what was counted with what was drawn.

        Tables are counted once more, and get the noise that was kept. Whether it follows its law no file can show.
        """
        check_no_records(written)
        frames = map(read_frame, (written.internal / NOISE).iterdir())
        by_title = (each.partition_by("table", as_dict=True).items() for each in frames)
        kept = KeptAnswers({str(title): own for (title,), own in chain.from_iterable(by_title)})
        counted, names = release.internal["counted"], {table.title: f"tables/{table.name}" for table in written.tables}
        checks, tables = [], self.answered(counted, plan, kept, lambda stage, done, total: None)
        if wrong := [*self.inconsistent(tables)]:
            raise failed(wrong[0])
        for title, table in tables.items():
            file = names.get(title, self.file_of(plan, title))
            text = written.public / f"{file}.csv"
            path = text if text.exists() else written.public / f"{file}.parquet"
            found = read_frame(path, empty=True)
            labelled = with_labels(table, written.labels, beside=self.table_columns) if "/" in file else table
            if not as_read(labelled, path.suffix[1:], written.public).equals(found, null_equal=True):
                raise failed(f"the table {title}, as written, is not the true numbers with the noise drawn")
            if words := self.verified(title):
                checks.append(Check(cells=found.height, **words))
        return checks

    def inconsistent(self, tables: Mapping[str, pl.DataFrame]) -> Iterable[str]:
        """Return what cannot be in published tables of which some rows are sums of others."""
        return ()

    def verified(self, title: str) -> dict[str, str]:
        """Return what is said of a table that was compared, and its result."""
        return {
            "what": f"{title}: every declared cell, once",
            "result": "the true numbers with the noise drawn; the rest follows from them",
        }

    # ---- the audit of a bundle

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        audit_promise(self.specification, bundle, found)
        tables = self._audit_files(bundle, found)
        for what in self.inconsistent(tables) if len(tables) == len(self.columns) else ():
            found.bad(what, where="public")

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        found.unchecked.append(UNSTATED)
        cls._audit_files(bundle, found)

    @classmethod
    def _audit_files(cls, bundle: BundleFiles, found: Findings) -> dict[str, pl.DataFrame]:
        """Return the files that have their declared columns; add a problem for others, and for records."""
        audit_records(bundle, found)
        audit_cells(bundle, found, whole=True)
        files = {}
        for name, columns in cls.columns.items():
            table = bundle.side(f"{name}.parquet")
            if table is None:
                continue
            if are_declared(table.columns, columns) and table.schema.get("count", pl.Int64) == pl.Int64:
                files[name] = table
                found.checks.append(f"{name}: {table.height:,} rows, columns as declared")
            else:
                found.bad("its columns are not those of this mechanism", where=f"public/{name}.parquet")
        found.unchecked.append("whether counts are those of the file and noise has its law: both are confidential")
        return files

    # ---- accuracy

    @property
    def no_closed_form(self) -> str:
        if self.inner is not None:
            return f"the errors of a swap and {self.title} together have no closed form here"
        return "" if hasattr(self, "expected_cells") else super().no_closed_form

    def expected_error(
        self, records: AnyFrame, *, variables: Sequence[str], source: str, persons: Any = None, key: str | None = None
    ) -> ExpectedError:
        """Return the error by ``expected_cells``: the true count of each cell, the noisy one's mean and variance."""
        if self.no_closed_form:
            raise bad_plan(self.no_closed_form, where="mechanism", remedy="leave the expected error out")
        people = None if persons is None else persons.lazy().collect()
        data = Microdata(households=records.lazy().collect(), persons=people, hid=key)
        return ExpectedError.of(self.expected_cells(data, variables, source), variables=variables, source=source)

    # ---- pages

    @abstractmethod
    def reading_tables(self, plan: Any) -> Sequence[str]:
        """Return what a reader of the tables must know, from public facts alone."""

    def conclusions(self, plan: Any) -> Sequence[str]:
        return self.reading_tables(plan)


# ---- the audit of a bundle ----------------------------------------------------------------------------------


def audit_records(bundle: BundleFiles, found: Findings) -> None:
    """Add a problem for each file of records in a bundle."""
    for path in _records(bundle.public):
        found.bad("records are published, and the promise is about tables alone", where=f"public/{path.name}")


def audit_promise(
    promise: Callable[..., Specification],
    bundle: BundleFiles,
    found: Findings,
    *,
    computed: str = "budget {}: computed anew from the settings",
    held: Callable[[Multiverse], object] = lambda multiverse: (multiverse.invariants, multiverse.nearest),
    also: Sequence[str] = (),
) -> None:
    """Compare a promise with that of the settings (``promise``); name, stage and columns of the file are believed.

    ``held`` is what is compared of the figures that are fixed, and ``also`` are further blocks.
    """
    said, before = bundle.specification, len(found.problems)
    again = promise(
        name=said.domain.name,
        stage=said.domain.stage,
        columns=said.domain.columns,
        post_imputation=said.input_premetric.post_imputation,
    )
    again = with_accepted_names(pull_back(again, prepared=bundle.prepared).specification, bundle.accepted)
    blocks = [
        ("budget", said.budget, again.budget),
        ("multiverse", held(said.multiverse), held(again.multiverse)),
        *((name, getattr(said, name), getattr(again, name)) for name in ("input_premetric", "output_premetric", *also)),
        ("domain stage", said.domain.stage, again.domain.stage),
    ]
    for block, one, other in blocks:
        if one != other:
            shown = [f"{b.shown} ({b.policy})" if isinstance(b, Budget) else str(b) for b in (one, other)]
            found.bad(
                f"it says {shown[0]}, and the settings give {shown[1]}", where=f"public/specification.json {block}"
            )
    if len(found.problems) == before:
        found.checks.append(computed.format(said.budget_text))


def table_fault(
    table: pl.DataFrame, by: Sequence[str], *, number: str = "count", whole: bool = True, cells: int | None = None
) -> str:
    """Say what is wrong with a published table: every combination of its values occurs exactly once, with a number."""
    if number not in table.columns:
        return "it has no numbers"
    numbers = table[number].cast(pl.Int64 if whole else pl.Float64, strict=False)
    if whole and numbers.null_count():
        return "its numbers are not whole"
    every = math.prod(table[name].n_unique() for name in by) if cells is None else cells
    if table.height != every or (by and table.select(by).is_duplicated().any()):
        return "cells are missing or doubled: which of them are there may tell who exists"
    return ""


def kept_inside(bundle: BundleFiles) -> dict[str, pl.DataFrame]:
    """Return the true numbers and noise that a whole bundle has in ``internal/noise``, by title; else nothing."""
    if bundle.manifest is None:
        return {}
    folder = bundle.public.parent / "internal" / NOISE
    found: dict[str, pl.DataFrame] = {}
    unchanged = [path for path in parquet_below(folder) if path not in bundle.found.unread]  # others the audit names
    probe_parquet(folder, bundle.found)
    for path in unchanged:
        frame = read_released(path, bundle.found, where=f"internal/{NOISE}/{path.name}")
        if frame is not None and "table" in frame.columns:
            found |= {str(title): own for (title,), own in frame.partition_by("table", as_dict=True).items()}
    return found


def kept_fault(
    table: pl.DataFrame, by: Sequence[str], kept: pl.DataFrame, *, added: Sequence[str], number: str = "count"
) -> str:
    """Say where a published table is not what was kept of it: its cells, and the sums of the columns ``added``.

    Numbers that were left empty, and columns that an earlier version kept otherwise, are not compared.
    """
    if not {*by, *added} <= {*kept.columns}:
        return ""
    own = kept.select(*by, pl.sum_horizontal(added).alias("__kept"))
    said, inside = (as_text(each).sort(by) if by else as_text(each) for each in (table.select(*by, number), own))
    if not said.select(by).equals(inside.select(by), null_equal=True):
        return f"its cells are not those that were declared: internal/{NOISE} has others"
    one, other = said[number].cast(pl.Int64, strict=False), inside["__kept"].cast(pl.Int64)
    return f"its numbers are not the true ones with the noise in internal/{NOISE}" if (one != other).any() else ""


def undeclared_fault(table: pl.DataFrame, by: Sequence[str], values: Values) -> str:
    """Say which variable has other values than the settings declare; those of a codebook are not among them.

    >>> table = pl.DataFrame({"county": ["A", "Smith"], "size": ["1", "2"]})
    >>> undeclared_fault(table, ["county", "size"], {"county": ["A", "B"], "size": [1, 2]})
    'the values of county are not those that were declared'
    """
    for name in by:
        if name in values and not _same_values(table[name], values[name]):
            return f"the values of {name} are not those that were declared"
    return ""


def _same_values(published: pl.Series, declared: Sequence[Any]) -> bool:
    """Compare values as they are written; those of a column of numbers or of yes and no were declared otherwise."""
    texts, said = {*map(str, declared)}, {*published.cast(pl.String).fill_null("")}
    if said == texts or (said == {"false", "true"} and texts == {"0", "1"}):
        return True
    one, other = (pl.Series([*each], dtype=pl.String).cast(pl.Float64, strict=False) for each in (said, texts))
    return not one.null_count() and not other.null_count() and {*one} == {*other}


def stated_mechanism(kind: type[TableMechanism], bundle: BundleFiles, tables: Sequence[Sequence[str]]) -> Any:
    """Return the mechanism whose settings public files state; None where they do not state all."""
    try:
        stated = mechanism_in((bundle.public / "specification.json").read_text(encoding="utf-8"))
        settings = kind.settings_model.model_validate(stated.settings if stated else {})
        return kind(settings, tables=tables)
    except (OSError, ValueError, StirredError):
        return None


def audit_cells(bundle: BundleFiles, found: Findings, *, whole: bool, added: Sequence[str] = ("true", "noise")) -> None:
    """Check that each table has every cell once; counts that need not be ``whole`` may be empty but not below 0.

    Where the bundle keeps true counts and what was ``added`` to them inside, cells and counts are compared with them.
    """
    kept, planned = kept_inside(bundle), () if bundle.manifest is None else bundle.manifest.tables
    inside = {frozenset(by): kept[" x ".join(by)] for by in planned if " x ".join(by) in kept}
    for name, place, table, variables in bundle.tables():
        number = "sum" if "sum" in table.columns else "count"
        if not variables:
            found.bad("it has no variables", where=place)
        elif fault := table_fault(table, variables, number=number, whole=whole):
            found.bad(fault, where=place)
        elif not whole and number == "count" and (table[number].cast(pl.Float64, strict=False) < 0).any():
            found.bad("it has counts below 0", where=place)
        elif (
            (own := inside.get(frozenset(variables))) is not None
            and number == "count"
            and (fault := kept_fault(table, variables, own, added=added))
        ):
            found.bad(fault, where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")


def check_no_records(written: Written) -> None:
    """Raise if records were written."""
    if records := _records(written.public):
        raise failed(f"{records[0].name} was written, and only tables may be published")


def _records(public: Path) -> list[Path]:
    return sorted([*public.glob(f"{RECORDS}.*"), *public.glob(f"{PERSONS}.*")])


# ---- what comes before


def mechanism_before(after: Mapping[str, Any], *, unit: str, published: Sequence[str]) -> Mechanism:
    """Return the mechanism that a setting ``after`` names, of the columns that tables are made of.

    The others leave in no file, and its promise is not about them. What a swap does to a record depends on matched and
    swapped columns, and on those that its other settings name.
    """
    own = {key: value for key, value in after.items() if key != "name"}
    name = registry.full_name(str(after.get("name", registry.DEFAULT)), where="after")
    if not registry.mechanism_class(name).counts_tables:
        what = f"{name} releases tables, and before tables comes a mechanism that releases records"
        raise bad_plan(what, where="after", remedy="name a swap such as permutation-swap, or leave after out")
    inner: Any = registry.build(name, {"unit": unit, **own})
    if not {"swap", "hold"} <= {*inner.settings_model.model_fields}:
        return cast(Mechanism, inner)
    rules = [name for rule in getattr(inner, "rates", ()) for name in rule if name != "rate"]
    used = dict.fromkeys([*published, *rules, getattr(inner, "respond", None)])
    held = tuple(name for name in used if name is not None and name not in (*inner.swap, *inner.matched))
    if inner.hold is not None and not {*held} <= {*inner.hold}:
        return cast(Mechanism, inner)  # refused by the plan: a table needs what is not released
    if not held:
        what = f"no table has more than the matched and swapped variables: {inner.title} changes none of their counts"
        raise bad_plan(what, where="after", remedy="cross a swapped variable with another one, or leave after out")
    return cast(Mechanism, replace(inner, hold=held))
