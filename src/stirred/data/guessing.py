"""The best guess of a value from what else is known of a record, and how often it is right.

With a column, a record is guessed from the *other* records of its group: its own value never helps. A column with a
value for every record therefore guesses nothing, and one that is unrelated to the target is right no more often than
chance.

Without the column, a record is guessed from its stratum. Leaving it out makes this guess look too bad where values are
about equally frequent (its own is then the rarer one), and counting it makes it look too good: half of each is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Codes

_Array = npt.NDArray[Any]
# Fewer wrong guesses than these, and chance alone may halve them.
_ENOUGH_ERRORS: Final = 30
# And the gain is so many standard deviations of guesses by chance: five, doubled because the guesses of a small group
# stand and fall together.
_DEVIATIONS: Final = 10
# Nearly all records are seldom guessed right by chance, and there may be fewer errors then. The chance is taken from
# above (Chernoff's bound), since in a file of some dozen records a deviation says little: once in so many files.
_NEARLY_ALL: Final = 0.9
_NEARLY_ALL_ONCE_IN: Final = 1_000_000
# Whoever guesses two records of three right, and a fifth of all more than without, need not halve the errors.
_MOST: Final = 2 / 3
_MORE: Final = 1 / 5
# Agreement is no chance where chance brings it about in one of so many files, or less often.
_ONCE_IN: Final = 100
# With so many cells to a record, or fewer, counting in a table is faster than sorting.
_DENSE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """How many of some records are guessed right with a column, and without it.

    ``at_most`` counts each record itself among those it is guessed from: no guess without the column is better.
    """

    records: int
    right: float
    without: float
    at_most: float = 0.0

    @property
    def removed(self) -> float:
        """Return the share of wrong guesses that the column puts right: Goodman and Kruskal's lambda, left one out."""
        wrong = self.records - self.without
        return 0.0 if wrong <= 0 else (self.right - self.without) / wrong

    @property
    def telling(self) -> bool:
        """Say whether the column guesses much, and far more than chance would.

        That is half of the errors, or two thirds of the records where it was far less without the column.
        """
        wrong, gain = self.records - self.without, self.right - self.without
        if wrong <= 0:
            return False
        deviations = gain / math.sqrt(max(self.without, 1) * wrong / self.records)
        half = self.removed >= 0.5
        if half and self.right >= _NEARLY_ALL * self.records and self._is_seldom_chance:
            return True
        most = self.right >= _MOST * self.records and gain >= _MORE * self.records
        return (half or most) and wrong >= _ENOUGH_ERRORS and deviations >= _DEVIATIONS

    @property
    def _is_seldom_chance(self) -> bool:
        """Say whether so many of independent guesses are right in one of very many files, or less often."""
        known, base = self.right / self.records, max(self.without, self.at_most) / self.records
        if known <= base:
            return False
        lost = (1 - known) * math.log((1 - known) / (1 - base)) if known < 1 else 0.0
        return self.records * (known * math.log(known / base) + lost) >= math.log(_NEARLY_ALL_ONCE_IN)

    def in_words(self, rows: str = "rows") -> str:
        """Return the shares, in percent."""
        right, without = (100 * share / self.records for share in (self.right, self.without))
        return f"{right:.4g}% of the {rows} ({without:.2g}% without it)"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A value that is to be guessed: its codes, the strata that everybody knows, and the guess from these alone."""

    codes: Codes
    strata: Codes
    values: int
    share: _Array
    largest: _Array
    without: float

    @classmethod
    def of(cls, codes: Codes, strata: Codes) -> Target:
        """Return a target with the best guess in each stratum."""
        values = int(codes.max(initial=0)) + 1
        groups = groups_of(strata.astype(np.int64), codes, values)
        right = (groups.right + groups.most) / 2
        share, largest = np.zeros((2, int(strata.max(initial=0)) + 1))
        share[groups.number] = right / groups.size
        largest[groups.number] = groups.most / groups.size
        return cls(codes, strata, values, share, largest, float(right.sum()))

    @property
    def can_be_told(self) -> bool:
        """Say whether so many records are guessed wrong by their stratum alone that a right guess is no chance."""
        return self.guess(float(self.codes.size)).telling

    @property
    def at_most(self) -> float:
        """Return how many records the best guess from the stratum is right for, each counted among its own stratum."""
        return float(self.largest[self.strata].sum())

    def guess(self, right: float) -> Guess:
        """Return the guess of all records of which so many are right."""
        return Guess(records=int(self.codes.size), right=right, without=self.without, at_most=self.at_most)

    def share_of(self, rows: _Array, value: _Array) -> _Array:
        """Return the share that a value has in the stratum of each row.

        >>> target = Target.of(np.array([0, 1, 1], dtype=np.uint32), np.zeros(3, dtype=np.uint32))
        >>> target.share_of(np.array([0, 0]), np.array([1, 2])).round(2).tolist()
        [0.67, 0.0]
        """
        cells, counts = np.unique(self.strata * np.int64(self.values) + self.codes, return_counts=True)
        wanted = self.strata[rows] * np.int64(self.values) + value
        place = np.minimum(np.searchsorted(cells, wanted), cells.size - 1)
        sizes = np.bincount(self.strata)[self.strata[rows]]
        known = (cells[place] == wanted) & (value < self.values)
        return np.where(known, counts[place] / sizes, 0.0)

    def guessed(self, column: Codes) -> Guess:
        """Return how often the best guess is right that knows a column besides the stratum.

        >>> county = np.repeat(np.arange(2, dtype=np.uint32), 50)
        >>> target = Target.of(county, np.zeros(100, dtype=np.uint32))
        >>> target.guessed(county).right, target.guessed(np.arange(100, dtype=np.uint32)).right
        (100.0, 25.0)
        """
        many = np.int64(int(column.max(initial=0)) + 1)
        groups = groups_of(self.strata * many + column, self.codes, self.values)
        alone = groups.size == 1
        # A record alone in its group has nobody to be guessed from but its stratum.
        by_stratum = self.share[groups.number[alone] // many]
        right = float(groups.right[~alone].sum() + by_stratum.sum())
        return self.guess(right)

    def guessed_from(self, column: Codes) -> Guess:
        """Return how often the best guess is right that knows a column and does not look at the stratum.

        It is the better one where the column holds a few records together that lie in different strata. One that is
        alone is guessed from its stratum, and counts with the average.
        """
        groups = groups_of(column.astype(np.int64), self.codes, self.values)
        records, alone = int(self.codes.size), groups.size == 1
        right = float(groups.right[~alone].sum() + alone.sum() * self.without / records)
        return self.guess(right)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of records: number, size, most frequent value, how many have it, and how many are guessed right."""

    number: _Array
    size: _Array
    mode: _Array
    most: _Array
    right: _Array


