"""The analyst's correction of swapped tables (swapping theory R18)."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred import Entropy, PermutationSwap
from stirred.data.problems import DataError, PlanError
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.inference.cell_estimates import corrected, estimated_shrunken
from stirred.inference.swap_moments import Laws, crossed_strata
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from tests.depth import examples
from tests.mechanisms.records.oracles import psa_law, shrinkage
from tests.mechanisms.records.sampling import swapped

UNIVERSES = [
    ("ab", "xy"), ("aab", "xyy"), ("abc", "xyz"), ("aabb", "xxyy"), ("aabc", "xyyz"), ("abcd", "xxyz"),
    ("aaabb", "xxyyz"), ("aaabbb", "xxyyzz"), ("aabbc", "xyyyy"),
]  # fmt: skip
RATES = [Fraction(text) for text in ("1/10", "1/2", "9/10", "1")]


def tables(hold: str, swap: str) -> list[tuple[tuple[str, str], ...]]:
    return sorted({tuple(sorted(zip(hold, order, strict=True))) for order in permutations(swap)})


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_estimate_is_exactly_unbiased_in_every_cell_of_every_table_of_a_universe(
    hold: str, swap: str, rate: Fraction
) -> None:
    kept, n = shrinkage(len(hold), rate), len(hold)
    for records in tables(hold, swap)[:12]:
        law = psa_law(list(records), rate=rate)
        for cell in sorted({(h, s) for h in hold for s in swap}):
            independent = Fraction(hold.count(cell[0]) * swap.count(cell[1]), n)
            mean = sum((law[t] * t.count(cell) for t in law), Fraction(0))  # type: ignore[attr-defined]
            if kept == 0:  # nothing is kept, so nothing can be told: the mean is the same whatever the truth
                assert mean == independent
                continue
            estimates = (
                law[t] * corrected(Fraction(t.count(cell)), independent=independent, kept=kept)  # type: ignore[attr-defined]
                for t in law
            )
            assert sum(estimates, Fraction(0)) == records.count(cell)


def test_lambda_is_0_for_two_records_at_one_half_and_2_9_for_four() -> None:
    """T33 and its neighbour."""
    assert shrinkage(2, Fraction(1, 2)) == 0
    assert shrinkage(4, Fraction(1, 2)) == Fraction(2, 9)


@settings(deadline=None, max_examples=examples(60))
@given(n=st.integers(1, 60), rate=st.fractions(0, 1, max_denominator=60))
def test_lambda_in_floating_point_is_the_exact_one(n: int, rate: Fraction) -> None:
    assert Laws.of([n], [rate]).kept[0] == pytest.approx(float(shrinkage(n, rate)), abs=1e-12)


def by_enumeration(
    records: list[tuple[int, str]], weight_of: dict[int, int], column: str, rate: Fraction
) -> tuple[float, float, float, float]:
    """Mean and variance of a weighted cell, then the mean estimate of it and of the estimate's variance."""
    law = psa_law(records, rate=rate)
    frame = [(float(law[t]), t) for t in law]
    values = [(p, float(np.sum([weight_of[h] for h, s in t if s == column]))) for p, t in frame]  # type: ignore[attr-defined]
    mean = sum(p * z for p, z in values)
    variance = sum(p * z * z for p, z in values) - mean**2
    homes = {"h": [h for h, _ in records], "key": list(range(len(records)))}
    people = [(key, "a") for key, h in enumerate(homes["h"]) for _ in range(weight_of[h])]
    persons = pl.LazyFrame({"key": [k for k, _ in people], "kind": [v for _, v in people]})
    estimates, variances = 0.0, 0.0
    for p, table in frame:
        swapped = pl.LazyFrame({**homes, "s": arranged(homes["h"], list(table))})  # type: ignore[call-overload]
        release = SwappedRelease(
            records=swapped.select("key", "h", "s"),
            match=(),
            swap=("s",),
            strata=pl.DataFrame({"stratum_rate": [str(rate)]}),
            persons=persons,
            key="key",
        )
        from stirred.inference.unswap import _strata_cells

        strata = _strata_cells(["kind", "s"], release)
        cell = estimated_shrunken(strata, tolerance=1e-9).filter(s=column)
        estimates += p * float(cell["__estimate"].sum())
        variances += p * float(cell["__variance"].sum())
    return mean, variance, estimates, variances


