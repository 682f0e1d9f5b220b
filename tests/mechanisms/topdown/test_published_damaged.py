"""Measurements that cannot be read, or hold none: the file is named, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from stirred.data.problems import DataError
from stirred.mechanisms.topdown.commands import (
    HierarchyEstimateOptions,
    IntervalOptions,
    MicrodataOptions,
    run_estimate,
    run_interval,
    run_microdata,
)
from stirred.mechanisms.topdown.published import open_published
from tests.mechanisms.topdown.test_published import SMALL, one_file

ZSTD: Final = b"\x28\xb5\x2f\xfd"  # with which a page begins


def test_a_file_that_is_damaged_inside_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Its columns can be read, and its rows cannot: seen only when they are needed."""
    path = one_file(tmp_path / "m.parquet", [{"geolevel": "A", "geocode": str(10 + each)} for each in range(9)])
    whole = path.read_bytes()
    start = whole.index(ZSTD)
    path.write_bytes(whole[:start] + bytes(len(ZSTD)) + whole[start + len(ZSTD) :])
    assert pl.read_parquet_schema(path)
    commands: list[tuple[Any, Any]] = [
        (run_estimate, HierarchyEstimateOptions(measurements=path, out=tmp_path / "e.csv")),
        (run_interval, IntervalOptions(bundle=path)),
        (run_microdata, MicrodataOptions(measurements=path, out=tmp_path / "made")),
    ]
    for run, options in commands:
        with pytest.raises(DataError, match=r"m\.parquet: it is damaged and cannot be read"):
            run(options)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.parquet"]


@pytest.mark.parametrize(("column", "given"), [("value", "many"), ("query_shape", "2x2"), ("variance", "wide")])
def test_columns_without_numbers_are_refused(tmp_path: Path, column: str, given: str) -> None:
    path = one_file(tmp_path / "m.parquet", [{column: given}])
    with pytest.raises(DataError, match=f'm.parquet: "{column}" holds String'):
        open_published(path, schema=SMALL)


def test_measurements_without_a_measured_row_are_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path / "m.parquet", [{"variance": float("inf")}])
    with pytest.raises(DataError, match="no row is measured"):
        run_estimate(HierarchyEstimateOptions(measurements=path, out=tmp_path / "e.csv"))
    assert not (tmp_path / "e.csv").exists()
