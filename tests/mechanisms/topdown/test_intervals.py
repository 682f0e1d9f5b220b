"""Intervals of estimates that rest on few measurements come from the exact law of the noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, prod, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from stirred.mechanisms.topdown.commands import IntervalOptions, run_interval
from stirred.mechanisms.topdown.estimates import half_width_of_sum
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Tree
from stirred.randomness.cell_law import CellLaw, variance_of
from stirred.spec.shift_law import DiscreteGaussian
from tests.mechanisms.topdown.layout import write_codebook, write_file

SEX = Schema(name="s", attributes=(Attribute(name="sex", codes=("m", "f")),))
CODES = {"US": [""], "State": ["001", "002"]}


def measured(tmp_path: Path, **asked: tuple[str, float]) -> Path:
    """Write a file of levels, each with one query and its variance, and the schema beside it."""
    levels = []
    for name, (query_name, variance) in asked.items():
        query, codes = SEX.query(query_name), CODES[name]
        values = np.arange(len(codes) * query.size).reshape(len(codes), -1) + 5
        answers = Answers(query=query, values=values, variance=np.full(len(codes), variance))
        parent = np.zeros(len(codes), dtype=np.int64)
        levels.append(Level(name=name, geocodes=tuple(codes), parent=parent, answers=(answers,)))
    write_file(Tree(schema=SEX, levels=tuple(levels)), tmp_path / "m.parquet")
    write_codebook(SEX, tmp_path / "s.toml")
    return tmp_path / "m.parquet"


def interval(path: Path, **more: Any) -> dict[str, Any]:
    """Return what the command finds."""
    return dict(run_interval(IntervalOptions(bundle=path, schema_=str(path.parent / "s.toml"), **more)).values)


@pytest.mark.parametrize("sigma2", [Fraction(1, 4), Fraction(2, 3), Fraction(4), Fraction(25)])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_one_measured_value_has_the_interval_of_its_noise(sigma2: Fraction, level: float) -> None:
    law = CellLaw(DiscreteGaussian(sigma2))
    assert half_width_of_sum(float(variance_of(sigma2)), 1, level) == law.half_width(Fraction(level))


@pytest.mark.parametrize("sigma2", [0.25, 1.0, 2.5])
def test_a_sum_has_the_law_that_listing_all_outcomes_gives(sigma2: float) -> None:
    variance = float(variance_of(Fraction(sigma2)))
    chances = {z: exp(-z * z / 2 / sigma2) for z in range(-14, 15)}
    one = {z: chance / sum(chances.values()) for z, chance in chances.items()}
    for level in (0.5, 0.9, 0.95):
        half = half_width_of_sum(variance, 3, level)
        assert half is not None
        inside = less = 0.0
        for noise in product(one, repeat=3):
            chance = prod(one[z] for z in noise)
            inside += chance * (abs(sum(noise)) <= half)
            less += chance * (abs(sum(noise)) < half)
        assert less < level <= inside
    assert half_width_of_sum(variance, 2_000, 0.95) is None


def test_the_command_says_from_which_law_the_interval_comes(tmp_path: Path) -> None:
    path = measured(tmp_path, State=("sex", 0.215013))
    one = interval(path, area=["001"], where=["sex=f"])
    assert one["law"] == "exact law of the noise of 1 measured value"
    assert one["interval"] == [pytest.approx(one["estimate"] - 1), pytest.approx(one["estimate"] + 1)]
    # The normal interval of the same standard error ends before the noise does.
    assert NormalDist().inv_cdf(0.975) * one["std_dev"] < 1
    both = interval(path, area=["001", "002"])
    assert both["law"] == "exact law of the noise of 4 measured values"


def test_wide_noise_of_many_values_is_normal_and_says_so(tmp_path: Path) -> None:
    path = measured(tmp_path, US=("sex", 400.0), State=("sex", 900.0))
    found = interval(path, where=["sex=m"])
    assert found["law"] == "normal"
    assert found["interval"][1] - found["estimate"] == pytest.approx(1.959964 * found["std_dev"])


def test_an_estimate_that_weighs_several_levels_is_normal(tmp_path: Path) -> None:
    found = interval(measured(tmp_path, US=("total", 2.0), State=("total", 4.0)), area=["001"])
    assert found["law"] == "normal"
    assert found["std_dev"] == pytest.approx(sqrt(2.4))


def test_what_is_known_exactly_has_no_width(tmp_path: Path) -> None:
    query = SEX.query("total")
    known = Constraint(query=query, sign="=", values=np.array([[12]]), given=np.array([True]))
    answers = Answers(query=query, values=np.array([[10]]), variance=np.array([1.0]))
    level = Level(name="US", geocodes=("",), parent=np.zeros(1, dtype=np.int64), answers=(answers,), known=(known,))
    measured(tmp_path, US=("total", 1.0))
    write_file(Tree(schema=SEX, levels=(level,)), tmp_path / "m.parquet")
    found = interval(tmp_path / "m.parquet")
    assert (found["interval"], found["std_dev"], found["law"]) == ([12.0, 12.0], 0.0, "known exactly")


def test_the_interval_holds_the_true_count_as_often_as_it_says(tmp_path: Path) -> None:
    """By listing all noise: a true count on the bound of an interval lies in it, whatever numbers are rounded to."""
    sigma2, whole = Fraction(1, 2), 7
    query, chances = SEX.query("sex"), {z: exp(-z * z / 2 / sigma2) for z in range(-9, 10)}
    covered = listed = 0.0
    for noise in product(range(-4, 5), repeat=2):
        chance = prod(chances[z] / sum(chances.values()) for z in noise)
        if chance < 1e-4:
            continue
        answers = Answers(
            query=query,
            values=np.array([[3, whole - 3]]) + np.array([noise]),
            variance=np.array([float(variance_of(sigma2))]),
        )
        level = Level(name="US", geocodes=("",), parent=np.zeros(1, dtype=np.int64), answers=(answers,))
        write_file(Tree(schema=SEX, levels=(level,)), tmp_path / "m.parquet")
        write_codebook(SEX, tmp_path / "s.toml")
        low, high = interval(tmp_path / "m.parquet", level=0.5)["interval"]
        listed += chance
        covered += chance * (low <= whole <= high)
    assert listed > 0.97
    assert covered >= 0.5  # strictly: what was not listed counts as missed
