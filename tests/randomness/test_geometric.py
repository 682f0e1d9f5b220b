"""Two-sided geometric noise: its digits make the exact law, what is drawn follows it, and near misses are caught.

False alarms: 1e-6 for each test.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from stirred.randomness.entropy import Entropy
from stirred.randomness.geometric import geometric, low_digits, two_sided_geometric

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
DRAWS = 200_000
DECAYS = [Fraction(1, 5), Fraction(1, 2), Fraction(3468, 4453), Fraction(99, 100)]


def edges(decay: Fraction) -> list[int]:
    """Where cells of a histogram end: about twenty on each side, as wide as the noise is."""
    width = max(1, int(1 / (1 - decay)) // 4)
    return [width * place for place in range(-20, 20)]


def at_most(decay: Fraction, last: int) -> Fraction:
    return decay**-last / (1 + decay) if last < 0 else 1 - decay ** (last + 1) / (1 + decay)


def law(decay: Fraction) -> list[Fraction]:
    """The probabilities of the cells: up to the first edge, between the edges, and beyond the last."""
    below = [Fraction(0), *(at_most(decay, last) for last in edges(decay)), Fraction(1)]
    return [high - low for low, high in pairwise(below)]


def binned(drawn: npt.NDArray[np.int64], decay: Fraction) -> npt.NDArray[np.int64]:
    return np.bincount(np.searchsorted(edges(decay), drawn), minlength=len(law(decay)))


@pytest.mark.parametrize("decay", DECAYS)
def test_independent_digits_and_what_lies_above_them_are_a_geometric_number(decay: Fraction) -> None:
    digits = low_digits(decay)
    above = decay ** (1 << digits)
    for number in range(3 << digits):
        chance = (1 - above) * above ** (number >> digits)
        for place in range(digits):
            odds = decay ** (1 << place)
            chance *= (odds if number >> place & 1 else 1) / (1 + odds)
        assert chance == (1 - decay) * decay**number


@pytest.mark.parametrize("decay", DECAYS)
def test_drawn_noise_follows_its_law(decay: Fraction, p_value: PValue) -> None:
    drawn = two_sided_geometric(decay, count=DRAWS, entropy=Entropy.from_seed(f"noise {decay}"), purpose="noise")
    assert p_value(binned(drawn, decay), law(decay)) > FALSE_ALARM


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)], ids=["too loud", "too quiet"])
def test_noise_of_a_slightly_wrong_loss_is_caught(decay: Fraction, factor: Fraction, p_value: PValue) -> None:
    """Power: the loss wrong by three parts in a hundred, in either direction."""
    other = Fraction(float(decay) ** float(factor)).limit_denominator(10**6)
    drawn = two_sided_geometric(other, count=DRAWS, entropy=Entropy.from_seed(f"near {decay}"), purpose="noise")
    assert p_value(binned(drawn, decay), law(decay)) < FALSE_ALARM


def test_a_sampler_that_gives_zero_two_signs_is_caught(p_value: PValue) -> None:
    """Power: a magnitude with a sign of its own counts 0 twice, the classical slip."""
    decay, entropy = Fraction(1, 2), Entropy.from_seed("two zeros")
    size = geometric(decay, count=DRAWS, entropy=entropy, purpose="size")
    sign = 1 - 2 * (geometric(decay, count=DRAWS, entropy=entropy, purpose="sign") % 2)
    assert p_value(binned(size * sign, decay), law(decay)) < FALSE_ALARM


def test_cells_are_independent_and_purposes_give_other_noise() -> None:
    entropy = Entropy.from_seed("cells")
    first = two_sided_geometric(Fraction(9, 10), count=DRAWS, entropy=entropy, purpose="a")
    other = two_sided_geometric(Fraction(9, 10), count=DRAWS, entropy=entropy, purpose="b")
    for one, two in ((first[1:], first[:-1]), (first, other)):
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / DRAWS**0.5
    again = two_sided_geometric(Fraction(9, 10), count=DRAWS, entropy=entropy, purpose="a")
    assert np.array_equal(first, again)


@pytest.mark.parametrize("decay", [Fraction(0), Fraction(1), Fraction(5, 4), 0.5])
def test_what_is_no_decay_is_refused(decay: Fraction) -> None:
    with pytest.raises(ValueError, match="is not a decay"):
        two_sided_geometric(decay, count=1, entropy=Entropy.from_seed(1), purpose="x")


def test_far_values_stay_possible() -> None:
    """At a loss of 1/100,000 the digits above the twelfth carry most of the number."""
    drawn = two_sided_geometric(Fraction(99_999, 100_000), count=20_000, entropy=Entropy.from_seed("far"), purpose="x")
    deviation = float(2 * Fraction(99_999, 100_000)) ** 0.5 * 100_000
    assert abs(drawn.std() / deviation - 1) < 0.05
    assert abs(drawn).max() > 500_000
