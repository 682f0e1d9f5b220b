"""What columns tell, against cases with known answers, exact enumeration, and slow guessing."""

from collections import Counter
from fractions import Fraction
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.microdata import Microdata
from stirred.risk.column_guesses import column_guesses, guessed_shares, shuffled
from tests.depth import examples


def codes(text: str) -> np.ndarray:
    return np.array([ord(each) - 48 for each in text], dtype=np.uint32)


@pytest.mark.parametrize(
    ("column", "target", "right", "blind", "kappa", "tau"),
    [("aaabbc", "112221", 1 / 2, 1 / 2, 0, 1 / 3), ("aaaabbbbcc", "1112222213", 0.7, 0.5, 0.4, 11 / 29)],
)
def test_small_cases_have_their_exact_answers(
    column: str, target: str, right: float, blind: float, kappa: float, tau: float
) -> None:
    found = guessed_shares(codes(column), codes(target), np.zeros(len(column), dtype=np.uint32))
    assert found[:3] == pytest.approx((right, blind, tau))
    assert max(0, (found[0] - found[1]) / (1 - found[1])) == pytest.approx(kappa)


def slowly(column: list[int], target: list[int], strata: list[int]) -> Fraction:
    """Guess every unit by the others of its class, or of its stratum, one by one."""
    right = Fraction(0)
    for i, own in enumerate(zip(strata, column, strict=True)):
        stratum = [j for j in range(len(target)) if j != i and strata[j] == own[0]]
        others = [target[j] for j in stratum if column[j] == own[1]] or [target[j] for j in stratum]
        counted = Counter(others)
        best = [value for value, n in counted.items() if n == max(counted.values())]
        right += Fraction(target[i] in best, max(len(best), 1))
    return right / len(target)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), min_size=2, max_size=20))
@settings(max_examples=examples(200), deadline=None)
def test_the_share_guessed_right_is_that_of_slow_guessing(rows: list[tuple[int, int, int]]) -> None:
    column, target, strata = (list(each) for each in zip(*rows, strict=True))
    found = guessed_shares(*(np.array(each, dtype=np.uint32) for each in (column, target, strata)))
    assert found[0] == pytest.approx(float(slowly(column, target, strata)))


def test_two_of_a_class_agree_as_often_as_any_two_on_average_over_all_permutations() -> None:
    column, strata = codes("001122"), np.zeros(6, dtype=np.uint32)
    taus = [
        guessed_shares(column, np.array(each, dtype=np.uint32), strata)[2] for each in permutations([0, 0, 0, 1, 1, 2])
    ]
    assert np.mean([0.0 if tau is None else tau for tau in taus]) == pytest.approx(0, abs=1e-12)


def test_a_shuffled_target_keeps_its_counts_in_every_stratum() -> None:
    draw = np.random.default_rng(1)
    strata, target = (draw.integers(0, 4, 500).astype(np.uint32) for _ in range(2))
    mixed = shuffled(target, strata)
    assert Counter(zip(strata.tolist(), mixed.tolist(), strict=True)) == Counter(
        zip(strata.tolist(), target.tolist(), strict=True)
    )
    assert (mixed != target).mean() > 0.5


def test_a_unique_column_and_one_by_chance_tell_nothing_and_a_name_does() -> None:
    draw = np.random.default_rng(2)
    state = draw.integers(0, 20, 4_000)
    homes = pl.DataFrame(
        {
            "state": state,
            "number": np.arange(4_000),
            "chance": draw.integers(0, 2_000, 4_000),
            "utility": np.where(draw.random(4_000) < 0.2, draw.integers(0, 20, 4_000), state) * 7 + draw.integers(0, 7),
        }
    )
    found = {
        each.columns: each
        for each in column_guesses(
            Microdata(households=homes), targets=["state"], match=[], columns=["number", "chance", "utility"]
        )
    }
    assert {columns for columns, each in found.items() if each.tells and len(columns) == 1} == {("utility",)}
    assert found[("number",)].tau is None
    assert found[("utility",)].right == pytest.approx(0.81, abs=0.05)


def test_housemates_do_not_tell_each_other() -> None:
    """A surname that only one household has tells nothing of its county, however many persons bear it."""
    draw = np.random.default_rng(3)
    homes = pl.DataFrame({"hid": np.arange(600), "county": draw.integers(0, 5, 600)})
    persons = pl.DataFrame({"hid": np.repeat(np.arange(600), 3), "surname": np.repeat(np.arange(600), 3)})
    work = homes["county"].gather(persons["hid"])
    data = Microdata(households=homes, persons=persons.with_columns(work=work), hid="hid")
    found = column_guesses(data, targets=["county"], match=[], columns=["surname", "work"])
    assert {each.columns: each.tells for each in found if len(each.columns) == 1} == {
        ("surname",): False,
        ("work",): True,
    }


def test_a_column_of_households_and_one_of_persons_tell_together() -> None:
    """The county is the sum of both, modulo 5: each alone tells nothing."""
    draw = np.random.default_rng(5)
    zone, work = draw.integers(0, 5, 1_500), draw.integers(0, 5, 1_500)
    homes = pl.DataFrame({"hid": np.arange(1_500), "zone": zone, "size": draw.integers(1, 4, 1_500)})
    homes = homes.with_columns(county=pl.Series((zone + work) % 5))
    persons = pl.DataFrame({"hid": np.arange(1_500), "work": work, "sex": draw.integers(1, 3, 1_500)})
    data = Microdata(households=homes, persons=persons, hid="hid")
    found = column_guesses(data, targets=["county"], match=[], columns=["zone", "size", "work", "sex"])
    assert [each.columns for each in found if each.tells] == [("zone", "work")]
    assert found[0].right > 0.99
