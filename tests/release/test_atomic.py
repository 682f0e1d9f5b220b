"""A bundle is complete or absent: killed at any moment, interrupted, or raced for the same place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.problems import PlanError
from stirred.release.bundle import bundle_at, write_manifest
from tests.release.bundles import SWAP, assert_complete, files_in, households, listing, start, stirred

ROOT = Path(__file__).parents[2]
KILLS = 10
HOUSEHOLDS = 100_000
COMMAND = ["swap", "homes.parquet", *SWAP, "--id", "hid", "--table", "county x tenure", "--out", "out"]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "homes.parquet"
    households(HOUSEHOLDS).write_parquet(path)
    return path


@pytest.fixture
def folder(homes: Path, tmp_path: Path) -> Path:
    os.link(homes, tmp_path / "homes.parquet")
    return tmp_path


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name not in ("homes.parquet", "out")]


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and whatever it started, at once and without a chance to tidy up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_partial(process: subprocess.Popen[str], folder: Path, *, timeout: float = 60) -> None:
    """Wait until the process has begun to write."""
    end = time.monotonic() + timeout
    while not leftovers(folder) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


def test_killed_at_any_moment_a_bundle_is_complete_or_absent(folder: Path) -> None:
    """Ten kills at random moments, most of them while the bundle is being written.

    The next run removes what a killed one left behind, so leftovers never pile up.
    """
    began = time.monotonic()
    assert stirred(*COMMAND, "--quiet", cwd=folder).returncode == 0
    whole = time.monotonic() - began
    rng = np.random.default_rng(7)
    finished = killed_while_writing = 0
    for number in range(KILLS):
        if (folder / "out").exists():
            (folder / "out").rename(folder.parent / f"{folder.name} done {number}")
        process = start(*COMMAND, "--quiet", cwd=folder)
        if number % 5:  # four of five while writing, the others anywhere from the start
            wait_for_partial(process, folder)
            time.sleep(rng.uniform(0, whole / 2))
        else:
            time.sleep(rng.uniform(0, whole))
        kill(process)
        assert len(leftovers(folder)) <= 1, "leftovers of killed runs pile up"
        killed_while_writing += bool(leftovers(folder))
        if (folder / "out").exists():
            finished += 1
            assert_complete(folder / "out", households(HOUSEHOLDS))
    assert killed_while_writing >= 3, "the kills came too early or too late to prove anything"
    if (folder / "out").exists():
        (folder / "out").rename(folder.parent / f"{folder.name} last")
    assert stirred(*COMMAND, "--quiet", cwd=folder).returncode == 0
    assert leftovers(folder) == []
    assert_complete(folder / "out", households(HOUSEHOLDS))


def test_two_runs_to_one_place_end_with_one_complete_bundle_and_one_refusal(folder: Path) -> None:
    both = [start(*COMMAND, "--quiet", cwd=folder) for _ in range(2)]
    answers = [(process.communicate(timeout=120), process.returncode) for process in both]
    assert sorted(code for _, code in answers) == [0, 2]
    ((_, refused),) = [texts for texts, code in answers if code == 2]
    assert "Mend: choose a new folder" in refused
    assert leftovers(folder) == []
    assert_complete(folder / "out", households(HOUSEHOLDS))


def test_interrupted_while_writing_it_leaves_with_130_and_no_bundle(folder: Path) -> None:
    before = listing(folder)
    process = start(*COMMAND, "--quiet", cwd=folder)
    wait_for_partial(process, folder)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "Interrupted" in err
    assert listing(folder) == before


def test_terminated_while_writing_it_leaves_no_bundle(folder: Path) -> None:
    process = start(*COMMAND, "--quiet", cwd=folder)
    wait_for_partial(process, folder)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not (folder / "out").exists()


# ---- the place itself -----------------------------------------------------------------------------


def write(folder: Path, text: str) -> None:
    """Write a bundle of one file."""
    (folder / "public").mkdir()
    (folder / "internal").mkdir()
    (folder / "public" / "file").write_text(text)
    write_manifest(folder, {})


def write_and_fail(place: Path) -> None:
    with bundle_at(place) as folder:
        write(folder, "half")
        raise RuntimeError("half-way")


def write_while_somebody_takes(place: Path) -> None:
    with bundle_at(place) as folder:
        write(folder, "ours")
        place.mkdir()
        (place / "file").write_text("theirs")


def write_and_lose_a_file(place: Path) -> None:
    with bundle_at(place) as folder:
        write(folder, "ours")
        (folder / "public" / "file").unlink()


def test_a_failure_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="half-way"):
        write_and_fail(tmp_path / "out")
    assert listing(tmp_path) == {}


def test_a_bundle_without_a_file_of_its_manifest_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="files of the bundle changed"):
        write_and_lose_a_file(tmp_path / "out")
    assert listing(tmp_path) == {}


def test_nothing_is_visible_before_the_end_and_everything_after(tmp_path: Path) -> None:
    with bundle_at(tmp_path / "out") as folder:
        write(folder, "whole")
        assert not (tmp_path / "out").exists()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert files_in(tmp_path / "out") == {"public/file", "manifest.json"}


def test_a_place_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="something appeared there meanwhile"):
        write_while_somebody_takes(tmp_path / "out")
    assert listing(tmp_path).keys() == {"out", "out/file"}
    assert (tmp_path / "out" / "file").read_text() == "theirs"


KILLED = """
import os, sys
from pathlib import Path
from stirred.release import bundle
from tests.release.test_atomic import write

