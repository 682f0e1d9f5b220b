"""Statistical disclosure control in which every release says exactly what it promises.

A custodian of confidential microdata picks a mechanism, runs it, and gets the protected data together with
the differential-privacy specification it satisfies: who is protected, where, what, how, and how much.

``import stirred`` loads nothing heavy. The rooms of the package are imported when they are first named:

>>> import stirred
>>> stirred.spec.__name__
'stirred.spec'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stirred import spec
    from stirred.data.microdata import Microdata
    from stirred.mechanisms.records.laws.permutation import PermutationSwap
    from stirred.randomness.entropy import Entropy

# The one source of the version: the build reads it here (docs/releasing.md).
__version__ = "0.1.0"

__all__ = ["Entropy", "Microdata", "PermutationSwap", "__version__", "spec"]

_ROOMS = ("spec",)
_NAMES = {
    "PermutationSwap": "stirred.mechanisms.records.laws.permutation",
    "Entropy": "stirred.randomness.entropy",
    "Microdata": "stirred.data.microdata",
}


def __getattr__(name: str) -> Any:
    """Import a room of the package, or one of its main names, the first time it is named."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
