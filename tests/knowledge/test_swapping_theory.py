"""Cases of the swapping theory that no other test holds: the sharp budgets T1-T4, R1's table, R2, R3 and R4(b).

T6, T7, T10-T12, T14, T15 and R4(a) are in tests/mechanisms/records/laws/test_counting.py, T13 in test_promise.py,
T30-T32 in tests/paper/test_section_5_2.py and tests/spec/test_composition.py, and T33 in tests/utility/test_moments.py.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from stirred.mechanisms.records.laws.counting import Table, all_tables, distance, exact_loss, psa_weights
from stirred.spec.exact import Exact, exact, ln
from stirred.spec.swap_budget import psa_epsilon, psa_sharp_epsilon
from tests.mechanisms.records.oracles import permutations_by_moved

HALF = Fraction(1, 2)
SHARP = [
    ("T1 p=1/2", 2, "1/2", "0"),
    ("T1 p=1/10", 2, "1/10", "ln(9)"),
    ("T2 p=1/2", 3, "1/2", "1/2*ln(2)"),
    ("T2 p=1/10", 3, "1/10", "1/3*ln(2)+ln(9)"),  # 2.428274
    ("T3 p=1/2", 4, "1/2", "ln(3)"),
    ("T3 p=1/10", 4, "1/10", "ln(27)"),
    ("T4 n=5", 5, "1/2", "1/2*ln(22)"),
    ("T4 n=6", 6, "1/2", "1/2*ln(265/9)"),
    ("T4 n=8", 8, "1/2", "1/2*ln(14833/265)"),  # 2.012440
]


@pytest.mark.parametrize(("n", "rate", "expected"), [c[1:] for c in SHARP], ids=[c[0] for c in SHARP])
def test_the_sharp_budget_of_small_strata(n: int, rate: str, expected: str) -> None:
    sharp, wanted = psa_sharp_epsilon(Fraction(rate), stratum=n), Exact.parse(expected)
    assert not sharp < wanted
    assert not sharp > wanted


def test_the_decimals_printed_beside_the_sharp_budgets() -> None:
    """T2 and T4 give these as decimals; the expressions above must be the same numbers."""
    assert round(float(psa_sharp_epsilon(Fraction(1, 10), stratum=3)), 6) == 2.428274
    assert round(float(psa_sharp_epsilon(HALF, stratum=8)), 6) == 2.012440


@pytest.mark.parametrize(
    ("n", "sharp", "theorem"),
    [(2, 0.0, 1.0986), (3, 0.3466, 1.3863), (4, 1.0986, 1.6094), (10, 2.2499, 2.3979), (100, 4.6001, 4.6151)],
)
def test_the_gain_over_theorem_1_at_one_half(n: int, sharp: float, theorem: float) -> None:
    """The line below R1."""
    assert round(float(psa_sharp_epsilon(HALF, stratum=n)), 4) == sharp
    assert round(float(psa_epsilon(HALF, largest_stratum=n)), 4) == theorem


@pytest.mark.parametrize("rate", ["0", "1/10", "1/2", "1"])
def test_a_stratum_that_is_not_live_loses_nothing_at_any_rate(rate: str) -> None:
    """R3.5 and T11: two distinct records are not enough, both kinds of value must vary."""
    for hold, swap in (((4,), (1, 1, 1, 1)), ((1, 1, 1, 1), (4,)), ((2,), (1, 1))):
        assert exact_loss(hold, swap, rate).loss == 0


@pytest.mark.parametrize(
    ("hold", "swap"), [((1, 1), (1, 1)), ((2, 1), (2, 1)), ((3, 3), (2, 2, 2)), ((2, 2), (2, 1, 1))], ids=str
)
def test_end_points_of_live_strata(hold: tuple[int, ...], swap: tuple[int, ...]) -> None:
    """R2: infinite at 0; at 1 exactly where a hold value and a swap value both occur once."""
    assert exact_loss(hold, swap, Fraction(0)).loss.is_infinite
    assert exact_loss(hold, swap, Fraction(1)).loss.is_infinite == (1 in hold and 1 in swap)


def test_lemma_8_only_if_is_false_and_its_proof_of_the_if_fails() -> None:
    """R3.2. (F.1): no value occurs more than b/2 - 1 times."""
    first, second = all_tables((1, 1), (1, 1))  # 1 > 2/2 - 1: (F.1) does not hold
    assert distance(first, second) == 2
    assert permutations_by_moved(first, second)[2] == 1

    records = [(1, 1), (2, 2), (1, 2), (3, 3), (2, 1), (3, 3)]
    for place in (0, 1):
        assert max(Counter(record[place] for record in records).values()) <= len(records) / 2 - 1
    pairs = [*zip(records[::2], records[1::2], strict=True)]
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairs)
    swapped = Counter(new for a, b in pairs for new in ((a[0], b[1]), (b[0], a[1])))
    left = Counter(records) - swapped
    assert left.total() == 4  # the proof says 6


def one_swap_from(table: Table, a: int, b: int) -> Table:
    """One record of diagonal cell a and one of b exchange their swap values."""
    rows = [list(row) for row in table]
    rows[a][a], rows[b][b], rows[a][b], rows[b][a] = rows[a][a] - 1, rows[b][b] - 1, rows[a][b] + 1, rows[b][a] + 1
    return tuple(map(tuple, rows))


def test_a_universe_aware_bound_that_looks_right_is_false() -> None:
    """R4 (b): r = c = (16, 24, 24) at 1/2 loses at least 1.7814, not at most ln(1 + 64/16) = 1.6094.

    The loss of one triple, from the exact kernel: x diagonal, the first block kept and the others exchanged.
    """
    u = psa_weights(64, HALF)

    def chance(x: Table, t: Table) -> Fraction:
        return sum((w * m for w, m in zip(u, permutations_by_moved(x, t), strict=True)), Fraction(0))

    x, t = ((16, 0, 0), (0, 24, 0), (0, 0, 24)), ((16, 0, 0), (0, 0, 24), (0, 24, 0))
    other = one_swap_from(x, 0, 1)
    assert distance(x, other) == 2
    loss = ln(chance(x, t) / chance(other, t)) / 2
    assert exact("1.7813") < loss < exact("1.7815")
    assert loss > ln(5)
    assert loss <= psa_sharp_epsilon(HALF, stratum=64)
