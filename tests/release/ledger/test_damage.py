"""Damage of a ledger file is told in words, whatever byte it is; so are a commit that fails and a journal left over."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stirred.cli.main import run as command
from stirred.release.ledger import Ledger
from stirred.release.ledger.account import verify_store
from stirred.release.ledger.problems import BrokenLedgerError, StorageError
from stirred.release.ledger.store import store_at
from stirred.spec.problems import StirredError
from tests.release.ledger.making import limit, released, request
from tests.release.ledger.test_faults import HALF_WRITTEN
from tests.release.ledger.test_verify import edit

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows 0 genesis, 1-3 a release, 4 policy, 5-6 aborted."""
    place = tmp_path_factory.mktemp("original") / "a.ledger"
    ledger = Ledger.create(place, dataset="the register")
    released(ledger, "1")
    ledger.set_policy(limit("100"), reason="begin")
    ledger.abort(ledger.reserve(request("2")).id, reason="changed our mind")
    return place


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


# ---- flipped bytes --------------------------------------------------------------------------------


def outcome(path: Path) -> str:
    """Return what the check of a file comes to; anything but these is a crash."""
    try:
        found = verify_store(store_at(path))
    except StirredError as error:
        return "refused" if "this is not a ledger" in str(error) else f"refused: {error}"
    return "sound" if found.first_break is None else found.first_break.kind


def flips(size: int, count: int) -> list[tuple[int, int]]:
    """Every byte of the header, and others anywhere."""
    source = random.Random(13)
    return [
        *((at, source.randrange(8)) for at in range(100)),
        *((source.randrange(size), source.randrange(8)) for _ in range(count)),
    ]


def check_flips(original: Path, folder: Path, count: int) -> Counter[str]:
    raw, found = original.read_bytes(), Counter[str]()
    place = folder / "flipped.ledger"
    for at, bit in flips(len(raw), count):
        flipped = bytearray(raw)
        flipped[at] ^= 1 << bit
        place.write_bytes(flipped)
        found[outcome(place)] += 1
    return found


def test_no_flipped_byte_makes_the_check_crash(original: Path, tmp_path: Path) -> None:
    found = check_flips(original, tmp_path, 900)
    assert set(found) <= {"sound", "refused", "storage", "content", "document", "link", "text", "gap", "transition"}
    assert {"storage", "content", "document", "link", "text"} <= set(found), "the test has lost its power"


def test_a_trigger_whose_name_is_no_text_any_more_does_not_make_the_check_crash(original: Path, tmp_path: Path) -> None:
    """In the header of a row, the byte after that of "trigger" says that its name is a text; one bit makes it bytes."""
    raw, place = original.read_bytes(), tmp_path / "flipped.ledger"
    rows = [at for at in range(len(raw)) if raw.startswith(b"triggerrows_are", at)]
    assert rows, "the test has lost its power"
    for at in rows:
        flipped = bytearray(raw)
        flipped[raw.rfind(bytes([2 * len("trigger") + 13]), at - 8, at) + 1] ^= 1
        place.write_bytes(flipped)
        assert outcome(place) in ("sound", "storage")


@pytest.mark.slow
def test_no_flipped_byte_of_many_makes_the_check_crash(original: Path, tmp_path: Path) -> None:
    found = check_flips(original, tmp_path, 40_000)
    assert not [name for name in found if name.startswith("refused:")]


def replaced(path: Path, old: bytes, new: bytes) -> None:
    """Overwrite bytes of the file itself; SQLite does not notice."""
    raw = path.read_bytes()
    assert raw.count(old) == 1
    path.write_bytes(raw.replace(old, new))


