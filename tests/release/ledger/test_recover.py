"""What a dead process left behind decides what becomes of its reservation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stirred.release.bundle import bundle_checksum, write_manifest
from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger.recover import recover
from tests.release.ledger.making import released, request
from tests.world import bundle_at


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "a.ledger", dataset="d")


def bundle(place: Path, entry: str) -> None:
    with bundle_at(place) as folder:
        (folder / "public").mkdir()
        (folder / "internal").mkdir()
        (folder / "public" / "data.csv").write_text("a,b\n1,2\n")
        write_manifest(folder, {"ledger": {"entry": entry}})


def budget(ledger: Ledger) -> str:
    found = ledger.total().specification
    return "0" if found is None else str(found.budget.realised)


def test_nothing_drawn_is_nothing_spent(ledger: Ledger, tmp_path: Path) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    (done,) = recover(ledger)
    assert (done.entry.id, done.entry.state) == (entry.id, "aborted, unspent")
    assert budget(ledger) == "0"
    with pytest.raises(LedgerError, match="nothing may be drawn"):
        ledger.draw(entry.id)  # the process turns out to be alive


def test_drawn_without_a_bundle_is_spent(ledger: Ledger, tmp_path: Path) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    ledger.draw(entry.id)
    (done,) = recover(ledger)
    assert done.entry.state == "aborted, spent"
    assert "there is no bundle at its place" in done.because
    assert budget(ledger) == "1"
    bundle(tmp_path / "out", entry.id)  # the process was alive, and completes its bundle
    assert ledger.commit(entry.id, bundle=bundle_checksum(tmp_path / "out")).status == "committed"
    assert budget(ledger) == "1"


def test_drawn_with_its_whole_bundle_is_committed(ledger: Ledger, tmp_path: Path) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    ledger.draw(entry.id)
    bundle(tmp_path / "out", entry.id)
    (planned,) = recover(ledger, dry_run=True)
    assert ledger.entry(entry.id).status == "reserved"
    (done,) = recover(ledger)
    assert planned.because == done.because
    assert (done.entry.status, done.entry.bundle) == ("committed", bundle_checksum(tmp_path / "out"))


def spoil_file(place: Path) -> None:
    (place / "public" / "data.csv").write_text("a,b\n1,3\n")


def spoil_extra(place: Path) -> None:
    (place / "public" / "more.csv").write_text("")


def spoil_missing(place: Path) -> None:
    (place / "public" / "data.csv").unlink()


def spoil_manifest(place: Path) -> None:
    (place / "manifest.json").write_text("[" * 5000)


def spoil_other(place: Path) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps(manifest | {"ledger": {"entry": "another"}}))


@pytest.mark.parametrize("spoil", [spoil_file, spoil_extra, spoil_missing, spoil_manifest, spoil_other])
def test_drawn_with_a_spoilt_bundle_is_spent_and_not_committed(ledger: Ledger, tmp_path: Path, spoil: object) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    ledger.draw(entry.id)
    bundle(tmp_path / "out", entry.id)
    spoil(tmp_path / "out")  # type: ignore[operator]
    (done,) = recover(ledger)
    assert done.entry.state == "aborted, spent"


def test_an_aborted_entry_whose_whole_bundle_is_there_is_committed(ledger: Ledger, tmp_path: Path) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    ledger.draw(entry.id)
    bundle(tmp_path / "out", entry.id)
    ledger.abort(entry.id, reason="interrupted just after the bundle appeared")
    (planned,) = recover(ledger, dry_run=True)
    assert ledger.entry(entry.id).state == "aborted, spent"
    (done,) = recover(ledger, [entry.id])
    assert planned.because == done.because
    assert (done.entry.status, done.entry.bundle) == ("committed", bundle_checksum(tmp_path / "out"))
    assert recover(ledger) == []


def test_a_derived_product_with_its_bundle_is_committed_without_a_draw(ledger: Ledger, tmp_path: Path) -> None:
    first = released(ledger)
    entry = ledger.reserve(request(specification=None, derived_from=[first.id], place=tmp_path / "out"))
    bundle(tmp_path / "out", entry.id)
    (done,) = recover(ledger)
    assert done.entry.status == "committed"


def test_a_draw_that_comes_between_is_not_recorded_as_nothing_drawn(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ledger.reserve(request(place=tmp_path / "out"))
    living = Ledger.open(ledger.name)

    def draw_meanwhile(_: Path) -> None:
        living.draw(entry.id)

    monkeypatch.setattr("stirred.release.ledger.recover.remove_leftovers", draw_meanwhile)
    (done,) = recover(ledger)
    assert done.entry.state == "aborted, spent"
    assert "nothing had been drawn" not in done.entry.reason
    assert "there is no bundle at its place" in done.entry.reason


def test_only_open_reservations_are_touched_and_only_those_named(ledger: Ledger) -> None:
    released(ledger)
    first, second = ledger.reserve(request()), ledger.reserve(request())
    assert [done.entry.id for done in recover(ledger, [second.id])] == [second.id]
    assert [done.entry.id for done in recover(ledger)] == [first.id]
    assert recover(ledger) == []