def arranged(hold: list[int], table: list[tuple[int, str]]) -> list[str]:
    rest = list(table)
    values = []
    for h in hold:
        found = next(pair for pair in rest if pair[0] == h)
        rest.remove(found)
        values.append(found[1])
    return values


@pytest.mark.parametrize("swap", ["xxyy", "xyyz", "xxxyy"])
@pytest.mark.parametrize("rate", [Fraction(1, 5), Fraction(1, 2), Fraction(4, 5)], ids=str)
def test_persons_have_exact_moments_an_unbiased_estimate_and_an_unbiased_variance(swap: str, rate: Fraction) -> None:
    weights = {0: 3, 1: 1, 2: 2, 3: 0, 4: 1}
    records = list(enumerate(swap))
    mean, variance, estimate, estimated_variance = by_enumeration(records, weights, "x", rate)
    n, truth = len(swap), sum(weights[h] for h, s in records if s == "x")
    held = [weights[h] for h, _ in records]
    laws = Laws.of([n], [rate])
    found = laws.moments(
        cell=np.array([float(truth)]),
        cell_squares=np.array([float(sum(weights[h] ** 2 for h, s in records if s == "x"))]),
        hold=np.array([float(sum(held))]),
        hold_squares=np.array([float(sum(w * w for w in held))]),
        swap=np.array([float(swap.count("x"))]),
    )
    assert found[0][0] == pytest.approx(mean, abs=1e-9)
    assert found[1][0] == pytest.approx(variance, abs=1e-9)
    assert estimate == pytest.approx(truth, abs=1e-8)
    assert estimated_variance == pytest.approx(variance / float(laws.kept[0]) ** 2, rel=1e-8)


# --- Massachusetts 1940 -----------------------------------------------------------------------------------

CELL = ["county", "tenure"]
MATCH, SWAP = ["state", "size"], ["county"]


def test_massachusetts_at_one_half_falls_from_14_percent_error_below_3_with_honest_intervals() -> None:
    homes = massachusetts_1940()
    truth = homes.group_by(CELL).len("true")
    swap = PermutationSwap(match=MATCH, swap=SWAP, rate="1/2")
    for number in range(3):
        data = swapped(swap, homes, Entropy.from_seed(f"unswap {number}")).public["data"]
        both = unswap(CELL, SwappedRelease.of(data, match=MATCH, swap=SWAP, rate="1/2")).table.join(truth, on=CELL)
        error = both.select(
            before=((pl.col("count") - pl.col("true").cast(pl.Int64)).abs() / pl.col("true")).mean(),
            after=((pl.col("estimate") - pl.col("true")).abs() / pl.col("true")).mean(),
            covered=pl.col("true").is_between("low", "high").mean(),
        ).row(0)
        assert 0.13 < error[0] < 0.145
        assert error[1] < 0.03
        assert error[2] > 0.75


def replicated(homes: pl.DataFrame, copies: int) -> pl.DataFrame:
    """Many copies of a file, to be swapped in one call: the copy is one more match variable."""
    return homes.join(pl.DataFrame({"copy": range(copies)}), how="cross")


