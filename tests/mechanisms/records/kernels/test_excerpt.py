"""A file that is swapped in excerpts of whole blocks of strata is swapped as if at once, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.addressing import Excerpt
from stirred.mechanisms.records.kernels.counted import swap_counted_in_place
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.redrawn import ConditionedCounting
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.mechanisms.records.laws.mallows import MallowsCounting
from stirred.randomness.bernoulli import Threshold
from stirred.randomness.entropy import Entropy
from tests.mechanisms.records.kernels.reference import rates_by_stratum

ROWS, STRATA, VALUES = 150_000, 900, 6


def kernels(rows: slice | npt.NDArray[np.uint32] = slice(None)) -> dict[str, Callable[..., int]]:
    """Return the members of the family; where every record has its own rate, for these rows of the file."""
    rng = np.random.default_rng(5)
    by_stratum = rates_by_stratum([Fraction(1, 2 + n % 3) for n in range(STRATA)])
    low = Rates.constant(Fraction(1, 150), strata=STRATA)  # of many strata exactly one record is selected
    kinds, rates = rng.integers(0, 3, ROWS).astype(np.uint16), (Fraction(1, 3), Fraction(1, 10), Fraction(4, 7))
    counted = partial(swap_counted_in_place, strata=STRATA, values=VALUES)
    return {
        "permutation": partial(swap_in_place, rates=by_stratum),
        "permutation, one selected": partial(swap_in_place, rates=low),
        "permutation by record": partial(
            swap_in_place, rates=Rates(values=rates, index=kinds[rows], strata=STRATA, by_record=True)
        ),
        "shuffle": partial(swap_in_place, derange=False, rates=by_stratum),
        "mallows": partial(counted, counting=MallowsCounting(Fraction(1, 100))),
        "conditioned": partial(counted, counting=ConditionedCounting(rate=Fraction(1, 3))),
        "conditioned by size": partial(counted, counting=ConditionedCounting(rate=Fraction(1, 2), law="proportional")),
    }


def file() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return strata of very different sizes, in no order, and swap codes."""
    rng = np.random.default_rng(4)
    stratum = (STRATA * rng.random(ROWS) ** 2).astype(np.uint32)
    return stratum, rng.integers(0, VALUES, ROWS).astype(np.uint32)


def in_excerpts(
    name: str, entropy: Entropy, parts: int, number: Callable[[Any], Any] = lambda rows: rows
) -> tuple[npt.NDArray[np.uint32], int]:
    """Swap the blocks of a file in so many excerpts, blocks shared out at random."""
    stratum, swap = file()
    shift = addressing.block_shift(STRATA, rows=ROWS)
    blocks = addressing.blocks_of(STRATA, shift=shift)
    assert blocks > 20, "with one block there is nothing to share out"
    part = np.random.default_rng(parts).integers(0, parts, blocks)[stratum >> shift]
    swapped, tally = swap.copy(), 0
    for each in np.unique(part):
        rows = np.flatnonzero(part == each).astype(np.uint32)
        own = swap[rows]
        excerpt = Excerpt(of=ROWS, rows=number(rows))
        tally += kernels(rows)[name](stratum[rows], own, entropy=entropy, excerpt=excerpt)
        swapped[rows] = own
    return swapped, tally


def small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROWS", 2_000)
    monkeypatch.setattr(addressing, "BLOCK_ROWS", 1 << 6)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few strata and chunks of few rows, as a large file has many of both."""
    monkeypatch.setattr(addressing, "BLOCK_ROWS", 1 << 11)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", [*kernels()])
def test_excerpts_of_whole_blocks_are_swapped_like_the_whole_file(name: str) -> None:
    kernel, entropy = kernels()[name], Entropy.from_seed(f"excerpt {name}")
    stratum, swap = file()
    whole = swap.copy()
    tally = kernel(stratum, whole, entropy=entropy)
    assert (whole != swap).sum() > 300
    for parts in (1, 2, 7, 40):
        swapped, found = in_excerpts(name, entropy, parts)
        assert found == tally
        assert np.array_equal(swapped, whole)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["permutation", "shuffle", "mallows", "conditioned"])
def test_rows_that_are_numbered_otherwise_are_swapped_otherwise(name: str) -> None:
    """The power of the test above: numbers inside the excerpt instead of those in the file show."""
    kernel, entropy = kernels()[name], Entropy.from_seed(f"excerpt {name}")
    stratum, swap = file()
    whole = swap.copy()
    kernel(stratum, whole, entropy=entropy)
    wrong, _ = in_excerpts(name, entropy, 2, lambda rows: np.arange(rows.size, dtype=np.uint32))
    assert (wrong != whole).mean() > 0.05


@pytest.mark.usefixtures("small_blocks")
def test_ties_are_settled_by_the_row_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates whose first word ties with many: those rows read on in streams of their own."""
    monkeypatch.setattr(Excerpt, "fill", lambda self, words, chunk, out: out.fill(0x5555_5555))
    rate = Fraction(1, 3)  # 0.01 01 01 ... in binary: every word that is 0x55555555 ties
    assert Threshold.of(rate).tie == 0x5555_5555
    kernel = partial(swap_in_place, rates=Rates.constant(rate, strata=STRATA))
    monkeypatch.setattr(f"{__name__}.kernels", lambda rows: {"tied": kernel})
    small_file(monkeypatch)
    stratum, swap = file()
    whole, entropy = swap.copy(), Entropy.from_seed("ties")
    tally = kernel(stratum, whole, entropy=entropy)
    assert 500 < tally < 850
    swapped, found = in_excerpts("tied", entropy, 3)
    assert (found, swapped.tolist()) == (tally, whole.tolist())
    other, _ = in_excerpts("tied", entropy, 3, lambda rows: np.arange(rows.size, dtype=np.uint32))
    assert (other != whole).mean() > 0.05
