"""How a release begins: the plan of the file, the doubts about it, and randomness that is used this once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stirred.data.given import as_microdata, same_data
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import (
    SAMPLED,
    Mechanism,
    Plan,
    check_seeded,
    exposed_doubts,
    plan_doubts,
    plan_exposure,
)
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


def opened(
    mechanism: Mechanism, data: Any, entropy: Entropy, *, accept: str | Sequence[str] | None, plan: Any
) -> Opening:
    """Return what a draw starts from; refuse doubts that were not accepted, and randomness that made a release.

    A plan for sampling has no doubts to refuse, and draws with a seed alone.
    """
    Entropy.expected(entropy)
    microdata = as_microdata(data)
    own = plan is None
    if not own and not isinstance(plan, Plan):
        remedy = "give what mechanism.plan(data) returns, or leave plan out"
        raise bad_plan(f"{plan!r:.60} is not a plan", where="plan", remedy=remedy)
    if own:
        plan = mechanism.plan(microdata)
    else:
        _check_origin(plan, mechanism, microdata)
    tested = entropy.seeded and plan.doubts == (SAMPLED,)
    doubts = plan_doubts(plan, settings_from=mechanism.settings_from)
    if own and plan.origin is None:  # the plan of a package that does not keep it
        doubts += (*exposed_doubts(plan_exposure(mechanism, microdata, plan), mechanism, microdata, plan),)
    accepted = () if tested else refuse_doubts(doubts, accept=accept)
    check_seeded(plan, seeded=entropy.seeded)
    entropy = entropy.for_release()
    promised = with_accepted(plan.specification, [each for each in accepted if each.name not in plan.accepted])
    return Opening(microdata, plan, entropy, replace(promised, seeded=entropy.seeded))


def _check_origin(plan: Any, mechanism: Mechanism, data: Microdata) -> None:
    """Refuse a plan of another mechanism or of other data: its promise and its doubts are not those of the release."""
    origin = plan.origin
    if origin is None:
        if type(plan).origin is None:
            return  # the plan of a package that does not keep it
        other = "nothing that is known"
    elif origin.mechanism != mechanism:
        other = "another mechanism, or the same with other settings"
    elif not same_data(origin.data, data):
        other = "other data"
    else:
        return
    raise bad_plan(
        f"the plan was made for {other}",
        where="plan",
        remedy="give what mechanism.plan(data) returns for these data, or leave plan out",
    )
