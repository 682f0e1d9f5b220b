"""The evidence of a release: its files held against the budget, the input and each other; audits of what is found.

All of it but the totals of the input reads public files alone. Measurements of small files have an exact law.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, same_cells
from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file
from stirred.data.table_labels import without_labels
from stirred.mechanisms.protocol import Check, Release, Written, failed
from stirred.mechanisms.topdown.hierarchy.tree import AGREES
from stirred.mechanisms.topdown.plan import TopDownPlan
from stirred.mechanisms.topdown.population import areas_by_noise, noisy_queries
from stirred.mechanisms.topdown.published import open_published
from stirred.mechanisms.topdown.records import AREAS, CERTIFICATE, EVENTS
from stirred.mechanisms.topdown.settings import UNITS, RecordKind, TopDownDesign
from stirred.mechanisms.topdown.solve.check import Certificate, check_tree, read_counts
from stirred.mechanisms.topdown.spine import SPINE, Spine
from stirred.spec.invariant import Invariant, Margin
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian, Noise, ShiftLaw
from stirred.spec.specification import Specification


def verified(plan: TopDownPlan, release: Release, written: Written) -> Iterator[Check]:
    """Compare the store with its checksums, the written rows with the budget, and the records with all else."""
    publish, derived = plan.design.settings.publish, release.internal["derived"]
    for part in plan.parts:
        arrays = derived.stores[part.name].check()
        yield Check(what=f"store of {part.records}", cells=arrays, result="as it was written")
        if not part.measured or "measurements" not in publish:
            continue
        areas = _of_the_budget(part, part.noise, written.public)
        if not areas:
            raise failed(f"the measurements of {part.records}, as written, do not have the noise of the budget")
        what = f"measurements of {part.records}: noise of every area and query"
        yield Check(what=what, cells=areas, result="that of the budget")
    for name, made in derived.released.items():
        own, many = made.certificate, len(made.events)
        if not own.passed:
            raise failed(f"the counts of {name} do not keep all that is known: {'; '.join(own.failures[:3])}")
        moved = f"all held; {many:,} events, see {EVENTS}.parquet" if many else "all held; no event"
        checks = sum(own.checks.values())
        yield Check(what=f"counts of {name}: sums, bounds, zeros and totals of every area", cells=checks, result=moved)
    for name, cells, wrong in check_records(plan.design, written.public):
        if wrong:
            raise failed(f"{name}, as written: {'; '.join(wrong)}")
        yield Check(what=f"{name}, against the other public files", cells=cells, result="agrees")


def verified_totals(data: Microdata, plan: TopDownPlan, written: Written) -> Iterator[Check]:
    """Count the totals that are published exactly once more, from the records of the input."""
    for part in plan.parts:
        for rule in (rule for rule in part.rules if rule.sign == "=" and rule.name != AGREES):
            rows = pl.scan_parquet(_parts(written.public, part.file("constraints")))
            published = rows.filter(query_name=rule.name).select("geolevel", total=pl.col("value").list.first())
            sums = dict(published.group_by("geolevel").agg(pl.col("total").sum()).collect().iter_rows())
            file = data.households if part.name == UNITS or data.persons is None else data.persons
            names = [plan.spine.names[depth] for depth in rule.depths]
            if sums != dict.fromkeys(names, file.height):
                raise failed(f"the totals of {part.records}, as written, do not add up to the records of the file")
            what = f"totals of {part.records} by {', '.join(names)}"
            yield Check(what=what, cells=len(names), result="add up to the records of the input")


def audited(design: TopDownDesign, computed: Specification, bundle: BundleFiles, found: Findings) -> None:
    """Compare the promise with the one computed again, the noise of all rows with the budget, records with all else."""
    stated = bundle.specification
    if any(table.promise is None for table in design.earlier):
        what = "its records agree with an earlier release, and its promise leaves out what that one costs"
        found.bad(what, where="public/specification.json budget", remedy="make it again with this version")
    if computed.budget.realised != stated.budget.realised:
        what = f"the settings give {computed.budget.shown}, and it says {stated.budget.shown}"
        found.bad(what, where="public/specification.json budget")
    elif _fixed(computed) != _fixed(stated):
        found.bad("what it fixes is not what the settings publish exactly", where="public/specification.json")
    else:
        found.checks.append(f"budget {stated.budget_text}: computed anew from the settings")
    measured = "measurements" in design.settings.publish
    if measured and (areas := bundle.side(f"{SPINE}.parquet")) is not None:
        _audited_measurements(design, areas, bundle, found)
    for name, cells, wrong in check_records(design, bundle.public):
        for text in wrong:
            found.bad(text, where=f"public/{name}")
        if not wrong:
            found.checks.append(f"{name}: agrees with the other public files ({cells:,} comparisons)")
    if "records" in design.settings.publish:
        how = ": `stirred topdown microdata` makes them again" if measured and not design.earlier else ""
        found.unchecked.append(f"whether the measurements give these records{how}")


def _fixed(specification: Specification) -> set[Invariant]:
    """Return what is fixed but for the number of all records, which older releases fixed without saying so."""
    found = specification.multiverse.invariants
    return {one for one in found if not (isinstance(one, Margin) and one == Margin(of=one.of))}


# ---- measurements against the budget ----------------------------------------------------------------------


def _audited_measurements(design: TopDownDesign, areas: pl.DataFrame, bundle: BundleFiles, found: Findings) -> None:
    try:
        spine = Spine.of_list(areas, names=design.names, bypass=design.settings.bypass)
    except (StirredError, pl.exceptions.PolarsError):
        spine = None
    for kind in design.kinds:
        name = kind.file("measurements")
        if not kind.measured or any(path in found.unread for path in _parts(bundle.public, name)):
            continue
        if spine is None or not _of_the_budget(kind, areas_by_noise(kind, spine), bundle.public):
            found.bad("its areas, queries and variances are not those of the budget", where=f"public/{name}.parquet")
        else:
            found.checks.append(f"{name}.parquet: every area has every query, with the variance of the budget")
    found.unchecked.append("whether the noise is of the stated law: the true counts are confidential")


def _of_the_budget(kind: RecordKind, expected: Mapping[tuple[str, str, str], int], public: Path) -> int:
    """Return in how many areas queries are published, each with the variance of the budget; 0 where one is not."""
    keys = ["geolevel", "query_name", "sigma2"]
    try:
        rows = pl.scan_parquet(_parts(public, kind.file("measurements"))).group_by(keys)
        found = rows.agg(pl.col("geocode").n_unique()).collect()
    except (pl.exceptions.PolarsError, OSError):
        return 0
    same = {(str(level), str(query), str(sigma2)): many for level, query, sigma2, many in found.iter_rows()} == expected
    return sum(expected.values()) if same else 0


def _parts(public: Path, name: str) -> list[Path]:
    """Return the parts of a published file."""
    path = public / f"{name}.parquet"
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


# ---- records against all that is published ----------------------------------------------------------------


def _read(public: Path, name: str) -> pl.DataFrame:
    """Return a published file, in whichever format it is."""
    places = sorted(public.glob(f"{name}.*"))
    if len(places) != 1:
        raise bad_file("it is missing", where=name, remedy="")
    return read_frame(places[0], empty=True)


def check_records(design: TopDownDesign, public: Path) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yield for every file of records what was compared, how often, and what was wrong."""
    counted: dict[str, pl.DataFrame] = {}
    for kind in (kind for kind in design.kinds if kind.measured and "records" in design.settings.publish):
        in_counts, in_records = kind.file("counts"), kind.file("records")
        try:
            areas, counts, records = (_read(public, name) for name in (AREAS, in_counts, in_records))
        except StirredError:
            yield in_records, 0, ["it cannot be compared: a file that belongs to it is missing or cannot be read"]
            continue
        counted[kind.name] = records
        try:
            same = _same(design, kind, areas, counts, records)
            yield in_records, counts.height, [] if same else [f"its records are not those of {in_counts}"]
            certificate = _certified(design, kind, public, counts)
            yield in_counts, sum(certificate.checks.values()), certificate.failures
        except (pl.exceptions.PolarsError, StirredError, LookupError, ValueError, TypeError) as error:
            yield in_counts, 0, [f"it, or what is known of its areas, is not of the kind that is released ({error})"]
    if "records" in design.settings.publish:
        yield from _tables(design, public, counted)
        try:
            certified = {*_read(public, CERTIFICATE).get_columns()[0].to_list()}
        except StirredError:
            certified = set()
        if not {*counted} <= certified:
            yield CERTIFICATE, 0, ["it does not certify all records"]


