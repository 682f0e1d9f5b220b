"""Relations that the order of a release may have with that of its input, and which of them an audit would have seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.audit.statistical import clopper_pearson
from stirred.randomness.entropy import Entropy

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


# Simulated audits behind the statement of power: so many sets of input orders, each with so many choices of runs.
ORDERS: Final = 250
_CHOICES: Final = 8
# How often the simulation may mistake a smaller power for the stated one.
_MISS: Final = 0.05


def can_be_followed(link: Coding) -> bool:
    """Say whether every released row can be a record of the file, by the values the mechanism leaves as they are."""
    there = np.bincount(link.base, minlength=link.values)
    return all(
        bool((rows >= 0).all() and (np.bincount(rows, minlength=link.values) <= there).all())
        for rows, *_ in link.released
    )


def detectable_share(
    codings: Sequence[Coding], link: Coding, *, limit: float, level: float, power: float, entropy: Entropy
) -> float:
    """Return the smallest share of runs that, left in input order, raise an alarm with the given probability.

    ``link`` numbers the values that a mechanism leaves as they are: by them a released row is followed to
    its record, at random among records that share them. Rows in input order are released rows sorted on
    the places of their records, whatever other values they now carry. A simulated audit draws releases and
    input orders anew and puts some releases in input order; the trend of whole records or of a column, some
    of the relations tested, must reach ``limit``, the one of the releases as they are, and the one that
    releases in input order would have had at this level.
    """
    pool = _Releases.of(codings, link)
    audits = [_Simulated.drawn(pool, entropy.child(f"orders {number}")) for number in range(ORDERS)]
    limit = max(limit, float(np.quantile(np.concatenate([audit.unrelated() for audit in audits]), 1 - level / 2)))

    def seen(share: float) -> bool:
        alarms = sum(int((audit.scores(share) > limit).sum()) for audit in audits)
        return clopper_pearson(alarms, ORDERS * _CHOICES, miss=_MISS)[0] >= power

    if not seen(1.0):
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class _Releases:
    """The releases of an audit, to draw from: a row of each table is a release, filled up with -1 to equal length.

    ``slot`` is the number of the record a released row is followed to, among all records sorted on the
    values of the link: the rows of a value take its records one after the other.
    """

    base: Codes
    slot: Codes
    codings: tuple[tuple[Codes, Codes, int], ...]

    @classmethod
    def of(cls, codings: Sequence[Coding], link: Coding) -> _Releases:
        first = np.searchsorted(np.sort(link.base), np.arange(link.values))
        return cls(
            base=link.base,
            slot=_filled([_slots(rows, first) for rows, *_ in link.released]),
            codings=tuple(
                (coding.base, _filled([rows for rows, *_ in coding.released]), coding.values) for coding in codings
            ),
        )

    def pulled(self, codes: Codes, values: int, positions: Codes) -> Matrix:
        """Return, for each release and value, the sum of the centred positions at which it stands."""
        runs = len(codes)
        centre = ((self.slot >= 0).sum(axis=1, keepdims=True) - 1) / 2
        bins = np.where(codes >= 0, codes, values) + np.arange(runs)[:, None] * (values + 1)
        sums = np.bincount(bins.ravel(), weights=(positions - centre).ravel(), minlength=runs * (values + 1))
        return sums.reshape(runs, values + 1)[:, :values].astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Simulated:
    """Audits on one set of input orders: scores of each release against each order, for each relation.

    ``honest`` as released and ``leaking`` put in its own input order, both centred by rows; ``leak`` and
    ``paired`` say by chance which runs leak and which order an honest one is paired with.
    """

    honest: tuple[Matrix, ...]
    leaking: tuple[Matrix, ...]
    leak: Matrix
    paired: Codes

    @classmethod
    def drawn(cls, pool: _Releases, entropy: Entropy) -> _Simulated:
        runs, records = len(pool.slot), pool.base.size
        orders, ties = _fractions(entropy, "input orders and ties", (2, runs, records))
        places = np.argsort(orders, axis=1)
        centred = (places - (records - 1) / 2).T
        releases = (_fractions(entropy, "releases", (runs,)) * runs).astype(np.int64)
        drawn = replace(pool, slot=pool.slot[releases])
        # Records by value, equal ones at random; rows that are none stay behind the others.
        by_value = np.argsort(pool.base + ties, axis=1)
        record = np.take_along_axis(by_value, np.maximum(drawn.slot, 0), axis=1)
        place = np.where(drawn.slot >= 0, np.take_along_axis(places, record, axis=1), records)
        positions = np.argsort(np.argsort(place, axis=1, kind="stable"), axis=1)
        released = np.broadcast_to(np.arange(place.shape[1]), place.shape)
        honest: list[Matrix] = []
        leaking: list[Matrix] = []
        for base, codes, values in pool.codings:
            for found, standing in ((honest, released), (leaking, positions)):
                pulled = drawn.pulled(codes[releases], values, standing) / np.bincount(base)
                scores = pulled[:, base] @ centred
                found.append(scores - scores.mean(axis=1, keepdims=True))
        leak, pairs = _fractions(entropy, "leaks and pairs", (2, _CHOICES, runs))
        return cls(tuple(honest), tuple(leaking), leak, np.argsort(pairs, axis=1))

    def scores(self, share: float) -> Matrix:
        """Return the largest score of any relation where a share of the runs leaks, for each choice of runs."""
        leaks = self.leak < share
        return self._largest(leaks, np.where(leaks, np.arange(leaks.shape[1]), self.paired))

    def unrelated(self) -> Matrix:
        """Return the largest score of any relation where all are in some input order, and not in their own."""
        return self._largest(np.ones(self.leak.shape, dtype=np.bool_), self.paired)

    def _largest(self, leaks: npt.NDArray[np.bool_], paired: Codes) -> Matrix:
        runs = leaks.shape[1]
        rows, share = np.arange(runs), leaks.astype(np.float64)
        best = np.zeros(len(leaks))
        for honest, leaking in zip(self.honest, self.leaking, strict=True):
            means = (share @ leaking + (1 - share) @ honest) / runs
            squares = share @ (leaking**2).sum(axis=1) + (1 - share) @ (honest**2).sum(axis=1)
            spread = np.sqrt(np.maximum(squares - runs * (means**2).sum(axis=1), 0.0) / (runs - 1))
            sums = np.where(leaks, leaking[rows, paired], honest[rows, paired]) - np.take_along_axis(means, paired, 1)
            tiny = 1e-9 * (1 + max(np.abs(honest).max(), np.abs(leaking).max()))
            best = np.maximum(best, np.abs(sums.sum(axis=1)) / np.where(spread > tiny, spread, math.inf))
        return best


def _fractions(entropy: Entropy, purpose: str, shape: tuple[int, ...]) -> Matrix:
    """Return uniform numbers from 0 to 1, to 53 bits: good enough for a simulation, which protects nothing."""
    words = entropy.words(purpose, chunk=0, count=math.prod(shape), dtype=np.uint64)
    return ((words >> np.uint64(11)).reshape(shape) * 2.0**-53).astype(np.float64)


def _filled(rows: Sequence[Codes]) -> Codes:
    table = np.full((len(rows), max(row.size for row in rows)), -1, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: row.size] = row
    return table


def _slots(rows: Codes, first: Codes) -> Codes:
    order = np.argsort(rows, kind="stable")
    values = rows[order]
    slots = np.empty(rows.size, dtype=np.int64)
    slots[order] = first[values] + np.arange(rows.size) - np.searchsorted(values, values)
    return slots
