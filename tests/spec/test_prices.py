"""The price of an invariant: noise that almost surely leaves its counts alone (atlas, section 9)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from stirred.spec import (
    PURE,
    ZCDP,
    Budget,
    DiscreteGaussian,
    Domain,
    Flavor,
    Hierarchy,
    Inequality,
    InputPremetric,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    SpecificationError,
    UnitFactor,
    catalogue,
    price,
)
from stirred.spec.invariant import Invariant
from stirred.spec.prices import noise_price

GEOGRAPHY = Hierarchy(name="geography", levels=("block", "state"))
STATES = Margin(of="person", level="state")


def specification(
    *invariants: Invariant,
    name: str = "d_HamS",
    unit: str = "person",
    output: OutputPremetric = ZCDP,
    budget: str = "1",
) -> Specification:
    return Specification(
        flavor=Flavor(
            domain=Domain(name="X", dataset="a file"),
            multiverse=Multiverse(invariants=invariants, hierarchies=(GEOGRAPHY,)),
            input_premetric=InputPremetric(name=name, unit=unit),
            output_premetric=output,
        ),
        budget=Budget.constant(budget),
    )


@pytest.mark.parametrize(
    ("counts", "beta", "rho2"),
    [(1, "0.05", 3.6376043828), (51, "0.05", 7.5946651449), (51, "0.01", 9.2250235057),
     (8_000_000, "0.05", 19.558294526)],
)  # fmt: skip
def test_prices_are_those_of_the_table_and_leave_the_stated_probability(counts: int, beta: str, rho2: float) -> None:
    """T71 to T74; by a second route the probability that noise of that scale is zero, summed over its law."""
    found = noise_price(counts, beta=beta)
    assert float(found) == pytest.approx(rho2, abs=1e-9)
    zero = [Fraction(1) / end for end in DiscreteGaussian(1 / (2 * found.rational)).theta()]
    kept = [counts * math.log1p(float(z - 1)) for z in zero]
    assert kept == pytest.approx([math.log1p(-float(beta))] * 2, rel=1e-9)


@pytest.mark.parametrize(("counts", "union"), [(51, 15.2394484278), (8_000_000, 39.167663095)])
def test_a_changed_record_costs_twice_and_less_than_by_adding_up_chances(counts: int, union: float) -> None:
    (found,) = price(specification(STATES), counts={"state": counts})
    assert found.rho2 is not None
    assert float(found.rho2) == pytest.approx(2 * float(noise_price(counts)), abs=1e-11)
    apart = 2 * float(noise_price(1, beta=Fraction(1, 20 * counts)))
    assert apart == pytest.approx(union, abs=1e-8)
    assert float(found.rho2) < apart


def test_adding_or_removing_costs_half_and_six_persons_36_times_as_much() -> None:
    (changed,) = price(specification(STATES), counts={"state": 51})
    (added,) = price(specification(STATES, name="d_SymDiff"), counts={"state": 51})
    (homes,) = price(
        specification(STATES, unit="household"),
        counts={"state": 51},
        units=[UnitFactor(old="person", new="household", factor=6, because="at most six")],
    )
    assert changed.rho2 is not None
    assert added.rho2 is not None
    assert homes.rho2 is not None
    assert changed.epsilon is not None
    assert homes.epsilon is not None
    assert 2 * added.rho2 == changed.rho2
    assert homes.rho2 == 36 * changed.rho2
    assert homes.epsilon == 6 * changed.epsilon
    assert float(changed.epsilon) == pytest.approx(15.1903362932, abs=1e-9)
    (unsaid,) = price(specification(STATES, unit="household"), counts={"state": 51})
    assert unsaid.moved is None
    assert "if one household moves one person" in str(unsaid)


@pytest.mark.parametrize(("rho2", "kept"), [("15.29", 0.9523939096), ("2.63", None)])
def test_the_budget_itself_leaves_the_states_unchanged_or_not(rho2: str, kept: float | None) -> None:
    (found,) = price(specification(STATES, budget=rho2), counts={"state": 51})
    assert found.unchanged is not None
    if kept is not None:
        assert found.unchanged == pytest.approx(kept, abs=1e-9)
    else:  # 2.63 changes 18.0405 of 51 on average
        assert 51 * (1 - found.unchanged ** (1 / 51)) == pytest.approx(18.0405, abs=5e-5)


def test_the_price_is_where_the_probability_is_met_in_both_currencies() -> None:
    for output, loss in ((ZCDP, "rho2"), (PURE, "epsilon")):
        (first,) = price(specification(STATES, output=output), counts={"state": 51})
        at = specification(STATES, output=output).with_budget(getattr(first, loss))
        (second,) = price(at, counts={"state": 51})
        assert second.unchanged == pytest.approx(0.95, abs=1e-10)


def test_only_the_finest_of_nested_invariants_has_a_price() -> None:
    blocks = Margin(of="person", variables=("sex",), level="block")
    states, finest = price(specification(STATES, blocks), counts={"state": 2, "block": 10, "sex": 2})
    assert states.rho2 is None
    assert "follows from the others" in states.missing
    assert finest.counts == 20


def test_what_is_no_count_or_not_counted_has_no_price_and_says_why() -> None:
    some = Inequality(name="some", condition="some housing", on=Margin(of="housing unit", level="block"))
    total, homes, named, unknown = price(
        specification(Margin(of="person"), some, Named(name="mean"), Margin(of="household", level="state"))
    )
    assert total.counts == 1
    assert [homes.missing, named.missing] == ["since it is no table of counts"] * 2
    assert "--count state=K" in unknown.missing


@pytest.mark.parametrize(
    ("more", "where"),
    [({"counts": {"sate": 51}}, "count"), ({"counts": {"state": 0}}, "count"), ({"beta": "0"}, "beta"),
     ({"beta": "2"}, "beta"), ({"beta": "1e-31"}, "beta"), ({"beta": "0.6"}, "beta"),
     ({"counts": {"state": 10**16}}, "count")],
)  # fmt: skip
def test_what_cannot_be_priced_is_refused(more: dict[str, object], where: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        price(specification(STATES), **more)  # type: ignore[arg-type]
    assert caught.value.problems[0].where == where
    assert caught.value.problems[0].remedy


@pytest.mark.parametrize(("counts", "beta"), [(10**15, "1e-30"), (1, "1/2"), (1, "1e-30")])
def test_the_ends_of_the_range_have_prices_that_hold(counts: int, beta: str) -> None:
    r = float(noise_price(counts, beta=beta))
    theta = sum(2 * math.exp(-r * z * z) for z in range(1, 60))
    assert counts * math.log1p(theta) == pytest.approx(-math.log1p(-float(Fraction(beta))), rel=1e-9)


def test_the_census_of_2020_is_priced_beside_its_budget() -> None:
    states = price(catalogue.load("das-2020").specification, counts={"state": 51})[0]
    assert states.unchanged is not None
    assert states.unchanged > 0.999999


def test_of_two_invariants_that_say_the_same_one_has_the_price() -> None:
    first, second = price(specification(STATES, Margin(of="person", variables=("state",))), counts={"state": 51})
    assert first.rho2 is not None
    assert "follows from the others" in second.missing


def test_neighbours_that_differ_in_two_persons_move_counts_by_two() -> None:
    """Both move from one state to another: two counts change by two, so a square of 8 and not of 2."""
    one = specification(STATES)
    two = one.with_flavor(input_premetric=replace(one.input_premetric, within=2))
    (near,), (far,) = (price(each, counts={"state": 51}) for each in (one, two))
    assert near.rho2 is not None
    assert near.epsilon is not None
    assert (far.rho2, far.epsilon) == (4 * near.rho2, 2 * near.epsilon)
    relation = InputPremetric(name="d_r", unit="person", relation="same street")
    (unknown,) = price(one.with_flavor(input_premetric=relation), counts={"state": 51})
    assert unknown.rho2 is None
    assert "not known" in str(unknown)


def test_less_than_certain_is_never_called_100_percent() -> None:
    (found,) = price(specification(STATES), counts={"state": 51}, beta="1e-30")
    assert "100%" not in str(found)
    assert "with probability above 99.9999999%" in str(found)
