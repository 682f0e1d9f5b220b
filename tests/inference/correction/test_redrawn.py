"""Correcting tables of the conditioned swap: Z Phi^-1, with variances from how pairs of records move (R18)."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.problems import PlanError
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.inference import cell_estimates as redrawn
from stirred.inference.cell_estimates import Redrawn
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.records.laws.conditioned import (
    ConditionedKernel,
    ConditionedSwap,
    redraw_kernel,
    redrawn_counts,
)
from stirred.mechanisms.records.laws.counting import all_tables
from stirred.spec.problems import StirredError
from tests.inference.correction.test_unswap import CELL, MATCH, SWAP, rare_kinds, replicated, town
from tests.mechanisms.records.sampling import swapped

UNIVERSES = [((3, 2), (2, 2, 1)), ((2, 2), (2, 2)), ((2, 1, 1), (1, 1, 1, 1)), ((2, 2, 1), (4, 1)), ((4, 4), (3, 3, 2))]
RATES = ["1/20", "1/2", "4/5"]


def proportional(swap: tuple[int, ...]) -> list[Fraction]:
    return [Fraction(c, sum(swap)) for c in swap]


def stratum(swap: tuple[int, ...], rate: str) -> Redrawn:
    return Redrawn(moments=redrawn_counts(swap, Fraction(rate), proportional(swap)))


def members(groups: np.ndarray) -> np.ndarray:
    return (groups[:, None] == np.arange(groups.max() + 1)).astype(float)


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
@pytest.mark.parametrize("rate", RATES)
def test_estimate_and_estimated_variance_are_unbiased_in_every_table_of_a_universe(
    hold: tuple[int, ...], swap: tuple[int, ...], rate: str
) -> None:
    found = stratum(swap, rate)
    tables = all_tables(hold, swap)
    kernel = ConditionedKernel(swap, redraw_kernel(Fraction(rate), proportional(swap)))
    released = np.array(tables, dtype=float)
    for groups in (np.arange(len(swap)), np.minimum(np.arange(len(swap)), 1)):
        columns = members(groups)
        estimates = np.array([found.estimates(z) @ columns for z in released])
        variances = np.array([found.variances(z, z, groups) for z in released])
        for x in tables[:8]:
            chance, truth = [float(kernel.probability(x, t)) for t in tables], np.array(x, dtype=float)
            assert np.allclose(np.tensordot(chance, estimates, 1), truth @ columns, atol=1e-9)
            variance = np.tensordot(chance, (estimates - truth @ columns) ** 2, 1)
            assert np.allclose(found.at(truth, truth, columns), variance, atol=1e-8 * variance.max())
            assert np.allclose(np.tensordot(chance, variances, 1), variance, atol=1e-8 * variance.max())


def test_persons_are_corrected_with_unbiased_variances_too() -> None:
    """Each of five homes is a row of its own with 3, 1, 2, 0 and 1 persons: weights, and their squares."""
    weights, swap = np.array([3.0, 1.0, 2.0, 0.0, 1.0]), (2, 2, 1)
    values = np.repeat(np.arange(3), swap)
    found = stratum(swap, "1/2")
    kernel = redraw_kernel(Fraction(1, 2), proportional(swap))
    outcomes = [(order, np.prod([float(kernel[a][b]) for a, b in zip(values, order, strict=True)]))
                for order in set(permutations(values.tolist()))]  # fmt: skip
    total = sum(chance for _, chance in outcomes)
    truth = np.bincount(values, weights=weights, minlength=3)
    mean, variance, estimated = np.zeros(3), np.zeros(3), np.zeros(3)
    for order, chance in outcomes:
        z = np.bincount(order, weights=weights, minlength=3)[None].astype(np.float64)
        zz = np.bincount(order, weights=weights**2, minlength=3)[None].astype(np.float64)
        estimate = found.estimates(z)[0]
        mean += chance / total * estimate
        variance += chance / total * (estimate - truth) ** 2
        estimated += chance / total * found.variances(z, zz, np.arange(3))[0]
    assert mean == pytest.approx(truth)
    assert estimated == pytest.approx(variance)


def test_without_undoing_pairs_the_variance_is_a_little_too_large_never_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For strata of many values: the estimates are put in, less what their own variance adds; the rest is of 1/n."""
    swap = (3, 3, 2)
    ratios = []
    for paired in (16, 0):
        monkeypatch.setattr(redrawn, "_MOST_PAIRED", paired)
        found = stratum(swap, "1/2")
        tables = all_tables((4, 4), swap)
        kernel = ConditionedKernel(swap, redraw_kernel(Fraction(1, 2), proportional(swap)))
        chance = [float(kernel.probability(tables[3], t)) for t in tables]
        mean = np.tensordot(chance, [found.variances(z, z, np.arange(3)) for z in np.array(tables, dtype=float)], 1)
        truth = np.array(tables[3], dtype=float)
        ratios.append(mean.sum() / found.at(truth, truth, np.eye(3)).sum())
    assert ratios[0] == pytest.approx(1)
    assert 1 < ratios[1] < 1.15


