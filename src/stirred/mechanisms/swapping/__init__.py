"""Swapping: records exchange their swapping variables within strata of their matching variables.

The members of the family and what they share stand here; ``kernels`` has them on whole columns in compiled code,
``laws`` exactly on small strata and to draw from, ``moments`` their means and variances. Only ``kernels`` loads numba.
"""

from stirred.mechanisms.swapping.rates import StratumRates
from stirred.mechanisms.swapping.tally import SwapTally

__all__ = ["StratumRates", "SwapTally"]
