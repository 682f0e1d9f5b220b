"""The Mallows swap: permutations are the less likely the more records they move (swapping theory R5).

Its budget does not grow with the stratum; the proof is in docs/theory/swapping-family.md. k of n records move with
weight C(n,k) d(k) theta^k, d the derangement numbers. For the number j = n - k that stay this is, up to a constant,
t^j / j! times q(n - j), where t = 1/theta and q(m) = d(m)/m!: a Poisson law cut at n, but for a factor that is 1/e to
many digits unless nearly all records stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Rate, SwapFamily
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.family import MemberScale
from stirred.mechanisms.records.law import Kernel, Policy
from stirred.mechanisms.records.laws.counting import DERANGED, DERANGED_SHARES, SPREADS, ClassLaw
from stirred.mechanisms.records.roles import SwapSettings
from stirred.mechanisms.records.strata import Shares, Strata
from stirred.randomness.entropy import WORD_BITS
from stirred.randomness.inversion import Weights
from stirred.spec.budget import Derived
from stirred.spec.exact import INFINITE, ZERO, Exact, exp, ln
from stirred.spec.given_numbers import Number, fraction, loss
from stirred.spec.problems import refused
from stirred.spec.swap_budget import derangements


class MallowsSettings(SwapSettings):
    """The loss itself."""

    epsilon: Rate = Field(description="The loss, in every stratum; there is no rate.", json_schema_extra={"example": 2})

    def law(self) -> MallowsLaw:
        return MallowsLaw(epsilon=loss(self.epsilon, where="epsilon"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MallowsLaw(ClassLaw):
    """A permutation that moves k records has weight exp(-epsilon k), in every stratum.

    >>> MallowsLaw(epsilon=ln(3)).stratum_audit((2, 2), (2, 2)).passed
    True
    """

    name: ClassVar[str] = "mallows"
    rests_on: ClassVar[str] = "R5, Mallows swapping (docs/theory/swapping-family.md)"
    passes: ClassVar[tuple[str, ...]] = ("counted",)
    by_sizes: ClassVar[bool] = True
    bound_for_every: ClassVar[str] = ", whatever its size"

    epsilon: Exact

    @property
    def weight(self) -> Fraction:
        """Return the factor for each moved record: exp(-epsilon), rounded up where it is irrational."""
        return mallows_weight(self.epsilon)

    @property
    def base_rate(self) -> Fraction:
        """Return the weight of a moved record, which takes the place of a rate in the list of strata."""
        return self.weight

    def policy(self, strata: Strata, swap: Coded) -> Policy:
        value = mallows_epsilon(self.weight) if strata.live.any() else ZERO
        formula = f"the parameter of the Mallows law, {self.epsilon}, in every stratum of any size; 0 if none is live"
        return Derived(formula=formula, value=value, varies=True)

    def weights(self, n: int) -> list[Fraction]:
        return mallows_weights(n, self.weight)

    def bound(self, hold: Sequence[int], swap: Sequence[int]) -> Exact:
        return mallows_epsilon(self.weight)

    def moved(self, strata: Strata, swap: Coded) -> Shares:
        def share(records: int) -> float:
            moved, chance = mallows_moved(records, self.weight)
            return float(moved @ chance / records)

        sizes, which = np.unique(strata.records, return_inverse=True)
        live = {*strata.records[strata.live].tolist()}
        return np.array([share(n) if n in live else 0.0 for n in sizes.tolist()])[which]

    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        from stirred.mechanisms.records.kernels.counted import swap_counted_in_place

        counting = MallowsCounting(self.weight)
        return partial(swap_counted_in_place, strata=strata.count, values=swap.count, counting=counting)


def mallows_moved(records: int, weight: Fraction) -> tuple[Shares, Shares]:
    """Return the possible numbers of moved records and their chances, for the Mallows swap (R5).

    >>> k, chance = mallows_moved(4, Fraction(1, 3))
    >>> dict(zip(k.astype(int).tolist(), (168 * chance).round(9).tolist()))
    {4: 9.0, 3: 24.0, 2: 54.0, 1: 0.0, 0: 81.0}
    """
    expected = float(1 / weight) if weight else math.inf
    if records < 2 or math.isinf(expected):
        return np.zeros(1), np.ones(1)
    low, weights = _staying(records, expected, int(SPREADS * math.sqrt(min(records, int(expected)))) + 80)
    return (records - np.arange(low, low + weights.size)).astype(np.float64), weights / weights.sum()


class MallowsSwap(Swap):
    """Swap along a permutation that moves k records with weight exp(-epsilon k), in every stratum.

    The loss is at most ``epsilon`` in every stratum, whatever its size. The number of records that keep
    their values is about Poisson with mean exp(epsilon): at a given epsilon small strata are hardly
    moved and large ones almost wholly, so this fits files of many strata of like size.

    >>> import polars as pl
    >>> swap = MallowsSwap(match=["size"], swap=["county"], epsilon=2)
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> swap.plan(homes).specification.budget.shown
    '2.00'
    """

    name: ClassVar[str] = "mallows-swap"
    title: ClassVar[str] = "Mallows swapping"
    settings_model: ClassVar[type[SwapSettings]] = MallowsSettings
    # From a loss of 30 down to 0, by hundredths.
    family: ClassVar[SwapFamily] = SwapFamily(
        scales=(
            MemberScale(
                name="mallows", setting="epsilon", steps=3_000, value=lambda step: str(30 - Decimal(step) / 100)
            ),
        ),
        moved=mallows_moved,
        stratum_settings={"epsilon": None},
    )

    swap_law: MallowsLaw

    @property
    def in_words(self) -> str:
        return (
            f"Mallows swapping: {', '.join(self.swap)} exchanged among {self.among} along permutations that are less "
            f"likely by exp(-{self.swap_law.epsilon}) for each record they move; everything else is held."
        )


# Significant digits kept of a weight that is not rational; it is rounded towards more protection.
_DIGITS = 30


def mallows_weight(epsilon: Number) -> Fraction:
    """Return the factor by which each moved record makes a permutation less likely, for this loss (R5).

    exp(-epsilon) where that is rational, otherwise rounded up to thirty digits: the loss is then a
    little below the one asked for.

    >>> from stirred.spec.exact import ln
    >>> mallows_weight(ln(3)), mallows_epsilon(mallows_weight(2)) <= 2
    (Fraction(1, 3), True)
    """
    wanted = loss(epsilon, where="epsilon")
    if wanted.is_infinite:
        return Fraction(0)
    weight = exp(-wanted)
    if weight.is_rational:
        return weight.rational
    high = weight.enclose(_DIGITS + 5).high
    grid = Fraction(10) ** (high.adjusted() - _DIGITS)
    return math.ceil(Fraction(high) / grid) * grid


def mallows_epsilon(weight: Number) -> Exact:
    """Return the loss of the swap in which a permutation moving k records has weight ``weight`` to the k (R5).

    It holds for every stratum, whatever its size. A weight above 1 would make moving *more* likely than
    staying and cost its logarithm; such rates, above 1 - 1/n, are refused.

    >>> mallows_epsilon("1/3")
    Exact('ln(3)')
    """
    theta = fraction(weight, where="weight")
    if not 0 <= theta <= 1:
        raise refused(
            f"a weight of {theta} would make moving a record more likely than leaving it",
            where="weight",
            remedy="use a weight from 0 to 1: at 1 all permutations are equally likely and the loss is 0",
        )
    return -ln(theta) if theta else INFINITE


# A draw this close to a step, relative to the whole, is left to exact arithmetic. Rounding in double
# precision stays below 8 * 2**20 * 2**-53 for the windows used here.
_CLOSE: Final = 2.0**-24
_MOST_TERMS: Final = 1 << 20
# Standard deviations on each side that double precision looks at: the rest is below exp(-_REST).
_REACH: Final = 10
_REST: Final = 40


class MovedCount:
    """The law of the number of records that move in a stratum of ``records``.

    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_os().keystream("example").reader(0)
    >>> 0 <= MovedCount(1000, Fraction(1, 50)).draw(words) <= 1000, MovedCount(9, Fraction(0)).draw(words)
    (True, 0)
    """

    def __init__(self, records: int, weight: Fraction) -> None:
        self._records = records
        self._weight = weight
        self._quick: tuple[int, npt.NDArray[np.float64]] | None = None
        if weight and records > 1:
            expected = 1 / weight
            top, bottom = expected.numerator, expected.denominator
            self._exact = Weights(
                low=0,
                high=records,
                near=min(records, int(expected)),
                ratio=lambda j: (top, bottom * (j + 1)),
                factor=self._still_deranged,
            )
            self._quick = _cumulated(records, float(expected))

    def draw(self, words: Iterator[int]) -> int:
        """Return the number of records that move, with exactly its probability."""
        if not self._weight or self._records < 2:
            return 0
        head = [next(words), next(words)]
        stay = self._certain((head[0] << WORD_BITS | head[1]) * 2.0**-64)
        return self._records - (self._exact.draw(chain(head, words)) if stay is None else stay)

    def _certain(self, point: float) -> int | None:
        """Return how many records stay, if double precision is enough to tell."""
        if self._quick is None:
            return None
        first, cumulated = self._quick
        target = point * cumulated[-1]
        margin = _CLOSE * cumulated[-1]
        place = int(np.searchsorted(cumulated, target))
        below = cumulated[place - 1] if place else 0.0
        if place == cumulated.size or target - below < margin or cumulated[place] - target < margin:
            return None
        return first + place

    def _still_deranged(self, stay: int, bits: int) -> tuple[int, int]:
        """Enclose q of the records that do not stay. Beyond this many, q changes by less than 2**-bits."""
        enough = bits // 2 + 10
        moved = self._records - stay
        if moved <= enough:
            return _share(moved, bits)
        low, high = _share(enough, bits)  # neighbouring shares differ by 1/m!
        return low - 1, high + 1


def _cumulated(records: int, expected: float) -> tuple[int, npt.NDArray[np.float64]] | None:
    """Return the cumulated weights around the mode in double precision, from the first number kept."""
    reach = int(_REACH * math.sqrt(min(records, expected))) + 60
    if 2 * reach > _MOST_TERMS:
        return None
    if records < expected:
        # All ratios are below n / expected: where that is far from 1, few terms count.
        reach = min(reach, int(_REST / math.log(expected / records)) + 60)
    # How many stay in a larger stratum does not depend on its size.
    low, weights = _staying(min(records, int(expected) + reach + DERANGED), expected, reach)
    return low, np.cumsum(weights)


@lru_cache(maxsize=64)
def _staying(records: int, expected: float, reach: int) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the weights t^j / j! q(n - j) of the numbers j that stay, from the first within ``reach`` of the mode."""
    near = min(records, int(expected))
    low, high = max(0, near - reach), min(records, near + reach)
    up = np.cumprod(expected / np.arange(near + 1.0, high + 1))
    down = np.cumprod(np.arange(float(near), low, -1) / expected)
    moved = records - np.arange(low, high + 1)
    return low, np.concatenate([down[::-1], [1.0], up]) * DERANGED_SHARES[np.minimum(moved, DERANGED)]


