"""How a release begins: the plan of the file, the doubts about it, and randomness that is used this once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stirred.data.given import as_microdata, like, same_data
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.contract.plan import (
    SAMPLED,
    Plan,
    check_seeded,
    plan_doubts,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.accepted import with_accepted
from stirred.spec.doubts import refuse_doubts
from stirred.spec.specification import Specification


class Opening(NamedTuple):
    """What a draw starts from: file, plan, randomness, and the promise with the doubts that were accepted.

    ``convert`` makes a released frame one of the caller's kind.
    """

    data: Microdata
    plan: Any
    entropy: Entropy
    specification: Specification
    convert: Callable[[Any], Any]


def opened(mechanism: Any, data: Any, entropy: Entropy, *, accept: str | Sequence[str] | None, plan: Any) -> Opening:
    """Return what a draw starts from; refuse doubts that were not accepted, and randomness that made a release.

    A plan for sampling has no doubts to refuse, and draws with a seed alone.
    """
    Entropy.expected(entropy)
    microdata = as_microdata(data)
    plan = mechanism.plan(microdata) if plan is None else plan
    if problem := _not_believed(plan, mechanism, microdata):
        raise bad_plan(
            problem, where="plan", remedy="give what mechanism.plan(data) returns for these data, or leave plan out"
        )
    tested = entropy.seeded and plan.doubts == (SAMPLED,)
    accepted = () if tested else refuse_doubts(plan_doubts(plan), accept=accept)
    check_seeded(plan, seeded=entropy.seeded)
    entropy = entropy.for_release()
    promised = with_accepted(plan.specification, [each for each in accepted if each.name not in plan.accepted])
    return Opening(microdata, plan, entropy, replace(promised, seeded=entropy.seeded), like(data))


def _not_believed(plan: Any, mechanism: Any, data: Microdata) -> str:
    """Say why a plan is not the one that this mechanism made for these data; empty where it is, as it was made.

    A release with another one would not keep the promise, or not face the doubts, that the plan states.
    """
    if not isinstance(plan, Plan):
        return f"{plan!r:.60} is not a plan"
    origin = plan.origin
    if origin is None or origin.seal is None:
        return "the plan keeps no note of who made it for which data: Mechanism.plan adds it to what draft returns"
    if origin.mechanism != mechanism:
        return "the plan was made for another mechanism, or the same with other settings"
    if not same_data(origin.data, data):
        return "the plan was made for other data"
    changed = plan.changed
    return changed and f"the plan is not as it was made: {changed} changed since, in a copy or in place"
