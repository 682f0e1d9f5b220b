"""The five building blocks of a DP specification and their algebra.

Pure Python and exact arithmetic; this room imports nothing else of the house and knows no data file. A name is imported
when it is first used. What is not listed here stands in its module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# At once, because the module has the name of its function.
from stirred.spec.exact import INFINITE, Exact, exact, ln

if TYPE_CHECKING:
    from stirred.spec.budget import Budget
    from stirred.spec.comparison import compare
    from stirred.spec.composition import UnitFactor, compose
    from stirred.spec.convert import change_distance, change_unit, pull_back, refine, to_neighbours
    from stirred.spec.domain import Domain
    from stirred.spec.explanation import explain
    from stirred.spec.findings import lint
    from stirred.spec.implication import completion, implies, may_tell_budget
    from stirred.spec.input_premetric import InputPremetric
    from stirred.spec.invariant import ALL, Inequality, Invariant, Margin, Named
    from stirred.spec.law import Law
    from stirred.spec.multiverse import Hierarchy, Multiverse, Verdict
    from stirred.spec.output_premetric import (
        GDP,
        PURE,
        TOTAL_VARIATION,
        ZCDP,
        OutputPremetric,
        approximate,
        trade_off,
    )
    from stirred.spec.output_rules import change_output
    from stirred.spec.prices import price
    from stirred.spec.problems import ConversionRefusedError, SpecificationError, StirredError
    from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, ShiftLaw
    from stirred.spec.specification import Derivation, Flavor, Specification, protection_loss

_HOMES: Final = {
    "budget": ("Budget",),
    "comparison": ("compare",),
    "composition": ("UnitFactor", "compose"),
    "convert": ("change_distance", "change_unit", "pull_back", "refine", "to_neighbours"),
    "domain": ("Domain",),
    "explanation": ("explain",),
    "findings": ("lint",),
    "implication": ("completion", "implies", "may_tell_budget"),
    "input_premetric": ("InputPremetric",),
    "invariant": ("ALL", "Inequality", "Invariant", "Margin", "Named"),
    "law": ("Law",),
    "multiverse": ("Hierarchy", "Multiverse", "Verdict"),
    "output_premetric": ("GDP", "PURE", "TOTAL_VARIATION", "ZCDP", "OutputPremetric", "approximate", "trade_off"),
    "output_rules": ("change_output",),
    "prices": ("price",),
    "problems": ("ConversionRefusedError", "SpecificationError", "StirredError"),
    "shift_law": ("DiscreteGaussian", "DiscreteLaplace", "ShiftLaw"),
    "specification": ("Derivation", "Flavor", "Specification", "protection_loss"),
}
_MODULES: Final = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "ALL", "GDP", "INFINITE", "PURE", "TOTAL_VARIATION", "ZCDP", "Budget", "ConversionRefusedError", "Derivation",
    "DiscreteGaussian", "DiscreteLaplace", "Domain", "Exact", "Flavor", "Hierarchy", "Inequality", "InputPremetric",
    "Invariant", "Law", "Margin", "Multiverse", "Named", "OutputPremetric", "ShiftLaw", "Specification",
    "SpecificationError", "StirredError", "UnitFactor", "Verdict", "approximate", "change_distance", "change_output",
    "change_unit", "compare", "completion", "compose", "exact", "explain", "implies", "lint", "ln", "may_tell_budget",
    "price", "protection_loss", "pull_back", "refine", "to_neighbours", "trade_off",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name the first time it is used."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
