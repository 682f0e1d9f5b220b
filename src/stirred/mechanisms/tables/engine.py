"""The life of a release of tables: plan, doubts, opening, draw, files, verification and audit, once for all of them.

A table mechanism says what it promises, which cells it has and how it perturbs them. Everything else is here: noisy
tables, cell keys, SafeTab, PHSafe and survey estimates publish numbers of declared cells and no record. Cells are every
combination of declared values, whether or not a record is in them.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, cast

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codebook import Codebook
from stirred.data.columns import Columns
from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.missing import missing_doubts
from stirred.data.natural import sorted_values
from stirred.data.problems import DataError, bad_plan, listed
from stirred.data.table_labels import with_labels
from stirred.mechanisms import registry
from stirred.mechanisms.doubts import repeated_ids
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    PERSONS,
    RECORDS,
    UNSEARCHED,
    Check,
    Frames,
    Mechanism,
    Plan,
    PlanOrigin,
    Progress,
    Release,
    Written,
    failed,
    settings_doubts,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.accepted import with_accepted_names
from stirred.spec.budget import Budget
from stirred.spec.doubts import Doubt
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import Problem
from stirred.spec.pull_back import pull_back
from stirred.spec.specification import Specification

NO_TABLES: Final = "add tables, such as [[tables]] variables = ['county', 'tenure']"
STAYS_INSIDE: Final = "both are confidential (internal/noise has them)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TablePlan(Plan):
    """What would be published; nothing random has happened."""

    unreleased: ClassVar[str] = "not used"

    specification: Specification
    doubts: tuple[Doubt, ...] = (UNSEARCHED,)
    accepted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    origin: PlanOrigin | None = field(default=None, repr=False)


class TableDraw(NamedTuple):
    """What a draw makes: ``public`` tables by file, and by table what they were made of, ``kept`` inside.

    ``inside`` is what verification and internal pages need besides.
    """

    public: Mapping[str, pl.DataFrame]
    kept: Mapping[str, pl.DataFrame]
    inside: Mapping[str, Any] = {}


class ExpectedTable(NamedTuple):
    """A file that must say what a draw made: its frame, and the words for a check that fails or passes."""

    file: str
    frame: pl.DataFrame
    wrong: str
    what: str = ""  # nothing where the file belongs to one that is named already
    result: str = ""


class TableMechanism(Mechanism):
    """A mechanism that publishes tables of declared cells, and no record."""

    __slots__ = ()

    counts_tables: ClassVar[bool] = False
    kept_in: ClassVar[str] = "noise"  # the folder below internal with what tables were made of
    kept_by_name: ClassVar[bool] = False  # whether its files are named as the public ones, and not numbered

    # ---- the plan

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
        yield from settings_doubts(self.settings_from)
        yield from missing_doubts(data.households, coded, codes=data.not_missing)
        yield from repeated_ids(data, unit=self.unit)

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        """Return the promise, the tables and what speaks against a release; nothing random happens."""
        microdata = as_microdata(data)
        self.check(microdata)
        plan = replace(self.draft(microdata, doubts=doubts), origin=PlanOrigin(self, microdata))
        return replace(plan, doubts=tuple(self.doubts(microdata, plan))) if doubts else plan

    # ---- the release

    @abstractmethod
    def draw(self, data: Microdata, plan: Any, entropy: Entropy, progress: Progress) -> TableDraw:
        """Count every table, draw its noise once, and return what is published and what stays inside."""

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Draw once, and return the tables alone."""
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        drawn = self.draw(microdata, plan, entropy, progress or (lambda stage, done, total: None))
        parts: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {
            name: lambda t=table: [t]  # type: ignore[misc]
            for name, table in drawn.public.items()
        }
        return Release(
            public=Frames(parts, convert=like(data)),
            specification=promised,
            internal={"plan": plan, "drawn": drawn.kept, **drawn.inside},
        )

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Keep what tables were made of: noise is drawn once and never again."""
        folder = written.internal / self.kept_in
        folder.mkdir(mode=0o700)
        for number, (title, frame) in enumerate(release.internal["drawn"].items(), start=1):
            own = frame if self.kept_by_name else frame.select(pl.lit(title).alias("table"), pl.all())
            write_frame(own, folder / f"{title if self.kept_by_name else number}.parquet", note=dict(note))

    # ---- the files as written

    def expected(self, data: Microdata, plan: Any, release: Release, written: Written) -> Iterator[ExpectedTable]:
        """Yield every table as the true numbers and what was drawn make it; raise where these are not what they were.

        Whether what was drawn follows its law no file can show.
        """
        return iter(())

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Read the written tables back; raise if one is not what was counted with what was drawn."""
        if records := _records(written.public):
            raise failed(f"{records[0].name} was written, and only tables may be published")
        checks = []
        for table in self.expected(data, plan, release, written):
            found = read_frame(written.public / f"{table.file}.csv")
            frame = with_labels(table.frame, written.labels, beside=self.table_columns)
            if not as_read(frame, "csv", written.public).equals(found, null_equal=True):
                raise failed(table.wrong)
            if table.what:
                checks.append(Check(what=table.what, cells=found.height, result=table.result))
        return checks

    # ---- pages

    def reading(self, plan: Any) -> Sequence[str]:
        """Return what a reader of the tables must know, from public facts alone."""
        return ()

    def conclusions(self, plan: Any) -> Sequence[str]:
        """Return how to read the tables."""
        return self.reading(plan)

    def reading_tables(self, plan: Any) -> Sequence[str]:
        """Return how to read the tables."""
        return self.reading(plan)

    def file_notes(self, plan: Any) -> Sequence[str]:
        """Return why there is no file of records."""
        return ["There is no file of records: the promise is about the tables alone."]


