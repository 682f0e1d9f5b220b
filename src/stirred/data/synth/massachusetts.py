"""Massachusetts 1940: households whose published table is exactly the paper's Table 1.

The county by tenure counts are those of Table 1, and the two-person households number exactly
264,331, the largest stratum of section 3.4. The paper does not publish the other household sizes: the
distribution here is ours, chosen to look like 1940 (about a quarter of two-person households, owners
somewhat larger than renters, large households far from rare), and says nothing about the real one.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

# Table 1 of the paper: county, owned, rented; and both after swapping, in one run of the paper's own at 50%.
_PRINTED: Final = (
    ("Barnstable", 7_461, 3_825, 5_907, 5_379),
    ("Berkshire", 14_736, 18_417, 13_770, 19_383),
    ("Bristol", 33_747, 63_931, 35_537, 62_141),
    ("Dukes", 1_207, 534, 946, 795),
    ("Essex", 53_936, 81_300, 52_631, 82_605),
    ("Franklin", 7_433, 6_442, 6_337, 7_538),
    ("Hampden", 30_597, 58_166, 32_267, 56_496),
    ("Hampshire", 9_427, 8_630, 8_145, 9_912),
    ("Middlesex", 104_144, 147_687, 100_372, 151_459),
    ("Nantucket", 593, 432, 471, 554),
    ("Norfolk", 44_885, 40_285, 38_566, 46_604),
    ("Plymouth", 24_857, 23_882, 21_549, 27_190),
    ("Suffolk", 49_656, 176_553, 67_357, 158_852),
    ("Worcester", 53_126, 78_535, 51_950, 79_711),
)
TABLE_1: Final = tuple(row[:3] for row in _PRINTED)
TABLE_1_SWAPPED: Final = {row[0]: row[3:] for row in _PRINTED}
HOUSEHOLDS: Final = 1_144_424
TWO_PERSON: Final = 264_331
# Shares of household sizes 1, 3, 4, ... in thousandths, for owned and for rented homes: ours.
_OWNED: Final = {1: 75, 3: 205, 4: 185, 5: 125, 6: 75, 7: 45, 8: 27, 9: 16, 10: 9, 11: 5, 12: 3}
_RENTED: Final = {1: 95, 3: 215, 4: 180, 5: 115, 6: 66, 7: 38, 8: 22, 9: 12, 10: 7, 11: 4, 12: 2}


def massachusetts_1940() -> pl.DataFrame:
    """Return the households: ``state``, ``county``, ``size``, ``tenure``, sorted by county as files often are.

    >>> homes = massachusetts_1940()
    >>> homes.height, homes.filter(pl.col("size") == 2).height
    (1144424, 264331)
    """
    cells = [
        (county, tenure, count)
        for county, owned, rented in TABLE_1
        for tenure, count in (("owned", owned), ("rented", rented))
    ]
    couples = _apportion([count for *_, count in cells], TWO_PERSON)
    frames = [
        _cell(county, tenure, count=count, two_person=two)
        for (county, tenure, count), two in zip(cells, couples, strict=True)
    ]
    return pl.concat(frames).select("state", "county", "size", "tenure")


def _cell(county: str, tenure: str, *, count: int, two_person: int) -> pl.DataFrame:
    shares = _OWNED if tenure == "owned" else _RENTED
    others = _apportion(list(shares.values()), count - two_person)
    sizes = {2: two_person, **dict(zip(shares, others, strict=True))}
    column = np.repeat(np.array(sorted(sizes), dtype=np.int64), [sizes[size] for size in sorted(sizes)])
    return pl.DataFrame({"size": column}).with_columns(
        pl.lit("Massachusetts").alias("state"), pl.lit(county).alias("county"), pl.lit(tenure).alias("tenure")
    )


def _apportion(weights: list[int], total: int) -> list[int]:
    """Return whole numbers proportional to the weights that add up to ``total`` (largest remainders).

    >>> _apportion([1, 1, 1], 10)
    [4, 3, 3]
    """
    whole = sum(weights)
    exact = [Fraction(weight * total, whole) for weight in weights]
    counts = [int(share) for share in exact]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - exact[i], i))
    for i in order[: total - sum(counts)]:
        counts[i] += 1
    return counts