def groups_of(group: _Array, value: Codes, values: int) -> Groups:
    """Return the groups in order, each record guessed from the others of its group."""
    cells, counts = _counted(group * np.int64(values) + value, (int(group.max(initial=0)) + 1) * values)
    numbers = cells // values
    start = np.flatnonzero(np.diff(numbers, prepend=-1))
    place = np.repeat(np.arange(start.size), np.diff(start, append=cells.size))
    most = np.maximum.reduceat(counts, start)
    first = np.minimum.reduceat(np.where(counts == most[place], np.arange(cells.size), cells.size), start)
    others = counts.copy()
    others[first] = 0
    second = np.maximum.reduceat(others, start)
    ties = np.add.reduceat((others == second[place]) & (others > 0), start)
    # Without itself a record of the most frequent value must still be in front; one among equals wins by lot.
    right = np.where(most - 1 > second, most, np.where(most - 1 == second, most / (1 + ties), 0.0))
    size = np.add.reduceat(counts, start)
    right = np.where(size == 1, 0.0, right)
    return Groups(numbers[start], size, cells[first] % values, most, right)


def _counted(keys: _Array, possible: int) -> tuple[_Array, _Array]:
    """Return the keys that occur, in order, and how often each does."""
    if possible <= _DENSE * keys.size:
        counts = np.bincount(keys, minlength=0)
        occurring = np.flatnonzero(counts)
        return occurring, counts[occurring]
    occurring, counts = np.unique(keys, return_counts=True)
    return occurring, counts


def may_be_chance(repeated: int, *, share: float) -> bool:
    """Say whether so many records may agree with earlier ones by chance, each with probability ``share``, at most.

    In a file of a dozen records a column determines another now and then. So does any column that of which all but a
    few records have the same value: these few stand alone by chance. That is no reason to doubt anything.

    >>> may_be_chance(4, share=0.5), may_be_chance(8, share=0.5), may_be_chance(7_500, share=1 - 2 / 50_000)
    (True, False, True)
    """
    return share >= 1 or repeated * -math.log(share) < math.log(_ONCE_IN)


