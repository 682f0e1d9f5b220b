"""Intervals cover as often as they say; the normal sum does not, nor does an interval without one of the errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stirred.survey.estimates.error_law import Noise, beyond, half_width
from stirred.survey.estimates.published import flag

DRAWS = 40_000
CASES = [(1.0, [Noise(0.01, 0.01)]), (0.2, [Noise(0.5, 0.5)]), (3.0, [Noise(0.001, 0.001)]), (0.05, [Noise(2.0, 1.0)]),
         (0.5, [Noise(0.01, 0.01), Noise(0.01, 0.02)]), (0.5, [Noise(0.01, 0.01)] * 2)]  # fmt: skip


def drawn(sd: float, noises: list[Noise], seed: int, count: int = DRAWS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.normal(0, sd, count)
    for noise in noises:
        p = 1 - math.exp(-noise.loss)
        found += noise.step * (rng.geometric(p, count) - rng.geometric(p, count))
    return found


@pytest.mark.parametrize(("sd", "noises"), CASES)
@pytest.mark.parametrize(("level", "within"), [(0.9, 0.01), (0.95, 0.01), (0.99, 0.005)])
def test_intervals_cover_as_stated(sd: float, noises: list[Noise], level: float, within: float) -> None:
    """More than six standard errors of a coverage over 40,000 draws: a false alarm below 1e-8 in each test."""
    width = half_width(level, sd, noises)
    covered = float((np.abs(drawn(sd, noises, seed=7)) <= width).mean())
    # On a coarse grid an interval that covers enough covers a little more: at most the mass of one step more.
    more = beyond(width - noises[0].step, sd, noises) - beyond(width, sd, noises) if noises[0].loss > 0.1 else 0.0
    assert -within <= covered - level <= within + more


@pytest.mark.parametrize(("sd", "noises"), CASES)
def test_probabilities_are_those_of_numerical_integration(sd: float, noises: list[Noise]) -> None:
    t = 1.3 * (sd + noises[0].scale)
    z = drawn(sd, noises, seed=3, count=400_000)
    p = beyond(t, sd, noises)
    assert abs(float((np.abs(z) > t).mean()) - p) < 5.5 * math.sqrt(p * (1 - p) / 400_000)


def test_the_normal_sum_covers_too_little_where_noise_dominates() -> None:
    sd, noises = 0.1, [Noise(0.001, 0.001)]
    normal = 2.575829 * math.sqrt(sd**2 + noises[0].variance)
    error = np.abs(drawn(sd, noises, seed=5))
    assert (error <= normal).mean() < 0.985 <= (error <= half_width(0.99, sd, noises)).mean()


@pytest.mark.parametrize("kept", ["sampling", "privacy"])
def test_an_interval_without_one_of_the_errors_covers_too_little(kept: str) -> None:
    sd, noises = 1.0, [Noise(0.01, 0.01)]
    width = half_width(0.95, sd, []) if kept == "sampling" else half_width(0.95, 0.0, noises)
    assert float((np.abs(drawn(sd, noises, seed=6)) <= width).mean()) < 0.93


def test_flags() -> None:
    told = [flag("statcan", estimate=1, cv=cv, moe90=1) for cv in (0.165, 0.17, 0.333, 0.334, None)]
    assert told == ["", "E", "E", "F", "F"]
    assert [flag("abs", estimate=1, cv=cv, moe90=1) for cv in (0.25, 0.3, 0.6)] == ["", "*", "**"]
    assert [flag("acs", estimate=e, cv=0.1, moe90=2) for e in (1, 3)] == ["n", ""]
