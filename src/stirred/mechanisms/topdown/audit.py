"""Audits of measurements: their exact law on small files, and the noise of published files held against the budget."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.mechanisms.topdown.measure import class_counts
from stirred.mechanisms.topdown.prepare import PERSONS, Design
from stirred.mechanisms.topdown.spine import BYPASSED, Spine
from stirred.spec.invariant import Invariant, Margin
from stirred.spec.shift_law import DiscreteGaussian, Noise, ShiftLaw
from stirred.spec.specification import Specification

SPINE: Final = "spine"
Small = Sequence[tuple[str, int]]  # records: the leaf, and the cell of the schema


def file_names(part: str) -> tuple[str, str]:
    """Return the names of the published measurements and constraints of a kind of record."""
    return ("measurements", "constraints") if part == PERSONS else ("unit_measurements", "unit_constraints")


def _kinds(design: Design) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return leaves that part at the bottom and at the top, and cells that differ in every attribute."""
    below = "a" * (len(design.names) - 2)
    return (f"a{below}", f"a{below[:-1]}b" if below else "b", f"b{below}"), (0, design.schema.size - 1)


def _small_spine(design: Design) -> Spine:
    """Return the areas of the small files: the second at the top has one area inside it, down to its leaf."""
    leaves, _ = _kinds(design)
    listed = pl.DataFrame({"leaf": leaves}).unique()
    widths = range(1, len(design.names))
    return Spine.of_geocodes(listed, "leaf", widths=widths, names=design.names, bypass=design.settings.bypass)


def small_law(design: Design, dataset: Small) -> ShiftLaw:
    """Return the exact law of the person measurements of a small file.

    Areas are prefixes of leaves. Cells and areas that no record of the universe can be in are the same for all its
    files and left out. A total that is published exactly is a number whose noise is conditioned on 0.
    """
    _, cells = _kinds(design)
    centre: list[int] = []
    noises: list[Noise] = []
    fixed: list[tuple[int]] = []
    spine = _small_spine(design)
    for depth, level in enumerate(design.names):
        areas = spine.geocodes[depth].to_list()
        inside = [[c for leaf, c in dataset if leaf[:depth] == area] for area in areas]
        since = spine.carried(depth, range(len(areas)), idle=design.shares.idle)
        for query in map(design.schema.query, design.shares.measured(level)):
            for own, first in zip(inside, since.tolist(), strict=True):
                if first == BYPASSED:
                    continue
                sigma2 = design.shares.sigma2(level, query.name, since=design.names[first])
                for cell in sorted({int(query.cell_of[c]) for c in cells}) if sigma2 is not None else ():
                    centre.append(sum(int(query.cell_of[c]) == cell for c in own))
                    noises.append(DiscreteGaussian(sigma2))  # type: ignore[arg-type]
        if depth in design.depths(design.settings):
            fixed += [(len(centre) + k,) for k in range(len(inside))]
            centre += map(len, inside)
            noises += [DiscreteGaussian(1)] * len(inside)
    return ShiftLaw(centre, noises, fixed=fixed)


def small_universes(design: Design) -> list[list[Hashable]]:
    """Return all files of one or two records in three leaves and two cells, apart where exact totals differ."""
    leaves, cells = _kinds(design)
    kinds = [(leaf, cell) for leaf in dict.fromkeys(leaves) for cell in cells]
    found: dict[Hashable, list[Hashable]] = {}
    for many in (1, 2):
        for file in combinations_with_replacement(kinds, many):
            law = small_law(design, file)
            found.setdefault((many, *(law.centre[place] for (place,) in law.fixed)), []).append(file)
    return [*found.values()]


def audit_measurements(
    design: Design, computed: Specification, bundle: BundleFiles, found: Findings, *, measured: bool = True
) -> None:
    """Compare the promise with the one computed anew, and the noise of all published rows with the budget."""
    stated = bundle.specification
    if computed.budget.realised != stated.budget.realised:
        said = f"the settings give {computed.budget.shown}, and it says {stated.budget.shown}"
        found.bad(said, where="public/specification.json budget")
    elif _fixed(computed) != _fixed(stated):
        found.bad("what it fixes is not what the settings publish exactly", where="public/specification.json")
    else:
        found.checks.append(f"budget {stated.budget_text}: computed anew from the settings")
    areas = bundle.side(f"{SPINE}.parquet")
    if areas is None or not measured:
        return
    spine = Spine.of_published(areas, design.names, bypass=design.settings.bypass)
    for part, _, schema, shares in design.parts:
        place = f"{file_names(part)[0]}.parquet"
        if shares is None or any(path in found.unread for path in parquet_files(bundle.public / place)):
            continue
        if spine is None or found_classes(bundle.public / place) != class_counts(spine, schema, shares):
            found.bad("its areas, queries and variances are not those of the budget", where=f"public/{place}")
        else:
            found.checks.append(f"{place}: every area has every query, with the variance of the budget")
    found.unchecked.append("whether the noise is of the stated law: the true counts are confidential")


def _fixed(specification: Specification) -> set[Invariant]:
    """Return what is fixed but for the number of all records, which older releases fixed without saying so."""
    found = specification.multiverse.invariants
    return {one for one in found if not (isinstance(one, Margin) and one == Margin(of=one.of))}


def parquet_files(path: Path) -> list[Path]:
    """Return the parts of a published file."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def found_classes(path: Path) -> dict[tuple[str, str, str], int]:
    """Return how many areas each level, query and variance parameter has in published measurements."""
    keys = ["geolevel", "query_name", "sigma2"]
    try:
        rows = pl.scan_parquet(parquet_files(path)).group_by(keys).agg(pl.col("geocode").n_unique()).collect()
    except (pl.exceptions.PolarsError, OSError):
        return {}
    return {(str(level), str(query), str(sigma2)): int(many) for level, query, sigma2, many in rows.iter_rows()}
