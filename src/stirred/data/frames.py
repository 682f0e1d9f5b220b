"""Reading and writing tables: CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.problems import bad_file

READS: Final = (".csv", ".parquet", ".pq")
WRITES: Final = ("parquet", "csv")


def read_frame(path: Path) -> pl.DataFrame:
    """Read a CSV or Parquet file.

    Columns of a CSV file are kept as text, so that a code such as ``01`` keeps its zero; an empty field
    is a missing value.
    """
    if path.is_dir():
        raise bad_file("this is a folder", where=str(path), remedy="name a CSV or Parquet file")
    if not path.exists():
        raise bad_file("there is no such file", where=str(path), remedy="check the path")
    if path.suffix.lower() not in READS:
        kind = f"a file ending in '{path.suffix}'" if path.suffix else "a file without an ending"
        raise bad_file(f"cannot read {kind}", where=str(path), remedy=f"give a file ending in {', '.join(READS)}")
    try:
        frame = _read(path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise bad_file(
            f"cannot read it ({reason})", where=str(path), remedy="check that the file is complete and of this kind"
        ) from None
    if not frame.width or not frame.height:
        raise bad_file("the file holds no records", where=str(path), remedy="check that this is the right file")
    return frame


def _read(path: Path) -> pl.DataFrame:
    if path.suffix.lower() == ".csv":
        if path.stat().st_size == 0:
            return pl.DataFrame()
        return pl.read_csv(path, infer_schema=False, encoding="utf8")
    return pl.read_parquet(path)


def write_frame(frame: pl.DataFrame, path: Path, *, note: dict[str, str] | None = None) -> None:
    """Write a table to Parquet or CSV by the ending of ``path``; ``note`` becomes Parquet metadata."""
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path, compression="zstd", compression_level=1, metadata=note)
