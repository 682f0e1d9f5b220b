"""Exact coin flips: an event of rational probability, decided by integers alone.

A uniform number U in [0, 1) is read digit by digit in base 2**32 and compared with the digits of the
rate. The first digit that differs decides. A digit that agrees (probability 2**-32) leaves the
matter open and the next word is read, without end: no rate is rounded, however long its digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import BUFFER_WORDS, WORD_BITS, Entropy

# No 32-bit word equals this, so a rate that ends after one digit can never tie.
NO_TIE: Final = 1 << 33


def bernoulli(rate: Fraction, words: Iterable[int]) -> bool:
    """Return True with probability exactly ``rate``, reading one word and more only after a tie.

    ``words`` yields independent uniform 32-bit integers. Rates 0 and 1 need no special case: their
    first digits are 0 and 2**32, below and above which lie no words and all words.

    >>> bernoulli(Fraction(1, 2), [2**31 - 1]), bernoulli(Fraction(1, 2), [2**31])
    (True, False)
    >>> third = (2**32 - 1) // 3  # every digit of 1/3
    >>> bernoulli(Fraction(1, 3), [third, third, third - 1])
    True
    """
    remainder, denominator = require_probability(rate).as_integer_ratio()
    for word in words:
        digit, remainder = divmod(remainder << WORD_BITS, denominator)
        # With nothing left of the rate, U is at least the rate unless this word is smaller.
        if word != digit or remainder == 0:
            return word < digit
    raise RuntimeError("the words ran out before the comparison was decided")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The first digit of a rate, as bulk code compares it.

    A word below ``digit`` is a success. A word equal to ``tie`` is undecided and must go to
    ``bernoulli`` with further words. Any other word is a failure.

    >>> Threshold.of(Fraction(1, 4)) == Threshold(digit=2**30, tie=NO_TIE)
    True
    >>> Threshold.of(Fraction(1, 2**40))
    Threshold(digit=0, tie=0)
    """

    digit: int
    tie: int

    @classmethod
    def of(cls, rate: Fraction) -> Threshold:
        """Return the threshold of a rate from 0 to 1."""
        numerator, denominator = require_probability(rate).as_integer_ratio()
        digit, remainder = divmod(numerator << WORD_BITS, denominator)
        return cls(digit=digit, tie=digit if remainder else NO_TIE)


def bernoulli_array(rate: Fraction, *, count: int, entropy: Entropy, purpose: str) -> npt.NDArray[np.bool_]:
    """Return ``count`` independent events of probability exactly ``rate``.

    Event ``i`` is decided by word ``i`` of its chunk of ``BUFFER_WORDS`` and, after a tie, by the words
    of its own stream (of purpose ``{purpose}/ties``). ``bernoulli`` on the same words is the oracle. The
    same entropy and purpose give the same events.

    >>> sure = bernoulli_array(Fraction(1), count=5, entropy=Entropy.from_os(), purpose="example")
    >>> sure.tolist()
    [True, True, True, True, True]
    """
    threshold = Threshold.of(rate)
    selection = entropy.keystream(purpose)
    ties = entropy.keystream(f"{purpose}/ties")
    events = np.empty(count, dtype=np.bool_)
    buffer = np.empty(min(count, BUFFER_WORDS), dtype=np.uint32)
    for start in range(0, count, BUFFER_WORDS):
        words = buffer[: min(BUFFER_WORDS, count - start)]
        selection.fill(start // BUFFER_WORDS, words)
        part = events[start : start + words.size]
        # Compared as 64-bit integers: the digit of rate 1 is 2**32.
        np.less(words, np.uint64(threshold.digit), out=part)
        for tied in np.flatnonzero(words == np.uint64(threshold.tie)).tolist():
            part[tied] = bernoulli(rate, chain([int(words[tied])], ties.reader(start + tied)))
    return events


def require_probability(rate: Fraction) -> Fraction:
    """Return ``rate``, or refuse it: a float is not exact, and a probability lies in [0, 1]."""
    if not isinstance(rate, Fraction | int):
        raise TypeError(f"rate {rate!r} is not exact. Write a Fraction, such as Fraction(1, 20)")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate {rate} is not a probability. Write a fraction from 0 to 1, such as 1/20")
    return Fraction(rate)
