"""Errors against the truth: the largest are drawn first, and what is left out is said with where it is."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pytest

from stirred.report import charts, errors


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The specifications of all charts, instead of their pictures."""
    seen: list[Any] = []
    monkeypatch.setattr(charts, "_installed", lambda: True)

    def draw(specification: str) -> str:
        seen.append(json.loads(specification))
        return "<svg ></svg>"

    monkeypatch.setattr(charts, "drawn", draw)
    return seen


def compared(cells: int) -> pl.DataFrame:
    """Cell k is off by k, up and down in turn; the true counts are all 1,000."""
    k = pl.int_range(cells, eager=True)
    error = k * (1 - 2 * (k % 2))
    return pl.DataFrame({"size": k, "true": k * 0 + 1000, "released": 1000 + error, "error": error})


def test_the_furthest_cells_are_ranked_before_and_after(drawn: list[Any]) -> None:
    page = errors.error_charts(compared(50), name="size", everything="all.parquet")
    ranked, against = drawn
    rows = ranked["data"]["values"]
    assert [row["cell"] for row in rows[::2]] == [str(k) for k in range(49, 19, -1)]
    assert rows[:2] == [
        {"cell": "49", "which": "true", "count": 1000},
        {"cell": "49", "which": "released", "count": 951},
    ]
    assert len(against["data"]["values"]) == 50
    told = re.findall(r"Showing [^<]*", page)
    assert told[0] == "Showing 30 of 49, the cells that are furthest off; all are in all.parquet."
    assert told[1] == "Showing 50 of 50, cells; all are in all.parquet."
    assert 'aria-label="size: 49 of 50 cells are off, at most by 49"' in page


def test_a_table_without_errors_has_no_picture(drawn: list[Any]) -> None:
    assert "No cell is off." in errors.error_charts(compared(1), name="size", everything="all.parquet")
    assert drawn == []
