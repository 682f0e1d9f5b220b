"""Compile the kernels of the solver once, so that no release waits for it: ``make`` runs this."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stirred.mechanisms.topdown.schema import Attribute, Schema
from stirred.mechanisms.topdown.solve.arms import ARMS
from stirred.mechanisms.topdown.solve.make import in_memory
from stirred.mechanisms.topdown.solve.pieces import Settings, Whole
from stirred.mechanisms.topdown.tree import Answers, Level, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
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
    """Make records of a few people in two areas of two."""
    names = "ab"
    schema = Schema(name="warm", attributes=tuple(Attribute(name=name, codes=("1", "2")) for name in names))
    query, levels = schema.query("detailed"), []
    for depth in range(3):
        areas = 2**depth
        values = np.arange(4 * areas).reshape(areas, 4)
        parent = np.arange(areas) // 2
        noisy = Answers(query=query, values=values, variance=np.ones(areas))
        codes = tuple(f"{area:0{depth}b}" if depth else "" for area in range(areas))
        levels.append(Level(name=f"L{depth}", geocodes=codes, parent=parent, answers=(noisy,)))
    in_memory(Whole(tree=Tree(schema=schema, levels=tuple(levels))), Settings(arm=ARMS["default"]))


if __name__ == "__main__":
    compile_kernels()
