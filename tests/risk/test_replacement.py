"""Which record is whose in a swapped file."""

from pathlib import Path

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.synth.census import census
from stirred.risk.attackers import AttackerColumns, attackers_file
from stirred.risk.replacement import _somebody_else, origins, paired, replaced_in_tables


def test_equal_numbers_are_paired_once() -> None:
    draw = np.random.default_rng(1)
    of, to = draw.integers(0, 30, 200), draw.integers(0, 30, 150)
    found = paired(of, to)
    used = found[found >= 0]
    assert len({*used.tolist()}) == used.size
    assert (of[found >= 0] == to[used]).all()
    counts = np.minimum(np.bincount(of, minlength=30), np.bincount(to, minlength=30))
    assert used.size == counts.sum()


def test_the_records_of_a_swapped_file_are_found_again() -> None:
    """Each household of others' blocks is its own by all that is held; who has no twin is found for certain."""
    households, persons = census(1_500, seed=2)
    truth = Microdata(households=households, persons=persons, hid="hid", id=("pid",))
    draw = np.random.default_rng(3)
    moved = draw.permutation(households.height)
    order, people = draw.permutation(households.height), draw.permutation(persons.height)
    swapped = households.with_columns(households["block"][moved])[order]
    released = Microdata(
        households=swapped, persons=persons[people].with_columns(pl.col("age").cast(pl.Int64)), hid="hid"
    )
    found = origins(released, truth, ["block"])
    assert sorted(found) == [*range(persons.height)]
    values = [name for name in persons.columns if name not in ("hid", "pid")]
    assert persons[found].select(values).equals(persons[people].select(values))
    # A wrong one is another household with equal persons and columns.
    right = persons["hid"][found] == persons["hid"][people]
    assert right.mean() > 0.8  # type: ignore[operator]
    big = households.filter(pl.col("size") >= 4)["hid"]
    assert right.filter(persons["hid"][people].is_in(big.implode())).all()
    # And where nothing moved everybody is found at home.
    assert (origins(truth, truth, ["block"]) == np.arange(persons.height)).all()


def test_persons_of_a_household_that_nobody_has_take_nobodys_place() -> None:
    truth = Microdata(
        households=pl.DataFrame({"hid": [1], "size": [1]}), persons=pl.DataFrame({"hid": [1], "age": [30]}), hid="hid"
    )
    released = Microdata(
        households=pl.DataFrame({"hid": [1, 2], "size": [9, 1]}),
        persons=pl.DataFrame({"hid": [1, 2], "age": [30, 30]}),
        hid="hid",
    )
    assert origins(released, truth, ["block"]).tolist() == [-1, 0]


def test_somebody_else_is_another_person_of_the_larger_area() -> None:
    truth = pl.DataFrame({"tract": [1, 2, 1, 3, 2, 1] * 20 + [9]})
    found = _somebody_else(truth, AttackerColumns(within=("tract",)), np.random.default_rng(1).random(truth.height))
    assert (truth["tract"][found] == truth["tract"]).all()
    assert np.flatnonzero(found == np.arange(truth.height)).tolist() == [truth.height - 1]
    assert sorted(found) == [*range(truth.height)]


def test_with_nobody_at_home_the_replaced_person_changes_nothing(tmp_path: Path) -> None:
    """All records moved to other blocks: replacing a person leaves every block as it was."""
    households, persons = census(1_000, seed=2)
    truth = persons.join(households, on="hid", maintain_order="left")
    asked = AttackerColumns(within=("tract",))
    moved = truth.with_columns(block=pl.col("block") + 1_000_000)
    records = pl.DataFrame({"block": [0], "sex": [1], "age_from": [0], "race": [1], "hispanic": [0], "persons": [1]})
    found = replaced_in_tables(
        truth, moved, np.arange(truth.height), asked=asked, attacker=attackers_file(truth, asked), records=records,
        folder=tmp_path / "again",
    )  # fmt: skip
    assert (found.records > 0, found.replaced, found.confirmed) == (True, 0, 0)
    assert not (tmp_path / "again").exists()
