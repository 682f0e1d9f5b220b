"""The conditioned swap: randomised response on the swap values, given that every value stays as frequent (R6).

Its budget does not grow with the stratum; the proof is in docs/theory/swapping-family.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from stirred.data.codes import Coded
from stirred.data.problems import bad_plan, listed, number
from stirred.mechanisms.protocol import Array, Rate, RedrawnCounts, StratumAudit, SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.family import MemberScale
from stirred.mechanisms.records.law import Kernel, Policy, SwapLaw, permutation_law
from stirred.mechanisms.records.laws.counting import (
    Margins,
    Table,
    UniverseExact,
    all_tables,
    exact_loss_of_kernel,
    up_to_symmetry,
)
from stirred.mechanisms.records.roles import SwapRate, SwapSettings
from stirred.mechanisms.records.strata import Shares, Strata, SwapMargins
from stirred.spec.budget import Derived
from stirred.spec.exact import INFINITE, ZERO, Exact, largest, ln
from stirred.spec.given_numbers import Number, fraction, probability
from stirred.spec.law import Law
from stirred.spec.problems import wrong


class ConditionedSettings(SwapSettings):
    """A rate, and the law that values are redrawn from."""

    rate: SwapRate
    redraw_law: str | dict[str, Rate] = Field(
        default="uniform",
        description="The law of redrawn values: uniform, proportional, or a probability for each swap value.",
        json_schema_extra={"example": "uniform"},
    )

    def law(self) -> ConditionedLaw:
        """Return the law with the exact rate and masses; refuse a redraw law that is none."""
        rate, given = probability(self.rate, where="rate"), self.redraw_law
        if isinstance(given, str):
            if given not in LAWS:
                raise bad_plan(
                    f"'{given}' is not known",
                    where="redraw_law",
                    remedy=f"write one of {listed(LAWS)}, or give the probability of each swap value",
                )
            return ConditionedLaw(rate=rate, redraw_law=given)
        if len(self.swap) != 1:
            raise bad_plan(
                "probabilities can be declared for one swap variable only",
                where="redraw_law",
                remedy="use the uniform or the proportional law, or swap one variable",
            )
        masses = {value: fraction(mass, where="redraw_law") for value, mass in given.items()}
        if any(mass <= 0 for mass in masses.values()) or sum(masses.values()) > 1:
            raise bad_plan(
                f"the probabilities sum to {sum(masses.values())}, or one is not above 0",
                where="redraw_law",
                remedy="every value needs a probability above 0, and all together at most 1",
            )
        return ConditionedLaw(rate=rate, redraw_law=masses)


LAWS: Final = ("uniform", "proportional")
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedLaw(SwapLaw):
    """Redraw swap values with probability ``rate``, conditioned on every value occurring as often as before."""

    name: ClassVar[str] = "conditioned"
    rests_on: ClassVar[str] = "R6, the conditioned swap (docs/theory/swapping-family.md)"
    passes: ClassVar[tuple[str, ...]] = ("counted", "redrawn")
    moved_get: ClassVar[str] = "another value"

    rate: Fraction
    redraw_law: str | Mapping[str, Fraction] = "uniform"

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss (R6) on a stratum where hold and swap values occur this often, with its bound.

        >>> ConditionedLaw(rate=Fraction(1, 2)).stratum_audit((1, 1, 1), (1, 1, 1)).exact_loss
        Exact('ln(4)')
        """
        if not isinstance(self.redraw_law, str):
            raise bad_plan("a stratum has no such values", where="redraw_law", remedy=f"write one of {listed(LAWS)}")
        masses = [self._mass(None, count, sum(swap) or 1, len(swap)) for count in swap]
        found = exact_loss_of_conditioned(hold, swap, redraw_kernel(self.rate, masses))
        return found.audit(redraw_epsilon(self.rate, masses), for_every=" with these margins")

    def on_small(self, records: Any) -> Law:
        """Return the exact law of one stratum.

        The sampler may be off by the factor that the budget contains (``LATTICE_EPSILON``).
        """
        swap = [s for _, s in records]
        masses = {s: self._mass(s, swap.count(s), len(swap), len({*swap})) for s in swap}
        return conditioned_law(records, lambda row, s: (1 - self.rate) * (row[1] == s) + self.rate * masses[s])

    def _mass(self, value: Any, count: int, records: int, present: int) -> Fraction:
        if not isinstance(self.redraw_law, str):
            return self.redraw_law[str(value)]
        return Fraction(1, present) if self.redraw_law == "uniform" else Fraction(count, records)

    def _masses(self, swap: Coded) -> dict[int, Fraction] | None:
        """Return the declared mass of each swap code, or None for a law by the counts."""
        if isinstance(self.redraw_law, str):
            return None
        values = swap.levels.to_series(0).to_list()
        if missing := [value for value in values if str(value) not in self.redraw_law]:
            raise bad_plan(
                f"no probability for {listed([str(value) for value in missing[:5]])}",
                public=f"no probability for {number(len(missing), 'swap value')}",
                where="redraw_law",
                remedy="give every swap value that occurs a probability above 0",
            )
        return {code: self.redraw_law[str(value)] for code, value in enumerate(values)}

    def policy(self, strata: Strata, swap: Coded) -> Policy:
        """Return the loss by the two smallest masses of each stratum (R6)."""
        if isinstance(self.redraw_law, str):
            how = "uniform over the swap values" if self.redraw_law == "uniform" else "proportional to the counts"
            which = f"{how} of the stratum, a function of the invariants"
        else:
            declared = ", ".join(f"{value}: {mass}" for value, mass in self.redraw_law.items())
            if len(declared) > 200:
                declared = f"sha256 {hashlib.sha256(declared.encode()).hexdigest()}"
            which = f"fixed beforehand ({declared})"
        formula = (
            "half the sum of ln(1 + 1/(o pi)) over the two smallest masses pi of a live stratum, o the odds of rate "
            f"{self.rate}, and the error bound of the sampler; the law is {which}"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
        """Return the largest loss over the live strata: screened in double precision, decided exactly."""
        from stirred.mechanisms.records.kernels.redrawn import LATTICE_EPSILON

        rate, margins, masses = self.rate, strata.margins, self._float_masses(swap, strata.margins)
        if not strata.live.any() or rate == 1:
            return ZERO
        if rate == 0:
            return INFINITE
        first, second = margins.smallest(masses)
        stratum, codes, counts = margins.stratum, margins.value, margins.count
        live = strata.live[stratum[first]]
        first, second = first[live], second[live]
        odds = float(rate / (1 - rate))
        ratio = (1 + 1 / (odds * masses[first])) * (1 + 1 / (odds * masses[second]))
        present, sizes, values = margins.values_present, margins.records, swap.levels.to_series(0)

        def exactly(place: int) -> Fraction:
            here, value = stratum[place], values[int(codes[place])]
            return self._mass(value, int(counts[place]), int(sizes[here]), int(present[here]))

        close = np.flatnonzero(ratio >= ratio.max() * (1 - _CLOSE)).tolist()
        pairs = {(exactly(first[place]), exactly(second[place])) for place in close}
        return largest([redraw_epsilon(rate, pair) for pair in sorted(pairs)]) + LATTICE_EPSILON

    def moved(self, strata: Strata, swap: Coded) -> Shares:
        margins = strata.margins
        changed = self.changed(strata, swap) * margins.count
        return np.bincount(margins.stratum, weights=changed, minlength=margins.strata) / margins.records

    def changed(self, strata: Strata, swap: Coded) -> Shares:
        from stirred.mechanisms.records.kernels.changed import expected_changes

        rate, margins = self.rate, strata.margins
        if rate == 1:
            changed = 1 - margins.count / margins.records[margins.stratum].astype(np.float64)
        else:
            odds = float(rate / (1 - rate)) * self._float_masses(swap, margins)
            changed = expected_changes(margins.stratum, margins.count, odds)
        return np.where(strata.live[margins.stratum], changed, 0.0)

    def _float_masses(self, swap: Coded, margins: SwapMargins) -> Shares:
        """Return the mass of every value of every stratum, in double precision."""
        declared = self._masses(swap)
        if declared is not None:
            return np.array([float(declared[code]) for code in range(swap.count)])[margins.value]
        if self.redraw_law == "uniform":
            return 1 / margins.values_present[margins.stratum]
        return margins.count / margins.records[margins.stratum]

    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        from stirred.mechanisms.records.kernels.counted import swap_counted_in_place
        from stirred.mechanisms.records.kernels.redrawn import ConditionedCounting

        law = self.redraw_law if isinstance(self.redraw_law, str) else "declared"
        counting = ConditionedCounting(rate=self.rate, law=law, masses=self._masses(swap))
        return partial(swap_counted_in_place, strata=strata.count, values=swap.count, counting=counting)


# ---- how many records are redrawn: all moments of tables follow (R18) ---------------------------------------
#
# Given how many records of each swap value are selected, these are drawn evenly and their values are dealt out
# evenly, so every moment is a mean over the selected counts. Given the number u of ``redrawn`` these are independent,
# and dividing by k, or by k(k-1), is dividing by u, or by its square, because (k-1)! is the integral of u^(k-1) e^-u.
# That leaves sums over a few dozen values of u. The proofs are in docs/theory/moments.md.

Sizes = npt.NDArray[np.int64]
# Up to here the integrals are of a polynomial times e^-u: a Gauss-Laguerre rule has no error but rounding.
_POLYNOMIAL: Final = 60
# Nodes of the rules tried for larger strata, until one keeps the margins; then all points of the grid.
_NODES: Final = (12, 24, 48)
_KEEPS_MARGINS: Final = 1e-11
_ACCURATE: Final = 1e-9


def redrawn_counts(counts: Sequence[int], rate: Fraction, masses: Sequence[Fraction]) -> RedrawnCounts:
    """Return the law of the selected counts of a stratum, for its swap values' counts and redraw probabilities.

    >>> law = [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)]
    >>> (1335 * redrawn_counts((2, 2, 1), Fraction(1, 2), law).moves[2]).round(9).tolist()  # T37
    [134.0, 134.0, 1067.0]
    """
    sizes = np.asarray(counts, dtype=np.int64)
    if rate in (0, 1) or sizes.size < 2:  # it is certain which records are selected: all or none
        selected = sizes if rate == 1 else 0 * sizes
        k = max(int(selected.sum()), 1)
        cumulants = np.zeros((4, 1, sizes.size))
        cumulants[0, 0] = selected
        return _gathered(sizes, np.ones(1), np.full(1, 1 / k), np.full(1, 1 / max(k * (k - 1), 1)), cumulants)
    odds = [rate / (1 - rate) * mass for mass in masses]
    if int(sizes.sum()) <= _POLYNOMIAL:
        return _at(sizes, odds, *_laguerre(sizes, odds))
    grid = _grid(sizes, odds)
    for nodes in _NODES:
        found = _at(sizes, odds, *_gauss(*grid, nodes))
        if away_from_margins(found) < _KEEPS_MARGINS:
            return found
    found = _at(sizes, odds, *grid)
    if not (away := away_from_margins(found)) < _ACCURATE:
        raise bad_plan(
            f"the moments of a stratum of {int(sizes.sum()):,} records are off by {away:.1g}",
            where="rate",
            remedy="use a rate farther from 0 and 1, or leave the moments out",
        )
    return found


def _at(sizes: Sizes, odds: Sequence[Fraction], nodes: Array, shares: Array) -> RedrawnCounts:
    from stirred.mechanisms.records.kernels.redrawn import cumulants

    rates = np.array([float(x) for x in odds])
    found = np.empty((4, nodes.size, sizes.size))
    for place, u in enumerate(nodes.tolist()):
        cumulants(sizes, rates, u, found[:, place])
    return _gathered(sizes, shares, shares / nodes, shares / nodes**2, found)


def _gathered(sizes: Sizes, shares: Array, once: Array, twice: Array, cumulants: Array) -> RedrawnCounts:
    counts, mean = sizes.astype(np.float64), cumulants[0]
    stay = 1 - shares @ mean / counts
    exchanged = mean.T @ (once[:, None] * mean) + np.diag(once @ cumulants[1])
    moves = np.diag(stay) + exchanged / counts[:, None]
    return RedrawnCounts(
        counts=counts, shares=shares, once=once, twice=twice, cumulants=cumulants, moves=moves, stay=stay
    )


def away_from_margins(found: RedrawnCounts) -> float:
    """Return how far the sums are from what holds exactly: every record gets a value, every value its count."""
    some = np.abs(found.moves.sum(axis=1) - 1).max()
    return float(max(some, np.abs(found.counts @ found.moves / found.counts - 1).max()))


def _laguerre(sizes: Sizes, odds: Sequence[Fraction]) -> tuple[Array, Array]:
    """Return values of u and their shares in the law of u: exact for small strata, of any moment used here."""
    from stirred.mechanisms.records.kernels.redrawn import sums

    nodes, weights = np.polynomial.laguerre.laggauss(int(sizes.sum()) // 2 + 1)
    rates, room = np.array([float(x) for x in odds]), np.empty(4)
    logs = np.empty(nodes.size)
    for place, u in enumerate(nodes.tolist()):
        sums(sizes, rates, np.ones(sizes.size), np.zeros_like(sizes), u, room)
        logs[place] = room[0]
    logs += np.log(weights)
    shares = np.exp(logs - logs.max())
    return nodes, shares / shares.sum()


def _grid(sizes: Sizes, odds: Sequence[Fraction]) -> tuple[Array, Array]:
    from stirred.mechanisms.records.kernels.redrawn import STEP, Mixing

    mixing = Mixing(sizes, np.array([float(x) for x in odds]), np.ones(sizes.size), odds.__getitem__)
    points, shares = mixing.grid()
    return np.array([float(point * STEP) for point in points]), shares


def _gauss(nodes: Array, shares: Array, number: int) -> tuple[Array, Array]:
    """Return the Gauss rule of a law given by many points: the same moments with few (Lanczos)."""
    middle = shares @ nodes
    spread = np.sqrt(shares @ (nodes - middle) ** 2)
    places = (nodes - middle) / spread
    basis, diagonal, off_diagonal = [np.sqrt(shares)], np.empty(number), np.empty(number - 1)
    for step in range(number):
        after = places * basis[step]
        diagonal[step] = basis[step] @ after
        for vector in (*basis, *basis):  # twice: once leaves rounding that grows
            after = after - (vector @ after) * vector
        if step < number - 1:
            off_diagonal[step] = np.sqrt(after @ after)
            basis.append(after / off_diagonal[step])
    found, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    weights = vectors[0] ** 2
    return middle + spread * found, weights / weights.sum()


# ---- the mechanism


class ConditionedSwap(RatedSwap):
    """Redraw swap values with probability ``rate``, conditioned on every value occurring as often as before.

    The redrawn value comes from ``redraw_law``: ``"uniform"`` over the swap values of the stratum, ``"proportional"``
    to their counts there, or a mapping from each swap value to its probability, fixed beforehand. The loss does
    not grow with the stratum: with S swap values it is ln(1 + S/o) for the uniform law, o the odds.

    >>> import polars as pl
    >>> from stirred.randomness.entropy import Entropy
    >>> swap = ConditionedSwap(match=["size"], swap=["county"], rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 8, "county": list("ABABABAB"), "tenure": list("oorroorr")})
    >>> swap.plan(homes).specification.budget.shown  # ln 3, and 1e-12 for the lattice of the sampler
    '1.10'
    >>> released = swap.release(homes, Entropy.from_os()).public["data"]
    >>> "".join(sorted(released["county"]))
    'AAAABBBB'
    """

    name: ClassVar[str] = "conditioned-swap"
    title: ClassVar[str] = "conditioned swapping"
    settings_model: ClassVar[type[SwapSettings]] = ConditionedSettings
    family: ClassVar[SwapFamily] = SwapFamily(
        scales=tuple(
            MemberScale(name=f"conditioned, {law}", others={"redraw_law": law}) for law in ("uniform", "proportional")
        ),
        redrawn=redrawn_counts,
        stratum_settings={"rate": None, "redraw_law": "uniform"},
    )

    swap_law: ConditionedLaw

    @property
    def in_words(self) -> str:
        redraw = str(self.swap_law.redraw_law)
        law = {"uniform": "a uniform law", "proportional": "a law by size"}.get(redraw, "a declared law")
        return (
            f"Conditioned swapping: {', '.join(self.swap)} redrawn among {self.among} from {law} at a rate of "
            f"{self.swap_law.rate}, conditioned on all counts; everything else is held."
        )


# ---- the loss, and the exact law on small strata


def redraw_epsilon(rate: Number, masses: Sequence[Fraction]) -> Exact:
    """Return the loss of the conditioned swap that redraws swap values from a law, in one stratum (R6).

    A record keeps its value with probability 1 - rate and otherwise draws one from the law;
    the whole is conditioned on giving every value as often as before. ``masses`` are the law's
    probabilities of the swap values *present* in the stratum. The two smallest decide: among the
    records in which two tables differ, each value occurs at most every other time.

    >>> third = Fraction(1, 3)
    >>> redraw_epsilon("1/2", [third, third, third])
    Exact('ln(4)')
    >>> redraw_epsilon("1/2", [Fraction(1)]), redraw_epsilon(0, [third, third]), redraw_epsilon(1, [third, third])
    (Exact('0'), Exact('inf'), Exact('0'))
    """
    q = probability(rate, where="rate")
    for mass in masses:
        if not 0 < mass <= 1:
            raise wrong(
                f"a law that gives a swap value the probability {mass}",
                where="law",
                remedy="every value that occurs needs a probability above 0: otherwise nobody can get it",
            )
    if len(masses) < 2 or q == 1:
        return ZERO
    if q == 0:
        return INFINITE
    odds = q / (1 - q)
    first, second = sorted(masses)[:2]
    return ln((1 + 1 / (odds * first)) * (1 + 1 / (odds * second))) / 2


def redraw_kernel(rate: Number, masses: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return the kernel (1-q) I + q pi of drawing the value again with probability q."""
    q = probability(rate, where="rate")
    return [[(1 - q) * (a == b) + q * mass for b, mass in enumerate(masses)] for a in range(len(masses))]


Matrix = Sequence[Sequence[Fraction]]
Record = tuple[Hashable, Hashable]


class ConditionedKernel:
    """The law of the table when each record draws by a kernel R, given that the swap margin comes out right.

    The records of hold value h turn the row x_h into t_h with weight [z^t_h] prod over s of
    (sum over s' of R(s,s') z_s')^x_hs; rows are independent but for the margin, so the probability is the
    product over rows, divided by the same for the whole stratum as one row.
    """

    def __init__(self, swap: Margins, kernel: Matrix) -> None:
        self._kernel = kernel
        self._swap = tuple(swap)
        self._row: Callable[[tuple[int, ...]], dict[tuple[int, ...], Fraction]] = lru_cache(None)(self._row_law)
        self._total = self._row(self._swap)[self._swap]
        self._denominator = math.lcm(*(w.denominator for row in kernel for w in row)) ** sum(swap)

    def _row_law(self, row: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        reached = {(0,) * len(row): Fraction(1)}
        for source, count in enumerate(row):
            for _ in range(count):
                step: dict[tuple[int, ...], Fraction] = {}
                for counts, weight in reached.items():
                    for to, chance in enumerate(self._kernel[source]):
                        if chance and counts[to] < self._swap[to]:
                            after = (*counts[:to], counts[to] + 1, *counts[to + 1 :])
                            step[after] = step.get(after, Fraction(0)) + weight * chance
                reached = step
        return reached

    def probability(self, x: Table, t: Table) -> Fraction:
        """Return the probability of t from x."""
        return self._weight(x, t) / self._total

    def _weight(self, x: Table, t: Table) -> Fraction:
        rows = zip(x, t, strict=True)
        return math.prod((self._row(a).get(b, Fraction(0)) for a, b in rows), start=Fraction(1))

    def scaled(self, x: Table, t: Table) -> int:
        """Return the weight as an integer: over one denominator for all tables of the stratum."""
        return int(self._weight(x, t) * self._denominator)


def conditioned_law(records: Sequence[Record], weight: Callable[[Record, Hashable], Fraction]) -> Law:
    """Return the law of the released multiset, by enumeration: weight(record, value) for each record and new value.

    >>> law = conditioned_law([("a", "x"), ("b", "y")], lambda r, s: Fraction(1) if r[1] == s else Fraction(1, 3))
    >>> law[(("a", "x"), ("b", "y"))]
    Fraction(9, 10)
    """
    return permutation_law(
        records,
        lambda sigma: math.prod((weight(records[i], records[j][1]) for i, j in enumerate(sigma)), start=Fraction(1)),
    )


def exact_loss_of_conditioned(hold: Margins, swap: Margins, kernel: Matrix) -> UniverseExact:
    """Return the exact loss of the conditioned swap with any kernel on the swap values, with its witness.

    >>> third = Fraction(1, 3)
    >>> exact_loss_of_conditioned((1, 1), (1, 1), [[1, third], [third, 1]]).loss
    Exact('ln(3)')
    """
    tables = all_tables(hold, swap)
    if len(kernel) != len(swap):
        raise wrong(
            f"a kernel of {len(kernel)} values for {len(swap)} swap values",
            where="kernel",
            remedy="give one row and one column for each swap value",
        )
    outputs = up_to_symmetry(tables, hold, swap) if _symmetric(kernel, swap) else tables
    return exact_loss_of_kernel(tables, outputs, ConditionedKernel(swap, kernel))


def _symmetric(kernel: Matrix, swap: Margins) -> bool:
    """Say whether exchanging two values of equal count leaves the kernel as it is."""
    size = range(len(swap))
    for a, b in combinations(size, 2):
        turned = [b if i == a else a if i == b else i for i in size]
        if swap[a] == swap[b] and any(kernel[turned[i]][turned[j]] != kernel[i][j] for i in size for j in size):
            return False
    return True
