"""Reconstruction of many areas: on all cores, with progress, and resumed where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import bad_file
from stirred.risk import reconstruction, systems, table_lists
from stirred.risk.reconstruction import reconstruct
from stirred.risk.table_lists import table_list

_Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
_PIECE: Final = 64  # areas that are done, and kept, together
_SERIAL: Final = 256  # so few areas are not worth another process
_ABOUT: Final = "about.json"
AREAS, RECORDS, PARTS = "areas.parquet", "records.parquet", "parts"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reconstructed:
    """What the published tables of all areas say; ``areas`` has a row for each."""

    schema: str
    areas: pl.DataFrame

    def _sum(self, name: str, where: pl.Expr | None = None) -> int:
        frame = self.areas if where is None else self.areas.filter(where)
        return int(frame[name].sum())

    @property
    def persons(self) -> int:
        """Return the number of persons."""
        return self._sum("persons")

    @property
    def facts(self) -> dict[str, Any]:
        """Return areas and persons by outcome, persons who are certain, and how far solutions may differ."""
        one = pl.col("outcome") == "one"
        people = max(self.persons, 1)
        return {
            "schema": self.schema,
            "areas": self.areas.height,
            "persons": self.persons,
            "areas_by_outcome": dict(sorted(self.areas["outcome"].value_counts().rows())),
            "share_of_areas_with_one_solution": self.areas.filter(one).height / max(self.areas.height, 1),
            "share_of_persons_in_them": self._sum("persons", one) / people,
            "share_of_persons_certain": self._sum("certain") / people,
            "variability": self._sum("difference") / people,
            "agreement": self._sum("agreement") / people,
        }


def reconstruct_areas(
    cells: _Array,
    area: pl.DataFrame,
    *,
    tables: str,
    folder: Path,
    truth: tuple[_Array, pl.DataFrame] | None = None,
    seconds: float = 30.0,
    progress: Progress | None = None,
    processes: int | None = None,
) -> Reconstructed:
    """Publish the tables of every area of some persons, and reconstruct the persons from these tables alone.

    ``cells`` are the kinds of the persons (``cells_of``) and ``area`` their areas; ``truth`` has the same of the
    persons to agree with. What is done is kept in ``folder``, and not done again.
    """
    listed = table_list(tables)
    keys = area.unique().sort(area.columns)
    groups = _by_area(listed.project[cells], area, keys)
    true = groups if truth is None else _by_area(listed.project[truth[0]], truth[1], keys)
    _claim(folder, tables, groups, true)
    pieces = [range(begin, min(begin + _PIECE, keys.height)) for begin in range(0, keys.height, _PIECE)]
    missing = [n for n in range(len(pieces)) if not (folder / PARTS / f"{n}.parquet").exists()]
    jobs = [(n, tables, [groups[i] for i in pieces[n]], [true[i] for i in pieces[n]], seconds) for n in missing]
    many = sum(len(job[2]) for job in jobs) > _SERIAL
    count = processes or ((os.cpu_count() or 1) if many else 1)
    done = len(pieces) - len(missing)
    for number, found in _run(jobs, count):
        path = folder / PARTS / f"{number}.parquet"
        found.write_parquet(path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)  # complete or absent
        done += 1
        if progress is not None:
            progress("reconstruct", done, len(pieces))
    parts = [pl.read_parquet(folder / PARTS / f"{n}.parquet") for n in range(len(pieces))]
    whole = keys.hstack(pl.concat(parts).drop("cells", "counts", "sure"))
    _write(folder, keys, pl.concat(parts), whole, full=listed.cells == table_lists.CELLS)
    return Reconstructed(schema=listed.schema, areas=whole)


def _by_area(cells: _Array, area: pl.DataFrame, keys: pl.DataFrame) -> list[_Array]:
    """Return the sorted cells of the persons of each area."""
    number = area.join(keys.with_row_index("__area"), on=keys.columns, how="left", maintain_order="left")["__area"]
    known = number.is_not_null().to_numpy()
    place = number.drop_nulls().to_numpy()
    own = cells[known]
    order = np.lexsort((own, place))
    return np.split(own[order], np.searchsorted(place[order], np.arange(1, keys.height)))


def _run(jobs: Sequence[tuple[Any, ...]], processes: int) -> Iterator[tuple[int, pl.DataFrame]]:
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job[0], _piece(*job[1:])
        return
    # A new interpreter each: the threads of a frame library do not survive a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from _completed(pool, jobs)


def _completed(pool: Executor, jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, pl.DataFrame]]:
    running: list[tuple[int, Future[pl.DataFrame]]] = [(job[0], pool.submit(_piece, *job[1:])) for job in jobs]
    try:
        for number, future in running:
            yield number, future.result()
    finally:
        for _, future in running:
            future.cancel()


def _piece(tables: str, groups: Sequence[_Array], true: Sequence[_Array], seconds: float) -> pl.DataFrame:
    """Return what the tables of some areas say, one row each."""
    listed = table_list(tables)
    rows = []
    for own, truth in zip(groups, true, strict=True):
        found = reconstruct(listed.counts(own), listed, seconds=seconds)
        rows.append(
            {
                "persons": found.persons, "outcome": found.outcome, "certain": int(found.certain.sum()),
                "difference": found.difference, "agreement": found.agreement(truth), "cells": found.cells.tolist(),
                "counts": found.counts.tolist(), "sure": found.certain.tolist(),
            }
        )  # fmt: skip
    numbers = pl.List(pl.Int64)
    kinds: dict[str, Any] = {"persons": pl.Int64, "outcome": pl.String, "certain": pl.Int64, "difference": pl.Int64,
             "agreement": pl.Int64, "cells": numbers, "counts": numbers, "sure": numbers}  # fmt: skip
    return pl.DataFrame(rows, schema=kinds)


def _claim(folder: Path, tables: str, groups: Sequence[_Array], true: Sequence[_Array]) -> None:
    """Make the folder, or go on in one of the same tables, list and code; refuse any other."""
    digest = hashlib.sha256(tables.encode())
    for module in (reconstruction, systems, table_lists):
        digest.update(Path(str(module.__file__)).read_bytes())
    for part in (*groups, *true):
        digest.update(np.int64(part.size).tobytes() + part.astype(np.int64).tobytes())
    about = {"sha256": digest.hexdigest(), "tables": tables}
    if folder.exists() and _about(folder) != about:
        what = "something else is already there"
        raise bad_file(what, where=str(folder), remedy="choose a new folder; the same attack goes on where it stopped")
    (folder / PARTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / _ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _about(folder: Path) -> Any:
    try:
        return json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(folder: Path, keys: pl.DataFrame, parts: pl.DataFrame, whole: pl.DataFrame, *, full: bool) -> None:
    """Write one row for each area, and the reconstructed records where their kinds are those of the full schema."""
    whole.write_parquet(folder / AREAS)
    if full:
        records = keys.hstack(parts.select("cells", "counts", "sure")).explode("cells", "counts", "sure").drop_nulls()
        kinds = table_lists.described(records["cells"].to_numpy())
        renamed = records.drop("cells").rename({"counts": "persons", "sure": "certain"})
        pl.concat([renamed, kinds], how="horizontal").write_parquet(folder / RECORDS)
