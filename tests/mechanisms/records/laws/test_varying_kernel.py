"""Rates of single records in the kernel (R8): equal to the twin, and its law; near misses fail. False alarms: 1e-6."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.mechanisms.records.laws.permutation import varying_rate_law
from stirred.randomness import Entropy
from stirred.spec.law import Law
from tests.depth import examples
from tests.mechanisms.records.kernels.reference import swap_reference

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
RATES = tuple(
    Fraction(text) for text in ("1/2", "1/20", "9/10", "1/3", f"1/{3**60}", "999999/1000000", "1/1000", "2/7")
)
THIRD = (2**32 - 1) // 3


def swapped(
    stratum: npt.ArrayLike, *, rates: Rates, entropy: Entropy, threads: int | None = None
) -> tuple[npt.NDArray[np.uint32], int]:
    codes = np.asarray(stratum, dtype=np.uint32)
    swap = np.arange(codes.size, dtype=np.uint32)
    return swap, swap_in_place(codes, swap, rates=rates, entropy=entropy, threads=threads)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[int], Rates]:
    """A stratum column with a rate for each record, many strata of one, two or three records."""
    strata = draw(st.integers(1, 30))
    stratum = draw(st.lists(st.integers(0, strata - 1), max_size=60))
    # Not far apart, or a stratum would be drawn again for very long.
    values = draw(st.sampled_from([RATES[:4], RATES[3:5], (RATES[0], RATES[5]), RATES[6:]]))
    kinds = draw(st.lists(st.integers(0, len(values) - 1), min_size=len(stratum), max_size=len(stratum)))
    return stratum, Rates(values=values, index=np.array(kinds, dtype=np.uint16), strata=strata, by_record=True)


@settings(deadline=None, max_examples=examples(300))
@given(file=files(), seed=st.integers(0, 10**6))
def test_the_kernel_equals_its_twin(file: tuple[list[int], Rates], seed: int) -> None:
    stratum, rates = file
    entropy = Entropy.from_seed(seed)
    swap, tally = swapped(stratum, rates=rates, entropy=entropy)
    assert (swap.tolist(), tally) == swap_reference(stratum, range(len(stratum)), rates=rates, entropy=entropy)


@pytest.mark.parametrize("strata", [1, 300, 60_000])
def test_the_kernel_equals_its_twin_over_many_chunks_and_blocks(strata: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addressing, "BLOCK_ROWS", 1 << 12)
    rows = 2 * addressing.CHUNK_ROWS + 1234
    rng = np.random.default_rng(strata)
    stratum = (strata * rng.random(rows) ** 2).astype(np.uint32)
    kinds = rng.integers(0, 4, rows, dtype=np.uint16)
    rates = Rates(values=RATES[:4], index=kinds, strata=strata, by_record=True)
    entropy = Entropy.from_seed(strata)
    swap, tally = swapped(stratum, rates=rates, entropy=entropy)
    assert (swap.tolist(), tally) == swap_reference(stratum.tolist(), range(rows), rates=rates, entropy=entropy)
    again, _ = swapped(stratum, rates=rates, entropy=entropy, threads=3)
    assert np.array_equal(swap, again)


def test_records_of_equal_rates_are_swapped_as_by_stratum() -> None:
    """The same words decide the same: one rate for all records is one rate for all strata."""
    stratum = np.random.default_rng(1).integers(0, 5_000, 100_000, dtype=np.uint32)
    entropy = Entropy.from_seed("equal")
    kinds = np.zeros(stratum.size, dtype=np.uint16)
    swap, tally = swapped(
        stratum, rates=Rates(values=RATES[:1], index=kinds, strata=5_000, by_record=True), entropy=entropy
    )
    plain = np.arange(stratum.size, dtype=np.uint32)
    assert swap_in_place(stratum, plain, rates=Rates.constant(RATES[0], strata=5_000), entropy=entropy) == tally
    assert np.array_equal(swap, plain)


def test_ties_go_on_with_the_rate_of_their_record(scripted_entropy: Callable[..., Entropy]) -> None:
    """Rows of rate 1/3 and 1/4 in turn: one tie in the selection, then one in the redraw, each settled by its rate."""
    no = 2**32 - 1
    rates = Rates(
        values=(Fraction(1, 4), Fraction(1, 3)), index=np.array([1, 0, 1, 0], dtype=np.uint16), strata=1, by_record=True
    )
    script = {
        (addressing.SELECT, 0): [THIRD, THIRD, no, no],
        (addressing.SELECT_TIES, 0): [THIRD - 1],
        (addressing.SELECT_AGAIN, 0): [no, 2**30 - 1, THIRD, THIRD, THIRD - 1, THIRD],
    }
    entropy = scripted_entropy(script)
    swap, tally = swapped([0] * 4, rates=rates, entropy=entropy)
    # Row 0 alone is selected. Of the redraw row 1 has a word below 1/4; row 2 ties twice and wins; row 3 fails.
    assert (swap.tolist(), tally) == ([0, 2, 1, 3], 2)
    assert swap_reference([0] * 4, range(4), rates=rates, entropy=entropy) == (swap.tolist(), tally)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [([0, 2], "names rate 2 of 2"), ([0], "1 kinds beside 2 rows")],
)
def test_kinds_that_do_not_belong_to_the_file_are_refused(kinds: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        swapped(
            [0, 0],
            rates=Rates(values=RATES[:2], index=np.array(kinds, dtype=np.uint16), strata=1, by_record=True),
            entropy=Entropy.from_os(),
        )


# ---- the law -------------------------------------------------------------------------------------------

STRATA = 100_000
CASES: list[tuple[Fraction, ...]] = [
    (Fraction(1, 2), Fraction(1, 5)),
    (Fraction(1, 2), Fraction(1, 5), Fraction(4, 5)),
    (Fraction(1, 10), Fraction(1, 10), Fraction(1, 2), Fraction(1, 2)),
]


def outcomes(rates: tuple[Fraction, ...], *, seed: str) -> list[tuple[int, ...]]:
    """Strata of as many different records as there are rates, record i with rate i: where each value went."""
    size = len(rates)
    stratum = np.tile(np.arange(STRATA, dtype=np.uint32), size)
    swap = np.repeat(np.arange(size, dtype=np.uint32), STRATA)
    values = tuple(dict.fromkeys(rates))
    kinds = np.repeat(np.array([values.index(rate) for rate in rates], dtype=np.uint16), STRATA)
    swap_in_place(
        stratum,
        swap,
        rates=Rates(values=values, index=kinds, strata=STRATA, by_record=True),
        entropy=Entropy.from_seed(seed),
    )
    return [tuple(row) for row in swap.reshape(size, STRATA).T.tolist()]


def law_of(rates: tuple[Fraction, ...]) -> Law:
    return varying_rate_law([(i, i) for i in range(len(rates))], lambda record: rates[int(str(record[0]))])


def fit(drawn: list[tuple[int, ...]], chances: list[Fraction], p_value: PValue) -> float:
    places = {order: number for number, order in enumerate(permutations(range(len(drawn[0]))))}
    return p_value(np.bincount([places[row] for row in drawn], minlength=len(places)), chances)


def in_order(law: Law, size: int) -> list[Fraction]:
    tables = law.probabilities
    return [tables.get(tuple(enumerate(order)), Fraction(0)) for order in permutations(range(size))]


def without_redraw(rates: tuple[Fraction, ...]) -> list[Fraction]:
    """The near miss: exactly one selected counts as nobody, and is not drawn again."""
    law = in_order(law_of(rates), len(rates))
    none = math.prod(1 - rate for rate in rates)
    alone = sum((none * rate / (1 - rate) for rate in rates), Fraction(0))
    return [(1 - alone) * chance + (alone if number == 0 else 0) for number, chance in enumerate(law)]


@pytest.mark.parametrize("rates", CASES, ids=str)
def test_what_the_kernel_draws_follows_the_law_and_near_misses_do_not(
    rates: tuple[Fraction, ...], p_value: PValue
) -> None:
    """Power: rates given to the wrong records, no redraw, one rate wrong by a 25th, and all at the mean rate."""
    drawn, size = outcomes(rates, seed=f"varying {rates}"), len(rates)
    assert fit(drawn, in_order(law_of(rates), size), p_value) > FALSE_ALARM
    wrong = [
        without_redraw(rates),
        in_order(law_of((*rates[:-1], rates[-1] * Fraction(26, 25))), size),
        in_order(law_of((sum(rates, Fraction(0)) / size,) * size), size),
    ]
    if size > 2:  # with two records both move or none, whoever has which rate
        wrong.append(in_order(law_of((rates[-1], *rates[1:-1], rates[0])), size))
    for chances in wrong:
        assert fit(drawn, chances, p_value) < FALSE_ALARM
