"""Swapping: records exchange their swapping variables within strata of their matching variables.

The compiled kernels live in ``kernel`` (``swap_in_place``) and ``order`` (``release_order``) and load
numba when imported; nothing here does.
"""

from stirred.mechanisms.swapping.rates import StratumRates
from stirred.mechanisms.swapping.tally import SwapTally

__all__ = ["StratumRates", "SwapTally"]
