"""Households and persons that do not fit together: every problem with its column, its rows and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.spec.problems import Problem

HOMES = pl.DataFrame({"hid": [1, 2, 3], "county": list("ABA")})
PEOPLE = pl.DataFrame({"hid": [1, 1, 3], "age": [30, 31, 32]})


def problems(**settings: Any) -> tuple[Problem, ...]:
    given = {"households": HOMES, "persons": PEOPLE, "hid": "hid", **settings}
    with pytest.raises(DataError) as caught:
        Microdata(**given, household_source="homes.csv", person_source="people.csv")
    return caught.value.problems


def test_a_repeated_household_id_is_counted_and_its_first_rows_are_named() -> None:
    ids = [1, 2, 2, *range(10, 30), *range(10, 30)]
    (problem,) = problems(households=pl.DataFrame({"hid": ids}), persons=None)
    assert problem.what == "household ids are not unique (42 rows: 2, 3, 4, 5, 6, ...)"
    assert problem.where == 'homes.csv "hid"'
    assert problem.remedy == "give every household one row and its own id"


def test_a_person_without_household_is_counted_and_named() -> None:
    (problem,) = problems(persons=pl.DataFrame({"hid": [9, 1, 8], "age": [1, 2, 3]}))
    assert problem.what == "persons whose household is not in homes.csv (2 rows: 1, 3)"
    assert problem.where == 'people.csv "hid"'
    assert "add the households, or remove these persons" in problem.remedy


def test_missing_ids_are_named_in_both_files() -> None:
    homes = pl.DataFrame({"hid": [1, None, None]})
    people = pl.DataFrame({"hid": [None, 1], "age": [1, 2]}, schema_overrides={"hid": pl.Int64})
    first, second = problems(households=homes, persons=people)
    assert (first.what, first.where) == ("values are missing (2 rows: 2, 3)", 'homes.csv "hid"')
    assert (second.what, second.where) == ("values are missing (1 row: 1)", 'people.csv "hid"')
    assert "fill them in" in first.remedy


def test_ids_of_different_types_are_refused_and_not_compared() -> None:
    (problem,) = problems(persons=PEOPLE.with_columns(pl.col("hid").cast(pl.String)))
    assert problem.what == '"hid" is String here and Int64 in homes.csv'
    assert "same type in both files" in problem.remedy


def test_persons_without_a_link_are_refused() -> None:
    (problem,) = problems(hid=None)
    assert "not the column that links them" in problem.what
    assert "--hid COLUMN" in problem.remedy


def test_a_link_that_is_no_column_is_named_for_both_files_with_the_columns_there_are() -> None:
    first, second = problems(hid="serial")
    assert first.what == 'there is no column "serial" (named in hid); there are "hid", "county"'
    assert second.what == 'there is no column "serial" (named in hid); there are "hid", "age"'
    assert (first.where, second.where) == ("homes.csv", "people.csv")


def test_an_id_that_is_no_column_is_refused() -> None:
    (problem,) = problems(id=("serial",))
    assert 'no column "serial" (named in id)' in problem.what


def test_no_records_are_refused() -> None:
    (problem,) = problems(households=HOMES.clear())
    assert problem.what == "the file holds no records"


def test_problems_of_households_and_persons_come_together() -> None:
    found = problems(
        households=pl.DataFrame({"hid": [1, 1, None]}), persons=pl.DataFrame({"hid": [7, 1]}), id=("serial",)
    )
    assert [problem.what.split(" (")[0] for problem in found] == [
        "values are missing",
        "household ids are not unique",
        "persons whose household is not in homes.csv",
        'there is no column "serial"',
    ]


def test_persons_that_disagree_with_their_household_are_counted_and_named() -> None:
    people = PEOPLE.with_columns(pl.Series("county", ["A", "Z", None]))
    data = Microdata(households=HOMES, persons=people, hid="hid", person_source="people.csv")
    (problem,) = data.disagreements(["county"])
    assert problem.what == "persons disagree with their household (2 rows: 2, 3)"
    assert problem.where == 'people.csv "county"'
    assert "correct them, or leave the column out" in problem.remedy


def test_persons_that_agree_with_their_household_are_fine() -> None:
    people = PEOPLE.with_columns(pl.Series("county", ["A", "A", "A"]))
    assert Microdata(households=HOMES, persons=people, hid="hid").disagreements(["county"]) == []


def test_a_mistyped_link_is_a_missing_column_and_no_disagreement() -> None:
    """The true link, which both files share, is then compared like any other column."""
    (first, second) = problems(hid="Hidd")
    assert (first.where, second.where) == ("homes.csv", "people.csv")
    assert 'did you mean "hid"?' in first.remedy
    data = Microdata(households=HOMES, persons=PEOPLE, hid="Hidd", checked=False)
    assert data.disagreements(["hid", "county"]) == []


def test_problems_of_both_files_are_read_together(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Microdata.read(tmp_path / "homes.csv", tmp_path / "people.xls", hid="hid")
    assert [problem.what for problem in caught.value.problems] == ["there is no such file", "there is no such file"]


def test_identifiers_are_no_variables() -> None:
    data = Microdata(households=HOMES, persons=PEOPLE.with_columns(pid=pl.lit(1)), hid="hid", id=("pid",))
    assert data.variables == ["county"]
    assert data.person_variables == ["age"]
    assert data.dropped_person_columns == ["pid (of persons)"]
