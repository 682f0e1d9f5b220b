from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.partition import Workers
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.randomness import Entropy
from tests.depth import examples
from tests.mechanisms.records.kernels.reference import rates_by_stratum, swap_reference

RATES = [
    Fraction(0),
    Fraction(1),
    Fraction(1, 2),
    Fraction(1, 20),
    Fraction(9, 10),
    Fraction(1, 3**60),
    1 - Fraction(1, 10**12),
]


@st.composite
def files(draw: st.DrawFn) -> tuple[list[int], Rates]:
    """A stratum column with rates, many strata being empty or of one, two or three records."""
    strata = draw(st.integers(1, 40))
    stratum = draw(st.lists(st.integers(0, strata - 1), max_size=60))
    rates = draw(st.lists(st.sampled_from(RATES), min_size=strata, max_size=strata))
    if draw(st.booleans()):
        rates = rates[:1] * strata
    return stratum, rates_by_stratum(rates)


def swapped(
    stratum: npt.ArrayLike,
    *,
    rates: Rates,
    entropy: Entropy,
    threads: int | None = None,
    values: npt.ArrayLike | None = None,
) -> tuple[npt.NDArray[np.uint32], int]:
    codes = np.asarray(stratum, dtype=np.uint32)
    swap = np.array(np.arange(codes.size) if values is None else values, dtype=np.uint32)
    tally = swap_in_place(codes, swap, rates=rates, entropy=entropy, threads=threads)
    return swap, tally


@settings(deadline=None, max_examples=examples(300))
@given(file=files(), seed=st.integers(0, 10**6))
def test_the_kernel_equals_its_twin(file: tuple[list[int], Rates], seed: int) -> None:
    stratum, rates = file
    entropy = Entropy.from_seed(seed)
    swap, tally = swapped(stratum, rates=rates, entropy=entropy)
    expected = swap_reference(stratum, range(len(stratum)), rates=rates, entropy=entropy)
    assert (swap.tolist(), tally) == expected


BLOCKS = [(1, 8), (5, 12), (300, 8), (300, 18), (40_000, 8), (40_000, 12)]
MORE_BLOCKS = [(1, 12), (1, 18), (5, 8), (5, 18), (300, 12), (40_000, 18)]


