"""The demonstration: what a first-time reader runs, within the time it promises."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.world import manifest, sha256

ROOT = Path(__file__).parents[2]


def test_the_curves_of_figure_2_run_through_their_smallest_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    demonstration = runpy.run_path(str(ROOT / "examples" / "massachusetts_1940.py"))
    drawn: dict[str, list[dict[str, Any]]] = {}
    monkeypatch.setitem(
        demonstration["figure_2"].__globals__, "curves", lambda rows, marks: drawn.update(rows=rows, marks=marks) or ""
    )
    demonstration["figure_2"]()
    assert len(drawn["marks"]) == 8
    for mark in drawn["marks"]:
        rates = [row["rate"] for row in drawn["rows"] if row["b"] == mark["b"]]
        assert rates == sorted(rates)
        assert min(rates) < mark["rate"] < max(rates)
        losses = [row["epsilon"] for row in drawn["rows"] if row["b"] == mark["b"]]
        assert mark["epsilon"] == pytest.approx(min(losses), abs=0.01)


@pytest.mark.slow
def test_the_demonstration_shows_the_papers_tables_and_figures_beside_ours_in_two_minutes(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "massachusetts_1940.py", "--out", tmp_path / "demo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 120
    assert all(f"swapping at {rate}" in done.stderr for rate in ("1%", "5%", "10%", "50%")), "no progress is shown"
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    for part in ("Table 1", "Undoing the bias", "Table 2", "Figure 1", "Figure 2"):
        assert f"<h2>{part}" in report
    assert len(re.findall(r"<svg ", report)) >= 2
    for printed in ("67,357", "12.48", "17.08"):  # of the paper
        assert printed in report
    before, after, covered = (
        float(re.search(pattern, report)[1])  # type: ignore[index]
        for pattern in (r"published table is ([\d.]+)%", r"unswap it is ([\d.]+)%", r"and ([\d.]+)% of the 95%")
    )
    # 20 runs of 14 free cells: the coverage of honest intervals is within four points with certainty enough.
    assert before > 12
    assert after < 3
    assert abs(covered - 95) < 4
    assert not [url for url in re.findall(r"https?://[^\s\"'<>)]+", report) if "www.w3.org" not in url]
    bundle = tmp_path / "demo" / "bundle"
    published = pl.read_csv(bundle / "public" / "tables" / "county-x-tenure.csv").filter(tenure="owned")
    shown = report.split("<h2>Table 1")[1].split("</table>")[0]
    for county, _, count in published.rows():  # our column is the bundle's own
        assert f"<td class=n>{count:,}</td>" in shown.split(f"<td>{county}</td>")[1].split("</tr>")[0]
    assert all(sha256(bundle / name) == digest for name, digest in manifest(bundle)["files"].items())


def test_the_topdown_demonstration_says_where_its_report_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    monkeypatch.setattr(sys, "argv", ["topdown_state.py", "--out", str(out), "--households", "1000"])
    runpy.run_path(str(ROOT / "examples" / "topdown_state.py"), run_name="__main__")
    said = capsys.readouterr()
    assert said.out.splitlines() == [f"bundle: {out / 'bundle'}", f"report: {out / 'report.html'}"]
    assert "persons top-down" in said.err, "progress is shown"
    report = (out / "report.html").read_text(encoding="utf-8")
    assert report.index("Error by level") < report.index("<svg ") < report.index("Not protected")
    assert "bureau" in report
    for name in ("persons", "units", "counts", "unit_counts", "measurements", "certificate"):
        assert (out / "bundle/public" / f"{name}.parquet").exists()
