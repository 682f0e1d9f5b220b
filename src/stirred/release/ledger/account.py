"""The account: what the rows say together, checked link by link as they are read; and the check of a whole ledger."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from stirred.release.ledger import row as kinds
from stirred.release.ledger.problems import BrokenLedgerError, DamagedStorageError, bad_request, broken
from stirred.release.ledger.row import (
    ABORTED,
    COMMITTED,
    NOTHING,
    RESERVED,
    SCHEMA_VERSION,
    WITHDRAWN,
    Charge,
    Entry,
    Event,
    Facts,
    GenesisFacts,
    OpeningFacts,
    Row,
    by_part,
    counts,
    digest_of,
    facts_of,
    numbers,
    plan_in,
    row_hash,
)
from stirred.release.ledger.sqlite import DAMAGED
from stirred.release.ledger.store import Store
from stirred.spec.document import from_json
from stirred.spec.domain import file_identity
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import KEYS_ALONE, KeysAlone, Specification


@contextmanager
def without_collecting() -> Iterator[None]:
    """Suspend the search for reference cycles while very many rows are read, none of which can be part of one.

    It would look at every row again and again, and take a third of the time. What was made meanwhile is put among
    the old objects, unseen, or the first search afterwards would go through all of it at once.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if not gc.get_freeze_count():  # objects that somebody else keeps out of every search stay out
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@dataclass(slots=True)
class Standing:
    """Where one entry stands: the row that opened it, and what happened since."""

    opening: Row
    status: str
    drawn: bool
    is_plain: bool  # the entry refers to no other and to no sample
    moves: tuple[Row, ...] = ()  # every later row about it, in order
    _facts: OpeningFacts | None = None

    @property
    def facts(self) -> OpeningFacts:
        """Return what the opening row states, read when first asked for."""
        if self._facts is None:
            self._facts = facts_of(self.opening)
        return self._facts

    @property
    def is_derived(self) -> bool:
        """Say whether the entry is computed from the output of others: nothing is drawn for it, and it is free."""
        return not self.is_plain and bool(self.facts.derived_from)

    @property
    def is_unspecified(self) -> bool:
        """Say whether the entry is a release whose cost is not known."""
        return not self.is_plain and bool(self.facts.unspecified)

    @property
    def charge(self) -> Charge:
        """Return the entry as the total sees it."""
        opening, status, drawn = self.opening, self.status, self.drawn
        spent = counts(status, drawn=drawn)
        charge = Charge(
            opening.number, opening.id, opening.specification, spent, drawn, status == RESERVED, status == ABORTED
        )
        return charge if self.is_plain else charge._replace(**self.facts.relations)

    @property
    def history(self) -> tuple[Event, ...]:
        """Return everything that happened to the entry."""
        return tuple(_event(row) for row in (self.opening, *self.moves))


def _event(row: Row) -> Event:
    facts = facts_of(row)
    more = {key: value for key, value in facts if key in ("reason", "to", "began")}
    more["accepted"] = tuple(getattr(facts, "accepted", ()))
    if row.kind == kinds.PUBLISHING:  # of the other kinds, places and checksums are facts of the entry
        more |= {"place": facts.place, "files": facts.files}
    return Event(number=row.number, kind=row.kind, who=facts.who, when=facts.at, **more)


_PUBLICATIONS: Final = frozenset({kinds.PUBLISHING, kinds.PUBLISH, kinds.UNPUBLISHED})
_MOVES: Final = frozenset({kinds.DRAW, kinds.COMMIT, kinds.ABORT, kinds.WITHDRAW}) | _PUBLICATIONS


