"""The ledger of one confidential dataset: reserve, draw, commit, publish, abort, withdraw; total; verify."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

from stirred.release.ledger import row as kinds
from stirred.release.ledger.account import Account, Verification, not_of, refusal_of, verify_store, without_collecting
from stirred.release.ledger.contradictions import Contradiction
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.policy import Policy, PolicyChange
from stirred.release.ledger.problems import LedgerError, bad_request, broken
from stirred.release.ledger.request import Outlook, Request, checked_document, opening_facts
from stirred.release.ledger.row import (
    FACTS,
    SCHEMA_VERSION,
    Entry,
    Event,
    Facts,
    GenesisFacts,
    PolicyFacts,
    Row,
    digest_of,
    facts_of,
    next_row,
)
from stirred.release.ledger.store import Addition, Store, store_at
from stirred.release.ledger.total import Total, total

Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is to become of an entry, and why: committed with this bundle, or aborted."""

    because: str
    bundle: str | None = None


class Ledger:
    """The append-only account of all releases from one confidential dataset.

    A release lives through ``reserve`` (checked against the policy, in one transaction), ``draw``
    (recorded just before anything random happens), ``commit`` (a complete bundle exists), or ``abort``;
    a committed one may be published, as often as wished, and withdrawn, which undoes nothing.

    >>> from tempfile import mkdtemp
    >>> from stirred.spec import catalogue
    >>> ledger = Ledger.create(Path(mkdtemp()) / "census.ledger", dataset="the 2020 census")
    >>> request = Request(mechanism="SafeTab-P", specification=catalogue.load("das-2020-safetab-p").specification)
    >>> entry = ledger.reserve(request)
    >>> entry = ledger.draw(entry.id)
    >>> ledger.commit(entry.id, bundle="6f1c...").status
    'committed'
    >>> ledger.total().specification.budget_text
    'ρ²=19.776'
    """

    def __init__(self, store: Store, *, clock: Clock = _utc_now) -> None:
        if isinstance(store, str | Path):
            remedy = f"write Ledger.open({str(store)!r}), or Ledger.create(..., dataset=...) for a new one"
            raise bad_request("a ledger is opened by its path", where="Ledger", remedy=remedy)
        self.store = store
        self._clock = clock
        self._account = Account(store.document)
        self._lock = RLock()  # threads may share the object; other processes are kept out by the storage

    @classmethod
    def create(
        cls,
        url: str | Path,
        *,
        dataset: str,
        policy: Policy | None = None,
        who: str | None = None,
        clock: Clock = _utc_now,
    ) -> Ledger:
        """Create a ledger for a dataset at a path or URL; an existing one is never touched."""
        if not dataset.strip():
            raise bad_request("the dataset has no name", where="dataset", remedy="say which confidential file it is")
        ledger = cls(store_at(url), clock=clock)
        facts = GenesisFacts(
            **ledger._signed(who),
            ledger=str(uuid4()),
            dataset=dataset,
            schema_version=SCHEMA_VERSION,
            policy=None if policy is None else policy.document,
        )
        row = next_row(None, id_=str(uuid4()), kind=kinds.GENESIS, entry="", specification="", facts=facts.stored())
        ledger.store.create([row], {})
        return ledger

    @classmethod
    def open(cls, url: str | Path, *, clock: Clock = _utc_now) -> Ledger:
        """Open an existing ledger and read it; a broken chain is refused."""
        ledger = cls(store_at(url), clock=clock)
        ledger._refresh()
        return ledger

    @property
    def name(self) -> str:
        """Return where the ledger is."""
        return self.store.name

    @property
    def id(self) -> str:
        """Return the identity the ledger was created with."""
        return self._genesis.ledger

    @property
    def dataset(self) -> str:
        """Return the dataset whose releases it accounts for."""
        return self._genesis.dataset

    @property
    def head(self) -> Row:
        """Return the last row. Written down elsewhere, its hash shows later whether rows were cut off."""
        account = self._refresh()
        assert account.last is not None
        return account.last

    @property
    def policy(self) -> Policy | None:
        """Return the policy in force."""
        return _policy(self._refresh())

    @property
    def policy_changes(self) -> tuple[PolicyChange, ...]:
        """Return every policy there was, from the first row on: who put it in force, when and why."""
        return tuple(map(_change, self._refresh().policies))

    @property
    def _genesis(self) -> GenesisFacts:
        account = self._account if self._account.genesis is not None else self._refresh()
        assert account.genesis is not None
        return account.genesis

    def _refresh(self) -> Account:
        """Read the rows that are new since the last look."""
        with self._lock, without_collecting():
            account = self._account.read(self.store.rows(after=self._account.last))
        if account.genesis is None:
            raise broken("the ledger has no rows", kind="gap", number=0)
        return account

    def _signed(self, who: str | None) -> dict[str, str]:
        return {"at": self._clock().astimezone(UTC).isoformat(timespec="microseconds"), "who": who or user()}

    def reserve(self, request: Request, *, only_run: bool = False) -> Entry:
        """Reserve the cost of a release; the policy is checked in the same transaction.

        From here on the reservation counts, so two processes can never spend the same rest twice. With ``only_run`` a
        release that says it is the one run of its plan is refused if another run has begun.
        """
        if request.made is not None:
            raise bad_request("a release that is reserved was not made yet", where="when", remedy="leave it out")
        if request.unspecified:
            what = "only a release made elsewhere may have no specification"
            raise bad_request(what, where="unspecified", remedy="reserve with a specification")
        return self._open_entry(kinds.RESERVE, request, only_run=only_run)

    def add(self, request: Request) -> Entry:
        """Record a release made elsewhere. It happened, so no policy can refuse it.

        One of other files than earlier entries is refused, unless its parameters name the dataset of the ledger, as a
        plan does: ``{"data": {"name": dataset}}``.
        """
        return self._open_entry(kinds.ADD, request)

    def would(self, request: Request) -> Total:
        """Return the total there would be with a release, refusing one the policy forbids. Nothing is written."""
        outlook = self._outlook(request)
        if (policy := _policy(outlook.account)) is not None:
            outlook.check(policy)
        return outlook.then(drawn=True)

    def contradicted(self, request: Request, *, before: int | None = None) -> tuple[Contradiction, ...]:
        """Return the assumptions that a release would contradict, or that others contradict of its own.

        ``before`` is the row before which the ledger is looked at, where that is not now.
        """
        account = None
        if before is not None:
            account = Account(self.store.document).read(row for row in self.store.rows() if row.number < before)
        return self._outlook(request, account).contradicted()

    def _outlook(self, request: Request, account: Account | None = None) -> Outlook:
        _, digest = _document(request)
        with self._lock:
            account = account or self._refresh()
            if request.specification is not None:
                of_file = account.identified(request.specification, request.inputs or {})
                request = replace(request, specification=of_file)
            facts = opening_facts(account, request, **self._signed(request.who))
            return Outlook(account=account, facts=facts, specification=request.specification, digest=digest)

    def draw(self, reference: str | int, *, who: str | None = None) -> Entry:
        """Record that randomness is about to be drawn. From here on the entry is spent, whatever happens."""
        return self._move(reference, kinds.DRAW, who)

    def commit(self, reference: str | int, *, bundle: str, who: str | None = None) -> Entry:
        """Record that a complete bundle with this checksum exists."""
        return self._move(reference, kinds.COMMIT, who, bundle=bundle)

    def begin_publication(
        self,
        reference: str | int,
        *,
        to: str,
        place: Path,
        files: str,
        who: str | None = None,
        accepted: Sequence[str] = (),
    ) -> Event:
        """Record that files, whose list of checksums has this checksum, are about to be copied to ``place``.

        ``accepted`` names the doubts that the publisher accepted, in addition to those of the release.
        """
        where = {"to": _named_place(to), "place": str(place.absolute())}
        with self._lock:
            done = self._move(reference, kinds.PUBLISHING, who, **where, files=files, accepted=sorted(set(accepted)))
            return done.history[-1]

    def publish(
        self,
        reference: str | int,
        *,
        to: str,
        who: str | None = None,
        began: int | None = None,
        accepted: Sequence[str] = (),
    ) -> Entry:
        """Record that the public files appeared at a place called ``to``; no total changes.

        ``began`` is the row of ``begin_publication``, if the publication was announced.
        """
        stated = {"to": _named_place(to), "began": began, "accepted": sorted(set(accepted))}
        return self._move(reference, kinds.PUBLISH, who, **stated)

    def give_up_publication(self, reference: str | int, began: Event, *, reason: str, who: str | None = None) -> Entry:
        """Record that a publication which began did not happen."""
        stated = {"to": began.to, "began": began.number, "reason": _stated(reason)}
        return self._move(reference, kinds.UNPUBLISHED, who, **stated)

    def check_writable(self) -> None:
        """Refuse if no row can be added now; the storage is locked for a moment, and nothing is written."""

        def stop(news: Sequence[Row]) -> Addition:
            raise _Stopped

        with self._lock, suppress(_Stopped):
            self.store.append(stop, after=self._account.last, id_="")

    def abort(self, reference: str | int, *, reason: str, who: str | None = None) -> Entry:
        """Give a reservation up. It costs nothing if nothing was drawn, and its full cost otherwise."""
        return self._move(reference, kinds.ABORT, who, reason=_stated(reason))

    def settle(self, reference: str | int, decide: Callable[[Entry], Ending], *, who: str | None = None) -> Entry:
        """Commit or abort an entry as ``decide`` says of how it stands in the very transaction that ends it."""

        def ended(entry: Entry) -> tuple[str, dict[str, Any]]:
            ending = decide(entry)
            if ending.bundle is not None:
                return kinds.COMMIT, {"bundle": ending.bundle}
            return kinds.ABORT, {"reason": _stated(ending.because)}

        return self._move(reference, ended, who)

    def withdraw(self, reference: str | int, *, reason: str, who: str | None = None) -> Entry:
        """Record that a release was taken back. What was seen stays seen: it goes on counting."""
        return self._move(reference, kinds.WITHDRAW, who, reason=_stated(reason))

    def set_policy(self, policy: Policy | None, *, reason: str, who: str | None = None) -> None:
        """Put another policy in force; the old one stays in the ledger, with the reason of the change."""
        document = None if policy is None else policy.document
        facts = PolicyFacts(**self._signed(who), policy=document, reason=_stated(reason))
        self._append(lambda account: (kinds.POLICY, "", "", facts), id_=str(uuid4()))

    def _open_entry(self, kind: str, request: Request, *, only_run: bool = False) -> Entry:
        documents, digest = _document(request)
        id_ = str(uuid4())

        def prepared(account: Account) -> tuple[str, str, str, Facts]:
            outlook, policy = self._outlook(request, account), _policy(account)
            if kind == kinds.RESERVE and policy is not None:
                outlook.check(policy)
            named = ((request.parameters or {}).get("data") or {}).get("name") == self.dataset
            if kind == kinds.ADD and not named and (others := account.other_files(request.inputs or {})):
                raise LedgerError(not_of(others, self.dataset, where="inputs"))
            if only_run:
                outlook.check_only_run()
            return kind, id_, digest, outlook.facts

        self._append(prepared, id_=id_, documents=documents)
        return self._account.entry(self._account.standings[id_])

    def _move(
        self,
        reference: str | int,
        event: str | Callable[[Entry], tuple[str, dict[str, Any]]],
        who: str | None,
        **stated: Any,
    ) -> Entry:
        """Append a row about an entry: of a kind with these facts, or as ``event`` decides in the transaction."""
        found: list[str] = []
        signed = self._signed(who)

        def prepared(account: Account) -> tuple[str, str, str, Facts]:
            standing = account.find(reference)
            kind, facts = (event, stated) if isinstance(event, str) else event(account.entry(standing))
            refusal = refusal_of(kind, standing, began=facts.get("began"))
            if refusal:
                remedy = "see `stirred ledger show` for where each entry stands"
                raise bad_request(refusal, where=f"entry {standing.opening.number}", remedy=remedy)
            found.append(standing.opening.id)
            return kind, standing.opening.id, "", FACTS[kind](**signed, **facts)

        self._append(prepared, id_=str(uuid4()))
        return self._account.entry(self._account.standings[found[-1]])

    def _append(
        self,
        prepared: Callable[[Account], tuple[str, str, str, Facts]],
        *,
        id_: str,
        documents: Mapping[str, str] | None = None,
    ) -> Row:
        """Bring the account up to date, check and append, all under the lock of the storage."""

        def prepare(news: Sequence[Row]) -> Addition:
            account = self._account.read(news)
            kind, entry, digest, facts = prepared(account)
            row = next_row(account.last, id_=id_, kind=kind, entry=entry, specification=digest, facts=facts.stored())
            return Addition(row=row, documents=documents or {})

        with self._lock:
            self._refresh()  # the long read happens before the lock of the storage is taken
            row = self.store.append(prepare, after=self._account.last, id_=id_)
            self._account.read((row,))
        return row

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, in order."""
        with self._lock:
            account = self._refresh()
            standings = list(account.standings.values())
        return (account.entry(standing) for standing in standings)

    def entry(self, reference: str | int) -> Entry:
        """Return one entry by number, id, or the beginning of its id."""
        with self._lock:
            account = self._refresh()
            return account.entry(account.find(reference))

    def total(self, currency: Currency | None = None, *, reserved: bool = True) -> Total:
        """Return the specification of everything that counts, together; without open reservations if wished."""
        with self._lock:
            account = self._refresh()
            charged = account.charges()
        with without_collecting():
            return total(charged, account.specification, currency=currency, reserved=reserved, plan_of=account.plan_of)

    def other_files(self, inputs: Mapping[str, str]) -> dict[str, list[int]]:
        """Return, for each file, the entries that count and were released from another one."""
        with self._lock:
            return self._refresh().other_files(inputs)

    def verify(self, *, head: str | None = None) -> Verification:
        """Check everything again from the storage, also against a hash written down earlier."""
        return verify_store(self.store, head=head)


class _Stopped(Exception):  # noqa: N818 - it leaves a transaction, and is no error
    """What ends a transaction that was only tried."""


def user() -> str:
    """Return who is at work, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _document(request: Request) -> tuple[dict[str, str], str]:
    """Return the specification of a request as it is kept, by digest; and the digest."""
    if request.specification is None:
        return {}, ""
    text = checked_document(request.specification)
    return {digest_of(text): text}, digest_of(text)


def _policy(account: Account) -> Policy | None:
    return None if account.policy is None else Policy.stored(account.policy)


def _change(row: Row) -> PolicyChange:
    facts = facts_of(row)
    return PolicyChange(
        number=row.number,
        who=facts.who,
        when=facts.at,
        reason=getattr(facts, "reason", ""),
        policy=None if facts.policy is None else Policy.stored(facts.policy),
    )


def _named_place(to: str) -> str:
    if not to.strip():
        raise bad_request("the place has no name", where="as", remedy="say what readers call it, such as website")
    return to.strip()


def _stated(reason: str) -> str:
    if not reason.strip():
        raise bad_request("no reason is given", where="reason", remedy="say why; it stays in the ledger")
    return reason
