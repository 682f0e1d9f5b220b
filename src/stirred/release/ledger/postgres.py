"""A ledger in a PostgreSQL database, for a team on several machines (extra ``postgres``)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from stirred.release.ledger.problems import LostConnectionError, StorageError, bad_storage
from stirred.release.ledger.row import Row
from stirred.release.ledger.store import Prepare, after_known
from stirred.spec.problems import Problem

if TYPE_CHECKING:
    import psycopg

_PATIENCE: Final = "60s"
_ATTEMPTS: Final = 4  # to look, after a lost connection, whether the row arrived
_SCHEMA: Final = """
CREATE TABLE stirred_ledger (
    number BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    entry TEXT NOT NULL,
    specification TEXT NOT NULL,
    facts TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE stirred_ledger_documents (digest TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE FUNCTION stirred_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$;
CREATE TRIGGER rows_are_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON stirred_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
CREATE TRIGGER documents_are_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON stirred_ledger_documents
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
"""
_COLUMNS: Final = "number, id, kind, entry, specification, facts, previous, hash"
_INSERT: Final = f"INSERT INTO stirred_ledger ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_INSERT_DOCUMENT: Final = "INSERT INTO stirred_ledger_documents VALUES (%s, %s) ON CONFLICT DO NOTHING"


# One for each ledger of a database; LOCK TABLE would ask for the right to change rows.
_LOCK: Final = "SELECT pg_advisory_xact_lock((1398033479::bigint << 31) + 'stirred_ledger'::regclass::oid::bigint)"
_GUARDS: Final = (
    "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') "
    "AND tgrelid IN ('stirred_ledger'::regclass, 'stirred_ledger_documents'::regclass)"
)
_WANTED: Final = {"rows_are_never_changed", "documents_are_never_changed"}


class PostgresStore:
    """The rows of a ledger in two tables that refuse every change but an insertion.

    Writers take a lock named by the table of rows, for which the right to read and insert is enough, so
    that reading, checking and appending are one
    step for everybody; readers are never kept waiting. Several ledgers in one database stand in
    schemas of their own: add ``?options=-csearch_path%3DNAME`` to the URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def name(self) -> str:
        """Return the URL without its password or settings."""
        parts = urlsplit(self._url)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{user}{parts.hostname or ''}{port}", parts.path, "", ""))

    def create(self, rows: Sequence[Row], documents: Mapping[str, str]) -> None:
        """Create the tables and the first rows in one transaction."""
        with self._errors(), self._connected() as connection:
            (there,) = connection.execute("SELECT to_regclass('stirred_ledger')").fetchone() or (None,)
            if there is not None:
                raise bad_storage("there is a ledger already", where=self.name, remedy="choose another database")
            connection.execute(_SCHEMA)
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT_DOCUMENT, list(documents.items()))
                cursor.executemany(_INSERT, rows)

    def rows(self, *, after: Row | None = None) -> list[Row]:
        """Return the rows after a known one."""
        with self._errors(), self._connected() as connection:
            return _rows(connection, after)

    def append(self, prepare: Prepare, *, after: Row | None, id_: str) -> Row:
        """Append one row under an exclusive lock.

        If the connection breaks while the row is committed, the row may have arrived or not. A new
        connection then waits for the same lock, which the server holds until it has decided, and looks.
        """
        sent: Row | None = None
        try:
            with self._errors(), self._connected() as connection:
                connection.execute(_LOCK)
                addition = prepare(_rows(connection, after))
                with connection.cursor() as cursor:
                    cursor.executemany(_INSERT_DOCUMENT, list(addition.documents.items()))
                connection.execute(_INSERT, addition.row)
                here = f"SELECT {_COLUMNS} FROM stirred_ledger WHERE number = %s"
                if connection.execute(here, (addition.row.number,)).fetchone() != tuple(addition.row):
                    raise bad_storage(
                        "the row did not go in; nothing was written",
                        where=self.name,
                        remedy="find out who changed the tables; `stirred ledger verify` names what is different",
                    )
                sent = addition.row
            return addition.row
        except LostConnectionError:
            if sent is None:
                raise  # nothing had been sent, so nothing can have arrived
            if self._arrived(id_):
                return sent
            raise bad_storage(
                "the connection to the database was lost; nothing was written", where=self.name, remedy="try again"
            ) from None

    def _arrived(self, id_: str) -> bool:
        for attempt in range(_ATTEMPTS):
            with suppress(StorageError), self._errors(), self._connected() as connection:
                connection.execute(_LOCK)
                return connection.execute("SELECT 1 FROM stirred_ledger WHERE id = %s", (id_,)).fetchone() is not None
            time.sleep(0.5 * 2**attempt)
        problem = Problem(
            what=f"the connection to the database was lost while row {id_} was written, and the database cannot be "
            "reached to see whether it arrived",
            where=self.name,
            remedy="when it is back, see `stirred ledger show`; `stirred ledger recover` settles an open reservation",
        )
        raise LostConnectionError([problem]) from None

    def document(self, digest: str) -> str | None:
        """Return a document by digest."""
        with self._errors(), self._connected() as connection:
            query = "SELECT text FROM stirred_ledger_documents WHERE digest = %s"
            found = connection.execute(query, (digest,)).fetchone()
        return None if found is None else str(found[0])

    def documents(self) -> dict[str, str]:
        """Return all documents by digest."""
        with self._errors(), self._connected() as connection:
            return dict(connection.execute("SELECT digest, text FROM stirred_ledger_documents").fetchall())

    def guards(self) -> list[str]:
        """Return what is wrong with the triggers that refuse every change."""
        with self._errors(), self._connected() as connection:
            found = {str(name) for (name,) in connection.execute(_GUARDS).fetchall()}
        missing = [f"the trigger {name} is missing or switched off" for name in sorted(_WANTED - found)]
        return missing + [f"the trigger {name} is none of ours" for name in sorted(found - _WANTED)]

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect; leaving the block commits, an error rolls back."""
        driver = _psycopg()
        with driver.connect(self._url, connect_timeout=20, application_name="stirred ledger") as connection:
            # What is read after waiting for the lock must include what others wrote meanwhile.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            connection.execute("SET LOCAL synchronous_commit = on")
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in words what the database could not do."""
        driver = _psycopg()
        try:
            yield
        except driver.errors.LockNotAvailable:
            raise bad_storage(
                f"another process has been writing for more than {_PATIENCE}; nothing was written",
                where=self.name,
                remedy="try again when it is done",
            ) from None
        except driver.errors.UndefinedTable:
            raise bad_storage(
                "there is no ledger here", where=self.name, remedy="`stirred ledger init` makes a new one"
            ) from None
        except (driver.errors.DuplicateTable, driver.errors.DuplicateFunction, driver.errors.UniqueViolation):
            raise bad_storage(
                "somebody else created a ledger here meanwhile", where=self.name, remedy="open that one"
            ) from None
        except driver.errors.DiskFull:
            raise bad_storage(
                "the database has no room; nothing was written", where=self.name, remedy="make room there"
            ) from None
        except (driver.errors.InsufficientPrivilege, driver.errors.ReadOnlySqlTransaction):
            raise bad_storage(
                "the database does not let you write; nothing was written", where=self.name, remedy="ask for the rights"
            ) from None
        except (driver.OperationalError, driver.InterfaceError) as error:
            what = f"the database cannot be reached, or went away ({_first_line(error)})"
            problem = Problem(what=what, where=self.name, remedy="check that it runs, and try again")
            raise LostConnectionError([problem]) from None
        except driver.Error as error:
            raise bad_storage(
                f"the database refused ({_first_line(error)}); nothing was written",
                where=self.name,
                remedy="run `stirred ledger verify`",
            ) from None


def _rows(connection: psycopg.Connection[Any], after: Row | None) -> list[Row]:
    if after is None:
        found = connection.execute(f"SELECT {_COLUMNS} FROM stirred_ledger ORDER BY number").fetchall()
        return list(map(Row._make, found))
    query = f"SELECT {_COLUMNS} FROM stirred_ledger WHERE number >= %s ORDER BY number"
    return after_known(list(map(Row._make, connection.execute(query, (after.number,)).fetchall())), after)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError:
        raise bad_storage(
            "a ledger in PostgreSQL needs the psycopg package",
            where="ledger",
            remedy="pip install 'stirred[postgres]'",
        ) from None
