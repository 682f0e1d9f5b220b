"""Identifiers that nobody named, or that several records share: doubted, and told inside only."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.data.record_doubts import unnamed_identifiers
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.spec.doubts import Doubt
from tests.world import households, persons

HOMES = households(60)
# 120 persons: "pid" counts inside the household, "PNr" in the whole file.
PEOPLE = persons(HOMES).with_row_index("PNr").with_columns(pl.format("P{}", "PNr").alias("code"))
SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


def doubts(homes: pl.DataFrame = HOMES, people: pl.DataFrame | None = None, *id: str) -> list[Doubt]:
    hid = None if people is None else "hid"
    return list(SWAP.plan(Microdata(households=homes, persons=people, hid=hid, id=id)).doubts)


# --- not named -----------------------------------------------------------------------------------------


def test_a_person_number_that_is_not_named_is_doubted() -> None:
    told = [doubt for doubt in doubts(HOMES, PEOPLE) if doubt.kind == "identifier"]
    assert [doubt.name for doubt in told] == ["identifier:PNr", "identifier:code"]
    assert all("different for every person, and it is released as it is" in doubt.what for doubt in told)
    assert all(doubt.refuses for doubt in told)
    assert told[0].remedy.endswith("name it with --id PNr")


def test_a_name_is_enough_and_so_is_near_uniqueness() -> None:
    told, order = doubts(HOMES)
    assert told.name == "identifier:hid"
    assert "named like an identifier" in told.what
    assert order.name == "nearly-tells:hid", "the file is sorted by county, and numbered in this order"
    assert "if it is an identifier, such as that of a household, name it with --id hid" in order.remedy
    half = HOMES.with_columns(hid=pl.col("hid") // 2, mark=pl.Series([*range(58), 0, 1]))
    # Pairs of neighbours have different sizes, and each shows the county of the other.
    names = [doubt.name for doubt in doubts(half)]
    assert names == ["identifier:hid", "identifier:mark", "unit:hid", "regroup:hid", "nearly-tells:mark"]


def test_what_is_named_or_dropped_or_shared_by_two_persons_is_not() -> None:
    assert doubts(HOMES, PEOPLE, "PNr", "code") == []
    shared = PEOPLE.with_columns(PNr=pl.col("PNr") % 17, code=pl.lit("P"))
    assert doubts(HOMES, shared) == []
    dropping = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure", "age"])
    assert dropping.plan(Microdata(households=HOMES, persons=PEOPLE, hid="hid")).doubts == ()


def test_a_large_file_of_persons_is_looked_at_column_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.data.microdata._LARGE_FILE", 1)
    HOMES.write_parquet(tmp_path / "homes.parquet")
    PEOPLE.write_parquet(tmp_path / "people.parquet")
    data = Microdata.read(tmp_path / "homes.parquet", tmp_path / "people.parquet", hid="hid")
    assert not isinstance(data.persons, pl.DataFrame)
    names = [doubt.name for doubt in SWAP.plan(data).doubts]
    assert names == ["identifier:PNr", "identifier:code", "nearly-tells:PNr", "nearly-tells:code"]


# --- repeated ------------------------------------------------------------------------------------------


def test_a_household_that_stands_in_two_records_is_warned_of() -> None:
    twice = HOMES.with_columns(hid=pl.col("hid") - (pl.col("hid") == 5001).cast(pl.Int64))
    (told,) = doubts(twice, None, "hid")
    assert told.name == "regroup:hid"
    assert told.refuses
    assert "some identifiers may recur, such as an address" in told.remedy
    assert "if a row is a person, say so with --set unit=person" in told.remedy
    assert told.what.startswith('"hid" is repeated in 2 records: are they the same household?')
    assert doubts(HOMES, None, "hid") == []
    conditioned = ConditionedSwap(match=["size"], swap=["county"], rate="1/2", redraw_law="uniform")
    assert told in conditioned.plan(Microdata(households=twice, id=("hid",))).doubts


def test_an_address_that_households_share_is_no_doubt_where_another_identifier_tells_them_apart() -> None:
    shared = HOMES.with_columns(address=pl.col("hid") // 2)
    assert doubts(shared, None, "hid", "address") == []
    (told,) = doubts(shared.drop("hid"), None, "address")
    assert "60 records" in told.what
    numbered = shared.drop("hid").with_columns(floor=pl.int_range(pl.len()) % 2)
    assert doubts(numbered, None, "address", "floor") == [], "both together tell the records apart"


def test_a_person_that_stands_in_two_records_is_warned_of() -> None:
    people = PEOPLE.drop("code")
    twice = people.with_columns(PNr=pl.col("PNr") - (pl.col("PNr") == 119).cast(pl.UInt32))
    (told,) = doubts(HOMES, twice, "PNr")
    assert not told.refuses, "the promise is for a household with all its persons"
    assert told.what.startswith('"PNr" is repeated in 2 records: are they the same person?')


def test_numbers_inside_the_household_may_recur_but_not_inside_one() -> None:
    people = PEOPLE.drop("code", "PNr")
    assert doubts(HOMES, people, "pid") == []
    (told,) = doubts(HOMES, people.with_columns(pid=pl.lit(1)), "pid")
    assert told.what.startswith('"pid" is repeated in 100 records inside a household: are they the same person?')


# --- rows that are no households -----------------------------------------------------------------------


def flat() -> pl.DataFrame:
    """Return persons in one file, numbered in an order that tells nothing."""
    people = PEOPLE.select("hid", "age", personID=pl.col("PNr") * 7_919 % 100_003)
    return people.join(HOMES, on="hid", how="left")


def test_a_file_of_persons_is_no_file_of_households() -> None:
    declared = Microdata(households=flat(), id=("hid", "personID"))
    held = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["age"])
    for swap, data in ((SWAP, declared), (held, flat())):
        (doubt,) = swap.plan(data).doubts
        assert doubt.name == "unit:hid"
        assert doubt.refuses
        assert doubt.what.startswith('the file has several rows for a household: "hid" has 60 values in 120 rows')
        assert 'with --set unit=person (in a plan: unit = "person" under [mechanism])' in doubt.remedy
        assert doubt.remedy.endswith("with --persons FILE and --hid hid")


def test_whoever_says_that_a_row_is_a_person_is_not_asked() -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", unit="person")
    assert swap.plan(Microdata(households=flat(), id=("hid", "personID"))).doubts == ()
    numbered = HOMES.with_columns(hid=pl.col("hid") * 7_919 % 100_003, hh_no=pl.int_range(pl.len()) % 2)
    assert doubts(numbered, None, "hid") == [], "the number of a household inside the house is a code"


def test_a_column_of_persons_is_not_judged_by_the_first_of_them() -> None:
    homes = households(12_000)
    people = persons(homes).with_row_index("place").drop("pid")
    late = pl.when(pl.col("place") < 1_200).then(0).otherwise(pl.col("place"))
    data = Microdata(households=homes, persons=people.select("hid", "age", mark=late), hid="hid")
    assert [doubt.name for doubt in unnamed_identifiers(data, [])] == ["identifier:mark"]


# --- where they stand ----------------------------------------------------------------------------------


def test_the_doubts_are_printed_and_kept_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    HOMES.write_csv("homes.csv")
    # Numbered in an order that tells nothing: HOMES are sorted by county.
    PEOPLE.drop("code").with_columns(PNr=pl.col("PNr") * 7_919 % 100_003).write_csv("people.csv")
    roles = ["--persons", "people.csv", "--hid", "hid", "--match", "size", "--swap", "county", "--rate", "1/2"]
    assert run(["swap", "homes.csv", *roles, "--out", "out", "--quiet"]) == 2
    assert not (tmp_path / "out").exists()
    refused = " ".join(capsys.readouterr().err.split())
    assert "name it with --id PNr; or accept it: --accept identifier:PNr" in refused
    assert run(["swap", "homes.csv", *roles, "--out", "out", "--quiet", "--accept", "identifier:PNr"]) == 0
    assert "Accepted, identifier:PNr: " in capsys.readouterr().err
    public = [path.read_bytes() for path in (tmp_path / "out" / "public").rglob("*") if path.is_file()]
    assert not any(b"different for every" in content for content in public)
    assert "different for every person" in (tmp_path / "out" / "internal" / "report.html").read_text(encoding="utf-8")


# --- identifiers of others, coordinates and times -------------------------------------------------------


def linelist(count: int = 300, *, numbers: bool = False) -> pl.DataFrame:
    """Cases of a disease: who infected whom, where they live and when they came."""
    row = pl.int_range(count, eager=True)
    case = row * 7919 % 100_003 * 1_000_003 if numbers else pl.Series([f"c{n * 7919 % 100_003:05}" for n in row])
    infector = pl.Series([case[n // 2] if n % 7 < 4 else None for n in row])
    return pl.DataFrame(
        {
            "case": case,
            "size": row % 3,
            "county": row * 7 % 4,
            "infector": infector,
            "lat": 8.4 + (row * 13 % 997) / 9_973,
            "lon": (row * 29 % 991) / 9_907 - 13.2,
            "seen": pl.Series([f"{n * 7 % 24:02}:{n * 31 % 60:02}" for n in row]),
        }
    )


@pytest.mark.parametrize("numbers", [False, True])
def test_ids_of_others_coordinates_and_times_are_doubted(numbers: bool) -> None:
    told = {doubt.name: doubt for doubt in doubts(linelist(numbers=numbers), None, "case")}
    assert {*told} >= {"identifier:infector", "coordinates:lat", "coordinates:lon", "times:seen"}
    assert (
        '"infector" has values of the identifier "case" in 100% of the records that have one'
        in told["identifier:infector"].what
    )
    assert all(doubt.refuses for doubt in told.values())


def test_coordinates_are_known_by_their_values_too() -> None:
    renamed = linelist().rename({"lat": "one", "lon": "other"}).drop("infector", "seen")
    assert "coordinates:one+other" in [doubt.name for doubt in doubts(renamed, None, "case")]


def test_times_of_a_parquet_file_are_doubted_and_days_are_not() -> None:
    when = pl.datetime_range(
        pl.datetime(2020, 1, 1, 8), interval="31m", closed="left", end=pl.datetime(2020, 1, 9), eager=True
    )
    frame = (
        linelist()
        .drop("infector", "lat", "lon", "seen")
        .with_columns(came=when[:100].append(when[:100]).append(when[:100]))
    )
    assert [doubt.name for doubt in doubts(frame, None, "case") if doubt.kind == "times"] == ["times:came"]
    days = frame.with_columns(came=pl.col("came").dt.truncate("1d"))
    assert doubts(days, None, "case") == []


def test_numbers_that_happen_to_be_ids_are_not_doubted() -> None:
    """Ids one after the other are equal to rooms, ages and incomes; scores and rates are no coordinates."""
    count = 3_000
    row = pl.int_range(count, eager=True)
    frame = pl.DataFrame(
        {
            "hid": row + 1, "size": row % 3, "county": row * 7 % 4, "income": row * 7919 % 1_499, "age": row * 31 % 90,
            "score": (row * 13 % 997) / 300 - 1.6, "rate": (row * 29 % 991) / 991, "weight": 50 + (row * 17 % 983) / 7,
            "open": pl.Series(["06:00", "14:00", "22:00"] * 1_000),
        }
    )  # fmt: skip
    kinds = [doubt.kind for doubt in doubts(frame, None, "hid")]
    assert not {*kinds} & {"identifier", "coordinates", "times"}
