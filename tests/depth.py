"""How many examples a property is tried on: some at every step, all by `make audit`."""

from __future__ import annotations

import os
from typing import Final

DEEP: Final = os.environ.get("STIRRED_TESTS") == "deep"
_FEWEST: Final = 10


def examples(most: int) -> int:
    """Return a third of the examples, but not fewer than ten; in an audit all.

    >>> [examples(most) for most in (300, 30, 10)] if not DEEP else [100, 10, 10]
    [100, 10, 10]
    """
    return most if DEEP else min(most, max(most // 3, _FEWEST))
