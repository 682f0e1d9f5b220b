"""The synthetic survey is the sample that it says: its design, its weights, its flags, and the truth apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.synth.survey import TAKE, draw_survey, with_income


def a_town() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    n = 6000
    return pl.DataFrame({
        "hid": np.arange(n), "state": np.repeat([1, 2, 3], n // 3), "block_group": np.arange(n) // 100,
        "size": rng.integers(1, 7, n), "tenure": rng.integers(1, 5, n), "household_type": rng.integers(1, 9, n),
        "gq_type": np.zeros(n, dtype=int),
    })  # fmt: skip


def test_the_sample_is_drawn_in_two_stages_with_its_weights() -> None:
    homes = with_income(a_town(), 1)
    sample = draw_survey(homes, 1)
    assert sample["state"].n_unique() == 3
    assert sample["block_group"].n_unique() == 3 * (20 // 3)
    assert sample.group_by("block_group").len()["len"].max() <= TAKE  # type: ignore[operator]
    assert sample["w_design"].to_list() == pytest.approx([20 / 6 * 100 / 20] * sample.height)
    assert sample.height < 18 * TAKE  # some did not respond
    known = homes.group_by("tenure").len().sort("tenure")["len"].to_list()
    assert sample.group_by("tenure").agg(pl.col("w").sum()).sort("tenure")["w"].to_list() == pytest.approx(known)
    assert 0 < sample["income_imputed"].sum() < sample.height / 4
    assert sample.equals(draw_survey(homes, 1))
    assert not sample.equals(draw_survey(homes, 2))


def test_totals_are_right_on_average_without_nonresponse_bias_of_calibration() -> None:
    """The mean over 200 surveys of a calibrated number of households of one size: five standard errors allowed."""
    homes = with_income(a_town(), 1)
    true = homes.filter(pl.col("size") == 3).height
    found = [float(draw_survey(homes, s).filter(pl.col("size") == 3)["w"].sum()) for s in range(200)]
    assert abs(np.mean(found) - true) < 5 * np.std(found) / np.sqrt(200)


def test_the_command_writes_a_plan_that_runs_and_keeps_the_truth_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "survey"
    assert run(["synth", "survey", "--households", "5000", "--seed", "3", "--out", str(out), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["sampled"] == pl.read_csv(out / "sample.csv").height
    assert (out / "truth" / "totals.json").exists()
    assert run(["plan", str(out / "plan.toml")]) == 0
    assert run(["synth", "survey", "--households", "5000", "--seed", "3", "--out", str(out)]) == 2
