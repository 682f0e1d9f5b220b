"""Bundles whose files were replaced by something else: the audit names the file and goes on, and never passes one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit import audit_bundle, bundle
from stirred.cli.main import run as command
from stirred.mechanisms.records import audit as bundle_audit_promise
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.golden.make import SET
from tests.release.tampering import add, frame, retell, specified, text
from tests.world import CODEBOOK_OF_HOMES, households, persons

Change = Callable[[Path], object]
GARBAGE = b"\xff\xfe\x00 neither text nor table"


def release(folder: Path, out: str, **more: object) -> Path:
    plan = {
        "data": {"households": "homes.parquet", "persons": "people.parquet", "hid": "hid", "id": ["pid"]},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "tables": [{"variables": ["county", "tenure"]}, {"name": "Ages", "variables": ["county", "age"]}],
        "release": {"out": out},
        **more,
    }
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of records and one of noisy tables."""
    folder = tmp_path_factory.mktemp("made")
    households().write_parquet(folder / "homes.parquet")
    persons(households()).write_parquet(folder / "people.parquet")
    (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    release(folder, "records")
    noisy = {"match": ["size"], "swap": ["county"], "name": "noisy-swap", "rate": "1/10", "noise_epsilon": 1}
    release(
        folder,
        "noisy",
        data={"households": "homes.parquet", "codebook": "codebook.toml"},
        mechanism=noisy,
        tables=[{"variables": ["county", "tenure"]}],
    )
    return folder


@pytest.fixture
def records(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "records", tmp_path / "bundle"))


@pytest.fixture
def noisy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "noisy", tmp_path / "bundle"))


def said(folder: Path, change: Change) -> list[str]:
    """Change a bundle, redo its checksums, and return what its audit finds wrong, place first."""
    change(folder)
    retell(folder)
    found = [f"{problem.where}: {problem.what}" for problem in audit_bundle(folder).problems]
    published = [f"{problem.where}: {problem.what}" for problem in audit_bundle(folder / "public").problems]
    assert published, "what was published alone passes"
    return found


def one(found: Iterable[str], what: str) -> bool:
    return any(each.startswith(what) for each in found)


def with_columns(name: str, *columns: pl.Expr) -> Change:
    return frame(name, lambda table: table.with_columns(*columns))


def without(name: str, *columns: str) -> Change:
    return frame(name, lambda table: table.drop(*columns))


