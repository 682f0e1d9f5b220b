"""Conversions of the output premetric hold at every distance there is: below 1, above 1, and one way only."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stirred.spec import change_output
from stirred.spec.budget import Budget
from stirred.spec.composition import compose
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact, exact
from stirred.spec.input_premetric import InputPremetric, allowance
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import OutputPremetric, approximate, trade_off
from stirred.spec.problems import ConversionRefusedError
from stirred.spec.specification import Flavor, Specification
from stirred.spec.tradeoff import TradeOff

PURE, ONE_WAY = OutputPremetric(name="D_Mult"), OutputPremetric(name="D_Max")
MEASURES = [
    PURE,
    approximate("1/4"),
    *(OutputPremetric(name=name) for name in ("D_NoR", "D_GDP", "D_TV", "D_KL", "D_H", "D_chi2")),
    OutputPremetric(name="D_Renyi", order=Fraction(2)),
    trade_off(TradeOff.bounded([(3, 0)])),
    trade_off(TradeOff.bounded([(1, Fraction(1, 5))])),
]
PLACES = InputPremetric(name="d_Euclid", unit="place")
THREE_APART = InputPremetric(
    name="d_Given", unit="file", relation="own", table=(("a", "b", exact(3)), ("b", "c", exact(3)))
)


def specified(premetric: InputPremetric, output: OutputPremetric, budget: Exact | int | str) -> Specification:
    flavor = Flavor(
        domain=Domain(name="f", dataset="a file"),
        multiverse=Multiverse(),
        input_premetric=premetric,
        output_premetric=output,
    )
    return Specification(flavor=flavor, budget=Budget.constant(budget))


def bit(odds: Fraction | int) -> tuple[Law, Law]:
    truth, lie = Fraction(odds) / (Fraction(odds) + 1), 1 / (Fraction(odds) + 1)
    return Law({0: truth, 1: lie}), Law({0: lie, 1: truth})


@pytest.mark.parametrize(
    ("premetric", "apart", "pair"),
    [(PLACES, Fraction(1, 10), ([(0, 0)], [("1/10", 0)])), (THREE_APART, Fraction(3), ("a", "b"))],
    ids=["places a tenth apart", "files three apart"],
)
@pytest.mark.parametrize("old", MEASURES, ids=str)
def test_what_is_granted_holds_at_distances_other_than_one(
    premetric: InputPremetric, apart: Fraction, pair: tuple[object, object], old: OutputPremetric
) -> None:
    assert premetric.distance(*pair) == apart
    for laws in (bit(Fraction(4, 3)), bit(55)):
        far = old.distance(*laws).high / apart
        given = specified(premetric, old, far * far if old.name == "D_NoR" else far)
        for to in MEASURES:
            try:
                after = change_output(given, to=to).specification
            except ConversionRefusedError:
                continue
            most = allowance(to.to_distance(after.budget.realised), after.input_premetric.distance(*pair))
            assert to.distance(*laws).low <= most, (old.symbol, to.symbol)


def test_below_distance_one_the_bounds_that_would_fail_are_for_neighbours() -> None:
    near = change_output(specified(PLACES, PURE, 3), to=OutputPremetric(name="D_TV")).specification
    assert near.input_premetric == PLACES.neighbours(1)
    assert "above 0 and at most 1" in near.input_premetric.words
    linear = change_output(specified(PLACES, PURE, 3), to=OutputPremetric(name="D_NoR")).specification
    assert linear.input_premetric == PLACES
    assert linear.budget.realised == Fraction(9, 2)
    with pytest.raises(ConversionRefusedError, match="as near as one likes"):
        change_output(specified(PLACES, PURE, 3), to=OutputPremetric(name="D_NoR"), method="sharp")


def test_a_table_of_other_distances_than_one_is_no_neighbour_relation() -> None:
    with pytest.raises(ConversionRefusedError, match="not all datasets compared are 1 apart"):
        change_output(specified(THREE_APART, OutputPremetric(name="D_NoR"), 1), to=approximate("1/20"))
    one_apart = InputPremetric(
        name="d_Given", unit="file", relation="own", table=(("a", "b", exact(1)), ("b", "c", exact(1)))
    )
    assert change_output(specified(one_apart, PURE, "ln(3)"), to=approximate("1/8")).specification.budget.realised == (
        exact("ln(5/2)")
    )
    chi = specified(THREE_APART, OutputPremetric(name="D_chi2"), "4/3")
    with pytest.raises(ConversionRefusedError, match="does not add up"):
        compose([chi, chi])


def test_equal_laws_stay_equal_by_every_measure() -> None:
    people = InputPremetric(name="d_Ham", unit="person")
    for old in MEASURES:
        for to in MEASURES:
            if not old.delta:
                assert change_output(specified(people, old, 0), to=to).specification.budget.realised == 0


def test_absurd_budgets_are_answered_at_once() -> None:
    people, gaussian = InputPremetric(name="d_Ham", unit="person", within=1), OutputPremetric(name="D_GDP")
    loss = change_output(specified(people, gaussian, 10**6), to=approximate("1/100000")).specification.budget.realised
    assert exact(10**12) / 2 < loss < exact(10**12) / 2 + 5 * 10**6
    # Where both ways of computing it are possible, the quick one is the larger by a little.
    slow, quick = (
        change_output(specified(people, gaussian, mu), to=approximate("1/100000")).specification.budget.realised
        for mu in (600, 601)
    )
    assert slow < quick < slow * exact("1.01")
    fifth = trade_off(TradeOff.bounded([(1, Fraction(1, 5))]))
    assert change_output(specified(people, PURE, 10**6), to=fifth).specification.budget.realised == 5
    with pytest.raises(ConversionRefusedError, match="no 32 applications"):
        change_output(specified(people, PURE, 10**6), to=trade_off(TradeOff.bounded([(3, 0)])))


def test_one_way_is_both_ways_where_the_distance_is() -> None:
    people = InputPremetric(name="d_Ham", unit="person", within=1)
    assert change_output(specified(people, ONE_WAY, "ln(3)"), to=PURE).specification.budget.realised == exact("ln(3)")
    sensitive = InputPremetric(name="d_r", unit="record", relation="s to n", directed=True)
    # s always gives 0, n gives 1 with probability 2/3: one way ln 3, back infinite, total variation 2/3.
    s, n = Law({0: Fraction(1)}), Law({0: Fraction(1, 3), 1: Fraction(2, 3)})
    given = specified(sensitive, ONE_WAY, ONE_WAY.distance(s, n).high)
    changed = change_output(given, to=OutputPremetric(name="D_TV")).specification
    assert changed.budget.realised == OutputPremetric(name="D_TV").distance(s, n).high == Fraction(2, 3)
    for measure in ("D_Mult", "D_KL", "D_GDP"):
        with pytest.raises(ConversionRefusedError, match="one direction"):
            change_output(given, to=OutputPremetric(name=measure))


def test_a_small_delta_takes_all_of_a_tiny_epsilon() -> None:
    people = InputPremetric(name="d_Ham", unit="person", within=1)
    tiny = change_output(specified(people, PURE, "1e-7"), to=approximate("5e-7")).specification
    assert tiny.budget.realised == 0
    usual = change_output(specified(people, PURE, 1), to=approximate("1e-10")).specification
    assert usual.budget.realised == 1
