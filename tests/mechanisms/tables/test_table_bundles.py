"""SafeTab and PHSafe through plan, ledger, bundle, audit and publication, by the contract alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run
from stirred.data.bundle import published_specification
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import PublicTable, VerificationError
from stirred.mechanisms.tables.budgets import REFERENCE
from stirred.mechanisms.tables.query import DECIMAL, Column, Columns
from stirred.mechanisms.tables.safetab import SafeTabP
from stirred.release.ledger import Ledger
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run as carry_out
from stirred.spec.document import from_document
from stirred.spec.doubts import DoubtError
from tests.golden.make import SET
from tests.mechanisms.tables.toy import BLOCKS, HOUSEHOLDS, ITERATIONS, PERSONS, RESIDENTS, UNITS

PLANS = {
    "p": '[data]\nfile = "persons.csv"\n[mechanism]\nname = "safetab-p"\nbudget = "budget.toml"\n',
    "h": '[data]\nhouseholds = "households.csv"\n[mechanism]\nname = "safetab-h"\ntotals = "p/public/t1.parquet"\n',
    "s": '[data]\nhouseholds = "units.csv"\npersons = "residents.csv"\nhid = "hid"\n[mechanism]\nname = "phsafe"\n'
    'states = "S"\n',
}
GROUPS = 'blocks = "blocks.csv"\niterations = "iterations.csv"\nraces = ["race1", "race2"]\n'


def toy_toml() -> str:
    """Return the budget of 2020 with thresholds that ten persons can reach, as a reader would write it."""
    text = REFERENCE.joinpath("us-2020-p.toml").read_text(encoding="utf-8")
    for old in ("[4971, 19971, 149971]", "[471, 971, 6971]", "[971, 4971, 19971]"):
        text = text.replace(old, "[3, 5, 8]")
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three releases of the toy census in one ledger."""
    place = tmp_path_factory.mktemp("toy")
    files = {"persons": PERSONS.drop("hid"), "households": HOUSEHOLDS.drop("hid"), "units": UNITS}
    files |= {"residents": RESIDENTS, "blocks": BLOCKS, "iterations": ITERATIONS}
    for name, frame in files.items():
        frame.write_csv(place / f"{name}.csv")
    (place / "budget.toml").write_text(toy_toml(), encoding="utf-8")
    Ledger.create(place / "toy.ledger", dataset="toy census")
    for name, text in PLANS.items():
        groups = "" if name == "s" else GROUPS
        named = text.replace("[data]\n", '[data]\nname = "toy census"\n')
        plan = f'{named}{groups}[release]\nout = "{name}"\nledger = "toy.ledger"\n'
        (place / f"{name}.toml").write_text(plan, encoding="utf-8")
        carry_out(prepare(read_plan(place / f"{name}.toml")))
    return place


@pytest.mark.parametrize(("name", "files"), [("p", ["t1", "t2"]), ("h", ["t3", "t4"]), ("s", ["counts", "ratios"])])
def test_a_release_is_audited_and_published(folder: Path, name: str, files: list[str], tmp_path: Path) -> None:
    found = audit_bundle(folder / name)
    assert found.passed, found.problems
    assert any("computed anew from the settings" in check for check in found.checks)
    assert sorted(path.stem for path in (folder / name / "public").glob("*.parquet")) == files
    assert run(["publish", str(folder / name), str(tmp_path / "out"), "--as", "site"]) == 0
    published = audit_bundle(tmp_path / "out")
    assert published.passed
    assert any("do not state all settings" in each for each in published.unchecked)
    assert not any("true" in pl.read_parquet_schema(path) for path in (folder / name / "public").glob("*.parquet"))


def test_the_ledger_adds_up_the_promises_by_structure(folder: Path) -> None:
    entries = Ledger.open(folder / "toy.ledger").entries()
    losses = [entry.specification.budget.shown for entry in entries if entry.specification is not None]
    assert losses == ["9.888", "17.80", "0.489"]


