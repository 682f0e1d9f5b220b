"""The cells of a table at each level of detail: which are measured, and which rows are sums of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CellLevel:
    """One level: ``cell`` has the measured cell of every fine value, ``labels`` and ``sums`` the published rows."""

    cell: Ints
    measured: int
    labels: pl.DataFrame
    sums: Ints  # measured x rows, of 0 and 1

    @property
    def added(self) -> Ints:
        """Return how many measured cells each row adds up."""
        added: Ints = self.sums.sum(axis=0)
        return added


def age_by_sex(edges: Sequence[Sequence[int]], *, sexes: int, top: int, names: Sequence[str]) -> list[CellLevel]:
    """Return the levels of sex by age: the total alone, then each list of lower age edges, with sex margins.

    A fine value is sex * (top + 1) + age.
    """
    ages = np.arange(top + 1)
    whole = pl.DataFrame({"agestart": ["*"], "ageend": ["*"], "sex": ["*"]})
    levels = [CellLevel(np.zeros(sexes * ages.size, dtype=np.int64), 1, whole, np.ones((1, 1), dtype=np.int64))]
    for lower in edges:
        starts = [0, *lower]
        groups = np.searchsorted(lower, ages, side="right")
        cell = (np.arange(sexes)[:, None] * len(starts) + groups).ravel()
        spans = [(str(a), str(b - 1)) for a, b in zip(starts, [*lower, top + 1], strict=True)]
        rows = [(a, b, sex) for sex in names for a, b in spans] + [("*", "*", sex) for sex in names]
        margins = np.kron(np.eye(sexes, dtype=np.int64), np.ones((len(starts), 1), dtype=np.int64))
        sums = np.hstack([np.eye(sexes * len(starts), dtype=np.int64), margins])
        labels = pl.DataFrame(rows, schema=["agestart", "ageend", "sex"], orient="row")
        levels.append(CellLevel(cell.astype(np.int64), sums.shape[0], labels, sums))
    return levels


def from_cells(
    cells: Mapping[str, Sequence[str]], levels: Sequence[Sequence[str]], *, values: Sequence[str], label: str
) -> list[CellLevel]:
    """Return the levels of a table whose cells are sets of values; a row is every cell that measured ones add up to.

    >>> [level.labels["cell"].to_list() for level in from_cells(
    ...     {"0": "ab", "1": "a", "2": "b"}, [["0"], ["1", "2"]], values="ab", label="cell")]
    [['0'], ['0', '1', '2']]
    """
    found = []
    for measured in levels:
        inside = [{*cells[name]} for name in measured]
        cell = np.array([next(i for i, own in enumerate(inside) if value in own) for value in values], dtype=np.int64)
        rows = [name for name, own in cells.items() if all(each <= {*own} or not each & {*own} for each in inside)]
        sums = np.array([[int(each <= {*cells[name]}) for name in rows] for each in inside], dtype=np.int64)
        found.append(CellLevel(cell, len(measured), pl.DataFrame({label: rows}), sums))
    return found
