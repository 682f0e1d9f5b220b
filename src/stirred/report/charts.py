"""Charts: Vega-Lite drawn to SVG and put into the page, in the page's own colours."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Final

from stirred.data.apart import DiedError, apart
from stirred.spec.number_text import percent

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Bars, Curve

# Vega wants fixed colours; these stand for the page's and are replaced, so that charts follow light and dark.
_INK: Final = "#010203"
_FAINT: Final = "#040506"
ACCENT: Final = "#070809"
SECOND: Final = "#0a0b0c"
_SOFT: Final = "#0d0e0f"
_COLOURS: Final = {
    _INK: "var(--ink)", _FAINT: "var(--line)", _SOFT: "var(--soft)", ACCENT: "var(--accent)", SECOND: "var(--second)"
}  # fmt: skip
# At least 3:1 on papers and cards, light and dark, and apart for people who do not tell red from green. What needs
# more than these goes by its shape, its dashes or its place as well.
COLOURS: Final = ["#0072B2", "#D55E00", "#009E73", "#C0699C"]
GREY: Final = "#767676"
INSTALL: Final = "pip install 'stirred[report]'"
NOT_DRAWN: Final = (
    "this chart could not be drawn on the machine that made the report, for lack of memory or time. Every number is in "
    "the text and the tables."
)
_MARK: Final = re.compile(r'<path aria-label="([^"]*)" role="graphics-symbol"([^>]*?)/>')
_PLAIN: Final = {"format": "~%", "title": None, "grid": False}
_DRAWS: Final = "stirred.report.charts:draw"
_MOST_SECONDS: Final = 120


def chart(specification: Mapping[str, Any], *, title: str, width: int = 440, height: int = 240) -> str:
    """Return a Vega-Lite chart as inline SVG, or a line saying why there is none: Vega is absent, or it failed."""
    if not _installed():
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
                "labelColor": _INK, "titleColor": _INK, "domainColor": _SOFT, "tickColor": _SOFT,
                "gridColor": _FAINT, "labelFontSize": 14, "titleFontSize": 14, "titleFontWeight": 500,
            },
            "legend": {
                "titleLimit": 0, "labelLimit": 0, "labelColor": _INK, "titleColor": _INK, "labelFontSize": 14,
                "titleFontSize": 14,
            },
            "text": {"color": _INK},
            "header": {"labelColor": _INK, "titleColor": _INK},
        },
        **specification,
    }  # fmt: skip
    svg = drawn(json.dumps(full))
    if svg is None:
        return f'<p class="note">{escape(title)}: {NOT_DRAWN}</p>'
    for fixed, variable in _COLOURS.items():
        svg = svg.replace(fixed, variable)
    # What a mark stands for is shown when the pointer is on it, without a script.
    svg = _MARK.sub(r'<path role="graphics-symbol"\2><title>\1</title></path>', svg)
    svg = svg.strip().replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f'<figure class="chart">{svg}</figure>'


def _installed() -> bool:
    try:
        return importlib.util.find_spec("vl_convert") is not None
    except ValueError:  # it is taken out of this process
        return False


def draw(specification: str) -> str:
    """Return the SVG of a chart. The engine inside Vega ends its whole process where memory is short."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(specification, vl_version="5.20"))


@lru_cache(maxsize=64)
def drawn(specification: str) -> str | None:
    """Return the SVG of a chart, drawn in a process of its own; None where that fails."""
    try:
        return str(apart.ask(_DRAWS, [specification], seconds=_MOST_SECONDS))
    except DiedError:
        return None


def loss_curve(curve: Curve) -> str:
    """Return the loss against a rate, with the chosen settings and the smallest loss marked."""
    rows = [{"rate": rate, "epsilon": epsilon} for rate, epsilon in curve.points]
    axes = {
        "x": {"field": "rate", "type": "quantitative", "axis": {"format": "~%", "title": curve.x, "grid": False}},
        "y": {"field": "epsilon", "type": "quantitative", "scale": {"zero": True}, "axis": {"title": curve.y}},
    }
    layers: list[dict[str, Any]] = [
        {"data": {"values": rows}, "mark": {"type": "line", "color": ACCENT, "strokeWidth": 2.5}, "encoding": axes}
    ]
    if curve.least is not None:
        # Under its point, where the curve, which has its minimum there, cannot run through it.
        least = [curve.least]
        layers.append(_points(least, shape="diamond", filled=False, label="smallest possible", axes=axes, below=True))
    if curve.marked:
        layers.append(_points(curve.marked, shape="circle", filled=True, label="chosen", axes=axes))
    return chart({"layer": layers}, title=f"Protection loss against {curve.x}")


