"""The account: what the rows say together, checked link by link while they are read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from stirred.release.ledger.entry import ABORTED, COMMITTED, RESERVED, WITHDRAWN, Entry, counts
from stirred.release.ledger.facts import CommitFacts, GenesisFacts, OpeningFacts, PolicyFacts, ReasonFacts, facts_of
from stirred.release.ledger.problems import BrokenLedgerError, bad_request, broken
from stirred.release.ledger.row import (
    ABORT,
    ADD,
    COMMIT,
    DRAW,
    GENESIS,
    KINDS,
    NOTHING,
    OPENING,
    POLICY,
    SCHEMA_VERSION,
    WITHDRAW,
    Row,
    digest_of,
)
from stirred.spec.document import from_json
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification


@contextmanager
def without_collecting() -> Iterator[None]:
    """Suspend the search for reference cycles while very many rows are read, none of which can be part of one.

    It would look at every row again and again, and take a third of the time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(slots=True)
class Standing:
    """Where one entry stands: the row that opened it, and what happened since."""

    opening: Row
    status: str
    drawn: bool
    is_plain: bool  # the entry refers to no other and to no sample
    committed: Row | None = None
    ended: Row | None = None  # the last abort or withdrawal
    _facts: OpeningFacts | None = None

    @property
    def facts(self) -> OpeningFacts:
        """Return what the opening row states, read when first asked for."""
        if self._facts is None:
            self._facts = facts_of(self.opening, OpeningFacts)
        return self._facts

    @property
    def is_derived(self) -> bool:
        """Say whether the entry is computed from the output of others: nothing is drawn for it, and it is free."""
        return not self.is_plain and bool(self.facts.derived_from)

    @property
    def is_open(self) -> bool:
        """Say whether the entry is a reservation that has not ended."""
        return self.status == RESERVED

    @property
    def counts(self) -> bool:
        """Say whether the entry counts in the total."""
        return counts(self.status, drawn=self.drawn)


def _is_plain(facts: str) -> bool:
    # Canonical JSON leaves these keys out where there is nothing to say; a text that holds one is read in full.
    return '"derived_from"' not in facts and '"includes"' not in facts and '"sample"' not in facts


_MOVES: Final = frozenset({DRAW, COMMIT, ABORT, WITHDRAW})


