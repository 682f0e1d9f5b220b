"""Noisy counts in stages: the enclosed distance beside sums over all outputs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from stirred.spec import ZCDP, DiscreteGaussian, DiscreteLaplace, ShiftLaw, SpecificationError
from stirred.spec.exact import INFINITE, ZERO, exact
from stirred.spec.output_premetric import PURE
from stirred.spec.shift_law import Staged, StagedLaw

RHO, SHARE = Fraction(1), Fraction(1, 10)
FIRST, TABLE = 1 / (2 * SHARE * RHO), 1 / (2 * (1 - SHARE) * RHO)
THRESHOLDS = (2,)


def group(*cells: int) -> Staged:
    """One group whose table has two cells where the noisy total reaches 2, and is a total otherwise."""
    total = sum(cells)
    return Staged(
        total=ShiftLaw(total, DiscreteGaussian(FIRST)),
        tables=(ShiftLaw(total, DiscreteGaussian(TABLE)), ShiftLaw(cells, DiscreteGaussian(TABLE))),
        thresholds=THRESHOLDS,
    )


def renyi(p: Staged, q: Staged, order: float) -> float:
    """D_a/a by adding up over all noisy totals; the tables' part is in closed form for whole orders."""
    assert p.total is not None
    assert q.total is not None
    a, b = p.total.centre[0], q.total.centre[0]
    logs = []
    # The tilted law is centred at a + (order - 1)(a - b); far from it nothing matters.
    middle = round(a + (order - 1) * (a - b))
    width = round(40 * math.sqrt(float(FIRST)) + 2 * abs(middle)) + 40
    norm = math.log(sum(math.exp(-(z**2) / (2 * float(FIRST))) for z in range(-60, 61)))
    for y in range(middle - width, middle + width):
        level = sum(y >= threshold for threshold in THRESHOLDS)
        moved = sum((c - d) ** 2 for c, d in zip(p.tables[level].centre, q.tables[level].centre, strict=True))
        inside = order * (order - 1) * moved / (2 * float(TABLE))
        logs.append(-(order * (y - a) ** 2 - (order - 1) * (y - b) ** 2) / (2 * float(FIRST)) + inside - norm)
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(each - top) for each in logs))) / (order - 1) / order


PAIRS = [
    (one, other) for one, other in product(product(range(3), repeat=2), repeat=2) if one < other
]  # all tables with up to two records in a cell


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_every_whole_order_lies_below_and_large_orders_reach_the_enclosure(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    p, q = group(*one), group(*other)
    around = StagedLaw({"g": p}).squared_distance(StagedLaw({"g": q}))
    assert around is not None
    low, high = map(float, around)
    found = {order: max(renyi(p, q, order), renyi(q, p, order)) for order in (2, 3, 5, 20, 400)}
    assert max(found.values()) <= high + 1e-9
    assert found[400] >= low - 0.01


def test_removing_replacing_and_removing_two_alike_cost_one_two_and_four() -> None:
    """Docs, Lemma 2: the factor of replacing one record is 2; 4 is reached by removing two like records alone."""
    empty = StagedLaw({})
    one, like = StagedLaw({"a": group(1, 0)}), StagedLaw({"a": group(2, 0)})
    other = StagedLaw({"b": group(1, 0)})
    assert one.squared_distance(empty) == (RHO, RHO)
    assert one.squared_distance(other) == (2 * RHO, 2 * RHO)
    assert like.squared_distance(empty) == (4 * RHO, 4 * RHO)


def test_the_same_group_and_another_cell_costs_at_most_what_the_tables_have() -> None:
    """The limit 1.8 rho, which no order reaches: 1.799996 at order 400."""
    one, other = group(3, 0), group(2, 1)
    assert StagedLaw({"a": one}).squared_distance(StagedLaw({"a": other})) == (Fraction(9, 5), Fraction(9, 5))
    assert 1.79999 < renyi(one, other, 400) < 1.8


def test_laws_are_equal_whatever_empty_parts_they_name() -> None:
    one = StagedLaw({"a": group(1, 0), "b": group(0, 0)})
    assert one == StagedLaw({"a": group(1, 0)})
    assert hash(one) == hash(StagedLaw({"a": group(1, 0)}))
    assert one != StagedLaw({})
    assert ZCDP.distance(one, StagedLaw({"a": group(1, 0)})).high == ZERO


def test_other_premetrics_are_not_guessed_and_other_noise_has_no_bound() -> None:
    one, other = StagedLaw({"a": group(1, 0)}), StagedLaw({"a": group(0, 1)})
    assert (PURE.distance(one, other).low, PURE.distance(one, other).high) == (ZERO, INFINITE)
    wider = Staged(tables=(ShiftLaw((1,), DiscreteGaussian(9)),))
    narrow = Staged(tables=(ShiftLaw((1,), DiscreteGaussian(4)),))
    assert ZCDP.distance(StagedLaw({"a": wider}), StagedLaw({"a": narrow})).low == INFINITE


def test_a_witness_is_likelier_by_more_than_was_asked_for() -> None:
    one, other = StagedLaw({"a": group(3, 0)}), StagedLaw({"a": group(2, 1)})
    for p, q in ((one, other), (other, one), (one, StagedLaw({}))):
        output, ratio = p.away_from(q, beyond=exact(7))
        assert ratio > exact(7)
        assert output


@pytest.mark.parametrize(
    "stages",
    [
        {"tables": (ShiftLaw(1, DiscreteGaussian(1)),) * 2},
        {"tables": (ShiftLaw(1, DiscreteGaussian(1)),) * 2, "total": ShiftLaw(1, DiscreteGaussian(1))},
        {"tables": (ShiftLaw(1, DiscreteLaplace(1)),)},
    ],
)
def test_stages_that_do_not_fit_are_refused(stages: dict[str, object]) -> None:
    with pytest.raises(SpecificationError, match="do not fit together"):
        Staged(**stages)  # type: ignore[arg-type]