# ---- files that cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("content", [GARBAGE, b""], ids=["garbage", "nothing"])
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("invariants.parquet", "public/invariants.parquet"),
        ("strata.parquet", "public/strata.parquet"),
        ("data.parquet", "public/data"),
        ("persons.parquet", "public/persons"),
        ("tables/ages.csv", "public/tables/ages.csv"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_audited(
    name: str, where: str, content: bytes, records: Path
) -> None:
    found = said(records, add(f"public/{name}", content))
    assert one(found, f"{where}: it cannot be read: ")
    checks = audit_bundle(records).checks
    assert one(checks, "checksums of ")
    assert one(checks, "specification.md: says what specification.json says")


def test_checksums_are_found_right_only_if_all_of_them_are(records: Path) -> None:
    assert one(audit_bundle(records).checks, "checksums of ")
    with (records / "public" / "README.md").open("a") as page:
        page.write("One more line.\n")
    found = audit_bundle(records)
    assert any("it is not the file the manifest describes" in problem.what for problem in found.problems)
    assert not any("checksums of " in check for check in found.checks)


@pytest.mark.parametrize("name", ["invariants.parquet", "tables/county-x-tenure.csv"])
def test_a_file_of_noisy_tables_that_cannot_be_read_is_named(name: str, noisy: Path) -> None:
    found = said(noisy, add(f"public/{name}", GARBAGE))
    assert one(found, f"public/{name}: it cannot be read: ")


def test_a_specification_that_says_nothing_is_a_problem_and_the_checksums_are_still_compared(records: Path) -> None:
    found = said(records, specified(lambda document: document.pop("multiverse")))
    assert one(found, "public/specification.json")
    assert any("multiverse" in each for each in found)
    assert one(audit_bundle(records).checks, "checksums of ")


@pytest.mark.parametrize("kind", [pl.List(pl.String), pl.Binary, pl.Duration], ids=["lists", "bytes", "durations"])
@pytest.mark.parametrize(
    ("name", "column", "where"),
    [
        ("invariants.parquet", "county", "public/invariants.parquet"),
        ("strata.parquet", "stratum_law", "public/strata.parquet"),
        ("data.parquet", "tenure", "public/data"),
        ("persons.parquet", "county", "public/persons"),
    ],
)
def test_values_of_a_kind_that_is_never_released_are_seen(
    name: str, column: str, where: str, kind: pl.DataType, records: Path
) -> None:
    """They have no text to compare, and once ended the audit instead of failing it."""
    found = said(records, with_columns(name, pl.lit(None, dtype=kind).alias(column)))
    assert one(found, f'{where}: it has values of a kind that is never released: "{column}" (')


def test_what_polars_refuses_is_a_finding_and_not_the_end_of_the_audit(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pl.exceptions.SchemaError("no such thing")

    monkeypatch.setattr(bundle, "_audit_tables", refuse)
    audit = audit_bundle(records)
    assert [f"{problem.where}: {problem.what}" for problem in audit.problems] == [
        "public: its files are not of a kind that is released (SchemaError)"
    ]
    assert "not a test run" in audit.checks


# ---- the tables of the invariants -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without("invariants.parquet", "table"), "public/invariants.parquet: it has no columns table and count"),
        (without("invariants.parquet", "count"), "public/invariants.parquet: it has no columns table and count"),
        (without("invariants.parquet", "county"), "public/invariants.parquet: it has no column county"),
        (without("data.parquet", "tenure"), "invariant number of households by size x tenure"),
        (
            with_columns("invariants.parquet", pl.lit("Smith").alias("name")),
            "public/invariants.parquet: name is in no table that the specification fixes",
        ),
        (
            with_columns("invariants.parquet", pl.lit(None, dtype=pl.String).alias("table")),
            "public/invariants.parquet: the specification fixes 2 tables and 1 are published",
        ),
        (with_columns("invariants.parquet", pl.col("count") + 1), "invariant number of households by size x county"),
    ],
    ids=["no names", "no counts", "no county", "no tenure in the file", "one column more", "nameless", "other counts"],
)
def test_other_tables_of_invariants_are_seen(change: Change, what: str, records: Path) -> None:
    found = said(records, change)
    assert one(found, what), found


@pytest.mark.parametrize("column", ["size", "county"])
def test_a_released_file_without_a_variable_of_its_plan_cannot_be_swapped_again_and_that_is_said(
    column: str, records: Path
) -> None:
    found = said(records, without("data.parquet", column))
    assert any(f"the released file has no column {column}" in each for each in found)
    assert one(found, "public/data: it cannot be swapped again under the plan of the bundle: ")


# ---- strata -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without("strata.parquet", "stratum_rate"), "it has no column stratum_rate"),
        (
            without("strata.parquet", "stratum_live", "stratum_records"),
            "it has no column stratum_records, stratum_live",
        ),
        (without("strata.parquet", "size"), "stratum_records is not that of the released file"),
        (with_columns("strata.parquet", pl.col("size").alias("age")), "stratum_records is not that of the released"),
        (with_columns("strata.parquet", pl.lit("half").alias("stratum_rate")), "stratum_rate is not a rate"),
        (with_columns("strata.parquet", pl.lit("x").alias("stratum_live")), "stratum_live is not true or false"),
        (with_columns("strata.parquet", pl.lit("x").alias("stratum_records")), "stratum_live is not true or false"),
        (with_columns("strata.parquet", pl.lit(None).alias("stratum_records")), "stratum_live is not true or false"),
    ],
)
def test_strata_of_a_long_file_without_what_they_must_have_are_seen(
    change: Change, what: str, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_audit_promise, "MOST_RECORDS", 59)
    found = said(records, change)
    assert one(found, f"public/strata.parquet: {what}"), found


