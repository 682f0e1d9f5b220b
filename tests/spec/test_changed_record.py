"""One record changed is one removed and one added: epsilon with a delta, where the number of records is fixed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import pytest

from stirred.spec.budget import Budget
from stirred.spec.composition import compose
from stirred.spec.convert import change_distance
from stirred.spec.domain import Domain
from stirred.spec.exact import exact, ln
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, OutputPremetric, approximate
from stirred.spec.problems import ConversionRefusedError
from stirred.spec.specification import Flavor, Specification


def specified(name: str, within: int | None, output: OutputPremetric, budget: str) -> Specification:
    flavor = Flavor(
        domain=Domain(name="f", dataset="a file"),
        multiverse=Multiverse(),
        input_premetric=InputPremetric(name=name, unit="record", within=within),
        output_premetric=output,
    )
    return Specification(flavor=flavor, budget=Budget.constant(exact(budget)))


def near(output: OutputPremetric, budget: str) -> Specification:
    """As of cell keys: one record more or less."""
    return specified("d_SymDiff", 1, output, budget)


FILES = [tuple(sorted(rows)) for size in (1, 2, 3) for rows in combinations_with_replacement("ab", size)]
# A count of "a" is published with noise that has an end, as that of cell keys: outputs of one file may be impossible.
NOISE = {step: Fraction(5 - abs(step), 25) for step in range(-4, 5)}


def perturbed(rows: tuple[str, ...]) -> dict[int, Fraction]:
    return {rows.count("a") + step: chance for step, chance in NOISE.items()}


def swapped(rows: tuple[str, ...]) -> dict[int, Fraction]:
    """A second release with a loss of ln 2 for each changed record: one record of two values, turned at random."""
    share = Fraction(2, 3) if rows[0] == "a" else Fraction(1, 3)
    return {0: share, 1: 1 - share}


def delta_of(p: dict[Any, Fraction], q: dict[Any, Fraction], factor: Fraction) -> Fraction:
    return sum((max(chance - factor * q.get(out, Fraction(0)), Fraction(0)) for out, chance in p.items()), Fraction(0))


def pairs_at(distance: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    premetric = InputPremetric(name=distance, unit="record", within=1)
    return [(x, y) for x in FILES for y in FILES if x != y and not premetric.distance([*x], [*y]).is_infinite]


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(3, 2), Fraction(2)])
def test_one_changed_record_is_one_removed_and_one_added(factor: Fraction) -> None:
    """The converted (epsilon, delta) holds for every pair that differs in one record, enumerated."""
    delta = max(delta_of(perturbed(x), perturbed(y), factor) for x, y in pairs_at("d_SymDiff"))
    stated = near(approximate(delta), f"ln({factor})")
    found = change_distance(stated, to="d_HamS").specification
    assert found.input_premetric == InputPremetric(name="d_HamS", unit="record", within=1)
    assert found.budget.realised == 2 * stated.budget.realised
    assert found.output_premetric.delta == delta * (1 + factor)
    for x, y in pairs_at("d_HamS"):
        assert delta_of(perturbed(x), perturbed(y), factor**2) <= found.output_premetric.delta
    assert any("every file is eligible" in said for said in found.assumptions)


def test_a_release_with_a_delta_and_one_of_a_fixed_number_of_records_have_one_total() -> None:
    delta = max(delta_of(perturbed(x), perturbed(y), Fraction(2)) for x, y in pairs_at("d_SymDiff"))
    keys = near(approximate(delta), "ln(2)")
    swap = specified("d_HamS", None, PURE, "ln(2)")
    total = compose([keys, swap]).specification
    assert total.input_premetric == InputPremetric(name="d_HamS", unit="record", within=1)
    assert total.budget.realised == exact("ln(8)")
    assert total.output_premetric.delta == 3 * delta
    for x, y in pairs_at("d_HamS"):
        both = [{(k, s): p * q for k, p in perturbed(f).items() for s, q in swapped(f).items()} for f in (x, y)]
        assert delta_of(both[0], both[1], Fraction(8)) <= total.output_premetric.delta


def test_files_two_changes_apart_are_four_single_steps_apart() -> None:
    keys = near(approximate("1/1000"), "ln(2)")
    swap = specified("d_HamS", None, PURE, "1/4")
    swap = swap.with_flavor(
        multiverse=Multiverse(
            invariants=(Margin(of="record", variables=("a",)),), nearest=2, nearest_because="of the margin"
        )
    )
    total = compose([keys, swap]).specification
    assert total.input_premetric.within == 2
    assert float(total.budget.realised) == pytest.approx(float(4 * ln(2)) + 0.5)
    assert total.output_premetric.delta == Fraction(15, 1000)
    alone = compose([keys]).specification
    assert alone.input_premetric == keys.input_premetric


def test_a_delta_that_grows_to_one_is_refused_with_what_it_stands_for() -> None:
    keys = near(approximate("1/2"), "1")
    with pytest.raises(ConversionRefusedError, match="one record changed is one removed and one added"):
        change_distance(keys, to="d_HamS")


def test_without_the_files_in_between_nothing_follows() -> None:
    """Files of one size alone: no single change leads from one to another."""
    keys = near(approximate("1/1000"), "1")
    few = (("a", "a"), ("a", "b"), ("b", "b"))
    keys = keys.with_flavor(domain=replace(keys.domain, datasets=few))
    with pytest.raises(ConversionRefusedError, match="nothing follows for groups of 2"):
        change_distance(keys, to="d_HamS")
