"""The kernels of the family equal their plain twins bit for bit, and double precision equals integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from stirred.mechanisms.records.kernels import cells, counted
from stirred.mechanisms.records.kernels.counted import Counting, swap_counted_in_place
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.redrawn import LATTICE_EPSILON, ConditionedCounting, SelectedCounts
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.mechanisms.records.laws.mallows import MallowsCounting, MovedCount
from stirred.randomness.entropy import Entropy, WordReader
from stirred.spec.exact import exact
from tests.mechanisms.records.kernels.reference import shuffle_reference, swap_counted_reference

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
HALF = Fraction(1, 2)
COUNTINGS: dict[str, Counting] = {
    "mallows": MallowsCounting(Fraction(1, 3)),
    "uniform": ConditionedCounting(rate=Fraction(1, 3)),
    "proportional": ConditionedCounting(rate=Fraction(4, 5), law="proportional"),
    "declared": ConditionedCounting(rate=HALF, law="declared", masses={c: Fraction(c + 1, 10) for c in range(4)}),
    "rate 0": ConditionedCounting(rate=Fraction(0)),
    "rate 1": ConditionedCounting(rate=Fraction(1)),
}


def words_of(seed: str) -> WordReader:
    return Entropy.from_seed(seed).keystream("test").reader(0)


def codes(size: int) -> npt.NDArray[np.uint32]:
    return np.arange(size, dtype=np.uint32)


# ---- the whole kernel against its twin ----------------------------------------------------------------


def assert_equal_to_its_twin(name: str, rows: int, strata: int) -> None:
    rng = np.random.default_rng(rows + strata)
    stratum = rng.integers(0, strata, rows).astype(np.uint32)
    swap = rng.integers(0, 4, rows).astype(np.uint32)
    entropy = Entropy.from_seed(f"{name} {rows}")
    expected, tally = swap_counted_reference(
        stratum.tolist(), swap.tolist(), strata=strata, counting=COUNTINGS[name], entropy=entropy
    )
    for threads in (1, 3):
        swapped = swap.copy()
        found = swap_counted_in_place(
            stratum, swapped, strata=strata, values=4, counting=COUNTINGS[name], entropy=entropy, threads=threads
        )
        assert swapped.tolist() == expected
        assert found == tally


@pytest.mark.parametrize("name", COUNTINGS)
@pytest.mark.parametrize(("rows", "strata"), [(0, 1), (1, 1), (40, 1), (400, 7), (3000, 900), (40_000, 3), (90_001, 2)])
def test_the_counted_kernel_equals_its_twin(name: str, rows: int, strata: int) -> None:
    assert_equal_to_its_twin(name, rows, strata)


@pytest.mark.parametrize("name", COUNTINGS)
@pytest.mark.parametrize(("rows", "strata"), [(0, 1), (1, 1), (400, 7), (3000, 900), (40_000, 3)])
def test_the_counted_kernel_equals_its_twin_where_cells_are_ranked(
    name: str, rows: int, strata: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many strata times many swap values have no table of all cells, and the result does not show it."""
    monkeypatch.setattr(cells, "_FEW_CELLS", -1)
    monkeypatch.setattr(cells, "_MOST_CELLS", -1)
    assert_equal_to_its_twin(name, rows, strata)


