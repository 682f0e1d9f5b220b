"""Doubts about publishing that come from the ledger, from links and from files that cannot be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run as command
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.release.ledger import Ledger
from stirred.release.ledger.problems import StorageError
from stirred.release.ledger.recover import recover
from stirred.release.publish import PublishError, publish
from tests.release.ledger.test_verify import edit
from tests.release.tampering import add, frame, retell, specified
from tests.world import households, listing, manifest, released, swap_plan, world

Change = Callable[[Path], object]


def release(folder: Path, out: str, *, ledger: str | None = None, **mechanism: Any) -> Path:
    section = {"out": out, **({} if ledger is None else {"ledger": ledger})}
    return released(folder, swap_plan(release=section, **mechanism))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = world(tmp_path_factory.mktemp("made"))
    release(folder, "plain")
    return folder


@pytest.fixture
def plain(made: Path, tmp_path: Path) -> Path:
    """A bundle made without a ledger."""
    return Path(shutil.copytree(made / "plain", tmp_path / "bundle"))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A bundle that stands committed in the ledger beside it."""
    return release(world(tmp_path, ledger="homes"), "bundle", ledger="a.ledger")


def doubts(bundle: Path, **options: Any) -> list[str]:
    """Return what speaks against publishing a bundle; nothing may appear."""
    before = listing(bundle.parent)
    with pytest.raises(PublishError) as caught:
        publish(bundle, bundle.parent / "site", **options)
    assert listing(bundle.parent) == before
    assert caught.value.exit_code == 2
    assert all(problem.remedy for problem in caught.value.problems)
    return [f"{problem.where}: {problem.what}" for problem in caught.value.problems]


def in_manifest(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = manifest(bundle)
    change(facts)
    (bundle / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")


# ---- the ledger ---------------------------------------------------------------------------------------------


def test_a_bundle_is_not_published_whose_plan_names_a_ledger_and_whose_manifest_has_no_entry(plain: Path) -> None:
    in_manifest(plain, lambda facts: facts["plan"]["release"].update(ledger="a.ledger"))
    assert doubts(plain) == ["manifest.json: its plan names a ledger, and the manifest no entry in one"]


def test_taking_the_entry_out_of_the_manifest_does_not_get_a_bundle_around_its_ledger(kept: Path) -> None:
    in_manifest(kept, lambda facts: facts.update(ledger=None))
    assert "manifest.json: its plan names a ledger, and the manifest no entry in one" in doubts(kept)


def test_a_ledger_named_for_a_bundle_without_one_is_refused(plain: Path) -> None:
    Ledger.create(plain.parent / "a.ledger", dataset="homes")
    place = plain.parent / "a.ledger"
    said = f"ledger: the bundle was made without a ledger, and {place} has no entry for it"
    assert doubts(plain, ledger=str(place)) == [said]


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"entry": "00000000000000000000"}, "its entry cannot be looked up in"),
        ({"entry": "7"}, "its entry cannot be looked up in"),
        ({"id": "of another"}, "is another ledger than the bundle's"),
        ({"name": "nowhere.ledger"}, "its entry cannot be looked up in nowhere.ledger"),
    ],
    ids=["no such id", "no such number", "another ledger", "no ledger"],
)
def test_a_manifest_that_names_something_else_than_its_entry_is_refused(
    facts: dict[str, str], what: str, kept: Path
) -> None:
    in_manifest(kept, lambda whole: whole["ledger"].update(facts))
    (doubt,) = doubts(kept)
    assert doubt.startswith("ledger: ")
    assert what in doubt


def test_a_committed_bundle_that_promises_something_else_now_is_refused(kept: Path) -> None:
    """Everything in the bundle was made to agree; the ledger remembers what was promised."""
    specified(lambda document: document["theorem"].append("Theorem 99"))(kept)
    retell(kept)
    assert "ledger: it promises something else than its entry in the ledger" in doubts(kept)


def test_a_committed_bundle_whose_specification_cannot_be_read_is_refused(kept: Path) -> None:
    add("public/specification.json", b"\xff{")(kept)
    retell(kept)
    assert "ledger: it promises something else than its entry in the ledger" in doubts(kept)


