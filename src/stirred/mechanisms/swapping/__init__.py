"""Swapping: records exchange their swapping variables within strata of their matching variables.

A folder for each member holds its promise, law, kernel and moments; ``core`` is what all share, ``layers`` hold a
member and add a step to it, ``doubts`` look for what a release would give away. Members are imported when they are
first named:

>>> from stirred.mechanisms.swapping import ConditionedSwap
>>> ConditionedSwap(match=[], swap=["county"], rate="1/20").redraw_law
'uniform'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stirred.mechanisms.swapping.conditioned.mechanism import ConditionedSwap
    from stirred.mechanisms.swapping.gibbs.mechanism import GibbsSwap
    from stirred.mechanisms.swapping.layers.response.mechanism import ResponseSwap
    from stirred.mechanisms.swapping.layers.two_stage.mechanism import TwoStageSwap
    from stirred.mechanisms.swapping.mallows.mechanism import MallowsSwap
    from stirred.mechanisms.swapping.metric.mechanism import MetricSwap
    from stirred.mechanisms.swapping.permutation.mechanism import PermutationSwap
    from stirred.mechanisms.swapping.shuffle.mechanism import ShuffleSwap

__all__ = [
    "ConditionedSwap",
    "GibbsSwap",
    "MallowsSwap",
    "MetricSwap",
    "PermutationSwap",
    "ResponseSwap",
    "ShuffleSwap",
    "TwoStageSwap",
]
_LAYERS = ("ResponseSwap", "TwoStageSwap")


def __getattr__(name: str) -> Any:
    """Import a member of the family the first time it is named."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    folder = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name.removesuffix("Swap"))[1:]
    room = f"{__name__}.layers" if name in _LAYERS else __name__
    return getattr(import_module(f"{room}.{folder}.mechanism"), name)
