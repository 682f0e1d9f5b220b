"""Where a record stands in the released file, and its new id, tell nothing about where it stood before.

The file is sorted by block and every record has a hold value of its own, so that an attacker who could
link positions would learn every true block (docs/theory/conditions.md, condition 1). Blocks are small and
many, so that one run gives many independent looks. False-alarm rate: 1e-6 for each comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.kernels import partition
from tests.mechanisms.records.sampling import swapped

RECORDS, FALSE_ALARM = 200_000, 1e-6
PValue = Callable[..., float]


def sorted_file(records: int = RECORDS) -> Microdata:
    """Sorted by block, two records in each; every record is recognised by its hold value."""
    rows = np.arange(records)
    homes = pl.DataFrame({"hid": rows + 1, "block": rows // 2, "unique": rows})
    return Microdata(households=homes, persons=homes.select("hid", pl.col("unique").alias("trait")), hid="hid")


def places(public: Mapping[str, pl.DataFrame], *, by_id: bool) -> npt.NDArray[np.int64]:
    """Counts by place in the input (tenth of the file, place in its block) and place in the released block."""
    if by_id:
        row, unique = public["persons"]["hid"].to_numpy() - 1, public["persons"]["trait"].to_numpy()
    else:
        row, unique = np.arange(RECORDS), public["data"]["unique"].to_numpy()
    before = 2 * (unique * 10 // RECORDS) + unique % 2
    return np.bincount(2 * before + row % 2, minlength=40)


@pytest.mark.parametrize("rate", ["1/20", "1/2", "1"])
@pytest.mark.parametrize("by_id", [False, True], ids=["row", "id"])
def test_the_place_in_a_released_block_tells_nothing_about_the_place_before(
    rate: str, by_id: bool, p_value: PValue
) -> None:
    """Blocks are published; inside a block the order must be that of a fair shuffle, also where nobody moved."""
    public = swapped(
        PermutationSwap(match=[], swap=["block"], rate=rate), sorted_file(), Entropy.from_seed(rate)
    ).public
    assert p_value(places(public, by_id=by_id), [1 / 40] * 40) > FALSE_ALARM


def test_the_released_order_is_sorted_by_released_blocks() -> None:
    released = swapped(PermutationSwap(match=[], swap=["block"], rate="1/2"), sorted_file(50), Entropy.from_os())
    assert released.public["data"]["block"].is_sorted()


def test_a_release_that_kept_the_input_order_is_caught(p_value: PValue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: a stable sort by released block leaves the input order inside, and the same test sees it."""

    def stable(codes: npt.NDArray[np.uint32], **_: object) -> npt.NDArray[np.uint32]:
        return np.argsort(codes, kind="stable").astype(np.uint32)

    monkeypatch.setattr(partition, "release_order", stable)
    for rate in ("1/20", "1/2"):
        swap = PermutationSwap(match=[], swap=["block"], rate=rate)
        public = swapped(swap, sorted_file(), Entropy.from_seed(rate)).public
        assert p_value(places(public, by_id=False), [1 / 40] * 40) < FALSE_ALARM
        assert p_value(places(public, by_id=True), [1 / 40] * 40) < FALSE_ALARM


def correlation(unique: npt.NDArray[np.int64]) -> float:
    """Correlation of input position and released position."""
    return float(np.corrcoef(unique, np.arange(unique.size))[0, 1])


def test_in_a_large_file_moved_at_rate_1_positions_before_and_after_are_uncorrelated() -> None:
    """One block value for each pair of 200,000 records; |r| has a standard deviation of 1/sqrt(n)."""
    records = RECORDS
    swap = PermutationSwap(match=[], swap=["block"], rate="1")
    public = swapped(swap, sorted_file(), Entropy.from_seed("far")).public
    limit = 5 / records**0.5
    assert abs(correlation(public["data"]["unique"].to_numpy())) < limit
    assert abs(correlation(public["persons"].sort("hid")["trait"].to_numpy())) < limit
    # Power: one record in fifty left where it was is seen.
    unique = public["data"]["unique"].to_numpy().copy()
    unique[::50] = np.arange(records)[::50]
    assert abs(correlation(unique)) > limit


def test_old_ids_are_nowhere_in_the_released_frames() -> None:
    homes = pl.DataFrame({"hid": [f"secret {n}" for n in range(9)], "block": range(9), "kind": list("aab") * 3})
    people = homes.select("hid", pl.lit(1).alias("age")).with_columns(pl.lit("secret person").alias("pid"))
    data = Microdata(households=homes, persons=people, hid="hid", id=("pid",))
    public = swapped(PermutationSwap(match=[], swap=["block"], rate="1/2"), data, Entropy.from_os()).public
    assert all("secret" not in str(frame.rows()) for frame in public.values())
