"""Columns that tell the area and escape a look at a few rows, or at equal values: each once went out unnoticed."""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.data.column_evidence import shown
from stirred.data.microdata import Microdata
from stirred.data.synth.census import census
from stirred.data.synth.massachusetts import massachusetts_1940
from tests.data.test_column_doubts import SWAP, doubts, homes, persons

COUNTIES = 12


def by_area(frame: pl.DataFrame, *, seed: int = 20) -> pl.Series:
    """Return a number that is different for every record and lies in the band of its county."""
    draw = np.random.default_rng(seed)
    band = 0.05 + 0.9 * draw.random(frame.height)
    return pl.Series(frame["county"].to_numpy() + band)


# --- many rows ------------------------------------------------------------------------------------------


def test_a_block_of_a_few_households_tells_also_in_millions_of_rows() -> None:
    rows, draw = 1_600_000, np.random.default_rng(21)
    block = draw.permutation(rows // 8)[np.arange(rows) // 8]
    held = {f"held{n}": draw.integers(0, 2 + 4 * n, rows) for n in range(8)}
    frame = pl.DataFrame(
        {"county": block % 100, "size": draw.integers(1, 5, rows), "block": block, "value": draw.random(rows), **held}
    ).sample(fraction=1, shuffle=True, seed=1)
    began = time.process_time()
    (doubt,) = SWAP.plan(frame).doubts
    assert doubt.name == "tells:block"
    assert time.process_time() - began < 40


def test_one_row_of_millions_and_a_column_is_no_function() -> None:
    """The power check: rows that were not looked at are asked too."""
    rows, draw = 400_000, np.random.default_rng(22)
    block = np.arange(rows) // 8
    county = block * 7 % 90
    county[-1] = (county[-1] + 1) % 90
    frame = pl.DataFrame({"county": county, "size": draw.integers(1, 5, rows), "block": block})
    assert [doubt.name for doubt in SWAP.plan(frame).doubts] == ["nearly-tells:block"]


def weak(area: np.ndarray, *, values: int = 8, share: float = 0.45, seed: int = 31) -> dict[str, np.ndarray]:
    """Return columns that each say a little of an area: a share of its households has a value of its own."""
    draw = np.random.default_rng(seed)
    usual = draw.integers(0, values, (int(area.max()) + 1, 5))
    other = draw.integers(0, values, (area.size, 5))
    own = np.where(draw.random((area.size, 5)) < share, usual[area], other)
    return {f"held{n}": own[:, n] for n in range(5)}


def test_a_sorted_file_is_doubted_like_a_shuffled_one() -> None:
    """Runs of rows of a sorted file know few areas, which weak hints tell apart: it was refused for that alone."""
    rows = 120_000
    county = np.arange(rows) * 120 // rows
    size = np.random.default_rng(32).integers(1, 4, rows)
    ordered = pl.DataFrame({"county": county, "size": size, **weak(county)})
    shuffled = ordered.sample(fraction=1, shuffle=True, seed=2)
    assert [doubt.name for doubt in SWAP.plan(ordered).doubts] == []
    assert [doubt.name for doubt in SWAP.plan(shuffled).doubts] == []


@pytest.mark.parametrize("seed", [None, 3])
def test_two_columns_that_tell_a_small_area_together_are_found_in_any_order(seed: int | None) -> None:
    """The power check: half of an area's code each, and too few of its households among the rows looked at."""
    rows = 240_000
    county = np.random.default_rng(33).permutation(rows // 6)[np.arange(rows) // 6]
    draw = np.random.default_rng(34)
    frame = pl.DataFrame(
        {"county": county, "size": draw.integers(1, 4, rows), "one": county // 200, "other": county % 200}
    ).with_columns(held=pl.Series(draw.integers(0, 9, rows)))
    frame = frame if seed is None else frame.sample(fraction=1, shuffle=True, seed=seed)
    assert "nearly-tells:one+other" in [doubt.name for doubt in SWAP.plan(frame).doubts]


# --- order ----------------------------------------------------------------------------------------------


def test_a_latitude_that_is_different_for_every_record_tells_by_its_neighbours() -> None:
    frame = homes(counties=COUNTIES)
    for column in (by_area(frame), by_area(frame).round(6).cast(pl.String), by_area(frame).cast(pl.Decimal(12, 8))):
        named, doubt = doubts(frame.with_columns(lat=column)).values()
        assert (named.name, doubt.name) == ("coordinates:lat", "nearly-tells:lat")
        assert '"lat" predicts "county" for 9' in doubt.what


def test_latitude_and_longitude_tell_together() -> None:
    frame = homes(6_000, counties=16)
    draw = np.random.default_rng(23)
    county = frame["county"].to_numpy()
    both = frame.with_columns(
        lat=pl.Series(county // 4 + draw.random(frame.height)), lon=pl.Series(county % 4 + draw.random(frame.height))
    )
    assert "nearly-tells:lat+lon" in doubts(both) or {"nearly-tells:lat", "nearly-tells:lon"} <= {*doubts(both)}


@pytest.mark.parametrize("distinct", [300, 2_500, 1_000_000])
def test_codes_that_begin_with_the_county_tell_it_however_many_there_are(distinct: int) -> None:
    frame = homes(counties=COUNTIES)
    number = np.random.default_rng(24).integers(0, distinct, frame.height)
    code = pl.Series([f"{county:02}-{n:07}" for county, n in zip(frame["county"], number, strict=True)])
    found = doubts(frame.with_columns(code=code))
    assert {"tells:code", "nearly-tells:code"} & {*found}


def test_neighbours_that_are_equal_are_in_no_order() -> None:
    """A file is often sorted by county: the order of its rows must not count as that of a column."""
    draw = np.random.default_rng(25)
    frame = homes().sort("county").with_columns(
        spent=pl.Series(np.where(draw.random(3_000) < 0.5, 0.0, draw.random(3_000)))
    )  # fmt: skip
    assert doubts(frame) == {}


# --- some of the records --------------------------------------------------------------------------------


def named_for(frame: pl.DataFrame, share: float, *, seed: int = 26) -> pl.Series:
    known = pl.Series(np.random.default_rng(seed).random(frame.height) < share)
    return frame.select(pl.when(known).then(pl.col("county").cast(pl.String))).to_series()


@pytest.mark.parametrize("share", [0.45, 0.10])
def test_a_column_that_names_the_county_of_some_records_partly_tells(share: float) -> None:
    frame = homes()
    (doubt,) = doubts(frame.with_columns(util=named_for(frame, share))).values()
    assert doubt.name == "partly-tells:util"
    assert doubt.refuses
    assert abs(float(doubt.what.split(" of ")[1].split("%")[0]) - 100 * share) < 3


def test_a_latitude_that_is_known_of_some_records_partly_tells() -> None:
    frame = homes()
    known = pl.Series(np.random.default_rng(27).random(frame.height) < 0.4)
    lat = frame.select(pl.when(known).then(by_area(frame))).to_series()
    assert [*doubts(frame.with_columns(lat=lat))] == ["coordinates:lat", "partly-tells:lat"]


def test_a_column_that_names_the_county_of_few_records_is_not_doubted() -> None:
    """The power check: a twentieth of the records."""
    frame = homes()
    assert doubts(frame.with_columns(util=named_for(frame, 0.03))) == {}


@pytest.mark.parametrize("count", [40, 120, 400])
def test_small_files_are_not_refused_by_chance(count: int) -> None:
    for seed in range(30):
        draw = np.random.default_rng(1_000 + seed)
        frame = homes(count, seed=seed, counties=(3, 12, 40)[seed % 3]).with_columns(
            few=pl.Series(draw.integers(0, count // 4, count)),
            many=pl.Series(draw.integers(0, count, count)),
            amount=pl.Series(draw.lognormal(size=count)),
        )
        assert {name: doubt.what for name, doubt in doubts(frame).items()} == {}


def test_amounts_that_differ_between_counties_are_honest() -> None:
    """A third of the variance of home values lies between counties, and one county has most of the homes."""
    for seed, counties in ((1, 2), (2, 5), (3, 12), (4, 60)):
        draw = np.random.default_rng(seed)
        county = draw.choice(counties, 6_000, p=draw.dirichlet(np.full(counties, 2.0)))
        level = draw.normal(0, 0.4, counties)[county]
        value = pl.Series(np.exp(12 + level + draw.normal(0, 0.6, 6_000)))
        frame = homes(6_000, seed=seed).with_columns(county=pl.Series(county), value=value, rent=value // 1_000)
        assert {name: doubt.what for name, doubt in doubts(frame).items()} == {}


def test_groups_so_large_that_chance_underflows_are_telling() -> None:
    """A half to the power of 9,999 is 0 in double precision."""
    group = np.repeat(np.arange(2), 10_000)
    found = shown(group, group, np.full(20_000, 0.5), records=20_000)
    assert (found.by_chance, found.groups, found.telling) == (0.0, 2, True)


def test_a_group_that_shares_what_its_stratum_shares_shows_nothing() -> None:
    group = np.repeat(np.arange(10), 10)
    assert shown(group, group % 5, np.ones(100), records=100).shown == 0


# --- persons --------------------------------------------------------------------------------------------


def test_persons_are_asked_household_by_household() -> None:
    """Of all persons 62% work in their county, and of most households the majority does."""
    frame = homes().with_columns(size=pl.lit(3))
    people = persons(frame)
    draw = np.random.default_rng(28)
    county = people.join(frame.select("hid", "county"), on="hid", how="left", maintain_order="left")[
        "county"
    ].to_numpy()
    work = np.where(draw.random(people.height) < 0.62, county, draw.integers(0, COUNTIES, people.height))
    (doubt,) = doubts(frame, people.with_columns(work=pl.Series(work))).values()
    assert doubt.name == "nearly-tells:work"
    assert "% of the households" in doubt.what
    assert "swap it too" not in doubt.remedy
    assert 'list the columns to keep with --hold, without "work"' in doubt.remedy


def test_a_column_of_households_and_one_of_persons_tell_together() -> None:
    frame = homes(counties=4)
    half = pl.Series(np.random.default_rng(29).integers(0, 4, frame.height))
    frame = frame.with_columns(one=half)
    people = persons(frame).join(frame.select("hid", other=(pl.col("county") + half) % 4), on="hid", how="left")
    (doubt,) = doubts(frame, people).values()
    assert doubt.name == "nearly-tells:one+other"


def test_pairs_of_households_and_persons_that_were_not_looked_at_are_said() -> None:
    draw = np.random.default_rng(30)
    wide = homes().with_columns(**{f"held{n:02}": pl.Series(draw.integers(0, 4, 3_000)) for n in range(9)})
    (doubt,) = doubts(wide, persons(wide)).values()
    assert doubt.name == "not-looked-at"
    assert not doubt.refuses
    assert "of 11 columns of households and 1 of persons only the 8 of each" in doubt.what


# --- places, and honest files ---------------------------------------------------------------------------


def test_a_postcode_is_a_place_and_no_id_of_a_household() -> None:
    frame = homes().sort("county").with_row_index("row")
    frame = frame.with_columns(postcode=pl.col("county") * 1_000 + pl.col("row") // 5).drop("row")
    (doubt,) = doubts(frame).values()
    assert doubt.name in ("tells:postcode", "nearly-tells:postcode")
    # To match on it is no remedy: it tells the county, so that nothing could move among equal postcodes.
    assert 'swap it too, or list the columns to keep with --hold, without "postcode"' in doubt.remedy
    assert "match on it" not in doubt.remedy


def test_the_file_of_the_demonstration_is_not_refused() -> None:
    swap = PermutationSwap(match=["state", "size"], swap=["county"], rate="1/20")
    assert swap.plan(massachusetts_1940()).doubts == ()


def test_the_synthetic_census_is_refused_only_where_a_place_is_held() -> None:
    # In this draw no county has nearly all homes of its state; there most would keep their county, and be doubted.
    households, people = census(8_000, seed=8)
    data = Microdata(households=households, persons=people, hid="hid", id=("pid",))
    places = ["county", "tract", "block_group", "block"]
    swap = PermutationSwap(match=["state", "size"], swap=places, rate="1/20")
    assert [doubt.name for doubt in swap.plan(data).doubts if doubt.refuses] == []
    swap = PermutationSwap(match=["state", "size"], swap=["county"], rate="1/20")
    assert {doubt.name for doubt in swap.plan(data).doubts if doubt.refuses} == {
        f"tells:{place}" for place in places[1:]
    }
