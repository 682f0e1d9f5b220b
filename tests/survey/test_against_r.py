"""Plain estimates are those of R's survey package, to all its digits: r/survey.R made the files and what R says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run

HERE = Path(__file__).parent / "r"
EXPECTED = pl.read_csv(HERE / "expected.csv", schema_overrides={"level": pl.String, "domain": pl.String})
CASES = EXPECTED.select("file", "options").unique(maintain_order=True).rows()
DIGITS = 1e-10  # R was asked for 12 digits


def found(file: str, options: str, capsys: Any) -> dict[str, Any]:
    # Files of totals stand in the folder too.
    words = [str(HERE / word) if word.startswith("totals-") else word for word in options.split()]
    assert run(["survey", "estimate", str(HERE / f"{file}.csv"), *words, "--json"]) == 0, capsys.readouterr().err
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize(("file", "options"), CASES)
def test_estimates_errors_and_intervals_are_those_of_r(file: str, options: str, capsys: Any) -> None:
    told = found(file, options, capsys)
    own = {
        (each["kind"], f"{each['variable'] if each['kind'] != 'table' else ''}{each['level'] or ''}",
         ";".join(f"{k}={v}" for k, v in each["by"].items())): each
        for each in told["estimates"]
    }  # fmt: skip
    rows = EXPECTED.filter((pl.col("file") == file) & (pl.col("options") == options)).rows(named=True)
    assert len(own) == len(rows)
    for row in rows:
        each = own[row["kind"], row["level"] or "", row["domain"] or ""]
        assert told["degrees_of_freedom"] == row["df"]
        scale = abs(row["estimate"]) + row["se"]
        for name, said in (("estimate", "estimate"), ("se", "se"), ("lci", "low"), ("uci", "high")):
            assert each[name] == pytest.approx(row[said], rel=DIGITS, abs=DIGITS * scale), (name, row)


def test_the_comparison_sees_a_wrong_digit() -> None:
    """Every error of R is far above the tolerance, so agreeing means something."""
    assert (EXPECTED["se"] > 1e-4 * EXPECTED["estimate"].abs()).sum() > 0.95 * EXPECTED.height
    assert "survey 4.1.1" in (HERE / "version.txt").read_text()
