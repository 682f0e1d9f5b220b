"""Read back what was written and check, exactly, that both invariant tables are those of the input.

The permutation that was applied is still known here, so equality of the hold values is checked record
by record and not by fingerprints; the match x swap table is counted anew on both sides. Two further checks
go by the written values alone; where the files are too long for them, the list of checks says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.columns import gather, select
from stirred.data.frames import ROWS_IN_ONE_FILE, read_frame, write_frame
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.imputed import imputed_strata
from stirred.mechanisms.swapping.persons import Persons, Rows
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.mechanisms.swapping.swapped_file import SwappedFile
from stirred.release.invariants import sorted_cells
from stirred.release.tables import Table, tabulate
from stirred.spec.problems import Problem, StirredError


class VerificationError(StirredError):
    """A release that does not have the invariants it must have: a fault of ours, and the bundle is destroyed."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked on the files as written, and what came out; or why it was not."""

    what: str
    cells: int
    result: str = "identical to the input"


def not_done(what: str, *, limit: int, of: str) -> Check:
    """Return the check that was not made because there is too much to compare."""
    return Check(what=what, cells=0, result=f"not done: there are more than {limit:,} {of}")


def verify_swap(data: Microdata, plan: SwapPlan, release: Release, folder: Path, *, format_: str) -> list[Check]:
    """Compare the written files with the confidential input; raise if anything differs.

    The files must be what was swapped, part by part and to the last value. What was swapped must be
    the input, record by record through the released order, on everything held; and the match x swap
    table is counted anew on both sides, by the codes of its values. Up to ``ROWS_IN_ONE_FILE`` records it is
    counted a second time, from the values in the file; up to ``PERSONS_RELINKED`` persons each of them is led back to
    its household by the written ids.
    """
    swapped: SwappedFile = release.internal["file"]
    order = swapped.order
    if order.size != data.households.height or not _is_permutation(order):
        raise failed("the released households are not those of the input, one for one")
    begin = 0
    for found, expected in _both(release, folder, "data", format_):
        if found.schema != expected.schema or not found.equals(expected, null_equal=True):
            raise failed("the household file, as written, is not what was swapped")
        if swapped.people is not None and not _counts_up(found[str(data.hid)], begin + 1):
            raise failed("the household ids are not 1, 2, 3, ... in the released order")
        rows = order[begin : begin + found.height]
        for name in plan.hold:
            # What a response has changed on purpose is compared with the response; all else with the input.
            source = swapped.data if name == plan.perturbed else data
            column = as_read(gather(source.households[name], rows).to_frame(), format_, folder)
            if not column.equals(found.select(name), null_equal=True):
                raise failed(f'hold variable "{name}" differs from the input')
        begin += found.height
    released = swapped.swapped[order]
    if not bool((released[1:] >= released[:-1]).all()):
        raise failed("the released order is not by released values")
    del released
    checks = [_margin_check(plan, swapped), *_imputed_check(plan, swapped), *_response_check(data, plan, swapped)]
    if order.size <= ROWS_IN_ONE_FILE:
        checks.append(_recount(data, plan, read_frame(folder / f"data.{format_}"), format_, folder))
    else:
        checks.append(not_done(RECOUNTED, limit=ROWS_IN_ONE_FILE, of="records"))
    checks.append(Check(what="all hold variables, record by record", cells=begin * len(plan.exact_hold)))
    if begin != order.size:
        raise failed(f"{order.size:,} households went in and {begin:,} came out")
    if swapped.people is not None:
        checks.append(_persons_check(swapped.people, swapped, release, folder, format_))
        if checks[-1].cells <= PERSONS_RELINKED:
            checks.append(_relink(swapped.data, order, read_frame(folder / f"persons.{format_}"), format_, folder))
        else:
            checks.append(not_done(RELINKED, limit=PERSONS_RELINKED, of="persons"))
    return checks


