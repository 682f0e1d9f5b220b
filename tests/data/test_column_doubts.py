"""Columns that tell the swapped value, or nearly: alone, in pairs, of households and of persons; and regrouped rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
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


def test_a_postcode_in_a_dozen_records_tells_by_its_first_digit() -> None:
    county = ["1", "2", "3"] * 4
    zips = [f"{each}{1_000 + 37 * number}" for number, each in enumerate(county)]
    tiny = pl.DataFrame({"county": county, "size": [1, 1, 1, 2, 2, 2] * 2, "tenure": list("oorr") * 3, "zip": zips})
    (doubt,) = [each for each in SWAP.plan(tiny).doubts if each.refuses]
    assert doubt.name == "tells:zip"
    assert "by its first letter determines the swap values" in doubt.what
    assert refusing(tiny.with_columns(zip=pl.col("zip").cast(pl.Int64))) == ["tells:zip"]
    assert refusing(tiny.with_columns(zip=pl.col("zip").shuffle(seed=1))) == [], "the power check"


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


def test_four_coarse_columns_of_households_regroup_their_persons() -> None:
    draw = np.random.default_rng(12)
    count = 4_000
    house = np.repeat(np.arange(count), draw.integers(2, 6, count))
    coarse = {name: draw.integers(0, 9, count)[house] for name in ("rooms", "fuel", "built", "rent")}
    county = draw.integers(0, 12, count)[house]
    frame = pl.DataFrame({"county": county, **coarse, "sex": draw.integers(0, 2, house.size)})
    swap = PermutationSwap(match=[], swap=["county"], rate="1/2", unit="person")
    (doubt,) = swap.plan(frame).doubts
    assert doubt.name == "regroup:rooms+fuel+built+rent"
    assert '"rooms", "fuel", "built", "rent" together put the rows into small groups' in doubt.what
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
