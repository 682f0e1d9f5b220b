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


def test_an_identifier_is_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.csv"
    file.write_text("mark,a,b\n7,1,1\n8,1,1\n9,2,1\n", encoding="utf-8")
    found = asked(capsys, file, "--id", "mark", "--keys", "a,b")["uniqueness"]
    assert (found["keys"], found["unique"]) == (["a", "b"], 1)
    assert run(["risk", str(file), "--id", "mark"]) == 2
    assert 'what an attacker may know, of "a", "b"' in " ".join(capsys.readouterr().err.split())
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert run(["risk", str(tmp_path / "plan.toml"), "--id", "mark"]) == 2
    assert "--id: the plan says this already" in capsys.readouterr().err


def test_columns_of_persons_that_a_plan_drops_expose_nobody(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = census / "fewer.toml"
    plan.write_text(PLAN.replace("rate =", 'hold = ["tenure", "sex"]\nrate ='))
    found = asked(capsys, plan)["uniqueness"]
    assert found["keys"] == ["state", "size", "tenure", "sex"]
    assert found["unique"] < asked(capsys, census / "plan.toml")["uniqueness"]["unique"]


def test_unique_combinations_are_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a,b,c\n1,1,1\n1,1,2\n1,2,1\n2,1,1\n1,2,1\n1,1,1\n", encoding="utf-8")
    assert run(["risk", str(file), "--keys", "a,b,c"]) == 0
    assert "33.3% of the records are unique on 3 keys or fewer: 2 single values are unique" in " ".join(
        capsys.readouterr().out.split()
    )
    file.write_text("a,b\n1,1\n1,2\n2,1\n2,2\n3,1\n3,1\n4,2\n", encoding="utf-8")
    assert run(["risk", str(file), "--keys", "a,b"]) == 0
    assert "1 single value and 4 pairs of values are unique" in " ".join(capsys.readouterr().out.split())


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
        ([], 'name with --keys what an attacker may know, of "hid", "state"'),
        (["--keys", "size", "--population", "ten.csv"], "it has 10 records, and the sample 1,000"),
        (["--keys", "size,tenure", "--population", "other.csv"], "no value is one of the sample"),
        (["--keys", "agee"], 'there is no column "agee"'),
        (["--keys", "size", "--sensitive", "size"], "is a key"),
        (["--keys", "size", "--weight", "gq_type"], "weights that are 0, the first in record 1"),
        (["--keys", "size", "--weight", "size", "--population", "households.parquet"], "the same question"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    census: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(census)
    homes = pl.read_parquet("households.parquet")
    homes.head(10).write_csv("ten.csv")
    homes.with_columns(tenure=pl.lit("owned")).write_csv("other.csv")
    errors = asked(capsys, "households.parquet", *options, code=2)["errors"]
    assert said in str(errors)


def test_weights_below_one_are_counted_and_negative_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class has at least its own records in the population, as if its weights were 1."""
    file, rows = tmp_path / "s.csv", {"age": [1, 1, 2, 3], "w": [4.0, 6.0, 0.748, 5.0]}
    pl.DataFrame(rows).write_csv(file)
    found = asked(capsys, file, "--keys", "age", "--weight", "w")
    pl.DataFrame({**rows, "w": [4.0, 6.0, 1.0, 5.0]}).write_csv(file)
    whole = asked(capsys, file, "--keys", "age", "--weight", "w")
    assert found["uniqueness"]["expected_matches"] == whole["uniqueness"]["expected_matches"]
    assert "1 of 4 are below 1, the smallest 0.748 in record 3" in found["notes"][0]
    assert "normalised" not in found["notes"][0]
    assert whole["notes"] == []
    pl.DataFrame({**rows, "w": [1.2, 1.2, 0.8, 0.8]}).write_csv(file)
    assert "if they were normalised" in asked(capsys, file, "--keys", "age", "--weight", "w")["notes"][0]
    assert run(["risk", str(file), "--keys", "age", "--weight", "w"]) == 0
    assert "2 of 4 are below 1" in capsys.readouterr().out
    pl.DataFrame({**rows, "w": [4.0, -6.0, 0.5, -5.0]}).write_csv(file)
    errors = asked(capsys, file, "--keys", "age", "--weight", "w", code=2)["errors"]
    assert "has 2 negative weights, the first in record 2" in str(errors)
    assert "below 1" not in str(errors)
    pl.DataFrame({**rows, "w": ["4", "2", "x", "1"]}).write_csv(file)
    errors = asked(capsys, file, "--keys", "age", "--weight", "w", code=2)["errors"]
    assert "has 1 value that is not a number, the first in record 3" in str(errors)


def test_a_population_file_makes_what_is_found_of_a_bundle_confidential(
    census: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = [census / "bundle", "--keys", "size"]
    assert asked(capsys, *beside)["public"]
    assert not asked(capsys, *beside, "--population", census / "households.parquet")["public"]


def test_a_population_may_be_written_in_another_format(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    homes = pl.read_parquet(census / "households.parquet")
    homes.with_columns(pl.col("size").cast(pl.String)).write_parquet(census / "texts.parquet")
    homes.head(100).write_parquet(census / "sample.parquet")
    sample = [census / "sample.parquet", "--keys", "size,block", "--population"]
    found = [asked(capsys, *sample, census / f"{name}.parquet") for name in ("households", "texts")]
    assert found[0] == found[1]
    assert found[0]["uniqueness"]["population_uniques"] < found[0]["uniqueness"]["unique"]


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


@pytest.mark.parametrize("place", ["bundle/public/attack", "bundle/internal/attack"])
def test_results_of_attacks_are_never_written_into_a_release(
    census: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = found_again(capsys, census / "bundle", "--tables", "pl", "--out", census / place, code=2)["errors"]
    assert "must not stand in a release" in str(errors)
    assert not (census / place).exists()


def test_an_attack_speaks_of_the_records_that_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("firms.csv").write_text("region,industry,size\nN,A,1\nN,B,2\nN,B,2\n", encoding="utf-8")
    assert run(["attack", "firms.csv", "--out", "found", "--quiet"]) == 2
    assert 'no area is named, and there is no column "block"' in capsys.readouterr().err
    assert run(["attack", "firms.csv", "--area", "region", "--out", "found", "--quiet"]) == 2
    assert "or name tables of your own: --table 'sex x age'" in capsys.readouterr().err
    own = ["--area", "region", "--table", "industry x size"]
    assert run(["attack", "firms.csv", *own, "--out", "found", "--quiet"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "100.0% of 1 area has one solution, with 100.0% of 3 records" in told
    assert "person" not in told
    assert "written found: areas.parquet, records.parquet" in told


def found_again(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["attack", *map(str, arguments), "--quiet", "--json"]) == code
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def test_persons_are_found_in_records_and_in_tables_and_results_stay_inside(
    census: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [census / "households.parquet", "--persons", census / "persons.parquet", "--hid", "hid"]
    out = tmp_path / "own"
    own = found_again(capsys, *files, "--out", out, "--reidentify", "records")["reidentification"]
    assert own["persons"]["nonmodal unique"]["precision"] == 1
    kept = out / "internal" / "reidentification.json"
    assert (json.loads(kept.read_text(encoding="utf-8")), kept.stat().st_mode & 0o77) == (own, 0)
    assert {path.name for path in out.rglob("*.*")} == {kept.name}
    (tmp_path / "other").mkdir()
    errors = found_again(capsys, *files, "--out", tmp_path / "other", "--reidentify", "records", code=2)["errors"]
    assert "something else is already there" in str(errors)
    tables = found_again(
        capsys, *files, "--out", tmp_path / "tables", "--reidentify", "tables", "--made", "coverage=0.9"
    )
    persons = tables["reidentification"]["persons"]
    assert persons["nonmodal unique, one solution"]["precision"] == 1
    each = persons["one nonmodal unique in each area"]
    assert each["person_replaced"] < 0.4 < each["precision"]
    assert tables["reidentification"]["coverage"] == 0.9
    bundle = [census / "bundle", "--truth", census / "plan.toml", "--reidentify", "records"]
    released = found_again(capsys, *bundle, "--out", tmp_path / "released")
    assert "areas" not in released
    vulnerable = released["reidentification"]["persons"]["nonmodal unique"]
    # A tenth of the households moved: fewer are found, by their own record, and that is what makes them exposed.
    assert 0.8 < vulnerable["putative_rate"] < 0.97
    assert 0.8 < vulnerable["own_record"] <= vulnerable["precision"] < 1
    assert vulnerable["excess"] > 0.5


def test_a_real_attackers_file_finds_whom_a_made_one_finds(
    census: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    homes, people = (pl.read_parquet(census / f"{name}.parquet") for name in ("households", "persons"))
    real = people.join(homes, on="hid").select("block", "sex", "age", "hid", "pid", name=pl.lit("Somebody"))
    real.write_csv(tmp_path / "real.csv")
    bundle = [census / "bundle", "--truth", census / "plan.toml", "--reidentify", "records"]
    given = found_again(
        capsys, *bundle, "--out", tmp_path / "given", "--attacker", tmp_path / "real.csv", "--id", "hid,pid"
    )
    made = found_again(capsys, *bundle, "--out", tmp_path / "made")
    assert given["reidentification"]["persons"] == made["reidentification"]["persons"]
    assert given["reidentification"]["unknown_values"] == {}
    real.with_columns(age=pl.when(pl.col("age") < 20).then(199).otherwise("age")).write_csv(tmp_path / "odd.csv")
    odd = ["--attacker", tmp_path / "odd.csv", "--id", "hid,pid"]
    assert run(["attack", *map(str, [*bundle, *odd, "--out", tmp_path / "odd"]), "--quiet"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    young = real.filter(pl.col("age") < 20).height
    assert f'{young:,} rows of the attacker\'s file have a "age" that no confidential person has' in told
    assert "are alone there with sex and age:" in told
    assert "of the matches tell their race and hispanic" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--made", "coverage=0.5"], "there is nothing to match"),
        (["--reidentify", "names"], "cannot be matched to"),
        (["--reidentify", "records"], "only the confidential records say who was found"),
        (["--reidentify", "tables", "--tables", "pl", "--truth", "plan.toml"], "only in the tables of a summary file"),
        (["--reidentify", "tables", "--learn", "race", "--truth", "plan.toml"], "tables are matched by sex and age"),
        (["--reidentify", "records", "--learn", "rase", "--truth", "plan.toml"], 'there is no column "rase"'),
        (["--reidentify", "records", "--truth", "plan.toml", "--attacker", "bad.csv"], "belong together"),
        (["--reidentify", "records", "--truth", "plan.toml", "--attacker", "bad.csv", "--id", "pid"], "cannot be read"),
        (["--reidentify", "records", "--truth", "plan.toml", "--attacker", "no.csv", "--id", "pid"], "no such file"),
        (["--reidentify", "records", "--truth", "plan.toml", "--attacker", "few.csv", "--id", "pid"], 'column "sex"'),
        (["--reidentify", "records", "--truth", "plan.toml", "--attacker", "few.csv", "--id", "nid"], 'column "nid"'),
        (
            ["--reidentify", "records", "--truth", "plan.toml", "--attacker", "codes.csv", "--id", "hid,pid"],
            "no value is one of the confidential file",
        ),
        (
            ["--reidentify", "records", "--truth", "plan.toml", "--made", "coverage=0"],
            "nobody is in the attacker's file",
        ),
        (["--truth", "bundle"], "this is a release, not the confidential records"),
        (
            [
                "--reidentify",
                "records",
                "--truth",
                "plan.toml",
                "--attacker",
                "few.csv",
                "--id",
                "pid",
                "--made=coverage=.5",
            ],
            "a real file has its own coverage",
        ),
    ],
)
def test_persons_that_cannot_be_looked_for_are_refused_and_nothing_is_written(
    census: Path,
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(census)
    Path("bad.csv").write_text("pid,block,sex,age\n1,here,1,old\n", encoding="utf-8")
    Path("few.csv").write_text("pid,block,age\n1,1,20\n2,1,21\n", encoding="utf-8")
    people = pl.read_parquet("persons.parquet").join(pl.read_parquet("households.parquet"), on="hid")
    # Sexes written 7 and 8, and nobody matches: that must not read like protection.
    people.select("hid", "pid", "block", pl.col("sex") + 6, "age").write_csv("codes.csv")
    errors = found_again(capsys, "bundle", "--out", tmp_path / "out", *options, code=2)["errors"]
    assert said in str(errors)
    assert not (tmp_path / "out").exists()


def test_the_risks_of_records_add_up_to_what_is_found(
    census: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = pl.read_parquet(census / "persons.parquet").with_columns(pl.col("age") % 7 + 2.5).rename({"age": "w"})
    people.write_parquet(tmp_path / "sample.parquet")
    given = [tmp_path / "sample.parquet", "--keys", "sex,race,hispanic"]
    for number, more in enumerate((["--weight", "w"], [])):
        found = asked(capsys, *given, *more, "--records", out := tmp_path / f"{number}.parquet")["uniqueness"]
        rows = pl.read_parquet(out)
        assert rows["row"].to_list() == list(range(1, people.height + 1))
        assert rows.select("sex", "race").equals(people.select("sex", "race"))
        assert rows["risk"].sum() == pytest.approx(found["expected_matches"])
        assert rows.filter(pl.col("fk") == 1).height == found["unique"]
        assert oct(out.stat().st_mode & 0o777) == "0o600"
    own = people.with_columns(Fk=pl.col("w").sum().over("sex", "race", "hispanic"))
    assert pl.read_parquet(tmp_path / "0.parquet")["Fk"].to_list() == pytest.approx(own["Fk"].to_list())


@pytest.mark.parametrize(("name", "told"), [("a.txt", "neither CSV"), ("no/a.csv", "no such folder")])
def test_a_place_for_the_risks_of_records_is_checked_first(
    census: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    given = ["risk", str(census / "persons.parquet"), "--keys", "sex", "--records", str(tmp_path / name)]
    assert run(given) == 2
    assert told in capsys.readouterr().err
    public = census / "bundle" / "public" / "a.csv"
    assert run([*given[:-1], str(public)]) == 2
    assert "among public files" in capsys.readouterr().err
    assert not public.exists()
