"""Randomness: where it comes from, and samplers whose laws are exact.

Nothing here rounds a probability. Importing this package does not load numba; the compiled samplers
are fetched when first used.
"""

from stirred.randomness.bernoulli import bernoulli, bernoulli_array
from stirred.randomness.derangements import derangement, derangement_number, random_derangement
from stirred.randomness.entropy import Entropy, Keystream, WordReader
from stirred.randomness.geometric import two_sided_geometric
from stirred.randomness.integers import below, integers_below, permutation, random_permutation

__all__ = [
    "Entropy",
    "Keystream",
    "WordReader",
    "below",
    "bernoulli",
    "bernoulli_array",
    "derangement",
    "derangement_number",
    "integers_below",
    "permutation",
    "random_derangement",
    "random_permutation",
    "two_sided_geometric",
]