def _same(
    design: TopDownDesign, kind: RecordKind, areas: pl.DataFrame, counts: pl.DataFrame, records: pl.DataFrame
) -> bool:
    """Say whether records are counts in the columns of the file."""
    columns = [*design.record_columns(kind)]
    names = dict(zip(kind.schema.names, kind.columns, strict=True))
    made = counts.select(
        "geocode", pl.col("count").cast(pl.Int64), *(pl.col(a).alias(f" {b}") for a, b in names.items())
    )
    if "geocode" not in columns or areas.width > 1:
        made = made.join(areas.cast(pl.String), on="geocode", how="left")
    made = made.rename({f" {name}": name for name in names.values()}).select(*columns, "count")
    found = records.select(columns).group_by(columns).len("count")
    one, two = (
        each.with_columns(pl.col("count").cast(pl.Int64), *(_plain(each[name]) for name in columns)).sort(columns)
        for each in (made, found)
    )
    return one.equals(two)


def _plain(column: pl.Series) -> pl.Series:
    """Return codes as text; where all are numbers 01 is 1, as it is when records are read."""
    texts = column.cast(pl.String)
    numbers = len(texts) and texts.str.contains(r"^\d{1,18}$").all()
    return texts.cast(pl.Int64).cast(pl.String) if numbers else texts


