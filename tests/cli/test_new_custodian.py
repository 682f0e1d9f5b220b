"""What a custodian who came by options, with files in codes of their own, was told wrongly or not at all."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.data.record_doubts import identifier_doubts
from stirred.mechanisms.registry import build
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.spec.doubts import Doubt
from stirred.spec.problems import StirredError, setting

WARDS = ["w1", "w2", "w3"]


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of patients in their own codes, with exact times and days."""
    draw = random.Random(28)
    rows = [
        {
            "case": f"c{n * 7919 % 10007}",
            "ward": draw.choice(WARDS),
            "sex": draw.choice("mf"),
            "age": draw.randrange(0, 90, 10),
            "admitted": f"{datetime(2024, 1, 1) + timedelta(minutes=draw.randrange(500_000)):%Y-%m-%d %H:%M}",
            "born": f"{date(1930, 1, 1) + timedelta(days=draw.randrange(30_000))}",
            "outcome": draw.choice(["home", "moved"]),
        }
        for n in range(400)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "patients.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASK = ["plan", "patients.csv", "--match", "sex", "--swap", "ward", "--rate", "5%", "--id", "case"]
TABLES = """
[data]
file = "patients.csv"
record = "person"
id = ["case"]
[mechanism]
name = "noisy-tables"
unit = "person"
noise = "laplace"
epsilon = 1
values = { ward = ["w1", "w2", "w3"], sex = ["m", "f"] }
sums = [{ column = "age", by = ["ward"], low = 0, high = 100 }]
[[tables]]
variables = ["ward", "sex"]
[release]
out = "out"
"""


# --- plan --write ----------------------------------------------------------------------------------------


def test_a_plan_with_a_doubt_is_written_and_its_release_refused(
    patients: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--write", "plan.toml"]) == 2, "the doubts stand"
    shown = capsys.readouterr()
    assert "identifier:born (refuses the release)" in shown.out
    assert "plan       plan.toml" in shown.out
    assert "next" not in shown.out
    assert 'swap = ["ward"]' in Path("plan.toml").read_text()
    assert run(["release", "plan.toml"]) == 2
    assert "identifier:born" in capsys.readouterr().err
    assert not Path("plan-bundle").exists()


def test_a_name_that_no_doubt_has_is_not_written(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--accept", "identifier:bron", "--write", "plan.toml"]) == 2
    assert "no doubt that can be accepted is called 'identifier:bron'" in capsys.readouterr().err
    assert not Path("plan.toml").exists()


# --- doubts of one column --------------------------------------------------------------------------------


def found(frame: pl.DataFrame, *id: str) -> list[Doubt]:
    data = Microdata(households=frame, id=id)
    return [*identifier_doubts(data, [name for name in frame.columns if name not in id], unit="person")]


def test_who_accepts_an_identifier_has_not_accepted_its_times(patients: Path) -> None:
    frame = pl.read_csv("patients.csv").select("case", "admitted")
    assert [each.name for each in found(frame, "case")] == ["identifier:admitted", "times:admitted"]


def test_unique_coordinates_and_ids_of_others_are_said_too() -> None:
    cases = [f"c{n * 7919 % 10007}" for n in range(100)]
    frame = pl.DataFrame({
        "case": cases, "infector": [*cases[1:], "c0"], "easting": [400_000 + n * 7919 % 10007 for n in range(100)],
    })  # fmt: skip
    told = found(frame, "case")
    assert {each.name for each in told} == {"identifier:infector", "identifier:easting", "coordinates:easting"}
    assert sum('has values of the identifier "case"' in each.what for each in told) == 1


def test_days_have_a_remedy_in_a_plan(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(ASK)
    told = capsys.readouterr().err
    assert 'of days the month, quarter or year can be kept alone: step = "date", to = "month" under [[prepare]]' in told
    frame = pl.read_csv("patients.csv", try_parse_dates=True).select("born")
    assert frame["born"].dtype == pl.Date
    assert "quarter" in found(frame)[0].remedy
    assert "quarter" not in found(pl.DataFrame({"mark": range(100)}))[0].remedy


def test_remedies_of_a_plan_name_its_keys(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([*ASK, "--write", "plan.toml"])
    capsys.readouterr()
    run(["plan", "plan.toml"])
    assert 'name it with id = ["born"] under [data]' in capsys.readouterr().err
    both = Doubt(kind="missing", about="a", what="", remedy=f"say so: {setting('missing', 'NA', planned=True)}")
    assert both.problem_of_plan.remedy.startswith('say so: missing = ["NA"] under [data]; or accept')
    assert both.problem.remedy.startswith(
        'say so: --set missing=NA (in a plan: missing = ["NA"] under [data]); or accept'
    )


# --- advice that is refused ------------------------------------------------------------------------------


def test_cell_keys_do_not_propose_a_setting_that_plans_do_not_have() -> None:
    table = design_ptable(D=2, V=Fraction(1)).table
    with pytest.raises(StirredError) as refused:
        CellKey(ptable=table, tables=[["ward"]]).plan(pl.DataFrame({"ward": WARDS * 10}))
    assert "values = {" not in str(refused.value)
    assert 'codebook="FILE"' in str(refused.value)
    with pytest.raises(StirredError, match=r"or write values = \{"):
        NoisyTables(tables=[["ward"]], rho=1).plan(pl.DataFrame({"ward": WARDS * 10}))


@pytest.mark.parametrize("given", ["1e13", "inf", "much"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("noisy-tables", {"noise": "laplace", "values": {"ward": WARDS}, "epsilon": None}),
        ("noisy-tables", {"values": {"ward": WARDS}, "rho": None}),
        ("noisy-swap", {"match": ["sex"], "swap": ["ward"], "rate": "1/2", "noise_epsilon": None}),
        ("survey-estimates", {"estimates": [{"kind": "table", "by": []}], "epsilon": None}),
    ],
)
def test_no_remedy_proposes_an_infinite_loss_where_noise_is_drawn(name: str, settings: dict, given: str) -> None:
    own = {key: given if value is None else value for key, value in settings.items()}
    with pytest.raises(StirredError) as refused:
        build(name, own, tables=[["ward"]]).plan(pl.DataFrame({"ward": WARDS * 10, "sex": ["m", "f"] * 15}))
    assert "'inf'" not in str(refused.value).replace("'inf' is not a number", "")


def test_cell_keys_at_an_infinite_loss_are_refused() -> None:
    with pytest.raises(StirredError, match="every delta is 0"):
        CellKey(ptable=design_ptable(D=2, V=Fraction(1)).table, tables=[["ward"]], epsilon="inf")


def test_numbers_are_quoted_as_they_were_written(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = TABLES.replace("low = 0, high = 100", "low = nan, high = inf").replace(
        'out = "out"', 'out = "out"\nexposed_share = nan\n[[prepare]]\nstep = "round"\ncolumn = "age"\nto = inf'
    )
    Path("plan.toml").write_text(wrong)
    assert run(["plan", "plan.toml"]) == 2
    told = capsys.readouterr().err
    assert "Decimal" not in told
    assert "low: nan is not a whole number" in told
    assert "inf is not a number" in told
    assert told.count("exposed_share: nan is not a number or text that can be used here") == 1


def test_values_of_a_step_are_set_apart(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (patients / "one.csv").write_text("day\n2024-01-05\n2024-01-07\n")
    step = '\n[[prepare]]\nstep = "date"\ncolumn = "day"\nto = "month"\n'
    Path("plan.toml").write_text(TABLES.replace("patients.csv", "one.csv") + step)
    assert run(["plan", "plan.toml", "--prepared", "one.csv"]) == 0
    assert "1 value, 2024-01" in capsys.readouterr().out


def test_a_setting_that_shares_its_name_with_an_option_is_given_by_set(
    patients: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--persons names a file, and `persons` of noisy tables is how many of a household count."""
    assert run(["mechanism", "show", "noisy-tables"]) == 0
    assert "--set persons=..." in capsys.readouterr().out
    assert run(["plan", "patients.csv", "--mechanism", "noisy-tables", "--table", "ward", "--set", "persons=many"]) == 2
    assert "--set persons: 'many' is not a whole number. Fix: write a whole number, such as" in capsys.readouterr().err


def test_sections_of_a_plan_are_settings_on_the_command_line(
    patients: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "patients.csv", "--mechanism", "survey-estimates", "--epsilon", "1"]) == 2
    assert "--set estimates: is needed" in (told := capsys.readouterr().err)
    assert "command line" not in told


def test_a_misspelt_key_of_a_step_is_recognised(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.toml").write_text(TABLES + '\n[[prepare]]\nstep = "drop"\ncolumns = ["born"]\n')
    assert run(["plan", "plan.toml"]) == 2
    assert (told := capsys.readouterr().err).count("\n") == 1
    assert "did you mean 'column'?" in told
    Path("plan.toml").write_text(TABLES.replace('file = "patients.csv"', "file = true"))
    assert run(["plan", "plan.toml"]) == 2
    assert "file: true is not text" in capsys.readouterr().err


# --- derive, attack --------------------------------------------------------------------------------------


def test_sums_are_left_out_of_what_is_derived(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.toml").write_text(TABLES)
    assert run(["release", "plan.toml"]) == 0
    capsys.readouterr()
    assert run(["derive", "suppress", "out", "--threshold", "70", "--out", "derived", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["tables"], facts["left_out"]) == (1, ["sum-of-age-by-ward.csv"])
    assert "sum-of-age-by-ward.csv" in Path("derived/README.md").read_text()
    table = pl.read_csv("derived/tables/ward-x-sex.csv")
    # The interval of a count that is left empty has it in the middle.
    assert table.columns == ["ward", "sex", "count"]
    assert 0 < table["count"].null_count() < table.height


def test_a_file_in_its_own_codes_is_asked_for_its_own_columns(
    patients: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["attack", "patients.csv", "--area", "ward", "--quiet"]
    assert run([*ask, "--out", "a", "--reidentify", "records"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("--learn: what is to be learned is not said")
    assert '"outcome"' in told
    assert run([*ask, "--out", "a", "--reidentify", "tables"]) == 2
    assert "take --reidentify records, with --known" in capsys.readouterr().err
    assert not Path("a").exists()
    assert run([*ask, "--out", "a", "--reidentify", "records", "--learn", "outcome"]) == 0


def test_a_plan_of_any_mechanism_is_written(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--mechanism",
        "noisy-tables",
        "--table",
        "sex",
        "--set",
        'values={"sex": ["m", "f"]}',
        "--set",
        "rho=1/2",
    ]
    ask = ["plan", "patients.csv", "--id", "case", "--set", "unit=person", *options]
    assert run([*ask, "--write", "tables.toml"]) == 0, capsys.readouterr().err
    assert run(["plan", "tables.toml"]) == 0, capsys.readouterr().err
