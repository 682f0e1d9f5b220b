"""Microdata from measurements to checked files: solved tree by tree, written, read again and certified."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Counts, GroupTotal, Level, Tree, groups_inside
from stirred.mechanisms.topdown.solve.check import Certificate, check_tree, read_counts
from stirred.mechanisms.topdown.solve.parent import SolverReport
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import Shards, SolveOptions, TreeCounts, replacing, solve

COUNTS: Final = "counts.parquet"
CERTIFICATE: Final = "certificate.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverOutcome(SolverReport):
    """The files that were made, what happened, and the certificate of the check."""

    files: tuple[Path, ...]
    certificate: Certificate

    def facts(self) -> dict[str, Any]:
        return {
            "events": [asdict(event) for event in self.events],
            "certificate": self.certificate.facts(),
            "iterations": self.iterations,
            "largest_gap": self.largest_gap,
        }


def make(
    shards: Shards,
    options: SolveOptions,
    folder: Path,
    *,
    top: Tree | None = None,
    records: str | None = "persons",
) -> SolverOutcome:
    """Write counts, records and the certificate into a folder, shard by shard; return what was made.

    ``records`` names the file with one row for each record. Without it, the file of counts stays in parts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [COUNTS] if records is None else [COUNTS, f"{records}.parquet"]
    targets = [FileParts(path=folder.absolute() / name) for name in names]
    for target in targets:
        target.begin()
    done = [*solve(shards, options, _TreeWriter(options.groups, *targets), top=top)]
    written = [target.parts if records is None else [target.join()] for target in targets]
    found = SolverOutcome(
        files=tuple(path for each in written for path in each),
        certificate=_certificate(done, options.groups),
        **SolverReport.of(each.tree for each in done),
    )
    (folder / CERTIFICATE).write_text(json.dumps(found.facts(), indent=2) + "\n", encoding="utf-8")
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CheckedTree:
    """A solved tree once its counts are written and checked; of a shard only the counts of its top are left."""

    tree: TreeCounts
    certificate: Certificate = field(default_factory=Certificate)
    top: Counts | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _TreeWriter:
    """Writes the counts of a tree, reads them again and checks them, there where the tree was solved."""

    groups: Sequence[GroupTotal]
    counts: FileParts
    records: FileParts | None = None

    def __call__(self, number: int, solved: TreeCounts) -> _CheckedTree:
        if solved.is_top:
            return _CheckedTree(tree=solved)
        tree, certificate, geocodes = solved.tree, Certificate(), solved.tree.levels[-1].geocodes
        leaves = solved.leaves
        if self.records is not None:
            self.records.write(number, records_frame(leaves))
        written = read_counts(pl.read_parquet(self.counts.write(number, leaves)), tree.schema, geocodes, certificate)
        # A group of areas that are tops of shards is one of the areas above, which come first.
        groups = groups_inside(tree, self.groups) if number else self.groups
        top = check_tree(tree, written, certificate, decided=solved.levels, groups=groups)
        small = replace(solved, tree=replace(tree, levels=()), levels=())
        return _CheckedTree(tree=small, certificate=certificate, top=top)


def _certificate(done: Sequence[_CheckedTree], groups: Sequence[GroupTotal]) -> Certificate:
    """Return what was checked of all trees, and of the areas above the shards once all of these are there."""
    found = Certificate()
    for each in done:
        found.add(each.certificate)
    upper = done[0].tree
    if upper.is_top:
        counts = Counts.of_rows([(each.top.cells, each.top.counts) for each in done if each.top is not None])
        moved = any(event.moves for each in done[1:] for event in each.tree.events)
        check_tree(upper.tree, counts, found, decided=() if moved else upper.levels, groups=groups, leaves_too=True)
    return found


# ---- files ------------------------------------------------------------------------------------------------


def records_frame(counts: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each record; rows with equal values are alike, so their order says nothing.

    >>> records_frame(pl.DataFrame({"geocode": ["a", "b"], "sex": ["m", "f"], "count": [2, 1]})).rows()
    [('a', 'm'), ('a', 'm'), ('b', 'f')]
    """
    return counts.drop("count")[np.repeat(np.arange(counts.height), counts["count"].to_numpy())]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """A file that is written in parts, which are joined at the end."""

    path: Path

    @property
    def _folder(self) -> Path:
        return self.path.with_name(f"{self.path.name}.parts")

    def begin(self) -> None:
        """Remove the parts of a run that was interrupted: they may be of other measurements, or more than now."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, number: int, frame: pl.DataFrame) -> Path:
        """Write a part, completely or not at all."""
        part = self._folder / f"{number:06d}.parquet"
        with replacing(part) as writing:
            frame.write_parquet(writing)
        return part

    def extend(self, frames: Iterable[pl.DataFrame]) -> None:
        """Write further parts."""
        for number, frame in enumerate(frames, start=len(self.parts)):
            self.write(number, frame)

    @property
    def parts(self) -> list[Path]:
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


# ---- before the first release -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Asks a process to load what measuring and solving need, and whether it sees the folder of the bundle."""

    folder: Path | None
    solves: bool

    def __call__(self, number: int) -> bool:
        """Return whether the folder is seen."""
        from stirred.randomness import noise_kernel  # noqa: F401

        if self.solves:
            compile_kernels()
        return self.folder is None or self.folder.is_dir()


@cache
def compile_kernels() -> None:
    """Solve for a few people in two areas of two, so that no release waits for compilation: ``make`` runs this."""
    schema = Schema(name="warm", attributes=tuple(Attribute(name=name, codes=("1", "2")) for name in "ab"))
    query, levels = schema.query("detailed"), []
    for depth in range(3):
        areas = 2**depth
        noisy = Answers(query=query, values=np.arange(4 * areas).reshape(areas, 4), variance=np.ones(areas))
        codes = tuple(f"{area:0{depth}b}" if depth else "" for area in range(areas))
        levels.append(Level(name=f"L{depth}", geocodes=codes, parent=np.arange(areas) // 2, answers=(noisy,)))
    tree = Tree(schema=schema, levels=tuple(levels))
    for _ in solve(lambda: [tree], SolveOptions(method=METHODS["default"])):
        pass


if __name__ == "__main__":
    compile_kernels()
