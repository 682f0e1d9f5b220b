"""Releases about different columns of one file: what one says of the nearest files is not true for the other."""

from __future__ import annotations

from dataclasses import replace

from stirred.spec import PURE, ZCDP, Budget, Margin, Multiverse, compose, exact
from stirred.spec.convert_output import pure_to_rho2
from tests.spec.strategies import specification

SWAPPED = Multiverse(invariants=(Margin(of="record", variables=("size", "county")),), nearest=2, nearest_because="swap")


def about(spec, *columns: str):  # type: ignore[no-untyped-def]
    return spec.with_flavor(domain=replace(spec.domain, columns=tuple(columns)))


def test_a_swap_does_not_halve_the_loss_of_a_release_about_another_column() -> None:
    """Two files that differ in one income are one apart and in one universe of the swap, which drops incomes.

    Randomised response with epsilon 1 alone has rho squared tanh(1/2) = 0.462 at distance 1.
    """
    swap = about(specification(PURE, Budget.constant("1/100"), multiverse=SWAPPED), "county", "size")
    response = specification(PURE, Budget.constant("1"))
    together = compose([swap, response], output=ZCDP).specification
    assert together.budget.realised >= pure_to_rho2(exact(1), nearest=1)
    assert together.multiverse.nearest == 1
    assert together.domain.columns == ()


def test_each_release_is_converted_with_the_nearest_distance_of_its_own_universes() -> None:
    swap = specification(PURE, Budget.constant("1"), multiverse=SWAPPED)
    response = specification(PURE, Budget.constant("1"))
    together = compose([swap, response], output=ZCDP).specification
    assert together.budget.realised == pure_to_rho2(exact(1), nearest=2) + pure_to_rho2(exact(1), nearest=1)
    assert together.multiverse.nearest == 2, "both are about the whole file"
