"""A swap whose values and names try to break out of the page, with a table wider than a phone."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stirred import Entropy
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.world import households, persons

NAUGHTY = "<script>document.title='taken'</script><img src=https://example.org/x>"
LONG = "a_very_long_column_name_indeed"


def naughty_swap(folder: Path) -> Path:
    """Write the files and the bundle."""
    homes = households().with_columns(
        pl.when(pl.col("tenure") == "owned").then(pl.lit(NAUGHTY)).otherwise(pl.lit("rented")).alias("tenure"),
        pl.lit("an-unbroken-value-that-is-far-too-long-to-fit-on-a-phone-0123456789").alias(LONG),
    )
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).write_parquet(folder / "people.parquet")
    plan = {
        "data": {"households": "homes.parquet", "persons": "people.parquet", "hid": "hid", "id": ["pid"]},
        "mechanism": {"match": ["size", LONG], "swap": ["county"], "rate": "1/5"},
        "tables": [
            {"variables": ["county", "tenure", LONG], "name": "wide"},
            {"variables": ["county", "tenure", "size"], "name": "long"},
        ],
        "release": {"out": "bundle"},
    }
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())
