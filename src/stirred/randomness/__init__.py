"""Randomness: where it comes from, and samplers whose laws are exact.

Nothing here rounds a probability. Importing this package does not load numba; the compiled samplers
are fetched when first used.
"""

from stirred.randomness.bernoulli import bernoulli, bernoulli_array
from stirred.randomness.derangements import derangement, derangement_number, random_derangement
from stirred.randomness.entropy import Entropy, Keystream, WordReader
from stirred.randomness.geometric import two_sided_geometric
from stirred.randomness.integers import below, integers_below, permutation, random_permutation
from stirred.randomness.lattice import zero_margin_noise, zero_sum_noise
from stirred.randomness.noise import discrete_gaussian, discrete_laplace, integer_noise

__all__ = [
    "Entropy",
    "Keystream",
    "WordReader",
    "below",
    "bernoulli",
    "bernoulli_array",
    "derangement",
    "derangement_number",
    "discrete_gaussian",
    "discrete_laplace",
    "integer_noise",
    "integers_below",
    "permutation",
    "random_derangement",
    "random_permutation",
    "two_sided_geometric",
    "zero_margin_noise",
    "zero_sum_noise",
]
