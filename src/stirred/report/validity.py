"""Facial validity: what a reader of the public files stumbles over, found in these files alone.

Negative counts, fractions, cells left empty, margins that do not add up, tables that disagree, and combinations that
cannot exist. None of it is an error: some are the price of counts that are right on average, and the mechanism says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from stirred.data.bundle import published_specification
from stirred.data.frames import scan_frame
from stirred.data.table_labels import without_labels
from stirred.mechanisms.protocol import PERSONS, RECORDS, Mechanism
from stirred.spec.problems import StirredError

Zeros = Sequence[Mapping[str, Sequence[str]]]
# Larger files are not read for this.
# Columns of public files that are published numbers, as opposed to codes and errors.
NUMBERS: Final = ("count", "sum", "value", "estimate")
MOST_BYTES: Final = 1 << 28
NEGATIVE, FRACTIONS, EMPTY = "negative numbers", "numbers that are not whole", "cells left empty"
MARGINS, TABLES = "margins that do not add up", "tables that disagree on what they share"
_EXACT: Final = "invariants"
_ERRORS: Final = ("variance", "low", "high", "std_dev", "sigma2")
IMPOSSIBLE: Final = "combinations that cannot exist"
_WHY: Final = {
    NEGATIVE: "noise was added and nothing cut off: cut at 0 for display, never before adding up",
    FRACTIONS: "they are estimates or ratios: round for display, never before adding up",
    EMPTY: "a rule of the mechanism leaves them empty",
    MARGINS: "every table was disturbed by itself; use the table that asks your question directly",
    TABLES: "every table was disturbed by itself; use the table that asks your question directly",
    IMPOSSIBLE: "the disturbance does not know the rule; treat these records as disturbed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidityFinding:
    """One thing that was looked for: how often it was found, among how many, the worst, and what to make of it."""

    what: str
    found: int
    looked_at: int
    worst: str = ""

    @property
    def in_words(self) -> str:
        """Say what was found."""
        if not self.looked_at:
            return "nothing to look at"
        if not self.found:
            return f"none among {self.looked_at:,}"
        return f"{self.found:,} of {self.looked_at:,}{self.worst and f' ({self.worst})'}; {_WHY[self.what]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """What was found, the files that were not looked at, and the columns that say how far off a number is."""

    findings: tuple[ValidityFinding, ...]
    skipped: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Say whether nothing was found."""
        return not any(each.found for each in self.findings)


class _ValidityTable(NamedTuple):
    name: str
    cells: pl.LazyFrame  # the variables, and ``count``
    by: tuple[str, ...]
    of_persons: bool


def facial_validity(
    public: Path, kind: type[Mechanism], *, records: Collection[str] = (), zeros: Zeros = ()
) -> Validity:
    """Return what a reader of a public folder stumbles over.

    ``records`` are the names of its files of records, ``zeros`` codes that no record has together.
    """
    paths = {
        path.relative_to(public).as_posix(): path
        for folder in (public, public / "tables")
        for path in sorted(folder.glob("*"))
        if path.suffix in (".parquet", ".csv")
    }
    skipped = [name for name, path in paths.items() if _bytes(path) > MOST_BYTES]
    frames = {name: frame for name, path in paths.items() if name not in skipped for frame in _scanned(path)}
    rows = {name: frames.pop(name) for name in [*frames] if Path(name).stem in records and "/" not in name}
    listed = [*_tables(frames, kind, _personal(public, rows))]
    counted = [table.cells for table in listed]
    findings = (
        *_signs(frames, NUMBERS),
        *_agreement(listed),
        _impossible([*counted, *rows.values()], zeros),
    )
    names = {name for frame in frames.values() for name in frame.collect_schema().names()}
    return Validity(findings=findings, skipped=tuple(skipped), errors=tuple(name for name in _ERRORS if name in names))


def _bytes(path: Path) -> int:
    return sum(part.stat().st_size for part in ([path] if path.is_file() else path.rglob("*")))


def _scanned(path: Path) -> Iterator[pl.LazyFrame]:
    """Yield a file, unless it is empty."""
    try:
        yield scan_frame(path)
    except StirredError:
        return


# ---- single numbers ---------------------------------------------------------------------------------------


def _signs(frames: Mapping[str, pl.LazyFrame], columns: Sequence[str]) -> Iterator[ValidityFinding]:
    """Count what is negative, not whole or missing in the columns of numbers."""
    totals, least, where = dict.fromkeys((NEGATIVE, FRACTIONS, EMPTY, "all"), 0), 0.0, ""
    for name, frame in frames.items():
        schema = frame.collect_schema()
        for column in (each for each in columns if each in schema):
            given = pl.col(column).explode() if schema[column].is_nested() else pl.col(column)
            number = given.cast(pl.Float64, strict=False)  # CSV is read as text
            seen = frame.select(
                (number < 0).sum().alias(NEGATIVE), (number != number.round()).sum().alias(FRACTIONS),
                number.null_count().alias(EMPTY), number.len().alias("all"), number.min().alias("least"),
            ).collect().row(0, named=True)  # fmt: skip
            totals = {key: value + seen[key] for key, value in totals.items()}
            if (seen["least"] or 0) < least:
                least, where = seen["least"], name
    worst = {NEGATIVE: f"the smallest {least:,.6g}, in {where}"} if where else {}
    for what in (NEGATIVE, FRACTIONS, EMPTY):
        yield ValidityFinding(what=what, found=totals[what], looked_at=totals["all"], worst=worst.get(what, ""))


