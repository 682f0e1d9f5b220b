"""The engine that is always there: this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stirred.engines.protocol import LOCAL, G, R, Sources

_HERE: Final = Sources(unlike="they are read in this process")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Runs everything here; mechanisms have their own threads.

    >>> list(LocalEngine().map_groups([1, 2, 3], lambda group: group * group))
    [1, 4, 9]
    """

    name: str = LOCAL
    sources: Sources = _HERE

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return its name."""
        return {"name": self.name}

    def check(self) -> None:
        """Nothing can be wrong."""

    def start(self, scratch: Path) -> None:
        """Nothing is started."""

    def map_groups(self, groups: Sequence[G], kernel: Callable[[G], R]) -> Iterator[R]:
        """Yield ``kernel(group)`` for every group, one after the other."""
        return map(kernel, groups)

    def close(self) -> None:
        """Nothing was started."""
