"""Queries and their answers: noise follows from what a unit changes, and a release is verified by asking once more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.cellkey.ptable import PTable, PTableRow
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.mechanisms.tables.query import CHUNK, DrawnAnswers, KeptAnswers, Query
from stirred.randomness.entropy import Entropy
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace
from stirred.survey.estimates.mechanism import SurveyEstimates

HOMES = pl.DataFrame({"county": list("AABB") * 5, "tenure": list("orro") * 5})
SAMPLE = pl.DataFrame({"w": [2.0] * 20, "sex": list("fm") * 10, "age": [*range(20, 60, 2)]})


def noisy(**more: Any) -> tuple[Any, Any]:
    values = {"county": ["A", "B"], "tenure": ["o", "r"]}
    return NoisyTables(rho="1/2", tables=[["county", "tenure"]], values=values, **more), Microdata(households=HOMES)


def survey() -> tuple[Any, Any]:
    mechanism = SurveyEstimates(
        epsilon=4, attest=["design-weights"], weight_bounds=[1, 5], values={"sex": ["f", "m"]},
        estimates=[{"kind": "total", "variable": "age", "bounds": [0, 100], "by": ["sex"]}],
    )  # fmt: skip
    return mechanism, Microdata(households=SAMPLE, record="person", design={"weights": "w"})


def test_noise_follows_from_what_a_unit_changes_and_from_the_loss() -> None:
    assert Query(title="a", loss=Fraction(1, 4), square=2).noise == DiscreteGaussian(4)
    assert Query(title="a", loss=Fraction(1, 4), one=2, gaussian=False).noise == DiscreteLaplace("1/8")


@pytest.mark.parametrize(
    ("made", "table", "column"),
    [
        (noisy(), "county x tenure", "true"),
        (survey(), "total age by sex", "top_true"),
        (survey(), "total age by sex", "variance_true"),
    ],
    ids=["count", "total", "variance"],
)
def test_a_true_number_that_is_not_that_of_the_file_is_found(made: tuple[Any, Any], table: str, column: str) -> None:
    mechanism, data = made
    plan = mechanism.plan(data)
    release = mechanism.release(data, Entropy.from_seed("kept"))
    kept = release.internal["drawn"]
    again = mechanism.answered(data, plan, KeptAnswers(kept), None)
    assert all(again[title].equals(release.public[title], null_equal=True) for title in again)
    wrong = {table: kept[table].with_columns(pl.col(column) + 1)}
    with pytest.raises(VerificationError, match=f"{table}, counted again, is not what it was made of"):
        mechanism.answered(data, plan, KeptAnswers({**kept, **wrong}), None)


def test_noise_that_changes_what_is_kept_is_found() -> None:
    mechanism, data = noisy(keep="total")
    plan = mechanism.plan(data)
    kept = {"county x tenure": plan.cells["county x tenure"].with_columns(true=pl.lit(5), noise=pl.lit(1))}
    with pytest.raises(VerificationError, match="changes what is kept exactly"):
        mechanism.answered(data, plan, KeptAnswers(kept), None)
    still = {title: frame.with_columns(noise=np.array([1, -1, 1, -1])) for title, frame in kept.items()}
    found = mechanism.answered(data, plan, KeptAnswers(still), None)["county x tenure"]
    assert found["count"].sum() == HOMES.height


def test_noise_that_keys_do_not_look_up_is_found() -> None:
    values = {"county": ["A", "B", "C"]}
    ptable = PTable(rows=(PTableRow(count=1, values=(-1, 0, 1), weights=(1, 2, 1)),), keys=4)
    mechanism: Any = CellKey(ptable=ptable, tables=[["county"]], values=values)
    plan = mechanism.plan(Microdata(households=HOMES))
    release = mechanism.release(Microdata(households=HOMES), Entropy.from_seed("kept"), accept=["large-delta"])
    records, kept = release.internal["counted"], release.internal["drawn"]["county"]
    again = mechanism.answered(records, plan, KeptAnswers({"county": kept}), None)
    assert again["county"].equals(release.public["county"])
    wrong = {"county": kept.with_columns(pvalue=pl.col("pvalue") + (pl.col("county") == "C").cast(pl.Int64))}
    with pytest.raises(VerificationError, match="is not what its keys look up"):
        mechanism.answered(records, plan, KeptAnswers(wrong), None)


def test_of_a_query_in_chunks_the_numbers_that_matter_are_kept_and_the_others_stay_out_of_reach() -> None:
    query, true = Query(title="first"), np.arange(6)
    drawn = DrawnAnswers(Entropy.from_seed("chunks"))
    answers = drawn(query, true, chunk=3)
    large = answers > 2
    drawn.keep_only(query, large, chunk=3)
    kept = drawn.kept({})
    assert kept["first"][CHUNK].to_list() == [3] * int(large.sum())
    again = KeptAnswers(kept)(query, true, chunk=3)
    assert again[large].tolist() == answers[large].tolist()
    assert (again[~large] < -1_000_000).all()
    assert (KeptAnswers(kept)(query, true, chunk=4) < -1_000_000).all()
    with pytest.raises(VerificationError, match="first, counted again, is not what it was made of"):
        KeptAnswers(kept)(query, true + 1, chunk=3)