def coverage(
    homes: pl.DataFrame, variables: list[str], rate: Fraction, *, copies: int, counties: pl.Series | None = None
) -> np.ndarray:
    """The share of copies whose 95% interval contains the truth, for each cell that can vary."""
    truth = homes.group_by(variables).len("true")
    match = ["copy", "size"]
    data = swapped(
        PermutationSwap(match=match, swap=["county"], rate=rate),
        replicated(homes, copies),
        Entropy.from_seed(f"coverage {rate}"),
    ).public["data"]
    release = SwappedRelease.of(data, match=match, swap=["county"], rate=rate)
    found = unswap(["copy", *variables], release).table
    both = found.join(truth, on=variables, how="left").with_columns(pl.col("true").fill_null(0))
    shares = both.group_by(variables).agg(
        pl.col("true").is_between("low", "high").mean().alias("covered"), pl.col("standard_error").max()
    )
    if counties is not None:
        shares = shares.filter(pl.col("county").is_in(counties))
    return shares.filter(pl.col("standard_error") > 0)["covered"].to_numpy()


def town(rows: int = 2_000) -> pl.DataFrame:
    row = np.arange(rows)
    county = np.searchsorted([0.1, 0.3, 0.55], row / rows)
    owned = (row * 7919 % 100) < np.array([20, 45, 60, 75])[county]
    return pl.DataFrame(
        {"size": 1 + row % 3, "county": np.array(list("ABCD"))[county], "tenure": np.where(owned, "owned", "rented")}
    )


@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 2), Fraction(3, 4)], ids=str)
def test_intervals_cover_the_truth_within_two_points_of_95_percent(rate: Fraction) -> None:
    """600 swaps of 2,000 homes: a cell's share has a standard error of 0.9 points, their mean much less."""
    shares = coverage(town(), CELL, rate, copies=600)
    assert shares.size == 8
    assert abs(shares.mean() - 0.95) < 0.02
    assert np.all(np.abs(shares - 0.95) < 0.035)


@pytest.mark.parametrize("rate", [pytest.param(Fraction(1, 10), marks=pytest.mark.slow), Fraction(1, 2)], ids=str)
def test_intervals_of_sums_over_many_tiny_strata_cover_too(rate: Fraction) -> None:
    """200 strata of 5 homes: the variance of each is hopeless alone, but unbiased, so their sum is right.

    Intervals that also cover rare cells are wider where few records move (docs/unswap.md): here 97% instead of 95%.
    """
    homes = town(1_000).with_columns((pl.int_range(pl.len()) * 37 % 200).cast(pl.Int64).alias("size"))
    shares = coverage(homes, CELL, rate, copies=300)
    assert shares.size == 8
    assert 0.93 < shares.mean() < 0.98
    assert shares.min() > 0.91


def test_in_one_stratum_of_thirty_records_every_cell_is_covered() -> None:
    """What docs/unswap.md and the page of claims say of small strata: the least covered cell is near 95%."""
    homes = town(30).with_columns(size=1, home=pl.int_range(30))  # different homes: no plan enumerates their loss
    shares = np.concatenate([coverage(homes, CELL, Fraction(p), copies=2_000) for p in ("1/20", "1/10", "1/2", "3/4")])
    assert shares.min() > 0.93


