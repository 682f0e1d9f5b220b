from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stirred.mechanisms.records import strata as margins
from stirred.mechanisms.records.kernels import cells
from stirred.mechanisms.records.kernels.cells import CellCounts
from stirred.mechanisms.records.kernels.partition import Workers
from stirred.mechanisms.records.strata import SwapMargins


def counted(stratum: Any, swap: Any) -> list[tuple[int, int, int]]:
    """What a plain count gives: stratum, swap code and size, in order."""
    pairs, sizes = np.unique(np.stack([stratum, swap]), axis=1, return_counts=True)
    return list(zip(*pairs.tolist(), sizes.tolist(), strict=True))


def listed(found: CellCounts) -> list[tuple[int, int, int]]:
    occupied, begins, codes = found.occupied()
    strata = np.repeat(np.arange(begins.size - 1), np.diff(begins))
    return list(zip(strata.tolist(), codes.tolist(), found.have[occupied].tolist(), strict=True))


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize(("rows", "strata", "values"), [(0, 1, 1), (1, 3, 2), (500, 7, 90), (150_000, 40, 60)])
@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_cells_are_those_of_a_plain_count(
    ranked: bool, rows: int, strata: int, values: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ranked:
        monkeypatch.setattr(cells, "_FEW_CELLS", -1)
        monkeypatch.setattr(cells, "_MOST_CELLS", -1)
    rng = np.random.default_rng(rows)
    stratum = rng.integers(0, strata, rows).astype(kind)
    swap = (rng.integers(0, values, rows) * (stratum % 3) // 2).astype(np.uint32)
    for threads in (1, 3):
        found = CellCounts.by_value(stratum, swap, strata=strata, values=values, workers=Workers(threads=threads))
        assert (found.codes is not None) == ranked
        assert listed(found) == counted(stratum, swap)
        assert found.value is not None
        own = found.starts[stratum] + found.value
        assert (np.bincount(own, minlength=found.have.size) == found.have).all()


@pytest.mark.parametrize("ranked", [False, True])
def test_codes_out_of_range_are_refused(ranked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code does not check its indices."""
    if ranked:
        monkeypatch.setattr(cells, "_FEW_CELLS", -1)
    good, bad = np.zeros(5, dtype=np.uint32), np.full(5, 9, dtype=np.uint32)
    workers = Workers(threads=1)
    for stratum, swap in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match="code 9 is out of range"):
            CellCounts.by_value(stratum, swap, strata=9, values=9, workers=workers)
    with pytest.raises(ValueError, match="code 9 is out of range"):
        CellCounts.by_stratum(bad, strata=9, workers=workers)


def test_margins_are_the_same_by_all_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    stratum, swap = (rng.integers(0, most, 3000).astype(np.uint32) for most in (50, 70))
    found = [SwapMargins.of(stratum, swap, strata=60, values=70)]
    for limit in ("_DENSE", "_LARGE"):
        monkeypatch.setattr(margins, limit, 0)
        found.append(SwapMargins.of(stratum, swap, strata=60, values=70))
    for other in found[1:]:
        for name in ("stratum", "value", "count"):
            np.testing.assert_array_equal(getattr(other, name), getattr(found[0], name))
            assert getattr(other, name).dtype == np.int64
