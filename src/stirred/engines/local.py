"""The engine that is always there: this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stirred.engines.protocol import LOCAL, G, R, Sources

_HERE: Final = Sources(unlike="they are read in this process")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Runs everything here, on as many threads as it is given; mechanisms have threads of their own besides.

    >>> list(LocalEngine().map_groups([1, 2, 3], lambda group: group * group))
    [1, 4, 9]
    """

    threads: int = 1
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

    def map_groups(self, groups: Iterable[G], kernel: Callable[[G], R]) -> Iterator[R]:
        """Yield ``kernel(group)`` for every group in their order."""
        return map(kernel, groups) if self.threads <= 1 else in_order(groups, kernel, at_once=self.threads)

    def close(self) -> None:
        """Nothing was started."""


def in_order(
    groups: Iterable[G], kernel: Callable[[G], R], *, at_once: int, give_up: Callable[[], object] = lambda: None
) -> Iterator[R]:
    """Yield ``kernel(group)`` in the order of the groups, ``at_once`` of them under way; one more is waited for.

    Groups are asked for when there is room for them. ``give_up`` ends what is under way when nobody wants it any more.
    """
    with ThreadPoolExecutor(at_once) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for group in groups:
                waiting.append(pool.submit(kernel, group))
                if len(waiting) > at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            for each in waiting:
                each.cancel()
            with suppress(Exception):  # what failed first is what is told
                give_up()
            raise
