"""Measurements as others publish them, read as they are: folders by level, or one file; areas by prefix or by a spine.

Levels come from folders (``County.parquet/DPQuery/State=0SS/part-0.parquet``) or from a column ``geolevel``. What is
missing says nothing: an area without a row, a variance that is null or infinite. The variance is that of the row, never
one computed from a budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from stirred.data.bundle import checksum
from stirred.data.codebook import Codebook
from stirred.data.frames import read_frame
from stirred.data.problems import DataError, PlanError, bad_file, bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.least_squares import SubspaceModel
from stirred.mechanisms.topdown.hierarchy.schema import (
    DETAILED,
    SCHEMAS,
    SUMMED,
    TOTAL,
    Attribute,
    MarginalQuery,
    Schema,
    coded_variables,
    schema_named,
)
from stirred.mechanisms.topdown.hierarchy.tree import (
    NO_BOUND,
    Answers,
    Constraint,
    GroupTotal,
    Level,
    Sign,
    Tree,
)
from stirred.mechanisms.topdown.settings import TopDownDesign, TopDownSettings
from stirred.mechanisms.topdown.spine import SPINE_COLUMNS, Spine, groups_of, listed_spine
from stirred.randomness.cell_law import variance_of
from stirred.spec.problems import Problem

# Where a row stands, for what is said of it.
FILE: Final = "__file"
ROW: Final = "__row"
TABULATION: Final = 16  # letters at the end of a geocode of a block in the 2020 files: those of the tabulation block
_SIGNS: Final[Mapping[str, Sign]] = {"=": "=", "==": "=", "eq": "=", "<=": "<=", "le": "<=", ">=": ">=", "ge": ">="}
# Constraints of the 2020 files that name one group and leave the others out.
_ONE_GROUP: Final = {"gqNursingTotal": ("hhgq", 3), "nonvoting": ("votingage", 0)}
_NURSING: Final = "nurse_nva_0_con"
_VALUES_AT_ONCE: Final = 1 << 24
_IS_NUMBER: Final = pl.element().is_finite().fill_null(value=False)
_PLACE: Final = "__place"
SPECIFICATION: Final = "specification.json"
MEASUREMENTS: Final = "measurements.parquet"
SCHEMA_HELP: Final = f"{', '.join(SCHEMAS)}, or a codebook; default what the bundle says, or pl94-persons."


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedMeasurements:
    """Published measurements with their areas, level by level from the top; rows are read when they are needed."""

    schema: Schema
    spine: Spine
    rows: Mapping[str, pl.LazyFrame]  # by level
    files: tuple[Path, ...]
    totals: tuple[GroupTotal, ...] = ()
    by_prefix: bool = True

    @property
    def areas(self) -> dict[str, int]:
        return {name: self.spine.areas(depth) for depth, name in enumerate(self.spine.names) if name}

    @cached_property
    def queries(self) -> dict[str, MarginalQuery]:
        """Return what was measured, by the names in the file."""
        return {each.name: each.query for each in self._row_queries.values() if each.sign is None}

    @cached_property
    def named_by(self) -> Literal["spine", "constraints", "rows"]:
        """Return what names the areas: a spine; constraints, which name all of them; or any rows at all.

        Constraints are published of every area of the spine, also where nothing was measured. An area that is in no
        row, of measurements that come alone, cannot be told from one that does not exist.
        """
        if not self.by_prefix:
            return "spine"
        for name, own in zip(self.spine.names[1:], self.spine.geocodes[1:], strict=True):
            rows = self.rows[name].filter(pl.col("sign").is_not_null()) if name in self.rows else None
            if rows is None or len(own) > self._read(rows.select(pl.col("geocode").n_unique())).item():
                return "rows"
        return "constraints"

    @property
    def _columns(self) -> list[str]:
        """Return the columns in which a row says what it asks."""
        return ["query_name", *self.schema.names, "query_shape", "sign"]

    @cached_property
    def _row_queries(self) -> dict[tuple[Any, ...], RowQuery]:
        """Return what rows ask, for each way in which they describe it."""
        columns = self._columns
        if not self.rows:
            return {}
        frames = [rows.group_by(columns).agg(pl.col(FILE, ROW).first()) for rows in self.rows.values()]
        found = self._read(pl.concat(frames).unique(columns, keep="first", maintain_order=True)).sort("query_name")
        found_queries, problems = {}, []
        for row in found.iter_rows(named=True):
            try:
                found_queries[tuple(row[name] for name in columns)] = _query_of(row, self.schema)
            except (DataError, PlanError) as error:
                problems += [problem.inside(self._place(row)) for problem in error.problems]
        if problems:
            raise DataError(problems)
        return found_queries

    def _read(self, rows: pl.LazyFrame) -> pl.DataFrame:
        return read_rows(rows, self.files)

    def _place(self, row: Mapping[str, Any]) -> str:
        return f"{self.files[row[FILE]]} row {row[ROW] + 1}"

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of every file that was read."""
        return {str(path): checksum(path) for path in self.files}

    @property
    def sha256(self) -> str:
        """Return one checksum: that of the file, or of the checksums of several in the order of their paths."""
        each = [*self.checksums.values()]
        return each[0] if len(each) == 1 else hashlib.sha256("\n".join(each).encode()).hexdigest()

    @cached_property
    def _blocks(self) -> dict[str, str]:
        return {code[-TABULATION:]: code for code in self.spine.geocodes[-1].to_list() if len(code) > TABULATION}

    def block(self, code: str) -> str:
        """Return a geocode as it is; that of a tabulation block as the one of the spine that ends with it."""
        return self._blocks.get(code, code) if len(code) == TABULATION else code

    def model(self) -> SubspaceModel:
        """Return the subspaces for all queries and known values of the file."""
        known = []
        for key, asked in self._row_queries.items():
            same = [pl.col(name).eq_missing(value) for name, value in zip(self._columns, key, strict=True)]
            if asked.sign in ("=", "<="):
                for level, each in self.rows.items():
                    known.append(asked.known(self._values(self._read(each.filter(same)), asked, level)))
        total = [self.schema.query(TOTAL)] if self.totals else []
        return SubspaceModel.of(self.schema, queries=[*self.queries.values(), *total], known=known)

    # ---- trees

    @cached_property
    def cut(self) -> int:
        """Return the level whose areas are worked on one after the other; 0 for all at once."""
        most = [int(np.diff(first).max()) * self.schema.size for first in self.spine.first_leaves[:-1]]
        return next((depth for depth, values in enumerate(most) if values <= _VALUES_AT_ONCE), max(0, len(most) - 1))

    def tree(self) -> Tree:
        """Return all areas as one tree."""
        return self._tree(0, 0, self.spine.depth, self._rows)

    def top(self) -> Tree | None:
        """Return the areas above the shards; the tops of shards are without measurements."""
        if not self.cut:
            return None
        *_, (_, _, last) = self.spine.below(0, 0, self.cut + 1)
        return Tree(schema=self.schema, levels=(*self._tree(0, 0, self.cut, self._rows).levels, last))

    def shards(self) -> Iterator[Tree]:
        """Yield the tree of each area at the cut; rows of neighbours are read together, as memory allows."""
        if not self.cut:
            yield self.tree()
            return
        values = np.diff(self.spine.first_leaves[self.cut]) * self.schema.size
        start = 0
        while start < len(values):
            stop = start + max(1, int(np.searchsorted(np.cumsum(values[start:]), _VALUES_AT_ONCE)))
            rows = {depth: self._rows(depth, start, stop) for depth in range(self.cut, self.spine.depth)}
            for place in range(start, stop):
                yield self._tree(self.cut, place, self.spine.depth, rows.__getitem__)
            start = stop

    def _rows(self, depth: int, start: int | None = None, stop: int = 0) -> pl.DataFrame:
        """Read the rows of a level, or of those of its areas that lie in some neighbours at the cut."""
        rows = self.rows.get(self.spine.names[depth])
        if rows is None:
            return pl.DataFrame(schema=dict.fromkeys((*self._columns, "geocode"), pl.String))
        if start is not None:
            low, high = (self.spine.within(self.cut, place, depth) for place in (start, stop - 1))
            codes = self.spine.geocodes[depth][low.start : high.stop]
            inside = pl.col("geocode").is_in(codes.to_list())
            if self.by_prefix and len(codes):
                inside = pl.col("geocode").is_between(pl.lit(codes[0]), pl.lit(codes[-1]))
            rows = rows.filter(inside)
        return self._read(rows)

    def _tree(self, depth: int, area: int, until: int, rows: Callable[[int], pl.DataFrame]) -> Tree:
        levels = (self._level(level, rows(own)) for own, _, level in self.spine.below(depth, area, until))
        return Tree(schema=self.schema, levels=tuple(levels))

    def _level(self, level: Level, rows: pl.DataFrame) -> Level:
        """Return a level with what its rows say."""
        codes = level.geocodes
        place = pl.DataFrame({"geocode": pl.Series(codes, dtype=pl.String), _PLACE: np.arange(len(codes))})
        own = rows.join(place, on="geocode", how="inner", maintain_order="left")
        answers: list[Answers] = []
        known: list[Constraint] = []
        for key, part in own.partition_by(self._columns, as_dict=True, maintain_order=True).items():
            asked, places = self._row_queries[key], part[_PLACE].to_numpy()
            values = self._values(part, asked, level.name)
            if asked.sign is not None:
                known.append(asked.known(values, places, len(codes)))
                continue
            variance = part["variance"].to_numpy()
            exact = variance == 0  # without noise
            spread, whole = np.full(len(codes), np.inf), np.zeros((len(codes), asked.size), dtype=values.dtype)
            spread[places[~exact]], whole[places] = variance[~exact], values
            answers.append(Answers(query=asked.query, values=whole, variance=spread))
            if exact.any():
                known.append(asked.known(values[exact], places[exact], len(codes)))
        return replace(level, answers=tuple(answers), known=tuple(known))

    def _values(self, part: pl.DataFrame, asked: RowQuery, level: str) -> np.ndarray[tuple[int, int], Any]:
        """Return the values of one query, a row for each area; refuse rows that are repeated, too short, or empty."""
        problems, size = [], asked.size
        for wrong, what, remedy in (
            (part["geocode"].is_duplicated(), "is measured twice in the same area", "keep one row for each area"),
            (part["value"].list.len() != size, f"has not {size:,} values", "write a value for every cell of the query"),
            (~part["value"].list.eval(_IS_NUMBER).list.all(), "has missing values", "leave the row out"),
        ):
            if wrong.fill_null(value=True).any():
                row = part.filter(wrong.fill_null(value=True)).row(0, named=True)
                what = f'{asked.name} of {level} "{row["geocode"]}" {what}'
                problems.append(Problem(what=what, where=self._place(row), remedy=remedy))
        if problems:
            raise DataError(problems)
        return part["value"].explode().to_numpy().reshape(part.height, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """What rows ask: a query, by its name in the file; of constraints their sign, and the one group that they name."""

    name: str
    query: MarginalQuery
    sign: Sign | None = None
    group: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """Return how many values a row has."""
        return self.query.size if self.group is None else 1

    def known(self, values: Any, places: Any = slice(None), areas: int | None = None) -> Constraint:
        """Return what is known in some areas of a level; a constraint on one group says nothing of the others."""
        areas, sign = len(values) if areas is None else areas, self.sign or "="
        whole, given = np.zeros((areas, self.query.size), dtype=np.int64), np.zeros(areas, dtype=np.bool_)
        if self.group is None:
            whole[places] = values
        else:
            whole[places], sign = (0, ">=") if sign == ">=" else (NO_BOUND, "<=")
            whole[places, np.ravel_multi_index(self.group, self.query.shape)] = values[:, 0]
        given[places] = True
        return Constraint(query=self.query, sign=sign, values=whole, given=given)


def _query_of(row: Mapping[str, Any], schema: Schema) -> RowQuery:
    """Return what a row asks: by its columns, or by its name where it has none."""
    name = str(row["query_name"])
    shape = None if row["query_shape"] is None else [int(each) for each in row["query_shape"].split("x") if each != "1"]
    sign = None if row["sign"] is None else _SIGNS.get(row["sign"].strip())
    if row["sign"] is not None and sign is None:
        raise bad_file(f'the sign "{row["sign"]}" of {name} is not known', where="", remedy="write =, <= or >=")
    said = {each: row[each] for each in schema.names}
    if name == _NURSING and not shape and {"hhgq", "votingage"} <= {*said}:
        said |= {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}
    one = {each for each in said.values() if each in _ONE_GROUP and _ONE_GROUP[each][0] in said}
    if all(each is None for each in said.values()):
        query = schema.query(name)
    else:
        query = schema.keeping([_kept(said[each.name], each, one, name) for each in schema.attributes], name=name)
    if one:
        if sign is None or shape:
            raise bad_file(f"{name} names one group and not the others", where="", remedy="name all groups")
        group = tuple(_ONE_GROUP[said[each]][1] if said[each] in one else 0 for each in schema.names)
        return RowQuery(name=name, query=query, sign=sign, group=group)
    if shape is not None and shape != [each for each in query.shape if each > 1]:
        raise bad_file(
            f"{name} has the shape {row['query_shape']}, and in the schema {schema.name} it has "
            f"{'x'.join(map(str, query.shape))}",
            where="",
            remedy="name the schema of the file with --schema",
        )
    return RowQuery(name=name, query=query, sign=sign)


def _kept(said: str | None, attribute: Attribute, one: Collection[str], name: str) -> str:
    """Return what a row keeps of an attribute; the 2020 files write its own name for all its codes."""
    if said in (attribute.name, DETAILED) or said in one:
        return DETAILED
    if said is None or said == SUMMED:
        return SUMMED
    if said not in attribute.groupings:
        there = listed([SUMMED, DETAILED, *attribute.groupings])
        raise bad_file(f'{name} has "{said}" for {attribute.name}', where="", remedy=f"there are {there}")
    return said


# ---- files ------------------------------------------------------------------------------------------------


def open_published(
    measurements: Path,
    *,
    schema: Schema,
    constraints: Path | None = None,
    totals: Path | None = None,
    spine: Path | None = None,
) -> PublishedMeasurements:
    """Return published measurements: nothing but areas and names of queries is read yet."""
    files = parquet_in(measurements, option="--measurements")
    more = [] if constraints is None else parquet_in(constraints, option="--constraints")
    if constraints is not None:
        files = [path for path in files if not is_constraint(path)]
        more = [path for path in more if is_constraint(path)] or more
    roots = [measurements] * len(files) + [constraints or measurements] * len(more)
    read = [*files, *more]
    by_level: dict[str, list[pl.LazyFrame]] = {}
    for number, (path, root) in enumerate(zip(read, roots, strict=True)):
        constraint = number >= len(files) or is_constraint(path)
        for level, frame in levels_of(path, number, root, schema, constraint=constraint):
            by_level.setdefault(level, []).append(frame)
    rows = {level: pl.concat(frames, how="vertical_relaxed") for level, frames in by_level.items()}
    codes = {
        level: read_rows(frame.select(pl.col("geocode").unique().sort()), read)["geocode"].to_list()
        for level, frame in rows.items()
    }
    if not any(codes.values()):
        remedy = "check that these are measurements"
        raise bad_file("there is no row of measurements", where=str(measurements), remedy=remedy)
    known = None if totals is None else read_table(totals, ("geocode", "value"), option="--totals")
    if spine is None:
        areas = Spine.of_prefixes(codes)
    else:
        areas = listed_spine(read_table(spine, SPINE_COLUMNS, option="--spine"), codes, str(spine))
    used = (*read, *(path for path in (totals, spine) if path is not None))
    return PublishedMeasurements(
        schema=schema,
        spine=areas,
        rows={level: with_variance(frame, used) for level, frame in rows.items()},
        files=used,
        totals=() if known is None else tuple(groups_of(known, areas, str(totals))),
        by_prefix=spine is None,
    )


class PublishedOptions(BaseModel):
    """What published measurements are read from: the options of commands that read any."""

    measurements: Path = Field(
        description="A bundle of TopDown, or published measurements: a folder by level, or one Parquet file."
    )
    constraints: Path | None = Field(
        default=None, description="Constraints; default the Constraint folders beside the measurements."
    )
    totals: Path | None = Field(default=None, description="Known totals: geocode, value and, for groups, members.")
    spine: Path | None = Field(
        default=None, description="Parents of areas: geocode, geolevel, parent; default prefixes."
    )
    schema_: str = Field(default="", description=SCHEMA_HELP)

    def opened(self) -> PublishedMeasurements:
        """Return the measurements of a bundle with its constraints, areas and schema; or published ones as they are."""
        path, constraints, spine = self.measurements, self.constraints, self.spine
        # A website has the files of public/ beside each other.
        near = (path / "public", path, path.parent if path.name == MEASUREMENTS else path)
        public = next((place for place in near if (place / SPECIFICATION).exists()), None)
        schema = None if public is None else _measured_schema(public)
        path = path if public is None else public / MEASUREMENTS
        if schema is None or self.schema_:
            given = schema_named(self.schema_ or "pl94-persons", attributes=partial(_measured_variables, path))
            codes = [[(each.name, each.codes) for each in own.attributes] for own in (given, schema or given)]
            if codes[0] != codes[1]:
                what = f"'{self.schema_}' has other attributes or codes, or in another order, than were measured"
                raise bad_plan(what, where="--schema", remedy="leave it out: the bundle says what was measured")
            schema = schema or given
        if public is not None:
            beside = {place.stem: place for place in public.glob("*.parquet")}
            constraints, spine = constraints or beside.get("constraints"), spine or beside.get("spine")
        return open_published(path, schema=schema, constraints=constraints, totals=self.totals, spine=spine)


def _measured_schema(public: Path) -> Schema:
    """Return what the measurements of a bundle count, by the settings that its specification states."""
    try:
        stated = dict(json.loads((public / SPECIFICATION).read_text(encoding="utf-8"))["mechanism"])
    except (OSError, ValueError, LookupError, TypeError):
        stated = {}
    if not (public / MEASUREMENTS).exists():
        what, remedy = "this release has no measurements", "publish them too: publish = ['measurements', ...]"
        if (name := stated.get("name", "topdown")) != "topdown":
            what, remedy = f"this is a release of {name}, which measures nothing", "name a release of topdown"
        raise bad_file(what, where=str(public), remedy=remedy)
    try:
        return TopDownDesign.of(TopDownSettings.model_validate(stated["settings"])).persons.schema
    except (ValueError, KeyError):  # of a model that does not fit too: a ValueError
        remedy = "take the measurements out of the folder, and give --schema, --constraints and --spine"
        what = "it does not say what was measured"
        raise bad_file(what, where=str(public / SPECIFICATION), remedy=remedy) from None


def _measured_variables(path: Path, codebook: Codebook) -> list[str]:
    """Return the coded variables that are columns of measurements, in their order; all of them where none is."""
    columns = columns_of(parquet_in(path, option="--measurements")[0])
    return [each for each in columns if codebook.codes(each)] or coded_variables(codebook)


def parquet_in(root: Path, *, option: str) -> list[Path]:
    """Return the Parquet files of a file or folder; refuse a folder with several products."""
    if not root.exists():
        raise bad_file("there is no such file or folder", where=f"{option} {root}", remedy="correct the path")
    if root.is_file():
        return [root]
    found = sorted(path for path in root.rglob("*.parquet") if path.is_file() and not path.name.startswith((".", "_")))
    products = sorted({_level_folder(path, root).parent.name for path in found if _level_folder(path, root) != root})
    if not found or len(products) > 1:
        what = f"there are several products: {listed(products)}" if found else "there is no Parquet file in it"
        raise bad_file(what, where=f"{option} {root}", remedy="name the folder of one product")
    return found


def _level_folder(path: Path, root: Path) -> Path:
    """Return the folder ``County.parquet`` that a file is in."""
    above = [each for each in path.parents if each.suffix == ".parquet" and root in (each, *each.parents)]
    return above[-1] if above else root


def is_constraint(path: Path) -> bool:
    """Say whether a file is in a folder of constraints."""
    return "Constraint" in path.parts


def _scan(path: Path, number: int, schema: Schema, *, level: str | None, constraint: bool) -> pl.LazyFrame:
    """Return the rows of a file with columns of one kind, whatever their widths; others are left out."""
    columns, frame = columns_of(path), pl.scan_parquet(path, hive_partitioning=False)
    needed = ["geocode", "query_name", "value", *(["sign"] if constraint else [])]
    if absent := [name for name in needed if name not in columns]:
        there = f"it has {listed([*columns])}"
        raise bad_file(f"it has no column {listed(absent)}", where=str(path), remedy=there)

    def text(name: str) -> pl.Expr:
        return (pl.col(name).cast(pl.String) if name in columns else pl.lit(None, dtype=pl.String)).alias(name)

    _refuse_other_kinds(path, columns)
    whole = isinstance(columns["value"], pl.List | pl.Array) and columns["value"].inner.is_integer()
    variance = pl.col("variance").cast(pl.Float64) if "variance" in columns else pl.lit(None, dtype=pl.Float64)
    geolevel = text("geolevel") if level is None else pl.lit(level)
    shape = pl.lit(None, dtype=pl.String)
    if "query_shape" in columns:
        shape = pl.col("query_shape").cast(pl.List(pl.String)).list.join("x")
    return frame.with_row_index(ROW).select(
        geolevel.alias("geolevel"),
        text("geocode").fill_null(""),
        *(text(name) for name in ("query_name", *schema.names, "sigma2", "sign")),
        shape.alias("query_shape"),
        pl.col("value").cast(pl.List(pl.Int64 if whole else pl.Float64)),
        variance.alias("variance"),
        pl.lit(number).alias(FILE),
        ROW,
    )


def _refuse_other_kinds(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse columns that hold no numbers where numbers are needed: polars would say so in its own words, later."""
    for name in ("value", "query_shape", "variance"):
        kind = columns.get(name, pl.Null())
        inner = kind if name == "variance" else getattr(kind, "inner", None)
        if name in columns and kind != pl.Null and not (inner is not None and (inner.is_numeric() or inner == pl.Null)):
            wanted = "numbers" if name == "variance" else "lists of numbers"
            raise bad_file(f'"{name}" holds {kind}', where=str(path), remedy=f"write {wanted} there")


def levels_of(
    path: Path, number: int, root: Path, schema: Schema, *, constraint: bool
) -> Iterator[tuple[str, pl.LazyFrame]]:
    """Yield the rows of a file by level: that of its folder, or those of its column."""
    folder = _level_folder(path, root)
    by_name = folder.suffix == ".parquet" and folder != path and folder.is_dir()
    if by_name and "geolevel" not in columns_of(path):
        yield folder.stem, _scan(path, number, schema, level=folder.stem, constraint=constraint)
        return
    rows = _scan(path, number, schema, level=None, constraint=constraint)
    levels = read_rows(rows.select(pl.col("geolevel").unique(maintain_order=True)), [path])["geolevel"]
    if levels.null_count():
        raise bad_file("rows have no geolevel", where=str(path), remedy="name the level in every row")
    for level in levels:
        yield level, rows.filter(pl.col("geolevel") == level)


def columns_of(path: Path) -> Mapping[str, Any]:
    """Return the columns of a Parquet file."""
    try:
        return pl.scan_parquet(path, hive_partitioning=False).collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise bad_file(f"it cannot be read ({str(error)[:100]})", where=str(path), remedy="write it again") from None


def read_rows(rows: pl.LazyFrame, files: Sequence[Path]) -> pl.DataFrame:
    """Return rows, which are read only now; name the file that turns out to be damaged."""
    try:
        return rows.collect()
    except pl.exceptions.PolarsError:
        for path in (path for path in files if path.suffix == ".parquet"):
            try:
                pl.read_parquet(path, hive_partitioning=False)
            except (pl.exceptions.PolarsError, OSError) as error:
                what = f"it is damaged and cannot be read ({str(error)[:100]})"
                raise bad_file(what, where=str(path), remedy="fetch or write it again") from None
        raise


def with_variance(rows: pl.LazyFrame, files: Sequence[Path]) -> pl.LazyFrame:
    """Return the rows that say anything, each with the variance of its noise: that of ``sigma2`` where it has one."""
    known = {}
    for text in read_rows(rows.select(pl.col("sigma2").unique()), files)["sigma2"].drop_nulls():
        try:
            known[text] = float(variance_of(Fraction(text)))
        except (ValueError, ZeroDivisionError, DataError, PlanError):
            known[text] = -1.0
    variance = pl.col("variance")
    if known:
        own = pl.col("sigma2").replace_strict([*known], [*known.values()], return_dtype=pl.Float64)
        variance = pl.when(pl.col("sigma2").is_null()).then(variance).otherwise(own)
    rows = rows.with_columns(variance.alias("variance"))
    measured = pl.col("sign").is_null()
    wrong = rows.filter(measured & (pl.col("variance") < 0)).select(FILE, ROW, "sigma2", "variance").limit(1)
    for row in read_rows(wrong, files).iter_rows(named=True):
        text = f"sigma2 {row['sigma2']}" if row["sigma2"] is not None else f"variance {row['variance']:g}"
        where = f"{files[row[FILE]]} row {row[ROW] + 1}"
        raise bad_file(f"{text} is not a variance", where=where, remedy='write a positive number, sigma2 as "7/2"')
    # Null, infinite and NaN say that there is no measurement; constraints have no noise.
    return rows.filter(~measured | pl.col("variance").is_finite())


def read_table(path: Path, needed: Sequence[str], *, option: str) -> pl.DataFrame:
    """Read a small table; geocodes are text, and an empty one is that of the uppermost area."""
    frame = read_frame(path)
    if absent := [name for name in needed if name not in frame.columns]:
        raise bad_file(
            f"it has no column {listed(absent)}",
            where=f"{option} {path}",
            remedy=f"it has {listed(frame.columns)}",
        )
    texts = [name for name in ("geocode", "parent", "area", "geolevel", "query_name") if name in frame.columns]
    return frame.with_columns(pl.col(texts).cast(pl.String).fill_null(""))