# Up to here every written person is also led back to the household it came from, by the ids alone.
PERSONS_RELINKED = 5_000_000
RECOUNTED = "match x swap table, counted from the values in the written file"
RELINKED = "every person led back to its household by the written ids"


def _recount(data: Microdata, plan: SwapPlan, written: pl.DataFrame, format_: str, folder: Path) -> Check:
    """Count the match x swap table of the written file and of the input from their values, not from codes."""
    names = [*plan.universe.match, *plan.exact_swap]
    if not names:
        return Check(what=RECOUNTED, cells=0, result="nothing of it is an invariant")
    tables = [
        frame.group_by(names).len().sort(names)
        for frame in (as_read(data.households.select(names), format_, folder), written.select(names))
    ]
    if not tables[0].equals(tables[1], null_equal=True):
        raise failed("the match x swap table of the written file differs from the input")
    return Check(what=RECOUNTED, cells=tables[0].height)


def _relink(data: Microdata, order: Rows, written: pl.DataFrame, format_: str, folder: Path) -> Check:
    """Give the written persons their old household ids back and compare them with the input, as multisets."""
    assert data.persons is not None
    assert data.hid is not None
    names = [data.hid, *data.person_variables]
    old = data.households[data.hid].gather(order).gather(written[data.hid].cast(pl.Int64) - 1)
    own = [written[name] for name in data.person_variables]
    found = pl.DataFrame([as_read(old.to_frame(), format_, folder)[data.hid], *own])
    wanted = as_read(select(data.persons, names), format_, folder)
    if not found.sort(names).equals(wanted.sort(names), null_equal=True):
        raise failed("persons, as written, are not in the households they came from")
    return Check(what=RELINKED, cells=written.height)


def _both(release: Release, folder: Path, name: str, format_: str) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Yield each part as it was written, and as it should have been."""
    path = folder / f"{name}.{format_}"
    expected = release.public.parts(name)
    if not path.is_dir():
        yield read_frame(path), as_read(pl.concat(list(expected)), format_, folder)
        return
    written = sorted(path.glob(f"*.{format_}"))
    number = 0
    for number, part in enumerate(expected, start=1):
        if number > len(written):
            raise failed(f"a part of {name} is missing")
        yield read_frame(written[number - 1]), as_read(part, format_, folder)
    if number != len(written):
        raise failed(f"there are more parts of {name} than were written")


def _counts_up(ids: pl.Series, first: int) -> bool:
    return ids.cast(pl.Int64).equals(pl.int_range(first, first + len(ids), eager=True).alias(ids.name))


def verify_tables(release: Release, tables: Sequence[Table], folder: Path, *, format_: str) -> list[Check]:
    """Count the published tables once more, from the files as they were written."""
    checks = []
    for table in tables:
        what = f"table {table.title}, counted from the written file"
        if table.of_persons and (folder / f"persons.{format_}").is_dir():
            # Too long to join here; the persons themselves were checked record by record.
            checks.append(not_done(what, limit=ROWS_IN_ONE_FILE, of="persons"))
            continue
        homes = pl.concat([found for found, _ in _both(release, folder, "data", format_)])
        people = read_frame(folder / f"persons.{format_}") if table.of_persons else None
        parts = [_columns(table, homes, people)]
        counted = as_read(tabulate(pl.concat(parts), table.variables), "csv", folder)
        if not counted.sort(counted.columns).equals(_sorted(read_frame(folder / "tables" / f"{table.name}.csv"))):
            raise failed(f"the table {table.title}, as written, is not that of the released file")
        checks.append(Check(what=what, cells=counted.height, result="identical to the published table"))
    return checks


def _columns(table: Table, homes: pl.DataFrame, people: pl.DataFrame | None) -> pl.DataFrame:
    """Return the variables of a table from the written records, persons with those of their household."""
    if people is None:
        return homes.select(table.variables)
    key = homes.columns[0]
    shared = [name for name in table.variables if name not in people.columns]
    joined = people.join(homes.select(key, *shared), on=key, how="left") if shared else people
    return joined.select(table.variables)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(frame.columns)


def _is_permutation(order: Rows) -> bool:
    seen = np.zeros(order.size, dtype=np.bool_)
    seen[order] = True
    return bool(seen.all())


def as_read(frame: pl.DataFrame, format_: str, folder: Path) -> pl.DataFrame:
    """Return a frame as a reader of the file gets it: CSV knows only text.

    What is compared is confidential, so it is written only inside the bundle's own hidden folder.
    """
    if format_ != "csv":
        return frame
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        path = Path(scratch) / "as-read.csv"
        write_frame(frame, path)
        return read_frame(path)


def _margin_check(plan: SwapPlan, swapped: SwappedFile) -> Check:
    """Count the match x swap table before and after: the same cells, equally often."""
    before = sorted_cells(plan.strata.coded.codes, swapped.swap.codes)
    after = sorted_cells(plan.strata.coded.codes, swapped.swapped)
    if not np.array_equal(before, after):
        raise failed("the match x swap table differs from the input")
    cells = int(np.count_nonzero(before[1:] != before[:-1])) + 1
    what = "match x swap table, counted anew by the codes of the values that were written"
    if plan.perturbed in plan.universe.swap:
        return Check(what=what, cells=cells, result=f"identical to the file after the response on {plan.perturbed}")
    return Check(what=what, cells=cells)


def _response_check(data: Microdata, plan: SwapPlan, swapped: SwappedFile) -> list[Check]:
    """Check that a response changed nothing but its variable; how many records it changed is nobody's to know."""
    if plan.perturbed is None:
        return []
    before, after = (frame.drop(plan.perturbed) for frame in (data.households, swapped.data.households))
    if not after.equals(before, null_equal=True):
        raise failed(f'the response changed more than "{plan.perturbed}"')
    if swapped.data.households.schema != data.households.schema:
        raise failed(f'the response changed the type of "{plan.perturbed}"')
    cells = before.height * before.width
    return [Check(what=f"all columns but {plan.perturbed} after the response, record by record", cells=cells)]