# ---- the audit of a bundle ----------------------------------------------------------------------------------


def audit_records(bundle: BundleFiles, found: Findings) -> None:
    """Add a problem for each file of records in a bundle."""
    for path in _records(bundle.public):
        found.bad("records are published, and the promise is about tables alone", where=f"public/{path.name}")


def audit_promise(
    bundle: BundleFiles,
    again: Specification,
    found: Findings,
    *,
    computed: str = "budget {}: computed anew from the settings",
    held: Callable[[Multiverse], object] = lambda multiverse: (multiverse.invariants, multiverse.nearest),
    also: Sequence[str] = (),
) -> None:
    """Compare a promise with that of the settings; name and columns of the file are believed.

    ``held`` is what is compared of the figures that are fixed, and ``also`` are further blocks.
    """
    said, before = bundle.specification, len(found.problems)
    again = with_accepted_names(pull_back(again, prepared=bundle.prepared).specification, bundle.accepted)
    blocks = [
        ("budget", said.budget, again.budget),
        ("multiverse", held(said.multiverse), held(again.multiverse)),
        *((name, getattr(said, name), getattr(again, name)) for name in ("input_premetric", "output_premetric", *also)),
        ("domain stage", said.domain.stage, again.domain.stage),
    ]
    for block, one, other in blocks:
        if one != other:
            told = [f"{b.shown} ({b.policy})" if isinstance(b, Budget) else str(b) for b in (one, other)]
            found.bad(f"it says {told[0]}, and the settings give {told[1]}", where=f"public/specification.json {block}")
    if len(found.problems) == before:
        found.checks.append(computed.format(said.budget_text))


def table_fault(
    table: pl.DataFrame, by: Sequence[str], *, number: str = "count", whole: bool = True, cells: int | None = None
) -> str:
    """Say what is wrong with a published table: every combination of its values stands there once, with a number."""
    if number not in table.columns:
        return "it has no numbers"
    numbers = table[number].cast(pl.Int64 if whole else pl.Float64, strict=False)
    if whole and numbers.null_count():
        return "its numbers are not whole"
    every = math.prod(table[name].n_unique() for name in by) if cells is None else cells
    if table.height != every or (by and table.select(by).is_duplicated().any()):
        return "cells are missing or doubled: which of them are there may tell who exists"
    return ""


def _records(public: Path) -> list[Path]:
    return sorted([*public.glob(f"{RECORDS}.*"), *public.glob(f"{PERSONS}.*")])


# ---- settings that several have -----------------------------------------------------------------------------


def require_tables(tables: Collection[Any] | None) -> None:
    """Refuse settings without any table: there is nothing to release."""
    if not tables:
        raise bad_plan("is needed", where="tables", remedy=NO_TABLES)


def mechanism_before(after: Mapping[str, Any], *, unit: str, published: Sequence[str]) -> Mechanism:
    """Return the mechanism that a setting ``after`` names, of the columns that tables are made of.

    The others leave in no file, and its promise is not about them. What a swap does to a record depends on matched and
    swapped columns, and on those that its other settings name.
    """
    own = {key: value for key, value in after.items() if key != "name"}
    name = registry.full_name(str(after.get("name", registry.DEFAULT)), where="after")
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


MOST_CELLS: Final = 1_000_000

Values = Mapping[str, Sequence[Any]]


