"""`stirred codebook` drafts, checks and describes, as a user would run it."""

import json
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyreadstat
import pytest

from stirred.cli.main import run
from stirred.data.codebook import Codebook
from stirred.data.codebook_file import MOST_CODES, draft_codebook
from stirred.data.formats import Labelled
from tests.data.gallery import HERE, exhibits, slug

ROOM = HERE / "validate"
WARNING = (
    "drafted from the data: check that every possible code is listed, not only those that occur;\n"
    "# choosing settings by looking at the data voids the guarantee"
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "h.csv").write_text(
        "hid,block,county,tenure,rent\n1,0101,001,1,\n2,0102,001,2,1.5\n3,0301,003,1,\n", encoding="utf-8"
    )
    (tmp_path / "p.csv").write_text("hid,pid,age\n1,1,44\n1,2,0\n2,1,71\n3,1,31\n", encoding="utf-8")
    return str(tmp_path / "h.csv"), str(tmp_path / "p.csv")


# --- init -----------------------------------------------------------------------------------------------


def test_a_draft_is_written_once_and_fits_its_files(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (households, persons), out = files, tmp_path / "codebook.toml"
    draft = ["codebook", "init", households, "--persons", persons, "--hid", "hid", "--out", str(out)]
    assert run(draft) == 0
    assert WARNING in out.read_text()
    codebook = Codebook.read(out)
    assert (codebook.title, codebook.hid, codebook.id) == ("h", "hid", ("pid",))
    assert codebook.draft
    assert "hid" not in [variable.name for variable in codebook.variables], "the link needs no declaration"
    assert codebook.hierarchies[0].levels == ("block", "county")
    assert codebook.labels("tenure") == {"1": "1", "2": "2"}
    check = ["codebook", "check", households, "--persons", persons, "--codebook", str(out)]
    capsys.readouterr()
    assert run(check) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "3 records, 5 columns" in printed
    assert "4 records, 3 columns" in printed
    before = out.read_text()
    assert run(draft) == 2
    assert "there is already a file" in capsys.readouterr().err
    assert out.read_text() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--persons", "p.csv"], "--hid: persons are given, but not the column"),
        (["--persons", "p.csv", "--hid", "serial"], 'p.csv: there is no column "serial" (named in hid)'),
        (["--persons", "p.csv", "--hid", "pid"], "the household id must have the same name in both files"),
        (["--out", "nowhere/c.toml"], "nowhere: there is no such folder"),
    ],
)
def test_a_draft_that_cannot_be_made_leaves_nothing(
    options: list[str],
    message: str,
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["codebook", "init", "h.csv", "--out", "c.toml", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c.toml").exists()


def test_a_draft_uses_the_labels_of_a_statistics_package(tmp_path: Path) -> None:
    frame = pl.DataFrame({"tenure": [1.0, 2.0, 9.0]}).to_pandas()
    labels: dict[str, dict[int | float, str]] = {"tenure": {1: "owned", 2: "rented", 3: "free"}}
    pyreadstat.write_sav(frame, tmp_path / "h.sav", variable_value_labels=labels, column_labels=["Tenure"])
    assert run(["codebook", "init", str(tmp_path / "h.sav"), "--out", str(tmp_path / "c.toml")]) == 0
    codebook = Codebook.read(tmp_path / "c.toml")
    assert codebook.labels("tenure") == {"1": "owned", "2": "rented", "3": "free", "9": "9"}
    assert codebook.variables[0].label == "Tenure"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], "code"),
        ([1, 2], "code"),
        ([25001, 25003], "code"),
        ([f"{i:03}" for i in range(MOST_CODES)] * 2, "code"),
        ([f"{i:03}" for i in range(MOST_CODES + 1)] * 2, "text"),
        ([str(i) for i in range(100)] * 2, "integer"),
        (list(range(20)) * 2, "integer"),
        ([1.0, 2.0, None], "code"),
        ([1.5, 2.5] * 2, "code"),
        ([str(i) for i in range(100)], "id"),
        ([True, False], "true-false"),
        (["2020-01-01", "2020-01-02"], "date"),
        ([date(2020, 1, 1)], "date"),
        ([None], "text"),
        ([[1]], "text"),
    ],
)
def test_types_are_guessed(values: list[Any], kind: str) -> None:
    frame = pl.DataFrame({"x": values})
    draft = tomllib.loads(draft_codebook(Labelled(frame=frame)))
    (variable,) = draft["variables"]
    assert variable["type"] == kind
    assert variable.get("missing", False) == (None in values)
    if kind == "integer":
        assert (variable["min"], variable["max"]) == (0, max(map(int, values)))
    Codebook.from_toml(draft_codebook(Labelled(frame=frame)))


def test_an_identifier_that_is_named_is_not_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"mark": [1, 2, 1, 2], "x": [1, 2, 1, 2]}).write_csv(tmp_path / "a.csv")
    ask = ["codebook", "init", str(tmp_path / "a.csv"), "--out", str(tmp_path / "a.toml")]
    assert run([*ask, "--id", "mrk"]) == 2
    assert '--id: there is no column "mrk"' in capsys.readouterr().err
    assert run([*ask, "--id", "mark"]) == 0
    draft = tomllib.loads((tmp_path / "a.toml").read_text(encoding="utf-8"))
    assert [variable["type"] for variable in draft["variables"]] == ["id", "code"]
    assert draft["link"]["id"] == ["mark"]


# --- check ----------------------------------------------------------------------------------------------


