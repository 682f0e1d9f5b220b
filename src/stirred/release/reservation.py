"""The account of one run in the ledger: reserved before anything random, drawn, then committed or given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stirred.release.bundle import bundle_checksum, published_specification
from stirred.release.ledger import Entry, Ledger, LedgerError, Request
from stirred.release.ledger.entry import COMMITTED
from stirred.release.ledger.problems import BrokenLedgerError, bad_storage
from stirred.spec.problems import Problem


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
            "name": self.ledger.name if "://" in self.ledger.name else str(Path(self.ledger.name).absolute()),
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
        if published_specification(bundle) != self.entry.specification:
            raise bad_storage(
                "the bundle promises something else than was reserved",
                where=str(bundle),
                remedy="do not publish it; its cost stays reserved, and `stirred ledger abort` gives it up",
            )
        try:
            self.ledger.commit(self.entry.id, bundle=bundle_checksum(bundle))
        except LedgerError as error:
            raise bad_storage(
                f"the bundle is complete, but the ledger could not be told ({error.problems[0].what})",
                where=str(bundle),
                remedy=f"when the ledger is back: stirred ledger recover {self.ledger.name}",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounted:
    """How a finished bundle stands in its ledger, and what speaks against publishing it."""

    words: str = ""
    doubts: tuple[Problem, ...] = ()
    ledger: Ledger | None = None
    entry: Entry | None = None

    def publish(self, *, to: str, who: str | None) -> None:
        """Say that the public files are about to appear; without a ledger nobody is told."""
        if self.ledger is not None and self.entry is not None:
            self.ledger.publish(self.entry.id, to=to, who=who)


def accounted(facts: Mapping[str, str | int] | None, bundle: Path, *, ledger: str | None = None) -> Accounted:
    """Return how a finished bundle stands in its ledger, and what speaks against publishing it.

    ``facts`` are those of its manifest; ``ledger`` says where the ledger is now, if it has moved since.
    """
    if facts is None:
        if ledger is None:
            return Accounted(words="the release was made without a ledger: nobody keeps account of it")
        return _doubtful("the bundle was made without a ledger", "leave --ledger out")
    place = ledger or str(facts.get("name"))
    try:
        opened = Ledger.open(place)
        if opened.id != facts.get("id"):
            return _doubtful(f"{place} is another ledger than the bundle's", "name the right one with --ledger")
        entry = opened.entry(str(facts.get("entry")))
    except BrokenLedgerError as error:
        return Accounted(doubts=error.problems)
    except LedgerError as error:
        found = error.problems[0].what
        return _doubtful(f"its entry cannot be looked up in {place}: {found}", "name the ledger with --ledger")
    if entry.status != COMMITTED:
        return _doubtful(f"its entry {entry.number} in the ledger is {entry.state}", "publish a committed release")
    if published_specification(bundle) != entry.specification:
        return _doubtful("it promises something else than its entry in the ledger", "find out who changed which")
    if entry.bundle != bundle_checksum(bundle):
        return _doubtful("its manifest is not the one that was committed", "find out who changed the bundle")
    try:
        opened.check_writable()
    except LedgerError as error:
        problem = error.problems[0]
        return _doubtful(f"a publication is recorded, and {place} refuses: {problem.what}", problem.remedy)
    words = f"committed as entry {entry.number} of the ledger of {opened.dataset}, with this manifest"
    return Accounted(words=words, ledger=opened, entry=entry)


def _doubtful(what: str, remedy: str) -> Accounted:
    return Accounted(doubts=(Problem(what=what, where="ledger", remedy=remedy),))


@contextmanager
def reserved(ledger: Ledger | None, request: Request) -> Iterator[Reservation]:
    """Reserve what a run will cost, and give it up if the run fails before its bundle is there.

    The policy is checked in the transaction that reserves. What was drawn stays spent, whatever happens.
    """
    if ledger is None:
        yield Reservation()
        return
    entry = ledger.reserve(request)
    try:
        yield Reservation(ledger=ledger, entry=entry)
    except BaseException as error:
        # If the ledger is gone too, the open reservation is what `recover` resolves.
        with suppress(LedgerError):
            given_up = ledger.abort(entry.id, reason=f"the run failed: {type(error).__name__}")
            if given_up.is_spent:
                error.add_note(
                    f"Entry {entry.number} of the ledger {ledger.name} counts as spent, since something random "
                    "happened; see `stirred ledger show`."
                )
        raise
