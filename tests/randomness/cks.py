"""The rejection method of Canonne, Kamath and Steinke (NeurIPS 2020), Algorithms 1 to 3, in integers of any length.

The oracle of the table, and of what draws noise that is too wide for one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.integers import below
from stirred.spec.exact import exp
from stirred.spec.shift_law import DiscreteGaussian, Noise


def sample(noise: Noise, words: Iterator[int]) -> int:
    """Return one whole number with this law, exactly."""
    if isinstance(noise, DiscreteGaussian):
        return gaussian(noise.variance, words)
    if noise.loss.is_rational:
        return laplace(noise.loss.rational, words)
    decay = exp(-noise.loss)
    if not decay.is_rational:
        raise ValueError(f"{noise} is neither of a rational loss nor of a rational decay")
    return two_sided(decay.rational, words)


def gaussian(variance: Fraction, words: Iterator[int]) -> int:
    """Return z with probability proportional to exp(-z^2/(2 variance)): Algorithm 3.

    >>> from stirred.randomness.entropy import Entropy
    >>> abs(gaussian(Fraction(9), Entropy.from_os().keystream("example").reader(0))) < 100
    True
    """
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        z = laplace(Fraction(1, scale), words)
        if exp_minus((abs(z) - variance / scale) ** 2 / (2 * variance), words):
            return z


def laplace(loss: Fraction, words: Iterator[int]) -> int:
    """Return z with probability proportional to exp(-loss |z|): Algorithm 2, with loss = s/t."""
    s, t = loss.as_integer_ratio()
    while True:
        u = below(t, words)
        if not exp_minus(Fraction(u, t), words):
            continue
        v = 0
        while exp_minus(Fraction(1), words):
            v += 1
        size = (u + t * v) // s
        negative = bernoulli(Fraction(1, 2), words)
        if not (negative and size == 0):
            return -size if negative else size


def two_sided(decay: Fraction, words: Iterator[int]) -> int:
    """Return z with probability proportional to decay**|z|, by coins of this probability alone."""
    while True:
        size = 0
        while bernoulli(decay, words):
            size += 1
        negative = bernoulli(Fraction(1, 2), words)
        if not (negative and size == 0):
            return -size if negative else size


def exp_minus(gamma: Fraction, words: Iterator[int]) -> bool:
    """Return True with probability exp(-gamma), for gamma from 0 on: Algorithm 1."""
    for _ in range(math.floor(gamma)):
        if not _exp_minus_part(Fraction(1), words):
            return False
    return _exp_minus_part(gamma - math.floor(gamma), words)


def _exp_minus_part(gamma: Fraction, words: Iterator[int]) -> bool:
    k = 1
    while bernoulli(gamma / k, words):
        k += 1
    return k % 2 == 1
