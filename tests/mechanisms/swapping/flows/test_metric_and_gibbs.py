"""The metric swap (R6) and the Gibbs swap (R11): their promises, what they accept as distances, what they refuse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.pair_files import nested_pairs
from stirred.mechanisms.swapping.gibbs.mechanism import GibbsSwap, gibbs_epsilon
from stirred.mechanisms.swapping.metric.distances import TableDistances
from stirred.mechanisms.swapping.metric.mechanism import MetricPlan, MetricSwap
from stirred.mechanisms.swapping.permutation.law import tables_with_margins
from stirred.spec.exact import exact, ln
from stirred.spec.problems import StirredError
from tests.mechanisms.swapping.oracles import loss_of_laws
from tests.mechanisms.swapping.sampling import swapped

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
LINE: dict[str, dict[str, Any]] = {"x": {"y": 1, "z": 2}, "y": {"z": 1}}
HOMES = pl.DataFrame(
    {
        "size": [1] * 6 + [2] * 4 + [3] * 2,
        "county": list("xxxyyz") + list("xyyy") + list("zz"),
        "tenure": list("oorror") + list("orro") + list("or"),
    }
)


def metric(epsilon: Any = "ln(4)", distances: Any = LINE, **roles: Any) -> MetricSwap:
    return MetricSwap(**(ROLES | roles), epsilon=epsilon, distances=distances)


# ---- R6, metric version -------------------------------------------------------------------------------


def earth_mover(x: Any, y: Any) -> int:
    """On the line x, y, z: the sum over hold values of the differences of cumulated counts."""
    total = 0
    for hold in {h for h, _ in x}:
        ahead = 0
        for value in "xyz":
            ahead += sum(row == (hold, value) for row in x) - sum(row == (hold, value) for row in y)
            total += abs(ahead)
    return total


UNIVERSES = [("ab", "xy"), ("aab", "xyz"), ("aabb", "xxyz"), ("abc", "xyz"), ("aabb", "xxyy")]


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
def test_the_line_metric_loses_ln_2_per_unit_of_earth_mover_distance(hold: str, swap: str) -> None:
    """R6: five universes, theta = 1/2 for each unit; per record at most twice that, as the ends are two apart."""
    mechanism = metric("2*ln(2)")
    assert mechanism.weight == Fraction(1, 2)
    assert mechanism.per_unit == ln(2)
    tables = tables_with_margins(hold, swap)
    laws = {table: mechanism.law(table) for table in tables}
    assert loss_of_laws(laws, distance=earth_mover) == ln(2)
    apart = "z" in swap
    assert loss_of_laws(laws) <= (2 if apart else 1) * ln(2) == mechanism.audit_specification(tables).budget.realised


def test_the_budget_per_record_is_that_of_the_farthest_values_in_one_live_stratum() -> None:
    """Stratum 1 has x and z, two apart; without it no live stratum has values farther apart than one."""
    assert metric().plan(HOMES).epsilon == 2 * ln(2)
    assert metric().plan(HOMES.filter(pl.col("size") > 1)).epsilon == ln(2)
    assert metric().plan(HOMES.filter(pl.col("size") > 2)).epsilon == 0


def test_the_budget_agrees_with_the_formula_of_the_theory() -> None:
    """The loss per unit, and for a record that times the largest distance, which is 2."""
    plan = metric().plan(HOMES)
    assert isinstance(plan, MetricPlan)
    assert (plan.per_unit, plan.epsilon) == (ln(2), 2 * ln(2))


@pytest.mark.parametrize("epsilon", [1, "3", "0.7"])
def test_a_loss_without_a_rational_root_is_never_exceeded(epsilon: Any) -> None:
    found = metric(epsilon).plan(HOMES).epsilon
    assert exact(epsilon) - exact("1e-25") <= found <= exact(epsilon)


def test_only_ratios_of_distances_count_for_the_loss_of_a_record() -> None:
    """Kilometres or metres: the same weights, another loss for each unit."""
    metres = {"x": {"y": "1/2", "z": 1}, "y": {"z": "1/2"}}
    one, other = metric(), metric(distances=metres)
    assert one.weight == other.weight
    assert other.per_unit == 2 * one.per_unit
    records = list(zip("aabb", "xyyz", strict=True))
    assert one.law(records) == other.law(records)


def test_the_specification_says_both_promises_and_that_distances_were_fixed_beforehand() -> None:
    plan = metric().plan(HOMES)
    assert "For each unit of earth-mover distance it is ln(2)" in str(plan.specification.budget.policy)
    assert "the distances between swap values were fixed beforehand" in plan.specification.assumptions
    assert "earth-mover distance" in plan.also_promised
    assert "x-y: 1, x-z: 2, y-z: 1" in str(plan.specification.budget.policy)


def test_an_infinite_loss_leaves_everything_and_promises_nothing_and_zero_shuffles() -> None:
    plan = metric("inf").plan(HOMES)
    assert plan.epsilon.is_infinite
    assert plan.strata.moved == 0
    released = swapped(metric("inf"), HOMES, Entropy.from_seed("x")).public["data"]
    assert released.sort(HOMES.columns).equals(HOMES.sort(HOMES.columns))
    assert metric(0).plan(HOMES).epsilon == 0
    shuffled, moved = metric(0).plan(HOMES).strata.moved, metric().plan(HOMES).strata.moved
    assert shuffled is not None
    assert moved is not None
    assert shuffled > moved > 0


# ---- levels -------------------------------------------------------------------------------------------

PLACES = pl.DataFrame(
    {
        "size": [1] * 12,
        "state": [1] * 8 + [2] * 4,
        "county": list("AAAABBBBAAAA"),
        "block": [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
        "tenure": list("or") * 6,
    }
)
LEVELS: dict[str, Any] = {"match": ["size"], "swap": ["state", "county", "block"]}


def test_levels_of_a_hierarchy_are_distances() -> None:
    """County A of state 1 and county A of state 2 are different counties: the coarsest level that differs decides."""
    swap = MetricSwap(**LEVELS, epsilon=3, distances=["county", "state"])
    plan = swap.plan(PLACES)
    assert plan.epsilon <= 3
    between = swap.distances.among(plan.swap)  # type: ignore[union-attr]
    import numpy as np

    steps = between(np.arange(6))
    assert steps[0].tolist() == [0, 1, 2, 2, 3, 3]
    assert steps[4].tolist() == [3, 3, 3, 3, 0, 1]
    released = swapped(swap, PLACES, Entropy.from_seed("levels")).public["data"]
    held = ["state", "county", "block"]
    assert released.select(held).sort(held).equals(PLACES.select(held).sort(held))


def test_nearby_areas_exchange_more() -> None:
    """A stratum of 2,000 records on three levels: far more go to the same county than to the other state."""
    homes = pl.concat([PLACES.with_columns(copy=pl.lit(number)) for number in range(170)])
    swap = MetricSwap(**LEVELS, epsilon=6, distances=["county", "state"])
    plan = swap.plan(homes)
    assert plan.strata.largest_live is not None
    assert plan.strata.largest_live.records == 2_040
    homes = homes.with_row_index("row")
    released = swapped(swap, homes, Entropy.from_seed("near")).public["data"]
    both = homes.join(released, on="row", suffix="_new")
    near = both.filter(
        (pl.col("block") != pl.col("block_new"))
        & (pl.col("county") == pl.col("county_new"))
        & (pl.col("state") == pl.col("state_new"))
    )
    far = both.filter(pl.col("state") != pl.col("state_new"))
    moved = both.filter(pl.col("block") != pl.col("block_new"))
    assert near.height > 3 * far.height > 0
    assert moved.height / homes.height == pytest.approx(plan.strata.moved, rel=0.2)


def test_the_share_changed_by_area_is_what_releases_show() -> None:
    mechanism = metric(3)
    homes = pl.concat([HOMES.with_columns(size=pl.col("size") + 10 * n) for n in range(800)])
    plan = mechanism.plan(homes)
    released = swapped(mechanism, homes.with_row_index("row"), Entropy.from_seed("shares")).public["data"]
    both = homes.with_row_index("row").join(released, on="row", suffix="_new")
    seen = both.group_by("county").agg((pl.col("county") != pl.col("county_new")).mean().alias("seen"))
    for _, records, share, found in mechanism.areas_changed(plan).join(seen, on="county").iter_rows():
        assert abs(found - share) < 5 * (share * (1 - share) / records) ** 0.5


# ---- R11 ----------------------------------------------------------------------------------------------


def test_the_gibbs_budget_is_that_of_the_weights_in_live_strata() -> None:
    weights: dict[str, dict[str, Any]] = {"x": {"y": "1/2", "z": 2}, "y": {"z": "1/4"}}
    swap = GibbsSwap(**ROLES, weights=weights)
    assert swap.plan(HOMES).epsilon == gibbs_epsilon("1/4", 2) == ln(8)
    assert swap.plan(HOMES.filter(pl.col("size") > 1)).epsilon == gibbs_epsilon("1/2", 1) == ln(2)
    assert swap.plan(HOMES.filter(pl.col("size") > 2)).epsilon == 0


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
def test_a_weight_on_vacuous_moves_keeps_the_gibbs_budget(hold: str, swap: str) -> None:
    weights: dict[str, dict[str, Any]] = {"x": {"x": "1/3", "y": "1/2", "z": 2}, "y": {"z": "1/4", "y": 3}}
    mechanism = GibbsSwap(**ROLES, weights=weights)
    tables = tables_with_margins(hold, swap)
    laws = {table: mechanism.law(table) for table in tables}
    assert loss_of_laws(laws) <= mechanism.audit_specification(tables).budget.realised


def test_the_metric_swap_is_the_gibbs_swap_whose_vacuous_moves_are_free() -> None:
    records = list(zip("aabb", "xxyz", strict=True))
    weights = {"x": {"y": "1/2", "z": "1/4"}, "y": {"z": "1/2"}}
    assert GibbsSwap(**ROLES, weights=weights).law(records) == metric().law(records)


# ---- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distances", "messages"),
    [
        ({"x": {"y": 1, "z": 5}, "y": {"z": 1}}, ["x to z: 5, by way of y 2"]),
        ({"x": {"y": 1, "z": 2}, "y": {"x": 3, "z": 1}}, ["x to y: 1, back 3"]),
        (
            {"x": {"y": 0, "z": -1}, "y": {"y": 2, "z": 1}},
            ["3 distances are wrong", "x to y: 0", "z: -1", "y to y: 2"],
        ),
        ({"x": {"y": 1}, "z": {"y": 1}}, ['no number for 1 pair: "z and x"']),
        ({"1": {"2": 1}, "01": {"2": 1}}, ['"1", "01" differ in leading zeros only']),
        ({"v": dict.fromkeys("abcd", 1)}, ["no number for 6 pairs: ", " and 1 more"]),
        ({"x": {"y": "far", "z": "1/0"}}, ["x to y", "x to z"]),
        ({"x": {"y": "0.0001", "z": 1}, "y": {"z": 1}}, ["10000 times"]),
        ({"x": 3}, ["instead of a number for each other value"]),
        ({}, ["no pair of values"]),
        (["region"], ['"region" is no swap variable']),
        (["county", "county"], ["named twice"]),
    ],
)
def test_what_is_no_distance_is_refused_with_all_that_is_wrong(distances: Any, messages: list[str]) -> None:
    with pytest.raises(StirredError) as refused:
        metric(distances=distances)
    for message in messages:
        assert message in str(refused.value)


def test_rounding_distances_up_keeps_them_a_metric() -> None:
    line = {"x": {"y": "1.4", "z": "2.8"}, "y": {"z": "1.4"}}
    assert isinstance(metric(distances=line).distances, TableDistances)
    assert metric(distances={"x": {"y": 2, "z": 3}, "y": {"z": 2}}).weight > 0


def test_swap_values_without_distances_are_refused_in_the_plan() -> None:
    with pytest.raises(StirredError, match='1 value that occurs: "z"'):
        metric(distances={"x": {"y": 1}}).plan(HOMES)
    with pytest.raises(StirredError, match='1 value that occurs: "z"'):
        GibbsSwap(**ROLES, weights={"x": {"y": 1}}).plan(HOMES)
    codes = HOMES.with_columns(pl.col("county").replace_strict({"x": "01", "y": "02", "z": "10"}))
    with pytest.raises(StirredError, match=r"leading zeros are different codes \(01 is declared as 1\)"):
        metric(distances={"1": {"2": 1, "10": 1}, "2": {"10": 1}}).plan(codes)


@pytest.mark.parametrize("kind", [MetricSwap, GibbsSwap])
def test_pairs_are_declared_for_one_swap_variable(kind: Any) -> None:
    given = {"epsilon": 1, "distances": LINE} if kind is MetricSwap else {"weights": LINE}
    with pytest.raises(StirredError, match="one swap variable only"):
        kind(match=["size"], swap=["county", "block"], **given)


def test_a_weight_of_zero_is_refused() -> None:
    with pytest.raises(StirredError, match='not above 0: "x to y: 0"'):
        GibbsSwap(**ROLES, weights={"x": {"y": 0}})


def test_the_specification_says_that_weights_were_fixed_beforehand() -> None:
    homes = pl.DataFrame({"size": [1] * 4, "county": list("xyxy"), "tenure": list("oorr")})
    specification = GibbsSwap(match=["size"], swap=["county"], weights={"x": {"y": 2}}).plan(homes).specification
    assert any("weights" in each for each in specification.assumptions)


@pytest.mark.parametrize("far", ["1e-76", "1e76", "1e250"])
def test_weights_that_doubles_cannot_tell_are_refused(far: str) -> None:
    """Of weights 1e250 and 1e-250 that make up for each other the sampler would lose most tables without a word."""
    with pytest.raises(StirredError, match='too far from 1 to be drawn exactly: "x to y"'):
        GibbsSwap(**ROLES, weights={"x": {"y": far, "x": "1/2"}, "y": {"x": 1}})


def test_a_stratum_too_large_to_be_drawn_exactly_is_refused_with_its_size_and_a_way_out() -> None:
    homes = pl.DataFrame({"size": [1] * 200 + [2] * 240, "county": list("xyzw") * 110, "tenure": list("oooorrrr") * 55})
    line = {"x": {"y": 1, "z": 2, "w": 3}, "y": {"z": 1, "w": 2}, "z": {"w": 1}}
    with pytest.raises(
        StirredError, match=r"2 strata are too large .*size = 2\) has 240 records of 4 swap values"
    ) as no:
        metric(distances=line).plan(homes)
    assert "conditioned-swap" in str(no.value)
    with pytest.raises(StirredError, match="2 strata are too large"):
        GibbsSwap(**ROLES, weights=line).plan(homes)
    assert metric(distances=["county"]).plan(homes).epsilon <= ln(4), "distances by levels reach farther"
    two = homes.filter(pl.col("county").is_in(["x", "w"]))
    assert metric(distances=line).plan(two).epsilon <= ln(4)


def test_two_values_are_drawn_at_any_size() -> None:
    homes = pl.DataFrame({"size": [1] * 100_000, "county": ["x", "z"] * 50_000, "tenure": list("oorr") * 25_000})
    plan = metric().plan(homes)
    assert plan.strata.moved == pytest.approx(1 / 5, abs=1e-4), "theta^2 = 1/16: d/(c-d) = 1/4"
    released = swapped(metric(), homes.with_row_index("row"), Entropy.from_seed("two")).public["data"]
    both = homes.with_row_index("row").join(released, on="row", suffix="_new")
    assert (both["county"] != both["county_new"]).mean() == pytest.approx(1 / 5, abs=0.01)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"from": ["x"], "to": ["y"], "km": ["1"]}, 'no column "distance"'),
        ({"from": ["x", "x"], "to": ["y", "y"], "distance": ["1", "2"]}, "x to y stands 2 times"),
        ({"from": ["x"], "to": [None], "distance": ["1"]}, "a field is empty"),
    ],
)
def test_files_of_pairs_that_cannot_be_read_are_refused(columns: dict[str, list[str]], message: str) -> None:
    with pytest.raises(StirredError, match=message):
        nested_pairs(pl.DataFrame(columns, schema_overrides={"to": pl.String}), number="distance", where="d.csv")
