"""Read back what was written and check, exactly, that both invariant tables are those of the input.

The permutation that was applied is still known here, so equality of the hold values is checked record
by record and not by fingerprints; the match x swap table is counted again on both sides. Two further checks
go by the written values alone; where the files are too long for them, the list of checks says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Codes
from stirred.data.columns import Columns, ParquetColumns, gather, select
from stirred.data.frames import ROWS_IN_ONE_FILE, as_read, read_frame, scan_frame
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import PERSONS, RECORDS, Check, Release, Written, failed, not_done
from stirred.mechanisms.records.files import PART, WITH_PERSONS, Rows, SwappedFile, fixed_tables
from stirred.mechanisms.records.plan import RecordPlan, SwapPlan

# Up to here every written person is also led back to the household it came from, by the ids alone.
PERSONS_RELINKED = 5_000_000
RECOUNTED = "match x swap table, counted from the values in the written file"
BY_RECORD = "record by record"
RELINKED = "every person led back to its household by the written ids"
_COUNT = "__count"
STRAYED = "persons, as written, are not in the households they came from"


def verify_swap(
    data: Microdata, plan: RecordPlan, release: Release, written: Written, *, own: Sequence[Check] = ()
) -> list[Check]:
    """Compare the written files with the confidential input; raise if anything differs.

    The files must be what was swapped, part by part and to the last value. What was swapped must be
    the input, record by record through the released order, on everything held; and the match x swap
    table is counted again on both sides, by the codes of its values. Up to ``ROWS_IN_ONE_FILE`` records it is
    counted a second time, from the values in the file; up to ``PERSONS_RELINKED`` persons each of them is led back to
    its household by the written ids; of more, if machines of an engine wrote them, a checksum is. Files that are the
    very files which these machines wrote are compared with the input by the machines, by checksums. ``own`` are the
    checks of the draw itself.
    """
    swapped: SwappedFile = release.internal["file"]
    order, folder, format_ = swapped.order, written.public, written.format
    if order.size != data.households.height or not _is_permutation(order):
        raise failed("the released households are not those of the input, one for one")
    homes: Columns = data.households

    def held(name: str) -> pl.Series:
        # What was changed on purpose is compared with the changed file; all else with the input.
        return (swapped.data if name in plan.perturbed else data).households[name]

    begin, taken = 0, written.taken(RECORDS, release)
    if taken and swapped.agree[RECORDS]():
        begin = order.size
    elif taken:
        raise failed("the households, as written, are not those of the input")
    wrong = "the household file, as written, is not what was swapped"
    for found in () if taken else written.parts(RECORDS, release.public.parts(RECORDS), wrong=wrong):
        if data.persons is not None:
            wanted = pl.int_range(begin + 1, begin + found.height + 1, eager=True)
            if not found[str(data.hid)].cast(pl.Int64).equals(wanted):
                raise failed("the household ids are not 1, 2, 3, ... in the released order")
        rows = order[begin : begin + found.height]
        for name in () if isinstance(homes, ParquetColumns) else plan.hold:
            _check_held(held(name), found, rows, written)
        if swapped.held is None:  # made elsewhere
            _same_places(found, swapped, rows, written, who="households")
        begin += found.height
    # One at a time: all of them are the file.
    for name in plan.hold if isinstance(homes, ParquetColumns) and not taken else ():
        _check_column(held(name), order, written)
    # The last record of a part is the first of the next.
    released = (swapped.swapped[order[first : first + PART + 1]] for first in range(0, order.size, PART))
    if not all((codes[1:] >= codes[:-1]).all() for codes in released):
        raise failed("the released order is not by released values")
    checks = [_margin_check(plan, swapped), *own, *_changed_check(data, plan, swapped)]
    if taken:
        checks.append(Check(what=f"{RECOUNTED}, by a checksum over all of them", cells=order.size))
    elif order.size <= ROWS_IN_ONE_FILE:
        checks.append(_recounted(data, plan, read_frame(folder / f"data.{format_}"), written))
    else:
        checks.append(not_done(RECOUNTED, limit=ROWS_IN_ONE_FILE, of="records"))
    checks += _held_checks(plan, begin, how="by a checksum over all of them in their places" if taken else BY_RECORD)
    if begin != order.size:
        raise failed(f"{order.size:,} households went in and {begin:,} came out")
    if data.persons is not None:
        if not written.taken(PERSONS, release):
            checks.append(_persons_check(data.persons.height, swapped, release, written))
        if data.persons.height <= PERSONS_RELINKED:
            checks.append(_relink(swapped.data, order, read_frame(folder / f"persons.{format_}"), format_, folder))
        elif PERSONS in swapped.agree:
            if not swapped.agree[PERSONS]():
                raise failed(STRAYED)
            checks.append(Check(what=f"{RELINKED}, by a checksum over all of them", cells=data.persons.height))
        else:
            checks.append(not_done(RELINKED, limit=PERSONS_RELINKED, of="persons"))
    return checks


def _check_held(column: pl.Series, found: pl.DataFrame, rows: Rows, written: Written) -> None:
    """Raise if a held column, as written, is not that of the input in the released order."""
    for part in (slice(begin, begin + PART) for begin in range(0, found.height, PART)):
        wanted = as_read(gather(column, rows[part]).to_frame(), written.format, written.public)
        if not wanted.equals(found[part].select(column.name), null_equal=True):
            raise failed(f'hold variable "{column.name}" differs from the input')


def _check_column(column: pl.Series, order: Rows, written: Written) -> None:
    """Do the same for a whole column, which is read back in pieces."""
    begin, released = 0, scan_frame(written.public / f"{RECORDS}.{written.format}").select(column.name)
    for found in released.collect_batches(chunk_size=PART, maintain_order=True):
        _check_held(column, found, order[begin : begin + found.height], written)
        begin += found.height


def _recounted(data: Microdata, plan: RecordPlan, released: pl.DataFrame, written: Written) -> Check:
    """Count the match x swap table of the written file and of the input from their values, not from codes."""
    names = [*dict.fromkeys((*plan.match, *plan.exact_swap))]
    if not names:
        return Check(what=RECOUNTED, cells=0, result="nothing of it is an invariant")
    cells = released.group_by(names).len(_COUNT)
    if not _same_cells(data.households, cells, names, format_=written.format, folder=written.public):
        raise failed("the match x swap table of the written file differs from the input")
    return Check(what=RECOUNTED, cells=cells.height)


def _same_cells(
    homes: pl.DataFrame, cells: pl.DataFrame, variables: Sequence[str], *, format_: str, folder: Path
) -> bool:
    """Say whether cells have the counts of the input, whose values are taken as a file of this format has them."""
    if not variables:
        return int(cells[_COUNT].sum()) == homes.height
    counted = as_read(homes.select(variables), format_, folder).group_by(variables).len(_COUNT)
    found, wanted = (frame.with_columns(pl.col(_COUNT).cast(pl.Int64)).sort(variables) for frame in (cells, counted))
    return found.equals(wanted, null_equal=True)


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
        raise failed(STRAYED)
    return Check(what=RELINKED, cells=written.height)


def _is_permutation(order: Rows) -> bool:
    seen = np.zeros(order.size, dtype=np.bool_)
    seen[order] = True
    return bool(seen.all())


def _sorted_cells(stratum: Codes, swap: Codes) -> npt.NDArray[np.uint64]:
    """Return each record's cell, sorted: two files have the same table exactly if these are equal."""
    cells = stratum.astype(np.uint64)
    cells <<= np.uint64(32)
    cells |= swap
    cells.sort()
    return cells


