"""The commands of estimating: ``stirred topdown estimate`` from published measurements, ``interval`` from a bundle.

Both read what anybody may read. No noise is drawn and no budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from stirred.data.place import file_at
from stirred.data.problems import DataError, PlanError, bad_file, bad_plan, listed, number
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.topdown.estimates import (
    COLUMNS,
    EstimateParts,
    Terms,
    TreeEstimates,
    Unions,
    estimate_frame,
    estimate_frames,
    estimates_of,
    gives,
    half_width,
    measured_terms,
    solved_terms,
)
from stirred.mechanisms.topdown.hierarchy.least_squares import Residuals
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema
from stirred.mechanisms.topdown.published import (
    SCHEMA_HELP,
    SPENDS,
    PublishedMeasurements,
    PublishedOptions,
    open_given,
)
from stirred.mechanisms.topdown.published_files import plain, read_table
from stirred.spec.problems import Problem

_ROUNDED: Final = 1e-6
UNION: Final = "union"
_ASKED: Final = "--area"  # a union, as messages call it


class HierarchyEstimateOptions(PublishedOptions):
    """The options of ``stirred topdown estimate``."""

    areas: Path | None = Field(default=None, description="Unions off the spine: area, and the geocodes in it.")
    targets: Path | None = Field(
        default=None, description="What to write: geolevel, area, query_name, cell; default all that was measured."
    )
    out: Path = Field(description="Where the estimates go: a Parquet or CSV file.")


class IntervalOptions(BaseModel):
    """The options of ``stirred topdown interval``."""

    bundle: Path = Field(
        description="A bundle of TopDown, or published measurements.", json_schema_extra={"argument": "BUNDLE"}
    )
    area: list[str] = Field(
        default=[],
        description="A geocode; several are taken together. Default the whole.",
        json_schema_extra={"form": "GEOCODE"},
    )
    where: list[str] = Field(
        default=[],
        description="Codes of an attribute, such as hispanic=1 or race=1,2.",
        json_schema_extra={"form": "ATTRIBUTE=CODES"},
    )
    level: float = Field(default=0.95, gt=0, lt=1, description="How often the interval holds the true count.")
    schema_: str = Field(default="", description=SCHEMA_HELP)
    totals: Path | None = Field(default=None, description="Known totals: geocode, value and, for groups, members.")


# ---- what is asked for ------------------------------------------------------------------------------------


def refuse_taken(out: Path, *, endings: Sequence[str]) -> None:
    """Refuse a file of a kind that is not written, or to write over one that is there and has no estimates."""
    if out.exists() and not (out.is_file() and out.suffix in endings and tuple(_columns_in(out)) == COLUMNS):
        raise bad_plan("it exists already", where=f"--out {out}", remedy="choose a new name")
    if out.suffix not in endings:
        raise bad_plan(f"'{out.name}' does not end in {' or '.join(endings)}", where="--out", remedy="name such a file")


def _columns_in(path: Path) -> list[str]:
    try:
        scan = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
        return scan.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError):
        return []


def refuse_unknown_areas(codes: Sequence[str], published: PublishedMeasurements) -> None:
    """Refuse codes that no area has; a geocode has the codes of the areas around it in front, and may be filled up."""
    every = [code for own in published.spine.geocodes for code in own]
    problems = []
    for code in sorted({*codes} - {*every}):
        near = [each for each in every if each.rstrip("_").endswith(code)] or get_close_matches(code, every, n=3)
        remedy = f"did you mean {listed(near[:3])}? " if near else ""
        remedy += "Geocodes of all areas are in spine.parquet" if not published.by_prefix else "Write it in full"
        problems.append(Problem(what=f'there is no area "{code}"', where="--area", remedy=remedy))
    if problems:
        raise PlanError(problems)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateTarget:
    """Cells of one query in areas of one level, or in unions: rows (row, area, cell)."""

    level: str | None
    query: MarginalQuery
    rows: pl.DataFrame


def targets_of(
    frame: pl.DataFrame, published: PublishedMeasurements, unions: Mapping[str, Any], where: str
) -> list[EstimateTarget]:
    """Return what a file asks for; an area is a geocode of its level, or the name of a union."""
    levels = {plain(name): depth for depth, name in enumerate(published.spine.names)}
    codes = [{*own} for own in published.spine.geocodes]
    found, problems = [], []
    numbered = frame.with_row_index("row").with_columns(pl.col("cell").cast(pl.Int64, strict=False))
    for (level, name), rows in numbered.partition_by(
        "geolevel", "query_name", as_dict=True, maintain_order=True
    ).items():
        try:
            query = published.queries[name] if name in published.queries else published.schema.query(name)
        except PlanError as error:
            problems += [problem.inside(where) for problem in error.problems]
            continue
        depth = levels.get(plain(level)) if level else None
        if depth == 0:  # the uppermost area has an empty geocode, whatever a reader calls it
            rows = rows.with_columns(
                pl.when(pl.col("area").is_in(["", level]))
                .then(pl.lit(published.spine.geocodes[0][0]))
                .otherwise("area")
                .alias("area")
            )
        rows = rows.with_columns(pl.Series("area", [published.block(area) for area in rows["area"]], dtype=pl.String))
        inside = pl.Series(
            [area in codes[depth] for area in rows["area"]] if depth is not None else [False] * rows.height
        )
        joined = pl.Series([area in unions for area in rows["area"]]) & ~inside
        wrong = rows.filter(~(inside | joined) | ~pl.col("cell").is_between(0, query.size - 1).fill_null(value=False))
        if wrong.height:
            row = wrong.row(0, named=True)
            what = f'{name}: there is no cell {row["cell"]} of it in {level or UNION} "{row["area"]}"'
            remedy = f"there are the levels {listed([*published.areas])}, and cells 0 to {query.size - 1:,}"
            problems.append(Problem(what=what, where=f"{where} row {row['row'] + 1}", remedy=remedy))
        for at, chosen in ((None if depth is None else published.spine.names[depth], inside), (None, joined)):
            if chosen.any():
                found.append(
                    EstimateTarget(level=at, query=query, rows=rows.filter(chosen).select("row", "area", "cell"))
                )
    if problems:
        raise DataError(problems)
    return found


def where_query(schema: Schema, where: Sequence[str]) -> tuple[MarginalQuery, int]:
    """Return the query whose one cell counts these codes, and which cell that is.

    >>> from stirred.mechanisms.topdown.hierarchy.schema import shipped_schema
    >>> query, cell = where_query(shipped_schema("pl94-persons"), ["hispanic=2", "cenrace=1,2"])
    >>> query.shape, cell
    ((1, 1, 2, 2), 2)
    """
    chosen: dict[str, list[str]] = {}
    for each in where:
        name, _, text = each.partition("=")
        if name.strip() in chosen:
            remedy = f"write the codes together: {name.strip()}=CODE,CODE"
            raise bad_plan(f"'{name.strip()}' is given twice", where="--where", remedy=remedy)
        chosen[name.strip()] = [code.strip() for code in text.split(",")]
    known = {attribute.name: attribute.codes for attribute in schema.attributes}
    for name, codes in chosen.items():
        if name not in known or not {*codes} <= {*known[name]}:
            there = (
                f"{name} has the codes {listed(known[name][:9])}" if name in known else f"there are {listed([*known])}"
            )
            raise bad_plan(f"'{name}={','.join(codes)}' is not in the schema", where="--where", remedy=there)
    groups, cell = [], 0
    for attribute in schema.attributes:
        wanted = [code in chosen.get(attribute.name, attribute.codes) for code in attribute.codes]
        # The group of the first code is 0, as in every query; all codes are no condition.
        groups.append(tuple(int(each != wanted[0]) for each in wanted))
        cell = cell * (max(groups[-1]) + 1) + int(not wanted[0])
    return MarginalQuery(name=" and ".join(where), kept=("",) * len(groups), groups=tuple(groups)), cell


# ---- what is found ----------------------------------------------------------------------------------------


def _aimed(targets: Sequence[EstimateTarget], found: TreeEstimates) -> Iterator[pl.DataFrame]:
    """Yield the estimates that are asked for and that a tree has."""
    for depth in found.own:
        level = found.by_level[depth].level
        place = pl.DataFrame({"area": pl.Series(level.geocodes, dtype=pl.String), "place": np.arange(level.areas)})
        for target in targets:
            if target.level == level.name:
                rows = target.rows.join(place, on="area", how="inner")
                places, which = np.unique(rows["place"].to_numpy(), return_inverse=True)
                if rows.height:
                    own = found.of(depth, target.query, places)
                    yield rows.select("row").with_columns(**own.columns((which.reshape(-1), rows["cell"].to_numpy())))


def _in_unions(targets: Sequence[EstimateTarget], unions: Unions) -> Iterator[pl.DataFrame]:
    for target in targets:
        if target.level is None:
            for (name,), rows in target.rows.partition_by("area", as_dict=True).items():
                own = unions.of(name, target.query)
                yield rows.select("row").with_columns(**own.columns((0, rows["cell"].to_numpy())))


def run_estimate(options: HierarchyEstimateOptions, progress: Progress | None = None) -> Outcome:
    """Estimate from published measurements, and write the estimates with their standard errors."""
    refuse_taken(options.out, endings=(".parquet", ".csv"))
    members: dict[str, list[str]] = {}
    request = targets = None
    if options.areas is not None:
        listing = read_table(options.areas, ("area", "geocode"), option="--areas")
        members = {
            name: own["geocode"].to_list() for (name,), own in listing.partition_by("area", as_dict=True).items()
        }
    mentioned = [("", code) for own in members.values() for code in own]
    if options.targets is not None:
        request = read_table(options.targets, ("geolevel", "area", "query_name", "cell"), option="--targets")
        mentioned += [
            (level, area) for level, area in request.select("geolevel", "area").unique().rows() if area not in members
        ]
    published = options.opened(mentioned=mentioned)
    members = {name: [published.block(code) for code in own] for name, own in members.items()}
    if request is not None:
        targets = targets_of(request, published, members, f"--targets {options.targets}")
    with _placed(options.out) as half:
        written, residuals, model = EstimateParts(half.with_name("parts")), Residuals(), published.model()
        unions = Unions(model, members)
        for found in estimates_of(published, model=model, groups=published.totals, progress=progress):
            residuals += found.residuals
            written.add(estimate_frames(found, published.queries) if targets is None else _aimed(targets, found))
            unions.add(found)
        unions.finish()
        if targets is None:
            asked_for = ((name, label, query) for name in members for label, query in published.queries.items())
            written.add(
                estimate_frame(UNION, [name], label, unions.of(name, query)) for name, label, query in asked_for
            )
        else:
            written.add(_in_unions(targets, unions))
        if not written.files:
            what = "no row is measured: all are constraints, or have no finite variance"
            raise bad_file(what, where=str(options.measurements), remedy="name a folder or file with measurements")
        _put_together(written, request, half)
    return _outcome(options, published, residuals, written)


@contextmanager
def _placed(out: Path) -> Iterator[Path]:
    """Yield a file in a folder of its own, which becomes ``out``; estimates that are there already are replaced."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with file_at(out, private=False, replace=True) as half:
            half.with_name("parts").mkdir()
            yield half
    except OSError as error:
        raise bad_file(
            f"it cannot be written ({error.strerror})", where=f"--out {out}", remedy="name another"
        ) from None