def die(*_):
    os._exit(9)

setattr({where}, {name!r}, die)
with bundle.bundle_at(Path(sys.argv[1])) as folder:
    write(folder, "confidential")
    {inside}
"""


@pytest.mark.parametrize(
    ("place", "where", "name", "inside"),
    [
        ("out", "bundle", "nothing", "die()"),
        ("release [1]", "bundle", "nothing", "die()"),
        ("a*b? 2020", "bundle", "nothing", "die()"),
        ("out", "bundle", "_check_complete", ""),
        ("out", "bundle", "_sync", ""),
        ("out", "bundle.os", "rename", ""),
    ],
    ids=["writing", "writing to release [1]", "writing to a*b?", "while checking", "while syncing", "at the move"],
)
def test_what_a_killed_run_left_is_removed_by_the_next_wherever_it_was_killed(
    place: str, where: str, name: str, inside: str, tmp_path: Path
) -> None:
    """What is left holds accuracy against the truth, so it must not stay."""
    program = KILLED.format(where=where, name=name, inside=inside or "pass")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / place)], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    assert not (tmp_path / place).exists()
    with bundle_at(tmp_path / place) as folder:
        write(folder, "whole")
    assert [path.name for path in tmp_path.iterdir()] == [place]


def test_the_folder_of_a_living_run_to_the_same_place_is_left_alone(tmp_path: Path) -> None:
    program = KILLED.format(where="bundle", name="nothing", inside="print('writing', flush=True); sys.stdin.read()")
    living = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert living.stdout is not None
        assert living.stdout.readline() == "writing\n"
        (theirs,) = tmp_path.iterdir()
        with bundle_at(tmp_path / "out") as folder:
            write(folder, "ours")
        assert theirs.exists()
    finally:
        living.kill()
        living.communicate()


@pytest.mark.parametrize("change", ["more", "less", "other"])
def test_files_that_change_after_the_manifest_never_appear(tmp_path: Path, change: str) -> None:
    def spoil() -> None:
        with bundle_at(tmp_path / "out") as folder:
            write(folder, "ours")
            found = next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json")
            if change == "more":
                (folder / "another").write_text("x")
            elif change == "less":
                found.unlink()
            else:
                text = found.read_bytes()
                found.write_bytes(bytes([text[0] ^ 1]) + text[1:])

    with pytest.raises(OSError, match="changed while it was written"):
        spoil()
    assert not list(tmp_path.iterdir())


def test_other_places_beside_it_are_left_alone(tmp_path: Path) -> None:
    others = {".output.partial-999999", "out.partial-999999", ".out", ".out.part"}
    for name in others:
        (tmp_path / name).mkdir()
    with bundle_at(tmp_path / "out") as folder:
        write(folder, "ours")
    assert {path.name for path in tmp_path.iterdir()} == others | {"out"}


def test_a_failure_of_the_last_step_destroys_the_bundle_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stirred.release import reports
    from stirred.release.plan_file import planned
    from stirred.release.prepared import prepare
    from stirred.release.run import run

    households().write_parquet(tmp_path / "homes.parquet")
    before = listing(tmp_path)
    plan = {
        "data": {"households": "homes.parquet", "hid": "hid"},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "out"},
    }

    def fail(*_: object) -> str:
        raise RuntimeError("no paper")

    monkeypatch.setattr(reports, "internal_report", fail)
    prepared = prepare(planned(plan, source="plan", folder=tmp_path))
    with pytest.raises(RuntimeError, match="no paper"):
        run(prepared, entropy=Entropy.from_os())
    assert listing(tmp_path) == before


def test_the_input_is_never_touched(folder: Path) -> None:
    before = pl.read_parquet(folder / "homes.parquet")
    assert stirred(*COMMAND, "--quiet", cwd=folder).returncode == 0
    assert pl.read_parquet(folder / "homes.parquet").equals(before)
