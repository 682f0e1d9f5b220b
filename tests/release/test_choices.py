"""The choices of match and swap: which names are refused, which columns are warned of, and Table 5's shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.release.choices import candidates

ROWS = range(240)
# Twelve blocks in six tracts in three counties in one state; two postcodes to each county.
HOMES = pl.DataFrame(
    {
        "hid": list(ROWS),
        "block": [i % 12 for i in ROWS],
        "tract": [i % 12 // 2 for i in ROWS],
        "county": [i % 12 // 4 for i in ROWS],
        "state": [0] * 240,
        "zip": [f"{i % 12 // 4}{i // 12 % 2}" for i in ROWS],
        "size": [i // 7 % 3 for i in ROWS],
        "tenure": [i // 5 % 2 for i in ROWS],
    }
)
LEVELS = ["block", "tract", "county", "state"]


def microdata(frame: pl.DataFrame = HOMES) -> Microdata:
    return Microdata(households=frame, id=("hid",))


# --- names ----------------------------------------------------------------------------------------------

COLUMNS = '"hid", "block", "tract", "county", "state", "zip", "size", "tenure"'
REFUSED: dict[str, tuple[list[str], list[str], list[str]]] = {
    "a level that does not exist": (
        ["block", "trakt", "county"],
        [],
        [f'households: there is no column "trakt" (named in geography); there are {COLUMNS}'],
    ),
    "a crossed variable that does not exist": (
        LEVELS,
        ["sise"],
        [f'households: there is no column "sise" (named in cross); there are {COLUMNS}'],
    ),
    "a level twice": (["block", "block", "county"], [], ['geography: "block" is named 2 times']),
    "a crossed variable twice": (LEVELS, ["size", "tenure", "size"], ['cross: "size" is named 2 times']),
    "a level that is crossed too": (
        LEVELS,
        ["county"],
        ['cross: "county" is a level of the geography, and every level is matched or swapped already'],
    ),
    "an identifier": (
        ["hid", "county"],
        ["hid"],
        ['geography: "hid" is an identifier', 'cross: "hid" is an identifier'],
    ),
    "one level": (["county"], [], ["geography: a geography needs two levels or more"]),
    "everything at once": (
        ["block", "block", "stat"],
        ["block", "sise"],
        [
            'geography: "block" is named 2 times',
            f'households: there is no column "stat" (named in geography); there are {COLUMNS}',
            'cross: "block" is a level of the geography, and every level is matched or swapped already',
            f'households: there is no column "sise" (named in cross); there are {COLUMNS}',
        ],
    ),
}


@pytest.mark.parametrize(("levels", "cross", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_names_that_make_no_sense_are_refused_all_at_once(
    levels: Sequence[str], cross: Sequence[str], told: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        candidates(microdata(), levels=levels, cross=cross)
    assert [f"{problem.where}: {problem.what}" for problem in caught.value.problems] == told
    assert all(problem.remedy for problem in caught.value.problems)


def test_levels_that_do_not_nest_are_refused() -> None:
    frame = pl.DataFrame({"tract": [1, 1, 2, 2], "county": [1, 1, 1, 1], "state": [1, 2, 1, 2], "x": [1, 2, 3, 4]})
    with pytest.raises(PlanError, match='values of "county" lie in two or more values of "state"'):
        candidates(frame, levels=["tract", "county", "state"])


def test_crossing_without_a_geography_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    HOMES.write_parquet(tmp_path / "homes.parquet")
    monkeypatch.chdir(tmp_path)
    assert run(["advise", "homes.parquet", "--swap", "county", "--cross", "size"]) == 2
    assert "--cross goes with --geography" in capsys.readouterr().err
    geography = ["--id", "hid", "--geography", "block,tract,county,state"]
    assert run(["advise", "homes.parquet", *geography, "--cross", "size,county"]) == 2
    assert 'cross: "county" is a level of the geography' in capsys.readouterr().err


# --- columns that tell a level --------------------------------------------------------------------------


def test_a_column_outside_the_geography_that_tells_a_level_is_warned_of() -> None:
    """Searched where all levels but the coarsest are swapped: that is the widest choice, and the first."""
    widest, *others = candidates(microdata(), levels=LEVELS, cross=["size"])
    assert widest.name == "state | county"
    (doubt,) = widest.doubts
    assert doubt.what.startswith('"zip" is published unchanged and determines "county"')
    assert not any(doubt.refuses for choice in others for doubt in choice.doubts)


def test_a_level_that_was_forgotten_is_warned_of() -> None:
    widest, _ = candidates(microdata(HOMES.drop("zip")), levels=["block", "county", "state"])
    assert [doubt.name for doubt in widest.doubts] == ["tells:tract"]


def test_a_column_that_tells_no_level_is_not_warned_of() -> None:
    """The power check: the same postcodes in all counties, and nothing can be read off."""
    found = candidates(microdata(HOMES.with_columns(zip=pl.Series([i // 12 % 2 for i in ROWS]))), levels=LEVELS)
    assert not any(choice.doubts for choice in found)


def test_a_held_column_that_tells_one_of_several_swap_variables_is_warned_of() -> None:
    data = microdata()
    plan = PermutationSwap(match=["state"], swap=["county", "tract", "block"], rate="1/2").plan(data)
    assert [doubt.name for doubt in plan.doubts] == ["tells:zip"]
    assert plan.doubts[0].what.startswith('"zip" is published unchanged and determines "county": anyone could reverse')
    alone = PermutationSwap(match=["state"], swap=["county"], rate="1/2", hold=["zip", "size"]).plan(data)
    assert [doubt.name for doubt in alone.doubts] == ["tells:zip"]
    assert alone.doubts[0].what.startswith('"zip" is published unchanged and determines the swap values')