class Account:
    """The fold over the rows of one ledger.

    Reading checks every hash and link and every change of status, so nothing is ever computed from a
    broken chain. Rows can be added as they come; the account remembers where it stopped.
    """

    def __init__(self, document: Callable[[str], str | None]) -> None:
        self.last: Row | None = None
        self.genesis: GenesisFacts | None = None
        self.policy: dict[str, Any] | None = None
        self.policies: list[Row] = []  # the genesis, which may have one, and every change
        self.standings: dict[str, Standing] = {}
        self._document = document
        self._ids: set[str] = set()
        self._specifications: dict[str, Specification] = {}
        self._openings: dict[str, Row] = {}  # by digest, one that states its files, if any does

    def read(self, rows: Iterable[Row]) -> Account:
        """Take in further rows; the first that does not follow is refused."""
        last, ids = self.last, self._ids
        expected, previous = (0, NOTHING) if last is None else (last.number + 1, last.hash)
        for row in rows:  # read in one loop and by position: of 300,000 rows, each call and name is a tenth of a second
            number, id_, kind, _, _, _, before, hashed = row
            if number != expected or before != previous or hashed != row_hash(*row[:7]) or id_ in ids:
                raise _misfit(row, expected, previous)
            if kind in _MOVES and number:
                self._move(row)
            elif kind in kinds.OPENING and number:
                self._open(row)
            else:
                self._take_other(row)
            ids.add(id_)
            self.last = row
            expected, previous = expected + 1, hashed
        return self

    def _take_other(self, row: Row) -> None:
        """Take in a row about the whole ledger, and refuse any other."""
        kind = row.kind
        if (row.number == 0) != (kind == kinds.GENESIS):
            raise broken("a ledger begins with its genesis, and only there", kind="transition", number=row.number)
        if kind not in kinds.KINDS:
            raise broken(f"there is no kind {kind!r}", kind="unknown kind", number=row.number)
        elif row.entry:
            raise broken(f"a row of kind {kind!r} cannot be about an entry", kind="transition", number=row.number)
        elif kind == kinds.POLICY:
            self.policy = facts_of(row).policy
            self.policies.append(row)
        else:
            self.genesis = begun = facts_of(row)
            if begun.schema_version > SCHEMA_VERSION:
                what = f"this ledger was written by a newer stirred (schema {begun.schema_version})"
                raise bad_request(what, where="ledger", remedy="install the newer version")
            self.policy = begun.policy
            self.policies.append(row)

    def _open(self, row: Row) -> None:
        if row.entry != row.id:
            raise broken("an entry is opened under another id than its own", kind="transition", number=row.number)
        elsewhere = row.kind == kinds.ADD
        # Canonical JSON leaves these keys out where there is nothing to say; a text that holds one is read in full.
        is_plain = not any(key in row.facts for key in ('"derived_from"', '"includes"', '"sample"', '"unspecified"'))
        standing = Standing(row, COMMITTED if elsewhere else RESERVED, elsewhere, is_plain)
        if not standing.is_plain:
            facts = standing.facts
            unknown = [other for other in (*facts.derived_from, *facts.includes) if other not in self.standings]
            if unknown:
                raise broken(
                    f"it refers to entry {unknown[0]}, which is not there", kind="reference", number=row.number
                )
        without = standing.is_derived or (elsewhere and standing.is_unspecified)
        if bool(row.specification) == without:
            kind = "a derived product" if standing.is_derived else "an unspecified release"
            what = f"{kind} has a specification" if without else "an entry has no specification"
            raise broken(what, kind="facts", number=row.number)
        self.standings[row.entry] = standing
        known = self._openings.setdefault(row.specification, row)
        if '"inputs"' in row.facts and '"inputs"' not in known.facts:
            self._openings[row.specification] = row
            self._specifications.pop(row.specification, None)

    def _move(self, row: Row) -> None:
        standing = self.standings.get(row.entry)
        if standing is None:
            raise broken(f"it refers to entry {row.entry}, which is not there", kind="reference", number=row.number)
        refusal = refusal_of(row.kind, standing, began=_began(row))
        if refusal:
            raise broken(refusal, kind="transition", number=row.number)
        standing.moves += (row,)
        if row.kind == kinds.DRAW:
            standing.drawn = True
        elif row.kind not in _PUBLICATIONS:
            standing.status = _LEADS_TO[row.kind]

    def specification(self, digest: str) -> Specification:
        """Return a specification by digest, read and checked once."""
        if digest not in self._specifications:
            inputs = facts_of(self._openings[digest]).inputs if digest in self._openings else {}
            read = self._with_key_column(self._read_document(digest), digest)
            self._specifications[digest] = self.identified(read, inputs)
        return self._specifications[digest]

    def _with_key_column(self, specification: Specification, digest: str) -> Specification:
        """Name the column of the record keys by the plan, where an earlier version did not write it."""
        if KEYS_ALONE not in specification.relies_on:
            return specification
        plans = [s.facts.parameters for s in self.standings.values() if s.opening.specification == digest]
        columns = {(plan.get("mechanism") or {}).get("record_key") or "" for plan in plans}
        known = KeysAlone(column=columns.pop()) if len(columns) == 1 else KEYS_ALONE
        return replace(specification, relies_on=tuple(known if r == KEYS_ALONE else r for r in specification.relies_on))

    def identified(self, specification: Specification, inputs: Mapping[str, str]) -> Specification:
        """Return a specification with what the ledger knows of its file, in whatever words it names it.

        A ledger accounts for one dataset: what was released from files of it, or is called like it, is of this dataset.
        """
        begun, domain = self.genesis, specification.domain
        of_dataset = begun is not None and (bool(inputs) or domain.name == begun.dataset)
        known = file_identity(ledger=begun.ledger if begun and of_dataset else "", files=inputs.values())
        return specification.with_flavor(domain=replace(domain, identity=domain.identity | known))

    def other_files(self, inputs: Mapping[str, str]) -> dict[str, list[int]]:
        """Return, for each file, the entries that count and were released from another one."""
        found: dict[str, list[int]] = {}
        for standing in self.standings.values() if inputs else ():
            parts = by_part(standing.facts.inputs)
            for role, seen in inputs.items() if counts(standing.status, drawn=standing.drawn) else ():
                # The persons of an earlier release may be the records of this one: a file is known by its checksum.
                if {*by_part({role: seen})} & {*parts} and seen not in parts.values():
                    found.setdefault(role, []).append(standing.opening.number)
        return found

    def _read_document(self, digest: str) -> Specification:
        text = self._document(digest)
        if text is None:
            raise self._bad_document(digest, "is missing")
        if digest_of(text) != digest:
            raise self._bad_document(digest, "was changed")
        try:
            return from_json(text)
        except StirredError as error:
            raise self._bad_document(digest, f"cannot be read: {error.problems[0]}") from None

    def _bad_document(self, digest: str, what: str) -> BrokenLedgerError:
        using = (s.opening.number for s in list(self.standings.values()) if s.opening.specification == digest)
        return broken(f"the specification {digest[:12]} {what}", kind="document", number=next(using, 0))

    def entry(self, standing: Standing) -> Entry:
        """Return the entry of a standing."""
        opening, facts = standing.opening, standing.facts
        committed = [row for row in standing.moves if row.kind == kinds.COMMIT]
        ended = [row for row in standing.moves if row.kind in (kinds.ABORT, kinds.WITHDRAW)]
        is_ended = standing.status in (ABORTED, WITHDRAWN)
        stated = {**dict(facts), "bundle": facts_of(committed[-1]).bundle if committed else facts.bundle}
        return Entry.model_construct(  # every value was checked when its row was read
            **stated,
            number=opening.number,
            id=opening.id,
            specification=self.specification(opening.specification) if opening.specification else None,
            status=standing.status,
            drawn=standing.drawn,
            hash=opening.hash,
            previous=opening.previous,
            reason=facts_of(ended[-1]).reason if is_ended else "",
            elsewhere=opening.kind == kinds.ADD,
            history=standing.history,
        )

    def plan_of(self, id_: str) -> str:
        """Return the plan of an entry, the same for every run of it on the same files; nothing where none is kept."""
        standing = self.standings.get(id_)
        return "" if standing is None else plan_in(standing.facts)

    def charges(self) -> list[Charge]:
        """Return all entries as the total sees them."""
        with without_collecting():
            return [standing.charge for standing in self.standings.values()]

    def find(self, reference: str | int) -> Standing:
        """Return the entry with this number, id or beginning of an id."""
        text = str(reference).strip()
        if text.isdecimal() and len(text) < 8:
            found = [s for s in self.standings.values() if s.opening.number == int(text)]
        else:
            found = [s for id_, s in self.standings.items() if len(text) >= 4 and id_.startswith(text)]
        if len(found) != 1:
            what = f"there is no such entry{self._row_in_words(text)}"
            entries = [s.opening.number for s in self.standings.values()]
            raise bad_request(
                f"{text!r}: {what if not found else f'{len(found)} entries begin like this'}",
                where="entry",
                remedy="give the number or the id that `stirred ledger show` lists"
                f"{f'; entries are {numbers(entries)}' if entries else ''}",
            )
        return found[0]

    def _row_in_words(self, number: str) -> str:
        """Say what a row is that opens no entry: entries have the numbers of their first rows, so there are gaps."""
        if number == "0":
            return "; row 0 is the beginning of the ledger"
        if any(number == str(row.number) for row in self.policies):
            return f"; row {number} is a change of policy"
        moves = ((s.opening.number, row) for s in self.standings.values() for row in s.moves)
        about = next(
            (f" about entry {first} ({_event(row).what})" for first, row in moves if number == str(row.number)), ""
        )
        return f"; row {number} is{about}" if about else ""


