"""The synthetic census: complete, consistent, reproducible, and as its documentation says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.codebook import Codebook
from stirred.data.problems import PlanError
from stirred.data.synth import census_shares as codes
from stirred.data.synth import census_shares as shares
from stirred.data.synth.census import CHUNK, CensusPlan, census, dirichlet, plan_areas, write_census

HOUSEHOLDS = 300_000
Frames = tuple[pl.DataFrame, pl.DataFrame]


@pytest.fixture(scope="module")
def town() -> Frames:
    """The smallest census."""
    return census(1_000, seed=1)


@pytest.fixture(scope="module")
def region() -> Frames:
    return census(HOUSEHOLDS, seed=7)


def within(frames: Frames) -> pl.DataFrame:
    """Return households only, without group quarters."""
    return frames[0].filter(pl.col("gq_type") == 0)


# --- complete and consistent ------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["town", "region"])
def test_columns_and_types_are_those_of_the_contract(which: str, request: pytest.FixtureRequest) -> None:
    homes, people = request.getfixturevalue(which)
    assert list(homes.columns) == [
        *("hid", "state", "county", "tract", "block_group", "block"),
        *("size", "tenure", "household_type", "gq_type"),
    ]
    assert list(people.columns) == ["hid", "pid", "relationship", "sex", "age", "race", "hispanic", "imputed"]
    assert dict(homes.schema) == dict(codes.HOUSEHOLD_COLUMNS)
    assert dict(people.schema) == dict(codes.PERSON_COLUMNS)
    assert not sum(homes.null_count().row(0)) + sum(people.null_count().row(0))


@pytest.mark.parametrize("households", [1_000, 1_001, 4_321, 60_000, 2 * CHUNK])
def test_there_are_exactly_as_many_households_as_asked_for(households: int) -> None:
    homes, _ = census(households, seed=3)
    assert homes["hid"].to_list() == list(range(1, households + 1))


@pytest.mark.parametrize("which", ["town", "region"])
def test_areas_are_strictly_nested_and_numbered_through(which: str, request: pytest.FixtureRequest) -> None:
    homes, _ = request.getfixturevalue(which)
    for lower, upper in pairwise(codes.HIERARCHY):
        assert homes.group_by(lower).agg(pl.col(upper).n_unique())[upper].max() == 1
        assert homes[lower].n_unique() > homes[upper].n_unique()
    for level in codes.HIERARCHY:
        assert homes[level].unique().sort().to_list() == list(range(1, homes[level].n_unique() + 1))


@pytest.mark.parametrize("which", ["town", "region"])
def test_every_record_has_as_many_persons_as_its_size_and_every_person_a_record(
    which: str, request: pytest.FixtureRequest
) -> None:
    homes, people = request.getfixturevalue(which)
    counted = people.group_by("hid").agg(
        pl.len().alias("n"), pl.col("pid").max().alias("last"), pl.col("pid").n_unique()
    )
    joined = homes.join(counted, on="hid", how="full")
    assert joined.filter(
        ~pl.all_horizontal(pl.col("size").eq_missing(pl.col(c)) for c in ("n", "last", "pid"))
    ).is_empty()
    assert homes["size"].min() == 1


def test_there_are_group_quarters_of_every_type_with_skewed_sizes(region: Frames) -> None:
    quarters = region[0].filter(pl.col("gq_type") > 0)
    assert quarters["gq_type"].unique().sort().to_list() == list(range(1, 8))
    assert (quarters["tenure"] == 0).all()
    assert (quarters["household_type"] == 0).all()
    assert quarters["size"].mean() > 2 * quarters["size"].median()  # type: ignore[operator]
    residents = region[1].join(quarters.select("hid", "gq_type"), on="hid")
    institutional = residents["gq_type"] <= 4
    assert (residents.filter(institutional)["relationship"] == 10).all()
    assert (residents.filter(~institutional)["relationship"] == 11).all()


def test_households_have_the_members_that_their_type_says(region: Frames) -> None:
    role, age = pl.col("relationship"), pl.col("age")
    members = (
        region[1]
        .group_by("hid")
        .agg(
            ((role == 1).sum()).alias("householders"),
            ((role == 2).sum()).alias("spouses"),
            ((role == 3).sum()).alias("partners"),
            (((role == 4) & (age < 18)).sum()).alias("minors"),
            (role.is_between(4, 8).sum()).alias("relatives"),
            (pl.col("sex").filter(role == 1).first()).alias("householder_sex"),
        )
    )
    joined = within(region).join(members, on="hid")
    kind = pl.col("household_type")
    claims = {
        "one householder": pl.col("householders") == 1,
        "a spouse if married": pl.col("spouses") == kind.is_in([1, 2]),
        "a partner if cohabiting": pl.col("partners") == kind.is_in([3, 4]),
        "own children under 18 if so": (pl.col("minors") > 0) == kind.is_in([1, 3, 5, 6]),
        "alone is alone": (pl.col("size") == 1) == kind.is_in([7, 8]),
        "other relatives": (kind != 9) | (pl.col("relatives") > 0),
        "nonrelatives only": (kind != 10) | ((pl.col("relatives") == 0) & (pl.col("size") > 1)),
        "women": ~kind.is_in([5, 7]) | (pl.col("householder_sex") == 2),
        "men": ~kind.is_in([6, 8]) | (pl.col("householder_sex") == 1),
    }
    broken = [name for name, claim in claims.items() if not joined.select(claim.all()).item()]
    assert broken == []


def test_children_are_younger_and_parents_older_than_the_householder(region: Frames) -> None:
    people = region[1]
    householder = people.filter(pl.col("relationship") == 1).select("hid", own=pl.col("age").cast(pl.Int16))
    joined = people.with_columns(pl.col("age").cast(pl.Int16)).join(householder, on="hid")
    gap = joined.with_columns(gap=pl.col("own") - pl.col("age"))
    assert gap.filter(pl.col("relationship") == 4)["gap"].min() >= 15  # type: ignore[operator]
    assert gap.filter(pl.col("relationship") == 5)["gap"].min() >= 36  # type: ignore[operator]
    assert gap.filter(pl.col("relationship") == 6)["gap"].max() <= -18  # type: ignore[operator]


# --- distributions ----------------------------------------------------------------------------------


def observed(column: pl.Series) -> dict[int, float]:
    counts = column.value_counts()
    return {code: count / len(column) for code, count in counts.iter_rows()}


def assert_near(found: Mapping[int, float], wanted: Mapping[int, float], *, tolerance: float) -> None:
    far = {
        code: (round(found.get(code, 0), 4), share)
        for code, share in wanted.items()
        if abs(found.get(code, 0) - share) > tolerance
    }
    assert not far, f"found and wanted: {far}"


def types() -> dict[int, float]:
    """Return the shares of household types that the tables imply."""
    wanted: dict[int, float] = {}
    for size, weight in shares.SIZE.items():
        for kind, share in shares.TYPE_BY_SIZE[size].items():
            wanted[kind] = wanted.get(kind, 0) + weight * share / 1e6
    return wanted


def test_every_table_of_thousandths_adds_up() -> None:
    tables = [
        shares.SIZE.values(),
        shares.GROUP,
        shares.GQ_SHARE.values(),
        *(row.values() for row in shares.TYPE_BY_SIZE.values()),
        *shares.HOUSEHOLDER_AGE.values(),
        *shares.FURTHER.values(),
    ]
    assert {sum(table) for table in tables} == {1000}
    for hispanic in (False, True):
        assert shares.race_weights(hispanic=hispanic).sum() == pytest.approx(1)


def test_household_sizes_and_types_are_those_of_the_tables(region: Frames) -> None:
    """A share p varies between tracts by sqrt(0.02 p (1 - p)), at most 0.07, and there are about 190 tracts of
    unequal size, worth about 150 equal ones: a standard error of 0.006 at most. Four of them, plus rounding."""
    homes = within(region)
    sizes = observed(homes["size"].clip(upper_bound=7))
    assert_near(sizes, {size: weight / 1000 for size, weight in shares.SIZE.items()}, tolerance=0.025)
    assert_near(observed(homes["household_type"]), types(), tolerance=0.025)
    assert 2.38 < float(homes["size"].mean()) < 2.54  # type: ignore[arg-type]


def test_types_given_the_size_are_those_of_the_tables(region: Frames) -> None:
    """Given the size nothing varies between areas: four binomial standard errors."""
    for size, row in shares.TYPE_BY_SIZE.items():
        homes = within(region).filter(pl.col("size").clip(upper_bound=7) == size)
        wanted = {kind: share / 1000 for kind, share in row.items()}
        assert_near(observed(homes["household_type"]), wanted, tolerance=4 * 0.5 / homes.height**0.5)


def test_tenure_is_that_of_the_tables(region: Frames) -> None:
    """Owners vary between tracts by 0.4 sqrt(0.5 * 0.23) = 0.14, or 0.011 over 150 tracts; four of them."""
    bands = {kind: shares.OWNERS_COUPLE if kind <= 4 else shares.OWNERS_OTHER for kind in types()}
    by_table = sum(share * np.dot(shares.HOUSEHOLDER_AGE[kind], bands[kind]) / 1e6 for kind, share in types().items())
    owners = shares.OWNERS_FOLLOW_TABLE * by_table + (1 - shares.OWNERS_FOLLOW_TABLE) * shares.OWNERS
    assert owners == pytest.approx(0.635, abs=0.005)
    tenure = observed(within(region)["tenure"])
    assert tenure[1] + tenure[2] == pytest.approx(owners, abs=0.045)
    assert tenure[4] / (tenure[3] + tenure[4]) == pytest.approx(shares.NO_RENT / 1000, abs=0.005)
    assert 0.18 < tenure[2] < 0.28


def test_group_quarters_are_rare_and_hold_a_few_persons_in_a_hundred() -> None:
    """Facilities are Poisson (deviation 4%) times the tracts' gamma rates (5%); four of both is 26%. Sizes
    have a heavy tail: their mean of 35 has a deviation of 7%, so persons may be off by 40%."""
    homes, _ = census(600_000, seed=2)
    quarters = homes.filter(pl.col("gq_type") > 0)
    assert quarters.height / homes.height == pytest.approx(shares.GQ_RATE, rel=0.26)
    assert 0.015 < int(quarters["size"].sum()) / int(homes["size"].sum()) < 0.036


def test_race_and_hispanic_origin_are_those_of_the_tables_at_dial_zero() -> None:
    """Households of 2.5 nearly alike persons: the standard error is at most 0.5 sqrt(2.5 / 250,000) = 0.0016."""
    _, people = census(100_000, seed=5, segregation=0)
    alone = people.filter(pl.col("hispanic") == 0)
    found = {race - 1: count / people.height for race, count in alone["race"].value_counts().iter_rows()}
    assert_near(found, {group: shares.GROUP[group] / 1000 for group in range(6)}, tolerance=0.0065)
    assert alone.filter(pl.col("race") > 6).height / people.height == pytest.approx(0.041, abs=0.0065)
    latin = people.filter(pl.col("hispanic") == 1)
    assert latin.height / people.height == pytest.approx(0.187, abs=0.0065)
    wanted = dict(enumerate(shares.race_weights(hispanic=True).tolist(), start=1))
    assert_near(observed(latin["race"]), wanted, tolerance=4 * 0.5 / latin.height**0.5)


def test_the_dial_keeps_the_national_shares(region: Frames) -> None:
    """Raking leaves sampling, and households vary in size between tracts: a hundredth."""
    people = region[1]
    white = ((people["race"] == 1) & (people["hispanic"] == 0)).mean()
    black = ((people["race"] == 2) & (people["hispanic"] == 0)).mean()
    assert white == pytest.approx(0.578, abs=0.015)
    assert black == pytest.approx(0.121, abs=0.015)
    assert people["hispanic"].mean() == pytest.approx(0.187, abs=0.015)


def test_all_63_races_have_a_code_and_all_but_the_rarest_occur(region: Frames) -> None:
    """A code expected 50 times is missing with probability below 1e-9, even if it comes in households."""
    assert len(codes.RACE) == 63
    assert codes.RACE[7] == "White; Black or African American"
    assert codes.RACE[63].count(";") == 5
    several, latin = shares.race_weights(hispanic=False), shares.race_weights(hispanic=True)
    expected = region[1].height * (shares.GROUP[6] * several + shares.GROUP[7] * latin) / 1000
    common = {code for code, count in enumerate(expected, start=1) if count >= 50}
    assert len(common) >= 35
    assert common <= set(region[1]["race"].unique())


def test_ages_and_sexes_look_like_a_population(region: Frames) -> None:
    """Wide limits around the United States of 2020: 22% under 18, 17% of 65 and older, 51% women."""
    people = region[1]
    assert (people["age"] < 18).mean() == pytest.approx(0.22, abs=0.03)
    assert (people["age"] >= 65).mean() == pytest.approx(0.17, abs=0.03)
    assert (people["age"] >= 100).mean() < 0.003  # type: ignore[operator]
    assert (people["sex"] == 2).mean() == pytest.approx(0.51, abs=0.01)
    assert people["age"].max() <= codes.OLDEST  # type: ignore[operator]


def test_three_persons_in_a_hundred_are_imputed_and_they_come_in_households(region: Frames) -> None:
    """The rate varies between tracts with a deviation of 70%: over 150 tracts 6%, four of them 24%."""
    homes = within(region).filter(pl.col("size") == 2)
    flags = region[1].join(homes.select("hid"), on="hid").group_by("hid").agg(pl.col("imputed").cast(pl.Int64).sum())
    assert region[1]["imputed"].mean() == pytest.approx(0.03, rel=0.24)
    both, either = (flags["imputed"] == 2).mean(), (flags["imputed"] >= 1).mean()
    assert both > 0.3 * either  # type: ignore[operator]


# --- areas ------------------------------------------------------------------------------------------


def test_national_numbers_of_areas_are_those_of_the_united_states() -> None:
    areas = plan_areas(140_000_000, segregation=0.2, rng=np.random.default_rng(1))
    counts = areas.counts()
    assert counts["states"] == 51
    assert counts["counties"] == 3143
    assert 80_000 < counts["tracts"] < 90_000
    assert 230_000 < counts["block_groups"] < 250_000
    assert 6_000_000 < counts["blocks"] < 8_000_000
    assert areas.households_of_group.sum() == 140_000_000
    counties = np.bincount(areas.county_of_tract[areas.tract_of_group], weights=areas.households_of_group)
    assert counties.mean() > 2 * np.median(counties)
    assert counties.max() > 20 * counties.mean()
    assert counties.min() >= 1


def test_even_the_smallest_census_has_areas_to_swap_between(town: Frames) -> None:
    least = {"state": 2, "county": 4, "tract": 8, "block_group": 20, "block": 60}
    for level, count in least.items():
        assert town[0][level].n_unique() >= count


def test_blocks_are_small_and_skewed(region: Frames) -> None:
    blocks = region[0].group_by("block").len()["len"]
    assert 0.2 < (blocks <= 5).mean() < 0.45  # type: ignore[operator]
    assert blocks.mean() == pytest.approx(20, abs=3)
    assert blocks.max() > 200  # type: ignore[operator]


@pytest.mark.parametrize("households", [1_000, 50_000, 3_000_000, 5_000_001])
def test_chunks_cover_every_tract_once(households: int) -> None:
    areas = plan_areas(households, segregation=0, rng=np.random.default_rng(2))
    chunks = list(areas.chunks())
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert [t for c in chunks for t in range(c.tracts.start, c.tracts.stop)] == list(range(areas.counts()["tracts"]))
    assert [g for c in chunks for g in range(c.groups.start, c.groups.stop)] == list(range(areas.tract_of_group.size))
    assert sum(int(chunk.households().sum()) for chunk in chunks) == households
    assert max(int(chunk.households().sum()) for chunk in chunks) < 1.1 * CHUNK


def test_tracts_differ_in_sizes_and_owners(region: Frames) -> None:
    owned = (
        within(region)
        .group_by("tract")
        .agg((pl.col("tenure") <= 2).mean().alias("owned"), (pl.col("size") == 1).mean().alias("alone"))
    )
    assert owned["owned"].std() > 0.1  # type: ignore[operator]
    assert owned["alone"].std() > 0.04  # type: ignore[operator]


# --- the dial ---------------------------------------------------------------------------------------


def dissimilarity(frames: Frames, *, level: str = "tract") -> float:
    """Return the index of dissimilarity of non-Hispanic Whites and all others: the share who would have to move."""
    homes, people = frames
    white = (pl.col("race") == 1) & (pl.col("hispanic") == 0)
    joined = people.join(homes.select("hid", level), on="hid")
    areas = joined.group_by(level).agg(white.sum().alias("white"), (~white).sum().alias("other"))
    return float((areas["white"] / areas["white"].sum() - areas["other"] / areas["other"].sum()).abs().sum() / 2)


def test_the_dial_goes_from_the_same_mixture_everywhere_to_homogeneous_tracts() -> None:
    indices = [dissimilarity(census(100_000, seed=4, segregation=dial)) for dial in (0, 0.1, 0.3, 0.6, 1)]
    assert all(later > earlier + 0.05 for earlier, later in pairwise(indices)), indices
    # Chance alone: tracts of 4,000 persons in households of nearly alike ones.
    assert indices[0] < 0.04
    assert indices[-1] > 0.98


def test_segregation_is_larger_in_smaller_areas(region: Frames) -> None:
    assert dissimilarity(region, level="state") < dissimilarity(region, level="county") < dissimilarity(region)


@pytest.mark.parametrize("between", [0.02, 0.3, 0.9, 1.0])
def test_mixtures_keep_their_mean_and_have_the_variance_asked_for(between: float) -> None:
    """20,000 draws: the error of a mean is below 0.0035, that of a variance ratio below 0.02 here."""
    share = np.array([0.6, 0.3, 0.1])
    mixtures = dirichlet(np.tile(share, (20_000, 1)), between=between, rng=np.random.default_rng(9))
    assert np.allclose(mixtures.sum(axis=1), 1)
    assert np.allclose(mixtures.mean(axis=0), share, atol=0.015)
    assert np.allclose(mixtures.var(axis=0) / (share * (1 - share)), between, atol=0.05)


# --- reproducible, written whole ----------------------------------------------------------------------


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    plan = CensusPlan(households=3 * CHUNK, seed=11)
    for workers in (1, 3):
        write_census(tmp_path / str(workers), plan=plan, workers=workers)
    for name in ("households", "persons"):
        one, three = (pl.read_parquet(tmp_path / workers / f"{name}.parquet") for workers in ("1", "3"))
        assert one.equals(three)
        assert one["hid"].is_sorted()


def test_files_and_frames_are_the_same_census(tmp_path: Path, town: Frames) -> None:
    write_census(tmp_path / "town", plan=CensusPlan(households=1_000, seed=1))
    for name, frame in zip(("households", "persons"), town, strict=True):
        written = pl.read_parquet(tmp_path / "town" / f"{name}.parquet")
        assert written.schema == frame.schema
        assert written.equals(frame)


def test_seed_and_dial_change_the_census(town: Frames) -> None:
    assert census(1_000, seed=1)[1].equals(town[1])
    assert not census(1_000, seed=2)[1].equals(town[1])
    assert not census(1_000, seed=1, segregation=0.9)[1].equals(town[1])


def test_large_tables_are_folders_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.data.synth.census.ONE_FILE", 100_000)
    write_census(tmp_path / "parts", plan=CensusPlan(households=CHUNK + 200_000, seed=1))
    folder = tmp_path / "parts" / "persons.parquet"
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]
    homes = pl.read_parquet(tmp_path / "parts" / "households.parquet")
    assert homes["hid"].to_list() == list(range(1, CHUNK + 200_001))


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)"),
    ],
)
def test_nothing_is_left_behind_when_writing_fails(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(PlanError, match=r"cannot write: No space left on device.*make room"):
        write_census(tmp_path / "census", plan=CensusPlan(households=1_000, seed=1))
    assert list(tmp_path.iterdir()) == []


# --- codebook -----------------------------------------------------------------------------------------


def test_the_codebook_describes_every_column_and_every_code(tmp_path: Path, region: Frames) -> None:
    write_census(tmp_path / "census", plan=CensusPlan(households=1_000, seed=1))
    book = Codebook.read(tmp_path / "census" / "codebook.toml")
    assert book.hid == "hid"
    assert book.id == ("pid",)
    assert set(book.of("households")) == set(codes.HOUSEHOLD_COLUMNS)
    assert set(book.of("persons")) == set(codes.PERSON_COLUMNS)
    for frame, file in zip(region, ("households", "persons"), strict=True):
        for name in codes.CODES.keys() & frame.columns:
            labels = set(book.of(file)[name].codes)  # type: ignore[arg-type]
            assert {str(code) for code in frame[name].unique()} <= labels


def test_structural_zeros_of_the_codebook_hold(region: Frames) -> None:
    for role, youngest in codes.YOUNGEST.items():
        ages = region[1].filter(pl.col("relationship") == role)["age"]
        assert ages.min() >= youngest  # type: ignore[operator]


# --- command ------------------------------------------------------------------------------------------


def test_the_command_prints_facts_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["synth", "census", "--households", "1000", "--seed", "1", "--out"]
    assert run([*arguments, str(tmp_path / "a")]) == 0
    printed = capsys.readouterr()
    assert "households  1,000, of which" in printed.out
    assert printed.err == "households\n"
    assert run([*arguments, str(tmp_path / "b"), "--json", "--quiet", "--segregation", "0.5"]) == 0
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert printed.err == ""
    assert facts["households"] == 1000
    assert facts["segregation"] == 0.5
    assert facts["persons"] == pl.read_parquet(tmp_path / "b" / "persons.parquet").height
    assert sorted(os.listdir(tmp_path / "b")) == sorted(facts["files"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--households": "999"}, "households: 999 is too few. Fix: ask for 1,000 to 200,000,000."),
        ({"--households": "200000001"}, "households: 200,000,001 is too many."),
        ({"--seed": "-1"}, "seed: -1 is negative. Fix: give a whole number from 0."),
        ({"--segregation": "1.5"}, "segregation: 1.5 is not on the dial. Fix: give a number from 0"),
        ({"--segregation": "nan"}, "segregation: nan is not on the dial."),
        ({"--out": "taken"}, "taken: this exists already. Fix: choose another folder."),
        ({"--out": "file/below"}, "file/below: file is a file, not a folder. Fix: choose another folder."),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_remedy(
    options: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    asked = {"--households": "1000", "--seed": "1", "--out": "new", **options}
    assert run(["synth", "census", *(word for pair in asked.items() for word in pair)]) == 2
    assert message in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["file", "taken"]


def test_all_problems_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--households", "1", "--seed", "-1", "--segregation", "2", "--out", "x", "--json"]
    assert run(["synth", "census", *asked]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error["where"] for error in errors] == ["households", "seed", "segregation"]


def test_memory_does_not_grow_with_the_census(tmp_path: Path) -> None:
    """Four chunks and one differ by less than half of what three chunks of records weigh (3 x 55 MB)."""
    program = """
import resource, sys
from pathlib import Path
from stirred.data.synth import census
census.ONE_FILE = 0
plan = census.CensusPlan(households=int(sys.argv[1]), seed=1)
census.write_census(Path(sys.argv[2]), plan=plan, workers=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", program, str(chunks * CHUNK), str(tmp_path / str(chunks))],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for chunks in (1, 4)
    ]
    assert peaks[1] < peaks[0] + 80, peaks
