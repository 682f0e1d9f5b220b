"""The stage of the file and its imputation: said in the plan, or not said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.data.microdata import Microdata
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.spec.document import from_json, to_json
from stirred.spec.domain import after_imputation
from stirred.spec.explanation import explain
from stirred.spec.problems import StirredError
from tests.world import households, swap_plan

ARGUMENTS = ["homes.csv", "--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    households(60).write_csv(tmp_path / "homes.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(data: dict[str, Any], **mechanism: Any) -> Any:
    plan = swap_plan(tables=(), data={"households": "homes.csv", **data}, release={"out": "bundle"}, **mechanism)
    return prepare(plan_from(plan, source="plan.toml", folder=Path()))


def test_a_plan_that_says_nothing_makes_no_claim(folder: Path) -> None:
    specification = prepared({}).plan.specification
    assert specification.domain.stage == "as-given"
    assert specification.input_premetric.post_imputation is None
    words = str(explain(specification))
    assert "protected as it is given to the mechanism" in words
    assert "after coding, editing and imputation" not in words
    assert "not stated: whether imputation copied answers" in words
    assert "post_imputation" not in json.loads(to_json(specification))["input_premetric"]
    assert from_json(to_json(specification)) == specification


@pytest.mark.parametrize(
    ("data", "stage", "imputed"),
    [
        ({"stage": "edited-file"}, "edited-file", True),
        ({"stage": "raw-responses"}, "raw-responses", False),
        ({"stage": "sample", "post_imputation": True}, "sample", True),
        ({"post_imputation": False}, "as-given", False),
    ],
)
def test_what_the_plan_says_stands_in_the_specification(
    folder: Path, data: dict[str, Any], stage: str, imputed: bool
) -> None:
    specification = prepared(data).plan.specification
    assert (specification.domain.stage, specification.input_premetric.post_imputation) == (stage, imputed)
    assert ("people as such" in str(explain(specification))) is imputed


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (
            {"stage": "edited-file", "post_imputation": False},
            "plan.toml [data] post_imputation: at the stage edited",
        ),
        (
            {"stage": "raw-responses", "post_imputation": True},
            "plan.toml [data] post_imputation: at the stage raw",
        ),
        ({"stage": "cooked"}, "plan.toml [data] stage"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_place(folder: Path, data: dict[str, Any], where: str) -> None:
    with pytest.raises(StirredError) as refusal:
        prepared(data)
    assert str(refusal.value).startswith(where)


def test_a_column_that_flags_imputed_records_says_that_the_file_is_one_after_imputation(folder: Path) -> None:
    households(60).with_columns(flag=pl.int_range(60) % 5 == 0).write_csv(folder / "homes.csv")
    assert prepared({}, imputed="flag").plan.specification.input_premetric.post_imputation is True
    for data in ({"post_imputation": False}, {"stage": "raw-responses"}):
        with pytest.raises(StirredError, match="flag flags imputed records, so the file is one after imputation"):
            prepared(data, imputed="flag")


def test_python_says_it_with_the_data() -> None:
    data = Microdata(households=households(60), id=("hid",), stage="population", post_imputation=True)
    specification = PermutationSwap(match=["size"], swap=["county"], rate="1/2").plan(data).specification
    assert specification.domain.stage == "population"
    assert specification.input_premetric.post_imputation is True
    with pytest.raises(StirredError, match="'cooked' is not a stage"):
        after_imputation("cooked")


def test_options_say_it_too_and_a_bundle_is_audited_with_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--set", "stage=sample", "--set", "post_imputation=true", "--out", "bundle", "--quiet"]
    assert command(["swap", *ARGUMENTS, *said]) == 0
    stated = json.loads((folder / "bundle" / "public" / "specification.json").read_text())
    assert (stated["domain"]["stage"], stated["input_premetric"]["post_imputation"]) == ("sample", True)
    assert audit_bundle(folder / "bundle").problems == ()
    assert command(["plan", *ARGUMENTS, "--set", "stage=edited-file", "--set", "post_imputation=false"]) == 2
    assert "--set post_imputation: at the stage edited-file" in capsys.readouterr().err