def rare_kinds(rows: int = 300) -> pl.DataFrame:
    """Homes with kinds and counties of which some are rare: true cells from 0 to 5 records, and larger ones."""
    row = np.arange(rows)
    county = np.searchsorted([0.02, 0.1, 0.3], row / rows, side="right")
    kind = np.searchsorted([0.01, 0.04, 0.3], (row * 7919 + row // 7) % 1000 / 1000, side="right")
    columns = {"county": np.array(list("ABCD"))[county], "tenure": np.array(list("wxyz"))[kind]}
    return pl.DataFrame({"size": 1 + row % 2, **columns})


@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2), Fraction(3, 4)], ids=str)
def test_rare_cells_are_covered_and_intervals_around_the_estimate_would_not_cover_them(rate: Fraction) -> None:
    """1,000 swaps: a share of 95% has a standard error of 0.7 points, so 92.5% is 3.6 of them below."""
    homes, match = rare_kinds(), ["copy", "size"]
    swap = PermutationSwap(match=match, swap=["county"], rate=rate)
    data = swap.release(replicated(homes, 1_000), Entropy.from_seed(f"rare {rate}")).public["data"]
    found = unswap(["copy", *CELL], SwappedRelease.of(data, match=match, swap=["county"], rate=rate)).table
    truth = homes.group_by(CELL).len("true")
    both = found.join(truth, on=CELL, how="left").with_columns(pl.col("true").fill_null(0).cast(pl.Int64))
    width = 1.959964 * pl.col("standard_error")
    shares = both.group_by(CELL).agg(
        pl.col("true").first(),
        pl.col("true").is_between("low", "high").mean().alias("covered"),
        pl.col("true").is_between(pl.col("estimate") - width, pl.col("estimate") + width).mean().alias("around"),
        pl.col("standard_error").max(),
    ).filter(pl.col("standard_error") > 0)  # fmt: skip
    rare = shares.filter(pl.col("true") <= 5)
    assert {0, 1, 2} <= {*rare["true"]}
    assert rare.height >= 7
    assert shares["covered"].to_numpy().min() > 0.925
    by_size = rare.group_by("true").agg(pl.col("covered").mean())
    assert by_size["covered"].to_numpy().min() > 0.94, by_size
    assert rare["around"].to_numpy().min() < 0.88, "an interval around the estimate fails the same check"


def test_massachusetts_intervals_cover_within_two_points_of_95_percent() -> None:
    """400 swaps of one in two hundred of its homes, with its own counties, sizes and tenures.

    Counties of fewer than 50 homes in this sample are covered more often: in rare cells intervals are wide.
    """
    homes = massachusetts_1940().gather_every(200)
    large = homes.group_by("county").len().filter(pl.col("len") >= 50)["county"].implode()
    shares = coverage(homes, CELL, Fraction(1, 2), copies=400, counties=large)
    assert shares.size == 24
    assert abs(shares.mean() - 0.95) < 0.02


@pytest.mark.slow
def test_massachusetts_itself_has_intervals_within_two_points_of_95_percent() -> None:
    """200 swaps of the whole file: 28 cells, of which 14 are independent or nearly so; standard error 0.4 points."""
    homes = massachusetts_1940()
    truth = homes.group_by(CELL).len("true")
    swap = PermutationSwap(match=MATCH, swap=SWAP, rate="1/2")
    covered, errors = [], []
    for number in range(200):
        data = swapped(swap, homes, Entropy.from_seed(f"coverage {number}")).public["data"]
        both = unswap(CELL, SwappedRelease.of(data, match=MATCH, swap=SWAP, rate="1/2")).table.join(truth, on=CELL)
        covered.append(both.select(pl.col("true").is_between("low", "high").mean()).item())
        errors.append(both.select(((pl.col("estimate") - pl.col("true")).abs() / pl.col("true")).mean()).item())
    assert abs(np.mean(covered) - 0.95) < 0.02
    assert np.mean(errors) < 0.03
    print(f"coverage {100 * np.mean(covered):.2f}%, error {100 * np.mean(errors):.2f}%")


def test_intervals_that_ignore_the_shrinkage_would_not_cover() -> None:
    """The power of the check: published counts with the same standard errors miss the truth nearly always."""
    homes = massachusetts_1940()
    truth = homes.group_by(CELL).len("true")
    data = swapped(PermutationSwap(match=MATCH, swap=SWAP, rate="1/2"), homes, Entropy.from_seed("naive")).public[
        "data"
    ]
    both = unswap(CELL, SwappedRelease.of(data, match=MATCH, swap=SWAP, rate="1/2")).table.join(truth, on=CELL)
    naive = (both["count"] - both["true"].cast(pl.Int64)).abs() < 1.96 * both["standard_error"]
    assert naive.mean() < 0.3  # type: ignore[operator]


