"""The law of a cell's noise, against sums that are added up one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.randomness import cell_law as module
from stirred.randomness.cell_law import CellLaw, normal_bias
from stirred.randomness.lattice_law import cell_variance
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise
from tests.depth import examples

NOISES: list[Noise] = [
    DiscreteGaussian("1/4"),
    DiscreteGaussian("7/3"),
    DiscreteGaussian(90),
    DiscreteLaplace(2),
    DiscreteLaplace("1/7"),
]
CONFIDENCES = [Fraction(1, 2), Fraction(9, 10), Fraction(95, 100), Fraction(999, 1000)]


def weights(noise: Noise, reach: int = 400) -> dict[int, float]:
    """The probabilities, by floating point."""
    size = (
        (lambda z: z * z / (2 * float(noise.variance)))
        if isinstance(noise, DiscreteGaussian)
        else (lambda z: float(noise.loss) * abs(z))
    )
    found = {z: math.exp(-size(z)) for z in range(-reach, reach + 1)}
    total = sum(found.values())
    return {z: each / total for z, each in found.items()}


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_probabilities_variance_and_bias_are_those_of_the_sums(noise: Noise) -> None:
    law, chances = CellLaw(noise), weights(noise)
    for most in (0, 1, 3, 10, 60):
        assert float(law.within(most)) == pytest.approx(sum(p for z, p in chances.items() if abs(z) <= most), abs=1e-12)
    assert float(law.variance) == pytest.approx(sum(z * z * p for z, p in chances.items()), rel=1e-12)
    for true in (0, 1, 5):
        cut = sum((max(0, true + z) - true) * p for z, p in chances.items())
        assert law.bias_of_cutting(true) == pytest.approx(cut, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_half_width_is_the_smallest_that_has_the_confidence(noise: Noise, confidence: Fraction) -> None:
    width, chances = CellLaw(noise).half_width(confidence), weights(noise)
    assert sum(p for z, p in chances.items() if abs(z) <= width) >= float(confidence) - 1e-12
    assert sum(p for z, p in chances.items() if abs(z) < width) < float(confidence)


@settings(max_examples=examples(60), deadline=None)
@given(st.fractions(Fraction(1, 20), 400), st.integers(0, 100))
def test_the_stated_probability_is_never_above_the_true_one(variance: Fraction, most: int) -> None:
    """Of ``spec.shift_law``, in code of its own and in decimals."""
    noise = DiscreteGaussian(variance)
    low, high = noise.at_most(-most - 1)
    assert 1 - 2 * high - Fraction(1, 10**20) <= CellLaw(noise).within(most) <= 1 - 2 * low


def test_wide_noise_gives_away_one_unit_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    law = CellLaw(DiscreteGaussian(250_000))
    listed = [law.half_width(confidence) for confidence in CONFIDENCES]
    monkeypatch.setattr(module, "_WIDE", 1)
    bounded = [law.half_width(confidence) for confidence in CONFIDENCES]
    assert all(0 <= wide - narrow <= 1 for wide, narrow in zip(bounded, listed, strict=True))
    assert float(law.variance) == 250_000
    assert law.bias_of_cutting(100) == pytest.approx(normal_bias(100, 500))


@pytest.mark.parametrize(("noise", "cells"), [(DiscreteGaussian(2), 3), (DiscreteLaplace("1/2"), 3)])
def test_noise_that_sums_to_zero_has_the_law_of_all_such_tables(noise: Noise, cells: int) -> None:
    law, chances = CellLaw(noise, (cells,)), weights(noise, 25)
    tables = {free: math.prod(chances[z] for z in (*free, -sum(free))) for free in product(range(-12, 13), repeat=2)}
    total = sum(tables.values())
    for most in (0, 1, 2, 5):
        inside = sum(p for free, p in tables.items() if abs(free[0]) <= most) / total
        assert float(law.within(most)) == pytest.approx(inside, abs=1e-4)
    assert float(law.variance) == pytest.approx(sum(f[0] ** 2 * p for f, p in tables.items()) / total, rel=1e-2)
    assert law.variance < CellLaw(noise).variance
    assert law.half_width(Fraction(95, 100)) <= CellLaw(noise).half_width(Fraction(95, 100))


@pytest.mark.parametrize(("variance", "shape"), [(3, (4, 5)), (40, (4, 5)), ("1/4", (3, 3)), (9, (4,)), (7, (2, 6))])
def test_the_variance_inside_margins_never_exceeds_its_proven_bound(variance: Any, shape: tuple[int, ...]) -> None:
    """Claim 4 of docs/theory/noise-inside.md: that of normal noise; and never below what the enclosure says."""
    noise = DiscreteGaussian(variance)
    bound = noise.variance * math.prod(1 - Fraction(1, n) for n in shape)
    assert cell_variance(noise, shape=shape)[0] <= CellLaw(noise, shape).variance <= bound


def test_a_certain_estimate_is_not_biased_by_cutting() -> None:
    assert normal_bias(3, 0) == 0
    assert normal_bias(-3, 0) == 3
