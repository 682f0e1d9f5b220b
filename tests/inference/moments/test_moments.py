"""Mean and variance of a swapped cell in closed form (R18), against enumeration of the exact law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.inference.swap_moments import swapped_cell
from tests.depth import examples
from tests.mechanisms.records.oracles import psa_law

UNIVERSES = [("ab", "xy"), ("aab", "xyy"), ("aabb", "xxyy"), ("aabc", "xyyz"), ("aaabb", "xxyyz"), ("aaabbb", "xxyyzz")]
RATES = [Fraction(text) for text in ("1/10", "1/2", "9/10", "1")]


def exact_moments(records: list[tuple[str, str]], cell: tuple[str, str], rate: Fraction) -> tuple[Fraction, Fraction]:
    law = psa_law(records, rate=rate)
    mean = sum((law[table] * table.count(cell) for table in law), Fraction(0))  # type: ignore[attr-defined]
    square = sum((law[table] * table.count(cell) ** 2 for table in law), Fraction(0))  # type: ignore[attr-defined]
    return mean, square - mean**2


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_closed_form_equals_enumeration_in_every_cell(hold: str, swap: str, rate: Fraction) -> None:
    for arranged in (swap, swap[::-1], swap[1:] + swap[:1]):
        records = list(zip(hold, arranged, strict=True))
        for cell in sorted({(h, s) for h in hold for s in swap}):
            mean, variance = exact_moments(records, cell, rate)
            found = swapped_cell(
                records.count(cell), hold=hold.count(cell[0]), swap=swap.count(cell[1]), stratum=len(records), rate=rate
            )
            assert found.mean == pytest.approx(float(mean), abs=1e-9)
            assert found.variance == pytest.approx(float(variance), abs=1e-9)


@settings(deadline=None, max_examples=examples(40))
@given(
    records=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=2, max_size=5),
    rate=st.fractions(Fraction(1, 50), 1, max_denominator=50),
)
def test_the_closed_form_equals_enumeration_for_any_small_table(records: list[tuple[str, str]], rate: Fraction) -> None:
    cell = records[0]
    mean, variance = exact_moments(records, cell, rate)
    found = swapped_cell(
        records.count(cell),
        hold=sum(h == cell[0] for h, _ in records),
        swap=sum(s == cell[1] for _, s in records),
        stratum=len(records),
        rate=rate,
    )
    assert found.mean == pytest.approx(float(mean), abs=1e-9)
    assert found.variance == pytest.approx(float(variance), abs=1e-9)


def test_t33_of_the_swapping_theory() -> None:
    """n = 4, r = c = 2, X = 2, p = 1/2: mean 11/9 and variance 20/81."""
    found = swapped_cell(2, hold=2, swap=2, stratum=4, rate=Fraction(1, 2))
    assert found.mean == pytest.approx(11 / 9, abs=1e-12)
    assert found.variance == pytest.approx(20 / 81, abs=1e-12)


@pytest.mark.parametrize(
    ("county", "owned", "total", "mean", "sd"),
    [
        ("Barnstable", 7461, 11286, "5879.4", "46.5"),
        ("Dukes", 1207, 1741, "935.0", "18.4"),
        ("Norfolk", 44885, 85170, "38659.2", "120.7"),
        ("Suffolk", 49656, 226209, "67899.0", "175.5"),
    ],
)
def test_massachusetts_as_one_stratum_has_the_moments_of_the_swapping_theory(
    county: str, owned: int, total: int, mean: str, sd: str
) -> None:
    """R18, the numbers beside Table 1; 435,805 homes of 1,144,424 are owned."""
    found = swapped_cell(owned, hold=435_805, swap=total, stratum=1_144_424, rate=Fraction(1, 2))
    assert f"{found.mean:.1f}" == mean, county
    assert found.sd == pytest.approx(float(sd), abs=0.06), county  # printed from the large-n form


@pytest.mark.parametrize("stratum", [1, 2, 3, 1000])
def test_at_rate_0_and_alone_nothing_changes(stratum: int) -> None:
    found = swapped_cell(1, hold=1, swap=1, stratum=stratum, rate=Fraction(0))
    assert (found.mean, found.variance, found.sd) == (1.0, 0.0, 0.0)
    assert swapped_cell(1, hold=1, swap=1, stratum=1, rate=Fraction(1, 2)).mean == 1.0


@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 2), Fraction(99, 100)])
def test_cells_of_a_row_add_up_to_their_margin(rate: Fraction) -> None:
    """Sums of means over the swap values of one hold value are the hold margin, also for large strata."""
    cells, swaps = [300, 20, 1, 4000], [900, 5000, 1, 9000]
    means = [
        swapped_cell(x, hold=sum(cells), swap=c, stratum=sum(swaps), rate=rate).mean
        for x, c in zip(cells, swaps, strict=True)
    ]
    assert math.fsum(means) == pytest.approx(sum(cells), rel=1e-12)


def test_the_closed_form_meets_a_simulation_of_a_middling_stratum() -> None:
    """Where enumeration is out of reach: 200 records, 4,000 swaps in one call, five standard errors."""
    import polars as pl

    from stirred import Entropy, PermutationSwap

    copies, n, rate = 4_000, 200, Fraction(3, 10)
    hold, swap = np.arange(n) < 80, (np.arange(n) % 5) < 2
    homes = pl.DataFrame({"m": np.repeat(np.arange(copies), n), "h": np.tile(hold, copies), "s": np.tile(swap, copies)})
    after = (
        PermutationSwap(match=["m"], swap=["s"], rate=rate).release(homes, Entropy.from_seed("moments")).public["data"]
    )
    counts = after.group_by("m").agg((pl.col("h") & pl.col("s")).sum())["h"].to_numpy()
    cell = int((hold & swap).sum())
    found = swapped_cell(cell, hold=int(hold.sum()), swap=int(swap.sum()), stratum=n, rate=rate)
    assert abs(counts.mean() - found.mean) < 5 * found.sd / copies**0.5
    assert counts.var() == pytest.approx(found.variance, rel=5 * (2 / copies) ** 0.5)
