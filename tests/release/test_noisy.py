"""Noisy tables after a swap: plan, command, bundle, report, audit, publishing and ledger; and their earlier name."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.tables.engine import TableMechanism
from stirred.release.ledger import Ledger, Policy
from stirred.release.publish import PublishError, publish
from stirred.spec.document import from_json
from stirred.spec.exact import exact
from tests.world import (
    CODEBOOK_OF_HOMES,
    assert_refused,
    files_in,
    households,
    listing,
    manifest,
    sha256,
    stirred,
    world,
)

# A county where nobody lives is declared too.
CODEBOOK = CODEBOOK_OF_HOMES.replace('West = ""', 'West = "", Nowhere = ""')
PLAN = """
[data]
households = "homes.parquet"
codebook = "codebook.toml"
[mechanism]
name = "noisy-tables"
noise = "laplace"
epsilon = "3/2"
shares = {"county x tenure" = 2, "county x size" = 1}
after = {name = "permutation-swap", match = ["size"], swap = ["county"], rate = "1/10"}
[[tables]]
variables = ["county", "tenure"]
[[tables]]
name = "places"
variables = ["county"]
level = "size"
[release]
out = "out"
purpose = "tests"
"""
# By the earlier name: the noise alone loses 1, and once more for the one of two tables that crosses.
EARLIER = """match = ["size"]
swap = ["county"]
rate = "1/10"
noise_epsilon = 1
"""
LATER = PLAN.partition('"noisy-tables"\n')[2].partition("[[tables]]")[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "codebook.toml").write_text(CODEBOOK, encoding="utf-8")
    return world(tmp_path, households(600), plan=PLAN)


@pytest.fixture
def bundle(folder: Path) -> Path:
    assert command(["release", "plan.toml", "--quiet"]) == 0
    return folder / "out"


def facts(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert command(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_a_bundle_has_tables_and_no_records_and_its_plan_said_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = facts(["plan", "plan.toml", "--json"], capsys)
    done = facts(["release", "plan.toml", "--json"], capsys)
    assert planned["noise_alone"] == done["noise_alone"] == "1"
    public = {name for name in files_in(folder / "out") if name.startswith("public/")}
    assert public == {
        *(f"public/{name}" for name in ("README.md", "report.html", "specification.json", "specification.md")),
        "public/invariants.parquet",
        *(f"public/tables/{name}.csv" for name in ("county-x-tenure", "places")),
    }
    specification = from_json((folder / "out/public/specification.json").read_text(encoding="utf-8"))
    assert specification.budget.realised == exact("3/2")


def test_the_public_folder_is_a_function_of_sizes_of_strata_and_noise(folder: Path, bundle: Path) -> None:
    """Another file with strata of the same sizes and nothing else in common gives the same folder, but for counts."""
    other = households(600).with_columns(county=pl.lit("Nowhere"), tenure=pl.lit("owned"))
    other.write_parquet(folder / "homes.parquet")
    text = (folder / "plan.toml").read_text(encoding="utf-8").replace('out = "out"', 'out = "other"')
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    changed = [
        name
        for name in sorted(files_in(bundle))
        if name.startswith("public/") and sha256(bundle / name) != sha256(folder / "other" / name)
    ]
    assert changed == ["public/report.html", "public/tables/county-x-tenure.csv", "public/tables/places.csv"]
    reports = [(place / "public/report.html").read_text(encoding="utf-8") for place in (bundle, folder / "other")]
    before, after = (text.partition("<h3>")[0] for text in reports)
    assert before == after, "the report differs in the tables alone"
    for table in ("county-x-tenure", "places"):
        noisy = ("count", "low", "high")
        cells = [pl.read_csv(place / f"public/tables/{table}.csv").drop(noisy) for place in (bundle, folder / "other")]
        assert cells[0].equals(cells[1])


def test_the_pages_state_every_flavor_and_that_swapping_weakens_the_noise(bundle: Path) -> None:
    for page in ("report.html", "README.md"):
        text = (bundle / "public" / page).read_text(encoding="utf-8")
        assert "can weaken the noise" in text
        assert "neither keeps nor publishes these counts" in text
        assert "Counts may be negative" in text


def test_the_drawn_noise_is_kept_inside_and_makes_the_published_counts(bundle: Path) -> None:
    kept = [pl.read_parquet(path) for path in sorted((bundle / "internal/noise").iterdir())]
    assert [frame["table"][0] for frame in kept] == ["county x tenure", "county x size"]
    for frame, name in zip(kept, ("county-x-tenure", "places"), strict=True):
        published = pl.read_csv(bundle / f"public/tables/{name}.csv")
        assert published["count"].to_list() == (frame["true"] + frame["noise"]).to_list()
        assert frame["true"].sum() == 600
    # What swapping does not change is counted as in the input.
    truth = households(600).group_by("county", "size").len()
    found = kept[1].join(truth, on=["county", "size"], how="left")
    assert found["true"].to_list() == found["len"].fill_null(0).to_list()
    accuracy = pl.read_parquet(bundle / "internal/accuracy.parquet")
    assert accuracy.height == 10 + 15


def test_the_audit_asks_for_no_records_and_says_what_it_cannot_check(bundle: Path, folder: Path) -> None:
    result = audit_bundle(bundle)
    assert result.passed, result.problems
    assert any("computed anew from the settings" in check for check in result.checks)
    assert any("noise is of the stated law" in line for line in result.unchecked)
    publish(bundle, folder / "published")
    alone = audit_bundle(folder / "published")
    assert alone.passed, alone.problems
    assert any("computed anew from the settings" in check for check in alone.checks)


def redone(bundle: Path) -> None:
    """Write the manifest anew, as somebody who changes files on purpose would."""
    content = manifest(bundle)
    content["files"] = {name: sha256(bundle / name) for name in sorted(files_in(bundle) - {"manifest.json"})}
    (bundle / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


def with_records(bundle: Path) -> None:
    households(600).drop("hid").write_parquet(bundle / "public/data.parquet")


def with_another_margin(bundle: Path) -> None:
    margin = (
        households(600).group_by("size", "county").len("count").select(pl.lit("match x swap").alias("table"), pl.all())
    )
    margin.write_parquet(bundle / "public/invariants.parquet")


def without_empty_cells(bundle: Path) -> None:
    table = bundle / "public/tables/county-x-tenure.csv"
    pl.read_csv(table).filter(pl.col("county") != "Nowhere").head(7).write_csv(table)


def with_broken_counts(bundle: Path) -> None:
    table = bundle / "public/tables/county-x-tenure.csv"
    pl.read_csv(table).with_columns(pl.col("count") / 3).write_csv(table)


def without_a_table(bundle: Path) -> None:
    (bundle / "public/tables/places.csv").unlink()


def with_a_smaller_loss(bundle: Path) -> None:
    content = manifest(bundle)
    content["plan"]["mechanism"]["after"]["rates"] = [{"size": 1, "rate": 0}]
    content["plan"]["mechanism"]["epsilon"] = "2"
    (bundle / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (with_records, "records are published"),
        (with_another_margin, "not what the specification fixes"),
        (without_empty_cells, "cells are missing"),
        (with_broken_counts, "not whole"),
        (without_a_table, "not those of the plan"),
        (with_a_smaller_loss, "the settings give"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_would_leak_or_contradict_is_found_by_audit_and_publishing(
    bundle: Path, folder: Path, tamper: Any, what: str
) -> None:
    tamper(bundle)
    redone(bundle)
    result = audit_bundle(bundle)
    assert any(what in problem.what for problem in result.problems), result.problems
    with pytest.raises(PublishError):
        publish(bundle, folder / "published")
    assert not (folder / "published").exists()


@pytest.mark.parametrize("what", ["noise", "records"])
def test_a_table_that_is_not_what_was_drawn_never_appears(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = listing(folder)
    write = TableMechanism.write_internal

    def other(mechanism: Any, release: Any, written: Any, **notes: Any) -> None:
        drawn = release.internal["drawn"]
        if what == "noise":
            drawn = {title: frame.with_columns(pl.col("noise") + 1) for title, frame in drawn.items()}
        else:
            (written.public / "data.parquet").write_bytes(b"")
        write(mechanism, dataclasses.replace(release, internal={"drawn": drawn}), written, **notes)

    monkeypatch.setattr(TableMechanism, "write_internal", other)
    from stirred.randomness.entropy import Entropy
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare
    from stirred.release.run import run

    with pytest.raises(VerificationError):
        run(prepare(read_plan(Path("plan.toml"))), entropy=Entropy.from_os())
    assert listing(folder) == before


def by_earlier_name(text: str) -> str:
    return text.replace(LATER, EARLIER).replace('"noisy-tables"', '"noisy-swap"')


def test_a_plan_by_the_earlier_name_promises_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = facts(["plan", "plan.toml", "--json"], capsys)["specification"]
    (folder / "plan.toml").write_text(by_earlier_name(PLAN), encoding="utf-8")
    assert facts(["plan", "plan.toml", "--json"], capsys)["specification"] == later
    assert command(["plan", "plan.toml", "--epsilon", "2"]) == 2
    assert "--epsilon: no rate decides the loss of noisy tables after a swap" in capsys.readouterr().err
    told = ["--mechanism", "noisy", "--rate", "1/10", "--set", "noise_epsilon=1", "--codebook", "codebook.toml"]
    tables = ["--table", "county x tenure", "--table", "county x size"]
    roles = ["homes.parquet", "--match", "size", "--swap", "county"]
    assert facts(["plan", *roles, *told, *tables, "--json"], capsys)["specification"] == later
    assert command(["release", "plan.toml", "--quiet"]) == 0
    assert audit_bundle(folder / "out").passed
    publish(folder / "out", folder / "published")
    assert audit_bundle(folder / "published").passed


def with_other_sizes(bundle: Path) -> None:
    strata = pl.read_parquet(bundle / "public/strata.parquet")
    strata.with_columns(pl.col("stratum_records") + 1).write_parquet(bundle / "public/strata.parquet")


def with_live_strata(bundle: Path) -> None:
    strata = pl.read_parquet(bundle / "public/strata.parquet")
    strata.with_columns(stratum_live=True).write_parquet(bundle / "public/strata.parquet")


def with_a_larger_noise_loss(bundle: Path) -> None:
    content = manifest(bundle)
    content["plan"]["mechanism"]["noise_epsilon"] = "2"
    (bundle / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (with_records, "records are published"),
        (with_live_strata, "its columns are not those of sizes and rates: stratum_live"),
        (with_another_margin, "not the one table that the specification fixes"),
        (with_other_sizes, "stratum_records is not"),
        (with_broken_counts, "not whole"),
        (with_a_larger_noise_loss, "the settings give"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bundle_of_an_earlier_version_is_audited_as_it_was_made(tmp_path: Path, tamper: Any, what: str) -> None:
    kept = Path(__file__).parents[1] / "golden/set/earlier/noisy-swap"
    bundle = Path(shutil.copytree(kept, tmp_path / "bundle"))
    tamper(bundle)
    redone(bundle)
    assert any(what in problem.what for problem in audit_bundle(bundle).problems)


def test_cells_of_a_draft_refuse(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(["plan", "plan.toml", "--json"], capsys)["doubts"] == []
    marked = CODEBOOK.replace('title = "Homes"', 'title = "Homes"\ndraft = true')
    (folder / "codebook.toml").write_text(marked, encoding="utf-8")
    assert command(["plan", "plan.toml", "--json"]) == 2
    (told,) = json.loads(capsys.readouterr().out)["doubts"]
    assert told["name"] == "draft:county+size+tenure"
    what = told["what"]
    assert what.startswith('the values of "county", "size", "tenure" are those of a codebook that is still a draft')
    assert "which values occur is confidential" in what
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert not (folder / "out").exists()


def test_the_ledger_keeps_the_promise_with_the_fewest_invariants(folder: Path) -> None:
    Ledger.create(str(folder / "ledger.db"), dataset="homes")
    plan = PLAN.replace('out = "out"', 'out = "out"\nledger = "ledger.db"')
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    (entry,) = Ledger.open(str(folder / "ledger.db")).entries()
    assert entry.mechanism == "noisy-tables"
    assert entry.specification == from_json((folder / "out/public/specification.json").read_text(encoding="utf-8"))
    assert audit_bundle(folder / "out").passed
    publish(folder / "out", folder / "published")


LIMIT = """
[[limits]]
budget = "{budget}"
output = "pure"
unit = "household"
[invariants]
acceptable = "any"
"""
OTHERS = {
    "permutation": 'name = "permutation-swap"',
    "conditioned": 'name = "conditioned-swap"\nredraw_law = "uniform"',
}


@pytest.mark.parametrize("hold", ["", 'hold = ["tenure"]\n'], ids=["all columns", "some columns"])
def test_it_adds_up_with_other_members_in_one_ledger_under_a_limit(hold: str, folder: Path) -> None:
    """All are about the same file, whatever of it is published."""
    homes = households(600).with_columns(rooms=pl.col("size") + 1)
    homes.write_parquet(folder / "homes.parquet")
    ledger = Ledger.create(str(folder / "ledger.db"), dataset="homes", policy=Policy.from_toml(LIMIT.format(budget=40)))
    codebook = CODEBOOK + '[[variables]]\nname = "rooms"\nfile = "households"\ntype = "integer"\nmin = 1\nmax = 4\n'
    (folder / "codebook.toml").write_text(codebook, encoding="utf-8")
    noisy = PLAN.replace('out = "out"', 'out = "noisy"\nledger = "ledger.db"')
    plans = {"noisy": noisy}
    for name, settings in OTHERS.items():
        text = by_earlier_name(noisy).replace('name = "noisy-swap"', hold + settings).replace("noise_epsilon = 1\n", "")
        plans[name] = text.replace('out = "noisy"', f'out = "{name}"')
    for name in ("permutation", "noisy", "conditioned"):
        (folder / f"{name}.toml").write_text(plans[name], encoding="utf-8")
        done = stirred("release", f"{name}.toml", "--quiet", cwd=folder)
        assert done.returncode == 0, done.stderr
    entries = [entry for entry in ledger.entries() if entry.specification is not None]
    losses = [entry.specification.budget.realised for entry in entries if entry.specification is not None]
    assert len(losses) == 3
    total = ledger.total().specification
    assert total is not None
    assert total.budget.realised == losses[0] + losses[1] + losses[2]
    ledger.set_policy(Policy.from_toml(LIMIT.format(budget=total.budget.shown)), reason="no more")
    again = noisy.replace('out = "noisy"', 'out = "again"').replace('rate = "1/10"', 'rate = "1/9"')
    (folder / "again.toml").write_text(again, encoding="utf-8")
    refused = stirred("release", "again.toml", cwd=folder)
    assert refused.returncode != 0
    assert "above the limit" in refused.stderr
    assert not (folder / "again").exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('codebook = "codebook.toml"', 'id = ["hid"]'), "which values it can take was not declared"),
        (('epsilon = "3/2"', ""), "epsilon"),
        (("[[tables]]\nname", '[[tables]]\nvariables = ["size"]\n[[tables]]\nname'), "published exactly"),
        (('variables = ["county", "tenure"]', 'variables = ["age"]'), "age"),
        (('name = "permutation-swap"', 'name = "conditioned-swap"'), "sizes of strata alone do not decide"),
    ],
)
def test_plans_that_would_break_the_promise_are_refused(folder: Path, change: tuple[str, str], what: str) -> None:
    assert_refused(folder, PLAN.replace(*change), what)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["plan", "plan.toml", "--expect-from", "margins"], "no closed form"),
        (["unswap", "out/public/tables/places.csv", "--bundle", "out", "--out", "c.csv"], "are not corrected"),
    ],
)
def test_what_needs_the_records_or_a_rate_is_refused(folder: Path, arguments: list[str], what: str) -> None:
    if arguments[0] == "unswap":
        assert command(["release", "plan.toml", "--quiet"]) == 0
    done = stirred(*arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert what in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_test_run_is_marked_everywhere(folder: Path) -> None:
    assert command(["release", "plan.toml", "--seed", "1", "--quiet"]) == 0
    result = audit_bundle(folder / "out")
    assert result.passed, result.problems
    assert "a test run with a seed, marked everywhere" in result.checks
    with pytest.raises(PublishError, match="test run"):
        publish(folder / "out", folder / "published")
