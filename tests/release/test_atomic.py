"""A bundle is complete or absent: killed at any moment, interrupted, or raced for the same place."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.problems import PlanError
from stirred.release.bundle import write_manifest
from tests.release.forked import Forked
from tests.world import (
    SWAP,
    assert_complete,
    bundle_at,
    files_in,
    households,
    listing,
    stirred,
)

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


def kill(process: Forked) -> None:
    """Kill the process and whatever it started, at once and without a chance to tidy up."""
    with suppress(ProcessLookupError):  # it was done before this process was given the time
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_partial(process: Forked, folder: Path, *, timeout: float = 300) -> None:
    """Wait until the process has begun to write."""
    end = time.monotonic() + timeout
    while not leftovers(folder) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_at_any_moment_a_bundle_is_complete_or_absent(folder: Path) -> None:
    """Ten kills at random moments, most of them while the bundle is being written.

    The next run removes what a killed one left behind, so leftovers never pile up.
    """
    began = time.monotonic()
    assert Forked(*COMMAND, "--quiet", cwd=folder).wait() == 0
    whole = time.monotonic() - began
    rng = np.random.default_rng(7)
    finished = killed_while_writing = 0
    for number in range(KILLS):
        if (folder / "out").exists():
            (folder / "out").rename(folder.parent / f"{folder.name} done {number}")
        process = Forked(*COMMAND, "--quiet", cwd=folder)
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
    both = [Forked(*COMMAND, "--quiet", cwd=folder) for _ in range(2)]
    answers = [(process.communicate(timeout=300), process.returncode) for process in both]
    assert sorted(code for _, code in answers) == [0, 2]
    ((_, refused),) = [texts for texts, code in answers if code == 2]
    assert "Fix: choose a new folder" in refused
    assert leftovers(folder) == []
    assert_complete(folder / "out", households(HOUSEHOLDS))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted_terminated_or_hung_up_while_writing_it_cleans_up_and_leaves_with_the_code(
    folder: Path, number: signal.Signals, code: int
) -> None:
    before = listing(folder)
    for _ in range(5):
        process = Forked(*COMMAND, "--quiet", cwd=folder)
        wait_for_partial(process, folder)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
        if process.returncode:
            break
        shutil.rmtree(folder / "out")  # it was done before this process was given the time to send a signal
    assert process.returncode == code, err
    assert out == ""
    assert "Traceback" not in err
    assert "Interrupted" in err
    assert listing(folder) == before


IN_EXEC = """
import os, signal, sys
from stirred.cli.main import clean_up_on_signals, interrupted_by
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
clean_up_on_signals()
try:
    exec("import os, signal\\nos.kill(os.getpid(), {number})\\nfor _ in range(10**7): pass")
except KeyboardInterrupt:
    sys.exit(128 + interrupted_by())
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_code_is_that_of_the_signal_also_where_it_comes_while_a_class_is_made(
    number: signal.Signals, code: int
) -> None:
    script = IN_EXEC.format(number=int(number))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == code


IN_CALLBACK = """
import os, signal, sys
import stirred.cli.main as cli
from pydantic import BaseModel, field_serializer

class Kept(BaseModel):
    rate: int = 1

    @field_serializer("rate")
    def _interrupted(self, value):
        os.kill(os.getpid(), {number})
        for _ in range(10**7): pass

cli.clean_up_on_signals()
cli.app = lambda **given: Kept().model_dump_json()
sys.exit(cli.run([]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_that_a_library_wraps_is_an_interruption_all_the_same(
    number: signal.Signals, code: int
) -> None:
    script = IN_CALLBACK.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "Interrupted.\n")


def test_a_terminal_that_closes_does_not_stop_what_runs_under_nohup(folder: Path) -> None:
    ignored = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = Forked(*COMMAND, "--quiet", cwd=folder, arrange=ignored)
    wait_for_partial(process, folder)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=300) == 0
    assert_complete(folder / "out", households(HOUSEHOLDS))


MEMORY = """
import ctypes, json, resource, sys
from stirred.cli.main import protect_memory
protect_memory()
get_dumpable = 3  # of prctl(2)
dumpable = ctypes.CDLL(None).prctl(get_dumpable, 0, 0, 0, 0) if sys.platform == "linux" else None
print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), dumpable]))
"""


def test_no_command_leaves_its_memory_on_the_disk(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    limit, dumpable = json.loads(done.stdout)
    assert limit == [0, 0]
    assert dumpable == (0 if sys.platform == "linux" else None)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_running_command_may_not_dump_its_memory(folder: Path) -> None:
    process = Forked(*COMMAND, "--quiet", cwd=folder)
    wait_for_partial(process, folder)
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    kill(process)
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]


ARENAS = """
import ctypes, sys, threading
from stirred.cli.main import share_memory
if "shared" in sys.argv:
    share_memory()
