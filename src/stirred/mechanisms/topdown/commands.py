"""The commands of TopDown: ``estimate`` and ``interval``, ``microdata``, ``budget``.

They read what anybody may read. No noise is drawn and no budget is spent: to measure is to release, through the ledger.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from math import isclose
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from stirred import __version__
from stirred.data.codebook import Codebook
from stirred.data.place import file_at, folder_at
from stirred.data.problems import DataError, PlanError, bad_file, bad_plan, listed, number
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.topdown.budget import DELTA, Shares, read_budget
from stirred.mechanisms.topdown.estimates import (
    COLUMNS,
    Unions,
    estimate_frame,
    estimate_frames,
    estimates_of,
    half_width_of_sum,
    measured_sums,
)
from stirred.mechanisms.topdown.hierarchy.least_squares import Residuals
from stirred.mechanisms.topdown.hierarchy.schema import (
    BUDGETS,
    DETAILED,
    SCHEMAS,
    MarginalQuery,
    Schema,
    coded_variables,
    factors_of,
    schema_named,
)
from stirred.mechanisms.topdown.hierarchy.tree import Level, Places
from stirred.mechanisms.topdown.plan import cost_grid, cost_values, noise_grid, noise_values
from stirred.mechanisms.topdown.published import SCHEMA_HELP, PublishedMeasurements, PublishedOptions, read_table
from stirred.mechanisms.topdown.settings import MethodName
from stirred.mechanisms.topdown.solve.files import FileParts, make
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import LevelStore, SolveOptions
from stirred.mechanisms.topdown.spine import plain
from stirred.spec.given_numbers import probability
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, setting

SPENDS: Final = "nothing: no noise was drawn, and no ledger is concerned"
UNION: Final = "union"
_ROUNDED: Final = 1e-6
_SAME: Final = 1e-7
_ASKED: Final = "--area"  # a union, as messages call it
_TARGET: Final = COLUMNS[:4]  # what a file of targets has
_PLACE: Final = ("_geolevel", "_area", *_TARGET[2:])  # the same as estimates name it


# ---- estimates --------------------------------------------------------------------------------------------


class HierarchyEstimateOptions(PublishedOptions):
    """The options of ``stirred topdown estimate``."""

    areas: Path | None = Field(default=None, description="Unions off the spine: area, and the geocodes in it.")
    targets: Path | None = Field(
        default=None, description="What to write: geolevel, area, query_name, cell; default all that was measured."
    )
    out: Path = Field(description="Where the estimates go: a Parquet or CSV file.")


def run_estimate(options: HierarchyEstimateOptions, progress: Progress | None = None) -> Outcome:
    """Estimate from published measurements, and write the estimates with their standard errors."""
    _refuse_taken(options.out)
    published, members = options.opened(), dict[str, list[str]]()
    if options.areas is not None:
        listing = read_table(options.areas, ("area", "geocode"), option="--areas")
        for name, code in listing.select("area", "geocode").iter_rows():
            members.setdefault(name, []).append(published.block(code))
        _refuse_unknown_areas([code for own in members.values() for code in own], published, "--areas")
    targets = None if options.targets is None else Targets.read(options.targets, published, members)
    queries = published.queries if targets is None else targets.queries
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with file_at(options.out, private=False, replace=True) as half:  # estimates that are there are replaced
        written, residuals, model = FileParts(path=half.with_name("estimates")), Residuals(), published.model()
        unions = Unions(model, members)
        for found in estimates_of(published, model=model, groups=published.totals, progress=progress):
            residuals += found.residuals
            frames = estimate_frames(found, queries, None if targets is None else targets.places)
            written.extend(frames if targets is None else targets.among(frames))
            unions.add(found)
        unions.finish()
        pairs = ((name, label) for name in members for label in queries)
        frames = (estimate_frame(UNION, [name], label, unions.of(name, queries[label])) for name, label in pairs)
        written.extend(frames if targets is None else targets.among(frames))
        if not written.parts:
            what = "no row is measured: all are constraints, or have no finite variance"
            raise bad_file(what, where=str(options.measurements), remedy="name a folder or file with measurements")
        parts = pl.scan_parquet(written.parts)
        parts = parts if targets is None else targets.joined(parts)
        rows, estimable = parts.select(pl.len(), pl.col("estimable").sum()).collect().row(0)
        if options.out.suffix == ".csv":
            parts.sink_csv(half)
        else:
            parts.sink_parquet(half, compression="zstd", compression_level=1)
    return _estimated(options, published, residuals, rows=rows, lost=rows - estimable)


def _refuse_taken(out: Path) -> None:
    """Refuse a file of a kind that is not written, or to write over one that is there and has no estimates."""
    columns: list[str] = []
    if out.is_file() and out.suffix in (".parquet", ".csv"):
        try:
            scan = pl.scan_parquet(out) if out.suffix == ".parquet" else pl.scan_csv(out, infer_schema=False)
            columns = scan.collect_schema().names()
        except (pl.exceptions.PolarsError, OSError):
            pass
    if out.exists() and tuple(columns) != COLUMNS:
        raise bad_plan("it exists already", where=f"--out {out}", remedy="choose a new name")
    if out.suffix not in (".parquet", ".csv"):
        raise bad_plan(f"'{out.name}' does not end in .parquet or .csv", where="--out", remedy="name such a file")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """What a file asks for: its queries, and its rows with their places as estimates name them (``_PLACE``)."""

    queries: Mapping[str, MarginalQuery]
    rows: pl.DataFrame

    @classmethod
    def read(cls, path: Path, published: PublishedMeasurements, unions: Mapping[str, Any]) -> Targets:
        """Return the targets of a file; an area is a geocode of its level, or the name of a union."""
        frame, where = read_table(path, _TARGET, option="--targets"), f"--targets {path}"
        spine, problems = published.spine, list[Problem]()
        levels = {plain(name): name for name in spine.names if name}
        codes = {name: {*own} for name, own in zip(spine.names, spine.geocodes, strict=True)}
        queries: dict[str, MarginalQuery] = {}
        for name in frame["query_name"].unique(maintain_order=True):
            try:
                queries[name] = published.queries.get(name) or published.schema.query(name)
            except PlanError as error:
                problems += [problem.inside(where) for problem in error.problems]

        def place(level: str, area: str) -> tuple[str | None, str]:
            name = levels.get(plain(level))
            # The uppermost area has an empty geocode, whatever a reader calls it.
            code = spine.geocodes[0][0] if name == spine.names[0] and area in ("", level) else published.block(area)
            return name if name and code in codes[name] else UNION if area in unions else None, code

        asked = frame.select(_TARGET).with_columns(pl.col("cell").cast(pl.Int64, strict=False))
        places = asked.select(_TARGET[:2]).unique()
        text = dict.fromkeys(_PLACE[:2], pl.String)
        own = pl.DataFrame([place(*row) for row in places.iter_rows()], schema=text, orient="row")
        asked = asked.join(places.hstack(own), on=_TARGET[:2], how="left", maintain_order="left")
        sizes = pl.col("query_name").replace_strict(
            [*queries], [query.size for query in queries.values()], default=None, return_dtype=pl.Int64
        )
        there = pl.col("_geolevel").is_not_null() & pl.col("cell").is_between(0, sizes - 1).fill_null(value=False)
        wrong = asked.with_row_index("row").filter(sizes.is_not_null() & ~there)
        for row in wrong.unique(["geolevel", "query_name"], keep="first", maintain_order=True).iter_rows(named=True):
            name = row["query_name"]
            what = f'{name}: there is no cell {row["cell"]} of it in {row["geolevel"] or UNION} "{row["area"]}"'
            remedy = f"there are the levels {listed([*published.areas])}, and cells 0 to {queries[name].size - 1:,}; "
            remedy += f"areas without rows exist if {setting('spine')} lists them"
            problems.append(Problem(what=what, where=f"{where} row {row['row'] + 1}", remedy=remedy))
        if problems:
            raise DataError(problems)
        return cls(queries=queries, rows=asked)

    def places(self, level: Level, name: str) -> Places:
        """Return the places of the areas of a level of which a query is asked."""
        codes = {*self.rows.filter(_geolevel=level.name, query_name=name)["_area"]}
        return np.array([place for place, code in enumerate(level.geocodes) if code in codes], dtype=np.int64)

    def among(self, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the rows that are asked for."""
        for frame in frames:
            some = frame.join(self.rows, left_on=_TARGET, right_on=_PLACE, how="semi")
            if some.height:
                yield some

    def joined(self, estimates: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows of the file in their order, each with its estimate."""
        own = estimates.rename(dict(zip(_TARGET, _PLACE, strict=True)))
        return self.rows.lazy().join(own, on=_PLACE, how="left", maintain_order="left").select(COLUMNS)


def _estimated(
    options: HierarchyEstimateOptions, published: PublishedMeasurements, residuals: Residuals, *, rows: int, lost: int
) -> Outcome:
    chance = residuals.chance
    judged = ""
    if chance is not None and not 1e-4 < chance < 1 - 1e-4:
        judged = ": far from what the variances of the rows say; check that file, schema and levels belong together"
    values = {
        "estimates": str(options.out),
        "rows": rows,
        "not_estimable": lost,
        "areas": published.areas,
        "areas_named_by": published.named_by,
        "queries": [*published.queries],
        "chi_squared": residuals.squares,
        "degrees_of_freedom": residuals.freedom,
        "probability_of_more": chance,
        "sha256": published.sha256,
        "files": published.checksums,
        "spends": SPENDS,
    }
    freedom = f"chi-squared {residuals.squares:,.1f} with {residuals.freedom:,} degrees of freedom"
    said = [
        ("estimates", f"{number(rows, 'row')} in {options.out}, {lost:,} of them not estimable"),
        ("areas", _areas_in_words(published)),
        *_incomplete(published),
        ("residuals", f"{freedom}{judged}"),
        ("read", f"{number(len(published.files), 'file')}, SHA-256 {values['sha256']}"),
        ("spends", SPENDS),
    ]
    return Outcome(rows=said, values=values)


def _areas_in_words(published: PublishedMeasurements) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in published.areas.items())


def _incomplete(published: PublishedMeasurements) -> Iterator[tuple[str, str]]:
    """Yield what to know where a part of an area may be missing without a trace."""
    if published.named_by == "rows":
        yield "parts", "an area is the sum of its parts that have rows; if others exist, name them all with --spine"


# ---- one interval -----------------------------------------------------------------------------------------


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


def run_interval(options: IntervalOptions, progress: Progress | None = None) -> Outcome:
    """Return the estimate of one count from a bundle, with its interval."""
    given = PublishedOptions(measurements=options.bundle, schema_=options.schema_, totals=options.totals)
    published = given.opened()
    query, cell = where_query(published.schema, options.where)
    areas = [*dict.fromkeys(published.block(code) for code in options.area)] or [published.spine.geocodes[0][0]]
    _refuse_unknown_areas(areas, published, _ASKED)
    model = published.model()
    unions = Unions(model, {_ASKED: areas})
    sums = list[tuple[float, int]]()
    for found in estimates_of(published, model=model, groups=published.totals, progress=progress):
        unions.add(found)
        sums += measured_sums((estimates.level for estimates in found.by_level), areas, query, cell)
    unions.finish()
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
    half, law = _half_width(sd, options.level, sums)
    if not sd:
        value = float(round(value))  # what is known exactly is a count
    low, high = _whole_if_near(value - half), _whole_if_near(value + half)
    rows += [
        ("estimate", f"{value:,.1f}, standard error {sd:,.2f}"),
        ("interval", f"{low:,.1f} to {high:,.1f} ({percent(options.level, digits=12)}, {law})"),
        *_incomplete(published),
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


def _half_width(sd: float, level: float, sums: Iterable[tuple[float, int]]) -> tuple[float, str]:
    """Return how far the interval reaches, and from which law: that of the noise, where few measurements matter."""
    if not sd:
        return 0.0, "known exactly"
    for variance, many in sums:
        half = half_width_of_sum(variance, many, level) if isclose(many * variance, sd**2, rel_tol=_SAME) else None
        if half is not None:
            return float(half), f"exact law of the noise of {number(many, 'measured value')}"
    return NormalDist().inv_cdf(0.5 + level / 2) * sd, "normal"


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


def _refuse_unknown_areas(codes: Sequence[str], published: PublishedMeasurements, where: str) -> None:
    """Refuse codes that no area has; a geocode has the codes of the areas around it in front, and may be filled up."""
    every = [code for own in published.spine.geocodes for code in own]
    problems = []
    for code in sorted({*codes} - {*every}):
        near = [each for each in every if each.rstrip("_").endswith(code)] or get_close_matches(code, every, n=3)
        remedy = f"did you mean {listed(near[:3])}? " if near else ""
        in_full = f"Write it in full; areas without rows exist if {setting('spine')} lists them"
        remedy += in_full if published.by_prefix else "Geocodes of all areas are in spine.parquet"
        problems.append(Problem(what=f'there is no area "{code}"', where=where, remedy=remedy))
    if problems:
        raise PlanError(problems)


# ---- records ----------------------------------------------------------------------------------------------


class MicrodataOptions(PublishedOptions):
    """The options of ``stirred topdown microdata``."""

    arm: MethodName = Field(default="default", description="How to solve: default, or for comparison blue or bureau.")
    records: str = Field(default="persons", description="What records are called: the name of their file.")
    threads: int = Field(default=0, ge=0, description="Threads; 0 for one per core. The counts do not depend on it.")
    out: Path = Field(description="A folder for counts.parquet, the records and certificate.json.")


def run_microdata(options: MicrodataOptions, progress: Progress | None = None) -> Outcome:
    """Make microdata from published measurements, check it as it was written, and say what happened.

    A run that was interrupted goes on where it stopped if it is started again with the same files and options.
    """
    _check_out(options)
    published, out = options.opened(), options.out
    # What an interrupted run has solved stays beside the folder; all of it follows from published files.
    unfinished = out.absolute().with_name(f".{out.absolute().name}.unfinished")
    mark = f"{__version__} {published.sha256} {options.arm} {options.schema_}"
    settings = SolveOptions(
        method=METHODS[options.arm],
        groups=published.totals,
        threads=options.threads or os.cpu_count() or 1,
        store=LevelStore(folder=unfinished, mark=mark),
        progress=progress,
    )
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with folder_at(out.absolute(), private=False, replace=True) as folder:
        made = make(published.shards, settings, folder, top=published.top(), records=options.records)
    shutil.rmtree(unfinished, ignore_errors=True)
    certificate, shown = made.certificate, 5
    checks = sum(certificate.checks.values())
    values = {
        **made.facts(),
        "arm": options.arm,
        "files": [str(out / path.name) for path in made.files],
        "areas": published.areas,
        "sha256": published.sha256,
        "spends": SPENDS,
    }
    rows = [
        ("records", f"{certificate.records:,} in {out}"),
        ("areas", _areas_in_words(published)),
        ("solved", f"{made.parents:,} problems, {made.iterations:,} iterations, largest gap {made.largest_gap:.1e}"),
        ("check", f"passed: {checks:,} comparisons" if certificate.passed else f"FAILED: {certificate.failed:,} times"),
        *(("failed", text) for text in certificate.failures[:shown]),
        *(("event", f"{event.level} in {event.area!r}: {event.what} ({event.why})") for event in made.events[:shown]),
        ("measured", f"{len(published.files):,} files, SHA-256 {published.sha256}"),
        ("spends", SPENDS),
    ]
    if len(made.events) > shown:
        rows.append(("events", f"{len(made.events):,} in all, see {out / 'certificate.json'}"))
    return Outcome(rows=rows, values=values, passed=certificate.passed)


def _check_out(options: MicrodataOptions) -> None:
    """Refuse to write over what is there, but for an empty folder."""
    out, problems = options.out, []
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        problems.append(Problem(what="it exists already", where=f"--out {out}", remedy="choose a new folder"))
    if Path(options.records).name != options.records or options.records in ("", ".", "..", "counts"):
        remedy = "write a plain name, such as persons"
        problems.append(Problem(what=f"'{options.records}' is no name of a file", where="--records", remedy=remedy))
    if problems:
        raise PlanError(problems)


# ---- budgets ----------------------------------------------------------------------------------------------


class TopDownBudgetOptions(BaseModel):
    """The options of ``stirred topdown budget``."""

    file: str = Field(
        description=f"A budget file (TOML), or one that is shipped: {', '.join(BUDGETS)}.",
        json_schema_extra={"argument": "FILE"},
    )
    schema_: str | None = Field(
        default=None,
        description=f"What the queries ask: {', '.join(SCHEMAS)}, or a codebook; default what the file says.",
    )
    delta: str = Field(default=str(DELTA), description="The delta at which epsilon is shown.")


def show_budget(options: TopDownBudgetOptions, progress: Progress | None = None) -> Outcome:
    """Check a budget file, and return the noise of every query and what a change of one record costs."""
    del progress
    shares = Shares.read(read_budget(options.file), where=options.file)
    if not (name := options.schema_ or shares.schema):
        remedy = f"write schema = '...' into it, or --schema: a codebook, or {listed(SCHEMAS)}"
        raise bad_plan("the budget file does not say what its queries ask", where="schema", remedy=remedy)
    schema = schema_named(name, attributes=partial(_asked_variables, shares))
    shares = shares.fitted(schema, [*shares.levels], where=options.file)
    delta = probability(options.delta, where="--delta")
    costs = shares.certificate(schema, delta=Fraction(delta))
    values = {
        "budget": shares.document(),
        "sigma2": noise_values(shares),
        "certificate": cost_values(costs),
        "delta": str(delta),
        "neighbours": "bounded",
    }
    rows = [
        ("budget", shares.title or options.file),
        ("rho", f"{shares.rho} = {float(shares.rho):.4f} (zCDP, bounded neighbours: one record changed)"),
        ("counts", f"by {' x '.join(schema.names)}"),
        ("levels", ", ".join(f"{level} {float(share):.2%}" for level, share in shares.levels.items())),
        (
            "checked",
            "shares of the levels and of the queries at every level add up to 1, and every query is in the schema",
        ),
    ]
    return Outcome(rows=rows, grids=[noise_grid(shares), cost_grid(costs, delta=float(delta))], values=values)


def _asked_variables(shares: Shares, codebook: Codebook) -> list[str]:
    """Return the variables of a codebook that the queries of a budget name; of ``detailed`` all that are no levels."""
    coded, levels = coded_variables(codebook), {level.casefold() for level in shares.levels}
    factors = [*dict.fromkeys(factor for query in shares.names for factor in factors_of(query))]
    named = [factor for factor in factors if factor in coded]
    if DETAILED in factors or not named:
        return [each for each in coded if each in factors or each.casefold() not in levels]
    return named


COMMANDS = (
    Command(
        name="estimate",
        help="Estimate counts from published measurements.",
        options=HierarchyEstimateOptions,
        run=run_estimate,
        progress=True,
    ),
    Command(
        name="interval",
        help="Estimate one count from a bundle, with its interval.",
        options=IntervalOptions,
        run=run_interval,
        progress=True,
    ),
    Command(
        name="microdata",
        help="Make records from published measurements.",
        options=MicrodataOptions,
        run=run_microdata,
        progress=True,
    ),
    Command(
        name="budget",
        help="Check a budget file, and show its noise and costs.",
        options=TopDownBudgetOptions,
        run=show_budget,
    ),
)
