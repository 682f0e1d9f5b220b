"""A small country of regions, districts and wards, for the tests of TopDown."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.mechanism import TopDown

CODES = {"sex": ["m", "f"], "age": ["0-17", "18-64", "65+"], "work": ["yes", "no"]}
LEVELS = ["region", "district", "ward"]


def wards() -> pl.DataFrame:
    """Four regions of three districts; district 1 of the north has one ward, all others four. Nobody lives in some."""
    rows = [
        (region, f"d{district}", ward)
        for region in "NESW"
        for district in (1, 2, 3)
        for ward in range(1, 2 if (region, district) == ("N", 1) else 5)
    ]
    return pl.DataFrame(rows, schema=LEVELS, orient="row")


def people(count: int = 1_500, *, seed: int = 1) -> pl.DataFrame:
    """Persons in all wards but the last."""
    rng = np.random.default_rng(seed)
    where = wards()[rng.integers(0, wards().height - 1, count)]
    return where.with_columns(pl.Series(name, rng.choice(codes, count)) for name, codes in CODES.items())


def topdown(**settings: Any) -> TopDown:
    """Persons by sex, age and work in wards, with an even budget."""
    given: dict[str, Any] = {
        "levels": LEVELS,
        "attributes": [*CODES],
        "values": CODES,
        "rho": "2",
        "queries": ["total", "sex * age", "detailed"],
        "area_list": wards(),
    }
    return TopDown(**(given | settings))
