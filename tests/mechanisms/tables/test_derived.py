"""Rounding and suppression: free on released tables, refused on any other."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from stirred.mechanisms.tables.derived import rounded, special
from stirred.spec.document import from_json
from tests.world import PLAN_OF_HOMES, households, stirred


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("derived")
    households().write_parquet(folder / "homes.parquet")
    (folder / "plan.toml").write_text(PLAN_OF_HOMES)
    done = stirred("release", "plan.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_counts_are_rounded_to_the_nearest_multiple_and_by_the_special_rule() -> None:
    assert [special(n) for n in (0, 3, 7, 8, 864, 982)] == [0, 4, 4, 10, 865, 980]  # T22
    assert [rounded(n, base=10) for n in (4, 5, 14, 15, -6)] == [0, 10, 10, 20, -10]


def test_a_released_table_is_rounded_for_nothing(bundle: Path, tmp_path: Path) -> None:
    done = stirred("derive", "round", bundle, "--base", "10", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "costs   nothing" in done.stdout
    before = pl.read_csv(bundle / "public" / "tables" / "county-x-tenure.csv")
    after = pl.read_csv(tmp_path / "r" / "tables" / "county-x-tenure.csv")
    assert after["count"].to_list() == [rounded(n, base=10) for n in before["count"]]
    one, other = (
        from_json((place / "specification.json").read_text()) for place in (bundle / "public", tmp_path / "r")
    )
    assert other.budget == one.budget
    assert other.flavor == one.flavor
    assert any("post-processing" in line for line in other.theorem)
    # What was derived is a release again, and may be derived from.
    again = stirred("derive", "suppress", "r", "--threshold", "10", "--out", "s", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_small_counts_are_left_out_and_tau_argus_is_named(bundle: Path, tmp_path: Path) -> None:
    done = stirred("derive", "suppress", bundle, "--threshold", "8", "--out", "s", cwd=tmp_path)
    assert "tau-ARGUS" in " ".join(done.stdout.split())
    before = pl.read_csv(bundle / "public" / "tables" / "county-x-tenure.csv")["count"]
    after = pl.read_csv(tmp_path / "s" / "tables" / "county-x-tenure.csv")["count"]
    assert after.to_list() == [n if n >= 8 else None for n in before]
    special_rule = stirred("derive", "round", bundle, "--rule", "special", "--out", "x", "--json", cwd=tmp_path)
    assert json.loads(special_rule.stdout)["loss"] == 0


def test_what_is_not_a_release_is_refused_with_the_reason(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text("county,count\nA,12\n")
    for given in (tmp_path, tmp_path / "tables" / "a.csv"):
        refused = stirred("derive", "round", given, "--out", "r", cwd=tmp_path)
        assert refused.returncode == 2
        assert "mechanisms of infinite loss" in refused.stderr
    taken = stirred("derive", "round", bundle, "--out", tmp_path, cwd=tmp_path)
    assert "something is already there" in taken.stderr


def test_a_release_that_was_changed_is_refused(bundle: Path, tmp_path: Path) -> None:
    done = stirred("publish", bundle, tmp_path / "website", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = tmp_path / "website" / "tables" / "county-x-tenure.csv"
    table.write_text(table.read_text().replace("East", "Eest"))
    refused = stirred("derive", "round", "website", "--out", "r", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is not the file" in refused.stderr


def test_a_release_without_tables_is_refused(bundle: Path, tmp_path: Path) -> None:
    homes = tmp_path / "homes.parquet"
    households().write_parquet(homes)
    (tmp_path / "plan.toml").write_text(PLAN_OF_HOMES.replace('[[tables]]\nvariables = ["county", "tenure"]\n', ""))
    assert stirred("release", "plan.toml", cwd=tmp_path).returncode == 0
    refused = stirred("derive", "round", "out", "--out", "r", cwd=tmp_path)
    assert "there are no tables" in refused.stderr
