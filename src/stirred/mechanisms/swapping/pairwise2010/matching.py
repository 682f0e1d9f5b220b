"""Step 2 of pairwise swapping as in 2010: who is paired with whom, by what must agree and by priority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, Final, Literal

import numpy as np

from stirred.mechanisms.swapping.records.choices import Choices, Rows

Priority = Literal["selected", "near", "risk"]
PRIORITIES: Final = ("selected", "near", "risk")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matching:
    """A file as codes: who may be selected, who is alike, and in which areas all are, the coarsest first."""

    chances: Sequence[Fraction]
    occupied: Rows
    alike: Rows
    state: Rows
    areas: Sequence[Rows]
    cap: Fraction
    priority: Sequence[Priority]

    def pairs(self, choices: Choices) -> tuple[Rows, list[int]]:
        """Select at random, and pair each selected household with the best partner, ties at random, up to the cap."""
        block, partner = self.areas[-1], np.arange(self.alike.size, dtype=np.int64)
        selected, alone = np.zeros(self.alike.size, dtype=bool), list[int]()
        for row in self.occupied:
            chance = self.chances[row]
            selected[row] = chance > 0 and (chance == 1 or choices.happens(chance))
        allowed = [floor(self.cap * int(n)) for n in np.bincount(self.state[self.occupied])]
        groups = {int(self.alike[own[0]]): own for own in _split(self.occupied, self.alike)}
        sizes, rows = np.bincount(block[self.occupied], minlength=block.size)[block], np.flatnonzero(selected)
        for row in rows[np.asarray(choices.order(rows.size), dtype=np.int64)]:
            if partner[row] != row or allowed[self.state[row]] < 2:
                continue
            own = groups[int(self.alike[row])]
            fits = own[(partner[own] == own) & (block[own] != block[row])]
            if not fits.size:
                alone.append(int(row))
                continue
            for name in self.priority:
                score = self._score(name, fits, row, selected=selected, sizes=sizes)
                fits = fits[score == score.max()]
            other = fits[choices.order(fits.size)[0]]
            partner[row], partner[other] = other, row
            allowed[self.state[row]] -= 2
        return partner, [row for row in alone if partner[row] == row]

    def _score(self, name: Priority, fits: Rows, row: int, *, selected: Any, sizes: Rows) -> Any:
        if name == "near":
            return np.sum([codes[fits] == codes[row] for codes in self.areas], axis=0)
        return selected[fits] if name == "selected" else -sizes[fits]


def _split(rows: Rows, codes: Rows) -> list[Rows]:
    order = rows[np.argsort(codes[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if rows.size else []
