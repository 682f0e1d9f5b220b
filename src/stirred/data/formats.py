"""Tables of other programs: DuckDB and SQLite, which stay unchanged; SPSS, Stata and SAS with their labels."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, Final

import polars as pl

from stirred.data.child import memory
from stirred.data.problems import DataError, bad_file, listed
from stirred.data.sources import Source, first_line, package_for, unreadable
from stirred.data.whole import as_whole

_ROWS_AT_ONCE: Final = 200_000
_SECONDS: Final = 600.0  # for any database,
_BYTES_A_SECOND: Final = 1_000_000  # and for what is in it
_SQLITE: Final = b"SQLite format 3\x00"
_DUCKDB: Final = b"DUCK"
# A file of somebody else may hold views that read files of ours, reach the network or load code. Nothing in it can take
# these settings back.
_ALONE: Final = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "lock_configuration": "true",
}
_DUCKDB_TABLES: Final = """
    SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = current_database()
"""


def read_database(source: Source) -> pl.DataFrame:
    """Read a table; the file's first bytes, not its ending, say which database it is."""
    with source.path.open("rb") as file:
        start = file.read(16)
    if start == _SQLITE:
        return _read_sqlite(source)
    if start[8:12] == _DUCKDB:
        return _read_duckdb(source)
    raise bad_file(
        "this is neither a SQLite nor a DuckDB database",
        where=str(source),
        remedy="check that the file is complete and of this kind",
    )


def _read_duckdb(source: Source) -> pl.DataFrame:
    duckdb = package_for(source, "duckdb", reading="a DuckDB database", extra="databases")
    try:
        opened = duckdb.connect(str(source.path), read_only=True, config=_ALONE)
        with closing(opened) as connection, _ending(connection, source):
            found = connection.execute(_DUCKDB_TABLES).fetchall()
            schema, table = _chosen(source, [(str(a), str(b)) for a, b in found], main="main")
            relation = connection.sql(f"SELECT * FROM {_quoted(schema)}.{_quoted(table)}")
            return _narrowed(pl.DataFrame(_Stream(relation)))
    except duckdb.PermissionException:
        raise bad_file(
            "this table is a view that reads another file or needs an extension, and a database is read by itself",
            where=str(source),
            remedy="store what it shows as a table: CREATE TABLE name AS SELECT * FROM view",
        ) from None
    except duckdb.Error as error:
        raise unreadable(first_line(error), where=str(source), public="cannot read it") from None


@contextmanager
def _ending(connection: Any, source: Source) -> Iterator[None]:
    """Interrupt what does not end: a view is computed when it is read, and may have rows without end."""
    stopped: list[bool] = []

    def stop() -> None:
        stopped.append(True)
        connection.interrupt()

    seconds = _SECONDS + source.path.stat().st_size / _BYTES_A_SECOND
    clock = Timer(seconds, stop)
    clock.daemon = True
    clock.start()
    try:
        yield
    except Exception:
        if stopped:
            raise _endless(source, f"reading it does not end within {seconds:,.0f} seconds") from None
        raise
    finally:
        clock.cancel()


def _endless(source: Source, what: str) -> DataError:
    remedy = "store what the view shows as a table, and name that: CREATE TABLE name AS SELECT * FROM view"
    return bad_file(what, where=str(source), remedy=remedy)


class _Stream:
    """An Arrow stream under a type of our own.

    polars remembers the types it has converted; remembering DuckDB's own type makes DuckDB 2.0 complain of
    leaks when Python ends. It also spares the need for pyarrow.
    """

    def __init__(self, relation: Any) -> None:
        self.relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.relation.__arrow_c_stream__(requested_schema)