# ---- tables beside each other -----------------------------------------------------------------------------


def _tables(frames: Mapping[str, pl.LazyFrame], kind: type[Mechanism], personal: set[str]) -> Iterator[_ValidityTable]:
    """Yield the tables of counts, and those published exactly, with their variables."""
    beside = {"count", "table", *kind.table_columns}
    for name, frame in frames.items():
        if "count" not in frame.collect_schema().names():
            continue
        if "/" in name:
            cells = without_labels(frame.collect())
            yield _table(name, cells.lazy(), [each for each in cells.columns if each not in beside], personal)
        elif Path(name).stem == _EXACT:  # several tables below each other, the columns of the others empty
            # A nation has tens of millions of cells: they stay in the file, and are counted where they are needed.
            filled = frame.group_by("table", maintain_order=True).agg(pl.exclude("table").is_not_null().any()).collect()
            for each in filled.iter_rows(named=True):
                if by := [column for column, some in each.items() if some and column not in beside]:
                    part = frame.filter(pl.col("table").eq_missing(pl.lit(each["table"], dtype=pl.String)))
                    yield _table(f"{name}: {each['table']}", part, by, personal)


def _table(name: str, cells: pl.LazyFrame, by: Sequence[str], personal: set[str]) -> _ValidityTable:
    counts = cells.select(*by, pl.col("count").cast(pl.Float64, strict=False))
    return _ValidityTable(name, counts, tuple(by), bool({*by} & personal))


def _personal(public: Path, records: Mapping[str, pl.LazyFrame]) -> set[str]:
    """Return the variables of persons alone: tables that have one count persons, and others count households."""
    columns = {Path(name).stem: {*frame.collect_schema().names()} for name, frame in records.items()}
    specification = published_specification(public)
    stated = () if specification is None else specification.domain.columns
    said = {name.removeprefix("person ") for name in stated if name.startswith("person ")}
    own = columns.get(PERSONS, set()) - columns[RECORDS] if RECORDS in columns else set()
    return own | said


def _agreement(tables: Sequence[_ValidityTable]) -> Iterator[ValidityFinding]:
    """Compare each two tables on the variables they share: a margin if one has no other, else a disagreement."""
    seen = {MARGINS: [0, 0], TABLES: [0, 0]}
    worst: dict[str, tuple[float, str]] = {}
    for one, other in combinations(tables, 2):
        if one.of_persons != other.of_persons:
            continue
        shared = [name for name in one.by if name in other.by]
        what = MARGINS if len(shared) == min(len(one.by), len(other.by)) else TABLES
        apart = _apart(one.cells, other.cells, shared)
        seen[what][0] += int((apart != 0).sum())
        seen[what][1] += len(apart)
        most = float(apart.abs().max() or 0)  # type: ignore[arg-type]
        if most > worst.get(what, (0, ""))[0]:
            worst[what] = (most, f"the largest difference {most:,.6g}, {one.name} beside {other.name}")
    for what, (found, looked_at) in seen.items():
        yield ValidityFinding(what=what, found=found, looked_at=looked_at, worst=worst.get(what, (0, ""))[1])


def _apart(one: pl.LazyFrame, other: pl.LazyFrame, shared: Sequence[str]) -> pl.Series:
    """Return the differences of two tables, added up to what they share; sums with an empty cell are left out."""
    names = [*shared, "__all"]
    whole = pl.when(pl.col("count").is_null().any()).then(None).otherwise(pl.col("count").sum())
    added = [frame.with_columns(__all=pl.lit(0)).group_by(names).agg(__sum=whole) for frame in (one, other)]
    # As text, as CSV has them: few are left of many.
    sums = [frame.collect().with_columns(pl.col(shared).cast(pl.String)) for frame in added]
    sums = [frame.with_columns(__left=pl.col("__sum").is_null(), __sum=pl.col("__sum").fill_null(0)) for frame in sums]
    both = sums[0].join(sums[1], on=names, how="full", coalesce=True, nulls_equal=True, suffix="__other")
    both = both.filter(~(pl.col("__left").fill_null(False) | pl.col("__left__other").fill_null(False)))
    difference = pl.col("__sum").fill_null(0) - pl.col("__sum__other").fill_null(0)
    return both.select(difference.round(6)).to_series()


# ---- what cannot exist ------------------------------------------------------------------------------------


def _impossible(frames: Sequence[pl.LazyFrame], zeros: Zeros) -> ValidityFinding:
    """Count the cells that are filled, and the records, that have together what none can have."""
    found = looked_at = 0
    for zero in zeros:
        for frame in frames:
            names = frame.collect_schema().names()
            if not {*zero} <= {*names}:
                continue
            rule = pl.all_horizontal(pl.col(name).cast(pl.String).is_in(list(codes)) for name, codes in zero.items())
            filled = rule & (pl.col("count") != 0) if "count" in names else rule
            one = frame.select(filled.sum().alias("found"), pl.len().alias("all")).collect().row(0)
            found, looked_at = found + one[0], looked_at + one[1]
    return ValidityFinding(what=IMPOSSIBLE, found=found, looked_at=looked_at)
