"""The expected squared error of published counts, estimated from the public file alone (R18)."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import permutations, product
from math import comb

import polars as pl
import pytest

from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap

DERANGEMENTS = (1, 0, 1, 2, 9, 44, 265)
CELL = ["county", "tenure"]


def estimated(rows: tuple[tuple[int, str, str], ...], rate: str) -> dict[tuple[str, str], float]:
    """The estimate of each cell, where these are the released records (size, county, tenure)."""
    homes = pl.DataFrame(rows, schema=["size", "county", "tenure"], orient="row")
    found = unswap(CELL, SwappedRelease.of(homes, match=["size"], swap=["county"], rate=rate))
    cells = found.table.select(CELL).rows()
    return dict(zip(cells, found.squared_error, strict=True))


def one_stratum(n: int, r: int, c: int, z: int) -> tuple[tuple[int, str, str], ...]:
    counts = {("A", "o"): z, ("B", "o"): r - z, ("A", "r"): c - z, ("B", "r"): n - r - c + z}
    return tuple((1, *cell) for cell, many in counts.items() for _ in range(many))


@pytest.mark.parametrize(
    ("n", "r", "c", "rate", "expected"),
    [
        (4, 2, 2, "1/2", (-5.481481, 3.518519, -5.481481)),
        (6, 3, 2, "1/10", (0.078722, 0.048991, 0.078722)),
    ],
)
def test_published_cases(n: int, r: int, c: int, rate: str, expected: tuple[float, ...]) -> None:
    found = [estimated(one_stratum(n, r, c, z), rate)["A", "o"] for z in range(3)]
    assert found == pytest.approx(expected, abs=1e-6)


def law(n: int, p: Fraction) -> dict[tuple[int, ...], Fraction]:
    """The probability of each permutation of n records: who moves is drawn anew if it is one alone."""
    alone = 1 - comb(n, 1) * p * (1 - p) ** (n - 1)
    found = {}
    for each in permutations(range(n)):
        moved = sum(place != own for own, place in enumerate(each))
        if moved != 1:
            found[each] = p**moved * (1 - p) ** (n - moved) / alone / DERANGEMENTS[moved]
    return found


@pytest.mark.parametrize("rate", ["1/10", "3/10"])
def test_it_is_unbiased_over_strata_that_are_added_up(rate: str) -> None:
    """Every outcome of two strata: the mean of the estimates is the expected squared error, cell by cell."""
    strata = [(1, "AABB", "oorr"), (2, "ABB", "orr")]
    truth = {cell: sum(c + t == "".join(cell) for _, a, b in strata for c, t in zip(a, b, strict=True))
             for cell in product("AB", "or")}  # fmt: skip
    outcomes: dict[tuple[tuple[int, str, str], ...], Fraction] = defaultdict(Fraction)
    laws = [law(len(counties), Fraction(rate)) for _, counties, _ in strata]
    for both in product(*(each.items() for each in laws)):
        rows = sorted(
            (size, counties[place], tenures[own])
            for (size, counties, tenures), (permutation, _) in zip(strata, both, strict=True)
            for own, place in enumerate(permutation)
        )
        outcomes[tuple(rows)] += both[0][1] * both[1][1]
    assert sum(outcomes.values()) == 1
    mean: dict[tuple[str, str], float] = defaultdict(float)
    error: dict[tuple[str, str], float] = defaultdict(float)
    for released, chance in outcomes.items():
        found = estimated(released, rate)
        for cell, true in truth.items():
            published = sum((county, tenure) == cell for _, county, tenure in released)
            mean[cell] += float(chance) * found[cell]
            error[cell] += float(chance) * (published - true) ** 2
    assert all(value > 0.01 for value in error.values())
    assert dict(mean) == pytest.approx(dict(error), rel=1e-7)
