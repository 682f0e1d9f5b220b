"""The best guess of a value, each record guessed from the others of its group: against plain counting."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.codes import Codes
from stirred.data.guessing import GuessTarget, spread, voted
from tests.depth import examples

Record = tuple[int, int, int]


def plain_share(records: list[Record], place: int, *, with_column: bool) -> float | None:
    """Return how likely one record is guessed right from the others that share its stratum, and its column."""
    stratum, column, value = records[place]
    others = [
        v for n, (s, c, v) in enumerate(records) if n != place and s == stratum and (c == column or not with_column)
    ]
    if not others:
        return None
    counts = Counter(others)
    best = [v for v, n in counts.items() if n == max(counts.values())]
    return 1 / len(best) if value in best else 0.0


def stratum_share(records: list[Record], stratum: int) -> float:
    """Return how many of a stratum are guessed right: midway between leaving a record out and counting it."""
    places = [place for place, record in enumerate(records) if record[0] == stratum]
    left_out = sum(plain_share(records, place, with_column=False) or 0.0 for place in places)
    counted = max(Counter(records[place][2] for place in places).values())
    return (left_out + counted) / 2 / len(places)


def plain(records: list[Record], *, with_column: bool) -> float:
    total = 0.0
    for place, (stratum, *_) in enumerate(records):
        share = plain_share(records, place, with_column=True) if with_column else None
        total += stratum_share(records, stratum) if share is None else share
    return total


def columns(records: list[Record]) -> tuple[Codes, Codes, Codes]:
    stratum, column, value = (np.array(each, dtype=np.uint32) for each in zip(*records, strict=True))
    return stratum, column, value


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=25))
def test_guesses_agree_with_plain_counting(records: list[Record]) -> None:
    stratum, column, value = columns(records)
    guess = GuessTarget.of(value, stratum).guessed(column)
    assert np.isclose(guess.right, plain(records, with_column=True))
    assert np.isclose(guess.without, plain(records, with_column=False))


def random_codes(size: int, values: int, seed: int) -> Codes:
    return np.random.default_rng(seed).integers(0, values, size).astype(np.uint32)


def test_columns_that_are_unrelated_tell_nothing_however_many_values_they_have() -> None:
    target = GuessTarget.of(random_codes(5_000, 12, 1), random_codes(5_000, 4, 2))
    for seed, values in enumerate((2, 50, 1_000, 5_000, 1_000_000), start=3):
        guess = target.guessed(random_codes(5_000, values, seed))
        assert abs(guess.removed) < 0.02
        assert not guess.telling


def test_a_column_that_is_right_for_most_records_tells_and_one_that_is_seldom_right_does_not() -> None:
    area = random_codes(5_000, 12, 1)
    luck = np.random.default_rng(2).random(5_000)
    for share, tells in ((0.96, True), (0.69, True), (0.30, False)):
        column = np.where(luck < share, area, random_codes(5_000, 12, 3)).astype(np.uint32)
        assert GuessTarget.of(area, np.zeros(5_000, dtype=np.uint32)).guessed(column).telling is tells


def test_a_dozen_records_are_too_few_to_say_anything() -> None:
    area = random_codes(12, 3, 1)
    target = GuessTarget.of(area, np.zeros(12, dtype=np.uint32))
    assert not target.guessed(area).telling
    assert not target.can_be_told


def test_rows_are_drawn_one_in_each_part_of_the_file() -> None:
    rows = spread(1_000_000, most=10_000)
    assert rows is not None
    assert (rows // 100 == np.arange(10_000)).all()
    inside = np.bincount(rows % 100, minlength=100)  # 100 of each expected, with a standard deviation of 10
    assert 50 < inside.min() < inside.max() < 150
    assert spread(500, most=500) is None
    short = spread(501, most=500)
    assert short is not None
    assert (np.diff(short) > 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_votes_are_those_of_plain_counting_and_their_bound_is_one(seed: int) -> None:
    """Households of one to many persons, sparse and dense groups, values that no other household has."""
    draw = np.random.default_rng(seed)
    homes, values, kinds = int(draw.integers(2, 120)), int(draw.integers(1, 12)), int(draw.integers(1, 90))
    house = np.sort(np.concatenate([np.arange(homes), draw.integers(0, homes, homes), np.zeros(9, dtype=int)]))
    target = GuessTarget.of(random_codes(homes, values, seed), random_codes(homes, 3, seed + 50))
    told = draw.random(house.size) < (0.3, 0.9)[seed % 2]
    column = np.where(told, target.codes[house], draw.integers(0, kinds, house.size)).astype(np.uint32)
    found = voted(target, house, column, with_strata=True)
    assert found.right == pytest.approx(slowly_voted(target, house.tolist(), column.tolist()))
    bound = voted(target, house, column, with_strata=True, exact=False)
    assert bound.telling == found.telling
    assert bound.right >= found.right - 1e-9


def slowly_voted(target: GuessTarget, house: list[int], column: list[int]) -> float:
    """Return how many households are right: each by what the other households of its groups say most often."""
    own, strata = target.codes.tolist(), target.strata.tolist()
    groups: dict[tuple[int, int], set[int]] = {}
    for home, kind in zip(house, column, strict=True):
        groups.setdefault((strata[home], kind), set()).add(home)
    weights: dict[int, Counter[int]] = {home: Counter() for home in range(len(own))}
    for home, kind in zip(house, column, strict=True):
        others = Counter(own[other] for other in groups[strata[home], kind] if other != home)
        if not others:
            continue
        most = max(others.values())
        # Among equals not the own value; of the others the largest code.
        first = [value for value, many in others.items() if many == most]
        said = max([value for value in first if value != own[home]] or first)
        alike = [value for value, stratum in zip(own, strata, strict=True) if stratum == strata[home]]
        usual = alike.count(said) / len(alike)
        weights[home][said] += np.log((most / usual + 2) / (sum(others.values()) + 2))
    right = 0.0
    for home, votes in weights.items():
        best = max(votes.values(), default=0)
        if best > 0:
            right += max(v for v, w in votes.items() if w == pytest.approx(best)) == own[home]
        else:
            right += target.share[strata[home]]
    return right


def test_a_million_records_take_less_than_a_second_for_a_column() -> None:
    target = GuessTarget.of(random_codes(1_000_000, 100, 1), random_codes(1_000_000, 300, 2))
    column = random_codes(1_000_000, 5_000, 3)
    began = time.process_time()
    target.guessed(column)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("noise", [0.02, 0.3, 0.5, 0.6, 0.9])
def test_a_bound_says_of_every_column_whether_it_tells(noise: float) -> None:
    random = np.random.default_rng(7)
    value, strata = (random.integers(0, most, 3_000).astype(np.uint32) for most in (6, 3))
    target = GuessTarget.of(value, strata)
    for values in (1, 4, 300):
        told = np.where(random.random(3_000) < noise, random.integers(0, 6, 3_000), value)
        column = (told * values + random.integers(0, values, 3_000)).astype(np.uint32)
        exact, bound = target.guessed(column), target.guessed(column, exact=False)
        assert bound.telling == exact.telling
        assert bound.right >= exact.right
        assert bound == exact or not exact.telling
