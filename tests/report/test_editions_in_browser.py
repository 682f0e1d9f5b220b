"""Both editions of four kinds of bundles in a real browser, on a phone and on a desktop, with and without scripts.

One start of the browser opens a page with all of them in frames and measures each; another one does so in the dark.
"""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.report.browser import browse, opened, requests_in
from tests.report.naughty import naughty_swap
from tests.world import CODEBOOK_OF_HOMES, households, stirred

WIDTHS = {"phone": 390, "desktop": 1280}
FLAGS = ["--allow-file-access-from-files", "--virtual-time-budget=4000", "--dump-dom"]
TABLES = [{"variables": ["county", "tenure", "size"]}]
PLANS: dict[str, dict[str, Any]] = {
    "noise": {"name": "noisy-tables", "rho": "1/2"},
    "keys": {"name": "cell-key", "ptable": "ptable.csv"},
}
MEASURE = """
const shown = (frame, element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && frame.getComputedStyle(element).opacity !== '0';
};
const overlapping = (frame, svg) => {
  const texts = [...svg.querySelectorAll('text')].filter(each => each.textContent.trim() && shown(frame, each));
  const boxes = texts.map(each => [each.textContent, each.getBoundingClientRect()]), found = [];
  boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([two, b]) => {
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 1 && y > 2) found.push([one, two]);
  }));
  return found;
};
const paper = (frame, element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = frame.getComputedStyle(each).backgroundColor;
    if (colour !== 'rgba(0, 0, 0, 0)') return colour;
  }
};
const colours = (frame, page) => {
  const texts = new Set(), marks = new Set();
  for (const each of page.querySelectorAll('main *')) {
    const style = frame.getComputedStyle(each), svg = each.ownerSVGElement;
    const own = [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!shown(frame, each) || each.closest('title, caption')) continue;
    if (own) texts.add(JSON.stringify([svg ? style.fill : style.color, paper(frame, svg ? svg.parentElement : each)]));
    if (!svg || each.closest('.role-axis-grid') || !each.matches('path, line, circle, rect')) continue;
    const on = paper(frame, svg.parentElement), solid = /^rgb\\(/;
    if (solid.test(style.fill) && !each.matches('.background')) marks.add(JSON.stringify([style.fill, on]));
    else if (solid.test(style.stroke)) marks.add(JSON.stringify([style.stroke, on]));
  }
  return {texts: [...texts].map(JSON.parse), marks: [...marks].map(JSON.parse)};
};
const used = (frame, page) => {
  const table = [...page.querySelectorAll('table')].find(each => /^countytenuresize/.test(each.tHead.textContent));
  if (!table) return null;
  const column = () => [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[3].textContent);
  const button = table.tHead.querySelectorAll('button')[3], input = table.parentNode.previousElementSibling.control;
  const found = {before: column()};
  button.click();
  found.up = column();
  found.sort = button.parentNode.getAttribute('aria-sort');
  button.click();
  found.down = column();
  input.value = 'nOrTh';
  input.dispatchEvent(new frame.Event('input'));
  found.filtered = [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent);
  return found;
};
const measure = frame => {
  const page = frame.document, found = {};
  page.querySelectorAll('details').forEach(each => each.open = true);
  found.width = frame.innerWidth;
  found.scroll = page.documentElement.scrollWidth;
  found.lang = page.documentElement.lang;
  found.overlaps = [...page.querySelectorAll('svg')].flatMap(svg => overlapping(frame, svg));
  found.svg = [...page.querySelectorAll('svg')].map(each => [each.getAttribute('role'), each.ariaLabel]);
  found.titles = page.querySelectorAll('svg path title').length;
  found.letters = Math.min(...[...page.querySelectorAll('svg text')].map(each => each.getBoundingClientRect().height));
  found.headings = [...page.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1]);
  found.captions = [...page.querySelectorAll('table')].map(each => (each.caption || {}).textContent || '');
  found.scopes = [...page.querySelectorAll('th')].every(each => each.scope === 'col');
  found.colours = colours(frame, page);
  const text = page.querySelector('main').cloneNode(true);
  text.querySelectorAll('.filter').forEach(each => each.remove());
  found.text = text.textContent.replace(/\\s+/g, ' ');
  const reach = [...page.querySelectorAll('button, input, summary, [tabindex]')];
  found.reached = reach.filter(each => { each.focus(); return page.activeElement === each; }).length;
  found.reachable = reach.length;
  if (page.querySelector('th button')) found.used = used(frame, page);
  return found;
};
addEventListener('load', () => setTimeout(() => {
  const found = {};
  for (const frame of document.querySelectorAll('iframe')) found[frame.name] = measure(frame.contentWindow);
  document.title = JSON.stringify(found);
}, 300));
"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A swap with names that are hard to show, noisy tables and cell keys."""
    folder = tmp_path_factory.mktemp("editions")
    households().write_parquet(folder / "own.parquet")
    (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    assert stirred("ptable", "design", "--D", "2", "--V", "9/10", "--out", "ptable.csv", cwd=folder).returncode == 0
    found = {"swap": naughty_swap(folder)}
    for name, mechanism in PLANS.items():
        data = {"households": "own.parquet", "codebook": "codebook.toml", "id": ["hid"]}
        release = {"out": name, "accept": ["large-delta"] if name == "keys" else []}
        plan = {"data": data, "mechanism": mechanism, "tables": TABLES, "release": release}
        found[name] = run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())
    found["survey"] = survey(folder)
    return found