# --- whole files ------------------------------------------------------------------------------------------


def released(homes: pl.DataFrame, match: list[str], rate: str, law: str, seed: str) -> SwappedRelease:
    swap = ConditionedSwap(match=match, swap=["county"], rate=rate, redraw_law=law)
    data = swapped(swap, homes, Entropy.from_seed(seed)).public["data"]
    return SwappedRelease.of(data, match=match, swap=["county"], rate=rate, member="conditioned", redraw_law=law)


@pytest.mark.parametrize(("rate", "law"), [("1/5", "uniform"), ("1/2", "proportional")])
def test_massachusetts_is_estimated_back(rate: str, law: str) -> None:
    homes = massachusetts_1940()
    truth = homes.group_by(CELL).len("true")
    found = unswap(CELL, released(homes, MATCH, rate, law, "conditioned"))
    both = found.table.join(truth, on=CELL)
    before = ((both["count"] - both["true"].cast(pl.Int64)).abs() / both["true"]).mean()
    after = ((both["estimate"] - both["true"]).abs() / both["true"]).mean()
    assert before > 0.08  # type: ignore[operator]
    assert after < before / 4  # type: ignore[operator]
    away = (both["estimate"] - both["true"]).abs() / both["standard_error"]
    assert away.max() < 4  # type: ignore[operator]
    sums = found.table.group_by("county").agg(pl.col("count", "estimate").sum())
    assert sums["estimate"].to_numpy() == pytest.approx(sums["count"].to_numpy(), abs=1e-4)


def coverage(homes: pl.DataFrame, rate: str, law: str, *, copies: int, naive: bool = False) -> np.ndarray:
    truth = homes.group_by(CELL).len("true")
    release = released(replicated(homes, copies), ["copy", "size"], rate, law, f"coverage {rate}")
    found = unswap(["copy", *CELL], release).table
    if naive:
        error = 1.96 * pl.col("standard_error")
        found = found.with_columns(low=pl.col("count") - error, high=pl.col("count") + error)
    both = found.join(truth, on=CELL, how="left").with_columns(pl.col("true").fill_null(0))
    shares = both.group_by(CELL).agg(pl.col("true").is_between("low", "high").mean().alias("covered"))
    return shares["covered"].to_numpy()


@pytest.mark.parametrize(
    ("rate", "law"),
    [
        pytest.param("1/20", "uniform", marks=pytest.mark.slow),
        pytest.param("1/2", "proportional", marks=pytest.mark.slow),
        ("1/2", "uniform"),
    ],
)
def test_intervals_cover_the_truth_within_two_points_of_95_percent(rate: str, law: str) -> None:
    """300 swaps of 2,000 homes: a cell's share has a standard error of 1.3 points, their mean much less."""
    shares = coverage(town(), rate, law, copies=300)
    assert shares.size == 8
    assert abs(shares.mean() - 0.95) < 0.02
    assert np.all(np.abs(shares - 0.95) < 0.035)


def test_rare_cells_are_covered_too() -> None:
    """120 swaps: a share of 88% is three standard errors below 95%; around the estimate one cell was covered 57%."""
    homes = rare_kinds(60).with_columns(size=1)
    shares = coverage(homes, "1/2", "proportional", copies=120)
    assert shares.size >= 9
    assert shares.min() > 0.88
    assert shares.mean() > 0.95


def test_intervals_around_the_published_counts_would_not_cover() -> None:
    assert coverage(town(), "1/2", "proportional", copies=40, naive=True).mean() < 0.5


def test_intervals_of_sums_over_many_tiny_strata_cover_too() -> None:
    """40 strata of 5 homes: the variance of each is hopeless alone, but unbiased."""
    homes = town(200).with_columns((pl.int_range(pl.len()) * 37 % 40).cast(pl.Int64).alias("size"))
    assert abs(coverage(homes, "1/2", "proportional", copies=80).mean() - 0.95) < 0.02


