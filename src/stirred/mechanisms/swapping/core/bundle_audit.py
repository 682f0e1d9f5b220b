"""The bundle of a swap from its files alone: invariants, new identifiers, budget, strata and persons.

Persons belong to released households, live where these do, and tell no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, issued_anew, rows_of, same_cells
from stirred.data.codes import tells_records_apart
from stirred.mechanisms.swapping.core.bundle_audit_promise import audit_promise
from stirred.mechanisms.swapping.core.files import MOST_PERSONS, digest_named, held_digest
from stirred.spec.invariant import Margin

if TYPE_CHECKING:
    from stirred.mechanisms.swapping.core.swapping import Swapping


_INVARIANTS: Final = "public/invariants.parquet"


def audit_records(bundle: BundleFiles, mechanism: Swapping | None, disturbed: Sequence[str], found: Findings) -> None:
    """Check everything that a swap says of its released records; None is a swap whose settings are not known in full.

    ``disturbed`` are released variables that no invariant fixes.
    """
    data = bundle.data
    if data is None:
        return
    margins = [m for m in bundle.specification.multiverse.invariants if isinstance(m, Margin)]
    digest = _audit_invariants(bundle, margins, data, found)
    known = {*disturbed, *(variable for margin in margins for variable in margin.variables)}
    ids = _identifiers(data, known, found)
    if bundle.strata is not None and (bundle.persons is not None or not bundle.has_persons):
        audit_promise(bundle, data, ids, mechanism, found)
    if bundle.persons is not None:
        if digest is None:
            _no_digest(bundle, bundle.persons, found)
        # What was held are the columns of the last table of the invariants.
        held = [name for name in data.columns if margins and name in margins[-1].variables]
        audit_persons(bundle.persons, data, ids, held, digest, found)


def _audit_invariants(
    bundle: BundleFiles, margins: Sequence[Margin], data: pl.DataFrame, found: Findings
) -> str | None:
    """Count every table of the invariants anew; return the digest of what households hold with their persons."""
    published = bundle.invariants
    if published is None:
        return None
    if "table" not in published.columns or "count" not in published.columns:
        found.bad("it has no columns table and count", where=_INVARIANTS)
        return None
    published = published.with_columns(pl.col("table").cast(pl.String))
    known = {"table", "count", *(variable for margin in margins for variable in margin.variables)}
    if extra := [name for name in published.columns if name not in known]:
        found.bad(f"{', '.join(extra)} is in no table that the specification fixes", where=_INVARIANTS)
    tables = published["table"].unique(maintain_order=True).to_list()
    digests = [digest for name in tables if (digest := digest_named(name)) is not None]
    names = [name for name in tables if digest_named(name) is None]
    if len(margins) != len(names):
        found.bad(f"the specification fixes {len(margins)} tables and {len(names)} are published", where=_INVARIANTS)
    for name, margin in zip(names, margins, strict=False):
        variables = [variable for variable in margin.variables if variable in published.columns]
        left = [variable for variable in margin.variables if variable not in variables]
        missing = [variable for variable in variables if variable not in data.columns]
        if missing:
            found.bad(f"the released file has no column {', '.join(missing)}", where=f"invariant {margin}")
            continue
        if lacking := [variable for variable in left if variable in data.columns]:
            found.bad(f"it has no column {', '.join(lacking)}", where=_INVARIANTS)
        cells = published.filter(pl.col("table").eq_missing(pl.lit(name))).select(*variables, "count")
        if not same_cells(cells, data, variables):
            found.bad(f"the released file does not have the published table '{name}'", where=f"invariant {margin}")
            continue
        counted = replace(margin, variables=tuple(variables))
        found.checks.append(f"{counted}: {cells.height:,} cells, counted anew")
    return digests[0] if digests else None


def _identifiers(data: pl.DataFrame, known: set[str], found: Findings) -> list[str]:
    """Check that a column outside every invariant is a number issued anew: 1, 2, ... in the released order."""
    extra = [name for name in data.columns if name not in known]
    for name in extra:
        if wrong := _not_issued_anew(data[name]):
            found.bad(f'"{name}" is in no invariant and {wrong}', where="public/data")
        else:
            found.checks.append(f'identifiers "{name}" are 1 to {data.height:,}')
    return extra


def _not_issued_anew(column: pl.Series) -> str | None:
    """Return what is wrong with a column that should be 1, 2, ... in the released order."""
    if issued_anew(column):
        return None
    if issued_anew(column.cast(pl.Int64, strict=False).sort()):
        return f"is 1 to {len(column):,} in another order than the rows: the rows were put in another order"
    if tells_records_apart(column):
        return f"is not 1 to {len(column):,}: an old identifier tells records apart"
    return "is no new identifier: the specification says nothing about it"


def _no_digest(bundle: BundleFiles, persons: pl.DataFrame, found: Findings) -> None:
    """Say that nothing is published with which the persons could be compared; where it should be, that is wrong."""
    if bundle.same_version and persons.height <= MOST_PERSONS:
        found.bad("the checksum of the hold table with persons is missing", where=_INVARIANTS)
        return
    found.unchecked.append(
        "whether the persons are those of the input: invariants.parquet has the variables of households only, and no "
        "checksum of what they hold with their persons"
    )


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
) -> None:
    """Check released persons against released households.

    ``ids`` are the identifiers of the households, ``held`` their held variables and ``digest`` what these had with
    their persons in the input.
    """
    links = [name for name in ids if name in persons.columns]
    if len(links) != 1:
        found.bad("no column links the persons to the released households", where=_WHERE)
        return
    link = links[0]
    rows = rows_of(persons[link], households[link])
    if rows is None:
        found.bad(f'"{link}" of some persons is no released household, or that of two', where=_WHERE)
        return
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
