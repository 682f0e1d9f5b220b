"""One rule for columns that look like identifiers: by name, or by near-uniqueness, never for decimals and codes."""

from __future__ import annotations

import polars as pl
import pytest

from stirred.data.codebook_file import draft_codebook
from stirred.data.formats import Labelled
from stirred.data.record_doubts import identifier_doubt, identifying, named_like_an_identifier


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "hid", "pid", "personID", "PersonId", "person_id", "HHID", "hh.id", "serialno", "SERIALNO", "serial",
     "ssn", "caseid", "idperson", "id_hogar", "surname", "firstName", "UTILNAME", "uuid", "e-mail email", "phone2",
     "Address", "household number id"],
)  # fmt: skip
def test_names_of_identifiers_are_known(name: str) -> None:
    assert named_like_an_identifier(name)


@pytest.mark.parametrize(
    "name",
    ["width", "residence", "candidate", "period", "idtype", "valid", "paid", "medicaid", "covid", "grid", "kids",
     "tenure", "county", "size", "identity", "ideal", "housing", "percent", "phonetic", "nameless", "age"],
)  # fmt: skip
def test_words_that_only_contain_such_a_name_are_not(name: str) -> None:
    assert not named_like_an_identifier(name)


def test_a_name_is_no_identifier_where_the_column_is_a_coarse_code() -> None:
    assert identifying(pl.Series("id_type", [1, 2, 3] * 100)) == ""
    assert identifying(pl.Series("county_name", [f"c{n % 50}" for n in range(5_000)])) == ""
    assert identifying(pl.Series("pid", [1, 2, 3, 1, 2] * 40)) == "", "the number of a person inside the household"
    assert "named like an identifier" in identifying(pl.Series("hid", [n // 3 for n in range(900)]))
    assert "named like an identifier" in identifying(pl.Series("id", [3, 1, 2])), "however small the file"


@pytest.mark.parametrize("name", ["name", "surname", "last_name", "SSN", "email", "phone", "address", "Apellidos"])
def test_what_identifies_directly_is_an_identifier_however_often_it_recurs(name: str) -> None:
    assert "has 48 values in 4,800 records" in identifying(pl.Series(name, [f"x{n % 48}" for n in range(4_800)]))
    assert identifying(pl.Series(name, ["yes", "no"] * 500)) == "", "whether somebody has one is a code"


def test_near_uniqueness_is_enough_and_a_missing_value_does_not_hide_it() -> None:
    values = [*range(1_000), *range(50)]
    assert identifying(pl.Series("mark", values)) == "has 1,000 values in 1,050 records"
    assert identifying(pl.Series("mark", [f"x{v}" for v in values])) == "has 1,000 values in 1,050 records"
    assert identifying(pl.Series("mark", [*values, None, None])) == "has 1,000 values in 1,050 records"
    assert identifying(pl.Series("mark", [float(v) for v in values])) == "has 1,000 values in 1,050 records"
    assert identifying(pl.Series("mark", [v % 800 for v in range(1_000)])) == "", "the power check: 80% are not enough"


def test_decimals_are_never_identifiers_by_uniqueness() -> None:
    spent = [n + 0.25 for n in range(500)]
    assert identifying(pl.Series("spent", spent)) == ""
    assert identifying(pl.Series("spent", [*spent, float("nan")])) == ""
    assert identifying(pl.Series("spent", [str(v) for v in spent])) == "", "also where they are written as text"
    assert identifying(pl.Series("spent", spent).cast(pl.Decimal(12, 2))) == ""
    assert identifying(pl.Series("mark", [str(n) for n in range(500)])) == "is different for every record"


def test_no_decimal_column_is_drafted_as_an_identifier_and_a_nearly_unique_code_is() -> None:
    homes = pl.DataFrame(
        {
            "personID": [f"P{n:04}" for n in range(200)],
            "mark": [*range(1_000, 1_195), *range(1_000, 1_005)],
            "spent": [n * 1.37 for n in range(200)],
            "paid": [f"{n * 1.37:.2f}" for n in range(200)],
        }
    )
    drafted = draft_codebook(Labelled(frame=homes))
    link = drafted[drafted.index("[link]") :]
    assert '"personID"' in link
    assert '"mark"' in link
    assert '"spent"' not in link
    assert '"paid"' not in link


@pytest.mark.parametrize("name", ["key", "record_key", "ref", "caseRef", "no", "record_no", "NIR"])
def test_a_word_for_keys_makes_an_identifier_where_more_than_half_of_the_values_differ(name: str) -> None:
    assert "has 600 values in 1,000 records" in identifying(pl.Series(name, [n % 600 for n in range(1_000)]))
    assert identifying(pl.Series(name, [n % 400 for n in range(1_000)])) == "", "the power check"
    assert identifying(pl.Series(name, [n / 7 for n in range(1_000)])) == "", "decimals are measured"


def test_a_text_that_is_different_for_every_record_is_an_identifier_in_the_smallest_file() -> None:
    names = ["Ana", "Ben", "Carl", "Dora", "Eve", "Finn", "Gus", "Hana", "Ida"]
    assert identifying(pl.Series("xx", names)) == "is different for every record"
    assert identifying(pl.Series("xx", [*names, "Ida"])) == ""
    assert identifying(pl.Series("age", [str(20 + 3 * n) for n in range(12)])) == "", "ages differ by chance"


def test_what_is_said_of_a_nearly_unique_column_can_be_counted() -> None:
    column = pl.Series("mark", [*range(50), *range(45), *range(1_000, 1_900)])
    assert identifying(column) == f"has {column.n_unique()} values in {len(column)} records"


def test_a_number_that_some_records_share_may_be_made_coarser() -> None:
    shared, numbered = ([*range(90), *range(10)], [*range(100)])
    told = [identifier_doubt(pl.Series("income", values), "may").remedy for values in (shared, numbered)]
    assert told[0].startswith(
        "if it is an identifier, name it with --id income; if it measures something, band or round"
    )
    assert told[0].endswith('([[prepare]] of a plan), or list the columns to keep with --hold, without "income"')
    assert told[1] == "if it is an identifier, name it with --id income"