def test_text_that_is_not_utf8_is_a_break_of_its_row(path: Path, capsys: Out) -> None:
    replaced(path, b"changed our mind", b"changed \xff\xfe\xfd mind")
    assert command(["ledger", "verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "row 6: its text cannot be read: it is not UTF-8, or not text at all (text)" in said
    with pytest.raises(BrokenLedgerError, match="row 6"):
        Ledger.open(path)


def test_of_two_breaks_the_first_is_named_though_the_second_cannot_be_read(path: Path) -> None:
    replaced(path, b"changed our mind", b"changed \xff\xfe\xfd mind")
    edit(path, "UPDATE rows SET facts = replace(facts, '20', '19') WHERE number = 1")
    broken = verify_store(store_at(path)).first_break
    assert broken is not None
    assert (broken.number, broken.kind) == (1, "content")


def test_text_that_is_not_utf8_cannot_be_made_right_by_its_hash(path: Path) -> None:
    """Whoever recomputes the hash over such bytes still has a row that cannot be read."""
    from stirred.release.ledger.row import row_hash

    replaced(path, b"changed our mind", b"changed \xff\xfe\xfd mind")
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        *row, old = connection.execute("SELECT * FROM rows WHERE number = 6").fetchone()
    edit(path, f"UPDATE rows SET hash = '{row_hash(*row)}' WHERE hash = '{old}'")
    broken = verify_store(store_at(path)).first_break
    assert broken is not None
    assert (broken.number, broken.kind) == (6, "text")


def test_damage_that_no_row_shows_is_found_by_sqlite_itself(path: Path, capsys: Out) -> None:
    """The index of the ids loses an entry: every row can be read, and a doubled id would not be noticed."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_rows_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    raw = bytearray(path.read_bytes())
    at = size * (page - 1) + 3  # the number of cells of the page
    raw[at : at + 2] = (int.from_bytes(raw[at : at + 2]) - 1).to_bytes(2)
    path.write_bytes(raw)
    assert len(store_at(path).rows()) == 7
    assert command(["ledger", "verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "SQLite's own check finds the file damaged" in said
    assert "index" in said


def test_a_document_that_is_not_text_is_a_break(path: Path) -> None:
    change = "UPDATE documents SET text = CAST(x'7bff7d' AS TEXT)"
    edit(path, f"{change} WHERE digest = (SELECT specification FROM rows WHERE number = 5)")
    broken = verify_store(store_at(path)).first_break
    assert broken is not None
    assert (broken.number, broken.kind) == (5, "document")


# ---- copies and journals --------------------------------------------------------------------------


def half_written(path: Path) -> Path:
    """Let a process die while it writes, and return the journal it leaves."""
    killed = subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(path)], capture_output=True, check=False)
    assert killed.returncode == -9
    return Path(f"{path}-journal")


def test_a_journal_that_stood_beside_the_file_is_told(path: Path, capsys: Out) -> None:
    half_written(path)
    copy = Path(shutil.copy(path, path.with_name("copy.ledger")))
    shutil.copy(f"{path}-journal", f"{copy}-journal")
    assert command(["ledger", "verify", str(copy)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "copy.ledger-journal stood beside the file: a process died while writing" in said
    assert command(["ledger", "verify", str(copy)]) == 0
    assert "journal" not in capsys.readouterr().out
    assert verify_store(store_at(copy)).head == verify_store(store_at(path)).head


def test_damage_says_how_a_ledger_is_copied(path: Path, capsys: Out) -> None:
    path.write_bytes(path.read_bytes()[:6000])
    assert command(["ledger", "verify", str(path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the file is damaged" in said
    assert "copy the file together with the journal beside it" in said


# ---- a commit that fails --------------------------------------------------------------------------


def failing_commit(monkeypatch: pytest.MonkeyPatch, *, arrives: bool, then: Any = None) -> None:
    """Let the next commit say that the disk refused, after or before it wrote."""
    armed = [True]

    class Failing(sqlite3.Connection):
        def execute(self, *words: Any) -> sqlite3.Cursor:
            if words[0] == "COMMIT" and armed:
                armed.clear()
                super().execute("COMMIT" if arrives else "ROLLBACK")
                if then is not None:
                    then()
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorname = "SQLITE_IOERR_FSYNC"  # type: ignore[misc, unused-ignore]
                raise error
            return super().execute(*words)

    real = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda *place, **more: real(*place, **{**more, "factory": Failing}))


def test_a_row_that_arrived_although_the_commit_failed_is_found_and_not_doubled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path)
    failing_commit(monkeypatch, arrives=True)
    entry = ledger.reserve(request())
    assert entry.number == 7
    assert ledger.draw(entry.id).drawn
    found = ledger.verify()
    assert (found.is_sound, found.rows) == (True, 9)


def test_a_row_that_did_not_arrive_is_refused_and_can_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path)
    failing_commit(monkeypatch, arrives=False)
    with pytest.raises(StorageError, match=r"the disk refused .*; nothing was written"):
        ledger.reserve(request())
    assert ledger.reserve(request()).number == 7


def test_a_file_that_cannot_be_read_after_the_commit_leaves_the_question_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path)
    away = path.with_name("away")
    failing_commit(monkeypatch, arrives=True, then=lambda: path.rename(away))
    with pytest.raises(StorageError, match="whether row 7 arrived cannot be seen") as refusal:
        ledger.reserve(request())
    assert "nothing was written" not in str(refusal.value)
