"""The account of one run in the ledger: reserved before anything random, drawn, then committed or given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stirred.release.bundle import bundle_checksum
from stirred.release.ledger import Entry, Ledger, LedgerError, Request
from stirred.release.ledger.problems import StorageError, bad_storage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """One run's entry; without a ledger (``None``) every step is free and nothing is kept."""

    ledger: Ledger | None = None
    entry: Entry | None = None

    @property
    def facts(self) -> dict[str, Any] | None:
        """Return what the manifest says about the ledger, so that recovery finds the entry of a bundle."""
        if self.ledger is None or self.entry is None:
            return None
        return {
            "name": self.ledger.name,
            "id": self.ledger.id,
            "dataset": self.ledger.dataset,
            "entry": self.entry.id,
            "number": self.entry.number,
        }

    def draw(self) -> None:
        """Say that randomness is about to be drawn: from here on the loss is spent."""
        if self.ledger is not None and self.entry is not None:
            self.ledger.draw(self.entry.id)

    def commit(self, bundle: Path) -> None:
        """Say that the bundle is there. If that fails, the bundle stays and `recover` finds it."""
        if self.ledger is None or self.entry is None:
            return
        try:
            self.ledger.commit(self.entry.id, bundle=bundle_checksum(bundle))
        except LedgerError as error:
            raise bad_storage(
                f"the bundle is complete, but the ledger could not be told ({error.problems[0].what})",
                where=str(bundle),
                remedy=f"when the ledger is back: stirred ledger recover {self.ledger.name}",
            ) from None


@contextmanager
def reserved(url: str | Path | None, request: Request) -> Iterator[Reservation]:
    """Reserve what a run will cost, and give it up if the run fails before its bundle is there.

    The policy is checked in the transaction that reserves. What was drawn stays spent, whatever happens.
    """
    if url is None:
        yield Reservation()
        return
    ledger = Ledger.open(url)
    entry = ledger.reserve(request)
    try:
        yield Reservation(ledger=ledger, entry=entry)
    except BaseException as error:
        # If the ledger is gone too, the open reservation is what `recover` resolves.
        with suppress(StorageError):
            ledger.abort(entry.id, reason=f"the run failed: {type(error).__name__}")
        raise