def test_intervals_with_forty_areas_cover_too() -> None:
    """More values than have their pairs undone, some with a handful of records."""
    row = np.arange(1_200)
    county = np.sqrt(row * 1.3).astype(int)
    homes = pl.DataFrame(
        {"size": 1, "county": county.astype(str), "tenure": np.where(row * 7919 % 100 < 20 + 2 * county, "o", "r")}
    )
    assert homes["county"].n_unique() == 40
    shares = coverage(homes, "1/2", "proportional", copies=150)
    assert abs(shares.mean() - 0.95) < 0.02


# --- tables by some of the swap variables, declared laws, what keeps too little ------------------------------


def test_a_table_by_one_of_two_swapped_variables_sums_the_estimates_of_the_whole_values() -> None:
    homes = town(300).with_columns((pl.int_range(pl.len()) % 2).alias("part"))
    swap = ConditionedSwap(match=["size"], swap=["county", "part"], rate="1/3")
    data = swapped(swap, homes, Entropy.from_seed("parts")).public["data"]
    release = SwappedRelease.of(
        data, match=["size"], swap=["county", "part"], rate="1/3", member="conditioned", redraw_law="uniform"
    )
    whole = unswap(["county", "part", "tenure"], release).table
    found = unswap(CELL, release).table
    both = whole.group_by(CELL).agg(pl.col("estimate").sum().alias("summed")).join(found, on=CELL)
    assert both["estimate"].to_numpy() == pytest.approx(both["summed"].to_numpy(), abs=1e-7)
    assert (found["standard_error"] > 0).all()


def test_a_declared_law_needs_every_value() -> None:
    homes = town(200)
    law = {"A": Fraction(1, 10), "B": Fraction(1, 5), "C": Fraction(3, 10), "D": Fraction(2, 5)}
    data = swapped(
        ConditionedSwap(match=["size"], swap=["county"], rate="1/3", redraw_law=law),
        homes,
        Entropy.from_seed("declared"),
    )
    roles: dict[str, Any] = {"match": ["size"], "swap": ["county"], "rate": "1/3", "member": "conditioned"}
    found = unswap(CELL, SwappedRelease.of(data.public["data"], **roles, redraw_law=law))
    uniform = unswap(CELL, SwappedRelease.of(data.public["data"], **roles, redraw_law="uniform"))
    assert not np.allclose(found.table["estimate"].to_numpy(), uniform.table["estimate"].to_numpy())
    short = {value: mass for value, mass in law.items() if value != "D"}
    with pytest.raises(PlanError, match='no probability for "D"'):
        unswap(CELL, SwappedRelease.of(data.public["data"], **roles, redraw_law=short))
    with pytest.raises(StirredError, match="which law the conditioned swap redraws from is not said"):
        unswap(CELL, SwappedRelease.of(data.public["data"], **roles))


def test_values_that_keep_too_little_stay_as_published_and_are_named() -> None:
    homes = pl.concat(
        [town(2_000), pl.DataFrame({"size": [1, 1], "county": ["E", "E"], "tenure": ["owned", "rented"]})]
    )
    found = unswap(CELL, released(homes, ["size"], "1/2", "uniform", "kept"))
    rows = found.table.filter(county="E")
    assert (rows["estimate"] == rows["count"]).all()
    assert (rows["low"] <= 1).all()
    assert (rows["high"] >= 1).all()
    assert found.strata_kept == 1
    assert any("fewer than 5% of their records are left unselected) (first: size = 1)" in note for note in found.notes)
    assert (found.table.filter(county="A")["estimate"] != found.table.filter(county="A")["count"]).all()


def test_at_rate_1_nothing_is_estimated_and_at_rate_0_everything_is_exact() -> None:
    homes = town(60)
    everything = unswap(CELL, released(homes, ["size"], "1", "uniform", "all"))
    assert everything.strata_kept == 3
    assert everything.table["estimate"].to_list() == everything.table["count"].to_list()
    nothing = unswap(CELL, released(homes, ["size"], "0", "uniform", "none"))
    assert nothing.exact
    assert not nothing.swapped


def test_a_table_that_would_take_hours_is_refused() -> None:
    rows = np.arange(20_000)
    homes = pl.DataFrame({"county": rows, "tenure": rows % 2})
    with pytest.raises(PlanError, match="multiplications"):
        unswap(
            CELL, SwappedRelease.of(homes, match=[], swap=SWAP, rate="1/2", member="conditioned", redraw_law="uniform")
        )
