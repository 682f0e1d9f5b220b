"""Shares of a budget: variances in closed form equal those of dense least squares, and optima are optima."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms.topdown.optimise import (
    AREAS_2020,
    Criterion,
    Hierarchy,
    Optimised,
    Shares,
    Variances,
    fan_outs,
    optimised,
)
from stirred.mechanisms.topdown.schema import Attribute, Schema

LEVELS = [*AREAS_2020]


def attribute(name: str, size: int, **groupings: tuple[int, ...]) -> Attribute:
    return Attribute(name=name, codes=tuple(map(str, range(size))), groupings=groupings)


PL = Schema(
    name="PL 94-171",
    attributes=(
        attribute("hhgq", 8, hhinstlevels=(0, 1, 1, 1, 1, 2, 2, 2)),
        attribute("votingage", 2),
        attribute("hispanic", 2),
        attribute("cenrace", 63),
    ),
)
RHO = Fraction(542, 339) ** 2
OF_LEVELS = [Fraction(each, 4099) for each in (104, 1440, 447, 687, 1256, 165)]
OF_QUERIES = {
    "total": "0 3773/4097 3126/4097 1567/4102 1705/4099 5/4097",
    "cenrace": "52/4097 6/4097 10/4097 4/2051 3/4099 9/4097",
    "hispanic": "26/4097 6/4097 10/4097 5/4102 3/4099 5/4097",
    "votingage": "26/4097 6/4097 10/4097 5/4102 3/4099 5/4097",
    "hhinstlevels": "26/4097 6/4097 10/4097 5/4102 3/4099 5/4097",
    "hhgq": "26/4097 6/4097 10/4097 5/4102 3/4099 5/4097",
    "votingage * hispanic": "26/4097 6/4097 10/4097 5/4102 3/4099 5/4097",
    "hispanic * cenrace": "130/4097 12/4097 28/4097 1933/4102 1055/4099 21/4097",
    "votingage * cenrace": "130/4097 12/4097 28/4097 10/2051 9/4099 21/4097",
    "votingage * hispanic * cenrace": "26/241 2/241 101/4097 67/4102 24/4099 71/4097",
    "detailed": "189/241 230/4097 754/4097 241/2051 1288/4099 3945/4097",
}
GIVEN: Shares = {
    level: {name: OF_LEVELS[place] * Fraction(each.split()[place]) for name, each in OF_QUERIES.items()}
    for place, level in enumerate(LEVELS)
}
SEVEN = ("total", "cenrace", "hispanic", "votingage", "hhgq", "hispanic * cenrace", "detailed")
TARGETS = tuple((level, query) for level in LEVELS[1:] for query in SEVEN)


def as_array(hierarchy: Hierarchy, shares: Shares) -> np.ndarray:
    return np.array([[float(shares[x].get(q.name, 0)) for q in hierarchy.queries] for x in hierarchy.levels])


def own_level(variances: Variances, shares: Any) -> Any:
    """The variances of the best estimates from the measurements of a level alone."""
    return sum(s.many * np.einsum("jqxx->jq", variances.felt(s, shares)) for s in variances.spaces) / variances.sizes


@pytest.fixture(scope="module")
def ratios() -> dict[tuple[str, str], float]:
    """Standard errors of two-pass estimates over those of a level alone, under the production budget."""
    hierarchy = Hierarchy.of(PL, areas=AREAS_2020, shares=GIVEN)
    variances, shares = Variances(hierarchy), as_array(hierarchy, GIVEN)
    found = np.sqrt(variances.two_pass(shares)[0] / own_level(variances, shares))
    return {
        (level, query.name): found[high, place]
        for high, level in enumerate(LEVELS)
        for place, query in enumerate(hierarchy.queries)
    }


@pytest.mark.parametrize(
    ("level", "query", "printed"),
    [
        ("County", "cenrace", 0.72),
        ("County", "hispanic * cenrace", 0.69),
        ("County", "detailed", 0.94),
        ("County", "total", 0.97),
        ("Tract", "total", 0.75),
        ("Tract", "hispanic * cenrace", 0.85),
        ("Tract", "detailed", 0.60),
    ],
)
def test_the_gain_by_fan_outs_is_as_the_design_prints_it(
    ratios: dict[tuple[str, str], float], level: str, query: str, printed: float
) -> None:
    """Section 3 of the design of TopDown, with the mean fan-outs of the 2020 census."""
    assert round(ratios[level, query], 2) == printed


@pytest.mark.parametrize(
    ("level", "low", "high"), [("State", 0.98, 1.0), ("Block_Group", 0.86, 0.92), ("Block", 0.98, 0.98)]
)
def test_the_gain_of_a_level_lies_where_the_design_says(
    ratios: dict[tuple[str, str], float], level: str, low: float, high: float
) -> None:
    found = [round(ratio, 2) for (each, _), ratio in ratios.items() if each == level]
    assert (min(found), max(found)) == (low, high)


def test_with_all_eight_million_blocks_the_gains_differ_by_less_than_a_hundredth() -> None:
    """The design does not say which blocks it counts: those with housing or people reproduce Block .98."""
    areas = {**AREAS_2020, "Block": 8_132_968}
    found = []
    for each in (AREAS_2020, areas):
        hierarchy = Hierarchy.of(PL, areas=each, shares=GIVEN)
        variances, shares = Variances(hierarchy), as_array(hierarchy, GIVEN)
        found.append(np.sqrt(variances.two_pass(shares)[0] / own_level(variances, shares)))
    assert np.abs(found[0] - found[1]).max() < 0.01


TOY = Schema(name="toy", attributes=(attribute("a", 4, pair=(0, 1, 1, 1)), attribute("b", 3)))
TOY_AREAS = {"top": 1, "middle": 3, "leaf": 6}
TOY_SHARES: Shares = {
    "top": {"total": Fraction(1, 10), "pair": Fraction(1, 10), "detailed": Fraction(1, 20)},
    "middle": {"a": Fraction(1, 4), "b": Fraction(1, 10)},
    "leaf": {"detailed": Fraction(3, 10), "pair * b": Fraction(1, 10)},
}


def dense(hierarchy: Hierarchy, shares: np.ndarray, *, known: int) -> np.ndarray:
    """Least squares over all cells of all leaves, all measurements at once; totals of the first levels are fixed."""
    size, fans = hierarchy.schema.size, [round(each) for each in hierarchy.fan_outs]
    leaves = math.prod(fans)

    def rows(high: int) -> list[np.ndarray]:
        count = math.prod(fans[:high])
        return [np.repeat(np.arange(count) == area, leaves // count).astype(float) for area in range(count)]

    matrices = [np.eye(query.size)[query.cell_of].T for query in hierarchy.queries]
    precision = np.zeros((leaves * size, leaves * size))
    for high, place in np.ndindex(*shares.shape):
        for area in rows(high):
            asked = np.kron(area, matrices[place])
            precision += shares[high, place] * asked.T @ asked
    fixed = [np.kron(area, np.ones(size)) for high in range(known) for area in rows(high)]
    left = (
        np.linalg.svd(np.array(fixed))[2][np.linalg.matrix_rank(np.array(fixed)) :].T
        if fixed
        else np.eye(len(precision))
    )
    covariance = left @ np.linalg.inv(left.T @ precision @ left) @ left.T
    found = np.zeros(shares.shape)
    for high, place in np.ndindex(*shares.shape):
        asked = np.kron(rows(high)[0], matrices[place])
        found[high, place] = np.trace(asked @ covariance @ asked.T) / len(asked)
    return found


@pytest.mark.parametrize("known", [None, "top", "middle"])
def test_variances_in_closed_form_are_those_of_dense_least_squares(known: str | None) -> None:
    hierarchy = Hierarchy.of(TOY, areas=TOY_AREAS, shares=TOY_SHARES, known=known)
    shares = as_array(hierarchy, TOY_SHARES)
    slow = dense(hierarchy, shares, known=[None, "top", "middle"].index(known))
    assert np.allclose(Variances(hierarchy).known_of(shares), slow, rtol=1e-9, atol=1e-12)


def test_what_more_of_a_share_gains_is_the_derivative() -> None:
    hierarchy = Hierarchy.of(TOY, areas=TOY_AREAS, shares=TOY_SHARES, known="top")
    variances, shares = Variances(hierarchy), as_array(hierarchy, TOY_SHARES) + 0.01
    slope, step = variances.two_pass(shares)[1], 1e-6
    for place in np.ndindex(*shares.shape):
        up, down = shares.copy(), shares.copy()
        up[place] += step
        down[place] -= step
        rate = (variances.two_pass(down)[0] - variances.two_pass(up)[0]) / (2 * step)
        assert np.allclose(slope[(slice(None), slice(None), *place)], rate, rtol=1e-5, atol=1e-6)


def test_case_18_of_the_design_total_and_four_cells() -> None:
    schema = Schema(name="cells", attributes=(attribute("cell", 4),))
    given: Shares = {"US": {"total": Fraction(1, 3), "detailed": Fraction(2, 3)}}
    criterion = Criterion(power=1, relative=False, weights={("US", "detailed"): 4})
    hierarchy = Hierarchy.of(schema, areas={"US": 1}, shares=given)
    found = optimised(hierarchy, given, criterion=criterion, tolerance=1e-10)
    assert round(float(found.shares["US"]["total"]), 6) == 0.236068
    assert round(found.loss[1], 6) == 6.854102
    assert math.isclose(found.bound, found.loss[1], rel_tol=1e-8)
    without: Shares = {"US": {"detailed": Fraction(1)}}
    alone = Hierarchy.of(schema, areas={"US": 1}, shares=without)
    total = Hierarchy.of(schema, areas={"US": 1}, shares=given)
    assert Variances(alone).two_pass(np.array([[1.0]]))[0] * 4 + 4 == 8  # the total is the sum of the cells
    assert Variances(total).two_pass(np.array([[0.0, 1.0]]))[0].tolist() == [[4, 1]]


@pytest.fixture(scope="module")
def found() -> Optimised:
    hierarchy = Hierarchy.of(PL, areas=AREAS_2020, shares=GIVEN)
    return optimised(hierarchy, GIVEN, criterion=Criterion(targets=TARGETS), rho=RHO, tolerance=3e-3)


def test_the_worst_of_35_targets_gets_better_and_no_shares_do_much_better(found: Optimised) -> None:
    assert found.loss[0] == pytest.approx(1)
    assert found.loss[1] < 0.975
    assert found.bound <= found.loss[1] < found.bound * 1.004
    targets = [each for each in found.changes if each.target]
    assert len(targets) == 35
    assert max(each.ratio for each in targets) ** 2 == pytest.approx(found.loss[1])


def test_shares_are_rational_and_sum_to_exactly_one(found: Optimised) -> None:
    shares = [share for each in found.shares.values() for share in each.values()]
    assert all(isinstance(share, Fraction) and share > 0 for share in shares)
    assert sum(shares) == 1


def test_what_is_bought_at_the_cost_of_others_is_said(found: Optimised) -> None:
    """The nation and queries that are no targets pay."""
    assert found.worsened[0].level == "US"
    assert not any(each.target for each in found.worsened)
    assert {each.query for each in found.worsened if each.level != "US"} == {*OF_QUERIES} - {*SEVEN}
    assert [each.ratio for each in found.worsened] == sorted((each.ratio for each in found.worsened), reverse=True)
    assert all(each.ratio < 1 for each in found.improved)
    state = next(each for each in found.changes if (each.level, each.query) == ("State", "total"))
    assert state.error[0] == pytest.approx(1.099633, rel=5e-3)  # case 1, less what other measurements add
    assert state.share[0] == GIVEN["State"]["total"]


def test_the_bound_holds_for_other_shares(found: Optimised) -> None:
    hierarchy = Hierarchy.of(PL, areas=AREAS_2020, shares=GIVEN)
    variances, given = Variances(hierarchy), as_array(hierarchy, GIVEN)
    before, rng = variances.two_pass(given)[0], np.random.default_rng(18)
    named = {(a, b): (LEVELS.index(a), [q.name for q in hierarchy.queries].index(b)) for a, b in TARGETS}
    best = as_array(hierarchy, found.shares)
    for _ in range(20):
        other = np.maximum(best, 1e-5) * np.exp(rng.normal(0, 0.3, best.shape))
        after = variances.two_pass(other / other.sum())[0]
        assert max(after[place] / before[place] for place in named.values()) > found.bound


def test_softer_criteria_trade_the_worst_for_the_mean() -> None:
    hierarchy = Hierarchy.of(PL, areas=AREAS_2020, shares=GIVEN)
    for power, worst, mean in ((4, 1.13, 0.70), (1, 1.47, 0.45)):
        soft = optimised(hierarchy, GIVEN, criterion=Criterion(targets=TARGETS, power=power), tolerance=3e-3)
        ratios = [each.ratio for each in soft.changes if each.target]
        assert max(ratios) < worst
        assert math.exp(np.log(ratios).mean()) < mean
        assert soft.loss[1] < soft.bound * 1.004


def test_shares_that_are_best_already_are_returned_as_they_are() -> None:
    hierarchy = Hierarchy.of(TOY, areas=TOY_AREAS, shares=TOY_SHARES)
    targets = tuple((level, query) for level, asked in TOY_SHARES.items() for query in asked)
    criterion = Criterion(power=1, relative=False, targets=targets)
    first = optimised(hierarchy, TOY_SHARES, criterion=criterion, tolerance=1e-4)
    again = optimised(hierarchy, first.shares, criterion=criterion)
    assert again.shares == first.shares
    assert not again.improved
    assert not again.worsened


def test_a_total_that_is_known_costs_nothing() -> None:
    hierarchy = Hierarchy.of(TOY, areas=TOY_AREAS, shares=TOY_SHARES, known="middle")
    measured = optimised(hierarchy, TOY_SHARES)
    assert "total" not in measured.shares["top"]
    assert not any(each.target for each in measured.changes if (each.level, each.query) == ("top", "total"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda h: optimised(h, {"top": {"total": Fraction(1, 2)}}), "the shares sum to 1/2"),
        (lambda h: optimised(h, {"roof": {"total": Fraction(1)}}), 'the hierarchy has no "roof total"'),
        (lambda h: optimised(h, TOY_SHARES, criterion=Criterion(targets=(("leaf", "c"),))), 'there is no "leaf c"'),
        (
            lambda h: optimised(h, {"top": {"detailed": Fraction(1)}}, criterion=Criterion(targets=(("leaf", "b"),))),
            '"leaf b" cannot be estimated',
        ),
        (
            lambda h: optimised(
                Hierarchy(schema=TOY, levels=h.levels, fan_outs=h.fan_outs, queries=h.queries, known="top"),
                TOY_SHARES,
                criterion=Criterion(targets=(("top", "total"),)),
            ),
            "no target has noise",
        ),
        (
            lambda h: Hierarchy(schema=TOY, levels=h.levels, fan_outs=(3.0,), queries=h.queries),
            '3 levels and the fan-outs "3"',
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(call: Callable[[Hierarchy], object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        call(Hierarchy.of(TOY, areas=TOY_AREAS, shares=TOY_SHARES))


def test_fan_outs_of_the_census_are_means() -> None:
    assert [round(each, 2) for each in fan_outs()] == [51.0, 61.63, 26.86, 2.84, 24.58]
