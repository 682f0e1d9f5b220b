"""Columns from which the swapped value is guessed: alone, in pairs, of households and of persons; and regrouped rows.

Those in the second half escape a look at a few rows, or at equal values: each once went out unnoticed.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
from stirred.data.synth.census import census
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.spec.doubts import Doubt, DoubtError

SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


def homes(count: int = 3_000, *, seed: int = 1, counties: int = 12) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "hid": np.arange(count),
            "county": draw.integers(0, counties, count),
            "size": draw.integers(1, 4, count),
            "tenure": draw.integers(0, 3, count),
            "rooms": draw.integers(1, 9, count),
        }
    )


def noisy_copy(column: pl.Series, share: float, *, seed: int = 2) -> pl.Series:
    """Return a column that has the value of another for a share of the records, and any value for the rest."""
    draw = np.random.default_rng(seed)
    other = draw.permutation(column.to_numpy())
    return pl.Series(np.where(draw.random(len(column)) < share, column.to_numpy(), other))


def doubts(frame: pl.DataFrame, persons: pl.DataFrame | None = None, **given: Any) -> dict[str, Doubt]:
    data = Microdata(households=frame, persons=persons, hid=None if persons is None else "hid", id=("hid",), **given)
    return {doubt.name: doubt for doubt in SWAP.plan(data).doubts}


def test_columns_that_are_unrelated_raise_no_doubt() -> None:
    wide = homes().with_columns(
        **{f"held{n}": pl.Series(np.random.default_rng(100 + n).integers(0, 2 + n**2, 3_000)) for n in range(12)}
    )
    assert doubts(wide) == {}


@pytest.mark.parametrize("share", [0.69, 0.90, 0.966])
def test_a_column_that_nearly_tells_the_swapped_value_is_doubted(share: float) -> None:
    frame = homes()
    found = doubts(frame.with_columns(util=noisy_copy(frame["county"], share)))
    (doubt,) = found.values()
    assert doubt.name == "nearly-tells:util"
    assert doubt.what.startswith('"util" predicts "county" for ')
    assert "% without it): anyone could tell which records were swapped, and often reverse it" in doubt.what
    right = float(doubt.what.split(" for ")[1].split("%")[0])
    assert abs(right - 100 * (share + (1 - share) / 12)) < 2


def test_a_column_that_tells_little_is_not() -> None:
    """The power check: half of the errors must go."""
    frame = homes()
    assert doubts(frame.with_columns(util=noisy_copy(frame["county"], 0.4))) == {}


def test_a_release_in_python_refuses_what_is_doubted_and_keeps_what_was_accepted() -> None:
    frame = homes().drop("hid")
    frame = frame.with_columns(util=noisy_copy(frame["county"], 0.9))
    with pytest.raises(DoubtError, match=r'accept=\["nearly-tells:util"\]'):
        SWAP.release(frame, Entropy.from_os())
    with pytest.raises(DoubtError, match="'nearly-tells:tenure'"):
        SWAP.release(frame, Entropy.from_os(), accept=["nearly-tells:util", "nearly-tells:tenure"])
    released = SWAP.release(frame, Entropy.from_os(), accept=["nearly-tells:util"])
    assert "by name: nearly-tells:util (" in released.specification.assumptions[-1]
    assert "accepted nearly-tells:util (util often shows which records" in " ".join(str(released).split())
    again = SWAP.release(frame, Entropy.from_os(), plan=SWAP.plan(frame), accept=["nearly-tells:util"])
    assert again.specification == released.specification
    with pytest.raises(DoubtError):
        SWAP.release(frame, Entropy.from_os(), plan=SWAP.plan(frame, doubts=False))


def test_two_columns_that_tell_only_together_are_doubted() -> None:
    frame = homes(counties=4)
    half = pl.Series(np.random.default_rng(3).integers(0, 4, frame.height))
    found = doubts(frame.with_columns(one=half, other=(frame["county"] + half) % 4))
    (doubt,) = found.values()
    assert doubt.name == "nearly-tells:one+other"
    assert '"one" and "other" together predict "county" for 100% of the rows' in doubt.what


def test_pairs_that_were_not_looked_at_are_said() -> None:
    draw = np.random.default_rng(5)
    wide = homes().with_columns(**{f"held{n:02}": pl.Series(draw.integers(0, 4, 3_000)) for n in range(20)})
    (doubt,) = doubts(wide).values()
    assert doubt.name == "not-looked-at"
    assert doubt.remedy.count('"held') == 5  # and rooms
    assert not doubt.refuses
    assert "of 22 columns only the 16 that guess the swap values best alone were paired" in doubt.what


def persons(frame: pl.DataFrame) -> pl.DataFrame:
    people = frame.select("hid", pl.int_ranges(0, pl.col("size")).alias("age")).explode("age")
    return people.with_columns(age=(pl.col("age") * 31 + pl.col("hid") * 17) % 90)


def test_a_column_of_persons_that_is_the_county_is_doubted() -> None:
    frame = homes()
    people = persons(frame)
    assert doubts(frame, people) == {}
    area = people.join(frame.select("hid", "county"), on="hid", how="left", maintain_order="left")["county"]
    (doubt,) = doubts(frame, people.with_columns(birth=area.cast(pl.String))).values()
    assert doubt.name == "tells:birth"
    assert '"birth" of persons is published unchanged and determines the swap values' in doubt.what
    (doubt,) = doubts(frame, people.with_columns(work=noisy_copy(area, 0.8))).values()
    assert doubt.name == "nearly-tells:work"


def test_what_a_family_shares_tells_nothing_of_its_county() -> None:
    """Persons of a household have its county; guessing one from another of the same household shows nothing."""
    frame = homes().with_columns(size=pl.lit(4))
    draw = np.random.default_rng(6).integers(0, 900, frame.height)
    people = persons(frame).join(frame.select("hid").with_columns(clan=pl.Series(draw)), on="hid", how="left")
    assert doubts(frame, people) == {}


def test_an_id_of_households_among_persons_is_an_identifier() -> None:
    frame = homes()
    people = persons(frame).with_columns(mark=pl.col("hid") * 7919 % 100_003)
    (doubt,) = doubts(frame, people).values()
    assert doubt.name == "identifier:mark"
    assert "different for every household" in doubt.what


def flat_file(name: str) -> pl.DataFrame:
    frame = homes(1_500)
    rows = frame.select(pl.all().repeat_by("size")).explode(frame.columns).rename({"hid": name})
    draw = np.random.default_rng(7)
    return rows.select(name, "county", age=pl.Series(draw.integers(0, 90, rows.height)))


def test_a_household_id_in_a_file_of_persons_regroups_them_whatever_it_is_called() -> None:
    swap = PermutationSwap(match=[], swap=["county"], rate="1/2", unit="person")
    plan = swap.plan(flat_file("hogar"))
    (doubt,) = plan.doubts
    assert doubt.name == "regroup:hogar"
    assert "rows that belong together could be found in the release" in doubt.what
    assert {each.name for each in swap.plan(flat_file("hid")).doubts} == {"identifier:hid", "regroup:hid"}
    named = swap.plan(Microdata(households=flat_file("hid").with_row_index("pid"), id=("hid", "pid")))
    assert named.doubts == ()


def test_a_toy_file_does_not_trip_over_chance() -> None:
    toy = pl.DataFrame({"county": list("AABBAB"), "size": [1] * 6, "tenure": list("oorroo")})
    (note,) = SWAP.plan(toy).doubts
    assert (note.name, note.refuses) == ("not-looked-at:county", False)
    assert "6 records, too few to tell from chance" in note.what
    tells = toy.with_columns(kind=pl.col("county").replace({"A": "x", "B": "y"}))
    assert refusing(tells) == [], "five of six agree by chance once in 32 files"
    assert refusing(pl.concat([tells, tells])) == ["tells:kind"]


def refusing(frame: pl.DataFrame) -> list[str]:
    return [doubt.name for doubt in SWAP.plan(frame).doubts if doubt.refuses]


def test_names_in_a_file_of_eighteen_are_identifiers() -> None:
    names = [f"{first}{last}" for first in ("Ana", "Bea", "Cat") for last in ("Li", "Ox", "Po", "Ru", "Sy", "Ti")]
    frame = homes(18, counties=3).drop("hid").with_columns(xx=pl.Series(names))
    assert refusing(frame) == ["identifier:xx"]


def test_a_guess_that_is_right_for_nearly_all_of_sixty_records_is_doubted() -> None:
    """58.3% without it, 96.7% with it."""
    county = np.repeat(["A", "B"], [35, 25])
    zips = np.where(county == "A", "10", "20")
    zips[[0, 40]] = "20", "10"
    frame = pl.DataFrame({"county": county, "size": [1] * 60, "tenure": [*range(2)] * 30, "zip": zips})
    assert refusing(frame) == ["nearly-tells:zip"]


@pytest.mark.parametrize(("share", "doubted"), [(0.8, True), (0.45, False)])
def test_a_guess_that_is_right_for_two_thirds_is_doubted_though_not_half_of_the_errors_go(
    share: float, doubted: bool
) -> None:
    """Two counties in five have most homes: 44% are guessed without the column."""
    draw = np.random.default_rng(11)
    county = pl.Series(draw.choice(5, 3_000, p=[0.44, 0.2, 0.16, 0.1, 0.1]))
    first = county.to_numpy() < 3  # it says nothing of the others
    util = np.where(first & (draw.random(3_000) < share), county.to_numpy(), draw.choice(5, 3_000))
    frame = homes().drop("hid").with_columns(county=county, util=pl.Series(util))
    found = {doubt.name: doubt.what for doubt in SWAP.plan(frame).doubts}
    assert ("nearly-tells:util" in found) == doubted, found


def test_four_coarse_columns_of_households_show_where_their_persons_live() -> None:
    draw = np.random.default_rng(12)
    count = 4_000
    house = np.repeat(np.arange(count), draw.integers(2, 6, count))
    coarse = {name: draw.integers(0, 9, count)[house] for name in ("rooms", "fuel", "built", "rent")}
    county = draw.integers(0, 12, count)[house]
    frame = pl.DataFrame({"county": county, **coarse, "sex": draw.integers(0, 2, house.size)})
    swap = PermutationSwap(match=[], swap=["county"], rate="1/2", unit="person")
    (doubt,) = swap.plan(frame).doubts
    assert doubt.name == "nearly-tells:rooms+fuel+built+rent"
    assert '"rooms" and "fuel" and "built" and "rent" together predict "county" for ' in doubt.what
    shuffled = frame.with_columns(county=pl.col("county").shuffle(seed=1))
    assert swap.plan(shuffled).doubts == (), "the power check"


def test_many_small_hints_add_up() -> None:
    draw = np.random.default_rng(13)
    county = draw.integers(0, 4, 6_000)
    hints = {f"hint{n:02}": np.where(draw.random(6_000) < 0.35, county, draw.integers(0, 4, 6_000)) for n in range(14)}
    frame = pl.DataFrame({"county": county, "size": draw.integers(1, 4, 6_000), **hints})
    (doubt,) = [each for each in SWAP.plan(frame).doubts if each.refuses]
    assert doubt.name.startswith("nearly-tells:hint")
    assert doubt.name.count("+") > 1
    assert 'together predict "county" for ' in doubt.what
    unrelated = frame.with_columns(county=pl.Series(draw.permutation(county)))
    assert refusing(unrelated) == [], "the power check"


def test_a_million_rows_of_twenty_columns_take_seconds() -> None:
    draw = np.random.default_rng(8)
    held = {f"held{n}": draw.integers(0, 2 + 3 * n, 1_000_000) for n in range(20)}
    frame = pl.DataFrame({"county": draw.integers(0, 80, 1_000_000), "size": draw.integers(1, 8, 1_000_000), **held})
    began = time.process_time()
    SWAP.plan(frame)
    assert time.process_time() - began < 40


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


# --- order ----------------------------------------------------------------------------------------------


def test_a_latitude_that_is_different_for_every_record_tells_by_its_neighbours() -> None:
    frame = homes(counties=COUNTIES)
    for column in (by_area(frame), by_area(frame).round(6).cast(pl.String), by_area(frame).cast(pl.Decimal(12, 8))):
        named, doubt = doubts(frame.with_columns(lat=column)).values()
        assert (named.name, doubt.name) == ("coordinates:lat", "nearly-tells:lat")
        assert '"lat" predicts "county" for 9' in doubt.what


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


def test_a_column_of_persons_that_names_the_county_of_some_households_partly_tells() -> None:
    frame = homes()
    people = persons(frame).join(frame.select("hid", work=named_for(frame, 0.2)), on="hid", how="left")
    (doubt,) = doubts(frame, people).values()
    assert doubt.name == "partly-tells:work"
    assert '"work" of persons shows "county" of 2' in doubt.what
    assert "% of the households, those it says something of: anyone could tell which of them were swapped" in doubt.what


def test_a_column_that_says_something_of_some_records_and_nothing_of_their_county_is_not_doubted() -> None:
    """The power check of the one above: a fifth has a value of its own, drawn without looking at the county."""
    frame = homes()
    other = frame.with_columns(county=frame["county"].shuffle(seed=5))
    assert doubts(frame.with_columns(util=named_for(other, 0.2))) == {}


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