# --- strata that keep nothing, exact tables, projection -----------------------------------------------------


def small_strata() -> tuple[pl.DataFrame, SwappedRelease]:
    homes = pl.DataFrame(
        {"size": [1, 1, 2, 2, 2, 2, 3], "county": list("ABAABBA"), "tenure": list("ororroo"), "id": range(7)}
    ).drop("id")
    return homes, SwappedRelease.of(homes, match=["size"], swap=["county"], rate="1/2")


def test_strata_where_lambda_is_0_keep_their_counts_and_the_interval_contains_every_possible_truth() -> None:
    _, release = small_strata()
    found = unswap(["county", "tenure"], release)
    assert (found.strata, found.strata_kept) == (3, 1)
    assert "1 of 3 strata keeps nothing" in found.notes[1]
    row = found.table.filter(county="A", tenure="o").row(0, named=True)
    assert (row["count"], row["kept"]) == (3, 1)
    alone = unswap(["size", "county", "tenure"], release).table.filter(size="1", county="A", tenure="o")
    assert alone.select("count", "estimate", "standard_error", "low", "high", "kept").row(0) == (1, 1, 0, 0, 1, 1)


def test_a_stratum_of_one_record_is_exact() -> None:
    _, release = small_strata()
    cell = unswap(["size", "county", "tenure"], release).table.filter(size="3")
    assert cell.select("estimate", "standard_error", "low", "high").rows() == [(1.0, 0.0, 1.0, 1.0)]


@pytest.mark.parametrize("variables", [["tenure"], ["county"], ["size", "county"], ["size", "tenure"]])
def test_tables_that_swapping_leaves_alone_are_copied_and_said_to_be_exact(variables: list[str]) -> None:
    homes, release = small_strata()
    found = unswap(variables, release)
    assert found.exact
    assert "exact" in found.notes[0]
    truth = homes.with_columns(pl.col(v).cast(pl.String) for v in variables).group_by(variables).len("true")
    both = found.table.join(truth, on=variables)
    assert both.height == found.table.height
    assert (both["estimate"] == both["true"]).all()
    assert found.table["standard_error"].to_list() == [0.0] * found.table.height


def test_estimates_keep_both_margins_and_so_does_the_projection_inside_its_bounds() -> None:
    homes = town(400)
    swap = PermutationSwap(match=["size"], swap=["county"], rate="3/4")
    data = swapped(swap, homes, Entropy.from_seed("project")).public["data"]
    rare = pl.when(pl.int_range(pl.len()) < 9).then(pl.lit("rare")).otherwise("tenure")  # all in the first county
    kinds = data.with_columns(rare.alias("tenure"))
    found = unswap(CELL, SwappedRelease.of(kinds, match=["size"], swap=["county"], rate="3/4"), project=True)
    assert found.negative
    assert "negative" in found.notes[-1]
    for margin in CELL:
        sums = found.table.group_by(margin).agg(pl.col("count", "estimate", "projected").sum())
        assert sums["estimate"].to_numpy() == pytest.approx(sums["count"].to_numpy(), abs=1e-7)
        assert sums["projected"].to_numpy() == pytest.approx(sums["count"].to_numpy(), abs=1e-5)
    assert found.table["projected"].min() >= 0  # type: ignore[operator]


def test_empty_cells_are_estimated_too() -> None:
    """Leaving them out would bias the others: every possible cell of every stratum is there."""
    cells = crossed_strata(
        pl.LazyFrame({"m": [1, 1, 1], "h": list("aab"), "s": list("xyx")}), match=["m"], hold=["h"], swap=["s"]
    )
    assert cells.select("h", "s", "__cell").rows() == [("a", "x", 1), ("a", "y", 1), ("b", "x", 1), ("b", "y", 0)]


# --- what is refused ----------------------------------------------------------------------------------------