def test_manifest_and_specification_keep_checksums_of_public_tables(folder: Path) -> None:
    inside = json.loads((folder / "h" / "manifest.json").read_text(encoding="utf-8"))["plan"]["mechanism"]["totals"]
    outside = json.loads((folder / "h" / "public" / "specification.json").read_text(encoding="utf-8"))["mechanism"]
    assert inside["file"] == "p/public/t1.parquet"
    totals = outside["settings"]["totals"]
    assert (totals["file"], totals["sha256"]) == ("t1.parquet", inside["sha256"])
    first = published_specification(folder / "p" / "public")
    assert from_document(totals["specification"]) == first
    own = published_specification(folder / "h" / "public")
    assert own is not None
    named = f"those of 'Release of toy census', which promises ρ²=9.888 (t1.parquet, SHA-256 {inside['sha256']})"
    assert any(named in each for each in own.assumptions)
    budget = json.loads((folder / "p" / "manifest.json").read_text(encoding="utf-8"))["plan"]["mechanism"]["budget"]
    assert budget["parts"][0]["rho"] == "0.008"  # the numbers themselves, whatever becomes of the file


def test_a_changed_number_in_the_budget_file_changes_promise_and_intervals(folder: Path) -> None:
    text = (folder / "budget.toml").read_text(encoding="utf-8")
    (folder / "half.toml").write_text(text.replace('"2.134"', '"1.067"'), encoding="utf-8")
    plan = (folder / "p.toml").read_text(encoding="utf-8").replace("budget.toml", "half.toml")
    plan = plan.replace('out = "p"', 'out = "half"').replace('ledger = "toy.ledger"\n', "")
    (folder / "half-plan.toml").write_text(plan, encoding="utf-8")
    before, after = (prepare(read_plan(folder / f"{name}.toml")).plan for name in ("p", "half-plan"))
    assert (before.specification.budget.shown, after.specification.budget.shown) == ("9.888", "5.62")
    lines = [{e["what"]: e["within_95"] for e in plan.facts[0].values["measured"]} for plan in (before, after)]
    assert lines[1]["USA level 2, groups"] > lines[0]["USA level 2, groups"]
    assert lines[1]["USA level 1, tables"] == lines[0]["USA level 1, tables"]


def test_a_table_that_is_not_the_sum_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = (folder / "p.toml").read_text(encoding="utf-8").replace('out = "p"', 'out = "wrong"')
    (folder / "wrong.toml").write_text(plan.replace('ledger = "toy.ledger"\n', ""), encoding="utf-8")
    answered = SafeTabP.answered

    def wrong(self: SafeTabP, *given: object) -> dict[str, pl.DataFrame]:
        tables = answered(self, *given)  # type: ignore[arg-type]
        return {**tables, "t1": tables["t1"].with_columns(pl.col("count") + 1)}

    monkeypatch.setattr(SafeTabP, "answered", wrong)
    with pytest.raises(VerificationError, match="a total in t1 is not the sum of its table in t2"):
        carry_out(prepare(read_plan(folder / "wrong.toml")))
    assert not (folder / "wrong").exists()


def test_single_commands_read_public_tables_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    given = [f"--set={setting}" for setting in ("blocks=blocks.csv", "iterations=iterations.csv", "races=race1,race2")]
    assert run(["plan", "persons.csv", "--mechanism", "safetab-p", "--set", "unit=person", *given]) == 0
    assert run(["audit", "mechanism", "safetab-p", *given, "--set", "budget=one.toml"]) == 2
    one = (
        toy_toml().partition("parts = [")[0]
        + 'parts = [{ region = "USA", level = 1, rho = "1", thresholds = [3, 5, 8] }]'
    )
    (folder / "one.toml").write_text(one, encoding="utf-8")
    assert run(["audit", "mechanism", "safetab-p", *given, "--set", "budget=one.toml"]) == 0


