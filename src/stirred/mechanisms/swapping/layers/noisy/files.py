"""What a release of noisy tables publishes: its files, what is verified and audited, and how to read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stirred.data.bundle import BundleFiles, Findings, as_text
from stirred.data.frames import as_read, read_frame
from stirred.data.microdata import Microdata
from stirred.data.table_labels import with_labels
from stirred.mechanisms.protocol import Check, Grid, PublicFile, Release, Section, Written, failed
from stirred.mechanisms.swapping.core.bundle_audit_promise import same_promise
from stirred.mechanisms.swapping.core.files import sorted_cells
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.words import largest_strata, more_strata
from stirred.mechanisms.swapping.layers.noisy.plan import NoisyPlan
from stirred.mechanisms.tables.cells import incomplete
from stirred.mechanisms.tables.no_records import find_records, refuse_records
from stirred.spec.invariant import Margin

if TYPE_CHECKING:
    from stirred.mechanisms.swapping.layers.noisy.mechanism import NoisySwap


def noisy_files(mechanism: NoisySwap, data: Microdata, plan: SwapPlan) -> list[PublicFile]:
    """Return the files beside the tables: the sizes of the strata, all that is fixed, and the strata. No record."""
    strata = mechanism.strata_table(plan.strata)
    return [
        PublicFile(
            name="invariants",
            kind="side",
            columns=("table", *plan.strata.match, "count"),
            words="the one table published exactly, the sizes of the strata",
            make=lambda: [strata_sizes(plan)],
        ),
        PublicFile(
            name="strata",
            kind="side",
            columns=tuple(strata.columns),
            words="match values, records, rate, expected share moved",
            make=lambda: [strata],
        ),
    ]


def strata_sizes(plan: SwapPlan) -> pl.DataFrame:
    """Return the one table that is published exactly: how many records each combination of match values has."""
    strata = plan.strata
    sizes = pl.Series("count", [stratum.records for stratum in strata.table], dtype=pl.Int64)
    frame = pl.concat([strata.coded.levels.select(strata.match), sizes.to_frame()], how="horizontal")
    return frame.select(pl.lit("match").alias("table"), pl.all())


def verify_noisy(
    mechanism: NoisySwap, data: Microdata, plan: SwapPlan, release: Release, written: Written
) -> list[Check]:
    """Read the written tables back; raise if one is not the swapped counts and the noise that was drawn, cell by cell.

    Whether the drawn numbers follow their law no file can show. Totals are not adjusted, because no cell is.
    """
    refuse_records(written.public)
    before, after = (
        sorted_cells(plan.strata.coded.codes, codes) for codes in (plan.swap.codes, release.internal["swapped"])
    )
    if not np.array_equal(before, after):
        raise failed("the match x swap table of the swapped file differs from the input")
    checks = [Check(what="the swap: match x swap table counted anew", cells=int(before.size))]
    kept = {frame["table"][0]: frame for frame in map(read_frame, sorted((written.internal / "noise").iterdir()))}
    for table in written.tables:
        drawn = kept[table.title]
        variables = list(table.variables)
        sums = with_labels(drawn.select(*variables, count=pl.col("swapped") + pl.col("noise")), written.labels)
        published = read_frame(written.public / "tables" / f"{table.name}.csv")
        if drawn["swapped"].sum() != plan.strata.coded.codes.size:
            raise failed(f"the table {table.title} does not count every record once")
        if drawn.select(variables).is_duplicated().any() or not as_read(sums, "csv", written.public).equals(published):
            raise failed(f"the table {table.title}, as written, is not the swapped counts with the noise drawn")
        checks.append(
            Check(
                what=f"table {table.title}: every declared cell, once",
                cells=published.height,
                result="the swapped counts with the noise drawn, not adjusted",
            )
        )
    return checks


def reading_noise(mechanism: NoisySwap, plan: SwapPlan) -> list[str]:
    """Return what a reader of the tables must know, from public facts alone."""
    decay = mechanism.decay
    deviation = float(2 * decay / (1 - decay) ** 2) ** 0.5
    share = 100 * (plan.strata.moved or 0)
    return [
        f"Every count is that of the swapped file plus noise of mean 0 and standard deviation {deviation:.4g}, "
        "independent from cell to cell; a sum of k cells has noise of standard deviation "
        f"{deviation:.4g} times the root of k.",
        "Counts may be negative, and tables do not add up to each other. Cutting at 0, or forcing sums, would bias "
        "small counts; sums of many counts are right on average only as the counts stand.",
        f"About {share:.1f}% of records were counted with another record's {', '.join(mechanism.swap)}, which draws "
        "tables that cross it with held variables towards independence.",
    ]


def noisy_sections(mechanism: NoisySwap, plan: SwapPlan) -> list[Section]:
    """Return the sections on the loss, one release and three flavors and the noise alone, and on sizes of strata."""
    assert isinstance(plan, NoisyPlan)
    held, crossed, both = plan.closer
    rows = (
        (str(plan.specification.multiverse.invariants[0]), plan.epsilon.shown(), "the promise of this release"),
        (f"moreover the {held.multiverse.invariants[0]}", held.budget.shown, "closer files only"),
        (f"moreover the {crossed.multiverse.invariants[0]}", crossed.budget.shown, "closer files only"),
        ("both of these", both.budget.shown, "closer files only"),
        ("noise without the swap, as in the first line", plan.noise_alone.shown(), "not what was done"),
    )
    losses = Grid(header=("compared are files that agree on", "loss", "what it is"), rows=rows)
    strata = plan.strata
    header = (*strata.match, "records", "rate", "expected share moved")
    sizes = tuple(
        (*map(str, s.values), s.records, str(s.rate), f"{100 * (share or 0):.2f}%")
        for s, share in largest_strata(strata)
    )
    count = f"{len(strata.table):,} of them.{more_strata(strata)}"
    return [
        Section(title="Noise and loss", blocks=(mechanism.in_words, losses, plan.also_promised)),
        Section(title="Strata", blocks=(count, Grid(header=header, rows=sizes, numbers=header[-2:]))),
    ]


_INVARIANTS: Final = "public/invariants.parquet"
_STRATA: Final = "public/strata.parquet"


def audit_noisy(bundle: BundleFiles, mechanism: NoisySwap | None, found: Findings) -> None:
    """Check promise, strata and cells of a bundle of noisy tables, and say what cannot be checked.

    No records are there, and none are asked for. The promise of noise after a swap is a function of the settings and of
    the sizes of the strata, so that it can be computed anew in full. That the counts are those of the swapped file and
    the noise follows its law, nothing shows that may be published.
    """
    find_records(bundle, found)
    match = _audit_sizes(bundle, found)
    if mechanism is not None:
        _audit_promise(bundle, mechanism, found)
    else:
        found.unchecked.append("the budget, computed anew: the public files do not tell enough of the mechanism")
    _audit_cells(bundle, mechanism, found)
    found.unchecked.append(
        "whether the counts are those of the swapped file and the noise is of the stated law: both are confidential "
        "(internal/noise has them)"
    )
    if match is None:
        return
    found.checks.append("no records, and no counts of the input but the sizes of the strata")


def _audit_sizes(bundle: BundleFiles, found: Findings) -> list[str] | None:
    """Compare the one published invariant with the specification and with the list of strata."""
    sizes, strata = bundle.invariants, bundle.strata
    if sizes is None or strata is None:
        return None
    margins = [m.variables for m in bundle.specification.multiverse.invariants if isinstance(m, Margin)]
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


def _audit_promise(bundle: BundleFiles, mechanism: NoisySwap, found: Findings) -> None:
    """Compute the promise anew from the settings in the plan; the columns of the file are believed."""
    specification = bundle.specification
    universe = SwapUniverse(
        policy=mechanism.promised,
        match=tuple(mechanism.match),
        swap=tuple(mechanism.swap),
        hold=(),
        name=bundle.called or Path(bundle.source or "").stem or specification.domain.name,
        columns=specification.domain.columns,
    )
    computed = mechanism.specification(universe)
    hierarchies = specification.multiverse.hierarchies
    computed = computed.with_flavor(multiverse=replace(computed.multiverse, hierarchies=hierarchies))
    if same_promise(bundle, computed, mechanism, found, gives="the plan of the bundle gives"):
        found.checks.append(f"budget {specification.budget_text}: computed anew from the plan of the bundle")


def _audit_cells(bundle: BundleFiles, mechanism: NoisySwap | None, found: Findings) -> None:
    """Check that every table has each combination of its values once, with whole numbers, and that all are there."""
    seen: list[frozenset[str]] = []
    for name, place, table, variables in bundle.tables():
        seen.append(frozenset(variables))
        if "count" not in table.columns or not variables:
            found.bad("it has no variables, or no counts", where=place)
        elif table["count"].cast(pl.Int64, strict=False).null_count():
            found.bad("its counts are not whole numbers", where=place)
        elif incomplete(table.select(variables)):
            found.bad("cells are missing or doubled: which of them are there may tell who exists", where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
    if mechanism is not None and sorted(map(sorted, seen)) != sorted(sorted(t) for t in mechanism.tables):
        found.bad("the tables are not those of the plan", where="public/tables")