def not_of(others: Mapping[str, Sequence[int]], dataset: str, *, where: str) -> list[Problem]:
    """Return that files are not those of earlier entries, and how to say that they are of one dataset all the same."""
    remedy = (
        f"if it is the same dataset, edited since, say so with name = '{dataset}' under [data] (--set "
        "name=..., and --name of `stirred ledger add`); another dataset needs a ledger of its own"
    )
    return [
        Problem(
            what=f"this is not the file of entry {numbers(entries)}, released before from '{dataset}'",
            where=f"{where} {role}",
            remedy=remedy,
        )
        for role, entries in others.items()
    ]


def _misfit(row: Row, number: int, previous: str) -> BrokenLedgerError:
    """Say how a row does not follow from the one before it."""
    if row.number != number:
        return broken(f"row {number} is missing; the next one is {row.number}", kind="gap", number=number)
    if row.previous != previous:
        return broken("it does not follow from the row before it", kind="link", number=number)
    if not row.is_text:
        return broken("its text cannot be read: it is not UTF-8, or not text at all", kind="text", number=number)
    if row.hash != row.computed_hash:
        return broken("its content is not what was written", kind="content", number=number)
    return broken("its id stands in an earlier row already", kind="duplicate", number=number)


_LEADS_TO: Final = {kinds.COMMIT: COMMITTED, kinds.ABORT: ABORTED, kinds.WITHDRAW: WITHDRAWN}