def _margin_check(plan: RecordPlan, swapped: SwappedFile) -> Check:
    """Count the match x swap table before and after: the same cells, equally often."""
    # A record that kept its value is in the same cell before and after: the others must fill the same cells.
    moved = np.flatnonzero(swapped.swap.codes != swapped.swapped).astype(np.uint32)
    strata = plan.coded.codes[moved]
    before, after = (_sorted_cells(strata, codes[moved]) for codes in (swapped.swap.codes, swapped.swapped))
    if not np.array_equal(before, after):
        raise failed("the match x swap table differs from the input")
    cells = plan.counted(swapped.swap).have.size
    what = "match x swap table, counted anew by the codes of the values that were written"
    if [*plan.exact_swap] != [*swapped.swap.levels.columns]:
        return Check(what=what, cells=cells, result=_as_changed(plan))
    return Check(what=what, cells=cells)


def _as_changed(plan: RecordPlan) -> str:
    return f"identical to the file after {plan.origin.mechanism.perturbed_by} on {', '.join(plan.perturbed)}"


def _changed_check(data: Microdata, plan: RecordPlan, swapped: SwappedFile) -> list[Check]:
    """Check that nothing was changed but what should be; how many records it changed is confidential."""
    if not plan.perturbed:
        return []
    by, names = plan.origin.mechanism.perturbed_by, ", ".join(plan.perturbed)
    before, after = (frame.drop(plan.perturbed) for frame in (data.households, swapped.data.households))
    if not after.equals(before, null_equal=True):
        raise failed(f'{by} changed more than "{names}"')
    if swapped.data.households.schema != data.households.schema:
        raise failed(f'{by} changed the type of "{names}"')
    return [Check(what=f"all columns but {names} after {by}, record by record", cells=before.height * before.width)]


