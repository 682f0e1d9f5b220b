"""Microdata from measurements to checked files: solved piece by piece, written, read again and certified."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.solve.check import Cells, Certificate, check_tree, read_cells
from stirred.mechanisms.topdown.solve.files import Parts, cells_of, leaf_frame, records_frame, unrounded_frame
from stirred.mechanisms.topdown.solve.microdata import solve_and
from stirred.mechanisms.topdown.solve.pieces import Piece, Settings, Source
from stirred.mechanisms.topdown.solve.stage import Event
from stirred.mechanisms.topdown.tree import groups_inside

COUNTS, CERTIFICATE, UNROUNDED = "counts.parquet", "certificate.json", "unrounded"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Made:
    """What was made: the files, what happened, and the certificate of the check."""

    files: tuple[Path, ...]
    events: tuple[Event, ...]
    certificate: Certificate
    parents: int
    iterations: int
    largest_gap: float

    def facts(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return {
            "events": [asdict(event) for event in self.events],
            "certificate": self.certificate.facts(),
            "iterations": self.iterations,
            "largest_gap": self.largest_gap,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Finished:
    """A solved tree once its counts are written and checked; of a shard only the counts of its top are left."""

    piece: Piece
    certificate: Certificate = field(default_factory=Certificate)
    top: Cells | None = None
    leaves: pl.DataFrame | None = None
    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Finish:
    """Writes the counts of a tree, reads them again and checks them, there where the tree was solved."""

    settings: Settings
    targets: Mapping[str, Parts]

    def __call__(self, number: int, piece: Piece) -> _Finished:
        files = {}
        if UNROUNDED in self.targets:
            files[UNROUNDED] = self.targets[UNROUNDED].write(unrounded_frame(piece.unrounded))
        if piece.is_top:
            return _Finished(piece=piece, files=files)
        leaves, certificate = leaf_frame(piece), Certificate()
        for name, target in self.targets.items():
            if name != UNROUNDED:
                files[name] = target.write(leaves if name == COUNTS else records_frame(leaves))
        written = pl.read_parquet(files[COUNTS]) if COUNTS in files else leaves
        tree, given = piece.tree, self.settings.parents
        # A group of areas that are tops of shards is one of the areas above, which come first.
        groups = groups_inside(tree, self.settings.groups) if number else self.settings.groups
        top = check_tree(
            tree,
            read_cells(written, tree.schema, tree.levels[-1], certificate),
            certificate,
            # Parents that were given stand beside what was solved for, and need not be its sums.
            decided=[] if given else [cells_of(counts) for counts in piece.levels],
            groups=groups,
        )
        light = replace(piece, tree=replace(tree, levels=()), levels=(), unrounded=())
        kept = None if COUNTS in files else leaves
        return _Finished(piece=light, certificate=certificate, top=top, leaves=kept, files=files)


def _certified(finished: Sequence[_Finished], settings: Settings) -> Certificate:
    """Return what was checked of all trees, and of the areas above the shards once all of these are there."""
    found = Certificate()
    for each in finished:
        found.add(each.certificate)
    upper = finished[0].piece
    if upper.is_top:
        tops = [each.top for each in finished if each.top is not None]
        areas = [np.full(len(top.cell), place) for place, top in enumerate(tops)]
        cells = Cells(
            area=np.concatenate(areas),
            cell=np.concatenate([top.cell for top in tops]),
            count=np.concatenate([top.count for top in tops]),
        )
        moved = any(event.moves for each in finished[1:] for event in each.piece.events)
        decided = [] if moved or settings.parents else [cells_of(counts) for counts in upper.levels]
        groups = [each for each in settings.groups if each.level in upper.tree.names]
        check_tree(upper.tree, cells, found, decided=decided, groups=groups, leaves_too=True)
    return found


def in_memory(source: Source, settings: Settings) -> tuple[pl.DataFrame, Made]:
    """Return the counts of all leaves, without zeros, and what was made of them; nothing is written.

    The counts are checked all the same.
    """
    finished = [*solve_and(source, settings, _Finish(settings=settings.alone, targets={}))]
    frames = [each.leaves for each in finished if each.leaves is not None]
    return pl.concat(frames), _made((), finished, settings)


def make(
    source: Source,
    settings: Settings,
    folder: Path,
    *,
    records: str | None = "persons",
    unrounded: Path | None = None,
    joined: bool = True,
) -> Made:
    """Write counts, records and the certificate into a folder, shard by shard; return what was made.

    ``records`` names the file with one row for each record; ``unrounded`` gets the children before rounding. Files that
    are not ``joined`` stay in parts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = {COUNTS: Parts(path=folder.absolute() / COUNTS)}
    if records is not None:
        targets[records] = Parts(path=folder.absolute() / f"{records}.parquet")
    if unrounded is not None:
        targets[UNROUNDED] = Parts(path=unrounded.absolute())
    for target in targets.values():
        target.begin()
    finished = []
    for number, each in enumerate(solve_and(source, settings, _Finish(settings=settings.alone, targets=targets))):
        finished.append(each)
        for name, path in each.files.items():
            targets[name].take(number, path)
    written = [[target.join()] if joined else target.parts for target in targets.values()]
    made = _made(tuple(path for each in written for path in each), finished, settings)
    (folder / CERTIFICATE).write_text(json.dumps(made.facts(), indent=2) + "\n", encoding="utf-8")
    return made


def _made(files: tuple[Path, ...], finished: Sequence[_Finished], settings: Settings) -> Made:
    pieces = [each.piece for each in finished]
    return Made(
        files=files,
        events=tuple(event for piece in pieces for event in piece.events),
        certificate=_certified(finished, settings),
        parents=sum(piece.parents for piece in pieces),
        iterations=sum(piece.iterations for piece in pieces),
        largest_gap=max((piece.largest_gap for piece in pieces), default=0.0),
    )