def survey(folder: Path) -> Path:
    """Estimates with long names, in small and large domains."""
    rng = np.random.default_rng(1)
    own = {"w": [20.0] * 600, "work": rng.choice(list("abcdefgh"), 600, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01]),
           "a_column_with_a_long_name": rng.integers(0, 99, 600)}  # fmt: skip
    pl.DataFrame(own).write_csv(folder / "sample.csv")
    total = {"kind": "total", "variable": "a_column_with_a_long_name", "bounds": [0, 100], "by": ["work"]}
    mechanism = {"name": "survey-estimates", "epsilon": 4, "attest": ["design-weights"], "weight_bounds": [10, 40],
                 "values": {"work": [*"abcdefgh"]}}  # fmt: skip
    plan = {"data": {"sample": "sample.csv", "record": "person"}, "design": {"weights": "w"}, "mechanism": mechanism,
            "estimates": [total, {"kind": "table", "by": ["work"]}], "release": {"out": "survey"}}  # fmt: skip
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())


@pytest.fixture(scope="module")
def looked(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each frame measured, by kind, edition, width and scripts; console and network of all of them."""
    return _looked(bundles, tmp_path_factory.mktemp("looked"), "")


@pytest.fixture(scope="module")
def dark(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same in the dark, with a page around it that complains and asks for a picture."""
    bad = "<script>console.error('wrong'); missing()</script><img src='http://127.0.0.1:9/picture.png'>"
    return _looked(bundles, tmp_path_factory.mktemp("dark"), bad, "--blink-settings=preferredColorScheme=0")


def _looked(bundles: dict[str, Path], folder: Path, around: str, *more: str) -> dict[str, Any]:
    frames = [
        f"<iframe name='{kind} {edition} {size} {scripts}' src='{(bundle / edition / 'report.html').as_uri()}' "
        f"style='width:{width}px;height:900px;border:0' {'sandbox=allow-same-origin' if scripts == 'off' else ''}>"
        "</iframe>"
        for kind, bundle in bundles.items()
        for edition in ("public", "internal")
        for size, width in WIDTHS.items()
        for scripts in ("on", "off")
        if not more or (size, scripts) == ("desktop", "on")
    ]
    page, log = folder / "frames.html", folder / "network.json"
    page.write_text(f"<title>-</title>{around}{''.join(frames)}<script>{MEASURE}</script>", encoding="utf-8")
    done = opened(page, *FLAGS, f"--log-net-log={log}", "--enable-logging=stderr", *more, width=1400)
    title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.DOTALL)
    assert title
    assert title[1] != "-", done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "sandboxed" not in line]
    return {"frames": json.loads(html.unescape(title[1])), "console": console, "requests": requests_in(log)}


