"""The files of published measurements: which there are, of which level, and their rows with columns of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import polars as pl
from pydantic import BaseModel

from stirred.data.frames import read_frame
from stirred.data.problems import DataError, PlanError, bad_file, listed
from stirred.mechanisms.protocol import Outcome
from stirred.mechanisms.topdown.budget import variance_of
from stirred.mechanisms.topdown.published_areas import WIDTHS
from stirred.mechanisms.topdown.schema import Schema

# Where a row stands, for what is said of it.
FILE: Final = "__file"
ROW: Final = "__row"
M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")


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
    if level is None and "geolevel" not in columns:
        letters = text("geocode").fill_null("").str.len_chars()
        geolevel = letters.replace_strict([*WIDTHS], [*WIDTHS.values()], default=None, return_dtype=pl.String)
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
    levels = rows.select(pl.col("geolevel").unique(maintain_order=True)).collect()["geolevel"]
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


def damage_said(run: Callable[Concatenate[M, P], Outcome]) -> Callable[Concatenate[M, P], Outcome]:
    """Return a command that names the file that is damaged: rows are read when needed, long after the columns."""

    @wraps(run)
    def said(options: M, *more: P.args, **named: P.kwargs) -> Outcome:
        try:
            return run(options, *more, **named)
        except pl.exceptions.PolarsError:
            for name in ("measurements", "bundle", "constraints"):
                root: Path | None = getattr(options, name, None)
                if root is not None:
                    for path in [root] if root.is_file() else sorted(root.rglob("*.parquet")):
                        _read_through(path)
            raise

    return said


def _read_through(path: Path) -> None:
    if not path.is_file():
        return
    try:
        pl.read_parquet(path, hive_partitioning=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        what = f"it is damaged and cannot be read ({str(error)[:100]})"
        raise bad_file(what, where=str(path), remedy="fetch or write it again") from None


def with_variance(rows: pl.LazyFrame, files: Sequence[Path]) -> pl.LazyFrame:
    """Return the rows that say anything, each with the variance of its noise: that of ``sigma2`` where it has one."""
    known = {}
    for text in rows.select(pl.col("sigma2").unique()).collect()["sigma2"].drop_nulls():
        try:
            known[text] = variance_of(Fraction(text))
        except (ValueError, ZeroDivisionError, DataError, PlanError):
            known[text] = -1.0
    variance = pl.col("variance")
    if known:
        own = pl.col("sigma2").replace_strict([*known], [*known.values()], return_dtype=pl.Float64)
        variance = pl.when(pl.col("sigma2").is_null()).then(variance).otherwise(own)
    rows = rows.with_columns(variance.alias("variance"))
    measured = pl.col("sign").is_null()
    wrong = rows.filter(measured & (pl.col("variance") < 0)).select(FILE, ROW, "sigma2", "variance").limit(1).collect()
    for row in wrong.iter_rows(named=True):
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
