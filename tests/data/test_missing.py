"""Texts that may mean a missing value are asked about, and declared ones are missing or a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.data.codebook import Codebook
from stirred.data.frames import scan_frame
from stirred.data.microdata import Microdata
from stirred.data.missing import missing_doubts
from stirred.data.problems import DataError
from stirred.data.validate import validate
from stirred.mechanisms.protocol import Plan
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.release.plan_file import plan_from
from stirred.release.prepared import Prepared, prepare
from stirred.spec.doubts import Doubt, DoubtError, refuse_doubts
from stirred.spec.problems import StirredError
from tests.data.codebooks import as_toml

SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


def homes(*counties: str | None) -> pl.DataFrame:
    size = len(counties)
    return pl.DataFrame(
        {"county": counties, "size": ["1"] * size, "tenure": ["NA", *("owned" for _ in counties[1:])]},
        schema_overrides={"county": pl.String},
    )


def refusing(plan: Plan) -> list[Doubt]:
    """Return the doubts of a plan but the note that a file of a few records shows nothing."""
    return [doubt for doubt in plan.doubts if doubt.refuses]


@pytest.mark.parametrize("text", ["NA", "N/A", "NaN", "nan", "null", "NULL", ".", "-", "?", "", "  ", " NA", "None"])
def test_a_text_that_may_mean_missing_is_a_doubt_that_refuses(text: str) -> None:
    (doubt,) = refusing(SWAP.plan(homes("A", "B", text, text, "B")))
    assert doubt.name == "missing:county"
    assert "in 2 rows" in doubt.what
    assert "missing value or a code" in doubt.what
    with pytest.raises(DoubtError, match=r'accept=\["missing:county"\]'):
        refuse_doubts([doubt])
    assert refuse_doubts([doubt], accept=["missing:county"]) == (doubt,)


@pytest.mark.parametrize("text", ["none", "N", "A.", "0", "--A", "Nauru"])
def test_other_texts_are_codes(text: str) -> None:
    assert refusing(SWAP.plan(homes("A", "B", text))) == []


def test_a_held_column_is_published_as_it_is() -> None:
    plan = SWAP.plan(homes("A", "B", "A"))
    assert refusing(plan) == []
    assert "tenure" in plan.hold


def test_the_doubt_names_every_text_with_its_rows_and_how_to_declare_it() -> None:
    frame = pl.DataFrame({"land": ["NA", ".", ".", " "]}, schema_overrides={"land": pl.Categorical})
    (doubt,) = missing_doubts(frame, ["land", "land"])
    assert doubt.what == (
        "\"land\" has '.' in 2 rows and 'NA' in 1 row and blanks in 1 row: is that a missing value or a code "
        "(NA is the ISO code of Namibia)?"
    )
    assert 'say so: --set missing=,.,NA (in a plan: missing = ["", ".", "NA"] under [data])' in doubt.remedy


def test_match_variables_are_asked_about_too() -> None:
    frame = homes("A", "B", "A").with_columns(size=pl.Series(["1", ".", "1"]))
    assert [doubt.name for doubt in SWAP.plan(frame).doubts if doubt.kind == "missing"] == ["missing:size"]


def test_missing_values_of_a_swap_variable_are_refused_also_as_not_a_number() -> None:
    with pytest.raises(DataError, match=r"values are missing in the swap variable \(1 row: 2\).*with_missing_code"):
        SWAP.plan(homes("A", None, "B"))
    floats = homes("A", "B", "B").with_columns(county=pl.Series([0.5, float("nan"), 1.5]))
    with pytest.raises(DataError, match=r"values are missing in the swap variable \(1 row: 2\)"):
        SWAP.plan(floats)


# --- declared -------------------------------------------------------------------------------------------


def prepared(tmp_path: Path, text: str, codebook: str = "", **data: Any) -> Prepared:
    (tmp_path / "homes.csv").write_text(text)
    if codebook:
        (tmp_path / "codebook.toml").write_text(codebook)
        data["codebook"] = "codebook.toml"
    content = {
        "data": {"households": "homes.csv", **data},
        "mechanism": {"match": "size", "swap": "county", "rate": "1/2"},
        "release": {"out": "out"},
    }
    return prepare(plan_from(content, source="plan.toml", folder=tmp_path))


FILE = "county,size,tenure\nA,1,NA\nNA,1,owned\n,1,rented\nB,1,owned\n"


def test_a_declared_text_is_missing_and_then_refused(tmp_path: Path) -> None:
    with pytest.raises(StirredError, match=r"values are missing in the swap variable \(2 rows: 2, 3\)"):
        prepared(tmp_path, FILE, missing=["NA"])


def test_missing_as_code_is_a_code_of_its_own_and_no_doubt(tmp_path: Path) -> None:
    found = prepared(tmp_path, FILE, missing={"county": ["NA"]}, missing_as="code")
    assert found.data.households["county"].to_list() == ["A", "(missing)", "(missing)", "B"]
    assert found.data.households["tenure"].to_list() == ["NA", "owned", "rented", "owned"]
    assert refusing(found.plan) == []


def test_a_code_for_missing_values_that_is_a_value_already_is_refused(tmp_path: Path) -> None:
    taken = FILE.replace("B,1", "(missing),1")
    with pytest.raises(StirredError, match=r"in 1 row, the text '\(missing\)'.*missing = \['\(missing\)'\]"):
        prepared(tmp_path, taken, missing=["NA"], missing_as="code")
    found = prepared(tmp_path, taken, missing=["NA", "(missing)"], missing_as="code")
    assert found.data.households["county"].to_list() == ["A", "(missing)", "(missing)", "(missing)"]


def test_a_text_declared_for_every_column_is_missing_in_held_ones_too(tmp_path: Path) -> None:
    found = prepared(tmp_path, FILE, missing="NA", missing_as="code")
    assert found.data.households["tenure"].to_list() == [None, "owned", "rented", "owned"]


def test_numbers_with_a_missing_code_become_text(tmp_path: Path) -> None:
    found = prepared(tmp_path, "county,size,tenure\n1.0,1,a\nNA,1,b\n2.0,1,c\n", missing=["NA"], missing_as="code")
    assert found.data.households["county"].to_list() == ["1", "(missing)", "2"]


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StirredError, match=r'\[data\] missing: there is no column "country"'):
        prepared(tmp_path, FILE, missing={"country": ["NA"]})


def test_persons_that_repeat_the_county_agree_about_missing_ones() -> None:
    data = Microdata(
        households=pl.DataFrame({"hid": [1, 2], "county": [5, None], "size": [1, 1]}),
        persons=pl.DataFrame({"hid": [1, 2], "county": [5, None], "age": [3, 4]}),
        hid="hid",
    ).with_missing_code(["county"])
    assert data.disagreements(["county"]) == []
    assert data.households["county"].to_list() == ["5", "(missing)"]


COUNTY = '[[variables]]\nname = "county"\nfile = "households"\ntype = "code"\n'
OTHERS = (
    '[[variables]]\nname = "size"\nfile = "households"\ntype = "integer"\n'
    '[[variables]]\nname = "tenure"\nfile = "households"\ntype = "text"\n'
)


def test_a_codebook_declares_what_means_missing(tmp_path: Path) -> None:
    text = f'{COUNTY}codes = {{ A = "North", B = "South" }}\nmissing = ["NA"]\n{OTHERS}'
    codebook = Codebook.from_toml(text)
    assert codebook.variables[0].missing_texts == ("NA",)
    assert Codebook.from_toml(as_toml(codebook)) == codebook
    (tmp_path / "homes.csv").write_text(FILE)
    assert validate(scan_frame(tmp_path / "homes.csv"), None, codebook) == []
    found = prepared(tmp_path, FILE, text, missing_as="code")
    assert found.data.households["county"].to_list() == ["A", "(missing)", "(missing)", "B"]


def test_a_code_of_the_codebook_is_no_doubt(tmp_path: Path) -> None:
    text = f'{COUNTY}codes = {{ A = "Angola", NA = "Namibia", B = "Benin" }}\n{OTHERS}'
    found = prepared(tmp_path, FILE.replace("\n,1", "\nB,1"), text)
    assert refusing(found.plan) == []
    assert found.data.households["county"].to_list() == ["A", "NA", "B", "B"]
