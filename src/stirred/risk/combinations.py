"""Minimal unique combinations of keys: why a record is unique (SUDA, Elliot, Manning and Ford 2002).

A set S of keys is a minimal unique combination of a record that is alone with its values of S and not with those of S
less any one key. The fewer keys it needs, and the more such sets a record has, the riskier it is: each adds the
product of K - i for i from \\|S\\| to M - 1, with K keys and sets of up to M.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import encode
from stirred.data.uniqueness import unique_match

_Array = npt.NDArray[Any]
Keys = tuple[str, ...]
# So many possible combinations, or fewer, are counted in a table; of more the occurring ones are numbered first.
_DENSE: Final = 1 << 24
MOST_SETS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MinimalUniques:
    """Minimal unique combinations of all records: how many records have each, and the score of each record."""

    keys: Keys
    largest: int
    records_by_set: Mapping[Keys, int]
    scores: _Array

    @property
    def affected(self) -> int:
        """Return the number of records that are unique on some set of up to ``largest`` keys."""
        return int((self.scores > 0).sum())

    @property
    def by_size(self) -> dict[int, int]:
        """Return how many minimal unique combinations there are, over all records, by their number of keys."""
        found = dict.fromkeys(range(1, self.largest + 1), 0)
        for keys, records in self.records_by_set.items():
            found[len(keys)] += records
        return found

    @property
    def by_key(self) -> list[tuple[str, float]]:
        """Return each key with the share of minimal unique combinations that it is part of, the largest first."""
        total = sum(self.records_by_set.values())
        parts = {key: sum(n for keys, n in self.records_by_set.items() if key in keys) for key in self.keys}
        return sorted(((key, n / total if total else 0.0) for key, n in parts.items()), key=lambda each: -each[1])


def minimal_uniques(frame: pl.DataFrame, keys: Sequence[str], *, largest: int = 3) -> MinimalUniques:
    """Return the minimal unique combinations of up to ``largest`` keys.

    >>> rows = pl.DataFrame({"sex": list("fffm"), "age": [1, 1, 2, 2], "born": list("abab")})
    >>> found = minimal_uniques(rows, ["sex", "age", "born"])
    >>> found.scores.tolist(), found.records_by_set[("sex",)]
    ([1, 2, 2, 3], 1)
    """
    largest = min(largest, len(keys))
    columns = {name: _codes(frame[name]) for name in keys}
    scores = np.zeros(frame.height, dtype=np.int64)
    found: dict[Keys, int] = {}
    smaller: dict[Keys, _Array] = {}
    for size in range(1, largest + 1):
        worth = math.prod(len(keys) - i for i in range(size, largest))
        alone: dict[Keys, _Array] = {}
        for chosen, codes in _crossed(columns, keys, size):
            one = alone[chosen] = _alone(*codes)
            for part in combinations(chosen, size - 1) if size > 1 else ():
                one = one & ~smaller[part]
            if (many := int(np.count_nonzero(one))) > 0:
                found[chosen] = many
                scores[one] += worth
        smaller = alone
    return MinimalUniques(keys=tuple(keys), largest=largest, records_by_set=found, scores=scores)


def dis_suda(frame: pl.DataFrame, keys: Sequence[str], *, fraction: float, largest: int = 3) -> _Array:
    """Return a probability of disclosure for each record of a sample: the file's own, shared out by SUDA scores.

    After the idea of DIS-SUDA (Elliot and Manning 2003): the probability that a unique match is right (Skinner and
    Elliot 2002, `unique_match`) is the mean over the unique records, each in proportion to its score, at most 1. How
    sdcMicro scales its scores is not documented; ours need not equal them. ``fraction`` is the sampling fraction.

    >>> rows = pl.DataFrame({"sex": list("fffm"), "age": [1, 1, 2, 2], "born": list("aaab")})
    >>> dis_suda(rows, ["sex", "age", "born"], fraction=0.5).round(3).tolist()
    [0.0, 0.0, 0.333, 0.667]
    """
    scores = minimal_uniques(frame, keys, largest=largest).scores
    sizes = frame.group_by(list(keys)).len("__len")["__len"].to_numpy()
    right = unique_match(sizes, fraction=fraction) or 0.0
    total = int(scores.sum())
    alone = int((sizes == 1).sum())
    return np.minimum(1.0, scores * (right * alone / total)) if total else np.zeros(frame.height)


def number_of_sets(keys: int, largest: int) -> int:
    """Return how many sets of keys are searched.

    >>> number_of_sets(10, 3)
    175
    """
    return sum(math.comb(keys, size) for size in range(1, min(largest, keys) + 1))


def _codes(column: pl.Series) -> tuple[_Array, int]:
    coded = encode(column.to_frame(), [column.name])
    return coded.codes.astype(np.int64), coded.count


def _crossed(
    columns: Mapping[str, tuple[_Array, int]], keys: Sequence[str], size: int
) -> Iterator[tuple[Keys, tuple[_Array, int]]]:
    """Yield each set of keys with the codes of its combinations; a set begins where the one before it does."""
    stack: list[tuple[str, tuple[_Array, int]]] = []
    for chosen in combinations(keys, size):
        same = 0
        while same < len(stack) and stack[same][0] == chosen[same]:
            same += 1
        del stack[same:]
        for name in chosen[len(stack) :]:
            stack.append((name, _joined(stack[-1][1], columns[name]) if stack else columns[name]))
        yield chosen, stack[-1][1]


def _joined(one: tuple[_Array, int], other: tuple[_Array, int]) -> tuple[_Array, int]:
    (codes, count), (more, size) = one, other
    if count * size > _DENSE:
        occurring, codes = np.unique(codes, return_inverse=True)
        count = occurring.size
    return codes * size + more, count * size


def _alone(codes: _Array, count: int) -> _Array:
    if count <= _DENSE:
        counts = np.bincount(codes, minlength=count)
        return np.asarray((counts == 1)[codes])
    frame = pl.DataFrame({"code": codes})
    return frame.select(pl.col("code").is_unique()).to_series().to_numpy()
