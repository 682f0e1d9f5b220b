"""Every kind of edit that somebody with access to the file could make is found, and where."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger.account import Account, verify_rows, verify_store
from stirred.release.ledger.problems import BrokenLedgerError, StorageError
from stirred.release.ledger.row import Row, digest_of, next_row, row_hash
from stirred.release.ledger.store import Store, store_at
from tests.release.ledger.making import limit, released, request

Edit = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of a dozen rows: 0 genesis, 1-3 a release, 4 policy, 5-6 aborted, 7-10 withdrawn, 11 derived."""
    place = tmp_path_factory.mktemp("original") / "a.ledger"
    ledger = Ledger.create(place, dataset="the register")
    released(ledger, "1")
    ledger.set_policy(limit("100"), reason="begin")
    ledger.abort(ledger.reserve(request("2")).id, reason="changed our mind")
    entry = ledger.reserve(request("3"))
    ledger.draw(entry.id)
    ledger.commit(entry.id, bundle="b")
    ledger.withdraw(entry.id, reason="an error in a table")
    ledger.add(request(specification=None, derived_from=[1]))
    return place


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


def edit(path: Path, *statements: str) -> None:
    """Do what somebody does who can write to the file: remove the guards first."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        guards = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (guard,) in guards:
            connection.execute(f"DROP TRIGGER {guard}")
        for statement in statements:
            connection.execute(statement)


def test_an_untouched_ledger_is_sound(path: Path) -> None:
    found = Ledger.open(path).verify()
    assert found.is_sound
    assert (found.rows, found.entries, found.observations) == (12, 4, ())
    assert found.head == Ledger.open(path).head.hash


EDITS = {
    "facts": ("UPDATE rows SET facts = replace(facts, 'a test', 'another') WHERE number = 7", 7, "content"),
    "a time": ("UPDATE rows SET facts = replace(facts, '20', '19') WHERE number = 1", 1, "content"),
    "a budget": ("UPDATE rows SET specification = (SELECT specification FROM rows WHERE number = 1) WHERE number = 7",
                 7, "content"),
    "a kind": ("UPDATE rows SET kind = 'abort' WHERE number = 9", 9, "content"),
    "the entry meant": ("UPDATE rows SET entry = (SELECT id FROM rows WHERE number = 1) WHERE number = 6",
                        6, "content"),
    "an id": ("UPDATE rows SET id = 'x' WHERE number = 3", 3, "content"),
    "a hash": ("UPDATE rows SET hash = substr(hash, 2) || 'x' WHERE number = 5", 5, "content"),
    "a link": ("UPDATE rows SET previous = hash WHERE number = 5", 5, "link"),
    "the genesis": ("UPDATE rows SET facts = replace(facts, 'register', 'registry') WHERE number = 0", 0, "content"),
    "a row removed": ("DELETE FROM rows WHERE number = 6", 6, "gap"),
    "the first row removed": ("DELETE FROM rows WHERE number = 0", 0, "gap"),
    "all rows removed": ("DELETE FROM rows", 0, "gap"),
    "a row removed and the others moved up": (
        "DELETE FROM rows WHERE number = 6; "
        "UPDATE rows SET number = number - 1 WHERE number > 6", 6, "link"),
    "two rows exchanged": (
        "UPDATE rows SET number = -1 WHERE number = 5; UPDATE rows SET number = 5 WHERE number = 6; "
        "UPDATE rows SET number = 6 WHERE number = -1", 5, "link"),
    "a row before the first": (
        "INSERT INTO rows SELECT -1, 'x', kind, entry, specification, facts, previous, hash FROM rows "
        "WHERE number = 0", 0, "gap"),
    "a row copied to the end": (
        "INSERT INTO rows SELECT 12, 'x', kind, entry, specification, facts, previous, hash FROM rows "
        "WHERE number = 11", 12, "link"),
    "a specification changed": ("UPDATE documents SET text = replace(text, '\"1\"', '\"0\"')", 1, "document"),
    "a specification removed": (
        "DELETE FROM documents WHERE digest = (SELECT specification FROM rows WHERE number = 7)", 7, "document"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found_where_it_was_made(path: Path, name: str) -> None:
    statements, number, kind = EDITS[name]
    edit(path, *statements.split("; "))
    found = Ledger(Ledger.open(path).store if kind == "document" else _store(path)).verify()
    assert found.first_break is not None, "the edit was not noticed"
    assert (found.first_break.number, found.first_break.kind) == (number, kind)


@pytest.mark.parametrize("name", [name for name in EDITS if EDITS[name][2] != "document"])
def test_nothing_is_computed_from_a_broken_ledger_and_nothing_is_added_to_it(path: Path, name: str) -> None:
    edit(path, *EDITS[name][0].split("; "))
    with pytest.raises(BrokenLedgerError):
        Ledger.open(path).total()
    with pytest.raises(BrokenLedgerError):
        Ledger(_store(path)).reserve(request())


def _store(path: Path) -> Store:
    return store_at(path)


def rows_of(path: Path) -> tuple[list[Row], dict[str, str]]:
    store = _store(path)
    return store.rows(), store.documents()


def rehashed(rows: list[Row]) -> list[Row]:
    """Return the rows with every number, link and hash made right: what a clever forger does."""
    out: list[Row] = []
    for row in rows:
        previous = out[-1].hash if out else "0" * 64
        hashed = row_hash(len(out), row.id, row.kind, row.entry, row.specification, row.facts, previous)
        out.append(row._replace(number=len(out), previous=previous, hash=hashed))
    return out


FORGERIES: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "a draw taken out": (lambda rows: [row for row in rows if row.number != 2], "transition"),
    "an abort of what is committed": (
        lambda rows: [*rows[:4], rows[6]._replace(entry=rows[1].id), *rows[4:]], "transition"),
    "a second genesis": (lambda rows: [*rows, rows[0]._replace(id="x")], "transition"),
    "an event of nobody": (lambda rows: [row for row in rows if row.number != 1], "reference"),
    "derived from what is not there": (lambda rows: [rows[0], rows[-1]], "reference"),
    "a kind unheard of": (lambda rows: [*rows, rows[4]._replace(id="x", kind="forgive")], "unknown kind"),
    "an id used twice": (lambda rows: [*rows, rows[4]], "duplicate"),
    "facts that say too much": (
        lambda rows: [*rows[:3], rows[3]._replace(facts=rows[3].facts[:-1] + ',"x":1}'), *rows[4:]], "facts"),
    "facts that are no JSON": (lambda rows: [*rows[:3], rows[3]._replace(facts="{"), *rows[4:]], "facts"),
    "facts that are not canonical": (
        lambda rows: [*rows[:3], rows[3]._replace(facts=rows[3].facts.replace(":", ": ", 1)), *rows[4:]], "facts"),
    "facts with a number that JSON has not": (
        lambda rows: [*rows[:3], rows[3]._replace(facts=rows[3].facts[:-1] + ',"x":NaN}'), *rows[4:]], "facts"),
    "facts nested without end": (
        lambda rows: [*rows[:3], rows[3]._replace(facts="[" * 100_000 + "]" * 100_000), *rows[4:]], "facts"),
    "facts that are a list": (lambda rows: [*rows[:3], rows[3]._replace(facts="[]"), *rows[4:]], "facts"),
    "facts of another kind of row": (
        lambda rows: [*rows[:6], rows[6]._replace(facts=rows[2].facts), *rows[7:]], "facts"),
    "a policy about one entry": (
        lambda rows: [*rows[:4], rows[4]._replace(entry=rows[1].id), *rows[5:]], "transition"),
    "an entry opened under another id": (
        lambda rows: [*rows[:7], rows[7]._replace(entry=rows[1].id), *rows[8:]], "transition"),
    "a ledger that begins with a reservation": (lambda rows: rows[1:], "transition"),
    "a publication of what is withdrawn": (
        lambda rows: [*rows, rows[10]._replace(id="x", kind="publish", facts=rows[2].facts[:-1] + ',"to":"web"}')],
        "transition"),
    "a reservation without a specification": (
        lambda rows: [rows[0], rows[1]._replace(specification="")], "facts"),
    "a loss recorded as derived": (
        lambda rows: [*rows[:-1], rows[-1]._replace(specification=rows[1].specification)], "facts"),
    "a draw for what is derived": (
        lambda rows: [*rows[:-1], rows[-1]._replace(kind="reserve"), rows[2]._replace(id="x", entry=rows[-1].id)],
        "transition"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_chain_forged_anew_must_still_make_sense(path: Path, name: str) -> None:
    rows, documents = rows_of(path)
    forge, kind = FORGERIES[name]
    found = verify_rows(rehashed(forge(rows)), documents)
    assert found.first_break is not None
    assert found.first_break.kind == kind


@pytest.mark.parametrize(
    ("document", "words"),
    [("{}", "cannot be read: "), ("no JSON", "cannot be read: "), ("[" * 100_000, "cannot be read: ")],
    ids=["an empty one", "no JSON", "nested without end"],
)
def test_a_forged_specification_with_the_right_digest_must_still_be_one(path: Path, document: str, words: str) -> None:
    rows, documents = rows_of(path)
    digest = digest_of(document)
    forged = rehashed([*rows[:7], rows[7]._replace(specification=digest), *rows[8:]])
    found = verify_rows(forged, {**documents, digest: document}).first_break
    assert found is not None
    assert (found.kind, found.number) == ("document", 7)
    assert f"the specification {digest[:12]} {words}" in str(found)


def test_a_ledger_of_a_newer_stirred_is_not_read_as_if_it_were_ours(path: Path) -> None:
    rows, documents = rows_of(path)
    newer = rows[0].facts.replace('"schema_version":1', '"schema_version":99')
    assert newer != rows[0].facts
    with pytest.raises(LedgerError, match="written by a newer stirred") as caught:
        verify_rows(rehashed([rows[0]._replace(facts=newer), *rows[1:]]), documents)
    assert not isinstance(caught.value, BrokenLedgerError), "nobody touched it"
    assert "install the newer version" in caught.value.problems[0].remedy


def test_times_that_cannot_be_read_are_noted_a_few_of_them_and_break_nothing(path: Path) -> None:
    """Without a zone a time is none: nobody knows where the clock stood."""
    rows, documents = rows_of(path)
    times = ["yesterday", "2026-01-01T00:00:00", "", "2026-13-01T00:00:00+00:00"]
    forged = [row._replace(facts=_at(row.facts, times[row.number % 4])) for row in rows]
    found = verify_rows(rehashed(forged), documents)
    assert found.is_sound
    assert found.observations[:2] == ("row 0: its time cannot be read", "row 1: its time cannot be read")
    assert found.observations[5:] == ("7 more rows like this",)


def _at(facts: str, time: str) -> str:
    return json.dumps({**json.loads(facts), "at": time}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def test_a_specification_that_no_row_refers_to_is_noted(path: Path) -> None:
    rows, documents = rows_of(path)
    for more, words in ((1, "1 stored specification that"), (2, "2 stored specifications that")):
        found = verify_rows(rows, {**documents, **{f"digest {n}": "{}" for n in range(more)}})
        assert found.is_sound
        assert found.observations == (f"{words} no row refers to",)


def test_storage_that_cannot_be_reached_is_not_called_a_broken_ledger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(path)
    path.unlink()
    with pytest.raises(StorageError) as caught:
        verify_store(store)
    assert "damaged" not in str(caught.value)


def test_two_entries_that_begin_alike_are_not_mistaken_for_each_other(path: Path) -> None:
    rows, documents = rows_of(path)
    ids = {row.id: f"aaaa{row.number:04}" for row in rows if row.id == row.entry}
    alike = [row._replace(id=ids.get(row.id, row.id), entry=ids.get(row.entry, row.entry)) for row in rows]
    account = Account(documents.get).read(rehashed(alike[:-1]))
    with pytest.raises(LedgerError, match="3 entries begin like this"):
        account.find("aaaa")
    assert account.find("aaaa0005").opening.number == 5


def test_a_chain_cut_off_at_the_end_is_found_with_the_head_written_down(path: Path) -> None:
    head = Ledger.open(path).head.hash
    edit(path, "DELETE FROM rows WHERE number > 9")
    assert verify_store(_store(path)).is_sound  # the chain alone cannot know
    found = verify_store(_store(path), head=head)
    assert found.first_break is not None
    assert found.first_break.kind == "cut off"
    with pytest.raises(LedgerError, match="too short"):
        verify_store(_store(path), head="ab")


def test_a_chain_forged_anew_is_found_with_the_head_written_down(path: Path) -> None:
    rows, documents = rows_of(path)
    changed = [*rows[:7], rows[7]._replace(specification=rows[1].specification), *rows[8:]]
    assert verify_rows(rehashed(changed), documents).is_sound
    assert not verify_rows(rehashed(changed), documents, head=rows[-1].hash).is_sound


def test_a_running_process_notices_that_what_it_read_was_replaced(path: Path) -> None:
    ledger = Ledger.open(path)
    other = Ledger.create(path.with_name("b.ledger"), dataset="another")
    for _ in range(4):
        released(other)
    path.with_name("b.ledger").replace(path)
    with pytest.raises(BrokenLedgerError, match="not the row that was read before"):
        ledger.reserve(request())


def test_a_clock_that_goes_backwards_is_noted_and_breaks_nothing(tmp_path: Path) -> None:
    times = iter([datetime(2030, 5, 1, tzinfo=UTC) + timedelta(hours=h) for h in (0, 5, 3, -8760, 6, 7)])
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", clock=lambda: next(times))
    entry = ledger.reserve(request())
    ledger.draw(entry.id)
    ledger.commit(entry.id, bundle="b")
    ledger.withdraw(entry.id, reason="r")
    found = ledger.verify()
    assert found.is_sound
    assert [text.partition(":")[0] for text in found.observations] == ["row 2", "row 3"]
    assert ledger.entry(1).when == "2030-05-01T05:00:00.000000+00:00"
    assert ledger.entry(1).status == "withdrawn"


def test_a_file_damaged_on_the_disk_is_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 97):
        content[at] ^= 0x55
    path.write_bytes(content)
    found = verify_store(_store(path))
    assert found.first_break is not None
    assert (found.first_break.kind, found.rows) == ("storage", 0)


def test_one_flipped_bit_anywhere_in_a_row_is_found(path: Path) -> None:
    rows, documents = rows_of(path)
    for row in rows:
        for column in ("id", "kind", "entry", "specification", "facts", "previous", "hash"):
            text = getattr(row, column)
            if text:
                flipped = chr(ord(text[0]) ^ 1) + text[1:]
                edited = [*rows[: row.number], row._replace(**{column: flipped}), *rows[row.number + 1 :]]
                found = verify_rows(edited, documents).first_break
                assert found is not None
                assert found.number == row.number, (row.number, column)


def test_rows_follow_each_other_by_their_hashes() -> None:
    first = next_row(None, id_="a", kind="genesis", entry="", specification="", facts={})
    second = next_row(first, id_="b", kind="policy", entry="", specification="", facts={})
    assert second.previous == first.hash == first.computed_hash
    assert first.hash == digest_of("0\na\ngenesis\n\n\n" + "0" * 64 + "\n{}")


def test_a_row_that_a_trigger_swallows_is_refused_and_the_trigger_is_noticed(path: Path) -> None:
    ledger = Ledger.open(path)
    entry = ledger.reserve(request("1"))
    quiet = "CREATE TRIGGER quiet BEFORE INSERT ON rows WHEN NEW.kind = 'draw' BEGIN SELECT RAISE(IGNORE); END"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(quiet)
        connection.execute("DROP TRIGGER rows_are_never_deleted")
    with pytest.raises(StorageError, match="the row did not go in; nothing was written"):
        ledger.draw(entry.id)
    assert ledger.verify().observations == (
        "the trigger quiet is not made by stirred",
        "the trigger rows_are_never_deleted is missing",
    )
    assert not ledger.entry(entry.id).drawn
