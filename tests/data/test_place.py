"""The hidden folder of an output is ours alone, no link in it is followed, and an output is complete or absent."""

from __future__ import annotations

import os
import signal
import stat
import sys
import warnings
from pathlib import Path

import pytest

from stirred.data import place as places
from stirred.data.place import Place, appearing, claimed, file_at, folder_at, remove_leftovers, reopened, sweep
from stirred.data.problems import PlanError
from stirred.release.ledger import Ledger
from stirred.release.ledger.recover import recover
from tests.release.forked import Forked, exit_code_of
from tests.release.killed_run import arrange, patched
from tests.world import CODEBOOK_OF_HOMES, PLAN_OF_HOMES, households, listing, stirred


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    folder = tmp_path / "treasure"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work", encoding="utf-8")
    return folder


def planted(out: Path) -> Path:
    hidden = Place(out=out).hidden
    hidden.mkdir(mode=0o700)
    return hidden


def make(out: Path) -> None:
    with folder_at(out) as folder:
        (folder / "file").write_text("made", encoding="utf-8")


@pytest.mark.parametrize("name", ["scratch", "bundle", "resume", "progress", "rehearsal"])
def test_no_link_in_the_hidden_folder_is_followed_or_what_it_leads_to_removed(
    name: str, tmp_path: Path, treasure: Path
) -> None:
    out = tmp_path / "out"
    (planted(out) / name).symlink_to(treasure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remove_leftovers(out)
        (planted(out) / name).symlink_to(treasure)
        make(out)
    assert (treasure / "thesis.tex").read_text(encoding="utf-8") == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "treasure"]


def test_a_planted_scratch_that_is_left_alone_is_told(tmp_path: Path, treasure: Path) -> None:
    (planted(tmp_path / "out") / "scratch").symlink_to(treasure)
    with pytest.warns(UserWarning, match=f"leads to {treasure}, which does not say that it is a folder of ours"):
        make(tmp_path / "out")


def test_a_planted_folder_that_names_the_place_is_left_alone_if_others_may_open_it(
    tmp_path: Path, treasure: Path
) -> None:
    """What marks a scratch folder can be guessed; a run makes such folders for its owner alone."""
    hidden = planted(tmp_path / "out")
    (treasure / ".stirred-scratch").write_text(f"{hidden}\n", encoding="utf-8")
    treasure.chmod(0o755)
    (hidden / "scratch").symlink_to(treasure)
    with pytest.warns(UserWarning, match=f"leads to {treasure}"):
        make(tmp_path / "out")
    assert (treasure / "thesis.tex").read_text(encoding="utf-8") == "years of work"


@pytest.mark.parametrize("name", [".key", "key", ".release.json"])
def test_a_key_is_never_written_through_a_link(name: str, tmp_path: Path, treasure: Path) -> None:
    with claimed(tmp_path / "out") as place:
        place.keep_record(b"{}")
        (place.hidden / "resume" / name).symlink_to(treasure / "thesis.tex")
        place.keep_record(b"{}")
        place.keep_key(b"secret")
        assert place.key == b"secret"
        assert stat.S_IMODE((place.hidden / "resume" / "key").lstat().st_mode) == 0o600
        place.destroy_key()
        place.give_up()
    assert (treasure / "thesis.tex").read_text(encoding="utf-8") == "years of work"


def test_a_key_is_not_read_through_a_link_nor_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"a key that somebody knows")
    with claimed(tmp_path / "out") as place:
        place.keep_record(b"{}")
        (place.hidden / "resume" / "key").symlink_to(tmp_path / "mine")
        assert place.key is None
        os.mkfifo(place.hidden / "resume" / "key.sha256")
        assert not place.was_keyed
        place.give_up()


