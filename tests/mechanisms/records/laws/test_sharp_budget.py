"""The sharp budget in plans: R1 in place of Theorem 1, the exact loss of small strata, and rates 0 and 1 (R2)."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise, permutations

import polars as pl
import pytest

from stirred.mechanisms.records.laws.counting import exact_loss
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.exact import INFINITE, exact, ln
from stirred.spec.swap_budget import (
    psa_epsilon,
    psa_rates_for,
    psa_sharp_epsilon,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)

HALF = Fraction(1, 2)


def stratum(hold: tuple[int, ...], swap: tuple[int, ...], size: int = 1) -> pl.DataFrame:
    """Return a file of one stratum with these margins."""
    held = [h for h, many in enumerate(hold) for _ in range(many)]
    places = [f"s{s}" for s, many in enumerate(swap) for _ in range(many)]
    return pl.DataFrame({"size": [size] * len(held), "held": held, "county": places})


def plan(homes: pl.DataFrame, rate: str, **settings: object) -> SwapPlan:
    return PermutationSwap(match=["size"], swap=["county"], rate=rate, **settings).plan(homes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("margins", "rate"), [((1, 1), "1/10"), ((2, 1), "1/2"), ((2, 2), "1/2"), ((2, 1, 1), "9/10")])
def test_a_plan_shows_the_sharp_bound_the_papers_and_the_exact_loss_in_order(
    margins: tuple[int, ...], rate: str
) -> None:
    found = plan(stratum(margins, margins), rate)
    assert found.exact_loss == exact_loss(margins, margins, rate).loss
    assert found.exact_loss <= found.epsilon <= found.paper_epsilon
    assert found.epsilon == psa_sharp_epsilon(Fraction(rate), stratum=sum(margins))
    assert found.specification.budget.paper_epsilon == psa_epsilon(Fraction(rate), largest_stratum=sum(margins))


def test_the_exact_loss_of_a_file_is_the_largest_of_its_strata() -> None:
    """R0', with the numbers given there: (1,1) twice at 1/5 and (2,1) twice at 1/2."""
    homes = pl.concat([stratum((1, 1), (1, 1), 1), stratum((2, 1), (2, 1), 2)])
    found = plan(homes, "1/5", rates=[{"size": 2, "rate": "1/2"}])
    assert found.exact_loss == ln(4)
    alone = plan(stratum((2, 1), (2, 1), 2), "1/2").exact_loss
    assert alone == ln(Fraction(4, 3)) / 2


def test_a_stratum_too_large_to_enumerate_has_the_bound_only() -> None:
    found = plan(stratum((30, 30), (30, 30)), "1/2")
    assert found.exact_loss is None
    assert found.epsilon == psa_sharp_epsilon(HALF, stratum=60)


@pytest.mark.parametrize(
    ("hold", "swap", "loss"), [((2, 2), (2, 2), ln(4) / 2), ((3, 1), (2, 2), ln(2) / 2), ((1, 1), (1, 1), INFINITE)]
)
def test_at_rate_1_small_margins_promise_their_exact_loss(hold: tuple[int, ...], swap: tuple[int, ...], loss) -> None:  # type: ignore[no-untyped-def]
    """T12."""
    found = plan(stratum(hold, swap), "1")
    assert found.epsilon == loss
    assert found.paper_epsilon == INFINITE


def test_at_rate_1_a_large_stratum_is_bounded_by_infinity_and_the_plan_says_if_the_truth_is_finite() -> None:
    finite, infinite = plan(stratum((40, 2), (40, 2)), "1"), plan(stratum((40, 1), (40, 1)), "1")
    assert finite.epsilon == infinite.epsilon == INFINITE
    assert "the true loss is finite" in finite.why_this_number
    assert "finite" not in infinite.why_this_number


def test_a_small_stratum_at_rate_1_does_not_spoil_the_promise_of_the_others() -> None:
    homes = pl.concat([stratum((2, 2), (2, 2), 1), stratum((30, 30), (30, 30), 2)])
    found = plan(homes, "1/2", rates=[{"size": 1, "rate": 1}])
    assert found.epsilon == psa_sharp_epsilon(HALF, stratum=60)
    assert found.specification.budget.varies


REACHED = [
    (n, target)
    for n in (2, 3, 4, 5, 7, 10, 401, 402, 264_331)
    for target in ("3/10", "1", "3", "14")
    if exact(target) >= smallest_psa_epsilon(n, bound="sharp")
]


@pytest.mark.parametrize(("n", "target"), REACHED)
@pytest.mark.parametrize("high", [False, True])
def test_a_rate_for_a_target_loses_no_more_than_it_and_a_gentler_one_does(n: int, target: str, high: bool) -> None:
    epsilon = exact(target)
    rate = rate_not_above(epsilon, largest_stratum=n, high=high, bound="sharp")
    assert psa_sharp_epsilon(rate, stratum=n) <= epsilon
    beyond = rate + Fraction(1, 10**8) if high else rate - Fraction(1, 10**8)
    if 0 < beyond < 1:
        assert psa_sharp_epsilon(beyond, stratum=n) > epsilon


@pytest.mark.parametrize("n", [3, 4, 10, 100])
def test_no_rate_loses_less_than_the_smallest_sharp_loss(n: int) -> None:
    least, best = smallest_psa_epsilon(n, bound="sharp"), smallest_psa_rate(n, bound="sharp")
    around = [Fraction(round(float(best) * 1000) + step, 1000) for step in (-200, -20, -1, 0, 1, 20, 150)]
    losses = [psa_sharp_epsilon(rate, stratum=n) for rate in around if 0 < rate < 1]
    assert all(loss >= least for loss in losses)
    assert any(float(loss) - float(least) < 0.003 for loss in losses)


