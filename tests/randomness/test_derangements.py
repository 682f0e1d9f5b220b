from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.randomness import Entropy, derangement, derangement_number, kernel, random_derangement

DRAWS = 300_000


def all_derangements(size: int) -> list[tuple[int, ...]]:
    return [sent for sent in permutations(range(size)) if all(sent[place] != place for place in range(size))]


def word_for(choice: int, bound: int) -> int:
    """A word that ``below(bound, ...)`` accepts and turns into ``choice``."""
    return (choice << 32) // bound + 2


@pytest.mark.parametrize("size", range(2, 8))
def test_exactly_one_sequence_of_choices_leads_to_each_derangement(size: int) -> None:
    """The law, exactly. All choices of one shuffle are equally likely; those that run out of words
    have met a fixed point and start again; each of the others is a derangement, and none is met twice.
    """
    bounds = range(size, 1, -1)
    results = []
    for choices in product(*(range(bound) for bound in bounds)):
        try:
            words = iter([word_for(c, b) for c, b in zip(choices, bounds, strict=True)])
            results.append(tuple(derangement(size, words)))
        except StopIteration:
            continue
    assert sorted(results) == sorted(all_derangements(size))


@pytest.mark.parametrize("size", range(2, 8))
def test_a_restart_from_any_arrangement_is_as_good_as_a_fresh_start(size: int) -> None:
    """A shuffle that fails at its last step leaves the elements in disorder; the next is uniform still."""
    bounds = list(range(size, 1, -1))
    # Always choose 0 until place 1: no early fixed point; then leave 1 or 0 in place if that fails.
    for last in range(2):
        spoiled = [word_for(c, b) for c, b in zip([0] * (size - 2) + [last], bounds, strict=True)]
        try:
            derangement(size, iter(spoiled))
        except StopIteration:
            break
    else:
        pytest.fail("no failing shuffle with these choices")
    results = []
    for choices in product(*(range(bound) for bound in bounds)):
        try:
            words = iter(spoiled + [word_for(c, b) for c, b in zip(choices, bounds, strict=True)])
            results.append(tuple(derangement(size, words)))
        except StopIteration:
            continue
    assert sorted(results) == sorted(all_derangements(size))


def test_derangement_numbers_count_derangements() -> None:
    assert [derangement_number(size) for size in range(2, 8)] == [len(all_derangements(size)) for size in range(2, 8)]


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 12), max_size=6), seed=st.integers(0, 99), buffer=st.integers(1, 9))
def test_compiled_derangements_equal_the_twin(sizes: list[int], seed: int, buffer: int) -> None:
    keystream = Entropy.from_seed(seed).keystream("x")
    items, offsets = labelled(sizes)
    kernel.derange_slices(items, offsets, keystream.reader(0, buffer=np.empty(buffer, dtype=np.uint32)))
    reader = keystream.reader(0)
    expected = [place for size in sizes for place in (derangement(size, reader) if size > 1 else range(size))]
    assert items.astype(np.uint32).tolist() == expected


def test_one_long_compiled_derangement_equals_the_twin() -> None:
    entropy = Entropy.from_seed("long")
    reader = entropy.keystream("x").reader(0)
    assert random_derangement(100_000, entropy=entropy, purpose="x").tolist() == derangement(100_000, reader)


def test_rejected_words_are_drawn_again(scripted_entropy: Callable[..., Entropy]) -> None:
    entropy = scripted_entropy({("x", 0): [0] * 10})
    reader = entropy.keystream("x").reader(0)
    assert random_derangement(7, entropy=entropy, purpose="x").tolist() == derangement(7, reader)


def test_fewer_than_two_elements_are_refused() -> None:
    for size in (0, 1):
        with pytest.raises(ValueError, match="at least 2"):
            derangement(size, iter([]))
        with pytest.raises(ValueError, match="at least 2"):
            random_derangement(size, entropy=Entropy.from_seed(1), purpose="x")


@pytest.mark.parametrize("size", [3, 4, 5])
def test_compiled_derangements_are_uniform(size: int, p_value: Callable[..., float]) -> None:
    """False alarm 1e-6 over a random seed."""
    items, offsets = labelled([size] * DRAWS)
    kernel.derange_slices(items, offsets, Entropy.from_seed("uniform").keystream("x").reader(0))
    assert p_value(*tabulate(items.astype(np.int64) & 0xFFFF_FFFF, size)) > 1e-6


@pytest.mark.parametrize("size", [4, 5])
def test_slightly_wrong_samplers_fail_the_same_test(size: int, p_value: Callable[..., float]) -> None:
    """Power: cyclic permutations only, plain shuffles, and one draw in 50 that is not a fresh one."""
    rng = np.random.default_rng(1)
    shuffled = rng.permuted(np.tile(np.arange(size), (4 * DRAWS, 1)), axis=1)
    deranged = shuffled[(shuffled != np.arange(size)).all(axis=1)][:DRAWS]
    assert p_value(*tabulate(deranged, size)) > 1e-6

    cyclic = deranged[[cycle_length(sent) == size for sent in deranged.tolist()]]
    assert p_value(*tabulate(cyclic, size)) < 1e-6
    assert p_value(*tabulate(shuffled[:DRAWS], size)) < 1e-6
    biased = deranged.copy()
    biased[::50] = np.roll(np.arange(size), 1)
    assert p_value(*tabulate(biased, size)) < 1e-6


def labelled(sizes: list[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    places = np.concatenate([np.arange(size) for size in [*sizes, 0]]).astype(np.uint64)
    return places << np.uint64(32) | places, np.cumsum([0, *sizes]).astype(np.int64)


def tabulate(sent: npt.NDArray[np.int64], size: int) -> tuple[npt.NDArray[np.int64], list[float]]:
    """Counts and uniform probabilities of all outcomes; a non-derangement is an outcome of probability 0."""
    weights = size ** np.arange(size)
    cells = [int(np.dot(weights, outcome)) for outcome in all_derangements(size)]
    counts = np.bincount(sent.reshape(-1, size) @ weights, minlength=size**size)
    observed = counts[cells]
    return (
        np.append(observed, counts.sum() - observed.sum()),
        [1 / len(cells)] * len(cells) + [0],
    )


def cycle_length(sent: list[int]) -> int:
    place, length = sent[0], 1
    while place != 0:
        place, length = sent[place], length + 1
    return length