def values_of_tables(codebook: Codebook, names: Collection[str]) -> dict[str, list[str | None]]:
    """Return the values that a codebook declares for variables of tables: codes, or whole numbers in a range."""
    found: dict[str, list[str | None]] = {}
    for name in dict.fromkeys(each.name for each in codebook.variables if each.name in names):
        variable = codebook.variable(name)
        assert variable is not None
        values: list[str | None] = []
        if variable.type == "code":
            values = [*codebook.codes(variable.name)]
        elif variable.type == "integer" and variable.min is not None and variable.max is not None:
            last = min(variable.max, variable.min + MOST_CELLS)
            values = [str(value) for value in range(variable.min, last + 1)]
        if values:
            found[name] = [*values, None] if variable.missing else values
    return found


def declared_cells(variables: Sequence[str], declared: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Return every combination of the declared values, in their order: which of them occur plays no part.

    >>> declared_cells(["a", "b"], {"a": pl.Series([1, 2]), "b": pl.Series(["x", "y"])}).rows()
    [(1, 'x'), (1, 'y'), (2, 'x'), (2, 'y')]
    """
    cells = math.prod(len(declared[name]) for name in variables)
    if cells > MOST_CELLS:
        raise bad_plan(
            f"the table of {' x '.join(variables)} has {cells:,} cells, and every one of them gets noise",
            where="tables",
            remedy=f"leave a variable out, or make its values coarser: up to {MOST_CELLS:,} cells",
        )
    axes = [declared[name].alias(name).to_frame() for name in variables]
    return reduce(lambda a, b: a.join(b, how="cross", maintain_order="left_right"), axes) if axes else pl.DataFrame()


def declared_columns(
    names: Sequence[str],
    values: Values,
    file: Columns | Mapping[str, pl.Series],
    *,
    otherwise: str = "or write values = {...}",
) -> dict[str, pl.Series]:
    """Return the declared values of each variable, in the type of its column; all problems at once.

    Cells must not follow from the file: a value that is listed because somebody has it gives that somebody away.
    ``otherwise`` says how to declare them without a codebook: not every mechanism has a setting for it.
    """
    found: dict[str, pl.Series] = {}
    problems: list[Problem] = []
    for name in names:
        column = file[name]
        kept = _declared(name, values, column, otherwise)
        if isinstance(kept, Problem):
            problems.append(kept)
            continue
        found[name] = kept
        problems += _undeclared(column, kept)
    if problems:
        raise DataError(problems)
    return found


def _declared(name: str, values: Values, column: pl.Series, otherwise: str) -> pl.Series | Problem:
    if column.dtype == pl.Boolean and name not in values:
        return pl.Series(name, [False, True])
    if not values.get(name):
        return Problem(
            what="which values it can take was not declared, and those that occur are confidential",
            where=f'table variable "{name}"',
            remedy="declare its codes, or min and max, in a codebook (--codebook; in a plan: codebook under [data]), "
            f"{otherwise}",
        )
    try:
        own = pl.Series(name, list(values[name]), strict=True).cast(column.dtype, strict=True)
    except (pl.exceptions.PolarsError, TypeError):
        return Problem(
            what=f"the declared values are not of the type of the column ({column.dtype})",
            where=f'table variable "{name}"',
            remedy="declare them as they stand in the file",
        )
    return own.unique(maintain_order=True)


def _undeclared(column: pl.Series, declared: pl.Series) -> Iterator[Problem]:
    present = column.unique().to_frame("value")
    other = present.join(declared.alias("value").to_frame(), on="value", how="anti", nulls_equal=True)["value"]
    if len(other):
        shown = listed([str(value) for value in sorted_values(other).head(5)])
        yield Problem(
            what=f"{len(other):,} of its values were not declared, such as {shown}",
            public=f"{len(other):,} of its values were not declared",
            where=f'table variable "{column.name}"',
            remedy="declare every value that a record can have, or recode them in the file",
        )


def cells_checksum(cells: Iterable[tuple[str, pl.DataFrame]]) -> dict[str, str]:
    """Return what an interrupted run must find again: the cells by table, by which noise is addressed."""
    text = "\n".join(f"{title}\n{own.write_csv()}" for title, own in cells)
    return {"the declared cells": hashlib.sha256(text.encode()).hexdigest()}


def with_numbers(cells: pl.DataFrame, numbers: Mapping[str, Any]) -> pl.DataFrame:
    """Return cells with columns of numbers beside them; without variables there is one cell.

    >>> with_numbers(pl.DataFrame(), {"sum": [3]}).rows()
    [(3,)]
    """
    return pl.DataFrame([*cells.get_columns(), *(pl.Series(name, own) for name, own in numbers.items())])
