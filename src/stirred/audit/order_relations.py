"""Relations that the order of a release may have with the order of its input, as scores of all against all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

Matrix = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

# Releases and input orders that must differ in a score before it counts.
_TELLING: Final = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: where each record stood, the rank of its id, and the released rows in released and in id order."""

    place: Codes
    rank: Codes
    released: tuple[pl.DataFrame, ...]


@dataclass(frozen=True, slots=True)
class Coding:
    """Values of some columns as numbers: of the records of the file, and of each release; new values are dropped."""

    name: str
    base: Codes
    released: tuple[tuple[Codes, ...], ...]

    @property
    def values(self) -> int:
        """Return how many values there are in the file."""
        return int(self.base.max()) + 1


def codings_of(data: pl.DataFrame, columns: Sequence[str], trials: Sequence[Trial]) -> list[Coding]:
    """Number whole records, and the values of every column alone, where a release has them."""
    released = trials[0].released[0].columns
    shared = [name for name in columns if name in released]
    groups = [shared, *([name] for name in shared if len(shared) > 1)]
    return [coded(data, group, trials) for group in groups if group]


def coded(data: pl.DataFrame, columns: Sequence[str], trials: Sequence[Trial]) -> Coding:
    """Number the values that some columns have together."""
    known: dict[tuple[Any, ...], int] = {}
    base = np.array([known.setdefault(row, len(known)) for row in data.select(columns).rows()])

    def codes(frame: pl.DataFrame) -> Codes:
        return np.array([known.get(row, -1) for row in frame.select(columns).rows()], dtype=np.int64)

    name = "records" if len(columns) > 1 else f'values of "{columns[0]}"'
    return Coding(name, base, tuple(tuple(codes(frame) for frame in trial.released) for trial in trials))


def relations(codings: Sequence[Coding], trials: Sequence[Trial], *, keep_ids: bool) -> Iterator[tuple[str, Matrix]]:
    """Yield a score of every release against every input order, for each thing that might be related."""
    before = {"place": np.stack([trial.place for trial in trials])}
    if keep_ids:
        before["id"] = np.stack([trial.rank for trial in trials])
    after = ["place", "id"][: len(trials[0].released)]
    for coding in codings:
        for number, seen in enumerate(after):
            rows = [codes[number] for codes in coding.released]
            for told, key in before.items():
                yield (
                    f"the {seen} of released {coding.name} goes with their {told} in the input",
                    trend(coding, rows, key),
                )
                yield (
                    f"{coding.name} that are neighbours by {told} in the input are neighbours by released {seen}",
                    (neighbours(coding, rows, key)),
                )


def trend(coding: Coding, released: Sequence[Codes], key: Codes) -> Matrix:
    """Score how released positions go along with the mean input position of records of equal value."""
    counts = np.bincount(coding.base, minlength=coding.values)
    weights = np.stack([_pulls(codes, coding.values)[coding.base] / counts[coding.base] for codes in released])
    matrix: Matrix = weights @ (key - key.mean(axis=1, keepdims=True)).T
    return matrix


def _pulls(codes: Codes, values: int) -> Matrix:
    """Return, for each value, the sum of the centred released positions at which it stands."""
    place = np.arange(codes.size) - (codes.size - 1) / 2
    return np.bincount(codes[codes >= 0], weights=place[codes >= 0], minlength=values).astype(np.float64)


def neighbours(coding: Coding, released: Sequence[Codes], key: Codes) -> Matrix:
    """Count neighbours in a release whose values are neighbours in an input order."""
    values = coding.values
    sequence = coding.base[np.argsort(key, axis=1)]
    pairs = sequence[:, :-1] * values + sequence[:, 1:]
    rows = []
    for codes in released:
        known = (codes[:-1] >= 0) & (codes[1:] >= 0)
        a, b = codes[:-1][known], codes[1:][known]
        beside = np.bincount(a * values + b, minlength=values**2) + np.bincount(b * values + a, minlength=values**2)
        rows.append(beside[pairs].sum(axis=1))
    return np.stack(rows).astype(np.float64)


def standardised(matrix: Matrix) -> Matrix | None:
    """Scale scores so that the sum over a random pairing has mean 0 and variance 1; None if it says too little.

    Scores that differ in a handful of releases or input orders only, such as those of one rare value, have
    sums of few possible values and long tails, which would hide what the other relations show.
    """
    centred = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
    squares = centred**2
    spread = math.sqrt(float(squares.sum()) / (len(matrix) - 1))
    if spread <= 1e-9 * (1 + float(np.abs(matrix).max())):
        return None
    # Alike for every pairing, so the test stays exact.
    telling = min(_effective(squares.sum(axis=0)), _effective(squares.sum(axis=1)))
    return centred / spread if telling >= min(_TELLING, len(matrix) / 4) else None


def _effective(parts: Matrix) -> float:
    """Return how many equal parts would be as unequal as these: all of them if they are equal."""
    return float(parts.sum() ** 2 / (parts**2).sum())
