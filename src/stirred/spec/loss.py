"""The loss a mechanism really has: the supremum over all pairs of a universe, by enumeration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.output_premetric import Between
from stirred.spec.specification import Flavor
from stirred.spec.staged_law import OutputLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class UniverseLoss:
    """The protection loss in one universe (Definition 2.4.5), and the pair of datasets that attains it.

    ``loss`` is the Lipschitz constant itself, so for zCDP it is rho and not its square.
    """

    universe: frozenset[Hashable]
    loss: Between
    witness: tuple[Hashable, Hashable] | None


def protection_loss(flavor: Flavor, laws: Mapping[Any, OutputLaw]) -> list[UniverseLoss]:
    """Return the exact loss of a finite mechanism in every universe of the flavor.

    ``laws`` gives the output law of each dataset of the domain. *All* ordered pairs count: under
    invariants there may be no neighbours at distance 1. Pairs at infinite distance are not compared;
    a pair at distance 0 must have equal laws.
    """
    universes = flavor.multiverse.universes_of(laws)
    return [_universe_loss(flavor, laws, universe) for universe in universes]


def _universe_loss(flavor: Flavor, laws: Mapping[Any, OutputLaw], universe: frozenset[Hashable]) -> UniverseLoss:
    low, high, witness = ZERO, ZERO, None
    for x, y in permutations([dataset for dataset in laws if dataset in universe], 2):
        apart = flavor.input_premetric.distance(x, y)
        if apart.is_infinite:
            continue
        change = flavor.output_premetric.distance(laws[x], laws[y])
        rate = Between(_per(change.low, apart), _per(change.high, apart))
        if rate.high > high:
            witness = (x, y)
        low, high = largest([low, rate.low]), largest([high, rate.high])
    return UniverseLoss(universe=universe, loss=Between(low, high), witness=witness)


def _per(change: Exact, apart: Exact) -> Exact:
    if change == 0:
        return ZERO
    return INFINITE if apart == 0 or change.is_infinite else change / apart