together = threading.Barrier(4)
threads = [threading.Thread(target=lambda: (together.wait(), bytearray(100_000), together.wait())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc keeps memory for threads apart")
def test_threads_of_a_command_give_memory_back_to_all() -> None:
    def arenas(*how: str) -> int:
        done = subprocess.run([sys.executable, "-c", ARENAS, *how], capture_output=True, text=True, check=True)
        return done.stderr.count("Arena ")

    assert arenas("shared") == 1
    assert arenas() > 1  # the C library alone: otherwise this test would show nothing


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
from stirred.data import place as places
from stirred.release import bundle
from stirred.release.bundle import write_manifest
from stirred.data.place import claimed

{write}

def die(*_):
    os._exit(9)

setattr({where}, {name!r}, die)
with claimed(Path(sys.argv[1])) as place, bundle.bundle_in(place) as folder:
    write(folder, "confidential")
    {inside}
"""


def killed_program(*, where: str, name: str, inside: str) -> str:
    """A program that needs none of the heavy libraries and so starts in a moment."""
    return KILLED.format(write=inspect.getsource(write), where=where, name=name, inside=inside)


@pytest.mark.parametrize(
    ("place", "where", "name", "inside"),
    [
        ("out", "bundle", "nothing", "die()"),
        ("release [1]", "bundle", "nothing", "die()"),
        ("a*b? 2020", "bundle", "nothing", "die()"),
        ("out", "bundle", "_check_complete", ""),
        ("out", "places", "_sync", ""),
        ("out", "places", "move_new", ""),
    ],
    ids=["writing", "writing to release [1]", "writing to a*b?", "while checking", "while syncing", "at the move"],
)
def test_what_a_killed_run_left_is_removed_by_the_next_wherever_it_was_killed(
    place: str, where: str, name: str, inside: str, tmp_path: Path
) -> None:
    """What is left holds accuracy against the truth, so it must not stay."""
    program = killed_program(where=where, name=name, inside=inside or "pass")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / place)], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    assert not (tmp_path / place).exists()
    with bundle_at(tmp_path / place) as folder:
        write(folder, "whole")
    assert [path.name for path in tmp_path.iterdir()] == [place]


def test_the_place_of_a_living_run_is_refused_and_its_folder_left_alone(tmp_path: Path) -> None:
    inside = "print('writing', flush=True); sys.stdin.read()"
    program = killed_program(where="bundle", name="nothing", inside=inside)
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
        before = listing(tmp_path)
        with pytest.raises(PlanError, match="another run is writing to this place"):
            write_and_fail(tmp_path / "out")
        assert listing(tmp_path) == before
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
    from stirred.release.plan_file import plan_from
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
    prepared = prepare(plan_from(plan, source="plan", folder=tmp_path))
    with pytest.raises(RuntimeError, match="no paper"):
        run(prepared, entropy=Entropy.from_os())
    assert listing(tmp_path) == before


def test_the_input_is_never_touched(folder: Path) -> None:
    before = pl.read_parquet(folder / "homes.parquet")
    assert stirred(*COMMAND, "--quiet", cwd=folder).returncode == 0
    assert pl.read_parquet(folder / "homes.parquet").equals(before)