def spread(records: int, *, most: int, piece: int = 1_000) -> npt.NDArray[np.int64] | None:
    """Return up to ``most`` rows of a file in pieces spread over it; None where that is every row.

    Rows of a household often follow one another, and a piece keeps them together.

    >>> spread(10, most=4, piece=2)
    array([0, 1, 5, 6])
    """
    if records <= most:
        return None
    starts = np.linspace(0, records, num=max(1, most // piece), endpoint=False).astype(np.int64)
    rows = (starts[:, None] + np.arange(piece)).ravel()
    return rows[rows < records]


# What a value says of few other households counts as if so many more had said what the stratum says.
_BEFORE: Final = 2


def voted(target: Target, house: _Array, column: Codes, *, with_strata: bool) -> Guess:
    """Return how often households are guessed right from a column of persons; ``house`` is that of each person.

    A value of the column says what is most frequent among the *other* households that have it. Its weight is the
    logarithm of how much more frequent it is there than in the stratum, so that a value that says nothing new, such
    as a missing one, does not outvote one that does. Without votes a household is guessed from its stratum.

    >>> county = np.repeat(np.arange(4, dtype=np.uint32), 50)
    >>> target = Target.of(county, np.zeros(200, dtype=np.uint32))
    >>> house, work = np.repeat(np.arange(200), 2), np.stack([county, np.full_like(county, 9)], axis=1).ravel()
    >>> voted(target, house, work, with_strata=True).right
    200.0
    """
    group = column.astype(np.int64)
    if with_strata:
        group += target.strata[house] * np.int64(int(column.max(initial=0)) + 1)
    group = np.unique(group, return_inverse=True)[1]
    many = np.int64(int(group.max(initial=0)) + 1)
    # Persons of a household share its value: it speaks once in each group, and votes once for each person.
    pairs, persons = np.unique(house * many + group, return_counts=True)
    own, group = np.divmod(pairs, many)
    said, votes, others = _said_by_others(group, target.codes[own], target.values)
    usual = target.share_of(own, said)
    # A value that does not occur in the stratum is known to be wrong.
    counts = (others > 0) & (usual > 0)
    own, said, usual = own[counts], said[counts], usual[counts]
    weight = np.log((votes[counts] / usual + _BEFORE) / (others[counts] + _BEFORE)) * persons[counts]
    guess, heard = _elected(own, said, weight, target.values)
    right = float((target.codes[heard] == guess).sum())
    unheard = np.ones(target.codes.size, dtype=np.bool_)
    unheard[heard] = False
    right += float(target.share[target.strata[unheard]].sum())
    return target.guess(right)


def _said_by_others(group: _Array, value: Codes, values: int) -> tuple[_Array, _Array, _Array]:
    """Return the most frequent value among the others of each row's group, how many have it, and how many they are.

    Among equals it is not the row's own: so chance gains nothing.
    """
    cells, place, counts = np.unique(group * values + value, return_inverse=True, return_counts=True)
    numbers = cells // values
    start = np.flatnonzero(np.diff(numbers, prepend=-1))
    inside = np.repeat(np.arange(start.size), np.diff(start, append=cells.size))
    order = np.lexsort((counts, inside))  # of each group the most frequent value last
    last = np.append(start[1:], cells.size) - 1
    first = order[last]
    second = np.where(last > start, order[np.maximum(last - 1, 0)], first)
    rows = inside[place]
    alone, most, next_ = np.bincount(rows) - 1, first[rows], second[rows]
    own = place == most
    behind = own & (next_ != most) & (counts[most] - 1 <= counts[next_])
    said = np.where(behind, next_, most)
    votes = counts[said] - (place == said)
    return cells[said] % values, votes, alone[rows]


def _elected(own: _Array, said: _Array, weight: _Array, values: int) -> tuple[_Array, _Array]:
    """Return the value with the most weight for each household that has one above zero, and these households."""
    ballots, place = np.unique(own * values + said, return_inverse=True)
    total = np.bincount(place, weights=weight, minlength=ballots.size)
    house = ballots // values
    order = np.lexsort((total, house))
    best = order[np.flatnonzero(np.diff(house, append=-1))] if ballots.size else order
    best = best[total[best] > 0]
    return ballots[best] % values, house[best]
