"""Intervals from the exact law of an estimate that rests on few measurements: a sum of weighted integer noise.

The error of an estimate is the sum of the noise of all measurements, each times its weight. Where only few weights
differ from zero and the noise is narrow, the values that the error can take are listed with their probabilities. The
weights come from one of two places. If the sum of measured cells that make up the count has no more variance than the
best estimate, it is the best estimate, for there is only one. A small hierarchy is solved at once, densely. In both
cases the weights have to give back the standard error of the two passes, or else nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import ceil, isclose, sqrt
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.budget import variance_of
from stirred.mechanisms.topdown.schema import TOTAL, MarginalQuery
from stirred.mechanisms.topdown.subspaces import known_zeros
from stirred.mechanisms.topdown.tree import Answers, GroupTotal, Level, Numbers

Terms = list[tuple[float, float]]  # the weight of each measurement, and the variance of its noise
_MOST_UNKNOWN: Final = 256
_MOST_VALUES: Final = 1 << 18
_REACH: Final = 9.0  # in standard deviations; what lies beyond has a probability below 1e-18
_SAME: Final = 1e-7
_GRID: Final = 1e-9
_SLACK: Final = 1e-12


def half_width(terms: Sequence[tuple[float, float]], confidence: float) -> float | None:
    """Return within what an error certainly stays with this confidence; None where it has too many values.

    >>> half_width([(1.0, 4.0)], 0.95)
    4.0
    """
    values: Numbers = np.zeros(1)
    chances: Numbers = np.ones(1)
    for weight, variance in terms:
        noise, probability = _law(variance)
        if values.size * noise.size > _MOST_VALUES:
            return None
        sums = (values[:, None] + weight * noise[None, :]).ravel()
        values, place = np.unique(np.rint(sums / _GRID) * _GRID, return_inverse=True)
        chances = np.bincount(place.ravel(), weights=np.outer(chances, probability).ravel()).astype(np.float64)
    sizes, place = np.unique(np.abs(values), return_inverse=True)
    within = np.cumsum(np.bincount(place.ravel(), weights=chances))
    enough = np.flatnonzero(within >= confidence + _SLACK)
    return float(sizes[enough[0]]) if enough.size else None


def _law(variance: float) -> tuple[Numbers, Numbers]:
    """Return the values of discrete Gaussian noise of this variance, and their probabilities."""
    parameter = _parameter(variance)
    reach = max(3, ceil(_REACH * sqrt(parameter)))
    noise = np.arange(-reach, reach + 1, dtype=np.float64)
    chances = np.exp(-(noise**2) / (2 * parameter))
    return noise, chances / chances.sum()


def _parameter(variance: float) -> float:
    """Return sigma squared of discrete Gaussian noise, which for narrow noise is more than its variance."""
    low, high = min(variance, 1.0) / 2, max(1.0, variance) * 1.1
    if variance > 1 and isclose(variance_of(Fraction(variance)), variance, rel_tol=1e-12):
        return variance
    while variance_of(Fraction(low)) > variance:
        low /= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if variance_of(Fraction(middle)) < variance else (low, middle)
    return (low + high) / 2


# ---- weights ----------------------------------------------------------------------------------------------


def measured_terms(levels: Iterable[Level], members: Sequence[str], query: MarginalQuery, cell: int) -> Iterator[Terms]:
    """Yield sums of measured cells that make up a count in each of these areas."""
    wanted = query.cell_of == cell
    for level in levels:
        inside = [place for place, code in enumerate(level.geocodes) if code in {*members}]
        if len(inside) != len(members):
            continue
        for answers in level.answers:
            cells = _parts(answers, wanted)
            if cells and np.isfinite(answers.variance[inside]).all():
                yield [(1.0, float(variance)) for variance in answers.variance[inside] for _ in range(cells)]


def _parts(answers: Answers, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Return how many cells of a measured query make up the wanted ones; 0 where some are in part."""
    of = answers.query.cell_of
    inside = np.unique(of[wanted])
    return 0 if np.isin(of[~wanted], inside).any() else len(inside)


