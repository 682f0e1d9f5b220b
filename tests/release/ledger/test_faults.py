"""Storage that fails: a clear message each time, and never a row lost, doubled or half written."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger import postgres as postgres_module
from stirred.release.ledger import sqlite as sqlite_module
from stirred.release.ledger.problems import LostConnectionError, StorageError
from tests.release.ledger.making import released, request
from tests.release.ledger.server import Server

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "a.ledger"
    released(Ledger.create(place, dataset="d"))
    return place


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of one's own, to be killed."""
    server = Server()
    yield server
    server.stop()


# ---- SQLite -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "this is not a ledger"),
        (b"hello, this is a text and no ledger at all", "this is not a ledger"),
        (b"SQLite format 3\x00" + b"x" * 4096, "this is not a ledger|the file is damaged"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    place = tmp_path / "a"
    place.write_bytes(content)
    with pytest.raises(StorageError, match=words):
        Ledger.open(place)
    assert place.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_another_sqlite_database_is_no_ledger(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a") as connection:
        connection.execute("CREATE TABLE rows (number INTEGER)")
    with pytest.raises(StorageError, match="this is not a ledger"):
        Ledger.open(tmp_path / "a")


@pytest.mark.parametrize("place", ["missing", "no/folder/a", "."])
def test_a_path_without_a_ledger_is_not_made_into_one(tmp_path: Path, place: str) -> None:
    with pytest.raises(StorageError):
        Ledger.open(tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_gets_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot create it: No such file or directory"):
        Ledger.create(tmp_path / "no" / "a.ledger", dataset="d")


def test_a_file_deleted_meanwhile_is_not_written_into_the_void(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path)
    path.unlink()
    with pytest.raises(StorageError, match="there is no ledger here"):
        ledger.reserve(request())
    assert list(path.parent.iterdir()) == []


def test_a_file_replaced_while_it_is_written_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path)
    copy = shutil.copy(path, path.with_name("copy"))
    real = sqlite_module._rows

    def replacing(connection: sqlite3.Connection, after: object) -> object:
        found = real(connection, after)  # type: ignore[arg-type]
        if connection.in_transaction and Path(copy).exists():
            Path(copy).replace(path)
        return found

    monkeypatch.setattr(sqlite_module, "_rows", replacing)
    with pytest.raises(StorageError, match="replaced while it was used"):
        ledger.reserve(request())


def test_a_writer_that_never_ends_is_waited_for_and_then_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "_PATIENCE_SECONDS", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="another process has been writing"):
        Ledger.open(path).reserve(request())
    other.execute("ROLLBACK")
    other.close()
    assert Ledger.open(path).reserve(request()).number == 4


def test_a_writer_that_ends_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, asked = threading.Event(), threading.Event()

    class Asking(sqlite3.Connection):
        def execute(self, *words: Any) -> sqlite3.Cursor:
            if words[0] == "BEGIN IMMEDIATE" and inside.is_set():
                asked.set()
            return super().execute(*words)

    def connect(*place: Any, **settings: Any) -> sqlite3.Connection:
        return real(*place, factory=Asking, **settings)

    real = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", connect)
    first, second = Ledger.open(path), Ledger.open(path)
    held = first.store.append

    def holding(prepare: Any, **known: Any) -> Any:
        def prepared(news: Any) -> Any:
            inside.set()  # the lock is ours, and stays so until the other one asks for it
            assert asked.wait(60)
            return prepare(news)

        return held(prepared, **known)

    monkeypatch.setattr(first.store, "append", holding)
    numbers: dict[str, int] = {}
    writer = threading.Thread(target=lambda: numbers.update(first=first.reserve(request()).number))
    writer.start()
    assert inside.wait(60)
    numbers["second"] = second.reserve(request()).number
    writer.join()
    assert numbers == {"first": 4, "second": 5}


HALF_WRITTEN = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for number in range(100, 400):  # more than the cache holds, so that the file itself is changed before the commit
    connection.execute("INSERT INTO rows VALUES (?, ?, 'draw', 'x', '', ?, '', '')", (number, str(number), "y" * 900))
print(os.path.getsize(sys.argv[1]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("look", ["read", "write"])
def test_what_a_killed_process_left_half_written_is_undone(path: Path, look: str) -> None:
    size = path.stat().st_size
    killed = subprocess.run(
        [sys.executable, "-c", HALF_WRITTEN, str(path)], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -9
    assert int(killed.stdout) > size, "nothing had reached the file: the test proves nothing"
    assert Path(f"{path}-journal").exists()
    ledger = Ledger.open(path)
    if look == "write":
        assert ledger.reserve(request()).number == 4
    found = ledger.verify()
    assert (found.is_sound, found.rows) == (True, 4 + (look == "write"))
    assert not Path(f"{path}-journal").exists()


ADD_MANY = """
import resource, sys
from pathlib import Path
from stirred.release.ledger import Ledger
from tests.release.ledger.making import request
ledger = Ledger.open(sys.argv[1])
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))
done = 0
try:
    while True:
        ledger.reserve(request(purpose="x" * 1000))
        done += 1
except Exception as error:
    print(done, type(error).__name__, error)
"""


def run(script: str, *arguments: str, preexec: Callable[[], None] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=preexec,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_loses_no_row_and_adds_no_half_one(path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    count, kind, *words = run(ADD_MANY, str(path)).split()
    assert kind == "StorageError"
    assert "nothing was written" in " ".join(words)
    assert "make room" in " ".join(words)
    assert int(count) >= 1
    found = Ledger.open(path).verify()
    assert found.is_sound
    assert found.rows == 4 + int(count)
    assert Ledger.open(path).reserve(request()).number == 4 + int(count)


NO_RIGHTS = """
import os, sys
import stirred.release.ledger.sqlite
from stirred.release.ledger import Ledger
from tests.release.ledger.making import request
asked = request()
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)  # root may do everything
try:
    ledger = Ledger.open(sys.argv[1])
    print("entries", len(list(ledger.entries())))
    ledger.reserve(asked)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(("mode", "words"), [(0o000, "it cannot be opened"), (0o444, "cannot be written")])
def test_a_ledger_without_rights_to_it_says_so(path: Path, mode: int, words: str) -> None:
    outside = Path("/tmp") / f"ledger-{os.getpid()}-{mode}"
    outside.mkdir(mode=0o755)
    try:
        place = Path(shutil.copy(path, outside))
        place.chmod(mode)
        said = run(NO_RIGHTS, str(place))
        assert words in said
        assert ("entries 1" in said) is (mode == 0o444)
    finally:
        shutil.rmtree(outside)


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(LedgerError, match="'mysql' is not a kind of ledger"):
        Ledger.open("mysql://host/db")


# ---- PostgreSQL ---------------------------------------------------------------------------------


def test_a_database_without_a_ledger_says_so(postgres: Server) -> None:
    with pytest.raises(StorageError, match="there is no ledger here"):
        Ledger.open(postgres.new_url())


def test_a_database_that_is_not_there_says_so_without_its_password() -> None:
    with pytest.raises(StorageError) as refusal:
        Ledger.open("postgresql://ana:secret@127.0.0.1:1/db")
    assert "cannot be reached" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_missing_driver_names_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(postgres_module, "import_module", missing)
    with pytest.raises(StorageError, match=r"pip install 'stirred\[postgres\]'"):
        Ledger.open("postgresql://host/db")


def test_a_server_killed_before_the_row_is_sent_writes_nothing(server: Server) -> None:
    url = server.new_url()
    ledger = Ledger.create(url, dataset="d")
    server.kill()
    with pytest.raises(LostConnectionError, match="cannot be reached, or went away"):
        ledger.reserve(request())
    server.start()
    assert ledger.verify().rows == 1
    assert ledger.reserve(request()).number == 1


def at_the_commit(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, act: Callable[[Callable[[], None]], None]) -> None:
    """Let ``act`` happen instead of the commit of the next row; it is given the real commit."""
    real_commit, real_append = psycopg.Connection.commit, ledger.store.append
    armed: list[bool] = []

    def append(*arguments: object, **more: object) -> object:
        armed.append(True)
        return real_append(*arguments, **more)  # type: ignore[arg-type]

    def commit(connection: psycopg.Connection[Any]) -> None:
        if armed:
            armed.clear()
            act(lambda: real_commit(connection))
        else:
            real_commit(connection)

    monkeypatch.setattr(ledger.store, "append", append)
    monkeypatch.setattr(psycopg.Connection, "commit", commit)


def test_a_server_killed_while_the_row_is_committed_writes_nothing_and_says_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the insertion and before the commit, and started again while the ledger asks what happened."""
    ledger = Ledger.create(server.new_url(), dataset="d")
    starting: list[threading.Thread] = []

    def dying(commit: Callable[[], None]) -> None:
        server.kill()
        starting.append(threading.Thread(target=server.start))
        starting[0].start()
        commit()

    at_the_commit(ledger, monkeypatch, dying)
    with pytest.raises(StorageError, match="the connection to the database was lost; nothing was written"):
        ledger.reserve(request())
    starting[0].join()
    assert ledger.verify().rows == 1


LOST = psycopg.OperationalError("server closed the connection unexpectedly")


def test_an_answer_lost_after_the_commit_is_looked_up_and_never_doubled(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(postgres.new_url(), dataset="d")

    def losing(commit: Callable[[], None]) -> None:
        commit()
        raise LOST

    at_the_commit(ledger, monkeypatch, losing)
    entry = ledger.reserve(request())
    assert [e.id for e in ledger.entries()] == [entry.id]
    assert ledger.verify().rows == 2


def test_a_database_that_stays_away_after_the_commit_leaves_the_question_open(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(server.new_url(), dataset="d")

    def dying(commit: Callable[[], None]) -> None:
        commit()
        server.kill()
        raise LOST

    at_the_commit(ledger, monkeypatch, dying)
    monkeypatch.setattr(postgres_module, "_ATTEMPTS", 2)
    with pytest.raises(LostConnectionError, match="cannot be reached to see whether it arrived"):
        ledger.reserve(request())
    server.start()
    assert [entry.status for entry in ledger.entries()] == ["reserved"]
