"""Attacks on many areas: resumed where they stopped, the same in any order and on any number of processes."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.data.problems import DataError
from stirred.data.synth.census import census
from stirred.risk import areas
from stirred.risk.areas import reconstruct_areas
from stirred.risk.table_lists import cells_of
from stirred.spec.problems import StirredError


@pytest.fixture(scope="module")
def people() -> tuple[np.ndarray, pl.DataFrame]:
    households, persons = census(2_000, seed=5)
    joined = persons.join(households.select("hid", "block"), on="hid")
    return cells_of(joined, where="persons"), joined.select("block")


def test_an_interrupted_attack_goes_on_where_it_stopped(
    people: tuple[np.ndarray, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reconstruct_areas(*people, tables="sf", folder=tmp_path / "whole", processes=1)
    real, calls = areas._piece, []

    def interrupted(*given: object) -> pl.DataFrame:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(areas, "_piece", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reconstruct_areas(*people, tables="sf", folder=tmp_path / "parts", processes=1)
    assert not (tmp_path / "parts" / areas.AREAS).exists()
    steps: list[int] = []
    found = reconstruct_areas(
        *people, tables="sf", folder=tmp_path / "parts", processes=1, progress=lambda _, done, all_: steps.append(done)
    )
    pieces = -(-whole.areas.height // 64)
    assert len(calls) == pieces + 1  # one was done before, one interrupted
    assert steps == list(range(2, pieces + 1))
    assert found.areas.equals(whole.areas)


def test_another_attack_is_refused_in_the_same_folder(people: tuple[np.ndarray, pl.DataFrame], tmp_path: Path) -> None:
    reconstruct_areas(*people, tables="pl", folder=tmp_path / "attack")
    with pytest.raises(StirredError, match="something else is already there"):
        reconstruct_areas(people[0][::-1], people[1], tables="pl", folder=tmp_path / "attack")


def test_the_redistricting_tables_determine_their_own_schema(
    people: tuple[np.ndarray, pl.DataFrame], tmp_path: Path
) -> None:
    found = reconstruct_areas(*people, tables="pl", folder=tmp_path / "attack").facts
    assert (found["share_of_areas_with_one_solution"], found["agreement"]) == (1.0, 1.0)
    assert "252 kinds" in found["schema"]


def test_the_order_of_persons_changes_nothing(people: tuple[np.ndarray, pl.DataFrame], tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(people[0].size)
    mixed = reconstruct_areas(people[0][order], people[1][order], tables="sf", folder=tmp_path / "mixed", processes=1)
    plain = reconstruct_areas(*people, tables="sf", folder=tmp_path / "plain", processes=1)
    assert mixed.areas.equals(plain.areas)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(people: tuple[np.ndarray, pl.DataFrame], tmp_path: Path) -> None:
    two = reconstruct_areas(*people, tables="sf", folder=tmp_path / "two", processes=2)
    one = reconstruct_areas(*people, tables="sf", folder=tmp_path / "one", processes=1)
    assert two.areas.equals(one.areas)


def test_codes_that_tables_do_not_have_are_refused() -> None:
    rows = pl.DataFrame({"sex": [1, 3], "age": [5, 200], "race": [1, 64], "hispanic": [0, None]})
    with pytest.raises(DataError) as caught:
        cells_of(rows, where="persons")
    assert len(caught.value.problems) == 4
