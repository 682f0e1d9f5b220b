"""Which mechanisms the package has, found by walking it, and the examples of each that are audited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from stirred import PermutationSwap
from stirred.mechanisms.protocol import Mechanism
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.flow_swap import FlowSwap
from stirred.mechanisms.swapping.gibbs import GibbsSwap
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.metric import MetricSwap
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.response_swap import ResponseSwap
from stirred.mechanisms.swapping.shuffle import ShuffleSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.two_stage import TwoStageSwap

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
DECLARED = {"x": "1/10", "y": "3/10", "z": "3/5"}
LINE: dict[str, dict[str, Any]] = {"x": {"y": 1, "z": 2}, "y": {"z": 1}}
STAR: dict[str, dict[str, Any]] = {"x": {"y": "3/2", "z": "5/2"}, "y": {"z": "2"}}
UNEVEN: dict[str, dict[str, Any]] = {
    "x": {"x": "1/3", "y": "1/2", "z": 2},
    "y": {"x": "1/4", "z": 3},
    "z": {"y": "2/3", "z": 2},
}

# Not mechanisms themselves: the protocol, and what the members of a family share. Nothing else is excused.
BASES: tuple[type, ...] = (Mechanism, Swap, FlowSwap)

# Rates that differ inside a stratum (R8): by hold value, by swap value, by both, and by several variables.
RULES: list[list[dict[str, str]]] = [
    [{"tenure": "rented", "rate": "1/2"}],
    [{"tenure": "rented", "rate": "9/10"}, {"tenure": "owned", "rate": "1/3"}],
    [{"county": "North", "rate": "4/5"}],
    [{"tenure": "rented", "county": "North", "rate": "2/3"}],
    [{"tenure": "rented", "rate": "1/2"}, {"county": "North", "rate": "9/10"}, {"size": "1", "rate": "0"}],
    [{"tenure": "rented", "rooms": "2", "rate": "1/2"}, {"county": "South", "rate": "1/4"}],
]

EXAMPLES: dict[type, list[Any]] = {
    PermutationSwap: [
        *(PermutationSwap(**ROLES, rate=rate) for rate in ("0", "1/100", "1/10", "1/2", "9/10", "1")),
        *(PermutationSwap(**ROLES, rate="1/10", rates=rules) for rules in RULES),
        *(PermutationSwap(**ROLES, rate=rate, imputed="flag") for rate in ("1/10", "1/2", "1")),
        PermutationSwap(**ROLES, rate="1/10", rates=RULES[0], imputed="flag"),
    ],
    ConditionedSwap: [
        ConditionedSwap(**ROLES, rate=rate, redraw_law=law)
        for rate in ("0", "1/10", "1/2", "9/10", "1")
        for law in ("uniform", "proportional", DECLARED)
    ],
    TwoStageSwap: [
        TwoStageSwap(**ROLES, fine_match=["tenure"], rate=coarse, fine_rate=fine)
        for coarse, fine in (("1/10", "1/2"), ("3/10", "3/10"), ("1/2", "0"), ("9/10", "1"), ("0", "1/2"))
    ],
    ResponseSwap: [
        ResponseSwap(**ROLES, respond=respond, values=values, rate=rate, change=change)
        for respond in ("county", "tenure")
        for values, rate, change in (
            ("xy", "1/4", "1/10"),
            ("xyz", "1/10", "1/2"),
            ("xy", "9/10", "9/10"),
            ("xy", "1/2", "0"),
            ("xy", "1", "1/3"),
        )
    ],
    MallowsSwap: [MallowsSwap(**ROLES, epsilon=epsilon) for epsilon in ("0", "1/2", "ln(3)", "4", "inf")],
    MetricSwap: [
        MetricSwap(**ROLES, epsilon=epsilon, distances=distances)
        for epsilon in ("0", "ln(4)", "3", "inf")
        for distances in (LINE, STAR, ["county"], [])
    ],
    GibbsSwap: [GibbsSwap(**ROLES, weights=weights) for weights in (LINE, STAR, UNEVEN)],
    NoisySwap: [
        NoisySwap(**ROLES, rate=rate, noise_epsilon=epsilon, tables=tables)
        for rate, epsilon, tables in (
            ("1/2", "1", [["county", "tenure"]]),
            ("1", "4*ln(5)", [["county", "tenure"], ["county"]]),
            ("1/10", "2*ln(2)", [["county", "size"]]),
            ("0", "1", [["county", "tenure"]]),
        )
    ],
    ShuffleSwap: [ShuffleSwap(**ROLES, rate=rate) for rate in ("0", "1/10", "1/2", "9/10", "1")],
}


def mechanisms_in(package: ModuleType) -> list[type]:
    """Return every class defined in a package and its subpackages that can release and promises something."""
    names = [package.__name__, *(found.name for found in walk_packages(package.__path__, f"{package.__name__}."))]
    classes = [(name, cls) for name in names for _, cls in getmembers(import_module(name), isclass)]
    return [
        cls
        for name, cls in classes
        if cls.__module__ == name and hasattr(cls, "release") and hasattr(cls, "specification") and cls not in BASES
    ]


def without_audit(mechanisms: Iterable[type], examples: Mapping[type, Sequence[Any]]) -> list[str]:
    """Return the mechanisms of which no instance is audited; one of a subclass does not stand in for it."""
    return [cls.__name__ for cls in mechanisms if not any(type(example) is cls for example in examples.get(cls, []))]
