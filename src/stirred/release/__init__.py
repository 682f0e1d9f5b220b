"""The life of a release: plan, run, verify, bundle. The only room that writes for others to read.

``stirred.release(plan)`` carries out a plan: Python has one name for this room and for the function at the door.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **named: Any) -> Any:
        from stirred.door import release

        return release(*args, **named)


sys.modules[__name__].__class__ = _CallableRoom
