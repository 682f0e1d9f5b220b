"""The map of definitions: everything stands apart and can be read."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

from stirred.report.atlas_map import Rectangle, atlas_svg, boxes, labels, lines
from stirred.spec import catalogue
from stirred.spec.catalogue.atlas import arrows

ARROWS = arrows()
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_no_box_and_no_label_covers_another() -> None:
    places = [*boxes().items(), *labels(ARROWS)]
    assert len(places) > 40
    touching = [(a, b) for (a, x), (b, y) in combinations(places, 2) if x.meets(y)]
    assert touching == []


def test_rectangles_that_overlap_are_seen() -> None:
    one = Rectangle(0, 0, 10, 10)
    assert one.meets(Rectangle(5, 5, 10, 10))
    assert not one.meets(Rectangle(10, 0, 10, 10))


def test_no_arrow_runs_through_a_box_that_it_does_not_join() -> None:
    for arrow, (x, y, u, v) in zip(ARROWS, lines(ARROWS), strict=True):
        along = [(x + (u - x) * step / 200, y + (v - y) * step / 200) for step in range(2, 199)]
        for name, box in boxes().items():
            inside = [p for p in along if box.meets(Rectangle(*p, 0.1, 0.1))]
            assert not inside or name in (arrow.stronger, arrow.weaker), (arrow, name)


def test_the_map_names_every_definition_and_draws_every_arrow() -> None:
    drawn = ElementTree.fromstring(atlas_svg(ARROWS))
    texts = [text.text for text in drawn.iter(f"{NAMESPACE}text")]
    assert set(catalogue.names("definition")) <= set(texts)
    assert len(list(drawn.iter(f"{NAMESPACE}line"))) == len(ARROWS) + 3  # and three in the legend
    width, height = float(drawn.get("width", 0)), float(drawn.get("height", 0))
    for place in (*boxes().values(), *(place for _, place in labels(ARROWS))):
        assert place.x >= 0
        assert place.x + place.width <= width
        assert place.y + place.height <= height


def test_the_picture_in_the_documentation_is_the_one_that_is_drawn() -> None:
    """`stirred spec map --out docs/_static/definitions.svg` draws it again."""
    kept = Path(__file__).resolve().parents[2] / "docs" / "_static" / "definitions.svg"
    assert kept.read_text(encoding="utf-8") == atlas_svg(ARROWS)
