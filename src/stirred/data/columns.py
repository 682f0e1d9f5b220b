"""Columns of a table, in memory or fetched from a Parquet file one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import polars as pl

from stirred.data.frames import scan_frame


class Columns(Protocol):
    """What the mechanisms need of a table: names, length, and a column by name. A frame has all of it."""

    @property
    def columns(self) -> list[str]:
        """Return the names."""
        ...

    @property
    def height(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, name: str) -> pl.Series:
        """Return one column."""
        ...


class ParquetColumns:
    """A Parquet file, or a folder of parts, of which only the columns asked for are read, each time anew.

    A national file of persons does not fit beside everything else; one column of it does.
    """

    def __init__(self, path: Path) -> None:
        self.scan = scan_frame(path)
        self.columns: list[str] = self.scan.collect_schema().names()
        self.height: int = self.scan.select(pl.len()).collect().item()

    def __getitem__(self, name: str) -> pl.Series:
        return canonical(self.scan.select(name).collect().to_series().rechunk())


def canonical(column: pl.Series) -> pl.Series:
    """Return floats with one zero and one not-a-number: values that compare equal must be written alike.

    >>> canonical(pl.Series([0.0, -0.0])).to_numpy().view("uint64").tolist()
    [0, 0]
    """
    if not column.dtype.is_float():
        return column
    x = pl.col("x")
    plain = pl.when(x.is_nan()).then(float("nan")).when(x == 0).then(0.0).otherwise(x).cast(column.dtype)
    return column.alias("x").to_frame().select(plain.alias(column.name)).to_series()


def canonical_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with canonical floats."""
    floats = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    return frame.with_columns([canonical(frame[name]) for name in floats]) if floats else frame


def select(table: Columns, names: list[str]) -> pl.DataFrame:
    """Return some columns of a table as a frame."""
    return pl.DataFrame([table[name].alias(name) for name in names])
