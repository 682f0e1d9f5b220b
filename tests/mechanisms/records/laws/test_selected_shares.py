"""The expected share of changed records under the conditioned swap is that of its law, in strata of any size."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from stirred.mechanisms.records.kernels.changed import expected_changes
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap, redrawn_counts
from stirred.mechanisms.records.laws.mallows import mallows_moved
from stirred.mechanisms.records.strata import SwapMargins
from tests.mechanisms.records.oracles import exact_moves

COUNTS = [(1, 1), (2, 1), (1, 1, 1, 1), (3, 2, 2), (4, 1, 1), (5, 5)]
RATES = [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)]


def masses(counts: tuple[int, ...], law: str) -> list[Fraction]:
    return [Fraction(1, len(counts)) if law == "uniform" else Fraction(c, sum(counts)) for c in counts]


def changes(counts: tuple[int, ...], rate: Fraction, law: str) -> list[float]:
    odds = np.array([float(rate / (1 - rate) * mass) for mass in masses(counts, law)])
    return expected_changes(np.zeros(len(counts), dtype=np.int64), np.array(counts), odds).tolist()


@pytest.mark.parametrize("law", ["uniform", "proportional"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("counts", COUNTS)
def test_small_strata_change_as_enumeration_says(counts: tuple[int, ...], rate: Fraction, law: str) -> None:
    moves = exact_moves(counts, rate, masses(counts, law))
    wanted = [float(1 - moves[a][a]) for a in range(len(counts))]
    assert changes(counts, rate, law) == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("law", ["uniform", "proportional"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("counts", [(41, 300, 500), (10,) * 30, (1_000, 1_000, 5), (9_000, 900, 1)])
def test_strata_of_any_size_change_as_the_integral_says(counts: tuple[int, ...], rate: Fraction, law: str) -> None:
    """Where thousands are selected the peak of their law stands for its mean: within a thousandth."""
    wanted = 1 - np.diag(redrawn_counts(counts, rate, masses(counts, law)).moves)
    assert changes(counts, rate, law) == pytest.approx(wanted.tolist(), rel=1e-3)


@pytest.mark.parametrize("records", [2, 5, 10, 100, 1_000])
def test_where_all_values_differ_it_is_the_mallows_swap(records: int) -> None:
    """A redraw then keeps or changes a value as a permutation keeps or moves a record: exp(-epsilon) is 1/(1 + n/o)."""
    rate = Fraction(7, 10)
    odds = rate / (1 - rate)
    found = changes((1,) * records, rate, "uniform")
    moved, chance = mallows_moved(records, 1 / (1 + records / odds))
    assert found == pytest.approx([float(moved @ chance) / records] * records, rel=1e-7)


def test_strata_are_kept_apart_and_values_in_their_order() -> None:
    stratum = np.array([0, 0, 2, 2, 2])
    counts, rates = np.array([7, 3, 1, 5, 1]), np.array([0.3, 0.1, 0.2, 0.2, 0.4])
    both = expected_changes(stratum, counts, rates)
    for part in (slice(0, 2), slice(2, 5)):
        alone = expected_changes(np.zeros(counts[part].size, dtype=np.int64), counts[part], rates[part])
        assert both[part].tolist() == alone.tolist()
    assert len({*both.round(9).tolist()}) == 5


def test_nothing_changes_at_rate_zero_and_almost_nothing_close_to_it() -> None:
    none = expected_changes(np.zeros(2, dtype=np.int64), np.array([5, 5]), np.zeros(2))
    assert none.tolist() == [0.0, 0.0]
    little = expected_changes(np.zeros(2, dtype=np.int64), np.array([5, 5]), np.full(2, 1e-9))
    # Two redraws are needed: g = (1, 1) has weight 2 (5x)^2, and half of these exchange.
    assert little.tolist() == pytest.approx([5 * 1e-18] * 2, rel=1e-6)
    assert all(math.isfinite(share) for share in little)


def test_the_margins_of_a_plan_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, count = [], SwapMargins.of

    def counting(*codes: np.ndarray, strata: int, values: int) -> SwapMargins:
        calls.append(strata)
        return count(*codes, strata=strata, values=values)

    monkeypatch.setattr(SwapMargins, "of", counting)
    homes = pl.DataFrame({"county": list("ABAB"), "size": [1, 1, 2, 2], "row": range(4)})
    swap = ConditionedSwap(match=["size"], swap=["county"], rate="1/2", hold=["row"])
    plan = swap.plan(homes)
    swap.areas_changed(plan)
    swap.rate_losses(plan).losses(RATES)
    assert calls == [2]
