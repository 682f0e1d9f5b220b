"""A ledger in a PostgreSQL database, for a team on several machines (extra ``postgres``)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from stirred.release.ledger.problems import LostConnectionError, StorageError, bad_storage
from stirred.release.ledger.row import COLUMN_TYPES, COLUMNS, Row
from stirred.release.ledger.store import Prepare, Store, after_known
from stirred.spec.problems import Problem

if TYPE_CHECKING:
    import psycopg


_PATIENCE: Final = "60s"
_ATTEMPTS: Final = 4  # to look, after a lost connection, whether the row arrived
_INSERT: Final = f"INSERT INTO stirred_ledger ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_INSERT_DOCUMENT: Final = "INSERT INTO stirred_ledger_documents VALUES (%s, %s) ON CONFLICT DO NOTHING"


class PostgresStore(Store):
    """The rows of a ledger in two tables that refuse every change but an insertion.

    Writers take turns by a lock that only they may take: reading, checking and appending are one step for everybody,
    and readers are never kept waiting. To change the policy takes a right of its own. Several ledgers in one database
    stand in schemas of their own: add ``?options=-csearch_path%3DNAME`` to the URL.
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
            connection.execute(SCHEMA)
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
                self._take_turn(connection)
                if wrong := wrong_guards(connection):
                    remedy = "find out who changed the database, and make the guards as they were"
                    raise bad_storage(f"{'; '.join(wrong)}; nothing was written", where=self.name, remedy=remedy)
                addition = prepare(_rows(connection, after))
                with connection.cursor() as cursor:
                    cursor.executemany(_INSERT_DOCUMENT, list(addition.documents.items()))
                connection.execute(_INSERT, addition.row)
                here = f"SELECT {COLUMNS} FROM stirred_ledger WHERE number = %s"
                if connection.execute(here, (addition.row.number,)).fetchone() != tuple(addition.row):
                    remedy = "find out who changed the tables; `stirred ledger verify` names what is different"
                    raise bad_storage("the row did not go in; nothing was written", where=self.name, remedy=remedy)
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
                self._take_turn(connection)
                return connection.execute("SELECT 1 FROM stirred_ledger WHERE id = %s", (id_,)).fetchone() is not None
            time.sleep(0.5 * 2**attempt)
        problem = Problem(
            what=f"the connection to the database was lost while row {id_} was written, and the database cannot be "
            "reached to see whether it arrived",
            where=self.name,
            remedy="when it is back, see `stirred ledger show`; `stirred ledger recover` settles an open reservation",
        )
        raise LostConnectionError([problem]) from None

    def _take_turn(self, connection: psycopg.Connection[Any]) -> None:
        """Wait until no other writer is at work; the turn ends with the transaction."""
        if connection.execute(LOCK).fetchone() is None:
            raise bad_storage(
                "the table stirred_ledger_turn is empty, so writers cannot take turns; nothing was written",
                where=self.name,
                remedy="find out who changed the database, and `INSERT INTO stirred_ledger_turn VALUES (true)`",
            )

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
        """Return what is wrong with the triggers that refuse every change, and with their functions."""
        with self._errors(), self._connected() as connection:
            return wrong_guards(connection)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect; leaving the block commits, an error rolls back."""
        driver = _psycopg()
        with driver.connect(self._url, connect_timeout=20, application_name="stirred ledger") as connection:
            # What is read after waiting for the lock must include what others wrote meanwhile.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            # A machine that falls asleep in its turn does not keep the others waiting for ever.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10min'")
            connection.execute("SET LOCAL synchronous_commit = on")
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in words what the database could not do."""
        driver = _psycopg()
        try:
            yield
        except driver.Error as error:
            kind = type(error).__name__
            line = (str(error).strip().splitlines() or [kind])[0]
            what, remedy = _WORDS.get(kind, (f"the database refused ({line})", "run `stirred ledger verify`"))
            if kind == "UndefinedTable" and any(table in line for table in TABLES[2:]):
                what, remedy = _EARLIER
            elif kind == "LockNotAvailable":
                what = f"another process has been writing for more than {_PATIENCE}"
            elif "may not change the policy" in line:
                what, remedy = _NO_POLICY
            elif kind not in _WORDS and isinstance(error, (driver.OperationalError, driver.InterfaceError)):
                what = f"the database cannot be reached, or went away ({line})"
                problem = Problem(what=what, where=self.name, remedy="check that it runs, and try again")
                raise LostConnectionError([problem]) from None
            raise bad_storage(
                what if kind in _NOTHING_TRIED else f"{what}; nothing was written", where=self.name, remedy=remedy
            ) from None


_MADE: Final = ("somebody else created a ledger here meanwhile", "open that one")
_NO_RIGHT: Final = ("the database does not let you write", "ask for the rights")
_EARLIER: Final = (
    "this ledger was made by an earlier version, whose lock anybody could take; nothing was written",
    "`stirred ledger export` it, and `stirred ledger init --from` it into a new schema",
)
_NO_POLICY: Final = (
    "you may not change the policy of this ledger",
    "ask whoever may; the right is INSERT on stirred_ledger_policy_right",
)
# What each error of the database means here, and what to do.
_WORDS: Final = {
    "LockNotAvailable": ("", "try again when it is done"),
    "UndefinedTable": ("there is no ledger here", "`stirred ledger init` makes a new one"),
    "DuplicateTable": _MADE,
    "DuplicateFunction": _MADE,
    "UniqueViolation": _MADE,
    "DiskFull": ("the database has no room", "make room there"),
    "InsufficientPrivilege": _NO_RIGHT,
    "ReadOnlySqlTransaction": _NO_RIGHT,
}
_NOTHING_TRIED: Final = ("UndefinedTable", "DuplicateTable", "DuplicateFunction", "UniqueViolation")


