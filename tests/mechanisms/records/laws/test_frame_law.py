"""A release samples the exact law of Algorithm 1, and samplers that nearly do are caught by the same test.

One small stratum is repeated under 100,000 different match values in one file, so that a single call
gives as many independent released tables. Their frequencies are compared with the law by enumeration
(``psa_law``) in Pearson's test. False-alarm rate: 1e-6 for each comparison, over a random seed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.mechanisms.records.kernels import selected as kernel
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.spec.law import Law
from tests.mechanisms.records.oracles import psa_law
from tests.mechanisms.records.sampling import swapped

STRATA = 100_000  # a rate wrong by one part in fifty is then missed for one seed in ten thousand
FALSE_ALARM = 1e-6
LETTERS = 8
PValue = Callable[..., float]
Records = list[tuple[str, str]]

CASES: list[tuple[str, str, Fraction]] = [
    ("ab", "xy", Fraction(1, 2)),
    ("aab", "xyz", Fraction(3, 10)),
    ("abcd", "xyzz", Fraction(1, 2)),
]


def copies(records: Records, *, strata: int = STRATA) -> pl.DataFrame:
    """The stratum repeated under different match values, its records far apart in the file."""
    hold, swap = zip(*records, strict=True)
    return pl.DataFrame(
        {
            "stratum": np.tile(np.arange(strata), len(records)),
            "hold": np.repeat(np.array(hold), strata),
            "swap": np.repeat(np.array(swap), strata),
        }
    )


def outcome(table: Hashable) -> int:
    """A table of (hold, swap) pairs as one number."""
    number = 0
    for hold, swap in sorted(table):  # type: ignore[call-overload]
        number = number * LETTERS**2 + LETTERS * "abcdefgh".index(hold) + "stuvwxyz".index(swap)
    return number


def released_tables(frame: pl.DataFrame, size: int) -> npt.NDArray[np.int64]:
    """The released table of every stratum, as one number."""
    pair = LETTERS * frame["hold"].replace_strict(dict(zip("abcdefgh", range(8), strict=True))).to_numpy()
    pair = pair + frame["swap"].replace_strict(dict(zip("stuvwxyz", range(8), strict=True))).to_numpy()
    rows = np.sort(frame["stratum"].to_numpy() * LETTERS**2 + pair).reshape(-1, size)
    assert (rows // LETTERS**2 == rows[:, :1] // LETTERS**2).all(), "a stratum has another number of records"
    return np.asarray((rows % LETTERS**2) @ (LETTERS ** (2 * np.arange(size)[::-1])))


def fit(frame: pl.DataFrame, records: Records, law: Law, p_value: PValue) -> float:
    """The p-value of the released tables under the law."""
    found, counts = np.unique(released_tables(frame, len(records)), return_counts=True)
    observed = dict(zip(found.tolist(), counts.tolist(), strict=True))
    assert observed.keys() <= {outcome(table) for table in law}, "a table that the law cannot produce"
    return p_value(np.array([observed.get(outcome(table), 0) for table in law]), [law[table] for table in law])


def release(records: Records, rate: Fraction, *, seed: str) -> pl.DataFrame:
    swap = PermutationSwap(match=["stratum"], swap=["swap"], rate=rate)
    return swapped(swap, copies(records), Entropy.from_seed(seed)).public["data"]


@pytest.mark.parametrize(("hold", "swap", "rate"), CASES, ids=str)
def test_released_tables_follow_the_exact_law(hold: str, swap: str, rate: Fraction, p_value: PValue) -> None:
    records = list(zip(hold, swap, strict=True))
    frame = release(records, rate, seed=f"law {hold} {swap}")
    assert fit(frame, records, psa_law(records, rate=rate), p_value) > FALSE_ALARM


def sampler(*, derange: bool = True, redraw: bool = True) -> Callable[..., int]:
    """A sampler in numpy in place of the kernel: right by default, wrong on request."""

    def swap_in_place(stratum: Any, swap: Any, *, rates: Rates, entropy: Entropy, **_: Any) -> int:
        rng = np.random.default_rng(3)
        rate, size = float(rates.values[0]), stratum.size // rates.strata
        rows = np.argsort(stratum, kind="stable").reshape(rates.strata, size)
        selected = rng.random(rows.shape) < rate
        while redraw and (one := selected.sum(axis=1) == 1).any():
            selected[one] = rng.random((int(one.sum()), size)) < rate
        selected[selected.sum(axis=1) == 1] = False
        source = np.tile(np.arange(size), (rates.strata, 1))
        todo = np.arange(rates.strata)
        while todo.size:
            # The j-th selected place receives the j-th of the selected places in random order.
            chosen = selected[todo]
            places = np.argsort(np.where(chosen, np.arange(size), size), axis=1)
            givers = np.argsort(np.where(chosen, rng.random(chosen.shape), 2.0), axis=1)
            number, rank = np.nonzero(np.arange(size) < chosen.sum(axis=1)[:, None])
            source[todo[number], places[number, rank]] = givers[number, rank]
            fixed = (chosen & (source[todo] == np.arange(size))).any(axis=1)
            todo = todo[fixed] if derange else todo[:0]
        swap[rows] = np.take_along_axis(swap[rows], source, axis=1)
        return int(selected.sum())

    return swap_in_place


@pytest.mark.parametrize(
    ("fault", "caught"),
    [({}, False), ({"derange": False}, True), ({"redraw": False}, True)],
    ids=["the right sampler", "a plain permutation", "no redraw"],
)
def test_a_plain_permutation_and_a_missing_redraw_fail_the_same_test(
    fault: dict[str, bool], caught: bool, p_value: PValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power: faulty samplers in the place of the kernel, through the same release and the same test."""
    monkeypatch.setattr(kernel, "swap_in_place", sampler(**fault))
    records, rate = list(zip("abc", "xyz", strict=True)), Fraction(3, 10)
    frame = release(records, rate, seed="fault")
    assert (fit(frame, records, psa_law(records, rate=rate), p_value) < FALSE_ALARM) == caught