def published(release: SwappedRelease) -> pl.DataFrame:
    return release.records.group_by(CELL).len("count").sort(CELL).collect()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop("count"), 'table: there is no column "count"'),
        (lambda t: t.with_columns(pl.lit("many").alias("count")), "counts are not whole numbers"),
        (lambda t: pl.concat([t, t]), "cells occur more than once"),
        (lambda t: t.with_columns(pl.col("count") + 1), "counts are not those of the released data"),
        (lambda t: t.rename({"tenure": "age"}), 'the release has no variable "age", and no file of persons'),
    ],
    ids=["no count", "text", "twice", "other counts", "unknown variable"],
)
def test_a_table_that_does_not_belong_to_the_release_is_refused(change: object, message: str) -> None:
    _, release = small_strata()
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        unswap(change(published(release)), release)  # type: ignore[operator]


def test_a_published_table_keeps_its_own_order_and_cells_no_stratum_allows_are_0() -> None:
    _, release = small_strata()
    table = pl.concat(
        [
            published(release).reverse().cast({"count": pl.Int64}),
            pl.DataFrame({"county": ["Z"], "tenure": ["o"], "count": [0]}),
        ]
    )
    found = unswap(table, release).table
    assert found.select(*CELL, "count").rows() == table.rows()
    assert found.filter(county="Z").select("estimate", "low", "high").rows() == [(0.0, 0.0, 0.0)]


def test_a_table_without_its_empty_cells_is_completed_and_its_sums_stay_right() -> None:
    """What grouping gives in any language has no row for an empty cell, but the estimate of that cell is not 0."""
    data = town(60).with_columns(rare=pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("r")).otherwise(pl.lit("c")))
    release = SwappedRelease.of(data, match=["size"], swap=["county"], rate="1/2")
    whole = unswap(["county", "rare"], release)
    grouped = data.group_by("county", "rare").len("count").sort("county", "rare", descending=True)
    found = unswap(grouped, release)
    empty = whole.table.filter(pl.col("count") == 0)
    assert (empty["estimate"] != 0).any()
    assert found.added == empty.height == 3
    assert "3 empty cells of the release were not in the table" in found.notes[0]
    assert found.table.select("county", "rare").rows()[: grouped.height] == grouped.select("county", "rare").rows()
    assert found.table.sort("county", "rare").equals(whole.table)
    assert found.table["estimate"].sum() == pytest.approx(60)
    assert unswap(whole.table.select("county", "rare", "count"), release).added == 0


def test_a_table_that_lacks_cells_that_are_not_empty_is_refused() -> None:
    _, release = small_strata()
    table = published(release)
    with pytest.raises(
        DataError, match=r"1 non-empty cell of the release is missing \(first: county = A, tenure = o\)"
    ):
        unswap(table.slice(1), release)
    with pytest.raises(DataError, match="2 non-empty cells of the release are missing"):
        unswap(table.slice(2), release)


def test_codes_that_lost_their_leading_zeros_are_named() -> None:
    homes, _ = small_strata()
    homes = homes.with_columns(pl.col("county").replace({"A": "01001", "B": "11001"}))
    release = SwappedRelease.of(homes, match=["size"], swap=["county"], rate="1/2")
    table = published(release)
    with pytest.raises(DataError, match='"county": value 1001 of county is unknown; it may have lost leading zeros'):
        unswap(table.with_columns(pl.col("county").cast(pl.Int64)), release)
    with pytest.raises(DataError, match="value 99 of county is unknown") as refused:
        unswap(table.with_columns(pl.col("county").replace({"01001": "99"})), release)
    assert "zeros" not in str(refused.value)
    with pytest.raises(DataError, match=r"2 values of county are unknown \(1001, x\); they may have lost"):
        unswap(table.with_columns(pl.col("county").replace({"01001": "1001", "11001": "x"})), release)


# --- intervals inside the margins, useless corrections, nothing swapped ------------------------------------


