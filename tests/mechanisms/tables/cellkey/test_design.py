"""Designed perturbation tables: exact to their constraints, or refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.problems import PlanError
from stirred.mechanisms.tables.cellkey.design import design_ptable
from tests.depth import examples

F = Fraction
CLOSE = 1e-6  # what the package prints; its solver is off by up to 3e-8


def laws(**how: Any) -> list[list[float]]:
    return [[*row] for row in design_ptable(**how).probabilities]


@pytest.mark.parametrize(
    ("how", "row", "expected"),
    [
        # T1 to T5 and T9 of traditional methods: printed by the package or solved by two routes.
        ({"D": 2, "V": F(1)}, 2, [0.063827, 0.244691, 0.382963, 0.244691, 0.063827]),
        ({"D": 2, "V": F("0.9")}, 1, [29 / 80, 29 / 80, 3 / 16, 7 / 80]),
        ({"D": 2, "V": F("0.9")}, 2, [0.051546, 0.243816, 0.409277, 0.243816, 0.051546]),
        ({"D": 2, "V": F("1.05"), "js": 1}, 1, [61 / 120, 19 / 40, 1 / 60]),
        ({"D": 2, "V": F("1.05"), "js": 1}, 2, [0.161558, 0.555650, 0.242466, 0.040325]),
        ({"D": 2, "V": F("1.05"), "js": 1, "mono": [True, True, False, True]}, 3,
         [0.412313, 0.288061, 0.186939, 0.112687]),
        ({"D": 2, "V": F("1.05"), "js": 1}, 4, [0.070125, 0.244500, 0.370750, 0.244500, 0.070125]),
        ({"D": 5, "V": F(3), "js": 2}, 1, [0.734470, 0.136720, 0.072796, 0.037430, 0.018584]),
        ({"D": 5, "V": F(3), "js": 2}, 3, [0.203986, 0.393663, 0.247492, 0.110568, 0.035102, 0.007919, 0.001269]),
        ({"D": 5, "V": F(3), "js": 2}, 4,
         [0.084855, 0.277921, 0.277921, 0.189394, 0.105125, 0.045455, 0.015311, 0.004017]),
        ({"D": 4, "V": F(1), "pstay": [F(1, 2)]}, 1, [0.314908, 0.5, 0.100086, 0.050666, 0.023872, 0.010469]),
        ({"D": 4, "V": F(1), "pstay": [F(1, 2)]}, 4,
         [0.000576, 0.008477, 0.057846, 0.183100, 0.5, 0.183100, 0.057846, 0.008477, 0.000576]),
        ({"D": 2, "V": F(1)}, 1, [3 / 8, 3 / 8, 1 / 8, 1 / 8]),  # T8
        ({"D": 2, "V": F(1), "step": 2}, 2,
         [0.039764, 0.077533, 0.124919, 0.166308, 0.182954, 0.166308, 0.124919, 0.077533, 0.039764]),
        ({"D": 4, "V": F("1.5")}, 1, [0.403799, 0.403799, 0.081789, 0.043854, 0.032736, 0.034023]),
    ],
)  # fmt: skip
def test_a_row_is_the_law_of_largest_entropy(how: dict[str, Any], row: int, expected: list[float]) -> None:
    assert laws(**how)[row - 1] == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize(
    ("D", "mono", "largest"),
    [
        (2, True, 0.931884), (3, True, 1.107278), (4, True, 1.224970), (5, True, 1.302474),
        (2, False, 1.082012), (3, False, 1.373183), (4, False, 1.578488), (5, False, 1.721491),
    ],
)  # fmt: skip
def test_a_variance_above_that_of_largest_entropy_is_noted(D: int, mono: bool, largest: float) -> None:
    """The R package ptable misses such a variance and stays at the largest one."""
    notes = [design_ptable(D=D, V=F(round(largest * 100) + more, 100), mono=[mono]).notes for more in (-2, 2)]
    assert not any("count 1:" in note for note in notes[0])
    assert f"is above {largest:.6f}" in notes[1][0]


def test_a_variance_that_no_whole_keys_have_is_said_to_be_missed() -> None:
    # Mean 0, variance 3/5 and pstay 1/2 leave one law for a count of 1 and D = 2, with p(2) = 1/30.
    designed = design_ptable(D=2, V=F(3, 5), pstay=[F(1, 2)])
    assert designed.probabilities[0][3] == pytest.approx(1 / 30, abs=1e-12)
    assert designed.table.variance(1) == F(30_000_001, 50_000_000)
    told = "no whole numbers of 100,000,000 keys have variance 3/5; it is 0.60000002"
    assert designed.notes == (f"count 1: {told}", f"count 2: {told}")
    assert not design_ptable(D=2, V=F(3, 5), pstay=[F(1, 2)], keys=300_000_000).notes


def test_a_probability_to_stay_that_no_whole_keys_have_is_said_to_be_missed() -> None:
    found = design_ptable(D=3, V=F(1, 2), pstay=[F(2, 3)], keys=1000)
    assert any("count 3: no whole number of 1,000 keys is 2/3 of them; it stays with 0.66" in n for n in found.notes)
    assert all(found.table.bias(count) == 0 for count in (1, 2, 3))


def test_whole_keys_are_the_nearest_ones_with_mean_zero() -> None:
    # T10, against all combinations of whole numbers nearby.
    table = design_ptable(D=2, V=F("0.9"), keys=256).table
    assert table.rows[0].weights == (93, 93, 47, 23)
    assert table.rows[1].weights == (13, 63, 104, 63, 13)
    assert (table.variance(1), table.variance(2)) == (F(29, 32), F(115, 128))
    wanted = np.array([29 / 80, 29 / 80, 3 / 16, 7 / 80]) * 256
    near = [range(int(x) - 4, int(x) + 6) for x in wanted]
    best = min(
        (float(((np.array(c) - wanted) ** 2).sum()), c)
        for c in product(*near)
        if sum(c) == 256 and -c[0] + c[2] + 2 * c[3] == 0 and c[0] <= c[1]
    )
    assert best[1] == table.rows[0].weights


@settings(max_examples=examples(36), deadline=None)
@given(
    D=st.integers(2, 6),
    hundredths=st.integers(60, 120),
    tenths=st.integers(2, 6),
    with_stay=st.booleans(),
)
def test_bias_variance_and_pstay_of_a_designed_table_are_exact(
    D: int, hundredths: int, tenths: int, with_stay: bool
) -> None:
    V, stay = F(hundredths, 100), F(tenths, 10)
    try:
        designed = design_ptable(D=D, V=V, pstay=[stay if with_stay else None])
    except PlanError:
        return  # no such law: refused, not approximated
    table = designed.table
    for row in table.rows:
        assert table.bias(row.count) == 0
        if D > 2 or not with_stay:
            assert table.variance(row.count) == V
        else:  # squares of 1 and 2 are both 1 modulo 3: no whole keys may have this variance, and then the row says so
            off = abs(table.variance(row.count) - V)
            assert off <= F(6, table.keys)
            told = any(f"count {row.count}: no whole numbers" in note for note in designed.notes)
            assert told == (off > 0)
        assert not with_stay or table.pstay(row.count) == stay
        assert min(row.weights) >= 1
        assert row.count + min(row.values) >= 0


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"D": 5, "V": F(3), "js": 3}, "no noise of mean 0 has variance 3"),
        ({"D": 2, "V": F(5)}, "no noise of mean 0 has variance 5"),
        ({"D": 0, "V": F(1)}, "make no table"),
        (
            {"D": 2, "V": F(1), "pstay": [F(9, 10)]},
            "stays with probability 9/10 exists on these values, rising",
        ),
        ({"D": 3, "V": F(2)}, "or probabilities that need not rise: --mono no"),
        ({"D": 5, "V": F(2), "keys": 3}, "3 keys are too few"),
    ],
)
def test_what_cannot_be_met_is_refused(how: dict[str, Any], what: str) -> None:
    with pytest.raises(PlanError, match=what.replace("(", r"\(")):
        design_ptable(**how)


def test_a_variance_above_that_of_largest_entropy_is_met_and_noted() -> None:
    designed = design_ptable(D=4, V=F("1.5"))
    assert designed.table.variance(1) == F(3, 2)
    assert designed.notes == (
        "count 1: V 1.5 is above 1.224970, the variance of largest entropy: the right tail is heavier than needed",
    )


def test_a_variance_that_only_the_nearest_values_have_is_refused_and_not_approximated() -> None:
    """V = 1 - pstay leaves nothing for values beyond 1, and every possible value gets at least one key."""
    with pytest.raises(PlanError, match="no whole numbers of 100,000,000 keys have this variance"):
        design_ptable(D=4, V=F(3, 5), pstay=[F(2, 5)])


def test_a_long_row_is_made_whole_by_its_largest_numbers_and_stays_exact() -> None:
    table = design_ptable(D=8, V=Fraction(3)).table
    assert {(table.bias(i), table.variance(i)) for i in range(1, 9)} == {(Fraction(0), Fraction(3))}
    assert len(table.rows[-1].values) == 17


def test_a_table_that_would_take_hours_and_one_without_a_gap_are_refused_in_plain_words() -> None:
    with pytest.raises(PlanError, match=r"\(2 D \+ js\) step up to 80"):
        design_ptable(D=200, V=Fraction(3))
    with pytest.raises(PlanError, match=r"on values up to 2 away\. Fix"):
        design_ptable(D=2, V=Fraction(9))
