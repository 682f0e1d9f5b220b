"""What can fail without the draw fails before it: nothing is reserved, drawn or written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit.bundle import CheckedBundle
from stirred.data import uniqueness
from stirred.data.child import child
from stirred.data.place import Place
from stirred.data.problems import PlanError
from stirred.release import rehearsal
from stirred.release.ledger import Ledger
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.rehearsal import bytes_needed
from stirred.release.run import run
from stirred.report import charts
from tests.release.forked import Forked
from tests.world import households, listing, persons


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    homes = households(600)
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).with_columns(sex=pl.col("age") % 2).write_parquet(tmp_path / "persons.parquet")
    Ledger.create(tmp_path / "a.ledger", dataset="six hundred homes")
    return tmp_path


def plan(**sections: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": {"households": "homes.parquet", "persons": "persons.parquet", "hid": "hid", "id": ["pid"]},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "out", "ledger": "a.ledger"},
    }
    for name, section in sections.items():
        content[name] = content.get(name, {}) | section if isinstance(section, dict) else section
    return content


def assert_refused(folder: Path, content: dict[str, Any], words: str) -> None:
    before = listing(folder)
    with pytest.raises(PlanError, match=words):
        run(prepare(plan_from(content, source="plan.toml", folder=folder)))
    assert listing(folder) == before
    assert not list(Ledger.open(folder / "a.ledger").entries())


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"release": {"title": "a\x00b"}}, r"\[release\] title.*U\+0000"),
        ({"release": {"title": "two\nlines"}}, r"\[release\] title.*U\+000A"),
        ({"release": {"purpose": "a\x00b"}}, r"\[release\] purpose.*U\+0000"),
        ({"release": {"purpose": "bytes that are no text: \udcff"}}, r"\[release\] purpose.*U\+DCFF"),
        ({"release": {"purpose": "see [the notes](internal/report.html)"}}, "internal/report.html"),
        ({"mechanism": {"unit": "house\x00hold"}}, r"\[mechanism\] unit.*U\+0000"),
        ({"tables": [{"variables": ["county"], "name": "n" * 300}]}, "file name of more than 255 bytes"),
        ({"tables": [{"variables": ["county", "pid"]}]}, 'no released column "pid"'),
    ],
)
def test_texts_that_publish_would_refuse_are_refused_before_anything_is_reserved(
    folder: Path, sections: dict[str, Any], words: str
) -> None:
    assert_refused(folder, plan(**sections), words)


def test_a_table_of_a_person_column_that_is_not_released_is_refused_in_the_plan(folder: Path) -> None:
    """With hold = [...] all other columns are dropped, of persons too."""
    content = plan(mechanism={"hold": ["size", "tenure", "age"]}, tables=[{"variables": ["county", "sex"]}])
    assert_refused(folder, content, 'no released column "sex"')
    content["tables"] = [{"variables": ["county", "age"]}]
    out = run(prepare(plan_from(content, source="plan.toml", folder=folder)))
    assert (out / "public" / "tables" / "county-x-age.csv").exists()


def test_a_disk_with_too_little_room_is_refused_with_both_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "free_bytes", lambda _: 1_000_000)
    assert_refused(folder, plan(), r"needs about \d+ MB, and 1 MB are free")


def test_the_disk_of_an_engine_is_asked_for_room_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, small = Place(out=tmp_path / "bundle"), tmp_path / "small"
    place.hidden.mkdir(mode=0o700)
    small.mkdir()
    monkeypatch.setattr(rehearsal, "free_bytes", lambda folder: 1_000_000 if folder == small else 1 << 40)
    assert [*rehearsal._too_large(place, 5_000_000)] == []
    place.new_scratch(small)
    (problem,) = rehearsal._too_large(place, 5_000_000)
    assert problem.where == str(small)
    assert "the scratch folder of the engine needs about 5 MB, and 1 MB are free" in problem.what


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_the_room_that_is_asked_for_holds_the_bundle_and_is_not_far_above(folder: Path, format_: str) -> None:
    homes = households(150_000)
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).with_columns(sex=pl.col("age") % 2).write_parquet(folder / "persons.parquet")
    content = plan(release={"format": format_}, tables=[{"variables": ["county", "age"]}])
    prepared = prepare(plan_from(content, source="plan.toml", folder=folder))
    out = run(prepared)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert size <= bytes_needed(prepared) <= 4 * size + (9 << 20)


# ---- charts -----------------------------------------------------------------------------------------

POINTS = ((0.1, 5.0), (0.5, 4.0))


@pytest.fixture(autouse=True)
def _no_chart_from_before() -> None:
    charts.drawn.cache_clear()


def test_a_chart_that_cannot_be_drawn_leaves_a_report_that_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine of the charts ends its process where memory is short: that of the run must not be it."""
    monkeypatch.setattr(charts, "_DRAWS", "tests.audit.deadly:draws")
    out = run(prepare(plan_from(plan(), source="plan.toml", folder=folder)))
    for edition in ("public", "internal"):
        text = (out / edition / "report.html").read_text(encoding="utf-8")
        assert charts.NOT_DRAWN in text
        assert "<svg" not in text
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    assert entry.status == "committed"