@pytest.mark.parametrize(
    ("mode", "inside", "what"),
    [
        (0o755, None, "others than its owner may open it"),
        (0o770, None, "others than its owner may open it"),
        (0o700, "photos", "it holds 'photos', which no run makes"),
    ],
)
def test_a_hidden_folder_that_we_did_not_make_is_refused_and_left(
    mode: int, inside: str | None, what: str, tmp_path: Path
) -> None:
    hidden = planted(tmp_path / "out")
    hidden.chmod(mode)
    if inside:
        (hidden / inside).mkdir()
    before = listing(tmp_path)
    with pytest.raises(PlanError, match=f"out.partial is in the way: {what}"):
        make(tmp_path / "out")
    remove_leftovers(tmp_path / "out")
    make(tmp_path / "other")  # sweeps what dead runs left, and this is none of them
    assert {name: is_ for name, is_ in listing(tmp_path).items() if "other" not in name} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_hidden_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(planted(tmp_path / "out"), 12345, -1)
    with pytest.raises(PlanError, match="in the way: another user made it"):
        make(tmp_path / "out")


def test_a_folder_put_in_place_of_ours_while_we_work_gets_no_key(tmp_path: Path) -> None:
    """Who may write beside the bundle can rename our folder and put another one there."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    moved = pytest.warns(UserWarning, match="moved away; confidential records may be in it")
    with moved, claimed(tmp_path / "out") as place:
        place.keep_record(b"{}")
        place.hidden.rename(tmp_path / "aside")
        place.hidden.symlink_to(theirs)
        for keep in (place.keep_record, place.keep_key):
            with pytest.raises(PlanError, match="not in a folder of ours"):
                keep(b"secret")
        place.destroy_key()
        assert place.record is None
        assert not [*theirs.iterdir()]
        with pytest.raises(OSError, match="another folder was put in place of the hidden one"), appearing(place):
            (theirs / "bundle").mkdir()
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "aside" / "resume" / "release.json").read_bytes() == b"{}"


def test_a_python_that_cannot_close_folders_on_windows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_WINDOWS", True)
    monkeypatch.setattr(sys, "version_info", (3, 12, 3))
    with pytest.raises(PlanError, match=r"cannot close a folder to others on Windows.*Python 3\.12\.4"):
        make(tmp_path / "out")
    assert not [*tmp_path.iterdir()]


def test_a_kept_release_in_a_folder_that_others_may_open_is_told_and_not_lost(tmp_path: Path) -> None:
    with claimed(tmp_path / "out") as place:
        place.keep_record(b"{}")
        place.keep_key(b"secret")
        place.hidden.chmod(0o755)
    with (
        pytest.raises(PlanError, match="not as we left it: others than its owner") as refused,
        reopened(tmp_path / "out"),
    ):
        pass
    assert "chmod 700" in refused.value.problems[0].remedy
    assert Place(out=tmp_path / "out").key == b"secret"


# ---- outputs ----------------------------------------------------------------------------------------------


def die_before_it_appears() -> None:
    """Arrange that the process dies when an output is written and has not appeared."""
    patched(places, "sync", before=True)


@pytest.mark.parametrize(
    "command",
    [
        ["codebook", "init", "homes.csv", "--out", "new"],
        ["risk", "homes.csv", "--keys", "county,size", "--records", "new.csv"],
        ["synth", "survey", "--households", "2000", "--seed", "1", "--out", "new"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_is_killed_leaves_no_output_and_does_not_refuse_its_place(
    command: list[str], tmp_path: Path
) -> None:
    households().write_csv(tmp_path / "homes.csv")
    process = Forked(*command, cwd=tmp_path, arrange=die_before_it_appears)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    out = next(tmp_path / part for part in command if part.startswith("new"))
    assert not out.exists()
    done = stirred(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["homes.csv", out.name])
    if command[0] != "synth":  # computed from a confidential file
        assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_disk_that_cannot_close_a_folder_holds_public_outputs_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda path, mode=0o777, **how: (real(path, **how), path.chmod(0o777)))
    with file_at(tmp_path / "public", private=False) as half:
        half.write_text("released", encoding="utf-8")
    with pytest.raises(PlanError, match="others than its owner may open it"), file_at(tmp_path / "own", private=True):
        pass
    with folder_at(tmp_path / "folder", private=False) as folder:
        (folder / "file").write_text("released", encoding="utf-8")
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777


@pytest.mark.parametrize("private", [True, False])
def test_a_file_appears_complete_with_its_permissions_or_not_at_all(tmp_path: Path, private: bool) -> None:
    with pytest.raises(UnicodeEncodeError), file_at(tmp_path / "out.txt", private=private) as half:
        half.write_text("half\ud800", encoding="utf-8")
    assert not [*tmp_path.iterdir()]
    with file_at(tmp_path / "out.txt", private=private) as half:
        half.write_text("whole", encoding="utf-8")
        assert not (tmp_path / "out.txt").exists()
    assert [*tmp_path.iterdir()] == [tmp_path / "out.txt"]
    mask = os.umask(0o022)
    os.umask(mask)
    mode = 0o600 if private else 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == mode
    with pytest.raises(PlanError, match="something is already there"), file_at(tmp_path / "out.txt", private=True):
        pass
    with file_at(tmp_path / "out.txt", private=True, replace=True) as half:
        half.write_text("another", encoding="utf-8")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "another"


def test_a_file_is_not_written_over_another_where_the_system_cannot_refuse_to_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_NO_REPLACE", 1 << 20)  # a flag no kernel knows: EINVAL
    with pytest.raises(PlanError, match="appeared there meanwhile"), file_at(tmp_path / "out", private=True):
        (tmp_path / "out").write_text("theirs", encoding="utf-8")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "theirs"
    (tmp_path / "out").unlink()
    with file_at(tmp_path / "out", private=True) as half:
        half.write_text("ours", encoding="utf-8")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "ours"


# ---- what the dead leave ----------------------------------------------------------------------------------


def test_what_a_run_left_that_never_reserved_is_removed_by_recovery_and_by_the_next_run_beside_it(
    tmp_path: Path,
) -> None:
    households().write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "book.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="sixty homes")
    for name in ("dead", "out"):
        plan = f'{PLAN_OF_HOMES}ledger = "a.ledger"\n'.replace('out = "out"', f'out = "{name}"')
        (tmp_path / f"{name}.toml").write_text(plan, encoding="utf-8")

    killed = exit_code_of(arrange, "before reserve", "release", "dead.toml", "--quiet", cwd=tmp_path)
    assert killed == -signal.SIGKILL
    assert (Place(out=tmp_path / "dead").hidden / "bundle").is_dir()
    recover(ledger)
    assert not Place(out=tmp_path / "dead").hidden.exists()
    (planted(tmp_path / "dead") / "bundle").mkdir()
    assert stirred("release", "out.toml", "--quiet", cwd=tmp_path).returncode == 0
    assert not Place(out=tmp_path / "dead").hidden.exists()


def test_a_run_at_work_and_a_drawn_release_are_not_swept(tmp_path: Path) -> None:
    with claimed(tmp_path / "at work") as place, claimed(tmp_path / "drawn") as drawn:
        drawn.keep_record(b"{}")
        drawn.keep_key(b"secret")
        sweep(tmp_path)
        assert place.folder.is_dir()
        assert drawn.key == b"secret"
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".drawn.partial"]
    Place(out=tmp_path / "drawn").give_up()


def test_nothing_confidential_has_a_name_in_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame as its readers get it is compared with confidential rows; a killed process left it there."""
    from stirred.data import csv_text, frames

    seen: list[list[str]] = []
    read = csv_text.read_csv
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def looking(source: object) -> object:
        seen.append(os.listdir(tmp_path))
        return read(source)  # type: ignore[arg-type]

    monkeypatch.setattr(frames, "read_csv", looking)
    assert frames.as_read(households(), "csv")["hid"].to_list() == households()["hid"].cast(str).to_list()
    assert seen == [[]]
