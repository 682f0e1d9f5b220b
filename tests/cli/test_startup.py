"""Start-up: the first release after set-up does not wait for a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stirred.cli.main import run
from tests.world import SWAP, households, persons

ROOT = Path(__file__).parents[2]


def test_set_up_compiles_the_kernels() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-m tests.mechanisms.records.kernels.compile_kernels" in makefile
    set_up = makefile.split("$(STAMP):")[1].split("\n\n")[0]
    assert "kernels" in set_up


@pytest.mark.slow
def test_a_release_compiles_nothing_that_set_up_did_not_compile(tmp_path: Path) -> None:
    """With a fresh cache: after warming, a release with persons and rates of their own adds nothing to it."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    compiler = [sys.executable, "-m", "tests.mechanisms.records.kernels.compile_kernels"]
    subprocess.run(compiler, env=environment, cwd=ROOT, check=True)
    before = {path.name for path in (tmp_path / "cache").rglob("*.nbc")}
    assert before
    homes = households(1_200_000)
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    more = ["--persons", "people.parquet", "--hid", "hid", "--id", "pid", "--out", "out", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "stirred", "swap", "homes.parquet", *SWAP, *more],
        env=environment, cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    assert {path.name for path in (tmp_path / "cache").rglob("*.nbc")} == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_check_whose_output_nobody_reads_does_not_look_like_one_that_passed(tmp_path: Path, damaged: bool) -> None:
    """As `stirred check out | head -1` with pipefail: the reader may go away before the verdict."""
    households(60).write_parquet(tmp_path / "homes.parquet")
    homes, out = str(tmp_path / "homes.parquet"), tmp_path / "out"
    assert run(["swap", homes, *SWAP, "--id", "hid", "--out", str(out), "--quiet"]) == 0
    if damaged:
        (out / "public" / "specification.md").write_text("another", encoding="utf-8")
    command = [sys.executable, "-m", "stirred", "check", str(out)]
    audit = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert audit.stdout is not None
    audit.stdout.close()
    assert audit.wait() == 141
    assert run(["check", str(out)]) == int(damaged)


def test_a_folder_that_exists_is_refused_before_anything_is_loaded_that_reads_data(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "plan.toml").write_text('[data]\nfile = "nothing.csv"\n[release]\nout = "out"\n')
    for words in (["release", "plan.toml"], ["swap", "nothing.csv", *SWAP, "--out", "out"]):
        code = f"import sys; from stirred.cli.main import run; print(run({words!r})); print('polars' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["2", "False"]
        assert "out: something is already there" in done.stderr


def test_a_file_used_as_a_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    households(60).write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "t.toml").write_text("")
    out = str(tmp_path / "t.toml" / "x")
    assert run(["swap", str(tmp_path / "homes.parquet"), *SWAP, "--id", "hid", "--out", out, "--quiet"]) == 2
    assert "t.toml is a file, and nothing can be made inside a file" in capsys.readouterr().err
