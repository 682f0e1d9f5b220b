"""What the commands of TopDown read of a bundle, and what they refuse to write over or to mistake."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.mechanisms.topdown.budget import Shares
from stirred.mechanisms.topdown.commands import where_query
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema, shipped_schema
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.randomness.entropy import Entropy
from stirred.spec.problems import StirredError
from tests.mechanisms.topdown.layout import write_codebook

PLAN = """
[data]
file = "people.csv"
record = "person"
[mechanism]
name = "topdown"
levels = ["region", "ward"]
areas = "wards.csv"
attributes = ["sex", "age"]
values = { sex = ["m", "f"], age = ["young", "old"] }
queries = ["total", "detailed"]
totals = ["region"]
rho = "1"
[release]
out = "measured"
"""
REVERSED = Schema(
    name="reversed",
    attributes=(Attribute(name="sex", codes=("f", "m")), Attribute(name="age", codes=("young", "old"))),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("given")
    wards = [(f"R{r}", f"R{r}W{w}") for r in range(2) for w in range(3)]
    rows = [(*wards[n % 6], "mf"[n % 2], ("young", "old")[n % 3 == 0]) for n in range(120)]
    pl.DataFrame(wards, schema=["region", "ward"], orient="row").write_csv(place / "wards.csv")
    pl.DataFrame(rows, schema=["region", "ward", "sex", "age"], orient="row").write_csv(place / "people.csv")
    (place / "plan.toml").write_text(PLAN, encoding="utf-8")
    write_codebook(REVERSED, place / "reversed.toml")
    assert run(["release", str(place / "plan.toml"), "--quiet"]) == 0
    return place


@pytest.mark.parametrize("given", ["measured", "measured/public", "measured/public/measurements.parquet"])
def test_totals_that_a_bundle_publishes_exactly_are_used_however_it_is_named(
    folder: Path, given: str, tmp_path: Path
) -> None:
    out = tmp_path / "estimates.parquet"
    assert run(["topdown", "estimate", "--measurements", str(folder / given), "--out", str(out), "--quiet"]) == 0
    regions = pl.read_parquet(out).filter((pl.col("geolevel") == "region") & (pl.col("query_name") == "total_dpq"))
    assert regions["estimate"].round(6).to_list() == [60, 60]
    assert regions["std_dev"].round(6).to_list() == [0, 0]
    made = tmp_path / "made"
    assert run(["topdown", "microdata", "--measurements", str(folder / given), "--out", str(made), "--quiet"]) == 0
    assert pl.read_parquet(made / "persons.parquet").height == 120


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--schema", "reversed.toml"], "has other attributes or codes, or in another order, than were measured"),
        (["--out", "people.csv"], "it exists already"),
        (["--out", "estimates.xlsx"], "does not end in .parquet or .csv"),
        (["--out", "."], "it exists already"),
    ],
)
def test_estimate_refuses_other_codes_and_files_that_are_there(
    folder: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = (folder / "people.csv").read_bytes()
    asked = ["topdown", "estimate", "--measurements", "measured", "--out", "new.csv", *more, "--quiet"]
    assert run(asked) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "new.csv").exists()
    assert (folder / "people.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--out", "measured"], "it exists already"),
        (["--out", "people.csv"], "it exists already"),
        (["--records", "../evil"], "'../evil' is no name of a file"),
        (["--measurements", "empty.parquet"], "there is no row of measurements"),
    ],
)
def test_microdata_refuses_places_that_are_taken_and_leaves_nothing(
    folder: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    pl.read_parquet("measured/public/measurements.parquet").clear().write_parquet("empty.parquet")
    before = sorted(folder.iterdir())
    asked = ["topdown", "microdata", "--measurements", "measured", "--out", "made", *more, "--quiet"]
    assert run(asked) == 2
    assert told in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_two_conditions_on_one_attribute_are_refused() -> None:
    with pytest.raises(StirredError, match="'hispanic' is given twice"):
        where_query(shipped_schema("pl94-persons"), ["hispanic=1", "hispanic=2"])


@pytest.mark.parametrize("levels", [["ward", "region"], ["district", "region", "ward"]])
def test_levels_in_the_wrong_order_are_doubted_before_small_areas_are_taken_for_large_ones(levels: list[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"region": f"R{n // 6}", "district": f"D{n // 2}", "ward": f"W{n}", "sex": "mf"[n % 2]} for n in range(12)
    ]
    people = pl.DataFrame(rows)
    given: dict[str, Any] = {"attributes": ["sex"], "values": {"sex": ["m", "f"]}, "rho": 1, "queries": ["detailed"]}
    doubts = TopDown(levels=levels, **given).plan(people).doubts
    assert [each.about for each in doubts if each.kind == "levels"] == ["region"]
    assert "every " + levels[0] + " has just one region" in next(each.what for each in doubts if each.kind == "levels")
    right = TopDown(levels=["region", "district", "ward"], **given).plan(people).doubts
    assert not [each for each in right if each.kind == "levels"]


def test_levels_and_queries_whose_names_run_together_have_noise_of_their_own() -> None:
    """ "area" asked "type sex" is not "area type" asked "sex": noise that two rows share would cancel."""
    rows = [{"area": "A", "area type": "x", "sex": "m", "type sex": "m"} for _ in range(4)]
    codes = ["m", "f"]
    design = TopDown(
        levels=["area", "area type"],
        attributes=["sex", "type sex"],
        values={"sex": codes, "type sex": codes},
        rho="1/1000000",
        queries=["sex", "type sex"],
        bypass=False,
    )
    released = design.release(pl.DataFrame(rows), Entropy.from_os(), accept=["areas-from-file"])
    found = {
        (level, query): tuple(value)
        for level, query, value in released.public["measurements"].select("geolevel", "query_name", "value").rows()
    }
    assert found["area", "type sex_dpq"] != found["area type", "sex_dpq"]


def test_an_attribute_costs_what_an_only_child_spends_on_it() -> None:
    """By hand: the budget of the bypassed region goes to its ward, which asks for nothing but sex."""
    content = {
        "rho": 1,
        "levels": {"all": "1/4", "region": "1/4", "ward": "1/2"},
        "queries": {"sex": {"all": 1, "ward": 1}, "total": {"region": 1}},
    }
    schema = Schema(name="toy", attributes=(Attribute(name="sex", codes=("m", "f")),))
    shares = Shares.read(content)
    assert {cost.what: cost.rho for cost in shares.certificate(schema)}["sex"] == Fraction(3, 4)
    assert {cost.what: cost.rho for cost in shares.certificate(schema, bypassed=["region"])}["sex"] == 1


@pytest.mark.parametrize(
    ("area", "told"),
    [
        ("W1", 'there is no area "W1". Fix: did you mean "R0W1", "R1W1"? Geocodes of all areas are in spine.parquet'),
        ("R0W9", 'there is no area "R0W9". Fix: did you mean "R0W'),
        ("nowhere", 'there is no area "nowhere". Fix: Geocodes of all areas are in spine.parquet'),
    ],
)
def test_an_area_that_is_not_there_is_told_with_those_that_were_meant(
    folder: Path, capsys: pytest.CaptureFixture[str], area: str, told: str
) -> None:
    assert run(["topdown", "interval", str(folder / "measured"), "--area", area, "--area", "R0W0", "--quiet"]) == 2
    assert told in capsys.readouterr().err


def test_an_interval_says_its_level_unrounded_and_each_area_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["topdown", "interval", str(folder / "measured"), "--level", "0.999999", "--quiet"]
    assert run([*asked, "--area", "R0W1", "--area", "R0W1"]) == 0
    told = capsys.readouterr().out
    assert "everybody in R0W1\n" in told
    assert "(99.9999%, " in told
    assert run([*asked, "--area", "R0", "--area", "R0W1"]) == 2
    assert "'--area' has \"R0\" and also areas inside it" in capsys.readouterr().err


def test_a_release_without_measurements_is_not_called_a_wrong_path(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = tmp_path / "public"
    public.mkdir()
    (public / "specification.json").write_bytes((folder / "measured/public/specification.json").read_bytes())
    assert run(["topdown", "interval", str(tmp_path), "--quiet"]) == 2
    assert "this release has no measurements" in capsys.readouterr().err


def test_a_file_of_attributes_is_a_schema_of_budgets_as_of_estimates(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('rho = "1"\n[levels]\nall = 1\n[queries]\ndetailed = 1\n', encoding="utf-8")
    assert run(["topdown", "budget", str(budget), "--schema", str(folder / "reversed.toml")]) == 0
    assert "by sex x age" in capsys.readouterr().out
