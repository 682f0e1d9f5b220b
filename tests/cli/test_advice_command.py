"""`stirred plan` with wishes, as a custodian uses it: what it proposes, writes, and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.advise import AdviseOptions, plan_of
from stirred.cli.main import run
from stirred.data.synth.census import CensusPlan, write_census
from stirred.release.advice import propose
from stirred.release.plan_file import read_plan, write_plan
from stirred.release.reading import mechanism_of

COUNTS = {"A": 900, "B": 90, "C": 10}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [(c, size) for c, n in COUNTS.items() for size in (1, 2) for _ in range(n)]
    homes = pl.DataFrame(rows, schema=["county", "size"], orient="row").with_row_index("hid")
    homes = homes.with_columns(tenure=pl.when(pl.col("hid") % 3 == 0).then(pl.lit("owned")).otherwise(pl.lit("rented")))
    homes.write_parquet(tmp_path / "homes.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASK = ["advise", "homes.parquet", "--swap", "county", "--id", "hid"]


def test_the_proposal_comes_with_the_five_answers_and_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--exact", "county x size", "--epsilon", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Proposed: conditioned, uniform, rate ")
    words = " ".join(out.split())
    assert "county x size" in words
    assert "all met" in words
    for question in ("who", "where", "what", "how", "how much"):
        assert words.count(f"({question})") == 1
    for member in ("permutation", "shuffle", "mallows", "proportional"):
        assert member in out
    assert "Nothing was written." in out
    assert run([*ASK, "--exact", "county x size", "--epsilon", "3", "--verbose"]) == 0
    explained = capsys.readouterr().out
    for question in ("who", "where", "what", "how", "how much"):
        assert f"\n{question}  " in explained
    assert sorted(path.name for path in folder.iterdir()) == ["homes.parquet"]


def test_json_carries_all_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--epsilon", "3", "--undisturbed", "C", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["meets_all"] is False
    assert facts["proposal"] is None
    assert facts["specification"] is None
    assert facts["wishes"] == {
        "swap": ["county"],
        "exact": [],
        "epsilon": "3",
        "undisturbed": ["C"],
        "at_most": "1/10",
        "changed": "1/20",
    }
    assert len(facts["proposals"]) == 5
    for each in facts["proposals"]:
        assert each["shortfalls"] or each["meets_all"]
        assert each["undisturbed"][0]["area"] == "C"
        assert each["smallest_area"]["records"] == 20
    assert "concessions" not in facts
    assert run([*ASK, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["meets_all"] is True
    assert facts["proposal"]["share_changed"] >= 0.05
    assert facts["specification"]["budget"]["realised"] == facts["proposal"]["epsilon"]
    assert facts["specification"]["settings_from"] == "invariants"


def test_the_written_plan_is_carried_out_and_keeps_what_must_be_exact(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*ASK, "--exact", "county x size", "--epsilon", "3", "--table", "county x tenure"]
    assert run([*asked, "--write", "my plan.toml", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["written"] == "my plan.toml"
    plan = read_plan(Path("my plan.toml"))
    assert plan.mechanism.settings.settings_from == "invariants"
    assert plan.mechanism.settings.dumped()["rate"] == facts["proposal"]["settings"]["rate"]
    assert [table.variables for table in plan.tables] == [["county", "size"], ["county", "tenure"]]
    assert run(["release", "my plan.toml", "--quiet", "--seed", "x", "--json"]) == 0
    bundle = Path("my plan-bundle")
    specification = json.loads((bundle / "public/specification.json").read_text(encoding="utf-8"))
    assert specification["budget"]["realised"] == facts["proposal"]["epsilon"]
    exact = pl.read_csv(bundle / "public/tables/county-x-size.csv")
    assert exact.rows() == [(county, size, n) for county, n in COUNTS.items() for size in (1, 2)]


def test_a_plan_is_never_written_over_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.toml").write_text("mine", encoding="utf-8")
    assert run([*ASK, "--epsilon", "3", "--write", "plan.toml"]) == 2
    assert "something is already there" in capsys.readouterr().err
    assert Path("plan.toml").read_text(encoding="utf-8") == "mine"
    assert run([*ASK, "--epsilon", "3", "--write", "nowhere/plan.toml"]) == 2
    assert "its parent folder does not exist" in capsys.readouterr().err


def test_without_a_member_that_fits_nothing_is_written_and_the_table_says_what_each_falls_short_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wishes = [*ASK, "--epsilon", "1", "--undisturbed", "C"]
    assert run(wishes) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("No member meets all wishes")
    assert "> 10.0%" in out
    assert run([*wishes, "--write", "plan.toml"]) == 2
    assert "no member meets all wishes, so there is no plan to write" in capsys.readouterr().err
    assert not Path("plan.toml").exists()


def test_every_member_is_written_so_that_it_is_read_back_as_it_was(folder: Path) -> None:
    Path("plans").mkdir()
    homes = pl.read_parquet("homes.parquet").drop("hid")
    advice = propose(homes, swap="county", exact=["county x size"], epsilon=9)
    options = AdviseOptions(file=Path("homes.parquet"), swap=["county"], id=["hid"])
    for number, each in enumerate(advice.proposals):
        path = Path("plans") / f"{number}.toml"
        write_plan(
            plan_of(each.section, advice.wishes.exact, options, path),
            path,
            remarks=["a remark\nof two lines, with = and [brackets]"],
        )
        read = read_plan(path)
        assert mechanism_of(read) == each.mechanism
        assert read.records.exists(), "paths hold from the folder of the plan"
    assert len(advice.proposals) == 5


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--exact", "county x sise"], "--exact 'county x sise'"),
        (["--undisturbed", "Nantucket"], "--undisturbed 'Nantucket'"),
        (["--epsilon", "0"], "--epsilon"),
        (["--epsilon", "abc"], "--epsilon"),
        (["--at-most", "5%"], "--at-most"),
        (["--changed", "7"], "--changed"),
        (["--set", "redraw_law=uniform"], "--set redraw_law"),
        (["--geography", "county,size"], "--swap"),
        (["--exact", "county x size x tenure", "--hold", "size,tenure"], "hold"),
    ],
)
def test_wrong_wishes_are_refused_with_what_where_and_remedy(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], where: str
) -> None:
    assert run([*ASK, *options, "--json"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert where in [each["where"] for each in errors]
    assert all(each["what"] and each["remedy"] for each in errors)


def test_a_plan_has_no_wishes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--write", "plan.toml"]) == 0
    capsys.readouterr()
    assert run(["plan", "plan.toml", "--undisturbed", "C"]) == 2
    assert "`stirred plan --undisturbed` is now `stirred advise`" in capsys.readouterr().err
    assert run(["advise", "plan.toml", "--undisturbed", "C"]) == 2
    assert "the plan file already fixes match and swap" in capsys.readouterr().err


def test_a_file_with_nothing_to_swap_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    homes = pl.DataFrame({"county": ["A", "B"], "size": [1, 2], "tenure": ["owned", "rented"]})
    homes.write_csv("apart.csv")
    assert run(["advise", "apart.csv", "--swap", "county", "--exact", "county x size"]) == 2
    assert "nothing can be swapped: no group of records by size" in capsys.readouterr().err


def test_the_synthetic_census_with_its_persons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Persons' variables cannot be kept by area; household ones can, and the plan knows persons and codebook."""
    write_census(tmp_path / "census", plan=CensusPlan(households=3_000, seed=1))
    monkeypatch.chdir(tmp_path)
    ask = [
        "advise", "census/households.parquet", "--persons", "census/persons.parquet", "--hid", "hid", "--swap",
        "county", "--codebook", "census/codebook.toml", "--hold", "size,tenure,household_type,age,sex",
    ]  # fmt: skip
    assert run([*ask, "--exact", "county x age"]) == 2
    assert '"age" belongs to persons' in capsys.readouterr().err
    asked = [*ask, "--exact", "county x size", "--exact", "age x sex", "--epsilon", "6"]
    assert run([*asked, "--write", "p.toml", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["meets_all"]
    assert facts["match"] == ["size"]
    assert facts["proposal"]["epsilon"] <= 6
    plan = read_plan(Path("p.toml"))
    assert (plan.data.persons, plan.data.hid) == ("census/persons.parquet", "hid")
    assert run(["plan", "p.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == facts["proposal"]["epsilon"]