def _put_together(written: EstimateParts, request: pl.DataFrame | None, out: Path) -> None:
    """Write one file; that of targets has their rows in their order."""
    parts = pl.scan_parquet(written.files)
    if request is not None:
        keys = request.select("geolevel", "area", "query_name", "cell").with_row_index("row").lazy()
        parts = keys.join(parts, on="row", how="left", maintain_order="left").drop("row")
    if out.suffix == ".csv":
        parts.sink_csv(out)
    else:
        parts.sink_parquet(out, compression="zstd", compression_level=1)


def _outcome(
    options: HierarchyEstimateOptions, published: PublishedMeasurements, residuals: Residuals, written: EstimateParts
) -> Outcome:
    chance = chance_of(residuals)
    values = {
        "estimates": str(options.out),
        "rows": written.rows,
        "not_estimable": written.lost,
        "areas": published.areas,
        "areas_named_by": published.named_by,
        "areas_without_rows": published.taken_to_exist,
        "areas_apart": [{"geolevel": level, "area": code} for level, code, _ in residuals.apart],
        "queries": [*published.queries],
        "chi_squared": residuals.squares,
        "degrees_of_freedom": residuals.freedom,
        "probability_of_more": chance,
        "sha256": published.sha256,
        "files": published.checksums,
        "spends": SPENDS,
    }
    rows = [
        ("estimates", f"{number(written.rows, 'row')} in {options.out}, {written.lost:,} of them not estimable"),
        ("areas", ", ".join(f"{name} {count:,}" for name, count in published.areas.items())),
        (
            "residuals",
            f"chi-squared {residuals.squares:,.1f} with {residuals.freedom:,} degrees of freedom{_judged(chance)}",
        ),
        ("read", f"{number(len(published.files), 'file')}, SHA-256 {values['sha256']}"),
        ("spends", SPENDS),
    ]
    if published.taken_to_exist:
        words = (
            f"{number(published.taken_to_exist, 'area')} of --targets and --areas that no row speaks of: taken to exist"
        )
        rows.insert(2, ("without rows", f"{words}, without measurements; if one is misspelt, correct it"))
    rows[2:2] = _incomplete(published, residuals)
    return Outcome(rows=rows, values=values)


