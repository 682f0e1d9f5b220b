"""The 2020 Census as a ledger gives Table 4 and section 5.2; the 2010 design costs once (section 4.5.2)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from stirred.release.ledger import Ledger, Request
from stirred.spec import Specification
from stirred.spec.convert_output import zcdp_to_epsilon
from tests.paper.printed import assert_prints
from tests.paper.published import specification

EXAMPLE = Path(__file__).parents[2] / "examples" / "census_2020_ledger.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    found = importlib.util.spec_from_file_location("census_2020_ledger", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def census(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    ledger: Ledger = example.census_2020(tmp_path_factory.mktemp("census") / "2020.ledger")
    return ledger


def together(ledger: Ledger, example: ModuleType, **stated: object) -> Specification:
    found = ledger.total(example.people(**stated)).specification
    assert found is not None
    return found


def test_the_total_is_the_overall_row_of_table_4(census: Ledger, example: ModuleType) -> None:
    """Table 4, fifth row: rho squared 55.371 and epsilon 126.78, the invariants those of TopDown."""
    total = together(census, example)
    assert total.budget.realised == Fraction("55.371")
    assert total.flavor == specification("das-2020").flavor
    assert_prints(together(census, example, delta=example.DELTA).budget.realised, "126.78")


def test_records_that_stand_twice_quadruple_rho_squared(census: Ledger, example: ModuleType) -> None:
    """Section 5.2: 221.48 and 364.31."""
    total = together(census, example, copies=2)
    assert total.budget.realised == 4 * Fraction("55.371")
    assert_prints(total.budget.realised, "221.48")
    assert_prints(together(census, example, copies=2, delta=example.DELTA).budget.realised, "364.31")


def test_two_household_records_a_person(census: Ledger, example: ModuleType) -> None:
    """SafeTab-H and PHSafe four times over; TopDown as published, whose 15.29 took the factor 1 already."""
    total = together(census, example, kappa=2)
    assert total.budget.realised == Fraction("15.29") + Fraction("19.776") + 4 * (Fraction("17.79") + Fraction("2.515"))


def test_two_household_records_a_person_with_topdown_taken_apart(example: ModuleType, tmp_path: Path) -> None:
    """Swap theory, after R17: 27.296 + 4 x 28.075 = 139.596 and 252.99, from the printed 2.56, 4.96, 0.07, 7.70."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="the 2020 Census Edited File")
    printed = {"pl-person": "2.56", "dhc-person": "4.96", "pl-household": "0.07", "dhc-household": "7.70"}
    for part, budget in printed.items():
        spec = specification(f"das-2020-{part}").with_budget(budget)
        ledger.add(Request(mechanism=f"TopDown {part}", specification=spec))
    for name in ("safetab-p", "safetab-h", "phsafe"):
        ledger.add(Request(mechanism=name, specification=specification(f"das-2020-{name}")))
    assert together(ledger, example).budget.realised == Fraction("55.371")
    assert together(ledger, example, kappa=2).budget.realised == Fraction("139.596")
    assert_prints(together(ledger, example, kappa=2, delta=example.DELTA).budget.realised, "252.99")


def test_nothing_is_added_up_without_the_stated_factor(census: Ledger) -> None:
    total = census.total()
    assert total.specification is None
    assert [(p.specification.input_premetric.unit, p.entries) for p in total.parts] == [
        ("person", (2, 3)),
        ("household", (4, 5)),
    ]


def test_the_published_topdown_contains_the_redistricting_data(census: Ledger, example: ModuleType) -> None:
    """15.29 is PL and DHC together; adding PL again would count it twice."""
    total = census.total(example.people())
    assert total.parts[0].entries == (2, 3, 4, 5)
    assert [aside.entries for aside in total.free] == [(6, 7, 8), (1,)]
    twice = specification("das-2020-topdown-pl").budget.realised + Fraction("55.371")
    assert together(census, example).budget.realised < twice


def test_one_swap_and_many_products_cost_once(example: ModuleType, tmp_path: Path) -> None:
    """Section 4.5.2: releasing additional products from the swapped file does not degrade the specification."""
    ledger: Ledger = example.census_2010(tmp_path / "2010.ledger")
    total = ledger.total()
    assert total.specification is not None
    assert total.specification.budget == specification("psa-2010-4pct").budget
    assert total.specification.flavor == specification("psa-2010-4pct").flavor
    assert total.free[0].entries == (2, 3, 4, 5, 6)


def test_swapping_and_topdown_in_one_ledger(tmp_path: Path, example: ModuleType) -> None:
    """Swap theory, after R17: 12.48 per household with 15.29 per person, factor 1: rho squared 21.530, 66.061."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="both")
    swap = specification("psa-2020-state-county-5pct").with_budget("12.48")
    ledger.add(Request(mechanism="swapping", specification=swap))
    ledger.add(Request(mechanism="TopDown", specification=specification("das-2020-topdown")))
    total = together(ledger, example)
    assert_prints(total.budget.realised, "21.530")
    assert_prints(zcdp_to_epsilon(total.budget.realised, delta=example.DELTA), "66.061")


def test_the_example_runs_and_prints_the_totals(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--out", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for number in ("ρ²=55.371-DP", "ε=126.79", "ρ²=221.484-DP", "ε=364.32", "ρ²=116.286-DP"):
        assert number in done.stdout
