from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.randomness import Entropy, below, integers_below, kernel, permutation, random_permutation
from stirred.randomness.entropy import BUFFER_WORDS

BOUNDS = [1, 2, 3, 6, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**61, 2**63 + 1, 2**64 - 1, 2**64]


@pytest.mark.parametrize("bound", range(1, 65))
def test_every_result_comes_from_equally_many_words(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With words of 3 bits all can be tried: floor(2**w / bound) of them lead to each result."""
    monkeypatch.setitem(below.__globals__, "WORD_BITS", 3)
    length = 1 if bound <= 8 else 2
    results: Counter[int] = Counter()
    for word in product(range(8), repeat=length):
        try:
            results[below(bound, iter(word))] += 1
        except StopIteration:
            continue
    assert results == dict.fromkeys(range(bound), 8**length // bound)


@given(bound=st.integers(1, 2**150), seed=st.integers(0, 1000))
def test_results_lie_below_bounds_of_any_size(bound: int, seed: int) -> None:
    assert 0 <= below(bound, Entropy.from_seed(seed).keystream("x").reader(0)) < bound


@pytest.mark.parametrize("bound", BOUNDS)
def test_bulk_integers_equal_the_twin(bound: int) -> None:
    entropy = Entropy.from_seed("bulk")
    bulk = integers_below(bound, count=BUFFER_WORDS + 50, entropy=entropy, purpose="x")
    for chunk, part in ((0, bulk[:BUFFER_WORDS]), (1, bulk[BUFFER_WORDS:])):
        reader = entropy.keystream("x").reader(chunk)
        assert part.tolist() == [below(bound, reader) for _ in range(part.size)]


@pytest.mark.parametrize("bound", [6, 2**64 - 1])
@pytest.mark.parametrize("buffer_words", [1, 2, 3, 7])
def test_bulk_integers_do_not_depend_on_the_buffer(bound: int, buffer_words: int) -> None:
    keystream = Entropy.from_seed("buffers").keystream("x")
    out = np.empty(50, dtype=np.uint64)
    kernel.fill_below(bound, out, keystream.reader(0, buffer=np.empty(buffer_words, dtype=np.uint32)))
    reader = keystream.reader(0)
    assert out.tolist() == [below(bound, reader) for _ in range(50)]


@pytest.mark.parametrize("bound", [3, 2**32 - 1, 2**63 + 1])
def test_rejected_words_are_drawn_again(bound: int, scripted_entropy: Callable[..., Entropy]) -> None:
    """Zero words are rejected by every bound that does not divide the range."""
    entropy = scripted_entropy({("x", 0): [0] * 6})
    bulk = integers_below(bound, count=20, entropy=entropy, purpose="x")
    reader = entropy.keystream("x").reader(0)
    assert bulk.tolist() == [below(bound, reader) for _ in range(20)]


def test_bulk_integers_are_uniform(p_value: Callable[..., float]) -> None:
    """False alarm 1e-6; a face that comes up one time in 50 too often is seen."""
    bound, count = 7, 1_000_000
    drawn = integers_below(bound, count=count, entropy=Entropy.from_seed("uniform"), purpose="x")
    observed = np.bincount(drawn.astype(np.int64), minlength=bound)
    assert p_value(observed, [1 / bound] * bound) > 1e-6
    surplus = count // (50 * bound)
    biased = observed + np.array([surplus, -surplus, 0, 0, 0, 0, 0])
    assert p_value(biased, [1 / bound] * bound) < 1e-6


def word_for(choice: int, bound: int) -> int:
    """A word that ``below(bound, ...)`` accepts and turns into ``choice``."""
    return (choice << 32) // bound + 2


@pytest.mark.parametrize("size", range(1, 7))
def test_every_sequence_of_choices_gives_a_different_permutation(size: int) -> None:
    """Fisher-Yates, exactly: equally likely choices and permutations are in one-to-one relation."""
    bounds = range(size, 1, -1)
    results = [
        tuple(permutation(size, iter([word_for(c, b) for c, b in zip(choices, bounds, strict=True)])))
        for choices in product(*(range(bound) for bound in bounds))
    ]
    assert sorted(results) == sorted(permutations(range(size)))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 12), max_size=6), seed=st.integers(0, 99), buffer=st.integers(1, 9))
def test_compiled_shuffles_equal_the_twin(sizes: list[int], seed: int, buffer: int) -> None:
    keystream = Entropy.from_seed(seed).keystream("x")
    offsets = np.cumsum([0, *sizes]).astype(np.int64)
    values = np.concatenate([np.arange(size) for size in [*sizes, 0]]).astype(np.uint32)
    kernel.shuffle_slices(values, offsets, keystream.reader(0, buffer=np.empty(buffer, dtype=np.uint32)))
    reader = keystream.reader(0)
    assert values.tolist() == [place for size in sizes for place in permutation(size, reader)]


def test_one_long_compiled_permutation_equals_the_twin() -> None:
    entropy = Entropy.from_seed("long")
    reader = entropy.keystream("x").reader(0)
    assert random_permutation(200_000, entropy=entropy, purpose="x").tolist() == permutation(200_000, reader)


def test_empty_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        below(0, iter([0]))
    for bound in (0, 2**64 + 1):
        with pytest.raises(ValueError, match="from 1 to"):
            integers_below(bound, count=1, entropy=Entropy.from_seed(1), purpose="x")
