"""`stirred mechanism`, and settings by `--set`: what each takes is said, and what is given is read by its type."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stirred.cli.main import run
from stirred.cli.plan_options import given_settings
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Settings
from tests.world import households

Out = pytest.CaptureFixture[str]
SWAP = ["--match", "size", "--swap", "county", "--id", "hid"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    households().write_parquet(tmp_path / "homes.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_has_every_installed_mechanism(capsys: Out) -> None:
    assert run(["mechanism", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["mechanisms"]
    assert [each["name"] for each in found] == registry.names()
    assert all(len(each["what"]) > 20 and each["package"] for each in found)
    assert run(["mechanism", "list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_is_shown_with_its_description(name: str, capsys: Out) -> None:
    assert run(["mechanism", "show", name, "--json"]) == 0
    shown = {each["key"]: each for each in json.loads(capsys.readouterr().out)["settings"]}
    model = registry.mechanism_class(name).settings_model
    assert {*shown} == {*model.model_fields}
    assert all(len(each["description"]) > 10 and each["type"] for each in shown.values())
    assert all(each["example"] is not None for each in shown.values() if each["required"])
    assert run(["mechanism", "show", name.removesuffix("-swap")]) == 0
    assert all(key in capsys.readouterr().out for key in [*shown][:1])


@pytest.mark.parametrize("name", registry.names())
def test_the_examples_of_a_mechanism_are_settings_that_it_accepts(name: str) -> None:
    model = registry.mechanism_class(name).settings_model
    examples = {key: model.mark(key, "example") for key in model.model_fields}
    settings = registry.settings_for(name, {key: value for key, value in examples.items() if value is not None})
    assert isinstance(settings, Settings)
    assert registry.settings_for(name, settings.dumped()) == settings, "what is kept is read back as it was"


@pytest.mark.parametrize("name", [name for name in registry.names() if name not in registry.EARLIER])
def test_defaults_are_those_of_the_mechanism_itself(name: str) -> None:
    from dataclasses import MISSING, fields

    found = registry.mechanism_class(name)
    own: dict[str, Any] = {each.name: each.default for each in fields(found) if each.default is not MISSING}  # type: ignore[arg-type]
    declared = {key: field.default for key, field in found.settings_model.model_fields.items()}
    same = {key: (own[key], declared[key]) for key in own.keys() & declared.keys()}
    assert all(list(a) == b if isinstance(b, list) else a == b for a, b in same.values()), same


def test_an_unknown_mechanism_is_refused_with_what_was_meant(capsys: Out) -> None:
    assert run(["mechanism", "show", "malows"]) == 2
    assert 'did you mean "mallows-swap"?' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("two-stage-swap", "fine_match=tenure", ["tenure"]),
        ("two-stage-swap", "fine-match=tenure, age", ["tenure", "age"]),
        ("conditioned-swap", "redraw_law=uniform", "uniform"),
        ("conditioned-swap", 'redraw_law={"A": "1/2", "B": "1/2"}', {"A": "1/2", "B": "1/2"}),
        ("response-swap", "values=owned,rented", ["owned", "rented"]),
        ("response-swap", 'values=["a, b", "c"]', ["a, b", "c"]),
        ("permutation-swap", 'rates=[{"size": 1, "rate": "1/10"}]', [{"size": 1, "rate": "1/10"}]),
        ("permutation-swap", 'rates=[{ size = 9, rate = "1/10" }]', [{"size": 9, "rate": "1/10"}]),
        ("permutation-swap", "imputed=a=b", "a=b"),
    ],
)
def test_a_setting_is_read_by_its_type(name: str, text: str, value: Any) -> None:
    (found,) = given_settings([text], registry.mechanism_class(name).settings_model).values()
    assert found == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "colour=red"], "--set colour: there is no setting called 'colour'. Fix: remove it, or check its"),
        (["--set", "colour=red"], "it takes --match, --swap, --hold, --rate, --set rates, --set imputed"),
        (["--set", "imputd=flag"], "did you mean 'imputed'?"),
        (["--set", "fine_match=tenure"], "the permutation swap has no fine_match"),
        (["--set", "imputed"], "'imputed' is not a setting and its value. Fix: write key=value, once for each of"),
        (["--set", "imputed=a", "--set", "imputed=b"], "imputed is given twice"),
        (
            ["--set", "rates=often"],
            "--set rates entry 1: 'often' is not a table. Fix: write a table, such as rates = [{",
        ),
        (["--set", "rates=[1"], "--set rates: '[1' cannot be read. Fix: write it as in a plan"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(folder: Path, given: list[str], said: str, capsys: Out) -> None:
    assert run(["plan", "homes.parquet", *SWAP, "--rate", "1/2", *given]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_set_and_the_option_of_its_own_mean_the_same(folder: Path, capsys: Out) -> None:
    shown = []
    for told in (["--rate", "1/3"], ["--set", "rate=1/3"]):
        assert run(["plan", "homes.parquet", *SWAP, *told, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out)["epsilon"])
    assert shown[0] == shown[1]


def test_the_shell_completes_mechanisms_and_their_settings() -> None:
    from stirred.cli.main import app

    def completed(words: str) -> str:
        asked = {"_STIRRED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
        return CliRunner().invoke(app, [], prog_name="stirred", env=asked).output

    assert "mallows-swap" in completed("stirred swap homes.csv --mechanism ")
    keys = completed("stirred swap homes.csv --mechanism two-stage --set ")
    assert "fine_match=" in keys
    assert "rate=" not in keys.split()


def test_published_settings_have_one_exact_form_however_they_were_written() -> None:
    for rate in ("5%", "0.05", "1/20", Decimal("0.05")):
        settings = registry.settings_for("permutation-swap", {"swap": "county", "rate": rate})
        assert settings.public()["rate"] == "1/20"
        assert settings.dumped()["rate"] == str(rate)
    law = {"A": "50%", "B": Decimal("0.25")}
    redrawn = registry.settings_for("conditioned-swap", {"swap": "county", "rate": "1/2", "redraw_law": law})
    assert redrawn.public()["redraw_law"] == {"A": "1/2", "B": "1/4"}
    assert registry.settings_for("mallows-swap", {"swap": "a", "epsilon": "2*ln(5)"}).public()["epsilon"] == "2*ln(5)"


def test_a_release_states_its_mechanism_and_keeps_only_its_own_settings(folder: Path) -> None:
    told = ["--mechanism", "mallows", "--epsilon", "3", "--out", "out", "--quiet"]
    assert run(["swap", "homes.parquet", *SWAP, *told]) == 0
    stated = json.loads(Path("out/public/specification.json").read_text(encoding="utf-8"))["mechanism"]
    assert stated["name"] == "mallows-swap"
    assert stated["settings"] == {
        "match": ["size"],
        "swap": ["county"],
        "hold": None,
        "epsilon": "3",
        "unit": "household",
        "settings_from": None,
    }
    kept = json.loads(Path("out/manifest.json").read_text(encoding="utf-8"))["plan"]["mechanism"]
    assert kept == {"name": stated["name"], **stated["settings"]}
