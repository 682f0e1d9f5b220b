"""Pairwise swapping as in 2010: each public rule has a file in which removing it changes the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.exhaustive import audit
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import ReleasedColumns
from stirred.mechanisms.records.pairs.choices import RandomChoices
from stirred.mechanisms.records.pairs.pairwise2010 import PairwiseSwap
from stirred.spec.doubts import DoubtError
from stirred.spec.problems import StirredError

COLUMNS = ("state", "county", "tract", "block", "adults", "minors", "tenure", "race", "key", "imputed", "occupied")
# The household that is unique on its key, and two alike in another block.
HOME: dict[str, Any] = dict(
    zip(COLUMNS, ("S", 1, 1, 1, 2, 0, "own", "w", 0, 0.0, True), strict=True),
)
RULES: dict[str, Any] = {
    "state": "state",
    "geography": ["county", "tract", "block"],
    "adults": "adults",
    "minors": "minors",
    "tenure": "tenure",
    "unique_on": ["key"],
    "unique_in": "tract",
    "by_block_size": {"1": 0},
    "race": "race",
    "unique_race": 0,
    "cap": 1,
    "imputed": "imputed",
    "occupied": "occupied",
}


def home(**other: Any) -> dict[str, Any]:
    return {**HOME, **other}


def paired(rows: Sequence[dict[str, Any]], *, seed: int = 1, **rules: Any) -> set[tuple[int, int]]:
    """Return the pairs, households numbered from 1."""
    swap = PairwiseSwap(**{**RULES, **rules})
    problem = swap.swap_law.problem(Microdata(households=pl.DataFrame(list(rows))))
    partner, _ = problem.pairs(RandomChoices(Entropy.from_seed(seed)))
    return {(n + 1, int(other) + 1) for n, other in enumerate(partner) if n < other}


def always(rows: Sequence[dict[str, Any]], **rules: Any) -> list[set[tuple[int, int]]]:
    """Return the different results of several draws."""
    found: list[set[tuple[int, int]]] = []
    for seed in range(8):
        result = paired(rows, seed=seed, **rules)
        if result not in found:
            found.append(result)
    return sorted(found, key=sorted)


UNIQUE = home(key=9)
TWO = [home(block=2, key=1), home(block=2, key=1)]
# 1 is paired with 2 or with 3, which are alike.
EITHER = [{(1, 2)}, {(1, 3)}]


def test_a_unique_household_is_always_selected_and_without_that_rule_nobody_is() -> None:
    assert always([UNIQUE, *TWO]) == EITHER
    assert always([UNIQUE, *TWO], unique_on=["state"]) == [set()]


@pytest.mark.parametrize("rule", ["adults", "minors", "tenure", "state"])
def test_partners_agree_on_adults_minors_tenure_and_state(rule: str) -> None:
    other = {"adults": 3, "minors": 1, "tenure": "rent", "state": "T"}[rule]
    at_home = [home(block=3, key=1, adults=5), home(block=3, key=1, adults=5)] if rule == "state" else []
    rows = [UNIQUE, *({**row, rule: other} for row in TWO), *at_home]
    assert always(rows) == [set()]
    # Without the rule the same households would be partners.
    if rule != "state":
        assert always(rows, **{rule: "occupied"}) == EITHER
    else:
        assert always([{**row, "state": "S"} for row in rows]) == EITHER


def test_a_partner_is_in_another_block() -> None:
    assert always([UNIQUE, home(key=1), home(key=1)]) == [set()]
    assert always([UNIQUE, *TWO]) == EITHER


def test_a_totally_imputed_household_is_never_selected() -> None:
    assert always([{**UNIQUE, "imputed": 1.0}, *TWO]) == [set()]
    assert always([{**UNIQUE, "imputed": 1.0}, *TWO], imputed=None) == EITHER


def test_vacant_units_and_group_quarters_are_no_partners() -> None:
    rows = [UNIQUE, *({**row, "occupied": False} for row in TWO), home(block=3, key=1, adults=5)]
    rows.append(rows[-1])
    assert always(rows) == [set()]
    assert always(rows, occupied=None) == EITHER


def test_larger_blocks_decrease_the_probability() -> None:
    small, large = [home(key=1)] * 2, [home(block=2, key=1)] * 4
    found = always([*small, *large], by_block_size={"2": 1})
    assert all(len(pairs) == 2 and {a for a, _ in pairs} == {1, 2} for pairs in found)
    assert always([*small, *large], by_block_size={"1": 1}) == [set()]


def test_a_race_found_nowhere_else_in_the_block_raises_the_probability() -> None:
    rows = [home(race="b", key=1), home(key=1), home(key=1), *TWO]
    assert always(rows, unique_race=1) == [{(1, 4)}, {(1, 5)}]
    assert always(rows) == [set()]


def test_a_race_is_not_rare_because_nobody_else_is_in_the_block() -> None:
    rows = [home(race="b", key=1), *TWO]
    assert always(rows, unique_race=1) == [set()]
    assert always([*rows, home(key=1), home(key=1)], unique_race=1) == EITHER


def test_vacant_units_have_no_probability_of_selection() -> None:
    data = Microdata(households=pl.DataFrame([{**UNIQUE, "occupied": False}, *TWO]))
    assert PairwiseSwap(**{**RULES, "by_block_size": {"9": "1/2"}}).swap_law.selection(data) == [
        0,
        Fraction(1, 2),
        Fraction(1, 2),
    ]


def test_uniqueness_is_among_occupied_households() -> None:
    rows = [UNIQUE, {**UNIQUE, "occupied": False}, *TWO]
    assert always(rows) == [{(1, 3)}, {(1, 4)}]
    assert always(rows, occupied=None) == [set()]


def test_uniqueness_is_in_the_named_area() -> None:
    rows = [UNIQUE, *TWO, {**UNIQUE, "county": 2, "tract": 2, "block": 9, "adults": 7}]
    assert always(rows) == EITHER
    assert always([{**row, "tract": 1, "county": 1} for row in rows]) == [set()]


STUCK = [
    ([UNIQUE, *TWO], {"unique_on": ["state"]}, "no household can be selected"),
    ([UNIQUE, home(key=1)], {}, "no two households that match are in different blocks"),
    ([UNIQUE, *TWO], {"cap": "1/2"}, "the cap allows no pair in any state"),
]


@pytest.mark.parametrize(("rows", "rules", "why"), STUCK, ids=[why for *_, why in STUCK])
def test_a_file_in_which_nothing_can_move_is_refused_whatever_is_accepted(
    rows: list[dict[str, Any]], rules: dict[str, Any], why: str
) -> None:
    swap = PairwiseSwap(**{**RULES, **rules})
    with pytest.raises(DoubtError, match=f"{why}: the file would be published as it is"):
        swap.release(pl.DataFrame(rows), Entropy.from_os(), accept=["nothing-moves", "nothing-promised"])


def test_nobody_is_selected_in_a_block_with_many_imputed() -> None:
    rows = [{**UNIQUE, "imputed": 0.5}, *TWO]
    assert always(rows, block_imputation_limit="1/2") == [set()]
    assert always(rows) == EITHER


def test_partners_that_are_selected_too_come_first() -> None:
    rows = [UNIQUE, *TWO, home(county=2, tract=2, block=4, key=8), *[home(county=2, tract=2, block=5, key=1)] * 2]
    assert always(rows) == [{(1, 4)}]
    without = always(rows, priority=["near"])
    assert {(1, 4)} not in without
    assert all(len(pairs) == 2 for pairs in without)


def test_near_partners_come_before_far_ones() -> None:
    far, close = [home(county=2, tract=2, block=4, key=1)] * 2, [home(block=3, key=1)] * 2
    assert always([UNIQUE, *far, *close]) == [{(1, 4)}, {(1, 5)}]
    assert {(1, 2)} in always([UNIQUE, *far, *close], priority=["selected"])


def test_partners_at_high_risk_come_first() -> None:
    rows = [UNIQUE, *TWO, home(block=3, key=1)]
    assert always(rows) == [{(1, 4)}]
    assert {(1, 2)} in always(rows, priority=["selected", "near"])


def test_the_rate_of_a_state_is_capped() -> None:
    rows = [home(block=n, key=n) for n in (1, 2, 3, 4)]
    assert {len(pairs) for pairs in always(rows, cap="1/2")} == {1}
    assert {len(pairs) for pairs in always(rows)} == {2}


def test_pairs_are_disjoint() -> None:
    rows = [UNIQUE, home(key=8), home(block=2, key=1), home(block=2, key=1, adults=5)]
    assert always(rows) == [{(1, 3)}, {(2, 3)}]


def test_all_codes_of_the_location_move_together() -> None:
    swap = PairwiseSwap(**RULES)
    frame = pl.DataFrame([UNIQUE, home(county=2, tract=7, block=4, key=1), home(county=2, tract=7, block=4, key=1)])
    release = swap.release(frame, Entropy.from_os(), accept=["nothing-promised"])
    moved = release.public["data"].filter(pl.col("key") == 9)
    assert moved.select("state", "county", "tract", "block").row(0) == ("S", 2, 7, 4)


def test_persons_count_for_race_imputation_and_uniqueness() -> None:
    homes = pl.DataFrame([home(hid=n, block=1 + (n > 1)) for n in range(4)]).drop("race", "key", "imputed")
    people = pl.DataFrame({"hid": [0, 0, 1, 2, 3], "race": list("wbwww"), "key": [1, 2, 1, 1, 1]})
    people = people.with_columns(imputed=pl.col("key") == 2)
    data = Microdata(households=homes, persons=people, hid="hid")
    swap = PairwiseSwap(**{**RULES, "unique_on": ["state"], "unique_race": "1/2"})
    assert [float(p) for p in swap.swap_law.selection(data)] == [0.25, 0, 0, 0]  # half imputed halves it
    unique = PairwiseSwap(**RULES)
    assert [float(p) for p in unique.swap_law.selection(data)] == [1, 0, 0, 0]


def test_group_quarters_get_values_of_a_declared_law() -> None:
    rows = [UNIQUE, *TWO, *[home(block=3, key=5, occupied=False, tenure="gq")] * 40]
    law = {"column": "key", "share": "1/2", "law": {"6": "1/4", "7": "3/4"}}
    swap = PairwiseSwap(**{**RULES, "synthetic": [law]})
    data = Microdata(households=pl.DataFrame(rows))
    after = swap.swap_law.changed(data, RandomChoices(Entropy.from_seed(4))).households
    assert after.head(3).equals(data.households.head(3))
    seen = Counter(after["key"].tail(40).to_list())
    assert {*seen} == {5, 6, 7}
    assert 10 <= seen[5] <= 30  # half of 40; outside with probability below 2e-3
    release = swap.release(data, Entropy.from_os(), accept=["nothing-promised"])
    assert release.public["data"].height == 43
    # What is drawn is not published exactly, and the promise does not say so.
    assert not any("key" in str(each) for each in release.specification.multiverse.invariants)
    assert "county, tract, block, key" in swap.in_three[0]
    assert "key" in swap.files(ReleasedColumns(households=("key",)))[0].columns


def test_nothing_is_promised_and_a_cycle_proves_it() -> None:
    swap = PairwiseSwap(**RULES)
    x = (("u", "A"), ("v", "B"), ("w", "C"))
    cycle = (("u", "B"), ("v", "C"), ("w", "A"))
    assert swap.law(x)[cycle] == 0
    assert swap.law(cycle)[cycle] > 0
    result = audit(swap)
    assert result.passed
    assert result.loss.low.is_infinite
    told = {fact.label for fact in swap.plan(pl.DataFrame([UNIQUE, *TWO])).facts}
    assert told == {"breaks", "witness", "nearest", "obscurity"}


def test_what_is_drawn_follows_the_exact_law() -> None:
    frame = [("u", "A"), ("v", "A"), ("w", "B"), ("z", "C")]
    swap = PairwiseSwap(**RULES)
    law = swap.law(frame)
    own = {**RULES, **dict.fromkeys(("state", "adults", "minors", "tenure", "race"), "alike")}
    own |= {"geography": ["block"], "unique_on": [], "unique_in": "block", "by_block_size": {"9": "1/2"}}
    real = PairwiseSwap(**{**own, "imputed": None, "occupied": None})
    data = pl.DataFrame(frame, schema=["held", "block"], orient="row").with_columns(alike=pl.lit(0))
    draws, seen = 1200, Counter[Any]()
    matching = real.swap_law.problem(Microdata(households=data))
    for seed in range(draws):
        partner, _ = matching.pairs(RandomChoices(Entropy.from_seed(f"p {seed}")))
        seen[tuple(sorted((h, frame[partner[n]][1]) for n, (h, _) in enumerate(frame)))] += 1
    assert {*seen} <= {*law.probabilities}
    chi = sum(float((seen[t] - draws * p) ** 2 / (draws * p)) for t, p in law.probabilities.items())
    assert chi < len(law) + 6 * np.sqrt(2 * len(law)) + 6


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ({"unique_in": "ward"}, "is not a level of the geography"),
        ({"by_block_size": {"1": "1/10", "9": "1/2"}}, "probabilities rise with the size"),
        ({"priority": ["near", "near"]}, "a priority stands twice"),
        ({"imputed": None, "block_imputation_limit": "1/2"}, "needs the flag"),
        ({"synthetic": [{"column": "key"}]}, "fitted to the file has no budget"),
        ({"cap": 3}, "probability"),
        ({"by_block_size": {"abc": "1/2"}}, "not all whole numbers"),
        ({"by_block_size": {"-1": "1/2"}}, "not all whole numbers"),
        ({"synthetic": [{"column": "key", "share": 1, "law": {"6": "1/4"}}]}, "do not add up to 1"),
        ({"synthetic": [{"column": "key", "share": 1, "law": ["6"]}]}, "needs column, share and law"),
        ({"synthetic": [{"column": "block", "share": 1, "law": {"6": 1}}]}, "matched or exchanged"),
    ],
)
def test_settings_that_do_not_fit_are_refused(rules: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        PairwiseSwap(**{**RULES, **rules})


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("occupied", "maybe", '"occupied" is not true or false'),
        ("occupied", None, '"occupied" is not true or false'),
        ("imputed", "yes", '"imputed" is not true or false'),
        ("imputed", None, '"imputed" is not true or false'),
        ("imputed", 7.0, '"imputed" is not a share'),
    ],
)
def test_flags_and_shares_that_cannot_be_read_are_refused_in_the_plan(column: str, value: Any, what: str) -> None:
    rows = pl.DataFrame([{**UNIQUE, column: value}, *({**row, column: value} for row in TWO)])
    with pytest.raises(StirredError, match=what):
        PairwiseSwap(**RULES).plan(rows)


def test_imputation_may_be_a_flag_or_a_share_as_csv_has_them() -> None:
    for value in ("true", "1", "1.0"):
        assert always([{**row, "imputed": value if row is UNIQUE else "0"} for row in (UNIQUE, *TWO)]) == [set()]


def test_a_law_that_the_column_cannot_hold_is_refused_in_the_plan() -> None:
    law = {"column": "key", "share": 1, "law": {"x": 1}}
    with pytest.raises(StirredError, match="values that are no Int64"):
        PairwiseSwap(**{**RULES, "synthetic": [law]}).plan(pl.DataFrame([UNIQUE, *TWO]))
    people = pl.DataFrame({"hid": [0, 1, 2], "age": [1, 2, 3]})
    homes = pl.DataFrame([UNIQUE, *TWO]).with_columns(hid=pl.int_range(3))
    of_persons = PairwiseSwap(**{**RULES, "synthetic": [{**law, "column": "age"}]})
    with pytest.raises(StirredError, match="no column of households"):
        of_persons.plan(Microdata(households=homes, persons=people, hid="hid"))


def test_vacant_units_count_neither_for_the_size_of_a_block_nor_for_its_races() -> None:
    vacant = [home(key=7, race="v", occupied=False)] * 3
    assert always([home(key=1), home(key=1), *vacant, *TWO, *TWO], by_block_size={"2": 1}) != [set()]
    lone = [home(race="b", key=1), *vacant, *TWO]
    assert always(lone, unique_race=1) == [set()]  # nobody else lives in the block
    both = [home(race="b", key=1), home(key=1), home(key=1, race="b", occupied=False), *TWO]
    selected = PairwiseSwap(**{**RULES, "unique_race": 1, "unique_on": []}).swap_law.selection(
        Microdata(households=pl.DataFrame(both))
    )
    assert selected == [1, 1, 0, 0, 0]