@pytest.mark.parametrize(
    ("strata", "bits"), [*BLOCKS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE_BLOCKS)]
)
def test_the_kernel_equals_its_twin_over_many_chunks_and_blocks(
    strata: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller blocks than usual, so that a file the twin can manage has many of them."""
    monkeypatch.setattr(addressing, "BLOCK_ROWS", 1 << bits)
    rows = 2 * addressing.CHUNK_ROWS + 1234
    rng = np.random.default_rng(strata)
    stratum = (strata * rng.random(rows) ** 2).astype(np.uint32)
    values = rng.integers(0, 2**32, rows, dtype=np.uint32)
    kinds = rng.integers(0, len(RATES), strata, dtype=np.uint32)
    rates = Rates(values=tuple(RATES), index=kinds, strata=strata)
    # Rates decide who is selected, row by row; blocks only who changes with whom. So one rate needs one block size.
    constant = [Rates.constant(Fraction(2, 7), strata=strata)] if bits == 12 else []
    for case in (rates, *constant):
        entropy = Entropy.from_seed(f"{strata} {1 << bits}")
        swap, tally = swapped(stratum, rates=case, entropy=entropy, values=values)
        expected = swap_reference(stratum.tolist(), values.tolist(), rates=case, entropy=entropy)
        assert (swap.tolist(), tally) == expected


@pytest.mark.parametrize("strata", [3, 357, 300_000])
def test_the_result_does_not_depend_on_the_number_of_threads(strata: int) -> None:
    rng = np.random.default_rng(strata)
    stratum = rng.integers(0, strata, 1_000_000, dtype=np.uint32)
    rates = Rates.constant(Fraction(1, 10), strata=strata)
    entropy = Entropy.from_seed("threads")
    results = [swapped(stratum, rates=rates, entropy=entropy, threads=threads) for threads in (1, 2, 3, 7)]
    for swap, tally in results[1:]:
        assert np.array_equal(swap, results[0][0])
        assert tally == results[0][1]


def test_the_width_of_the_stratum_codes_does_not_matter() -> None:
    stratum = np.random.default_rng(0).integers(0, 357, 100_000)
    rates = Rates.constant(Fraction(1, 10), strata=357)
    narrow = np.arange(100_000, dtype=np.uint32)
    wide = narrow.copy()
    entropy = Entropy.from_seed("width")
    swap_in_place(stratum.astype(np.uint16), narrow, rates=rates, entropy=entropy)
    swap_in_place(stratum.astype(np.uint32), wide, rates=rates, entropy=entropy)
    assert np.array_equal(narrow, wide)


def test_a_seed_repeats_a_swap_and_children_do_not() -> None:
    stratum = np.zeros(1000, dtype=np.uint32)
    rates = Rates.constant(Fraction(1, 2), strata=1)

    def run(entropy: Entropy) -> list[int]:
        return list(swapped(stratum, rates=rates, entropy=entropy)[0])

    assert run(Entropy.from_seed(1)) == run(Entropy.from_seed(1))
    runs = [
        Entropy.from_seed(1),
        Entropy.from_seed(2),
        Entropy.from_seed(1).child("second"),
        Entropy.from_os(),
    ]
    assert len({tuple(run(entropy)) for entropy in runs}) == 4


@settings(deadline=None, max_examples=examples(200))
@given(file=files(), seed=st.integers(0, 10**6), values=st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_swapping_preserves_stratum_by_swap_counts(file: tuple[list[int], Rates], seed: int, values: list[int]) -> None:
    stratum, rates = file
    before = values[: len(stratum)]
    after, _ = swapped(stratum, rates=rates, entropy=Entropy.from_seed(seed), values=before)
    assert sorted(zip(stratum, after.tolist(), strict=True)) == sorted(zip(stratum, before, strict=True))


@settings(deadline=None)
@given(file=files(), seed=st.integers(0, 10**6))
def test_selected_records_move_and_the_others_stay(file: tuple[list[int], Rates], seed: int) -> None:
    stratum, rates = file
    swap, tally = swapped(stratum, rates=rates, entropy=Entropy.from_seed(seed))
    moved = np.flatnonzero(swap != np.arange(len(stratum))).tolist()
    assert tally == len(moved)
    for row in range(len(stratum)):
        if rates.of_record(row, stratum[row]) == 0 or stratum.count(stratum[row]) == 1:
            assert row not in moved
        elif rates.of_record(row, stratum[row]) == 1:
            assert row in moved


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_tiny_strata_at_the_end_points(size: int) -> None:
    stratum = np.repeat(np.arange(1000, dtype=np.uint32), size)
    for rate, moved in ((Fraction(0), 0), (Fraction(1), size if size > 1 else 0)):
        rates = Rates.constant(rate, strata=1000)
        swap, tally = swapped(stratum, rates=rates, entropy=Entropy.from_os())
        assert tally == 1000 * moved
        assert np.count_nonzero(swap != np.arange(stratum.size)) == 1000 * moved


@pytest.mark.parametrize("rate", [Fraction(1, 10**9), 1 - Fraction(1, 10**12), Fraction(1, 2**80)])
@pytest.mark.parametrize("size", [2, 3])
def test_extreme_rates_end_in_time(rate: Fraction, size: int) -> None:
    stratum = np.tile(np.arange(100_000, dtype=np.uint32), size)
    rates = Rates.constant(rate, strata=100_000)
    _, tally = swapped(stratum, rates=rates, entropy=Entropy.from_seed("extreme"))
    # An exception anywhere has probability below 1e-6.
    assert tally == (size * 100_000 if rate > Fraction(1, 2) else 0)


def test_a_large_stratum_with_one_selection_is_redrawn(scripted_entropy: Callable[..., Entropy]) -> None:
    """All words of the first draw fail but one; the redraw covers all records, across buffers."""
    rows = 60_000
    rate = Fraction(1, 2)
    entropy = scripted_entropy({(addressing.SELECT, 0): [0] + [2**32 - 1] * (rows - 1)})
    rates = Rates.constant(rate, strata=1)
    swap, tally = swapped([0] * rows, rates=rates, entropy=entropy)
    assert (swap.tolist(), tally) == swap_reference([0] * rows, range(rows), rates=rates, entropy=entropy)
    assert abs(tally - rows / 2) < 6 * (rows / 4) ** 0.5


@pytest.mark.parametrize(
    ("rate", "word", "selected"),
    [
        (Fraction(1, 2), 2**31 - 1, True),
        (Fraction(1, 2), 2**31, False),
        (Fraction(1), 2**32 - 1, True),
        (Fraction(0), 0, False),
    ],
)
def test_words_at_the_edge_of_a_rate_fall_on_the_right_side(
    rate: Fraction, word: int, selected: bool, scripted_entropy: Callable[..., Entropy]
) -> None:
    """In the selection at one rate and by stratum, and in the redraw of stratum 1 (rows 2 and 3)."""
    no = 2**32 - 1
    script = {(addressing.SELECT, 0): [word, word, 0, no], (addressing.SELECT_AGAIN, 0): [2**31 - 1, 2**31, 0, 0]}
    first = [1, 0] if selected else [0, 1]
    swap, _ = swapped([0, 0], rates=Rates.constant(rate, strata=1), entropy=scripted_entropy(script))
    assert swap.tolist() == first
    two_rates = rates_by_stratum([rate, Fraction(1, 2)])
    swap, _ = swapped([0, 0, 1, 1], rates=two_rates, entropy=scripted_entropy(script))
    # The redraw reads one yes and one no and must draw again: two yes.
    assert swap.tolist() == [*first, 3, 2]


def test_no_two_decisions_share_their_words() -> None:
    purposes = [value for value in vars(addressing).values() if isinstance(value, str) and "/" in value]
    named = [purpose for purpose in purposes if purpose.startswith(("swapping/", "release order/"))]
    assert len(named) == len(set(named)) == 13


THIRD = (2**32 - 1) // 3


def test_ties_in_selection_are_settled_by_further_words(scripted_entropy: Callable[..., Entropy]) -> None:
    """Rows 0, 2 and 4 tie once, twice and 2000 times; the last word read decides each."""
    script = {
        (addressing.SELECT, 0): [THIRD, 2**32 - 1, THIRD, 2**32 - 1, THIRD, 2**32 - 1],
        (addressing.SELECT_TIES, 0): [THIRD - 1],
        (addressing.SELECT_TIES, 2): [THIRD, THIRD + 1],
        (addressing.SELECT_TIES, 4): [THIRD] * 1999 + [0],
    }
    for rates in (
        Rates.constant(Fraction(1, 3), strata=2),
        rates_by_stratum([Fraction(1, 3), Fraction(1, 4)]),
    ):
        entropy = scripted_entropy(script)
        swap, tally = swapped([0] * 6, rates=rates, entropy=entropy)
        assert (swap.tolist(), tally) == ([4, 1, 2, 3, 0, 5], 2)
        assert swap_reference([0] * 6, range(6), rates=rates, entropy=entropy) == (swap.tolist(), tally)


def test_ties_in_a_redraw_are_settled_by_further_words(scripted_entropy: Callable[..., Entropy]) -> None:
    """Row 0 alone is selected. In the redraw rows 0 and 3 tie; both win, after 1 and 3000 further words."""
    no = 2**32 - 1
    script = {
        (addressing.SELECT, 0): [0, no, no, no],
        (addressing.SELECT_AGAIN, 0): [THIRD, THIRD - 1, no, no, *[THIRD] * 3001, THIRD - 1],
    }
    rates = Rates.constant(Fraction(1, 3), strata=1)
    entropy = scripted_entropy(script)
    swap, tally = swapped([0] * 4, rates=rates, entropy=entropy)
    assert (swap.tolist(), tally) == ([3, 1, 2, 0], 2)
    assert swap_reference([0] * 4, range(4), rates=rates, entropy=entropy) == (swap.tolist(), tally)


def test_a_redraw_repeats_until_not_exactly_one_is_selected(
    scripted_entropy: Callable[..., Entropy],
) -> None:
    yes, no = 0, 2**32 - 1
    script = {
        (addressing.SELECT, 0): [yes, no, no],
        (addressing.SELECT_AGAIN, 0): [no, no, yes, no, yes, no, yes, no, yes],
    }
    rates = Rates.constant(Fraction(1, 2), strata=1)
    swap, _ = swapped([0] * 3, rates=rates, entropy=scripted_entropy(script))
    assert swap.tolist() == [2, 1, 0]
    script[addressing.SELECT_AGAIN, 0] = [no, no, no]
    swap, tally = swapped([0] * 3, rates=rates, entropy=scripted_entropy(script))
    assert (swap.tolist(), tally) == ([0, 1, 2], 0)


def test_progress_is_reported_to_the_end_of_every_stage() -> None:
    seen: dict[str, tuple[int, int]] = {}
    stratum = np.arange(300_000, dtype=np.uint32) // 3
    swap_in_place(
        stratum,
        np.arange(300_000, dtype=np.uint32),
        rates=Rates.constant(Fraction(1, 2), strata=100_000),
        entropy=Entropy.from_seed(1),
        progress=lambda stage, done, total: seen.update({stage: (done, total)}),
    )
    assert list(seen) == ["mark", "gather", "derange", "return", "redraw"]
    assert all(done == total for done, total in seen.values())


def test_wrong_input_is_refused_and_nothing_is_changed() -> None:
    rates = Rates.constant(Fraction(1, 2), strata=3)
    entropy = Entropy.from_seed(1)
    good = np.zeros(9, dtype=np.uint32)
    swap = np.arange(9, dtype=np.uint32)
    locked = swap.copy()
    locked.setflags(write=False)
    with pytest.raises(ValueError, match=r"code 3 is out of range\. Pass codes from 0 to 2"):
        swap_in_place(good + np.uint32(3), swap, rates=rates, entropy=entropy)
    with pytest.raises(TypeError, match="stratum: got int64"):
        swap_in_place(good.astype(np.int64), swap, rates=rates, entropy=entropy)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="swap: got int64"):
        swap_in_place(good, swap.astype(np.int64), rates=rates, entropy=entropy)
    with pytest.raises(TypeError, match="writable"):
        swap_in_place(good, locked, rates=rates, entropy=entropy)
    with pytest.raises(ValueError, match="swap: 8 rows beside 9"):
        swap_in_place(good, swap[:8], rates=rates, entropy=entropy)
    with pytest.raises(ValueError, match="0 threads cannot work"):
        swap_in_place(good, swap, rates=rates, entropy=entropy, threads=0)
    assert swap.tolist() == list(range(9))


def test_wrong_rates_are_refused() -> None:
    half = Fraction(1, 2)
    with pytest.raises(ValueError, match="7/4 is not a probability"):
        Rates.constant(Fraction(7, 4), strata=3)
    with pytest.raises(TypeError, match="not exact"):
        Rates.constant(0.5, strata=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 rates without an index"):
        Rates(values=(half, Fraction(1)), index=None, strata=3)
    with pytest.raises(ValueError, match="names rate 1 of 1"):
        Rates(values=(half,), index=np.ones(3, dtype=np.uint32), strata=3)
    with pytest.raises(ValueError, match="must be 3 uint32 numbers"):
        Rates(values=(half,), index=np.zeros(2, dtype=np.uint32), strata=3)
    with pytest.raises(ValueError, match="do not fit"):
        Rates.constant(half, strata=2**32 + 1)


def test_a_failure_in_one_thread_is_raised_and_stops_the_rest() -> None:
    done = []

    def work(piece: int) -> None:
        if piece == 3:
            raise OSError("broken")
        done.append(piece)

    with pytest.raises(OSError, match="broken"):
        Workers(threads=2).run("x", work, range(10_000))
    assert len(done) < 10_000


@pytest.mark.slow
def test_no_compiled_loop_leaves_its_arrays(tmp_path: Path) -> None:
    """Compiled anew with bounds checks, the twin tests still pass."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    tests = "twin or ties or redraw or tiny or order"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", tests, "-m", "not slow", str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
