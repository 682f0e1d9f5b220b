"""The promise of calibrated estimates holds by enumeration over all pairs of small samples."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from stirred.survey.estimates.mechanism import SurveyEstimates
from tests.survey.estimates.enumerated import MEAN, RATIO, TABLE, TOTAL, survey

HELD = {"poststrata": "c", "totals": "totals.csv", "when": "counts-invariant"}
AFTER = {"poststrata": "c", "totals": "totals.csv", "when": "after-noise"}


def distance(a: Any, b: Any) -> int:
    left = list(b)
    for record in a:
        if record in left:
            left.remove(record)
    return len(left)


def largest_loss(mechanism: SurveyEstimates) -> Fraction:
    """Return the largest loss for each changed record, over all pairs of all small universes."""
    found = Fraction(0)
    for universe in mechanism.audit_universes():
        laws = [mechanism.law(sample) for sample in universe]
        noise = [law.noise if isinstance(law.noise, tuple) else (law.noise,) * len(law.centre) for law in laws]
        rates = [[each.loss.rational for each in own] for own in noise]  # type: ignore[union-attr]
        for i, j in combinations(range(len(universe)), 2):
            moved = zip(laws[i].centre, laws[j].centre, rates[i], strict=True)
            lost = sum((abs(one - other) * rate for one, other, rate in moved), Fraction(0))
            found = max(found, lost / distance(universe[i], universe[j]))
    return found


@pytest.mark.parametrize("setting", ["sample/frame", "sample", "responding"])
@pytest.mark.parametrize(
    "estimate",
    [TOTAL, {**TOTAL, "by": ["a"]}, {**TOTAL, "by": ["c"]}, {**TOTAL, "where": {"a": ["1"]}}, TABLE, MEAN,
     {**MEAN, "by": ["c"]}],
)  # fmt: skip
def test_totals_with_counts_of_classes_held_fixed_lose_what_is_promised(estimate: dict[str, Any], setting: str) -> None:
    """All pairs of samples with the same counts: weights follow the counts, so that they are fixed in any setting."""
    held = survey(estimate, adjust=HELD, weight_bounds=None, attest=[], setting=setting)
    assert largest_loss(held) == 1


@pytest.mark.parametrize("estimate", [{**MEAN, "by": ["a"]}, RATIO, {**RATIO, "by": ["c"]}])
def test_ratios_with_counts_of_classes_held_fixed_lose_no_more(estimate: dict[str, Any]) -> None:
    assert Fraction(1, 2) < largest_loss(survey(estimate, adjust=HELD, weight_bounds=None, attest=[])) <= 1


@pytest.mark.parametrize("adjust", [HELD, AFTER])
@pytest.mark.parametrize("estimate", [TOTAL, {**TOTAL, "by": ["a"]}, {**TOTAL, "by": ["c"]}, TABLE, MEAN, RATIO])
def test_paid_variances_of_calibrated_estimates_lose_no_more(estimate: dict[str, Any], adjust: dict[str, Any]) -> None:
    bounds = {"weight_bounds": None} if adjust is HELD else {}
    assert largest_loss(survey(estimate, adjust=adjust, variance="paid", **bounds)) <= 1


@pytest.mark.parametrize("estimate", [TOTAL, {**TOTAL, "by": ["a"]}, TABLE, MEAN])
def test_totals_by_class_and_class_counts_lose_what_is_promised(estimate: dict[str, Any]) -> None:
    assert largest_loss(survey(estimate, adjust=AFTER)) == 1


def test_held_counts_are_needed_for_the_smaller_noise() -> None:
    """Power: between samples with other counts the same noise loses more than is promised."""
    held = survey(TOTAL, adjust=HELD, weight_bounds=None, attest=[])
    one, two = ((0, 3, 0), (0, -1, 0)), ((0, 3, 0), (0, 3, 1))
    a, b = held.law(one), held.law(two)
    rate = a.noise[0].loss.rational if isinstance(a.noise, tuple) else a.noise.loss.rational  # type: ignore[union-attr]
    assert abs(a.centre[0] - b.centre[0]) * rate > 1
