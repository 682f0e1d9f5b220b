from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stirred.randomness import Entropy, bernoulli, bernoulli_array
from stirred.randomness import bernoulli as bernoulli_function
from stirred.randomness.bernoulli import NO_TIE, Threshold
from stirred.randomness.entropy import BUFFER_WORDS

words = st.integers(0, 2**32 - 1)
rates = st.fractions(0, 1) | st.builds(
    lambda a, b: Fraction(min(a, b), max(a, b)), st.integers(1, 2**200), st.integers(1, 2**200)
)


@given(rate=rates, digits=st.lists(words, min_size=1, max_size=5))
@example(rate=Fraction(0), digits=[0])
@example(rate=Fraction(1), digits=[2**32 - 1])
@example(rate=Fraction(1, 2**33), digits=[0, 2**31])
@example(rate=Fraction(1, 2**33), digits=[0, 2**31 - 1])
@example(rate=1 - Fraction(1, 2**100), digits=[2**32 - 1] * 4)
def test_the_outcome_is_whether_the_uniform_number_lies_below_the_rate(rate: Fraction, digits: list[int]) -> None:
    """After some words U is known to lie in an interval: decided if and only if the rate is not inside.

    This is exactness itself: the outcome is the event U < rate for U uniform on [0, 1).
    """
    low = sum(Fraction(digit, 2 ** (32 * place)) for place, digit in enumerate(digits, start=1))
    high = low + Fraction(1, 2 ** (32 * len(digits)))
    if high <= rate:
        assert bernoulli(rate, digits) is True
    elif low >= rate:
        assert bernoulli(rate, digits) is False
    else:
        with pytest.raises(RuntimeError, match="ran out"):
            bernoulli(rate, digits)


@pytest.mark.parametrize("rate", [Fraction(a, b) for b in range(1, 10) for a in range(b + 1)])
def test_with_short_words_exactly_the_right_share_of_sequences_succeeds(
    rate: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bernoulli_function.__globals__, "WORD_BITS", 3)
    depth = 4
    outcomes = {True: 0, False: 0, None: 0}
    for sequence in product(range(8), repeat=depth):
        try:
            outcomes[bernoulli(rate, sequence)] += 1
        except RuntimeError:
            outcomes[None] += 1
    undecided = Fraction(outcomes[None], 8**depth)
    assert undecided <= Fraction(1, 8**depth)
    assert Fraction(outcomes[True], 8**depth) <= rate <= Fraction(outcomes[True], 8**depth) + undecided


@given(rate=rates, word=words)
def test_the_threshold_decides_as_the_twin_does(rate: Fraction, word: int) -> None:
    threshold = Threshold.of(rate)
    try:
        assert bernoulli(rate, [word]) == (word < threshold.digit)
        assert word != threshold.tie
    except RuntimeError:
        assert word == threshold.tie


def test_sure_and_impossible_rates_never_tie() -> None:
    assert Threshold.of(Fraction(0)) == Threshold(digit=0, tie=NO_TIE)
    assert Threshold.of(Fraction(1)) == Threshold(digit=2**32, tie=NO_TIE)


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 3), Fraction(1, 10**15)])
def test_bulk_events_equal_the_twin(rate: Fraction) -> None:
    entropy = Entropy.from_seed("bulk")
    count = BUFFER_WORDS + 100
    events = bernoulli_array(rate, count=count, entropy=entropy, purpose="x")
    expected: list[bool] = []
    for chunk, size in ((0, BUFFER_WORDS), (1, 100)):
        for word in entropy.words("x", chunk=chunk, count=size).tolist():
            expected.append(bernoulli(rate, chain([word], entropy.keystream("x/ties").reader(len(expected)))))
    assert events.tolist() == expected


def test_ties_read_on_as_far_as_they_must(scripted_entropy: Callable[..., Entropy]) -> None:
    third = (2**32 - 1) // 3
    script = {
        ("x", 0): [third, third, third, third + 1, third - 1],
        ("x/ties", 0): [third, third, third, third - 1],
        ("x/ties", 1): [third, third, third, third + 1],
        ("x/ties", 2): [third] * 3000 + [0],
    }
    events = bernoulli_array(Fraction(1, 3), count=5, entropy=scripted_entropy(script), purpose="x")
    assert events.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(("rate", "count"), [(Fraction(1, 10), 8_000_000), (Fraction(1, 3), 2_000_000)])
def test_bulk_frequencies_fit_and_a_rate_one_percent_off_is_seen(
    rate: Fraction, count: int, p_value: Callable[..., float]
) -> None:
    """False alarm 1e-6. Smallest fault seen: the rate wrong by one part in a hundred."""
    hits = int(bernoulli_array(rate, count=count, entropy=Entropy.from_seed("frequency"), purpose="x").sum())
    observed = np.array([hits, count - hits])
    assert p_value(observed, [rate, 1 - rate]) > 1e-6
    for wrong in (rate * Fraction(99, 100), rate * Fraction(101, 100)):
        assert p_value(observed, [wrong, 1 - wrong]) < 1e-6


def test_a_rate_must_be_an_exact_probability() -> None:
    with pytest.raises(TypeError, match="not exact"):
        bernoulli(0.5, [0])  # type: ignore[arg-type]
    for wrong in (Fraction(-1, 2), Fraction(7, 4)):
        with pytest.raises(ValueError, match="not a probability"):
            bernoulli(wrong, [0])
