"""Statistical disclosure control in which every release says exactly what it promises.

A custodian of confidential microdata picks a mechanism, runs it, and gets the protected data together with
the differential-privacy specification it satisfies: who is protected, where, what, how, and how much.

One door for files and frames: ``swap``, ``plan``, ``release``, ``publish``, ``check``, ``read`` and ``Ledger``; beside
them ``spec``, the mechanisms by name, and what they need. Any other name is private to the package.

``import stirred`` loads nothing heavy. A name is imported when it is first used:

>>> import stirred
>>> stirred.spec.__name__
'stirred.spec'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stirred import spec
    from stirred.data.microdata import Microdata
    from stirred.door import check, plan, publish, read, release, swap
    from stirred.mechanisms.records.laws.permutation import PermutationSwap
    from stirred.randomness.entropy import Entropy
    from stirred.release.ledger import Ledger

# The one source of the version: the build reads it here (docs/releasing.md).
__version__ = "0.1.0"

_ROOMS = ("spec", "release")
_NAMES = {
    **dict.fromkeys(("check", "plan", "publish", "read", "swap"), "door"),
    "Entropy": "randomness.entropy",
    "Ledger": "release.ledger",
    "Microdata": "data.microdata",
    "PermutationSwap": "mechanisms.records.laws.permutation",
}
__all__ = [
    "Entropy",
    "Ledger",
    "Microdata",
    "PermutationSwap",
    "__version__",
    "check",
    "plan",
    "publish",
    "read",
    "release",
    "spec",
    "swap",
]


def __getattr__(name: str) -> Any:
    """Import what stands at the door, or the class of a mechanism, the first time it is named."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name[:1].isupper() and (module := import_module(f"{__name__}.mechanisms.registry").home_of(name)):
        return getattr(import_module(module), name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)} and the mechanisms"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
