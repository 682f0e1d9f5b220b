"""Two stages of matching (R13): what is promised in both flavors, what is released, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from stirred.spec.exact import ZERO, Exact
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import psa_sharp_epsilon
from tests.mechanisms.records.oracles import files, loss_of_laws
from tests.mechanisms.records.sampling import swapped

PValue = Callable[..., float]
ROLES: dict[str, Any] = {"match": ["size"], "fine_match": ["part"], "swap": ["swap"]}
SWAP = TwoStageSwap(**ROLES, rate="3/10", fine_rate="1/5")


def planned(swap: TwoStageSwap, data: Any) -> SwapPlan:
    plan = swap.plan(data)
    assert isinstance(plan, SwapPlan)
    return plan


# ---- the law and both flavors --------------------------------------------------------------------------


def laws(swap: TwoStageSwap, match: str, hold: str, values: str) -> dict[Any, Law]:
    """Every file of a coarse universe with its law; a file is a tuple of ((fine match, hold), swap)."""
    every = [tuple(((m, h), s) for m, h, s in file) for file in files(match, hold, values)]
    return {file: swap.law(file) for file in every}


def fine_losses(by_file: dict[Any, Law]) -> list[Exact]:
    """The losses of the fine universes inside the coarse one: files that agree on fine match x swap."""
    universes: dict[Hashable, dict[Any, Law]] = {}
    for file, law in by_file.items():
        universes.setdefault(tuple(sorted((m, s) for (m, _), s in file)), {})[file] = law
    return [loss_of_laws(universe) for universe in universes.values()]


def frame(match: str, hold: str, values: str) -> pl.DataFrame:
    return pl.DataFrame({"size": [1] * len(match), "part": list(match), "hold": list(hold), "swap": list(values)})


def test_t26_both_flavors_of_four_different_records_in_two_fine_strata() -> None:
    swap = SWAP.with_settings(fine_rate="3/10")
    by_file = laws(swap, "0011", "abcd", "wxyz")
    plan = planned(swap, frame("0011", "abcd", "wxyz"))
    coarse, fine = loss_of_laws(by_file), max(fine_losses(by_file))
    assert float(coarse) == pytest.approx(1.81549, abs=5e-6)
    assert float(fine) == pytest.approx(0.63567, abs=5e-6)
    assert float(plan.epsilon) == pytest.approx(1.94591, abs=5e-6)
    assert float(plan.further[0].specification.budget.realised) == pytest.approx(0.84730, abs=5e-6)


@pytest.mark.parametrize(
    ("match", "hold", "values"), [("001", "abc", "xyz"), ("0011", "aabb", "xxyy"), ("0001", "abcc", "xyzz")]
)
@pytest.mark.parametrize(("rate", "fine_rate"), [("1/10", "1/2"), ("1/2", "1/10"), ("9/10", "4/5")])
def test_the_exact_loss_of_either_flavor_is_within_its_promise(
    match: str, hold: str, values: str, rate: str, fine_rate: str
) -> None:
    swap = SWAP.with_settings(rate=rate, fine_rate=fine_rate)
    by_file = laws(swap, match, hold, values)
    plan = planned(swap, frame(match, hold, values))
    assert ZERO < loss_of_laws(by_file) <= plan.epsilon
    assert all(loss <= plan.further[0].specification.budget.realised for loss in fine_losses(by_file))


def test_the_fine_stage_alone_promises_nothing_in_the_coarse_flavor() -> None:
    """What the first stage is for: without it files that differ in the fine margins are told apart for certain."""
    swap = SWAP.with_settings(rate=0)
    assert loss_of_laws(laws(swap, "0011", "abcd", "wxyz")).is_infinite
    assert planned(swap, frame("0011", "abcd", "wxyz")).epsilon.is_infinite


# ---- what is promised ----------------------------------------------------------------------------------


def test_the_published_invariants_are_the_coarse_ones_and_the_fine_flavor_adds_one() -> None:
    plan = planned(SWAP, frame("0011", "abcd", "wxyz"))
    crossed, held = plan.specification.multiverse.invariants
    assert isinstance(crossed, Margin)
    assert isinstance(held, Margin)
    assert crossed.variables == ("size", "swap")
    assert held.variables == ("size", "part", "hold")
    finer, _ = plan.further[0].specification.multiverse.invariants
    assert isinstance(finer, Margin)
    assert finer.variables == ("size", "part", "swap")
    assert plan.further[0].specification.multiverse.refines(plan.specification.multiverse)
    assert not plan.specification.multiverse.refines(plan.further[0].specification.multiverse)
    assert "R13" in plan.specification.theorem[0]
    assert "neither keeps nor publishes" in plan.also_promised


def test_the_fine_promise_is_the_same_for_all_files_of_a_coarse_universe() -> None:
    """Condition 4 of use: fine liveness is no coarse invariant, so the number must not show it.

    In the first file no fine stratum has two swap values; in the second both have.
    """
    plans = [planned(SWAP, frame("0011", "abcd", values)) for values in ("xxyy", "xyxy")]
    assert plans[0].further[0].specification == plans[1].further[0].specification
    assert plans[0].further[0].specification.budget.realised == psa_sharp_epsilon(Fraction(1, 5), stratum=2)
    assert plans[0].specification == plans[1].specification
    assert plans[0].strata.shares.tolist() == plans[1].strata.shares.tolist()


def test_the_fine_promise_is_never_weaker_than_the_coarse_one() -> None:
    plan = planned(SWAP.with_settings(fine_rate="1/1000"), frame("0011", "abcd", "wxyz"))
    assert plan.further[0].specification.budget.realised == plan.epsilon


def test_fine_strata_of_one_record_have_nothing_left_to_tell() -> None:
    assert planned(SWAP, frame("0123", "abcd", "wxyz")).further[0].specification.budget.realised == ZERO


# ---- what is released ----------------------------------------------------------------------------------


def test_released_tables_follow_the_exact_law_of_the_chain(p_value: PValue) -> None:
    """6,000 coarse strata of four records, two in each fine stratum; a near miss must fail the same test."""
    records = tuple(((part, hold), value) for part, hold, value in zip("0011", "abcd", "wxyz", strict=True))
    strata = 6_000
    homes = pl.concat([frame("0011", "abcd", "wxyz").with_columns(size=number) for number in range(strata)])
    released = swapped(SWAP, homes, Entropy.from_seed("two stages")).public["data"]
    tables = released.sort("size", "hold").group_by("size", maintain_order=True).agg("swap")["swap"].to_list()
    seen: dict[str, int] = {}
    for table in tables:
        seen["".join(table)] = seen.get("".join(table), 0) + 1

    def fits(law: Law) -> float:
        chances = {"".join(s for _, s in rows): p for rows, p in law.probabilities.items()}  # type: ignore[attr-defined]
        keys = sorted(chances)
        assert set(seen) <= set(keys)
        return p_value(np.array([seen.get(key, 0) for key in keys]), [chances[key] for key in keys])

    assert fits(SWAP.law(records)) > 1e-6
    assert fits(SWAP.with_settings(fine_rate="1/4").law(records)) < 1e-6, "a slightly other second stage is seen"


def test_only_the_coarse_margins_stay() -> None:
    homes = pl.DataFrame(
        {"size": [1, 2] * 100, "part": list("aabb") * 50, "swap": ["x"] * 100 + ["y"] * 100, "hold": list(range(200))}
    )
    released = swapped(SWAP, homes, Entropy.from_seed("margins")).public["data"]
    for columns, kept in (
        (["size", "swap"], True),
        (["size", "part", "hold"], True),
        (["size", "part", "swap"], False),
    ):
        before, after = (each.select(columns).sort(columns) for each in (homes, released))
        assert after.equals(before) is kept, columns


def test_the_expected_share_moved_is_what_releases_show() -> None:
    """Fine strata of two and of many records; five standard errors, and the first stage alone is far outside."""
    homes = pl.DataFrame({"size": [1] * 4_000, "part": [*range(1_000)] * 2 + [1_000] * 2_000, "swap": range(4_000)})
    homes = homes.with_columns(hold=pl.col("swap") + 10_000)
    swap = SWAP.with_settings(rate="2/5", fine_rate="1/2")
    plan = planned(swap, homes)
    released = swapped(swap, homes, Entropy.from_seed("moved")).public["data"]
    seen = released.select((pl.col("swap") + 10_000 != pl.col("hold")).mean()).item()
    expected = plan.strata.moved
    assert expected is not None
    error = (expected * (1 - expected) / 4_000) ** 0.5
    assert abs(seen - expected) < 5 * error
    assert abs(0.4 - seen) > 10 * error


def test_the_result_depends_neither_on_threads_nor_on_a_second_look() -> None:
    homes = frame("001122", "abcdef", "uvwxyz")
    frames = [
        swapped(replace(SWAP, threads=threads), homes, Entropy.from_seed("same")).public["data"] for threads in (1, 3)
    ]
    assert frames[0].equals(frames[1])


def test_persons_travel_with_their_households() -> None:
    homes = frame("001122", "abcdef", "uvwxyz").with_row_index("hid")
    data = Microdata(households=homes, persons=homes.select("hid", pl.col("hold").alias("trait")), hid="hid")
    public = swapped(SWAP, data, Entropy.from_seed("persons")).public
    joined = public["persons"].join(public["data"], on="hid")
    assert (joined["trait"] == joined["hold"]).all()


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"fine_match": []}, "matches on nothing more"),
        ({"fine_match": ["size"]}, "has two roles"),
        ({"fine_match": ["swap"]}, "has two roles"),
        ({"fine_rate": "7/4"}, "not a probability"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        TwoStageSwap(**{**ROLES, "rate": "1/2", "fine_rate": "1/2", **settings})


@pytest.mark.parametrize("column", [[0.5, 1.5], [1, None]])
def test_fine_match_variables_must_be_codes_without_gaps(column: list[Any]) -> None:
    homes = pl.DataFrame({"size": [1, 1], "part": column, "swap": ["x", "y"], "hold": [1, 2]})
    with pytest.raises(StirredError, match="part"):
        SWAP.plan(homes)
    with pytest.raises(StirredError, match="part"):
        SWAP.plan(homes.drop("part"))


def test_fine_match_variables_are_held_without_being_named() -> None:
    homes = frame("0011", "abcd", "wxyz").with_columns(other=1)
    plan = SWAP.with_settings(hold=["hold"]).plan(homes)
    assert plan.hold == ("size", "part", "hold")
    assert plan.dropped == ("other",)


def test_whom_it_moves_is_not_shown_because_it_depends_on_what_is_protected() -> None:
    with pytest.raises(StirredError, match="depends on counts that it protects"):
        SWAP.areas_changed(SWAP.plan(frame("0011", "abcd", "wxyz")))


def test_the_coarse_promise_is_that_of_the_first_stage_alone() -> None:
    homes = frame("0011", "abcd", "wxyz")
    alone = PermutationSwap(match=["size"], swap=["swap"], rate="3/10").plan(homes)
    assert SWAP.plan(homes).epsilon == alone.epsilon
    assert SWAP.plan(homes).exact_loss is None, "which is that of one stage"