def _incomplete(published: PublishedMeasurements, residuals: Residuals) -> list[tuple[str, str]]:
    """Return what to know where a part of an area may be missing without a trace."""
    found = []
    if published.named_by == "rows":
        words = "an area is the sum of its parts that have rows; if others exist, name them all with --spine"
        found.append(("parts", words))
    if residuals.apart:
        names = ", ".join(f'{level} "{code}"' for level, code, _ in residuals.apart)
        words = "was measured far from what its parts say: a part may be missing, or a variance wrong"
        found.append(("check", f"{names} {words}"))
    return found


def chance_of(residuals: Residuals) -> float | None:
    """Return the probability of a larger sum of squares, if file and variances agree (Wilson and Hilferty 1931).

    >>> round(chance_of(Residuals(squares=18.307, freedom=10)), 3)
    0.05
    """
    return 1 - NormalDist().cdf(residuals.deviation) if residuals.freedom else None


def _judged(chance: float | None) -> str:
    if chance is None or 1e-4 < chance < 1 - 1e-4:
        return ""
    return ": far from what the variances of the rows say; check that file, schema and levels belong together"


# ---- one interval -----------------------------------------------------------------------------------------


def run_interval(options: IntervalOptions, progress: Progress | None = None) -> Outcome:
    """Return the estimate of one count from a bundle, with its interval."""
    published = open_given(options.bundle, schema=options.schema_, totals=options.totals)
    query, cell = where_query(published.schema, options.where)
    areas = [*dict.fromkeys(published.block(code) for code in options.area)] or [published.spine.geocodes[0][0]]
    refuse_unknown_areas(areas, published)
    model = published.model()
    unions = Unions(model, {_ASKED: areas})
    residuals, candidates = Residuals(), list[Terms]()
    for found in estimates_of(published, model=model, groups=published.totals, progress=progress):
        residuals += found.residuals
        unions.add(found)
        levels = [estimates.level for estimates in found.by_level]
        candidates += measured_terms(levels, areas, query, cell)
    unions.finish()
    if not published.cut:
        solved = solved_terms(published.tree().levels, areas, query, cell, groups=published.totals)
        candidates += [] if solved is None else [solved]
    answers = unions.of(_ASKED, query)
    words = " and ".join(options.where) or "everybody"
    values = {
        "area": areas,
        "where": options.where,
        "level": options.level,
        "areas_named_by": published.named_by,
        "sha256": published.sha256,
    }
    rows = [("count", f"{words} in {', '.join(code or 'the whole' for code in areas)}")]
    if not answers.estimable[0, cell]:
        rows.append(("estimate", "not estimable: no measurement tells these counts from others"))
        return Outcome(rows=rows, values={**values, "estimable": False})
    value, sd = float(answers.estimate[0, cell]), float(answers.std_dev[0, cell])
    half, law = _half_width(sd, options.level, candidates)
    if not sd:
        value = float(round(value))  # what is known exactly is a count
    low, high = _whole_if_near(value - half), _whole_if_near(value + half)
    rows += [
        ("estimate", f"{value:,.1f}, standard error {sd:,.2f}"),
        ("interval", f"{low:,.1f} to {high:,.1f} ({percent(options.level)}, {law})"),
        *_incomplete(published, residuals),
        ("spends", SPENDS),
    ]
    more = {"estimable": True, "estimate": value, "std_dev": sd, "interval": [low, high], "law": law}
    return Outcome(rows=rows, values={**values, **more})


