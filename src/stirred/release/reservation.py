"""One run and its ledger: doubts before it, its entry from reservation to commitment, and its publication."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stirred.data.bundle import checksum, published_specification
from stirred.data.place import CHECKSUMS, Place, abort_command
from stirred.mechanisms.protocol import ReleasedTable
from stirred.release.bundle import bundle_checksum
from stirred.release.ledger import Entry, Ledger, LedgerError, Request
from stirred.release.ledger.contradictions import doubt_about
from stirred.release.ledger.problems import BrokenLedgerError, bad_storage
from stirred.release.ledger.row import COMMITTED, RESERVED, Event, entry_names, numbers
from stirred.spec.document import AccountDocument, account_in
from stirred.spec.doubts import MORE_RUNS, Doubt
from stirred.spec.problems import Problem
from stirred.spec.specification import OneRun, Specification

# What publishing adds to the public files where the ledger knows a sentence of theirs to be false.
NOTICE: Final = "NOTICE.md"


def ledger_doubts(
    ledger: Ledger | None,
    *,
    mechanism: str,
    specification: Specification,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    before: int | None = None,
) -> tuple[Doubt, ...]:
    """Return a doubt for each assumption that the release would contradict, or that earlier entries contradict of it.

    ``before`` is the entry of the release itself, where it was reserved already.
    """
    if ledger is None:
        return ()

    def instead(earlier: Sequence[int]) -> str:
        unfinished = [entry for number in earlier if (entry := ledger.entry(number)).status == RESERVED]
        if unfinished:
            return f"finish that run, at no further cost: `stirred release --resume {unfinished[-1].place}`"
        return "use the earlier release; another plan, chosen after looking at it, is a choice among runs as well"

    request = Request(mechanism=mechanism, specification=specification, parameters=parameters, inputs=inputs)
    found = ledger.contradicted(request, before=before)
    # The planned release is the last entry.
    return tuple(doubt_about(one, known=max((*one.entries, *one.by)), instead=instead) for one in found)


def earlier_entry(ledger: Ledger, table: ReleasedTable) -> Entry | None:
    """Return the entry of the release that a table belongs to: by its manifest, or by the files that were published."""
    for entry in ledger.entries():
        files = {entry.bundle, *(event.files for event in entry.history)} - {None, ""}
        if entry.status == COMMITTED and table.release in files and entry.specification == table.promise:
            return entry
    return None


def earlier_doubts(ledger: Ledger | None, tables: Iterable[ReleasedTable]) -> Iterator[Doubt]:
    """Yield a doubt for each earlier release that the ledger does not know: nothing shows that it was accounted for."""
    for table in tables:
        if ledger is not None and earlier_entry(ledger, table) is None:
            yield Doubt(
                kind="unknown-earlier",
                about=Path(table.file).name,
                what=f"{table.file} belongs to '{table.title}', which is not a release in the ledger of "
                f"'{ledger.dataset}'",
                remedy=f"record that release first, with its bundle: `stirred ledger add {ledger.name} BUNDLE`",
            )


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

    @property
    def account(self) -> AccountDocument | None:
        """Return what the public specification says about the ledger: its id, and the number of the entry."""
        if self.ledger is None or self.entry is None:
            return None
        return AccountDocument(ledger=self.ledger.id, entry=self.entry.number)

    def draw(self) -> None:
        """Say that randomness is about to be drawn: from here on the loss is spent."""
        if self.ledger is not None and self.entry is not None:
            self.ledger.draw(self.entry.id)

    def commit(self, bundle: Path) -> None:
        """Say that the bundle is there. If that fails, the bundle stays and `recover` finds it."""
        if self.ledger is None or self.entry is None:
            return
        if published_specification(bundle / "public") != self.entry.specification:
            give_up = abort_command(self.ledger.name, self.entry.number)
            remedy = f"do not publish it; its cost stays reserved, and `{give_up}` gives it up"
            raise bad_storage("the bundle promises something else than was reserved", where=str(bundle), remedy=remedy)
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

    def contradicted(self, *, known: Sequence[str]) -> Iterator[Doubt]:
        """Yield a doubt for each condition in the bundle's promise that the ledger knows to be false by now.

        ``known`` are the doubts that the release accepted when it was made.
        """
        if self.ledger is None or self.entry is None:
            return
        mine = self.entry.number
        for one in self.ledger.total().contradicted:
            if mine not in one.entries or not one.certain:
                continue
            others = [number for number in one.by if number != mine]
            kind, about = MORE_RUNS, entry_names(others)
            if not isinstance(one.reliance, OneRun):
                kind, about = "contradicted-by", f"{about}:{one.reliance.about}"
            if f"{kind}:{about}" not in known:
                yield Doubt(
                    kind=kind,
                    about=about,
                    what=f"its promise says that {one.assumption}, and that is not so: see entry {numbers(others)} of "
                    f"the ledger. {one.then}",
                    remedy=f"keep it unpublished, or let its readers know: accepted, {NOTICE} beside the files says so",
                )

    def publication(self, **facts: Any) -> AbstractContextManager[Callable[[str], None]]:
        """Return the publication of the bundle, which the ledger records; without a ledger nothing is recorded."""
        if self.ledger is None or self.entry is None:
            return nullcontext(lambda files: None)
        return _publication(self.ledger, self.entry.id, **facts)


def accounted(
    facts: Mapping[str, str | int] | None, bundle: Path, *, manifest: str, ledger: str | None = None
) -> Accounted:
    """Return how a finished bundle stands in its ledger, and what speaks against publishing it.

    ``facts`` are those of its manifest, whose checksum is ``manifest``; ``ledger`` says where the ledger is now, if it
    has moved since.
    """
    if facts is None and published_account(bundle) is not None:
        return _doubtful("specification.json names a ledger, and the manifest none", "find out who changed which")
    if facts is None and ledger is None:
        return Accounted(words="the release was made without a ledger: no account of it is kept")
    place = ledger or str((facts or {}).get("name"))
    try:
        opened = Ledger.open(place)
        if facts is not None and opened.id != facts.get("id"):
            return _doubtful(f"{place} is another ledger than the bundle's", "name the right one with --ledger")
        entry = _added(opened, manifest) if facts is None else opened.entry(str(facts.get("entry")))
        if entry is None:
            return _doubtful(
                f"the bundle was made without a ledger, and {place} has no entry for it",
                f"record it: `stirred ledger add {place} {bundle}`; or leave out --ledger",
            )
    except BrokenLedgerError as error:
        return Accounted(doubts=error.problems)
    except LedgerError as error:
        found = error.problems[0].what
        return _doubtful(f"its entry cannot be looked up in {place}: {found}", "name the ledger with --ledger")
    if entry.status != COMMITTED:
        return _doubtful(f"its entry {entry.number} in the ledger is {entry.state}", "publish a committed release")
    if published_specification(bundle / "public") != entry.specification:
        return _doubtful("it promises something else than its entry in the ledger", "find out who changed which")
    stated = published_account(bundle)
    if stated is not None and stated != AccountDocument(ledger=opened.id, entry=entry.number):
        return _doubtful("specification.json names another entry than that of the manifest", "find out who changed it")
    if entry.bundle != manifest:
        return _doubtful("its manifest is not the one that was committed", "find out who changed the bundle")
    try:
        opened.check_writable()
    except LedgerError as error:
        problem = error.problems[0]
        return _doubtful(f"a publication is recorded, and {place} refuses: {problem.what}", problem.remedy)
    how = "recorded afterwards" if facts is None else "committed"
    words = f"{how} as entry {entry.number} of the ledger of {opened.dataset}, with this manifest"
    return Accounted(words=words, ledger=opened, entry=entry)


def _added(ledger: Ledger, manifest: str) -> Entry | None:
    """Return the entry by which a bundle that was made without a ledger was recorded afterwards."""
    return next((entry for entry in ledger.entries() if entry.elsewhere and entry.bundle == manifest), None)


def published_account(bundle: Path) -> AccountDocument | None:
    """Return where the public specification of a bundle says that it is accounted for."""
    try:
        return account_in((bundle / "public" / "specification.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _doubtful(what: str, remedy: str) -> Accounted:
    return Accounted(doubts=(Problem(what=what, where="ledger", remedy=remedy),))


@contextmanager
def reserved(ledger: Ledger | None, request: Request, place: Place) -> Iterator[Reservation]:
    """Reserve what a run will cost. If the run fails before its draw, the reservation is given up and costs nothing.

    If it fails after its draw, the entry stays open and what repeats the draw stays at its place, so that the same
    release can be finished at no further cost. The policy is checked in the transaction that reserves.
    """
    if ledger is None:
        yield Reservation()
        return
    entry = ledger.reserve(request, only_run=True)
    try:
        yield Reservation(ledger=ledger, entry=entry)
    except BaseException as error:
        # If the ledger is gone too, the open reservation is what `recover` resolves.
        with suppress(LedgerError):
            if ledger.entry(entry.id).drawn:
                tell_how_to_finish(error, ledger, entry, place)
            else:
                ledger.abort(entry.id, reason=f"the run failed: {type(error).__name__}")
                place.give_up()
        raise


def tell_how_to_finish(error: BaseException, ledger: Ledger, entry: Entry, place: Place) -> None:
    """Add to an error what becomes of a draw that was made: it can be finished, or given up."""
    if not place.is_resumable:
        return  # the bundle is there
    error.add_note(
        f"The draw of entry {entry.number} of the ledger {ledger.name} is kept: "
        f"`stirred release --resume {place.out}` finishes the same release at no further cost. "
        f"`{abort_command(ledger.name, entry.number)}` gives it up; it then counts as spent."
    )


def has_appeared(place: Path, files: str) -> bool:
    """Say whether the list of checksums that was announced stands at a place; the move there was one step."""
    try:
        return checksum(place / CHECKSUMS) == files
    except OSError:
        return False


@contextmanager
def _publication(
    ledger: Ledger, entry: str, *, to: str, place: Path, who: str | None, accepted: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    """Yield what announces a publication, by the checksum of its list of files.

    At the end of the block its files are at their place, or nothing of them is.

    Leaving the block says that it appeared, an error that it did not. A process that dies in between leaves a
    publication that began, and `recover` looks at its place.
    """
    began: list[Event] = []

    def begin(files: str) -> None:
        begun = ledger.begin_publication(entry, to=to, place=place, files=files, who=who, accepted=accepted)
        began.append(begun)

    def end() -> None:
        try:
            ledger.publish(entry, to=to, who=who, began=began[0].number, accepted=accepted)
        except LedgerError as failed:
            with suppress(LedgerError):
                if any(event.began == began[0].number for event in ledger.entry(entry).publications):
                    return  # a recovery that ran meanwhile saw the folder, and wrote the row
            raise bad_storage(
                f"the files are published, but the ledger could not be told ({failed.problems[0].what})",
                where=str(place),
                remedy=f"when the ledger is back: stirred ledger recover {ledger.name}",
            ) from None

    try:
        yield begin
    except BaseException as error:
        if began and has_appeared(place, began[0].files):
            end()
        elif began:
            # If the ledger is gone too, the open publication is what `recover` resolves.
            with suppress(LedgerError):
                ledger.give_up_publication(entry, began[0], reason=f"copying failed: {type(error).__name__}", who=who)
        raise
    if began:
        end()
