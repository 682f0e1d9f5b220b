"""The ledger of one confidential dataset: reserve, draw, commit, publish, abort, withdraw; total; verify."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from uuid import uuid4

from stirred.release.ledger.account import Account, Standing, refusal_of, without_collecting
from stirred.release.ledger.entry import Entry
from stirred.release.ledger.facts import (
    CommitFacts,
    DrawFacts,
    Facts,
    GenesisFacts,
    PolicyFacts,
    PublishFacts,
    ReasonFacts,
    facts_of,
)
from stirred.release.ledger.outlook import Outlook
from stirred.release.ledger.policy import Policy, PolicyChange
from stirred.release.ledger.problems import bad_request, broken
from stirred.release.ledger.request import Request, checked_document, opening_facts
from stirred.release.ledger.row import (
    ABORT,
    ADD,
    COMMIT,
    DRAW,
    GENESIS,
    POLICY,
    PUBLISH,
    RESERVE,
    SCHEMA_VERSION,
    WITHDRAW,
    Row,
    digest_of,
    next_row,
)
from stirred.release.ledger.store import Addition, Store, store_at
from stirred.release.ledger.total import Currency, Total, total
from stirred.release.ledger.verify import Verification, verify_store

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
        row = next_row(None, id_=str(uuid4()), kind=GENESIS, entry="", specification="", facts=facts.stored())
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

    # ---- the life of a release ------------------------------------------------------------------

    def reserve(self, request: Request) -> Entry:
        """Reserve the cost of a release; the policy is checked in the same transaction.

        From here on the reservation counts, so two processes can never spend the same rest twice.
        """
        if request.made is not None:
            raise bad_request("a release that is reserved was not made yet", where="when", remedy="leave it out")
        return self._open_entry(RESERVE, request)

    def add(self, request: Request) -> Entry:
        """Record a release made elsewhere. It happened, so no policy can refuse it."""
        return self._open_entry(ADD, request)

    def would(self, request: Request) -> Total:
        """Return the total there would be with a release, refusing one the policy forbids. Nothing is written."""
        _, digest = _document(request)
        with self._lock:
            account = self._refresh()
            facts = opening_facts(account, request, **self._signed(request.who))
            outlook = Outlook(account=account, facts=facts, specification=request.specification, digest=digest)
            policy = _policy(account)
        if policy is not None:
            outlook.check(policy)
        return outlook.then(drawn=True)

    def draw(self, reference: str | int, *, who: str | None = None) -> Entry:
        """Record that randomness is about to be drawn. From here on the entry is spent, whatever happens."""
        return self._move(reference, _fixed(DRAW, DrawFacts(**self._signed(who))))

    def commit(self, reference: str | int, *, bundle: str, who: str | None = None) -> Entry:
        """Record that a complete bundle with this checksum exists."""
        return self._move(reference, _fixed(COMMIT, CommitFacts(**self._signed(who), bundle=bundle)))

    def publish(self, reference: str | int, *, to: str, who: str | None = None) -> Entry:
        """Record that the public files are about to appear at a place called ``to``; no total changes."""
        if not to.strip():
            raise bad_request("the place has no name", where="as", remedy="say what readers call it, such as website")
        return self._move(reference, _fixed(PUBLISH, PublishFacts(**self._signed(who), to=to.strip())))

    def check_writable(self) -> None:
        """Refuse if no row can be added now; the storage is locked for a moment, and nothing is written."""

        def stop(news: Sequence[Row]) -> Addition:
            raise _Stopped

        with self._lock, suppress(_Stopped):
            self.store.append(stop, after=self._account.last, id_="")

    def abort(self, reference: str | int, *, reason: str, who: str | None = None) -> Entry:
        """Give a reservation up. It costs nothing if nothing was drawn, and its full cost otherwise."""
        return self._move(reference, _fixed(ABORT, ReasonFacts(**self._signed(who), reason=_stated(reason))))

    def settle(self, reference: str | int, decide: Callable[[Entry], Ending], *, who: str | None = None) -> Entry:
        """Commit or abort an entry as ``decide`` says of how it stands in the very transaction that ends it."""
        signed = self._signed(who)

        def ended(standing: Standing) -> tuple[str, Facts]:
            ending = decide(self._account.entry(standing))
            if ending.bundle is not None:
                return COMMIT, CommitFacts(**signed, bundle=ending.bundle)
            return ABORT, ReasonFacts(**signed, reason=_stated(ending.because))

        return self._move(reference, ended)

    def withdraw(self, reference: str | int, *, reason: str, who: str | None = None) -> Entry:
        """Record that a release was taken back. What was seen stays seen: it goes on counting."""
        return self._move(reference, _fixed(WITHDRAW, ReasonFacts(**self._signed(who), reason=_stated(reason))))

    def set_policy(self, policy: Policy | None, *, reason: str, who: str | None = None) -> None:
        """Put another policy in force; the old one stays in the ledger, with the reason of the change."""
        document = None if policy is None else policy.document
        facts = PolicyFacts(**self._signed(who), policy=document, reason=_stated(reason))
        self._append(lambda account: (POLICY, "", "", facts), id_=str(uuid4()))

    def _open_entry(self, kind: str, request: Request) -> Entry:
        documents, digest = _document(request)
        id_ = str(uuid4())
        signed = self._signed(request.who)

        def prepared(account: Account) -> tuple[str, str, str, Facts]:
            facts = opening_facts(account, request, **signed)
            policy = _policy(account)
            if kind == RESERVE and policy is not None:
                outlook = Outlook(account=account, facts=facts, specification=request.specification, digest=digest)
                outlook.check(policy)
            return kind, id_, digest, facts

        self._append(prepared, id_=id_, documents=documents)
        return self._account.entry(self._account.standings[id_])

    def _move(self, reference: str | int, event: Callable[[Standing], tuple[str, Facts]]) -> Entry:
        found: list[str] = []

        def prepared(account: Account) -> tuple[str, str, str, Facts]:
            standing = account.find(reference)
            kind, facts = event(standing)
            refusal = refusal_of(kind, standing)
            if refusal:
                raise bad_request(
                    refusal,
                    where=f"entry {standing.opening.number}",
                    remedy="see `stirred ledger show` for where each entry stands",
                )
            found.append(standing.opening.id)
            return kind, standing.opening.id, "", facts

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

    # ---- looking ---------------------------------------------------------------------------------

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
            return total(charged, account.specification, currency=currency, reserved=reserved)

    def verify(self, *, head: str | None = None) -> Verification:
        """Check everything anew from the storage, also against a hash written down earlier."""
        return verify_store(self.store, head=head)


class _Stopped(Exception):  # noqa: N818 - it leaves a transaction, and is no error
    """What ends a transaction that was only tried."""


def _fixed(kind: str, facts: Facts) -> Callable[[Standing], tuple[str, Facts]]:
    return lambda _: (kind, facts)


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
    facts = facts_of(row, GenesisFacts) if row.kind == GENESIS else facts_of(row, PolicyFacts)
    return PolicyChange(
        number=row.number,
        who=facts.who,
        when=facts.at,
        reason=facts.reason if isinstance(facts, PolicyFacts) else "",
        policy=None if facts.policy is None else Policy.stored(facts.policy),
    )


def _stated(reason: str) -> str:
    if not reason.strip():
        raise bad_request("no reason is given", where="reason", remedy="say why; it stays in the ledger")
    return reason
