"""Charts: Vega-Lite drawn to SVG and put into the page, in the page's own colours."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

# Vega wants fixed colours; these stand for the page's and are replaced, so that charts follow light and dark.
_INK: Final = "#010203"
_FAINT: Final = "#040506"
ACCENT: Final = "#070809"
SECOND: Final = "#0a0b0c"
_COLOURS: Final = {
    _INK: "var(--ink)",
    _FAINT: "var(--line)",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
}
# Colours that stand out on white and on black.
_RANGE: Final = ["#8b5cf6", "#3b82f6", "#0ea5e9", "#14b8a6", "#22c55e", "#84cc16", "#f59e0b", "#ef4444"]
INSTALL: Final = "pip install 'stirred[report]'"


def chart(specification: Mapping[str, Any], *, title: str, width: int = 640, height: int = 300) -> str:
    """Return a Vega-Lite chart as inline SVG, or a line saying how to get charts where Vega is not installed."""
    try:
        import vl_convert
    except ImportError:
        return f'<p class="note">Charts need one more package: <code>{INSTALL}</code>.</p>'
    full = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width,
        "height": height,
        "background": None,
        "config": {
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": {
                "labelColor": _INK, "titleColor": _INK, "domainColor": _FAINT, "tickColor": _FAINT,
                "gridColor": _FAINT, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500,
            },
            "legend": {
                "titleLimit": 0, "labelLimit": 0, "labelColor": _INK, "titleColor": _INK, "labelFontSize": 12,
                "titleFontSize": 12,
            },
            "text": {"color": _INK},
            "header": {"labelColor": _INK, "titleColor": _INK},
        },
        **specification,
    }  # fmt: skip
    svg: str = vl_convert.vegalite_to_svg(full, vl_version="5.20")
    for fixed, variable in _COLOURS.items():
        svg = svg.replace(fixed, variable)
    svg = re.sub(r"^<svg ", f'<svg role="img" aria-label="{title}" ', svg.strip())
    return f'<figure class="chart">{svg}</figure>'


def epsilon_curve(
    points: Sequence[tuple[float, float]],
    *,
    chosen: Sequence[tuple[float, float]] = (),
    least: tuple[float, float] | None = None,
) -> str:
    """Return the loss against the swap rate, with the chosen settings and the smallest loss marked."""
    rows = [{"rate": rate, "epsilon": epsilon} for rate, epsilon in points]
    axis = {"format": "~%", "title": "swap rate", "grid": False}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": rows},
            "mark": {"type": "line", "color": ACCENT, "strokeWidth": 2.5},
            "encoding": _xy(axis),
        }
    ]
    if least is not None:
        # Under its point, where the curve, which has its minimum there, cannot run through it.
        layers.append(_points([least], shape="diamond", filled=False, label="smallest possible", axis=axis, below=True))
    if chosen:
        layers.append(_points(chosen, shape="circle", filled=True, label="chosen", axis=axis))
    return chart({"layer": layers}, title="Protection loss against swap rate")


def _xy(axis: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "x": {"field": "rate", "type": "quantitative", "axis": dict(axis)},
        "y": {
            "field": "epsilon",
            "type": "quantitative",
            "scale": {"zero": True},
            "axis": {"title": "epsilon (relative to the invariants)"},
        },
    }


def _points(
    points: Sequence[tuple[float, float]],
    *,
    shape: str,
    filled: bool,
    label: str,
    axis: Mapping[str, Any],
    below: bool = False,
) -> dict[str, Any]:
    rows = [
        {"rate": r, "epsilon": e, "label": f"{label}: {100 * r:.4g}%, epsilon {math.ceil(100 * e) / 100:.2f}"}
        for r, e in points
    ]
    inwards = all(rate > 0.6 for rate, _ in points)  # a label beside the right edge would be cut off
    mark = {"type": "point", "shape": shape, "size": 120, "filled": filled, "color": SECOND, "opacity": 1}
    text = {
        "type": "text",
        "align": "right" if inwards else "left",
        "dx": -9 if inwards else 9,
        "dy": 18 if below else -9,
        "fontSize": 12,
    }
    return {
        "data": {"values": rows},
        "layer": [
            {"mark": mark, "encoding": _xy(axis)},
            {"mark": text, "encoding": {**_xy(axis), "text": {"field": "label"}}},
        ],
    }


def box_plot(
    rows: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    y_title: str,
    x_title: str,
    marks: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return box plots of ``y`` by ``x`` on a logarithmic scale; ``marks`` are single values drawn as diamonds."""
    order = list(dict.fromkeys(str(row[x]) for row in rows))
    encoding = {
        "x": {"field": x, "type": "ordinal", "sort": order, "axis": {"title": x_title, "labelAngle": 0}},
        "y": {"field": y, "type": "quantitative", "axis": {"title": y_title}, "scale": {"type": "log"}},
    }
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [dict(row) for row in rows]},
            "mark": {"type": "boxplot", "extent": "min-max", "size": 36, "color": ACCENT, "median": {"color": "#fff"}},
            "encoding": encoding,
        }
    ]
    if marks:
        layers.append(
            {
                "data": {"values": [dict(mark) for mark in marks]},
                "mark": {
                    "type": "point",
                    "shape": "diamond",
                    "size": 140,
                    "filled": True,
                    "color": SECOND,
                    "opacity": 1,
                },
                "encoding": encoding,
            }
        )
    return chart({"layer": layers}, title=y_title)


def curves(rows: Sequence[Mapping[str, Any]], *, marks: Sequence[Mapping[str, Any]]) -> str:
    """Return loss against rate for several largest strata (Figure 2 of the paper)."""
    axis = {"format": "~%", "title": "swap rate", "grid": False}
    colour = {
        "field": "b",
        "type": "ordinal",
        "title": "largest stratum",
        "scale": {"range": _RANGE},
        "sort": None,
        # As below: beside the plot a wider font would be cut off.
        "legend": {"orient": "top", "columns": 8, "columnPadding": 24},
    }
    return chart(
        {
            "layer": [
                {
                    "data": {"values": [dict(row) for row in rows]},
                    "mark": {"type": "line", "strokeWidth": 2},
                    "encoding": {**_xy(axis), "color": colour},
                },
                {
                    "data": {"values": [dict(mark) for mark in marks]},
                    "mark": {"type": "point", "shape": "diamond", "size": 90, "filled": False, "opacity": 1},
                    "encoding": {**_xy(axis), "color": colour},
                },
            ]
        },
        title="Loss against swap rate by largest stratum",
    )


def areas_changed(points: Sequence[Mapping[str, Any]]) -> str:
    """Return the share of records changed against the size of the area, one colour for each swap."""
    encoding = {
        "x": {
            "field": "records",
            "type": "quantitative",
            "scale": {"type": "log"},
            "axis": {"title": "records in the area", "values": [10**power for power in range(10)], "format": "~s"},
        },
        "y": {"field": "share", "type": "quantitative", "axis": {"format": "~%", "title": "share changed"}},
        "color": {
            "field": "swap",
            "type": "nominal",
            "title": None,
            "scale": {"range": _RANGE},
            "sort": None,
            # Above the plot and with room between: a reader's font may be wider than the one that was measured.
            "legend": {"orient": "top", "columns": 3, "columnPadding": 40},
        },
        "shape": {"field": "swap", "type": "nominal", "title": None, "sort": None},
    }
    mark = {"type": "point", "filled": True, "size": 50, "opacity": 0.8}
    specification = {"data": {"values": [dict(point) for point in points]}, "mark": mark, "encoding": encoding}
    return chart(specification, title="Share of records changed by size of the area")
