"""The report, opened in a real browser: complete, silent on the network, readable everywhere."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.report import release as release_report
from stirred.report.page import page, table
from tests.report.browser import browse, requests_made
from tests.report.naughty import NAUGHTY, naughty_swap
from tests.world import households

EDITIONS = ["public", "internal"]
# 60 households of three sizes: the largest live stratum has 20, of odds 1/4. The sharp bound (R1) is half of
# ln(d(20) / d(18)) plus ln(4); the number of derangements d(n) is n!/e to more digits than this needs.
EPSILON = math.ceil(100 * (math.log(20 * 19) / 2 + math.log(4))) / 100


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose values and names try to break out of the page, with a table wider than a phone."""
    return naughty_swap(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def seen(bundle: Path) -> dict[str, str]:
    """The page as the browser has it after loading."""
    return {edition: browse(bundle / edition / "report.html", "--dump-dom") for edition in EDITIONS}


def text_of(dom: str) -> str:
    body = re.sub(r"<(style|script)\b.*?</\1>", " ", dom, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_five_questions_are_answered_in_words_on_the_first_screen(edition: str, seen: dict[str, str]) -> None:
    text = text_of(seen[edition])
    for question in ("Who is eligible?", "Where does it extend?", "What is the unit?", "How is change measured?"):
        answer = text.split(question)[1]
        assert len(answer.split("?")[0].split()) > 5, f"{question} is not answered in words"
    assert "How much may change?" in text
    assert f"ε={EPSILON}" in text
    assert "The paper's bound is 4.44" in text.replace("&#x27;", "'")  # Theorem 1: ln of 21 / (1/4)


@pytest.mark.parametrize("edition", EDITIONS)
def test_what_could_be_learned_follows_the_answers_and_comes_from_the_specification_alone(
    edition: str, seen: dict[str, str]
) -> None:
    text = text_of(seen[edition]).partition("What could be learned")[2]
    # The nearest two versions are 2 apart: 2 * EPSILON is below 10 for one household, and above it for an area.
    assert "one household, or one person in it 2 a 5% test has power at most 99." in text
    assert "everything about an area of 100 households 200 no assurance: epsilon times distance is" in text
    assert "For the exact figures there is no limit" in text.split("Rate and loss")[0]


@pytest.mark.parametrize("edition", EDITIONS)
def test_what_is_invariant_is_listed_before_anything_else(edition: str, seen: dict[str, str]) -> None:
    text = text_of(seen[edition])
    first = text.index("Not protected, because it is held fixed (published exactly, or taken as known)")
    assert first < text.index("Who is eligible?") < text.index("Rate and loss")
    assert "the number of households by size x a_very_long_column_name_indeed x county" in text
    assert "x tenure x all characteristics of its persons" in text


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_loss_curve_is_drawn_by_vega_inside_the_page_with_the_chosen_point(
    edition: str, seen: dict[str, str]
) -> None:
    charts = re.findall(r"<svg[^>]*>.*?</svg>", seen[edition], flags=re.DOTALL)
    assert charts, "no chart in the page"
    curve = next(chart for chart in charts if "swap rate" in chart)
    assert 'class="marks"' in curve, "not drawn by Vega"
    assert f"chosen: 20%, epsilon {EPSILON}" in curve
    assert "smallest possible" in curve
    assert 'role="img"' in curve
    assert "aria-label=" in curve


def test_strata_tables_checks_and_conditions_are_shown(seen: dict[str, str]) -> None:
    text = text_of(seen["public"])
    for heading in ("Strata", "Verified on the files as written", "Tables", "Conditions of use"):
        assert heading in text
    assert "fixed beforehand, or depend on the invariants alone" in text
    assert "Columns not released: hid" in text


def test_before_and_after_with_errors_are_in_the_internal_edition_only(seen: dict[str, str]) -> None:
    internal, public = text_of(seen["internal"]), text_of(seen["public"])
    for words in ("Before and after", "mean absolute error", "never publish"):
        assert words in internal
        assert words not in public
    assert "public edition" in public


def test_the_public_edition_is_the_same_whatever_the_accuracy_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendered once with the accuracy at hand and once without: not one letter may differ."""
    kept: list[Any] = []
    from stirred.release import reports

    def keep(report: Any) -> str:
        kept.append(report)
        return release_report.public_report(report)

    monkeypatch.setattr(reports, "public_report", keep)
    # A held copy of the county raises a doubt, which is a fact about the confidential file.
    households().with_columns(pl.col("county").alias("place")).write_parquet(tmp_path / "homes.parquet")
    plan = {
        "data": {"households": "homes.parquet", "hid": "hid"},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "tables": [{"variables": ["county", "tenure"]}],
        "release": {"out": "bundle", "accept": ["tells:place"]},
    }
    run(prepare(plan_from(plan, source="plan", folder=tmp_path)), entropy=Entropy.from_os())
    _, report = kept  # the first one is of the rehearsal
    assert report.accuracy
    assert [doubt.name for doubt in report.doubts] == ["tells:place"]
    for doubt in report.doubts:
        assert escape(doubt.what) not in release_report.public_report(report)
        assert escape(doubt.what) in release_report.internal_report(report)
    assert "accepted these doubts about protection by name: tells:place" in release_report.public_report(report)
    assert release_report.public_report(report) == release_report.public_report(replace(report, accuracy={}))


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_page_points_nowhere_and_forbids_it_too(edition: str, bundle: Path) -> None:
    page = (bundle / edition / "report.html").read_text(encoding="utf-8")
    for shown in (escape(NAUGHTY), escape(NAUGHTY, quote=False)):  # in the page, and as text of a chart
        page = page.replace(shown, "")
    outside = [
        url for url in re.findall(r"(?:https?|wss?|ftp):[^\s\"'<>)]*", page) if not url.startswith("http://www.w3.org/")
    ]
    assert outside == []
    assert not re.search(r"(?:src|href)=[\"']?//", page)
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page
    for tag in ("<link", "<iframe", "<object", "<embed", "@import", " onclick=", " onload="):
        assert tag not in page
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    allowed = re.findall(r"script-src ([^;]*);", page)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert page.count("<script>") == 1
    assert allowed == [f"'sha256-{digest}'"], "no other script may run"


def test_a_page_that_did_ask_would_be_seen(tmp_path: Path) -> None:
    """Power: the same look at a page with one picture from outside."""
    page = tmp_path / "page.html"
    page.write_text("<img src='http://127.0.0.1:9/picture.png'>", encoding="utf-8")
    assert requests_made(page, tmp_path) == {"http://127.0.0.1:9/picture.png"}


@pytest.mark.parametrize("edition", EDITIONS)
def test_values_of_the_file_cannot_become_part_of_the_page(edition: str, seen: dict[str, str]) -> None:
    assert seen[edition].count("<script>") == 1, "the page's own"
    assert "<img" not in seen[edition]
    title = "Release of homes" + (" (internal)" if edition == "internal" else "")
    assert f"<title>{title}</title>" in seen[edition]
    assert "document.title='taken'" in text_of(seen[edition]), "the value is shown as it is"


MEASURE = """<script>
addEventListener('load', () => {
  const box = name => document.querySelector(name).getBoundingClientRect();
  const svg = [...document.querySelectorAll('svg')].map(s => Math.ceil(s.getBoundingClientRect().width));
  document.title = JSON.stringify({scroll: document.documentElement.scrollWidth, client: innerWidth,
    five: Math.round(box('.five').top), open: Math.round(box('.open').top), svg: Math.max(0, ...svg),
    picture: Math.round((document.querySelector('.open svg') || document.body).getBoundingClientRect().bottom),
    hidden: Math.max(0, ...[...document.querySelectorAll('.scroll')].map(s => s.scrollWidth - s.clientWidth)),
    ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor});
});
</script>"""


def measured(page: Path, folder: Path, *arguments: str, width: int) -> dict[str, Any]:
    """Measure a copy of the page with a script in it."""
    import html
    import json

    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<meta http-equiv=[^>]*>", "", text).replace("</head>", MEASURE + "</head>")
    copy = folder / "copy.html"
    copy.write_text(text, encoding="utf-8")
    dom = browse(
        copy, "--dump-dom", "--allow-file-access-from-files", "--virtual-time-budget=3000", *arguments,
        width=max(width, 500), height=900,
    )  # fmt: skip
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    assert found, dom[:500]
    values: dict[str, Any] = json.loads(html.unescape(found[1]))
    return values


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_first_screen_of_a_laptop_shows_three_sentences_and_a_picture(
    edition: str, bundle: Path, tmp_path: Path
) -> None:
    size = measured(bundle / edition / "report.html", tmp_path, width=1280)
    assert size["open"] < 200
    assert size["picture"] < 800
    assert size["five"] < 1000


def test_a_table_of_nine_columns_shows_its_last_one_on_a_laptop(tmp_path: Path) -> None:
    """As wide as the one of the demonstration: words in the header wrap, and the letters are smaller."""
    header = ["county", "owned", "rented", "total", "owned after (paper)", "owned after (ours)"]
    header += ["expected for our file", "corrected (unswap)", "95% interval"]
    row = ["Middlesex", 104_144, 147_687, 251_831, 100_372, 100_021, "100,033 ± 187", "104,121", "103,388 to 104,853"]
    file = tmp_path / "page.html"
    first = '<div class="open"></div><div class="five"></div>'
    file.write_text(page("wide", [first, table(header, [row])]), encoding="utf-8")
    assert measured(file, tmp_path, width=1200)["hidden"] == 0
    assert measured(file, tmp_path, width=500)["hidden"] > 0, "the check would see it"


def test_numbers_that_are_written_as_text_are_aligned_like_numbers() -> None:
    shown = table(
        ["measure", "this run", "cells"], [["error", "4.91%", 3], ["association", "", 4]], numbers=["this run"]
    )
    assert "<th scope=col>measure</th><th scope=col class=n>this run</th><th scope=col class=n>cells</th>" in shown
    assert "<td>error</td><td class=n>4.91%</td><td class=n>3</td>" in shown


def test_what_is_in_the_tables_of_the_internal_edition_is_told_apart(seen: dict[str, str]) -> None:
    assert "Cell by cell:" in seen["internal"]


def test_dark_and_light_differ_and_both_can_be_read(bundle: Path, tmp_path: Path) -> None:
    page = bundle / "public" / "report.html"
    assert "@media (prefers-color-scheme: dark)" in page.read_text(encoding="utf-8")

    def brightness(colour: str) -> float:
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light = measured(page, tmp_path, width=1280)
    dark = measured(page, tmp_path, "--blink-settings=preferredColorScheme=0", width=1280)
    assert brightness(light["paper"]) - brightness(light["ink"]) > 150
    assert brightness(dark["ink"]) - brightness(dark["paper"]) > 150


def test_a_screenshot_is_a_picture_with_something_on_it(bundle: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(bundle / "public" / "report.html", f"--screenshot={picture}", width=500, height=2000)
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000, "a nearly empty picture"


def test_it_prints_to_paper(bundle: Path, tmp_path: Path) -> None:
    paper = tmp_path / "page.pdf"
    browse(bundle / "public" / "report.html", f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(content) > 10_000
    assert "@media print" in (bundle / "public" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_report_is_one_file_of_modest_size(edition: str, bundle: Path) -> None:
    assert (bundle / edition / "report.html").stat().st_size < 500_000


def test_where_vega_is_not_installed_the_report_says_how_to_get_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from stirred.mechanisms.protocol import Curve
    from stirred.report.charts import loss_curve

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert "pip install 'stirred[report]'" in loss_curve(Curve(points=((0.5, 1.0),)))
