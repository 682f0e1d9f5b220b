"""A release that was drawn and died is finished at no cost: the same files, plan and key make the same release."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.data import place as places
from stirred.data.place import Place, claimed
from stirred.data.problems import PlanError
from stirred.release.ledger import Ledger
from stirred.release.ledger.recover import recover
from stirred.release.plan_file import plan_from, read_plan
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import RunRecord, _code_of, resume, run
from tests.release.forked import Forked, exit_code_of
from tests.release.killed_run import arrange
from tests.world import PLAN_OF_HOMES, files_in, households, listing, sha256, stirred, world

PLAN = f'{PLAN_OF_HOMES}purpose = "a test"\nledger = "a.ledger"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return world(tmp_path, households(600), plan=PLAN, ledger="six hundred homes")


def killed(folder: Path, point: str, *options: str) -> None:
    command_line = ["release", "plan.toml", *options, "--quiet"]
    assert exit_code_of(arrange, point, *command_line, cwd=folder) == -signal.SIGKILL


def public_files(bundle: Path) -> dict[str, str]:
    return {name: sha256(bundle / name) for name in files_in(bundle) if name.startswith("public/")}


def entry_of(folder: Path):  # type: ignore[no-untyped-def]
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    return entry


def released_with(key: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an unkilled run of the same plan makes with a key, without a ledger."""
    plan = PLAN.replace('ledger = "a.ledger"', "").replace('out = "out"', 'out = "again"')
    named = plan.replace("[data]", '[data]\nname = "six hundred homes"')
    (folder / "again.toml").write_text(named, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("stirred.release.run.draw_key", lambda *_: Entropy.from_kept(key, same_release=True))
        return run(prepare(read_plan(folder / "again.toml")))


def of_records(bundle: Path) -> dict[str, str]:
    return {name: digest for name, digest in public_files(bundle).items() if name.endswith((".parquet", ".csv"))}


@pytest.mark.parametrize("point", ["key kept", "swapped", "written", "verified", "complete", "sealed"])
def test_a_killed_run_is_finished_with_the_very_same_release(
    folder: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(folder, point)
    before, place = entry_of(folder), Place(out=folder / "out")
    assert before.state == "reserved, drawing"
    key, written = place.key, public_files(place.folder)
    done = stirred("release", "--resume", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "promise" in done.stdout
    assert "next     stirred publish out" in done.stdout
    after = entry_of(folder)
    assert (after.id, after.status) == (before.id, "committed")
    total = Ledger.open(folder / "a.ledger").total().specification
    assert total is not None
    assert total.budget.realised == after.specification.budget.realised, "spent twice"
    assert sorted(path.name for path in folder.iterdir()) == ["a.ledger", "homes.parquet", "out", "plan.toml"]
    assert written.items() <= public_files(folder / "out").items(), "not the files that were written before the kill"
    if point != "sealed":
        assert key is not None
        assert of_records(folder / "out") == of_records(released_with(key, folder, monkeypatch))


def test_a_run_that_died_twice_is_finished_with_the_key_of_its_draw(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(folder, "swapped")
    key = Place(out=folder / "out").key
    used: list[bytes] = []

    def noted(entropy: Entropy) -> Entropy:
        used.append(entropy.kept)
        return entropy

    monkeypatch.setattr("stirred.release.rehearsal._excerpt", lambda *_: None)  # it has a key of its own
    monkeypatch.setattr(Entropy, "for_release", noted)
    with monkeypatch.context() as patch:
        patch.setattr("stirred.mechanisms.records.evidence.verify_swap", _interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            resume(folder / "out")
        assert "stirred release --resume" in caught.value.__notes__[0]
    assert Place(out=folder / "out").key == key
    resume(folder / "out")
    assert used == [key, key]
    assert entry_of(folder).status == "committed"
    publish(folder / "out", folder / "site")


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_key_is_for_its_owner_alone_and_gone_before_the_bundle_appears(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(folder, "written")
    place = Place(out=folder / "out")
    kept = [path for path in place.hidden.rglob("*") if path.is_file() and path.parent.name == "resume"]
    assert {path.name for path in kept} == {"key", "key.sha256", "release.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert stat.S_IMODE(place.hidden.stat().st_mode) == 0o700
    key = place.key
    assert key is not None
    seen: list[bool] = []
    move = places.move_new

    def moved(source: Path, target: Path) -> None:
        seen.append(place.key is None)
        move(source, target)

    monkeypatch.setattr(places, "move_new", moved)
    resume(folder / "out")
    assert seen == [True], "the key was there when the bundle appeared"
    for path in folder.rglob("*"):
        assert not path.is_file() or key not in path.read_bytes()
        assert not path.is_file() or key.hex().encode() not in path.read_bytes()


def test_before_the_key_is_kept_nothing_was_drawn_and_the_release_goes_on(folder: Path) -> None:
    killed(folder, "drawn")
    assert Place(out=folder / "out").key is None
    resume(folder / "out")
    assert entry_of(folder).status == "committed"


def test_a_key_that_somebody_removed_is_not_replaced_by_another(folder: Path) -> None:
    killed(folder, "written")
    (Place(out=folder / "out").hidden / "resume" / "key").unlink()
    give_up = re.escape(f"`stirred ledger abort {folder / 'a.ledger'} 1 --reason TEXT`")
    with pytest.raises(PlanError, match=f"the key of the draw is gone.*{give_up}"):
        resume(folder / "out")
    finish = f"`stirred release --resume {folder / 'out'}`; or give it up: {give_up}"
    with pytest.raises(PlanError, match=finish), claimed(folder / "out"):
        pass
    (Place(out=folder / "out").hidden / "resume" / "release.json").write_text("no JSON")
    with pytest.raises(PlanError, match="or give it up: `stirred ledger abort LEDGER ENTRY"), claimed(folder / "out"):
        pass


def edited_file(folder: Path) -> None:
    households(600).with_columns(tenure=pl.lit("owned")).write_parquet(folder / "homes.parquet")


def changed_record(folder: Path, name: str, change: dict[str, str]) -> None:
    record = Place(out=folder / "out").hidden / "resume" / "release.json"
    kept = json.loads(record.read_text())
    record.write_text(json.dumps(kept | {name: kept[name] | change}))


def other_library(folder: Path) -> None:
    changed_record(folder, "libraries", {"polars": "0.0.1"})


def other_codes(folder: Path) -> None:
    changed_record(folder, "premises", {"the records as codes": "0" * 64})


def other_code(folder: Path) -> None:
    changed_record(folder, "premises", {"the code of stirred": "0" * 64})


def other_version(folder: Path) -> None:
    record = Place(out=folder / "out").hidden / "resume" / "release.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"version": "0.0.1"}))


def other_rate(folder: Path) -> None:
    record = Place(out=folder / "out").hidden / "resume" / "release.json"
    content = json.loads(record.read_text())
    content["plan"] = re.sub(r"rate = .*", 'rate = "1/3"', content["plan"])
    record.write_text(json.dumps(content))


def other_ledger(folder: Path) -> None:
    (folder / "a.ledger").unlink()
    Ledger.create(folder / "a.ledger", dataset="six hundred homes")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edited_file, "households: not as it was at the draw"),
        (other_version, "it was begun with stirred 0.0.1"),
        (other_library, "it was begun with polars 0.0.1, and here is polars .*install polars==0.0.1, and resume"),
        (other_codes, "the records as codes: not as it was at the draw"),
        (other_code, "the code of stirred: not as it was at the draw"),
        (other_rate, "the settings of the mechanism: not as it was at the draw"),
        (other_ledger, "another ledger"),
    ],
)
def test_what_would_make_another_release_is_refused_and_the_draw_stays_kept(
    folder: Path, change: Callable[[Path], None], words: str
) -> None:
    killed(folder, "written")
    key = Place(out=folder / "out").key
    change(folder)
    with pytest.raises(PlanError, match=words):
        resume(folder / "out")
    assert Place(out=folder / "out").key == key
    assert not (folder / "out").exists()


def test_edited_code_of_equal_version_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "edited_mechanism"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "law.py").write_text("RATE = 1\n")
    before = _code_of("edited_mechanism")
    (package / "law.py").write_text("RATE = 2\n")
    _code_of.cache_clear()
    assert _code_of("edited_mechanism") != before


def test_another_run_to_the_place_of_a_kept_draw_is_refused_before_it_reserves(folder: Path) -> None:
    killed(folder, "written")
    done = stirred("release", "plan.toml", cwd=folder)
    assert done.returncode == 2
    assert "stirred release --resume" in done.stderr
    assert entry_of(folder).state == "reserved, drawing"
    assert Place(out=folder / "out").key is not None


def test_recovery_leaves_a_kept_draw_and_says_how_to_finish_it(folder: Path) -> None:
    killed(folder, "verified")
    for dry_run in (True, False):
        (found,) = recover(Ledger.open(folder / "a.ledger"), dry_run=dry_run)
        assert "stirred release --resume" in found.because
        assert found.entry.state == "reserved, drawing"
    assert Place(out=folder / "out").key is not None


def test_giving_a_kept_draw_up_destroys_its_key_and_counts_as_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(folder, "verified")
    monkeypatch.chdir(folder)
    assert command(["ledger", "abort", "a.ledger", "1", "--reason", "the area codes were wrong"]) == 0
    assert entry_of(folder).state == "aborted, spent"
    assert sorted(path.name for path in folder.iterdir()) == ["a.ledger", "homes.parquet", "plan.toml"]
    assert command(["release", "--resume", "out"]) == 2


def test_a_kept_draw_whose_entry_was_given_up_elsewhere_can_still_be_finished(folder: Path) -> None:
    """It is spent either way: the release that was paid for may appear."""
    killed(folder, "written")
    ledger = Ledger.open(folder / "a.ledger")
    ledger.abort(1, reason="settled on another machine")
    resume(folder / "out")
    assert entry_of(folder).status == "committed"


def test_without_a_ledger_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "plan.toml").write_text(PLAN.replace('ledger = "a.ledger"', ""), encoding="utf-8")
    before = listing(folder)
    monkeypatch.setattr("stirred.mechanisms.records.evidence.verify_swap", _interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(prepare(read_plan(folder / "plan.toml")))
    assert not getattr(caught.value, "__notes__", ())
    assert listing(folder) == before
    with pytest.raises(PlanError, match="no unfinished release"):
        resume(folder / "out")


def test_the_key_of_a_release_is_drawn_after_its_draw_is_in_the_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    real = Entropy.from_os

    def drawn() -> Entropy:
        states.append(entry_of(folder).state)
        return real()

    monkeypatch.setattr("stirred.release.rehearsal._excerpt", lambda *_: None)  # it has a key of its own
    monkeypatch.setattr(Entropy, "from_os", staticmethod(drawn))
    run(prepare(read_plan(folder / "plan.toml")))
    assert states == ["reserved, drawing"]


def test_an_entropy_that_made_a_release_is_refused_before_anything_is_reserved(folder: Path) -> None:
    entropy = Entropy.from_os()
    run(prepare(read_plan(folder / "plan.toml")), entropy=entropy)
    (folder / "plan.toml").write_text(PLAN.replace('"out"', '"second"'), encoding="utf-8")
    with pytest.raises(RuntimeError, match="has been used for a release"):
        run(prepare(read_plan(folder / "plan.toml")), entropy=entropy)
    assert entry_of(folder).status == "committed"


def test_of_many_runs_to_one_place_all_but_one_are_refused_before_they_reserve(folder: Path) -> None:
    households(50_000).write_parquet(folder / "homes.parquet")
    runs = [Forked("release", "plan.toml", "--quiet", cwd=folder) for _ in range(4)]
    answers = [(process.communicate(timeout=300)[1], process.returncode) for process in runs]
    assert sorted(code for _, code in answers) == [0, 2, 2, 2], answers
    entries = list(Ledger.open(folder / "a.ledger").entries())
    assert [entry.state for entry in entries] == ["committed"]


def test_a_plan_is_kept_as_it_is(tmp_path: Path) -> None:
    households(60).write_parquet(tmp_path / "homes.parquet")
    content = {
        "data": {"households": "homes.parquet", "id": ["hid"]},
        "mechanism": {
            "match": ["size"],
            "swap": ["county"],
            "rate": Decimal("0.5"),
            "rates": [{"size": 1, "rate": Decimal("0.25")}],
        },
        "release": {"out": "out"},
        "safes": {"people": "vetted", "context": {"sender": "the agency"}},
    }
    prepared = prepare(plan_from(content, source="here", folder=tmp_path))
    kept = RunRecord.of(prepared, ledger={})
    assert RunRecord.read(kept.written, where="").plan_file.model_dump() == prepared.plan_file.model_dump()


def test_the_leftover_of_a_run_that_died_before_its_draw_is_removed_by_the_next(folder: Path) -> None:
    killed(folder, "started")
    recover(Ledger.open(folder / "a.ledger"))
    assert stirred("release", "plan.toml", "--quiet", cwd=folder).returncode == 0
    shutil.rmtree(folder / "out")
    assert sorted(path.name for path in folder.iterdir()) == ["a.ledger", "homes.parquet", "plan.toml"]


# ---- one entry, one release -----------------------------------------------------------------------------


def failing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Let a run fail after its draw for lack of room, and return its place."""

    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("stirred.release.run.write_public", no_room)
        with pytest.raises(OSError, match="no space left"):
            run(prepare(read_plan(folder / "plan.toml")))
    return Place(out=folder / "out")


def key_gone(place: Place) -> None:
    place.destroy_key()


def key_overwritten(place: Place) -> None:
    (place.hidden / "resume" / "key").write_bytes(os.urandom(32))


def key_cut(place: Place) -> None:
    (place.hidden / "resume" / "key").write_bytes(b"abc")


@pytest.mark.parametrize("damage", [key_gone, key_overwritten, key_cut])
def test_no_other_key_ever_finishes_a_release(
    folder: Path, damage: Callable[[Place], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a failed run is empty, and its log gone with it: that a key was made must be known all the same."""
    place = failing(folder, monkeypatch)
    damage(place)
    with pytest.raises(PlanError, match="the key of the draw is gone, and another key would make another release"):
        resume(folder / "out")
    assert not (folder / "out").exists()


def test_a_run_killed_just_after_its_bundle_appeared_is_only_told_to_the_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def dies(self: Place) -> None:
            raise KeyboardInterrupt

        patch.setattr(Place, "give_up", dies)
        patch.setattr(Place, "tidy", lambda self: None)
        with pytest.raises(KeyboardInterrupt):
            run(prepare(read_plan(folder / "plan.toml")))
    assert (folder / "out" / "manifest.json").is_file()
    before = listing(folder / "out")
    assert resume(folder / "out") == folder / "out"
    assert listing(folder / "out") == before
    assert entry_of(folder).status == "committed"
    assert not Place(out=folder / "out").hidden.exists()


def test_a_release_is_not_finished_beside_something_else_at_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(folder, monkeypatch)
    (folder / "out").mkdir()
    with pytest.raises(PlanError, match="something else is at the place"):
        resume(folder / "out")
    (folder / "out").rmdir()
    assert resume(folder / "out") == folder / "out"


def test_what_is_published_is_what_was_reserved_whoever_had_the_doubts(folder: Path) -> None:
    """Doubts of the plan and of the ledger, accepted together, stand in one sentence of the promise."""
    marked = households(600).with_columns(mark=(pl.col("hid") * 7919) % 1_000_003)
    marked.write_parquet(folder / "homes.parquet")
    response = {"name": "response-swap", "respond": "tenure", "values": ["owned", "rented"], "change": "1/4"}
    roles = {"match": ["size"], "swap": ["county"], "rate": "1/2"}
    for out, own, accept in (
        ("one", {**response, "hold": ["tenure"]}, []),
        ("two", {}, ["identifier:mark", "contradicts:1:tenure"]),
    ):
        asked = {
            "data": {"households": "homes.parquet", "id": ["hid"]},
            "mechanism": {**roles, **own},
            "release": {"out": out, "ledger": "a.ledger", "accept": accept},
        }
        run(prepare(plan_from(asked, source="plan", folder=folder)))
    assert [entry.status for entry in Ledger.open(folder / "a.ledger").entries()] == ["committed", "committed"]
    said = json.loads((folder / "two/public/specification.json").read_text(encoding="utf-8"))["assumptions"]
    assert [line for line in said if "accepted" in line] == [
        "a person accepted these doubts about protection by name: contradicts:1:tenure (it publishes tenure exactly, "
        "which entry 1 of the ledger protects), identifier:mark (mark may identify records)"
    ]


def test_resume_tells_scripts_what_a_release_tells_them_of_the_ledger(folder: Path) -> None:
    killed(folder, "written")
    done = stirred("release", "--resume", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"]["entry"] == entry_of(folder).number


def test_the_password_of_a_ledger_is_not_kept_and_is_asked_for_again(folder: Path) -> None:
    address = "postgresql://ana:S3cret@db.example.org/census?sslmode=require&password=S3cret"
    made = prepare(read_plan(folder / "plan.toml"))
    kept = RunRecord.of(replace(made, plan_file=made.plan_file.accounted_in(address)), ledger={"name": "x"})
    assert b"S3cret" not in kept.written
    read = RunRecord.read(kept.written, where="out").plan_file
    assert read.ledger == "postgresql://ana@db.example.org/census?sslmode=require"
    assert read.accounted_in(address).ledger == address