def _held_checks(plan: RecordPlan, records: int, *, how: str) -> list[Check]:
    """Return what the comparison of held columns has shown; changed ones are held against the changed file."""
    changed = [name for name in plan.hold if name in plan.perturbed]
    but = f" but {', '.join(changed)}" if changed else ""
    found = [Check(what=f"all hold variables{but}, {how}", cells=records * len(plan.exact_hold))]
    return found + [Check(what=f"{name}, {how}", cells=records, result=_as_changed(plan)) for name in changed]


def _persons_check(persons: int, swapped: SwappedFile, release: Release, written: Written) -> Check:
    """Check that the persons, as written, are those of each household, and that none is lost or doubled."""
    rows, hid = 0, swapped.data.hid
    wrong = "persons and households, as written, do not belong together as in the input"
    for found in written.parts(PERSONS, release.public.parts(PERSONS), wrong=wrong):
        rows += found.height
        # The place of a person is that of its household, looked up by the written id.
        house = swapped.order[found[str(hid)].cast(pl.Int64).to_numpy() - 1]
        _same_places(found, swapped, house, written, who="persons")
        del found, house  # nothing of a part is kept while the next one is made
    if rows != persons:
        raise failed(f"{persons:,} persons went in and {rows:,} came out")
    return Check(what="persons of every household, record by record", cells=rows)


def _same_places(found: pl.DataFrame, swapped: SwappedFile, rows: Rows, written: Written, *, who: str) -> None:
    """Hold the swap values of written records to the codes of the households that they are."""
    places = as_read(swapped.swap.decoded(swapped.swapped[rows]), written.format, written.public)
    if not places.equals(found.select(places.columns), null_equal=True):
        raise failed(f"{who} do not carry the swap values of their household, as written")


# ---- what is published exactly ----------------------------------------------------------------------------


def verify_fixed(data: Microdata, plan: SwapPlan, strata: pl.DataFrame, written: Written) -> list[Check]:
    """Compare the tables of invariants.parquet, and strata.parquet with what should be in it, with the input.

    Files too long to be counted by values again are held to the number of records.
    """
    homes, tables = data.households, fixed_tables(data, plan)
    # A national file has as many cells as a small one has records: they are not read as one frame.
    place = written.public / "invariants.parquet"
    written.checked.add("invariants")
    sums = dict(scan_frame(place).group_by("table").agg(pl.col("count").sum()).collect().iter_rows())
    with_persons = "nothing else" if data.persons is None else WITH_PERSONS
    if strange := [name or "" for name in sums if name not in tables and not (name or "").startswith(with_persons)]:
        raise failed(f"invariants.parquet has a table that nothing fixes: '{strange[0]}'")
    checks = []
    for name, variables in tables.items():
        cells = scan_frame(place).filter(pl.col("table") == name).select(*variables, pl.col("count").alias(_COUNT))
        what = f"invariants.parquet: {name}, counted from the values of the input"
        checks.append(_compared(homes, cells, variables, written.public, total=sums.get(name, 0), what=what))
    wrong = "strata.parquet, as written, is not the list of strata"
    found = pl.concat(list(written.parts("strata", [strata], kind="side", wrong=wrong)))
    sizes = found.select(*plan.match, pl.col("stratum_records").alias(_COUNT))
    what = "strata.parquet: sizes, counted from the values of the input"
    total = int(sizes[_COUNT].sum())
    return [*checks, _compared(homes, sizes.lazy(), plan.match, written.public, total=total, what=what)]


def _compared(
    homes: pl.DataFrame, written: pl.LazyFrame, variables: Sequence[str], folder: Path, *, total: int, what: str
) -> Check:
    if total != homes.height:
        raise failed(f"{what}: they do not add up to the records")
    if homes.height > ROWS_IN_ONE_FILE:
        return not_done(what, limit=ROWS_IN_ONE_FILE, of="records")
    cells = written.collect()
    if not _same_cells(homes, cells, variables, format_="parquet", folder=folder):
        raise failed(f"{what}: they differ")
    return Check(what=what, cells=cells.height)
