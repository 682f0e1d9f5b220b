"""Which records a counted swap picks, given how many: every choice is equally likely. False alarms: 1e-6 each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stirred.mechanisms.records.kernels import counted
from stirred.mechanisms.records.kernels.counted import swap_counted_in_place
from stirred.randomness.entropy import Entropy

PValue = Callable[..., float]
FALSE_ALARM = 1e-6

# As it is; fewer candidates than needed in half of the cells; and hardly more than needed.
MARGINS = [(counted._SPREADS, counted._SPARE), (0, 0), (1, 0)]


@dataclass
class Given:
    """Numbers that a test dictates; all selected records move, so that they can be told."""

    need: tuple[int, ...]
    by_value: bool
    derange: bool = True

    def draw(self, values: Any, counts: Any, words: Any) -> npt.NDArray[np.int64]:
        return np.array(self.need)


def moved(column: list[int], counting: Given, *, strata: int, seed: str) -> npt.NDArray[np.bool_]:
    """Return which records of each stratum have another swap code after the swap; all strata hold the same column."""
    swap = np.repeat(np.array(column, dtype=np.uint32), strata)
    stratum = np.tile(np.arange(strata, dtype=np.uint32), len(column))
    before = swap.copy()
    entropy = Entropy.from_seed(seed)
    swap_counted_in_place(
        stratum, swap, strata=strata, values=max(column) + 1, counting=counting, entropy=entropy, threads=2
    )
    return (swap != before).reshape(len(column), strata).T


def first_come(kinds: Any, have: Any, need: Any, reader: Any) -> npt.NDArray[np.uint32]:
    """A near miss: of the candidates of each kind, those that come first."""
    del have, reader
    left = need.astype(np.int64)
    places = []
    for place, kind in enumerate(kinds.tolist()):
        if left[kind] > 0:
            left[kind] -= 1
            places.append(place)
    return np.array(places, dtype=np.uint32)


def pairs_fit(seed: str, p_value: PValue) -> float:
    """One of 24 records of value 0 and one of 16 of value 1: 384 pairs."""
    column = [0, 0, 0, 1, 1] * 8
    rows = moved(column, Given((1, 1), by_value=True), strata=12_000, seed=seed)
    assert (rows.sum(axis=1) == 2).all()
    values = np.array(column, dtype=bool)
    pairs = rows[:, ~values].argmax(axis=1) * 16 + rows[:, values].argmax(axis=1)
    return p_value(np.bincount(pairs, minlength=384), [Fraction(1, 384)] * 384)


def hypergeometric_fit(seed: str, p_value: PValue) -> float:
    """30 of 300 records: how many of them lie among the first 100."""
    rows = moved(list(range(300)), Given((30,), by_value=False), strata=4_000, seed=seed)
    assert (rows.sum(axis=1) == 30).all()
    early = np.bincount(rows[:, :100].sum(axis=1), minlength=31)
    return p_value(early, [Fraction(comb(100, k) * comb(200, 30 - k), comb(300, 30)) for k in range(31)])


def use_margin(monkeypatch: pytest.MonkeyPatch, spreads: int, spare: int) -> None:
    monkeypatch.setattr(counted, "_SPREADS", spreads)
    monkeypatch.setattr(counted, "_SPARE", spare)


@pytest.mark.parametrize("fit", [pairs_fit, hypergeometric_fit])
@pytest.mark.parametrize(("spreads", "spare"), MARGINS)
def test_every_choice_is_equally_likely_whatever_the_candidates(
    fit: Callable[[str, PValue], float], spreads: int, spare: int, monkeypatch: pytest.MonkeyPatch, p_value: PValue
) -> None:
    use_margin(monkeypatch, spreads, spare)
    assert fit(f"{spreads} {spare}", p_value) > FALSE_ALARM


@pytest.mark.parametrize("fit", [pairs_fit, hypergeometric_fit])
@pytest.mark.parametrize(("spreads", "spare"), MARGINS)
def test_taking_the_first_candidates_is_caught(
    fit: Callable[[str, PValue], float], spreads: int, spare: int, monkeypatch: pytest.MonkeyPatch, p_value: PValue
) -> None:
    """Power: the same candidates without the last draw."""
    use_margin(monkeypatch, spreads, spare)
    monkeypatch.setattr(counted, "_choose", first_come)
    assert fit("near", p_value) < FALSE_ALARM


def test_a_fixed_number_of_early_records_is_caught_too(p_value: PValue) -> None:
    """Power: independent selection has the right mean and a variance that is wrong by a tenth."""
    early = np.bincount(np.random.default_rng(2).binomial(100, 0.1, 4_000), minlength=31)[:31]
    law = [Fraction(comb(100, k) * comb(200, 30 - k), comb(300, 30)) for k in range(31)]
    assert p_value(early, law) < FALSE_ALARM
