"""Tables at addresses that only Hadoop reads, here viewfs://: copied, released, removed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from examples.loopback_cluster import QUICK_START

from stirred.cli.main import run
from stirred.data.place import Place, copies_of, remove_leftovers
from stirred.data.problems import PlanError
from stirred.engines.protocol import EngineError
from stirred.engines.spark import lake
from stirred.release.engine import _is_part, at_hand
from stirred.release.ledger import Ledger
from stirred.release.plan_file import PlanFile, read_plan

PLAN = """
[data]
file = "{file}"

[mechanism]
swap = "county"
match = ["size", "state"]
rate = "1/2"

[release]
out = "bundle"

[engine]
name = "spark"
master = "local[1]"
{scratch}

[engine.conf]
"spark.driver.memory" = "700m"
"spark.driver.extraJavaOptions" = "{quick}"
"spark.hadoop.fs.viewfs.mounttable.lake.link./data" = "file://{lake}"
"""


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A folder, and a Java process that sees it as viewfs://lake/data."""
    folder, site = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("site")
    link = "spark.hadoop.fs.viewfs.mounttable.lake.link."
    conf = {f"{link}/data": f"file://{folder}", "spark.driver.extraJavaOptions": QUICK_START}
    (site / "spark-defaults.conf").write_text(f"{link}/site file://{folder}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(site))
        with lake._hadoop(conf, tmp_path_factory.mktemp("java")) as running:
            yield folder, running


@pytest.fixture
def copied(
    hadoop: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, bytes]]:
    """What a copy of an address holds; the one Java process serves all tests."""
    monkeypatch.setattr(lake, "_hadoop", lambda conf, scratch: nullcontext((hadoop[1][0], lambda: None)))

    def copy(address: str) -> dict[str, bytes]:
        place = tmp_path / "copy"
        lake.copy_here({address: place}, {}, tmp_path, is_read=_is_part, progress=lambda *_: None)
        files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
        return {str(path.relative_to(place)): path.read_bytes() for path in files}

    return copy


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_the_files_that_are_read_are_copied_and_no_others(hadoop: tuple[Path, Any], copied: Any) -> None:
    names = ["state=01/kind=a%2Fb/part-0.parquet", "state=01/kind=c d/part-0.PARQUET", "state=2/kind=é/part-1.pq"]
    others = ["_SUCCESS", "state=2/_x.parquet", "state=2/.y.parquet", "state=2/notes.txt", "_temporary/0/z.parquet"]
    for name in (*names, *others):
        put(hadoop[0] / "homes" / name, name.encode() * 50)
    assert copied("viewfs://lake/data/homes") == {name: name.encode() * 50 for name in names}


@pytest.mark.parametrize("mounted", ["data", "site"], ids=["by the plan", "by spark-defaults.conf"])
def test_one_file_is_copied(mounted: str, hadoop: tuple[Path, Any], copied: Any) -> None:
    put(hadoop[0] / "one.parquet", b"one")
    assert copied(f"viewfs://lake/{mounted}/one.parquet") == {".": b"one"}


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("viewfs://lake/data/none", "viewfs://lake/data/none: there is nothing at this address"),
        ("viewfs://lake/data/empty", "this is a folder without Parquet files"),
        ("viewfs://sea/homes", "Hadoop cannot read it .*Mount table.* HADOOP_CONF_DIR"),
        ("s3a://lake/homes", r"no file system for s3a:// .*S3AFileSystem.* add hadoop-aws 3\.\d"),
        ("lakefs://lake/homes", "Hadoop knows no file system lakefs://"),
        ("hdfs://127.0.0.1:1/homes", r"Hadoop cannot read it \(java.net.ConnectException"),
    ],
)
def test_what_hadoop_refuses_is_told_with_a_remedy(
    address: str, words: str, hadoop: tuple[Path, Any], copied: Any
) -> None:
    (hadoop[0] / "empty").mkdir(exist_ok=True)
    with pytest.raises(EngineError, match=words):
        copied(address)


def test_a_file_without_permission_is_told_as_such() -> None:
    for said in ("java.io.FileNotFoundException: /a (Permission denied)", "org...AccessControlException: user=ana"):
        assert "this user may not read it" in str(lake.explained(said, "hdfs://head/homes"))