# ---- published tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [["count"], ["county", "tenure"]], ids=["counts", "variables"])
def test_a_noisy_table_without_counts_or_variables_is_seen(columns: list[str], noisy: Path) -> None:
    found = said(noisy, without("tables/county-x-tenure.csv", *columns))
    places = ("public/tables/county-x-tenure.csv: it has no numbers", "public/tables: ")
    assert any(one(found, place) for place in places)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without("tables/county-x-tenure.csv", "count"), "it cannot be counted anew from the released files"),
        (
            with_columns("tables/county-x-tenure.csv", pl.lit("x").alias("income")),
            "it cannot be counted anew from the released files",
        ),
        (
            with_columns("tables/county-x-tenure.csv", pl.lit("many").alias("count")),
            "it is not the table of the released file",
        ),
        (frame("tables/county-x-tenure.csv", lambda f: f.head(1)), "it is not the table of the released file"),
    ],
    ids=["no counts", "a variable that is not released", "no numbers", "cells left out"],
)
def test_a_table_that_is_not_of_the_released_file_is_seen(change: Change, what: str, records: Path) -> None:
    assert one(said(records, change), f"public/tables/county-x-tenure.csv: {what}")


@pytest.mark.parametrize("place", ["Permutation", "## Files", "- What is promised"])
def test_further_words_in_the_page_for_readers_are_seen(place: str, records: Path) -> None:
    text("README.md", lambda page: page.replace(place, f"- All exact.\n{place}", 1))(records)
    retell(records)
    found = [f"{each.where}: {each.what}" for each in audit_bundle(records).problems]
    assert found == ["public/README.md: it does not say what manifest.json says it does"]


# ---- tables with noise, and what is kept inside ----------------------------------------------------------


def golden(case: str, folder: Path, *changes: Change) -> list[str]:
    """Change a bundle that was made before, redo its checksums, and return what its audit finds wrong."""
    bundle = Path(shutil.copytree(SET / case / "bundle", folder / case))
    for change in changes:
        change(bundle)
    retell(bundle)
    return [f"{problem.where}: {problem.what}" for problem in audit_bundle(bundle).problems]


def kept(name: str, change: pl.Expr) -> Change:
    def write(bundle: Path) -> None:
        path = bundle / "internal" / "noise" / name
        pl.read_parquet(path).with_columns(change).write_parquet(path)

    return write


