"""Reading and writing tables: CSV, Parquet, Arrow, folders of parts, databases, statistics packages."""

from __future__ import annotations

import errno
import filecmp
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.child import unreadable_parquet
from stirred.data.codebook import shown
from stirred.data.csv_text import check_header, csv_header, read_csv
from stirred.data.formats import Labelled, read_database, read_labelled
from stirred.data.problems import DataError, bad_file, listed
from stirred.data.sources import (
    ARROW,
    CSV,
    DATABASES,
    LABELLED,
    PARQUET,
    PLAIN,
    READS,
    Dialect,
    FilePart,
    Source,
    parts_of,
    scan_parts,
    unreadable,
    unreadable_because,
)
from stirred.data.whole import as_whole, decimal_commas, with_points
from stirred.spec.problems import Problem

__all__ = ["READS", "WRITES", "exists", "read_frame", "read_given", "read_labels", "scan_frame", "write_frame"]

WRITES: Final = ("parquet", "csv")
RESERVED: Final = "__"  # our own columns begin so, beside those of a file
_POINTED: Final = r"^\s*[+-]?[0-9]*(\.[0-9]+)+(,[0-9]+)?\s*$"


def exists(source: Path | str) -> bool:
    """Say whether the file or folder is there; of ``file.duckdb#table`` the file."""
    return Source.of(source).path.exists()


def read_frame(source: Path | str, *, empty: bool = False, separator: str | None = None) -> pl.DataFrame:
    """Read a table.

    ``source`` is a CSV (comma, semicolon, tab or bar), Parquet or Arrow file, a folder of Parquet or of
    CSV parts, a table of a database (``file.duckdb#table``, ``file.sqlite#table``) or a file of SPSS, Stata or SAS.
    Columns of a CSV file are kept as text, so that a code such as ``01`` keeps its zero; an empty field
    is a missing value. A table without rows is refused, unless it may be ``empty``. ``separator`` is what stands
    between the fields of a CSV file, where it is declared.
    """
    place = Source.of(source).checked()
    frame = _read(place, separator)
    if not frame.width or not (frame.height or empty):
        raise _no_records(place)
    return frame


def read_given(source: Path | str, dialect: Dialect = PLAIN) -> pl.DataFrame:
    """Read a file that somebody gives us: whole numbers have no ``.0``, and a first line that is a record is refused.

    Files that we wrote ourselves have a header, whatever their columns are called. ``dialect`` is what was declared of
    a text file.
    """
    _check_harmless(Source.of(source).checked())
    frame = read_frame(source, separator=dialect.separator)
    place = Source.of(source)
    if is_text(place):
        check_header(place, frame)
        if dialect.decimal == ",":
            _check_points(place, frame)
            frame = frame.select(with_points(pl.col(name)) for name in frame.columns)
        frame = frame.select(as_whole(column) for column in frame.get_columns())
    check_reserved(frame.columns, where=str(place))
    return frame


def _check_points(place: Source, frame: pl.DataFrame) -> None:
    """Refuse a column in which a point may stand for thousands."""
    problems = [
        Problem(
            what=f"with decimal commas the point in {shown(unclear.unique().sort().head(3).to_list())} is unclear",
            where=f'{place} "{name}"',
            remedy="write numbers without a separator for thousands, and with one for decimals",
            public="with decimal commas the points in it are unclear",
        )
        for name in frame.columns
        if decimal_commas(frame[name]) and len(unclear := frame[name].filter(frame[name].str.contains(_POINTED)))
    ]
    if problems:
        raise DataError(problems)


def read_labels(source: Path | str, dialect: Dialect = PLAIN) -> Labelled:
    """Read a given table with the labels its file keeps; only SPSS, Stata and SAS keep any."""
    place = Source.of(source).checked()
    if place.kind not in LABELLED:
        return Labelled(frame=read_given(source, dialect))
    labelled = read_labelled(place)
    if not labelled.frame.width or not labelled.frame.height:
        raise _no_records(place)
    check_reserved(labelled.frame.columns, where=str(place))
    return labelled


def scan_frame(source: Path | str, *, given: bool = False, dialect: Dialect = PLAIN) -> pl.LazyFrame:
    """Return a table without reading it yet: a Parquet file or a folder of them; other kinds are read now.

    ``given`` says that it is not one of our own files, as for :func:`read_given`.
    """
    place = Source.of(source).checked()
    if given:
        _check_harmless(place)
    parts = _parquet_parts(place)
    if not parts:
        return (read_given(source, dialect) if given else read_frame(source)).lazy()
    try:
        frame = _scan_parquet(place, parts)
        empty = not frame.collect_schema() or not frame.select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise unreadable_because(place, error) from None
    if empty:
        raise _no_records(place)
    if given:
        check_reserved(frame.collect_schema().names(), where=str(place))
    return frame


