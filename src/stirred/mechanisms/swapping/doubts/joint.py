"""Three and more columns together: values that belong together, and many small hints that add up.

Columns that tell nothing alone or in pairs may tell much together. Four coarse columns that a household shares put its
persons into small groups again; ten columns that each say a little say much in sum. Nobody can try all combinations, so
columns are added one by one, each time the one that guesses best with those before it; and all are asked as a
statistician would who takes them as independent (naive Bayes), each record by what the others say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stirred.data.codes import Codes
from stirred.data.guessing import Guess, Target
from stirred.mechanisms.swapping.doubts.looking import Evidence, Look, combined, versions

# So many rows are looked at, and so many columns at most are put together value by value.
ROWS_TOGETHER: Final = 20_000
_MOST_TOGETHER: Final = 6
# Scores for each record and value: not more than so many at once.
_MOST_SCORES: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joint:
    """Columns that tell together, of which swap value, with the codes of their combinations where these tell it."""

    names: tuple[str, ...]
    told: str
    evidence: Evidence | None
    guess: Guess
    codes: Codes | None = None


def together(seen: Look, columns: Mapping[str, Codes]) -> Joint | None:
    """Return three or more columns whose combinations tell a swap value; None where none were found."""
    chosen: list[str] = []
    codes: Codes | None = None
    while len(chosen) < min(_MOST_TOGETHER, len(columns)):
        tried = {}
        for name in columns:
            if name not in chosen:
                own = columns[name] if codes is None else combined([codes, columns[name]])
                found = seen.evidence(own)
                told = max(found, key=lambda other: (_tells(found[other]), found[other].guess.removed))
                tried[name] = (own, told, found[told])
        best = max(tried, key=lambda name: (_tells(tried[name][2]), tried[name][2].guess.removed))
        codes, told, evidence = tried[best]
        chosen.append(best)
        if len(chosen) > 2 and _tells(evidence):
            names = tuple(name for name in columns if name in chosen)
            return Joint(names=names, told=told, evidence=evidence, guess=evidence.guess, codes=codes)
    return None


def confirmed(seen: Look, found: Joint) -> Joint | None:
    """Return the same columns with what they tell in another look; None where they do not tell there."""
    codes = combined([versions(seen, name)[1] for name in found.names])
    evidence = seen.evidence(codes).get(found.told)
    if evidence is None or not _tells(evidence):
        return None
    return replace(found, evidence=evidence, guess=evidence.guess, codes=codes)


def _tells(evidence: Evidence) -> bool:
    return evidence.guess.telling or evidence.shown.telling


def added_up(seen: Look, columns: Mapping[str, Codes]) -> Joint | None:
    """Return the first columns, three or more, whose hints add up to a guess that tells a swap value."""
    names = list(columns)
    for told, target in seen.targets.items():
        for number, guess in enumerate(_bayes(target, [columns[name] for name in names]), start=1):
            if number > 2 and guess.telling:
                return Joint(names=tuple(names[:number]), told=told, evidence=None, guess=guess)
    return None


def _bayes(target: Target, columns: Sequence[Codes]) -> Iterator[Guess]:
    """Yield how well records are guessed from the first column, the first two, and so on.

    Each record is guessed from all others: its own value is taken out of every count. What no other record has said
    counts as if one record had said what all say.
    """
    step = -(-target.codes.size * target.values // _MOST_SCORES)
    value, values = target.codes[::step].astype(np.int64), target.values
    rows = value.size
    own = np.arange(rows), value
    of_value = np.bincount(value, minlength=values)
    share = of_value / rows
    stratum = np.unique(target.strata[::step], return_inverse=True)[1]
    scores = np.zeros((rows, values), dtype=np.float32)
    if (int(stratum.max(initial=0)) + 1) * values <= _MOST_SCORES:
        scores += _counts(stratum, value, values)[stratum]
        scores[own] -= 1
    # Otherwise strata are many and small, and say little.
    scores += (share + 1 / rows).astype(np.float32)
    np.log(scores, out=scores)
    size = np.broadcast_to(of_value.astype(np.float32), scores.shape).copy()
    size[own] -= 1
    np.log(size + 1, out=size)
    for column in columns:
        codes = np.unique(column[::step], return_inverse=True)[1]
        if (int(codes.max(initial=0)) + 1) * values > _MOST_SCORES:
            continue
        said = _counts(codes, value, values)[codes]
        said[own] -= 1
        said += (np.bincount(codes) / rows).astype(np.float32)[codes][:, None]
        scores += np.log(said) - size
        right = float((scores.argmax(axis=1) == value).sum())
        without = float(target.share[target.strata[::step]].sum())
        at_most = float(target.largest[target.strata[::step]].sum())
        yield Guess(records=rows, right=right, without=without, at_most=at_most)


def _counts(group: np.ndarray, value: np.ndarray, values: int) -> np.ndarray:
    groups = int(group.max(initial=0)) + 1
    counted = np.bincount(group * values + value, minlength=groups * values)
    return counted.reshape(groups, values).astype(np.float32)
