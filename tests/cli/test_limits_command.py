"""`stirred limits`: the keys of each answer, and refusals that are as clear as answers."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stirred.report.charts import GREY
from tests.cli.running import SURVEY, Command, told, words

RESPONSE = {"name": "randomised-response", "records": 2, "epsilon": 1}
HALF = {"share": "1/2"}


def model(folder: Path, **changed: Any) -> str:
    given = {"mechanism": RESPONSE, "attackers": {"apart": HALF}, **changed}
    path = folder / "model.json"
    path.write_text(json.dumps(given), encoding="utf-8")
    return str(path)


def refused(command: Command, *arguments: str) -> dict[str, str]:
    code, out, _ = command("limits", *arguments, "--json")
    assert code == 2, out
    (problem,) = json.loads(out)["errors"]
    assert all(problem[key].strip() for key in ("what", "where", "remedy"))
    return dict(problem)


def test_power_has_both_ends_rounded_outwards(command: Command) -> None:
    found = told(command, "limits", "power", "--alpha", ".05", "--epsilon", "1", "--distance", "1")
    assert found["lower"] == pytest.approx(0.0183939721, abs=1e-9)
    assert found["upper"] == pytest.approx(0.1359140914, abs=1e-9)
    assert found["upper_exact"] == "1/20*exp(1)"
    shown = words(command, "limits", "power", "--alpha", ".05", "--epsilon", "1")
    assert "from 1.83% to 13.60% for a test of size .05" in shown  # 1.8393... down and 13.5914... up
    assert words(command, "limits", "power", "--alpha", ".05", "--epsilon", "11").endswith("rule out almost nothing")


def test_required_posterior_and_density(command: Command) -> None:
    found = told(command, "limits", "power", "--alpha", "5%", "--power", "80%", "--distance", "2")
    assert (found["loss_exact"], found["epsilon_exact"]) == ("ln(16)", "ln(4)")
    assert "at least 2.78" in words(command, "limits", "power", "--alpha", "5%", "--power", "80%")
    found = told(command, "limits", "posterior", "--prior", ".3", "--epsilon", "1", "--distance", "1")
    assert found["odds"] == pytest.approx([0.1361904714, 0.5381015262], abs=1e-9)
    assert found["stated"] == pytest.approx([0.1103638324, 0.8154845485], abs=1e-9)
    assert "13.61% to 53.82%" in words(command, "limits", "posterior", "--prior", ".3", "--epsilon", "1")
    found = told(command, "limits", "density", "--epsilon", ".1", "--records", "10", "--at", "5")
    assert (found["lower"], found["upper"]) == pytest.approx((0.0183939721, 0.0824360635), abs=1e-9)
    response = ["--mechanism", "randomised-response", "--records", "3", "--epsilon", "1"]
    found = told(command, "limits", "density", *response)
    assert (found["lower"], found["upper"]) == pytest.approx((0.0194523953, 0.3907118049), abs=1e-9)
    assert "any model" in words(command, "limits", "density", *response)


def test_pufferfish_says_what_it_skipped(command: Command, tmp_path: Path) -> None:
    attackers = {"alike": {"share": "1/2", "correlation": "0.9"}, "sure": {"00": 1}}
    file = model(tmp_path, attackers=attackers)
    found = told(command, "limits", "pufferfish", "--model", file)
    assert found["loss"] == pytest.approx(1.8854616085, abs=1e-9)
    assert found["attacker"] == "alike"
    assert [each["attacker"] for each in found["skipped"]] == ["sure", "sure"]
    assert "Skipped: - sure, record 1 is 0 or 1" in words(command, "limits", "pufferfish", "--model", file)
    vacuous = model(tmp_path, attackers={"sure": {"00": 1}})
    found = told(command, "limits", "pufferfish", "--model", vacuous)
    assert (found["loss"], found["vacuous"], len(found["skipped"])) == (None, True, 2)
    assert "vacuous: every pair was skipped" in words(command, "limits", "pufferfish", "--model", vacuous)


def test_what_no_number_answers_is_said_in_words(command: Command) -> None:
    assert "no finite epsilon" in words(command, "limits", "power", "--alpha", "5%", "--power", "1")
    assert told(command, "limits", "power", "--alpha", "5%", "--power", "1")["loss"] == "inf"
    asked = ("limits", "posterior", "--prior", ".3", "--epsilon")
    assert "no assurance: epsilon times distance is 12" in words(command, *asked, "12")
    assert "no assurance" not in words(command, *asked, "10")
    problem = refused(command, "power", "--alpha", "5%", "--epsilon", "1", "--distance", "-2")
    assert problem["remedy"] == "write a distance of 0 or more"


def test_a_model_may_list_laws_and_conjectures(command: Command, tmp_path: Path) -> None:
    kernel = {"a": {"yes": "3/4", "no": "1/4"}, "b": {"yes": "1/4", "no": "3/4"}}
    pairs = [{"first": ["a"], "second": ["b"]}]
    file = model(tmp_path, mechanism=kernel, attackers={"fair": {"a": "1/2", "b": "1/2"}}, pairs=pairs)
    found = told(command, "limits", "pufferfish", "--model", file)
    assert (found["loss_exact"], found["pair"]) == ("ln(3)", "pair 1")


@pytest.mark.parametrize(
    ("changed", "what", "where"),
    [
        ({"extra": 1}, "there is no setting called 'extra'", "extra"),
        ({"attackers": {}}, "{} is empty", "attackers"),
        ({"attackers": {"a": {"00": "1/2"}}}, "the probabilities sum to 0.5", "attackers a"),
        ({"attackers": {"a": {"0": 1}}}, "the mechanism has no output law for '0'", "attacker a"),
        ({"attackers": {"a": {"share": "7/4"}}}, "7/4 is not a probability", "attackers a share"),
        ({"pairs": [{"first": ["00"], "second": ["22"]}]}, "'22' is not a file", "pairs pair 1"),
        ({"pairs": [{"first": ["00"], "second": ["00"]}]}, "'00' is in both", "pairs pair 1"),
        ({"mechanism": {"a": {"t": "-1"}}}, "-1 is not a weight", "mechanism a t"),
        ({"mechanism": {"a": {"t": 1}}}, "share and correlation are for", "attackers apart"),
        (
            {"mechanism": {"name": "randomised-response", "epsilon": 1}},
            "'records' is missing",
            "mechanism.records",
        ),
        ({"mechanism": {}}, "there is no file in it", "mechanism"),
        ({"mechanism": {**RESPONSE, "records": 99}}, "99 records give too many files", "mechanism records"),
        ({"mechanism": {**RESPONSE, "name": "geometric-sum", "records": 10**9}}, "too many files", "mechanism records"),
        ({"mechanism": {**RESPONSE, "epsilon": 10**6}}, "epsilon 1000000 cannot be listed", "mechanism epsilon"),
        ({"attackers": {"a": {"": 1}}}, "the mechanism has no output law for ''", "attacker a"),
        ({"attackers": {"a": {"00": -1}}}, "-1 is not a weight", "attackers a 00"),
        ({"mechanism": {**RESPONSE, "records": "2"}}, "'2' is not a whole number", "mechanism.records"),
        ({"attackers": {"a": {"share": [1]}}}, "[1] is not a number or text", "attackers.a.share"),
    ],
)
def test_a_wrong_model_is_refused_where_it_is_wrong(
    command: Command, tmp_path: Path, changed: dict[str, Any], what: str, where: str
) -> None:
    file = model(tmp_path, **changed)
    code, out, _ = command("limits", "pufferfish", "--model", file, "--json")
    assert code == 2
    problems = json.loads(out)["errors"]
    assert all(each["where"].startswith(f"{file} {re.split('[ .]', where)[0]}") for each in problems)
    assert any(what in each["what"].lower() and each["where"].endswith(where) for each in problems), problems


def test_files_that_cannot_be_read_are_refused(command: Command, tmp_path: Path) -> None:
    assert "cannot read" in refused(command, "pufferfish", "--model", str(tmp_path / "none.json"))["what"]
    (tmp_path / "half.json").write_text("{", encoding="utf-8")
    assert "not JSON" in refused(command, "pufferfish", "--model", str(tmp_path / "half.json"))["what"]
    (tmp_path / "half.json").write_text(" ", encoding="utf-8")
    assert "file is empty" in refused(command, "pufferfish", "--model", str(tmp_path / "half.json"))["what"]
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    assert "not a model" in refused(command, "pufferfish", "--model", str(tmp_path / "list.json"))["what"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ('{"attackers": {"a": {"00": 1}, "a": {"11": 1}}}', "the key 'a' stands twice"),
        ('{"mechanism": {"a": {"t": NaN}}}', "NaN is not a number in JSON"),
        ('{"mechanism": %s}' % ("9" * 5000), "4300 digits"),
        ("[" * 10**5, "nested too deeply"),
    ],
    ids=["empty", "twice", "nan", "digits", "nested"],
)
def test_a_model_that_is_no_plain_json_is_refused_and_is_no_fault_of_ours(
    command: Command, tmp_path: Path, text: str, what: str
) -> None:
    (tmp_path / "odd.json").write_text(text, encoding="utf-8")
    assert what in refused(command, "pufferfish", "--model", str(tmp_path / "odd.json"))["what"]


def test_no_pair_at_all_is_not_called_skipped(command: Command, tmp_path: Path) -> None:
    shown = words(command, "limits", "pufferfish", "--model", model(tmp_path, pairs=[]))
    assert "vacuous: there is no pair of conjectures" in shown


def test_numbers_beyond_every_double_and_at_the_bottom_are_still_json(command: Command) -> None:
    far = told(command, "limits", "density", "--epsilon", "1000", "--records", "1000", "--at", "500")
    assert (far["upper"], far["upper_exact"]) == ("inf", "500*exp(500000)")
    assert (
        told(command, "limits", "power", "--alpha", "5%", "--power", "80%", "--distance", "1e-320")["epsilon"] == "inf"
    )
    lower = told(command, "limits", "power", "--alpha", "5%", "--epsilon", "inf")["lower"]
    assert str(lower) == "0.0"  # and not -0.0
    assert "infinite" in words(command, "limits", "power", "--alpha", "0", "--power", "50%")


def test_explain_reads_a_specification_and_refuses_other_flavors_by_name(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "survey.json"
    file.write_text(json.dumps(SURVEY), encoding="utf-8")
    found = told(command, "limits", "explain", str(file))
    first = found["rows"][0]
    assert (first["about"], first["distance"], first["assured"]) == ("one household, or one person in it", 1, True)
    assert first["epsilon_times_distance"] == 1.5
    assert found["epsilon_exact"] == "3/2"
    assert any("household" in each for each in found["reveals"])
    assert "For the exact figures there is no limit" in words(command, "limits", "explain", str(file))
    problem = refused(command, "explain", "gaussian-dp", "--budget", "1")
    assert problem["where"] == "gaussian-dp"
    assert "unsupported flavor" in problem["what"]
    assert "Gaussian" in problem["what"]
    zcdp = told(command, "limits", "explain", "zcdp", "--budget", "1/10")
    assert (zcdp["rho2_exact"], zcdp["rows"][1]["rho2_times_squared_distance"]) == ("1/10", 0.4)
    assert zcdp["rows"][0]["words"] == "a 5% test has power at most 13.6%"
    assert "a letter without a value" in refused(command, "explain", "pure-dp")["what"]


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["power", "--alpha", "5", "--epsilon", "1"], "--alpha"),
        (["power", "--alpha", ".05", "--epsilon", "-1"], "--epsilon"),
        (["power", "--alpha", ".05", "--epsilon", "1", "--distance", "x"], "--distance"),
        (["power", "--alpha", ".05", "--power", "2"], "--power"),
        (["power", "--alpha", ".05", "--power", ".5", "--distance", "0"], "--distance"),
        (["posterior", "--prior", "2", "--epsilon", "1"], "--prior"),
        (["density", "--epsilon", "1", "--records", "3"], "--at"),
        (["density", "--epsilon", "1", "--records", "3", "--at", "1", "--method", "best"], "--method"),
        (
            ["density", "--epsilon", "1", "--records", "3", "--mechanism", "randomised-response", "--method", "best"],
            "--method",
        ),
        (["density", "--epsilon", "0", "--records", "3", "--at", "1"], "--epsilon"),
        (["density", "--epsilon", "1", "--records", "0", "--at", "1"], "--records"),
        (["density", "--epsilon", "1", "--records", "3", "--mechanism", "gauss"], "--mechanism"),
        (["explain", "pure-dp", "--budget", "1", "--area", "0"], "--area"),
    ],
)
def test_bad_options_are_named(command: Command, arguments: list[str], where: str) -> None:
    assert refused(command, *arguments)["where"] == where


def test_figures_come_with_their_data_and_replace_nothing(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    found = told(command, "limits", "figures", "--out", str(out))
    assert {f"figure-5-{n}.{end}" for n in range(1, 5) for end in ("svg", "csv")} <= {*found["files"]}
    for n in range(1, 5):
        assert "<svg" in (out / f"figure-5-{n}.svg").read_text(encoding="utf-8")
    drawn = (out / "figure-5-4.svg").read_text(encoding="utf-8")
    assert "exact, count 0 to 6" in drawn  # one entry for all ten
    assert drawn.rindex(f'stroke="{GREY}"', 0, drawn.index("role-legend")) < drawn.index('stroke-dasharray="5,4"')
    assert "-0.0," not in (out / "power-region.csv").read_text(encoding="utf-8")
    with (out / "figure-5-2.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    (peak,) = [r for r in rows if (r["t"], r["epsilon"], r["curve"]) == ("5.0", "0.25", "upper bound")]
    assert float(peak["density"]) == pytest.approx(0.4362928697, abs=1e-9)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert refused(command, "figures", "--out", str(out))["what"] == "this file exists already"
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
