"""Where a person's own record went in a release, and the attack on tables with the person replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.uniqueness import SUMS, with_persons
from stirred.randomness.entropy import Entropy
from stirred.risk.areas import AREAS, RECORDS, Progress, reconstruct_areas
from stirred.risk.attackers import PERSON, AttackerColumns
from stirred.risk.reidentification import VULNERABLE, LinkSums, Reidentified, kinds_of_persons, reidentify
from stirred.risk.subject import Subject
from stirred.risk.table_lists import cells_of

_Array = npt.NDArray[Any]
_ORIGIN: Final = "__origin"
ONE_EACH: Final = "one nonmodal unique in each area"


def paired(of: _Array, to: _Array) -> _Array:
    """Return for each number a place among others where it stands too, each used once; -1 where none is left.

    >>> paired(np.array([7, 7, 3, 9]), np.array([3, 7])).tolist()
    [1, -1, 0, -1]
    """

    def numbered(codes: _Array) -> _Array:
        order = np.argsort(codes, kind="stable")
        first = np.flatnonzero(np.diff(codes[order], prepend=-1))
        begin = np.repeat(first, np.diff(first, append=codes.size))
        rank = np.empty(codes.size, dtype=np.int64)
        rank[order] = np.arange(codes.size) - begin
        return codes.astype(np.int64) * (max(of.size, to.size) + 1) + rank

    mine, theirs = numbered(of), numbered(to)
    order = np.argsort(theirs)
    at = np.minimum(np.searchsorted(theirs, mine, sorter=order), max(to.size - 1, 0))
    return np.where(theirs[order][at] == mine, order[at], -1) if to.size else np.full(of.size, -1)


def origins(released: Microdata, truth: Microdata, exchanged: Sequence[str]) -> _Array:
    """Return for each released person the row of the confidential one; -1 where nobody has these values.

    A swap leaves all columns of a household and its persons as they are, but those exchanged: by them each released
    household is found in the truth. Of households that are equal in all of them, one of the same area comes first.
    """
    homes = [name for name in released.variables if name in truth.variables]
    people = [name for name in released.person_variables if name in truth.person_variables]
    if people:
        assert truth.persons is not None
        kinds = {name: truth.persons[name].dtype for name in people}
        typed = select(released.persons, [released.hid or "", *people]).cast(kinds)  # type: ignore[arg-type]
        released = replace(released, persons=typed, id=())
    frames = [with_persons(each, people) if people else each.households for each in (released, truth)]
    keys = [*homes, *(name for name in frames[1].columns if name in SUMS)]
    both = pl.concat(each.select(pl.col(name).cast(frames[1].schema[name]) for name in keys) for each in frames)
    held = [name for name in keys if name not in exchanged]
    house = _twice_paired(encode(both, keys).codes, encode(both, held).codes, released.households.height)
    if not people:
        return house
    values = encode(pl.concat(select(each.persons, people) for each in (released, truth)), people).codes  # type: ignore[arg-type]
    home = np.concatenate([house[household_rows(released)], household_rows(truth)])
    codes = home * np.int64(values.max(initial=0) + 1) + values
    at = len(codes) - household_rows(truth).size
    # Who lives in a household that nobody has is paired with nobody, and takes nobody's place.
    return paired(np.where(home[:at] < 0, codes.max(initial=0) + 1, codes[:at]), codes[at:])


def _twice_paired(exact: _Array, held: _Array, at: int) -> _Array:
    """Pair what is equal in everything first, then what is equal in what is held."""
    found = paired(exact[:at], exact[at:])
    left, free = np.flatnonzero(found < 0), np.setdiff1d(np.arange(exact.size - at), found)
    again = paired(held[:at][left], held[at:][free])
    found[left[again >= 0]] = free[again[again >= 0]]
    return found


def replaced_in_tables(
    truth: pl.DataFrame,
    released: pl.DataFrame,
    origin: _Array,
    *,
    asked: AttackerColumns,
    attacker: pl.DataFrame,
    records: pl.DataFrame,
    folder: Path,
    progress: Progress | None = None,
) -> LinkSums:
    """Attack the tables of one vulnerable person in each area again, with the values of somebody of the larger area.

    ``released`` are the persons whose tables were published, ``origin`` their rows of the truth, and ``records`` what
    was reconstructed from these tables. A record that was released elsewhere leaves the person's area as it is.
    """
    lots = Entropy.from_seed("whom to replace").words("lots", chunk=0, count=attacker.height + truth.height) / 2.0**32
    file = attacker.with_columns(lot=lots[: attacker.height]).filter(pl.col(PERSON).is_not_null())
    file = file.filter(pl.Series(kinds_of_persons(truth, asked)[VULNERABLE])[file[PERSON].to_numpy()])
    chosen = file.sort("lot").unique(asked.area, keep="first", maintain_order=True)
    person = chosen[PERSON].to_numpy()
    place = np.full(truth.height, -1, dtype=np.int64)
    place[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
    row = place[person]
    there = released.select(asked.area)[np.maximum(row, 0)]
    same = chosen.select(pl.col(name) == there[name] for name in asked.area).to_numpy().all(axis=1)
    inside = (row >= 0) & same

    def attacked(pool: pl.DataFrame, targets: _Array) -> LinkSums:
        found = reidentify(truth, pool, asked=asked, attacker=attacker, count="persons", targets=targets.tolist())
        return found["all"]

    whole = replace(attacked(records, person), name=ONE_EACH)
    if not inside.any():
        return replace(whole, replaced=whole.confirmed)
    values = truth.select(asked.learn)[_somebody_else(truth, asked, lots[attacker.height :])[person[inside]]]
    changed = _with_values(released, row[inside], values).join(chosen.filter(inside), on=asked.area, how="semi")
    cells = cells_of(changed, where="the released persons")
    reconstruct_areas(cells, changed.select(asked.area), tables="sf", folder=folder, progress=progress)
    again = attacked(pl.read_parquet(folder / RECORDS), person[inside]).confirmed
    return replace(whole, replaced=whole.confirmed - attacked(records, person[inside]).confirmed + again)


def _somebody_else(truth: pl.DataFrame, asked: AttackerColumns, lots: _Array) -> _Array:
    """Return for every person the next one of the larger area, in an order by lot: all others are equally likely."""
    area = encode(truth, [*asked.within]).codes.astype(np.int64)
    order = np.lexsort((lots, area))
    first = np.flatnonzero(np.diff(area[order], prepend=-1))
    after, found = np.roll(order, -1), np.empty_like(order)
    after[np.roll(first, -1) - 1] = order[first]
    found[order] = after
    return found


def _with_values(frame: pl.DataFrame, rows: _Array, values: pl.DataFrame) -> pl.DataFrame:
    at = np.arange(frame.height)
    at[rows] = frame.height + np.arange(rows.size)
    return frame.with_columns(
        pl.concat([frame[name], values[name].cast(frame.schema[name])])[at] for name in values.columns
    )


def reidentify_release(
    subject: Subject,
    true: Subject,
    *,
    asked: AttackerColumns,
    attacker: pl.DataFrame,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Reidentified:
    """Match an attacker's file to released records, or to those reconstructed from their tables in ``folder``.

    The person is replaced where it is known which record is whose: in the confidential file itself, and where a swap
    exchanged areas. Otherwise run the mechanism again on a file with other values, and match to that.
    """
    truth, released = true.persons, subject.persons
    if subject is true:
        origin: _Array | None = np.arange(truth.height)
    else:
        origin = origins(subject.data, true.data, subject.exchanged) if subject.exchanged else None
    if folder is None:
        pool = released if origin is None else released.with_columns(pl.Series(_ORIGIN, origin))
        name = None if origin is None else _ORIGIN
        return reidentify(truth, pool, asked=asked, attacker=attacker, origin=name)
    records, areas = pl.read_parquet(folder / RECORDS), pl.read_parquet(folder / AREAS)
    one = areas.filter(pl.col("outcome") == "one")
    found = reidentify(truth, records, asked=asked, attacker=attacker, count="persons", one_solution=one)
    if origin is None:
        return found
    again = replaced_in_tables(
        truth, released, origin, asked=asked, attacker=attacker, records=records,
        folder=folder / "internal" / "replaced", progress=progress,
    )  # fmt: skip
    return Reidentified(strata=(*found.strata, again))
