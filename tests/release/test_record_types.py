"""A release may start from a flat file, a table of counts or a sample: a household is a default, not an assumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run as command
from stirred.data.problems import PlanError
from stirred.release.plan_file import plan_from, read_plan
from stirred.release.prepared import prepare
from stirred.spec.problems import StirredError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    people = pl.DataFrame(
        {
            "region": [["north", "south", "east"][n % 3] for n in range(240)],
            "age": [20 + n % 5 for n in range(240)],
            "work": [["yes", "no"][n // 3 % 2] for n in range(240)],
            "weight": [10 + n % 2 for n in range(240)],
            "psu": [n % 12 for n in range(240)],
        }
    )
    people.select("region", "age", "work").write_csv(folder / "people.csv")
    people.group_by("region", "age", "work").len("n").write_csv(folder / "table.csv")
    people.write_csv(folder / "survey.csv")
    return folder


def plan(folder: Path, data: dict[str, Any], **sections: Any) -> dict[str, Any]:
    del folder
    mechanism = {"match": ["age"], "swap": ["region"], "rate": "1/4", "hold": ["work"]}
    return {"data": data, "mechanism": mechanism, "release": {"out": "bundle"}, **sections}


def prepared(folder: Path, data: dict[str, Any], **sections: Any) -> Any:
    return prepare(plan_from(plan(folder, data, **sections), source="plan.toml", folder=folder))


def test_a_flat_file_of_persons_promises_for_one_person(folder: Path) -> None:
    found = prepared(folder, {"file": "people.csv", "record": "person"})
    promise = found.plan.specification
    assert promise.input_premetric.unit == "person"
    assert promise.domain.record_types == ("person",)
    assert str(promise.multiverse.invariants[0]).startswith("number of persons by age x region")
    assert "household" not in str(found.plan)


def test_a_file_of_which_nobody_says_what_a_row_is_has_records(folder: Path) -> None:
    assert prepared(folder, {"file": "people.csv"}).plan.specification.input_premetric.unit == "record"


def test_the_unit_of_the_mechanism_goes_before_the_record_type(folder: Path) -> None:
    content = plan(folder, {"file": "people.csv", "record": "person"})
    content["mechanism"]["unit"] = "worker"
    found = prepare(plan_from(content, source="plan.toml", folder=folder))
    assert found.plan.specification.input_premetric.unit == "worker"


def test_a_table_of_counts_is_the_file_it_counts(folder: Path) -> None:
    records = prepared(folder, {"file": "people.csv", "record": "person"})
    counted = prepared(folder, {"counts": "table.csv", "count": "n", "record": "person"})
    assert counted.data.households.height == 240
    columns = ["age", "region", "work"]
    assert (
        counted.data.households.select(columns)
        .sort(columns)
        .equals(records.data.households.select(columns).sort(columns))
    )
    assert counted.plan.specification.budget == records.plan.specification.budget


def test_a_sample_keeps_its_design_and_its_stage(folder: Path) -> None:
    design = {"ids": "psu", "weights": "weight"}
    found = prepared(folder, {"sample": "survey.csv", "record": "person"}, design=design)
    assert found.data.design["weights"] == "weight"
    assert found.data.design["ids"] == ["psu"]
    assert found.plan.specification.domain.stage == "sample"


@pytest.mark.parametrize(
    ("data", "sections", "what"),
    [
        ({}, {}, "[data] households: 'households' is missing"),
        ({"file": "people.csv", "counts": "table.csv"}, {}, "file and counts both name the file"),
        ({"file": "people.csv", "persons": "people.csv", "hid": "age"}, {}, "persons belong to households"),
        ({"file": "people.csv"}, {"design": {"weights": "weight"}}, "only a sample has a design"),
        ({"sample": "survey.csv"}, {"design": {"weights": "wgt"}}, "no column 'wgt'"),
        ({"counts": "table.csv"}, {}, "there is no column 'count'"),
        ({"counts": "table.csv", "count": "work"}, {}, "counts that are not whole numbers from 0 on"),
    ],
)
def test_files_that_do_not_go_together_are_refused(
    data: dict[str, Any], sections: dict[str, Any], what: str, folder: Path
) -> None:
    with pytest.raises((PlanError, StirredError)) as told:
        prepared(folder, data, **sections)
    assert what in str(told.value)
    assert "Fix: " in str(told.value)


def test_a_kept_plan_of_a_flat_file_has_the_same_unit(folder: Path) -> None:
    """What is kept has its defaults written out; a resumed run must promise the same."""
    first = plan_from(plan(folder, {"file": "people.csv", "record": "person"}), source="plan.toml", folder=folder)
    kept = plan_from(first.model_dump(), source="plan.toml", folder=folder)
    assert prepare(kept).plan.specification == prepare(first).plan.specification


def test_a_flat_file_goes_the_whole_way(folder: Path, tmp_path: Path) -> None:
    text = f"""
[data]
file = "{folder / "people.csv"}"
record = "person"

[mechanism]
name = "conditioned-swap"
match = "age"
swap = "region"
rate = "1/2"
hold = "work"

[[tables]]
variables = ["region", "work"]

[release]
out = "bundle"
ledger = "people.ledger"
"""
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert command(["ledger", "init", str(tmp_path / "people.ledger"), "--dataset", "people"]) == 0
    assert command(["release", str(tmp_path / "plan.toml"), "--quiet"]) == 0
    assert command(["check", str(tmp_path / "bundle")]) == 0
    assert command(["publish", str(tmp_path / "bundle"), str(tmp_path / "published")]) == 0
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text(encoding="utf-8"))
    assert [*manifest["inputs"]] == ["file"]


def test_a_unit_that_somebody_wrote_is_kept_also_where_it_is_the_default(folder: Path) -> None:
    """`unit = "household"` with `file` was read as if nothing had been said, and the promise was for one record."""
    settings = 'match = ["age"]\nswap = ["region"]\nrate = "1/4"'
    content = f'[data]\nfile = "people.csv"\n[mechanism]\n{settings}\n{{}}[release]\nout = "o"\n'
    found = {}
    for unit in ("", 'unit = "household"\n', 'unit = "person"\n'):
        (folder / "unit.toml").write_text(content.format(unit), encoding="utf-8")
        found[unit] = prepare(read_plan(folder / "unit.toml")).plan.specification.input_premetric.unit
    assert [*found.values()] == ["record", "household", "person"]