def _rows(connection: psycopg.Connection[Any], after: Row | None) -> list[Row]:
    if after is None:
        found = connection.execute(f"SELECT {COLUMNS} FROM stirred_ledger ORDER BY number").fetchall()
        return list(map(Row._make, found))
    query = f"SELECT {COLUMNS} FROM stirred_ledger WHERE number >= %s ORDER BY number"
    return after_known(list(map(Row._make, connection.execute(query, (after.number,)).fetchall())), after)


def _psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError:
        raise bad_storage(
            "a ledger in PostgreSQL needs the psycopg package", where="ledger", remedy="pip install 'stirred[postgres]'"
        ) from None


TABLES: Final = ("stirred_ledger", "stirred_ledger_documents", "stirred_ledger_turn", "stirred_ledger_policy_right")

# A row lock needs the right to update: whoever may only read, or may merely connect, cannot keep writers waiting. An
# advisory lock, which every role may take, could be held by anybody. No row is ever changed; the trigger refuses it.
LOCK: Final = "SELECT turn FROM stirred_ledger_turn FOR UPDATE"

_APPEND_ONLY: Final = " BEGIN RAISE EXCEPTION 'a ledger is append-only'; END "
# The path of names is that of the function: nobody can put functions of their own in the place of the system's.
_POLICY_RIGHT: Final = """
BEGIN
    IF NEW.kind = 'policy' AND NOT has_table_privilege(
        current_user, format('%I.stirred_ledger_policy_right', TG_TABLE_SCHEMA), 'INSERT') THEN
        RAISE EXCEPTION 'you may not change the policy of this ledger' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
"""
SCHEMA: Final = f"""
CREATE TABLE stirred_ledger (
    number BIGINT PRIMARY KEY,
    {COLUMN_TYPES}
);
CREATE TABLE stirred_ledger_documents (digest TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE stirred_ledger_turn (turn BOOLEAN PRIMARY KEY);
INSERT INTO stirred_ledger_turn VALUES (true);
CREATE TABLE stirred_ledger_policy_right (nothing BOOLEAN);
CREATE FUNCTION stirred_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS
    $${_APPEND_ONLY}$$;
CREATE FUNCTION stirred_ledger_guards_policy() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS
    $${_POLICY_RIGHT}$$;
CREATE TRIGGER rows_are_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON stirred_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
CREATE TRIGGER policy_needs_its_right BEFORE INSERT ON stirred_ledger
    FOR EACH ROW EXECUTE FUNCTION stirred_ledger_guards_policy();
CREATE TRIGGER documents_are_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON stirred_ledger_documents
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
CREATE TRIGGER turn_is_never_changed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON stirred_ledger_turn
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
CREATE TRIGGER right_holds_nothing BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON stirred_ledger_policy_right
    FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only();
"""

# Bits of pg_trigger.tgtype.
_EACH_ROW, _BEFORE, _INSERTION, _CHANGES = 1, 2, 4, 8 | 16 | 32


class Guard(NamedTuple):
    """What a trigger does: on which table, when (``tgtype``), and the text of its function."""

    table: str
    when: int
    body: str


_GUARDS: Final = {
    "rows_are_never_changed": Guard("stirred_ledger", _BEFORE | _CHANGES, _APPEND_ONLY),
    "policy_needs_its_right": Guard("stirred_ledger", _BEFORE | _INSERTION | _EACH_ROW, _POLICY_RIGHT),
    "documents_are_never_changed": Guard("stirred_ledger_documents", _BEFORE | _CHANGES, _APPEND_ONLY),
    "turn_is_never_changed": Guard("stirred_ledger_turn", _BEFORE | _INSERTION | _CHANGES, _APPEND_ONLY),
    "right_holds_nothing": Guard("stirred_ledger_policy_right", _BEFORE | _INSERTION | _CHANGES, _APPEND_ONLY),
}
_OF_OUR_TABLES: Final = f"IN ({', '.join(f'to_regclass({table!r})' for table in TABLES)})"
_TRIGGERS: Final = f"""
    SELECT tgname, relname, tgtype, prosrc,
        tgenabled IN ('O', 'A') AND tgqual IS NULL AND tgattr::text = '' AND lanname = 'plpgsql' AND NOT prosecdef
            AND proconfig = ARRAY['search_path=pg_catalog']
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
        JOIN pg_language ON pg_language.oid = prolang
    WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgrelid {_OF_OUR_TABLES}
"""
_RULES: Final = f"SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class {_OF_OUR_TABLES}"
_POLICIES: Final = f"SELECT 'row security policy ' || polname FROM pg_policy WHERE polrelid {_OF_OUR_TABLES}"


def wrong_guards(connection: psycopg.Connection[Any]) -> list[str]:
    """Return what is wrong with the guards of a ledger: missing, added, or with a function that does something else."""
    found, changed = set(), []
    for name, table, when, body, as_made in connection.execute(_TRIGGERS).fetchall():
        wanted = _GUARDS.get(name)
        found.add(name)
        if wanted is None:
            changed.append(f"the trigger {name} was not made by stirred")
        elif not as_made or Guard(table, when, body) != wanted:
            changed.append(f"the trigger {name}, or its function, is not the one it was")
    others = connection.execute(f"{_RULES} UNION ALL {_POLICIES}").fetchall()
    return [
        *(f"the trigger {name} is missing or switched off" for name in sorted(_GUARDS.keys() - found)),
        *sorted(changed),
        *sorted(f"the {name} was not made by stirred" for (name,) in others),
    ]
