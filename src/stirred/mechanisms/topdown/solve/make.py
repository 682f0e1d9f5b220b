"""Microdata from measurements to checked files: solved piece by piece, written, read again and certified."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.estimated import groups_inside
from stirred.mechanisms.topdown.solve.check import Cells, Certificate, check_tree, read_cells
from stirred.mechanisms.topdown.solve.files import Parts, cells_of, leaf_frame, records_frame, unrounded_frame
from stirred.mechanisms.topdown.solve.microdata import Piece, Settings, Source, solve
from stirred.mechanisms.topdown.solve.step import Event
from stirred.mechanisms.topdown.tree import GroupTotal, Tree

COUNTS, CERTIFICATE = "counts.parquet", "certificate.json"


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


class _Checked:
    """Checks pieces as they are written, and at the end the areas above them."""

    def __init__(self, settings: Settings) -> None:
        self.certificate, self._settings = Certificate(), settings
        self._tops: list[Cells] = []
        self._upper: Piece | None = None
        self._moved = False

    def upper(self, piece: Piece) -> None:
        """Keep the areas above the shards until all of these are there."""
        self._upper = piece

    def shard(self, piece: Piece, written: pl.DataFrame) -> None:
        """Check one shard as it was written."""
        leaves = read_cells(written, piece.tree.schema, piece.tree.levels[-1], self.certificate)
        # Parents that were given stand beside what was solved for, and need not be its sums.
        decided = [] if self._settings.parents else [cells_of(counts) for counts in piece.levels]
        self._tops.append(self._check(piece.tree, leaves, decided))
        self._moved |= any(event.moves for event in piece.events)

    def finish(self) -> Certificate:
        """Check the areas above the shards."""
        if self._upper is not None:
            tree = self._upper.tree
            areas = [np.full(len(top.cell), place) for place, top in enumerate(self._tops)]
            cells = Cells(
                area=np.concatenate(areas),
                cell=np.concatenate([top.cell for top in self._tops]),
                count=np.concatenate([top.count for top in self._tops]),
            )
            decided = [cells_of(counts) for counts in self._upper.levels]
            self._check(tree, cells, [] if self._moved or self._settings.parents else decided, leaves_too=True)
        return self.certificate

    def _check(self, tree: Tree, leaves: Cells, decided: list[Cells], *, leaves_too: bool = False) -> Cells:
        groups: Sequence[GroupTotal] = self._settings.groups
        if self._upper is not None:  # a group of areas that are tops of shards is one of the areas above
            groups = [g for g in groups if g.level in tree.names] if leaves_too else groups_inside(tree, groups)
        return check_tree(tree, leaves, self.certificate, decided=decided, groups=groups, leaves_too=leaves_too)


def in_memory(source: Source, settings: Settings) -> tuple[pl.DataFrame, Made]:
    """Return the counts of all leaves, without zeros, and what was made of them; nothing is written.

    The counts are checked all the same.
    """
    checked, frames, pieces = _Checked(settings), [], []
    for piece in solve(source, settings):
        pieces.append(piece)
        if piece.is_top:
            checked.upper(piece)
        else:
            frames.append(leaf_frame(piece))
            checked.shard(piece, frames[-1])
    return pl.concat(frames), _made((), pieces, checked.finish())


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
    targets = {COUNTS: Parts(path=folder / COUNTS)}
    if records is not None:
        targets[records] = Parts(path=folder / f"{records}.parquet")
    if unrounded is not None:
        targets["unrounded"] = Parts(path=unrounded)
    for target in targets.values():
        target.begin()
    checked, pieces = _Checked(settings), []
    for number, piece in enumerate(solve(source, settings)):
        pieces.append(piece)
        if unrounded is not None:
            targets["unrounded"].add(number, unrounded_frame(piece.unrounded))
        if piece.is_top:
            checked.upper(piece)
            continue
        leaves = pl.read_parquet(targets[COUNTS].add(number, leaf_frame(piece)))
        checked.shard(piece, leaves)
        if records is not None:
            targets[records].add(number, records_frame(leaves))
        pieces[-1] = _light(piece)
    written = [[target.join()] if joined else target.parts for target in targets.values()]
    made = _made(tuple(path for each in written for path in each), pieces, checked.finish())
    (folder / CERTIFICATE).write_text(json.dumps(made.facts(), indent=2) + "\n", encoding="utf-8")
    return made


def _light(piece: Piece) -> Piece:
    """Return a piece without its counts: those of a shard are not kept in memory once they are written."""
    return replace(piece, tree=replace(piece.tree, levels=()), levels=(), unrounded=())


def _made(files: tuple[Path, ...], pieces: list[Piece], certificate: Certificate) -> Made:
    return Made(
        files=files,
        events=tuple(_events(pieces)),
        certificate=certificate,
        parents=sum(piece.parents for piece in pieces),
        iterations=sum(piece.iterations for piece in pieces),
        largest_gap=max((piece.largest_gap for piece in pieces), default=0.0),
    )


def _events(pieces: list[Piece]) -> Iterator[Event]:
    for piece in pieces:
        yield from piece.events
