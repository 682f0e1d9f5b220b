"""What a check found: the sentence, how serious it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERIOUS: Final = "serious"
WARNING: Final = "warning"
NOTE: Final = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a reader of the specification should know: what was seen, and what to do about it."""

    check: str
    severity: str
    message: str
    advice: str
