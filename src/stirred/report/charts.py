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

from stirred.data.child import DiedError, child
from stirred.report.page import STYLE
from stirred.spec.number_text import percent
from stirred.spec.problems import wrong

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Bars, Curve, Picture, Plot, Tiles

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
_WIDTH: Final = 440
_BAR: Final = 240  # width of a chart of bars, beside their names
_LETTER, _MOST_NAME = 8, 250
_LOG: Final = {"type": "log", "nice": False, "padding": 12}
_PLAIN: Final = {"format": "~%", "title": None, "grid": False}
_DRAWS: Final = "stirred.report.charts:draw"
_MOST_SECONDS: Final = 120


def chart(specification: Mapping[str, Any], *, title: str, width: int = _WIDTH, height: int = 240) -> str:
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
        return str(child.ask(_DRAWS, [specification], seconds=_MOST_SECONDS))
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
    points: Sequence[tuple[float, float]], *, shape: str, filled: bool, label: str, axes: Mapping[str, Any],
    below: bool = False,
) -> dict[str, Any]:  # fmt: skip
    rows = [
        {"rate": r, "epsilon": e, "label": f"{label}: {percent(r)}, epsilon {math.ceil(100 * e) / 100:.2f}"}
        for r, e in points
    ]
    inwards = all(rate > 0.6 for rate, _ in points)  # a label beside the right edge would be cut off
    side = {"align": "right", "dx": -9} if inwards else {"align": "left", "dx": 9}
    mark = {"type": "point", "shape": shape, "size": 120, "filled": filled, "color": SECOND, "opacity": 1}
    text = {"type": "text", **side, "dy": 18 if below else -9, "fontSize": 14}
    layers = [{"mark": mark, "encoding": axes}, {"mark": text, "encoding": {**axes, "text": {"field": "label"}}}]
    return {"data": {"values": rows}, "layer": layers}


def bars(block: Bars) -> str:
    """Return bars below each other, one colour for each series: names of any length have their place."""
    rows = [{"group": group, "series": series, "height": height} for group, series, height in block.bars]
    groups, heights = [*dict.fromkeys(group for group, *_ in block.bars)], [height for *_, height in block.bars]
    series: dict[str, Any] = {"field": "series", "type": "nominal", "title": None, "sort": None}
    # Room for a reader's font, which may be wider than the one that was measured.
    room = min(max([160, *(_LETTER * len(group) for group in groups)]), _MOST_NAME)
    name = {"title": block.x or None, "minExtent": room, "labelLimit": _MOST_NAME}
    place = {"y": {"field": "group", "type": "nominal", "sort": None, "axis": name}}
    axis: dict[str, Any] = {"title": block.y, "tickCount": 4}
    length: dict[str, Any] = {"field": "height", "type": "quantitative", "axis": axis}
    mark: dict[str, Any] = {"type": "bar"}
    beside = {"yOffset": series}
    if block.log:
        mark, beside = {"type": "point", "filled": True, "size": 90, "opacity": 1}, {"shape": series}
        length |= {"scale": _LOG, "axis": {**axis, "format": "~s", "values": _ticks(heights)}}
    elif block.stacked:
        mark, beside = {**mark, "stroke": _INK, "strokeWidth": 0.5}, {}
        length |= {"stack": "zero", "scale": {"nice": False}, "axis": {**axis, "format": "~%", "tickCount": 3}}
    colour = {**series, "scale": {"range": COLOURS}, "legend": {"orient": "top", "columns": 2, "columnPadding": 40}}
    layers: list[dict[str, Any]] = [{"mark": mark, "encoding": {**place, **beside, "x": length, "color": colour}}]
    if block.notes:
        text = {"type": "text", "align": "left", "dx": 6, "fontSize": 14}
        told = {"data": {"values": [{"group": group, "note": note} for group, note in block.notes.items()]}}
        layers.append({**told, "mark": text, "encoding": {**place, "x": {"value": _BAR}, "text": {"field": "note"}}})
    many = len(rows) if "yOffset" in beside else len(groups)
    specification = {"data": {"values": rows}, "layer": layers}
    return chart(specification, title=block.y, width=_BAR, height=16 * many + 12 * len(groups))


def _ticks(numbers: Sequence[float]) -> list[float]:
    """Return where a logarithmic axis is marked: at powers of ten, and between them where there are few."""
    every = [digit * 10.0**power for power in range(-9, 16) for digit in (1, 2, 5)]
    inside = [tick for tick in every if min(numbers) <= tick <= max(numbers)]
    powers = [tick for tick in inside if tick in every[::3]]
    return powers if len(powers) > 2 else inside


