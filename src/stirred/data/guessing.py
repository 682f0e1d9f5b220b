"""The best guess of a value from what else is known of a record, and how often it is right.

With a column, a record is guessed from the *other* records of its group: its own value never helps. A column with a
value for every record therefore guesses nothing, and one that is unrelated to the target is right no more often than
chance.

Without the column, a record is guessed from its stratum. Leaving it out makes this guess look too bad where values are
about equally frequent (its own is then the rarer one), and counting it makes it look too good: half of each is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.codes import Codes

_Array = npt.NDArray[Any]
_Cells = tuple[_Array, _Array, _Array, _Array]
# Fewer wrong guesses than these, and chance alone may halve them.
_ENOUGH_ERRORS: Final = 30
# And the gain is so many standard deviations of guesses by chance: five, doubled because the guesses of a small group
# stand and fall together.
_DEVIATIONS: Final = 10
# Nearly all records are seldom guessed right by chance, and there may be fewer errors then. The chance is taken from
# above (Chernoff's bound), since in a file of some dozen records a deviation says little: once in so many files.
_NEARLY_ALL: Final = 0.9
_NEARLY_ALL_ONCE_IN: Final = 1_000_000
# A guess that is right for two records of three, and for a fifth of all more than without, need not halve the errors.
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
        if half and self.nearly_all and self._is_seldom_chance:
            return True
        most = self.right >= _MOST * self.records and gain >= _MORE * self.records
        return (half or most) and wrong >= _ENOUGH_ERRORS and deviations >= _DEVIATIONS

    @property
    def nearly_all(self) -> bool:
        """Say whether nearly all records are guessed right."""
        return self.right >= _NEARLY_ALL * self.records

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
class GuessTarget:
    """A value that is to be guessed: its codes, the strata that everybody knows, and the guess from these alone."""

    codes: Codes
    strata: Codes
    values: int
    share: _Array
    largest: _Array
    without: float
    cells: list[_Array] = field(default_factory=list)  # of strata and values, with their counts; once asked for

    @classmethod
    def of(cls, codes: Codes, strata: Codes) -> GuessTarget:
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

        >>> target = GuessTarget.of(np.array([0, 1, 1], dtype=np.uint32), np.zeros(3, dtype=np.uint32))
        >>> target.share_of(np.array([0, 0]), np.array([1, 2])).round(2).tolist()
        [0.67, 0.0]
        """
        if not self.cells:
            self.cells.extend(np.unique(self.strata * np.int64(self.values) + self.codes, return_counts=True))
            self.cells.append(np.bincount(self.strata))
        cells, counts, sizes = self.cells
        wanted = self.strata[rows] * np.int64(self.values) + value
        place = np.minimum(np.searchsorted(cells, wanted), cells.size - 1)
        known = (cells[place] == wanted) & (value < self.values)
        return np.where(known, counts[place] / sizes[self.strata[rows]], 0.0)

    def guessed(self, column: Codes, *, exact: bool = True) -> Guess:
        """Return how often the best guess is right that knows a column besides the stratum.

        Where it is only asked whether the column tells, and not ``exact``, a bound that does not tell is the answer.

        >>> county = np.repeat(np.arange(2, dtype=np.uint32), 50)
        >>> target = GuessTarget.of(county, np.zeros(100, dtype=np.uint32))
        >>> target.guessed(county).right, target.guessed(np.arange(100, dtype=np.uint32)).right
        (100.0, 25.0)
        """
        many = np.int64(int(column.max(initial=0)) + 1)
        group = self.strata * many + column
        counted = _cells(group, self.codes, self.values)
        if not exact and not (most := self.guess(self._right_at_most(counted, many))).telling:
            return most
        groups = _groups(counted, self.values)
        alone = groups.size == 1
        # A record alone in its group can be guessed from its stratum only.
        by_stratum = self.share[groups.number[alone] // many]
        right = float(groups.right[~alone].sum() + by_stratum.sum())
        return self.guess(right)

    def _right_at_most(self, counted: _Cells, many: np.int64) -> float:
        """Return how many records have the most frequent value of their group; one that is alone is guessed as ever."""
        _, counts, numbers, start = counted
        most, size = np.maximum.reduceat(counts, start), np.add.reduceat(counts, start)
        alone = size == 1
        return float(most[~alone].sum() + self.share[numbers[start][alone] // many].sum())

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
    return _groups(_cells(group, value, values), values)


def _groups(counted: _Cells, values: int) -> Groups:
    cells, counts, numbers, start = counted
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


def _cells(group: _Array, value: Codes, values: int) -> _Cells:
    """Return the values of groups that occur with their counts and groups, and where each group begins."""
    cells, counts = _counted(group * np.int64(values) + value, (int(group.max(initial=0)) + 1) * values)
    numbers = cells // values
    return cells, counts, numbers, np.flatnonzero(np.diff(numbers, prepend=-1))


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


def spread(records: int, *, most: int) -> npt.NDArray[np.int64] | None:
    """Return ``most`` rows of a file, one drawn in each of as many equal parts; None where that is every row.

    A hash of the part's number draws, so the rows are the same in every run and do not depend on the data. Runs of
    rows would not do: a file is often sorted by area, and a few runs of it know a few areas, which are easy to guess.

    >>> spread(10, most=4)
    array([1, 2, 6, 8])
    """
    if records <= most:
        return None
    edges = np.arange(most + 1, dtype=np.uint64) * np.uint64(records) // np.uint64(most)
    return (edges[:-1] + hashed(np.arange(most)) % np.diff(edges)).astype(np.int64)


def hashed(numbers: _Array) -> npt.NDArray[np.uint64]:
    """Return a hash of each number: SplitMix64, which is the same in every version and on every machine."""
    found = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def numbered(keys: _Array) -> _Array:
    """Return keys numbered from 0 in their order, without gaps: by a table where one is small, by sorting otherwise.

    >>> numbered(np.array([7, 3, 7])).tolist()
    [1, 0, 1]
    """
    top = int(keys.max(initial=0)) + 1
    if top > _DENSE * keys.size:
        return np.unique(keys, return_inverse=True)[1]
    occurs = np.zeros(top, dtype=np.bool_)
    occurs[keys] = True
    return (np.cumsum(occurs) - 1)[keys]


# What a value says of few other households counts as if so many more had said what the stratum says.
_BEFORE: Final = 2


def voted(target: GuessTarget, house: _Array, column: Codes, *, with_strata: bool, exact: bool = True) -> Guess:
    """Return how often households are guessed right from a column of persons; ``house`` is that of each person.

    A value of the column says what is most frequent among the *other* households that have it. Its weight is the
    logarithm of how much more frequent it is there than in the stratum, so a value that says nothing new, such as
    a missing one, does not outvote one that does. Without votes a household is guessed from its stratum.

    Where it is only asked whether the column tells, and not ``exact``, a bound that does not tell is the answer.

    >>> county = np.repeat(np.arange(4, dtype=np.uint32), 50)
    >>> target = GuessTarget.of(county, np.zeros(200, dtype=np.uint32))
    >>> house, work = np.repeat(np.arange(200), 2), np.stack([county, np.full_like(county, 9)], axis=1).ravel()
    >>> voted(target, house, work, with_strata=True).right
    200.0
    """
    group = column.astype(np.int64)
    if with_strata:
        group += target.strata[house] * np.int64(int(column.max(initial=0)) + 1)
    ballots = _Ballots.of(group, house, target)
    if not exact and not (most := target.guess(ballots.at_most(target))).telling:
        return most
    said, votes, others = ballots.said_by_others()
    usual = target.share_of(ballots.house, said)
    # A value that does not occur in the stratum is known to be wrong.
    valid = (others > 0) & (usual > 0)
    # Persons of a household share its value: it speaks once in each group, and votes once for each person.
    weight = np.log((votes[valid] / usual[valid] + _BEFORE) / (others[valid] + _BEFORE)) * ballots.persons[valid]
    guess, heard = _elected(ballots.house[valid], said[valid], weight, target.values)
    right = float((target.codes[heard] == guess).sum())
    unheard = np.ones(target.codes.size, dtype=np.bool_)
    unheard[heard] = False
    right += float(target.share[target.strata[unheard]].sum())
    return target.guess(right)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ballots:
    """One ballot for each group and household in it, by ``cells``: a value of a group, with ``counts`` households.

    Keys of group, value and household are packed into one number, which sorts faster than places do. ``cell`` is that
    of each ballot, ``group`` that of each cell, and ``start`` its first one.
    """

    house: _Array
    persons: _Array
    cell: _Array
    counts: _Array
    value: _Array
    group: _Array
    start: _Array

    @classmethod
    def of(cls, group: _Array, house: _Array, target: GuessTarget) -> _Ballots:
        values, homes = target.values, target.codes.size
        if (int(group.max(initial=0)) + 1) * values * homes >= 1 << 62:
            group = numbered(group)
        keys = np.sort((group * values + target.codes[house]) * homes + house)
        once = np.flatnonzero(np.diff(keys, prepend=-1))
        of_ballots, own = np.divmod(keys[once], homes)
        begin = np.flatnonzero(np.diff(of_ballots, prepend=-1))
        counts = np.diff(begin, append=of_ballots.size)
        numbers, value = np.divmod(of_ballots[begin], values)
        start = np.flatnonzero(np.diff(numbers, prepend=-1))
        return cls(
            house=own,
            persons=np.diff(once, append=keys.size),
            cell=np.repeat(np.arange(begin.size), counts),
            counts=counts,
            value=value,
            group=np.repeat(np.arange(start.size), np.diff(start, append=numbers.size)),
            start=start,
        )

    def at_most(self, target: GuessTarget) -> float:
        """Return how many households are right at most: those of the most frequent value of one of their groups.

        Others say another value than theirs, or nothing, and are guessed from their stratum at best.
        """
        if not self.start.size:
            return target.without
        most = np.maximum.reduceat(self.counts, self.start)[self.group]
        may_be = np.zeros(target.codes.size, dtype=np.bool_)
        may_be[self.house[((self.counts == most) & (self.counts > 1))[self.cell]]] = True
        return float(may_be.sum() + target.share[target.strata[~may_be]].sum())

    def said_by_others(self) -> tuple[_Array, _Array, _Array]:
        """Return the most frequent value among the others of each ballot's group, how many have it, and their number.

        Among equals it is not the ballot's own: so chance gains nothing.
        """
        counts, start = self.counts, self.start
        if not start.size:
            return counts, counts, counts
        # Of each group the most frequent value comes last.
        ranked = (self.group * (int(counts.max()) + 1) + counts) * counts.size + np.arange(counts.size)
        order = np.sort(ranked) % counts.size
        last = np.append(start[1:], counts.size) - 1
        first = order[last]
        second = np.where(last > start, order[np.maximum(last - 1, 0)], first)
        rows = self.group[self.cell]
        most, next_ = first[rows], second[rows]
        behind = (self.cell == most) & (next_ != most) & (counts[most] - 1 <= counts[next_])
        said = np.where(behind, next_, most)
        alone = np.add.reduceat(counts, start) - 1
        return self.value[said], counts[said] - (self.cell == said), alone[rows]


def _elected(own: _Array, said: _Array, weight: _Array, values: int) -> tuple[_Array, _Array]:
    """Return the value with the most weight for each household that has one above zero, and these households."""
    if not own.size:
        return said, own
    keys = own * values + said
    order = np.argsort(keys)
    keys = keys[order]
    start = np.flatnonzero(np.diff(keys, prepend=-1))
    total = np.add.reduceat(weight[order], start)
    house, value = np.divmod(keys[start], values)
    begin = np.flatnonzero(np.diff(house, prepend=-1))
    largest = np.repeat(np.maximum.reduceat(total, begin), np.diff(begin, append=house.size))
    best = np.maximum.reduceat(np.where(total == largest, np.arange(house.size), -1), begin)
    best = best[total[best] > 0]
    return value[best], house[best]
