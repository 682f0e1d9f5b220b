"""What `--help` says: whole sentences on 80 columns, and types in a custodian's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from stirred.cli.main import app, run
from stirred.data.sources import READS


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", {})
    yield path, bool(inner)
    for name, one in inner.items():
        yield from commands(one, (*path, name))


GROUPS = [path for path, group in commands() if group]


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "stirred")
def test_the_first_line_of_a_command_is_not_cut_short(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].strip().splitlines()
    assert listed
    assert [line for line in listed if line.endswith(("...", "…"))] == []


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=lambda path: " ".join(path) or "stirred")
def test_no_option_is_described_by_a_type_of_the_programming_language(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, "--help"]) == 0
    options = capsys.readouterr().out.partition("Options:")[2]
    assert "--help" in options
    for word in ("<list[", "<str>", "<path>", "<int", "<float"):
        assert word not in options


def test_swap_names_every_kind_of_file_that_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swap", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.partition("Options:")[0].split())
    kinds = ("CSV", "Parquet", "Arrow", "sqlite", "duckdb", "SPSS", "Stata", "SAS")
    assert all(kind in told for kind in kinds)
    assert {".csv", ".parquet", ".arrow", ".sqlite", ".duckdb", ".sav", ".dta", ".sas7bdat"} <= {*READS}


def test_a_total_offers_what_it_can_be_expressed_in(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    assert run(["ledger", "total", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert run(["ledger", "init", str(tmp_path / "a.ledger"), "--dataset", "d"]) == 0
    assert run(["ledger", "total", str(tmp_path / "a.ledger"), "--output", "renyi"]) == 2
    error = capsys.readouterr().err
    assert "one of pure, zcdp, approximate, gdp, tv, kl, hellinger, chi2." in error
    assert "pure, zcdp, approximate, gdp, tv, kl, hellinger or chi2" in told
