"""The files of a table: one, the parts in a folder, or parts in folders such as ``state=01`` as Spark writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import polars as pl

from stirred.data.problems import bad_file, listed
from stirred.data.sources import CSV, PARQUET, Source, check_is_file

# A .txt file among the parts of a table is rather a note about it.
_PARTS_OF_TEXT: Final = tuple(kind for kind in CSV if kind != ".txt")
_FILE: Final = "__the file of a record"
# How Hive and Spark name the folder of records without a value.
_MISSING: Final = ("__HIVE_DEFAULT_PARTITION__", "")


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, and what the names of its folders say about all its records: texts, or a missing value."""

    path: Path
    values: tuple[tuple[str, str | None], ...] = ()


def is_read(name: str, *, folder: bool) -> bool:
    """Say whether a file or folder inside a folder belongs to its table: as Spark does, by the name alone.

    >>> is_read("part-0.parquet", folder=False), is_read("_SUCCESS", folder=False), is_read("old", folder=True)
    (True, False, False)
    >>> is_read("state=01", folder=True), is_read("_kind=a", folder=True), is_read(".part-0.parquet", folder=False)
    (True, True, False)
    """
    value = name.find("=") > 0
    return not name.startswith(".") and (value or not name.startswith("_")) and (value or not folder)


def parts_of(place: Source) -> list[FilePart]:
    """Return the Parquet or the CSV files of a folder in the order of their paths, or the one file."""
    if place.kind != "folder":
        return [FilePart(place.path)]
    files = sorted(_below(place.path, ()), key=lambda part: part.path)
    parquet, text = ([part for part in files if Source(part.path).kind in kind] for kind in (PARQUET, _PARTS_OF_TEXT))
    for part in (*parquet, *text):
        check_is_file(part.path, where=str(part.path))
    if parquet and text:
        raise bad_file(
            f"this is a folder of Parquet files ({parquet[0].path.name}) and of CSV files ({text[0].path.name})",
            where=str(place),
            remedy="keep the parts of one table in a folder of their own",
        )
    if not parquet and not text:
        raise bad_file(
            "this is a folder without Parquet or CSV files",
            where=str(place),
            remedy="name a file, or a folder that itself holds the files ending in .parquet or .csv (also in folders "
            "such as state=01)",
        )
    _check_levels(place, parquet or text)
    return parquet or text


def scan_parts(parts: Sequence[FilePart]) -> pl.LazyFrame:
    """Return the table of Parquet files that have the same columns; what folders say are further columns, of text."""
    paths = [str(part.path) for part in parts]
    names = [name for name, _ in parts[0].values]
    if not names:
        return pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    # A scan for each folder would be slow: of 1,000 it took 8 seconds to read one column.
    scan = pl.scan_parquet(paths, glob=False, hive_partitioning=False, include_file_paths=_FILE)
    told = {name: pl.Series([dict(part.values)[name] for part in parts], dtype=pl.String) for name in names}
    of_file = [pl.col(_FILE).replace_strict(paths, own, return_dtype=pl.String).alias(n) for n, own in told.items()]
    return scan.with_columns(of_file).drop(_FILE)


def _below(folder: Path, values: tuple[tuple[str, str | None], ...]) -> Iterator[FilePart]:
    for path in (inside := [*folder.iterdir()]):
        is_folder = path.is_dir()
        if not is_read(path.name, folder=is_folder):
            among = is_folder and path.name[0] not in "._" and (values or any("=" in each.name for each in inside))
            if among and any(each.suffix.lower() in PARQUET for each in path.iterdir()):
                what = "this folder has Parquet files, and its name is that of no column"
                raise bad_file(what, where=str(path), remedy="move it elsewhere, or call it such as state=01")
            continue
        if not is_folder:
            yield FilePart(path, values)
            continue
        name, value = map(unquote, path.name.split("=", 1))
        if name in dict(values):
            remedy = "name every level of folders after another column"
            raise bad_file(f"two levels of folders are both called '{name}'", where=str(path), remedy=remedy)
        yield from _below(path, (*values, (name, None if value in _MISSING else value)))


def _check_levels(place: Source, parts: Sequence[FilePart]) -> None:
    first = [name for name, _ in parts[0].values]
    for part in parts:
        if (own := [name for name, _ in part.values]) != first:
            raise bad_file(
                f"its folders say {listed(own) if own else 'nothing'}, and those of {parts[0].path} "
                f"{listed(first) if first else 'nothing'}",
                where=str(part.path),
                remedy="write the table with the same levels of folders for all of its files",
            )
    if first and parts[0].path.suffix.lower() in CSV:
        remedy = "write the table as Parquet, or as CSV with these columns in its files"
        raise bad_file("folders such as state=01 are read for Parquet files only", where=str(place), remedy=remedy)
