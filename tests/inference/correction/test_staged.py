"""Tables after two stages of swapping: foretold and corrected (R13, R18)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.inference.cell_estimates import estimated_staged
from stirred.inference.swap_moments import crossed_strata, expected_error
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from tests.inference.correction.test_unswap import replicated, town
from tests.mechanisms.records.sampling import swapped

FILES = [
    (["1a", "1b", "2a", "2b"], "xxyy"),
    (["1a", "1a", "1b", "2a", "2c"], "xyyzx"),
    (["1a", "2a", "2b"], "xyz"),
    (["1a", "1b", "1a", "2b", "2b"], "xxyyy"),
]
RATES = [("1/3", "1/5"), ("1/2", "1/5"), ("1/10", "9/10")]


def frame(pairs: list[tuple[tuple[str, str], str]]) -> pl.DataFrame:
    return pl.DataFrame(
        {"m": [m for (m, _), _ in pairs], "h": [h for (_, h), _ in pairs], "s": [s for _, s in pairs]},
        schema={"m": pl.String, "h": pl.String, "s": pl.String},
    )


def staged(coarse: str, fine: str) -> TwoStageSwap:
    return TwoStageSwap(match=[], fine_match=["m"], swap=["s"], rate=coarse, fine_rate=fine)


@pytest.mark.parametrize(("hold", "swap"), FILES)
@pytest.mark.parametrize(("coarse", "fine"), RATES)
def test_mean_and_variance_of_every_cell_are_those_of_the_exact_law(
    hold: list[str], swap: str, coarse: str, fine: str
) -> None:
    pairs = [((h[0], h[1]), s) for h, s in zip(hold, swap, strict=True)]
    mechanism = staged(coarse, fine)
    law = mechanism.law(tuple(sorted(pairs)))
    for variables in (["h", "s"], ["m", "s"], ["m", "h", "s"]):
        table = expected_error(frame(pairs), mechanism, variables=variables, source="other-data").table
        for row in table.iter_rows(named=True):
            wanted = tuple(row[name] for name in variables)
            counts = [
                (float(law[t]), sum(tuple({"m": m, "h": h, "s": s}[n] for n in variables) == wanted
                                    for (m, h), s in t))  # type: ignore[attr-defined]
                for t in law
            ]  # fmt: skip
            mean = sum(p * z for p, z in counts)
            assert row["mean"] == pytest.approx(mean, abs=1e-12)
            assert row["variance"] == pytest.approx(sum(p * z * z for p, z in counts) - mean**2, abs=1e-12)


@pytest.mark.parametrize(("hold", "swap"), FILES[:2])
@pytest.mark.parametrize(("coarse", "fine"), [("1/3", "1/5"), ("1/10", "9/10")])
def test_estimate_and_estimated_variance_are_unbiased(hold: list[str], swap: str, coarse: str, fine: str) -> None:
    pairs = [((h[0], h[1]), s) for h, s in zip(hold, swap, strict=True)]
    law = staged(coarse, fine).law(tuple(sorted(pairs)))
    names = ["h", "s"]
    parts = []
    for outcome in law:
        records = frame(list(outcome)).lazy()  # type: ignore[call-overload]
        cells, finer = (crossed_strata(records, match=match, hold=["h"], swap=["s"]) for match in ([], ["m"]))
        found = estimated_staged(
            cells.with_columns(pl.lit(coarse).alias("stratum_rate")), finer, fine_rate=fine, tolerance=1e-9
        )
        parts.append(found.with_columns(pl.lit(float(law[outcome])).alias("chance")))
    truth = frame(pairs).group_by(names).len("true")
    every = pl.concat(parts).join(truth, on=names, how="left").with_columns(pl.col("true").fill_null(0))
    chance = pl.col("chance")
    both = every.group_by(names).agg(
        pl.col("true").first(),
        (chance * pl.col("__estimate")).sum().alias("mean"),
        (chance * (pl.col("__estimate") - pl.col("true")) ** 2).sum().alias("variance"),
        (chance * pl.col("__variance")).sum().alias("estimated"),
    )
    assert both["mean"].to_numpy() == pytest.approx(both["true"].to_numpy(), abs=1e-8)
    assert both["estimated"].to_numpy() == pytest.approx(both["variance"].to_numpy(), rel=1e-7, abs=1e-8)


def test_margins_foretell_an_error_that_looks_at_no_fine_count() -> None:
    """Exchanging the swap values of two fine strata changes the counts that are protected, and nothing foretold."""
    homes = town(60)
    swap = TwoStageSwap(match=["size"], fine_match=["kind"], swap=["county"], rate="1/3", fine_rate="1/2")
    kinds = homes.with_columns((pl.int_range(pl.len()) % 5 // 3).alias("kind"))
    other = kinds.with_columns(pl.col("county").reverse().over("size"))
    both = [expected_error(f, swap, variables=["county", "tenure"], source="margins").table for f in (kinds, other)]
    assert kinds.group_by("size", "kind", "county").len().sort("len").rows() != (
        other.group_by("size", "kind", "county").len().sort("len").rows()
    )
    assert both[0].select("county", "tenure").equals(both[1].select("county", "tenure"))
    one, two = (table.select("true", "mean", "variance").to_numpy() for table in both)
    assert np.allclose(one, two)


@pytest.mark.parametrize(("coarse", "fine"), [("1/10", "1/2"), ("1/2", "1/4")])
def test_intervals_cover_the_truth_within_two_points_of_95_percent(coarse: str, fine: str) -> None:
    """600 swaps of 1,500 homes; tenure is matched on in the fine stage and crossed with the county, which is not."""
    homes = town(1_500).with_columns((pl.int_range(pl.len()) * 31 % 7).cast(pl.String).alias("age"))
    cell = ["county", "tenure"]
    truth = homes.group_by(cell).len("true")
    roles: dict[str, Any] = {"match": ["copy", "size"], "swap": ["county"], "fine_match": ["tenure"]}
    swap = TwoStageSwap(**roles, rate=coarse, fine_rate=fine)
    data = swapped(swap, replicated(homes, 600), Entropy.from_seed(f"stages {coarse}")).public["data"]
    release = SwappedRelease.of(data, **roles, rate=coarse, fine_rate=fine, member="two-stage")
    both = unswap(["copy", *cell], release).table.join(truth, on=cell)
    shares = both.group_by(cell).agg(pl.col("true").is_between("low", "high").mean().alias("covered"))["covered"]
    assert abs(float(shares.mean()) - 0.95) < 0.02  # type: ignore[arg-type]
    # The power of the check: published counts with the same errors miss.
    naive = both.select(((pl.col("count") - pl.col("true")).abs() < 1.96 * pl.col("standard_error")).mean()).item()
    assert naive < 0.9
    assert both["standard_error"].min() > 0  # type: ignore[operator]


def test_fine_strata_that_keep_nothing_widen_the_intervals() -> None:
    """Fine strata of two records at a rate of one half keep nothing: what their margins allow joins the interval."""
    homes = town(40).with_columns((pl.int_range(pl.len()) % 20).alias("kind"))
    roles: dict[str, Any] = {"match": [], "swap": ["county"], "fine_match": ["kind"]}
    release = SwappedRelease.of(homes, **roles, rate="1/10", fine_rate=Fraction(1, 2), member="two-stage")
    found = unswap(["county", "tenure"], release)
    assert found.strata_kept == 1
    assert (found.table["kept"] > 0).any()
    assert ((found.table["low"] <= found.table["estimate"]) | (found.table["estimate"] < 0)).all()
