"""Disturbed tables: fitted, right where nothing was disturbed, and no better than chance where all is noise."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.data.synth.census import census
from stirred.risk.areas import RECORDS, Reconstructed, reconstruct_published
from stirred.risk.published import PublishedCounts, of_records
from stirred.risk.reconstruction import fit, reconstruct
from stirred.risk.table_lists import cells_of, table_list
from stirred.spec.problems import StirredError

SF = table_list("sf")


def test_a_fit_to_tables_without_noise_has_no_residual_and_the_only_solution_where_there_is_one() -> None:
    households, persons = census(1_000, seed=3)
    people = persons.join(households.select("hid", "block"), on="hid")
    found = people.with_columns(cell=pl.Series(cells_of(people, where="persons")))
    ones = 0
    for part in found.partition_by("block")[:25]:
        truth = part["cell"].to_numpy()
        counts = SF.counts(truth)
        fitted = fit(counts, SF)
        assert (fitted.outcome, fitted.residual, fitted.persons) == ("fitted", 0, truth.size)
        if reconstruct(counts, SF).outcome == "one":
            ones += 1
            assert sorted(np.repeat(fitted.cells, fitted.counts)) == sorted(truth)
    assert 3 < ones < 22


def test_tables_that_contradict_each_other_are_fitted_with_their_residual() -> None:
    listed = table_list("pl")
    counts = listed.counts(np.array([3, 3, 200]))
    counts["P1-P4"][7] = -2
    found = fit(counts, listed)
    assert (found.persons, found.residual, found.certain.sum()) == (3, 2, 0)


def test_a_count_that_was_left_out_says_nothing() -> None:
    listed = table_list("pl")
    counts = {"P1-P4": listed.counts(np.array([3, 3, 200]))["P1-P4"].astype(float)}
    counts["P1-P4"][200] = np.nan
    found = fit(counts, listed)
    assert (found.cells.tolist(), found.counts.tolist(), found.residual) == ([3], [2], 0)


AREAS, PERSONS = 300, 20
# The most by which agreement and chance differ on pure noise, in persons of an area. A difference lies between -20 and
# 20 and depends on its neighbour alone: Hoeffding for every other area, twice, is exceeded with less than 1e-6.
NOISE = np.sqrt(np.log(4e6) * (2 * PERSONS) ** 2 / AREAS)


def people(seed: int) -> pl.DataFrame:
    """Twenty persons in each area, which is unlike the others: most of them are of few kinds."""
    draw = np.random.default_rng(seed)
    rows = [draw.choice(12, PERSONS, p=draw.dirichlet(np.full(12, 0.3))) for _ in range(AREAS)]
    kind = np.concatenate(rows)
    area = np.repeat(np.arange(AREAS), PERSONS).astype(str)
    return pl.DataFrame({"area": area, "sex": (kind // 6).astype(str), "age": (kind % 6).astype(str)})


def disturbed(tables: PublishedCounts, scale: float, *, keep: float = 1.0) -> PublishedCounts:
    """The same tables times ``keep``, with rounded noise of Laplace."""
    draw = np.random.default_rng(2)

    def noisy(counts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.rint(keep * own + draw.laplace(0, scale, own.size)) for name, own in counts.items()}

    return PublishedCounts(
        name="test", of="persons", tables=tables.tables, areas=tables.areas,
        counts=[noisy(each) for each in tables.counts], weight=dict.fromkeys(tables.tables.tables, 1.0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def truth() -> pl.DataFrame:
    return people(1)


@pytest.fixture(scope="module")
def tables(truth: pl.DataFrame) -> PublishedCounts:
    return of_records(truth, ["sex x age", "age"], area=["area"], name="test", of="persons", public=False)


def above_chance(found: Reconstructed) -> float:
    """By how many persons of an area agreement exceeds chance."""
    return float((found.areas["agreement"] - found.areas["by_chance"]).sum()) / AREAS


def test_pure_noise_is_attacked_no_better_than_by_chance(
    truth: pl.DataFrame, tables: PublishedCounts, tmp_path: Path
) -> None:
    noise = disturbed(tables, 5, keep=0.0)
    found = reconstruct_published(noise, folder=tmp_path / "noise", truth=truth, processes=1)
    assert found.facts["areas_by_outcome"] == {"fitted": AREAS}
    assert abs(above_chance(found)) < NOISE
    # Power: tables with little noise, or none, are far above chance, by the same measure.
    for name, each in (("little", disturbed(tables, 0.5)), ("none", tables)):
        told = reconstruct_published(each, folder=tmp_path / name, truth=truth, processes=1)
        assert above_chance(told) > NOISE


def test_tables_of_records_take_the_exact_path_and_have_no_residual(
    truth: pl.DataFrame, tables: PublishedCounts, tmp_path: Path
) -> None:
    found = reconstruct_published(tables, folder=tmp_path / "exact", truth=truth, processes=1)
    assert (found.facts["areas_by_outcome"], found.facts["residual"], found.facts["agreement"]) == (
        {"one": AREAS},
        0,
        1,
    )
    records = pl.read_parquet(tmp_path / "exact" / RECORDS)
    again = truth.group_by("area", "sex", "age").len("persons").cast({"persons": pl.Int64})
    kept = records.select(again.columns)
    assert kept.sort(kept.columns).equals(again.sort(again.columns))


def test_noise_in_one_table_contradicts_the_other_and_residuals_say_so(
    truth: pl.DataFrame, tables: PublishedCounts, tmp_path: Path
) -> None:
    found = reconstruct_published(disturbed(tables, 1), folder=tmp_path / "noise", processes=1)
    facts = found.facts
    assert (facts["agreement"], facts["share_of_persons_certain"]) == (None, 0.0)
    assert facts["areas_with_residual"] > AREAS / 2
    with pytest.raises(StirredError, match="something else is already there"):
        reconstruct_published(disturbed(tables, 1), folder=tmp_path / "noise", truth=truth)


def test_kinds_that_a_table_has_nowhere_are_none_of_the_schema() -> None:
    rows = pl.DataFrame({"area": ["1"] * 3, "sex": ["f", "m", "m"], "age": ["0", "1", "1"]})
    found = of_records(rows, ["sex x age", "age"], area=["area"], name="t", of="persons", public=False)
    assert found.tables.cells == 2
    kinds = found.tables.described(np.arange(2))
    assert kinds is not None
    assert sorted(kinds.rows()) == [("f", "0"), ("m", "1")]


def test_too_many_kinds_of_persons_are_refused() -> None:
    rows = pl.DataFrame({"area": ["1"] * 400, "a": [str(n) for n in range(400)], "b": [str(n) for n in range(400)]})
    with pytest.raises(StirredError, match="160,000 kinds"):
        of_records(rows, ["a", "b"], area=["area"], name="t", of="persons", public=False)
