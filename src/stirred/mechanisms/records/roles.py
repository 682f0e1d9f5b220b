"""The roles of a file's columns in a swap, as settings give them: which are matched, swapped, held, and dropped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from stirred.data.columns import has_text
from stirred.data.microdata import Microdata, missing_column, null_problem
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import Names, Rate, Settings
from stirred.spec.problems import Problem

SwapRate = Annotated[
    Rate,
    Field(
        description='The swap rate, exact in each form: "1/20", "5%" or 0.05.', json_schema_extra={"example": "1/20"}
    ),
]
OtherRates = Annotated[
    list[dict[str, Any]],
    Field(
        description="Other rates, each with the values it applies to, of match variables; the last that fits wins.",
        json_schema_extra={"example": [{"size": 1, "rate": "1/10"}]},
    ),
]


class SwapSettings(Settings):
    """The roles of columns."""

    match: Names = Field(
        default=[],
        description="Variables that exchanging records must share; may be empty.",
        json_schema_extra={"example": ["size"]},
    )
    swap: Names = Field(
        description="Variables that are exchanged, all together, such as the geography.",
        json_schema_extra={"example": ["county"]},
    )
    hold: Names | None = Field(
        default=None,
        description="Other variables to release; default all. If given, everything unnamed is dropped.",
        json_schema_extra={"example": ["tenure"]},
    )

    @property
    def matched(self) -> tuple[str, ...]:
        """Return the variables that exchanging records share."""
        return tuple(self.match)

    @abstractmethod
    def law(self) -> Any:
        """Return the law of the exchanges, with exact numbers; refuse settings that are none."""

    def steps(self) -> tuple[Any, ...]:
        """Return what is done before or after the exchange (``law.SwapStep``)."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What a swap does with the columns of a file.

    ``hold`` begins with the match variables. ``dropped`` is for readers: what is not released as it is. ``columns``
    are those the promise is about, if the file has others than these and its identifiers; empty otherwise.
    """

    hold: tuple[str, ...]
    dropped: tuple[str, ...]
    columns: tuple[str, ...]


def check_names(*, matched: Sequence[str], swap: Sequence[str], hold: Sequence[str] | None) -> None:
    """Refuse settings that swap nothing or give a variable two roles."""
    if not swap:
        raise bad_plan("nothing is swapped", where="swap", remedy="name at least one variable, such as county")
    named = [*matched, *swap, *(n for n in hold or () if n not in matched)]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise bad_plan(
            f"{listed(twice)} has two roles",
            where="match, swap, hold",
            remedy="a variable is either swapped or held; match variables are held",
        )


def roles_in(
    data: Microdata,
    *,
    matched: Sequence[str],
    swap: Sequence[str],
    hold: Sequence[str] | None,
    unit: str,
    further: Sequence[Problem] = (),
) -> Roles:
    """Return the roles of a file's columns; raise all problems at once, ``further`` ones among them.

    ``hold`` is None where everything else is held.
    """
    problems = [*_named_problems(data, matched, swap, hold or ())]
    wanted = hold if hold is not None else [n for n in data.variables if n not in swap]
    columns = data.households.columns
    held = tuple(n for n in dict.fromkeys((*matched, *wanted)) if n in columns or n not in data.person_variables)
    for name in held:
        if name in columns and name not in matched:
            problems += _type_problems(data.households[name], source=data.household_source, role="hold")
    for name in data.person_variables:
        assert data.persons is not None
        problems += _type_problems(data.persons[name], source=data.person_source, role="person")
    if not problems:
        problems += data.disagreements(columns)
    if data.persons is not None and unit == "person":
        raise bad_plan(
            "with persons inside the records the unit is the household, not the person",
            where="what a record is",
            remedy="leave record under [data], or unit, out; or let it say what a row of the household file is",
        )
    if problems := [*problems, *further]:
        raise DataError(problems)
    released = {*held, *swap}
    dropped = tuple(
        f"{n} (re-issued)" if n == data.hid and data.persons is not None else n for n in columns if n not in released
    )
    return Roles(
        hold=held, dropped=(*dropped, *data.dropped_person_columns), columns=_columns_of_the_promise(data, released)
    )


def _named_problems(
    data: Microdata, matched: Sequence[str], swap: Sequence[str], hold: Sequence[str]
) -> Iterator[Problem]:
    columns, source = data.households.columns, data.household_source
    for role, names in (("match", matched), ("swap", swap), ("hold", hold)):
        for name in names:
            if name in data.identifiers:
                yield Problem(
                    what=f'"{name}" is an identifier and cannot be a {role} variable',
                    where=source,
                    remedy=f"remove it from {role}, or from id",
                )
            elif name not in columns and not (role == "hold" and name in data.person_variables):
                yield missing_column(name, columns, where=source, role=role)
            elif role != "hold" and name in columns:
                yield from _type_problems(data.households[name], source=source, role=role)
                if (missing := null_problem(data.households[name], source=source, role=role)) is not None:
                    yield missing


def _columns_of_the_promise(data: Microdata, released: set[str]) -> tuple[str, ...]:
    """Return the columns that the promise is about, if the file has others than these and its identifiers."""
    known = {*released, *data.identifiers, *data.person_variables}
    of_persons = () if data.persons is None else data.persons.columns
    if all(name in known for name in (*data.households.columns, *of_persons)):
        return ()
    return (*sorted(released), *(f"person {name}" for name in sorted(data.person_variables)))


def _type_problems(column: pl.Series, *, source: str, role: str) -> list[Problem]:
    if not has_text(column.dtype):
        return [
            Problem(
                what=f"values of type {column.dtype} cannot be used as a {role} variable",
                where=f'{source} "{column.name}"',
                remedy="store it as text, whole numbers, dates or true/false",
            )
        ]
    if role == "match" and column.dtype.is_float():
        return [
            Problem(
                what="a match variable must hold codes that records share, and this column holds decimals "
                f"({column.dtype}): few records would have a partner",
                where=f'{source} "{column.name}"',
                remedy="turn it into classes or whole numbers first; decimals can be swapped and held",
            )
        ]
    return []