def solved_terms(
    levels: Sequence[Level],
    members: Sequence[str],
    query: MarginalQuery,
    cell: int,
    *,
    groups: Sequence[GroupTotal] = (),
) -> Terms | None:
    """Return the weights of all measurements of a small hierarchy; None where it is not small."""
    size = len(query.cell_of)
    if levels[-1].areas * size > _MOST_UNKNOWN:
        return None
    places = _leaves(levels)
    leaves = places[0].shape[1]
    if leaves * size > _MOST_UNKNOWN:
        return None

    def rows(height: int, asked: MarginalQuery) -> Numbers:
        cells = (asked.cell_of[None, :] == np.arange(asked.size)[:, None]).astype(np.float64)
        return np.einsum("al,qc->aqlc", places[height], cells).reshape(len(places[height]), asked.size, -1)

    codes = {code: (height, n) for height, level in enumerate(levels) for n, code in enumerate(level.geocodes)}
    noisy, fixed, variance = [np.zeros((0, leaves * size))], [np.zeros((0, leaves * size))], [np.zeros(0)]
    for height, level in enumerate(levels):
        for each in level.answers:
            usable = np.isfinite(each.variance)
            noisy.append(rows(height, each.query)[usable].reshape(-1, leaves * size))
            variance.append(np.repeat(each.variance[usable], each.query.size))
        for known in level.known:
            own = rows(height, known.query)
            if known.sign == "=":
                fixed.append(own[known.given].reshape(-1, leaves * size))
            empty = own[known_zeros(known)].any(axis=0)
            fixed.append(np.eye(leaves * size)[empty])
    total = MarginalQuery(name=TOTAL, kept=(), groups=tuple((0,) * len(each) for each in query.groups))
    for group in groups:
        fixed.append(sum(rows(codes[code][0], total)[codes[code][1]] for code in group.members))
    asked = sum(rows(codes[code][0], query)[codes[code][1], cell] for code in members)
    weights = _weights(np.concatenate(noisy), np.concatenate(fixed), np.concatenate(variance), np.asarray(asked))
    used = np.abs(weights) > _SAME * np.abs(weights).max(initial=0.0)
    return [*zip(weights[used].tolist(), np.concatenate(variance)[used].tolist(), strict=True)]


def _leaves(levels: Sequence[Level]) -> list[Numbers]:
    """Return for each level which leaves its areas have (areas, leaves); an area without parts is a leaf."""
    found: list[Numbers] = []
    for height in range(len(levels) - 1, -1, -1):
        areas = levels[height].areas
        own = np.zeros((areas, found[0].shape[1] if found else 0))
        if found:
            np.add.at(own, levels[height + 1].parent, found[0])
        alone = np.flatnonzero(~own.any(axis=1))
        found = [np.pad(each, ((0, 0), (0, alone.size))) for each in found]
        found.insert(0, np.concatenate([own, np.eye(areas)[:, alone]], axis=1))
    return found


def _weights(noisy: Numbers, fixed: Numbers, variance: Numbers, asked: Numbers) -> Numbers:
    """Return the weights of measurements in the best linear unbiased estimate, given what is fixed."""
    _, sizes, vectors = np.linalg.svd(fixed, full_matrices=True) if len(fixed) else (0, np.zeros(0), np.eye(len(asked)))
    free = vectors[np.count_nonzero(sizes > _SAME) :].T
    scaled = (noisy @ free) / np.sqrt(variance)[:, None]
    found: Numbers = np.linalg.pinv(scaled, rcond=1e-10).T @ (free.T @ asked) / np.sqrt(variance)
    return found


def gives(terms: Terms | None, std_dev: float) -> bool:
    """Say whether weights give back a standard error."""
    return terms is not None and isclose(sum(w * w * v for w, v in terms), std_dev**2, rel_tol=_SAME)
