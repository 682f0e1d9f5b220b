"""Doubts about identifiers: a column that nobody named as one, and one that stands in several records.

Both look inside the confidential file: they are for the custodian, and stand in no public file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from stirred.data.codes import all_different, tells_records_apart
from stirred.data.columns import select
from stirred.data.microdata import Microdata
from stirred.data.problems import number

# So many persons show of nearly every column that it tells them not apart.
_GLANCE: Final = 1_000
# Of so many persons the numbers inside their households are compared.
_LOOKED_AT: Final = 2_000_000


def identifier_doubts(data: Microdata, hold: Sequence[str], *, unit: str) -> Iterator[str]:
    """Warn of released columns that look like identifiers, and of identifiers that look like none."""
    yield from (_looks_like_one(name, of) for name, of in unnamed_identifiers(data, hold))
    yield from repeated_ids(data, unit=unit)


def unnamed_identifiers(data: Microdata, hold: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield released columns that tell every record apart, and of what: often identifiers that nobody named as one."""
    for name in hold:
        if tells_records_apart(data.households[name]):
            yield name, "record"
    if data.persons is None:
        return
    first = data.persons.head(_GLANCE)
    for name in data.person_variables:
        if all_different(first[name]) and tells_records_apart(data.persons[name]):
            yield name, "person"


def _looks_like_one(name: str, of: str) -> str:
    return (
        f'"{name}" is different for every {of} and will be released as it is: if it is an identifier, name it with '
        f"--id {name}"
    )


def repeated_ids(data: Microdata, *, unit: str) -> Iterator[str]:
    """Warn where records share their identifiers: the promise is for one record, and not for all that a unit has.

    Other identifiers than that of the record, such as an address, may be shared. So may the number of a person
    inside the household.
    """
    own = [data.households[name] for name in data.identifiers if name in data.households.columns]
    if not any(all_different(column) for column in own):
        yield from (_repeated(column.name, column, of=unit) for column in own)
    if data.persons is None or data.hid is None:
        return
    of_persons = [name for name in data.id if name in data.persons.columns and name not in data.households.columns]
    columns = {name: data.persons[name] for name in of_persons}
    if any(all_different(column) for column in columns.values()):
        return
    for name, column in columns.items():
        # One that seldom recurs is meant for the whole file, any other for the household.
        if 2 * column.n_unique() > len(column):
            yield _repeated(name, column, of="person")
            continue
        # Pairs take many times the memory of a column; whoever numbers persons twice does so from the beginning.
        inside = select(data.persons.head(_LOOKED_AT), [data.hid, name]).to_struct()
        if inside.is_duplicated().any():
            yield _repeated(name, inside, of="person", place=" inside a household")


def _repeated(name: str, values: pl.Series, *, of: str, place: str = "") -> str:
    records = number(int((values.is_duplicated() & values.is_not_null()).sum()), "record")
    return (
        f'"{name}" is repeated in {records}{place}: are they the same {of}? What is promised is for one record, and '
        f"holds for a {of} only where it has one. This is no error, because some identifiers may recur, such as an "
        f"address"
    )
