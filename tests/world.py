"""A small world for tests: homes with persons, plans and codebooks of them, bundles, and commands on them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stirred import Entropy
from stirred.cli.main import run
from stirred.data.place import claimed
from stirred.release.bundle import bundle_in
from stirred.release.ledger import Ledger
from stirred.release.plan_file import plan_from, read_plan
from stirred.release.prepared import Prepared, prepare
from stirred.release.run import run as carry_out
from stirred.spec.doubts import nothing_promised

HOUSEHOLD_COLUMNS = ["hid", "county", "size", "tenure"]


@contextlib.contextmanager
def bundle_at(out: Path) -> Iterator[Path]:
    """Yield a folder to write a bundle into; it becomes ``out`` if its files are those of its manifest."""
    with claimed(out) as place, bundle_in(place) as folder:
        yield folder


def households(count: int = 60) -> pl.DataFrame:
    """Households of three sizes in four counties, sorted by county as files often are."""
    row = np.arange(count)
    return pl.DataFrame(
        {
            "hid": 5000 + row,
            "county": np.array(["East", "North", "South", "West"])[row * 4 // count],
            "size": 1 + row % 3,
            "tenure": np.array(["owned", "rented"])[(row * 7 // 3) % 2],
        }
    )


def undoubted(prepared: Prepared) -> Prepared:
    """Return a prepared plan without its doubts, as if somebody had taken the checks out."""
    plan: Any = prepared.plan
    silenced = replace(nothing_promised("nothing is said", remedy=""), refuses=False)
    return replace(prepared, doubts=(), plan=replace(plan, doubts=(silenced,))._sealed())


def persons(homes: pl.DataFrame) -> pl.DataFrame:
    """As many persons as the size of the household says."""
    people = homes.select("hid", pl.int_ranges(1, pl.col("size") + 1).alias("pid")).explode("pid")
    return people.with_columns(((pl.col("hid") * 13 + pl.col("pid") * 29) % 90).alias("age"))


PLAN_OF_HOMES = """
[data]
households = "homes.parquet"
id = ["hid"]
[mechanism]
match = ["size"]
swap = ["county"]
rate = "1/2"
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
"""

CODEBOOK_OF_HOMES = """
[codebook]
title = "Homes"
[[variables]]
name = "hid"
file = "households"
type = "id"
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { East = "", North = "", South = "", West = "" }
[[variables]]
name = "size"
file = "households"
type = "integer"
min = 1
max = 3
[[variables]]
name = "tenure"
file = "households"
type = "code"
codes = { owned = "owned", rented = "rented" }
"""

SWAP = ["--match", "size", "--swap", "county", "--rate", "1/2"]


def stirred(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, in this process: what it prints and its exit code are those of the real one."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True) for _ in range(2))
    command = [*map(str, arguments)]
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(command, code, printed, said)


def in_own_process(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the real command in a folder, in an interpreter of its own: for its streams and its start."""
    return subprocess.run(
        [sys.executable, "-m", "stirred", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def listing(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder with its checksum: two listings are equal if nothing was written."""
    return {
        str(path.relative_to(folder)): sha256(path) if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def assert_refused(folder: Path, plan: str, what: str) -> None:
    """Check that a release by this plan is refused with these words, and that nothing is written."""
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    before = listing(folder)
    done = stirred("release", "plan.toml", cwd=folder)
    assert done.returncode == 2, done.stdout
    assert what in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert listing(folder) == before


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_in(bundle: Path) -> set[str]:
    return {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}


def manifest(bundle: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    return content


def read(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False) if path.suffix == ".csv" else pl.read_parquet(path)


def margin(frame: pl.DataFrame, columns: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Counts by plain counting, values as text so that CSV and Parquet compare."""
    return Counter(tuple(str(value) for value in row) for row in frame.select(columns).rows())


def assert_complete(bundle: Path, homes: pl.DataFrame) -> None:
    """A bundle with a manifest, every file as the manifest says, and both margins those of the input."""
    recorded = manifest(bundle)["files"]
    assert files_in(bundle) - {"manifest.json"} == set(recorded)
    for name, digest in recorded.items():
        assert sha256(bundle / name) == digest, f"{name} is not what the manifest says"
    ending = "csv" if (bundle / "public" / "data.csv").exists() else "parquet"
    released = read(bundle / "public" / f"data.{ending}")
    for columns in (["size", "county"], ["size", "tenure"]):
        assert margin(released, columns) == margin(homes, columns)


# ---- a small world: files, plan and bundle in one folder ----------------------------------------------------


def world(
    folder: Path,
    homes: pl.DataFrame | None = None,
    *,
    people: bool = False,
    codebook: bool = False,
    plan: str = "",
    ledger: str = "",
) -> Path:
    """Write homes.parquet into a folder, and what else is asked for; ``ledger`` names the dataset of a.ledger."""
    homes = households() if homes is None else homes
    homes.write_parquet(folder / "homes.parquet")
    if people:
        persons(homes).write_parquet(folder / "people.parquet")
    if codebook:
        (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    if plan:
        (folder / "plan.toml").write_text(plan, encoding="utf-8")
    if ledger:
        Ledger.create(folder / "a.ledger", dataset=ledger)
    return folder


def swap_plan(
    *,
    people: bool = False,
    tables: Sequence[Sequence[str]] = (("county", "tenure"),),
    data: dict[str, Any] | None = None,
    release: dict[str, Any] | None = None,
    **mechanism: Any,
) -> dict[str, Any]:
    """The plan of a swap of the world's homes, by size within county at 1/2, as plain data; sections take more keys."""
    files = {"households": "homes.parquet", "id": ["hid"]}
    if people:
        files = {"households": "homes.parquet", "persons": "people.parquet", "hid": "hid", "id": ["pid"]}
    return {
        "data": files | (data or {}),
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2", **mechanism},
        "tables": [{"variables": [*variables]} for variables in tables],
        "release": {"out": "out", **(release or {})},
    }


def planned(folder: Path, plan: dict[str, Any]) -> Prepared:
    """Prepare a plan for the files of a folder."""
    return prepare(plan_from(plan, source="plan", folder=folder))


def released(folder: Path, plan: dict[str, Any] | None = None, entropy: Entropy | None = None) -> Path:
    """Release a plan, or plan.toml, and return the bundle; without entropy as for a real release."""
    prepared = prepare(read_plan(folder / "plan.toml")) if plan is None else planned(folder, plan)
    return carry_out(prepared, entropy=entropy or Entropy.from_os())