def _certified(design: TopDownDesign, kind: RecordKind, public: Path, counts: pl.DataFrame) -> Certificate:
    """Return the certificate of counts against all that is published exactly of the areas of any level."""
    known, earlier = (public / f"{kind.file(what)}.parquet" for what in ("constraints", "agreement"))
    agreed = earlier if earlier.exists() else None
    spine = public / f"{SPINE}.parquet"
    tree = open_published(known, schema=kind.schema, constraints=agreed, spine=spine).tree()
    if tree.names != design.names:
        raise bad_file("its levels are not those of the settings", where=SPINE, remedy="")
    certificate = Certificate()
    check_tree(tree, read_counts(counts, kind.schema, tree.levels[-1].geocodes, certificate), certificate)
    return certificate


def _tables(
    design: TopDownDesign, public: Path, counted: dict[str, pl.DataFrame]
) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Count published tables once more from the records."""
    for path in sorted((public / "tables").glob("*.csv")):
        place = f"tables/{path.stem}"
        try:
            table = without_labels(read_frame(path))
        except StirredError:
            yield place, 0, ["it cannot be read"]
            continue
        variables = [name for name in table.columns if name != "count"]
        records = counted.get(design.counted_by(variables))
        if "count" not in table.columns or records is None or not {*variables} <= {*records.columns}:
            yield place, 0, ["it cannot be counted anew from the released records"]
        else:
            same = same_cells(table, records, variables)
            yield place, table.height, [] if same else ["it is not the table of the released records"]


# ---- the law of small files -------------------------------------------------------------------------------

Small = Sequence[tuple[str, int]]  # records: the leaf, and the cell of the schema


def _leaves_and_cells(design: TopDownDesign) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return leaves that part at the bottom and at the top, and cells that differ in every attribute."""
    below = "a" * (len(design.names) - 2)
    return (f"a{below}", f"a{below[:-1]}b" if below else "b", f"b{below}"), (0, design.persons.schema.size - 1)


def _small_spine(design: TopDownDesign) -> Spine:
    """Return the areas of the small files: the second at the top has one area inside it, down to its leaf."""
    leaves, _ = _leaves_and_cells(design)
    listed = pl.DataFrame({"leaf": leaves}).unique()
    widths = range(1, len(design.names))
    return Spine.of_geocodes(listed, "leaf", widths=widths, names=design.names, bypass=design.settings.bypass)


def small_law(design: TopDownDesign, dataset: Small) -> ShiftLaw:
    """Return the exact law of the person measurements of a small file.

    Areas are prefixes of leaves. Cells and areas that no record of the universe can be in are the same for all its
    files and left out. A total that is published exactly is a number whose noise is conditioned on 0.
    """
    _, cells = _leaves_and_cells(design)
    centre: list[int] = []
    noises: list[Noise] = []
    fixed: list[tuple[int]] = []
    spine = _small_spine(design)
    for depth in range(spine.depth):
        areas = spine.geocodes[depth].to_list()
        inside = [[c for leaf, c in dataset if leaf[:depth] == area] for area in areas]
        since = spine.carried(depth, range(len(areas)), idle=design.persons.shares.idle)
        for query, sigma2 in noisy_queries(design.persons, spine, depth):
            for own, first in zip(inside, since.tolist(), strict=True):
                for cell in sorted({int(query.cell_of[c]) for c in cells}) if first in sigma2 else ():
                    centre.append(sum(int(query.cell_of[c]) == cell for c in own))
                    noises.append(DiscreteGaussian(sigma2[first]))
        if depth in design.depths(design.settings):
            fixed += [(len(centre) + k,) for k in range(len(inside))]
            centre += map(len, inside)
            noises += [DiscreteGaussian(1)] * len(inside)
    return ShiftLaw(centre, noises, fixed=fixed)


def small_universes(design: TopDownDesign) -> list[list[Hashable]]:
    """Return all files of one or two records in three leaves and two cells, apart where exact totals differ."""
    leaves, cells = _leaves_and_cells(design)
    kinds = [(leaf, cell) for leaf in dict.fromkeys(leaves) for cell in cells]
    found: dict[Hashable, list[Hashable]] = {}
    for many in (1, 2):
        for file in combinations_with_replacement(kinds, many):
            law = small_law(design, file)
            found.setdefault((many, *(law.centre[place] for (place,) in law.fixed)), []).append(file)
    return [*found.values()]
