"""A coarser area that stays behind shows who was swapped, and from where: doubted, and told inside only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap

ROWS = range(240)
HOMES = pl.DataFrame(
    {
        "Gemeinde": [f"{i % 12 // 6}{i % 12 // 3 % 2}{i % 3}" for i in ROWS],
        "Kreis": [f"{i % 12 // 6}{i % 12 // 3 % 2}" for i in ROWS],
        "Land": [i % 12 // 6 for i in ROWS],
        "Jahr": [2020] * 240,
        "size": [1 + i // 7 % 3 for i in ROWS],
        "tenure": [i // 5 % 2 for i in ROWS],
    }
)
WORDS = 'is a function of "Gemeinde" and is held: a record whose "Gemeinde" does not fit shows that it was swapped'


def doubts(swap: Any, frame: pl.DataFrame = HOMES) -> list[str]:
    """Return what is left behind, and what a response shows; HOMES are so regular that pairs of columns tell too."""
    found = [doubt for doubt in swap.plan(frame).doubts if doubt.kind in ("left-behind", "shows-response")]
    assert all(doubt.refuses and f'"{doubt.about}"' in doubt.what for doubt in found)
    return [str(doubt) for doubt in found]


def permutation(match: list[str], swap: list[str], **more: Any) -> PermutationSwap:
    return PermutationSwap(match=match, swap=swap, rate="1/2", **more)


def test_a_coarser_area_that_is_held_is_warned_of() -> None:
    kreis, land = doubts(permutation(["size"], ["Gemeinde"]))
    assert kreis.startswith(f'"Kreis" {WORDS}')
    assert land.startswith(f'"Land" {WORDS}, and from which "Land". Match on it')


@pytest.mark.parametrize(
    "swap",
    [
        permutation(["Kreis"], ["Gemeinde"]),  # a Land follows from the Kreis, and all of a stratum share it
        permutation(["size"], ["Land", "Kreis", "Gemeinde"]),
        permutation(["size"], ["Gemeinde"], hold=["tenure"]),
    ],
    ids=["matched", "swapped", "left out"],
)
def test_one_that_is_matched_or_swapped_or_left_out_is_not(swap: PermutationSwap) -> None:
    assert doubts(swap) == []


def test_one_that_is_matched_by_part_is_warned_of_by_the_rest() -> None:
    (told,) = doubts(permutation(["Land", "size"], ["Gemeinde"]))
    assert told.startswith(f'"Kreis" {WORDS}')


def test_one_household_elsewhere_and_it_is_no_function() -> None:
    """The power check."""
    lands = HOMES["Land"].to_list()
    lands[0] = 1
    (told,) = doubts(permutation(["size"], ["Gemeinde"]), HOMES.with_columns(Land=pl.Series(lands)))
    assert told.startswith('"Kreis"')


def test_a_function_of_several_swap_variables_is_found() -> None:
    parts = HOMES.with_columns(place=pl.col("Gemeinde").str.slice(2)).drop("Gemeinde")
    (told,) = doubts(permutation(["size"], ["Kreis", "place"]), parts)
    assert told.startswith('"Land" is a function of "Kreis", "place" and is held')


def test_the_second_stage_binds_only_itself() -> None:
    swap = TwoStageSwap(
        match=["Land"], swap=["Gemeinde"], rate="1/2", fine_match=["Kreis"], fine_rate="1/2"
    )  # fmt: skip
    (told,) = doubts(swap)
    assert told.startswith('"Kreis"')


def test_a_response_does_not_stay_inside_the_match_variables() -> None:
    """A response may give any declared Gemeinde, also one of another Kreis than the one that is matched on."""
    values = HOMES["Gemeinde"].unique().sort().to_list()
    told = doubts(
        ResponseSwap(match=["Kreis"], swap=["Gemeinde"], rate="1/2", respond="Gemeinde", values=values, change="1/10")
    )
    assert [word.split(" and is ")[0] for word in told] == [
        '"Kreis" is a function of "Gemeinde"',
        '"Land" is a function of "Gemeinde"',
    ]
    assert "shows that the response changed it" in told[0]


def test_a_response_on_another_variable_leaves_the_warnings_of_the_swap() -> None:
    swap = ResponseSwap(
        match=["Land"], swap=["Gemeinde"], rate="1/2", respond="tenure", values=["0", "1"], change="1/10"
    )
    (told,) = doubts(swap)
    assert told.startswith(f'"Kreis" {WORDS}')


def test_among_millions_of_rows_a_glance_does_not_miss_it() -> None:
    rows = np.arange(3_000_000, dtype=np.int64)
    place = (rows * 7_919) % 10_000
    held = {f"held{j}": (rows * (j + 3)) // 11 % (j + 2) for j in range(8)}
    homes = pl.DataFrame({"size": rows % 3, "place": place, "Land": place // 625, **held})
    (told,) = doubts(permutation(["size"], ["place"]), homes)
    assert told.startswith('"Land" is a function of "place"')


def test_the_warning_is_printed_and_stands_in_no_public_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    HOMES.write_csv("homes.csv")
    roles = ["--match", "size", "--swap", "Gemeinde", "--rate", "1/2", "--hold", "Land,tenure"]
    assert run(["swap", "homes.csv", *roles, "--out", "out", "--quiet"]) == 2
    assert '"Land" is a function of "Gemeinde"' in " ".join(capsys.readouterr().err.split())
    roles += ["--accept", "left-behind:Land"]
    assert run(["swap", "homes.csv", *roles, "--out", "out", "--quiet"]) == 0
    public = [path.read_bytes() for path in (tmp_path / "out" / "public").rglob("*") if path.is_file()]
    assert not any(b"is a function of" in content for content in public)
    assert "is a function of" in (tmp_path / "out" / "internal" / "report.html").read_text(encoding="utf-8")
