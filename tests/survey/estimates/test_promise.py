"""The promise of survey estimates holds by enumeration: all samples and all frames of small universes, draw included.

Each claim has its power beside it: noise for a sensitivity 10% too small would break it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from stirred.data.problems import PlanError
from stirred.spec.problems import StirredError
from stirred.survey.amplify import amplify
from stirred.survey.designs import SRSWOR, Cluster, Design, Stratified, TwoStage
from stirred.survey.estimates.measure import nearest
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.programme import programme_loss
from tests.survey.estimates.enumerated import (
    BY,
    MEAN,
    MEAN_BY,
    MEAN_WHERE,
    RATIO,
    SECRET,
    TABLE,
    TOTAL,
    WHERE,
    Record,
    answers,
    changed,
    frame_loss,
    largest,
    numbers,
    survey,
)

LINEAR, DIVIDED = [TOTAL, BY, WHERE, TABLE], [MEAN, MEAN_BY, MEAN_WHERE, RATIO]
SMALL = 0.9  # of the right sensitivity: must fail
ROUNDED = 1 + 1e-9
ABOVE_ALL = {**TOTAL, "bounds": [0, 3]}
ABOVE = {**ABOVE_ALL, "by": ["a"]}


def name_of(value: Any) -> str:
    return " ".join(map(str, value.values()))[:40] if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("estimate", [*LINEAR, *DIVIDED], ids=name_of)
@pytest.mark.parametrize("setting", [6, 9, 10])
def test_fixed_weights_lose_what_is_promised_over_all_samples(setting: int, estimate: dict[str, Any]) -> None:
    """All samples of two and three records of any frame: a record brings its weight along."""
    mechanism = survey(estimate, setting=setting)
    for n in (2, 3):
        kinds = [*product((1, 3), answers(mechanism))]
        if len(kinds) > 8 and n == 3:
            continue
        samples = [*combinations_with_replacement(kinds, n)]
        found = [
            numbers(mechanism, [Record(w, k, own) for k, (w, own) in enumerate(sample)], stratum=[0] * n)
            for sample in samples
        ]
        apart = changed(samples)
        apart[apart == 0] = np.inf
        worst, _ = largest(found, apart)
        assert SMALL < worst <= ROUNDED


@pytest.mark.parametrize("estimate", LINEAR, ids=name_of)
@pytest.mark.parametrize("setting", [4, 5, 7, 8])
def test_weights_that_vary_may_all_change_with_one_record(setting: int, estimate: dict[str, Any]) -> None:
    """A dataset is a sample with its frame: weights follow the frame, and only what differs besides them counts."""
    mechanism = survey(estimate, setting=setting)
    for n in (2, 3):
        files = [*product(product((1, 3), repeat=n), combinations_with_replacement(answers(mechanism), n))]
        found = [
            numbers(mechanism, [Record(w, k, own) for k, (w, own) in enumerate(zip(*f, strict=True))], stratum=[0] * n)
            for f in files
        ]
        worst, _ = largest(found, np.maximum(changed([file[1] for file in files]), 1))
        assert SMALL < worst <= ROUNDED


@pytest.mark.parametrize("estimate", [MEAN, MEAN_BY, RATIO], ids=name_of)
@pytest.mark.parametrize("setting", [4, 5, 7, 8])
def test_means_and_ratios_are_refused_where_weights_vary(setting: int, estimate: dict[str, Any]) -> None:
    with pytest.raises(StirredError, match="weights that are fixed"):
        numbers(survey(estimate, setting=setting), [Record(1, 0, answers(survey(estimate))[0])] * 2, stratum=[0])


@pytest.mark.parametrize(
    ("setting", "estimate"),
    [*product((6, 9, 10), (TOTAL, ABOVE, WHERE, TABLE, MEAN, MEAN_BY, RATIO))],
    ids=name_of,
)
def test_paid_variances_over_strata_lose_what_is_promised(setting: int, estimate: dict[str, Any]) -> None:
    """Two records in each of two strata of different weights; scores around each end of the published ratio."""
    mechanism = survey(estimate, setting=setting, variance="paid")
    each = [*combinations_with_replacement(answers(mechanism), 2)]
    samples = [*product(each, each)]
    kinds = [[(h, own) for h in (0, 1) for own in sample[h]] for sample in samples]
    apart = changed(kinds)
    apart[apart == 0] = np.inf
    tight = 0.0
    for weights in ((1, 3), (3, 3)):
        for around in (0, 2) if estimate["kind"] in ("mean", "ratio") else (0,):
            found = [
                numbers(mechanism, [Record(weights[h], k, own) for k, (h, own) in enumerate(kind)],
                        stratum=[0, 0, 1, 1], around=around) for kind in kinds
            ]  # fmt: skip
            worst, of = largest(found, apart)
            assert worst <= ROUNDED
            tight = max(tight, of["variance"])
    assert SMALL < tight <= ROUNDED


@pytest.mark.parametrize(
    "estimate",
    [TOTAL, ABOVE_ALL, MEAN, *(pytest.param(each, marks=pytest.mark.slow) for each in (BY, RATIO))],  # 3,000 samples
    ids=name_of,
)
def test_paid_variances_over_clusters_lose_what_is_promised(estimate: dict[str, Any]) -> None:
    """Five records in four clusters of two strata: a replaced record may stand in another cluster, and stratum."""
    mechanism = survey(estimate, variance="paid")
    kinds = answers(mechanism)
    samples = [
        [*enumerate(own[:4]), (extra, own[4])] for extra in range(4) for own in product(kinds, repeat=5)
    ][:: 1 if len(kinds) < 4 else 3]  # fmt: skip
    apart = changed(samples)
    apart[apart == 0] = np.inf
    weights, tight = (3, 3, 1, 1), 0.0
    for around in (0, 2) if estimate["kind"] in ("mean", "ratio") else (0,):
        found = [
            numbers(mechanism, [Record(weights[c], c, own) for c, own in sample], stratum=[0, 0, 1, 1], most=2,
                    around=around) for sample in samples
        ]  # fmt: skip
        worst, of = largest(found, apart)
        assert worst <= ROUNDED
        tight = max(tight, of["variance"])
    # Two clusters at their ends move together where a record leaves one for the other: half of that is always seen.
    assert SMALL / 2 < tight <= ROUNDED


def stated(design: Design, *estimates: dict[str, Any], setting: int = 11, **more: Any) -> SurveyEstimates:
    document = {key: ",".join(v) if isinstance(v, list) else v for key, v in design.document().items()}
    return survey(*estimates, setting=setting, sampling=document, sample="s", attest=SECRET, **more)


STRATA = Stratified((1, 1), (3, 1))  # one stratum is taken whole
DRAWS: list[tuple[Design, dict[str, Any]]] = [
    (SRSWOR(2, 4), {"cluster": (0, 1, 2, 3), "stratum": (0,) * 4, "weight": (2,) * 4}),
    (STRATA, {"cluster": (0, 1, 2, 3), "stratum": (0, 0, 0, 1), "weight": (3, 3, 3, 1)}),
    (Stratified((2, 1), (3, 2)), {"cluster": (0, 1, 2, 3, 4), "stratum": (0, 0, 0, 1, 1), "weight": (2, 2, 2, 2, 2)}),
    (Cluster(m=1, M=2, K=2, equal=True), {"cluster": (0, 0, 1, 1), "stratum": (0, 0), "weight": (2,) * 4, "most": 2}),
    (TwoStage(1, 2, 1, 2), {"cluster": (0, 0, 1, 1), "stratum": (0, 0), "weight": (3,) * 4}),
]


@pytest.mark.parametrize(
    ("design", "units", "estimate"),
    [
        # Five units and a domain are a thousand frames.
        pytest.param(*draw, each, marks=[pytest.mark.slow] if draw == DRAWS[2] and each not in (TOTAL, MEAN) else [])
        for draw in DRAWS for each in (TOTAL, BY, WHERE, TABLE, MEAN, MEAN_BY, RATIO)
    ],
    ids=name_of,
)  # fmt: skip
def test_every_frame_keeps_the_amplified_loss(design: Design, units: dict[str, Any], estimate: dict[str, Any]) -> None:
    """All frames of four or five units, all samples, and the exact law of the noisy numbers."""
    mechanism = stated(design, estimate)
    assert frame_loss(mechanism, design, **units) <= ROUNDED
    if design in (SRSWOR(2, 4), STRATA) and estimate in (TOTAL, BY, TABLE):
        assert frame_loss(mechanism, design, **units, faster=1 / SMALL) > 1  # nothing to spare


@pytest.mark.parametrize("estimate", [TOTAL, BY, MEAN, RATIO], ids=name_of)
@pytest.mark.parametrize("around", [0, 2])
def test_every_frame_keeps_the_amplified_loss_with_a_paid_variance(estimate: dict[str, Any], around: int) -> None:
    """Two of three in one stratum, and another of two taken whole: weights 2 and 1 in steps, and both rules."""
    for design, units in (
        (SRSWOR(2, 3), {"cluster": (0, 1, 2), "stratum": (0,) * 3, "weight": (2,) * 3}),
        (Stratified((2, 2), (4, 2)),
         {"cluster": range(6), "stratum": (0, 0, 0, 0, 1, 1), "weight": (2, 2, 2, 2, 1, 1)}),
    ):  # fmt: skip
        if len(units["cluster"]) > 4 and estimate not in (TOTAL, MEAN):
            continue  # 4,096 frames with 24 samples each
        mechanism = stated(design, estimate, variance="paid", weight_bounds=[1, 2])
        assert frame_loss(mechanism, design, **units, around=around) <= ROUNDED


def test_units_of_a_light_stratum_have_no_more_than_their_part_rounding_included() -> None:
    """A record that changes its domain moves two variances by less than a step each, and both may be rounded up."""
    design = Stratified((4, 2), (4, 70))
    mechanism = stated(design, TABLE, variance="paid", weight_bounds=[1, 35])
    parts = mechanism.shares(design)
    assert parts is not None
    allowed = [mechanism.sample_loss * part for part in parts]
    samples = [*product((0, 1), repeat=6)]
    found = [
        numbers(mechanism, [Record(1 if k < 4 else 35, k, (a,)) for k, a in enumerate(own)], stratum=[0] * 4 + [1] * 2)
        for own in samples
    ]
    for (left, one), (right, other) in product(zip(samples, found, strict=True), repeat=2):
        differ = [k for k in range(6) if left[k] != right[k]]
        if len(differ) == 1:
            lost = sum((abs(x - y) * rate for x, y, rate in zip(one.centre, other.centre, one.rates, strict=True)),
                       Fraction(0))  # fmt: skip
            assert lost <= allowed[differ[0] > 3]


@pytest.mark.parametrize("estimate", [TOTAL, BY, TABLE, MEAN, MEAN_BY, RATIO], ids=name_of)
@pytest.mark.parametrize("setting", [2, 3])
def test_a_simple_sample_of_a_frame_that_varies_keeps_the_loss(setting: int, estimate: dict[str, Any]) -> None:
    design, units = DRAWS[0]
    mechanism = stated(design, estimate, setting=setting)
    assert mechanism.sample_loss == stated(design, estimate).sample_loss
    assert frame_loss(mechanism, design, **units) <= ROUNDED
    if estimate in (TOTAL, BY, TABLE):
        assert frame_loss(mechanism, design, **units, faster=1 / SMALL) > 1


@pytest.mark.parametrize(
    ("setting", "design", "told"),
    [(1, SRSWOR(2, 4), "changed population"), (1, STRATA, "changed population"), (2, STRATA, "change its stratum"),
     (3, STRATA, "change its stratum"), (3, TwoStage(1, 2, 1, 2), "change its stratum")],
)  # fmt: skip
def test_frames_whose_weights_vary_are_refused(setting: int, design: Design, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        stated(design, TOTAL, setting=setting)


@pytest.mark.parametrize("estimate", [TOTAL, TABLE, MEAN, RATIO], ids=name_of)
def test_a_stratum_taken_whole_no_longer_destroys_amplification(estimate: dict[str, Any]) -> None:
    """The sharper rule holds for these estimates, and not for any mechanism: the programme over all of them says so."""
    mechanism = stated(STRATA, estimate)
    assert float(amplify(1, STRATA).epsilon) == 1
    assert float(mechanism.sample_loss) > 1.5
    assert programme_loss(STRATA, float(mechanism.sample_loss)) > 1.5


@pytest.mark.parametrize("design", [design for design, _ in DRAWS[3:]], ids=str)
def test_clusters_follow_the_rule_for_any_mechanism(design: Design) -> None:
    mechanism = stated(design, TOTAL)
    assert mechanism.shares(design) is None
    assert programme_loss(design, float(mechanism.sample_loss)) == pytest.approx(1, abs=1e-8)


def test_rounding_keeps_numbers_as_far_apart_as_the_next_whole_number() -> None:
    ends = [Fraction(k, 4) for k in range(-9, 10)]
    assert all(abs(nearest(a) - nearest(b)) <= math.ceil(abs(a - b)) for a in ends for b in ends)
    assert any(abs(round(a) - round(b)) > math.ceil(abs(a - b)) for a in ends for b in ends)  # to even would not do


def test_estimates_together_lose_what_was_split() -> None:
    mechanism = survey(TOTAL, {**TABLE, "share": 3}, variance="paid")
    found = [numbers(mechanism, [Record(w, 0, own), Record(1, 1, own)], stratum=[0, 0])
             for w in (1, 3) for own in answers(mechanism)]  # fmt: skip
    assert sum(loss for _, loss in dict.fromkeys(found[0].roles)) <= 1
    worst, _ = largest(found, np.where(np.eye(len(found)) > 0, np.inf, 2.0))
    assert 0 < worst <= 1
