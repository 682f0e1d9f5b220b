"""Measuring: true counts plus noise of the stated law, from the address of each area.

False alarms: 1e-6 for each statistical test. Power: a scale wrong by 3% fails, in either direction.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from stirred.mechanisms.topdown import measurements as measuring
from stirred.mechanisms.topdown.measurements import MeasurementStore, measure
from stirred.mechanisms.topdown.population import Population, noisy_queries
from stirred.randomness.cell_law import variance_of
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise
from stirred.spec.shift_law import DiscreteGaussian
from tests.mechanisms.topdown.people import CODES, people, topdown

FALSE_ALARM = 1e-6


def part(**settings: object) -> Population:
    return topdown(**settings).plan(people()).parts[0]


def residuals(store: MeasurementStore, own: Population) -> pl.DataFrame:
    """The noise in every published row, by subtracting the true counts."""
    rows = pl.concat([*store.published()])
    truth = []
    for row in rows.iter_rows(named=True):
        depth = own.spine.names.index(row["geolevel"])
        area = own.spine.geocodes[depth].to_list().index(row["geocode"])
        query = own.schema.query(row["query_name"])
        truth.append(own.answers(query, depth, range(area, area + 1))[0].tolist())
    return rows.with_columns(truth=pl.Series(truth)).with_columns(noise=pl.col("value") - pl.col("truth"))


def test_without_noise_the_measurements_are_the_counts_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "fill_noise_rows", lambda noise, out, **_: out.fill(0))
    store = measure(part(), tmp_path, Entropy.from_seed(1))
    rows = pl.concat([*store.published()])
    for columns in (["sex", "age"], ["sex", "age", "work"]):
        name = "detailed_dpq" if len(columns) == 3 else "sex * age_dpq"
        for code, values in rows.filter(query_name=name, geolevel="region").select("geocode", "value").iter_rows():
            counts = {tuple(row[:-1]): row[-1] for row in people().filter(region=code).group_by(columns).len().rows()}
            assert values == [counts.get(cell, 0) for cell in product(*(CODES[each] for each in columns))]
    wards = people().group_by("region", "district", "ward").len()
    totals = rows.filter(query_name="total_dpq", geolevel="ward")["value"].list.first()
    assert sorted(totals.to_list()) == sorted([0, *wards["len"].to_list()])


def test_every_area_draws_from_its_own_address(tmp_path: Path) -> None:
    own, entropy = part(), Entropy.from_seed("addresses")
    found = residuals(measure(own, tmp_path, entropy), own)
    for row in found.filter(geolevel="ward", query_name="sex * age_dpq").iter_rows(named=True):
        streams = Streams.of(entropy.child("persons").child("level ward"), "query sex * age")
        chunk = own.spine.geocodes[3].to_list().index(row["geocode"])
        expected = np.empty(6, dtype=np.int64)
        fill_noise(DiscreteGaussian(Fraction(row["sigma2"])), expected, chunk=chunk, streams=streams)
        assert row["noise"] == expected.tolist()


def test_bypassed_areas_have_no_rows_and_their_only_child_has_less_noise(tmp_path: Path) -> None:
    own = part()
    rows = pl.concat([*measure(own, tmp_path, Entropy.from_seed(1)).published()])
    assert rows.filter(geocode="Nd1").is_empty(), "one ward"
    child = rows.filter(geolevel="ward", query_name="total_dpq", geocode="Nd11")
    assert child["sigma2"].to_list() == ["3/1"]
    assert child["variance"].to_list() == [float(variance_of(Fraction(3)))]
    sibling = rows.filter(geolevel="ward", query_name="total_dpq", geocode="Nd21")
    assert sibling["sigma2"].to_list() == ["6/1"]
    whole = pl.concat([*measure(part(bypass=False), tmp_path / "all", Entropy.from_seed(1)).published()])
    assert whole.height == rows.height + 3
    assert {*whole.filter(geolevel="ward")["sigma2"]} == {"6/1"}


def test_a_level_without_a_share_has_no_rows_but_for_only_children(tmp_path: Path) -> None:
    """True counts are never written without noise: the wards have no share of their own, and one has its district's."""
    budget = {"rho": 1, "levels": {"all": 0, "region": 0, "district": 1, "ward": 0}, "queries": {"detailed": 1}}
    own = part(budget=budget, rho=None, queries=[])
    store = measure(own, tmp_path, Entropy.from_seed(1))
    rows = pl.concat([*store.published()])
    assert rows.group_by("geolevel").len().sort("geolevel").rows() == [("district", 11), ("ward", 1)]
    assert rows.filter(geolevel="ward")["geocode"].to_list() == ["Nd11"]
    north = next(tree for tree in (shard() for shard in store.shards()) if tree.levels[0].geocodes == ("N",))
    (answers,) = north.levels[2].answers
    assert not answers.values[1:].any()
    assert np.isinf(answers.variance[1:]).all()


