"""How a release begins: the plan of the file, the doubts about it, and randomness that is used this once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
from stirred.mechanisms.doubts import settings_doubts
from stirred.mechanisms.protocol import Mechanism
from stirred.randomness.entropy import Entropy
from stirred.spec.accepted import with_accepted
from stirred.spec.doubts import refuse_doubts
from stirred.spec.specification import Specification


class Opening(NamedTuple):
    """What a draw starts from: file, plan, randomness, and the promise with the doubts that were accepted."""

    data: Microdata
    plan: Any
    entropy: Entropy
    specification: Specification


def opened(mechanism: Mechanism, data: Any, entropy: Entropy, *, accept: Sequence[str], plan: Any) -> Opening:
    """Return what a draw starts from; refuse doubts that nobody accepted, and randomness that made a release."""
    Entropy.expected(entropy)
    microdata = as_microdata(data)
    plan = plan or mechanism.plan(microdata)
    doubts = dict.fromkeys((*settings_doubts(mechanism.settings_from), *plan.doubts))
    accepted = refuse_doubts(doubts, accept=accept)
    entropy = entropy.for_release()
    promised = with_accepted(plan.specification, [each for each in accepted if each.name not in plan.accepted])
    return Opening(microdata, plan, entropy, replace(promised, seeded=entropy.seeded))
