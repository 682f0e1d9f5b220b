"""Estimates and their sampling errors are those of R's survey package, before the noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.survey.estimates.mechanism import SurveyEstimates
from tests.mechanisms.tables.making import TrueAnswers

HERE = Path(__file__).parent / "r"  # survey.R made the files, and wrote what R says
EXPECTED = pl.read_csv(HERE / "expected.csv").with_columns(pl.col("variable", "domain").fill_null(""))
DESIGNS = EXPECTED.select("file", "design").unique(maintain_order=True).rows()
BOUNDS: dict[str, list[Any]] = {"y": [0, 300], "x": [0, 20]}
DIGITS = 1e-5  # weights of the files have more digits than the grid that they are rounded to
ROUNDED = ("mean", "variance")  # to a step that follows from the sensitivity
VALUES: dict[str, list[str | int]] = {
    "sex": ["f", "m"], "job": ["clerk", "cook", "none"], "h": ["A", "B", "C"]
}  # fmt: skip


def design_of(columns: str) -> dict[str, Any]:
    named = dict(word.split("=") for word in columns.split())
    lists: dict[str, Any] = {name: named[name].split(",") for name in ("ids", "strata", "fpc") if name in named}
    return {**lists, **{name: named[name] for name in ("weights",) if name in named}, "nest": "nest" in named}


def asked(*, of_strata: bool) -> list[dict[str, Any]]:
    each: list[dict[str, Any]] = [{"kind": kind, "variable": name, "bounds": BOUNDS[name], "grid": "1/10"}
                                  for kind in ("total", "mean") for name in BOUNDS]  # fmt: skip
    ratio = {"kind": "ratio", "variable": "y", "denominator": "x", "bounds": BOUNDS["y"], "grid": "1/10",
             "denominator_bounds": BOUNDS["x"], "ratio_bounds": [0, 20]}  # fmt: skip
    domains = [{**each[0], "by": ["sex", "job"]}, {**each[3], "by": ["sex", "job"]}]
    strata = [{**each[3], "by": ["h"]}] if of_strata else []  # the design fixes what these means are divided by
    return [*each, ratio, {"kind": "table", "by": ["sex", "job"]}, *domains, *strata]


def without_noise(file: str, columns: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return what would be published if no noise were drawn, and numbers were rounded to billionths."""
    design = design_of(columns)
    survey = SurveyEstimates(
        epsilon=10, attest=["design-weights"], weight_bounds=[1, 100], weight_grid="1/10000",
        estimates=asked(of_strata=columns == "strata=h fpc=N"), values=VALUES,
        most_in_cluster=20 if "ids" in design else None,
    )  # fmt: skip
    data = Microdata(households=pl.read_csv(HERE / f"{file}.csv", null_values="NA"), record="person", design=design)
    plan = survey.plan(data)
    finely = [
        replace(each, queries={role: replace(query, step=Fraction(1, 10**9)) if role in ROUNDED else query
                               for role, query in each.queries.items()}) for each in plan.estimates
    ]  # fmt: skip
    found = survey.answered(data, replace(plan, estimates=tuple(finely)), TrueAnswers(), lambda *_: None)
    rows = found["estimates"].rows(named=True)
    return {(row["kind"], "y/x" if row["kind"] == "ratio" else row["variable"], _domain(row)): row for row in rows}


def _domain(row: dict[str, Any]) -> str:
    return ";".join(f"{name}={row[name]}" for name in VALUES if row.get(name) is not None)


@pytest.mark.parametrize(("file", "columns"), DESIGNS)
def test_estimates_and_sampling_errors_are_those_of_r(file: str, columns: str) -> None:
    found = without_noise(file, columns)
    expected = EXPECTED.filter((pl.col("file") == file) & (pl.col("design") == columns)).rows(named=True)
    assert len(expected) == len(found) in (23, 26)
    for row in expected:
        own = found[row["kind"], row["variable"], row["domain"]]
        assert own["estimate"] == pytest.approx(row["estimate"], rel=DIGITS)
        assert own["se_sampling"] == pytest.approx(row["se"], rel=10 * DIGITS)


def test_the_comparison_sees_a_wrong_digit() -> None:
    """Every error of R is far above the tolerance, so agreeing means something."""
    assert (EXPECTED["se"] > 1e-4 * EXPECTED["estimate"].abs()).sum() > 0.95 * EXPECTED.height
    assert "survey 4.1.1" in (HERE / "version.txt").read_text()
