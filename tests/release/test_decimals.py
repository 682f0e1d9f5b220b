"""Decimals are swapped, held and published: the same numbers come out that went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.audit.bundle import audit_bundle
from stirred.data.frames import read_frame
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.randomness.entropy import Entropy
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import run
from stirred.spec.problems import StirredError

MEMBERS: dict[str, dict[str, Any]] = {
    "permutation-swap": {"rate": "1/2"},
    "conditioned-swap": {"rate": "1/2"},
}


def homes(count: int, kind: pl.DataType) -> pl.DataFrame:
    row = np.arange(count)
    weights = [0.1, 0.2, 0.3, 1 / 3] if kind == pl.Float64 else [0.125, 0.25, 0.5, 1.0]
    return pl.DataFrame(
        {
            "size": row % 2 + 1,
            "income": pl.Series(np.array([0.25, 1.5, 10.125])[row * 7 // 3 % 3]).cast(kind),
            "weight": pl.Series(np.array(weights)[row * 11 // 5 % 4]).cast(kind),
            "tenure": np.array(["owned", "rented"])[row * 5 // 4 % 2],
        }
    )


@pytest.mark.parametrize("kind", [pl.Float64(), pl.Decimal(12, 3)], ids=["float", "decimal"])
@pytest.mark.parametrize(
    ("member", "format_"), [("permutation-swap", "csv"), ("permutation-swap", "parquet"), ("conditioned-swap", "csv")]
)
def test_decimals_go_from_plan_to_corrected_table(member: str, format_: str, kind: pl.DataType, tmp_path: Path) -> None:
    given = homes(120, kind)
    given.write_parquet(tmp_path / "homes.parquet")
    content = {
        "data": {"households": "homes.parquet"},
        "mechanism": {"name": member, "match": "size", "swap": "income", **MEMBERS[member]},
        "tables": [{"variables": ["income", "tenure"]}, {"variables": ["weight"]}],
        "release": {"out": "bundle", "format": format_},
    }
    bundle = run(prepare(plan_from(content, source="plan", folder=tmp_path)), entropy=Entropy.from_os())
    assert audit_bundle(bundle).problems == ()
    released = read_frame(bundle / "public" / f"data.{format_}")
    for name in ("income", "weight"):
        assert sorted(map(float, released[name])) == sorted(map(float, given[name]))
    if format_ == "parquet":
        assert released.schema == given.schema
    publish(bundle, tmp_path / "published")
    table = read_frame(tmp_path / "published/tables/income-x-tenure.csv")
    assert table["income"].unique(maintain_order=True).cast(pl.Float64).to_list() == [0.25, 1.5, 10.125]
    corrected = unswap(table, SwappedRelease.read(tmp_path / "published"), level=0.95, project=True, where="table")
    assert corrected.table.height == 6


def test_floats_cannot_be_matched_on() -> None:
    swap = PermutationSwap(match=["income"], swap=["tenure"], rate="1/2")
    with pytest.raises(StirredError, match=r"this column holds decimals \(Float64\): few records would have a partner"):
        swap.plan(homes(24, pl.Float64()))
