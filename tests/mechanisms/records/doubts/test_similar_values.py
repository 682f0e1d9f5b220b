"""Values that are the same but for blanks or letter case: warned of inside, and never in public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from tests.world import households

HOMES = households(60).drop("hid")
BLANK = HOMES.with_columns(county=pl.when(pl.int_range(pl.len()) == 7).then(pl.lit(" North")).otherwise("county"))
ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"], "rate": "1/2"}


def told(homes: pl.DataFrame, swap: Swap) -> list[str]:
    return [str(doubt) for doubt in swap.plan(homes).doubts if doubt.kind == "similar-values"]


@pytest.mark.parametrize(
    "swap",
    [
        PermutationSwap(**ROLES),
        ResponseSwap(**ROLES, respond="tenure", values=["owned", "rented"], change="1/5"),
    ],
    ids=lambda swap: swap.stratum_law,
)
def test_two_spellings_of_an_area_are_warned_of(swap: Swap) -> None:
    (word,) = told(BLANK, swap)
    assert word.startswith(
        "\"county\" has values that are the same but for blanks or letter case (' North' and 'North')"
    )
    assert told(HOMES, swap) == []


def test_match_variables_are_looked_at_and_long_lists_are_cut() -> None:
    many = pl.DataFrame({"town": [*"abcde", *"ABCDE"] * 2, "area": ["x", "y"] * 10, "held": [*range(4)] * 5})
    swap = PermutationSwap(match=["town"], swap=["area"], rate="1/2")
    (word,) = told(many, swap)
    assert word.startswith('"town"')
    assert "('A' and 'a'; 'B' and 'b'; 'C' and 'c'; 2 more)" in word


def test_the_warning_stays_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    BLANK.write_parquet("homes.parquet")
    roles = ["--match", "size", "--swap", "county", "--rate", "1/2"]
    assert run(["swap", "homes.parquet", *roles, "--out", "out", "--quiet"]) == 0
    assert "blanks or letter case" in capsys.readouterr().err
    public = [path for path in Path("out/public").rglob("*") if path.suffix in (".md", ".html", ".json")]
    assert public
    assert all("letter case" not in path.read_text(encoding="utf-8") for path in public)
