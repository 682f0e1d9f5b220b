"""Whom a release exposes by what it publishes exactly: uniqueness on the tables that its specification fixes.

A margin of the multiverse is a table of records that leaves as it is. Whoever is alone in it can be found there by
anybody who knows these values, whatever was done to the others. Which tables these are is read from the specification,
so it holds for every mechanism, for a plan as for a published bundle; the number is a function of what is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

from stirred.data.codes import encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.uniqueness import Uniqueness, uniqueness
from stirred.spec.doubts import Doubt
from stirred.spec.invariant import ALL, Margin, plural
from stirred.spec.number_text import percent
from stirred.spec.specification import Specification

# Of larger files a plan and a report do not count: `stirred risk` does.
MOST_RECORDS: Final = 20_000_000
# Above this share of unique records a release of records needs a person's word, where no policy says another.
MOST_EXPOSED: Final = Fraction(1, 3)
EXPOSED: Final = "exposed"
SUMS: Final = ("__persons_1", "__persons_2", "__persons")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactTable:
    """A table of records that is published exactly: whose records, by which columns, with or without their persons."""

    of: str
    keys: tuple[str, ...]
    person_keys: tuple[str, ...] = ()
    by_persons: bool = False  # whether the records are the persons themselves


def exact_tables(specification: Specification, data: Microdata) -> Iterator[ExactTable]:
    """Yield the tables that a specification fixes and that are made of a file's columns, the finest ones.

    Totals of areas (margins with a level) say nothing of what records are like, and are left out.
    """
    homes, people = data.variables, data.person_variables
    found = []
    for margin in specification.multiverse.invariants:
        if not isinstance(margin, Margin) or margin.level is not None:
            continue
        named = homes if ALL in margin.variables else margin.variables
        keys = tuple(name for name in named if name in homes)
        if margin.of == "person" and people:
            own = tuple(name for name in named if name in people)
            found.append(ExactTable(of="persons", keys=(*keys, *own), by_persons=True))
        elif margin.of in (data.record, specification.input_premetric.unit):
            inside = tuple(people) if margin.includes else ()
            found.append(ExactTable(of=plural(margin.of), keys=keys, person_keys=inside))
    for table in found:
        columns = {*table.keys, *table.person_keys}
        others = [each for each in found if each.by_persons == table.by_persons]
        if columns and not any(columns < {*each.keys, *each.person_keys} for each in others):
            yield table


def exposure(
    specification: Specification, data: Microdata, *, exchanged: Sequence[str] = ()
) -> tuple[Uniqueness, ExactTable] | None:
    """Return the exact table that exposes most, with the uniqueness on it; None where no table is exact.

    It is the one in which most records are alone, or where none are, in which most would be found. Tables with columns
    that are ``exchanged`` come last: who is alone there stands as a 1 in a table, and the record beside it may be
    another's.

    >>> from stirred.spec import catalogue
    >>> data = Microdata(households=pl.DataFrame({"size": [1, 2]}))
    >>> exposure(catalogue.load("pure-dp").specification, data) is None
    True
    """
    tables = [*exact_tables(specification, data)]
    stays = [each for each in tables if not {*each.keys} & {*exchanged}]
    found = [(unique_in(data, table), table) for table in stays or tables]
    return max(found, key=lambda each: _exposes(each[0]), default=None)


def _exposes(found: Uniqueness) -> tuple[float, float]:
    many = max(found.records, 1)
    return found.unique / many, found.expected_matches / many


def unique_in(data: Microdata, table: ExactTable, *, weight: str | None = None) -> Uniqueness:
    """Return the uniqueness of the records of an exact table."""
    if table.by_persons:
        return uniqueness(of_persons(data), table.keys, of=table.of, weight=weight)
    if not table.person_keys:
        return uniqueness(data.households, table.keys, of=table.of, weight=weight)
    frame = with_persons(data, table.person_keys)
    named = (*table.keys, *table.person_keys)
    found = uniqueness(frame, (*table.keys, *SUMS), of=table.of, hidden=SUMS, weight=weight)
    return replace(found, keys=named)


def with_persons(data: Microdata, columns: Sequence[str]) -> pl.DataFrame:
    """Return the households with numbers that are equal where their persons are, in any order.

    These are sums over the persons of two hashes of 64 bits with different seeds, and their number: two households
    with different persons agree by chance once in about 10^38 pairs.
    """
    assert data.persons is not None
    house = household_rows(data)
    people = select(data.persons, list(columns))
    sums = [np.zeros(data.households.height, dtype=np.uint64) for _ in range(2)]
    for number, total in enumerate(sums):
        np.add.at(total, house, people.hash_rows(seed=number + 1).to_numpy())
    counted = np.bincount(house, minlength=data.households.height)
    return data.households.with_columns(
        pl.Series(name, values) for name, values in zip(SUMS, (*sums, counted), strict=True)
    )


def person_code(data: Microdata, columns: Sequence[str]) -> pl.Series:
    """Return the persons of each household as one column, ``persons``: equal where all of them are."""
    sums = with_persons(data, columns).select(SUMS)
    taken = {*data.households.columns}
    name = next(name for name in ("persons", "its persons", "all persons inside") if name not in taken)
    return pl.Series(name, encode(sums, list(SUMS)).codes)


def of_persons(data: Microdata) -> pl.DataFrame:
    """Return the persons with the columns of their household."""
    assert data.persons is not None
    homes = data.households.select(data.variables)[household_rows(data)]
    return homes.hstack(select(data.persons, data.person_variables))


def exposed_in_words(found: Uniqueness) -> str:
    """Say in one line whom a release exposes by what it publishes exactly.

    >>> exposed_in_words(uniqueness(pl.DataFrame({"size": [1, 1, 2]}), ["size"], of="households"))
    '33.3% of the households are unique on what is published unchanged (size)'
    """
    return f"{found.share_unique} of the {found.of} are unique on what is published unchanged ({found.named})"


def exposed_doubt(found: Uniqueness, *, most: Fraction, set_by: str) -> Doubt | None:
    """Return the doubt about records that anybody finds who knows what is published unchanged; None up to ``most``.

    >>> found = uniqueness(pl.DataFrame({"size": [1, 1, 2]}), ["size"], of="households")
    >>> exposed_doubt(found, most=Fraction(1, 3), set_by="the default") is None
    True
    >>> print(exposed_doubt(found, most=Fraction(1, 10), set_by="the policy of the ledger").what)
    33.3% of the households are unique on what is published unchanged (size): anyone who knows these values of one ...
    """
    if Fraction(found.unique, max(found.records, 1)) <= most:
        return None
    return Doubt(
        kind=EXPOSED,
        what=f"{exposed_in_words(found)}: anyone who knows these values of one of them finds its record, and reads the "
        f"rest of it. {set_by[:1].upper()}{set_by[1:]} allows {percent(most, digits=3)}",
        remedy="publish fewer or coarser columns: [[prepare]] of a plan drops, bands, rounds and recodes them; "
        "`stirred risk` shows which columns make records unique",
    )


def counted(data: Microdata) -> bool:
    """Say whether a plan counts the uniqueness of a file: the largest would take minutes."""
    persons = 0 if data.persons is None else data.persons.height
    return max(data.households.height, persons) <= MOST_RECORDS