def test_charts_are_drawn_once_and_before_the_draw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, str]] = []
    real = child.ask

    def counted(function: str, arguments: list[Any], *, seconds: float) -> Any:
        if function == "stirred.report.charts:draw":
            drawn.append((len(list(Ledger.open(folder / "a.ledger").entries())), str(arguments)))
        return real(function, arguments, seconds=seconds)

    monkeypatch.setattr(child, "ask", counted)
    out = run(prepare(plan_from(plan(), source="plan.toml", folder=folder)))
    assert "<svg" in (out / "public" / "report.html").read_text(encoding="utf-8")
    assert [entries for entries, _ in drawn] == [0, 0]  # the exposed records, and the curve of losses
    assert len({*drawn}) == len(drawn)


def test_under_a_limit_of_memory_the_process_of_a_report_survives() -> None:
    """A limit on the address space makes the engine abort."""
    program = (
        "import resource\n"
        "from stirred.mechanisms.protocol import Curve\n"
        "from stirred.report import charts\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({1 << 30}, {1 << 30}))\n"
        f"print(charts.loss_curve(Curve(points={POINTS})))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert charts.NOT_DRAWN in done.stdout or "<svg" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY


KILLED = """[data]
households = "homes.parquet"
persons = "persons.parquet"
hid = "hid"
id = ["pid"]
[mechanism]
name = "permutation-swap"
match = ["size"]
swap = ["county"]
rate = "1/4"
[release]
out = "out"
"""


def dies_when_it_was_drawn() -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(CheckedBundle, "look", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    patch.setattr(uniqueness, "MOST_EXPOSED", Fraction(1))


def killed_while_rehearsing(folder: Path) -> Path:
    """Release in a process of its own that is killed when its rehearsal was drawn; return what it leaves."""
    (folder / "killed.toml").write_text(KILLED, encoding="utf-8")
    process = Forked("release", "killed.toml", "--quiet", cwd=folder, arrange=dies_when_it_was_drawn)
    assert process.wait(60) == -signal.SIGKILL
    left = folder / ".out.partial" / "rehearsal" / "public"
    assert any(left.iterdir()), "the power check: a draw of the whole file was left"
    return left


def test_a_plan_of_the_same_folder_removes_a_draw_that_a_killed_rehearsal_left(folder: Path) -> None:
    left = killed_while_rehearsing(folder)
    prepare(plan_from(plan(release={"out": "other"}), source="plan.toml", folder=folder))
    assert not left.exists()
    assert not (folder / ".out.partial").exists()


def test_publish_removes_a_draw_that_a_killed_rehearsal_left(folder: Path) -> None:
    run(prepare(plan_from(plan(release={"out": "made"}), source="plan.toml", folder=folder)))
    left = killed_while_rehearsing(folder)
    publish(folder / "made", folder / "site")
    assert not left.exists()
