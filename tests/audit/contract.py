"""Which mechanisms the package has, found by walking it, and the examples of each that are audited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from stirred import PermutationSwap
from stirred.mechanisms.plain import PlainMechanism
from stirred.mechanisms.protocol import Mechanism
from stirred.mechanisms.records.engine import RatedSwap, RecordSwap, Swap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.mechanisms.records.pairs.engine import PairSwap
from stirred.mechanisms.records.pairs.pairwise2010 import PairwiseSwap
from stirred.mechanisms.records.pairs.targeted import TargetedSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.cellkey.promise import CellKeyPromise
from stirred.mechanisms.tables.engine import TableMechanism
from stirred.mechanisms.tables.noise.earlier import NoisySwap, NoisySwapSettings
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.mechanisms.tables.safetab.groups import SafeTab
from stirred.mechanisms.tables.safetab.households import SafeTabH
from stirred.mechanisms.tables.safetab.persons import SafeTabP
from stirred.mechanisms.tables.tabulator import Tabulator
from stirred.mechanisms.topdown.mechanism import TopDown
from tests.mechanisms.tables.making import one_table, toy_h, toy_p

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
SUM: dict[str, Any] = {"column": "income", "by": ["a"], "low": -2, "high": 3}
DECLARED = {"x": "1/10", "y": "3/10", "z": "3/5"}
TABLES_WITH_NOISE: list[dict[str, Any]] = [
    {"rho": "1/2"},
    {"noise": "laplace", "epsilon": 1},
    {"rho": 1, "shares": {"a x b": 1, "b": "7/2"}},
    {"noise": "geometric", "epsilon": "1/3", "shares": {"a x b": 1, "b": 3}},
    {"rho": 1, "sums": [SUM]},
    {"noise": "laplace", "epsilon": 1, "tables": [], "sums": [SUM, {**SUM, "by": []}]},
    {"rho": 2, "persons": 3, "sums": [SUM]},
    {"noise": "laplace", "epsilon": 2, "persons": 2},
    {"precision": [{"table": "a x b", "within": 5}, {"table": "b", "within": 3, "jointly": True}]},
    {"rho": 1, "keep": ["total"]},
    {"noise": "laplace", "epsilon": 1, "tables": [["a", "b", "c"], ["b"]], "keep": ["a"]},
    {"rho": 1, "tables": [["a", "b"]], "keep": ["a", "b"]},
    {"noise": "laplace", "epsilon": 1, "tables": [["a", "b"]], "keep": ["a", "b"]},
]

# Not mechanisms themselves: the protocol, and what the members of a family share. Nothing else is excused.
BASES: tuple[type, ...] = (
    Mechanism,
    TableMechanism,
    PlainMechanism,
    Swap,
    RatedSwap,
    Tabulator,
    SafeTab,
    RecordSwap,
    PairSwap,
    CellKeyPromise,
    NoisePromise,
)

# Rates that differ inside a stratum (R8): by hold value, by swap value, by both, and by several variables.
RULES: list[list[dict[str, str]]] = [
    [{"tenure": "rented", "rate": "1/2"}],
    [{"tenure": "rented", "rate": "9/10"}, {"tenure": "owned", "rate": "1/3"}],
    [{"county": "North", "rate": "4/5"}],
    [{"tenure": "rented", "county": "North", "rate": "2/3"}],
    [{"tenure": "rented", "rate": "1/2"}, {"county": "North", "rate": "9/10"}, {"size": "1", "rate": "0"}],
    [{"tenure": "rented", "rooms": "2", "rate": "1/2"}, {"county": "South", "rate": "1/4"}],
]

FOUR_KEYS = {"keys": 4, "rows": {str(n): {"-1": 1, "0": 2, "1": 1} for n in (1, 2)}}

EXAMPLES: dict[type, list[Any]] = {
    PairwiseSwap: [
        PairwiseSwap(
            state="state",
            geography=["county", "block"],
            adults="adults",
            minors="minors",
            tenure="tenure",
            unique_on=["size"],
            unique_in="county",
            by_block_size={"5": "1/10"},
            race="race",
            unique_race="1/2",
            cap=1,
        )
    ],
    TargetedSwap: [
        TargetedSwap(hierarchy=["county"], similar=["size"], risk_variables=["tenure"], k_anonymity=2, swaprate=0),
        TargetedSwap(hierarchy=["county"], similar=["size"], k_anonymity=0, swaprate="1/2"),
    ],
    CellKey: [
        CellKey(ptable=FOUR_KEYS, tables=tables, epsilon="ln(2)", **how)
        for tables, how in (
            ([["x"]], {"zeros": "fixed"}),
            ([["x"]], {}),
            ([["x"], ["y"]], {"keyed_by": "definition"}),
            ([["x"], ["x", "y"]], {"threshold": 2}),
            ([["county", "tenure"]], {"after": {**ROLES, "rate": "1/2"}}),
        )
    ],
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
        ResponseSwap(**ROLES, respond=respond, values=[*values], rate=rate, change=change)
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
    NoisySwap: [
        NoisySwap(NoisySwapSettings(**ROLES, rate=rate, noise_epsilon=epsilon), tables=tables)
        for rate, epsilon, tables in (
            ("1/2", "1", [["county", "tenure"]]),
            ("1", "4*ln(5)", [["county", "tenure"], ["county"]]),
        )
    ],
    NoisyTables: [NoisyTables(**{"tables": [["a", "b"], ["b"]], **settings}) for settings in TABLES_WITH_NOISE],
    ShuffleSwap: [ShuffleSwap(**ROLES, rate=rate) for rate in ("0", "1/10", "1/2", "9/10", "1")],
    TopDown: [
        TopDown(levels=levels, attributes=["sex"], values={"sex": ["m", "f"]}, rho=rho, totals=totals)
        for levels, rho, totals in (
            (["ward"], 1, []),
            (["region", "ward"], "1/2", ["region"]),
            (["region", "district", "ward"], "3/2", ["all", "region"]),
        )
    ],
    SafeTabP: [toy_p(promise=promise) for promise in ("replace", "add-remove")],
    SafeTabH: [toy_h(promise=promise) for promise in ("replace", "add-remove")],
    PHSafe: [
        one_table(2, name="PH2"),
        *(PHSafe(states=["S"], promise=promise) for promise in ("replace", "add-remove")),
    ],
}

# Settings between others, on which the same code runs again: `make audit` is enough.
BETWEEN: dict[type, set[int]] = {
    PermutationSwap: {1, 4, 7, 9, 11},
    TwoStageSwap: {1, 3},
    ResponseSwap: {2, 7},
    ShuffleSwap: {1, 3},
    SafeTabH: {1},
}


def mechanisms_in(package: ModuleType) -> list[type]:
    """Return every class defined in a package and its subpackages that can plan and release."""
    names = [package.__name__, *(found.name for found in walk_packages(package.__path__, f"{package.__name__}."))]
    classes = [(name, cls) for name in names for _, cls in getmembers(import_module(name), isclass)]
    return [
        cls
        for name, cls in classes
        if cls.__module__ == name and hasattr(cls, "release") and hasattr(cls, "plan") and cls not in BASES
    ]


def without_audit(mechanisms: Iterable[type], examples: Mapping[type, Sequence[Any]]) -> list[str]:
    """Return the mechanisms of which no instance is audited; one of a subclass does not stand in for it."""
    return [cls.__name__ for cls in mechanisms if not any(type(example) is cls for example in examples.get(cls, []))]
