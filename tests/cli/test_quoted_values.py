"""Messages quote values of the confidential file on the terminal, and never in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from tests.world import CODEBOOK_OF_HOMES, households

# What stands in the file, and no message in JSON may hold.
SECRETS = ("Atlantis", "secret-tenure", "93117", "East")

HOMES = households().with_columns(
    county=pl.when(pl.col("hid") == 5003).then(pl.lit("Atlantis")).otherwise("county"),
    tenure=pl.when(pl.col("hid") == 5004).then(pl.lit("secret-tenure")).otherwise("tenure"),
    size=pl.when(pl.col("hid") == 5005).then(93117).otherwise("size"),
)
SWAP = ["--swap", "county", "--id", "hid"]
CASES = {
    "codebook check": ["codebook", "check", "homes.csv", "--codebook", "codebook.toml"],
    "plan with codebook": ["plan", "homes.csv", "--rate", "1/2", *SWAP, "--codebook", "codebook.toml"],
    "swap with codebook": ["swap", "homes.csv", "--rate", "1/2", *SWAP, "--codebook", "codebook.toml", "--out", "out"],
    "release with codebook": ["release", "plan.toml"],
    "levels that do not nest": ["advise", "homes.csv", "--geography", "county", "--geography", "tenure", "--id", "hid"],
    "values of a response": [
        *(
            "plan",
            "homes.csv",
            "--mechanism",
            "response",
            "--rate",
            "1/2",
            "--set",
            "respond=tenure",
            "--set",
            "change=1/4",
        ),
        *("--set", "values=owned,rented", *SWAP),
    ],
    "cells of noisy tables": [
        *("plan", "homes.parquet", "--mechanism", "noisy", "--rate", "1/2", "--set", "noise_epsilon=1", *SWAP),
        *("--table", "county x tenure", "--codebook", "codebook.toml"),
    ],
    "a header that is a record": ["plan", "headerless.csv", "--rate", "1/2", *SWAP],
    "a name that is repeated": ["plan", "repeated.csv", "--rate", "1/2", *SWAP],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    HOMES.write_csv(tmp_path / "homes.csv")
    HOMES.write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "codebook.toml").write_text(CODEBOOK_OF_HOMES)
    (tmp_path / "headerless.csv").write_text("Atlantis,secret-tenure,93117\nAtlantis,secret-tenure,1\n")
    (tmp_path / "repeated.csv").write_text("Atlantis,Atlantis,hid\n1,2,3\n")
    numbers = "from,to,distance,weight\nEast,North,1,1\nEast,South,1,1\nEast,West,1,1\n"
    (tmp_path / "pairs.csv").write_text(numbers + "North,South,1,1\nNorth,West,1,1\nSouth,West,1,1\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.csv"\ncodebook = "codebook.toml"\n'
        '[mechanism]\nswap = "county"\nrate = "1/2"\n[release]\nout = "out"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_json_holds_no_value_of_the_file(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--json"]) == 2
    told = capsys.readouterr()
    errors = json.loads(told.out)["errors"]
    assert errors
    assert all(set(error) == {"what", "where", "remedy"} and error["what"] for error in errors)
    assert not [secret for secret in SECRETS if secret in told.out + told.err]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", [v for n, v in CASES.items() if "header" not in n], ids=lambda a: " ".join(a[:4]))
def test_the_terminal_quotes_what_is_wrong(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert [secret for secret in SECRETS if secret in told]


@pytest.mark.usefixtures("folder")
def test_a_plan_that_is_refused_lists_no_strata_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What is matched on is published with a release, and this one is refused."""
    arguments = ["plan", "homes.csv", "--rate", "1/2", "--swap", "county", "--match", "size", "--json"]
    assert run(arguments) == 2  # hid may identify
    told = capsys.readouterr().out
    assert not [secret for secret in SECRETS if secret in told]
    assert "largest_strata" not in told
    households().write_csv("fine.csv")
    assert run(["plan", "fine.csv", *arguments[2:], "--id", "hid"]) == 0
    assert "largest_strata" in json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
def test_a_fault_of_ours_quotes_nothing_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("Atlantis")

    monkeypatch.setattr("stirred.cli.plan.prepare", broken)
    assert run(["plan", "homes.csv", "--rate", "1/2", *SWAP, "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["errors"][0]["what"] == "this is a fault in stirred, not in your input (KeyError)"
    assert "Atlantis" not in told.err


@pytest.mark.usefixtures("folder")
def test_missing_texts_are_declared_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "homes.csv", "--rate", "1/2", *SWAP, "--set", "missing=Atlantis,NA"]
    assert run(arguments) == 2
    assert "values are missing in the swap variable (1 row: 4)" in capsys.readouterr().err
    assert run([*arguments, "--set", "missing_as=code"]) == 0
    assert run([*arguments, "--set", "missing_as=area"]) == 2
    assert "--set missing_as" in capsys.readouterr().err
