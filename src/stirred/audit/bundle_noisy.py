"""The audit of a bundle of noisy tables: no records are there, and none are asked for.

The promise of noise after a swap is a function of the settings and of the sizes of the strata, so that it can be
computed anew in full. That the counts are those of the swapped file and the noise follows its law, nothing shows that
may be published.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from stirred.audit.bundle_counts import as_text, published_tables
from stirred.audit.bundle_files import read_released
from stirred.audit.bundle_making import Making
from stirred.audit.bundle_promise import same_promise
from stirred.audit.findings import Findings
from stirred.data.frames import read_frame
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.swap_plan import SwapUniverse
from stirred.spec.invariant import Margin
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification

_INVARIANTS: Final = "public/invariants.parquet"
_STRATA: Final = "public/strata.parquet"
_LAW: Final = "stratum_law"


def publishes_tables_only(public: Path, making: Making | None) -> bool:
    """Say whether a bundle is one of noisy tables: by its plan, or by its list of strata if there is no plan."""
    if making is not None:
        return not making.mechanism.releases_records
    try:
        strata = read_frame(public / "strata.parquet")
    except StirredError:
        return False
    return strata.schema.get(_LAW) == pl.String and strata[_LAW].unique().to_list() == [NoisySwap.member]


def audit_noisy(public: Path, specification: Specification, making: Making | None, found: Findings) -> None:
    """Check promise, strata and cells of a bundle of noisy tables, and say what cannot be checked."""
    for path in sorted([*public.glob("data.*"), *public.glob("persons.*")]):
        found.bad(
            "records are published, and the promise is about tables with noise alone", where=f"public/{path.name}"
        )
    match = _audit_sizes(public, specification, found)
    mechanism = None if making is None else making.mechanism
    if making is not None and isinstance(mechanism, NoisySwap):
        _audit_promise(specification, making, mechanism, found)
    else:
        found.unchecked.append("the budget, computed anew: the public files do not tell enough of the mechanism")
    _audit_cells(public, mechanism if isinstance(mechanism, NoisySwap) else None, found)
    found.unchecked.append(
        "whether the counts are those of the swapped file and the noise is of the stated law: both are confidential "
        "(internal/noise has them)"
    )
    if match is None:
        return
    found.checks.append("no records, and no counts of the input but the sizes of the strata")


def _audit_sizes(public: Path, specification: Specification, found: Findings) -> list[str] | None:
    """Compare the one published invariant with the specification and with the list of strata."""
    sizes = read_released(public / "invariants.parquet", found, where=_INVARIANTS)
    strata = read_released(public / "strata.parquet", found, where=_STRATA)
    if sizes is None or strata is None:
        return None
    margins = [m.variables for m in specification.multiverse.invariants if isinstance(m, Margin)]
    match = [name for name in sizes.columns if name not in ("table", "count")]
    if {*sizes.columns} != {"table", "count", *match} or [{*match}] != [{*variables} for variables in margins]:
        found.bad("it is not the one table that the specification fixes, the sizes of the strata", where=_INVARIANTS)
        return None
    if extra := [name for name in strata.columns if name == "stratum_live"]:
        found.bad(f"{extra[0]} tells of the strata what is not fixed", where=_STRATA)
        return None
    if not {*match, "stratum_records"} <= {*strata.columns}:
        found.bad(f"it has no columns {', '.join([*match, 'stratum_records'])}", where=_STRATA)
        return None
    both = [as_text(frame) for frame in (sizes.select(*match, "count"), strata.select(*match, count="stratum_records"))]
    if not both[0].sort(both[0].columns).equals(both[1].sort(both[1].columns), null_equal=True):
        found.bad("stratum_records is not what invariants.parquet says", where=_STRATA)
        return None
    found.checks.append(f"strata: {sizes.height:,}, their sizes those of invariants.parquet")
    return match


def _audit_promise(specification: Specification, making: Making, mechanism: NoisySwap, found: Findings) -> None:
    """Compute the promise anew from the settings in the plan; the columns of the file are believed."""
    universe = SwapUniverse(
        policy=mechanism.promised,
        match=tuple(mechanism.match),
        swap=tuple(mechanism.swap),
        hold=(),
        name=making.called or Path(making.source or "").stem or specification.domain.name,
        columns=specification.domain.columns,
    )
    computed = mechanism.specification(universe)
    hierarchies = specification.multiverse.hierarchies
    computed = computed.with_flavor(multiverse=replace(computed.multiverse, hierarchies=hierarchies))
    if same_promise(specification, computed, making, found, gives="the plan of the bundle gives"):
        found.checks.append(f"budget {specification.budget_text}: computed anew from the plan of the bundle")


def _audit_cells(public: Path, mechanism: NoisySwap | None, found: Findings) -> None:
    """Check that every table has each combination of its values once, with whole numbers, and that all are there."""
    seen: list[frozenset[str]] = []
    for name, place, table, variables in published_tables(public, found):
        seen.append(frozenset(variables))
        if "count" not in table.columns or not variables:
            found.bad("it has no variables, or no counts", where=place)
        elif table["count"].cast(pl.Int64, strict=False).null_count():
            found.bad("its counts are not whole numbers", where=place)
        elif _incomplete(table.select(variables)):
            found.bad("cells are missing or doubled: which of them are there may tell who exists", where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
    if mechanism is not None and sorted(map(sorted, seen)) != sorted(sorted(t) for t in mechanism.tables):
        found.bad("the tables are not those of the plan", where="public/tables")


def _incomplete(cells: pl.DataFrame) -> bool:
    every = math.prod(column.n_unique() for column in cells.get_columns())
    return cells.height != every or bool(cells.is_duplicated().any())
