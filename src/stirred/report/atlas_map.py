"""The map of definitions: which implies which, drawn as one SVG that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from stirred.spec.catalogue import load, raw_atlas
from stirred.spec.catalogue.atlas import Arrow

_WIDTH, _HEIGHT, _COLUMN, _LEFT, _TOP = 168, 48, 188, 24, 84
_ROWS: Final = (0, 108, 216, 366, 474, 582)  # the gap under pure-dp is wider: nine arrows leave it
_INK, _FAINT = "#1f2937", "#6b7280"
# The block in which a definition differs from pure-dp first of all: the colour of its box.
_COLOURS: Final = {
    "base": ("#f3f4f6", "the first definition"), "who": ("#fde9c8", "who: other datasets"),
    "where": ("#d5f0dc", "where: some figures are published"), "what": ("#d9e8fd", "what: another unit or distance"),
    "how": ("#e9defc", "how: another measure of change"),
}  # fmt: skip
_LINES: Final = {
    "decided": ("", "decided exactly on a small domain; without words, nothing follows back"),
    "converted": ("7 4", "by a conversion of the measure"),
    "stated": ("2 4", "stated, and tested on an example"),
}


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A place on the map."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Rectangle) -> bool:
        """Say whether two rectangles overlap."""
        apart = self.x + self.width <= other.x or other.x + other.width <= self.x
        return not (apart or self.y + self.height <= other.y or other.y + other.height <= self.y)


def boxes() -> dict[str, Rectangle]:
    """Return where each definition stands."""
    places = {name: row["at"] for name, row in raw_atlas()["definitions"].items()}
    return {
        name: Rectangle(_LEFT + _COLUMN * column, _TOP + _ROWS[row], _WIDTH, _HEIGHT)
        for name, (column, row) in places.items()
    }


def lines(arrows: Sequence[Arrow]) -> list[tuple[float, float, float, float]]:
    """Return the ends of each arrow; those that share a side of a box are spread along it."""
    placed = boxes()
    ends = []
    for arrow in arrows:
        a, b = placed[arrow.stronger], placed[arrow.weaker]
        if a.y == b.y:
            ends.append((a.x, a.y + a.height / 2, b.x + b.width, b.y + b.height / 2))
            continue
        out = sorted(placed[each.weaker].x for each in arrows if each.stronger == arrow.stronger)
        into = sorted(placed[each.stronger].x for each in arrows if each.weaker == arrow.weaker)
        ends.append((_spread(a, out.index(b.x), len(out)), a.y + a.height, _spread(b, into.index(a.x), len(into)), b.y))
    return ends


def _spread(box: Rectangle, place: int, count: int) -> float:
    return box.x + box.width * (place + 1) / (count + 1)


def labels(arrows: Sequence[Arrow]) -> list[tuple[str, Rectangle]]:
    """Return the words of each arrow that has some; those of a long one nearer to its head, where it stands alone."""
    found = []
    for arrow, (x, y, u, v) in zip(arrows, lines(arrows), strict=True):
        width = 5.7 * len(arrow.words) + 6
        part = 0.76 if abs(u - x) > _COLUMN else 0.5
        middle, height = (x + part * (u - x), y + part * (v - y)) if y != v else ((x + u) / 2, y - 13)
        if arrow.words:
            found.append((arrow.words, Rectangle(middle - width / 2, height - 8, width, 15)))
    return found


def atlas_svg(arrows: Sequence[Arrow]) -> str:
    """Return the map as SVG."""
    width, height = _LEFT * 2 + _COLUMN * 8 + _WIDTH, _TOP + _ROWS[-1] + _HEIGHT + 120
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Which definition of privacy implies which" font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{_FAINT}"/></marker></defs>',
        _text(_LEFT, 34, "Which definition implies which", size=22, bold=True),
        _text(_LEFT, 58, "A → B: every mechanism that satisfies A satisfies B, at the same budget or at the factor "
              "written beside the arrow. “back × k”: B implies A at k times B's budget. Least and most are the "
              "smallest and the largest distance or own budget.", size=13, colour=_FAINT),
        *(_line(arrow.how, *ends) for arrow, ends in zip(arrows, lines(arrows), strict=True)),
    ]  # fmt: skip
    for words, place in labels(arrows):
        drawn.append(_rectangle(place, "white"))
        drawn.append(_text(place.x + place.width / 2, place.y + 11.5, words, size=11, colour=_FAINT, centred=True))
    for name, box in boxes().items():
        drawn += [_rectangle(box, _COLOURS[_block(name)][0], stroke=_FAINT)]
        drawn += [
            _text(box.x + _WIDTH / 2, box.y + 20, name, size=12.5 if len(name) < 22 else 11.5, bold=True, centred=True)
        ]
        says = raw_atlas()["definitions"][name]["says"]
        drawn += [_text(box.x + _WIDTH / 2, box.y + 37, says, size=11, centred=True)]
    return "\n".join([*drawn, *_legend(_TOP + _ROWS[-1] + _HEIGHT + 36), "</svg>"]) + "\n"


def _block(name: str) -> str:
    flavor = load(name).specification.flavor
    if name == "pure-dp":
        return "base"
    if flavor.domain.name in ("answers", "population", "models"):
        return "who"
    if not flavor.multiverse.is_vacuous:
        return "where"
    return "how" if flavor.input_premetric.name == "d_Ham" and flavor.output_premetric.name != "D_Mult" else "what"


def _legend(y: float) -> list[str]:
    parts = []
    for place, (colour, words) in enumerate(_COLOURS.values()):
        x = _LEFT + place * 250
        parts += [_rectangle(Rectangle(x, y, 22, 14), colour, stroke=_FAINT), _text(x + 30, y + 11.5, words, size=12)]
    for place, (how, (_, words)) in enumerate(_LINES.items()):
        x = _LEFT + place * 500
        parts += [_line(how, x, y + 38, x + 44, y + 38), _text(x + 54, y + 42, words, size=12)]
    return parts


def _line(how: str, x: float, y: float, u: float, v: float) -> str:
    dash = f' stroke-dasharray="{_LINES[how][0]}"' if _LINES[how][0] else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="{_FAINT}" stroke-width="1.3"{dash} '
        'marker-end="url(#tip)"/>'
    )


def _rectangle(place: Rectangle, fill: str, *, stroke: str = "none") -> str:
    return (
        f'<rect x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" rx="5" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def _text(
    x: float, y: float, words: str, *, size: float, bold: bool = False, centred: bool = False, colour: str = _INK
) -> str:
    style = (' font-weight="600"' if bold else "") + (' text-anchor="middle"' if centred else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{style}>{escape(words)}</text>'
