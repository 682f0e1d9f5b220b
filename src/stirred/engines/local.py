"""The engine that is always there: this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stirred.engines.protocol import LOCAL, G, R, Sources, Split

_HERE: Final = Sources(unlike="they are read in this process")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Runs everything here; mechanisms have their own threads.

    >>> list(LocalEngine().map_groups([1, 2, 3], lambda group: group * group))
    [1, 4, 9]
    """

    name: str = LOCAL
    sources: Sources = _HERE
    scratch: Path | None = None
    slots: int = 1
    memory: int = 1 << 62

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

    def share(self, value: G) -> Callable[[], G]:
        """Return a call that returns the value."""
        return lambda: value

    def exchange(
        self, groups: Sequence[G], split: Split[G], kernel: Callable[[int, list[bytes]], R], *, parts: int
    ) -> list[R]:
        """Split all groups, then compute all parts.

        >>> LocalEngine().exchange([b"ab", b"c"], lambda group: [(len(group) - 1, group)], lambda n, m: m, parts=2)
        [[b'c'], [b'ab']]
        """
        messages: list[list[bytes]] = [[] for _ in range(parts)]
        for group in groups:
            for part, message in split(group):
                messages[part].append(message)
        return [kernel(part, own) for part, own in enumerate(messages)]

    def close(self) -> None:
        """Nothing was started."""