def _imputed_check(plan: SwapPlan, swapped: SwappedFile) -> list[Check]:
    """Check that no imputed record got another value, where they are left out (R9)."""
    if plan.universe.imputed is None:
        return []
    left = imputed_strata(plan.strata, plan.universe.imputed)[plan.strata.coded.codes]
    if not np.array_equal(plan.swap.codes[left], swapped.swapped[left]):
        raise failed("an imputed record was swapped")
    return [Check(what="imputed records, each with its own swap values", cells=int(np.count_nonzero(left)))]


def _persons_check(people: Persons, swapped: SwappedFile, release: Release, folder: Path, format_: str) -> Check:
    """Check that the persons, as written, are those of each household, and that none is lost or doubled."""
    rows, hid = 0, swapped.data.hid
    for found, expected in _both(release, folder, "persons", format_):
        if found.schema != expected.schema or not found.equals(expected, null_equal=True):
            raise failed("persons and households, as written, do not belong together as in the input")
        rows += found.height
        # The place of a person is that of its household, looked up anew by the written id.
        house = swapped.order[found[str(hid)].cast(pl.Int64).to_numpy() - 1]
        places = as_read(swapped.swap.decoded(swapped.swapped[house]), format_, folder)
        if not places.equals(found.select(places.columns), null_equal=True):
            raise failed("persons do not carry the swap values of their household, as written")
    if rows != people.coded.codes.size:
        raise failed(f"{people.coded.codes.size:,} persons went in and {rows:,} came out")
    return Check(what="persons of every household, record by record", cells=rows)


def failed(what: str) -> VerificationError:
    """Return the error of a release that is not what it must be."""
    return VerificationError(
        [
            Problem(
                what=what,
                where="verification of the written files",
                remedy="nothing was kept; this is a fault in stirred or in the storage, please report it",
            )
        ]
    )
