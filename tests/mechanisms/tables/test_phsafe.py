"""PHSafe: the toy census by hand, truncation, what changed households can change, ratios, and what is refused."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.tables.phsafe import PHSafe, ratio, truncated
from stirred.mechanisms.tables.tabulator import Tabulator
from stirred.spec.exact import exact
from tests.mechanisms.tables.making import one_table, shipped, toy_h, toy_p, without_noise
from tests.mechanisms.tables.toy import HOUSEHOLDS, PERSONS, RESIDENTS, UNITS

PHSAFE = PHSafe(states=["S"])
TOY = Microdata(households=UNITS, persons=RESIDENTS, hid="hid")


def tables(found: pl.DataFrame, iteration: str, region: str = "STATE") -> dict[str, dict[str, int]]:
    """Return the counts that are not 0, by table and cell."""
    rows = found.filter(iteration_code=iteration, region_type=region).filter(pl.col("count") != 0)
    return {name: dict(zip(own["data_cell"], own["count"], strict=True)) for (name,), own in rows.group_by("table")}


# ---- the toy census, by hand


@pytest.mark.parametrize("region", ["STATE", "USA"])
def test_everybody_is_counted_as_by_hand(region: str) -> None:
    assert tables(without_noise(PHSAFE, TOY)["counts"], "*", region) == {
        "PH1n": {"2": 3, "3": 5},
        "PH1d": {"1": 3},
        "PH2": {"3": 4, "12": 1, "13": 3},
        "PH3": {"4": 2, "7": 1},
        "PH4": {"2": 3, "3": 3},
        "PH5d": {"1": 2},
        "PH6": {"3": 1, "5": 1, "19": 1},
        "PH7": {"2": 4, "3": 1, "4": 3},
        "PH8d": {"2": 2, "3": 1},
    }


@pytest.mark.parametrize("name", ["safetab-p", "safetab-h", "phsafe"])
def test_the_toy_takes_less_than_a_second(name: str) -> None:
    """Of processor time, with the budget of 2020 and everything loaded: 0.1 to 0.3 seconds as measured."""
    toys: dict[str, tuple[Tabulator, Any]] = {
        "safetab-p": (toy_p(), PERSONS.drop("hid")),
        "safetab-h": (toy_h(), HOUSEHOLDS.drop("hid")),
        "phsafe": (PHSAFE, TOY),
    }
    mechanism, data = toys[name]
    mechanism.ready(None, None)
    mechanism.release(data, Entropy.from_os())
    began = time.process_time()
    release = mechanism.release(data, Entropy.from_os())
    assert all(release.public.frame(own).height for own in release.public)
    assert time.process_time() - began < 1


def test_iterations_are_those_of_the_householder_or_of_the_person() -> None:
    found = without_noise(PHSAFE, TOY)["counts"]
    hispanic = tables(found, "H")
    assert (hispanic["PH1n"], hispanic["PH1d"], hispanic["PH3"]) == ({"2": 1, "3": 2}, {"1": 1}, {"7": 1})
    assert tables(found, "B")["PH1n"] == {"3": 1}
    assert tables(found, "G") == {"PH3": {"7": 1}}  # the child of two races, by its own race
    assert tables(found, "I")["PH1n"] == {"2": 2, "3": 2}


def test_floats_of_a_budget_are_taken_by_their_shortest_decimal() -> None:
    budget = shipped("us-2020-phsafe")
    name, by_region = next(iter(budget["rho"].items()))
    region, by_group = next(iter(by_region.items()))
    budget["rho"][name][region] = dict.fromkeys(by_group, 0.1)
    losses = {query.loss for query in PHSafe(states=["S"], budget=budget).spent.queries() if query.table.rho == name}
    assert Fraction(1, 10) in losses
    assert Fraction(0.1) not in losses


def test_at_most_two_of_a_household_are_counted_under_any_order() -> None:
    """With tau = 2 the four of the first and the three of the third household count as two."""
    budget = shipped("us-2020-phsafe")
    for name in ("PH2", "PH7"):
        budget["tables"][name]["at_most"] = 2
    for key in ("stirred", "another", ""):
        found = tables(without_noise(PHSafe(states=["S"], budget=budget, order_key=key), TOY)["counts"], "*")
        assert (found["PH2"], found["PH7"]) == ({"3": 2, "12": 1, "13": 2}, {"2": 2, "3": 1, "4": 2})


def test_who_is_counted_depends_on_the_row_and_the_key_and_not_on_the_order_of_the_file() -> None:
    family = pl.DataFrame({"hid": "u1", "qage": [str(n) for n in range(10, 26)]})
    people = family.with_columns(relship=pl.lit("25"), cenrace=pl.lit("1"), cenhisp=pl.lit("1"))
    counts = set()
    for key in ("a", "b", "c", "d"):
        cut = one_table(3)
        cut = PHSafe(states=["S"], budget=cut.budget, order_key=key)
        found = [
            without_noise(cut, Microdata(households=UNITS, persons=rows, hid="hid"))["counts"]["count"].to_list()
            for rows in (people, people.reverse(), people.sample(fraction=1, shuffle=True, seed=1))
        ]
        assert found[0] == found[1] == found[2]
        assert sum(found[0]) == 3
        counts.add(tuple(found[0]))
    assert len(counts) > 1


def test_a_cell_counts_a_row_once_even_if_conditions_overlap() -> None:
    budget = shipped("us-2020-phsafe")
    budget["tables"]["PH1n"]["cells"] = {"2": {"qage": "0-50"}, "3": {"qage": "0-115"}}
    found = tables(without_noise(PHSafe(states=["S"], budget=budget), TOY)["counts"], "*")
    assert found["PH1n"] == {"2": 7, "3": 1}


# ---- what one change can change


def joined(phsafe: PHSafe, homes: tuple[tuple[str, ...], ...]) -> np.ndarray:
    """Return the counts of a file of households, each a kind of unit (f, m) and its persons (c, a)."""
    units = {"f": ("1", "1", "1", "1", "01", "1"), "m": ("2", "2", "3", "3", "06", "0")}
    persons = {"c": ("1", "1", "2", "25"), "a": ("2", "2", "40", "20")}
    small = phsafe._small([(units[kind], [persons[p] for p in people]) for kind, *people in homes])
    ((_, counts),) = phsafe.true_counts(small, [*phsafe.spent.queries()])
    return counts.ravel()


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_a_changed_household_loses_and_gains_at_most_tau_rows(at_most: int) -> None:
    """All households of up to tau + 1 persons: in place the largest squared change is 2 tau^2, and it is attained."""
    phsafe = one_table(at_most)
    homes = [(kind, *people) for n in range(at_most + 2) for kind in "f" for people in product("ca", repeat=n)]
    counts = [joined(phsafe, (home,)) for home in homes]
    most = max(int(((one - other) ** 2).sum()) for one in counts for other in counts)
    assert most == 2 * at_most**2
    table = phsafe.spent.tables["PH1n"]
    assert Fraction(most, table.stability**2) == table.replaced == Fraction(at_most**2, 2 * (at_most + 1) ** 2)


def test_a_person_who_moves_changes_two_households_possibly_alike() -> None:
    """tau = 2: eight in place, 32 for a move, and 36 is what the noise is made for."""
    phsafe = one_table(2, name="PH2")
    most = 0
    kinds = [*product("fm", [0, 1, 2, 3])]
    for one, other in combinations_with_replacement(kinds, 2):
        for new_one, new_other in product(("f", "m"), repeat=2):
            before = joined(phsafe, ((one[0], *"c" * one[1]), (other[0], *"c" * other[1])))
            after = joined(phsafe, ((new_one, *"c" * (one[1] + 1)), (new_other, *"c" * max(other[1] - 1, 0))))
            most = max(most, int(((before - after) ** 2).sum()))
    table = phsafe.spent.tables["PH2"]
    assert (most, table.stability**2) == (32, 36)
    assert Fraction(most, table.stability**2) == table.moved


def test_a_replaced_household_changes_two_units() -> None:
    phsafe = one_table(0, name="PH8d")
    before, after = joined(phsafe, (("f",),)), joined(phsafe, (("m",),))
    assert int(((before - after) ** 2).sum()) == 2


# ---- noise and estimates


def test_the_noise_is_that_of_2020() -> None:
    variances = {query.title: float(query.parameter) for query in PHSAFE.spent.queries()}
    found = [variances[f"{name} {region} {group}"] for name, region, group in (
        ("PH1n", "state", "ALL"), ("PH1n", "nation", "ALL"), ("PH1n", "state", "A-G"), ("PH3", "state", "A-G"),
        ("PH1d", "state", "ALL"), ("PH1d", "nation", "ALL"))]  # fmt: skip
    assert found == pytest.approx([14782.24, 92401.68, 1708.774, 147.8183, 14814.81, 90909.09], rel=1e-6)
    assert 2 * variances["PH7 state ALL"] == pytest.approx(29564.47, rel=1e-6)  # owners add two cells


def test_a_count_cut_off_at_zero_has_the_mean_and_quantiles_of_the_model() -> None:
    assert [*truncated(100, 14782.24)] == pytest.approx([143.5245, 16.1208, 313.2343], abs=1e-4)
    assert truncated(-3000, 100) == (0.0, 0.0, 0.0)
    low = truncated(-500, 14782.24)
    assert low.low is not None
    assert low.value is not None
    assert low.high is not None
    assert 0 < low.low < low.value < low.high


@pytest.mark.parametrize(("stretch", "right"), [(1.0, True), (0.5, False), (2.0, False)])
def test_fieller_covers_nine_of_ten(stretch: float, right: bool) -> None:
    """4,000 draws: coverage is known to half a percent (one sigma); intervals half or twice as wide are seen."""
    generator = np.random.default_rng(8)
    above, below = 300 + 20 * generator.standard_normal(4000), 120 + 10 * generator.standard_normal(4000)
    spread = (400.0 * stretch**2, 100.0 * stretch**2)
    found = [ratio(a, b, variances=spread) for a, b in zip(above.tolist(), below.tolist(), strict=True)]
    inside = np.mean(
        [each.low is not None and each.high is not None and each.low <= 2.5 <= each.high for each in found]
    )
    assert bool(abs(inside - 0.9) < 0.02) is right


def test_readers_are_told_whom_the_counts_leave_out() -> None:
    assert any("at most 6 or 10 persons are counted" in line for line in PHSAFE.reading_tables(None))
    assert not any("are counted, by table" in line for line in one_table(0, name="PH8d").reading_tables(None))


def test_a_ratio_has_no_interval_where_there_may_be_no_household() -> None:
    assert ratio(5, 0, variances=(1.0, 1.0)) == (None, None, None)
    assert ratio(5, 1, variances=(1.0, 1.0)).low is None
    assert ratio(5, -100, variances=(1.0, 1.0)) == (None, None, None)  # no count of households is below 0


def test_ratios_are_sums_of_cells_over_sums_of_cells() -> None:
    found = without_noise(PHSAFE, TOY)["ratios"].filter(region_type="USA", iteration_code="*")
    value = dict(zip(found["ratio"], found["value"], strict=True))
    assert value == pytest.approx(
        {"PH1_1": 8 / 3, "PH1_2": 1, "PH1_3": 5 / 3, "PH5_1": 3, "PH5_2": 1.5, "PH5_3": 1.5, "PH8_2": 2.5, "PH8_3": 3}
    )


def test_a_release_has_every_cell_of_every_declared_state() -> None:
    public = PHSafe(states=["S", "T"]).release(TOY, Entropy.from_os()).public
    counts = public["counts"]
    assert {*counts["region_id"]} == {"1", "S", "T"}
    assert counts.height == counts.select("region_id", "table", "iteration_code", "data_cell").n_unique()
    assert counts.filter(region_id="S").height == counts.filter(region_id="T").height


# ---- what is promised and refused

_UNITS = {"title": "", "counts": "units", "rho": "units", "cells": {"1": {}}}


def test_the_promises_of_a_person_and_of_a_household() -> None:
    replaced = PHSAFE.plan(TOY).specification
    assert replaced.input_premetric.symbol == "d_HamS^household"
    assert "a changed person changes one household; one who moves changes two" in replaced.assumptions
    added = PHSafe(states=["S"], promise="add-remove").plan(TOY).specification
    assert (added.input_premetric.symbol, added.budget.realised) == ("d_SymDiff^person", exact("1.257281"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (UNITS, "persons and their units are needed"),
        (
            Microdata(households=UNITS.drop("hhrace"), persons=RESIDENTS.with_columns(hhrace=pl.lit("1")), hid="hid"),
            'households: there is no column "hhrace"',
        ),
        (
            Microdata(households=UNITS.with_columns(qage=pl.lit("40")), persons=RESIDENTS, hid="hid"),
            '"qage" is in both files',
        ),
        (
            Microdata(households=UNITS, persons=RESIDENTS.with_columns(qage=pl.lit("200")), hid="hid"),
            'persons "qage": no value is one that the budget names',
        ),
        (Microdata(households=UNITS.drop("hht2"), persons=RESIDENTS, hid="hid"), 'no column "hht2"'),
        (Microdata(households=UNITS.drop("state"), persons=RESIDENTS, hid="hid"), 'no column "state"'),
        (
            Microdata(households=UNITS.with_columns(state=pl.lit("X")), persons=RESIDENTS, hid="hid"),
            "a state is missing or was not declared (5 rows: 1, 2, 3, 4, 5)",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(data: object, what: str) -> None:
    with pytest.raises(DataError) as told:
        PHSAFE.plan(data)
    assert what in str(told.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"occupied": {"hht": "many"}}, "a condition lists values, or is a range"),
        ({"tables": {"A": {"title": "", "counts": "persons", "rho": "persons", "cells": {"1": {}}}}}, "at_most"),
        ({"tables": {"A": {"title": "", "counts": "units", "rho": "none", "cells": {"1": {}}}}}, "that is not there"),
        ({"rho": {"persons": {}, "children": {}, "units": {}}}, "every rho is 0"),
        ({"tables": {"A": {**_UNITS, "at_most": -1}}}, "tables.A.at_most"),  # stability 2 tau + 2 would be 0: no noise
        ({"tables": {"A": {**_UNITS, "groups": ["ALL", "ALL"]}}}, "query A nation ALL appears twice"),
        (
            {
                "groups": {"x": {"*": {}}, "state x": {"*": {}}},
                "rho": {"one": {"nation": {"state x": "1"}}, "other": {"state": {"x": "2"}}},
                "tables": {
                    "A": {**_UNITS, "rho": "one", "groups": ["state x"]},
                    "A nation": {**_UNITS, "rho": "other", "groups": ["x"]},
                },
            },
            "query A nation state x appears twice",
        ),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(change: dict[str, object], what: str) -> None:
    with pytest.raises(PlanError) as told:
        PHSafe(states=["S"], budget={**shipped("us-2020-phsafe"), "ratios": {}, **change})
    assert what in str(told.value)


def test_ratios_and_states_that_make_no_sense_are_refused() -> None:
    budget = shipped("us-2020-phsafe")
    budget["ratios"]["PH1_1"]["below"]["cells"] = ["9"]
    with pytest.raises(PlanError, match="names a table or a cell that is not there"):
        PHSafe(states=["S"], budget=budget)
    for states in ([], ["S", "S"]):
        with pytest.raises(PlanError, match="states are declared once each"):
            PHSafe(states=states)


def test_advice_names_the_setting_that_exists_or_the_budget() -> None:
    with pytest.raises(DataError, match=r"name your columns with state\. The file has"):
        PHSAFE.plan(Microdata(households=UNITS.drop("state"), persons=RESIDENTS, hid="hid"))
    with pytest.raises(DataError, match='rename yours to "hht2", which the budget names') as caught:
        PHSAFE.plan(Microdata(households=UNITS.drop("hht2"), persons=RESIDENTS, hid="hid"))
    assert str(caught.value).count('there is no column "hht2"') == 1
    assert "stirred census budget --part phsafe --out mine.toml" in str(caught.value)
