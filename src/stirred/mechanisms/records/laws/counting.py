"""The exact law of a swap on one stratum, by counting permutations instead of listing them.

Swapping theory R0. A stratum is known by its margins: how many records have each hold value and how
many each swap value; a dataset is a table with these margins. For a law that gives every permutation
moving k records the same probability u_k, the probability of going from table x to table t is

    P_x(t) = sum over k of u_k N(k),    N(k) = number of permutations moving k records that turn x into t,

and N(k) follows by inclusion and exclusion from choices f of records that stay (f below x and t in
every cell). With prod t! taken out everything is an integer, and symmetric in x and t:

    prod t! P_x(t) = sum over f of v(|f|) prod C(x,f) C(t,f) f! prod r'! prod c'!,

where r' and c' are the margins of x - f and v(i) = sum over j of u_(n-j) (-1)^(i-j) C(i,j).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from stirred.mechanisms.protocol import Array, StratumAudit
from stirred.mechanisms.records.law import SwapLaw, class_law
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, largest, ln
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.number_text import brief
from stirred.spec.problems import refused, wrong
from stirred.spec.swap_budget import derangements

Margins = Sequence[int]
Table = tuple[tuple[int, ...], ...]

# More tables than this take longer than an audit should; the n-only budget (R1) covers every stratum.
MOST_TABLES = 3_000
_MOST_RECORDS = 400
_MOST_WORK = 10**11
# Losses this close in double precision are compared exactly.
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWitness:
    """Two tables and a released table that attain the loss; ``probabilities`` are those of ``output``."""

    table: Table
    other: Table
    output: Table
    distance: int
    probabilities: tuple[Fraction, Fraction]

    def __str__(self) -> str:
        p, q = self.probabilities
        ratio = f"a factor of {brief(p / q)}" if q else "possible from one and impossible from the other"
        return (
            f"the released table {_shown(self.output)} has probability {brief(p)} if the file is {_shown(self.table)} "
            f"and {brief(q)} if it is {_shown(self.other)}, {self.distance} records away: {ratio}"
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Return the same as plain data for JSON."""
        return {
            "dataset": self.table,
            "other": self.other,
            "output": self.output,
            "distance": self.distance,
            "probabilities": [str(p) for p in self.probabilities],
            "words": str(self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UniverseExact:
    """The loss of one stratum, exactly, over all pairs of its tables; no witness where nothing can differ."""

    loss: Exact
    witness: LossWitness | None
    tables: int

    def audit(self, bound: Exact, *, for_every: str) -> StratumAudit:
        """Return the loss with what a mechanism promises for every such stratum."""
        # A single table is public: whatever the mechanism, nothing is lost and nothing protected.
        sharp = ZERO if self.tables == 1 else bound
        return StratumAudit(
            exact_loss=self.loss, sharp_bound=sharp, for_every=for_every, tables=self.tables, witness=self.witness
        )


def all_tables(hold: Margins, swap: Margins) -> list[Table]:
    """Return every table of counts with these margins: the universe of one stratum.

    >>> all_tables((2, 1), (2, 1))
    [((2, 0), (0, 1)), ((1, 1), (1, 0))]
    """
    r, c = _checked(hold, swap)
    if (many := count_tables(r, c, most=10**9)) > MOST_TABLES:
        raise refused(
            f"{many:,} tables have these margins, more than the {MOST_TABLES:,} that are audited exactly",
            where="margins",
            remedy="audit a smaller stratum; the sharp bound holds for every stratum of that size",
        )
    return [*_completions(r, c)]


def count_tables(hold: Margins, swap: Margins, *, most: int | None = None) -> int:
    """Return how many tables have these margins, without listing them; with ``most``, stop soon after it.

    >>> count_tables((3, 3, 1, 1), (2, 2, 2, 1, 1))
    248
    """

    @cache
    def rest(rows: tuple[int, ...], left: tuple[int, ...]) -> int:
        if len(rows) <= 1:
            return 1
        total = 0
        for row in _rows(rows[0], left):
            # Columns are alike, so their order does not count.
            total += rest(rows[1:], tuple(sorted(a - b for a, b in zip(left, row, strict=True))))
            if most is not None and total > most:
                break
        return total

    r, c = _checked(hold, swap)
    return rest(tuple(r), tuple(sorted(c)))


def psa_weights(n: int, rate: Fraction) -> list[Fraction]:
    """Return the probability of *each* permutation that moves exactly k of n records, for k = 0..n.

    u_k = p^k (1-p)^(n-k) / (d(k) (1 - n p (1-p)^(n-1))), and 0 for k = 1, which is drawn again.

    >>> psa_weights(2, Fraction(1, 2))
    [Fraction(1, 2), Fraction(0, 1), Fraction(1, 2)]
    """
    if n < 2:
        return [Fraction(1)] + [Fraction(0)] * n
    kept = 1 - n * rate * (1 - rate) ** (n - 1)
    return [Fraction(0) if k == 1 else rate**k * (1 - rate) ** (n - k) / (derangements(k) * kept) for k in range(n + 1)]


def exact_loss(hold: Margins, swap: Margins, rate: Fraction | str) -> UniverseExact:
    """Return the exact loss of permutation swapping on the stratum with these margins, with its witness.

    The largest ln(P_x(t) / P_x'(t)) / distance over *all* pairs of tables and all outputs; the end
    points 0 and 1 of the rate included (R2).

    >>> exact_loss((2, 2), (2, 2), "1/2").loss
    Exact('1/2*ln(19/4)')
    >>> exact_loss((2, 2), (2, 2), "1").loss, exact_loss((2, 2), (2, 2), "0").loss
    (Exact('ln(2)'), Exact('inf'))
    """
    p = probability(rate, where="rate")
    require_feasible(hold, swap)
    return exact_loss_of_weights(hold, swap, psa_weights(sum(hold), p))


def require_feasible(hold: Margins, swap: Margins) -> None:
    """Refuse margins whose exact loss would take longer than some minutes: time grows with n cubed, tables squared."""
    r, c = _checked(hold, swap)
    records, many = sum(r), count_tables(r, c, most=MOST_TABLES) if sum(r) <= _MOST_RECORDS else 0
    if records > _MOST_RECORDS or records**3 * many**2 > _MOST_WORK:
        raise refused(
            f"the exact loss of {records:,} records with these margins would take too long",
            where="margins",
            remedy="audit a smaller stratum; the sharp bound holds for every stratum of that size "
            "(`stirred spec budget --bound sharp`)",
        )


def exact_loss_of_weights(hold: Margins, swap: Margins, weights: Sequence[Fraction]) -> UniverseExact:
    """Return the exact loss of any swap whose permutations moving k records have probability ``weights[k]``."""
    tables = all_tables(hold, swap)
    return exact_loss_of_kernel(tables, up_to_symmetry(tables, hold, swap), _Kernel(hold, swap, weights))


class ClassLaw(SwapLaw):
    """A law that gives every permutation of a stratum moving k records the same probability: its ``weights``."""

    __slots__ = ()

    bound_for_every: ClassVar[str] = " with these margins"  # for which strata its bound holds

    @abstractmethod
    def weights(self, n: int) -> list[Fraction]:
        """Return the probability of *each* permutation that moves exactly k of n records, for k = 0..n."""

    @abstractmethod
    def bound(self, hold: Margins, swap: Margins) -> Exact:
        """Return what it promises for a stratum with these margins."""

    def on_small(self, records: Any) -> Law:
        return class_law(records, self.weights(len(records)))

    def stratum_audit(self, hold: Margins, swap: Margins) -> StratumAudit:
        found = exact_loss_of_weights(hold, swap, self.weights(sum(hold)))
        return found.audit(self.bound(hold, swap), for_every=self.bound_for_every)


class TableKernel(Protocol):
    """The law of the released table t for every table x of one stratum."""

    def scaled(self, x: Table, t: Table) -> int:
        """Return the probability of t from x times a number that depends on t alone."""
        ...

    def probability(self, x: Table, t: Table) -> Fraction:
        """Return the probability of t from x."""
        ...


def exact_loss_of_kernel(tables: list[Table], outputs: Sequence[Table], kernel: TableKernel) -> UniverseExact:
    """Return the exact loss over all pairs of ``tables``, by looking at these ``outputs``.

    The largest ratio per record is screened in double precision and decided exactly.
    """
    if len(tables) == 1:
        return UniverseExact(loss=ZERO, witness=None, tables=1)
    flat = np.array([[cell for row in table for cell in row] for table in tables], dtype=np.int64)
    apart = np.stack([np.abs(flat - one).sum(axis=1) for one in flat]) / 2
    np.fill_diagonal(apart, np.inf)

    def found(loss: Exact, i: int, j: int, t: Table) -> UniverseExact:
        x, y = tables[i], tables[j]
        both = (kernel.probability(x, t), kernel.probability(y, t))
        witness = LossWitness(table=x, other=y, output=t, distance=distance(x, y), probabilities=both)
        return UniverseExact(loss=loss, witness=witness, tables=len(tables))

    best = -1.0
    # By distance and the two numbers in the ratio, one pair and output each.
    close: dict[tuple[int, int, int], tuple[int, int, Table]] = {}
    for t in outputs:
        scaled = [kernel.scaled(x, t) for x in tables]
        if not any(scaled):
            continue
        if not all(scaled):  # possible from one table, impossible from another
            other = scaled.index(0)
            nearest = min((i for i, value in enumerate(scaled) if value), key=lambda i: apart[i, other])
            return found(INFINITE, nearest, other, t)
        logs = np.array([math.log(value) for value in scaled])
        rates = (logs[:, None] - logs[None, :]) / apart
        np.fill_diagonal(rates, -np.inf)
        best = max(best, float(rates.max()))
        for i, j in np.argwhere(rates >= best - _CLOSE).tolist():
            close.setdefault((int(apart[i, j]), scaled[i], scaled[j]), (i, j, t))
    losses = {
        (away, p, q): ln(Fraction(p, q)) / exact(away)
        for away, p, q in close
        if (math.log(p) - math.log(q)) / away >= best - 2 * _CLOSE
    }
    loss = largest(list(losses.values()))
    return found(loss, *next(close[key] for key, value in losses.items() if not value < loss))


def distance(x: Table, y: Table) -> int:
    """Return the number of records that must change to turn one table into the other (d_HamS)."""
    apart = sum(abs(a - b) for row, other in zip(x, y, strict=True) for a, b in zip(row, other, strict=True))
    return apart // 2


class _Kernel:
    """prod t! P_x(t) as integers over one denominator, row by row.

    Rows are handled one after the other; what the rows so far used up of the columns is one number in
    mixed radix, so that adding two numbers adds two vectors. Products of the same row pairs, and of the
    same beginnings of tables, are kept.
    """

    def __init__(self, hold: Margins, swap: Margins, weights: Sequence[Fraction]) -> None:
        r, c = _checked(hold, swap)
        n = sum(r)
        # The side with fewer states becomes the columns.
        self.turned = math.prod(a + 1 for a in r) < math.prod(a + 1 for a in c)
        columns = r if self.turned else c
        self.denominator = math.lcm(*(u.denominator for u in weights))
        u = [int(weight * self.denominator) for weight in weights]
        v = [sum(u[n - j] * (-1) ** (i - j) * math.comb(i, j) for j in range(i + 1)) for i in range(n + 1)]
        self.radix = [math.prod(a + 1 for a in columns[:place]) for place in range(len(columns))]
        self.ends: dict[int, int] = {}
        for used in product(*(range(a + 1) for a in columns)):
            left = math.prod(math.factorial(a - b) for a, b in zip(columns, used, strict=True))
            self.ends[sum(map(int.__mul__, used, self.radix))] = v[sum(used)] * left
        self.row = lru_cache(maxsize=None)(self._row)
        self.beginning: Callable[[Table, Table], dict[int, int]] = lru_cache(maxsize=200_000)(self._beginning)
        self.ending = lru_cache(maxsize=None)(self._ending)

    def _row(self, x: tuple[int, ...], t: tuple[int, ...]) -> dict[int, int]:
        """Return, by what it uses up of the columns, the weight of all choices in one row."""
        total, states = sum(x), {0: (0, 1)}
        for a, b, unit in zip(x, t, self.radix, strict=True):
            states = {
                state + f * unit: (stay + f, weight * math.comb(a, f) * math.comb(b, f) * math.factorial(f))
                for state, (stay, weight) in states.items()
                for f in range(min(a, b) + 1)
            }
        return {state: weight * math.factorial(total - stay) for state, (stay, weight) in states.items()}

    def _beginning(self, x: Table, t: Table) -> dict[int, int]:
        """Return the same for the first rows of two tables."""
        if len(x) == 1:
            return self.row(x[0], t[0])
        before, last = self.beginning(x[:-1], t[:-1]), self.row(x[-1], t[-1])
        states: dict[int, int] = {}
        for state, weight in before.items():
            for used, more in last.items():
                states[state + used] = states.get(state + used, 0) + weight * more
        return states

    def _ending(self, x: tuple[int, ...], t: tuple[int, ...], state: int) -> int:
        """Return the sum over the choices in the last row, when the rows before used up ``state``."""
        return sum(weight * self.ends[state + used] for used, weight in self.row(x, t).items())

    def scaled(self, x: Table, t: Table) -> int:
        """Return prod t! times P_x(t) times the denominator."""
        if self.turned:
            x, t = _turned(x), _turned(t)
        if len(x) == 1:
            return self.ending(x[0], t[0], 0)
        before, a, b = self.beginning(x[:-1], t[:-1]), x[-1], t[-1]
        return sum(weight * self.ending(a, b, state) for state, weight in before.items())

    def probability(self, x: Table, t: Table) -> Fraction:
        """Return P_x(t)."""
        scale = math.prod(math.factorial(cell) for row in t for cell in row)
        return Fraction(self.scaled(x, t), scale * self.denominator)


def up_to_symmetry(tables: list[Table], hold: Margins, swap: Margins) -> list[Table]:
    """Return one released table of each kind: exchanging values of equal count changes nothing."""
    kept, seen = [], set()
    for table in tables:
        if table in seen:
            continue
        kept.append(table)
        seen.add(table)
        new = [table]
        while new:
            images = {image for old in new for image in _exchanged(old, hold, swap)}
            new = sorted(images - seen)
            seen.update(new)
    return kept


def _exchanged(table: Table, hold: Margins, swap: Margins) -> Iterator[Table]:
    """Yield the table with a row, or a column, and the next one of equal count exchanged: these make all others."""
    for margins, turn in ((hold, tuple), (swap, _turned)):
        rows = turn(table)
        for place, count in enumerate(margins):
            other = next((later for later in range(place + 1, len(margins)) if margins[later] == count), None)
            if other is not None:
                image = [*rows]
                image[place], image[other] = rows[other], rows[place]
                yield turn(tuple(image))


def _completions(rows: tuple[int, ...], left: tuple[int, ...]) -> Iterator[Table]:
    if len(rows) == 1:
        yield (left,)
        return
    for row in _rows(rows[0], left):
        for rest in _completions(rows[1:], tuple(a - b for a, b in zip(left, row, strict=True))):
            yield (row, *rest)


def _rows(total: int, most: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every row with this total and no cell above its column."""
    if len(most) == 1:
        if total <= most[0]:
            yield (total,)
        return
    for first in range(min(total, most[0]), -1, -1):
        if total - first <= sum(most[1:]):
            for rest in _rows(total - first, most[1:]):
                yield (first, *rest)


def _checked(hold: Margins, swap: Margins) -> tuple[tuple[int, ...], tuple[int, ...]]:
    for name, margins in (("hold margin", hold), ("swap margin", swap)):
        if not margins or any(count < 1 for count in margins):
            raise wrong(
                f"{', '.join(map(str, margins)) or 'nothing'} is not a margin",
                where=name,
                remedy="write how many records have each value, such as 3,2: whole numbers from 1",
            )
    if sum(hold) != sum(swap):
        raise wrong(
            f"the hold margin counts {sum(hold)} records and the swap margin {sum(swap)}",
            where="margins",
            remedy="both count the records of the same stratum",
        )
    return tuple(hold), tuple(swap)


def _turned(table: Table) -> Table:
    return tuple(zip(*table, strict=True))


def _shown(table: Table) -> str:
    return "[" + " | ".join(" ".join(map(str, row)) for row in table) + "]"


# ---- how many records move: decides the moments of every table (R18)

_REACH: Final = 14  # standard deviations of the number selected that matter to double precision
SPREADS: Final = 12  # of the number that stay, or are selected, in moments
# Of all permutations of so many records, the share that moves every one; the last stands for all further ones.
DERANGED: Final = 25
DERANGED_SHARES: Final = np.array([derangements(m) / math.factorial(m) for m in range(DERANGED)] + [math.exp(-1)])


def permutation_moved(records: int, rate: Fraction) -> tuple[Array, Array]:
    """Return the possible numbers of moved records and their chances: binomial, drawn again at exactly one.

    >>> k, chance = permutation_moved(2, Fraction(1, 2))
    >>> dict(zip(k.astype(int).tolist(), chance.tolist()))
    {0: 0.5, 1: 0.0, 2: 0.5}
    """
    n, p = records, float(rate)
    if p in (0.0, 1.0):
        return np.array([n * p]), np.array([1.0])
    middle, spread = min(int((n + 1) * p), n), math.sqrt(n * p * (1 - p))
    low, high = max(0, int(middle - _REACH * spread) - 1), min(n, int(middle + _REACH * spread) + 40)
    k, weight = np.arange(float(low), high + 1), binomial_weights(n, p, low, high)
    weight[k == 1] = 0.0
    return k, weight / weight.sum()


def binomial_weights(n: int, p: float, low: int, high: int) -> Array:
    """Return the weights of ``low`` to ``high`` selected, up to a constant."""
    if p in (0.0, 1.0):
        return (np.arange(low, high + 1) == n * p).astype(np.float64)
    # From the mode outwards by quotients of neighbours: logarithms of factorials would lose digits.
    middle = min(max(int((n + 1) * p), low), high)
    above, below = np.arange(middle + 1.0, high + 1), np.arange(float(middle), low, -1)
    odds = p / (1 - p)
    up, down = np.cumprod((n - above + 1) / above * odds), np.cumprod(below / (n - below + 1) / odds)
    return np.concatenate([down[::-1], [1.0], up])