def every_table(case: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> list[Change]:
    return [
        frame(f"tables/{path.name}", change) for path in sorted((SET / case / "bundle/public/tables").glob("*.csv"))
    ]


def without_west(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("county") != "West")


def renamed(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.col("county").replace("West", "Smith"))


TABLED = ["noisy-tables", "noisy-tables-a-margin-kept", "noisy-tables-laplace-sums", "noisy-swap", "cell-keys"]


@pytest.mark.parametrize("change", [without_west, renamed])
@pytest.mark.parametrize("case", TABLED)
def test_a_value_that_is_removed_or_renamed_in_all_tables_is_seen(
    case: str, change: Callable[[pl.DataFrame], pl.DataFrame], tmp_path: Path
) -> None:
    """The tables agree with each other, and once that was all that was compared."""
    assert golden(case, tmp_path) == []
    shutil.rmtree(tmp_path / case)
    found = golden(case, tmp_path, *every_table(case, change))
    assert one(found, "public/tables/county-x-tenure.csv: "), found
    assert any("not those that were declared" in each for each in found)


@pytest.mark.parametrize("change", [without_west, renamed])
def test_declared_values_are_compared_in_what_was_published_alone(
    change: Callable[[pl.DataFrame], pl.DataFrame], tmp_path: Path
) -> None:
    case = "noisy-tables-laplace-sums"  # its settings declare them
    golden(case, tmp_path, *every_table(case, change))
    found = audit_bundle(tmp_path / case / "public").problems
    assert any("the values of county are not those that were declared" in each.what for each in found)


@pytest.mark.parametrize("case", TABLED)
def test_numbers_that_are_not_those_with_the_noise_kept_inside_are_seen(case: str, tmp_path: Path) -> None:
    by_noise = [name for name in ("low", "high") if case != "cell-keys"]
    more = with_columns("tables/county-x-tenure.csv", *(pl.col(name) + 7 for name in ("count", *by_noise)))
    noise = kept("1.parquet", pl.col("pvalue" if case == "cell-keys" else "noise") + 5)
    for number, change in enumerate((more, noise)):
        found = golden(case, tmp_path / str(number), change)
        assert any("are not the true ones with the noise in internal/noise" in each for each in found), found


def test_noise_inside_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    found = golden("noisy-tables", tmp_path, add("internal/noise/1.parquet", GARBAGE))
    assert one(found, "internal/noise/1.parquet: it cannot be read: ")


def test_exact_counts_next_to_noise_add_up_to_the_number_of_records(tmp_path: Path) -> None:
    found = golden("noisy-swap", tmp_path, with_columns("invariants.parquet", pl.col("count") + 3))
    assert one(found, "public/invariants.parquet: the size that is published exactly adds up to "), found


def test_exact_counts_next_to_noise_are_compared_with_the_true_ones_inside(made: Path, tmp_path: Path) -> None:
    swap = {"match": ["size"], "swap": ["county"], "rate": "1/10"}
    bundle = release(
        made,
        "after",
        data={"households": "homes.parquet", "codebook": "codebook.toml"},
        mechanism={"name": "noisy-tables", "noise": "laplace", "epsilon": 1, "after": swap},
        tables=[{"variables": ["size", "county", "tenure"]}],
    )
    assert audit_bundle(bundle).passed
    shutil.copytree(bundle, tmp_path / "bundle")
    moved = pl.when(pl.int_range(pl.len()) < 2).then(1 - 2 * pl.int_range(pl.len())).otherwise(0)
    with_columns("invariants.parquet", pl.col("count") + moved)(tmp_path / "bundle")
    retell(tmp_path / "bundle")
    found = [each.what for each in audit_bundle(tmp_path / "bundle").problems]
    assert found == ["the size that is published exactly is not that of size x county x tenure in internal/noise"]


# ---- what cannot be seen is said --------------------------------------------------------------------------


def test_of_too_few_records_the_audit_does_not_claim_to_have_seen_no_order(tmp_path: Path) -> None:
    households(12).write_parquet(tmp_path / "homes.parquet")
    # So few that tenure follows from the county.
    accept = {"out": "few", "accept": ["left-behind:tenure"]}
    out = release(tmp_path, "few", data={"households": "homes.parquet", "id": ["hid"]}, tables=[], release=accept)
    audit = audit_bundle(out)
    assert audit.passed, audit.problems
    (about,) = [check for check in audit.checks if check.startswith("rows are grouped by county")]
    assert about.endswith("too few of them, or too much alike, to see any other order")


def test_a_column_without_any_number_is_released_and_audited(tmp_path: Path) -> None:
    """Polars knows such a column to be sorted, and then its joins lose NaN: planning failed."""
    households().with_columns(rent=pl.lit(float("nan"))).write_parquet(tmp_path / "homes.parquet")
    data = {"households": "homes.parquet", "id": ["hid"]}
    out = release(tmp_path, "rents", data=data, tables=[{"variables": ["rent"]}])
    assert pl.read_csv(out / "public/tables/rent.csv")["count"].to_list() == [60]
    audit = audit_bundle(out)
    assert audit.passed, audit.problems


def test_the_command_ends_with_1_and_names_every_broken_file(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("invariants.parquet", "strata.parquet"):
        add(f"public/{name}", GARBAGE)(records)
    retell(records)
    assert command(["check", str(records), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert not facts["passed"]
    text = json.dumps(facts["problems"])
    assert "public/invariants.parquet" in text
    assert "public/strata.parquet" in text
