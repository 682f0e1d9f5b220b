"""`stirred topdown optimise-budget`: from a budget file to a better one, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stirred.mechanisms.topdown.budget import Shares, read_budget
from stirred.mechanisms.topdown.commands_measure import OptimiseOptions, optimise_budget
from stirred.spec.problems import StirredError


def _toy_budget(path: Path) -> str:
    rows = ['rho = "1"', "[levels]", 'all = "1/2"', 'ward = "1/2"', "[queries]", 'total = "1/2"', 'detailed = "1/2"']
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_the_command_writes_a_better_budget_and_reads_it_back(tmp_path: Path) -> None:
    given, out = _toy_budget(tmp_path / "given.toml"), tmp_path / "better.toml"
    options = OptimiseOptions(file=given, schema_="pl94-units", areas=["all=1", "ward=20"], out=out)
    found = optimise_budget(options.model_copy(update={"criterion": "sum-of-variances"}))
    assert found.values["loss"][1] < found.values["loss"][0]
    assert found.values["budget"]["title"] == "A budget, optimised"
    assert dict(found.rows)["written"] == str(out)
    assert found.values["bound"] <= found.values["loss"][1] + 1e-9
    again = Shares.read(read_budget(str(out)))
    assert again.rho == sum(again.levels.values()) == 1
    assert again.document() == found.values["budget"]


def test_shares_that_are_best_already_keep_their_title_and_nothing_is_written(tmp_path: Path) -> None:
    given, out = _toy_budget(tmp_path / "given.toml"), tmp_path / "better.toml"
    found = optimise_budget(OptimiseOptions(file=given, schema_="pl94-units", areas=["all=2", "ward=40"], out=out))
    assert dict(found.rows)["changes"] == "none: no better shares found"
    assert dict(found.rows)["written"] == "nothing"
    assert not out.exists()
    assert not found.values["improved"]
    assert found.values["budget"] == Shares.read(read_budget(given)).document()


def test_the_total_of_the_whole_has_no_error_and_needs_no_share(tmp_path: Path) -> None:
    given = _toy_budget(tmp_path / "given.toml")
    of: dict[str, Any] = {
        "file": given,
        "schema_": "pl94-units",
        "areas": ["all=1", "ward=20"],
        "criterion": "sum-of-variances",
    }
    unasked, asked = (optimise_budget(OptimiseOptions(**of, known=known)).values for known in (None, "all"))
    assert unasked == asked
    assert "total" not in unasked["budget"]["queries"].get("all", {})
    several = optimise_budget(OptimiseOptions(**(of | {"areas": ["all=2", "ward=20"]}))).values
    assert several["loss"][0] > unasked["loss"][0], "of two areas at the top nobody knows which has how many"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"areas": ["all=1"]}, 'the levels of the budget are "all", "ward"'),
        ({"areas": ["all=one", "ward=2"]}, "'all=one' does not say how many areas"),
        ({"areas": ["all=3", "ward=2"]}, "fewer areas than the one above"),
        ({"known": "county"}, "there is no level 'county'"),
        ({"out": "given.toml"}, "it exists already"),
    ],
)
def test_what_the_command_cannot_use_is_said(
    changed: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"file": _toy_budget(tmp_path / "given.toml"), "schema_": "pl94-units", "areas": ["all=1", "ward=20"]}
    with pytest.raises(StirredError, match=re.escape(told)):
        optimise_budget(OptimiseOptions(**(given | changed)))