def test_a_table_that_changes_during_the_copy_is_refused(
    hadoop: tuple[Path, Any], copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hadoop[0] / "busy" / "a.parquet", b"first")
    first, changes = lake._Hadoop.copy, [lambda path: os.utime(path, (1, 1)), lambda path: path.write_bytes(b"longer")]
    for change in changes:

        def copy(self: lake._Hadoop, file: lake._File, change: Any = change) -> int:
            change(hadoop[0] / "busy" / "a.parquet")
            return first(self, file)

        monkeypatch.setattr(lake._Hadoop, "copy", copy)
        with pytest.raises(EngineError, match="files changed while they were copied"):
            copied("viewfs://lake/data/busy")
    monkeypatch.setattr(lake._Hadoop, "copy", first)
    put(hadoop[0] / "busy" / "a.parquet", b"first")
    assert copied("viewfs://lake/data/busy") == {"a.parquet": b"first"}


def test_a_disk_without_room_is_told_before_the_copy(
    hadoop: tuple[Path, Any], copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hadoop[0] / "large.parquet", b"x" * 3000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2999))
    monkeypatch.setattr(lake._Hadoop, "copy", lambda *_: pytest.fail("it copies"))
    with pytest.raises(EngineError, match=r"needs 0\.0 MB, and 0\.0 MB are free.*scratch under \[engine\]"):
        copied("viewfs://lake/data/large.parquet")


# --- for as long as a command runs ----------------------------------------------------------------------


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    numbers = range(3000)
    frame = pl.DataFrame(
        {
            "county": [f"c{number % 7}" for number in numbers],
            "size": [1 + number % 3 for number in numbers],
            "tenure": [f"t{number * number % 5}" for number in numbers],
        }
    )
    for state in ("01", "1"):
        (tmp_path / "lake" / "homes" / f"state={state}").mkdir(parents=True)
        frame.write_parquet(tmp_path / "lake" / "homes" / f"state={state}" / "part-0.parquet")
    (tmp_path / "shared").mkdir()
    return tmp_path


def plan_in(folder: Path, file: str = "viewfs://lake/data/homes", *, scratch: str = "") -> PlanFile:
    text = PLAN.format(file=file, quick=QUICK_START, lake=folder / "lake", scratch=scratch)
    (folder / "plan.toml").write_text(text)
    return read_plan(folder / "plan.toml")


def fake_copy(monkeypatch: pytest.MonkeyPatch, content: bytes = b"") -> None:
    def copy(places: dict[str, Path], conf: object, scratch: Path, **_: object) -> None:
        for place in places.values():
            put(place / "part-0.parquet", content)

    monkeypatch.setattr(lake, "copy_here", copy)


