"""A damaged Parquet file never stops the audit or `publish`: it is tried in a process of its own."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run as command
from stirred.data import bundle as bundle_files
from stirred.data import child
from stirred.data.child import unreadable_parquet
from stirred.data.frames import read_frame
from stirred.data.problems import DataError
from stirred.inference.swapped_release import SwappedRelease
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import PublishError, publish
from stirred.release.run import run
from tests.release.tampering import retell
from tests.world import households

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    households(600).write_parquet(folder / "homes.parquet")
    plan = {
        "data": {"households": "homes.parquet", "id": ["hid"]},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "bundle"},
    }
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "bundle"))


def panicking(path: Path) -> bytes:
    """Return the file with one bit changed so that its reader panics, which no handler of errors catches."""
    raw, source = path.read_bytes(), random.Random(1)
    place = path.with_suffix(".flipped")
    for _ in range(4000):
        flipped = bytearray(raw)
        flipped[source.randrange(max(0, len(raw) - 1500), len(raw))] ^= 1 << source.randrange(8)
        place.write_bytes(flipped)
        try:
            pl.scan_parquet(place).collect()
        except pl.exceptions.PanicException:
            place.unlink()
            return bytes(flipped)
        except pl.exceptions.PolarsError:
            continue
    raise AssertionError("no bit makes the reader panic: this test proves nothing any more")


@pytest.fixture(scope="module")
def poison(made: Path) -> bytes:
    return panicking(made / "public" / "data.parquet")


def test_a_panic_of_the_reader_is_an_error_with_words(tmp_path: Path, poison: bytes, capfd: Out) -> None:
    (tmp_path / "homes.parquet").write_bytes(poison)
    with pytest.raises(DataError, match="its reader gives up in the middle of it: the file is damaged"):
        read_frame(tmp_path / "homes.parquet")
    capfd.readouterr()
    swap = ["--match", "size", "--swap", "county", "--rate", "1/2"]
    assert command(["plan", str(tmp_path / "homes.parquet"), *swap, "--json"]) == 2
    assert "damaged" in json.loads(capfd.readouterr().out)["errors"][0]["what"]


@pytest.mark.parametrize("forged", [True, False])
def test_a_file_whose_reader_panics_is_a_finding(bundle: Path, poison: bytes, forged: bool, tmp_path: Path) -> None:
    (bundle / "public" / "data.parquet").write_bytes(poison)
    if forged:
        retell(bundle)
    found = audit_bundle(bundle)
    why = "its reader gives up in the middle of it" if forged else "it was changed, so it is not opened"
    assert any(problem.what == f"it cannot be read: {why}" for problem in found.problems)
    with pytest.raises(PublishError, match="it cannot be read"):
        publish(bundle, tmp_path / "site")
    if forged:
        with pytest.raises(DataError, match="its reader gives up in the middle of it"):
            SwappedRelease.read(bundle)


def test_a_file_whose_checksum_is_wrong_is_never_opened(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    real = unreadable_parquet

    def noted(files: Any) -> Any:
        tried.extend(path.name for path in files)
        return real(files)

    monkeypatch.setattr(bundle_files, "unreadable_parquet", noted)
    data = bundle / "public" / "data.parquet"
    data.write_bytes(data.read_bytes() + b" ")
    audit_bundle(bundle)
    assert tried == ["invariants.parquet", "strata.parquet"]


@pytest.mark.parametrize("name", ["data", "invariants", "strata"])
def test_no_flipped_byte_stops_the_audit(bundle: Path, name: str) -> None:
    path = bundle / "public" / f"{name}.parquet"
    raw, source, seen = path.read_bytes(), random.Random(5), 0
    for _ in range(8):
        flipped = bytearray(raw)
        for _ in range(3):
            flipped[source.randrange(max(4, len(raw) - 1500), len(raw))] ^= 1 << source.randrange(8)
        path.write_bytes(flipped)
        retell(bundle)
        seen += not audit_bundle(bundle).passed
    assert seen >= 4


def test_a_file_that_ends_the_process_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{name}.parquet" for name in ("a", "kills", "b", "hangs", "c", "kills too")]
    for path in files:
        path.write_bytes(b"x")
    monkeypatch.setattr(child, "_READS", "tests.audit.deadly:reads")
    monkeypatch.setattr(child, "_SECONDS", 5.0)  # a child that answers needs most of a second to start
    began = time.monotonic()
    assert unreadable_parquet(files) == {
        files[1]: "it ends the process that reads it (code -6)",
        files[3]: "reading it does not end within 5 seconds",
        files[5]: "it ends the process that reads it (code -6)",
    }
    assert time.monotonic() - began < 300, "the one that hangs would take ten minutes"
    assert not list(tmp_path.glob("core*"))


def test_a_file_that_ends_the_process_is_a_finding_of_the_command(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr(child, "_READS", "tests.audit.deadly:reads")
    assert command(["check", str(bundle), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert "it ends the process that reads it" in json.dumps(said)


def test_a_healthy_bundle_passes_whatever_folder_it_is_audited_from(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert audit_bundle(Path("bundle")).passed
