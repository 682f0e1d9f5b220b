"""Measures of the literature: cases with known answers, each by a second route."""

import math
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import polars as pl
import pytest

from stirred.data.uniqueness import class_diversity, unique_match
from stirred.risk.combinations import dis_suda
from stirred.risk.posterior import (
    belief_after_noisy_count,
    belief_in_released,
    effective_privacy,
    released_is_true,
    share_that_moves,
)
from stirred.spec.problems import StirredError


def swapped_law(n: int, p: Fraction) -> dict[tuple[int, ...], Fraction]:
    """Return the law of the permutation: each is selected with p, never one alone, and all selected move."""
    law: dict[tuple[int, ...], Fraction] = {}
    for chosen in product((0, 1), repeat=n):
        k = sum(chosen)
        if k == 1:
            continue
        fit = [s for s in permutations(range(n)) if all((s[i] != i) == bool(chosen[i]) for i in range(n))]
        for s in fit:
            law[s] = law.get(s, Fraction(0)) + p**k * (1 - p) ** (n - k) / len(fit)
    whole = sum(law.values())
    return {s: weight / whole for s, weight in law.items()}


@pytest.mark.parametrize(
    ("counts", "rate", "answer"),
    [([2, 2], "1/2", Fraction(11, 18)), ([3, 2, 1], "1/4", Fraction(30979, 39570)), ([1], "1/2", Fraction(1))],
)
def test_the_released_value_is_true_as_often_as_over_all_permutations(
    counts: list[int], rate: str, answer: Fraction
) -> None:
    values = [value for value, many in enumerate(counts) for _ in range(many)]
    law = swapped_law(len(values), Fraction(rate)) if len(values) > 1 else {(0,): Fraction(1)}
    moves = share_that_moves(rate, len(values))
    assert moves == sum(w * sum(i != j for i, j in enumerate(s)) for s, w in law.items()) / len(values)
    true = sum(w * sum(values[i] == values[j] for i, j in enumerate(s)) for s, w in law.items()) / len(values)
    assert released_is_true(counts, moves) == true == answer


def test_the_belief_in_a_released_value_is_the_posterior_over_all_files_with_the_margins() -> None:
    """All orders of the values are equally likely before; after, those count that the law sends to the release."""
    released, rate = (0, 0, 0, 1, 1), "1/3"
    law = swapped_law(5, Fraction(rate))
    weight = {"true": Fraction(0), "all": Fraction(0)}
    for truth in {*permutations(released)}:
        for s, w in law.items():
            if all(truth[s[i]] == released[i] for i in range(5)):
                weight["all"] += w
                weight["true"] += w * (truth[0] == released[0])
    found = belief_in_released(3, 5, share_that_moves(rate, 5))
    assert found.posterior == pytest.approx(float(weight["true"] / weight["all"]))
    assert found.prior == 0.6
    assert found.ratio == pytest.approx(found.posterior / 0.6)
    with pytest.raises(StirredError, match="is no count"):
        belief_in_released(6, 5, Fraction(0))


@pytest.mark.parametrize("prior", [0.01, 0.1, 0.5])
def test_the_belief_after_a_noisy_count_is_that_of_two_discrete_gaussians(prior: float) -> None:
    variance, others, observed = 0.7, 12, 14

    def likelihood(center: int) -> float:
        whole = sum(math.exp(-((y - center) ** 2) / (2 * variance)) for y in range(center - 60, center + 61))
        return math.exp(-((observed - center) ** 2) / (2 * variance)) / whole

    inside, outside = prior * likelihood(others + 1), (1 - prior) * likelihood(others)
    found = belief_after_noisy_count(prior, observed=observed, others=others, variance=variance)
    assert found.posterior == pytest.approx(inside / (inside + outside))
    assert found.difference == pytest.approx(found.posterior - prior)


def test_a_noisy_count_at_the_printed_setting_and_in_the_extreme() -> None:
    found = belief_after_noisy_count(0.01, observed=1, others=0, variance=0.25)
    assert round(found.posterior, 6) == 0.069453
    assert found.posterior / (1 - found.posterior) * 99 == pytest.approx(math.exp(2))
    assert belief_after_noisy_count(0.5, observed=10**9, others=0, variance=1e-3).posterior == 1
    for wrong in ({"prior": 0.0, "variance": 1.0}, {"prior": 0.5, "variance": 0.0}):
        with pytest.raises(StirredError, match="take 0 < prior < 1"):
            belief_after_noisy_count(observed=1, others=0, **wrong)


@pytest.mark.parametrize("epsilon", ["1/2", "2"])
def test_the_effective_loss_is_attained_by_two_records_whose_sum_is_known(epsilon: str) -> None:
    """Two bits, their sum 1 published, each answered by randomised response: one cannot change alone."""
    truth = math.exp(float(Fraction(epsilon))) / (1 + math.exp(float(Fraction(epsilon))))

    def likelihood(file: str, answer: str) -> float:
        return math.prod(truth if a == b else 1 - truth for a, b in zip(file, answer, strict=True))

    most = 0.0
    for answer in ("00", "01", "10", "11"):
        own, other = likelihood("01", answer), likelihood("10", answer)
        most = max(most, (own / other) / (other / own))  # odds with the records as they are, and replaced
    assert math.log(most) == pytest.approx(float(effective_privacy(epsilon, 2)))
    with pytest.raises(StirredError, match="at least one record"):
        effective_privacy(epsilon, 0)


def test_classes_leave_open_what_the_case_says() -> None:
    rows = pl.DataFrame({"key": list("AAABBBCC"), "value": [1, 1, 2, 1, 1, 1, 2, 3]})
    found = class_diversity(rows, ["key"], "value").sort("key")
    assert found["__entropy"].round(4).to_list() == [1.8899, 1, 2]
    assert found["__closeness"].to_list() == [0.125, 0.375, 0.625]
    assert (found["__distinct"].min(), found["__n"].min()) == (1, 2)


def test_the_disclosure_score_has_the_files_probability_as_its_mean() -> None:
    draw = np.random.default_rng(4)
    rows = pl.DataFrame({name: draw.integers(0, 6, 60) for name in "abc"})
    alone = rows.is_unique().to_numpy()
    found = dis_suda(rows, ["a", "b", "c"], fraction=0.05)
    right = unique_match(rows.group_by("a", "b", "c").len()["len"].to_numpy(), fraction=0.05)
    assert alone.sum() > 10
    assert (found[~alone] == 0).all()
    assert found[alone].mean() == pytest.approx(right)
    assert (dis_suda(pl.concat([rows, rows]), ["a", "b", "c"], fraction=0.05) == 0).all()
