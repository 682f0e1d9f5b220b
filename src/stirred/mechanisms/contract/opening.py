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
    UNSEARCHED,
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
    if plan is not None and not isinstance(plan, Plan):
        remedy = "give what mechanism.plan(data) returns, or leave plan out"
        raise bad_plan(f"{plan!r:.60} is not a plan", where="plan", remedy=remedy)
    plan = mechanism.plan(microdata) if plan is None else _believed(plan, mechanism, microdata)
    tested = entropy.seeded and plan.doubts == (SAMPLED,)
    doubts = plan_doubts(plan, settings_from=mechanism.settings_from)
    if plan.origin is None:  # the plan of a package that does not keep it
        doubts += (*exposed_doubts(plan_exposure(mechanism, microdata, plan), mechanism, microdata, plan),)
    accepted = () if tested else refuse_doubts(doubts, accept=accept)
    check_seeded(plan, seeded=entropy.seeded)
    entropy = entropy.for_release()
    promised = with_accepted(plan.specification, [each for each in accepted if each.name not in plan.accepted])
    return Opening(microdata, plan, entropy, replace(promised, seeded=entropy.seeded), like(data))


def _believed(plan: Any, mechanism: Any, data: Microdata) -> Any:
    """Return a plan that was given, if this mechanism made it for these data and it is as it was made.

    A release with another one would not keep the promise, or not face the doubts, that the plan states. A plan that
    keeps no seal, as of a package that does not make one, is made again.
    """
    origin = plan.origin
    if origin is None or origin.seal is None:
        return _made_again(plan, mechanism, data)
    if origin.mechanism != mechanism:
        other = "was made for another mechanism, or the same with other settings"
    elif not same_data(origin.data, data):
        other = "was made for other data"
    elif changed := plan.changed:
        other = f"is not as it was made: {changed} changed since, in a copy or in place"
    else:
        return plan
    raise _other(other)


def _made_again(plan: Any, mechanism: Any, data: Microdata) -> Any:
    """Return the plan as its mechanism makes it now, with the promise of the one given if that is no other."""
    again = mechanism.plan(data)
    given, made = _promise(plan), _promise(again)
    if type(plan) is not type(again) or given[:3] != made[:3] or given[3] not in (None, made[3]):
        raise _other("was made for another mechanism, or another file: it promises something else")
    if UNSEARCHED in plan.doubts or SAMPLED in plan.doubts:
        return plan
    return again.promising(plan.specification, accepted=plan.accepted)


def _promise(plan: Plan) -> tuple[Any, ...]:
    """Return what a plan promises, without what preparation and imputation added on the way to a release."""
    said = plan.specification
    fixed = None if said.domain.prepared else frozenset(said.multiverse.invariants)
    return said.budget, replace(said.input_premetric, post_imputation=None), said.output_premetric, fixed


def _other(words: str) -> Exception:
    remedy = "give what mechanism.plan(data) returns for these data, or leave plan out"
    return bad_plan(f"the plan {words}", where="plan", remedy=remedy)
