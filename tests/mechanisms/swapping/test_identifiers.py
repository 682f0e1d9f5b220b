"""Identifiers that nobody named, or that several records share: warned of inside, and never in public."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.permutation import PermutationSwap
from tests.release.bundles import households, persons

HOMES = households(60)
# 120 persons: "pid" counts inside the household, "PNr" in the whole file.
PEOPLE = persons(HOMES).with_row_index("PNr").with_columns(pl.format("P{}", "PNr").alias("code"))
SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


def warnings(homes: pl.DataFrame = HOMES, people: pl.DataFrame | None = None, *id: str) -> list[str]:
    hid = None if people is None else "hid"
    return list(SWAP.plan(Microdata(households=homes, persons=people, hid=hid, id=id)).warnings)


# --- not named -----------------------------------------------------------------------------------------


def test_a_person_number_that_is_not_named_is_warned_of() -> None:
    told = warnings(HOMES, PEOPLE)
    assert [word.split(" is ")[0] for word in told] == ['"PNr"', '"code"']
    assert all("different for every person and will be released as it is" in word for word in told)
    assert told[0].endswith("name it with --id PNr")


def test_what_is_named_or_dropped_or_shared_by_two_persons_is_not() -> None:
    assert warnings(HOMES, PEOPLE, "PNr", "code") == []
    shared = PEOPLE.with_columns(PNr=pl.col("PNr") - (pl.col("PNr") == 119).cast(pl.UInt32), code=pl.lit("P"))
    assert warnings(HOMES, shared) == []
    dropping = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure", "age"])
    assert dropping.plan(Microdata(households=HOMES, persons=PEOPLE, hid="hid")).warnings == ()


def test_a_large_file_of_persons_is_looked_at_column_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.data.microdata._LARGE_FILE", 1)
    HOMES.write_parquet(tmp_path / "homes.parquet")
    PEOPLE.write_parquet(tmp_path / "people.parquet")
    data = Microdata.read(tmp_path / "homes.parquet", tmp_path / "people.parquet", hid="hid")
    assert not isinstance(data.persons, pl.DataFrame)
    assert [word.split(" is ")[0] for word in SWAP.plan(data).warnings] == ['"PNr"', '"code"']


# --- repeated ------------------------------------------------------------------------------------------


def test_a_household_that_stands_in_two_records_is_warned_of() -> None:
    twice = HOMES.with_columns(hid=pl.col("hid") - (pl.col("hid") == 5001).cast(pl.Int64))
    (told,) = warnings(twice, None, "hid")
    assert told.endswith("This is no error, because some identifiers may recur, such as an address")
    assert told.startswith('"hid" is repeated in 2 records: are they the same household?')
    assert warnings(HOMES, None, "hid") == []
    conditioned = ConditionedSwap(match=["size"], swap=["county"], rate="1/2", redraw_law="uniform")
    noisy = NoisySwap(
        match=["size"], swap=["county"], rate="1/2", noise_epsilon=1, tables=["tenure"],
        values={"tenure": ["owned", "rented"]},
    )  # fmt: skip
    for swap in (conditioned, noisy):
        assert told in swap.plan(Microdata(households=twice, id=("hid",))).warnings


def test_an_address_that_households_share_is_no_doubt_where_another_identifier_tells_them_apart() -> None:
    shared = HOMES.with_columns(address=pl.col("hid") // 2)
    assert warnings(shared, None, "hid", "address") == []
    (told,) = warnings(shared.drop("hid"), None, "address")
    assert "60 records" in told


def test_a_person_that_stands_in_two_records_is_warned_of() -> None:
    people = PEOPLE.drop("code")
    twice = people.with_columns(PNr=pl.col("PNr") - (pl.col("PNr") == 119).cast(pl.UInt32))
    (told,) = warnings(HOMES, twice, "PNr")
    assert told.startswith('"PNr" is repeated in 2 records: are they the same person?')


def test_numbers_inside_the_household_may_recur_but_not_inside_one() -> None:
    people = PEOPLE.drop("code", "PNr")
    assert warnings(HOMES, people, "pid") == []
    (told,) = warnings(HOMES, people.with_columns(pid=pl.lit(1)), "pid")
    assert told.startswith('"pid" is repeated in 100 records inside a household: are they the same person?')


# --- where they stand ----------------------------------------------------------------------------------


def test_the_doubts_are_printed_and_kept_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    HOMES.write_csv("homes.csv")
    PEOPLE.drop("code").write_csv("people.csv")
    roles = ["--persons", "people.csv", "--hid", "hid", "--match", "size", "--swap", "county", "--rate", "1/2"]
    assert run(["swap", "homes.csv", *roles, "--out", "out", "--quiet"]) == 0
    assert "name it with --id PNr" in " ".join(capsys.readouterr().err.split())
    public = [path.read_bytes() for path in (tmp_path / "out" / "public").rglob("*") if path.is_file()]
    assert not any(b"different for every" in content for content in public)
    assert "different for every person" in (tmp_path / "out" / "internal" / "report.html").read_text(encoding="utf-8")
