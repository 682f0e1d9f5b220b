"""Which record is whose in a swapped file."""

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.synth.census import census
from stirred.risk.replaced import origins, paired


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
