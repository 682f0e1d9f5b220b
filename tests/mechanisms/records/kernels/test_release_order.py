from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.partition import release_order
from stirred.randomness import Entropy
from tests.mechanisms.records.kernels.reference import release_order_reference

GROUPS = 250_000
FALSE_ALARM = 1e-6
PValue = Callable[..., float]


@settings(deadline=None)
@given(codes=st.lists(st.integers(0, 9), max_size=60), seed=st.integers(0, 10**6))
def test_the_order_equals_its_twin(codes: list[int], seed: int) -> None:
    entropy = Entropy.from_seed(seed)
    order = release_order(np.array(codes, dtype=np.uint32), groups=10, entropy=entropy)
    assert order.tolist() == release_order_reference(codes, groups=10, entropy=entropy)


@pytest.mark.parametrize("block_rows", [1 << 8, 1 << 18])
@pytest.mark.parametrize("groups", [1, 300, 40_000])
def test_the_order_equals_its_twin_over_many_chunks_and_blocks(
    groups: int, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addressing, "BLOCK_ROWS", block_rows)
    rows = 2 * addressing.CHUNK_ROWS + 77
    codes = np.random.default_rng(groups).integers(0, groups, rows, dtype=np.uint32)
    entropy = Entropy.from_seed("order")
    order = release_order(codes, groups=groups, entropy=entropy)
    assert order.tolist() == release_order_reference(codes.tolist(), groups=groups, entropy=entropy)


def test_the_order_is_grouped_by_code_and_holds_every_row_once() -> None:
    codes = np.random.default_rng(1).integers(0, 5000, 300_000, dtype=np.uint32)
    order = release_order(codes, entropy=Entropy.from_os())
    assert (np.diff(codes[order].astype(np.int64)) >= 0).all()
    assert np.array_equal(np.sort(order), np.arange(codes.size))


@pytest.mark.parametrize("groups", [3, 300_000])
def test_the_order_does_not_depend_on_the_number_of_threads(groups: int) -> None:
    codes = np.random.default_rng(1).integers(0, groups, 1_000_000, dtype=np.uint32)
    orders = [release_order(codes, entropy=Entropy.from_seed(1), threads=threads) for threads in (1, 2, 3, 7)]
    for order in orders[1:]:
        assert np.array_equal(order, orders[0])


def orders_inside_groups(order: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.int64]:
    """Row r belongs to group r % GROUPS and is the (r // GROUPS)-th of its group in the input."""
    return (order.astype(np.int64) // GROUPS).reshape(GROUPS, size)


def frequencies(inside: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    weights = size ** np.arange(size)
    counts = np.bincount(inside @ weights, minlength=size**size)
    return counts[[int(np.dot(weights, order)) for order in permutations(range(size))]]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_order_inside_a_code_is_equally_likely(size: int, p_value: PValue) -> None:
    """Hence the released order has the same law whatever the input order. False alarm 1e-6.

    Power: keeping one group in 50 in input order is seen.
    """
    codes = np.tile(np.arange(GROUPS, dtype=np.uint32), size)
    order = release_order(codes, entropy=Entropy.from_seed(f"uniform {size}"))
    inside = orders_inside_groups(order, size)
    number = len(list(permutations(range(size))))
    assert p_value(frequencies(inside, size), [1 / number] * number) > FALSE_ALARM
    inside[::50] = np.arange(size)
    assert p_value(frequencies(inside, size), [1 / number] * number) < FALSE_ALARM


def test_the_place_in_the_output_tells_nothing_about_the_place_in_the_input(p_value: PValue) -> None:
    """One code for all rows; the power check leaves one row in 20 near where it was."""
    rows, parts = 400_000, 10
    order = release_order(np.zeros(rows, dtype=np.uint32), entropy=Entropy.from_seed("place")).astype(np.int64)
    part = rows // parts

    def table(order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.bincount(np.arange(rows) // part * parts + order // part, minlength=parts**2)

    assert p_value(table(order), [1 / parts**2] * parts**2) > FALSE_ALARM
    order[::20] = np.arange(rows)[::20]
    assert p_value(table(order), [1 / parts**2] * parts**2) < FALSE_ALARM


def test_an_empty_file_and_codes_without_rows_are_fine() -> None:
    assert release_order(np.array([], dtype=np.uint32), entropy=Entropy.from_os()).tolist() == []
    assert release_order(np.array([7], dtype=np.uint16), groups=9, entropy=Entropy.from_os()).tolist() == [0]


def test_wrong_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="code 5 is out of range"):
        release_order(np.array([5], dtype=np.uint32), groups=5, entropy=Entropy.from_os())
    with pytest.raises(TypeError, match="codes: got int64"):
        release_order(np.array([5]), entropy=Entropy.from_os())
