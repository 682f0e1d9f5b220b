"""Releases of tables alone: there is a table, and there are no records."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import PERSONS, RECORDS, failed

NEEDED: Final = "add tables, such as [[tables]] variables = ['county', 'tenure']"


def require_tables(tables: Collection[Any] | None) -> None:
    """Refuse settings without any table: there is nothing to release."""
    if not tables:
        raise bad_plan("is needed", where="tables", remedy=NEEDED)


def refuse_records(public: Path) -> None:
    """Raise if records were written."""
    if records := _records(public):
        raise failed(f"{records[0].name} was written, and only tables may be published")


def find_records(bundle: BundleFiles, found: Findings) -> None:
    """Add a problem for each file of records in a bundle."""
    for path in _records(bundle.public):
        found.bad("records are published, and the promise is about tables alone", where=f"public/{path.name}")


def _records(public: Path) -> list[Path]:
    return sorted([*public.glob(f"{RECORDS}.*"), *public.glob(f"{PERSONS}.*")])
