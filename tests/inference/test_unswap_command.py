"""`stirred unswap` on a bundle as a user has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from stirred.cli.main import app
from stirred.spec.problems import StirredError
from tests.world import SWAP, households, persons, stirred


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swap")
    homes = households(600)
    homes.write_csv(folder / "homes.csv")
    persons(homes).write_csv(folder / "people.csv")
    tables = [part for text in ("county x tenure", "county x age", "tenure") for part in ("--table", text)]
    done = stirred(
        "swap", "homes.csv", "--persons", "people.csv", "--hid", "hid", *SWAP, *tables,
        "--out", "bundle", "--seed", "x", "--quiet", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "bundle"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["unswap", *(str(argument) for argument in arguments)])


def refusal(*arguments: str | Path) -> str:
    found = run(*arguments)
    assert isinstance(found.exception, StirredError), found.output
    assert found.exception.exit_code == 2
    return str(found.exception)


def test_a_published_table_is_corrected_from_public_files_alone(bundle: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    shutil.copytree(bundle / "public", public)
    out = tmp_path / "corrected.csv"
    found = run(public / "tables" / "county-x-tenure.csv", "--bundle", public, "--out", out)
    assert found.exit_code == 0, found.output
    assert "county x tenure, 8 cells" in found.output
    table, published = pl.read_csv(out), pl.read_csv(public / "tables" / "county-x-tenure.csv")
    assert table.select(published.columns).equals(published)
    assert table["estimate"].sum() == pytest.approx(600)
    assert (table["low"] < table["estimate"]).all()
    assert "95%: the counts that agree with the estimate, within what the margins allow" in " ".join(
        found.output.split()
    )


def test_a_table_grouped_anew_is_completed_and_the_output_says_by_how_many_cells(bundle: Path, tmp_path: Path) -> None:
    table, out = pl.read_csv(bundle / "public/tables/county-x-age.csv"), tmp_path / "corrected.csv"
    empty = table.filter(pl.col("count") == 0).height
    assert empty, "the table has empty cells"
    table.filter(pl.col("count") > 0).write_csv(tmp_path / "grouped.csv")
    found = run(tmp_path / "grouped.csv", "--bundle", bundle, "--out", out, "--json")
    facts: dict[str, Any] = json.loads(found.output)
    assert (facts["added"], facts["cells"]) == (empty, table.height)
    assert pl.read_csv(out)["estimate"].sum() == pytest.approx(table["count"].sum())


def test_a_table_of_persons_is_corrected_and_json_tells_the_same(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "corrected.csv"
    found = run(bundle / "public/tables/county-x-age.csv", "--bundle", bundle, "--out", out, "--project", "--json")
    facts: dict[str, Any] = json.loads(found.output)
    table = pl.read_csv(out)
    assert facts["cells"] == table.height
    assert facts["negative"] == (table["estimate"] < 0).sum() > 0
    assert facts["projected"]
    assert table["projected"].min() >= 0  # type: ignore[operator]
    assert "estimates are negative" in facts["notes"][-1]


def test_a_table_without_a_swapped_variable_is_exact_and_copied(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "corrected.csv"
    found = run(bundle / "public/tables/tenure.csv", "--bundle", bundle, "--out", out)
    assert "the published counts are exact" in " ".join(found.output.split())
    table = pl.read_csv(out)
    assert (table["estimate"] == table["count"]).all()


def test_what_cannot_be_corrected_is_refused(bundle: Path, tmp_path: Path) -> None:
    table, out = bundle / "public/tables/county-x-tenure.csv", tmp_path / "out.csv"
    assert "there is no such folder" in refusal(table, "--bundle", tmp_path / "none", "--out", out)
    (tmp_path / "empty").mkdir()
    assert "not the bundle of a swap" in refusal(table, "--bundle", tmp_path / "empty", "--out", out)
    assert "must not replace or join" in refusal(table, "--bundle", bundle, "--out", bundle / "public" / "x.csv")
    assert "must not replace or join" in refusal(table, "--bundle", bundle / "public", "--out", bundle / "x.csv")
    assert "is not a kind of table" in refusal(table, "--bundle", bundle, "--out", tmp_path / "x.txt")
    assert "write .csv or .parquet" in refusal(table, "--bundle", bundle, "--out", tmp_path / "x.xlsx")
    kept = tmp_path / "keep.csv"
    kept.write_text("mine")
    assert "this file exists already" in refusal(table, "--bundle", bundle, "--out", kept)
    assert kept.read_text() == "mine"
    assert "its folder does not exist" in refusal(table, "--bundle", bundle, "--out", tmp_path / "no" / "x.csv")
    other = tmp_path / "rounded.csv"
    pl.read_csv(table).with_columns(pl.col("count") // 5 * 5).write_csv(other)
    assert "counts are not those of the released data" in refusal(other, "--bundle", bundle, "--out", out)
    assert not out.exists()


def test_without_the_file_of_persons_a_table_of_persons_is_refused(bundle: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    shutil.copytree(bundle / "public", public)
    (public / "persons.parquet").unlink()
    message = refusal(public / "tables/county-x-age.csv", "--bundle", public, "--out", tmp_path / "x.csv")
    assert 'no variable "age", and no file of persons' in message
    (public / "data.parquet").unlink()
    message = refusal(public / "tables/county-x-tenure.csv", "--bundle", public, "--out", tmp_path / "x.csv")
    assert "the released microdata" in message


def test_bundles_in_csv_and_missing_held_values_are_corrected_like_any_other(tmp_path: Path) -> None:
    homes = households(300).with_columns(
        pl.when(pl.col("hid") % 7 == 0).then(None).otherwise("tenure").alias("tenure")
    )  # fmt: skip
    homes.write_csv(tmp_path / "homes.csv")
    persons(homes).write_csv(tmp_path / "people.csv")
    done = stirred(
        "swap", "homes.csv", "--persons", "people.csv", "--hid", "hid", *SWAP, "--table", "county x tenure",
        "--table", "tenure x county x age", "--set", "format=csv", "--out", "bundle", "--seed", "x", "--quiet",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, total in (("county-x-tenure", 300), ("tenure-x-county-x-age", 600)):
        out = tmp_path / f"{name}.csv"
        found = run(
            tmp_path / f"bundle/public/tables/{name}.csv", "--bundle", tmp_path / "bundle", "--out", out, "--project"
        )
        assert found.exit_code == 0, found.exception
        table = pl.read_csv(out)
        assert table["count"].sum() == total
        assert table["estimate"].sum() == pytest.approx(total)
        assert table["projected"].sum() == pytest.approx(total, rel=1e-6)
