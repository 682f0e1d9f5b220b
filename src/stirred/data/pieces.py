"""Pieces of a table in Parquet files, which machines that see the files read one by one, and agree on row numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.columns import Columns, ParquetColumns
from stirred.data.frames import parquet_parts
from stirred.data.parts import FilePart, scan_parts

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """So many rows of a file, after the first ``skip``; in the table ``first`` rows come before."""

    part: FilePart
    skip: int
    rows: int
    first: int

    @property
    def slice(self) -> slice:
        """Return its rows of the table."""
        return slice(self.first, self.first + self.rows)

    def read(self, schema: Schema) -> pl.DataFrame:
        """Return these columns, as reading the whole table gives them.

        Which types a table gets depends on all of its rows, so a piece is told them. Text stays as it is.
        """
        scan = scan_parts([self.part]).select([*schema]).slice(self.skip, self.rows)
        columns = [_as_type(column, schema[column.name]) for column in scan.collect().rechunk().get_columns()]
        return pl.DataFrame(columns)


def _as_type(column: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind.is_float():
        return (column + 0.0).fill_nan(float("nan"))  # one zero, and one not-a-number
    return column.cast(kind, strict=False)  # not-a-number beside whole numbers is a missing integer


def pieces_of(files: Sequence[Path], *, most: int) -> Iterator[RowRange]:
    """Yield the pieces of a table, files or folders, in the order of its rows, each of at most so many of one file."""
    first = 0
    for part in (part for path in files for part in parquet_parts(path)):
        rows = int(scan_parts([part]).select(pl.len()).collect().item())
        for skip in range(0, rows, most):
            yield RowRange(part=part, skip=skip, rows=min(most, rows - skip), first=first + skip)
        first += rows


def schema_of(table: Columns, names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types that columns of a table have once they are read; columns are read only where values decide."""
    stored = table.head(0).schema
    if not isinstance(table, ParquetColumns):
        return {name: stored[name] for name in names}
    decided = (pl.Enum, pl.Categorical, pl.Float32, pl.Float64, pl.Decimal)
    return {name: table[name].dtype if stored[name] in decided else stored[name] for name in names}


def checksum_of(column: pl.Series, *, first: int) -> int:
    """Return a number that changes if a value, or the place of one, does; ``first`` rows of the table come before.

    >>> ages = pl.Series([30, 4])
    >>> checksum_of(ages, first=0) == checksum_of(ages.reverse(), first=0)
    False
    """
    hashed = column.alias("value").to_frame().with_row_index("row", offset=first).hash_rows()
    return int(np.add.reduce(hashed.to_numpy()))  # modulo 2**64
