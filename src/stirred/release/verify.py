"""Read back what was written and check, exactly, that both invariant tables are those of the input.

The permutation that was applied is still known here, so equality of the hold values is checked record
by record and not by fingerprints; the match x swap table is counted anew on both sides.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.codes import count, encode
from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.permutation import PermutationSwap, SwapPlan
from stirred.mechanisms.swapping.persons import Persons, released_persons
from stirred.release.tables import Table, tabulate
from stirred.spec.problems import Problem, StirredError


class VerificationError(StirredError):
    """A release that does not have the invariants it must have: a fault of ours, and the bundle is destroyed."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked on the files as written."""

    what: str
    cells: int


def verify_swap(
    data: Microdata, mechanism: PermutationSwap, plan: SwapPlan, release: Release, folder: Path, *, format_: str
) -> list[Check]:
    """Compare the written files with the confidential input; raise if anything differs."""
    order: np.ndarray = release.internal["order"]
    written = read_frame(folder / f"data.{format_}")
    expected = _as_read(release.public.frame("data"), format_)
    if not written.equals(expected, null_equal=True) or written.schema != expected.schema:
        raise _failed("the household file, as written, is not what was swapped")
    if written.height != data.households.height or not _is_permutation(order):
        raise _failed("the released households are not those of the input, one for one")
    names = [*mechanism.match, *mechanism.swap]
    original = data.households.select(list(dict.fromkeys((*plan.hold, *names))))
    for name in plan.hold:
        column = _as_read(original[name].gather(order).to_frame(), format_)
        if not column.equals(written.select(name), null_equal=True):
            raise _failed(f'hold variable "{name}" differs from the input')
    checks = [
        _margin_check(_as_read(original.select(names), format_), written.select(names)),
        Check(what="all hold variables, record by record", cells=written.height * len(plan.hold)),
    ]
    people: Persons | None = release.internal["persons"]
    if people is not None:
        checks.append(_persons_check(data, mechanism, people, release.public.frame("data"), order, folder, format_))
    return checks


def verify_tables(release: Release, tables: Sequence[Table], folder: Path, *, format_: str) -> list[Check]:
    """Count the published tables of households once more, from the file as it was written."""
    checks = []
    written = read_frame(folder / f"data.{format_}")
    for table in tables:
        if table.of_persons:
            continue
        counted = _as_read(tabulate(written, table.variables), "csv")
        if not counted.sort(counted.columns).equals(_sorted(read_frame(folder / "tables" / f"{table.name}.csv"))):
            raise _failed(f"the table {table.title}, as written, is not that of the released file")
        checks.append(Check(what=f"table {table.title}, counted from the written file", cells=counted.height))
    return checks


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(frame.columns)


def _is_permutation(order: np.ndarray) -> bool:
    seen = np.zeros(order.size, dtype=np.bool_)
    seen[order] = True
    return bool(seen.all())


def _as_read(frame: pl.DataFrame, format_: str) -> pl.DataFrame:
    """Return a frame as a reader of the file gets it: CSV knows only text."""
    if format_ != "csv":
        return frame
    return pl.read_csv(io.BytesIO(frame.write_csv().encode()), infer_schema=False)


def _margin_check(before: pl.DataFrame, after: pl.DataFrame) -> Check:
    """Count the match x swap table on both sides."""
    names = before.columns
    first, second = encode(before, names), encode(after, names)
    same_cells = first.levels.equals(second.levels)
    if not same_cells or not np.array_equal(
        count(first.codes, groups=first.count), count(second.codes, groups=second.count)
    ):
        raise _failed("the match x swap table differs from the input")
    return Check(what="match x swap table, counted anew", cells=first.count)


def _persons_check(
    data: Microdata,
    mechanism: PermutationSwap,
    people: Persons,
    homes: pl.DataFrame,
    order: np.ndarray,
    folder: Path,
    format_: str,
) -> Check:
    """Check that every household, as written, has exactly its own persons, with its released swap values."""
    expected = released_persons(people, homes, order, hid=str(data.hid), swap=mechanism.swap)
    rows = 0
    for wanted, found in zip(_rebatched(expected), _written_parts(folder, format_), strict=True):
        if not _as_read(wanted, format_).equals(found, null_equal=True):
            raise _failed("persons and households, as written, do not belong together as in the input")
        rows += found.height
    if rows != people.coded.codes.size:
        raise _failed(f"{people.coded.codes.size:,} persons went in and {rows:,} came out")
    return Check(what="persons of every household, record by record", cells=rows)


PERSONS_IN_ONE_FILE = 20_000_000


def _rebatched(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield one frame where the persons were written to one file, and the parts themselves otherwise."""
    held: list[pl.DataFrame] = []
    rows = 0
    for part in parts:
        held.append(part)
        rows += part.height
        if rows > PERSONS_IN_ONE_FILE:
            yield from held
            yield from parts
            return
    yield pl.concat(held)


def _written_parts(folder: Path, format_: str) -> Iterator[pl.DataFrame]:
    path = folder / f"persons.{format_}"
    if path.is_dir():
        for part in sorted(path.glob(f"*.{format_}")):
            yield read_frame(part)
    else:
        yield read_frame(path)


def _failed(what: str) -> VerificationError:
    return VerificationError(
        [
            Problem(
                what=what,
                where="verification of the written files",
                remedy="nothing was kept; this is a fault in stirred or in the storage, please report it",
            )
        ]
    )
