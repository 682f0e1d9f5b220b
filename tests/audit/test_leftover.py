"""The order of a released file by itself: what the package releases is silent, planted orders are not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.audit.leftover import _equal_neighbours, _trend, leftover_order
from stirred.randomness import Entropy
from tests.mechanisms.records.sampling import swapped

HELD = ["size", "tenure", "age"]


def homes(count: int = 600) -> pl.DataFrame:
    """Homes sorted by county and, inside it, by age, as a register may be."""
    row = np.arange(count)
    return pl.DataFrame(
        {
            "county": np.array(["East", "North", "South"])[row * 3 // count],
            "size": 1 + (row * 7) % 3,
            "tenure": np.array(["owned", "rented"])[(row * 5 // 3) % 2],
            "age": (row % (count // 3)) * 60 // count,
        }
    )


def released(seed: int, *, count: int = 600, rate: str = "1/20") -> pl.DataFrame:
    swap = PermutationSwap(match=["size"], swap=["county"], rate=rate)
    frame: pl.DataFrame = swapped(swap, homes(count), Entropy.from_seed(seed)).public["data"]
    return frame


@pytest.mark.parametrize("seed", range(5))
def test_what_is_released_is_grouped_by_place_and_otherwise_in_no_order(seed: int) -> None:
    left = leftover_order(released(seed), first=["county"])
    assert left.grouped == ("county",)
    assert left.ordered == ()
    assert set(left.seen) == set(HELD)


def swapped_in_input_order(seed: int) -> pl.DataFrame:
    marked = swapped(
        PermutationSwap(match=["size"], swap=["county"], rate="1/20"),
        homes().with_row_index("row"),
        Entropy.from_seed(seed),
    )
    frame: pl.DataFrame = marked.public["data"]
    return frame.sort("row").drop("row")


def test_rows_left_in_input_order_are_seen() -> None:
    left = leftover_order(swapped_in_input_order(1), first=["county"])
    assert left.grouped == ()
    assert {"county", "age"} <= set(left.ordered)


def test_a_stable_sort_on_hold_values_is_seen() -> None:
    """Inside equal hold values the released places follow the input."""
    left = leftover_order(swapped_in_input_order(1).sort("size", "tenure", maintain_order=True), first=["county"])
    assert set(left.grouped) == {"size", "tenure"}
    assert "county" in left.ordered


def test_a_stable_sort_on_released_places_is_seen() -> None:
    left = leftover_order(swapped_in_input_order(1).sort("county", maintain_order=True), first=["county"])
    assert left.grouped == ("county",)
    assert "age" in left.ordered


def test_a_file_sorted_on_its_values_needs_no_other_explanation() -> None:
    left = leftover_order(released(1).sort("county", *HELD), first=["county"])
    assert left.ordered == ()


def test_a_file_too_small_to_tell_says_so() -> None:
    left = leftover_order(released(1, count=12).sort("county", "age"), first=["county"])
    assert left.seen == ()


def test_false_alarms_are_rare() -> None:
    """200 random files with columns of two, many and nearly only single values: no alarm."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        frame = pl.DataFrame(
            {"g": np.repeat(range(10), 30), "a": rng.integers(0, 2, 300), "b": rng.integers(0, 200, 300)}
        )
        rare = pl.Series("c", rng.random(300) < 0.02)
        assert leftover_order(frame.with_columns(rare), first=["g"]).ordered == ()


def test_means_and_variances_are_those_of_all_orders() -> None:
    """Slow obvious code as the oracle: every order of five rows in one group."""
    values = [0, 0, 1, 1, 2]
    orders = [list(order) for order in itertools.permutations(values)]
    frames = [pl.DataFrame({"g": [0] * 5, "x": order}) for order in orders]
    equal = [sum(a == b for a, b in itertools.pairwise(order)) for order in orders]
    trend = [sum((j - 2) * x for j, x in enumerate(order)) for order in orders]
    assert [_equal_neighbours(frame)[0] for frame in frames] == equal
    _, mean, variance = _equal_neighbours(frames[0])
    assert mean == pytest.approx(np.mean(equal))
    assert variance == pytest.approx(np.var(equal))
    assert _trend(frames[7])[0] == trend[7]
    assert _trend(frames[0])[1] == pytest.approx(math.sqrt(np.var(trend)))
