"""What is published exactly: totals, zeros and bounds are those of the file, and a file that breaks one is refused."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.topdown.hierarchy.tree import NO_BOUND
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.mechanisms.topdown.plan import TopDownPlan

# Two blocks with a home, a block with a nursing home (3), and one with nothing but a vacant home.
HOMES = pl.DataFrame(
    {"hid": [1, 2, 3, 4], "town": list("AABB"), "block": [1, 2, 1, 2], "kind": ["0", "0", "3", "0"],
     "occupancy": ["occupied", "occupied", "occupied", "vacant"]}
)  # fmt: skip
PEOPLE = pl.DataFrame({"hid": [1, 1, 2, 3, 3], "place": ["0", "0", "0", "3", "3"], "age": ["1", "2", "2", "2", "2"]})
FACILITIES = {"attribute": "place", "column": "kind", "most": 10, "empty": ["0"]}
UNITS = {"attributes": ["occupancy"], "values": {"occupancy": ["vacant", "occupied"]}, "totals": ["block"], "rho": 1}


def data(people: pl.DataFrame = PEOPLE, homes: pl.DataFrame = HOMES) -> Microdata:
    return Microdata(households=homes, persons=people, hid="hid")


def mechanism(**settings: Any) -> TopDown:
    given: dict[str, Any] = {
        "levels": ["town", "block"],
        "attributes": ["place", "age"],
        "values": {"place": ["0", "1", "3"], "age": ["1", "2"]},
        "rho": 1,
    }
    return TopDown(**(given | settings))


def planned(people: pl.DataFrame = PEOPLE, homes: pl.DataFrame = HOMES, **settings: Any) -> TopDownPlan:
    return mechanism(**settings).plan(data(people, homes))


def told(error: type[Exception], people: pl.DataFrame = PEOPLE, homes: pl.DataFrame = HOMES, **settings: Any) -> str:
    with pytest.raises(error) as raised:
        planned(people, homes, **settings)
    return "\n".join(map(str, raised.value.problems))  # type: ignore[attr-defined]


def test_bounds_by_facilities_are_summed_up_from_the_leaves() -> None:
    plan = planned(facilities=FACILITIES, totals=["town"])
    total, lower, upper = plan.parts[0].rules
    assert [rule.name for rule in (total, lower, upper)] == ["total_con", "place_total_lb_con", "place_total_ub_con"]
    assert total.values(plan.spine, 1, range(2)).tolist() == [[3], [2]]
    assert lower.values(plan.spine, 2, range(4)).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], (
        "homes may be vacant"
    )
    assert upper.values(plan.spine, 2, range(4)).tolist() == [[10, 0, 0], [10, 0, 0], [0, 0, 10], [10, 0, 0]]
    for rule in (lower, upper):
        leaves = rule.values(plan.spine, 2, range(4))
        assert rule.values(plan.spine, 1, range(2)).tolist() == [leaves[:2].sum(0).tolist(), leaves[2:].sum(0).tolist()]
        assert rule.values(plan.spine, 0, range(1)).tolist() == [leaves.sum(0).tolist()]


def test_a_bound_that_32_bits_do_not_hold_is_published_as_none() -> None:
    """30,000 homes of up to 99,999 persons: the sum must not wrap round to a bound that bars everybody."""
    own = mechanism(facilities={**FACILITIES, "most": 1_500_000_000})
    published = own.release(data(), Entropy.from_os()).public["constraints"]
    upper = published.filter(pl.col("query_name") == "place_total_ub_con")
    found = {level: [*rows["value"].to_list()] for (level,), rows in upper.group_by("geolevel")}
    assert found["all"] == [[NO_BOUND, 0, 1_500_000_000]]
    assert sorted(found["town"]) == [[1_500_000_000, 0, 1_500_000_000], [NO_BOUND, 0, 0]]


def test_zeros_bar_the_cells_of_their_codes_and_no_others() -> None:
    plan = planned(zeros=[{"place": ["1", "3"], "age": ["1"]}])
    total, rule = plan.parts[0].rules
    assert (total.name, total.depths) == ("total_con", (0,))
    assert rule.name == "place_age_0_con"
    found = rule.values(plan.spine, 0, range(1)).reshape(3, 2)
    assert found.tolist() == [[NO_BOUND, NO_BOUND], [0, NO_BOUND], [0, NO_BOUND]]


def test_a_file_that_breaks_a_rule_is_refused_with_the_area_and_the_numbers() -> None:
    empty = PEOPLE.filter(pl.col("hid") != 3)
    words = told(DataError, people=empty, facilities=FACILITIES)
    assert "rule place_total_lb_con: the file breaks it 1 time: block B1 has 0 with place 3, and at least 1" in words
    many = PEOPLE.with_columns(place=pl.when(pl.col("hid") == 2).then(pl.lit("3")).otherwise("place"))
    words = told(DataError, people=many, facilities=FACILITIES)
    assert "block A2 has 1 with place 3, and at most 0 are possible" in words
    young = PEOPLE.with_columns(age=pl.lit("1"))
    words = told(DataError, people=young, zeros=[{"place": ["3"], "age": ["1"]}])
    assert "rule place_age_0_con: the file breaks it 1 time: block B1 has 2 with place 3, age 1" in words


def test_rules_that_no_file_can_keep_are_broken_by_every_file() -> None:
    words = told(DataError, facilities=FACILITIES, zeros=[{"place": ["3"]}])
    assert "rule place_0_con: the file breaks it 1 time: block B1 has 2 with place 3, and at most 0" in words
    crowded = pl.concat([PEOPLE, *[PEOPLE.filter(pl.col("hid") == 1)] * 10])
    words = told(DataError, people=crowded, facilities=FACILITIES, totals=["block"])
    assert "block A1 has 22 with place 0, and at most 10 are possible" in words
    homes = HOMES.with_columns(kind=pl.when(pl.col("hid") == 4).then(pl.lit("3")).otherwise("kind"))
    words = told(DataError, homes=homes, facilities=FACILITIES, totals=["block"])
    assert "block B2 has 0 with place 3, and at least 1 are possible" in words


def test_settings_of_rules_that_name_nothing_are_told_at_once() -> None:
    words = told(
        PlanError,
        totals=["city"],
        zeros=[{"place": ["9"], "colour": ["x"]}, {}],
        facilities={**FACILITIES, "attribute": "home"},
    )
    for piece in (
        "totals: there is no level 'city'",
        "zeros 1: 'place' has no code \"9\"",
        "zeros 1: there is no attribute 'colour'",
        "zeros 2: it bars nothing",
        "facilities attribute: there is no attribute 'home'",
    ):
        assert piece in words, words


def test_units_are_counted_where_they_are_and_their_numbers_published() -> None:
    plan = planned(units=UNITS)
    persons, units = plan.parts
    assert units.answers(units.schema.query("detailed"), 2, range(4)).tolist() == [
        [0, 1],
        [0, 1],
        [0, 1],
        [1, 0],
    ]
    (rule,) = units.rules
    assert rule.values(plan.spine, 2, range(4)).tolist() == [[1], [1], [1], [1]]
    assert persons.answers(persons.schema.query("total"), 2, range(4)).tolist() == [[2], [1], [2], [0]]
    assert not plan.doubts, "which blocks have a unit is published"
    assert [doubt.kind for doubt in planned().doubts] == ["areas-from-file"]


def test_units_and_facilities_need_the_file_of_units() -> None:
    flat = PEOPLE.join(HOMES, on="hid").drop("hid")
    for more in ({"units": UNITS}, {"facilities": FACILITIES}):
        with pytest.raises(PlanError, match="there is no file of housing units"):
            mechanism(**more).plan(flat)
    words = told(PlanError, homes=HOMES.drop("occupancy", "kind"), units=UNITS, facilities=FACILITIES)
    assert 'there is no column "occupancy"' in words
    assert 'there is no column "kind"' in words
    words = told(DataError, homes=HOMES.with_columns(kind=pl.lit("7")), facilities=FACILITIES)
    assert '"7": values that are no declared codes' in words
