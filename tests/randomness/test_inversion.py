"""Inversion gives every outcome exactly its share of the unit interval, however small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, repeat

import pytest

from stirred.randomness.inversion import Weights


def binomial(n: int, top: int, bottom: int, *, near: int) -> Weights:
    return Weights(low=0, high=n, near=near, ratio=lambda g: ((n - g) * top, (g + 1) * bottom))


def outcome_at(point: Fraction, law: list[Fraction]) -> int:
    """The outcome into whose step the point falls, by fractions."""
    total = Fraction(0)
    for outcome, chance in enumerate(law):
        total += chance
        if point < total:
            return outcome
    raise AssertionError("the point is not below 1")


def words_of(point: Fraction, *, count: int) -> Iterator[int]:
    """The binary digits of a number in words of 32 bits; then words of ones."""
    digits = math.floor(point * 2 ** (32 * count))
    words = [digits >> 32 * (count - 1 - place) & 0xFFFF_FFFF for place in range(count)]
    return chain(words, repeat(0xFFFF_FFFF))


@pytest.mark.parametrize("near", [0, 3, 9, 20])
def test_points_on_both_sides_of_every_step_fall_where_they_should(near: int) -> None:
    """Steps are at fractions whose digits never end: a thousandth of a word on either side decides."""
    n = 20
    law = [Fraction(math.comb(n, g) * 3**g, 10**n) * 7 ** (n - g) for g in range(n + 1)]
    weights = binomial(n, 3, 7, near=near)
    step = Fraction(0)
    for chance in law[:-1]:
        step += chance
        for nudge in (Fraction(-1, 2**70), Fraction(-1, 2**200), Fraction(1, 2**200), Fraction(1, 2**70)):
            point = step + nudge
            # Cut to 256 bits and continued by ones, the point stays on its side of the step.
            assert weights.draw(words_of(point, count=8)) == outcome_at(point, law)


def test_outcomes_far_beyond_the_first_digits_are_reached() -> None:
    """Of 4,000 coins none falls heads with probability 2**-4000: only after 125 words of zeros."""
    weights = binomial(4000, 1, 1, near=2000)
    assert weights.draw(chain(repeat(0, 125), repeat(1 << 31))) == 0
    assert weights.draw(chain(repeat(0, 120), repeat(1 << 31))) > 0
    assert weights.draw(repeat(0xFFFF_FFFF, 10_000)) == 4000


def test_a_factor_can_forbid_an_outcome() -> None:
    def factor(g: int, bits: int) -> tuple[int, int]:
        return (0, 0) if g == 1 else (1 << bits, 1 << bits)

    weights = Weights(low=0, high=2, near=1, ratio=lambda g: (2 - g, g + 1), factor=factor)  # 1, 0, 1
    assert [weights.draw(words_of(Fraction(k, 10), count=2)) for k in range(1, 10) if k != 5] == [0] * 4 + [2] * 4


def test_an_enclosure_of_all_weights_is_an_enclosure() -> None:
    for bits in (20, 96):
        low, high = binomial(10, 1, 1, near=5).total(bits)
        assert low <= Fraction(2**10, math.comb(10, 5)) * 2**bits <= high <= low + 40
