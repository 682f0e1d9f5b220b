"""Randomised response on one column of codes: another value, each equally likely, with a given probability.

Whether a record changes is decided by exact coin flips, and to which of the other values by exact draws, both on whole
columns; ``reference.response_reference`` is the plain Python twin, equal bit for bit. ``addressing`` says which random
words decide what. Which records changed, and how many, is as confidential as the input.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stirred.data.codes import Codes
from stirred.mechanisms.swapping.kernels import addressing
from stirred.randomness.bernoulli import bernoulli_array
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import integers_below


def respond(codes: Codes, *, values: int, change: Fraction, entropy: Entropy) -> Codes:
    """Return the codes after a randomised response over ``values`` values, for each record independently.

    >>> truth = np.zeros(6, dtype=np.uint32)
    >>> respond(truth, values=2, change=Fraction(1), entropy=Entropy.from_os()).tolist()
    [1, 1, 1, 1, 1, 1]
    >>> set(respond(truth, values=3, change=Fraction(1), entropy=Entropy.from_os()).tolist()) <= {1, 2}
    True
    """
    changes = bernoulli_array(change, count=codes.size, entropy=entropy, purpose=addressing.RESPOND)
    rows = np.flatnonzero(changes)
    others = integers_below(values - 1, count=rows.size, entropy=entropy, purpose=addressing.RESPOND_OTHER)
    answered = codes.copy()
    # The other values in order: those from the own one on move up by one place.
    answered[rows] = others + (others >= codes[rows])
    return answered
