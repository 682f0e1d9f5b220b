"""The swapping family by name, as plans and the command line know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.gibbs import GibbsSwap
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.metric import MetricSwap
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.response_swap import ResponseSwap
from stirred.mechanisms.swapping.shuffle import ShuffleSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.two_stage import TwoStageSwap
from stirred.spec.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member: its class, and the settings it needs and knows."""

    swap: type[Swap]
    needs: tuple[str, ...]
    knows: tuple[str, ...] = ()


FAMILY: Final[dict[str, Member]] = {
    "permutation-swap": Member(swap=PermutationSwap, needs=("rate",), knows=("rates", "imputed")),
    "conditioned-swap": Member(swap=ConditionedSwap, needs=("rate",), knows=("redraw_law",)),
    "mallows-swap": Member(swap=MallowsSwap, needs=("epsilon",)),
    "shuffle-swap": Member(swap=ShuffleSwap, needs=("rate",)),
    "two-stage-swap": Member(swap=TwoStageSwap, needs=("rate", "fine_match", "fine_rate"), knows=("rates",)),
    "metric-swap": Member(swap=MetricSwap, needs=("epsilon", "distances")),
    "gibbs-swap": Member(swap=GibbsSwap, needs=("weights",)),
    "noisy-swap": Member(swap=NoisySwap, needs=("rate", "noise_epsilon", "tables"), knows=("rates", "noise")),
    "response-swap": Member(swap=ResponseSwap, needs=("rate", "respond", "values", "change"), knows=("rates",)),
}
_EXAMPLES: Final = {
    "rate": "'1/20'",
    "epsilon": "2",
    "fine_match": "['tenure']",
    "fine_rate": "'1/2'",
    "distances": "'distances.csv'",
    "weights": "'weights.csv'",
    "noise_epsilon": "1",
    "tables": "[[tables]] variables = ['county', 'tenure']",
    "respond": "'tenure'",
    "values": "['owned', 'rented']",
    "change": "'1/10'",
}


def unknown_settings(name: str, settings: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each setting that was given and that the member of this name does not have.

    >>> print(*unknown_settings("mallows-swap", {"rate": "5%", "epsilon": 2}))
    rate: the mallows swap has no rate. Mend: leave it out; it takes "epsilon".
    """
    takes = [*FAMILY[name].needs, *FAMILY[name].knows]
    remedy = f"leave it out; it takes {listed(takes)}"
    return [
        Problem(what=f"the {name.replace('-', ' ')} has no {key}", where=key, remedy=remedy)
        for key, value in settings.items()
        if value is not None and value != [] and key not in takes
    ]


def swap_named(name: str, settings: Mapping[str, Any], **roles: Any) -> Swap:
    """Return the member of this name; settings that are None or empty were not given.

    >>> swap_named("mallows-swap", {"epsilon": 2, "rate": None}, match=["size"], swap=["county"]).in_words[:16]
    'Mallows swapping'
    """
    member = FAMILY.get(name)
    if member is None:
        raise bad_plan(f"there is no swap called '{name}'", where="name", remedy=f"write one of {listed([*FAMILY])}")
    given = {key: value for key, value in settings.items() if value is not None and value != []}
    problems = unknown_settings(name, given)
    problems += [
        Problem(what="is needed", where=key, remedy=f"add {key}, such as {_EXAMPLES[key]}")
        for key in member.needs
        if key not in given
    ]
    if problems:
        raise PlanError(problems)
    return member.swap(**roles, **given)
