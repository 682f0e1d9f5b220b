"""What secrecy of the rate adds, by numbers from two routes (T14 of traditional methods)."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest

from stirred.mechanisms.records.laws.counting import psa_weights
from stirred.mechanisms.records.pairs.engine import Prior, mixture_loss_of_pairs, obscurity_facts
from stirred.spec import ln
from stirred.spec.exact import Exact, largest

F = Fraction
PRIOR = {F(1, 10): F(1, 2), F(1, 2): F(1, 2)}


def mixture_loss(prior: Prior, *, records: int) -> Exact:
    """Return the loss of the mixture on one stratum of so many records, all different: exact.

    Outputs that move k and j records differ in at least max(2, abs(k - j)) records.
    """
    weights = [F(0)] * (records + 1)
    for rate, chance in prior.items():
        weights = [w + chance * u for w, u in zip(weights, psa_weights(records, rate), strict=True)]
    kinds = [k for k in range(records + 1) if k != 1]
    return largest([ln(weights[k] / weights[j]) / max(2, abs(k - j)) for k in kinds for j in kinds if k != j])


def test_a_stratum_of_two_records_loses_what_the_mixture_says() -> None:
    for prior in (PRIOR, {F(1, 10): F(1)}, {F(1, 3): F(1, 4), F(2, 3): F(3, 4)}):
        assert mixture_loss_of_pairs(prior, strata=1) == mixture_loss(prior, records=2)
    assert mixture_loss_of_pairs({F(0): F(1)}, strata=1).is_infinite


def test_the_mixture_of_two_rates_on_singletons() -> None:
    assert mixture_loss(PRIOR, records=2) == ln(F(61, 21)) / 2
    assert mixture_loss(PRIOR, records=4) == ln(F(10727, 1007)) / 2
    transparent = [float(mixture_loss({rate: F(1)}, records=4).enclose().low) for rate in PRIOR]
    assert transparent == pytest.approx([3.295837, 1.098612], abs=1e-6)
    # Above the loss of the better rate, never above that of the worse.
    assert mixture_loss({F(1, 2): F(1)}, records=4) < mixture_loss(PRIOR, records=4)
    assert mixture_loss(PRIOR, records=4) < mixture_loss({F(1, 10): F(1)}, records=4)


def test_a_uniform_prior() -> None:
    middles = [F(1, 50) + F(1, 50) * F(2 * n + 1, 256) for n in range(128)]
    found = mixture_loss(dict.fromkeys(middles, F(1, 128)), records=4)
    assert float(found.enclose().low) == pytest.approx(4.486062, abs=2e-5)


def test_many_strata_reveal_the_rate() -> None:
    losses = [float(mixture_loss_of_pairs(PRIOR, strata=m).enclose().low) for m in (1, 2, 3, 10, 60)]
    assert losses == pytest.approx([0.533176, 0.771397, 1.036819, 2.154950, 2.197225], abs=1e-6)


@pytest.mark.parametrize("records", [2, 3, 4])
def test_the_loss_is_that_of_all_pairs_of_permutations(records: int) -> None:
    weights = [sum((c * psa_weights(records, r)[k] for r, c in PRIOR.items()), F(0)) for k in range(records + 1)]
    every = [*permutations(range(records))]
    moved = {g: sum(i != j for i, j in enumerate(g)) for g in every}
    ratios = [
        ln(weights[moved[g]] / weights[moved[h]]) / sum(i != j for i, j in zip(g, h, strict=True))
        for g in every
        for h in every
        if g != h and weights[moved[g]] > weights[moved[h]] > 0
    ]
    assert largest(ratios) == mixture_loss(PRIOR, records=records)


def test_without_a_prior_the_plan_says_that_nothing_is_gained() -> None:
    (fact,) = obscurity_facts(None)
    assert "gains nothing" in fact.sentence
    (told,) = obscurity_facts(PRIOR)
    assert "which holds if the rate leaks" in told.sentence
