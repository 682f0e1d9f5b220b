"""Errors against the truth, drawn for the internal edition: the largest ones ranked, and all against size."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from stirred.report.charts import ACCENT, SECOND, chart
from stirred.report.page import paragraph

_RANKED: Final = 30
_POINTS: Final = 2_000
_HEIGHT: Final = 18  # of a row


def error_charts(compared: pl.DataFrame, *, name: str, everything: str) -> str:
    """Return the cells that are furthest off, before and after, and the error of each cell against its true size.

    ``compared`` has the variables, ``true``, ``released`` and ``error``; ``everything`` is the file with all cells.
    """
    others = [column for column in compared.columns if column not in ("true", "released", "error")]
    label = pl.concat_str(pl.col(others).cast(pl.String).fill_null("missing"), separator=", ").alias("cell")
    cells = compared.select(label, "true", "released", "error", pl.col("error").abs().alias("size"))
    worst = cells.filter(pl.col("size") > 0).sort("size", "cell", descending=[True, False])
    if not worst.height:
        return paragraph("No cell is off.", note=True)
    most = worst["size"][0]
    title = f"{name}: {worst.height:,} of {cells.height:,} cells are off, at most by {most:,.6g}"
    return (
        _ranked(worst.head(_RANKED), title=title)
        + _told("the cells that are furthest off", worst.height, _RANKED, everything)
        + _against_size(cells.head(_POINTS), title=f"{name}: error against the true count")
        + _told("cells", cells.height, _POINTS, everything)
    )


def _told(what: str, many: int, most: int, everything: str) -> str:
    """Say how many are shown, and where all are."""
    return paragraph(f"Showing {min(many, most):,} of {many:,}, {what}; all are in {everything}.", note=True)


def _numbers(field: str, title: str, *, scale: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an axis with few numbers, which do not touch on a phone."""
    axis = {"title": title, "tickCount": 4, "minExtent": 46}
    return {"field": field, "type": "quantitative", "scale": scale or {}, "axis": axis}


def _ranked(cells: pl.DataFrame, *, title: str) -> str:
    """Return two dots for each cell, before and after, the largest error first."""
    rows = [
        {"cell": row["cell"], "which": which, "count": row[which]}
        for row in cells.iter_rows(named=True)
        for which in ("true", "released")
    ]
    name = {"title": None, "labelLimit": 170, "minExtent": 170}
    place = {
        "x": _numbers("count", "count", scale={"zero": False}),
        "y": {"field": "cell", "type": "nominal", "sort": None, "axis": name},
    }
    which = {"field": "which", "title": None, "sort": None, "legend": {"orient": "top", "columnPadding": 40}}
    colour = {**which, "scale": {"range": [ACCENT, SECOND]}}
    layers = [
        {"mark": {"type": "line", "color": ACCENT, "opacity": 0.5}, "encoding": {**place, "detail": place["y"]}},
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
            "encoding": {**place, "color": colour, "shape": which},
        },
    ]
    specification = {"data": {"values": rows}, "layer": layers}
    return chart(specification, title=title, width=240, height=_HEIGHT * cells.height)


def _against_size(cells: pl.DataFrame, *, title: str) -> str:
    """Return a point for each cell; a square root stretches the small counts and keeps 0."""
    encoding = {
        "x": _numbers("true", "true count", scale={"type": "sqrt"}),
        "y": _numbers("error", "released less true"),
    }
    mark = {"type": "point", "filled": True, "size": 35, "opacity": 0.6, "color": ACCENT}
    values = cells.select("true", "error").rows(named=True)
    return chart({"data": {"values": values}, "mark": mark, "encoding": encoding}, title=title)
