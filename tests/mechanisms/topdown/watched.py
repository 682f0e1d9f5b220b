"""The optimum of every child before rounding, of parents as they were solved for or at counts that a test gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from stirred.mechanisms.topdown.solve import parent, tree

Held = tuple[np.ndarray, np.ndarray]  # cells, and what is in them


def watched(monkeypatch: pytest.MonkeyPatch, parents: Mapping[str, Held] | None = None) -> dict[tuple[str, str], Held]:
    """Note children by parent and geocode from here on; ``parents`` (by geocode) replace the counts solved for."""
    found: dict[tuple[str, str], Held] = {}
    exact, optimum = parent.solve_children, parent._optimum

    def solve_children(step: Any, name: str, cells: Any, counts: Any, children: slice) -> Any:
        cells, counts = (parents or {}).get(name, (cells, counts))
        made = exact(step, name, cells, counts, children)
        for code, row in zip(step.level.geocodes[children], made.counts, strict=True):  # an only child has no optimum
            found.setdefault((name, code), (made.cells, row.astype(float)))
        return made

    def noted(own: Any, *rest: Any) -> Any:
        values, *more = optimum(own, *rest)
        for code, row in zip(own.step.level.geocodes[own.children], values, strict=True):
            found[own.name, code] = own.cells, row
        return values, *more

    monkeypatch.setattr(parent, "_optimum", noted)
    monkeypatch.setattr(tree, "solve_children", solve_children)
    return found
