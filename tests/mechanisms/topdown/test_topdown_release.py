"""The whole path: a plan of fifteen lines, ledger, bundle, audit, publication; and what is refused on the way."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.topdown import mechanism as acting
from stirred.mechanisms.topdown.measurements import MeasurementStore, measure
from stirred.release import run as running
from stirred.release.ledger import Ledger, LedgerError
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.publish import PublishError, publish
from stirred.release.run import resume, run
from tests.mechanisms.topdown.people import CODES, people, wards
from tests.release.tampering import frame, retell
from tests.world import files_in, manifest, sha256

PLAN = """[data]
file = "people.csv"
record = "person"
codebook = "codebook.toml"
[mechanism]
name = "topdown"
levels = ["region", "district", "ward"]
areas = "wards.csv"
attributes = ["sex", "age", "work"]
rho = "1/2"
queries = ["total", "sex * age", "detailed"]
totals = ["region"]
[release]
out = "out"
ledger = "a.ledger"
"""
VARIABLE = '[[variables]]\nname = "{}"\nfile = "households"\ntype = "code"\ncodes = {{ {} }}\n'


def codebook() -> str:
    areas = {name: map(str, wards()[name].unique().sort().to_list()) for name in wards().columns}
    codes = {name: ", ".join(f'"{code}" = ""' for code in each) for name, each in {**CODES, **areas}.items()}
    return "".join(VARIABLE.format(name, listed) for name, listed in codes.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    people().write_csv(tmp_path / "people.csv")
    wards().write_csv(tmp_path / "wards.csv")
    (tmp_path / "codebook.toml").write_text(codebook(), encoding="utf-8")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    Ledger.create(tmp_path / "a.ledger", dataset="people")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bundle(folder: Path) -> Path:
    assert command(["release", "plan.toml", "--quiet"]) == 0
    return folder / "out"


def test_the_number_of_all_records_is_exact_whatever_is_published(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The promise fixes it, and the report prints it: estimates use it, and its interval has width 0."""
    edited(folder, ('totals = ["region"]\n', 'publish = ["measurements", "estimates"]\n'))
    assert command(["release", "plan.toml", "--quiet"]) == 0
    readme = (folder / "out/public/README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([a-z_]+\.[a-z]+)`", readme):
        assert (folder / "out/public" / name).exists(), name
    assert "counts alone" not in readme
    capsys.readouterr()
    assert command(["topdown", "interval", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found["estimate"], *found["interval"]] == [people().height] * 3
    estimates = pl.read_parquet(folder / "out/public/estimates.parquet")
    whole = estimates.filter(pl.col("geolevel") == "all", pl.col("query_name") == "total_dpq")
    assert whole["std_dev"].to_list() == [0]
    assert audit_bundle(folder / "out").passed


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    text = (folder / "plan.toml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    return folder / "plan.toml"


def test_a_plan_of_fifteen_lines_reaches_published_measurements(folder: Path, bundle: Path) -> None:
    assert len(PLAN.splitlines()) == 15
    public = {name.removeprefix("public/") for name in files_in(bundle) if name.startswith("public/")}
    pages = {"README.md", "report.html", "specification.json", "specification.md"}
    assert public == {*pages, "spine.parquet", "measurements.parquet", "constraints.parquet"}
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    assert entry.specification is not None
    assert entry.specification.notation == "ρ²=0.5-DP(X_people, D_c, d_HamS^person, D_NoR)"
    rows = pl.read_parquet(bundle / "public/measurements.parquet")
    assert rows.columns == [
        *("geolevel", "geocode", "query_name", "sex", "age", "work", "query_shape", "value", "variance", "sigma2"),
    ]
    assert rows.height == 2 + 3 * (4 + 11 + 45)
    publish(bundle, folder / "website")
    assert (folder / "website/measurements.parquet").exists()
    assert not (folder / "website/internal").exists()


def test_a_published_folder_shows_whether_its_variances_are_those_of_the_budget(folder: Path, bundle: Path) -> None:
    publish(bundle, folder / "website")
    said = "measurements.parquet: every area has every query, with the variance of the budget"
    assert said in audit_bundle(folder / "website").checks
    rows = pl.read_parquet(folder / "website/measurements.parquet")
    other = rows.with_columns(sigma2=pl.col("sigma2").replace(rows["sigma2"][0], "7/3"))
    path, listed = folder / "website/measurements.parquet", folder / "website/CHECKSUMS.sha256"
    before = sha256(path)
    other.write_parquet(path)
    listed.write_text(listed.read_text().replace(before, sha256(path)))
    told = [problem.what for problem in audit_bundle(folder / "website").problems]
    assert "its areas, queries and variances are not those of the budget" in told


def test_the_store_of_the_draw_stays_inside_and_has_what_was_published(bundle: Path) -> None:
    store = MeasurementStore.open(bundle / "internal/store/persons")
    assert store.check() > 0
    assert pl.concat([*store.published()]).equals(pl.read_parquet(bundle / "public/measurements.parquet"))
    listed = manifest(bundle)["files"]
    assert listed["internal/store/persons/journal.jsonl"] == sha256(store.folder / "journal.jsonl")


def test_the_public_folder_is_a_function_of_the_invariants_and_the_noise(folder: Path, bundle: Path) -> None:
    other = people().with_columns(district=pl.lit("d2"), ward=pl.lit(1), sex=pl.lit("m"), age=pl.lit("65+"))
    other.write_csv(folder / "people.csv")
    plan = edited(folder, ('out = "out"', 'out = "other"'), ('ledger = "a.ledger"', ""))
    run(prepare(read_plan(plan)))
    changed = [
        name
        for name in sorted(files_in(bundle))
        if name.startswith("public/") and sha256(bundle / name) != sha256(folder / "other" / name)
    ]
    # The first names its entry in the ledger; the report counts how many measurements are negative.
    numbers = ["public/measurements.parquet", "public/report.html"]
    assert changed == [*numbers, "public/specification.json", "public/specification.md"]
    pages = [(place / "public/report.html").read_text(encoding="utf-8") for place in (bundle, folder / "other")]
    before, after = (text.partition("<h2>Facial validity")[0] for text in pages)
    assert before == after


def test_the_pages_say_how_much_noise_there_is_and_what_is_exact(bundle: Path) -> None:
    readme = (bundle / "public/README.md").read_text(encoding="utf-8")
    assert "Numbers may be negative" in readme
    assert "the number of persons in each region" in readme
    report = (bundle / "public/report.html").read_text(encoding="utf-8")
    assert "Measurements of persons" in report
    assert "ward within district" in report


def test_an_audit_computes_the_promise_again_from_public_files(folder: Path, bundle: Path) -> None:
    result = audit_bundle(bundle)
    assert result.passed, result.problems
    assert "measurements.parquet: every area has every query, with the variance of the budget" in result.checks
    assert any("computed anew from the settings" in check for check in result.checks)
    assert any("noise is of the stated law" in line for line in result.unchecked)
    publish(bundle, folder / "website")
    assert audit_bundle(folder / "website").passed


def less_noise(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(sigma2=pl.col("sigma2").replace("24/1", "25/1"))


def without_an_area(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("geocode") != "Wd34")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (frame("measurements.parquet", less_noise), "its areas, queries and variances are not those of the budget"),
        (
            frame("measurements.parquet", without_an_area),
            "its areas, queries and variances are not those of the budget",
        ),
        (frame("measurements.parquet", lambda rows: rows.drop("sigma2")), "are not those of the budget"),
        (frame("spine.parquet", without_an_area), "are not those of the budget"),
    ],
)
def test_measurements_that_are_not_those_of_the_budget_are_found(
    bundle: Path, change: Callable[[Path], object], told: str
) -> None:
    change(bundle)
    retell(bundle)
    assert any(told in problem.what for problem in audit_bundle(bundle).problems)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"rho": "1/4"}, "the settings give 0.25, and it says 0.5"),
        ({"totals": []}, "what it fixes is not what the settings publish exactly"),
    ],
)
def test_a_promise_that_the_settings_do_not_give_is_found(bundle: Path, setting: dict[str, Any], told: str) -> None:
    facts = manifest(bundle)
    facts["plan"]["mechanism"].update(setting)
    (bundle / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
    assert any(told in problem.what for problem in audit_bundle(bundle).problems)


def test_a_column_that_no_rule_allows_is_not_published(folder: Path, bundle: Path) -> None:
    frame("measurements.parquet", lambda rows: rows.with_columns(true=pl.lit(1)))(bundle)
    retell(bundle)
    with pytest.raises(PublishError, match='"true" is not in the specification'):
        publish(bundle, folder / "website")


def test_a_run_that_died_after_its_draw_is_resumed_with_the_same_noise_at_no_cost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(place: Path, *_: object, **__: object) -> None:
        shutil.copytree(place / "internal/store", folder / "first")
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(running, "write_public", dying)
        with pytest.raises(OSError, match="the disk is full"):
            run(prepare(read_plan(folder / "plan.toml")))
    ledger = Ledger.open(folder / "a.ledger")
    (entry,) = ledger.entries()
    assert entry.drawn
    resume(folder / "out")
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    assert entry.state == "committed"
    first, second = (
        MeasurementStore.open(place) for place in (folder / "first/persons", folder / "out/internal/store/persons")
    )
    assert pl.concat([*first.published()]).equals(pl.concat([*second.published()]))
    with pytest.raises(LedgerError):
        ledger.draw(entry.id)


def test_a_changed_list_of_areas_is_another_release_and_is_not_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(running, "write_public", dying)
        with pytest.raises(OSError, match="the disk is full"):
            run(prepare(read_plan(folder / "plan.toml")))
    pl.concat([wards(), pl.DataFrame({"region": ["N"], "district": ["d1"], "ward": [2]})]).write_csv("wards.csv")
    with pytest.raises(PlanError, match="areas: not as it was at the draw"):
        resume(folder / "out")


def test_files_that_are_not_what_was_drawn_destroy_the_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepare(read_plan(folder / "plan.toml"))
    right = MeasurementStore.published

    def wrong(self: MeasurementStore, what: str) -> Any:
        quieter = [pl.col("sigma2").replace("24/1", "12/1")] if what == "measurements" else []
        return (part.with_columns(quieter) for part in right(self, what))

    with monkeypatch.context() as patch:
        patch.setattr(MeasurementStore, "published", wrong)
        with pytest.raises(VerificationError, match="do not have the noise of the budget"):
            run(ready)
    assert not (folder / "out").exists()


def test_totals_that_are_not_those_of_the_file_destroy_the_bundle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(read_plan(edited(folder, ('ledger = "a.ledger"', ""))))
    right = MeasurementStore.published

    def wrong(self: MeasurementStore, what: str) -> Any:
        more = int(what == "constraints")
        one_more = pl.concat_list(pl.col("value").list.first() + more)
        return (part.with_columns(value=one_more) if more else part for part in right(self, what))

    monkeypatch.setattr(MeasurementStore, "published", wrong)
    with pytest.raises(VerificationError, match="do not add up to the records of the file"):
        run(ready)


def test_a_store_that_changed_before_it_was_published_destroys_the_bundle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(read_plan(edited(folder, ('ledger = "a.ledger"', ""))))
    right = measure

    def touched(*given: Any, **more: Any) -> MeasurementStore:
        store = right(*given, **more)
        place = store.folder / "00001.bin"
        changed = bytearray(place.read_bytes())
        changed[store.pieces[1]["arrays"][-1]["offset"]] ^= 1
        place.write_bytes(changed)
        return store

    monkeypatch.setattr(acting, "measure", touched)
    with pytest.raises(Exception, match="is not as it was written"):
        run(ready)
    assert not (folder / "out").exists()


def test_many_parts_are_written_and_verified_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.mechanisms.topdown.measurements._VALUES_IN_A_PART", 200)
    run(prepare(read_plan(edited(folder, ('ledger = "a.ledger"', "")))))
    parts = sorted((folder / "out/public/measurements.parquet").iterdir())
    assert len(parts) > 5
    assert parts[0].name == "part-00000.parquet"
    assert audit_bundle(folder / "out").passed
    publish(folder / "out", folder / "website")


def test_a_budget_file_of_the_plan_is_kept_in_manifest_and_specification(folder: Path) -> None:
    budget = 'rho = 1\n[levels]\nall = "1/2"\nregion = 0\ndistrict = 0\nward = "1/2"\n[queries]\ndetailed = 1\n'
    (folder / "budget.toml").write_text(budget, encoding="utf-8")
    changes = ('rho = "1/2"', 'budget = "budget.toml"'), ('queries = ["total", "sex * age", "detailed"]\n', "")
    run(prepare(read_plan(edited(folder, *changes))))
    kept = manifest(folder / "out")["plan"]["mechanism"]["budget"]
    published = json.loads((folder / "out/public/specification.json").read_text(encoding="utf-8"))["mechanism"]
    assert kept == published["settings"]["budget"]
    assert kept["levels"]["ward"] == "1/2"
    assert "areas" not in published["settings"], "a path of the agency"
    assert audit_bundle(folder / "out").passed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([('"wards.csv"', '"none.csv"')], "none.csv"),
        ([('rho = "1/2"', 'budget = "none.toml"'), ('queries = ["total", "sex * age", "detailed"]', "")], "none.toml"),
        (
            [("[release]", '[[tables]]\nvariables = ["sex"]\n[release]')],
            "tables are counted from records, and none are released",
        ),
        ([("codebook = ", "#")], 'attributes "sex": its codes are not declared'),
        ([('levels = ["region"', 'levels = ["town"'), ('totals = ["region"]', "")], 'there is no column "town"'),
    ],
)
def test_plans_that_cannot_be_carried_out_are_refused_before_the_draw(
    folder: Path, changes: list[tuple[str, str]], told: str
) -> None:
    plan = edited(folder, *changes)
    with pytest.raises(Exception, match=told.replace("(", r"\(")):
        prepare(read_plan(plan))
    assert not [*Ledger.open(folder / "a.ledger").entries()]


def test_codes_read_off_the_file_by_a_draft_codebook_refuse_the_release(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "codebook.toml").write_text(f"[codebook]\ndraft = true\n{codebook()}", encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert "draft:sex+age+work" in capsys.readouterr().err
    assert not (folder / "out").exists()