def test_a_bundle_whose_ledger_was_touched_is_refused_and_the_break_is_named(kept: Path) -> None:
    edit(kept.parent / "a.ledger", "UPDATE rows SET facts = replace(facts, 'homes', 'house') WHERE number = 1")
    (doubt,) = doubts(kept)
    assert "its content is not what was written" in doubt


def test_a_reserved_entry_is_not_published_before_it_is_committed(kept: Path) -> None:
    edit(kept.parent / "a.ledger", "DELETE FROM rows WHERE number = 3")
    assert doubts(kept) == ["ledger: its entry 1 in the ledger is reserved, drawing"]


@pytest.fixture
def promising_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the mechanism state another promise than its plan."""
    right = PermutationSwap.release

    def other(self: PermutationSwap, *args: Any, **more: Any) -> Any:
        done = right(self, *args, **more)
        return replace(done, specification=replace(done.specification, theorem=("Theorem 99",)))

    monkeypatch.setattr(PermutationSwap, "release", other)


@pytest.mark.usefixtures("promising_more")
def test_a_bundle_that_promises_something_else_than_was_reserved_is_never_committed(tmp_path: Path) -> None:
    households().write_parquet(tmp_path / "homes.parquet")
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="homes")
    with pytest.raises(StorageError, match="the bundle promises something else than was reserved"):
        release(tmp_path, "bundle", ledger="a.ledger")
    (entry,) = ledger.entries()
    assert (entry.status, entry.drawn) == ("reserved", True)
    assert any("its entry 1 in the ledger is reserved" in doubt for doubt in doubts(tmp_path / "bundle"))
    (done,) = recover(ledger)
    assert (done.entry.status, done.entry.is_spent) == ("aborted", True), "its cost is not forgotten"
    assert "the bundle at its place promises something else than was reserved" in done.because
    assert any("its entry 1 in the ledger is aborted" in doubt for doubt in doubts(tmp_path / "bundle"))


# ---- links and files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["public", "internal"])
def test_a_folder_that_is_a_link_is_refused(name: str, plain: Path) -> None:
    """What it leads to may be another folder tomorrow."""
    (plain / name).rename(plain.parent / "elsewhere")
    (plain / name).symlink_to(plain.parent / "elsewhere")
    assert any(each.startswith(f"{name}: it is a link") for each in doubts(plain))


@pytest.mark.parametrize("name", ["data.parquet", "invariants.parquet", "strata.parquet", "tables/county-x-tenure.csv"])
def test_a_table_that_cannot_be_read_is_refused(name: str, plain: Path) -> None:
    add(f"public/{name}", b"")(plain)
    retell(plain)
    assert any(each.startswith(f"public/{name}: it cannot be read") for each in doubts(plain))


def test_a_bundle_of_two_stages_is_published_with_the_settings_of_its_strata(tmp_path: Path) -> None:
    two: dict[str, Any] = {"name": "two-stage-swap", "rate": "1/5", "fine_match": ["tenure"], "fine_rate": "1/3"}
    households(600).with_columns(kind=pl.col("hid") % 5).write_parquet(tmp_path / "homes.parquet")
    bundle = release(tmp_path, "bundle", **two)
    names = {"stratum_fine_match", "stratum_fine_rate"}
    assert names <= {*pl.read_parquet(bundle / "public/strata.parquet").columns}
    publish(bundle, tmp_path / "site")
    assert (tmp_path / "site" / "strata.parquet").exists()


@pytest.mark.parametrize("column", ["stratum_fine_match", "stratum_response", "stratum_moved"])
def test_strata_with_settings_of_another_mechanism_are_refused(column: str, plain: Path) -> None:
    frame("strata.parquet", lambda strata: strata.with_columns(pl.lit("x").alias(column)))(plain)
    retell(plain)
    assert f'public/strata.parquet: "{column}" is not in the specification' in doubts(plain)


def test_the_command_says_every_doubt_and_ends_with_2(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_manifest(plain, lambda facts: facts["plan"]["release"].update(ledger="a.ledger"))
    add("public/strata.parquet", b"")(plain)
    retell(plain)
    assert command(["publish", str(plain), str(plain.parent / "site")]) == 2
    said = capsys.readouterr().err
    assert "its plan names a ledger, and the manifest no entry in one" in said
    assert "public/strata.parquet: it cannot be read" in said
    assert "Traceback" not in said
    assert not (plain.parent / "site").exists()
