"""Statistical disclosure control in which every release says exactly what it promises.

A custodian of confidential microdata picks a mechanism, runs it, and gets the protected data together with
the differential-privacy specification it satisfies: who is protected, where, what, how, and how much.

``import stirred`` loads nothing heavy. The rooms of the package are imported when they are first named:

>>> import stirred
>>> stirred.spec.__name__
'stirred.spec'
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stirred import spec

__version__ = "0.1.0"

__all__ = ["__version__", "spec"]

_ROOMS = ("spec",)


def __getattr__(name: str) -> ModuleType:
    """Import a room of the package the first time it is named."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its rooms are {', '.join(_ROOMS)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
