"""Tables that agree on what they share, by least squares: unbiased, with the variance of every cell.

A table over variables S splits into interactions T, one for each subset of S: what its margin by T has beyond the
margins by fewer variables (analysis of variance). An interaction is the same in all tables that contain its variables,
and noise is uncorrelated between interactions, also noise inside a universe: what it keeps has no noise at all. So the
best linear unbiased estimate of an interaction is the mean over tables, weighted by their precision, and a table is
the sum of its interactions again. No equations are solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.tables.noise.measures import Measure

Floats = npt.NDArray[np.float64]
Interaction = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConsistentTable:
    """A table that agrees with the others: its values, and the variance of each."""

    values: Floats
    variance: float


def consistent(
    tables: Sequence[Measure], observed: Mapping[str, npt.NDArray[np.int64]], *, total: int | None = None
) -> dict[str, ConsistentTable]:
    """Return for each table, by its title, the least squares estimate from all of them; they count the same records.

    ``total`` is the number of records where that is published exactly.

    >>> from fractions import Fraction
    >>> tables = [Measure(title=t, variables=v, sizes=n, one=2, square=2, gaussian=True, loss=loss) for t, v, n, loss in
    ...           (("all", (), (), Fraction(1, 2)), ("a", ("a",), (2,), Fraction(1, 4)))]
    >>> noisy = {"all": np.array(10), "a": np.array([3, 5])}
    >>> found = consistent(tables, noisy)
    >>> found["a"].values.tolist(), found["all"].values.tolist(), round(found["a"].variance, 6)  # variances 2 and 4
    ([3.8, 5.8], 9.6, 2.4)
    >>> consistent(tables, noisy, total=12)["a"].values.tolist()
    [5.0, 7.0]
    """
    weights: dict[Interaction, dict[str, float]] = {}
    parts: dict[Interaction, Floats] = {}
    if total is not None:
        weights[frozenset()], parts[frozenset()] = {"the number of records": math.inf}, np.array(float(total))
    for table in tables:
        values = observed[table.title].reshape(table.sizes).astype(np.float64)
        for part in _subsets(table.variables):
            weights.setdefault(part, {})[table.title] = _weight(table, part)
            own = _interaction(table, values, part)
            # What some table knows exactly has infinite weight, and no other table counts.
            share = _share(weights[part], table.title)
            parts[part] = own if part not in parts else parts[part] + share * (own - parts[part])
    return {table.title: _estimates(table, weights, parts) for table in tables}


def _subsets(variables: Sequence[str]) -> Iterator[Interaction]:
    """Yield all subsets, small ones first."""
    found = chain.from_iterable(combinations(variables, size) for size in range(len(variables) + 1))
    return map(frozenset, found)


def _size(table: Measure, *, but: Interaction) -> int:
    """Return over how many cells the values of these variables are spread."""
    return math.prod(n for name, n in zip(table.variables, table.sizes, strict=True) if name not in but)


def _weight(table: Measure, part: Interaction) -> float:
    """Return the precision with which a table knows an interaction: infinite where its noise leaves it alone."""
    # Noise that sums to 0 has all its variance in what is left to it.
    free = math.prod(1 - 1 / n for n in table.shape)
    if free == 0 or any(part <= kept for kept in table.kept):
        return math.inf
    return free / (float(table.cell.variance) * _size(table, but=part))


def _share(weights: Mapping[str, float], title: str) -> float:
    if math.isinf(weights[title]):
        return 1.0
    return weights[title] / sum(weights.values())


def _interaction(table: Measure, values: Floats, part: Interaction) -> Floats:
    """Return what the margin by some variables has beyond those by fewer; axes of the others have length 1."""
    for axis, name in enumerate(table.variables):
        values = values - values.mean(axis, keepdims=True) if name in part else values.sum(axis, keepdims=True)
    own = [name for name in table.variables if name in part]
    gone = tuple(axis for axis, name in enumerate(table.variables) if name not in part)
    return values.squeeze(gone).transpose([own.index(name) for name in sorted(part)])


def _estimates(
    table: Measure, weights: Mapping[Interaction, Mapping[str, float]], parts: Mapping[Interaction, Floats]
) -> ConsistentTable:
    values = np.zeros(table.sizes)
    variance = 0.0
    for part in _subsets(table.variables):
        spread = _size(table, but=part)
        names = sorted(part)
        own = parts[part].transpose([names.index(name) for name in table.variables if name in part])
        shape = [n if name in part else 1 for name, n in zip(table.variables, table.sizes, strict=True)]
        values = values + own.reshape(shape) / spread
        inside = math.prod(1 - 1 / n for name, n in zip(table.variables, table.sizes, strict=True) if name in part)
        variance += inside / sum(weights[part].values()) / spread**2
    return ConsistentTable(values=values, variance=variance)
