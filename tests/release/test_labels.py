"""Labels stand beside the codes of published tables, and every reader of a table knows them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit.bundle import audit_bundle
from stirred.data.frames import read_frame
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import correct, unswap
from stirred.randomness.entropy import Entropy
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import run
from stirred.release.tables import wanted_tables
from stirred.spec.problems import StirredError
from tests.world import households, released, swap_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "set"
CODEBOOK = """
[[variables]]
name = "hid"
file = "households"
type = "id"
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { 1 = "East, upper", 2 = "North", 3 = "South", 4 = "" }
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


def coded() -> pl.DataFrame:
    return households().with_columns(pl.col("county").rank("dense").cast(pl.Float64))


def release(folder: Path, file: str, **changes: Any) -> Path:
    tables = changes.pop("tables", [{"variables": ["county", "tenure"]}, {"variables": ["size"]}])
    data = {"households": file, **changes.pop("data", {})}
    return released(folder, {**swap_plan(data=data, release={"out": "bundle"}, **changes), "tables": tables})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    coded().write_csv(folder / "homes.csv")
    (folder / "codebook.toml").write_text(CODEBOOK)
    return release(folder, "homes.csv", data={"codebook": "codebook.toml"})


def test_labels_of_the_codebook_stand_between_the_codes_and_the_counts(bundle: Path) -> None:
    table = read_frame(bundle / "public/tables/county-x-tenure.csv")
    assert table.columns == ["county", "tenure", "county_label", "count"]
    pairs = table.select("county", "county_label").unique(maintain_order=True).rows()
    assert pairs == [("1", "East, upper"), ("2", "North"), ("3", "South"), ("4", None)]
    # A variable without labels, or whose labels are its codes, gets no column.
    assert read_frame(bundle / "public/tables/size.csv").columns == ["size", "count"]


def test_audit_publish_and_unswap_read_a_table_with_labels(bundle: Path, tmp_path: Path) -> None:
    assert audit_bundle(bundle).problems == ()
    publish(bundle, tmp_path / "published")
    table = read_frame(tmp_path / "published/tables/county-x-tenure.csv")
    found = unswap(table, SwappedRelease.read(tmp_path / "published"), level=0.95, project=False, where="table")
    assert found.variables == ("county", "tenure")
    assert found.table.height == 8


def test_a_corrected_table_keeps_its_labels(bundle: Path) -> None:
    table = read_frame(bundle / "public/tables/county-x-tenure.csv")
    found = correct(table, bundle).table
    labels = [name for name in table.columns if name.endswith("_label")]
    assert labels
    keys = [name.removesuffix("_label") for name in labels]
    assert {*found.select(*keys, *labels).rows()} == {*table.select(*keys, *labels).rows()}
    assert found.columns[: table.width - 1] == table.columns[:-1]


def test_the_report_shows_labels_and_the_code_that_has_none(bundle: Path) -> None:
    page = (bundle / "public/report.html").read_text()
    assert "East, upper" in page
    assert "county_label" not in page


def test_a_label_that_says_something_of_a_cell_is_found(bundle: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(bundle, tmp_path / "b")
    path = tmp_path / "b/public/tables/county-x-tenure.csv"
    path.write_text(path.read_text().replace("South", "5003 lives here", 1))
    assert any(
        "county_label has two labels for one code" in problem.what for problem in audit_bundle(tmp_path / "b").problems
    )


def test_labels_of_a_statistics_package_need_no_codebook(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    names = {1.0: "East", 2.0: "North", 3.0: "South", 4.0: "West"}
    pyreadstat.write_sav(coded().to_pandas(), str(tmp_path / "homes.sav"), variable_value_labels={"county": names})
    made = release(tmp_path, "homes.sav")
    table = read_frame(made / "public/tables/county-x-tenure.csv")
    assert table.select("county", "county_label").row(0) == ("1", "East")
    assert audit_bundle(made).problems == ()


def test_noisy_tables_have_labels_too(tmp_path: Path) -> None:
    coded().write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "codebook.toml").write_text(CODEBOOK)
    made = release(
        tmp_path,
        "homes.parquet",
        data={"codebook": "codebook.toml"},
        name="noisy-swap",
        noise_epsilon="1",
        tables=[{"variables": ["county", "tenure"]}],
    )
    assert "county_label" in read_frame(made / "public/tables/county-x-tenure.csv").columns
    assert audit_bundle(made).problems == ()
    publish(made, tmp_path / "published")


@pytest.mark.parametrize(
    ("name", "sums"),
    [("cell-keys-magnitude", "sums-county-x-tenure"), ("noisy-tables-laplace-sums", "sum-of-size-by-county")],
)
def test_sums_have_labels_as_counts_have(name: str, sums: str, tmp_path: Path) -> None:
    coded().write_csv(tmp_path / "homes.csv")
    (tmp_path / "codebook.toml").write_text(CODEBOOK)
    (tmp_path / "ptable.csv").write_bytes((GOLDEN / "cell-keys" / "ptable.csv").read_bytes())
    content = tomllib.loads((GOLDEN / name / "plan.toml").read_text("utf-8"))
    content["data"] = {"households": "homes.csv", "codebook": "codebook.toml"}
    if "values" in content["mechanism"]:
        content["mechanism"].pop("values")
        content["mechanism"]["sums"][0]["column"] = "size"
    bundle = run(prepare(plan_from(content, source="plan", folder=tmp_path)), entropy=Entropy.from_os())
    table = read_frame(bundle / f"public/tables/{sums}.csv")
    assert table.columns[table.columns.index("county_label") + 1] == "sum"
    assert table["county_label"][0] == "East, upper"
    assert audit_bundle(bundle).problems == ()
    publish(bundle, tmp_path / "published", accept=content["release"]["accept"])


def test_a_table_of_a_variable_called_like_labels_is_refused() -> None:
    with pytest.raises(StirredError, match='"county_label" is the name that a column of labels has in this table'):
        wanted_tables([(None, ["county", "county_label"])], households=["county", "county_label"], persons=[])