def test_a_rate_wrong_by_one_part_in_fifty_fails_the_same_test(p_value: PValue) -> None:
    records, rate = list(zip("abc", "xyz", strict=True)), Fraction(3, 10)
    frame = release(records, rate * Fraction(51, 50), seed="rate")
    assert fit(frame, records, psa_law(records, rate=rate), p_value) < FALSE_ALARM


def test_strata_with_rates_of_their_own_follow_their_own_law(p_value: PValue) -> None:
    records: Records = list(zip("abc", "xyz", strict=True))
    homes = copies(records, strata=100_000).with_columns((pl.col("stratum") % 2).alias("kind"))
    swap = PermutationSwap(
        match=["kind", "stratum"], swap=["swap"], rate="1/4", rates=[{"kind": 1, "rate": Fraction(4, 5)}]
    )
    after = swapped(swap, homes, Entropy.from_seed("own rates")).public["data"]
    for kind, rate in ((0, Fraction(1, 4)), (1, Fraction(4, 5))):
        assert fit(after.filter(pl.col("kind") == kind), records, psa_law(records, rate=rate), p_value) > FALSE_ALARM


def test_the_order_of_the_input_rows_does_not_change_the_law(p_value: PValue) -> None:
    """The rows of the file in random order, not stratum by stratum: the same law."""
    records: Records = [("c", "z"), ("a", "y"), ("a", "x"), ("b", "z")]
    homes = copies(records).sample(fraction=1, shuffle=True, seed=1)
    swap = PermutationSwap(match=["stratum"], swap=["swap"], rate="2/5")
    after = swapped(swap, homes, Entropy.from_seed("rearranged")).public["data"]
    assert fit(after, records, psa_law(sorted(records), rate=Fraction(2, 5)), p_value) > FALSE_ALARM


def test_persons_do_not_change_the_law_of_their_households(p_value: PValue) -> None:
    """Households with persons: the released table of persons follows the law of their households."""
    from stirred.data.microdata import Microdata

    strata = 40_000
    records: Records = list(zip("abc", "xyz", strict=True))
    homes = copies(records, strata=strata).with_row_index("hid")
    persons = homes.select("hid", pl.col("hold").alias("trait"))
    data = Microdata(households=homes.drop("hold"), persons=persons, hid="hid")
    swap = PermutationSwap(match=["stratum"], swap=["swap"], rate="1/2")
    public = swapped(swap, data, Entropy.from_seed("persons")).public
    joined = public["persons"].drop("swap").join(public["data"], on="hid").rename({"trait": "hold"})
    assert fit(joined, records, psa_law(records, rate=Fraction(1, 2)), p_value) > FALSE_ALARM
