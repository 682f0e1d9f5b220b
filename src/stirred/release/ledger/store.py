"""Where rows are kept: what a storage must be able to do, and which one a URL names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from stirred.release.ledger.problems import bad_request, broken
from stirred.release.ledger.row import Row

# Given the rows after those already known, a function that checks and returns what to add.
Prepare = Callable[[Sequence[Row]], "Addition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """One row to append, with the documents it refers to by digest."""

    row: Row
    documents: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """Append-only storage of one ledger.

    ``append`` holds a lock on the whole ledger from before it reads until its row is durable, and
    calls ``prepare`` in between: a check and the row it allows are one transaction. Nothing is ever
    changed or deleted; the storage refuses it.
    """

    @property
    def name(self) -> str:
        """Return where it is, without any password."""
        ...

    def create(self, rows: Sequence[Row], documents: Mapping[str, str]) -> None:
        """Create the storage with these rows, all or nothing; refuse if there is a ledger already."""
        ...

    def rows(self, *, after: Row | None = None) -> list[Row]:
        """Return the rows after a known one; refuse if the known one is not there any more."""
        ...

    def append(self, prepare: Prepare, *, after: Row | None, id_: str) -> Row:
        """Append what ``prepare`` returns, in one transaction; ``id_`` is the id its row will have.

        A row with this id is never written twice, even if the answer to the first attempt was lost.
        """
        ...

    def document(self, digest: str) -> str | None:
        """Return a document by digest."""
        ...

    def documents(self) -> dict[str, str]:
        """Return all documents by digest."""
        ...

    def guards(self) -> list[str]:
        """Return what is wrong with its own guards against changes."""
        ...

    def damage(self) -> list[str]:
        """Return what its own check finds wrong with the file, where it is one."""
        return []

    def unfinished(self) -> list[str]:
        """Return what a process that died while writing left beside it; to be asked before anything is read."""
        return []


def after_known(rows: list[Row], known: Row) -> list[Row]:
    """Return the rows after a known one, which must come first and be unchanged."""
    if not rows or rows[0] != known:
        raise broken("it is not the row that was read before", kind="link", number=known.number)
    return rows[1:]


def store_at(url: str | Path) -> Store:
    """Return the storage a URL or path names: a SQLite file, or a PostgreSQL database.

    >>> store_at("census.ledger").name
    'census.ledger'
    >>> store_at("postgresql://ana:secret@db.example.org/census").name
    'postgresql://ana@db.example.org/census'
    """
    text = str(url)
    if text.startswith(("postgresql://", "postgres://")):
        from stirred.release.ledger.postgres import PostgresStore

        return PostgresStore(text)
    if "://" in text and not text.startswith("sqlite:///"):
        remedy = "give the path of a file, or postgresql://user@host/database"
        raise bad_request(f"{text.partition('://')[0]!r} is not a kind of ledger", where="ledger", remedy=remedy)
    from stirred.release.ledger.sqlite import SqliteStore

    return SqliteStore(Path(text.removeprefix("sqlite:///") if text.startswith("sqlite:///") else text))
