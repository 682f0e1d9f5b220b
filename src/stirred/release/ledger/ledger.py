"""The ledger of one confidential dataset: reserve, draw, commit, abort, withdraw; total; verify."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

from stirred.release.ledger.account import Account, Standing, refusal_of, without_collecting
from stirred.release.ledger.entry import Entry
from stirred.release.ledger.facts import (
    CommitFacts,
    DrawFacts,
    Facts,
    GenesisFacts,
    OpeningFacts,
    PolicyFacts,
    ReasonFacts,
)
from stirred.release.ledger.policy import Policy
from stirred.release.ledger.problems import LedgerError, bad_request, broken
from stirred.release.ledger.row import (
    ABORT,
    ADD,
    COMMIT,
    DRAW,
    GENESIS,
    POLICY,
    RESERVE,
    SCHEMA_VERSION,
    WITHDRAW,
    Row,
    canonical,
    digest_of,
    next_row,
)
from stirred.release.ledger.store import Addition, Store, store_at
from stirred.release.ledger.total import Charge, Currency, Total, numbers, total
from stirred.release.ledger.verify import Verification, verify_store
from stirred.spec.compose import compose
from stirred.spec.document import to_document
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification

Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the ledger for one release, before anything random has happened.

    ``place`` is where the bundle will appear, so that a release interrupted after its bundle appeared
    can be found again. ``derived_from`` and ``includes`` are numbers or ids of entries.
    """

    mechanism: str
    specification: Specification | None = None
    purpose: str = ""
    who: str | None = None
    parameters: Mapping[str, Any] | None = None
    inputs: Mapping[str, str] | None = None
    sample: str | None = None
    amplified: bool = False
    derived_from: Sequence[str | int] = ()
    includes: Sequence[str | int] = ()
    place: str | Path | None = None
    bundle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is to become of an entry, and why: committed with this bundle, or aborted."""

    because: str
    bundle: str | None = None


class Ledger:
    """The append-only account of all releases from one confidential dataset.

    A release lives through ``reserve`` (checked against the policy, in one transaction), ``draw``
    (recorded just before anything random happens), ``commit`` (a complete bundle exists), or ``abort``;
    a committed one may be withdrawn, which undoes nothing.

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
        return self._open_entry(RESERVE, request)

    def add(self, request: Request) -> Entry:
        """Record a release made elsewhere. It happened, so no policy can refuse it."""
        return self._open_entry(ADD, request)

    def would(self, request: Request) -> Total:
        """Return the total there would be with a release, refusing one the policy forbids. Nothing is written."""
        document = None if request.specification is None else checked_document(request.specification)
        digest = "" if document is None else digest_of(document)
        with self._lock:
            account = self._refresh()
            facts = self._opening(account, request, self._signed(request.who))
            _check_request(account, request)
            policy = _policy(account)
            if policy is not None:
                _check_policy(policy, account, request, facts, digest)
            charged = [*charges(account.standings.values()), _new_charge(account, facts, digest, drawn=True)]
        return total(charged, _specification_with(account, request, digest))

    def draw(self, reference: str | int, *, who: str | None = None) -> Entry:
        """Record that randomness is about to be drawn. From here on the entry is spent, whatever happens."""
        return self._move(reference, _fixed(DRAW, DrawFacts(**self._signed(who))))

    def commit(self, reference: str | int, *, bundle: str, who: str | None = None) -> Entry:
        """Record that a complete bundle with this checksum exists."""
        return self._move(reference, _fixed(COMMIT, CommitFacts(**self._signed(who), bundle=bundle)))

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
        document = None if request.specification is None else checked_document(request.specification)
        digest = "" if document is None else digest_of(document)
        id_ = str(uuid4())
        signed = self._signed(request.who)

        def prepared(account: Account) -> tuple[str, str, str, Facts]:
            facts = self._opening(account, request, signed)
            _check_request(account, request)
            policy = _policy(account)
            if kind == RESERVE and policy is not None:
                _check_policy(policy, account, request, facts, digest)
            return kind, id_, digest, facts

        documents = {} if document is None else {digest: document}
        self._append(prepared, id_=id_, documents=documents)
        return self._account.entry(self._account.standings[id_])

    def _opening(self, account: Account, request: Request, signed: dict[str, str]) -> OpeningFacts:
        return OpeningFacts(
            **signed,
            mechanism=_named(request.mechanism),
            purpose=request.purpose,
            parameters=dict(request.parameters or {}),
            sample=request.sample,
            amplified=request.amplified,
            derived_from=[_source(account, reference) for reference in request.derived_from],
            includes=[account.find(reference).opening.id for reference in request.includes],
            inputs=dict(request.inputs or {}),
            place=None if request.place is None else str(Path(request.place).absolute()),
            bundle=request.bundle,
        )

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
            charged = charges(account.standings.values())
        with without_collecting():
            return total(charged, account.specification, currency=currency, reserved=reserved)

    def verify(self, *, head: str | None = None) -> Verification:
        """Check everything anew from the storage, also against a hash written down earlier."""
        return verify_store(self.store, head=head)


