"""What one changed unit can change, how budgets are split, and budgets that follow from a stated precision."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.problems import PlanError
from stirred.mechanisms.tables.noise.measures import (
    Measure,
    Precision,
    Sum,
    budgeted,
    changes,
    keeping,
    kept_in,
    smallest_loss,
)
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.spec.problems import StirredError
from tests.depth import examples

VALUES = {"county": [*range(10)], "tenure": ["o", "r"], "size": [1, 2, 3]}


def noisy(**settings: Any) -> NoisyTables:
    return NoisyTables(**{"tables": [["county"], ["county", "tenure"]], "values": VALUES, **settings})


def losses(mechanism: NoisyTables) -> list[Fraction]:
    return [each.loss for each in mechanism.measures()]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(-4, 4), st.integers(1, 5), st.integers(1, 3), st.sampled_from([None, 1, 2]), st.booleans())
def test_no_changed_unit_changes_more_than_is_paid_for(
    low: int, span: int, cells: int, persons: int | None, added: bool
) -> None:
    """All units with values at the bounds, in all cells, against each other: the bound holds and is attained."""
    added_up = Sum(column="v", low=low, high=low + span) if added else None
    one, square = changes(persons=persons, added_up=added_up, cells=cells)
    contributions = [*product(range(cells), (low, low + span) if added else (1,))]
    counts = (1,) if persons is None else range(persons + 1)
    units = [unit for count in counts for unit in combinations_with_replacement(contributions, count)]

    def table(unit: Any) -> list[int]:
        return [sum(value for cell, value in unit if cell == place) for place in range(cells)]

    differences = [[b - a for a, b in zip(table(x), table(y), strict=True)] for x in units for y in units]
    largest = max(sum(map(abs, each)) for each in differences)
    squares = max(sum(d * d for d in each) for each in differences)
    assert largest <= one
    assert squares <= square
    if cells > 1 or added:
        assert (largest, squares) == (one, square)


def test_the_budget_is_split_evenly_by_shares_or_by_precision() -> None:
    assert losses(noisy(rho=1)) == [Fraction(1, 2)] * 2
    assert losses(noisy(rho=1, shares={"tenure x county": 3, "county": 1})) == [Fraction(1, 4), Fraction(3, 4)]
    assert sum(losses(noisy(noise="laplace", epsilon="0.1"))) == Fraction(1, 10)
    precise = noisy(rho=1, precision=[{"table": "county", "within": 50}])
    first, second = losses(precise)
    assert first + second == 1
    assert first < Fraction(1, 500)


def test_noise_has_rational_parameters_and_the_loss_that_is_stated() -> None:
    for each in noisy(rho="1/3", shares={"county": 2, "county x tenure": 5}).measures():
        assert Fraction(each.square) / (2 * each.cell.noise.variance) == each.loss  # type: ignore[union-attr]
    for each in noisy(noise="laplace", epsilon=2).measures():
        assert each.one * each.cell.noise.loss == each.loss  # type: ignore[union-attr]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("within", [0, 3, 50, 100_000])
@pytest.mark.parametrize("jointly", [False, True])
def test_a_stated_precision_is_reached_and_not_with_a_tenth_less(noise: str, within: int, jointly: bool) -> None:
    wanted = {"table": "county", "within": within, "confidence": "95%", "jointly": jointly}
    mechanism = noisy(tables=[["county"]], noise=noise, precision=[wanted])
    (measure,) = mechanism.measures()
    miss = Fraction(5, 100) / (10 if jointly else 1)
    assert measure.cell.within(within) >= 1 - miss
    for less in (Fraction(9, 10), Fraction(998, 1000)):
        assert replace(measure, loss=measure.loss * less).cell.within(within) < 1 - miss


INCOME = Sum(column="income", by=["county"], low=0, high=100_000)
LARGE: dict[str, dict[str, Any]] = {
    "sums": {"one": 200_000, "square": 2 * 100_000**2, "added_up": INCOME},
    "persons": {"one": 16, "square": 128, "of_persons": True},
    "keep": {"kept": (frozenset({"county"}),)},
    "keep both": {"kept": (frozenset({"county"}), frozenset({"size"})), "square": 1, "sizes": (2, 5)},
}


@pytest.mark.parametrize("gaussian", [True, False], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("kind", LARGE)
def test_a_precision_is_solved_for_sums_persons_and_kept_margins(kind: str, gaussian: bool) -> None:
    base = Measure(
        title="county x size", variables=("county", "size"), sizes=(4, 5), one=2, square=2, gaussian=gaussian
    )
    asked, within = replace(base, **LARGE[kind]), 50_000 if kind == "sums" else 20
    wanted = Precision(table="county x size", within=within, confidence="9/10")
    (found,) = budgeted([asked], letter="rho", total=None, shares={}, precision=[wanted])
    assert found.cell.within(within) >= Fraction(9, 10)
    assert replace(found, loss=found.loss * Fraction(998, 1000)).cell.within(within) < Fraction(9, 10)


@pytest.mark.parametrize(
    "more",
    [{"sizes": (4, 5), "kept": LARGE["keep both"]["kept"], "gaussian": False}, LARGE["sums"]],
    ids=["kept", "sum"],
)
def test_noise_beyond_its_exact_law_is_refused_and_never_replaced_by_a_larger_loss(more: dict[str, Any]) -> None:
    base = Measure(title="county x size", variables=("county", "size"), sizes=(4, 5), one=2, square=2, gaussian=True)
    wanted = Precision(table="county x size", within=10**9 if "added_up" in more else 50)
    with pytest.raises(PlanError, match=r"beyond its exact law here; the widest stays within ±[\d,]+"):
        budgeted([replace(base, **more)], letter="rho", total=None, shares={}, precision=[wanted])


def test_every_county_within_50_with_95_percent_has_a_budget_of_a_known_size() -> None:
    """Normal noise would need variance (50.5/1.95996)^2 = 663.9, so rho = 1/663.9 = 0.001506."""
    (measure,) = noisy(tables=[["county"]], precision=[{"table": "county", "within": 50}]).measures()
    assert float(measure.loss) == pytest.approx(0.001507, abs=1e-6)
    assert measure.cell.half_width(Fraction(95, 100)) == 50


def test_the_smallest_loss_has_four_digits() -> None:
    assert smallest_loss(lambda loss: loss >= Fraction(1, 3), where="") == Fraction(3334, 10_000)
    assert smallest_loss(lambda loss: loss >= 1, where="") == 1


def test_margins_that_others_imply_are_left_out() -> None:
    assert keeping(["total"]) == (frozenset(),)
    assert keeping(["county", "county x size", "total"]) == (frozenset({"county", "size"}),)
    keep = [frozenset({"state", "size"}), frozenset({"tenure"})]
    assert kept_in(["state", "sex"], keep, title="") == (frozenset({"state"}),)
    assert kept_in(["sex"], keep, title="") == (frozenset(),)
    assert {*kept_in(["tenure", "state"], keep, title="")} == {frozenset({"state"}), frozenset({"tenure"})}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"rho": 1, "epsilon": 1}, "gaussian noise has no epsilon"),
        ({"noise": "laplace", "rho": 1}, "laplace noise has no rho"),
        ({"rho": 0}, "0 is not above 0"),
        ({"rho": "lots"}, "is not a number"),
        ({"noise": "normal", "rho": 1}, "input should be 'gaussian', 'laplace' or 'geometric'"),
        ({}, "not every table has a precision"),
        ({"rho": 1, "tables": []}, "tables: is needed"),
        ({"rho": 1, "tables": [["county"], ["county"]]}, "asked for twice"),
        ({"rho": 1, "tables": [["county", "county"]]}, "needs different variables"),
        ({"rho": 1, "tables": [["low"]]}, "use for something else"),
        ({"rho": 1, "shares": {"county": 1}}, 'there is no share for "county x tenure"'),
        ({"rho": 1, "shares": {"county": 1, "county x tenure": 0}}, "its share is not above 0"),
        ({"rho": 1, "shares": {"town": 1}}, "there is no table 'town'"),
        ({"rho": 1, "precision": [{"table": "town", "within": 5}]}, "there is no table 'town'"),
        ({"rho": 1, "precision": [{"table": "county", "within": -1}]}, "greater than or equal to 0"),
        ({"rho": 1, "precision": [{"table": "county", "within": 1, "confidence": 95}]}, "did you mean 95%?"),
        ({"rho": "1/100", "precision": [{"table": "county", "within": 1}]}, "the stated precision takes"),
        ({"precision": [{"table": "county", "within": 10**12}]}, "hardly any budget is needed"),
        ({"rho": 1, "precision": [{"table": "county", "within": 9}] * 2}, "a table has two of them"),
        (
            {"tables": [["county"]], "precision": [{"table": "county", "within": 5}], "shares": {"county": 1}},
            "every table has a precision",
        ),
        ({"rho": 1, "confidence": 1}, "1 is not a confidence"),
        ({"rho": 1, "confidence": 95}, "or 0.99; did you mean 95%?"),
        ({"rho": 1, "confidence": "195%"}, "such as '95%' or 0.99."),
        ({"rho": 1, "sums": [{"column": "v", "low": 3, "high": 3}]}, "leave nothing to add up"),
        ({"rho": 1, "sums": [{"column": "v"}]}, "sums entry 1 high: is needed"),
        ({"rho": 1, "tables": [["county"]], "consistent": True}, "nothing that it must agree with"),
        ({"rho": 1, "rounded": 1}, "whole numbers already"),
        ({"rho": 1, "keep": ["county"]}, "published exactly by keep"),
        ({"rho": 1, "tables": [["county", "tenure", "size"]], "keep": ["county", "tenure"]}, "cannot be drawn exactly"),
        (
            {"rho": 1, "tables": [["county", "tenure"]], "keep": ["county"], "values": {"tenure": ["o"]}},
            "leaves nothing",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_make_no_sense_are_refused_in_words(given: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError) as refused:
        noisy(**given)
    told = str(refused.value)
    assert what in told
    assert "Fix: " in told
