"""`stirred compare` and `stirred spec pull-back` as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stirred.spec import catalogue, pull_back
from stirred.spec.document import from_document, from_json
from tests.cli.running import Command, told, words


def test_a_price_is_called_what_it_is(command: Command) -> None:
    found = told(command, "compare", "das-2020-topdown", "--count", "state=51")
    assert found["called"] == "a pragmatic equivalent, not a guarantee"
    assert found["prices"][0]["rho2"] == pytest.approx(15.1893302897, abs=1e-9)
    assert found["budget"] == "ρ²=15.29"
    shown = words(command, "compare", "das-2020-topdown", "--count", "state=51")
    assert "a pragmatic equivalent, not a guarantee" in shown
    assert "protects nothing" in shown


def test_prices_stand_in_a_comparison(command: Command) -> None:
    two = ["das-2020-topdown", "psa-2020-state-county-5pct", "--count", "state=51", "--count", "county=3143"]
    found = told(command, "compare", *two)["prices"]
    assert found["first"][0]["counts"] == 51
    assert found["second"][0]["counts"] == 3143
    assert "priced as noise (a pragmatic equivalent, not a guarantee)" in words(command, "compare", *two)
    assert command("compare", *two[:2], "--count", "planet=8")[0] == 2
    assert command("compare", *two[:2], "--count", "state")[0] == 2


def test_pull_back_prints_the_promise_about_the_file_before_and_writes_it(command: Command, tmp_path: Path) -> None:
    before = pull_back(catalogue.load("das-2020").specification, "impute-copies", lipschitz=2).specification
    typed = ["spec", "pull-back", "das-2020", "--step", "impute-copies", "--lipschitz", "2"]
    found = told(command, *typed)
    assert from_document(found["specification"]) == before
    assert found["steps"][-1]["after"] == "ρ²=221.484"
    place = tmp_path / "before.json"
    assert command(*typed, "--out", str(place), "--stage", "raw-responses")[0] == 0
    assert from_json(place.read_text(encoding="utf-8")).domain.stage == "raw-responses"
    assert "before the file was completed by imputation" in words(command, *typed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step", "impute-mean"], "--step: impute-mean has no factor: every record moves the mean"),
        (["--step", "impute-copies"], "--lipschitz: impute-copies needs a whole number"),
        (["--step", "shuffle", "--lipschitz", "2"], "--because: no reason is given"),
        (["--step", "shuffle"], "--step: there is no step called 'shuffle'"),
    ],
)
def test_steps_without_a_factor_write_nothing(
    options: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    place = tmp_path / "before.json"
    code, out, err = command("spec", "pull-back", "das-2020", *options, "--out", str(place))
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not place.exists()


def test_what_a_derived_promise_assumes_is_printed(command: Command) -> None:
    reason = "our edits change three records at most"
    own = ("pull-back", "pure-dp", "--budget", "1", "--step", "ours", "--lipschitz", "3", "--because", reason)
    assert f"this holds if: - {reason}" in words(command, "spec", *own)
    typed = (
        "convert",
        "pure-dp",
        "--budget",
        "1",
        "--unit",
        "person",
        "--factor",
        "2",
        "--because",
        "two records each",
    )
    assert words(command, "spec", *typed).endswith("this holds if: - two records each")