def test_public_tables_that_are_not_there_are_told_by_the_plan(folder: Path) -> None:
    plan = (folder / "h.toml").read_text(encoding="utf-8")
    (folder / "none.toml").write_text(plan.replace("p/public/t1", "nowhere"), encoding="utf-8")
    with pytest.raises(PlanError, match=r"nowhere\.parquet: there is no such file"):
        prepare(read_plan(folder / "none.toml"))
    (folder / "bad.toml").write_text(plan.replace('blocks = "blocks.csv"', "blocks = 3"), encoding="utf-8")
    with pytest.raises(PlanError, match="blocks: 3"):
        prepare(read_plan(folder / "bad.toml"))


def test_totals_that_belong_to_no_release_are_refused(folder: Path) -> None:
    """They choose the tables, and may be the true ones."""
    pl.read_parquet(folder / "p/public/t1.parquet").write_csv(folder / "true.csv")
    plan = (folder / "h.toml").read_text(encoding="utf-8")
    (folder / "true.toml").write_text(plan.replace("p/public/t1.parquet", "true.csv"), encoding="utf-8")
    with pytest.raises(PlanError, match=r"true\.csv: it belongs to no release that states what it promises"):
        prepare(read_plan(folder / "true.toml"))
    (folder / "other.toml").write_text(plan.replace("toy.ledger", "other.ledger"), encoding="utf-8")
    Ledger.create(folder / "other.ledger", dataset="toy census")
    with pytest.raises(DoubtError, match="which is not a release in the ledger of 'toy census'"):
        prepare(read_plan(folder / "other.toml")).refuse()


def test_a_public_table_is_a_name_a_kept_name_or_a_frame() -> None:
    assert PublicTable.of("a.csv") == PublicTable("a.csv")
    assert PublicTable.of({"file": "a.csv", "sha256": "12"}) == PublicTable("a.csv", "12")
    assert PublicTable.of(pl.DataFrame({"a": [1]})).frame["a"].to_list() == ["1"]
    assert PublicTable("synthetic").read(Path("nowhere")) == PublicTable("synthetic")


def test_a_table_without_rows_is_published_as_such(folder: Path, tmp_path: Path) -> None:
    """With the thresholds of 2020 no group of ten persons gets a table by age."""
    plan = (folder / "p.toml").read_text(encoding="utf-8").replace('budget = "budget.toml"\n', "")
    plan = plan.replace('out = "p"', 'out = "few"').replace('ledger = "toy.ledger"\n', "")
    (folder / "few.toml").write_text(plan, encoding="utf-8")
    bundle = carry_out(prepare(read_plan(folder / "few.toml")))
    assert pl.read_parquet(bundle / "public" / "t2.parquet").height == 0
    assert audit_bundle(bundle).passed
    assert run(["publish", str(bundle), str(tmp_path / "out"), "--as", "site"]) == 0


@pytest.mark.parametrize(
    "name", ["noisy-tables", "cell-keys", "safetab", "safetab-households", "phsafe", "survey-estimates"]
)
def test_records_in_a_bundle_of_tables_are_found(name: str, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(SET / name / "bundle", tmp_path / "bundle"))
    PERSONS.write_parquet(bundle / "public" / "data.parquet")
    problems = audit_bundle(bundle).problems
    assert any("records are published, and the promise is about tables alone" in each.what for each in problems)


@pytest.mark.parametrize(
    ("column", "passes"),
    [(Column(pl.Float64(), "from_later"), True), (Column(pl.Float64(), "earlier"), True), (DECIMAL, False)],
)
def test_a_bundle_from_before_a_column_was_added_passes(
    column: Column, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = shutil.copytree(SET / "safetab" / "bundle", tmp_path / "bundle")
    columns: dict[str, Columns] = {**SafeTabP.columns, "t1": {**SafeTabP.columns["t1"], "median": column}}
    monkeypatch.setattr(SafeTabP, "columns", columns)
    found = audit_bundle(bundle).problems
    assert bool(found) is not passes
    assert passes or "its columns are not those of this mechanism" in found[0].what