def check_reserved(names: Sequence[str], *, where: str) -> None:
    """Refuse names that begin as those of our own columns do: no column of a file may be taken for one of them."""
    if taken := [name for name in names if name.startswith(RESERVED)]:
        remedy = f"rename or remove {'it' if len(taken) == 1 else 'them'} in the file"
        if any(name.startswith("__index_level_") for name in taken):
            remedy += "; pandas wrote its index as a column, and leaves it out with index=False"
        raise bad_file(f"names that begin with {RESERVED} are reserved: {listed(taken)}", where=where, remedy=remedy)


def write_frame(frame: pl.DataFrame, path: Path, *, note: dict[str, str] | None = None, csv: bool = False) -> None:
    """Write a table to Parquet or CSV by the ending of ``path``; ``note`` becomes Parquet metadata."""
    try:
        if csv or path.suffix == ".csv":
            _write_csv(frame, path)
        else:
            frame.write_parquet(path, compression="zstd", compression_level=1, metadata=note)
    except pl.exceptions.ComputeError as error:
        # A full disk reaches us as a failed computation: say what it is.
        raise OSError(errno.EIO, f"writing failed ({str(error)[:160]})", str(path)) from None


def _write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV; names with the sign of another separator are quoted, for readers who guess it."""
    if not any(sign in name for name in frame.columns for sign in (";", "\t", "|")):
        frame.write_csv(path)
        return
    names = ",".join('"' + name.replace('"', '""') + '"' for name in frame.columns)
    with path.open("wb") as file:
        file.write(f"{names}\n".encode())
        frame.write_csv(file, include_header=False)


def as_read(frame: pl.DataFrame, format_: str, folder: Path | None = None) -> pl.DataFrame:
    """Return a frame as a reader of the file gets it: CSV knows only text.

    What is confidential is written to a file without a name, on the disk of ``folder``: nothing of it outlives this
    process, however that ends. Only where the system cannot read such a file again it has a name for a moment.
    """
    if format_ != "csv":
        return frame
    nameless = Path("/proc/self/fd").is_dir()
    new = tempfile.TemporaryFile if nameless else partial(tempfile.NamedTemporaryFile, suffix=".csv")
    with new(dir=folder and folder.parent) as scratch:
        path = Path(f"/proc/self/fd/{scratch.fileno()}" if nameless else scratch.name)
        write_frame(frame, path, csv=True)
        return read_csv(Source(path))


def _read(place: Source, separator: str | None = None) -> pl.DataFrame:
    try:
        if place.kind in CSV:
            return read_csv(place, separator)
        if place.kind in DATABASES:
            return read_database(place)
        if place.kind in LABELLED:
            return read_labelled(place).frame
        if place.kind in ARROW:
            return _read_arrow(place)
        parts = parts_of(place)
        csv = _are_csv(parts)
        return (
            _read_csv_parts([part.path for part in parts], separator) if csv else _scan_parquet(place, parts).collect()
        )
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        EOFError,
        zlib.error,
        UnicodeError,
    ) as error:
        raise unreadable_because(place, error) from None


def _check_harmless(place: Source) -> None:
    """Refuse a Parquet file whose reader would end this process, with no exception to catch.

    Of 20,000 files with a few changed bytes 5 did so, and of 11,000 Arrow files none.
    """
    damaged = unreadable_parquet([part.path for part in _parquet_parts(place)], only_deadly=True)
    if problems := [each for part, why in damaged.items() for each in unreadable(why, where=str(part)).problems]:
        raise DataError(problems)


def _no_records(place: Source) -> DataError:
    return bad_file("the file holds no records", where=str(place), remedy="check that this is the right file")


# --- folders of parts -----------------------------------------------------------------------------------


def parquet_parts(source: Path | str) -> list[FilePart]:
    """Return the Parquet files of a table in the order in which they are read; none of a table of another kind."""
    return _parquet_parts(Source.of(source).checked())


def _parquet_parts(place: Source) -> list[FilePart]:
    parts = parts_of(place) if place.kind in ("folder", *PARQUET) else []
    return [] if not parts or _are_csv(parts) else parts


def is_text(place: Source) -> bool:
    """Say whether a table lies in text files, whose columns have no types."""
    return place.kind in CSV or (place.kind == "folder" and _are_csv(parts_of(place)))


def _are_csv(parts: Sequence[FilePart]) -> bool:
    return Source(parts[0].path).kind in CSV


def _unlike(part: Path, first: Path, told: str) -> Problem:
    return Problem(
        what=f"this part does not have the columns of {first.name}: {told or 'its columns stand in another order'}",
        where=str(part),
        remedy="write all parts with the same columns and types",
    )


def _read_csv_parts(parts: Sequence[Path], separator: str | None) -> pl.DataFrame:
    """Read CSV files with the same header one after the other."""
    problems: list[Problem] = []
    first: list[str] = []
    for part in parts:
        try:
            header = csv_header(Source(part), separator)[0]
        except DataError as error:
            problems += error.problems
            continue
        first = first or header
        if not header:
            problems += _no_records(Source(part)).problems
        elif header != first:
            lost = [f"{listed([name])} is absent" for name in first if name not in header]
            told = ", ".join([*lost, *(f"{listed([name])} is new" for name in header if name not in first)][:5])
            problems.append(_unlike(part, parts[0], told))
    if problems:
        raise DataError(problems)
    frames = []
    for part in parts:
        try:
            frames.append(read_csv(Source(part), separator))
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(problems)
    return pl.concat(frames)


# --- Parquet and Arrow ----------------------------------------------------------------------------------


def _scan_parquet(place: Source, parts: list[FilePart]) -> pl.LazyFrame:
    """Return the table of some files; refuse parts whose columns are not those of the first part."""
    problems: list[Problem] = []
    first: dict[str, pl.DataType] = {}
    for part in [part.path for part in parts] if place.kind == "folder" else []:
        try:
            schema = dict(pl.scan_parquet(part, glob=False, hive_partitioning=False).collect_schema())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            problems += unreadable_because(Source(part), error).problems
            continue
        first = first or schema
        if list(schema.items()) != list(first.items()):
            names = [n for n in dict.fromkeys([*first, *schema]) if first.get(n) != schema.get(n)]
            told = ", ".join(f'"{n}" is {schema.get(n, "absent")}, not {first.get(n, "absent")}' for n in names[:5])
            problems.append(_unlike(part, parts[0].path, told))
    if twice := [name for name, _ in parts[0].values if name in first]:
        what = f"{listed(twice)} is a column of the files and the name of folders (such as {parts[0].path.parent.name})"
        remedy = "write the table again, with the column in one of them"
        problems.append(Problem(what=what, where=str(place), remedy=remedy))
    if problems:
        raise DataError(problems)
    return scan_parts(parts)


def _read_arrow(place: Source) -> pl.DataFrame:
    with place.path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    if is_file:
        return pl.read_ipc(place.path)
    try:
        return pl.read_ipc_stream(place.path)
    except (pl.exceptions.PolarsError, OSError):
        raise unreadable("this is neither an Arrow file nor an Arrow stream", where=str(place)) from None


ROWS_IN_ONE_FILE = 20_000_000


def take_parts(files: Sequence[Path], path: Path) -> None:
    """Make the folder of a table from files that are its parts already; they keep their old names as well."""
    path.mkdir()
    for number, file in enumerate(files):
        part = path / f"part-{number:05d}{path.suffix}"
        try:
            part.hardlink_to(file)
        except OSError:  # on another disk, or on one without links
            shutil.copyfile(file, part)


def has_taken(files: Sequence[Path], path: Path) -> bool:
    """Say whether the folder of a table has these files as its parts, byte for byte."""
    parts = sorted(path.iterdir()) if path.is_dir() else []
    if not files or len(parts) != len(files):
        return False
    return all(
        part.samefile(file) or filecmp.cmp(part, file, shallow=False) for part, file in zip(parts, files, strict=True)
    )


def write_parts(
    parts: Iterable[pl.DataFrame], path: Path, *, note: dict[str, str] | None = None, apart: bool = False
) -> None:
    """Write a table that comes in parts: to one file, or to a folder of parts where it is long.

    With ``apart`` each of several parts is a file of its own, and memory never holds more than two.
    """
    held: list[pl.DataFrame] = []
    rows = number = 0
    for part in parts:
        held.append(part)
        rows += part.height
        del part  # nothing of a part is kept while the next one is made
        if rows > ROWS_IN_ONE_FILE or (apart and number + len(held) > 1):
            path.mkdir(exist_ok=True)
            while held:
                write_frame(held.pop(0), path / f"part-{number:05d}{path.suffix}", note=note)
                number += 1
    if held:
        write_frame(pl.concat(held), path, note=note)
