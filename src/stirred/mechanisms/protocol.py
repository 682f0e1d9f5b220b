"""What every mechanism has: a promise, a plan, a release and an exact law."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from stirred.randomness.entropy import Entropy
from stirred.spec.law import Law
from stirred.spec.specification import Specification

# stage, pieces done, pieces in all
Progress = Callable[[str, int, int], None]


class Frames(Mapping[str, Any]):
    """Released tables by name. Each is kept as parts, so that a national file never has to be one frame.

    ``frames["persons"]`` puts the parts together, in the caller's own kind of frame.
    """

    def __init__(
        self, parts: Mapping[str, Callable[[], Iterable[pl.DataFrame]]], *, convert: Callable[[pl.DataFrame], Any]
    ) -> None:
        self._parts = parts
        self._convert = convert

    def parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the parts of a table, in order; asking again yields the same parts again."""
        yield from self._parts[name]()

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table as one polars frame."""
        return pl.concat(list(self.parts(name)))

    def __getitem__(self, name: str) -> Any:
        return self._convert(self.frame(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Protected data with the specification it satisfies.

    ``public`` may be published as far as the specification says; its rows are in an order that does
    not depend on the input. ``internal`` is computed from the confidential data and never published.
    """

    public: Frames
    specification: Specification
    internal: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Mechanism(Protocol):
    """A data release mechanism with immutable settings. It never prints, and knows no file and no ledger."""

    def specification(self, universe: Any) -> Specification:
        """Return the promise in one universe."""
        ...

    def plan(self, data: Any) -> Any:
        """Return what would happen: strata, loss, invariants; nothing random happens."""
        ...

    def release(self, data: Any, entropy: Entropy) -> Release:
        """Run the mechanism once, with the given randomness."""
        ...

    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        """Return small universes on which the promise can be checked by enumeration."""
        ...

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the released object for a small dataset."""
        ...
