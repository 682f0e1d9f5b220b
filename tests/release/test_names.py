"""Names and values from outside: shown as they are on Markdown pages, and warned of where a spreadsheet runs them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from markdown_it import MarkdownIt

from stirred import Entropy
from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run as command
from stirred.data.csv_text import formula_doubts
from stirred.release.plan_file import plan_from
from stirred.release.run import run
from stirred.spec.problems import StirredError
from tests.world import households, planned, world

Out = pytest.CaptureFixture[str]
NASTY = "c|<img src=x onerror=a()>[k](javascript:b())*_`"


def plan(**more: Any) -> dict[str, Any]:
    return {
        "data": {"households": "homes.parquet", "id": ["hid"]},
        "mechanism": {"match": ["size"], "swap": [NASTY], "rate": "1/2"},
        "tables": [{"name": "t", "variables": [NASTY, "tenure"]}],
        "release": {
            "out": "out",
            "title": "A <b>title</b> | [x](javascript:c())",
            "purpose": "for *all*\n\n# of us <script>d()</script>",
        },
        **more,
    }


def prepared(folder: Path, content: dict[str, Any], homes: pl.DataFrame) -> Any:
    return planned(world(folder, homes), content)


def test_no_name_becomes_a_tag_a_link_or_a_heading_on_a_page(tmp_path: Path) -> None:
    out = run(prepared(tmp_path, plan(), households().rename({"county": NASTY})), entropy=Entropy.from_os())
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for name in ("README.md", "specification.md"):
        text = (out / "public" / name).read_text(encoding="utf-8")
        html = renderer.render(text)
        assert not re.search(r"<(a|img|script|em|strong|del|b)\b", html), name
        assert html.count("<h1>") == 1
        shown = re.sub(r"<[^>]*>", "", html)
        assert NASTY.replace("<", "&lt;").replace(">", "&gt;") in shown
    assert audit_bundle(out).passed


def test_the_html_report_shows_names_as_they_are(tmp_path: Path) -> None:
    out = run(prepared(tmp_path, plan(), households().rename({"county": NASTY})), entropy=Entropy.from_os())
    for report in (out / "public" / "report.html", out / "internal" / "report.html"):
        page = report.read_text(encoding="utf-8")
        for tag in ("<img src=x", "<script>d()", "<b>title"):
            assert tag not in page


# ---- formulas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-cmd", "@x", "\tx", "\r=1", '=HYPERLINK("http://a")', "-5-3"])
def test_a_text_that_a_spreadsheet_runs_is_a_doubt_that_refuses(text: str) -> None:
    (doubt,) = formula_doubts([pl.Series("a", ["x", None, text]), pl.Series("b", ["x", "y", "z"])])
    assert (doubt.name, doubt.refuses) == ("formula:a", True)
    assert text not in doubt.what


@pytest.mark.parametrize(
    "text", ["-5", "+5", "-5.25", "-1,5", "-1e-9", "-5%", "5", "a=b", "", "-.5", "1 - 2", "x@y", "-inf"]
)
def test_numbers_and_ordinary_texts_are_none(text: str) -> None:
    assert formula_doubts([pl.Series("a", [text])]) == ()
    assert formula_doubts([pl.Series("a", [-5, 3]), pl.Series("b", [-0.5, None])]) == ()


def test_a_column_name_that_a_spreadsheet_runs_is_a_doubt() -> None:
    assert [doubt.name for doubt in formula_doubts([pl.Series("=a", [1])])] == ["formula:=a"]


@pytest.mark.parametrize(
    ("format_", "table", "found"), [("csv", "size", True), ("parquet", "tenure", True), ("parquet", "size", False)]
)
def test_the_plan_says_which_columns_of_csv_files_hold_formulas(
    tmp_path: Path, format_: str, table: str, found: bool
) -> None:
    homes = households().with_columns(pl.col("tenure").replace("owned", "=owned"))
    content = plan(
        mechanism={"match": ["size"], "swap": ["county"], "rate": "1/2"},
        tables=[{"variables": ["county", table]}],
        release={"out": "out", "format": format_},
    )
    made = prepared(tmp_path, content, homes)
    assert [doubt.name for doubt in made.doubts] == (["formula:tenure"] if found else [])


@pytest.mark.parametrize(("table", "found"), [("tenure", ["formula:tenure_label"]), ("size", [])])
def test_labels_of_the_codebook_are_looked_at_too(tmp_path: Path, table: str, found: list[str]) -> None:
    variables = [("hid", "id", ""), ("county", "text", ""), ("size", "integer", "")]
    variables += [("tenure", "code", 'codes = { owned = "=1+1", rented = "rented" }\n')]
    text = "".join(
        f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "{kind}"\n{more}'
        for name, kind, more in variables
    )
    (tmp_path / "codebook.toml").write_text(text, encoding="utf-8")
    content = plan(
        mechanism={"match": ["size"], "swap": ["county"], "rate": "1/2"},
        tables=[{"variables": ["county", table]}],
        release={"out": "out"},
    )
    content["data"]["codebook"] = "codebook.toml"
    assert [doubt.name for doubt in prepared(tmp_path, content, households()).doubts] == found


def test_a_formula_is_released_and_published_only_if_somebody_accepts_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    households().with_columns(pl.col("tenure").replace("owned", "=owned")).write_csv("homes.csv")
    options = ["--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid", "--table", "county x tenure"]
    assert command(["swap", "homes.csv", *options, "--out", "out", "--quiet"]) == 2
    said = " ".join("".join(capsys.readouterr()).split())
    assert '"tenure" has texts (or a name) that begin with = + - or @' in said
    assert "--accept formula:tenure" in said
    assert not Path("out").exists()
    assert command(["swap", "homes.csv", *options, "--out", "out", "--quiet", "--accept", "formula:tenure"]) == 0
    page = Path("out/public/README.md").read_text(encoding="utf-8")
    assert "tenure has texts that a spreadsheet runs as formulas: import the column as text" in page
    assert command(["publish", "out", "site", "--dry-run"]) == 0
    # A release of an earlier version, which warned and went on.
    written = Path("out/manifest.json")
    doubtless = json.loads(written.read_text(encoding="utf-8"))
    doubtless["doubts"] = []
    written.write_text(json.dumps(doubtless), encoding="utf-8")
    assert command(["publish", "out", "site", "--dry-run"]) == 2
    assert "--accept formula:tenure" in " ".join("".join(capsys.readouterr()).split())


# ---- texts that no CSV file can hold ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "what"),
    [(["a\0b", "c"], "has texts with a NUL byte"), (["", None, "c"], "both empty texts and missing values")],
    ids=["a NUL byte", "empty and missing"],
)
@pytest.mark.parametrize(
    "content", [{"release": {"out": "out"}}, {"tables": [], "release": {"out": "out", "format": "csv"}}]
)
def test_what_csv_cannot_hold_is_refused_before_anything_is_spent(
    values: list[str | None], what: str, content: dict[str, Any], tmp_path: Path
) -> None:
    homes = households().with_columns(pl.Series("tenure", (values * 60)[: households().height]))
    asked = plan(**content, mechanism={"match": ["size"], "swap": ["county"], "rate": "1/2"})
    asked["tables"] = [{**table, "variables": ["county", "tenure"]} for table in asked["tables"]]
    with pytest.raises(StirredError, match=what):
        prepared(tmp_path, asked, homes)


@pytest.mark.parametrize("name", ['te"nure', '"', "a;b;c", "line|bar;|", "a,b", " a "])
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_a_name_with_the_signs_of_a_csv_file_is_released_and_published(tmp_path: Path, name: str, format_: str) -> None:
    content = plan(
        mechanism={"match": ["size"], "swap": ["county"], "rate": "1/2"},
        tables=[{"name": "t", "variables": [name]}],
        release={"out": "out", "format": format_},
    )
    run(prepared(tmp_path, content, households().rename({"tenure": name})), entropy=Entropy.from_os())
    assert command(["publish", str(tmp_path / "out"), str(tmp_path / "web")]) == 0


def test_proposed_options_can_be_typed_as_they_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["house id", "house, id"]
    frame = pl.DataFrame({"county": ["A", "B"] * 300, "size": [1, 1, 2, 2] * 150, "tenure": ["o", "r", "r"] * 200})
    frame.with_columns(pl.Series(name, [f"H{row:04d}" for row in range(600)]) for name in names).write_csv(
        tmp_path / "homes.csv"
    )
    options = ["plan", str(tmp_path / "homes.csv"), "--match", "size", "--swap", "county", "--rate", "1/2"]
    assert command(options) == 2
    proposed = shlex.split(" ".join(re.findall(r"--accept '[^']*'", capsys.readouterr().err)))
    assert {*proposed} == {"--accept", "identifier:house id", '"identifier:house, id"'}
    assert command([*options, *proposed]) == 0
    assert command([*options, "--id", "house id", "--id", '"house, id"']) == 0


def test_sections_of_a_misspelt_mechanism_do_not_hide_its_near_name() -> None:
    content = {
        "data": {"sample": "people.csv"},
        "mechanism": {"name": "survey-estimate", "epsilon": 2},
        "estimates": [{"kind": "total", "variable": "income", "bounds": [0, 150]}],
        "release": {"out": "bundle"},
    }
    with pytest.raises(StirredError) as error:
        plan_from(content, source="plan.toml", folder=Path())
    (problem,) = error.value.problems
    assert 'did you mean "survey-estimates"?' in problem.remedy
