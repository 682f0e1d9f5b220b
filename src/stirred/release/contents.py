"""What a release of one kind publishes: records with their tables, or tables alone.

Each kind says which columns may be seen, and writes, verifies and explains its files; the rest of a run is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import polars as pl

from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.release.noisy import NoisyTables
from stirred.release.prepared import Prepared
from stirred.release.records import Records
from stirred.release.tables import Table
from stirred.release.verify import Check


class Contents(Protocol):
    """What is published, written and verified for one kind of release."""

    def columns(self) -> set[str]:
        """Return the columns of households that may be in public files."""
        ...

    def table(self, release: Release, table: Table) -> pl.DataFrame:
        """Return a table as it is published."""
        ...

    def exactness(self, table: Table) -> str:
        """Say what was done to a table, in a few words."""
        ...

    def write(self, release: Release, folder: Path, *, note: Mapping[str, str]) -> None:
        """Write what this kind has besides tables, specification and pages."""
        ...

    def readme(self, title: str, public: Path) -> str:
        """Return the page for a reader who has only the public folder."""
        ...

    def verify(self, release: Release, folder: Path) -> list[Check]:
        """Read the written files back and compare them with the input; raise if anything differs."""
        ...


def contents_of(prepared: Prepared) -> Contents:
    """Return the kind of contents that a mechanism releases."""
    mechanism = prepared.mechanism
    return NoisyTables(prepared, mechanism) if isinstance(mechanism, NoisySwap) else Records(prepared)
