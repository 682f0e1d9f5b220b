"""The files of published measurements: which there are, of which level and with which rows; and the areas they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import polars as pl
from pydantic import BaseModel

from stirred.data.frames import read_frame
from stirred.data.problems import DataError, PlanError, bad_file, listed
from stirred.mechanisms.protocol import Outcome
from stirred.mechanisms.topdown.budget import variance_of
from stirred.mechanisms.topdown.hierarchy.schema import Schema
from stirred.mechanisms.topdown.hierarchy.tree import GroupTotal, Places

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


# How many letters geocodes have in the 2020 files; the last of a block are those of the tabulation block.
WIDTHS: Final = {0: "US", 3: "State", 9: "County", 13: "Tract", 15: "Block_Group", 31: "Block"}
TABULATION: Final = 16
Areas = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[Places, ...]]


def areas_by_prefix(codes: Mapping[str, Sequence[str]]) -> Areas:
    """Return levels from the top, their areas and the parent of each: the prefix that the level above has.

    Areas that only their parts are known of are added, and one area above all if there is none.

    >>> areas_by_prefix({"County": ["001001", "002001"], "State": ["001"]})[:2]
    (('', 'State', 'County'), (('',), ('001', '002'), ('001001', '002001')))
    """
    widths = {level: sorted({len(code) for code in own}) for level, own in codes.items()}
    if uneven := [level for level, own in widths.items() if len(own) > 1]:
        what = f"geocodes of {uneven[0]} have {' and '.join(map(str, widths[uneven[0]]))} letters"
        raise bad_file(what, where="geocode", remedy="name the parents of areas in a file: --spine")
    names = sorted(codes, key=lambda level: widths[level][0])
    top = codes[names[0]]
    if len(top) == 1 and (plain(names[0]) == "us" or not top[0].isdigit()):
        widths[names[0]] = [0]  # one area above all, whatever it is called
    for one, two in pairwise(names):
        if widths[one] == widths[two]:
            what = f"geocodes of {one} and {two} have the same length, so that none is inside the other"
            raise bad_file(what, where="geocode", remedy="name the parents of areas in a file: --spine")
    found: list[list[str]] = []
    below: Sequence[str] = ()
    for name in names[::-1]:
        width = widths[name][0]
        own = sorted({*codes[name], *(code[:width] for code in below)}) if width else [codes[name][0]]
        found.insert(0, own)
        below = own
    if len(found[0]) > 1:
        names, found = ["", *names], [[""], *found]
        widths[""] = [0]
    parents = [np.zeros(1, dtype=np.int64)]
    for name, above, own in zip(names, found, found[1:], strict=False):
        width, place = widths[name][0], {code: number for number, code in enumerate(above)}
        parents.append(np.array([place[code[:width]] if width else 0 for code in own], dtype=np.int64))
    return tuple(names), tuple(tuple(own) for own in found), tuple(parents)


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


def areas_by_spine(codes: Mapping[str, Sequence[str]], spine: pl.DataFrame, where: str) -> Areas:
    """Return levels from the top, their areas and the parent of each, as a file lists them."""
    given: dict[str, dict[str, str]] = {}
    for code, level, parent in spine.select("geocode", "geolevel", "parent").iter_rows():
        given.setdefault(level, {})[code] = parent
    for level, alone in codes.items():
        if level not in given and len(alone) == 1:
            given[level] = {alone[0]: alone[0]}  # the area above all has no parent, and need not be listed
    absent = [f"{level} {code}" for level, own in codes.items() for code in own if code not in given.get(level, {})]
    if absent:
        raise bad_file(
            f"it does not list {listed(absent[:5])}", where=where, remedy="list all areas with their parents"
        )
    names = _ordered(given, where)
    found: list[list[str]] = []
    parents: list[Places] = []
    for depth, name in enumerate(names):
        own = given[name]
        place = {code: number for number, code in enumerate(found[-1])} if depth else {}
        if depth and (lost := [code for code in own if own[code] not in place]):
            what = f'the parent "{own[lost[0]]}" of {name} "{lost[0]}" is not in {names[depth - 1]}'
            raise bad_file(what, where=where, remedy="give every area a parent in the level above")
        order = sorted(own, key=lambda code: (place.get(own[code], 0), code))
        parents.append(np.array([place.get(own[code], 0) for code in order], dtype=np.int64))
        found.append(order)
    if len(found[0]) > 1:
        names, found = ["", *names], [[""], *found]
        parents = [np.zeros(1, dtype=np.int64), np.zeros(len(found[1]), dtype=np.int64), *parents[1:]]
    return tuple(names), tuple(tuple(own) for own in found), tuple(parents)


def _ordered(levels: Mapping[str, Mapping[str, str]], where: str) -> list[str]:
    """Return the names of levels from the top: parents of a level are in the one above it."""
    inside = {
        name: [other for other, codes in levels.items() if other != name and {*own.values()} & {*codes}]
        for name, own in levels.items()
    }
    order = [name for name in levels if not inside[name]]
    while rest := [name for name in levels if name not in order and order[-1:] and order[-1] in inside[name]]:
        order.append(min(rest, key=lambda name: len(levels[name])))
    if len(order) != len(levels) or inside[order[0]] or any(not inside[name] for name in order[1:]):
        what = f"its levels {listed([*levels])} are not one inside the other"
        raise bad_file(what, where=where, remedy="give every area a parent in the level above")
    return order


def groups_of(
    frame: pl.DataFrame, names: Sequence[str], codes: Sequence[Sequence[str]], where: str
) -> Iterator[GroupTotal]:
    """Yield known totals; a geocode names an area, two digits both parts of a state, or it names its ``members``."""
    members = frame["members"].to_list() if "members" in frame.columns else [None] * frame.height
    level_of = {code: name for name, own in zip(names, codes, strict=True) for code in own}
    for row, (code, value, own) in enumerate(zip(frame["geocode"], frame["value"], members, strict=True)):
        if isinstance(own, str):
            own = [each for each in re.split(r"[\s,;|]+", own) if each]
        if not own:
            parts = [each for level in codes for each in level if len(code) == 2 and each in (f"0{code}", f"1{code}")]
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
