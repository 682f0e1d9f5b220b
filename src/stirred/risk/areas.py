"""Reconstruction of many areas: on all cores, with progress, and resumed where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.place import file_at
from stirred.data.problems import bad_file, listed
from stirred.risk import reconstruction, systems, table_lists
from stirred.risk.published import PublishedCounts, cells_in
from stirred.risk.reconstruction import fit, reconstruct
from stirred.risk.table_lists import TableList, table_list

_Array = npt.NDArray[Any]
# The kinds of the persons of an area, whose tables are counted; or its counts as they were published.
_Area = _Array | Mapping[str, _Array]
Progress = Callable[[str, int, int], None]
_PIECE: Final = 64  # areas that are done, and kept, together
_SERIAL: Final = 256  # so few areas are not worth another process
_ABOUT: Final = "about.json"
AREAS, RECORDS, PARTS = "areas.parquet", "records.parquet", "parts"
_OF_AREAS: Final = {
    "persons": pl.Int64, "outcome": pl.String, "certain": pl.Int64, "difference": pl.Int64, "residual": pl.Int64,
    "agreement": pl.Int64, "by_chance": pl.Int64,
}  # fmt: skip
_OF_RECORDS: Final = ("persons", "certain")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reconstructed:
    """What the published tables of all areas say; ``areas`` has a row for each.

    ``compared`` is how many persons it was compared with.
    """

    schema: str
    areas: pl.DataFrame
    compared: int | None = None

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
        lone = self.compared is None or self.areas.height < 2  # no other area to compare with
        return {
            "schema": self.schema,
            "areas": self.areas.height,
            "persons": self.persons,
            "areas_by_outcome": dict(sorted(self.areas["outcome"].value_counts().rows())),
            "share_of_areas_with_one_solution": self.areas.filter(one).height / max(self.areas.height, 1),
            "share_of_persons_in_them": self._sum("persons", one) / people,
            "share_of_persons_certain": self._sum("certain") / people,
            "variability": self._sum("difference") / people,
            "areas_with_residual": self.areas.filter(pl.col("residual") > 0).height,
            "residual": self._sum("residual"),
            "agreement": None if self.compared is None else self._sum("agreement") / people,
            "agreement_by_chance": None if lone else self._sum("by_chance") / people,
            "compared_and_found": None if self.compared is None else self._sum("agreement") / max(self.compared, 1),
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
    compared = cells.size if truth is None else truth[0].size
    return _attacked(_Attack(listed, keys, groups, true, compared, None, seconds), folder, progress, processes)


def reconstruct_published(
    published: PublishedCounts,
    *,
    folder: Path,
    truth: pl.DataFrame | None = None,
    seconds: float = 30.0,
    progress: Progress | None = None,
    processes: int | None = None,
) -> Reconstructed:
    """Reconstruct the persons of every area from tables as they were published, exact or disturbed.

    ``truth`` are the records to agree with: the variables of the tables and the columns of the areas.
    """
    listed, keys = published.tables, published.areas
    true = None if truth is None else _by_area(cells_in(truth, listed), truth.select(keys.columns), keys)
    compared = None if truth is None else truth.height
    attack = _Attack(listed, keys, published.counts, true, compared, published.weight, seconds)
    return _attacked(attack, folder, progress, processes)


@dataclass(frozen=True)
class _Attack:
    """What is attacked: tables, areas, what is known of each, who was there, and how much noise the tables have."""

    listed: TableList
    keys: pl.DataFrame
    groups: Sequence[_Area]
    true: Sequence[_Array] | None
    compared: int | None
    weight: Mapping[str, float] | None
    seconds: float

    def piece(self, begin: int) -> tuple[Any, ...]:
        """Return the areas of a piece, as its process needs them."""
        own = range(begin, min(begin + _PIECE, len(self.groups)))
        true = [None if self.true is None else (self.true[n], self.true[self.others[n]]) for n in own]
        return self.listed, self.groups[own.start : own.stop], true, self.weight, self.seconds

    @cached_property
    def others(self) -> Mapping[int, int]:
        """Return for every area the next larger one, and the next smaller of the largest: whom chance alone finds."""
        order = sorted(range(len(self.groups)), key=lambda place: self.true[place].size if self.true else 0)
        return dict(zip(order, [*order[1:], *order[-2:-1], *order[:1]], strict=False))


def _attacked(attack: _Attack, folder: Path, progress: Progress | None, processes: int | None) -> Reconstructed:
    _check_names(attack)
    _claim(folder, attack)
    begins = range(0, attack.keys.height, _PIECE)
    missing = [n for n in range(len(begins)) if not (folder / PARTS / f"{n}.parquet").exists()]
    jobs = [(n, *attack.piece(begins[n])) for n in missing]
    many = sum(len(job[2]) for job in jobs) > _SERIAL
    count = processes or ((os.cpu_count() or 1) if many else 1)
    done = len(begins) - len(missing)
    for number, found in _run(jobs, count):
        path = folder / PARTS / f"{number}.parquet"
        found.write_parquet(path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)  # complete or absent
        done += 1
        if progress is not None:
            progress("reconstruct", done, len(begins))
    parts = pl.concat([pl.read_parquet(folder / PARTS / f"{n}.parquet") for n in range(len(begins))])
    whole = attack.keys.hstack(parts.select(*_OF_AREAS))
    _write(folder, attack, parts, whole)
    return Reconstructed(schema=attack.listed.schema, areas=whole, compared=attack.compared)


def _by_area(cells: _Array, area: pl.DataFrame, keys: pl.DataFrame) -> list[_Array]:
    """Return the sorted cells of the persons of each area."""
    place = keys.cast(pl.String).with_row_index("__area")  # of CSV files all codes are texts
    number = area.cast(pl.String).join(place, on=keys.columns, how="left", maintain_order="left", nulls_equal=True)[
        "__area"
    ]
    known = number.is_not_null().to_numpy()
    row = number.drop_nulls().to_numpy()
    own = cells[known]
    order = np.lexsort((own, row))
    return np.split(own[order], np.searchsorted(row[order], np.arange(1, keys.height)))


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


def _piece(
    listed: TableList,
    groups: Sequence[_Area],
    true: Sequence[tuple[_Array, _Array] | None],
    weight: Mapping[str, float] | None,
    seconds: float,
) -> pl.DataFrame:
    """Return what the tables of some areas say, one row each."""
    rows = []
    for own, truth in zip(groups, true, strict=True):
        counts = own if isinstance(own, Mapping) else listed.counts(own)
        found = reconstruct(counts, listed, seconds=seconds) if weight is None else None
        if found is None or found.outcome == "none":
            found = fit(counts, listed, weight=weight, seconds=seconds)
        rows.append(
            {
                "persons": found.persons, "outcome": found.outcome, "certain": int(found.certain.sum()),
                "difference": found.difference, "residual": found.residual,
                "agreement": None if truth is None else found.agreement(truth[0]),
                "by_chance": None if truth is None else found.agreement(truth[1]), "__cells": found.cells.tolist(),
                "__counts": found.counts.tolist(), "__sure": found.certain.tolist(),
            }
        )  # fmt: skip
    numbers = pl.List(pl.Int64)
    return pl.DataFrame(rows, schema=_OF_AREAS | {"__cells": numbers, "__counts": numbers, "__sure": numbers})


def _check_names(attack: _Attack) -> None:
    """Refuse areas and variables called as the columns of the results are, before anything is written."""
    kinds = attack.listed.described(np.empty(0, dtype=np.int64))
    areas = attack.keys.columns
    files = [*areas, *_OF_AREAS], [] if kinds is None else [*areas, *_OF_RECORDS, *kinds.columns]
    if twice := sorted({name for columns in files for name in columns if columns.count(name) > 1}):
        what = f"the results have columns of their own with these names: {listed(twice)}"
        remedy = "rename them in a copy of the file, or leave them out of --area and --table"
        raise bad_file(what, where="areas and variables of the tables", remedy=remedy)


def _claim(folder: Path, attack: _Attack) -> None:
    """Make the folder, or go on in one of the same tables, list and code; refuse any other."""
    listed = attack.listed
    digest = hashlib.sha256(json.dumps([listed.name, listed.schema, attack.weight]).encode())
    for code in (__file__, reconstruction.__file__, systems.__file__, table_lists.__file__):
        digest.update(Path(str(code)).read_bytes())
    for group in attack.groups:
        for part in group.values() if isinstance(group, Mapping) else (group,):
            digest.update(np.int64(part.size).tobytes() + part.astype(np.float64).tobytes())
    for part in (*listed.tables.values(), *(attack.true or ())):
        digest.update(np.int64(part.size).tobytes() + part.astype(np.int64).tobytes())
    about = {"sha256": digest.hexdigest(), "tables": listed.name}
    if folder.exists() and _about(folder) != about:
        what = "something else is already there"
        raise bad_file(what, where=str(folder), remedy="choose a new folder; the same attack goes on where it stopped")
    (folder / PARTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    with file_at(folder / _ABOUT, private=True, replace=True) as half:
        half.write_text(json.dumps(about), encoding="utf-8")


def _about(folder: Path) -> Any:
    try:
        return json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(folder: Path, attack: _Attack, parts: pl.DataFrame, whole: pl.DataFrame) -> None:
    """Write one row for each area, and the reconstructed records where each cell is one kind of persons."""
    with file_at(folder / AREAS, private=True, replace=True) as half:
        whole.write_parquet(half)
    records = (
        attack.keys.hstack(parts.select("__cells", "__counts", "__sure"))
        .explode("__cells", "__counts", "__sure")
        .drop_nulls("__cells")
    )
    kinds = attack.listed.described(records["__cells"].to_numpy())
    if kinds is not None:
        renamed = records.drop("__cells").rename({"__counts": "persons", "__sure": "certain"})
        with file_at(folder / RECORDS, private=True, replace=True) as half:
            pl.concat([renamed, kinds], how="horizontal").write_parquet(half)
