"""The error of a table before it is swapped."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.problems import PlanError
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.inference.swap_moments import Moments, expected_error, swapped_cell
from stirred.mechanisms.contract.shown import mean_of_absolute_normal
from stirred.utility.measures import measure
from tests.mechanisms.records.sampling import swapped

CELL = ["county", "tenure"]


def test_cells_add_up_the_moments_of_their_strata() -> None:
    homes = massachusetts_1940()
    swap = PermutationSwap(match=["state", "size"], swap=["county"], rate="1/2")
    found = expected_error(homes, swap, variables=CELL, source="other-data").table
    total = Moments(mean=0.0, variance=0.0)
    for _, stratum in homes.group_by("size"):
        here, owned = stratum.filter(pl.col("county") == "Suffolk"), stratum.filter(pl.col("tenure") == "owned")
        both = here.filter(pl.col("tenure") == "owned").height
        total += swapped_cell(
            both, hold=owned.height, swap=here.height, stratum=stratum.height, rate=Fraction(1, 2)
        )  # fmt: skip
    row = found.filter(county="Suffolk", tenure="owned").row(0, named=True)
    assert row["true"] == 49_656
    assert row["mean"] == pytest.approx(total.mean, rel=1e-12)
    assert row["variance"] == pytest.approx(total.variance, rel=1e-9)


def test_the_expected_errors_are_those_that_a_swap_then_makes() -> None:
    homes = massachusetts_1940()
    swap = PermutationSwap(match=["state", "size"], swap=["county"], rate="1/2")
    expected = expected_error(homes, swap, variables=CELL, source="this-data")
    assert expected.confidential
    truth = homes.group_by(CELL).len("count")
    released = swapped(swap, homes, Entropy.from_seed("expected")).public["data"].group_by(CELL).len("count")
    found = measure(truth, released, variables=CELL)
    assert expected.mean_absolute_error == pytest.approx(found.mean_absolute_error, rel=0.03)
    assert expected.mean_absolute_percentage_error == pytest.approx(found.mean_absolute_percentage_error, rel=0.05)
    assert expected.root_mean_square_error == pytest.approx(found.root_mean_square_error, rel=0.03)


def test_rates_by_match_value_are_used_and_a_rate_of_0_makes_no_error() -> None:
    homes = pl.DataFrame({"size": [1] * 6 + [2] * 6, "county": list("AABBCC") * 2, "tenure": list("ooorrr") * 2})
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", rates=[{"size": 2, "rate": 0}])
    found = expected_error(homes, swap, variables=["size", *CELL], source="other-data").table
    assert found.filter(pl.col("size") == 2)["absolute_error"].sum() == 0
    assert found.filter(pl.col("size") == 1)["absolute_error"].sum() > 0


def test_tables_of_persons_meet_a_simulation() -> None:
    """3,000 swaps of 40 households, in one call; five standard errors."""
    copies, n = 3_000, 40
    row = np.arange(n)
    homes = pl.DataFrame({"hid": row, "county": np.where(row % 5 < 2, "A", "B")})
    counts = row * 7 % 4
    persons = pl.DataFrame({"hid": np.repeat(row, counts)}).with_columns(
        pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("young")).otherwise(pl.lit("old")).alias("age")
    )
    swap = PermutationSwap(match=[], swap=["county"], rate="3/10")
    found = expected_error(homes, swap, variables=["county", "age"], source="other-data", persons=persons, key="hid")
    cell = found.table.filter(county="A", age="young").row(0, named=True)
    young = homes.join(persons.filter(pl.col("age") == "young").group_by("hid").len(), on="hid", how="left")
    weights = young.sort("hid")["len"].fill_null(0).to_numpy()
    many = pl.DataFrame(
        {
            "copy": np.repeat(np.arange(copies), n),
            "w": np.tile(weights, copies),
            "county": np.tile(homes["county"].to_numpy(), copies),
        }
    )
    data = swapped(PermutationSwap(match=["copy"], swap=["county"], rate="3/10"), many, Entropy.from_seed("persons"))
    sums = data.public["data"].filter(pl.col("county") == "A").group_by("copy").agg(pl.col("w").sum())["w"].to_numpy()
    assert abs(sums.mean() - cell["mean"]) < 5 * cell["variance"] ** 0.5 / copies**0.5
    assert sums.var() == pytest.approx(cell["variance"], rel=5 * (2 / copies) ** 0.5)


def test_where_the_records_come_from_must_be_said() -> None:
    homes = pl.DataFrame({"a": [1, 2], "b": [1, 2]})
    swap = PermutationSwap(match=[], swap=["a"], rate="1/2")
    with pytest.raises(PlanError, match="source: 'file' does not say where the records come from"):
        expected_error(homes, swap, variables=["a", "b"], source="file")
    with pytest.raises(PlanError, match=r'variables: no column "c".*there are "a", "b"'):
        expected_error(homes, swap, variables=["a", "c"], source="other-data")


def test_the_mean_absolute_normal_is_that_of_numerical_integration() -> None:
    from scipy.stats import foldnorm

    for mean, sd in ((0.5, 1.0), (-3.0, 2.0), (10.0, 0.1)):
        found = mean_of_absolute_normal(np.array([mean]), np.array([sd]))[0]
        assert found == pytest.approx(foldnorm(abs(mean) / sd, scale=sd).mean(), rel=1e-9)
