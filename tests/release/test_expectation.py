"""The error of a table before the run: shown by `plan`, kept inside by `release`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from stirred.cli.main import app
from tests.world import SWAP, households, persons, stirred

TABLE = ["--table", "county x tenure"]


def plan(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, ["plan", *map(str, arguments), "--id", "hid", *SWAP, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: str | Path, cwd: Path) -> list[dict[str, str]]:
    done = stirred("plan", *arguments, *SWAP, "--json", cwd=cwd)
    assert done.returncode == 2, done.stderr
    return json.loads(done.stdout)["errors"]


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    path = tmp_path / "homes.parquet"
    households().write_parquet(path)
    return path


def test_the_error_from_the_margins_does_not_look_at_the_interior(homes: Path, tmp_path: Path) -> None:
    """Exchange the tenures of two homes of one size in different counties: both margins stay, the table changes."""
    frame = households()
    changed = frame.with_columns(
        pl.when(pl.col("hid") == 5000).then(pl.lit("rented")).when(pl.col("hid") == 5021).then(pl.lit("owned"))
        .otherwise("tenure").alias("tenure")
    )  # fmt: skip
    assert not changed.equals(frame)
    assert (
        changed.group_by("size", "tenure")
        .len()
        .sort("size", "tenure")
        .equals(frame.group_by("size", "tenure").len().sort("size", "tenure"))
    )
    changed.write_parquet(tmp_path / "changed.parquet")
    first, second = (
        plan(path, *TABLE, "--expect-from", "margins")["expected_error"][0]
        for path in (homes, tmp_path / "changed.parquet")
    )
    assert first == second
    assert first["mark"] is None
    assert first["mean_absolute_error"] > 0
    assert all(abs(cell["bias"]) < 1e-9 for cell in first["cells"])


def test_the_error_from_another_file_is_that_of_the_other_file(homes: Path, tmp_path: Path) -> None:
    households(120).write_parquet(tmp_path / "earlier.parquet")
    other = plan(homes, *TABLE, "--expect-from", tmp_path / "earlier.parquet")["expected_error"][0]
    own = plan(tmp_path / "earlier.parquet", *TABLE, "--expect-from", "this-data")["expected_error"][0]
    assert other["source"] == "other-data"
    assert other["mark"] is None
    assert sum(cell["true"] for cell in other["cells"]) == 120
    assert other["mean_absolute_percentage_error"] == pytest.approx(own["mean_absolute_percentage_error"])


def test_the_error_from_the_confidential_file_is_marked_and_shows_no_cell(homes: Path) -> None:
    (found,) = plan(homes, *TABLE, "--expect-from", "this-data")["expected_error"]
    assert found["mark"].startswith("choosing settings by this voids the guarantee")
    assert found["cells"] is None
    done = CliRunner().invoke(app, ["plan", str(homes), "--id", "hid", *SWAP, *TABLE, "--expect-from", "this-data"])
    assert "voids the" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--expect-from", "margins"], "there is no table whose error to expect"),
        ([*TABLE, "--expect-from", "nowhere.parquet"], "there is no such file --expect-from nowhere.parquet"),
        (
            [*TABLE, "--expect-from", "this-data", "--expect-from", "people.parquet"],
            "this file belongs to another file of households",
        ),
        ([*TABLE, "--expect-from", "margins", "--expect-from", "x.csv"], "belongs to another file of households"),
    ],
)
def test_what_cannot_be_expected_is_refused(homes: Path, arguments: list[str], what: str) -> None:
    problems = refused(homes, "--id", "hid", *arguments, cwd=homes.parent)
    assert any(what in f"{problem['what']} {problem['where']}" for problem in problems)


@pytest.mark.parametrize("column", ["tenure", "size", "county"])
def test_another_file_without_the_columns_is_refused(homes: Path, tmp_path: Path, column: str) -> None:
    households().rename({column: "other"}).write_parquet(tmp_path / "other.parquet")
    (problem,) = refused(homes, "--id", "hid", *TABLE, "--expect-from", tmp_path / "other.parquet", cwd=tmp_path)
    assert column in problem["what"]
    assert "other.parquet" in problem["where"]


@pytest.mark.parametrize("table", ["size x county", "county", "size x tenure"])
def test_a_table_that_swapping_cannot_change_is_exact_without_noise(homes: Path, table: str) -> None:
    (found,) = plan(homes, "--table", table, "--expect-from", "margins")["expected_error"]
    assert found["exact"]
    assert (found["mean_absolute_error"], found["root_mean_square_error"]) == (0, 0)
    done = CliRunner().invoke(app, ["plan", str(homes), *SWAP, "--table", table, "--expect-from", "margins"])
    assert f"{table}: exact, swapping does not change it" in " ".join(done.stdout.split())
    (disturbed,) = plan(homes, *TABLE, "--expect-from", "margins")["expected_error"]
    assert not disturbed["exact"]


def test_a_table_of_persons_needs_the_other_files_persons(homes: Path, tmp_path: Path) -> None:
    people, earlier, others = (tmp_path / f"{name}.parquet" for name in ("persons", "earlier", "others"))
    persons(households()).write_parquet(people)
    households(120).write_parquet(earlier)
    persons(households(120)).write_parquet(others)
    options = ["--persons", str(people), "--hid", "hid", "--id", "pid", "--table", "county x age"]
    command = [str(homes), *options, "--expect-from", str(earlier)]
    (problem,) = refused(*command, cwd=tmp_path)
    assert "counts persons" in problem["what"]
    done = CliRunner().invoke(app, ["plan", *command, *SWAP, "--json", "--expect-from", str(others)])
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["expected_error"][0]["cells"]
    assert sum(cell["true"] for cell in cells) == persons(households(120)).height


def test_a_release_keeps_expectation_and_measures_inside(homes: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    done = CliRunner().invoke(app, ["swap", str(homes), "--id", "hid", *SWAP, *TABLE, "--out", str(out), "--quiet"])
    assert done.exit_code == 0, done.output
    (expected,) = (out / "internal" / "expected").iterdir()
    assert pl.read_parquet(expected)["true"].sum() == 60
    measures = json.loads((out / "internal" / "measures.json").read_text(encoding="utf-8"))
    accuracy = pl.read_parquet(out / "internal" / "accuracy.parquet")
    assert measures["county x tenure"]["l1"] == accuracy["error"].abs().sum()
    report = (out / "internal" / "report.html").read_text(encoding="utf-8")
    assert "expected before the run" in report
    public = (out / "public" / "report.html").read_text(encoding="utf-8")
    assert "expected before the run" not in public
    assert not [path for path in (out / "public").rglob("*") if "expected" in path.name or "measures" in path.name]