@lru_cache(maxsize=4096)
def _share(moved: int, bits: int) -> tuple[int, int]:
    """Enclose d(m)/m!."""
    scaled, rest = divmod(derangements(moved) << bits, math.factorial(moved))
    return scaled, scaled + (rest > 0)


class MallowsCounting:
    """How many records of a stratum the Mallows swap selects; all of them move."""

    by_value = False
    derange = True

    def __init__(self, weight: Fraction) -> None:
        self._weight = weight
        self._law = lru_cache(maxsize=10_000)(lambda records: MovedCount(records, weight))

    def draw(
        self, values: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], words: Iterator[int]
    ) -> npt.NDArray[np.int64]:
        return np.array([self._law(int(counts[0])).draw(words)], dtype=np.int64)

    def __reduce__(self) -> tuple[type[MallowsCounting], tuple[Fraction]]:
        # The laws that it remembers stay here: another process finds its own.
        return MallowsCounting, (self._weight,)


def mallows_weights(n: int, weight: Fraction) -> list[Fraction]:
    """Return the probability of each permutation that moves exactly k of n records: weight^k, normalised (R5).

    >>> mallows_weights(4, Fraction(1, 3))[2:]
    [Fraction(3, 56), Fraction(1, 56), Fraction(1, 168)]
    """
    total = sum((math.comb(n, k) * derangements(k) * weight**k for k in range(n + 1)), Fraction(0))
    return [weight**k / total if derangements(k) else Fraction(0) for k in range(n + 1)]
