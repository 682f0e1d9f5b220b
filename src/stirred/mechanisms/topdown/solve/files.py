"""Microdata as files: counts and records piece by piece, the unrounded children, and what an interrupted run kept."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.topdown.schema import Schema
from stirred.mechanisms.topdown.solve.check import Cells
from stirred.mechanisms.topdown.solve.grid import Places
from stirred.mechanisms.topdown.solve.pieces import Counts, Piece, Unrounded
from stirred.mechanisms.topdown.tree import Level

_PARTS: Final = ".parts"


def counts_frame(schema: Schema, level: Level, counts: Counts) -> pl.DataFrame:
    """Return the counts of a level without zeros: geocode, attributes, count; ordered by geocode and cell."""
    area = np.repeat(np.arange(len(counts)), np.diff(counts.starts))
    order = np.lexsort((counts.cells, area))
    codes = np.unravel_index(counts.cells[order], schema.shape)
    columns = [pl.Series("geocode", level.geocodes, dtype=pl.String).gather(area[order])]
    for attribute, code in zip(schema.attributes, codes, strict=True):
        columns.append(pl.Series(attribute.name, attribute.codes, dtype=pl.String).gather(code))
    return pl.DataFrame([*columns, pl.Series("count", counts.counts[order], dtype=pl.Int64)])


def records_frame(counts: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each record; rows with equal values are alike, so their order says nothing.

    >>> records_frame(pl.DataFrame({"geocode": ["a", "b"], "sex": ["m", "f"], "count": [2, 1]})).rows()
    [('a', 'm'), ('a', 'm'), ('b', 'f')]
    """
    return counts.drop("count")[np.repeat(np.arange(counts.height), counts["count"].to_numpy())]


def unrounded_frame(pieces: Iterable[Unrounded]) -> pl.DataFrame:
    """Return the children before rounding: parent, geocode, cell, value; zeros are left out."""
    parts = []
    for each in pieces:
        child, cell = np.nonzero(each.values)
        parts.append(
            pl.DataFrame(
                {
                    "parent": pl.repeat(each.parent, len(child), dtype=pl.String, eager=True),
                    "geocode": pl.Series(each.children, dtype=pl.String).gather(child),
                    "cell": each.cells[cell],
                    "value": each.values[child, cell],
                }
            )
        )
    empty = {"parent": pl.String, "geocode": pl.String, "cell": pl.Int64, "value": pl.Float64}
    return pl.concat(parts) if parts else pl.DataFrame(schema=empty)


def cells_of(counts: Counts) -> Cells:
    """Return counts as the checker has them."""
    area = np.repeat(np.arange(len(counts), dtype=np.int64), np.diff(counts.starts))
    return Cells(area=area, cell=counts.cells, count=counts.counts)


def given_parents(frame: pl.DataFrame, arm: str) -> dict[tuple[str, str], tuple[Places, Places]]:
    """Return the counts that parents are fixed at: arm (if there is the column), geolevel, geocode, cell, count."""
    own = frame.filter(pl.col("arm") == arm) if "arm" in frame.columns else frame
    found = {}
    for (level, code), part in own.filter(pl.col("count") > 0).group_by("geolevel", "geocode"):
        ordered = part.sort("cell")
        cells, counts = (ordered[name].cast(pl.Int64).to_numpy() for name in ("cell", "count"))
        found[str(level), str(code)] = (cells, counts)
    # A parent that is named with zeros alone is empty.
    none = np.zeros(0, dtype=np.int64)
    for level, code in own.select("geolevel", "geocode").unique().rows():
        found.setdefault((str(level), str(code)), (none, none))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A file that is written in parts, which are joined at the end."""

    path: Path

    @property
    def _folder(self) -> Path:
        return self.path.with_name(self.path.name + _PARTS)

    def begin(self) -> None:
        """Remove the parts of a run that was interrupted: they may be of other measurements, or more than now."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, frame: pl.DataFrame) -> Path:
        """Write what may become a part, under a name that no other attempt at it has."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{uuid4().hex}.writing"
        frame.write_parquet(path)
        return path

    def take(self, number: int, path: Path) -> None:
        """Make a part of what was written."""
        os.replace(path, self._folder / f"{number:06d}.parquet")

    @property
    def parts(self) -> list[Path]:
        """Return the parts, in order."""
        return sorted(self._folder.glob("*.parquet"))

    def join(self) -> Path:
        """Write the file from its parts, in order, and remove them."""
        parts = self.parts
        if len(parts) == 1:
            os.replace(parts[0], self.path)
        else:
            pl.scan_parquet(parts).sink_parquet(self.path)
            for part in parts:
                part.unlink()
        shutil.rmtree(self._folder, ignore_errors=True)  # and what lost tasks left
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Levels that are done, in a folder; those of a run with other measurements or settings are not taken."""

    folder: Path
    mark: str  # of measurements and settings

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(f"{self.mark} {name}".encode()).hexdigest()[:24]
        return self.folder / f"{digest}.npz"

    def load(self, name: str) -> Mapping[str, npt.NDArray[Any]] | None:
        """Return the arrays that were kept under a name."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            with path.open("rb") as stream, np.load(stream) as found:
                return {key: found[key] for key in found.files}
        except (OSError, ValueError, EOFError, BadZipFile):
            return None  # damaged: the level is solved again

    def save(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays, completely or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        writing = self.folder / f"{uuid4().hex}.writing"  # another attempt may write the same
        with writing.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        os.replace(writing, self._path(name))


def leaf_frame(piece: Piece) -> pl.DataFrame:
    """Return the counts of the leaves of a solved tree."""
    return counts_frame(piece.tree.schema, piece.tree.levels[-1], piece.levels[-1])