def test_the_sum_of_what_all_areas_above_a_leaf_cost_is_rho(tmp_path: Path) -> None:
    own = part()
    rows = pl.concat([*measure(own, tmp_path, Entropy.from_seed(1)).published()])
    cost: dict[str, Fraction] = {}
    for code, sigma2 in rows.select("geocode", "sigma2").iter_rows():
        cost[code] = cost.get(code, Fraction(0)) + 1 / Fraction(sigma2)
    for leaf in own.spine.geocodes[3].to_list():
        assert sum(cost.get(leaf[:width], Fraction(0)) for width in (0, 1, 3, 4)) == 2


def test_the_noise_has_the_variance_of_its_rows_and_a_wrong_scale_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of wards alone, many of them: 44 wards x 12 cells x 200 draws, and a scale 3% off moves z by 14."""

    def z(factor: Fraction) -> float:
        squares = many = 0.0
        monkeypatch.setattr(measuring, "DiscreteGaussian", lambda sigma2: DiscreteGaussian(sigma2 * factor))
        own = part(queries=["detailed"], rho="1/2")
        asked = [tuple(noisy_queries(own, own.spine, depth)) for depth in range(own.spine.depth)]
        streams = [Streams.of(Entropy.from_seed(seed), "ward detailed") for seed in range(200)]
        for each in streams:
            *_, task = measuring._tasks(own, asked, 0, 0, 4)
            ((query, sigma2),) = task.queries
            (block,) = measuring.noisy(task, query, sigma2, each)
            noise = (block - own.answers(own.schema.query("detailed"), 3, range(45)))[1:]
            squares += float((noise**2).sum()) / float(variance_of(Fraction(8)))
            many += noise.size
        return float((squares - many) / (2 * many) ** 0.5)

    limit = norm.isf(FALSE_ALARM / 2)
    assert abs(z(Fraction(1))) < limit
    for wrong in (Fraction(97, 100) ** 2, Fraction(103, 100) ** 2):
        assert abs(z(wrong)) > limit


def test_levels_and_queries_have_noise_of_their_own_scale(tmp_path: Path) -> None:
    """A swap of two levels' budgets, or a query with another's variance, moves some z far beyond the limit."""
    budget = {
        "rho": "2",
        "levels": {"all": "1/10", "region": "1/5", "district": "1/5", "ward": "1/2"},
        "queries": {"sex * age": "1/10", "detailed": "9/10"},
    }
    own = part(budget=budget, rho=None, queries=[], bypass=False)
    found = residuals(measure(own, tmp_path, Entropy.from_seed("scales")), own)
    frame = (
        found.explode("noise")
        .group_by("geolevel", "query_name")
        .agg(z=((pl.col("noise") ** 2 / pl.col("variance")).sum() - pl.len()) / (2 * pl.len()).sqrt())
    )
    assert frame["z"].abs().max() < norm.isf(FALSE_ALARM / 2)
    swapped = found.with_columns(
        variance=pl.when(pl.col("geolevel") == "ward").then(pl.col("variance") * 2.5).otherwise(pl.col("variance"))
    )
    other = swapped.filter(geolevel="ward").explode("noise")
    z = float(((other["noise"] ** 2 / other["variance"]).sum() - other.height) / (2 * other.height) ** 0.5)
    assert abs(z) > norm.isf(FALSE_ALARM / 2)
