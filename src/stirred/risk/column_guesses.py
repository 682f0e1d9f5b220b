"""How well columns that leave unchanged predict a value that was exchanged.

Everybody knows the stratum. A unit is guessed by the most frequent value among the *others* of its stratum that share
its column's value, ties by lot; a unit that shares it with no other is guessed from the others of the stratum.
``right`` is the share guessed right, ``blind`` the most that a guess from the stratum alone can reach, ``kappa`` what
the column adds of what the stratum leaves open, ``tau`` the same for two units drawn at random (for an unrelated column
exactly 0 on average). A unit is a household: of a column of persons each value counts once for a household, since
housemates would otherwise tell each other's county.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Codes, encode
from stirred.data.columns import select
from stirred.data.guessing import GuessTarget, groups_of, spread, voted
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata

_Array = npt.NDArray[Any]
# So many rows are looked at, spread over the file, and pairs of so many columns: those that tell most alone.
ROWS: Final = 1_000_000
_PAIRED: Final = 9
_MIXED: Final = 6  # of households' columns and of persons' each, paired with each other
_TELLS: Final = (0.10, 0.05)  # kappa, tau
_NEARLY: Final = 0.5
_DEVIATIONS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGuess:
    """How well one column, or two, predict a target; shares of all units."""

    columns: tuple[str, ...]
    target: str
    units: int
    right: float
    blind: float
    covered: float
    tau: float | None
    by_chance: float

    @property
    def kappa(self) -> float:
        """Return the share of what the stratum leaves open that the column guesses right."""
        return max(0.0, (self.right - self.blind) / (1 - self.blind)) if self.blind < 1 else 0.0

    @property
    def tells(self) -> bool:
        """Say whether the column tells much, and more than a column without meaning would by chance."""
        sure = self.right - self.by_chance > _DEVIATIONS * math.sqrt(self.right * (1 - self.right) / self.units)
        return self.kappa >= _TELLS[0] and (self.tau or 0.0) >= _TELLS[1] and sure

    @property
    def in_words(self) -> str:
        """Say what it tells, and of how many."""
        nearly = "nearly " if self.tells and self.kappa >= _NEARLY else ""
        verb = "tells" if len(self.columns) == 1 else "together tell"
        return (
            f"{' and '.join(self.columns)} {nearly}{verb} {self.target} for {self.right:.1%} of the units "
            f"(at most {self.blind:.1%} without)"
        )


def guessed_shares(column: Codes, target: Codes, strata: Codes) -> tuple[float, float, float | None, float]:
    """Return the share guessed right, the most a blind guess can reach, tau, and the share covered.

    >>> x, y = (np.array([ord(each) for each in text], dtype=np.uint32) for text in ("aaabbc", "112221"))
    >>> [round(each, 4) for each in guessed_shares(x, y, np.zeros(6, dtype=np.uint32))]
    [0.5, 0.5, 0.3333, 0.8333]
    """
    values, many = int(target.max(initial=0)) + 1, np.int64(int(column.max(initial=0)) + 1)
    inside = strata * many + column
    groups, whole = groups_of(inside, target, values), groups_of(strata.astype(np.int64), target, values)
    alone = np.isin(inside, groups.number[groups.size == 1], kind="sort") if groups.size.size else np.zeros(0, np.bool_)
    place = np.searchsorted(whole.number, strata[alone])
    modal = target[alone] == whole.mode[place]
    by_stratum = float((whole.right / whole.most)[place[modal]].sum())
    right = (float(groups.right.sum()) + by_stratum) / target.size
    agreement = _agreement(inside, strata, target, values, ~alone)
    return right, float(whole.most.sum()) / target.size, agreement, 1 - float(alone.mean())


def _agreement(inside: _Array, strata: Codes, target: Codes, values: int, covered: _Array) -> float | None:
    """Return tau: how much more often two of a class agree than two of its stratum; None where no unit is covered."""
    if not covered.any():
        return None

    def others(of: _Array) -> _Array:
        _, place, counts = np.unique(of, return_inverse=True, return_counts=True)
        return counts[place][covered] - 1

    in_class = others(inside * np.int64(values) + target) / others(inside)
    in_stratum = others(strata * np.int64(values) + target) / others(strata)
    own, base = float(in_class.mean()), float(in_stratum.mean())
    return (own - base) / (1 - base) if base < 1 else 0.0


def shuffled(target: Codes, strata: Codes) -> Codes:
    """Return a target exchanged at random inside strata, always in the same way: what chance alone tells."""
    lot = pl.int_range(target.size, eager=True).hash(seed=3).to_numpy()
    order = np.lexsort((lot, strata))
    mixed = np.empty_like(target)
    mixed[np.argsort(strata, kind="stable")] = target[order]
    return mixed


def column_guesses(
    data: Microdata, *, targets: Sequence[str], match: Sequence[str], columns: Sequence[str]
) -> list[ColumnGuess]:
    """Return what columns of households and persons, alone and in pairs, tell of each target; most telling first.

    >>> homes = pl.DataFrame({"name": ["a", "b", "c"] * 40, "state": [1, 2, 3] * 40, "size": [1, 2] * 60})
    >>> found = column_guesses(Microdata(households=homes), targets=["state"], match=[], columns=["name", "size"])
    >>> found[0].columns, found[0].right, found[0].tells, found[-1].tells
    (('name',), 1.0, True, False)
    """
    found: list[ColumnGuess] = []
    homes = [name for name in columns if name in data.variables]
    people = [name for name in columns if name in data.person_variables]
    for target in targets if data.households.height > 1 else ():
        alone = [*_of_target(data, homes, target, match)] if homes else []
        inside = [*_of_target(data, people, target, match, beside=alone, of_persons=True)] if people else []
        found += [*alone, *inside]
    return sorted(found, key=lambda each: (each.tells, each.kappa, each.right), reverse=True)


def _of_target(
    data: Microdata,
    names: Sequence[str],
    target: str,
    match: Sequence[str],
    *,
    beside: Sequence[ColumnGuess] = (),
    of_persons: bool = False,
) -> Iterator[ColumnGuess]:
    """Yield what each column tells, and then pairs of those that tell most, also with those of households beside."""
    rows, house = _looked_at(data, of_persons=of_persons)
    homes = data.households[rows]
    strata = encode(homes, list(match)).codes
    values = encode(homes, [target]).codes
    seen = homes if house is None else select(data.persons, list(names))[house[0]]  # type: ignore[arg-type]
    own = None if house is None else house[1]
    codes = {name: encode(seen, [name]).codes for name in names}
    each = (_guess((name,), target, codes[name], values, strata, own) for name in names)
    singles = [single for single in each if single is not None]
    yield from singles
    best, homely = (_most_telling(each, _PAIRED) for each in (singles, beside))
    pairs = [*combinations(best, 2), *product(homely[:_MIXED], best[:_MIXED])]
    if homely and own is not None:
        seen = homes.select({each.columns[0] for each in homely} - {*names})[own].hstack(seen)
    for one, other in pairs:
        columns = (one.columns[0], other.columns[0])
        both = encode(seen, [*columns]).codes
        # A pair is worth a line where it tells more than its better half.
        above = max(one.right, other.right, one.blind)
        if (pair := _guess(columns, target, both, values, strata, own, above=above)) is not None:
            yield pair


def _most_telling(found: Sequence[ColumnGuess], most: int) -> list[ColumnGuess]:
    singles = [each for each in found if len(each.columns) == 1]
    return sorted(singles, key=lambda each: each.kappa, reverse=True)[:most]


def _looked_at(data: Microdata, *, of_persons: bool) -> tuple[_Array, tuple[_Array, _Array] | None]:
    """Return the rows of households that are looked at; of persons theirs, and the place of each one's household."""
    rows = spread(data.households.height, most=ROWS)
    rows = np.arange(data.households.height) if rows is None else rows
    if not of_persons:
        return rows, None
    place = np.full(data.households.height, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    own = place[household_rows(data)]
    return rows, (np.flatnonzero(own >= 0), own[own >= 0])


def _guess(
    names: tuple[str, ...], target: str, codes: Codes, values: Codes, strata: Codes, own: _Array | None,
    *, above: float = -1.0,
) -> ColumnGuess | None:  # fmt: skip
    """Return what columns tell; None where they are right for no more than a share ``above``: chance takes longest."""
    mixed = shuffled(values, strata)
    if own is None:
        right, blind, tau, covered = guessed_shares(codes, values, strata)
        if right <= above:
            return None
        chance = guessed_shares(codes, mixed, strata)[0]
    else:
        # Each value once for a household; the guess of a household weighs what its values say.
        goal = GuessTarget.of(values, strata)
        right, blind = voted(goal, own, codes, with_strata=True).right / values.size, goal.at_most / values.size
        if right <= above:
            return None
        many = np.int64(int(codes.max(initial=0)) + 1)
        house, once = np.divmod(np.unique(own * many + codes), many)
        _, _, tau, covered = guessed_shares(once.astype(np.uint32), values[house], strata[house])
        chance = voted(GuessTarget.of(mixed, strata), own, codes, with_strata=True).right / values.size
    return ColumnGuess(
        columns=names, target=target, units=values.size, right=right, blind=blind, covered=covered, tau=tau,
        by_chance=chance,
    )  # fmt: skip
