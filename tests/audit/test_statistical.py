"""The statistical audit bounds a loss from below, and is honest about its power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from stirred.audit.statistical import at_least, clopper_pearson, statistical_audit
from stirred.spec.exact import ln
from stirred.spec.problems import StirredError


@pytest.mark.parametrize("runs", [1, 7, 100, 5000])
def test_tails_and_bounds_agree_with_an_independent_oracle(runs: int) -> None:
    for hits in sorted({0, 1, runs // 7, runs // 2, runs - 1, runs}):
        for p in (1e-6, 0.01, 0.3, 0.5, 0.97):
            assert at_least(hits, runs, p) == pytest.approx(binom.sf(hits - 1, runs, p), rel=1e-7, abs=1e-13)
        low, high = clopper_pearson(hits, runs, miss=0.005)
        if hits:
            assert low == pytest.approx(beta.ppf(0.005, hits, runs - hits + 1), rel=1e-7)
        if hits < runs:
            assert high == pytest.approx(beta.ppf(0.995, hits + 1, runs - hits), rel=1e-7)


@pytest.mark.parametrize(
    ("budget", "q", "distance", "runs"), [(1.0, 0.05, 1, 3000), (0.5, 0.2, 2, 2000), (3.0, 0.001, 1, 20_000)]
)
def test_at_the_stated_detectable_loss_nearly_all_simulated_audits_alarm(
    budget: float, q: float, distance: int, runs: int
) -> None:
    """Power: at least 98% of 500 audits; the statement says 99%. At the budget itself at most 1% alarm falsely."""
    rng = np.random.default_rng(5)
    stated = statistical_audit(hits=(0, round(q * runs)), runs=runs, distance=distance, budget=budget)
    assert math.isfinite(stated.detectable)

    def alarms(loss: float) -> int:
        first = rng.binomial(runs, min(1.0, q * math.exp(loss * distance)), 500).tolist()
        pairs = zip(first, rng.binomial(runs, q, 500).tolist(), strict=True)
        return sum(statistical_audit(hits=h, runs=runs, distance=distance, budget=budget).alarm for h in pairs)

    assert alarms(stated.detectable) >= 490
    assert alarms(budget) <= 10
    assert alarms((budget + stated.detectable) / 2) < 490, (
        "a smaller loss is seen as surely: the statement is too modest"
    )


@pytest.mark.parametrize("power", [0.99, 0.8])
@pytest.mark.parametrize(
    ("budget", "q", "runs", "delta"),
    [(1.0, 0.001, 1000, 0.0), (1.0, 0.01, 1000, 0.0), (2.0, 0.003, 1000, 0.01), (0.5, 0.2, 400, 0.0)],
)
def test_the_statement_holds_when_the_likelihood_is_known_from_the_runs_only(
    budget: float, q: float, runs: int, delta: float, power: float
) -> None:
    """Exactly, over all counts of a true q: a loss above the stated one goes unseen with at most the spare probability.

    The statement is drawn from the same runs, as a user sees it; q is never told to the audit.
    """
    others = [b for b in range(runs + 1) if binom.pmf(b, runs, q) > 1e-9]
    results = [
        statistical_audit(hits=(0, b), runs=runs, distance=1, budget=budget, delta=delta, power=power) for b in others
    ]
    stated = {b: result.detectable for b, result in zip(others, results, strict=True)}
    first_alarm = {b: least_alarm(b, runs, budget, delta) for b in others}
    finite = sorted({loss for loss in stated.values() if math.isfinite(loss)})
    assert finite
    for loss in finite:
        p = delta + q * math.exp(loss)
        if p <= 1:
            unseen = sum(
                binom.pmf(b, runs, q) * binom.cdf(first_alarm[b] - 1, runs, p) for b in others if stated[b] <= loss
            )
            assert unseen <= 1 - power


def least_alarm(other: int, runs: int, budget: float, delta: float) -> int:
    """The smallest first count that raises an alarm, or more than there can be."""
    low, high = 0, runs + 1
    while low < high:
        middle = (low + high) // 2
        found = statistical_audit(hits=(middle, other), runs=runs, distance=1, budget=budget, delta=delta)
        low, high = (low, middle) if found.alarm else (middle + 1, high)
    return low


def test_the_words_say_what_would_have_been_seen() -> None:
    quiet = statistical_audit(hits=(200, 100), runs=1000, distance=1, budget=1.5)
    assert quiet.in_words.startswith("No violation found")
    assert "would have been seen with 99% probability" in quiet.in_words
    loud = statistical_audit(hits=(900, 10), runs=1000, distance=1, budget=1.5)
    assert loud.alarm
    assert loud.in_words.startswith("The promise is broken")
    blind = statistical_audit(hits=(5, 5), runs=10, distance=1, budget=1.5)
    assert "No loss whatever" in blind.in_words
    never = statistical_audit(hits=(1, 0), runs=1000, distance=1, budget=1.5)
    assert math.isinf(never.detectable)
    assert "never happened from the other dataset" in never.in_words


def test_losses_are_never_shown_smaller_than_they_are() -> None:
    quiet = statistical_audit(hits=(200, 100), runs=1000, distance=1, budget=1.204)
    assert "the promise is 1.204" in quiet.in_words
    irrational = statistical_audit(hits=(200, 100), runs=1000, distance=1, budget=float(ln(3)))
    assert "the promise is 1.10" in irrational.in_words
    just = statistical_audit(hits=(900, 100), runs=1000, distance=1, budget=1.9235)
    assert just.alarm
    assert "at least 1.928 with 99% confidence, and the promise is 1.924." in just.in_words
    assert just.lower_bound > 1.928


def test_with_a_delta_only_what_exceeds_it_counts() -> None:
    plain = statistical_audit(hits=(300, 0), runs=1000, distance=1, budget=3.0)
    assert plain.alarm
    assert not statistical_audit(hits=(300, 0), runs=1000, distance=1, budget=3.0, delta=0.3).alarm
    assert (
        0
        < statistical_audit(hits=(300, 0), runs=1000, distance=1, budget=3.0, delta=0.1).lower_bound
        < (plain.lower_bound)
    )


@pytest.mark.parametrize(("hits", "runs"), [((1, 2), 0), ((5, 1), 4), ((-1, 0), 4)])
def test_impossible_counts_are_refused(hits: tuple[int, int], runs: int) -> None:
    with pytest.raises(StirredError, match="hits in"):
        statistical_audit(hits=hits, runs=runs, distance=1, budget=1.0)
