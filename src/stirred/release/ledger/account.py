"""The account: what the rows say together, checked link by link while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from stirred.release.ledger.entry import ABORTED, COMMITTED, RESERVED, WITHDRAWN, Entry, counts
from stirred.release.ledger.facts import CommitFacts, GenesisFacts, OpeningFacts, PolicyFacts, ReasonFacts, facts_of
from stirred.release.ledger.problems import bad_request, broken
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


@dataclass(slots=True)
class Standing:
    """Where one entry stands: the row that opened it, its facts, and what happened since."""

    opening: Row
    facts: OpeningFacts
    status: str
    drawn: bool
    last: Row
    committed: Row | None = None

    @property
    def counts(self) -> bool:
        """Say whether the entry counts in the total."""
        return counts(self.status, drawn=self.drawn)


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
        for row in rows:
            self._check_link(row)
            if row.kind in OPENING:
                self._open(row)
            elif row.entry:
                self._move(row)
            elif row.kind == POLICY:
                self.policy = facts_of(row, PolicyFacts).policy
            elif row.kind == GENESIS and row.number == 0:
                self._begin(row)
            else:
                raise broken(f"a row of kind {row.kind!r} cannot stand here", kind="transition", number=row.number)
            self._ids.add(row.id)
            self.last = row
        return self

    def _check_link(self, row: Row) -> None:
        last = self.last
        number, previous = (0, NOTHING) if last is None else (last.number + 1, last.hash)
        if row.number != number:
            raise broken(f"row {number} is missing; the next one is {row.number}", kind="gap", number=number)
        if row.previous != previous:
            raise broken("it does not follow from the row before it", kind="link", number=number)
        if row.hash != row.computed_hash:
            raise broken("its content is not what was written", kind="content", number=number)
        if row.id in self._ids:
            raise broken("its id stands in an earlier row already", kind="duplicate", number=number)
        if row.kind not in KINDS:
            raise broken(f"there is no kind {row.kind!r}", kind="unknown kind", number=number)
        if (number == 0) != (row.kind == GENESIS):
            raise broken("a ledger begins with its genesis, and only there", kind="transition", number=number)

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
        facts = facts_of(row, OpeningFacts)
        if row.entry != row.id:
            raise broken("an entry is opened under another id than its own", kind="transition", number=row.number)
        unknown = [other for other in (*facts.derived_from, *facts.includes) if other not in self.standings]
        if unknown:
            raise broken(f"it refers to entry {unknown[0]}, which is not there", kind="reference", number=row.number)
        if not row.specification and not facts.derived_from:
            raise broken("an entry has no specification", kind="facts", number=row.number)
        elsewhere = row.kind == ADD
        status = COMMITTED if elsewhere else RESERVED
        self.standings[row.entry] = Standing(row, facts, status, elsewhere, row)

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
            standing.committed = row if row.kind == COMMIT else standing.committed
        standing.last = row

    def specification(self, digest: str) -> Specification:
        """Return a specification by digest, read and checked once."""
        if digest not in self._specifications:
            self._specifications[digest] = self._read_document(digest)
        return self._specifications[digest]

    def _read_document(self, digest: str) -> Specification:
        text = self._document(digest)
        number = next((s.opening.number for s in self.standings.values() if s.opening.specification == digest), 0)
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

    def entries(self) -> Iterator[Entry]:
        """Yield every entry in the order of the ledger."""
        return (self.entry(standing) for standing in self.standings.values())

    def entry(self, standing: Standing) -> Entry:
        """Return the entry of a standing."""
        opening, facts, last, committed = standing.opening, standing.facts, standing.last, standing.committed
        bundle = facts.bundle if committed is None else facts_of(committed, CommitFacts).bundle
        reason = facts_of(last, ReasonFacts).reason if last.kind in (ABORT, WITHDRAW) else ""
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
        if text.isdigit() and len(text) < 8:
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


_LEADS_TO: Final = {COMMIT: COMMITTED, ABORT: ABORTED, WITHDRAW: WITHDRAWN}


def refusal_of(kind: str, standing: Standing) -> str:
    """Return why an event cannot happen to an entry now; nothing if it can.

    A bundle that turns up after a drawn reservation was aborted may still be committed: what it cost
    is counted already.
    """
    status, drawn = standing.status, standing.drawn
    late = status == ABORTED and drawn
    if kind == DRAW:
        return (
            "" if status == RESERVED and not drawn else f"nothing may be drawn for an entry that is {_named(standing)}"
        )
    if kind == COMMIT:
        if status != RESERVED and not late:
            return f"an entry that is {_named(standing)} cannot be committed"
        return (
            "" if drawn or standing.facts.derived_from else "an entry cannot be committed before its draw is recorded"
        )
    if kind == ABORT:
        return "" if status == RESERVED else f"an entry that is {_named(standing)} cannot be aborted"
    if kind == WITHDRAW:
        return "" if status == COMMITTED else f"an entry that is {_named(standing)} cannot be withdrawn"
    return f"a row of kind {kind!r} cannot be about an entry"


def _named(standing: Standing) -> str:
    return f"{standing.status} and drawn" if standing.status == RESERVED and standing.drawn else standing.status
