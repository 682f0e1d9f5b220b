"""The five building blocks of a DP specification and their algebra.

Pure Python and exact arithmetic; this room imports nothing else of the house and knows no data file.
"""

from stirred.spec.budget import Budget
from stirred.spec.compare import Comparison, compare
from stirred.spec.compose import UnitFactor, compose
from stirred.spec.convert import change_distance, change_unit, post_process, refine, to_distance, to_neighbours
from stirred.spec.derivation import Derivation, DerivationStep
from stirred.spec.domain import Domain
from stirred.spec.exact import INFINITE, Exact, exact, ln, sqrt
from stirred.spec.explain import explain
from stirred.spec.group_privacy import to_metric
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.implication import Implication, completion, components, factor, implies, may_tell_budget
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import ALL, Inequality, Invariant, Margin, Named
from stirred.spec.law import Law
from stirred.spec.lint import lint
from stirred.spec.loss import protection_loss
from stirred.spec.multiverse import Multiverse, Refines, Verdict
from stirred.spec.output_premetric import (
    CHI_SQUARED,
    GDP,
    HELLINGER,
    KULLBACK_LEIBLER,
    PURE,
    TOTAL_VARIATION,
    WASSERSTEIN,
    ZCDP,
    OutputPremetric,
    approximate,
    trade_off,
)
from stirred.spec.output_rules import change_output
from stirred.spec.price import Price, noise_price, price
from stirred.spec.problems import ConversionRefusedError, Problem, SpecificationError, StirredError
from stirred.spec.pull_back import pull_back
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, ShiftLaw
from stirred.spec.specification import Flavor, Specification
from stirred.spec.staged_law import Staged, StagedLaw
from stirred.spec.tradeoff import TradeOff, blackwell

__all__ = [
    "ALL",
    "CHI_SQUARED",
    "GDP",
    "HELLINGER",
    "INFINITE",
    "KULLBACK_LEIBLER",
    "PURE",
    "TOTAL_VARIATION",
    "WASSERSTEIN",
    "ZCDP",
    "Budget",
    "Comparison",
    "ConversionRefusedError",
    "Derivation",
    "DerivationStep",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Domain",
    "Exact",
    "Flavor",
    "Hierarchy",
    "Implication",
    "Inequality",
    "InputPremetric",
    "Invariant",
    "Law",
    "Margin",
    "Multiverse",
    "Named",
    "OutputPremetric",
    "Price",
    "Problem",
    "Refines",
    "ShiftLaw",
    "Specification",
    "SpecificationError",
    "Staged",
    "StagedLaw",
    "StirredError",
    "TradeOff",
    "UnitFactor",
    "Verdict",
    "approximate",
    "blackwell",
    "change_distance",
    "change_output",
    "change_unit",
    "compare",
    "completion",
    "components",
    "compose",
    "exact",
    "explain",
    "factor",
    "implies",
    "lint",
    "ln",
    "may_tell_budget",
    "noise_price",
    "post_process",
    "price",
    "protection_loss",
    "pull_back",
    "refine",
    "sqrt",
    "to_distance",
    "to_metric",
    "to_neighbours",
    "trade_off",
]
