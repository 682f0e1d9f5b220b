"""Lists of tables that are published for every block, and the cells of persons that they count.

A schema numbers all kinds of persons that tables can tell apart; a table puts each kind into a category, or leaves it
out (-1). ``pl`` is like the redistricting data: adults or children by race and Hispanic origin. ``sf`` is like a
summary file: it adds sex by age, single years under 20, and sex by age for seven race groups, for Hispanics and for
White persons who are not Hispanic. Race has the 63 codes of the decennial census; 1 to 6 are one race alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import DataError, listed
from stirred.spec.problems import Problem

_Array = npt.NDArray[Any]
COLUMNS: Final = ("sex", "age", "race", "hispanic")
RACES: Final = 63
# Single years up to 19, then the first years of the age groups of the summary file.
AGES: Final = (*range(20), 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85)
# The same for its tables of sex by age.
GROUPS: Final = (0, 5, 10, 15, 18, *AGES[20:])
CELLS: Final = 2 * len(AGES) * RACES * 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableList:
    """Tables by name: the category of every cell in each. ``project`` gives the cell of a person of the full schema.

    ``codes`` are the values of the variables where the schema is not that of the census lists: its kinds of persons are
    their combinations.
    """

    name: str
    schema: str
    cells: int
    project: _Array
    tables: Mapping[str, _Array]
    codes: Mapping[str, tuple[str, ...]] | None = None

    def counts(self, cells: _Array) -> dict[str, _Array]:
        """Return what is published of some persons: the count of every category of every table."""
        found = {}
        for name, category in self.tables.items():
            own = category[cells]
            found[name] = np.bincount(own[own >= 0], minlength=int(category.max()) + 1)
        return found

    def described(self, cells: _Array) -> pl.DataFrame | None:
        """Return kinds of persons as columns; None where a cell is more than one kind."""
        if self.codes is None:
            return described(cells) if self.cells == CELLS else None
        kinds = np.argsort(self.project, kind="stable")[cells]  # of every cell its combination: what is none comes last
        shape = tuple(len(own) for own in self.codes.values())
        places = np.unravel_index(kinds, shape) if shape else ()
        return pl.DataFrame(
            {name: np.array(own)[at] for (name, own), at in zip(self.codes.items(), places, strict=True)}
        )


@cache
def parts() -> tuple[_Array, _Array, _Array, _Array]:
    """Return sex (0 or 1), place of the age, race (from 0) and Hispanic origin of every cell of the full schema."""
    found = np.unravel_index(np.arange(CELLS), (2, len(AGES), RACES, 2))
    return found[0], found[1], found[2], found[3]


@cache
def table_list(name: str) -> TableList:
    """Return the list of this name: ``pl`` or ``sf``.

    >>> [(each, table_list(each).cells, len(table_list(each).tables)) for each in ("pl", "sf")]
    [('pl', 252, 1), ('sf', 9576, 12)]
    """
    sex, age, race, hispanic = parts()
    years = np.array(AGES)[age]
    adult = (years >= 18).astype(np.int64)
    redistricting = np.ravel_multi_index((adult, hispanic, race), (2, 2, RACES))
    if name == "pl":
        own = np.arange(2 * 2 * RACES)
        schema = "adult or child x Hispanic origin x race, 252 kinds of persons"
        return TableList(name="pl", schema=schema, cells=own.size, project=redistricting, tables={"P1-P4": own})
    by_age = sex * len(GROUPS) + np.searchsorted(GROUPS, years, side="right") - 1
    group = np.minimum(race, 6)  # each race alone, and two or more
    tables = {"P1-P4": redistricting, "P12": by_age, "P14": np.where(years < 20, sex * 20 + np.minimum(years, 19), -1)}
    tables |= {f"P12{letter}": np.where(group == place, by_age, -1) for place, letter in enumerate("ABCDEFG")}
    tables |= {"P12H": np.where(hispanic == 1, by_age, -1)}
    tables |= {"P12I": np.where((group == 0) & (hispanic == 0), by_age, -1)}
    schema = "sex x 38 ages x 63 races x Hispanic origin, 9,576 kinds of persons"
    return TableList(name="sf", schema=schema, cells=CELLS, project=np.arange(CELLS), tables=tables)


LISTS: Final = ("pl", "sf")
_OR_OWN: Final = ", or name tables of your own: --table 'sex x age'"


def cells_of(frame: pl.DataFrame, *, where: str) -> _Array:
    """Return the cell of every person in the full schema; refuse columns and codes that it does not have."""
    lacking = [name for name in COLUMNS if name not in frame.columns]
    if lacking:
        what = f"there is no column {listed(lacking)}"
        remedy = f"write sex (1, 2), age in years, race (1 to 63) and hispanic (0, 1) of every person{_OR_OWN}"
        raise DataError([Problem(what=what, where=where, remedy=remedy)])
    numbers = frame.select(pl.col(COLUMNS).cast(pl.Int64, strict=False))
    ranges = {"sex": (1, 2), "age": (0, 150), "race": (1, RACES), "hispanic": (0, 1)}
    problems = []
    for name, (low, high) in ranges.items():
        wrong = int((~numbers[name].is_between(low, high).fill_null(value=False)).sum())
        if wrong:
            what = f"{wrong:,} values are not whole numbers from {low} to {high}"
            problems.append(
                Problem(
                    what=what, where=f'{where} "{name}"', remedy=f"recode it ([[prepare]] steps of a plan){_OR_OWN}"
                )
            )
    if problems:
        raise DataError(problems)
    sex, age, race, hispanic = (numbers[name].to_numpy() for name in COLUMNS)
    place = np.searchsorted(AGES, age, side="right") - 1
    return np.ravel_multi_index((sex - 1, place, race - 1, hispanic), (2, len(AGES), RACES, 2))


def described(cells: _Array) -> pl.DataFrame:
    """Return the kinds of persons of cells of the full schema as columns; an age is the first year of its group."""
    sex, age, race, hispanic = (each[cells] for each in parts())
    return pl.DataFrame({"sex": sex + 1, "age_from": np.array(AGES)[age], "race": race + 1, "hispanic": hispanic})
