"""The counting formula equals enumeration of all permutations, and gives the exact losses of the theory."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest

from stirred.mechanisms.records.laws.counting import Table, all_tables, count_tables, distance, exact_loss, psa_weights
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, ln
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import derangements, psa_epsilon, psa_sharp_epsilon
from tests.mechanisms.records.oracles import exact_kernel, permutations_by_moved, psa_law

HALF = Fraction(1, 2)


def margins_of(n: int, largest: int | None = None) -> list[tuple[int, ...]]:
    """All ways to write n as a sum, largest part first: margins up to the order of the values."""
    if n == 0:
        return [()]
    top = min(n, largest or n)
    return [(first, *rest) for first in range(top, 0, -1) for rest in margins_of(n - first, first)]


ALL_MARGINS = [(r, c) for n in range(1, 6) for r in margins_of(n) for c in margins_of(n)]


def records(table: Table) -> list[tuple[int, int]]:
    return [(h, s) for h, row in enumerate(table) for s, count in enumerate(row) for _ in range(count)]


def multiset(table: Table) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(records(table)))


def counts_by_listing(x: Table, t: Table) -> list[int]:
    rows, target = records(x), Counter(records(t))
    found = [0] * (len(rows) + 1)
    for sigma in permutations(range(len(rows))):
        if Counter((rows[i][0], rows[j][1]) for i, j in enumerate(sigma)) == target:
            found[sum(i != j for i, j in enumerate(sigma))] += 1
    return found


@pytest.mark.parametrize(("hold", "swap"), [m for m in ALL_MARGINS if sum(m[0]) < 5], ids=str)
def test_permutations_are_counted_as_listing_them_does(hold: tuple[int, ...], swap: tuple[int, ...]) -> None:
    tables = all_tables(hold, swap)
    for x in tables:
        for t in tables:
            assert permutations_by_moved(x, t) == counts_by_listing(x, t)


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 10), HALF, Fraction(9, 10), Fraction(1)], ids=str)
def test_the_kernel_is_the_law_found_by_enumeration_for_all_margins_up_to_five_records(rate: Fraction) -> None:
    for hold, swap in ALL_MARGINS:
        tables = all_tables(hold, swap)
        if len(tables) > 30 and rate != HALF:
            continue
        kernel = exact_kernel(hold, swap, psa_weights(sum(hold), rate))
        for x in tables[:3]:
            law = psa_law(records(x), rate=rate)
            assert {multiset(t): kernel[x][t] for t in tables if kernel[x][t]} == dict(law.probabilities)


@pytest.mark.parametrize("rate", [Fraction(1, 10), HALF, Fraction(9, 10), Fraction(1)], ids=str)
def test_the_loss_is_the_largest_ratio_over_all_pairs_and_outputs(rate: Fraction) -> None:
    """Slow obvious code as the oracle: every pair, every output, exact comparison."""
    for hold, swap in ALL_MARGINS:
        tables = all_tables(hold, swap)
        if len(tables) > 12:
            continue
        kernel = exact_kernel(hold, swap, psa_weights(sum(hold), rate))
        worst = ZERO
        for x, y in permutations(tables, 2):
            for t in tables:
                p, q = kernel[x][t], kernel[y][t]
                here = INFINITE if p and not q else ln(p / q) / exact(distance(x, y)) if p and q else ZERO
                worst = here if here > worst else worst
        found = exact_loss(hold, swap, rate)
        assert not found.loss < worst
        assert not found.loss > worst
        if found.witness is not None:
            w = found.witness
            assert w.probabilities == (kernel[w.table][w.output], kernel[w.other][w.output])


CASES = [
    ("T6", (2, 1), (2, 1), "1/2", "1/2*ln(4/3)"),
    ("T7a", (3, 1), (3, 1), "1/2", "1/2*ln(15/7)"),
    ("T7b", (2, 2), (2, 2), "1/2", "1/2*ln(19/4)"),
    ("T7c", (2, 1, 1), (2, 1, 1), "1/2", "1/2*ln(27/4)"),
    ("T10a", (5, 1), (5, 1), "1/2", "1/2*ln(135/31)"),
    ("T10b", (5, 1), (3, 3), "1/2", "1/2*ln(197/93)"),
    ("T11", (4,), (1, 1, 1, 1), "1/2", "0"),
    ("T11 p=0", (4,), (1, 1, 1, 1), "0", "0"),
    ("T11 p=1", (4,), (1, 1, 1, 1), "1", "0"),
    ("T12a", (1, 1), (1, 1), "1", "inf"),
    ("T12b", (2, 2), (2, 2), "1", "1/2*ln(4)"),
    ("T12c", (3, 1), (2, 2), "1", "1/2*ln(2)"),
    ("R2 (3,2)", (3, 2), (3, 2), "1", "1/2*ln(8/3)"),
    ("R2 (3,3)", (3, 3), (3, 3), "1", "1/2*ln(9/4)"),
    ("R2 p=0", (2, 1), (2, 1), "0", "inf"),
    ("T14, R3.3", (3, 3, 1, 1), (2, 2, 2, 1, 1), "1/2", "1/2*ln(774124001/20989012)"),
    ("T15 R_4", (2, 2), (2, 2), "1/2", "1/2*ln(19/4)"),
]


@pytest.mark.parametrize(("hold", "swap", "rate", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_exact_losses_of_the_theory(hold: tuple[int, ...], swap: tuple[int, ...], rate: str, expected: str) -> None:
    assert exact_loss(hold, swap, rate).loss == Exact.parse(expected)


def test_the_counterexample_to_proposition_9_loses_less_than_it_claims() -> None:
    """R3.3: the margins meet both conditions of the proposition with b = 8; its value would be 2.01244."""
    found = exact_loss((3, 3, 1, 1), (2, 2, 2, 1, 1), HALF)
    assert found.tables == count_tables((3, 3, 1, 1), (2, 2, 2, 1, 1)) == 248
    assert found.loss < psa_sharp_epsilon(HALF, stratum=8)


def test_the_exact_loss_of_forty_balanced_records() -> None:
    """T15: 1.0760264, while Theorem 1 says 3.7136."""
    loss = exact_loss((20, 20), (20, 20), HALF).loss
    assert round(float(loss), 7) == 1.0760264
    assert loss < psa_epsilon(HALF, largest_stratum=40)


@pytest.mark.parametrize("rate", ["1/20", "1/4", "1/2", "7/10", "9/10", "19/20"])
def test_no_stratum_up_to_five_records_exceeds_the_sharp_budget_and_singletons_attain_it(rate: str) -> None:
    p = Fraction(rate)
    for hold, swap in ALL_MARGINS:
        live = len(hold) > 1 and len(swap) > 1
        assert exact_loss(hold, swap, p).loss <= psa_sharp_epsilon(p, stratum=sum(hold) if live else 0)
    for n in (2, 3, 4, 5):
        attained, sharp = exact_loss((1,) * n, (1,) * n, p).loss, psa_sharp_epsilon(p, stratum=n)
        assert not attained < sharp


def test_every_value_single_is_not_needed_to_attain_the_sharp_budget() -> None:
    """R1: (2,2,1,1) twice, where two records are forced to stay and all others to move."""
    assert exact_loss((2, 2, 1, 1), (2, 2, 1, 1), HALF).loss == psa_sharp_epsilon(HALF, stratum=6)


@pytest.mark.parametrize(("hold", "swap"), [m for m in ALL_MARGINS if sum(m[0]) > 1], ids=str)
def test_at_rate_one_the_loss_is_infinite_only_with_a_single_hold_and_a_single_swap_value(
    hold: tuple[int, ...], swap: tuple[int, ...]
) -> None:
    """R2 (b); a stratum with one table loses nothing."""
    infinite = exact_loss(hold, swap, Fraction(1)).loss.is_infinite
    live = len(hold) > 1 and len(swap) > 1
    assert infinite == (live and 1 in hold and 1 in swap)
    assert exact_loss(hold, swap, Fraction(0)).loss.is_infinite == live


def test_the_order_of_the_values_does_not_change_the_loss() -> None:
    assert exact_loss((1, 3, 2), (2, 1, 3), "1/3").loss == exact_loss((3, 2, 1), (3, 2, 1), "1/3").loss
    assert exact_loss((3, 2), (2, 2, 1), "1/3").loss == exact_loss((2, 2, 1), (3, 2), "1/3").loss


@pytest.mark.parametrize("rate", ["1/20", "1/4", "1/2", "7/10"])
@pytest.mark.parametrize("n", [4, 6, 8, 12])
def test_balanced_two_by_two_strata_lose_half_the_logarithm_of_a_closed_form(n: int, rate: str) -> None:
    """R4 (a): proven as a lower bound, and equal in every case computed; 19/4 for n = 4 at 1/2 (T15)."""
    p = Fraction(rate)
    o, share, d = p / (1 - p), 1 - Fraction(2, n), derangements
    ratio = share**2 + Fraction(4, n) * share * d(n) / (o * d(n - 1)) + Fraction(4, n**2) * d(n) / (o**2 * d(n - 2))
    assert exact_loss((n // 2, n // 2), (n // 2, n // 2), p).loss == ln(ratio) / 2


def test_two_records_can_be_completely_exchanged_although_lemma_8_says_not() -> None:
    """R3.2: margins (1,1) twice violate condition (F.1), yet both tables differ in both records."""
    first, second = all_tables((1, 1), (1, 1))
    assert distance(first, second) == 2
    assert permutations_by_moved(first, second) == [0, 0, 1]


@pytest.mark.slow
def test_a_universe_of_five_hundred_tables_and_twenty_records() -> None:
    found = exact_loss((7, 7, 6), (7, 7, 6), HALF)
    assert found.tables == 546
    assert found.loss <= psa_sharp_epsilon(HALF, stratum=20)


@pytest.mark.parametrize(
    ("hold", "swap", "message"),
    [
        ((2, 1), (2, 2), "the hold margin counts 3 records and the swap margin 4"),
        ((2, 0), (1, 1), "2, 0 is not a margin"),
        ((), (1,), "nothing is not a margin"),
        ((10,) * 5, (10,) * 5, "would take too long"),
    ],
)
def test_impossible_margins_are_explained(hold: tuple[int, ...], swap: tuple[int, ...], message: str) -> None:
    with pytest.raises(StirredError, match=message):
        exact_loss(hold, swap, HALF)