@pytest.mark.parametrize(
    ("name", "rows", "strata"),
    [("mallows", 400, 7), ("mallows", 3000, 900), ("uniform", 3000, 900), ("uniform", 40_000, 3), ("declared", 400, 7)],
)
def test_the_counted_kernel_equals_its_twin_where_candidates_are_short(
    name: str, rows: int, strata: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no more candidates expected than needed, half of the cells take all their records."""
    outcomes: list[bool] = []
    run = counted.CountedExchange.run

    def watched(self: counted.CountedExchange, *args: Any, **options: Any) -> bool:
        outcomes.append(run(self, *args, **options))
        return outcomes[-1]

    monkeypatch.setattr(counted, "_SPREADS", 0)
    monkeypatch.setattr(counted, "_SPARE", 0)
    monkeypatch.setattr(counted.CountedExchange, "run", watched)
    assert_equal_to_its_twin(name, rows, strata)
    assert outcomes == [False, True] * 2  # short, then done, for each number of threads


def test_hardly_any_cell_is_short_of_candidates() -> None:
    """At most one in 100,000, for cells of any size: there is a binomial number of candidates."""
    for have in (20, 100, 1000, 30_000, 1_000_000):
        for need in sorted({1, 2, 5, have // 50 + 1, have // 10, have // 2, have - 1}):
            limit = int(counted.candidate_limits(np.array([have]), np.array([need]))[0])
            chance = (limit + 1) / 65_536
            assert binom.cdf(need - 1, have, chance) < 1e-5


@pytest.mark.parametrize(("rows", "strata"), [(1, 1), (40, 1), (3000, 900), (70_000, 3)])
def test_the_shuffle_kernel_equals_its_twin(rows: int, strata: int) -> None:
    rng = np.random.default_rng(rows)
    stratum = rng.integers(0, strata, rows).astype(np.uint32)
    swap = np.arange(rows, dtype=np.uint32)
    rates = Rates.constant(Fraction(1, 3), strata=strata)
    entropy = Entropy.from_seed(f"shuffle {rows}")
    expected, tally = shuffle_reference(stratum.tolist(), swap.tolist(), rates=rates, entropy=entropy)
    for threads in (1, 3):
        swapped = swap.copy()
        assert swap_in_place(stratum, swapped, rates=rates, entropy=entropy, threads=threads, derange=False) == tally
        assert swapped.tolist() == expected


@pytest.mark.parametrize(
    ("column", "said"),
    [(np.zeros(3, dtype=np.int64), "got int64"), (np.zeros(2, dtype=np.uint32), "2 rows beside 3")],
)
def test_columns_that_do_not_fit_are_refused(column: npt.NDArray[Any], said: str) -> None:
    stratum = np.zeros(3, dtype=np.uint32)
    with pytest.raises((TypeError, ValueError), match=said):
        swap_counted_in_place(
            stratum, column, strata=1, values=1, counting=COUNTINGS["uniform"], entropy=Entropy.from_seed("x")
        )
    with pytest.raises((TypeError, ValueError), match=said):
        swap_in_place(
            stratum, column, rates=Rates.constant(HALF, strata=1), entropy=Entropy.from_seed("x"), derange=False
        )


# ---- double precision against integers ----------------------------------------------------------------


@pytest.mark.parametrize("records", [2, 3, 7, 60, 1000, 30_000])
@pytest.mark.parametrize("weight", ["1/3", "1/50", "1/997", "1"])
def test_the_number_moved_is_the_one_that_integers_give(records: int, weight: str) -> None:
    law = MovedCount(records, Fraction(weight))
    for number in range(40):
        seed = f"{records} {weight} {number}"
        assert law.draw(words_of(seed)) == records - law._exact.draw(words_of(seed))


CELLS: list[tuple[list[int], str, str]] = [
    ([1, 1], "1/2", "uniform"),
    ([3, 2, 1], "1/10", "proportional"),
    ([3, 2, 1], "9/10", "uniform"),
    ([40, 1, 7, 7], "1/3", "proportional"),
    ([500, 300, 2, 1, 1], "1/20", "uniform"),
    ([2000, 1000, 30], "99/100", "proportional"),
    ([1] * 50, "1/1000", "uniform"),
]


@pytest.mark.parametrize(("counts", "rate", "law"), CELLS)
def test_the_selected_counts_are_those_that_integers_give(counts: list[int], rate: str, law: str) -> None:
    selected = ConditionedCounting(rate=Fraction(rate), law=law).of(codes(len(counts)), np.array(counts))
    for number in range(12):
        seed = f"{counts} {number}"
        assert selected.draw(words_of(seed)).tolist() == drawn_by_integers(selected, words_of(seed))


def drawn_by_integers(selected: SelectedCounts, words: WordReader) -> list[int]:
    """Return what ``draw`` does from the same words, by integers alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(selected._mixing), "_certainly_kept", lambda *_: None)
        point = selected._mixing.draw(words)
    heads = words.take(2 * selected._counts.size).astype(np.uint64)
    return [selected._draw_one(place, point, heads, words) for place in range(selected._counts.size)]


def test_where_double_precision_cannot_tell_integers_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a margin of a half nothing is certain in double precision, and the outcome is the same."""
    from stirred.mechanisms.records.kernels import redrawn as mixing
    from stirred.mechanisms.records.kernels import redrawn as selected_counts
    from stirred.mechanisms.records.laws import mallows as mallows_law

    counting = ConditionedCounting(rate=Fraction(1, 3))
    laws: list[Any] = [counting.of(codes(3), np.array([9, 4, 1])), MovedCount(40, Fraction(1, 9))]
    usual = [[law.draw(words_of(str(n))) for n in range(20)] for law in laws]
    for module in (mixing, mallows_law, selected_counts):
        monkeypatch.setattr(module, "_CLOSE", 0.5)
    forced = [[law.draw(words_of(str(n))) for n in range(20)] for law in laws]
    assert [[np.asarray(d).tolist() for d in row] for row in usual] == [
        [np.asarray(d).tolist() for d in row] for row in forced
    ]


def test_outcomes_beyond_double_precision_remain_possible() -> None:
    """A uniform number next to 0 or 1 leads to the ends of the law, whose weights a double cannot tell from 0."""
    law = MovedCount(100_000, Fraction(1, 50_000))
    middle = law.draw(iter([1 << 31, 0]))
    fewer, more = law.draw(iter([2**32 - 1] * 40 + [5] * 40)), law.draw(iter([0] * 40 + [5] * 40))
    assert fewer < middle - 2_000
    assert more > middle + 2_000


def test_the_lattice_costs_next_to_nothing_and_is_in_the_budget() -> None:
    assert exact(0) < LATTICE_EPSILON < exact("1e-12")


@pytest.mark.parametrize("k", [0, 1, 2, 7, 40])
def test_a_lattice_sum_is_as_close_to_the_factorial_as_claimed(k: int) -> None:
    """STEP times the sum of u^k e^-u over the lattice is k! up to a factor 1 + STEP; seen at a coarse step."""
    for step in (0.5, 0.1):
        points = step * np.arange(1, int(400 / step))
        total = step * math.fsum((points**k * np.exp(-points)).tolist())
        assert abs(total / math.factorial(k) - 1) <= step
