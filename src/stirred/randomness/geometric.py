"""Two-sided geometric noise, also called discrete Laplace noise, by exact coin flips alone.

A geometric number has independent binary digits: with weights a**k on 0, 1, 2, ... the digit of 2**i is 1 with odds
a**(2**i), whatever the others are. So a few digits are flipped for all numbers at once. What is left above them is
geometric again, with the decay a**(2**digits), and is counted by flips until the first failure, without end: every
whole number is possible and has exactly its probability. The difference of two such numbers has weights a**|z|.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.bernoulli import bernoulli_array
from stirred.randomness.entropy import Entropy

# The decay is raised to 2**digits, and its numerator gets as many times longer.
_MOST_DIGITS: Final = 12


def two_sided_geometric(decay: Fraction, *, count: int, entropy: Entropy, purpose: str) -> npt.NDArray[np.int64]:
    """Return ``count`` independent whole numbers z, each with probability (1 - a)/(1 + a) * a**|z| for the decay a.

    Adding one to a number hidden under such noise changes the probability of no output by more than the factor 1/a.
    The same entropy and purpose give the same numbers.

    >>> noise = two_sided_geometric(Fraction(1, 5), count=1000, entropy=Entropy.from_os(), purpose="example")
    >>> bool((noise < 0).any() and (noise > 0).any())
    True
    """
    up, down = (geometric(decay, count=count, entropy=entropy, purpose=f"{purpose}/{way}") for way in ("up", "down"))
    return up - down


def geometric(decay: Fraction, *, count: int, entropy: Entropy, purpose: str) -> npt.NDArray[np.int64]:
    """Return ``count`` independent whole numbers k from 0 on, each with probability (1 - a) * a**k for the decay a."""
    digits = low_digits(decay)
    numbers = np.zeros(count, dtype=np.int64)
    for place in range(digits):
        odds = decay ** (1 << place)
        flips = bernoulli_array(odds / (1 + odds), count=count, entropy=entropy, purpose=f"{purpose}/digit {place}")
        numbers += flips.astype(np.int64) << place
    step, going, flip = decay ** (1 << digits), np.arange(count), 0
    while going.size:
        more = bernoulli_array(step, count=going.size, entropy=entropy, purpose=f"{purpose}/above {flip}")
        going = going[more]
        numbers[going] += 1 << digits
        flip += 1
    return numbers


def low_digits(decay: Fraction) -> int:
    """Return how many digits are flipped one by one: about so many as keep what is above them rare.

    >>> low_digits(Fraction(1, 5)), low_digits(Fraction(99, 100))
    (0, 7)
    """
    if not isinstance(decay, Fraction) or not 0 < decay < 1:
        raise ValueError(f"{decay!r} is not a decay. Write a Fraction between 0 and 1, such as Fraction(1, 5)")
    return min(int(1 / (1 - decay)).bit_length() if decay > Fraction(1, 2) else 0, _MOST_DIGITS)
