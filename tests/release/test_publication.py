"""A publication and its rows: a "published" row means that it appeared, and what died is told from what it left."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run as command
from stirred.data import place as place_module
from stirred.data.place import folder_at
from stirred.data.problems import PlanError
from stirred.data.record_doubts import identifier_doubt
from stirred.release import publish as module
from stirred.release import scan
from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger.problems import StorageError, bad_storage
from stirred.release.ledger.recover import recover
from stirred.release.publish import PublishError, publish
from stirred.spec.document import from_json
from tests.release.forked import exit_code_of
from tests.release.killed_publish import POINTS, arrange
from tests.world import PLAN_OF_HOMES, files_in, listing, released, world

Out = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with a ledger."""
    plan = f'{PLAN_OF_HOMES}ledger = "a.ledger"\n'
    folder = world(tmp_path_factory.mktemp("made"), plan=plan, ledger="sixty homes")
    released(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle ``out`` and its ledger, in a place of their own."""
    shutil.copytree(made, tmp_path / "w")
    manifest = tmp_path / "w" / "out" / "manifest.json"
    assert str(made / "a.ledger") in manifest.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def published(folder: Path, place: str = "site", **more: Any) -> Any:
    return publish(folder / "out", folder / place, ledger=str(folder / "a.ledger"), **more)


def history(folder: Path) -> list[str]:
    return [event.what for event in Ledger.open(folder / "a.ledger").entry(1).history][3:]


def partials(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".partial")]


def test_a_publication_is_announced_before_it_appears_and_recorded_when_it_is_there(folder: Path) -> None:
    published(folder)
    assert history(folder) == ["copying begun to site", "published to site"]
    began, done = Ledger.open(folder / "a.ledger").entry(1).history[3:]
    assert (began.place, done.began) == (str(folder / "site"), began.number)
    assert Ledger.open(folder / "a.ledger").verify().is_sound


def test_the_ledger_keeps_the_names_that_whoever_published_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(
            scan,
            "_to_accept",
            lambda *_: iter([identifier_doubt(pl.Series("tenure", [], dtype=pl.String), "looks like one")]),
        )
        with pytest.raises(PublishError, match=r'accept=\["identifier:tenure"\]') as caught:
            published(folder)
        assert "--accept identifier:tenure" in caught.value.problems[0].remedy  # what the command line shows
        patched.setattr(Ledger, "publish", dies)  # between both rows
        with pytest.raises(KeyboardInterrupt):
            published(folder, accept=["identifier:tenure"])
    recover(Ledger.open(folder / "a.ledger"))
    rows = Ledger.open(folder / "a.ledger").entry(1).history[3:]
    assert [event.accepted for event in rows] == [("identifier:tenure",)] * 2
    capsys.readouterr()
    assert command(["ledger", "show", str(folder / "a.ledger"), "1"]) == 0
    words = " ".join(capsys.readouterr().out.split())  # lines are as long as the screen of whoever runs this is wide
    assert words.count("who accepted identifier:tenure") == 2
    assert command(["ledger", "show", str(folder / "a.ledger"), "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["history"][-1]["accepted"] == ["identifier:tenure"]


def test_one_reading_of_the_manifest_is_scanned_and_compared_with_the_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_changed(bundle: Path) -> Any:
        audit = audit_bundle(bundle)
        (bundle / "manifest.json").write_text('{"another": "manifest"}', encoding="utf-8")
        return audit

    monkeypatch.setattr(scan, "audit_bundle", then_changed)
    assert "with this manifest" in published(folder).checks[-1]


def test_nobody_can_read_the_copy_before_all_of_it_is_announced_and_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def noted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def noting(*args: Any, **more: Any) -> Any:
            scratch = next(folder.glob(".site.partial"), None)
            others = scratch and any(p.stat().st_mode & 0o077 for p in (scratch, *scratch.rglob("*")))
            steps.append(f"{name}{' open' if others else ''}")
            return real(*args, **more)

        monkeypatch.setattr(owner, name, noting)

    old = os.umask(0)
    try:
        noted(Ledger, "begin_publication")
        noted(module, "_copy")
        noted(place_module, "_sync")
        noted(module, "_let_everybody_read")
        noted(place_module, "move_new")
        noted(Ledger, "publish")
        published(folder)
    finally:
        os.umask(old)
    assert steps == [
        *("_copy", "begin_publication", "_sync", "_let_everybody_read"),
        *("_sync open", "move_new open", "publish"),
    ]
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder / "site").rglob("*") if p.is_file()} == {0o644}


def test_a_ledger_that_refuses_the_announcement_lets_nothing_appear(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise bad_storage("the database is gone", where="ledger", remedy="wait")

    monkeypatch.setattr(Ledger, "begin_publication", refuses)
    before = listing(folder)
    with pytest.raises(StorageError, match="the database is gone"):
        published(folder)
    assert listing(folder) == before


def test_a_ledger_lost_after_the_move_is_told_by_recover(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            Ledger, "publish", lambda *_, **__: (_ for _ in ()).throw(bad_storage("gone", where="l", remedy="w"))
        )
        with pytest.raises(StorageError, match=r"the files are published, but the ledger could not be told \(gone\)"):
            published(folder)
    assert (folder / "site" / "CHECKSUMS.sha256").exists()
    assert history(folder) == ["copying begun to site"]
    (done,) = recover(Ledger.open(folder / "a.ledger"))
    assert done.because == f"its files are at {folder / 'site'}: published"
    assert history(folder) == ["copying begun to site", "published to site"]
    assert recover(Ledger.open(folder / "a.ledger")) == []


@pytest.mark.parametrize(
    ("step", "told"), [("_copied", []), ("_let_everybody_read", ["copying begun to site", "not published to site"])]
)
def test_a_publication_that_fails_after_it_was_announced_is_recorded_as_not_published(
    step: str, told: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(module, step, full)
    with pytest.raises(OSError, match="no space"):
        published(folder)
    assert history(folder) == told
    assert not Ledger.open(folder / "a.ledger").entry(1).publications


def test_an_interruption_just_after_the_move_is_a_publication(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> None:
        if path == folder:
            raise KeyboardInterrupt

    monkeypatch.setattr(place_module, "sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        published(folder)
    assert history(folder) == ["copying begun to site", "published to site"]


@pytest.mark.parametrize("point", POINTS)
def test_what_a_killed_publication_left_is_told_and_swept_by_recover(folder: Path, point: str, capsys: Out) -> None:
    command_line = ["publish", "out", "site", "--ledger", "a.ledger"]
    assert exit_code_of(arrange, point, *command_line, cwd=folder) == -signal.SIGKILL
    appeared = point in ("moved", "published")
    assert (folder / "site").exists() == appeared
    assert bool(partials(folder)) == (not appeared)
    assert command(["ledger", "recover", "a.ledger"]) == 0
    said = capsys.readouterr().out
    assert command(["ledger", "show", "a.ledger", "1"]) == 0
    shown = capsys.readouterr().out
    told = point not in ("copied", "not begun")
    assert ("published to site" in shown) == told
    if not told:
        assert said == "no reservation is open, and no publication\n"
        assert partials(folder) == []  # beside the ledger, and so swept
        published(folder)
    elif appeared:
        assert history(folder) == ["copying begun to site", "published to site"]
    else:
        assert f"its files are not at {folder / 'site'}: not published" in " ".join(said.split())
        assert history(folder) == ["copying begun to site", "not published to site"]
        assert partials(folder) == []
        published(folder)
    assert partials(folder) == []
    assert set(files_in(folder / "site")) == {*files_in(folder / "out" / "public"), "CHECKSUMS.sha256"}
    assert Ledger.open(folder / "a.ledger").verify().is_sound


def test_recover_leaves_a_publication_alone_whose_process_lives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    begin, real = Ledger.begin_publication, Ledger.publish

    def looked(self: Ledger, *args: Any, **more: Any) -> Any:
        begun = begin(self, *args, **more)
        said.extend(done.because for done in recover(Ledger.open(folder / "a.ledger")))
        return begun

    def late(self: Ledger, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(Ledger, "publish", real)
        said.extend(done.because for done in recover(Ledger.open(folder / "a.ledger")))
        return real(self, *args, **more)

    monkeypatch.setattr(Ledger, "begin_publication", looked)
    monkeypatch.setattr(Ledger, "publish", late)
    published(folder)
    assert said == [
        "it is being published to site now: left alone",
        f"its files are at {folder / 'site'}: published",  # they are, and the row is written once
    ]
    assert history(folder) == ["copying begun to site", "published to site"]


def test_another_folder_at_the_place_is_not_taken_for_the_publication(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(folder / "a.ledger")
    ledger.begin_publication(1, to="site", place=folder / "site", files="0" * 64)
    (folder / "site").mkdir()
    (folder / "site" / "CHECKSUMS.sha256").write_text("another publication\n")
    (planned,) = recover(ledger, dry_run=True)
    assert history(folder) == ["copying begun to site"]
    (done,) = recover(ledger)
    assert planned.because == done.because
    assert history(folder)[-1] == "not published to site"


def test_a_place_out_of_sight_is_left_open(folder: Path) -> None:
    ledger = Ledger.open(folder / "a.ledger")
    ledger.begin_publication(1, to="site", place=folder / "elsewhere" / "site", files="0" * 64)
    (done,) = recover(ledger)
    assert "cannot be seen from here" in done.because
    assert len(ledger.entry(1).open_publications) == 1


def test_a_publication_is_ended_once_and_by_its_own_entry(folder: Path) -> None:
    ledger = Ledger.open(folder / "a.ledger")
    began = ledger.begin_publication(1, to="site", place=folder / "site", files="0" * 64)
    ledger.withdraw(1, reason="an error")
    ledger.publish(1, to="site", began=began.number)  # it appeared before it was withdrawn: that is a fact
    for end in (
        lambda: ledger.publish(1, to="site", began=began.number),
        lambda: ledger.give_up_publication(1, began, reason="r"),
        lambda: ledger.publish(1, to="site", began=2),
    ):
        with pytest.raises(LedgerError, match="began no publication of this entry that is still open"):
            end()
    with pytest.raises(LedgerError, match="withdrawn cannot be published"):
        ledger.begin_publication(1, to="site", place=folder / "site", files="0" * 64)
    assert ledger.verify().is_sound


# ---- the move --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("what", ["an empty folder", "a folder", "a file", "a link to nowhere"])
def test_what_appears_at_the_place_meanwhile_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, known: bool
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.EINVAL, "the file system does not know the flag")

    if not known:
        monkeypatch.setattr(place_module, "_rename_new", unknown)
    out = tmp_path / "out"

    def come() -> None:
        if what == "a file":
            out.write_text("mine")
        elif what == "a link to nowhere":
            out.symlink_to(tmp_path / "nowhere")
        else:
            out.mkdir(mode=0o711)
            if what == "a folder":
                (out / "mine").write_text("mine")

    def make() -> None:
        with folder_at(out) as partial:
            (partial / "file").write_text("ours")
            come()

    with pytest.raises(PlanError, match="something appeared there meanwhile"):
        make()
    assert not (out / "file").exists()
    assert partials(tmp_path) == []
    if "folder" in what:
        assert stat.S_IMODE(out.stat().st_mode) == 0o711


@pytest.mark.parametrize("known", [True, False])
def test_a_folder_gets_its_place_whether_or_not_the_system_can_refuse_to_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if not known:
        monkeypatch.setattr(place_module, "_NO_REPLACE", 1 << 20)  # a flag no kernel knows: EINVAL
    with folder_at(tmp_path / "out") as partial:
        (partial / "file").write_text("ours")
    assert (tmp_path / "out" / "file").read_text() == "ours"
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_empty_folder_that_appears_while_publishing_keeps_it_from_being_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._let_everybody_read

    def meanwhile(scratch: Path) -> None:
        real(scratch)
        (folder / "site").mkdir()

    monkeypatch.setattr(module, "_let_everybody_read", meanwhile)
    with pytest.raises(PlanError, match="something appeared there meanwhile"):
        published(folder)
    assert list((folder / "site").iterdir()) == []
    assert history(folder) == ["copying begun to site", "not published to site"]


def test_the_manifest_is_for_its_owner_alone_and_publish_looks(folder: Path) -> None:
    manifest = folder / "out" / "manifest.json"
    assert stat.S_IMODE(manifest.stat().st_mode) == 0o600
    manifest.chmod(0o644)
    with pytest.raises(PublishError, match=r"others than its owner may use manifest\.json"):
        published(folder)


# ---- a ledger is required --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unaccounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without a ledger."""
    return released(world(tmp_path_factory.mktemp("unaccounted"), plan=PLAN_OF_HOMES))


def test_a_release_without_a_ledger_is_refused_where_one_is_required(
    unaccounted: Path, folder: Path, capsys: Out
) -> None:
    assert command(["publish", str(unaccounted), "site", "--require-ledger"]) == 2
    assert "--require-ledger: the release was made without a ledger, and one is required" in capsys.readouterr().err
    assert not (folder / "site").exists()
    published(folder, require_ledger=True)


@pytest.mark.parametrize("above", ["", "deeper"])
def test_the_keeper_of_a_place_requires_a_ledger_by_a_file(unaccounted: Path, folder: Path, above: str) -> None:
    (folder / ".stirred-publish.toml").write_text("require_ledger = true\n")
    place = folder / above / "site"
    place.parent.mkdir(exist_ok=True)
    with pytest.raises(PublishError, match=r"\.stirred-publish\.toml: the release was made without a ledger"):
        publish(unaccounted, place)
    assert publish(folder / "out", place, ledger=str(folder / "a.ledger")).place.exists()


def test_the_keeper_of_a_place_names_the_ledgers_that_count(folder: Path) -> None:
    """Otherwise a ledger made for the occasion would do."""
    rules = folder / ".stirred-publish.toml"
    rules.write_text('ledgers = ["another"]\n')
    with pytest.raises(PublishError, match="which is not one that counts here"):
        published(folder)
    rules.write_text(f'ledgers = ["{Ledger.open(folder / "a.ledger").id}"]\n')
    published(folder)


@pytest.mark.parametrize("text", ["require_ledger = 1", "required = true", "source = 'x'", "=", "require_ledger ="])
def test_rules_that_cannot_be_read_refuse(unaccounted: Path, folder: Path, text: str) -> None:
    (folder / ".stirred-publish.toml").write_text(text)
    with pytest.raises(PublishError, match="the rules of this place cannot be read"):
        publish(unaccounted, folder / "site")


# ---- the entry in the public specification ---------------------------------------------------------


def test_the_public_specification_names_the_ledger_and_the_entry(folder: Path, unaccounted: Path) -> None:
    published(folder)
    ledger = Ledger.open(folder / "a.ledger")
    text = (folder / "site" / "specification.json").read_text(encoding="utf-8")
    assert json.loads(text)["account"] == {"ledger": ledger.id, "entry": 1}
    assert from_json(text) == ledger.entry(1).specification
    page = (folder / "site" / "specification.md").read_text(encoding="utf-8")
    assert f"accounted for as entry 1 of the ledger `{ledger.id}`" in page
    assert audit_bundle(folder / "site").passed
    assert "account" not in json.loads((unaccounted / "public" / "specification.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("change", [{"entry": 7}, {"ledger": "another"}])
def test_a_specification_that_names_another_entry_is_refused(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "out" / "public" / "specification.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["account"] |= change
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PublishError, match=r"specification\.json names another entry than that of the manifest"):
        published(folder)


def test_a_specification_that_names_a_ledger_is_refused_if_there_was_none(unaccounted: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(unaccounted, tmp_path / "out"))
    path = out / "public" / "specification.json"
    content = json.loads(path.read_text(encoding="utf-8")) | {"account": {"ledger": "x", "entry": 1}}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PublishError, match=r"specification\.json names a ledger, and the manifest none"):
        publish(out, tmp_path / "site")
