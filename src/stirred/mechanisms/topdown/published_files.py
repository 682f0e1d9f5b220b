"""The files of published measurements: which there are, of which level and with which rows; and the areas they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import polars as pl

from stirred.data.frames import read_frame
from stirred.data.problems import DataError, PlanError, bad_file, listed
from stirred.mechanisms.topdown.budget import variance_of
from stirred.mechanisms.topdown.hierarchy.schema import Schema
from stirred.mechanisms.topdown.hierarchy.tree import GroupTotal
from stirred.mechanisms.topdown.spine import Spine

# Where a row stands, for what is said of it.
FILE: Final = "__file"
ROW: Final = "__row"


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
            known[text] = variance_of(Fraction(text))
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


# How many letters geocodes have in the 2020 files; the last of a block are those of the tabulation block.
WIDTHS: Final = {0: "US", 3: "State", 9: "County", 13: "Tract", 15: "Block_Group", 31: "Block"}
TABULATION: Final = 16


def with_mentioned(codes: Mapping[str, Sequence[str]], mentioned: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return areas by level with those that are asked for by level or by length: they exist, and were not measured."""
    found = {level: {*own} for level, own in codes.items()}
    named = {plain(level): level for level in found}
    widths = {len(code): level for level, own in found.items() for code in own}
    for level, code in mentioned:
        own = named.get(plain(level)) or (level if level and len(code) not in widths else widths.get(len(code), ""))
        if (own in found and len(code) == len(next(iter(found[own])))) or (own and own not in found):
            found.setdefault(own, set()).add(code)
            named[plain(own)], widths[len(code)] = own, own
    return {level: sorted(own) for level, own in found.items()}


def unspoken(every: Mapping[str, Sequence[str]], codes: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the areas that no row speaks of, nor any of an area inside them."""
    measured = {code for own in codes.values() for code in own}
    more = {code for own in every.values() for code in own} - measured
    return more - {code[:width] for width in {len(each) for each in more} for code in measured}


def plain(level: str) -> str:
    """Return the name of a level without the ways in which people write it.

    >>> plain("Block Group") == plain("block_group")
    True
    """
    return level.strip().lower().replace(" ", "_")


def listed_spine(spine: pl.DataFrame, codes: Mapping[str, Sequence[str]], where: str) -> Spine:
    """Return the areas that a file lists; one above all has no parent, and need not be listed."""
    columns = ("geolevel", "geocode", "parent")
    given = {*spine["geolevel"].unique()}
    top = [(level, own[0], own[0]) for level, own in codes.items() if level not in given and len(own) == 1]
    schema = dict.fromkeys(columns, pl.String)
    spine = pl.concat([spine.select(columns).cast(pl.String), pl.DataFrame(top, schema=schema, orient="row")])
    for level, own in codes.items():
        there = spine.filter(geolevel=level)
        absent = pl.DataFrame({"geocode": own}, schema={"geocode": pl.String}).join(there, on="geocode", how="anti")
        if absent.height:
            what = f"it does not list {listed([f'{level} {code}' for code in absent['geocode'][:5]])}"
            raise bad_file(what, where=where, remedy="list all areas with their parents")
    return Spine.of_list(spine, where=where)


def groups_of(frame: pl.DataFrame, spine: Spine, where: str) -> Iterator[GroupTotal]:
    """Yield known totals; a geocode names an area, two digits both parts of a state, or it names its ``members``."""
    members = frame["members"].to_list() if "members" in frame.columns else [None] * frame.height
    level_of = {code: name for name, own in zip(spine.names, spine.geocodes, strict=True) for code in own}
    for row, (code, value, own) in enumerate(zip(frame["geocode"], frame["value"], members, strict=True)):
        if isinstance(own, str):
            own = [each for each in re.split(r"[\s,;|]+", own) if each]
        if not own:
            parts = [each for each in (f"0{code}", f"1{code}") if len(code) == 2 and each in level_of]
            own = [code] if code in level_of else parts
        lost = [each for each in own if each not in level_of] if own else [code]
        at = {level_of[each] for each in own if each in level_of}
        try:
            total = int(str(value))
        except ValueError:
            total = -1
        if lost or len(at) != 1 or total < 0:
            what = f"{listed(lost)} is not in the measurements" if lost else f"{value} is not a total of one level"
            raise bad_file(
                what, where=f"--totals {where} row {row + 1}", remedy="correct its geocode, members or value"
            )
        yield GroupTotal(level=at.pop(), members=tuple(own), value=total)
