"""Doubts about a promise as a whole, and plans that a release does not believe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from stirred.randomness.entropy import Entropy
from stirred.spec.doubts import DoubtError

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
SWAP = PermutationSwap(**ROLES, rate="1/2")
HOMES = pl.DataFrame({"size": [1, 2] * 40, "county": list("AABB") * 20, "tenure": list("oooorrrr") * 10})


def movable(records: int, of: int = 10_000) -> pl.DataFrame:
    """Return a file in which only so many records have anybody to exchange with."""
    still = of - records
    return pl.DataFrame(
        {
            "size": [1] * records + [*range(2, still + 2)],
            "county": ["A", "B"] * (records // 2) + ["A"] * still,
            "tenure": (list("oorr") * records)[:records] + ["o"] * still,
        }
    )


def names(swap: Swap, homes: pl.DataFrame) -> list[str]:
    return [doubt.name for doubt in swap.plan(homes).doubts if doubt.refuses]


@pytest.mark.parametrize(
    "swap",
    [
        PermutationSwap(**ROLES, rate="1/20"),
        PermutationSwap(**ROLES, rate="1/20", rates=[{"county": "A", "tenure": "o", "rate": "1/40"}]),
        ShuffleSwap(**ROLES, rate="1/20"),
        ConditionedSwap(**ROLES, rate="1/20"),
        MallowsSwap(**ROLES, epsilon=5),
        TwoStageSwap(rate="1/20", fine_rate="1/20", fine_match=["tenure"], **ROLES),
    ],
    ids=lambda swap: swap.stratum_law,
)
def test_a_file_with_two_movable_records_is_never_released(swap: Swap) -> None:
    if swap.stratum_law == "two-stage":
        homes = movable(4).with_columns(age=pl.Series([1, 2, 3, 4] + [0] * 9_996))
    else:
        homes = movable(2).with_columns(tenure=pl.Series(["o", "r"] + ["o"] * 9_998))
    assert "nothing-moves" in names(swap, homes)
    with pytest.raises(DoubtError, match="fewer than one record is expected to get other values"):
        swap.release(homes, Entropy.from_os(), accept=["nothing-moves"])


@pytest.mark.parametrize("rates", [[], [{"county": "A", "tenure": "o", "rate": "1/2000000000000"}]])
def test_a_rate_at_which_nothing_is_expected_to_move_is_refused_for_ever(rates: Any) -> None:
    assert names(PermutationSwap(**ROLES, rate=f"1/{10**12}", rates=rates), HOMES) == ["nothing-moves"]


def test_one_expected_record_is_the_border() -> None:
    """In a stratum of two at rate 1/2 both move or none: one record is expected, and not fewer."""
    two = pl.DataFrame({"size": [1, 1], "county": ["A", "B"], "tenure": ["o", "r"]})
    assert SWAP.plan(two).strata.most_moved == 1
    assert names(SWAP, two) == []
    assert names(SWAP.with_settings(rate="499/1000"), two) == ["nothing-moves"]


@pytest.mark.parametrize(("records", "found"), [(5_000, []), (4_998, ["mostly-unmoved"])])
def test_a_file_most_of_which_cannot_move_is_refused_until_somebody_accepts_it(records: int, found: list[str]) -> None:
    homes = movable(records)
    assert names(SWAP, homes) == found
    released = SWAP.release(homes, Entropy.from_os(), accept=found)
    assert any("mostly-unmoved" in said for said in released.specification.assumptions) == bool(found)


def test_strata_at_rate_0_count_among_those_that_cannot_move() -> None:
    homes = HOMES.with_columns(size=pl.Series([1] * 8 + [2] * 72))
    assert names(SWAP.with_settings(rates=[{"size": 2, "rate": "0"}]), homes) == ["nothing-promised", "mostly-unmoved"]


@pytest.mark.parametrize(("rate", "change"), [("0", "0"), (f"1/{10**9}", f"1/{10**9}")])
def test_a_response_and_a_swap_that_change_nothing_are_refused_for_ever(rate: str, change: str) -> None:
    swap = ResponseSwap(**ROLES, rate=rate, respond="county", values=["A", "B"], change=change)
    assert names(swap, HOMES) == ["nothing-moves"]


# ---- a release believes only its own plan ----------------------------------------------------------------


OTHER = HOMES.with_columns(tenure=HOMES["tenure"].reverse())


@pytest.mark.parametrize(
    ("swap", "homes", "said"),
    [
        (SWAP.with_settings(rate="1/4"), HOMES, "another mechanism, or the same with other settings"),
        (ShuffleSwap(**ROLES, rate="1/2"), HOMES, "another mechanism"),
        (SWAP, OTHER, "other data"),
        (SWAP, HOMES.cast({"size": pl.Int8}), "other data"),
        (SWAP, Microdata(households=HOMES, stage="edited-file"), "other data"),
    ],
)
def test_a_plan_of_another_mechanism_or_of_other_data_is_refused(swap: Swap, homes: Any, said: str) -> None:
    with pytest.raises(PlanError, match=f"the plan was made for {said}"):
        SWAP.release(HOMES, Entropy.from_os(), plan=swap.plan(homes))


def test_a_plan_for_equal_data_is_believed() -> None:
    plan = SWAP.plan(HOMES.clone())
    assert SWAP.release(HOMES.to_pandas(), Entropy.from_os(), plan=plan).specification == plan.specification
    assert replace(SWAP, threads=1).release(HOMES, Entropy.from_os(), plan=plan).specification == plan.specification


def test_doubts_cannot_be_taken_out_of_a_plan() -> None:
    homes = HOMES.with_columns(place=pl.col("county").str.to_lowercase())
    plan = SWAP.plan(homes)
    assert plan.doubts
    with pytest.raises(PlanError, match="doubts changed since"):
        SWAP.release(homes, Entropy.from_os(), plan=replace(plan, doubts=()))


def test_settings_chosen_on_the_file_are_doubted_whatever_the_plan_says() -> None:
    swap = SWAP.with_settings(settings_from="this-data")
    plan = swap.plan(HOMES)
    assert plan.origin is not None
    forged = replace(plan, doubts=())._sealed()
    with pytest.raises(DoubtError, match="void the guarantee"):
        swap.release(HOMES, Entropy.from_os(), plan=forged)


@pytest.mark.parametrize(
    ("rate", "words"), [("0", "nothing: no record can"), ("1e-30", "next to nothing: at so low a")]
)
def test_a_tiny_rate_is_not_called_a_rate_of_0(rate: str, words: str) -> None:
    plan = SWAP.with_settings(rate=rate).plan(HOMES)
    assert plan.disturbed.startswith(words)
    (doubt,) = (each for each in plan.doubts if each.kind == "nothing-moves")
    assert ("at a rate of 0" in doubt.what) == (rate == "0")
