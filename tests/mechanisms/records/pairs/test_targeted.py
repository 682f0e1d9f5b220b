"""Targeted record swapping: the forced examples, the exact law, and what it does not promise."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.exhaustive import audit
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.pairs.choices import ChoiceTree, ChoiceWeights, RandomChoices, law_of
from stirred.mechanisms.records.pairs.targeted import TargetedFile, TargetedSwap
from stirred.spec.doubts import DoubtError
from stirred.spec.problems import StirredError

F = Fraction


def pairs_of(swap: TargetedSwap, data: Any, *, seed: Any = 1) -> tuple[set[frozenset[int]], list[int]]:
    microdata = data if isinstance(data, Microdata) else Microdata(households=data)
    partner, failed = swap.swap_law.problem(microdata).pairs(RandomChoices(Entropy.from_seed(seed)))
    return {frozenset((n, int(other))) for n, other in enumerate(partner) if n != other}, failed


ONE = pl.DataFrame({"area": list("AAABBB"), "hsize": [1, 1, 1, 1, 2, 2], "race": list("xwwwww")})


def test_the_forced_example_of_one_level() -> None:
    # Example 1: the household of race x goes to B, and the only one of its size there comes to A, 4000 of 4000 times.
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0)
    for seed in range(40):
        assert pairs_of(swap, ONE, seed=seed) == ({frozenset((0, 3))}, [])


TWO = pl.DataFrame(
    [
        (1, 11, 2, 1, 9, 111), (1, 11, 1, 1, 5, 112), (1, 12, 3, 1, 5, 121), (1, 12, 1, 1, 1, 122),
        (2, 21, 5, 1, 1, 211), (2, 21, 2, 2, 1, 212), (1, 11, 4, 1, 1, 113), (1, 11, 4, 1, 1, 114),
        (1, 12, 4, 1, 1, 123),
    ],
    schema=["county", "district", "hsize", "tenure", "race", "parish"],
    orient="row",
)  # fmt: skip


def test_the_forced_example_of_two_levels_profiles_and_columns_carried_along() -> None:
    # Example 2: 1 and 6 by the second profile, 2 and 4; 3 finds nobody. 3000 of 3000 times.
    swap = TargetedSwap(
        hierarchy=["county", "district"],
        similar=[["hsize", "tenure"], ["hsize"]],
        risk_variables=["race"],
        k_anonymity=2,
        swaprate=0,
        carry_along=["parish"],
    )
    for seed in range(40):
        assert pairs_of(swap, TWO, seed=seed) == ({frozenset((0, 5)), frozenset((1, 3))}, [2])
    release = swap.release(TWO, Entropy.from_os(), accept=["nothing-promised"])
    moved = release.public["data"].filter(pl.col("race") == 9)
    assert moved.select("county", "district", "parish").row(0) == (2, 21, 212)
    assert release.internal["unswapped"] == [2]


@pytest.mark.parametrize("races", ["wxwwww", "xwwwww"])
def test_risk_is_that_of_the_member_who_shares_least(races: str) -> None:
    homes = pl.DataFrame({"hid": [1, 2, 3, 4], "area": list("AABB"), "hsize": [2, 1, 2, 1]})
    people = pl.DataFrame(
        {"hid": [1, 1, 2, 3, 3, 4], "race": list(races), "r": [0.3 * (race == "x") for race in races]}
    )
    data = Microdata(households=homes, persons=people, hid="hid")
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0)
    assert pairs_of(swap, data) == ({frozenset((0, 2))}, [])
    assert pairs_of(swap, data.households.with_columns(race=pl.lit("w"))) == (set(), [])
    given = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk=["r"], risk_threshold="0.2", swaprate=0)
    assert pairs_of(given, data) == ({frozenset((0, 2))}, [])


def test_given_risks_count_above_their_threshold_and_are_not_released() -> None:
    frame = ONE.with_columns(r=pl.Series([0.3, 0.1, 0.0, 0.1, 0.0, 0.0]))
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk=["r"], risk_threshold="0.1", swaprate=0)
    assert pairs_of(swap, frame)[0] == {frozenset((0, 3))}
    assert "r" not in swap.release(frame, Entropy.from_os(), accept=["nothing-promised"]).public["data"].columns
    nobody = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk=["r"], risk_threshold="0.3", swaprate=0)
    assert pairs_of(nobody, frame) == (set(), [])


def test_a_rate_of_zero_without_risk_swaps_nobody() -> None:
    # sdcMicro still swaps one pair with probability 1 / number of areas.
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], k_anonymity=0, swaprate=0)
    assert all(pairs_of(swap, ONE, seed=seed) == (set(), []) for seed in range(20))


def test_the_rate_is_met_and_spread_over_areas() -> None:
    rows = np.arange(8)
    frame = pl.DataFrame({"area": np.array(["A", "B"])[rows // 4], "hsize": np.ones(8, dtype=int)})
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], k_anonymity=0, swaprate="1/2")
    # sdcMicro moves 6 of these 8 half the time, not 4.
    assert {sum(map(len, pairs_of(swap, frame, seed=seed)[0])) for seed in range(30)} == {4}


def test_partners_are_drawn_in_proportion_to_their_risk() -> None:
    # Risks .3 and .1: three to one, as the original core does it.
    urn = law_of(lambda c: c.next_of(ChoiceTree(np.array([0, 1]), ChoiceWeights.of(np.array([300_000, 100_000])))))
    assert urn[0] == F(3, 4)
    counted = law_of(lambda c: c.next_of(ChoiceTree(np.array([0, 2, 1]), ChoiceWeights.inverse(np.array([1, 6, 3])))))
    assert [counted[row] for row in range(3)] == [F(2, 3), F(1, 9), F(2, 9)]


@pytest.mark.parametrize("numbers", [[5, 3, 0, 1, 9], [1, 1, 1], [0, 0], [7]])
def test_drawing_from_an_urn_follows_its_law(numbers: list[int]) -> None:
    weights = ChoiceWeights.of(np.array(numbers))
    rows = np.argsort(weights.level, kind="stable")

    def whole(choices: Any) -> tuple[int, ...]:
        urn, found = ChoiceTree(rows.copy(), weights), []
        while (row := choices.next_of(urn)) is not None:
            found.append(row)
        return tuple(found)

    law = law_of(whole)
    draws = 1500
    seen: Counter[Any] = Counter(whole(RandomChoices(Entropy.from_seed(seed))) for seed in range(draws))
    assert {*seen} <= {*law.probabilities}
    kept = {t: p for t, p in law.probabilities.items() if draws * p >= 8}
    chi = sum(float((seen[t] - draws * p) ** 2 / (draws * p)) for t, p in kept.items())
    # Six standard deviations: a false alarm in a million; weights that are off by a fifth would be seen.
    assert chi < len(kept) + 6 * np.sqrt(2 * len(kept)) + 6


def test_many_at_once_are_drawn_in_proportion_to_their_weights_too() -> None:
    weights = ChoiceWeights.inverse(np.array([1, 2, 3, 5, 7, 12, 100]))
    rows = np.argsort(weights.level, kind="stable")
    words = Entropy.from_seed("many").keystream("test").reader(0)
    found = np.bincount(ChoiceTree(rows, weights)._several(300_000, words, words.take), minlength=7)
    chances = np.array([float(weights[row]) for row in range(7)])
    expected = found.sum() * chances / chances.sum()
    assert found.sum() > 100_000
    # Six standard deviations each; a weight that is off by a thirtieth is ten of them even for the rarest.
    assert (np.abs(found - expected) < 6 * np.sqrt(expected)).all()


def test_an_urn_gives_every_record_once_however_many_are_asked_for_at_once() -> None:
    numbers = np.array([*range(500), *[0] * 50, *[10**9] * 3])
    weights = ChoiceWeights.of(numbers)
    urn, choices = (
        ChoiceTree(np.argsort(weights.level, kind="stable"), weights),
        RandomChoices(Entropy.from_seed("all")),
    )
    found = [choices.next_of(urn) for _ in range(numbers.size)]
    assert choices.next_of(urn) is None
    assert sorted(row for row in found if row is not None) == [*range(numbers.size)]
    assert {*found[:3]} == {550, 551, 552}  # the others have 125,000 of three thousand millions
    assert all(numbers[row] == 0 for row in found[-51:] if row is not None)


def test_what_is_drawn_follows_the_exact_law_of_pairs() -> None:
    frame = [("a", "x"), ("b", "x"), ("b", "y"), ("c", "z")]
    swap = TargetedSwap(hierarchy=["area"], similar=["alike"], risk_variables=["held"], k_anonymity=2, swaprate="1/2")
    law = swap.law(frame)
    data = pl.DataFrame(frame, schema=["held", "area"], orient="row").with_columns(alike=pl.lit(0))
    draws, problem = 1500, swap.swap_law.problem(Microdata(households=data))
    seen: Counter[Any] = Counter()
    for seed in range(draws):
        partner, _ = problem.pairs(RandomChoices(Entropy.from_seed(f"law {seed}")))
        seen[tuple(sorted((h, frame[partner[n]][1]) for n, (h, _) in enumerate(frame)))] += 1
    chi = sum(float((seen[t] - draws * p) ** 2 / (draws * p)) for t, p in law.probabilities.items())
    assert {*seen} <= {*law.probabilities}
    assert chi < len(law) + 6 * np.sqrt(2 * len(law)) + 6


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"swaprate": 0, "k_anonymity": 1}, "the swap rate is 0 and no household is at risk"),
        ({"similar": ["hsize", "area"], "swaprate": 1}, "no two similar households are in different areas"),
    ],
)
def test_a_file_in_which_nothing_can_move_is_refused_whatever_is_accepted(own: dict[str, Any], why: str) -> None:
    frame = pl.DataFrame({"area": list("AABB"), "hsize": [1] * 4, "race": list("xwxw")})
    swap = TargetedSwap(**{"hierarchy": ["area"], "similar": ["hsize"], "risk_variables": ["race"], **own})
    with pytest.raises(DoubtError, match=f"{why}: the file would be published as it is"):
        swap.release(frame, Entropy.from_os(), accept=["nothing-moves", "nothing-promised"])


def test_no_pair_lies_in_one_area_and_all_pairs_agree_on_a_profile() -> None:
    draw = np.random.default_rng(5)
    for seed in range(12):
        area, size = draw.integers(0, 3, 60), draw.integers(1, 4, 60)
        frame = pl.DataFrame({"area": area, "hsize": size, "race": draw.integers(0, 30, 60)})
        swap = TargetedSwap(
            hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate="1/2"
        )
        partner, _ = swap.swap_law.problem(Microdata(households=frame)).pairs(RandomChoices(Entropy.from_seed(seed)))
        moved = np.flatnonzero(partner != np.arange(60))
        assert moved.size > 20
        assert (area[moved] != area[partner[moved]]).all()
        assert (size[moved] == size[partner[moved]]).all()


def test_a_level_of_the_geography_may_be_among_what_must_be_similar() -> None:
    county = [code for code in "ABCD" for _ in range(5)]
    frame = pl.DataFrame({"region": [code > "B" for code in county], "county": county, "hsize": [1] * 20})
    swap = TargetedSwap(hierarchy=["region", "county"], similar=["hsize", "region"], swaprate="1/2")
    released = swap.release(frame, Entropy.from_os(), accept=["nothing-promised"])
    partner = released.internal["partner"]
    assert (partner != np.arange(20)).any()
    assert frame["region"].equals(frame["region"][partner])
    assert "conditioned_swap" in str([fact.values for fact in swap.plan(frame).facts])


def test_who_is_at_risk_in_a_coarse_area_comes_before_who_is_in_a_fine_one() -> None:
    # 0 is alone with its race in the county, 1 in the district only; 3 is the one partner outside the county.
    frame = pl.DataFrame(
        {
            "county": [1, 1, 1, 2, 2],
            "district": [11, 12, 11, 21, 21],
            "hsize": [1, 1, 2, 1, 2],
            "race": list("xyyww"),
        }
    )
    swap = TargetedSwap(
        hierarchy=["county", "district"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0
    )
    for seed in range(6):
        pairs, failed = pairs_of(swap, frame, seed=seed)
        assert pairs == {frozenset((0, 3)), frozenset((2, 4))}
        assert failed == [1]


def test_who_found_nobody_and_is_taken_later_is_not_among_those_left() -> None:
    # 0 is at risk in the county and finds nobody outside it; 1, at risk in its district, takes it. 2 finds nobody.
    frame = pl.DataFrame(
        {"county": [1, 1, 1, 2, 2], "district": [11, 12, 13, 21, 21], "hsize": [1, 1, 2, 3, 3], "race": list("xyyww")}
    )
    swap = TargetedSwap(
        hierarchy=["county", "district"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0
    )
    assert all(pairs_of(swap, frame, seed=seed) == ({frozenset((0, 1))}, [2]) for seed in range(6))


GIVEN: dict[str, Any] = {"hierarchy": ["county", "district"], "similar": ["hsize"], "risk": ["coarse", "fine"]}


def test_partners_are_drawn_by_their_risk_at_the_level_of_the_swap() -> None:
    frame = pl.DataFrame(
        {
            "county": [1, 2, 2],
            "district": [11, 21, 21],
            "hsize": [1] * 3,
            "coarse": [1.0, 0.1, 0.0],
            "fine": [0.0, 0.0, 0.1],
        }
    )
    swap = TargetedSwap(**GIVEN, risk_threshold="1/2", swaprate=0)
    assert all(pairs_of(swap, frame, seed=seed)[0] == {frozenset((0, 1))} for seed in range(6))


def test_who_is_at_risk_and_found_nobody_does_not_fill_up_the_rate() -> None:
    # 0 finds nobody outside its county, and 1, with which it shares the district, finds nobody at all.
    frame = pl.DataFrame(
        {
            "county": [1, 1, 1, 2],
            "district": [11, 11, 12, 21],
            "hsize": [1, 9, 1, 7],
            "coarse": [1.0, 0.0, 0.0, 0.0],
            "fine": [0.0] * 4,
        }
    )
    swap = TargetedSwap(**GIVEN, risk_threshold="1/2", swaprate=1)
    found = [pairs_of(swap, frame, seed=seed)[0] for seed in range(24)]
    # Only where district 12 gets the swap that is left over, a chance of 1/3, does somebody take 0.
    assert set() in found
    assert {frozenset((0, 2))} in found


def test_areas_are_told_apart_by_all_codes_above_them() -> None:
    frame = pl.DataFrame({"county": [1, 1, 2, 2], "district": [1, 2, 1, 2], "hsize": [1] * 4, "race": ["x"] * 4})
    swap = TargetedSwap(
        hierarchy=["county", "district"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0
    )
    assert len(pairs_of(swap, frame)[0]) == 2  # two share the race in each county, and one is alone in each district


def test_exact_is_what_all_profiles_have_in_common() -> None:
    swap = TargetedSwap(hierarchy=["area"], similar=[["hsize", "tenure"], ["hsize"]])
    assert swap.match == ("hsize",)


def test_who_was_passed_over_in_its_own_area_is_a_partner_for_the_next() -> None:
    frame = pl.DataFrame({"area": list("AABBAB"), "hsize": [1, 1, 1, 1, 2, 2], "race": list("xwywww")})
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0)
    # 0 and 2 are at risk; where 0 takes 3, only 1 is left for 2, drawn and passed over before with probability 1/3.
    found = [pairs_of(swap, frame, seed=seed) for seed in range(60)]
    assert all(failed == [] for _, failed in found)
    assert {frozenset((0, 3)), frozenset((1, 2))} in [pairs for pairs, _ in found]


def test_the_riskiest_of_an_area_comes_first_and_ties_are_broken_at_random() -> None:
    # One partner for three at risk: one is alone with its race, two share theirs.
    frame = pl.DataFrame({"area": list("AAABBBB"), "hsize": [1, 1, 1, 1, 2, 2, 2], "race": list("xyywwww")})
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=3, swaprate=0)
    assert {frozenset(pairs_of(swap, frame, seed=seed)[0]) for seed in range(12)} == {frozenset({frozenset((0, 3))})}
    tied = frame.slice(1)
    assert len({frozenset(pairs_of(swap, tied, seed=seed)[0]) for seed in range(24)}) == 2


def test_two_files_prove_that_nothing_is_promised() -> None:
    # Witness A: both at risk, each becomes the other with certainty.
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0)
    x, y = (("u", "A"), ("v", "B")), (("u", "B"), ("v", "A"))
    assert swap.law(x)[y] == 1
    assert swap.law(y)[x] == 1
    # Witness B: no risk, rate .34, three areas of one household: half the time nothing moves, and no cycle occurs.
    plain = TargetedSwap(hierarchy=["area"], similar=["hsize"], k_anonymity=0, swaprate="0.34")
    z = (("u", "A"), ("v", "B"), ("w", "C"))
    law = plain.law(z)
    assert law[z] == F(1, 2)  # T20; the original has 1/3
    assert law[(("u", "B"), ("v", "C"), ("w", "A"))] == 0
    result = audit(swap)
    assert result.passed
    assert result.loss.low.is_infinite
    assert result.witness is not None


def test_the_plan_names_the_step_the_witness_and_what_is_near() -> None:
    swap = TargetedSwap(
        hierarchy=["area"],
        similar=["hsize"],
        risk_variables=["race"],
        k_anonymity=2,
        swaprate="1/4",
        rate_prior={"1/10": "1/2", "1/2": "1/2"},
    )
    plan = swap.plan(ONE)
    told = {fact.label: fact.sentence for fact in plan.facts}
    assert "pairs are disjoint" in told["breaks"]
    assert "with certainty" in told["witness"]
    assert "conditioned swap" in told["nearest"]
    assert "0.534 with 1 of them" in told["obscurity"]
    assert plan.specification.budget.realised.is_infinite
    assert [doubt.kind for doubt in plan.doubts if doubt.refuses] == ["nothing-promised"]
    assert str(plan.specification.multiverse.invariants[0]) == "number of households by hsize x area"


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"hierarchy": []}, "there is no geography"),
        ({"similar": [[]]}, "a profile without columns"),
        ({"risk": ["r"], "risk_threshold": "0.1", "hierarchy": ["a", "b"]}, "not one column of risk for each level"),
        ({"risk": ["r"], "risk_threshold": "0.1", "risk_variables": ["race"]}, "risks are given and counted"),
        ({"risk": ["r"]}, "risk_threshold goes with risk"),
        ({"risk_threshold": "0.1"}, "risk_threshold goes with risk"),
        ({"swaprate": 2}, "probability"),
        ({"rate_prior": {"1/10": "1/2"}}, "do not add up to 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(how: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        TargetedSwap(**{"hierarchy": ["area"], "similar": ["hsize"], **how})


def test_columns_and_risks_that_are_not_there_are_refused() -> None:
    swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["raze"])
    with pytest.raises(StirredError, match="raze"):
        swap.plan(ONE)
    wrong = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk=["race"], risk_threshold="1/2")
    with pytest.raises(StirredError, match="risks are numbers from 0 to 2,000"):
        wrong.swap_law.problem(Microdata(households=ONE))


def test_nobody_is_swapped_twice_or_inside_the_area() -> None:
    rng = np.random.default_rng(5)
    county = rng.integers(0, 4, 600)
    district = county * 5 + rng.integers(0, 5, 600)
    problem = TargetedFile(
        areas=[county, district],
        weights=[ChoiceWeights.inverse(rng.integers(1, 9, 600))] * 2,
        risky=rng.integers(0, 3, 600),
        profiles=[rng.integers(0, 30, 600), np.zeros(600, dtype=np.int64)],
        rate=F(1, 5),
    )
    partner, failed = problem.pairs(RandomChoices(Entropy.from_seed(2)))
    rows = np.arange(600)
    assert np.array_equal(partner[partner], rows)
    moved = rows[partner != rows]
    assert (district[moved] != district[partner[moved]]).all()
    coarse = moved[problem.risky[moved] == 0]
    assert all(county[n] != county[partner[n]] or problem.risky[partner[n]] != 0 for n in coarse)
    assert all(partner[row] == row for row in failed)