def tiny_cells() -> tuple[pl.DataFrame, pl.DataFrame]:
    """40 strata of 4 homes at a rate of one half, where little more than a fifth of any association is left."""
    homes = town(160).with_columns((pl.int_range(pl.len()) // 4).alias("size"))
    homes = homes.with_columns(county=pl.int_range(pl.len()).cast(pl.String).str.slice(-1), tenure=pl.col("tenure"))
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    return homes, swapped(swap, homes, Entropy.from_seed("useless")).public["data"]


def test_intervals_stay_inside_what_the_margins_allow_and_contain_the_truth_no_less_often() -> None:
    homes, data = tiny_cells()
    release = SwappedRelease.of(data, match=["size"], swap=["county"], rate="1/2")
    variables = ["size", "county", "tenure"]
    found = unswap(variables, release).table
    rows = homes.group_by("size", "tenure").len("row").with_columns(pl.col("size").cast(pl.String))
    bounded = found.join(rows, on=["size", "tenure"])
    assert (bounded["low"] >= 0).all()
    assert (bounded["high"] <= bounded["row"]).all()
    assert (found["low"] <= found["high"]).all()
    wide = (found["estimate"] < found["low"]) | (found["estimate"] > found["high"])
    assert wide.any(), "estimates may lie outside, the intervals never"
    truth = homes.group_by(variables).len("true").with_columns(pl.col("size").cast(pl.String))
    both = found.join(truth, on=variables, how="left").with_columns(pl.col("true").fill_null(0))
    width = 1.959964 * both["standard_error"]
    uncut = both["true"].is_between(both["estimate"] - width, both["estimate"] + width)
    cut = both["true"].is_between(both["low"], both["high"])
    assert (cut | ~uncut).all()


def test_a_useless_correction_says_so() -> None:
    _, data = tiny_cells()
    found = unswap(["size", "county", "tenure"], SwappedRelease.of(data, match=["size"], swap=["county"], rate="1/2"))
    assert found.moved > 1
    assert f"The correction is useless: it moves {100 * found.moved:,.0f}%" in " ".join(found.notes)
    assert f"In {found.uninformative:,} of {found.table.height:,} cells the interval says no more" in found.notes[1]
    large = swapped(PermutationSwap(match=["size"], swap=["county"], rate="1/2"), town(), Entropy.from_seed("useful"))
    useful = unswap(CELL, SwappedRelease.of(large.public["data"], match=["size"], swap=["county"], rate="1/2"))
    assert (useful.notes, useful.uninformative) == ([], 0)


def test_at_rate_0_nothing_was_swapped() -> None:
    release = SwappedRelease.of(town(60), match=["size"], swap=["county"], rate="0")
    found = unswap(CELL, release)
    assert found.notes == ["Nothing was swapped: the published counts are exact."]
    assert found.exact
    assert (found.table["estimate"] == found.table["count"]).all()
    assert found.table["standard_error"].to_list() == [0.0] * found.table.height


def test_numbers_carry_no_noise_of_floating_point() -> None:
    _, data = tiny_cells()
    table = unswap(CELL, SwappedRelease.of(data, match=["size"], swap=["county"], rate="1/2"), project=True).table
    for name in ("estimate", "standard_error", "low", "high", "projected"):
        assert all(len(repr(value).partition(".")[2]) <= 9 for value in table[name] if abs(value) >= 1e-4), name
        assert all(value == 0 or abs(value) > 1e-9 for value in table[name]), name
        assert "-0.0" not in {repr(value) for value in table[name]}


@pytest.mark.parametrize(("name", "value"), [("level", 1.5), ("tolerance", 0.0)])
def test_a_level_or_tolerance_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    _, release = small_strata()
    with pytest.raises(PlanError, match=f"{name}: {value} is not between 0 and 1"):
        unswap(CELL, release, **{name: value})  # type: ignore[arg-type]