def every(looked: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    assert len(looked["frames"]) in (4 * 2 * 2 * 2, 4 * 2)
    return [*looked["frames"].items()]


def test_no_page_is_wider_than_its_screen(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        assert found["width"] == WIDTHS[name.split()[2]]
        assert found["scroll"] <= found["width"], name


def test_no_text_of_a_chart_lies_on_another_and_letters_can_be_read_on_a_phone(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        assert found["overlaps"] == [], name
        assert found["letters"] > 8, name


def test_nothing_complains_and_nothing_is_asked_for(looked: dict[str, Any], dark: dict[str, Any]) -> None:
    assert looked["console"] == []
    assert looked["requests"] == set()
    assert len([line for line in dark["console"] if "wrong" in line or "missing" in line]) == 2, "it would be seen"
    assert dark["requests"] == {"http://127.0.0.1:9/picture.png"}, "it would be seen"


def test_every_page_can_be_read_without_seeing_it(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        assert found["lang"] == "en"
        assert found["headings"][0] == 1
        assert found["headings"].count(1) == 1, name
        assert all(after <= before + 1 for before, after in pairwise(found["headings"])), name
        assert all(found["captions"]), name
        assert found["scopes"]
        assert found["svg"], name
        assert all(role == "img" and label for role, label in found["svg"]), name


def test_the_keyboard_reaches_everything_that_can_be_used(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        assert found["reachable"] >= (10 if name.endswith("on") else 3), name
        assert found["reached"] == found["reachable"], name


def test_tables_are_sorted_by_number_and_filtered_by_the_script(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        if name.endswith("off"):
            assert "used" not in found, "nothing dead is shown without scripts"
            continue
        if name.startswith("survey"):
            assert found["used"] is None, "it has no such table"
            continue
        used = found["used"]
        numbers = [float(text.replace(",", "")) for text in used["up"]]
        assert used["sort"] == "ascending"
        assert numbers == sorted(numbers), name
        assert [float(text) for text in used["down"]] == sorted(numbers, reverse=True), name
        assert sorted(used["before"]) == sorted(used["up"])
        assert 0 < len(used["filtered"]) < len(used["before"])
        assert {*used["filtered"]} == {"North"}, name


def test_without_scripts_nothing_is_missing(looked: dict[str, Any]) -> None:
    for name, found in every(looked):
        if name.endswith("on"):
            assert found["text"] == looked["frames"][f"{name[:-2]}off"]["text"]


def test_marks_say_what_they_stand_for_under_the_pointer(looked: dict[str, Any]) -> None:
    assert all(found["titles"] >= 2 for _, found in every(looked))


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    low, high = sorted(luminance(each) for each in (one, two))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", ["looked", "dark"])
def test_every_colour_stands_out_from_what_it_is_on(paper: str, request: pytest.FixtureRequest) -> None:
    """Text 4.5 to 1, marks of charts 3 to 1 (WCAG 1.4.3 and 1.4.11); only lines of a grid may be fainter."""
    texts, marks = set(), set()
    for _, found in every(request.getfixturevalue(paper)):
        texts |= {tuple(pair) for pair in found["colours"]["texts"]}
        marks |= {tuple(pair) for pair in found["colours"]["marks"]}
    assert len(texts) > 5
    assert len(marks) > 4
    assert {pair for pair in texts if contrast(*pair) < 4.5} == set()
    assert {pair for pair in marks if contrast(*pair) < 3} == set()


def test_what_is_folded_is_on_paper(bundles: dict[str, Path], tmp_path: Path) -> None:
    text = (bundles["swap"] / "internal" / "report.html").read_text(encoding="utf-8")
    pages = {
        "closed": text,
        "lost": re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL).replace("details::details-content", "x"),
    }
    sizes = {}
    for name, content in pages.items():
        (tmp_path / f"{name}.html").write_text(content, encoding="utf-8")
        browse(tmp_path / f"{name}.html", f"--print-to-pdf={tmp_path / name}.pdf", "--no-pdf-header-footer")
        sizes[name] = (tmp_path / f"{name}.pdf").stat().st_size
    assert sizes["lost"] < 0.97 * sizes["closed"], "what is folded is not printed"
