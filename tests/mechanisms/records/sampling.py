"""Releases of toy files on which the law of a swap is tested: so regular that they would be refused for doubts."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from stirred.mechanisms.protocol import Release, for_sampling
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.laws.permutation import PermutationLaw
from stirred.mechanisms.records.plan import SwapPlan
from stirred.randomness.entropy import Entropy


def planned(swap: Swap, data: Any) -> SwapPlan:
    """Return a plan whose doubts were taken out; what is tested here is the sampler.

    The exact loss of small strata is left out too: it is a sentence of the plan, and takes longer than the draw.
    """
    with patch.object(PermutationLaw, "own_loss", lambda *_, **__: None):
        return for_sampling(swap.plan(data, doubts=False))


def swapped(swap: Swap, data: Any, entropy: Entropy) -> Release:
    """Draw from a file by such a plan: with a seed, for nothing else draws by it."""
    seeded = entropy if entropy.seeded else Entropy.from_seed(entropy.kept.hex())
    return swap.release(data, seeded, plan=planned(swap, data))
