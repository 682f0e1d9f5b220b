"""A ledger in one SQLite file: nothing to install, safe against crashes and against other processes."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from stirred.data.place import sync
from stirred.release.ledger.problems import DamagedStorageError, StorageError, bad_storage
from stirred.release.ledger.row import COLUMN_TYPES, COLUMNS, SCHEMA_VERSION, Row
from stirred.release.ledger.store import Addition, Prepare, Store, after_known
from stirred.spec.problems import Problem

_APPLICATION: Final = 0x53544C47  # "STLG", in the header of the file: this is a ledger of ours
_PATIENCE_SECONDS: Final = 60.0
_SCHEMA: Final = f"""
CREATE TABLE rows (
    number INTEGER PRIMARY KEY,
    {COLUMN_TYPES}
) STRICT;
CREATE TABLE documents (digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER rows_are_never_changed BEFORE UPDATE ON rows
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER rows_are_never_deleted BEFORE DELETE ON rows
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER documents_are_never_changed BEFORE UPDATE ON documents
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER documents_are_never_deleted BEFORE DELETE ON documents
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""


class SqliteStore(Store):
    """The rows of a ledger in a file that only its owner can read.

    The rollback journal with full synchronisation is used: a row is on the disk when ``append``
    returns, and the file can be copied, backed up and opened read-only as one file. Its locks need a
    local disk; a team on several machines uses PostgreSQL.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def create(self, rows: Sequence[Row], documents: Mapping[str, str]) -> None:
        """Write the file next to its place and give it its name in one step; an existing file is left alone."""
        if os.path.lexists(self.path):
            raise bad_storage("something is already there", where=self.name, remedy="choose a new name")
        partial: Path | None = None
        try:
            handle, text = tempfile.mkstemp(prefix=f".{self.path.name}.partial-", dir=self.path.parent)
            os.close(handle)  # mkstemp makes it readable and writable for its owner alone
            partial = Path(text)
            with self._errors(), closing(sqlite3.connect(partial, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.executescript(_SCHEMA)
                connection.execute("BEGIN")
                connection.executemany("INSERT INTO documents VALUES (?, ?)", list(documents.items()))
                connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                connection.execute("COMMIT")
            os.link(partial, self.path)
            sync(self.path.parent)
        except FileExistsError:
            raise bad_storage(
                "something appeared there meanwhile", where=self.name, remedy="choose a new name"
            ) from None
        except OSError as error:
            raise bad_storage(
                f"cannot create it: {error.strerror}", where=self.name, remedy="check the folder and its permissions"
            ) from None
        finally:
            for leftover in (partial, partial and Path(f"{partial}-journal")):
                if leftover:
                    with suppress(OSError):
                        leftover.unlink()

    def rows(self, *, after: Row | None = None) -> list[Row]:
        """Return the rows after a known one."""
        with self._errors(), self._open() as connection:
            return _rows(connection, after)

    def append(self, prepare: Prepare, *, after: Row | None, id_: str) -> Row:
        """Append one row under the write lock of the file.

        If the commit fails, the row may have arrived or not: a disk can refuse after it wrote. A new connection, which
        undoes what was left half written, then looks.
        """
        sent: list[Row] = []
        try:
            return self._append(prepare, after, sent)
        except StorageError as error:
            if not sent:
                raise  # the commit was not tried, so nothing can have arrived
            try:
                with self._errors(), self._open() as connection:
                    arrived = connection.execute("SELECT 1 FROM rows WHERE id = ?", (id_,)).fetchone() is not None
            except StorageError:
                raise bad_storage(
                    f"{error.why}; whether row {sent[0].number} arrived cannot be seen, for the file cannot be read",
                    where=self.name,
                    remedy="when it can, see `stirred ledger show`; `stirred ledger recover` settles what is open",
                ) from None
            if arrived:
                return sent[0]
            raise

    def _append(self, prepare: Prepare, after: Row | None, sent: list[Row]) -> Row:
        """Append one row; ``sent`` has it as soon as its commit is tried."""
        with self._errors(), self._open(to_write=True) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")  # waits for other writers; no other process writes until we are done
            try:
                addition = prepare(_rows(connection, after))
                for digest, text in addition.documents.items():
                    connection.execute("INSERT OR IGNORE INTO documents VALUES (?, ?)", (digest, text))
                connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", addition.row)
                if not _is_there(connection, addition):
                    raise bad_storage("the row did not go in; nothing was written", where=self.name, remedy=_ALTERED)
                sent.append(addition.row)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise
        return addition.row

    def document(self, digest: str) -> str | None:
        """Return a document by digest."""
        with self._errors(), self._open() as connection:
            found = _fetched(connection, "SELECT text FROM documents WHERE digest = ?", (digest,))
        return str(found[0][0]) if found else None

    def documents(self) -> dict[str, str]:
        """Return all documents by digest."""
        with self._errors(), self._open() as connection:
            found = _fetched(connection, "SELECT digest, text FROM documents")
        return {str(digest): str(text) for digest, text in found}

    def damage(self) -> list[str]:
        """Return what SQLite itself finds wrong with the file: pages, indexes, and values of another type."""
        with self._errors(), self._open() as connection:
            found = [str(text) for (text,) in _fetched(connection, "PRAGMA integrity_check(3)")]
        return [] if found == ["ok"] else [line for text in found for line in text.splitlines()]

    def unfinished(self) -> list[str]:
        """Return what a process that died while writing left beside the file; to be asked before the file is opened."""
        beside = [Path(f"{self.path}{ending}") for ending in ("-journal", "-wal")]
        return [
            f"{path.name} stood beside the file: a process died while writing, and SQLite undid what it left half "
            "written. If the file was restored from a copy, this journal belonged to another file: restore the copy "
            "again, without it"
            for path in beside
            if path.is_file() and path.stat().st_size
        ]

    def guards(self) -> list[str]:
        """Return what is wrong with the triggers that refuse every change."""
        with self._errors(), self._open() as connection:
            found = _triggers(connection)
        with closing(sqlite3.connect(":memory:")) as fresh:
            fresh.executescript(_SCHEMA)
            wanted = _triggers(fresh)
        names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        states = {(True, True): "not the one it was", (True, False): "missing", (False, True): "not made by stirred"}
        return [f"the trigger {name} is {states[name in wanted, name in found]}" for name in names]

    @contextmanager
    def _open(self, *, to_write: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file; on leaving, make sure that it is still the one at this path.

        Deleting or replacing an open file does not disturb SQLite, which would go on writing to
        a file that cannot be found again. Readers open it for writing too, where they may: what a process
        left half written when it was killed is undone by the next one.
        """
        # The file is never opened but by SQLite: closing it ourselves would drop the locks of this process.
        before = self._identity()
        writable = os.access(self.path, os.W_OK)
        if to_write and not writable:
            raise bad_storage("it cannot be written", where=self.name, remedy="check its permissions")
        uri = f"{self.path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_PATIENCE_SECONDS)) as connection:
            try:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB":
                    raise
                application = None
            if application != _APPLICATION:
                raise self._not_a_ledger()
            yield connection
        if self._identity() != before:
            raise bad_storage("the file was replaced while it was used", where=self.name, remedy=_REPLACED)

    def _identity(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            remedy = "check the path; `stirred ledger init` makes a new one"
            raise bad_storage(f"there is no ledger here ({error.strerror})", where=self.name, remedy=remedy) from None
        return found.st_dev, found.st_ino

    def _not_a_ledger(self) -> StorageError:
        return bad_storage(
            "this is not a ledger", where=self.name, remedy="name the file that `stirred ledger init` made"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in words what SQLite could not do; nothing was written."""
        try:
            yield
        except (UnicodeDecodeError, MemoryError):  # names of columns that are not text, sizes that are not real
            raise self._damaged() from None
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or ""
            if name.startswith(_DAMAGE):
                raise self._damaged() from None
            what, remedy = next(
                (words for start, words in _WORDS.items() if name.startswith(start)),
                (f"the storage failed ({name or type(error).__name__})", "run `stirred ledger verify`"),
            )
            failed = bad_storage(f"{what}; nothing was written", where=self.name, remedy=remedy)
            failed.why = what
            raise failed from None

    def _damaged(self) -> DamagedStorageError:
        why = "the file is damaged"
        damaged = DamagedStorageError([Problem(what=f"{why}; nothing was written", where=self.name, remedy=DAMAGED)])
        damaged.why = why
        return damaged


_ALTERED: Final = "find out who changed the storage; `stirred ledger verify` names what is different"
_REPLACED: Final = "find out who did, bring the right file back, and run `stirred ledger verify`"
_WORDS: Final = {
    "SQLITE_BUSY": (
        f"another process has been writing for more than {_PATIENCE_SECONDS:.0f} seconds",
        "try again when it is done",
    ),
    "SQLITE_LOCKED": ("another process is writing", "try again when it is done"),
    "SQLITE_FULL": ("there is no room for another row", "make room on the disk or raise the quota"),
    "SQLITE_IOERR": ("the disk refused (full, over quota, or failing)", "make room, check the disk, and verify"),
    "SQLITE_READONLY_DBMOVED": ("the file was replaced while it was used", _REPLACED),
    "SQLITE_READONLY_ROLLBACK": (
        "a process died while writing, and you may not undo what it left half written",
        "let somebody who may write to the ledger run `stirred ledger verify` once",
    ),
    "SQLITE_READONLY": ("it cannot be written", "check the permissions of the file and of its folder"),
    "SQLITE_CANTOPEN": ("it cannot be opened", "check the permissions of the file and of its folder"),
    "SQLITE_NOTADB": ("this is not a ledger", "name the file that `stirred ledger init` made"),
}
# What SQLite says of a file whose pages, tables or columns are not those it wrote.
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_TOOBIG", "SQLITE_MISMATCH", "SQLITE_FORMAT")
DAMAGED: Final = (
    "restore the last good copy and verify it. If this is a copy, it may have been made while a process was writing: "
    "copy the file together with the journal beside it (its name and -journal), or use `stirred ledger export`"
)


def _rows(connection: sqlite3.Connection, after: Row | None) -> list[Row]:
    if after is None:
        # All rows, whatever their numbers: a row numbered below 0 is found when it is read.
        found = _fetched(connection, f"SELECT {COLUMNS} FROM rows ORDER BY number")
    else:
        query = f"SELECT {COLUMNS} FROM rows WHERE number >= ? ORDER BY number"
        found = _fetched(connection, query, (after.number,))
    rows = list(map(Row._make, found))
    if connection.text_factory is _lenient:
        # Whatever hash stands in a row that is not text, it cannot be right: the row is named when it is read.
        rows = [row._replace(hash="") if not row.is_text else row for row in rows]
    return rows if after is None else after_known(rows, after)


def _fetched(connection: sqlite3.Connection, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Return all answers to a query; bytes that are not UTF-8 stay in the text as half characters."""
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode" not in str(error):
            raise
    connection.text_factory = _lenient
    return connection.execute(query, values).fetchall()


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _is_there(connection: sqlite3.Connection, addition: Addition) -> bool:
    """Say whether a row and its documents went in: a trigger can swallow an insertion without a word."""
    found = connection.execute(f"SELECT {COLUMNS} FROM rows WHERE number = ?", (addition.row.number,)).fetchone()
    known = (
        connection.execute("SELECT 1 FROM documents WHERE digest = ?", (d,)).fetchone() for d in addition.documents
    )
    return found == tuple(addition.row) and all(known)


def _triggers(connection: sqlite3.Connection) -> dict[str, str]:
    # In a damaged file a name may be bytes: said as they are, they are "not made by stirred".
    rows = _fetched(connection, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    return {str(name): sql for name, sql in rows}
