"""Noisy tables from the plan to the public folder: ledger, bundle, report, audit, publishing, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.tables.engine import TableMechanism
from stirred.release.ledger import Ledger
from stirred.release.publish import PublishError, publish
from stirred.spec.document import from_json
from tests.world import (
    CODEBOOK_OF_HOMES,
    assert_refused,
    files_in,
    households,
    manifest,
    persons,
    sha256,
    stirred,
)

# A county where nobody lives is declared too.
CODEBOOK = CODEBOOK_OF_HOMES.replace('West = ""', 'West = "", Nowhere = ""').replace(
    'owned = "owned", rented = "rented"', 'owned = "in its own house", rented = "rented"'
)
AGES = '[[variables]]\nname = "{0}"\nfile = "persons"\ntype = "integer"\nmin = 0\nmax = {1}\n'
CODEBOOK += AGES.format("old", 1) + AGES.format("age", 120) + '[link]\nhid = "hid"\n'
PLAN = """
[data]
households = "homes.parquet"
persons = "people.parquet"
hid = "hid"
codebook = "codebook.toml"
[mechanism]
name = "noisy-tables"
rho = "1/2"
persons = 3
keep = ["county"]
consistent = true
rounded = 1
nonnegative = true
sums = [{ column = "age", by = ["county"], low = 0, high = 90 }]
[[tables]]
variables = ["county", "tenure"]
[[tables]]
variables = ["tenure", "size"]
name = "homes"
[[tables]]
variables = ["county", "old"]
[release]
out = "out"
ledger = "ledger.db"
"""
SIMPLE = """
[data]
file = "homes.parquet"
record = "person"
codebook = "codebook.toml"
[mechanism]
name = "noisy-tables"
noise = "laplace"
epsilon = 1
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, the plans, and the bundle of one of them with its entry in the ledger; tests get copies."""
    folder = tmp_path_factory.mktemp("made")
    homes = households(300)
    homes.write_parquet(folder / "homes.parquet")
    people = persons(homes).with_columns(old=(pl.col("age") > 60).cast(pl.Int64))
    people.drop("pid").write_parquet(folder / "people.parquet")
    (folder / "codebook.toml").write_text(CODEBOOK, encoding="utf-8")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    (folder / "simple.toml").write_text(SIMPLE, encoding="utf-8")
    Ledger.create(str(folder / "ledger.db"), dataset="homes")
    done = stirred("release", "plan.toml", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    shutil.move(tmp_path / "out", tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bundle(folder: Path) -> Path:
    return folder / "bundle"


def test_the_whole_path_through_ledger_audit_and_publishing(bundle: Path, folder: Path) -> None:
    (entry,) = Ledger.open("ledger.db").entries()
    promised = from_json((bundle / "public/specification.json").read_text(encoding="utf-8"))
    assert entry.mechanism == "noisy-tables"
    assert entry.specification == promised
    assert promised.notation == "ρ²=0.5-DP(X_homes, D_c, d_HamS^household, D_NoR)"
    result = audit_bundle(bundle)
    assert result.passed, result.problems
    assert "budget ρ²=0.5: computed anew from the settings" in result.checks
    assert "tables add up to what is published exactly" in result.checks
    assert sum("all else follows from its numbers" in check for check in result.checks) == 4
    publish(bundle, folder / "published")
    alone = audit_bundle(folder / "published")
    assert alone.passed, alone.problems
    assert "budget ρ²=0.5: computed anew from the settings" in alone.checks
    again = stirred("plan", "plan.toml", cwd=folder)
    assert again.returncode == 2
    assert "more-runs:1" in again.stdout


def test_the_files_are_tables_with_labels_intervals_and_what_is_kept(bundle: Path) -> None:
    public = bundle / "public"
    assert sorted(path.name for path in (public / "tables").iterdir()) == [
        "county-x-old.csv",
        "county-x-tenure.csv",
        "homes.csv",
        "sum-of-age-by-county.csv",
    ]
    assert not [*public.glob("data.*"), *public.glob("persons.*")]
    table = pl.read_csv(public / "tables/county-x-tenure.csv")
    agreeing = ["consistent", "consistent_variance", "adjusted"]
    assert table.columns == ["county", "tenure", "tenure_label", "count", "variance", "low", "high", *agreeing]
    assert table["county"].unique().sort().to_list() == ["East", "North", "Nowhere", "South", "West"]
    kept = pl.read_parquet(public / "invariants.parquet")
    truth = households(300).group_by("county").len("count").cast({"count": pl.Int64})
    assert kept.filter(pl.col("count") > 0).select("county", "count").sort("county").equals(truth.sort("county"))
    sums = table.group_by("county").agg(pl.col("count").sum()).sort("county")
    assert sums.equals(kept.select("county", "count").sort("county"))
    drawn = [pl.read_parquet(path) for path in sorted((bundle / "internal/noise").iterdir())]
    assert [frame["table"][0] for frame in drawn] == [
        "county x tenure",
        "tenure x size",
        "county x old",
        "sum of age by county",
    ]
    people = pl.read_parquet("people.parquet").join(households(300), on="hid")
    ages = people.group_by("county").agg(pl.col("age").clip(0, 90).sum()).sort("county")
    found = drawn[3].filter(pl.col("county") != "Nowhere").sort("county")
    assert found["true"].to_list() == ages["age"].to_list()


def test_pages_say_what_may_be_concluded_and_how_wide_intervals_are(bundle: Path) -> None:
    readme = (bundle / "public/README.md").read_text(encoding="utf-8")
    report = (bundle / "public/report.html").read_text(encoding="utf-8")
    for words in ("Counts may be negative", "at most 3 persons", "by county. Nothing else is", "cut off at 0"):
        assert words in readme
    assert "`tables/sum-of-age-by-county.csv`" in readme
    for words in ("Noise and intervals", "bounded neighbours, d_HamS^household", "count of 1,000", "After the noise"):
        assert words in report
    for page in ("conditioned on keeping county", "discrete Gaussian noise of variance parameter"):
        assert page in report


def test_the_public_folder_is_a_function_of_what_is_kept_and_of_noise(folder: Path, bundle: Path) -> None:
    """Another file with the same households by county and nothing else in common gives the same pages."""
    other = households(300).with_columns(tenure=pl.lit("owned"), size=pl.lit(2, dtype=pl.Int64))
    other.write_parquet(folder / "homes.parquet")
    text = PLAN.replace('out = "out"', 'out = "other"').replace('ledger = "ledger.db"', "")
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    changed = {
        name
        for name in files_in(bundle)
        if name.startswith("public/") and sha256(bundle / name) != sha256(folder / "other" / name)
    }
    tables = {f"public/tables/{path.name}" for path in (bundle / "public/tables").iterdir()}
    assert changed <= {*tables, "public/report.html", "public/specification.json", "public/specification.md"}
    reports = [(place / "public/report.html").read_text(encoding="utf-8") for place in (bundle, folder / "other")]
    before, after = (text.partition("<h3>")[0] for text in reports)
    assert before == after


def redone(bundle: Path) -> None:
    """Write the manifest anew, as somebody who changes files on purpose would."""
    content = manifest(bundle)
    content["files"] = {name: sha256(bundle / name) for name in sorted(files_in(bundle) - {"manifest.json"})}
    (bundle / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


def changed_table(bundle: Path, change: Any) -> None:
    path = bundle / "public/tables/county-x-tenure.csv"
    change(pl.read_csv(path)).write_csv(path)


def with_setting(bundle: Path, key: str, value: Any) -> None:
    content = manifest(bundle)
    content["plan"]["mechanism"][key] = value
    (bundle / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (lambda b: households(9).write_parquet(b / "public/data.parquet"), "records are published"),
        (lambda b: changed_table(b, lambda t: t.head(8)), "cells are missing"),
        (lambda b: changed_table(b, lambda t: t.with_columns(pl.col("count") / 3)), "its numbers are not whole"),
        (lambda b: changed_table(b, lambda t: t.with_columns(pl.col("high") + 1)), "high do not follow"),
        (lambda b: changed_table(b, lambda t: t.with_columns(pl.col("variance") / 2)), "variance do not follow"),
        (lambda b: changed_table(b, lambda t: t.with_columns(pl.col("consistent") + 0.1)), "consistent do not follow"),
        (lambda b: changed_table(b, lambda t: t.drop("adjusted")), "its columns are not"),
        (lambda b: (b / "public/tables/homes.csv").unlink(), "the tables are not those of the plan"),
        (lambda b: (b / "public/tables/sum-of-age-by-county.csv").unlink(), "the tables are not those of the plan"),
        (lambda b: with_setting(b, "rho", "1/4"), "it says 0.5 "),
        (lambda b: with_setting(b, "keep", []), "it says another keep"),
        (
            lambda b: (
                pl.read_parquet(b / "public/invariants.parquet")
                .with_columns(pl.col("count") + 1)
                .write_parquet(b / "public/invariants.parquet")
            ),
            "does not add up to the county",
        ),
    ],
)
def test_what_was_changed_is_found_by_audit_and_publishing(bundle: Path, folder: Path, tamper: Any, what: str) -> None:
    tamper(bundle)
    redone(bundle)
    result = audit_bundle(bundle)
    assert any(what in problem.what for problem in result.problems), result.problems
    with pytest.raises(PublishError):
        publish(bundle, folder / "published")


def test_a_bundle_with_intervals_of_an_earlier_version_is_still_read(bundle: Path) -> None:
    for path in (bundle / "public/tables").glob("*.csv"):
        table = pl.read_csv(path)
        around = {"consistent_low": pl.col("consistent") - 1, "consistent_high": pl.col("consistent") + 1}
        table.with_columns(**around).write_csv(path)
    redone(bundle)
    result = audit_bundle(bundle)
    assert not result.problems
    assert any("consistent_high, consistent_low of county x tenure: an earlier" in each for each in result.unchecked)


def test_the_exact_number_of_records_is_published_where_tables_agree_with_it(folder: Path) -> None:
    text = SIMPLE.replace("epsilon = 1", "epsilon = 1\nconsistent = true") + '[[tables]]\nvariables = ["county"]\n'
    (folder / "simple.toml").write_text(text, encoding="utf-8")
    assert command(["release", "simple.toml", "--quiet"]) == 0
    public = folder / "out/public"
    assert pl.read_parquet(public / "invariants.parquet").rows() == [("total", 300)]
    for path in (public / "tables").iterdir():
        assert pl.read_csv(path)["consistent"].sum() == pytest.approx(300, abs=1e-4)
    assert not audit_bundle(folder / "out").problems
    exact = pl.read_parquet(public / "invariants.parquet").with_columns(pl.col("count") + 1)
    exact.write_parquet(public / "invariants.parquet")
    redone(folder / "out")
    assert any("consistent do not follow" in each.what for each in audit_bundle(folder / "out").problems)


def test_a_table_that_is_not_what_was_drawn_never_appears(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TableMechanism.write_internal

    def other(mechanism: Any, release: Any, written: Any, **notes: Any) -> None:
        drawn = {title: frame.with_columns(pl.col("noise") + 1) for title, frame in release.internal["drawn"].items()}
        write(mechanism, replace(release, internal={"drawn": drawn}), written, **notes)

    monkeypatch.setattr(TableMechanism, "write_internal", other)
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare
    from stirred.release.run import run

    with pytest.raises(VerificationError):
        run(prepare(read_plan(Path("simple.toml"))))
    assert not (folder / "out").exists()


def test_a_flat_file_of_persons_has_the_person_as_unit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["plan", "simple.toml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["specification"]["input_premetric"]["unit"] == "person"
    assert told["epsilon"] == 1
    assert told["noisy_tables"][0]["noise"] == "discrete Laplace noise, loss 1/2 for each unit"
    (folder / "simple.toml").write_text(SIMPLE.replace('"laplace"\nepsilon', '"gaussian"\nrho'), encoding="utf-8")
    assert command(["plan", "simple.toml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rho2"] == 1
    assert "epsilon" not in told


def test_the_command_line_is_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["homes.parquet", "--mechanism", "noisy-tables", "--set", "unit=person", "--codebook", "codebook.toml"]
    options += ["--set", "noise=laplace", "--set", "epsilon=1", "--table", "county x tenure"]
    assert command(["plan", *options, "--json"]) == 0
    by_options = json.loads(capsys.readouterr().out)
    assert command(["plan", "simple.toml", "--json"]) == 0
    by_plan = json.loads(capsys.readouterr().out)
    assert by_options["noisy_tables"] == by_plan["noisy_tables"]
    assert by_options["specification"]["budget"] == by_plan["specification"]["budget"]
    precise = ["--set", 'precision=[{"table": "county x tenure", "within": 50}]']
    assert command(["plan", *options[:7], *precise, "--table", "county x tenure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noisy_tables"][0]["half_width"] == 50


@pytest.mark.parametrize(
    "settings",
    [
        ["rho=1/2"],
        ["noise=laplace", "epsilon=1"],
        ["rho=1", "keep=total"],
        ["noise=geometric", "epsilon=1", "persons=2"],
    ],
    ids=str,
)
def test_the_contract_audit_passes_from_the_command_line(folder: Path, settings: list[str]) -> None:
    done = stirred("audit", "mechanism", "noisy-tables", *(w for s in settings for w in ("--set", s)), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "No violation" in done.stdout


def test_cells_of_a_draft_refuse(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = CODEBOOK.replace('title = "Homes"', 'title = "Homes"\ndraft = true')
    (folder / "codebook.toml").write_text(draft, encoding="utf-8")
    assert command(["plan", "simple.toml", "--json"]) == 2
    assert "draft:county+tenure" in [each["name"] for each in json.loads(capsys.readouterr().out)["doubts"]]
    values = 'values = { county = ["East", "North", "South", "West"], tenure = ["owned", "rented"] }\nnoise ='
    (folder / "simple.toml").write_text(SIMPLE.replace("noise =", values), encoding="utf-8")
    assert command(["plan", "simple.toml", "--json"]) == 0, "declared in the plan itself"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('codebook = "codebook.toml"', 'id = ["hid"]'), "which values it can take was not declared"),
        (("epsilon = 1", ""), "epsilon: is needed"),
        (("epsilon = 1", "rho = 1"), "laplace noise has no rho"),
        (('noise = "laplace"', 'noise = "normal"'), "'gaussian', 'laplace' or 'geometric'"),
        (('variables = ["county", "tenure"]', 'variables = ["county", "age"]'), 'there is no column "age"'),
        (("epsilon = 1", "epsilon = 1\nkeep = ['county x tenure']"), "published exactly by keep"),
        (("epsilon = 1", "epsilon = 1\nprecisoin = 3"), "did you mean 'precision'?"),
        (("epsilon = 1", "epsilon = 1\nsums = [{column = 'size', hihg = 3}]"), "hihg"),
        (("[[tables]]\n", ""), "variables"),
    ],
)
def test_plans_that_make_no_sense_are_refused(folder: Path, change: tuple[str, str], what: str) -> None:
    assert_refused(folder, SIMPLE.replace(*change), what)


def test_a_test_run_is_marked_and_never_published(folder: Path) -> None:
    assert command(["release", "simple.toml", "--seed", "1", "--quiet"]) == 0
    result = audit_bundle(folder / "out")
    assert result.passed, result.problems
    with pytest.raises(PublishError, match="test run"):
        publish(folder / "out", folder / "published")
