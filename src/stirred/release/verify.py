"""Read back what was written and check, exactly, that both invariant tables are those of the input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata
from stirred.mechanisms.swapping.permutation import PermutationSwap, SwapPlan
from stirred.mechanisms.swapping.persons import person_fingerprints
from stirred.spec.problems import Problem, StirredError


class VerificationError(StirredError):
    """A release that does not have the invariants it must have: a fault of ours, and the bundle is destroyed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked on the files as written."""

    what: str
    cells: int


def verify_swap(
    data: Microdata, mechanism: PermutationSwap, plan: SwapPlan, folder: Path, *, format_: str
) -> list[Check]:
    """Compare the released files with the input on match x swap and on all of hold, persons included."""
    released = read_frame(folder / f"data.{format_}")
    persons = read_frame(folder / f"persons.{format_}") if data.persons is not None else None
    original = data.households
    if format_ == "csv":  # CSV knows only text; what is compared is what a reader gets
        original = original.select(pl.all().cast(pl.String))
    out = Microdata(households=released, persons=persons, hid=data.hid if persons is not None else None)
    checks = [
        _same(
            "match x swap table",
            original.select(*mechanism.match, *mechanism.swap),
            released.select(*mechanism.match, *mechanism.swap),
        ),
        _same(
            "table of all hold variables, persons included" if persons is not None else "table of all hold variables",
            _held(original, plan, _cast_persons(data, format_), data),
            _held(released, plan, out, data),
        ),
    ]
    if persons is not None:
        checks.append(_persons_follow(out, mechanism))
    return checks


def _cast_persons(data: Microdata, format_: str) -> Microdata:
    if format_ != "csv" or data.persons is None:
        return data
    return Microdata(
        households=data.households.select(pl.all().cast(pl.String)),
        persons=data.persons.select(pl.all().cast(pl.String)),
        hid=data.hid,
        id=data.id,
    )


def _held(frame: pl.DataFrame, plan: SwapPlan, data: Microdata, original: Microdata) -> pl.DataFrame:
    held = frame.select(list(plan.hold))
    if data.persons is None or data.hid is None:
        return held
    # The same person columns on both sides: those that the release carries.
    kept = [name for name in original.person_variables if name in data.persons.columns]
    slim = Microdata(
        households=data.households.select(data.hid), persons=data.persons.select(data.hid, *kept), hid=data.hid
    )
    prints = person_fingerprints(slim)
    assert prints is not None
    return held.with_columns(prints)


def _same(what: str, before: pl.DataFrame, after: pl.DataFrame) -> Check:
    columns = before.columns
    first = before.group_by(columns).agg(pl.len().alias("__before"))
    second = after.select(columns).group_by(columns).agg(pl.len().alias("__after"))
    try:
        both = first.join(second, on=columns, how="full", nulls_equal=True, coalesce=True)
    except pl.exceptions.PolarsError as error:
        raise _failed(f"the {what} cannot be compared ({str(error).splitlines()[0]})") from None
    wrong = both.filter(pl.col("__before").ne_missing(pl.col("__after"))).height
    if wrong:
        raise _failed(f"{wrong:,} of {both.height:,} cells of the {what} differ from the input")
    return Check(what=what, cells=both.height)


def _persons_follow(out: Microdata, mechanism: PermutationSwap) -> Check:
    """Check that every person has a household and carries its released swap values."""
    assert out.persons is not None
    assert out.hid is not None
    problems = out.disagreements(list(mechanism.swap))
    if problems:
        raise _failed(f"released persons and households disagree: {problems[0].what}")
    return Check(what="swap values of persons and their households", cells=out.persons.height)


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
