"""Figures 6.1 and 7.2: the numbers of the source, drawn into new files, and the same as the documentation shows."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from stirred.cli.main import run
from stirred.cli.output import draw
from stirred.report import charts
from stirred.spec.problems import StirredError
from stirred.survey.figures import NAIVE, TRUE, figure_6_1, figure_7_2
from stirred.survey.settings import Setting

KEPT = Path(__file__).resolve().parents[2] / "docs" / "_static"
SEEN = re.compile(r'<text[^>]*>([^<]*)</text>|<title>([^<]*)</title>|d="([^"]*)"')


def seen(svg: str) -> list[tuple[str, str, str]]:
    """Texts, titles and shapes; where they stand depends on the fonts of a machine."""
    return SEEN.findall(svg)


def test_figure_6_1_has_the_numbers_of_the_source() -> None:
    found = {(series, round(x, 9)): y for series, x, y in figure_6_1(Fraction(1, 10), 5).points}
    for x, red, blue in ((0.5, 0.125709, 0.158565), (1, 0.317130, 0.494029), (2, 0.988057, 1.849999),
                         (3, 2.135312, 3.719478), (5, 5.512578, 7.697823)):  # fmt: skip
        assert (found[NAIVE, x], found[TRUE, x]) == pytest.approx((red, blue), abs=1e-6)


def test_figure_7_2_shows_its_settings() -> None:
    tiles = {(row, step): word for row, step, word in figure_7_2().tiles}
    for row, setting in (("(b)", Setting("frame", "population")), ("(c)", Setting("responding", "frame"))):
        assert tiles[row, setting.start] == "starts here"
        assert tiles[row, setting.invariant or ""] == "held fixed"
    assert [word for (row, _), word in tiles.items() if row == "(a)"] == [*["may differ"] * 4, "starts here",
                                                                          "published"]  # fmt: skip


def test_the_figures_of_the_documentation_are_those_that_are_drawn(tmp_path: Path) -> None:
    """`stirred survey figures --out docs/_static` draws them again; remove the old ones first."""
    assert run(["survey", "figures", "--out", str(tmp_path / "new")]) == 0
    drawn = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in drawn] == ["figure-6-1.svg", "figure-7-2.svg"]
    for path in drawn:
        text = path.read_text(encoding="utf-8")
        assert "var(" not in text, "a file of its own has no colours of a page"
        assert len(seen(text)) > 20
        assert seen(text) == seen((KEPT / path.name).read_text(encoding="utf-8"))
    other = tmp_path / "other"
    assert run(["survey", "figures", "--rate", "1/5", "--out", str(other)]) == 0
    assert seen((other / drawn[0].name).read_text()) != seen(drawn[0].read_text()), "another figure is told apart"


def test_no_picture_replaces_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "figure-7-2.svg").write_text("mine")
    assert run(["survey", "figures", "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_figures_are_not_begun_without_what_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(charts, "_installed", lambda: False)
    assert run(["survey", "figures", "--out", str(tmp_path / "new")]) == 2
    assert "pip install" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_picture_is_drawn_as_svg_alone(tmp_path: Path) -> None:
    with pytest.raises(StirredError, match=r"the ending \.svg"):
        draw({tmp_path / "loss.png": figure_7_2()})
