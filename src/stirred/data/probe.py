"""Trying files of others in a process of its own: a damaged file may stop that process, and never this one.

A reader of Parquet trusts lengths that the file states. A wrong one can make it panic, or end the whole process without
an exception that could be caught.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from stirred.data.apart import DiedError, apart

_READS: Final = "stirred.data.probe:reason"
_SECONDS: Final = 60.0  # for any file,
_BYTES_A_SECOND: Final = 5_000_000  # and for what is in it
# A small file can state rows without end: of one value a billion times nothing is stored but the number.
_BOMB: Final = "it swells in memory"
_SWELLS: Final = 1000
_BYTES: Final[Mapping[Any, int]] = {
    pl.Null: 0,
    **dict.fromkeys((pl.Int8, pl.UInt8, pl.Boolean), 1),
    **dict.fromkeys((pl.Int16, pl.UInt16), 2),
    **dict.fromkeys((pl.Int32, pl.UInt32, pl.Float32, pl.Date), 4),
    **dict.fromkeys((pl.Int64, pl.UInt64, pl.Float64), 8),
}


def memory() -> int:
    """Return how many bytes of memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parquet_below(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, in order; a link is none."""
    return [path for path in sorted(folder.rglob("*.parquet")) if path.is_file() and not path.is_symlink()]


def unreadable_parquet(files: Sequence[Path], *, only_deadly: bool = False) -> dict[Path, str]:
    """Return why each of these Parquet files cannot be read, tried in a process of its own; nothing for the others.

    If the process dies, the file at which it died is the reason, and another process goes on with the next.
    ``only_deadly`` leaves out the files whose reader says what is wrong.
    """
    reasons = {}
    for path in files:
        why = None
        patience = _SECONDS + path.stat().st_size / _BYTES_A_SECOND
        try:
            said = apart.ask(_READS, [str(path.absolute())], seconds=patience)
            why = None if only_deadly and not str(said).startswith(_BOMB) else said
        except DiedError as died:
            why = str(died)
        if why is not None:
            reasons[path] = why
    return reasons


def reason(path: str) -> str | None:
    """Return why a Parquet file cannot be read: its columns, its notes, and every value of it."""
    try:
        schema = pl.read_parquet_schema(path)
        names = list(schema)
        pl.read_parquet_metadata(path)
        rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
        needed = rows * sum(_BYTES.get(kind.base_type(), 16) for kind in schema.values())
        if needed > memory() and needed > _SWELLS * Path(path).stat().st_size:
            return f"{_BOMB}: {rows:,} rows need {needed / 1e9:,.0f} GB, and this machine has {memory() / 1e9:,.0f}"
        for name in names:  # one after the other: no more of a large file is in memory than a column
            pl.scan_parquet(path, glob=False).select(name).collect()
    except pl.exceptions.PanicException:
        return "its reader gives up in the middle of it"
    except (pl.exceptions.PolarsError, OSError) as error:
        return type(error).__name__
    return None


def is_unread(path: Path, unread: Mapping[Path, str]) -> str | None:
    """Return why a file, or the first part of a folder, is not to be read."""
    return next((why for place, why in sorted(unread.items()) if place == path or place.is_relative_to(path)), None)