def _fixed(kind: str, facts: Facts) -> Callable[[Standing], tuple[str, Facts]]:
    return lambda _: (kind, facts)


def user() -> str:
    """Return who is at work, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def charges(standings: Iterable[Standing]) -> list[Charge]:
    """Return entries as the total sees them."""
    return [_charge(standing) for standing in standings]


def _charge(standing: Standing) -> Charge:
    opening = standing.opening
    if standing.is_plain:
        return Charge(
            opening.number, opening.id, opening.specification, standing.counts, standing.drawn, standing.is_open
        )
    facts = standing.facts
    return Charge(
        number=opening.number,
        id=opening.id,
        specification=opening.specification,
        spent=standing.counts,
        drawn=standing.drawn,
        reserved=standing.is_open,
        sample=facts.sample,
        amplified=facts.amplified,
        derived_from=tuple(facts.derived_from),
        includes=tuple(facts.includes),
    )


def checked_document(specification: Specification) -> str:
    """Return a specification as the ledger keeps it; letters without a value and test runs are refused."""
    if specification.budget.is_free:
        raise bad_request(
            "the budget is a letter without a value", where="specification", remedy="give it a value before releasing"
        )
    if specification.seeded:
        raise bad_request(
            "a test run with a seed is no release",
            where="specification",
            remedy="run it without a ledger; whoever knows the seed can undo the protection",
        )
    return canonical(to_document(specification))


def _policy(account: Account) -> Policy | None:
    return None if account.policy is None else Policy.from_document(account.policy)


def _stated(reason: str) -> str:
    if not reason.strip():
        raise bad_request("no reason is given", where="reason", remedy="say why; it stays in the ledger")
    return reason


def _named(mechanism: str) -> str:
    if not mechanism.strip():
        raise bad_request("the mechanism has no name", where="mechanism", remedy="name what made the release")
    return mechanism


def _source(account: Account, reference: str | int) -> str:
    """Return the id of an entry to derive from: something that is out already, or drawn."""
    standing = account.find(reference)
    if not standing.drawn and not standing.facts.derived_from:
        raise bad_request(
            f"entry {standing.opening.number} is {standing.status} and nothing was drawn for it",
            where="derived_from",
            remedy="derive from an entry whose output exists",
        )
    return standing.opening.id


def _check_request(account: Account, request: Request) -> None:
    given = () if request.bundle is None else map(account.entry, account.standings.values())
    known = [entry.number for entry in given if entry.bundle == request.bundle]
    if known:
        raise bad_request(
            f"this release is entry {known[0]} already",
            where="bundle",
            remedy="a release counts once; if it was made twice, each has a bundle and a checksum of its own",
        )
    if request.specification is None and not request.derived_from:
        raise bad_request(
            "there is no specification",
            where="specification",
            remedy="give one, or say from which entry the release is derived",
        )
    if request.derived_from and request.specification is not None:
        raise bad_request(
            "a derived product costs nothing, so it has no specification of its own",
            where="derived_from",
            remedy="leave the specification out, or, if anything is drawn for it, leave derived_from out",
        )
    if request.derived_from and (request.includes or request.sample):
        raise bad_request(
            "a derived product costs nothing, so it includes nothing and draws from no sample",
            where="derived_from",
            remedy="leave out includes and sample",
        )
    if request.amplified and request.sample is None:
        raise bad_request(
            "the loss is amplified by a sample that has no name",
            where="sample",
            remedy="name the sample, so that other releases from it are recognised",
        )
    if request.includes and request.specification is not None:
        _check_inclusion(account, [account.find(reference) for reference in request.includes], request.specification)


def _check_inclusion(account: Account, inner: list[Standing], whole: Specification) -> None:
    """Refuse a whole that holds less fixed than its parts together, costs less, or cannot be compared with them."""
    named = f"entry {numbers([standing.opening.number for standing in inner])}"
    together = total([_charge(standing) for standing in inner], account.specification)
    if not together.parts and not together.alone:
        return  # nothing that costs is included
    parts = together.specification
    if parts is None:
        reason = [*together.apart, *(aside.reason for aside in together.alone)][0]
        raise _not_included(f"{named} cannot be added up ({_short(reason)}), so nothing says what contains them")
    fixed = whole.multiverse.refines(parts.multiverse)
    if not fixed:
        raise _not_included(f"it does not hold fixed what {named} holds fixed ({fixed.reason})")
    if whole.input_premetric != parts.input_premetric:
        raise _not_included(f"it counts changes otherwise than {named}")
    try:
        common = compose([whole, parts]).specification.output_premetric
        # Delta adds up, so losses with one are compared as they stand, and only at a delta that is no smaller.
        wanted = None if common.delta else common
        ours, theirs = (compose([one], output=wanted).specification for one in (whole, parts))
    except StirredError as error:
        raise _not_included(f"it cannot be compared with {named} ({_short(str(error.problems[0]))})") from None
    less_delta = ours.output_premetric.delta < theirs.output_premetric.delta
    if less_delta or ours.output_premetric.name != theirs.output_premetric.name:
        raise _not_included(f"it cannot be compared with {named} (the deltas or the measures of change differ)")
    if ours.budget.realised < theirs.budget.realised:
        raise _not_included(f"{ours.budget_text} is less than the {theirs.budget_text} of {named}")


def _short(reason: str) -> str:
    return reason.partition(". Mend:")[0]


def _not_included(what: str) -> LedgerError:
    return bad_request(
        f"{what}, so it cannot contain it",
        where="includes",
        remedy="give the specification of everything together, or leave includes out",
    )


def _check_policy(policy: Policy, account: Account, request: Request, facts: OpeningFacts, digest: str) -> None:
    before = charges(account.standings.values())
    new = _new_charge(account, facts, digest)
    specification = _specification_with(account, request, digest)
    policy.check(
        who=facts.who,
        specification=request.specification,
        now=lambda currency: total(before, account.specification, currency=currency),
        then=lambda currency: total([*before, new], specification, currency=currency),
    )


def _new_charge(account: Account, facts: OpeningFacts, digest: str, *, drawn: bool = False) -> Charge:
    return Charge(
        number=0 if account.last is None else account.last.number + 1,
        id="",
        specification=digest,
        drawn=drawn,
        sample=facts.sample,
        amplified=facts.amplified,
        derived_from=tuple(facts.derived_from),
        includes=tuple(facts.includes),
    )


def _specification_with(account: Account, request: Request, digest: str) -> Callable[[str], Specification]:
    """Return how to look specifications up, that of the request included."""

    def specification(wanted: str) -> Specification:
        if wanted == digest and request.specification is not None:
            return request.specification
        return account.specification(wanted)

    return specification
