"""Plans and reports list the columns that a release does not use: all of them, and no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run

GOLDEN = Path(__file__).parents[1] / "golden" / "set"
UNUSED = {
    "safetab": ("persons.csv", ["relship", "cenrace", "cenhisp"]),
    "safetab-households": ("households.csv", []),
    "phsafe": ("units.csv", []),
    "topdown-records": ("people.csv", []),
    "noisy-tables": ("homes.parquet", ["hid", "size"]),
    "cell-keys": ("homes.parquet", ["hid", "size"]),
}


@pytest.mark.parametrize("case", UNUSED)
def test_a_plan_lists_the_columns_that_it_does_not_use_and_no_other(case: str, tmp_path: Path) -> None:
    file, unused = UNUSED[case]
    folder = tmp_path / "case"
    shutil.copytree(GOLDEN / case, folder, ignore=shutil.ignore_patterns("bundle", "printed"))
    frame = (pl.read_csv if file.endswith("csv") else pl.read_parquet)(folder / file)
    if file.endswith("csv"):
        frame.with_columns(shoe=pl.lit("42")).write_csv(folder / file)
        unused = [*unused, "shoe"]
    prepared = prepare(read_plan(folder / "plan.toml"))
    assert list(prepared.plan.dropped) == unused
    assert dict(prepared.plan.outcome()).get("not used", "") == ", ".join(unused)


def test_records_of_households_are_not_called_persons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "case"
    shutil.copytree(GOLDEN / "topdown-records", folder, ignore=shutil.ignore_patterns("bundle", "printed"))
    plan = (folder / "plan.toml").read_text("utf-8").replace('record = "person"', 'record = "household"')
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    assert command(["plan", str(folder / "plan.toml"), "--verbose"]) == 0
    assert "noise of households" in capsys.readouterr().out
    run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_seed("households"))
    readme = (folder / "out" / "public" / "README.md").read_text("utf-8")
    assert "households as records" in readme
    assert "persons" not in readme.replace("`persons.parquet`", "")
