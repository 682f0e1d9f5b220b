"""The persons of a released bundle: they belong to released households, live where these do, and tell no order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from stirred.audit.findings import Findings

_WHERE: Final = "public/persons"
# Households of more persons than this are not compared one by one: the first ones stand for all.
_PERSONS_COMPARED: Final = 5_000_000


def audit_persons(
    persons: pl.DataFrame, households: pl.DataFrame, ids: Sequence[str], found: Findings
) -> pl.DataFrame | None:
    """Check released persons against released households; return them with all variables of their household.

    ``ids`` are the identifiers of the households. None is returned where persons cannot be linked.
    """
    links = [name for name in ids if name in persons.columns]
    if len(links) != 1:
        found.bad("no column links the persons to the released households", where=_WHERE)
        return None
    link = links[0]
    numbers = persons[link].cast(pl.Int64, strict=False)
    if numbers.null_count() or not numbers.is_between(1, households.height).all():
        found.bad(f'"{link}" of some persons is no released household', where=_WHERE)
        return None
    found.checks.append(f"{persons.height:,} persons belong to released households")
    homes = households.drop(ids)[numbers - 1]
    _same_places(persons, homes, found)
    own = [name for name in persons.columns if name not in (link, *homes.columns)]
    _no_order(numbers, persons.select(own), found)
    return pl.concat([homes, persons.select(own)], how="horizontal")


def _same_places(persons: pl.DataFrame, homes: pl.DataFrame, found: Findings) -> None:
    """Check that what is written on persons about their household is what the household says."""
    shared = [name for name in homes.columns if name in persons.columns]
    differing = [
        name
        for name in shared
        if not persons[name].cast(pl.String).equals(homes[name].cast(pl.String), check_names=False, null_equal=True)
    ]
    for name in differing:
        found.bad(f'"{name}" of some persons is not that of their household', where=_WHERE)
    if shared and not differing:
        found.checks.append(f"persons have the {', '.join(shared)} of their household")


def _no_order(numbers: pl.Series, own: pl.DataFrame, found: Findings) -> None:
    """Check that persons come household by household, and inside each in an order that their values decide."""
    if not numbers.is_sorted():
        found.bad(
            "persons are not in the order of the released households: it may be the order of the input", where=_WHERE
        )
        return
    if not own.width:
        return
    head = own.head(_PERSONS_COMPARED)
    person = pl.struct(pl.all()).rank("dense").cast(pl.String)
    houses = pl.DataFrame({"house": numbers.head(head.height), "person": head.select(person).to_series()})
    written = houses.group_by("house").agg(
        pl.col("person").str.join(" ").alias("sequence"), pl.col("person").sort().str.join(" ").alias("persons")
    )
    orders = written.group_by("persons").agg(pl.col("sequence").n_unique())
    if orders.filter(pl.col("sequence") > 1).height:
        found.bad(
            "households with the same persons list them in different orders: it may be the order of the input",
            where=_WHERE,
        )
    else:
        found.checks.append("persons of a household are in an order that their values decide")