def _began(row: Row) -> int | None:
    """Return the row of the publication that this row ends, if it ends one."""
    return facts_of(row).began if row.kind in (kinds.PUBLISH, kinds.UNPUBLISHED) else None


def refusal_of(kind: str, standing: Standing, *, began: int | None = None) -> str:
    """Return why an event cannot happen to an entry now; nothing if it can.

    A bundle that turns up after a drawn reservation was aborted may still be committed: what it cost
    is counted already. A publication that ``began`` is ended once, even if the entry was withdrawn meanwhile:
    whether it appeared is a fact.
    """
    if began is not None:
        is_open = any(row.number == began and row.kind == kinds.PUBLISHING for row in standing.moves)
        if not is_open or began in map(_began, standing.moves):
            return f"row {began} began no publication of this entry that is still open"
        return ""
    status, drawn = standing.status, standing.drawn
    if kind == kinds.DRAW and standing.is_derived:
        return "nothing may be drawn for an entry that is derived from others: it was recorded as free"
    if kind == kinds.DRAW:
        fits = status == RESERVED and not drawn
        return "" if fits else f"nothing may be drawn for an entry that is {_named(standing)}"
    if kind == kinds.COMMIT and status == RESERVED and not (drawn or standing.is_derived):
        return "an entry cannot be committed before its draw is recorded"
    fits = status == _COMES_FROM[kind] or (kind == kinds.COMMIT and status == ABORTED and drawn)
    return "" if fits else f"an entry that is {_named(standing)} cannot be {_DONE[kind]}"


# What an entry must be for an event, and what it then is called.
_COMES_FROM: Final = {
    kinds.COMMIT: RESERVED,
    kinds.ABORT: RESERVED,
    kinds.PUBLISHING: COMMITTED,
    kinds.PUBLISH: COMMITTED,
    kinds.WITHDRAW: COMMITTED,
}
_DONE: Final = {**_LEADS_TO, kinds.PUBLISHING: "published", kinds.PUBLISH: "published"}


def _named(standing: Standing) -> str:
    return f"{standing.status} and drawn" if standing.status == RESERVED and standing.drawn else standing.status


# ---- the check of a whole ledger ---------------------------------------------------------------------------

_MOST_NOTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of the whole ledger found.

    ``first_break`` is None for a sound ledger. ``observations`` are oddities that break nothing, such
    as clocks that went backwards. ``head`` is the last hash: kept elsewhere, it shows later whether
    rows were cut off at the end, which the chain alone cannot.
    """

    rows: int
    entries: int
    head: str
    first_break: BrokenLedgerError | None = None
    observations: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Say whether nothing is broken."""
        return self.first_break is None