def plot(block: Plot) -> str:
    """Return points, or lines through them, one colour for each series, and the rules across them."""
    rows: list[dict[str, Any]] = [{"series": series, "x": x, "y": y} for series, x, y in block.points]

    def axis(field: str, title: str, **more: Any) -> dict[str, Any]:
        log = field in block.log and rows
        more |= {"title": title, **({"values": _ticks([row[field] for row in rows])} if log else {"tickCount": 4})}
        return {"field": field, "type": "quantitative", "scale": _LOG if log else {}, "axis": more}

    x = axis("x", block.x, format="~s", grid=False)
    y = axis("y", block.y, format=",~%" if block.percent else "~g", minExtent=60)
    series = {"field": "series", "type": "nominal", "title": None, "sort": None}
    # Above the plot and with room between: a reader's font may be wider than the one that was measured.
    legend = {"orient": "top", "columns": 1 if block.lines else 3, "columnPadding": 40}
    colour = {**series, "scale": {"range": COLOURS}, "legend": legend}
    encoding = {"x": x, "y": y, "color": colour, "strokeDash" if block.lines else "shape": series}
    line = {"type": "line", "strokeWidth": 2.5}
    point = {"type": "point", "filled": False, "size": 60, "opacity": 1, "strokeWidth": 2}
    given: dict[str, Any] = {"data": {"values": rows}}
    layers = [{**given, "mark": line if block.lines else point, "encoding": encoding}]
    if block.rules:
        given = {"data": {"values": [{"words": words, "y": height} for words, height in block.rules]}}
        layers.append({**given, "mark": {"type": "rule", "color": SECOND, "strokeDash": [5, 4]}, "encoding": {"y": y}})
        # At the right, where domains are large and their errors small.
        text = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "fontSize": 13}
        place = {"y": y, "x": {"value": _WIDTH}, "text": {"field": "words"}}
        layers.append({**given, "mark": text, "encoding": place})
    return chart({"layer": layers}, title=f"{block.y} against {block.x}")


def tiles(block: Tiles) -> str:
    """Return one tile for each step of each row, with what it is there; steps follow each other from left to right."""
    rows = [{"row": row, "step": step, "word": word} for row, step, word in block.tiles]
    words = [*dict.fromkeys(row["word"] for row in rows)]
    plain = {"title": None, "domain": False, "ticks": False}
    x = {"field": "step", "type": "nominal", "sort": None, "axis": {**plain, "orient": "top", "labelAngle": 0}}
    place = {"x": x, "y": {"field": "row", "type": "nominal", "sort": None, "axis": plain}}
    scale = {"domain": words, "range": [GREY, *COLOURS]}
    colour = {"field": "word", "type": "nominal", "legend": None, "scale": scale}
    tile = {"type": "rect", "filled": False, "strokeWidth": 3, "cornerRadius": 6, "width": 104, "height": 44}
    layers = [
        {"mark": tile, "encoding": {**place, "stroke": colour}},
        {"mark": {"type": "text", "fontSize": 13}, "encoding": {**place, "text": {"field": "word"}}},
    ]
    size = {"width": {"step": 116}, "height": {"step": 58}}
    return chart({"data": {"values": rows}, "layer": layers, **size}, title=block.title)


def picture(block: Picture) -> str:
    """Return a picture for a page, of whichever kind."""
    draws: dict[str, Any] = {"Curve": loss_curve, "Bars": bars, "Plot": plot, "Tiles": tiles}
    return str(draws[type(block).__name__](block))


def standing_alone(block: Picture) -> str:
    """Return a picture as an SVG file of its own, on white paper; refuse where Vega is missing or fails."""
    found = picture(block).removeprefix('<figure class="chart">').removesuffix("</figure>")
    if not found.startswith("<svg"):
        raise wrong("the picture could not be drawn", where="charts", remedy=f"install them with {INSTALL}")
    for name, colour in re.findall(r"(--\w+):(#\w+)", STYLE[: STYLE.index("@media")]):
        found = found.replace(f"var({name})", colour)
    return found.replace("<svg ", '<svg style="background:#fff" ', 1) + "\n"


def share_bar(parts: Sequence[tuple[str, int]], *, title: str) -> str:
    """Return one bar of 100% in up to five parts, named below it in their order, each with a border."""
    total = sum(count for _, count in parts) or 1
    ends = [sum(count for _, count in parts[: place + 1]) / total for place in range(len(parts))]
    rows = [
        {"part": label, "from": end - count / total, "to": end} for (label, count), end in zip(parts, ends, strict=True)
    ]
    scale = {"domain": [row["part"] for row in rows], "range": [SECOND, COLOURS[0], COLOURS[2], COLOURS[3], GREY]}
    legend = {"orient": "bottom", "columns": 2, "columnPadding": 40}
    encoding = {
        "x": {"field": "from", "type": "quantitative", "axis": {**_PLAIN, "tickCount": 5}},
        "x2": {"field": "to"},
        "color": {"field": "part", "type": "nominal", "sort": None, "title": None, "scale": scale, "legend": legend},
    }
    mark = {"type": "bar", "stroke": _INK, "strokeWidth": 1, "height": 38}
    return chart({"data": {"values": rows}, "mark": mark, "encoding": encoding}, title=title, height=44)
