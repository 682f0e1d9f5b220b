"""The persons of a released bundle: they belong to released households, live where these do, and tell no order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from stirred.audit.findings import Findings
from stirred.audit.held_digest import held_digest

_WHERE: Final = "public/persons"
# Households of more persons than this are not compared one by one: the first ones stand for all.
_PERSONS_COMPARED: Final = 5_000_000


def audit_persons(
    persons: pl.DataFrame,
    households: pl.DataFrame,
    ids: Sequence[str],
    held: Sequence[str],
    digest: str | None,
    found: Findings,
) -> pl.DataFrame | None:
    """Check released persons against released households; return them with all variables of their household.

    ``ids`` are the identifiers of the households, ``held`` their held variables and ``digest`` what these had with
    their persons in the input. None is returned where persons cannot be linked.
    """
    links = [name for name in ids if name in persons.columns]
    if len(links) != 1:
        found.bad("no column links the persons to the released households", where=_WHERE)
        return None
    link = links[0]
    rows = _rows(persons[link], households[link])
    if rows is None:
        found.bad(f'"{link}" of some persons is no released household, or that of two', where=_WHERE)
        return None
    found.checks.append(f"{persons.height:,} persons belong to released households")
    homes = households.drop(ids)[rows]
    _same_places(persons, homes, found)
    own = [name for name in persons.columns if name not in (link, *homes.columns)]
    _no_order(rows, persons.select(own), found)
    if digest is not None:
        if held_digest(households.select(held), persons.select(own), rows) != digest:
            found.bad("the persons of the released households are not those of the input", where=_WHERE)
        else:
            found.checks.append("what households hold, with all characteristics of their persons: as in the input")
    return pl.concat([homes, persons.select(own)], how="horizontal")


def _rows(link: pl.Series, ids: pl.Series) -> pl.Series | None:
    """Return the row of each person's household, found by its id, or None if an id is unknown or stands twice."""
    index = pl.DataFrame({"id": ids.cast(pl.String)}).with_row_index("row")
    if index["id"].is_duplicated().any():
        return None
    rows = pl.DataFrame({"id": link.cast(pl.String)}).join(index, on="id", how="left", maintain_order="left")["row"]
    return None if rows.null_count() else rows


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


def _no_order(rows: pl.Series, own: pl.DataFrame, found: Findings) -> None:
    """Check that persons come household by household, and inside each in an order that their values decide."""
    if not rows.is_sorted():
        found.bad(
            "persons are not in the order of the released households: it may be the order of the input", where=_WHERE
        )
        return
    if not own.width:
        return
    head = own.head(_PERSONS_COMPARED)
    person = pl.struct(pl.all()).rank("dense").cast(pl.String)
    houses = pl.DataFrame({"house": rows.head(head.height), "person": head.select(person).to_series()})
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