def verify_rows(rows: Sequence[Row], documents: Mapping[str, str], *, head: str | None = None) -> Verification:
    """Check rows and documents; ``head`` is a hash written down earlier that must still be there."""
    account, clock = Account(documents.get), _Clock()
    first: BrokenLedgerError | None = None
    try:
        if not rows:
            raise broken("the ledger has no rows", kind="gap", number=0)
        account.read(_checked(rows, account, clock))
        if head is not None:
            _check_head(rows, head)
    except BrokenLedgerError as error:
        first = error
    used = {row.specification for row in rows}
    unused = sum(digest not in used for digest in documents)
    idle = [f"{unused} stored specification{'s' if unused > 1 else ''} that no row refers to"] if unused else []
    return Verification(
        rows=len(rows),
        entries=len(account.standings),
        head=account.last.hash if account.last else "",
        first_break=first,
        observations=(*clock.notes, *idle),
    )


def _checked(rows: Sequence[Row], account: Account, clock: _Clock) -> Iterator[Row]:
    """Hand on each row; once the account has taken it in, look at what a total has no need to look at."""
    for row in rows:
        yield row
        clock.look(row.number, _facts(row).at)
        if row.kind in kinds.OPENING and row.specification:
            account.specification(row.specification)


def verify_store(store: Store, *, head: str | None = None) -> Verification:
    """Check a stored ledger; damage of the storage itself is a break as well."""
    left = store.unfinished()
    found = Verification(rows=0, entries=0, head="", observations=tuple(left))
    try:
        with without_collecting():
            checked = verify_rows(store.rows(), store.documents(), head=head)
        found = replace(checked, observations=(*left, *checked.observations))
        if found.first_break is None and (damage := store.damage()):
            what = f"SQLite's own check finds the file damaged: {'; '.join(damage[:3])} (storage)"
            problem = Problem(what=f"every row can be read, but {what}", where=store.name, remedy=DAMAGED)
            found = replace(found, first_break=BrokenLedgerError((problem,), kind="storage"))
        return replace(found, observations=(*found.observations, *store.guards()))
    except DamagedStorageError as error:
        return replace(found, first_break=found.first_break or BrokenLedgerError(error.problems, kind="storage"))


def _facts(row: Row) -> Facts:
    """Return the facts of a row, whose text must be the canonical one: nothing else was written by us."""
    try:
        data = json.loads(row.facts, parse_constant=_no_constant)
        same = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":")) == row.facts
    except (ValueError, RecursionError):
        raise broken("its facts are not JSON", kind="facts", number=row.number) from None
    if not same:
        raise broken("its facts are not in canonical form", kind="facts", number=row.number)
    found: Facts = facts_of(row, data)
    return found


def _no_constant(text: str) -> str:
    raise ValueError(text)


def _check_head(rows: Sequence[Row], head: str) -> None:
    wanted = head.strip().lower()
    if len(wanted) < 16:
        raise bad_request(f"{head!r} is too short to be a hash", where="--head", remedy="give the whole hash")
    if not any(row.hash.startswith(wanted) for row in rows):
        raise broken(
            f"no row has the hash {wanted[:16]}... that was written down: rows are missing at the end",
            kind="cut off",
            number=len(rows),
        )


class _Clock:
    """Notes where a stated time is earlier than one before it. Clocks are not trusted; the numbers give the order."""

    def __init__(self) -> None:
        self._latest: tuple[datetime, int] | None = None
        self._notes: list[str] = []

    def look(self, number: int, text: str) -> None:
        """Look at the time one row states."""
        try:
            stated = datetime.fromisoformat(text)
        except ValueError:
            stated = None
        if stated is None or stated.tzinfo is None:
            self._notes.append(f"row {number}: its time cannot be read")
        elif self._latest is not None and stated < self._latest[0]:
            self._notes.append(
                f"row {number}: its clock is behind that of row {self._latest[1]} ({stated.isoformat()} after "
                f"{self._latest[0].isoformat()}); the order is that of the numbers"
            )
        else:
            self._latest = (stated, number)

    @property
    def notes(self) -> list[str]:
        """Return the first few notes, and how many more there are."""
        more = len(self._notes) - _MOST_NOTES
        return [*self._notes[:_MOST_NOTES], *([f"{more:,} more rows like this"] if more > 0 else [])]