@pytest.mark.parametrize("scratch", ["", 'scratch = "shared"'])
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_copies_are_private_and_gone_at_the_end(
    error: type[BaseException] | None, scratch: str, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_copy(monkeypatch)
    before = {*homes.rglob("*"), homes / "plan.toml"}
    with nullcontext() if error is None else pytest.raises(error), at_hand(plan_in(homes, scratch=scratch)) as here:
        assert here.records.name == "homes"
        assert (here.records / "part-0.parquet").is_file()
        assert here.data.file == "viewfs://lake/data/homes"
        private = [each for each in here.records.parents if each != homes and each.is_relative_to(homes)]
        assert any(stat.S_IMODE(each.stat().st_mode) == 0o700 for each in private)
        assert here.records.is_relative_to(homes / "shared") == bool(scratch)
        if error is not None:
            raise error
    assert {*homes.rglob("*")} == before


def test_copies_of_a_killed_run_are_removed_by_recovery_and_by_the_next_run(
    homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_copy(monkeypatch)
    plan = plan_in(homes, scratch='scratch = "shared"')

    def killed() -> Path:
        left = homes / "shared" / "stirred-left"
        put(left / "file" / "homes" / "part-0.parquet", b"confidential")
        place = Place(out=copies_of(plan.out))
        place.hidden.mkdir(mode=0o700)
        place.new_scratch(left)
        return left

    left = killed()
    remove_leftovers(plan.out)
    assert not left.exists()
    left = killed()
    with at_hand(plan):
        assert not left.exists()
    left = killed()
    plan.out.mkdir()  # it died after its bundle had appeared
    with pytest.raises(PlanError, match="bundle"), at_hand(plan, releasing=True):
        pass
    assert not left.exists()
    assert [*(homes / "shared").iterdir()] == []


def test_problems_name_the_address_and_not_the_copy(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_copy(monkeypatch, b"this is not Parquet")
    plan_in(homes)
    assert run(["plan", "plan.toml"]) == 2
    said = capsys.readouterr().err
    assert "viewfs://lake/data/homes/part-0.parquet: cannot read it" in said
    assert "copies" not in said


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("viewfs://lake/data/homes", ["--engine", "local"], "viewfs://lake/data/homes: this is an address (viewfs://)"),
        ("https://lake.example/homes.parquet", [], "homes.parquet: this is an address (https://)"),
        ("s3a://lake/homes.csv", [], "file: only Parquet is read at an address, not .csv"),
        ("s3a://me:hunter2@lake/homes", [], "file: the address has a password"),
        ("s3a://me:hunt/er2@lake/homes", [], "file: the address has a password"),
        ("s3a:/me:hunter2@lake/homes", [], "file: the address has a password"),
        ("abfss://homes@lake.example/homes?sig=hunter2", [], "file: the address has a password or a signature"),
        ("viewfs://lake/data/homes", ["--master", "spark://127.0.0.1:1"], "no Spark master answers"),
    ],
)
def test_what_cannot_be_copied_is_refused_and_nothing_is_written(
    file: str, options: list[str], words: str, homes: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(lake, "copy_here", lambda *_, **__: pytest.fail("it copies"))
    plan_in(homes, file)
    before = {*homes.rglob("*")}
    for command in ("release",) if options else ("plan", "release"):
        assert run([command, "plan.toml", *options]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "hunt" not in said
    assert {*homes.rglob("*")} == before


def test_nothing_is_copied_for_a_release_whose_place_is_taken(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lake, "copy_here", lambda *_, **__: pytest.fail("it copies"))
    plan_in(homes)
    (homes / "bundle").mkdir()
    assert run(["release", "plan.toml"]) == 2
    assert "something is already there" in capsys.readouterr().err


def stirred(*words: str) -> None:
    """Run a command in a process of its own: this one may have a Spark session."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "stirred", *words]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_release_from_an_address_is_that_from_the_path(homes: Path) -> None:
    plan_in(homes, "lake/homes")
    assert run(["release", "plan.toml", "--engine", "local", "--seed", "7", "--quiet"]) == 0
    (homes / "bundle").rename(homes / "expected")
    plan_in(homes)
    stirred("release", "plan.toml", "--seed", "7")
    one, other = (json.loads((homes / name / "manifest.json").read_text()) for name in ("expected", "bundle"))
    assert other["engine"]["name"] == "spark"
    assert other["plan"]["data"]["file"] == "viewfs://lake/data/homes"
    assert other["inputs"] == one["inputs"]
    released = [pl.read_parquet(homes / name / "public" / "data.parquet") for name in ("expected", "bundle")]
    assert released[0].equals(released[1])
    assert {*released[0]["state"]} == {"01", "1"}
    assert not [*homes.glob(".*")]


@pytest.mark.slow
def test_a_release_from_an_address_is_resumed(homes: Path) -> None:
    plan_in(homes)
    text = (homes / "plan.toml").read_text()
    (homes / "plan.toml").write_text(text.replace('out = "bundle"', 'out = "bundle"\nledger = "homes.ledger"'))
    ledger = Ledger.create("homes.ledger", dataset="homes", who="ana")
    dying = (
        "import sys; from stirred.cli.main import run; from stirred.engines.spark.engine import SparkEngine; "
        "from tests.release.killed_run import patched; patched(SparkEngine, 'exchange'); sys.exit(run(sys.argv[1:]))"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", dying, "release", "plan.toml"]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert died.returncode < 0, died.stderr
    assert [*homes.glob(".bundle.copies.partial/scratch/file/homes/*/*.parquet")], "nothing was there to be removed"
    assert run(["ledger", "recover", "homes.ledger"]) == 0
    assert not [*homes.glob(".bundle.copies.partial")]
    stirred("release", "--resume", "bundle")
    (entry,) = ledger.entries()
    assert entry.status == "committed"
    assert not [*homes.glob(".*")]
