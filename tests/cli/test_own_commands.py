"""Commands that mechanisms bring along: from a model of options to a command of the program."""

from __future__ import annotations

import json
import sys
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import typer
from pydantic import BaseModel, Field

from stirred.cli.main import app as stirred
from stirred.cli.main import run
from stirred.cli.places import PLACES, RENAMED, RENAMED_OPTIONS, CommandPlace
from stirred.mechanisms.groups import GROUPS
from stirred.mechanisms.protocol import Command, Grid, Outcome


class Options(BaseModel):
    file: Path = Field(description="What is weighed.", json_schema_extra={"argument": "FILE"})
    times: int = Field(default=2, description="How often.")
    arm: Literal["left", "right"] = Field(default="left", description="Which arm.")
    where: list[str] = Field(default=[], description="A condition.", json_schema_extra={"form": "COLUMN=CODE"})
    out: Path | None = Field(default=None, description="Where it goes.")
    strict: bool = Field(default=False, description="Fail if anything is odd.")


def weigh(options: Options, progress: Any) -> Outcome:
    grid = Grid(header=("cell", "count"), rows=((1, 2),))
    values = {"file": options.file.name, "times": options.times, "arm": options.arm, "where": options.where}
    return Outcome(rows=[("weighed", options.file.name)], grids=[grid], values=values, passed=not options.strict)


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("scales_commands")
    module.COMMANDS = (Command(name="weigh", help="Weigh a file.", options=Options, run=weigh, progress=True),)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scales_commands", module)
    monkeypatch.setitem(PLACES, "scales", CommandPlace("scales_commands", "Weigh things.", group=True))
    # The commands of this process were assembled without the group, and are kept.
    monkeypatch.setattr(typer.main, "get_command", typer.main.get_command.__wrapped__)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("scales")
def test_a_command_has_its_options_and_prints_rows_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scales", "weigh", "a.csv", "--times", "3", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "weighed  a.csv" in told
    assert "cell" in told
    assert "count" in told


@pytest.mark.usefixtures("scales")
def test_its_values_are_json_and_a_failed_check_leaves_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["scales", "weigh", "a.csv", "--where", "x=1", "--where", "y=2", "--arm", "right", "--strict", "--json"]
    assert run(command) == 1
    assert json.loads(capsys.readouterr().out) == {"file": "a.csv", "times": 2, "arm": "right", "where": ["x=1", "y=2"]}


@pytest.mark.usefixtures("scales")
def test_wrong_options_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scales", "weigh", "a.csv", "--times", "many", "--arm", "middle"]) == 2
    told = capsys.readouterr().err
    assert "--times: 'many'" in told
    assert "--arm: 'middle'" in told


@pytest.mark.usefixtures("scales")
def test_help_lists_arguments_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scales", "--help"]) == 0
    assert "weigh" in capsys.readouterr().out
    assert run(["scales", "weigh", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for words in ("FILE", "--where COLUMN=CODE", "One of left, right.", "--out FILE", "Default: 2."):
        assert words in told


@pytest.mark.usefixtures("scales")
def test_a_missing_argument_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scales", "weigh"]) == 2
    assert "FILE" in capsys.readouterr().err


def test_groups_are_listed_without_loading_their_commands() -> None:
    group = typer.main.get_command.__wrapped__(stirred)  # type: ignore[attr-defined]
    assert group.commands.made == {}
    for name in GROUPS:
        assert group.commands[name]._built is None


def test_the_list_of_commands_says_of_each_what_its_own_help_says_first() -> None:
    group = typer.main.get_command(stirred)
    for name, place in PLACES.items():
        assert group.commands[name].help.splitlines()[0] == place.help, name  # type: ignore[attr-defined]


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_of_a_command_answers_with_the_new_one(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*old.split(), "anything", "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["what"] == f"`stirred {old}` is now `stirred {RENAMED[old]}`"
    new = RENAMED[old].split()
    assert run([*takewhile(lambda word: word.islower() and not word.startswith("-"), new), "--help"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in new if word.startswith("--"))


@pytest.mark.parametrize("old", RENAMED_OPTIONS)
def test_an_old_option_answers_with_the_new_one(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, option = old.split()
    assert run([command, "anything", option, "1"]) == 2
    assert capsys.readouterr().err == f"`stirred {old}` is now {RENAMED_OPTIONS[old]}.\n"
