"""The file of an attacker who looks for persons in a release: simulated from the confidential persons, or a real one.

Each row has the area and what is known of a person, and which confidential person that is (``PERSON``, a row number;
missing for somebody who is not among them). The last is never used to match, only to say afterwards who was right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import encode
from stirred.data.microdata import missing_column
from stirred.data.problems import DataError, bad_plan, listed, number
from stirred.randomness.entropy import Entropy
from stirred.spec.problems import Problem

_Array = npt.NDArray[Any]
PERSON: Final = "__person"
AGE: Final = "age"
_RECODE: Final = "write the codes of that file"
_YEARS: Final = 5  # a wrong age is off by one to so many years


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerColumns:
    """What an attacker knows of a person, and wants to learn: names of columns.

    ``within`` are the columns of a larger area, such as the tract: who replaces a person comes from there.
    """

    area: tuple[str, ...] = ("block",)
    known: tuple[str, ...] = ("sex", AGE)
    learn: tuple[str, ...] = ("race", "hispanic")
    within: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns that a person is looked for by."""
        return (*self.area, *self.known)


def attackers_file(
    truth: pl.DataFrame,
    asked: AttackerColumns | None = None,
    *,
    coverage: float = 1.0,
    age_error: float = 0.0,
    address_error: float = 0.0,
    seed: int = 1,
) -> pl.DataFrame:
    """Return the file of an attacker who has a share of the persons, some with a wrong age or area.

    A wrong age is off by one to five years, up or down; a wrong area is that of a person of another area, drawn at
    random. The same seed makes the same file: nothing of this is published, and no protection rests on it.

    >>> people = pl.DataFrame({"block": [1, 1, 2], "sex": [1, 2, 1], "age": [4, 50, 7]})
    >>> attackers_file(people).rows()
    [(1, 1, 4, 0), (1, 2, 50, 1), (2, 1, 7, 2)]
    >>> [row[0] for row in attackers_file(people, address_error=1.0).rows()]
    [2, 2, 1]
    """
    asked = asked or AttackerColumns()
    for name, share in (("coverage", coverage), ("age error", age_error), ("address error", address_error)):
        if not 0 <= share <= 1:
            raise bad_plan(f"{share} is not a share", where=name, remedy="write a number from 0 to 1")
    if age_error and not (AGE in asked.known and truth[AGE].dtype.is_integer()):
        raise bad_plan("there is no age in whole years to be wrong", where="age error", remedy="leave it out")
    entropy = Entropy.from_seed(f"the file of an attacker, {seed}")
    lots = {name: _lots(entropy, name, truth.height) for name in ("covered", "moved", "where", "aged", "years")}
    file = truth.select(asked.keys).with_row_index(PERSON).select(*asked.keys, pl.col(PERSON).cast(pl.Int64))
    if address_error:
        moved = file.select(asked.area)[_elsewhere(file, asked, lots["where"])]
        file = _where(file, moved, lots["moved"] < address_error)
    if age_error:
        age = truth[AGE].to_numpy().astype(np.int64)
        years = np.array([*range(-_YEARS, 0), *range(1, _YEARS + 1)])[(lots["years"] * 2 * _YEARS).astype(np.int64)]
        wrong = pl.Series(AGE, np.where(age + years < 0, age - years, age + years)).cast(truth[AGE].dtype)
        file = _where(file, wrong.to_frame(), lots["aged"] < age_error)
    return file.filter(pl.Series(lots["covered"] < coverage))


def _lots(entropy: Entropy, purpose: str, count: int) -> _Array:
    """Return numbers from 0 to below 1, to 32 binary places: a share of 1 takes all, one of 0 none."""
    return entropy.words(purpose, chunk=0, count=count) / 2.0**32


def _where(file: pl.DataFrame, other: pl.DataFrame, wrong: _Array) -> pl.DataFrame:
    return file.with_columns(other[name].zip_with(pl.Series(wrong), file[name]) for name in other.columns)


def _elsewhere(file: pl.DataFrame, asked: AttackerColumns, lots: _Array) -> _Array:
    """Return for every person the row of one of another area, all of them equally likely; their own in a single one."""
    area = encode(file, [*asked.area]).codes
    order = np.argsort(area, kind="stable")
    size = np.bincount(area)
    begin = (np.cumsum(size) - size)[area]
    others = file.height - size[area]
    place = (lots * others).astype(np.int64)
    place += np.where(place >= begin, size[area], 0)
    return np.where(others > 0, order[np.minimum(place, file.height - 1)], np.arange(file.height))


def given_attacker(
    file: pl.DataFrame, truth: pl.DataFrame, ids: pl.DataFrame, asked: AttackerColumns, *, where: str
) -> pl.DataFrame:
    """Return an attacker's real file; ``ids`` are columns that together say who each confidential person is.

    Columns get the types of the confidential ones. Who lacks a value of a key is counted, and matches nobody.
    """
    wanted = dict.fromkeys((*asked.keys, *ids.columns))
    problems = [missing_column(name, file.columns, where=where, role="a key") for name in wanted if name not in file]
    if not file.height:
        problems.append(Problem(what="it has no rows", where=where, remedy="give one row for each person"))
    if problems:
        raise DataError(problems)
    kinds = {name: truth.schema[name] if name in asked.keys else ids.schema[name] for name in wanted}
    cast = file.select(pl.col(name).cast(kind, strict=False) for name, kind in kinds.items())
    for name, kind in kinds.items():
        if lost := cast[name].null_count() - file[name].null_count():
            what = f"{number(lost, 'value')} cannot be read as {kind}, as the confidential file has them"
            problems.append(Problem(what=what, where=f'{where} "{name}"', remedy=_RECODE))
    called = listed(ids.columns)
    for whose, who in ((where, cast.select(ids.columns).drop_nulls()), ("the confidential persons", ids)):
        if twice := who.height - who.n_unique():
            what = f"{number(twice, 'row has', 'rows have')} an id that occurs before ({called})"
            problems.append(Problem(what=what, where=whose, remedy="name with --id columns that tell persons apart"))
    found = cast.join(ids.with_row_index(PERSON), on=ids.columns, how="left", maintain_order="left")
    if not problems and found[PERSON].null_count() == found.height:
        what, remedy = f"none of its ids ({called}) is that of a confidential person", "write the ids of that file"
        problems.append(Problem(what=what, where=where, remedy=remedy))
    if not problems:
        strange = unknown_values(cast, truth, asked)
        # In other codes nobody would match, which reads like perfect protection.
        problems += [
            Problem(what="no value is one of the confidential file", where=f'{where} "{name}"', remedy=_RECODE)
            for name, many in strange.items()
            if many == cast.height - cast[name].null_count()
        ]
    if problems:
        raise DataError(problems)
    return found.select(*asked.keys, pl.col(PERSON).cast(pl.Int64))


def unknown_values(file: pl.DataFrame, truth: pl.DataFrame, asked: AttackerColumns) -> dict[str, int]:
    """Return in how many rows of an attacker's file a key has a value that no confidential person has.

    >>> people = pl.DataFrame({"block": [1, 2], "sex": [1, 2], "age": [4, 50]})
    >>> unknown_values(people.with_columns(block=pl.Series([1, 7])), people, AttackerColumns())
    {'block': 1}
    """
    many = {name: file[name].drop_nulls().is_in(truth[name].unique().implode()).not_().sum() for name in asked.keys}
    return {name: int(each) for name, each in many.items() if each}