def _points(
    points: Sequence[tuple[float, float]],
    *,
    shape: str,
    filled: bool,
    label: str,
    axes: Mapping[str, Any],
    below: bool = False,
) -> dict[str, Any]:
    rows = [
        {"rate": r, "epsilon": e, "label": f"{label}: {percent(r)}, epsilon {math.ceil(100 * e) / 100:.2f}"}
        for r, e in points
    ]
    inwards = all(rate > 0.6 for rate, _ in points)  # a label beside the right edge would be cut off
    mark = {"type": "point", "shape": shape, "size": 120, "filled": filled, "color": SECOND, "opacity": 1}
    text = {
        "type": "text",
        "align": "right" if inwards else "left",
        "dx": -9 if inwards else 9,
        "dy": 18 if below else -9,
        "fontSize": 14,
    }
    return {
        "data": {"values": rows},
        "layer": [{"mark": mark, "encoding": axes}, {"mark": text, "encoding": {**axes, "text": {"field": "label"}}}],
    }


def bars(block: Bars) -> str:
    """Return bars below each other, one colour for each series: names of any length have their place."""
    rows = [{"group": group, "series": series, "height": height} for group, series, height in block.bars]
    series = {"field": "series", "type": "nominal", "title": None, "sort": None}
    encoding = {
        # Room for a reader's font, which may be wider than the one that was measured.
        "y": {"field": "group", "type": "nominal", "sort": None, "axis": {"title": block.x or None, "minExtent": 160}},
        "yOffset": series,
        "x": {"field": "height", "type": "quantitative", "axis": {"title": block.y, "tickCount": 4}},
        "color": {**series, "scale": {"range": COLOURS}, "legend": {"orient": "top", "columnPadding": 40}},
    }
    size = {"width": 240, "height": 16 * len(rows) + 12 * len({row["group"] for row in rows})}
    return chart({"data": {"values": rows}, "mark": {"type": "bar"}, "encoding": encoding}, title=block.y, **size)


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
            "scale": {"range": COLOURS},
            "sort": None,
            # Above the plot and with room between: a reader's font may be wider than the one that was measured.
            "legend": {"orient": "top", "columns": 3, "columnPadding": 40},
        },
        "shape": {"field": "swap", "type": "nominal", "title": None, "sort": None},
    }
    mark = {"type": "point", "filled": False, "size": 60, "opacity": 1, "strokeWidth": 2}
    specification = {"data": {"values": [dict(point) for point in points]}, "mark": mark, "encoding": encoding}
    return chart(specification, title="Share of records changed by size of the area")


def share_bar(parts: Sequence[tuple[str, int]], *, title: str) -> str:
    """Return one bar of 100% in up to five parts, named below it in their order, each with a border."""
    total = sum(count for _, count in parts) or 1
    ends = [sum(count for _, count in parts[: place + 1]) / total for place in range(len(parts))]
    rows = [
        {"part": label, "from": end - count / total, "to": end} for (label, count), end in zip(parts, ends, strict=True)
    ]
    colours = [SECOND, COLOURS[0], COLOURS[2], COLOURS[3], GREY]
    encoding = {
        "x": {"field": "from", "type": "quantitative", "axis": {**_PLAIN, "tickCount": 5}},
        "x2": {"field": "to"},
        "color": {
            "field": "part",
            "type": "nominal",
            "sort": None,
            "title": None,
            "scale": {"domain": [row["part"] for row in rows], "range": colours},
            "legend": {"orient": "bottom", "columns": 2, "columnPadding": 40},
        },
    }
    mark = {"type": "bar", "stroke": _INK, "strokeWidth": 1, "height": 38}
    return chart({"data": {"values": rows}, "mark": mark, "encoding": encoding}, title=title, height=44)
