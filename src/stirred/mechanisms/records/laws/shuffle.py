"""The shuffle swap: independent selection, then a plain permutation of the selected (swapping theory R7).

The bound uses the margins: p*(v) = E[m]/v where m has weights C(v,m) m! o^m (n-v)!/(n-v+m)!, and the loss
is at most the smaller of the largest -ln p*(v) over the hold margin and over the swap margin. p* does not
fall as v grows, so the rarest value of a margin decides. Weights are summed outwards from the largest in
integers that are rounded so that p* is never taken too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.family import MemberScale
from stirred.mechanisms.records.law import Kernel, Policy
from stirred.mechanisms.records.laws.counting import DERANGED, DERANGED_SHARES, SPREADS, ClassLaw, binomial_weights
from stirred.mechanisms.records.roles import SwapRate, SwapSettings
from stirred.mechanisms.records.strata import Positions, Shares, Strata
from stirred.spec.budget import Derived
from stirred.spec.exact import INFINITE, ZERO, Exact, largest, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import wrong


class ShuffleSettings(SwapSettings):
    """A rate."""

    rate: SwapRate

    def law(self) -> ShuffleLaw:
        return ShuffleLaw(rate=probability(self.rate, where="rate"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleLaw(ClassLaw):
    """Select records independently with probability ``rate`` and shuffle the swap values of the selected.

    >>> ShuffleLaw(rate=Fraction(1, 2)).stratum_audit((2, 2), (2, 1, 1)).exact_loss
    Exact('1/2*ln(8)')
    """

    name: ClassVar[str] = "shuffle"
    rests_on: ClassVar[str] = "R7, the shuffle swap (docs/theory/swapping-family.md)"
    passes: ClassVar[tuple[str, ...]] = ("selected",)
    by_sizes: ClassVar[bool] = True
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*ClassLaw.audited, ("abcd", "wxyz"))

    rate: Fraction

    def policy(self, strata: Strata, swap: Coded) -> Policy:
        formula = (
            f"-ln p* of the rarest swap value of each live stratum at rate {self.rate}; the hold margin, whose "
            "rarest value is usually a single record, is not used"
        )
        return Derived(formula=formula, value=self._loss(strata), varies=True)

    def _loss(self, strata: Strata) -> Exact:
        if not strata.live.any() or self.rate == 1:
            return ZERO
        if self.rate == 0:
            return INFINITE
        margins = strata.margins
        rarest = np.full(strata.count, np.iinfo(np.int64).max)
        np.minimum.at(rarest, margins.stratum, margins.count)
        # p* falls with the other records and rises with the value's own: only the extremes can decide.
        pairs: dict[int, int] = {}
        for count, records in zip(rarest[strata.live].tolist(), strata.records[strata.live].tolist(), strict=True):
            pairs[count] = max(pairs.get(count, 0), records)
        worst, reach = [], -1
        for count, records in sorted(pairs.items()):
            if records - count > reach:  # otherwise a rarer value in a larger rest costs more
                worst.append(margin_epsilon(count, self.rate, stratum=records))
                reach = records - count
        return largest(worst)

    def weights(self, n: int) -> list[Fraction]:
        return shuffle_weights(n, self.rate)

    def bound(self, hold: Sequence[int], swap: Sequence[int]) -> Exact:
        return shuffle_epsilon(hold, swap, self.rate)

    def moved(self, strata: Strata, swap: Coded) -> Shares:
        return shuffle_share(strata.records, np.full(strata.count, float(self.rate)))

    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        from stirred.mechanisms.records.kernels.selected import swap_in_place

        return partial(swap_in_place, rates=strata.kernel_rates, derange=False)


def shuffle_moved(records: int, rate: Fraction) -> tuple[Shares, Shares]:
    """Return the possible numbers of moved records and their chances, for the shuffle swap (R7).

    Of m selected records some keep their values by chance.

    >>> k, chance = shuffle_moved(2, Fraction(1, 2))
    >>> chance.tolist()
    [0.875, 0.0, 0.125]
    """
    p, n = float(rate), records
    spread = math.sqrt(n * p * (1 - p))
    low, high = max(0, int(n * p - SPREADS * spread) - 40), min(n, int(n * p + SPREADS * spread) + 40)
    selected = np.arange(low, high + 1)
    chance = binomial_weights(n, p, low, high)
    chance /= chance.sum()
    least = max(0, low - DERANGED)
    result = np.zeros(high - least + 1)
    for stay in range(min(DERANGED, high) + 1):
        moved = selected - stay
        kept = moved >= 0
        # Of m! permutations, C(m, stay) d(m - stay) leave so many in place.
        share = DERANGED_SHARES[np.minimum(moved[kept], DERANGED)] / math.factorial(stay)
        np.add.at(result, moved[kept] - least, chance[kept] * share)
    return np.arange(float(least), high + 1), result / result.sum()


class ShuffleSwap(RatedSwap):
    """Select records independently with probability ``rate`` and shuffle the swap values of the selected.

    A selected record may keep its value, and nothing is drawn again. The loss falls with the rate, down to 0
    at rate 1, and with the number of records that share the rarest swap value of a stratum.

    >>> import polars as pl
    >>> swap = ShuffleSwap(match=["size"], swap=["county"], rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> swap.plan(homes).specification.budget.realised
    Exact('ln(11/3)')
    """

    name: ClassVar[str] = "shuffle-swap"
    title: ClassVar[str] = "shuffle swapping"
    settings_model: ClassVar[type[SwapSettings]] = ShuffleSettings
    family: ClassVar[SwapFamily] = SwapFamily(
        scales=(MemberScale(name="shuffle"),), moved=shuffle_moved, stratum_settings={"rate": None}
    )

    swap_law: ShuffleLaw

    @property
    def in_words(self) -> str:
        return (
            f"Shuffle swapping: {', '.join(self.swap)} shuffled among {self.among} selected at a rate of "
            f"{self.swap_law.rate}; everything else is held."
        )


def shuffle_share(records: Shares | Positions, rate: Shares) -> Shares:
    """Return the expected share of moved records: of k selected records one keeps its place on average.

    >>> shuffle_share(np.array([2.0]), np.array([1.0])).tolist()
    [0.5]
    """
    return np.asarray((records * rate - 1 + (1 - rate) ** records) / records)


def shuffle_weights(n: int, rate: Fraction) -> list[Fraction]:
    """Return the probability of *each* permutation that moves exactly k of n records, for k = 0..n (R7).

    A permutation moving k records comes from every selection of m records that contains them.

    >>> shuffle_weights(2, Fraction(1, 2))
    [Fraction(7, 8), Fraction(0, 1), Fraction(1, 8)]
    """
    by_size = [rate**m * (1 - rate) ** (n - m) / math.factorial(m) for m in range(n + 1)]
    return [
        sum((math.comb(n - k, m - k) * by_size[m] for m in range(k, n + 1)), Fraction(0)) if k != 1 else Fraction(0)
        for k in range(n + 1)
    ]


_BITS = 160
# Up to here p* is an exact fraction.
_EXACT_MARGIN = 40


def shuffle_epsilon(hold: Sequence[int], swap: Sequence[int], rate: Number) -> Exact:
    """Return the bound of the shuffle swap on a stratum with these margins (R7); 0 if nothing can differ.

    >>> shuffle_epsilon((1, 1), (1, 1), "1/2"), shuffle_epsilon((1, 1), (2,), "1/2")
    (Exact('ln(3)'), Exact('0'))
    """
    p = probability(rate, where="rate")
    n = sum(hold)
    if n != sum(swap):
        raise wrong(f"margins of {n} and {sum(swap)} records", where="margins", remedy="both count the same records")
    if len(hold) < 2 or len(swap) < 2 or p == 1:
        return ZERO
    if p == 0:
        return INFINITE
    return margin_epsilon(max(min(hold), min(swap)), p, stratum=n)


def margin_epsilon(count: int, rate: Fraction, *, stratum: int) -> Exact:
    """Return -ln p* of one value that ``count`` of the records of a stratum have, rounded up.

    >>> margin_epsilon(1, Fraction(1, 2), stratum=9)  # for a single record p* is 1/(1 + n/o)
    Exact('ln(10)')
    """
    return -ln(_share_selected(count, stratum, rate / (1 - rate)))


def _share_selected(v: int, n: int, odds: Fraction) -> Fraction:
    """Return p*(v), or a fraction not above it where v is large."""
    others = n - v
    if v <= _EXACT_MARGIN:
        weight, total, moment = Fraction(1), Fraction(1), Fraction(0)
        for m in range(1, v + 1):
            weight *= (v - m + 1) * odds / (others + m)
            total, moment = total + weight, moment + m * weight
        return moment / (v * total)
    a, b = odds.numerator, odds.denominator
    # The ratio of neighbours (v-m)o/(others+m+1) falls with m, and passes 1 at the mode.
    mode = min(v, max(0, (v * a - (others + 1) * b) // (a + b) + 1))
    one = 1 << _BITS
    low_total, high_total, low_moment = one, one, mode * one
    for upwards in (True, False):
        low = high = one
        for m in range(mode, v) if upwards else range(mode, 0, -1):
            if upwards:
                top, bottom, after, left = (v - m) * a, (others + m + 1) * b, m + 1, v - m - 1
            else:
                top, bottom, after, left = (others + m) * b, (v - m + 1) * a, m - 1, m - 1
            low, high = low * top // bottom, -(-high * top // bottom)
            low_total, high_total, low_moment = low_total + low, high_total + high, low_moment + after * low
            if low == 0:
                high_total += left * high  # what follows is at most so many terms, none above this one
                break
    return Fraction(low_moment, v * high_total)
