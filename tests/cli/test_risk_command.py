"""`stirred risk` on files, plans and bundles: the same numbers everywhere, and clear refusals."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run

PLAN = """
[data]
households = "households.parquet"
hid = "hid"
persons = "persons.parquet"
id = ["pid"]
[mechanism]
name = "permutation-swap"
match = ["state", "size"]
swap = ["county", "tract", "block_group", "block"]
rate = "1/10"
[release]
out = "bundle"
"""


@pytest.fixture(scope="module")
def census(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("risk") / "census"
    assert run(["synth", "census", "--households", "1000", "--seed", "1", "--out", str(folder), "--quiet"]) == 0
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert run(["release", str(folder / "plan.toml"), "--seed", "test", "--quiet"]) == 0
    return folder


def asked(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["risk", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_plan_and_bundle_have_the_same_uniqueness(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned, published = (asked(capsys, census / name) for name in ("plan.toml", "bundle"))
    assert planned["uniqueness"] == published["uniqueness"]
    assert (planned["public"], published["public"]) == (False, True)
    assert planned["minimal_unique_combinations"] == published["minimal_unique_combinations"]


def test_a_plan_says_whom_it_exposes_in_one_line(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    share = asked(capsys, census / "plan.toml")["uniqueness"]["share_unique"]
    assert run(["plan", str(census / "plan.toml")]) == 0
    line = " ".join(capsys.readouterr().out.split())
    assert f"exposed {100 * float(str(share)):.1f}% of the households are unique on what is published unchanged" in line
    assert run(["plan", str(census / "plan.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exposed"]["share_unique"] == share


def test_both_editions_of_the_report_show_it(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    share = float(str(asked(capsys, census / "bundle")["uniqueness"]["share_unique"]))
    for edition in ("public", "internal"):
        page = (census / "bundle" / edition / "report.html").read_text(encoding="utf-8")
        assert "How exposed people are" in page
        assert f"{100 * share:.1f}% of the households are unique" in page


def test_keys_of_persons_count_persons_with_their_households_columns(
    census: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    homes, people = (pl.read_parquet(census / f"{name}.parquet") for name in ("households", "persons"))
    files = [census / "households.parquet", "--persons", census / "persons.parquet", "--hid", "hid"]
    found = asked(capsys, *files, "--keys", "block,age", "--keys", "sex", "--sensitive", "race")
    joined = people.join(homes.select("hid", "block"), on="hid")
    assert found["uniqueness"]["of"] == "persons"
    assert found["uniqueness"]["unique"] == joined.select("block", "age", "sex").is_unique().sum()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "it is not known what of this file would be published unchanged"),
        (["--keys", "agee"], 'there is no column "agee"'),
        (["--keys", "size", "--sensitive", "size"], "is a key"),
        (["--keys", "size", "--weight", "gq_type"], "below 1"),
        (["--keys", "size", "--weight", "size", "--population", "households.parquet"], "the same question"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    census: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(census)
    errors = asked(capsys, "households.parquet", *options, code=2)["errors"]
    assert said in str(errors)


def test_options_of_files_are_refused_beside_a_bundle(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the bundle says this already" in str(asked(capsys, census / "bundle", "--hid", "hid", code=2))


def test_both_exact_tables_of_a_swap_reveal_little_and_the_saturated_one_everything(
    census: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = asked(capsys, census / "plan.toml")["revealed"]
    assert known == asked(capsys, census / "bundle")["revealed"]
    assert known["records"] == 1000
    assert 0 < known["tables"][0] < known["tables"][1]
    files = [census / "households.parquet", "--keys", "size"]
    whole = asked(capsys, *files, "--margin", "size x tenure")["bounds"]
    assert (whole["determined"], whole["certain_records"], whole["tables"]) == (whole["cells"], 1000, 1)
    parts = asked(capsys, *files, "--margin", "size", "--margin", "tenure")["bounds"]
    assert parts["certain_records"] < 1000
    assert parts["proven"]


def test_unknown_columns_of_margins_and_targets_are_refused(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--margin", "size x sizes"), ("--target", "countys")):
        errors = asked(capsys, census / "households.parquet", "--keys", "size", option, value, code=2)["errors"]
        assert errors[0]["where"] == option


def test_reconstruction_agrees_with_the_file_whose_tables_were_published(
    census: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def attack(*arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        assert run(["attack", *map(str, arguments), "--quiet", "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    files = [census / "households.parquet", "--persons", census / "persons.parquet", "--hid", "hid"]
    whole = attack(*files, "--out", tmp_path / "whole")
    released = attack(census / "bundle", "--out", tmp_path / "released")
    against = attack(census / "bundle", "--truth", census / "plan.toml", "--out", tmp_path / "against")
    assert set(whole["areas_by_outcome"]) <= {"one", "several"}
    assert 0 < whole["share_of_persons_in_them"] < whole["share_of_persons_certain"] < whole["agreement"] < 1
    # A tenth of the households moved: what is found is the released file, and less of the truth.
    assert (whole["public"], released["public"], against["public"]) == (False, True, False)
    assert released["variability"] == against["variability"]
    assert against["agreement"] < released["agreement"] - 0.05
    records = pl.read_parquet(tmp_path / "whole" / "records.parquet")
    assert records["persons"].sum() == whole["persons"]
    assert records["certain"].sum() / whole["persons"] == whole["share_of_persons_certain"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tables", "sf2"], "is no list of tables"),
        (["--area", "blok"], 'there is no column "blok"'),
        (["--persons", "no.parquet", "--hid", "hid"], "there is no such file"),
        ([], "there is no column"),
    ],
)
def test_attacks_that_cannot_be_made_are_refused_and_nothing_is_written(
    census: Path, options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "attack"
    assert run(["attack", str(census / "households.parquet"), "--out", str(out), *options, "--json"]) == 2
    assert said in capsys.readouterr().out.replace("\\", "")
    assert not out.exists()