def _whole_if_near(bound: float) -> float:
    """Return a bound as the whole number that it is but for rounding.

    A true count is whole, and lies on a bound with a probability that the exact law counts on: a bound of
    7.000000000000001 would lose the 7.

    >>> _whole_if_near(7.000000000000001), _whole_if_near(-2.9999999), _whole_if_near(2.4)
    (7.0, -3.0, 2.4)
    """
    nearest = round(bound)
    return float(nearest) if abs(bound - nearest) <= _ROUNDED * max(1.0, 1e-4 * abs(bound)) else bound


def percent(level: float) -> str:
    """Return how often an interval holds, without rounding it to always.

    >>> percent(0.95), percent(0.999999)
    ('95%', '99.9999%')
    """
    return f"{(Decimal(repr(level)) * 100).normalize():f}%"


def _half_width(sd: float, level: float, candidates: Iterable[Terms]) -> tuple[float, str]:
    """Return how far the interval reaches, and from which law: that of the noise, where few measurements matter."""
    if not sd:
        return 0.0, "known exactly"
    for terms in candidates:
        if gives(terms, sd) and (half := half_width(terms, level)) is not None:
            return half, f"exact law of the noise of {number(len(terms), 'measured value')}"
    return NormalDist().inv_cdf(0.5 + level / 2) * sd, "normal"


COMMANDS = (
    Command(
        name="estimate",
        help="Estimate counts from published measurements.",
        options=HierarchyEstimateOptions,
        run=run_estimate,
    ),
    Command(
        name="interval",
        help="Estimate one count from a bundle, with its interval.",
        options=IntervalOptions,
        run=run_interval,
    ),
)