def _narrowed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with whole numbers of 128 bits (what DuckDB's ``sum`` gives) as 64 bits, where they fit."""
    wide = [
        name
        for name, dtype in frame.schema.items()
        if dtype in (pl.Int128, pl.UInt128) or (isinstance(dtype, pl.Decimal) and dtype.scale == 0)
    ]
    for name in wide:
        narrow = frame[name].cast(pl.Int64, strict=False)
        if narrow.null_count() == frame[name].null_count():
            frame = frame.with_columns(narrow)
    return frame


def _read_sqlite(source: Source) -> pl.DataFrame:
    try:
        opened = sqlite3.connect(f"{source.path.absolute().as_uri()}?mode=ro", uri=True)
        with closing(opened) as connection, _ending(connection, source):
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            tables = [("", str(name)) for (name,) in found if not str(name).startswith("sqlite_")]
            table = _quoted(_chosen(source, tables, main="")[1])
            columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_xinfo({table})")]
            return _collect(connection, table, columns, source)
    except sqlite3.Error as error:
        raise unreadable(first_line(error), where=str(source), public="cannot read it") from None


def _collect(connection: sqlite3.Connection, table: str, columns: list[str], source: Source) -> pl.DataFrame:
    types = _sqlite_types(connection, table, columns, source)
    # SQLite types values, not columns: a column that mixes them is read as text.
    wanted = ", ".join(f"CAST({_quoted(c)} AS TEXT)" if types[c] == pl.String else _quoted(c) for c in columns)
    cursor = connection.execute(f"SELECT {wanted} FROM {table}")
    parts, held, most = list[pl.DataFrame](), 0.0, memory()
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        parts.append(pl.DataFrame(rows, schema=types, orient="row"))
        held += parts[-1].estimated_size()
        if held > most:
            raise _endless(source, "it does not fit into the memory of this machine")
    return pl.concat(parts) if parts else pl.DataFrame(schema=types)


def _sqlite_types(
    connection: sqlite3.Connection, table: str, columns: list[str], source: Source
) -> dict[str, type[pl.DataType]]:
    kinds = ("integer", "real", "text", "blob")
    tests = ", ".join(f"MAX(typeof({_quoted(column)}) = '{kind}')" for column in columns for kind in kinds)
    (seen,) = connection.execute(f"SELECT {tests} FROM {table}").fetchall()
    types: dict[str, type[pl.DataType]] = {}
    for at, column in enumerate(columns):
        integer, real, text, blob = (bool(flag) for flag in seen[4 * at : 4 * at + 4])
        if blob:
            raise bad_file(
                f'column "{column}" holds binary values',
                where=str(source),
                remedy="leave it out of the table, or store it as text",
            )
        types[column] = pl.String if text or not (integer or real) else pl.Float64 if real else pl.Int64
    return types


def _chosen(source: Source, tables: list[tuple[str, str]], *, main: str) -> tuple[str, str]:
    """Return the table that is meant: the one named, or the only one."""
    shown = {(name if schema == main else f"{schema}.{name}"): (schema, name) for schema, name in sorted(tables)}
    there = f"there are {listed(list(shown)[:30])}" if shown else "there are none"
    if source.table is None:
        if len(shown) == 1:
            return next(iter(shown.values()))
        raise bad_file(
            f"this is a database, and no table is named; {there}",
            where=str(source),
            remedy=f"write the table after a '#': {Path(source.path).name}#{next(iter(shown), 'table')}",
        )
    chosen = shown.get(source.table) or shown.get(source.table.removeprefix(f"{main}."))
    if chosen is None:
        raise bad_file(
            f'there is no table "{source.table}"; {there}', where=str(source), remedy="check the spelling after the '#'"
        )
    return chosen


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- statistics packages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """A table with the labels of its columns and, by column, of its values (as text)."""

    frame: pl.DataFrame
    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_labelled(source: Source) -> Labelled:
    """Read a file of a statistics package.

    These files keep every number as a double: columns of whole numbers become integers. An empty text is a
    missing value, as in CSV; SPSS's declared missing values stay the codes that they are, Stata's and SAS's
    ``.a`` to ``.z`` become missing.
    """
    package = package_for(source, "pyreadstat", reading=f"a '{source.kind}' file", extra="labelled")
    read = {
        ".sav": package.read_sav,
        ".zsav": package.read_sav,
        ".dta": package.read_dta,
        ".sas7bdat": package.read_sas7bdat,
        ".xpt": package.read_xport,
    }[source.kind]
    options: dict[str, Any] = {"output_format": "polars"}
    if source.kind in (".sav", ".zsav"):
        options["user_missing"] = True
    try:
        frame, about = read(str(source.path), **options)
    except (package.PyreadstatError, package.ReadstatError, ValueError, OverflowError, OSError) as error:
        raise unreadable(first_line(error), where=str(source), public="cannot read it") from None
    return Labelled(
        frame=frame.select(_tidied(frame[name]) for name in frame.columns),
        columns={name: label for name, label in about.column_names_to_labels.items() if label},
        values={
            name: {_code(value): str(label) for value, label in labels.items()}
            for name, labels in about.variable_value_labels.items()
        },
    )


def _tidied(column: pl.Series) -> pl.Series:
    if column.dtype == pl.String:
        return column.set(column == "", None)
    if not column.dtype.is_float():
        return column
    return as_whole(column.fill_nan(None))


def _code(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