# What JSON says where the terminal quotes values.
WITHOUT_VALUES = {
    "0-25-are-not-from-1-to-20-2-rows-1-3": "2-values-are-not-from-1-to-20-2-rows-1-3",
    "31-12-1999-is-not-a-date-1-row-1": "1-value-is-not-a-date-1-row-1",
    "code-1-is-not-in-the-codebook-2-rows-1-2": "1-code-is-not-in-the-codebook-2-rows-1-2",
    "code-7-is-not-in-the-codebook-1-row-1": "1-code-is-not-in-the-codebook-1-row-1",
    "codes-7-9-are-not-in-the-codebook-2-rows-1-2": "2-codes-are-not-in-the-codebook-2-rows-1-2",
    "no-is-neither-true-nor-false-1-row-1": "1-value-is-neither-true-nor-false-1-row-1",
    "tract-0301-lies-in-county-001-1-row-4-and-003-1-row-3": "1-value-of-tract-lies-in-more-than-one-county",
    "two-is-not-a-whole-number-1-row-1": "1-value-is-not-a-whole-number-1-row-1",
}


@pytest.mark.parametrize("path", exhibits("validate", ".csv"), ids=lambda path: path.stem)
def test_a_broken_file_is_refused_with_the_message_it_is_named_after(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["codebook", "check", str(path), "--codebook", str(ROOM / "codebook.toml")]
    assert run(arguments) == 2
    shown = capsys.readouterr().err
    assert path.stem in slug(shown)
    assert run([*arguments, "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert set(error) == {"what", "where", "remedy"}
    assert error["where"] in shown
    assert error["remedy"] in shown
    assert slug(error["what"]).startswith(WITHOUT_VALUES.get(path.stem, path.stem))


def test_a_file_as_declared_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    file, codebook = str(ROOM / "nothing.csv"), str(ROOM / "codebook.toml")
    assert run(["codebook", "check", file, "--codebook", codebook, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "codebook": codebook,
        "files": [{"file": file, "records": 4, "columns": 7}],
        "problems": [],
    }


def test_problems_of_codebook_and_files_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text("colour = 1")
    arguments = ["codebook", "check", str(tmp_path / "h.csv"), "--codebook", str(tmp_path / "c.toml")]
    assert run([*arguments, "--persons", str(tmp_path / "p.csv")]) == 2
    error = capsys.readouterr().err
    assert "there is no setting called 'colour'" in error
    assert error.count("there is no such file") == 2


def test_persons_without_a_household_are_told(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    households, persons = files
    out = str(tmp_path / "c.toml")
    assert run(["codebook", "init", households, "--persons", persons, "--hid", "hid", "--out", out]) == 0
    Path(persons).write_text("hid,pid,age\n8,1,44\n1,2,0\n2,1,71\n3,1,31\n")
    capsys.readouterr()
    assert run(["codebook", "check", households, "--persons", persons, "--codebook", out]) == 2
    assert f"persons whose household is not in {households} (1 row: 1)" in capsys.readouterr().err


def test_a_folder_of_parquet_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    frame = pl.read_csv(ROOM / "nothing.csv", infer_schema=False)
    frame.head(2).write_parquet(folder / "1.parquet")
    frame.tail(2).write_parquet(folder / "2.parquet")
    assert run(["codebook", "check", str(folder), "--codebook", str(ROOM / "codebook.toml")]) == 0


# --- a file of persons alone ----------------------------------------------------------------------------

CENSUS = """
[codebook]
title = "a census"
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { A = "a", B = "b", C = "c" }
[[variables]]
name = "rooms"
file = "households"
type = "integer"
[[variables]]
name = "sex"
file = "persons"
type = "code"
codes = { f = "female", m = "male" }
[[variables]]
name = "age"
file = "persons"
type = "integer"
min = 0
max = 115
[link]
hid = "hid"
id = ["pid"]
"""


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    (tmp_path / "codebook.toml").write_text(CENSUS)
    rows = [f"{n // 2},{n},{'AB'[n // 2 % 2]},{'fm'[n % 2]},{20 + n % 30}" for n in range(60)]
    (tmp_path / "flat.csv").write_text("hid,pid,county,sex,age\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_a_flat_file_of_persons_is_held_against_the_persons_of_a_census_codebook(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["codebook", "check", str(flat / "flat.csv"), "--codebook", str(flat / "codebook.toml")]
    assert run(check) == 0
    assert capsys.readouterr().out.startswith("persons ")
    (flat / "flat.csv").write_text((flat / "flat.csv").read_text().replace("49\n", "149\n").replace(",f,", ",x,", 1))
    assert run(check) == 2
    told = capsys.readouterr().err
    assert '"age": 149 is not from 0 to 115' in told
    assert '"sex": code x is not in the codebook' in told


def test_a_flat_file_of_persons_is_released_with_a_census_codebook(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (flat / "plan.toml").write_text(
        """[data]\nfile = "flat.csv"\ncodebook = "codebook.toml"\nrecord = "person"
[mechanism]\nrate = "1/10"\nmatch = []\nswap = ["county"]
[release]\nout = "out"\nformat = "csv"
[[tables]]\nvariables = ["county", "sex"]\n"""
    )
    assert run(["risk", str(flat / "plan.toml")]) == 0
    assert run(["release", str(flat / "plan.toml")]) == 0, capsys.readouterr().err
    table = pl.read_csv(flat / "out" / "public" / "tables" / "county-x-sex.csv", infer_schema=False)
    assert table.height == 6  # county C is declared, and nobody lives there
