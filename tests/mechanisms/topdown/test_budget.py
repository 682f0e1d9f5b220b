"""Budget files: the production budgets of 2020 with their certificate, and everything that can be wrong with one."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.topdown.budget import Shares, read_budget
from stirred.mechanisms.topdown.commands import TopDownBudgetOptions, show_budget
from stirred.mechanisms.topdown.hierarchy.schema import Schema, declared_schema, shipped_schema
from stirred.randomness.cell_law import variance_of
from stirred.spec import catalogue
from stirred.spec.exact import exact

PERSONS, UNITS = "us-2020-pl-persons", "us-2020-pl-units"
# At delta 1e-10, as the certificates of the production run print them.
CERTIFICATE = {
    "anything": 17.14,
    "hhgq": 7.24,
    "votingage": 7.57,
    "hispanic": 10.04,
    "cenrace": 10.08,
    "Block within Block_Group": 2.93,
    "Block within Tract": 9.38,
    "Block within County": 11.70,
    "Block within State": 13.05,
    "Block within US": 16.89,
}
TOY = declared_schema(
    "toy",
    ["a", "b"],
    values={"a": ["0", "1"], "b": ["x", "y", "z"]},
    groupings={"b": {"coarse": [["x"], ["y", "z"]]}},
)
SMALL: dict[str, Any] = {
    "rho": "3/2",
    "levels": {"all": "1/2", "ward": "1/2"},
    "queries": {"total": {"ward": "1/4"}, "coarse": "1/4", "detailed": {"all": "3/4", "ward": "1/2"}},
}


def problems(content: dict[str, Any]) -> list[str]:
    with pytest.raises(PlanError) as told:
        Shares.read(content)
    return [str(problem) for problem in told.value.problems]


def changed(**keys: Any) -> dict[str, Any]:
    return {**SMALL, **keys}


def test_the_eleven_certificate_values_come_out_of_the_shipped_budget_files() -> None:
    persons = Shares.read(read_budget(PERSONS))
    found = {each.what: round(float(each.epsilon), 2) for each in persons.certificate(shipped_schema("pl94-persons"))}
    assert found == CERTIFICATE
    units = Shares.read(read_budget(UNITS)).certificate(shipped_schema("pl94-units"))
    assert round(float(units[0].epsilon), 2) == 2.47


def test_rho_implies_the_epsilon_of_persons_and_units_to_six_digits() -> None:
    """Case 14 of the numeric cases."""
    found = [
        float(Shares.read(read_budget(name)).certificate(shipped_schema(schema))[0].epsilon)
        for name, schema in ((PERSONS, "pl94-persons"), (UNITS, "pl94-units"))
    ]
    assert np.allclose(found, [17.143551, 2.474671], atol=5e-7, rtol=0)


def test_the_noise_of_a_state_total_in_production_has_a_sigma_of_1_099633() -> None:
    """Case 1 of the numeric cases."""
    sigma2 = Shares.read(read_budget(PERSONS)).sigma2("State", "total")
    assert sigma2 is not None
    assert abs(float(sigma2) ** 0.5 - 1.099633) < 5e-7


def test_the_variance_of_noise_is_that_of_the_discrete_law() -> None:
    """Case 13 of the numeric cases."""
    assert [round(float(variance_of(Fraction(v))), 6) for v in ("1/4", "1/2")] == [0.215013, 0.498979]
    assert variance_of(Fraction(101)) == 101.0


def test_the_shipped_budgets_are_those_that_the_catalogue_composes() -> None:
    for name, entry in ((PERSONS, "das-2020-pl-person"), (UNITS, "das-2020-pl-household")):
        shares = Shares.read(read_budget(name))
        assert exact(shares.rho) == catalogue.load(entry).specification.budget.realised
        assert shares.fitted(shipped_schema(shares.schema), [*shares.levels]) == shares


def cost(schema: Schema, shares: Shares, one: tuple[int, int, int], other: tuple[int, int, int]) -> Fraction:
    """What noise on all answers costs between two records (region, ward, cell), counted answer by answer."""
    total = Fraction(0)
    for depth, level in enumerate(shares.levels):
        for name in shares.measured(level):
            query, sigma2 = schema.query(name), shares.sigma2(level, name)
            assert sigma2 is not None
            cells = [(*record[:depth], int(query.cell_of[record[2]])) for record in (one, other)]
            total += 0 if cells[0] == cells[1] else Fraction(2) / (2 * sigma2)
    return total


def test_the_certificate_is_the_largest_cost_over_all_records_that_differ_in_this_way() -> None:
    budget = {
        "rho": "5/3",
        "levels": {"all": "1/6", "region": "1/3", "ward": "1/2"},
        "queries": {"total": "1/10", "a": "1/5", "coarse": "1/10", "b": "1/5", "detailed": "2/5"},
    }
    shares = Shares.read(budget)
    records = [*product(range(2), range(2), range(TOY.size))]
    ways = {
        "anything": lambda x, y: True,
        "a": lambda x, y: x[:2] == y[:2] and x[2] % 3 == y[2] % 3,
        "b": lambda x, y: x[:2] == y[:2] and x[2] // 3 == y[2] // 3,
        "ward within region": lambda x, y: x[0] == y[0] and x[2] == y[2],
        "ward within all": lambda x, y: x[2] == y[2],
    }
    promised = {each.what: each.rho for each in shares.certificate(TOY)}
    assert [*promised] == [*ways]
    for what, alike in ways.items():
        largest = max(cost(TOY, shares, x, y) for x, y in product(records, records) if alike(x, y))
        # The number of all records never changes, so that its share is promised without being spent.
        never = shares.of_query("all", "total") if what == "anything" else 0
        assert largest == promised[what] - never, what


@given(st.lists(st.booleans(), min_size=2, max_size=5))
def test_bypassed_levels_leave_the_sum_from_the_root_to_a_leaf_at_rho(only_child: list[bool]) -> None:
    levels = [f"level {n}" for n in range(len(only_child) + 1)]
    shares = Shares.even("7/3", levels=levels, queries=["total", "a", "detailed"]).fitted(TOY, levels)
    spent, since = Fraction(0), levels[0]
    for level, bypassed in zip(levels, [*only_child, False], strict=True):
        if not bypassed:
            spent += sum(shares.of_query(level, query, since=since) for query in shares.measured(level))
            since = levels[min(levels.index(level) + 1, len(levels) - 1)]
    assert spent == Fraction(7, 3)


def test_an_even_budget_spends_nothing_on_the_total_of_everything() -> None:
    shares = Shares.even(1, levels=["all", "ward"], queries=["total", "a"])
    assert shares.measured("all") == ["a"]
    assert shares.measured("ward") == ["total", "a"]
    assert Shares.even(1, levels=["all"], queries=["total"]).measured("all") == ["total"]


def test_a_budget_file_says_all_that_is_wrong_with_it_at_once() -> None:
    told = problems(
        {
            "rho": "-1",
            "colour": "blue",
            "levels": {"all": "x", "ward": "-1/2"},
            "queries": {"total": {"wrad": "1"}, "a": "1/0"},
        }
    )
    joined = "\n".join(told)
    for piece in (
        "there is no key 'colour'",
        "budget rho: -1 is negative",
        "budget levels all: 'x' is not a number",
        "budget levels ward: -1/2 is negative",
        "budget queries total wrad: there is no level 'wrad'",
        "budget queries a all: '1/0' is not a number",
    ):
        assert piece in joined, joined


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        (changed(levels={"all": "1/2", "ward": "1/3"}), "the shares of the levels add up to 5/6"),
        (changed(queries={"total": "1/2"}), "the shares of the queries at all add up to 1/2"),
        (changed(rho="ln(2)"), "'ln(2)' is not a fraction above 0"),
        (changed(rho=None), "rho is missing"),
        (changed(rho=0), "'0' is not a fraction above 0"),
        (changed(rho=-1), "-1 is negative. Fix: write a fraction above 0"),
        (changed(rho="abc"), "'abc' is not a loss. Fix: write a fraction above 0"),
        (changed(rho="0/5"), "'0/5' is not a fraction above 0"),
        (changed(levels=[]), "levels is missing"),
        (changed(queries=["total"]), "this is not a table of shares"),
    ],
)
def test_a_wrong_budget_file_is_refused_with_its_reason(content: dict[str, Any], piece: str) -> None:
    told = [*problems(content)]
    assert any(piece in each for each in told), told
    assert "rho is missing" in piece or not any("rho is missing" in each for each in told)


def test_a_query_that_is_named_twice_is_called_so() -> None:
    with pytest.raises(PlanError, match='queries: "total" is named more than once'):
        Shares.even("1/2", levels=["all", "ward"], queries=["total", "detailed", "total"])


def test_levels_and_queries_that_are_not_there_are_told_with_those_that_are() -> None:
    shares = Shares.read(changed(queries={"total": "1/4", "colour": "1/4", "a * b": "1/4", "detailed": "1/4"}))
    with pytest.raises(PlanError) as told:
        shares.fitted(TOY, ["all", "region", "block"])
    joined = "\n".join(map(str, told.value.problems))
    assert "there is no level 'ward'" in joined
    assert 'from the top there are "all", "region", "block"' in joined
    assert "the level 'region' has no share" in joined
    assert "budget queries colour: 'colour' asks for \"colour\", which the schema toy does not have" in joined
    assert "'detailed' asks the same as 'a * b', and would be paid for twice" in joined


def test_a_level_without_a_share_is_not_measured() -> None:
    content = changed(levels={"all": 0, "ward": 1}, queries={"detailed": {"ward": 1}})
    shares = Shares.read(content)
    assert shares.measured("all") == []
    assert shares.sigma2("ward", "detailed") == Fraction(2, 3)
    assert shares.sigma2("ward", "detailed", since="all") == Fraction(2, 3)


def test_names_of_levels_agree_whatever_their_case_and_a_budget_is_the_same_once_written() -> None:
    shares = Shares.read(SMALL).fitted(TOY, ["ALL", "Ward"])
    assert [*shares.levels] == ["ALL", "Ward"]
    assert Shares.read(shares.document()) == shares


def test_a_budget_file_that_cannot_be_read_is_told_with_the_shipped_ones(tmp_path: Path) -> None:
    broken = tmp_path / "budget.toml"
    broken.write_text("rho = ", encoding="utf-8")
    for name, piece in (
        (str(broken), "this is not TOML"),
        (str(tmp_path / "none.toml"), "cannot read the budget file"),
    ):
        with pytest.raises(DataError, match="us-2020-pl-persons") as told:
            read_budget(name)
        assert piece in str(told.value)


def test_the_command_shows_noise_and_certificate_of_a_budget_file(tmp_path: Path) -> None:
    shown = show_budget(TopDownBudgetOptions(file=PERSONS))
    assert dict(shown.rows)["rho"].startswith("293764/114921 = 2.5562")
    noise, costs = shown.grids
    assert next(row for row in noise.rows if row[0] == "total")[1:4] == ("-", "1.1", "2.17")
    assert costs.rows[0] == ("anything", "2.5562", "17.15"), "losses are rounded up"
    assert shown.values["certificate"]["hhgq"]["epsilon"] == pytest.approx(7.2445, abs=1e-4)
    codebook = tmp_path / "codebook.toml"
    variable = '[[variables]]\nname = "{}"\nfile = "persons"\ntype = "code"\ncodes = {{ x = "", y = "" }}\n'
    codebook.write_text("".join(map(variable.format, ("a", "b"))), encoding="utf-8")
    budget = tmp_path / "budget.toml"
    budget.write_text('rho = 1\n[levels]\nall = 1\n[queries]\n"a * b" = 1\n', encoding="utf-8")
    own = show_budget(TopDownBudgetOptions(file=str(budget), schema_=str(codebook), delta="1e-6"))
    assert [row[0] for row in own.grids[1].rows] == ["anything", "a", "b"]
    # A level is no attribute; `detailed` is about all others, also those that no other query names.
    codebook.write_text("".join(map(variable.format, ("a", "b", "Ward"))), encoding="utf-8")
    halves = 'rho = 1\n[levels]\nall = "1/2"\nward = "1/2"\n[queries]\n"a_dpq" = "1/2"\ndetailed = "1/2"\n'
    budget.write_text(halves, encoding="utf-8")
    own = show_budget(TopDownBudgetOptions(file=str(budget), schema_=str(codebook)))
    assert dict(own.rows)["counts"] == "by a x b"
    assert own.values["certificate"]["b"]["rho"] == "1/2"
    budget.write_text(halves.replace("a_dpq", "old"), encoding="utf-8")
    with pytest.raises(PlanError, match=r'asks for "old", which the schema codebook does not have'):
        show_budget(TopDownBudgetOptions(file=str(budget), schema_=str(codebook)))
    with pytest.raises(PlanError, match="does not say what its queries ask"):
        show_budget(TopDownBudgetOptions(file=str(budget)))