class Account:
    """The fold over the rows of one ledger.

    Reading checks every hash and link and every change of status, so nothing is ever computed from a
    broken chain. Rows can be added as they come; the account remembers where it stopped.
    """

    def __init__(self, document: Callable[[str], str | None]) -> None:
        self.last: Row | None = None
        self.genesis: GenesisFacts | None = None
        self.policy: dict[str, Any] | None = None
        self.standings: dict[str, Standing] = {}
        self._document = document
        self._ids: set[str] = set()
        self._specifications: dict[str, Specification] = {}

    def read(self, rows: Iterable[Row]) -> Account:
        """Take in further rows; the first that does not follow is refused."""
        last, ids = self.last, self._ids
        expected, previous = (0, NOTHING) if last is None else (last.number + 1, last.hash)
        for row in rows:
            follows = row.number == expected and row.previous == previous and row.hash == row.computed_hash
            if not follows or row.id in ids:
                raise _misfit(row, expected, previous)
            self._take(row)
            ids.add(row.id)
            self.last = row
            expected, previous = expected + 1, row.hash
        return self

    def _take(self, row: Row) -> None:
        kind = row.kind
        if (row.number == 0) != (kind == GENESIS):
            raise broken("a ledger begins with its genesis, and only there", kind="transition", number=row.number)
        if kind in _MOVES:
            self._move(row)
        elif kind in OPENING:
            self._open(row)
        elif kind not in KINDS:
            raise broken(f"there is no kind {kind!r}", kind="unknown kind", number=row.number)
        elif row.entry:
            raise broken(f"a row of kind {kind!r} cannot be about an entry", kind="transition", number=row.number)
        elif kind == POLICY:
            self.policy = facts_of(row, PolicyFacts).policy
        else:
            self._begin(row)

    def _begin(self, row: Row) -> None:
        self.genesis = facts_of(row, GenesisFacts)
        if self.genesis.schema_version > SCHEMA_VERSION:
            raise bad_request(
                f"this ledger was written by a newer stirred (schema {self.genesis.schema_version})",
                where="ledger",
                remedy="install the newer version",
            )
        self.policy = self.genesis.policy

    def _open(self, row: Row) -> None:
        if row.entry != row.id:
            raise broken("an entry is opened under another id than its own", kind="transition", number=row.number)
        elsewhere = row.kind == ADD
        standing = Standing(row, COMMITTED if elsewhere else RESERVED, elsewhere, _is_plain(row.facts))
        if not standing.is_plain:
            facts = standing.facts
            unknown = [other for other in (*facts.derived_from, *facts.includes) if other not in self.standings]
            if unknown:
                raise broken(
                    f"it refers to entry {unknown[0]}, which is not there", kind="reference", number=row.number
                )
        if bool(row.specification) == standing.is_derived:
            what = "a derived product has a specification" if standing.is_derived else "an entry has no specification"
            raise broken(what, kind="facts", number=row.number)
        self.standings[row.entry] = standing

    def _move(self, row: Row) -> None:
        standing = self.standings.get(row.entry)
        if standing is None:
            raise broken(f"it refers to entry {row.entry}, which is not there", kind="reference", number=row.number)
        refusal = refusal_of(row.kind, standing)
        if refusal:
            raise broken(refusal, kind="transition", number=row.number)
        if row.kind == DRAW:
            standing.drawn = True
        else:
            standing.status = _LEADS_TO[row.kind]
            if row.kind == COMMIT:
                standing.committed, standing.ended = row, None
            else:
                standing.ended = row

    def specification(self, digest: str) -> Specification:
        """Return a specification by digest, read and checked once."""
        if digest not in self._specifications:
            self._specifications[digest] = self._read_document(digest)
        return self._specifications[digest]

    def _read_document(self, digest: str) -> Specification:
        text = self._document(digest)
        number = next((s.opening.number for s in list(self.standings.values()) if s.opening.specification == digest), 0)
        if text is None:
            raise broken(f"the specification {digest[:12]} is missing", kind="document", number=number)
        if digest_of(text) != digest:
            raise broken(f"the specification {digest[:12]} was changed", kind="document", number=number)
        try:
            return from_json(text)
        except StirredError as error:
            raise broken(
                f"the specification {digest[:12]} cannot be read: {error.problems[0]}", kind="document", number=number
            ) from None

    def entry(self, standing: Standing) -> Entry:
        """Return the entry of a standing."""
        opening, facts, ended, committed = standing.opening, standing.facts, standing.ended, standing.committed
        bundle = facts.bundle if committed is None else facts_of(committed, CommitFacts).bundle
        reason = "" if ended is None else facts_of(ended, ReasonFacts).reason
        return Entry(
            number=opening.number,
            id=opening.id,
            mechanism=facts.mechanism,
            specification=self.specification(opening.specification) if opening.specification else None,
            status=standing.status,
            drawn=standing.drawn,
            who=facts.who,
            when=facts.at,
            purpose=facts.purpose,
            hash=opening.hash,
            previous=opening.previous,
            parameters=facts.parameters,
            sample=facts.sample,
            amplified=facts.amplified,
            derived_from=tuple(facts.derived_from),
            includes=tuple(facts.includes),
            inputs=facts.inputs,
            place=facts.place,
            bundle=bundle,
            reason=reason,
            elsewhere=opening.kind == ADD,
        )

    def find(self, reference: str | int) -> Standing:
        """Return the entry with this number, id or beginning of an id."""
        text = str(reference).strip()
        if text.isdecimal() and len(text) < 8:
            found = [s for s in self.standings.values() if s.opening.number == int(text)]
        else:
            found = [s for id_, s in self.standings.items() if len(text) >= 4 and id_.startswith(text)]
        if len(found) != 1:
            what = "there is no such entry" if not found else f"{len(found)} entries begin like this"
            raise bad_request(
                f"{text!r}: {what}",
                where="entry",
                remedy="give the number or the id that `stirred ledger show` lists",
            )
        return found[0]


def _misfit(row: Row, number: int, previous: str) -> BrokenLedgerError:
    """Say how a row does not follow from the one before it."""
    if row.number != number:
        return broken(f"row {number} is missing; the next one is {row.number}", kind="gap", number=number)
    if row.previous != previous:
        return broken("it does not follow from the row before it", kind="link", number=number)
    if row.hash != row.computed_hash:
        return broken("its content is not what was written", kind="content", number=number)
    return broken("its id stands in an earlier row already", kind="duplicate", number=number)


_LEADS_TO: Final = {COMMIT: COMMITTED, ABORT: ABORTED, WITHDRAW: WITHDRAWN}


def refusal_of(kind: str, standing: Standing) -> str:
    """Return why an event cannot happen to an entry now; nothing if it can.

    A bundle that turns up after a drawn reservation was aborted may still be committed: what it cost
    is counted already.
    """
    status, drawn = standing.status, standing.drawn
    late = status == ABORTED and drawn
    if kind == DRAW:
        if standing.is_derived:
            return "nothing may be drawn for an entry that is derived from others: it was recorded as free"
        return (
            "" if status == RESERVED and not drawn else f"nothing may be drawn for an entry that is {_named(standing)}"
        )
    if kind == COMMIT:
        if status != RESERVED and not late:
            return f"an entry that is {_named(standing)} cannot be committed"
        return "" if drawn or standing.is_derived else "an entry cannot be committed before its draw is recorded"
    if kind == ABORT:
        return "" if status == RESERVED else f"an entry that is {_named(standing)} cannot be aborted"
    if kind == WITHDRAW:
        return "" if status == COMMITTED else f"an entry that is {_named(standing)} cannot be withdrawn"
    raise ValueError(kind)


def _named(standing: Standing) -> str:
    return f"{standing.status} and drawn" if standing.status == RESERVED and standing.drawn else standing.status