def test_for_ten_records_the_best_rate_is_three_quarters() -> None:
    """R1: 75.5% and 1.1250."""
    assert round(float(smallest_psa_rate(10, bound="sharp")), 3) == 0.755
    assert round(float(smallest_psa_epsilon(10, bound="sharp")), 4) == 1.1250
    assert float(psa_rates_for(exact("1.2"), largest_stratum=10, bound="sharp").low) < 0.755


@pytest.mark.parametrize("rate", ["1/100", "1/2", "9/10"])
def test_the_sharp_bound_never_falls_with_the_size_nor_exceeds_the_papers(rate: str) -> None:
    p = Fraction(rate)
    sizes = [*range(2, 60), 399, 400, 401, 402, 403, 1_000, 1_001]
    losses = [psa_sharp_epsilon(p, stratum=n) for n in sizes]
    assert all(a <= b for a, b in pairwise(losses))
    assert all(loss <= psa_epsilon(p, largest_stratum=n) for n, loss in zip(sizes, losses, strict=True))


# ---- by enumeration from the definition -----------------------------------------------------------------
# Nothing here calls the package but the budget itself: selections, derangements, tables and distances are listed.

Rows = tuple[tuple[int, int], ...]
RATES = [Fraction(1, 20), HALF, Fraction(7, 10), Fraction(19, 20)]


def sums_to(n: int, most: int) -> list[tuple[int, ...]]:
    if n == 0:
        return [()]
    return [(part, *rest) for part in range(min(n, most), 0, -1) for rest in sums_to(n - part, part)]


MARGINS = [(r, c) for n in range(2, 6) for r in sums_to(n, n) for c in sums_to(n, n) if len(r) > 1 < len(c)]


WHOLE = 396  # divided by the numbers of derangements of up to five records: 1, 1, 2, 9, 44


def spelled_out(margin: tuple[int, ...]) -> list[int]:
    return [value for value, many in enumerate(margin) for _ in range(many)]


def swapped(rows: Rows, rate: Fraction) -> Counter[Rows]:
    """Select each record with the rate, again if it is one alone; exchange along a derangement, all alike.

    The probabilities are in units of one over their sum, which is the same for all files of a size.
    """
    n = len(rows)
    chances: Counter[Rows] = Counter()
    for k in (k for k in range(n + 1) if k != 1):
        for selected in combinations(range(n), k):
            orders = [o for o in permutations(selected) if all(i != j for i, j in zip(selected, o, strict=True))]
            chance = rate.numerator**k * (rate.denominator - rate.numerator) ** (n - k) * WHOLE // len(orders)
            for order in orders:
                new = list(rows)
                for i, j in zip(selected, order, strict=True):
                    new[i] = (rows[i][0], rows[j][1])
                chances[tuple(sorted(new))] += chance
    return chances


def ratios(hold: tuple[int, ...], swap: tuple[int, ...], rate: Fraction) -> set[tuple[Fraction, int]]:
    """Return every ratio of the probabilities of one output from two files, with the distance of the files."""
    held = spelled_out(hold)
    files: set[Rows] = {tuple(sorted(zip(held, order, strict=True))) for order in permutations(spelled_out(swap))}
    laws = {file: swapped(file, rate) for file in files}
    assert len({law.total() for law in laws.values()}) == 1
    assert all(law.keys() == files for law in laws.values()), "no output gives a file away"
    found = set()
    for x, y in permutations(files, 2):
        apart = len(x) - (Counter(x) & Counter(y)).total()
        p, q = laws[x], laws[y]
        found |= {(p[output], q[output], apart) for output in files}
    return {(Fraction(p, q), apart) for p, q, apart in found}


def to_the_sixth(n: int, rate: Fraction) -> Fraction:
    """Return e to the power of six times R1, which is rational: sixth powers are compared exactly."""
    o = rate / (1 - rate)
    if n == 2:
        return max(o, 1 / o) ** 6
    if n == 3:
        return max(o**6, (2 / o) ** 3, 4 / o**6)
    few, many = (
        sum(all(i != j for i, j in enumerate(order)) for order in permutations(range(size))) for size in (n - 2, n)
    )
    return max((Fraction(many, few) / o**2) ** 3, o**6)


@pytest.mark.parametrize(
    ("rate", "most"),
    [
        *((rate, 4) for rate in RATES),
        (HALF, 5),
        *(pytest.param(rate, 5, marks=pytest.mark.slow) for rate in RATES if rate != HALF),
    ],
)
def test_the_definition_itself_never_exceeds_the_sharp_budget(rate: Fraction, most: int) -> None:
    """57 margins of two to five records: every file, every output, every pair; different values attain the budget."""
    assert len(MARGINS) == 57
    for n in range(2, 6):
        stated, derived = psa_sharp_epsilon(rate, stratum=n) * 6, ln(to_the_sixth(n, rate))
        assert stated <= derived <= stated
    for hold, swap in MARGINS:
        if (n := sum(hold)) > most:
            continue
        bound = to_the_sixth(n, rate)
        found = ratios(hold, swap, rate)
        assert all(ratio**6 <= bound**apart for ratio, apart in found)
        if len(hold) == len(swap) == n:
            assert any(ratio**6 == bound**apart for ratio, apart in found)
            if bound > 1:  # nine tenths of the budget are exceeded
                assert any(ratio**60 > bound ** (9 * apart) for ratio, apart in found)
